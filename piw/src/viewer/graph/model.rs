//! The graph to draw, read from a definition snapshot: nodes in document order, edges with merged labels, include groups.
//!
//! Knows nothing of runs or of geometry. Names are neutralised here, so everything below may print them.

use std::collections::{BTreeMap, HashMap};

use piw_protocol::definition::{ActionExecution, DefinitionSnapshot, EdgeRoute, NodeType};

use crate::text::clean;

/// What a card says about its node's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A model step.
    Agent,
    /// Pure code.
    Compute,
    /// A message.
    Notify,
    /// A process.
    Shell,
    /// Code with side effects.
    Function,
    /// Waits for an answer.
    Checkpoint,
}

impl Kind {
    /// One-column glyph.
    #[must_use]
    pub const fn glyph(self) -> &'static str {
        match self {
            Self::Agent => "●",
            Self::Compute => "ƒ",
            Self::Notify => "!",
            Self::Shell => "$",
            Self::Function => "*",
            Self::Checkpoint => "◆",
        }
    }

    /// A word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Compute => "compute",
            Self::Notify => "notify",
            Self::Shell => "shell",
            Self::Function => "action",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Reads the kind of a node.
    #[must_use]
    pub fn of(node_type: NodeType, execution: Option<ActionExecution>) -> Self {
        match (node_type, execution) {
            (NodeType::Agent, _) => Self::Agent,
            (NodeType::Compute, _) => Self::Compute,
            (NodeType::Notify, _) => Self::Notify,
            (NodeType::Checkpoint, _) => Self::Checkpoint,
            (NodeType::Action, Some(ActionExecution::Shell)) => Self::Shell,
            (NodeType::Action, _) => Self::Function,
        }
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Qualified id as the server knows it.
    pub id: String,
    /// Last segment of the id, neutralised.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Innermost group.
    pub group: Option<usize>,
    /// Whether no edge leaves it.
    pub terminal: bool,
    /// Declared one-line detail, neutralised.
    pub detail: Option<String>,
    /// What a checkpoint asks, neutralised.
    pub summary: Option<String>,
    /// Path of the value that decides where the run goes from here, neutralised.
    pub route: Option<String>,
}

/// All edges from one node to another.
#[derive(Debug, Clone)]
pub struct Edge {
    /// Source.
    pub from: usize,
    /// Target.
    pub to: usize,
    /// Case labels that lead there, in document order, joined; empty for a plain edge.
    pub label: String,
}

/// A mounted workflow.
#[derive(Debug, Clone)]
pub struct Group {
    /// Qualified mount path.
    pub mount: String,
    /// Last segment of the mount path and the mounted workflow's name, neutralised.
    pub title: String,
    /// Enclosing group.
    pub parent: Option<usize>,
    /// Nesting depth, 0 for groups of the root.
    pub depth: usize,
    /// Nodes inside, nested groups included.
    pub nodes: usize,
}

/// A definition's graph.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Nodes in document order.
    pub nodes: Vec<Node>,
    /// Edges in document order; at most one for a pair of nodes.
    pub edges: Vec<Edge>,
    /// Groups, outer before inner.
    pub groups: Vec<Group>,
    /// First node.
    pub start: Option<usize>,
    index: HashMap<String, usize>,
    pairs: HashMap<(usize, usize), usize>,
}

impl Graph {
    /// Reads a snapshot. References to nodes that do not exist are left out.
    #[must_use]
    pub fn new(definition: &DefinitionSnapshot) -> Self {
        let mut graph = Self::default();
        graph.read_groups(definition);
        graph.read_nodes(definition);
        graph.read_edges(definition);
        graph.start = graph.node(&definition.start_at);
        graph
    }

    /// Index of a node by qualified id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// Index of the edge between two nodes.
    #[must_use]
    pub fn edge(&self, from: usize, to: usize) -> Option<usize> {
        self.pairs.get(&(from, to)).copied()
    }

    /// The groups around a node, innermost first.
    pub fn around(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.nodes[node].group, |group| self.groups[*group].parent)
    }

    fn read_groups(&mut self, definition: &DefinitionSnapshot) {
        let mut includes: Vec<_> = definition.includes.iter().collect();
        includes.sort_by_key(|include| include.mount.matches('/').count());
        let mut by_mount: HashMap<&str, usize> = HashMap::new();
        for include in includes {
            let (parent, local) = match include.mount.rsplit_once('/') {
                Some((parent, local)) => (by_mount.get(parent).copied(), local),
                None => (None, include.mount.as_str()),
            };
            by_mount.insert(&include.mount, self.groups.len());
            self.groups.push(Group {
                mount: include.mount.clone(),
                title: clean(&format!("{local} · {}", include.workflow_name)).into_owned(),
                parent,
                depth: parent.map_or(0, |parent| self.groups[parent].depth + 1),
                nodes: 0,
            });
        }
    }

    fn read_nodes(&mut self, definition: &DefinitionSnapshot) {
        let mounts: HashMap<String, usize> = self
            .groups
            .iter()
            .enumerate()
            .map(|(index, group)| (group.mount.clone(), index))
            .collect();
        let mut seen = std::collections::HashSet::new();
        let ordered = definition.node_order.iter().chain(definition.nodes.keys());
        for id in ordered.filter(|id| seen.insert(id.as_str())) {
            let Some(node) = definition.nodes.get(id) else { continue };
            let (mount, local) = id.rsplit_once('/').unwrap_or(("", id));
            self.index.insert(id.clone(), self.nodes.len());
            self.nodes.push(Node {
                id: id.clone(),
                name: clean(local).into_owned(),
                kind: Kind::of(node.node_type, node.action_execution),
                group: mounts.get(mount).copied(),
                terminal: true,
                summary: node.summary.as_deref().map(|text| clean(text).into_owned()),
                route: None,
                detail: node.status_detail.as_deref().map(|text| clean(text).into_owned()),
            });
        }
        for node in 0..self.nodes.len() {
            let around: Vec<usize> = self.around(node).collect();
            for group in around {
                self.groups[group].nodes += 1;
            }
        }
    }

    fn read_edges(&mut self, definition: &DefinitionSnapshot) {
        let exits: BTreeMap<&str, &str> = definition
            .includes
            .iter()
            .flat_map(|include| {
                include
                    .exits
                    .iter()
                    .map(|(name, exit)| (exit.node.as_str(), name.as_str()))
            })
            .collect();
        for edge in &definition.edges {
            match &edge.route {
                EdgeRoute::To { to } => {
                    let label = exits.get(edge.from.as_str()).copied().unwrap_or_default();
                    self.push_edge(&edge.from, to, label);
                }
                EdgeRoute::Switch { switch } => {
                    if let Some(from) = self.node(&edge.from) {
                        self.nodes[from].route = Some(clean(&switch.on).into_owned());
                    }
                    let mut seen = std::collections::HashSet::new();
                    let labels = switch.case_order.iter().chain(switch.cases.keys());
                    for label in labels.filter(|label| seen.insert(label.as_str())) {
                        if let Some(to) = switch.cases.get(label) {
                            self.push_edge(&edge.from, to, label);
                        }
                    }
                }
            }
        }
    }

    fn push_edge(&mut self, from: &str, to: &str, label: &str) {
        let (Some(from), Some(to)) = (self.node(from), self.node(to)) else {
            return;
        };
        self.nodes[from].terminal = false;
        let label = clean(label);
        if let Some(edge) = self.edge(from, to) {
            let known = &mut self.edges[edge].label;
            if !label.is_empty() {
                known.push_str(if known.is_empty() { "" } else { ", " });
                known.push_str(&label);
            }
            return;
        }
        self.pairs.insert((from, to), self.edges.len());
        self.edges.push(Edge {
            from,
            to,
            label: label.into_owned(),
        });
    }
}
