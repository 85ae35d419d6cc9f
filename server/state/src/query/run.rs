//! The facts of one run that lists and views share, and its values, sources and definition.

use piw_protocol::definition::{DefinitionSnapshot, NodeType};
use piw_protocol::run::{ErrorInfo, MountedSource, RunStatus, SourceMap, SourceRef};
use rusqlite::{OptionalExtension, Row, params};

use super::{QueryError, Reader, Result, StoredValue, unsigned, word};

/// Row facts of a run, all from indexed columns; no workflow value is read.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFacts {
    /// `runs.id`: grows with creation.
    pub id: i64,
    /// Public id.
    pub run_id: String,
    /// `workflow_definitions.id`.
    pub definition: i64,
    /// The workflow's name.
    pub workflow_name: String,
    /// The run's title.
    pub title: Option<String>,
    /// Durable status.
    pub status: RunStatus,
    /// Whether it is paused.
    pub paused: bool,
    /// `runs.id` and public id of the parent.
    pub parent: Option<(i64, String)>,
    /// Whether the parent was continued (not restarted) by this run.
    pub is_continuation: bool,
    /// Public id of the first run of the tree; absent for a root.
    pub root_run_id: Option<String>,
    /// Public id of the continuation that took over.
    pub continued_by: Option<String>,
    /// Steps taken over from the parent chain.
    pub carried_step_count: u64,
    /// Finished steps, carried ones included.
    pub step_count: u64,
    /// Newest trace event.
    pub trace_seq: u64,
    /// Effects whose outcome is unknown.
    pub ambiguous_effects: u64,
    /// Effects that are pending, applying or ambiguous.
    pub unsettled_effects: u64,
    /// Restarts among all runs that descend from the same root.
    pub restarts: u32,
    /// `node_attempts.id` of the unfinished attempt.
    pub current_attempt: Option<i64>,
    /// `node_attempts.id` of the checkpoint attempt whose answer is awaited.
    pub waiting_attempt: Option<i64>,
    /// Class of the failure, for a failed run.
    pub failure_class: Option<String>,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// First claim, milliseconds since the epoch.
    pub started_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub finished_at: Option<i64>,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// Execution revision.
    pub revision: u64,
    /// Presentation cursor.
    pub view_revision: u64,
    /// Root source.
    pub source: SourceRef,
    /// Scheduling state.
    pub queue: QueueFacts,
    /// Pi session of an interactive run.
    pub session_id: Option<String>,
    /// `headless` or `interactive`.
    pub execution_mode: String,
    /// When the claim on the run ends by the wall clock; absent when nobody holds one, or an earlier server does.
    pub claim_expires_at: Option<i64>,
    /// A runner process of the run was launched and has not ended.
    pub has_runner: bool,
    /// Kind of the pending request: `submit`, `assistant`, `decision`.
    pub pending_request: Option<String>,
    /// A model turn of the run is open.
    pub open_turn: bool,
}

/// Scheduling state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFacts {
    /// `queued starting running parked done failed cancelled`.
    pub status: String,
    /// The scheduler may claim it now.
    pub claimable: bool,
    /// Why it is parked.
    pub park_reason: Option<String>,
    /// A sentence for people about that.
    pub park_detail: Option<String>,
    /// Milliseconds since the epoch.
    pub queued_at: i64,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
}

const FACTS: &str = "
SELECT r.id, r.run_id, r.definition, r.workflow_name, r.title, r.status, r.paused_at IS NOT NULL,
       r.parent, p.run_id, r.parent_kind, CASE WHEN r.root <> r.id THEN o.run_id END, c.run_id,
       r.carried_step_count, r.step_count, r.trace_seq, r.ambiguous_effects, r.current_attempt, r.waiting_attempt,
       r.failure_class, r.created_at, r.started_at, r.finished_at, r.updated_at,
       i.revision, i.view_revision, s.kind, s.location, s.hash,
       q.status, q.park_reason, q.park_detail, q.queued_at, q.updated_at,
       b.session_id, b.execution_mode,
       CASE WHEN l.owner_type IS NOT NULL AND l.server_epoch = (SELECT epoch FROM workflow_server_state) THEN l.expires_at END,
       EXISTS (SELECT 1 FROM run_runners n WHERE n.run = r.id AND n.status <> 'ended'),
       (SELECT x.kind FROM interactive_requests x WHERE x.run = r.id AND x.status = 'pending'),
       EXISTS (SELECT 1 FROM human_decisions h WHERE h.run = r.id AND h.status = 'pending'),
       EXISTS (SELECT 1 FROM workflow_turns t WHERE t.run = r.id AND t.status = 'open'), q.claimable,
       (SELECT count(*) FROM runs x WHERE x.root = r.root AND x.parent_kind = 'restart'),
       (SELECT count(*) FROM effects e WHERE e.resource = r.id AND e.status IN ('pending', 'applying', 'ambiguous'))
  FROM runs r
  JOIN resources i ON i.id = r.id
  JOIN run_queue q ON q.run = r.id
  LEFT JOIN run_sources s ON s.run = r.id AND s.ordinal = 0
  LEFT JOIN run_bindings b ON b.run = r.id
  LEFT JOIN leases l ON l.resource = r.id
  LEFT JOIN runs p ON p.id = r.parent
  LEFT JOIN runs o ON o.id = r.root
  LEFT JOIN runs c ON c.id = r.continued_by
 WHERE r.deleted_at IS NULL AND ";

/// The facts of a run by its public id; `None` when there is none (or it is being purged).
pub fn facts(reader: &Reader, run_id: &str) -> Result<Option<RunFacts>> {
    let mut statement = reader.prepare_cached(&format!("{FACTS} r.run_id = ?1"))?;
    read_one(statement.query([run_id])?)
}

/// The facts of a run by `runs.id`.
pub fn facts_by_id(reader: &Reader, id: i64) -> Result<Option<RunFacts>> {
    let mut statement = reader.prepare_cached(&format!("{FACTS} r.id = ?1"))?;
    read_one(statement.query([id])?)
}

fn read_one(mut rows: rusqlite::Rows<'_>) -> Result<Option<RunFacts>> {
    rows.next()?.map(read_facts).transpose()
}

fn read_facts(row: &Row<'_>) -> Result<RunFacts> {
    let parent = match (row.get::<_, Option<i64>>(7)?, row.get::<_, Option<String>>(8)?) {
        (Some(id), Some(run_id)) => Some((id, run_id)),
        _ => None,
    };
    let has_decision: bool = row.get(38)?;
    Ok(RunFacts {
        id: row.get(0)?,
        run_id: row.get(1)?,
        definition: row.get(2)?,
        workflow_name: row.get(3)?,
        title: row.get(4)?,
        status: word("run status", row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?)?,
        paused: row.get(6)?,
        parent,
        is_continuation: row.get::<_, Option<String>>(9)?.as_deref() == Some("continuation"),
        root_run_id: row.get(10)?,
        continued_by: row.get(11)?,
        carried_step_count: unsigned("carried step count", row.get(12)?)?,
        step_count: unsigned("step count", row.get(13)?)?,
        trace_seq: unsigned("trace position", row.get(14)?)?,
        ambiguous_effects: unsigned("count of ambiguous effects", row.get(15)?)?,
        current_attempt: row.get(16)?,
        waiting_attempt: row.get(17)?,
        failure_class: row.get(18)?,
        created_at: row.get(19)?,
        started_at: row.get(20)?,
        finished_at: row.get(21)?,
        updated_at: row.get(22)?,
        revision: unsigned("revision", row.get(23)?)?,
        view_revision: unsigned("view revision", row.get(24)?)?,
        source: match row.get::<_, Option<String>>(25)? {
            Some(kind) => source(&kind, row.get(26)?, row.get(27)?)?,
            None => return Err(QueryError::corrupt("run source", "the run has no root source")),
        },
        queue: QueueFacts {
            status: row.get(28)?,
            park_reason: row.get(29)?,
            park_detail: row.get(30)?,
            queued_at: row.get(31)?,
            updated_at: row.get(32)?,
            claimable: row.get(40)?,
        },
        session_id: row.get(33)?,
        execution_mode: row
            .get::<_, Option<String>>(34)?
            .unwrap_or_else(|| "headless".to_owned()),
        claim_expires_at: row.get(35)?,
        has_runner: row.get(36)?,
        pending_request: row
            .get::<_, Option<String>>(37)?
            .or_else(|| has_decision.then(|| "decision".to_owned())),
        open_turn: row.get(39)?,
        restarts: u32::try_from(row.get::<_, i64>(41)?).unwrap_or(u32::MAX),
        unsettled_effects: unsigned("effect count", row.get(42)?)?,
    })
}

fn source(kind: &str, location: String, hash: String) -> Result<SourceRef> {
    match kind {
        "file" => Ok(SourceRef::File { path: location, hash }),
        "builtin" => Ok(SourceRef::Builtin {
            id: location,
            revision: hash,
        }),
        other => Err(QueryError::corrupt("run source", format!("unknown kind {other:?}"))),
    }
}

/// The presentation cursor of a run: the one indexed read that decides whether its view must be made again. `None` when
/// there is no such run.
pub fn view_revision(reader: &Reader, run_id: &str) -> Result<Option<u64>> {
    let mut statement = reader.prepare_cached(
        "SELECT i.view_revision FROM runs r JOIN resources i ON i.id = r.id WHERE r.run_id = ?1 AND r.deleted_at IS NULL",
    )?;
    let revision: Option<i64> = statement.query_row([run_id], |row| row.get(0)).optional()?;
    revision.map(|revision| unsigned("view revision", revision)).transpose()
}

/// As [`view_revision`], by `runs.id`.
pub fn view_revision_by_id(reader: &Reader, id: i64) -> Result<Option<u64>> {
    let mut statement = reader.prepare_cached(
        "SELECT i.view_revision FROM runs r JOIN resources i ON i.id = r.id WHERE r.id = ?1 AND r.deleted_at IS NULL",
    )?;
    let revision: Option<i64> = statement.query_row([id], |row| row.get(0)).optional()?;
    revision.map(|revision| unsigned("view revision", revision)).transpose()
}

/// Every frozen source of a run.
pub fn sources(reader: &Reader, id: i64) -> Result<Option<SourceMap>> {
    let mut statement = reader
        .prepare_cached("SELECT role, mount, kind, location, hash FROM run_sources WHERE run = ?1 ORDER BY ordinal")?;
    let mut rows = statement.query([id])?;
    let (mut root, mut mounted, mut modules) = (None, Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let role: String = row.get(0)?;
        let source = source(&row.get::<_, String>(2)?, row.get(3)?, row.get(4)?)?;
        match role.as_str() {
            "root" => root = Some(source),
            "mounted" => mounted.push(MountedSource {
                mount: row.get(1)?,
                source,
            }),
            _ => modules.push(source),
        }
    }
    Ok(root.map(|root| SourceMap { root, mounted, modules }))
}

/// Values of a run that have no column in its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunValue {
    /// Normalised input.
    Input,
    /// Output of a completed run.
    FinalOutput,
    /// Error of a run that ended otherwise.
    Error,
}

/// One value of a run.
pub fn value(reader: &Reader, id: i64, which: RunValue) -> Result<Option<StoredValue>> {
    let kind = match which {
        RunValue::Input => "input",
        RunValue::FinalOutput => "final_output",
        RunValue::Error => "error",
    };
    let mut statement = reader.prepare_cached("SELECT json, blob FROM run_values WHERE run = ?1 AND kind = ?2")?;
    let row = statement
        .query_row(params![id, kind], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(1)?))
        })
        .optional()?;
    match row {
        Some((json, blob)) => StoredValue::read(reader, "run value", json.as_deref(), blob),
        None => Ok(None),
    }
}

/// The error of a run that did not complete. An error stored as content is read whole: errors are bounded where they are made.
pub fn error(reader: &Reader, id: i64) -> Result<Option<ErrorInfo>> {
    let value = match value(reader, id, RunValue::Error)? {
        Some(StoredValue::Inline(value)) => value,
        Some(StoredValue::Content { blob, reference }) => super::content::json(reader, blob, &reference)?,
        None => return Ok(None),
    };
    serde_json::from_value(value)
        .map(Some)
        .map_err(|error| QueryError::corrupt("run error", error))
}

/// The error of a run when it is small enough to be in its row; lists show no other.
pub fn short_error(reader: &Reader, id: i64) -> Result<Option<ErrorInfo>> {
    match value(reader, id, RunValue::Error)? {
        Some(StoredValue::Inline(value)) => serde_json::from_value(value)
            .map(Some)
            .map_err(|error| QueryError::corrupt("run error", error)),
        Some(StoredValue::Content { .. }) | None => Ok(None),
    }
}

/// A definition without its snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionFacts {
    /// `sha256:<hex>`.
    pub digest: String,
    /// The workflow's name.
    pub name: String,
    /// Qualified id of the first node.
    pub start_at: String,
    /// Nodes in the graph.
    pub node_total: u64,
}

/// Facts of a definition.
pub fn definition(reader: &Reader, id: i64) -> Result<DefinitionFacts> {
    let mut statement =
        reader.prepare_cached("SELECT digest, name, start_at, node_total FROM workflow_definitions WHERE id = ?1")?;
    let (digest, name, start_at, total) = statement.query_row([id], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?))
    })?;
    Ok(DefinitionFacts {
        digest,
        name,
        start_at,
        node_total: unsigned("node total", total)?,
    })
}

/// The snapshot of a definition as stored.
pub fn definition_snapshot(reader: &Reader, id: i64) -> Result<StoredValue> {
    let mut statement =
        reader.prepare_cached("SELECT snapshot_json, snapshot_blob FROM workflow_definitions WHERE id = ?1")?;
    let (json, blob) = statement.query_row([id], |row| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    StoredValue::read(reader, "definition", json.as_deref(), blob)?
        .ok_or_else(|| QueryError::corrupt("definition", "it has no snapshot"))
}

/// Reads a snapshot that is stored inline.
pub fn parse_definition(value: serde_json::Value) -> Result<DefinitionSnapshot> {
    serde_json::from_value(value).map_err(|error| QueryError::corrupt("definition", error))
}

/// Qualified id and type of every node of a definition, by node index.
pub fn nodes(reader: &Reader, definition: i64) -> Result<Vec<(String, NodeType)>> {
    let mut statement =
        reader.prepare_cached("SELECT node_id, node_type FROM definition_nodes WHERE definition = ?1 ORDER BY node")?;
    let mut rows = statement.query([definition])?;
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        nodes.push((
            row.get(0)?,
            word("node type", row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?,
        ));
    }
    Ok(nodes)
}

/// `runs.id` of a public id; `None` when there is no such run.
pub fn key(reader: &Reader, run_id: &str) -> Result<Option<i64>> {
    let mut statement = reader.prepare_cached("SELECT id FROM runs WHERE run_id = ?1 AND deleted_at IS NULL")?;
    Ok(statement.query_row([run_id], |row| row.get(0)).optional()?)
}

/// Qualified id of the node of an attempt (`node_attempts.id`).
pub fn attempt_node(reader: &Reader, attempt: i64) -> Result<String> {
    let mut statement = reader.prepare_cached(
        "SELECT n.node_id FROM node_attempts a JOIN runs r ON r.id = a.run
           JOIN definition_nodes n ON n.definition = r.definition AND n.node = a.node WHERE a.id = ?1",
    )?;
    statement
        .query_row([attempt], |row| row.get(0))
        .optional()?
        .ok_or_else(|| QueryError::corrupt("attempt", format!("attempt {attempt} has no node")))
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::open::{open_reader, open_writer};

    #[test]
    fn a_cached_statement_serves_every_run_as_it_was_planned() {
        let dir = tempfile::tempdir().unwrap();
        let _writer = open_writer(dir.path(), 0, None).unwrap();
        let reader = open_reader(dir.path()).unwrap();
        for id in 1..4 {
            assert_eq!(facts_by_id(&reader, id).unwrap(), None);
        }
        let statement = reader.prepare_cached(&format!("{FACTS} r.id = ?1")).unwrap();
        assert_eq!(
            statement.get_status(StatementStatus::Run),
            3,
            "it is the same statement"
        );
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
