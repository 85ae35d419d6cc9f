//! A checked definition: the snapshot with its index.
//!
//! Made by [`crate::compile()`] from what an author wrote, or by [`Definition::from_snapshot`] from stored data; both give the
//! same invariants: every id resolves, every edge stays in its scope, every mount has one entry. No callbacks, no code.

mod index;

use std::collections::{BTreeMap, HashMap};

use piw_protocol::definition::{DefinitionSnapshot, NodeSnapshot, NodeType};
use piw_protocol::run::NodeOutcome;
use thiserror::Error;

use crate::limits;
use crate::route::{PathExpr, Root};

pub(crate) type NodeIx = usize;
pub(crate) type ScopeIx = usize;

/// The scope of the root workflow.
pub(crate) const ROOT: ScopeIx = 0;

/// A resolved workflow graph that passed every check.
#[derive(Debug, Clone)]
pub struct Definition {
    snapshot: DefinitionSnapshot,
    digest: String,
    nodes: Vec<Node>,
    by_id: HashMap<String, NodeIx>,
    scopes: Vec<Scope>,
    by_mount: HashMap<String, ScopeIx>,
    start: Target,
}

/// One node of a definition.
#[derive(Debug, Clone)]
pub struct Node {
    /// Qualified id.
    pub id: String,
    /// Id within its own workflow.
    pub local_id: String,
    /// Mount path of its workflow, `""` for the root.
    pub mount: String,
    /// The node as data.
    pub spec: NodeSnapshot,
    /// Mounts that are left when the node ends with `ok`, innermost first.
    pub leaves: Vec<Leave>,
    pub(crate) scope: ScopeIx,
    pub(crate) edge: Edge,
}

/// A mount left through an exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// Qualified mount path.
    pub mount: String,
    /// Exit name.
    pub exit: String,
    /// Whether the exit declares a `validate` callback.
    pub validates: bool,
    pub(crate) scope: ScopeIx,
}

/// The root workflow or a mounted one.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Qualified mount path, `""` for the root.
    pub mount: String,
    /// Name under which the parent mounted it, `""` for the root.
    pub local_name: String,
    /// Mount path of the parent, `None` for the root.
    pub parent: Option<String>,
    /// Name of the workflow.
    pub workflow_name: String,
    /// Loop bound: node visits of one invocation, nested ones included.
    pub max_steps: u32,
    pub(crate) parent_ix: Option<ScopeIx>,
}

/// Where an edge leads: a node and the mounts entered on the way, outermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: NodeIx,
    pub(crate) enters: Vec<ScopeIx>,
}

/// The outgoing edge of a node.
#[derive(Debug, Clone)]
pub(crate) enum Edge {
    /// The run ends with the node's outcome.
    None,
    /// Always to one target.
    To(Target),
    /// By a value.
    Switch {
        on: PathExpr,
        cases: BTreeMap<String, Target>,
        order: Vec<String>,
    },
}

/// The active-time budget of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeTimeout {
    /// Fixed, in milliseconds of active time.
    Ms(u64),
    /// None.
    Unlimited,
    /// Computed by the node's `timeoutMs` callback.
    Callback,
}

impl Node {
    /// The declared active-time budget; [`limits::DEFAULT_TIMEOUT_MS`] when nothing is declared.
    #[must_use]
    pub fn timeout(&self) -> NodeTimeout {
        match self.spec.timeout_ms {
            Some(None) => NodeTimeout::Unlimited,
            Some(Some(ms)) => NodeTimeout::Ms(timeout_millis(ms).unwrap_or(limits::MAX_TIMEOUT_MS)),
            None if self.has_callback("timeoutMs") => NodeTimeout::Callback,
            None => NodeTimeout::Ms(limits::DEFAULT_TIMEOUT_MS),
        }
    }

    /// Whether the source declares this callback.
    #[must_use]
    pub fn has_callback(&self, name: &str) -> bool {
        self.spec.callbacks.iter().any(|callback| callback == name)
    }

    /// Whether the node is a checkpoint or a protected decision: an `ok` end waits for an answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.spec.node_type == NodeType::Checkpoint
    }

    /// Whether the value of the output decides where the run goes after this outcome. If so the value must be at hand to
    /// check a proposal.
    #[must_use]
    pub fn routes_on_output(&self, outcome: NodeOutcome) -> bool {
        match &self.edge {
            Edge::Switch { on, .. } if outcome == NodeOutcome::Ok => on.reads_output(),
            Edge::Switch { on, .. } => on.root() == Root::Result && on.reads_output(),
            Edge::None | Edge::To(_) => false,
        }
    }

    /// Whether no edge leaves the node.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.edge, Edge::None)
    }
}

/// A declared or computed timeout in whole milliseconds, rounded up; `None` when it is not a positive number within
/// [`limits::MAX_TIMEOUT_MS`].
#[must_use]
pub fn timeout_millis(ms: f64) -> Option<u64> {
    let whole = ms.ceil();
    #[expect(clippy::cast_precision_loss, reason = "the limit is exact as a double")]
    let limit = limits::MAX_TIMEOUT_MS as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was just checked"
    )]
    (ms > 0.0 && whole <= limit).then_some(whole as u64)
}

/// Why stored data is no definition.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the definition snapshot is not valid: {0}")]
pub struct SnapshotError(pub String);

impl Definition {
    /// Checks a stored snapshot and indexes it.
    ///
    /// # Errors
    /// Names the first broken invariant.
    pub fn from_snapshot(snapshot: DefinitionSnapshot) -> Result<Self, SnapshotError> {
        index::build(snapshot)
    }

    /// The graph as data.
    #[must_use]
    pub fn snapshot(&self) -> &DefinitionSnapshot {
        &self.snapshot
    }

    /// `sha256:<hex>` of the snapshot's canonical JSON.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The workflow's declared name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.snapshot.name
    }

    /// A node by its qualified id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.by_id.get(id).map(|&ix| &self.nodes[ix])
    }

    /// Nodes in definition order.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Scopes: the root, then mounts in document order, outermost first.
    #[must_use]
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// A scope by its mount path (`""` is the root).
    #[must_use]
    pub fn scope(&self, mount: &str) -> Option<&Scope> {
        self.by_mount.get(mount).map(|&ix| &self.scopes[ix])
    }

    /// Mount path of a node's workflow (`""` for the root); `None` for an unknown node.
    #[must_use]
    pub fn scope_of(&self, node: &str) -> Option<&str> {
        self.node(node).map(|found| found.mount.as_str())
    }

    /// The first node of a run.
    #[must_use]
    pub fn start(&self) -> &Node {
        &self.nodes[self.start.node]
    }

    /// What this build cannot execute yet, one sentence a piece that names the workflow. A start must be refused when
    /// there is any.
    #[must_use]
    pub fn unsupported(&self) -> Vec<String> {
        let root = self.snapshot.settings.then_some(self.snapshot.name.as_str());
        let mounted = self.snapshot.includes.iter().filter(|include| include.settings);
        let settings = root
            .into_iter()
            .chain(mounted.map(|include| include.workflow_name.as_str()))
            .map(|name| format!("workflow \"{name}\" declares live settings, which this build cannot execute yet"));
        settings.collect()
    }

    /// What a run that is bound to no session cannot execute, one sentence a piece. A start without a session must be refused
    /// when there is any.
    #[must_use]
    pub fn needs_session(&self) -> Vec<String> {
        let nodes = self.nodes.iter().filter(|node| node.spec.node_type == NodeType::Agent);
        nodes
            .filter_map(|node| match &node.spec {
                spec if spec.replies_visibly() => Some(format!(
                    "node \"{}\" asks for a visible reply (assistantMessage), which needs a session; start the run from a Pi \
                     session, or ask for JSON with a text as expectedOutput",
                    node.id
                )),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn node_ix(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn scope_ix(&self, mount: &str) -> Option<ScopeIx> {
        self.by_mount.get(mount).copied()
    }

    pub(crate) fn at(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix]
    }

    pub(crate) fn scope_at(&self, ix: ScopeIx) -> &Scope {
        &self.scopes[ix]
    }

    pub(crate) fn start_target(&self) -> &Target {
        &self.start
    }
}
