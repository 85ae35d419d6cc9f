//! What follows: the one place where edges, mounts, exits and loop bounds decide.

use piw_protocol::run::{ActionReceipt, ErrorInfo, NodeOutcome, RunStatus};

use super::{
    At, CODE_CANCELLED, CODE_MAX_STEPS, CODE_NODE_FAILED, CODE_ROUTING, CODE_TIMED_OUT, Progress, Then, Transition,
    TransitionError,
};
use crate::definition::{Definition, Edge, Leave, Node, NodeIx, ROOT, Scope, ScopeIx, Target};
use crate::route::{self, Output, Record, RouteError};

/// A finished node as routing sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Finished<'a> {
    /// Qualified node id.
    pub node_id: &'a str,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Its output, `null` unless `ok`.
    pub output: Output<'a>,
    /// Its error.
    pub error: Option<&'a ErrorInfo>,
    /// Its receipt.
    pub action: Option<&'a ActionReceipt>,
    /// Validated value of the outermost mount that is left (see [`Node::leaves`]); `None` when none is left.
    pub left: Option<Output<'a>>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned<'d> {
    /// A node starts.
    Start(PlannedStart<'d>),
    /// The run ends.
    Finish(PlannedFinish<'d>),
    /// The finished node is a checkpoint and waits for its answer.
    Wait {
        /// The checkpoint.
        node: &'d Node,
    },
}

/// A node to start.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedStart<'d> {
    /// The node.
    pub node: &'d Node,
    /// Its visit, from 1.
    pub visit: u32,
    /// Whether the visit was started before and is executed again.
    pub again: bool,
    /// Mounts left before, innermost first.
    pub leaves: &'d [Leave],
    /// Mounts entered, outermost first: their inputs must be mapped before the start is proposed.
    pub enters: Vec<&'d Scope>,
    pub(super) finished: Option<NodeIx>,
    pub(super) node_ix: NodeIx,
    pub(super) enters_ix: &'d [ScopeIx],
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFinish<'d> {
    /// A terminal status.
    pub status: RunStatus,
    /// Why the run ends.
    pub cause: EndCause,
    /// Error of an end that is not `completed`.
    pub error: Option<ErrorInfo>,
    /// Which value is the final output.
    pub final_output: FinalOutput,
    /// Mounts left before, innermost first.
    pub leaves: &'d [Leave],
    pub(super) finished: Option<NodeIx>,
}

/// Why a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// The last node's outcome.
    NodeOutcome,
    /// No case fits, or the path leads nowhere.
    Routing,
    /// A loop bound was reached.
    MaxSteps,
}

/// Where the final output of a run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalOutput {
    /// `null`: the run did not complete.
    None,
    /// The last node's output.
    Node,
    /// The validated value of the outermost mount that was left.
    Exit,
}

impl Planned<'_> {
    /// The change to apply once the plan is committed.
    pub fn transition(&self) -> Transition {
        match self {
            Self::Start(start) => Transition {
                finished: start.finished,
                leaves: start.leaves.len(),
                then: Then::Start { node: start.node_ix, enters: start.enters_ix.to_vec(), again: start.again },
            },
            Self::Finish(finish) => {
                Transition { finished: finish.finished, leaves: finish.leaves.len(), then: Then::End }
            }
            Self::Wait { .. } => unreachable_wait(self),
        }
    }
}

impl Progress {
    /// Plans the first start of a generation: at the workflow's start, or of an interrupted visit.
    ///
    /// # Errors
    /// [`TransitionError::OutOfOrder`] when the run stands elsewhere (an answered checkpoint needs [`Self::plan_after`]).
    pub fn plan_begin<'d>(&self, definition: &'d Definition) -> Result<Planned<'d>, TransitionError> {
        match self.at {
            At::Start => Ok(self.enter(definition, definition.start_target(), None, &[])),
            At::Interrupted(node) => Ok(Planned::Start(PlannedStart {
                node: definition.at(node),
                visit: self.visits[node],
                again: true,
                leaves: &[],
                enters: Vec::new(),
                finished: None,
                node_ix: node,
                enters_ix: &[],
            })),
            _ => Err(self.out_of_order(definition, "a first start".to_owned())),
        }
    }
}
