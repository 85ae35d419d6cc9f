//! The durable form of a run's [`Progress`]: what the store keeps and a runner is told.

use piw_protocol::child::{ExecutionState, Position, VisitCount};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{At, OpenScope, Progress};
use crate::definition::{Definition, NodeIx, ROOT};

/// Where a run stands, by ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Finished steps, those carried from a parent included.
    pub steps: u64,
    /// Open invocations of mounts, outermost first.
    pub scopes: Vec<SavedScope>,
    /// Started visits of every node that was started.
    pub visits: Vec<VisitCount>,
    /// Position.
    pub position: SavedPosition,
}

/// An open invocation of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedScope {
    /// Qualified mount path.
    pub mount: String,
    /// Steps finished in this invocation, nested ones included.
    pub steps: u64,
}

/// Position of a saved run. Names are those of the module's documentation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SavedPosition {
    /// Nothing was started.
    Start,
    /// The newest visit of this node was interrupted.
    Interrupted {
        /// Qualified node id.
        node_id: String,
    },
    /// The newest visit of this node is being executed.
    Running {
        /// Qualified node id.
        node_id: String,
    },
    /// This checkpoint waits for its answer.
    Waiting {
        /// Qualified node id.
        node_id: String,
    },
    /// This node is finished and its edge is to be followed.
    Answered {
        /// Qualified node id.
        node_id: String,
    },
    /// The run has ended.
    Ended,
}

impl From<&ExecutionState> for Saved {
    fn from(state: &ExecutionState) -> Self {
        Self {
            steps: state.step_count,
            scopes: state
                .scopes
                .iter()
                .map(|scope| SavedScope {
                    mount: scope.mount.clone(),
                    steps: scope.step_count,
                })
                .collect(),
            visits: state.visits.clone(),
            position: match &state.position {
                Position::Start => SavedPosition::Start,
                Position::Node { node_id, .. } => SavedPosition::Interrupted {
                    node_id: node_id.clone(),
                },
                Position::Settled { node_id, .. } => SavedPosition::Running {
                    node_id: node_id.clone(),
                },
                Position::After { node_id } => SavedPosition::Answered {
                    node_id: node_id.clone(),
                },
            },
        }
    }
}

/// Why a saved state does not fit its definition.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the saved position does not fit the definition: {0}")]
pub struct RestoreError(pub String);

impl Progress {
    /// Restores a saved run.
    ///
    /// # Errors
    /// Names what does not fit the definition.
    pub fn restore(definition: &Definition, saved: &Saved) -> Result<Self, RestoreError> {
        let node = |id: &String| {
            definition
                .node_ix(id)
                .ok_or_else(|| RestoreError(format!("node \"{id}\" is not in the definition")))
        };
        let mut progress = Self::new(definition);
        progress.steps = saved.steps;
        for visit in &saved.visits {
            progress.visits[node(&visit.node_id)?] = visit.count;
        }
        for scope in &saved.scopes {
            let ix = definition
                .scope_ix(&scope.mount)
                .ok_or_else(|| RestoreError(format!("mount \"{}\" is not in the definition", scope.mount)))?;
            progress.open.push(OpenScope {
                scope: ix,
                steps: scope.steps,
            });
        }
        progress.at = match &saved.position {
            SavedPosition::Start => At::Start,
            SavedPosition::Interrupted { node_id } => At::Interrupted(node(node_id)?),
            SavedPosition::Running { node_id } => At::Running(node(node_id)?),
            SavedPosition::Waiting { node_id } => At::Waiting(node(node_id)?),
            SavedPosition::Answered { node_id } => At::Answered(node(node_id)?),
            SavedPosition::Ended => At::Ended,
        };
        progress.check_position(definition)?;
        Ok(progress)
    }

    /// The durable form.
    #[must_use]
    pub fn save(&self, definition: &Definition) -> Saved {
        let id = |node: NodeIx| definition.at(node).id.clone();
        Saved {
            steps: self.steps,
            scopes: self
                .open
                .iter()
                .map(|open| SavedScope {
                    mount: definition.scope_at(open.scope).mount.clone(),
                    steps: open.steps,
                })
                .collect(),
            visits: self
                .visits
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(|(node, &count)| VisitCount {
                    node_id: id(node),
                    count,
                })
                .collect(),
            position: match self.at {
                At::Start => SavedPosition::Start,
                At::Interrupted(node) => SavedPosition::Interrupted { node_id: id(node) },
                At::Running(node) => SavedPosition::Running { node_id: id(node) },
                At::Waiting(node) => SavedPosition::Waiting { node_id: id(node) },
                At::Answered(node) => SavedPosition::Answered { node_id: id(node) },
                At::Ended => SavedPosition::Ended,
            },
        }
    }

    fn check_position(&self, definition: &Definition) -> Result<(), RestoreError> {
        let (At::Interrupted(node) | At::Running(node) | At::Waiting(node) | At::Answered(node)) = self.at else {
            if self.at == At::Start && !(self.open.is_empty() && self.steps == 0) {
                return Err(RestoreError(
                    "a run that has not started has steps or open mounts".to_owned(),
                ));
            }
            return Ok(());
        };
        if self.visits[node] == 0 {
            return Err(RestoreError(format!(
                "node \"{}\" was never started",
                definition.at(node).id
            )));
        }
        if !self.open_is_consistent(definition) {
            let open: Vec<&str> = self.open_mounts(definition).collect();
            let message = format!(
                "node \"{}\" is not inside the open mounts {open:?}",
                definition.at(node).id
            );
            return Err(RestoreError(message));
        }
        debug_assert!(
            self.open.iter().all(|open| open.scope != ROOT),
            "the root is never opened"
        );
        Ok(())
    }
}
