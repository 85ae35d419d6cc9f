//! The run machine: which node follows which, how often, and how a run ends.
//!
//! The runner plans with it ([`Progress::plan_begin`], [`Progress::plan_after`]) and the server checks proposals with it
//! ([`Progress::check_started`] and friends), which plan the same way and compare. Nothing here evaluates callbacks: values
//! that only user code can make (mapped inputs, validated exits) are arguments, never recomputed.
//!
//! ```text
//! Start ──start──▶ Running ──finish──▶ Running | Waiting | Ended
//! Interrupted ──start (same visit)──▶ Running            Answered ──start──▶ Running | Ended
//! ```
//!
//! A step costs a few map look-ups, whatever the length of the run; nothing is cloned.

mod check;
mod error;
mod plan;
mod saved;

#[cfg(test)]
mod model;
#[cfg(test)]
mod stored;
#[cfg(test)]
mod tests;

pub use check::Load;
pub use error::TransitionError;
pub use plan::{EndCause, FinalOutput, Finished, Plan, Planned};
pub use saved::{RestoreError, Saved, SavedPosition, SavedScope};

use crate::definition::{Definition, NodeIx, ROOT, ScopeIx};

/// Error code of a run whose mount input could not be mapped or was refused.
pub const CODE_INCLUDE_INPUT: &str = "includeInput";
/// Error code of a run or node whose exit value was refused.
pub const CODE_EXIT_VALIDATION: &str = "exitValidation";
/// Error code of a routing failure.
pub const CODE_ROUTING: &str = "routing";
/// Error code of a run that reached a loop bound.
pub const CODE_MAX_STEPS: &str = "maxSteps";
/// Error code of a run that ended with a node's outcome, when the node's error has none of its own.
pub const CODE_NODE_FAILED: &str = "nodeFailed";
/// Error code of a node whose time budget ran out.
pub const CODE_TIMED_OUT: &str = "timedOut";
/// Error code of a node that was cancelled.
pub const CODE_CANCELLED: &str = "cancelled";

/// Where a run stands: steps, open mounts, visits and position. See the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Finished steps of the run, those carried from a parent included.
    steps: u64,
    /// Open invocations of mounts, outermost first.
    open: Vec<OpenScope>,
    /// Started visits by node index.
    visits: Vec<u32>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpenScope {
    scope: ScopeIx,
    steps: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Nothing was started.
    Start,
    /// This visit was interrupted and is to be executed again.
    Interrupted(NodeIx),
    /// This visit is being executed.
    Running(NodeIx),
    /// This checkpoint waits for its answer.
    Waiting(NodeIx),
    /// This node is finished (an answered checkpoint); its edge is to be followed.
    Answered(NodeIx),
    /// The run has ended.
    Ended,
}

/// A checked change of [`Progress`], to be applied once the facts behind it are committed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "apply it after the commit, or drop it to change nothing"]
pub struct Transition {
    /// The node that finished.
    finished: Option<NodeIx>,
    /// Number of mounts left.
    leaves: usize,
    then: Then,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Then {
    Start {
        node: NodeIx,
        enters: Vec<ScopeIx>,
        again: bool,
    },
    Wait,
    End,
}

impl Transition {
    /// The same change, but the run ends instead of going on.
    fn ending(&self) -> Self {
        Self {
            finished: self.finished,
            leaves: self.leaves,
            then: Then::End,
        }
    }
}

impl Progress {
    /// A run of which nothing was executed.
    #[must_use]
    pub fn new(definition: &Definition) -> Self {
        Self {
            steps: 0,
            open: Vec::new(),
            visits: vec![0; definition.nodes().len()],
            at: At::Start,
        }
    }

    /// Finished steps of the run, those carried from a parent included.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Started visits of a node, `0` for an unknown one.
    #[must_use]
    pub fn visits(&self, definition: &Definition, node: &str) -> u32 {
        definition.node_ix(node).map_or(0, |ix| self.visits[ix])
    }

    /// Mount paths of the open invocations, outermost first.
    pub fn open_mounts<'d>(&'d self, definition: &'d Definition) -> impl Iterator<Item = &'d str> {
        self.open
            .iter()
            .map(|open| definition.scope_at(open.scope).mount.as_str())
    }

    /// The node that is being executed and its visit.
    #[must_use]
    pub fn running<'d>(&self, definition: &'d Definition) -> Option<(&'d str, u32)> {
        match self.at {
            At::Running(node) => Some((definition.at(node).id.as_str(), self.visits[node])),
            _ => None,
        }
    }

    /// The checkpoint whose answer the run waits for.
    #[must_use]
    pub fn waiting_on<'d>(&self, definition: &'d Definition) -> Option<&'d str> {
        match self.at {
            At::Waiting(node) => Some(definition.at(node).id.as_str()),
            _ => None,
        }
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.at == At::Ended
    }

    /// Marks the running visit as interrupted: its runner is gone and the next generation executes it again.
    /// Changes nothing when no visit is running.
    pub fn interrupt(&mut self) {
        if let At::Running(node) = self.at {
            self.at = At::Interrupted(node);
        }
    }

    /// Gives the waiting checkpoint its answer: a continuation goes on from here. Changes nothing when nothing waits.
    pub fn answer(&mut self) {
        if let At::Waiting(node) = self.at {
            self.at = At::Answered(node);
        }
    }

    /// Applies a checked transition.
    pub fn apply(&mut self, definition: &Definition, transition: &Transition) {
        if let Some(node) = transition.finished {
            debug_assert!(
                matches!(self.at, At::Running(at) if at == node),
                "a transition is applied where it was checked"
            );
            self.steps += 1;
            for open in &mut self.open {
                open.steps += 1;
            }
        }
        self.open.truncate(self.open.len().saturating_sub(transition.leaves));
        self.at = match &transition.then {
            Then::Start { node, enters, again } => {
                self.open
                    .extend(enters.iter().map(|&scope| OpenScope { scope, steps: 0 }));
                if !again {
                    self.visits[*node] = self.visits[*node].saturating_add(1);
                }
                At::Running(*node)
            }
            Then::Wait => At::Waiting(transition.finished.expect("only a finished checkpoint waits")),
            Then::End => At::Ended,
        };
        debug_assert!(
            self.open_is_consistent(definition),
            "open mounts are the running node's ancestors"
        );
    }

    /// The open mounts are exactly the ancestors of the node at which the run stands.
    fn open_is_consistent(&self, definition: &Definition) -> bool {
        let (At::Running(node) | At::Interrupted(node) | At::Waiting(node) | At::Answered(node)) = self.at else {
            return true;
        };
        let mut scope = definition.at(node).scope;
        for open in self.open.iter().rev() {
            if open.scope != scope {
                return false;
            }
            scope = definition.scope_at(scope).parent_ix.unwrap_or(ROOT);
        }
        scope == ROOT
    }
}
