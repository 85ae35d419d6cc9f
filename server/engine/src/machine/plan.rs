//! What follows: the one place where edges, mounts, exits and loop bounds decide.

use piw_protocol::run::{ActionReceipt, ErrorInfo, NodeOutcome, RunStatus};

use super::{
    At, CODE_CANCELLED, CODE_EXIT_VALIDATION, CODE_INCLUDE_INPUT, CODE_MAX_STEPS, CODE_NODE_FAILED, CODE_ROUTING,
    CODE_TIMED_OUT, OpenScope, Progress, Then, Transition, TransitionError,
};
use crate::definition::{Definition, Edge, Leave, Node, NodeIx, Scope, Target};
use crate::route::{self, Output, Record, Root, RouteError};
use crate::text::bounded_error;

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

/// What follows, and which mounts are left before.
#[derive(Debug, Clone)]
pub struct Plan<'d> {
    /// Mounts that are left, innermost first. Each needs a validated value in the proposal.
    pub leaves: &'d [Leave],
    /// What follows.
    pub next: Planned<'d>,
    pub(super) transition: Transition,
}

/// What follows.
#[derive(Debug, Clone)]
pub enum Planned<'d> {
    /// A node starts.
    Start {
        /// The node.
        node: &'d Node,
        /// Its visit, from 1.
        visit: u32,
        /// Whether the visit was started before and is executed again after an interruption.
        again: bool,
        /// Mounts entered, outermost first: their inputs must be mapped before the start is proposed. When that fails,
        /// [`Plan::entry_refused`] is what follows instead.
        enters: Vec<&'d Scope>,
    },
    /// The run ends.
    Finish {
        /// A terminal status.
        status: RunStatus,
        /// Why.
        cause: EndCause,
        /// Error of an end that is not `completed`.
        error: Option<ErrorInfo>,
        /// Which value is the final output.
        final_output: FinalOutput,
    },
    /// The finished node is a checkpoint and waits for its answer.
    Wait,
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
    /// The input of a mount was refused.
    IncludeInput,
    /// The answer of a checkpoint that is an exit was refused by the exit.
    ExitValidation,
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

impl<'d> Plan<'d> {
    /// The change to apply once the plan is committed.
    pub fn transition(&self) -> &Transition {
        &self.transition
    }

    /// What follows instead of a start whose mount input could not be mapped or was refused: the run fails. `None` when no
    /// mount is entered.
    #[must_use]
    pub fn entry_refused(&self, mount: &str, error: &ErrorInfo) -> Option<Self> {
        match &self.next {
            Planned::Start { enters, .. } if enters.iter().any(|scope| scope.mount == mount) => Some(Self {
                leaves: self.leaves,
                next: failed(
                    EndCause::IncludeInput,
                    CODE_INCLUDE_INPUT,
                    format!("input of mount \"{mount}\": {}", error.message),
                    error.stack.clone(),
                ),
                transition: self.transition.ending(),
            }),
            _ => None,
        }
    }
}

fn failed<'d>(cause: EndCause, code: &str, message: String, stack: Option<String>) -> Planned<'d> {
    let code = Some(code.to_owned());
    let error = bounded_error(ErrorInfo { code, message, stack });
    Planned::Finish {
        status: RunStatus::Failed,
        cause,
        error: Some(error),
        final_output: FinalOutput::None,
    }
}

impl Progress {
    /// Plans the first start of a generation: at the workflow's start, or of an interrupted visit.
    ///
    /// # Errors
    /// [`TransitionError::OutOfOrder`] when the run stands elsewhere (an answered checkpoint needs [`Self::plan_after`]).
    pub fn plan_begin<'d>(&self, definition: &'d Definition) -> Result<Plan<'d>, TransitionError> {
        match self.at {
            At::Start => Ok(self.enter(definition, definition.start_target(), None, &[])),
            At::Interrupted(node) => Ok(Plan {
                leaves: &[],
                next: Planned::Start {
                    node: definition.at(node),
                    visit: self.visits[node],
                    again: true,
                    enters: Vec::new(),
                },
                transition: Transition {
                    finished: None,
                    leaves: 0,
                    then: Then::Start {
                        node,
                        enters: Vec::new(),
                        again: true,
                    },
                },
            }),
            _ => Err(self.out_of_order(definition, "a first start".to_owned())),
        }
    }

    /// Plans what follows the running node, or an answered checkpoint (as an `ok` end whose output is the answer).
    ///
    /// # Errors
    /// [`TransitionError::OutOfOrder`] when another node or none is running, [`TransitionError::OutputNotLoaded`] when the
    /// output decides and is not at hand (see [`Node::routes_on_output`]), [`TransitionError::Malformed`] when
    /// [`Finished::left`] does not fit the node's exits.
    pub fn plan_after<'d>(
        &self,
        definition: &'d Definition,
        finished: &Finished<'_>,
    ) -> Result<Plan<'d>, TransitionError> {
        let ix = self.finishing(definition, finished.node_id)?;
        let node = definition.at(ix);
        let counted = (self.at == At::Running(ix)).then_some(ix);
        let ok = finished.outcome == NodeOutcome::Ok;
        if ok && node.waits() && counted.is_some() {
            let transition = Transition {
                finished: counted,
                leaves: 0,
                then: Then::Wait,
            };
            return Ok(Plan {
                leaves: &[],
                next: Planned::Wait,
                transition,
            });
        }
        let leaves = if ok { node.leaves.as_slice() } else { &[] };
        if leaves.is_empty() != finished.left.is_none() {
            let rule =
                "an `ok` end of an exit node needs the validated value of every mount it leaves, no other end has one";
            return Err(TransitionError::Malformed {
                node: node.id.clone(),
                rule,
            });
        }
        match follow(node, finished) {
            Ok(Some(target)) => Ok(self.enter(definition, target, counted, leaves)),
            Ok(None) => Ok(self.end(end_of(node, finished), counted, leaves)),
            Err(error @ RouteError::NotLoaded { .. }) => Err(TransitionError::OutputNotLoaded(error)),
            Err(error) => Ok(self.end(routing_failure(&error, finished), counted, leaves)),
        }
    }

    /// Plans the end of a continuation whose answered checkpoint is an exit that refused the answer.
    ///
    /// # Errors
    /// [`TransitionError::OutOfOrder`] unless the run stands at an answered checkpoint that leaves a mount.
    pub fn plan_exit_refused<'d>(
        &self,
        definition: &'d Definition,
        mount: &str,
        error: &ErrorInfo,
    ) -> Result<Plan<'d>, TransitionError> {
        let proposal = || format!("a refused exit of mount \"{mount}\"");
        let At::Answered(node) = self.at else {
            return Err(self.out_of_order(definition, proposal()));
        };
        let Some(leave) = definition.at(node).leaves.iter().find(|leave| leave.mount == mount) else {
            return Err(self.out_of_order(definition, proposal()));
        };
        let message = format!("exit \"{}\" of mount \"{mount}\": {}", leave.exit, error.message);
        Ok(self.end(
            failed(
                EndCause::ExitValidation,
                CODE_EXIT_VALIDATION,
                message,
                error.stack.clone(),
            ),
            None,
            &[],
        ))
    }

    fn finishing(&self, definition: &Definition, node_id: &str) -> Result<NodeIx, TransitionError> {
        let ix = definition
            .node_ix(node_id)
            .ok_or_else(|| TransitionError::UnknownNode(node_id.to_owned()))?;
        if self.at == At::Running(ix) || self.at == At::Answered(ix) {
            return Ok(ix);
        }
        Err(self.out_of_order(definition, format!("the end of node \"{node_id}\"")))
    }

    fn end<'d>(&self, next: Planned<'d>, finished: Option<NodeIx>, leaves: &'d [Leave]) -> Plan<'d> {
        Plan {
            leaves,
            next,
            transition: Transition {
                finished,
                leaves: leaves.len(),
                then: Then::End,
            },
        }
    }

    /// Starts a target, or ends the run when a loop bound is reached.
    fn enter<'d>(
        &self,
        definition: &'d Definition,
        target: &'d Target,
        finished: Option<NodeIx>,
        leaves: &'d [Leave],
    ) -> Plan<'d> {
        let node = definition.at(target.node);
        let counted = u64::from(finished.is_some());
        let staying = &self.open[..self.open.len().saturating_sub(leaves.len())];
        let root = OpenScope {
            scope: crate::definition::ROOT,
            steps: self.steps,
        };
        let spent = std::iter::once(&root)
            .chain(staying)
            .map(|open| (definition.scope_at(open.scope), open.steps + counted))
            .find(|(scope, steps)| *steps >= u64::from(scope.max_steps));
        if let Some((scope, steps)) = spent {
            return self.end(bound_reached(scope, steps, node), finished, leaves);
        }
        Plan {
            leaves,
            next: Planned::Start {
                node,
                visit: self.visits[target.node].saturating_add(1),
                again: false,
                enters: target.enters.iter().map(|&scope| definition.scope_at(scope)).collect(),
            },
            transition: Transition {
                finished,
                leaves: leaves.len(),
                then: Then::Start {
                    node: target.node,
                    enters: target.enters.clone(),
                    again: false,
                },
            },
        }
    }

    pub(super) fn out_of_order(&self, definition: &Definition, proposal: String) -> TransitionError {
        let id = |node: NodeIx| &definition.at(node).id;
        let position = match self.at {
            At::Start => "has not started".to_owned(),
            At::Interrupted(node) => format!("must execute node \"{}\" again", id(node)),
            At::Running(node) => format!("is executing node \"{}\"", id(node)),
            At::Waiting(node) => format!("waits for the answer of node \"{}\"", id(node)),
            At::Answered(node) => format!("follows the answered node \"{}\"", id(node)),
            At::Ended => "has ended".to_owned(),
        };
        TransitionError::OutOfOrder { proposal, position }
    }
}

/// The target that a finished node leads to; `None` when the run ends with its outcome.
fn follow<'d>(node: &'d Node, finished: &Finished<'_>) -> Result<Option<&'d Target>, RouteError> {
    let ok = finished.outcome == NodeOutcome::Ok;
    match &node.edge {
        Edge::None => Ok(None),
        Edge::To(target) => Ok(ok.then_some(target)),
        Edge::Switch { on, cases, order } => {
            // The edge of an exit node belongs to a scope outside and is only there for the exit that was taken.
            let routes_failure = on.root() == Root::Result && node.leaves.is_empty();
            if !ok && !routes_failure {
                return Ok(None);
            }
            route::choose(on, cases, order, &record(node, finished)).map(Some)
        }
    }
}

/// The result record that a switch reads: the node's, or that of the outermost mount that is left.
fn record<'a>(node: &'a Node, finished: &Finished<'a>) -> Record<'a> {
    match (node.leaves.last(), finished.left) {
        (Some(leave), Some(output)) => Record {
            node_id: &leave.mount,
            outcome: NodeOutcome::Ok,
            output,
            error: None,
            action: None,
            exit: Some(&leave.exit),
        },
        _ => Record {
            node_id: &node.id,
            outcome: finished.outcome,
            output: finished.output,
            error: finished.error,
            action: finished.action,
            exit: None,
        },
    }
}

fn end_of<'d>(node: &Node, finished: &Finished<'_>) -> Planned<'d> {
    let (status, verb, code) = match finished.outcome {
        NodeOutcome::Ok => {
            let final_output = if finished.left.is_some() {
                FinalOutput::Exit
            } else {
                FinalOutput::Node
            };
            return Planned::Finish {
                status: RunStatus::Completed,
                cause: EndCause::NodeOutcome,
                error: None,
                final_output,
            };
        }
        NodeOutcome::Failed => (RunStatus::Failed, "failed", CODE_NODE_FAILED),
        NodeOutcome::TimedOut => (RunStatus::TimedOut, "timed out", CODE_TIMED_OUT),
        NodeOutcome::Cancelled => (RunStatus::Cancelled, "was cancelled", CODE_CANCELLED),
    };
    let own = finished.error;
    let detail = own.map(|error| format!(": {}", error.message)).unwrap_or_default();
    let error = bounded_error(ErrorInfo {
        code: Some(
            own.and_then(|error| error.code.clone())
                .unwrap_or_else(|| code.to_owned()),
        ),
        message: format!("node \"{}\" {verb}{detail}", node.id),
        stack: own.and_then(|error| error.stack.clone()),
    });
    Planned::Finish {
        status,
        cause: EndCause::NodeOutcome,
        error: Some(error),
        final_output: FinalOutput::None,
    }
}

/// A routing failure never hides the failure that was being routed.
fn routing_failure<'d>(error: &RouteError, finished: &Finished<'_>) -> Planned<'d> {
    let behind = finished
        .error
        .map(|own| format!(" (after: {})", own.message))
        .unwrap_or_default();
    failed(EndCause::Routing, CODE_ROUTING, format!("{error}{behind}"), None)
}

fn bound_reached<'d>(scope: &Scope, steps: u64, node: &Node) -> Planned<'d> {
    let whose = if scope.mount.is_empty() {
        String::new()
    } else {
        format!(" (mounted as {})", scope.mount)
    };
    let message = format!(
        "workflow \"{}\"{whose} reached its maxSteps of {} ({steps} steps done) before node \"{}\" could start",
        scope.workflow_name, scope.max_steps, node.id
    );
    failed(EndCause::MaxSteps, CODE_MAX_STEPS, message, None)
}
