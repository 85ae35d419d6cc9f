//! What the database of a stopped server says, read without the code that wrote it.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Result};

/// A run as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Durable status.
    pub status: String,
    /// Execution revision.
    pub revision: u64,
    /// Finished steps, carried ones included.
    pub steps: u64,
    /// Nodes of its own steps, in order.
    pub nodes: Vec<String>,
    /// Steps taken over from its parents.
    pub carried: u64,
    /// Whether a continuation took over.
    pub continued: bool,
    /// Outputs of its finished attempts, as JSON.
    pub outputs: Vec<String>,
}

/// An effect as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The run.
    pub run_id: String,
    /// Node, and which visit of it.
    pub place: String,
    /// Kind.
    pub kind: String,
    /// State.
    pub status: String,
    /// Tries.
    pub tries: u64,
}

/// Everything that the checks compare with the world outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// By public id.
    pub runs: BTreeMap<String, Run>,
    /// By key.
    pub effects: BTreeMap<String, Effect>,
    /// Registered processes.
    pub processes: u64,
}

/// Reads the file; the server must be gone.
///
/// # Errors
/// When it cannot be read.
pub fn read(state_dir: &Path) -> Result<Facts> {
    let path = state_dir.join("state.sqlite");
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    Ok(Facts {
        runs: runs(&db)?,
        effects: effects(&db)?,
        processes: db.query_row("SELECT count(*) FROM run_processes", [], |row| row.get(0))?,
    })
}

fn runs(db: &Connection) -> Result<BTreeMap<String, Run>> {
    let mut statement = db.prepare(
        "SELECT r.id, r.run_id, r.status, s.revision, r.step_count, r.carried_step_count, r.continued_by IS NOT NULL
           FROM runs r JOIN resources s ON s.id = r.id WHERE r.deleted_at IS NULL",
    )?;
    let rows: Vec<(i64, String, Run)> = statement
        .query_map([], |row| {
            let run = Run {
                status: row.get(2)?,
                revision: row.get(3)?,
                steps: row.get(4)?,
                nodes: Vec::new(),
                carried: row.get(5)?,
                continued: row.get(6)?,
                outputs: Vec::new(),
            };
            Ok((row.get(0)?, row.get(1)?, run))
        })?
        .collect::<Result<_>>()?;
    let mut all = BTreeMap::new();
    for (id, run_id, mut run) in rows {
        run.nodes = nodes(db, id)?;
        run.outputs = outputs(db, id)?;
        all.insert(run_id, run);
    }
    Ok(all)
}

fn nodes(db: &Connection, run: i64) -> Result<Vec<String>> {
    let mut statement = db.prepare(
        "SELECT n.node_id FROM run_steps s JOIN runs r ON r.id = s.run
           JOIN definition_nodes n ON n.definition = r.definition AND n.node = s.node
          WHERE s.run = ?1 ORDER BY s.step_index",
    )?;
    statement.query_map([run], |row| row.get(0))?.collect()
}

fn outputs(db: &Connection, run: i64) -> Result<Vec<String>> {
    let mut statement = db.prepare(
        "SELECT output_json, output_blob FROM node_attempts
          WHERE run = ?1 AND status = 'finished' AND (output_json IS NOT NULL OR output_blob IS NOT NULL)",
    )?;
    let rows: Vec<(Option<String>, Option<i64>)> = statement
        .query_map([run], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_>>()?;
    rows.into_iter()
        .map(|(json, blob)| match (json, blob) {
            (Some(json), _) => Ok(json),
            (None, Some(blob)) => content(db, blob),
            (None, None) => Ok(String::new()),
        })
        .collect()
}

fn content(db: &Connection, blob: i64) -> Result<String> {
    let mut statement = db.prepare("SELECT data FROM blob_chunks WHERE blob = ?1 ORDER BY offset")?;
    let chunks: Vec<Vec<u8>> = statement.query_map([blob], |row| row.get(0))?.collect::<Result<_>>()?;
    Ok(String::from_utf8_lossy(&chunks.concat()).into_owned())
}

fn effects(db: &Connection) -> Result<BTreeMap<String, Effect>> {
    let mut statement = db.prepare(
        "SELECT e.key, r.run_id, n.node_id || '#' || e.visit, e.kind, e.status, e.attempts
           FROM effects e JOIN runs r ON r.id = e.resource
           JOIN definition_nodes n ON n.definition = r.definition AND n.node = e.node",
    )?;
    statement
        .query_map([], |row| {
            let effect = Effect {
                run_id: row.get(1)?,
                place: row.get(2)?,
                kind: row.get(3)?,
                status: row.get(4)?,
                tries: row.get(5)?,
            };
            Ok((row.get(0)?, effect))
        })?
        .collect()
}
