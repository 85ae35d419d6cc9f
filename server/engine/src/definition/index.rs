//! Checks a snapshot and builds the index of a [`Definition`]. The last word on every structural invariant: compiled and
//! stored definitions both pass through here.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use piw_protocol::definition::{DEFINITION_SCHEMA, DefinitionSnapshot, EdgeRoute, ExitSnapshot, SwitchSnapshot};

use super::{Definition, Edge, Leave, Node, ROOT, Scope, ScopeIx, SnapshotError, Target, timeout_millis};
use crate::names::{check_id, check_qualified, qualify, split_qualified};
use crate::route::PathExpr;
use crate::{digest_of, limits};

type Checked<T> = Result<T, SnapshotError>;

fn fail<T>(message: String) -> Checked<T> {
    Err(SnapshotError(message))
}

pub(super) fn build(snapshot: DefinitionSnapshot) -> Checked<Definition> {
    if snapshot.schema != DEFINITION_SCHEMA {
        return fail(format!(
            "schema is \"{}\", not \"{DEFINITION_SCHEMA}\"",
            snapshot.schema
        ));
    }
    let scopes = scopes(&snapshot)?;
    let by_mount: HashMap<String, ScopeIx> = scopes.iter().enumerate().map(|(ix, s)| (s.mount.clone(), ix)).collect();
    let mut nodes = nodes(&snapshot, &by_mount)?;
    let by_id: HashMap<String, usize> = nodes.iter().enumerate().map(|(ix, n)| (n.id.clone(), ix)).collect();
    let mut graph = Graph {
        snapshot: &snapshot,
        scopes: &scopes,
        by_mount: &by_mount,
        by_id: &by_id,
    };
    graph.leaves(&mut nodes)?;
    graph.edges(&mut nodes)?;
    graph.entries()?;
    let start = graph.target(ROOT, &snapshot.start_at, "startAt")?;
    let digest = digest_of(&snapshot).map_err(|error| SnapshotError(error.to_string()))?;
    Ok(Definition {
        snapshot,
        digest,
        nodes,
        by_id,
        scopes,
        by_mount,
        start,
    })
}

fn scopes(snapshot: &DefinitionSnapshot) -> Checked<Vec<Scope>> {
    let mut scopes = vec![Scope {
        mount: String::new(),
        local_name: String::new(),
        parent: None,
        workflow_name: snapshot.name.clone(),
        max_steps: max_steps(snapshot.max_steps, "the root")?,
        parent_ix: None,
    }];
    let mut known = HashMap::from([(String::new(), ROOT)]);
    for include in &snapshot.includes {
        let mount = &include.mount;
        check_qualified(mount).map_err(|error| SnapshotError(format!("mount \"{mount}\": {error}")))?;
        if mount.split('/').count() > limits::INCLUDE_DEPTH {
            return fail(format!(
                "mount \"{mount}\" is nested deeper than {}",
                limits::INCLUDE_DEPTH
            ));
        }
        let (parent, local) = split_qualified(mount);
        let Some(&parent_ix) = known.get(parent) else {
            return fail(format!("mount \"{mount}\" comes before its parent"));
        };
        if known.insert(mount.clone(), scopes.len()).is_some() {
            return fail(format!("mount \"{mount}\" is listed twice"));
        }
        scopes.push(Scope {
            mount: mount.clone(),
            local_name: local.to_owned(),
            parent: Some(parent.to_owned()),
            workflow_name: include.workflow_name.clone(),
            max_steps: max_steps(include.max_steps, mount)?,
            parent_ix: Some(parent_ix),
        });
    }
    Ok(scopes)
}

fn max_steps(declared: Option<u32>, whose: &str) -> Checked<u32> {
    match declared {
        Some(0) => fail(format!("maxSteps of {whose} is 0")),
        Some(bound) => Ok(bound),
        None => Ok(limits::DEFAULT_MAX_STEPS),
    }
}

fn nodes(snapshot: &DefinitionSnapshot, by_mount: &HashMap<String, ScopeIx>) -> Checked<Vec<Node>> {
    let ordered: BTreeSet<&str> = snapshot.node_order.iter().map(String::as_str).collect();
    let same = ordered.len() == snapshot.node_order.len()
        && ordered.len() == snapshot.nodes.len()
        && snapshot.nodes.keys().all(|id| ordered.contains(id.as_str()));
    if !same {
        return fail("nodeOrder does not list every node exactly once".to_owned());
    }
    if snapshot.nodes.len() > limits::NODES {
        return fail(format!(
            "{} nodes; at most {} are allowed",
            snapshot.nodes.len(),
            limits::NODES
        ));
    }
    snapshot
        .node_order
        .iter()
        .map(|id| node(snapshot, by_mount, id))
        .collect()
}

fn node(snapshot: &DefinitionSnapshot, by_mount: &HashMap<String, ScopeIx>, id: &str) -> Checked<Node> {
    check_qualified(id).map_err(|error| SnapshotError(format!("node \"{id}\": {error}")))?;
    if by_mount.contains_key(id) {
        return fail(format!("\"{id}\" is a node and a mount"));
    }
    let (mount, local) = split_qualified(id);
    let Some(&scope) = by_mount.get(mount) else {
        return fail(format!("node \"{id}\" belongs to no mount"));
    };
    let spec = snapshot.nodes[id].clone();
    if let Some(Some(ms)) = spec.timeout_ms
        && timeout_millis(ms).is_none()
    {
        return fail(format!("timeoutMs of node \"{id}\" is {ms}, not a positive number"));
    }
    Ok(Node {
        id: id.to_owned(),
        local_id: local.to_owned(),
        mount: mount.to_owned(),
        spec,
        leaves: Vec::new(),
        scope,
        edge: Edge::None,
    })
}

struct Graph<'a> {
    snapshot: &'a DefinitionSnapshot,
    scopes: &'a [Scope],
    by_mount: &'a HashMap<String, ScopeIx>,
    by_id: &'a HashMap<String, usize>,
}

impl Graph<'_> {
    /// Exits of every mount become leaves of their nodes. Inner mounts come first, so deeper scopes are walked first.
    fn leaves(&mut self, nodes: &mut [Node]) -> Checked<()> {
        for include in self.snapshot.includes.iter().rev() {
            let scope = self.by_mount[&include.mount];
            let mut used: BTreeMap<&str, &str> = BTreeMap::new();
            for (name, exit) in &include.exits {
                let ix = self.exit_node(nodes, scope, &include.mount, name, exit)?;
                if let Some(other) = used.insert(&exit.node, name) {
                    return fail(format!(
                        "exits \"{other}\" and \"{name}\" of \"{}\" name one node",
                        include.mount
                    ));
                }
                nodes[ix].leaves.push(Leave {
                    mount: include.mount.clone(),
                    exit: name.clone(),
                    validates: exit.validates,
                    scope,
                });
            }
        }
        for (name, exit) in &self.snapshot.exits {
            self.exit_node(nodes, ROOT, "", name, exit)?;
        }
        Ok(())
    }

    /// The node of an exit: it belongs to the scope, or leaves exactly the mounts between the scope and itself.
    fn exit_node(
        &self,
        nodes: &[Node],
        scope: ScopeIx,
        mount: &str,
        name: &str,
        exit: &ExitSnapshot,
    ) -> Checked<usize> {
        let what = || format!("exit \"{}\"", qualify(mount, name));
        check_id(name).map_err(|error| SnapshotError(format!("{}: {error}", what())))?;
        let Some(&ix) = self.by_id.get(&exit.node) else {
            return fail(format!("{} names the unknown node \"{}\"", what(), exit.node));
        };
        if self.owner(&nodes[ix]) != scope {
            return fail(format!(
                "{} names \"{}\", which does not end the workflow",
                what(),
                exit.node
            ));
        }
        Ok(ix)
    }

    /// The scope in which a node's `ok` end is followed: its own, or the parent of the outermost mount that it leaves.
    fn owner(&self, node: &Node) -> ScopeIx {
        match node.leaves.last() {
            Some(leave) => self.scopes[leave.scope].parent_ix.unwrap_or(ROOT),
            None => node.scope,
        }
    }

    fn edges(&mut self, nodes: &mut [Node]) -> Checked<()> {
        for edge in &self.snapshot.edges {
            let Some(&from) = self.by_id.get(&edge.from) else {
                return fail(format!("an edge comes from the unknown node \"{}\"", edge.from));
            };
            if !matches!(nodes[from].edge, Edge::None) {
                return fail(format!("node \"{}\" has two outgoing edges", edge.from));
            }
            let owner = self.owner(&nodes[from]);
            nodes[from].edge = match &edge.route {
                EdgeRoute::To { to } => Edge::To(self.target(owner, to, &edge.from)?),
                EdgeRoute::Switch { switch } => self.switch(owner, switch, &edge.from)?,
            };
        }
        let root_exits = self.snapshot.exits.values().map(|exit| &exit.node);
        for id in root_exits {
            if !nodes[self.by_id[id]].is_terminal() {
                return fail(format!("exit node \"{id}\" of the root has an outgoing edge"));
            }
        }
        Ok(())
    }

    fn switch(&self, owner: ScopeIx, switch: &SwitchSnapshot, from: &str) -> Checked<Edge> {
        let on =
            PathExpr::parse(&switch.on).map_err(|error| SnapshotError(format!("switch from \"{from}\": {error}")))?;
        let listed: BTreeSet<&String> = switch.case_order.iter().collect();
        if listed.len() != switch.case_order.len() || !listed.iter().copied().eq(switch.cases.keys()) {
            return fail(format!(
                "caseOrder of the switch from \"{from}\" does not list every case exactly once"
            ));
        }
        if switch.cases.is_empty() {
            return fail(format!("the switch from \"{from}\" has no cases"));
        }
        let cases = switch
            .cases
            .iter()
            .map(|(label, to)| Ok((label.clone(), self.target(owner, to, from)?)))
            .collect::<Checked<_>>()?;
        Ok(Edge::Switch {
            on,
            cases,
            order: switch.case_order.clone(),
        })
    }

    /// Every mount's entry lies in the mount, and every mount between is entered at its own start.
    fn entries(&self) -> Checked<()> {
        for include in &self.snapshot.includes {
            let scope = self.by_mount[&include.mount];
            self.target(scope, &include.start_at, &format!("start of mount {}", include.mount))?;
        }
        Ok(())
    }

    /// A target seen from `owner`: a node of that scope, or the start of mounts nested in it.
    fn target(&self, owner: ScopeIx, to: &str, from: &str) -> Checked<Target> {
        let Some(&node) = self.by_id.get(to) else {
            return fail(format!("\"{from}\" leads to the unknown node \"{to}\""));
        };
        let mut enters = Vec::new();
        let mut scope = self.by_mount[split_qualified(to).0];
        while scope != owner {
            let Some(parent) = self.scopes[scope].parent_ix else {
                return fail(format!("\"{from}\" leads out of its workflow to \"{to}\""));
            };
            let include = &self.snapshot.includes[scope - 1];
            if include.start_at != to {
                return fail(format!(
                    "\"{from}\" enters \"{}\" at \"{to}\", not at its start",
                    include.mount
                ));
            }
            enters.push(scope);
            scope = parent;
        }
        enters.reverse();
        Ok(Target { node, enters })
    }
}
