//! What the writer remembers of runs between commands: the definition and the run's progress, so that a step costs the same
//! however long the run is.
//!
//! The database is the truth. An entry is made from it, changed together with it inside one job, and dropped when that job
//! rolls back, when the commit fails, or when the run stops executing.

use std::collections::HashMap;
use std::sync::Arc;

use piw_engine::Definition;
use piw_engine::machine::Progress;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::run::RunStatus;
use rusqlite::Connection;

use crate::content;
use crate::error::StateError;
use crate::ids::{AttemptId, AttemptKey, NodeIndex, RunKey};
use crate::restore;

/// Definitions that are kept while no run in memory uses them.
const IDLE_DEFINITIONS: usize = 16;

/// A definition with the index of its nodes.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) definition: Definition,
    index: HashMap<String, NodeIndex>,
}

/// The unfinished attempt of a run.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    pub(crate) key: AttemptKey,
    pub(crate) id: AttemptId,
    pub(crate) node: NodeIndex,
    pub(crate) visit: u32,
    /// Steady clock at its start; `None` when it was started before this process.
    pub(crate) started_steady: Option<i64>,
    /// Whether its active time was sampled (it has an interval row).
    pub(crate) sampled: bool,
    /// Whether it has a request: it stays open until a generation settles it as the request was decided, or the run ends.
    pub(crate) requested: bool,
}

/// The columns of a run that steps change, and its place in the graph.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) key: RunKey,
    pub(crate) run_id: Arc<str>,
    pub(crate) graph: Arc<Graph>,
    pub(crate) progress: Progress,
    pub(crate) status: RunStatus,
    pub(crate) revision: u64,
    pub(crate) step_count: u64,
    pub(crate) attempt_count: u64,
    pub(crate) trace_seq: u64,
    pub(crate) update_seq: u64,
    pub(crate) crash_streak: u32,
    pub(crate) ambiguous_effects: u32,
    /// Effects of this run that are pending or being applied.
    pub(crate) open_effects: u32,
    pub(crate) current: Option<Current>,
    pub(crate) waiting_attempt: Option<AttemptKey>,
    pub(crate) last_attempt: Option<AttemptKey>,
    /// Node of the newest step, from which the next transition leads.
    pub(crate) last_node: Option<NodeIndex>,
    /// Slot of the newest stored message reply.
    pub(crate) message_slot: u32,
    /// Whether the run is claimed: only such runs stay in memory.
    pub(crate) claimed: bool,
}

/// Runs and definitions in memory.
#[derive(Default)]
pub(crate) struct RunCache {
    graphs: HashMap<i64, Arc<Graph>>,
    runs: HashMap<RunKey, Live>,
    lent: Vec<RunKey>,
}

impl Graph {
    pub(crate) fn new(definition: Definition) -> Self {
        let index = (0u32..)
            .zip(definition.nodes())
            .map(|(at, node)| (node.id.clone(), NodeIndex(at)))
            .collect();
        Self { definition, index }
    }

    /// Index of a node.
    pub(crate) fn index(&self, node_id: &str) -> Result<NodeIndex, StateError> {
        let found = self.index.get(node_id).copied();
        found.ok_or_else(|| StateError::Invalid(format!("node {node_id:?} is not in the definition")))
    }

    /// Id of a node.
    pub(crate) fn node_id(&self, node: NodeIndex) -> Result<&str, StateError> {
        let found = usize::try_from(node.0)
            .ok()
            .and_then(|at| self.definition.nodes().get(at));
        found
            .map(|node| node.id.as_str())
            .ok_or_else(|| StateError::Inconsistent(format!("the definition has no node {}", node.0)))
    }
}

impl RunCache {
    /// Takes a run out to work on it. It must be put back with [`Self::put`] once the job's rows are written; a job that fails
    /// on the way leaves it out, and the next one reads it from the database.
    pub(crate) fn take(&mut self, db: &Connection, key: RunKey) -> Result<Live, StateError> {
        self.lent.push(key);
        match self.runs.remove(&key) {
            Some(live) => Ok(live),
            None => restore::live(db, self, key),
        }
    }

    /// Gives a run back: a claimed one stays in memory, any other is read again when it is needed.
    pub(crate) fn put(&mut self, live: Live) {
        if live.claimed {
            self.runs.insert(live.key, live);
        }
    }

    /// Starts a job: forgets which runs earlier jobs worked on.
    pub(crate) fn begin_job(&mut self) {
        self.lent.clear();
    }

    /// Drops the runs that a rolled-back job worked on.
    pub(crate) fn roll_back_job(&mut self) {
        for key in self.lent.drain(..) {
            self.runs.remove(&key);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.graphs.clear();
        self.lent.clear();
    }

    /// The definition of a run.
    pub(crate) fn graph(&mut self, db: &Connection, definition: i64) -> Result<Arc<Graph>, StateError> {
        if let Some(graph) = self.graphs.get(&definition) {
            return Ok(Arc::clone(graph));
        }
        let mut statement =
            db.prepare_cached("SELECT snapshot_json, snapshot_blob FROM workflow_definitions WHERE id = ?1")?;
        let (json, blob): (Option<String>, Option<i64>) =
            statement.query_row([definition], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let snapshot: DefinitionSnapshot = match (json, blob) {
            (Some(json), _) => serde_json::from_str(&json)?,
            (None, Some(blob)) => serde_json::from_slice(&content::read_all(db, blob)?)?,
            (None, None) => {
                return Err(StateError::Inconsistent(format!(
                    "definition {definition} has no snapshot"
                )));
            }
        };
        let compiled = Definition::from_snapshot(snapshot)
            .map_err(|error| StateError::Inconsistent(format!("stored definition {definition}: {error}")))?;
        let graph = Arc::new(Graph::new(compiled));
        self.keep_graph(definition, Arc::clone(&graph));
        Ok(graph)
    }

    /// Forgets a definition that was deleted.
    pub(crate) fn forget_graph(&mut self, definition: i64) {
        self.graphs.remove(&definition);
    }

    /// Remembers a definition.
    pub(crate) fn keep_graph(&mut self, definition: i64, graph: Arc<Graph>) {
        if self.graphs.len() >= IDLE_DEFINITIONS {
            self.graphs.retain(|_, graph| Arc::strong_count(graph) > 1);
        }
        self.graphs.insert(definition, graph);
    }
}
