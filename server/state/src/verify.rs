//! Every invariant of the stored state as a query. A healthy database violates none; a violation names the run.
//!
//! A check reads with a connection of its own and one snapshot a query, so that neither views nor writers wait for it and the
//! write-ahead log can be emptied in between.

mod file;
mod invariants;

use piw_protocol::session::CHECKPOINT_EVERY;
use rusqlite::Connection;

use crate::aside::Stop;
use crate::content;
use crate::error::StateError;
use crate::hash::sha256_hex;
use crate::query::{QueryError, session as sessions};
use crate::schema;
use crate::state::State;

pub(crate) use file::check_copy;
pub use file::{BackupRefused, verify_backup};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: &'static str,
    /// Public id of the run, when there is one.
    pub run_id: Option<String>,
    /// What was found, without content.
    pub detail: String,
}

impl Violation {
    fn new(invariant: &'static str, run_id: Option<String>, detail: String) -> Self {
        Self {
            invariant,
            run_id,
            detail,
        }
    }
}

/// Violations of one invariant that are reported at most.
const MAX_REPORTED: usize = 100;

/// Replay checkpoints that one check compares with a replay, chosen at random.
const MAX_REPLAYED: u32 = 64;

/// Number of invariants that [`State::verify`] checks: the queries, integrity, foreign keys, schema, digests and
/// replay checkpoints.
#[must_use]
pub fn checks() -> usize {
    invariants::INVARIANTS.len() + 5
}

impl State {
    /// Checks the file's integrity, its schema, its foreign keys, every domain invariant and every digest.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn verify(&self) -> Result<Vec<Violation>, StateError> {
        self.aside("state-verify", verify).await
    }
}

/// Checks a database; see [`State::verify`].
pub(crate) fn verify(db: &Connection, stop: &Stop) -> Result<Vec<Violation>, StateError> {
    let mut found = Vec::new();
    integrity(db, &mut found)?;
    shape(db, &mut found)?;
    found.extend(invariants(db, stop)?);
    digests(db, stop, &mut found)?;
    replays(db, stop, &mut found)?;
    Ok(found)
}

/// Replays some of the recorded sessions from one checkpoint to the next, which must be what comes out.
fn replays(db: &Connection, stop: &Stop, found: &mut Vec<Violation>) -> Result<(), StateError> {
    const NAME: &str = "replay checkpoints are what the events before them give";
    let mut sample = db.prepare(
        "SELECT r.id, r.run_id, c.position FROM viewer_session_checkpoints c JOIN runs r ON r.id = c.run
          WHERE r.deleted_at IS NULL ORDER BY random() LIMIT ?1",
    )?;
    let mut rows = sample.query([MAX_REPLAYED])?;
    while let Some(row) = rows.next()? {
        stop.check()?;
        let (run, run_id, position): (i64, String, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let replayed = || {
            let from = position.saturating_sub(CHECKPOINT_EVERY);
            let before = sessions::checkpoint(db, run, from)?;
            Ok(sessions::replay(db, run, before, from..position)? == sessions::checkpoint(db, run, position)?)
        };
        match replayed() {
            Ok(true) => {}
            Ok(false) => {
                let detail = format!("the checkpoint before event {position} is not what a replay gives");
                found.push(Violation::new(NAME, Some(run_id), detail));
            }
            Err(QueryError::Corrupt { what, .. }) => {
                let detail = format!("the {what} before event {position} cannot be read");
                found.push(Violation::new(NAME, Some(run_id), detail));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Checks the domain invariants alone.
pub(crate) fn invariants(db: &Connection, stop: &Stop) -> Result<Vec<Violation>, StateError> {
    let mut found = Vec::new();
    for (invariant, query) in invariants::INVARIANTS {
        stop.check()?;
        let mut statement = db.prepare(query)?;
        let mut rows = statement.query([])?;
        let mut reported = 0;
        while let Some(row) = rows.next()? {
            if reported == MAX_REPORTED {
                let detail = format!("more than {MAX_REPORTED} violations");
                found.push(Violation::new(invariant, None, detail));
                break;
            }
            reported += 1;
            let detail: Option<String> = row.get(1)?;
            found.push(Violation::new(invariant, row.get(0)?, detail.unwrap_or_default()));
        }
    }
    Ok(found)
}

/// Damage that the checks find is a finding, not a failure of the check.
fn integrity(db: &Connection, found: &mut Vec<Violation>) -> Result<(), StateError> {
    let mut statement = db.prepare("PRAGMA integrity_check(100)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let detail: String = row.get(0)?;
        if detail != "ok" {
            found.push(Violation::new("file integrity", None, detail));
        }
    }
    let mut statement = db.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if found.len() > MAX_REPORTED {
            break;
        }
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        let detail = format!("a row of {table} names a missing row of {parent}");
        found.push(Violation::new("foreign keys", None, detail));
    }
    Ok(())
}

fn shape(db: &Connection, found: &mut Vec<Violation>) -> Result<(), StateError> {
    let stored: (String, i32, String) = db.query_row(
        "SELECT name, version, ddl_sha256 FROM schema_meta WHERE id = 1",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let expected = (schema::NAME.to_owned(), schema::VERSION, schema::digest());
    let difference = if stored == expected {
        schema::first_difference(&schema::shape(db)?, &schema::expected_shape()?)
    } else {
        Some(format!("{} version {}, digest {}", stored.0, stored.1, stored.2))
    };
    found.extend(difference.map(|difference| Violation::new("schema", None, difference)));
    Ok(())
}

/// Compares content, definitions and values in rows with their digests.
fn digests(db: &Connection, stop: &Stop, found: &mut Vec<Violation>) -> Result<(), StateError> {
    const NAME: &str = "content matches its digest";
    let before = found.len();
    let mut report = |run_id: Option<String>, detail: String| {
        if found.len() - before < MAX_REPORTED {
            found.push(Violation::new(NAME, run_id, detail));
        }
    };
    let mut blobs = db.prepare("SELECT id, sha256 FROM blobs WHERE complete = 1")?;
    let mut rows = blobs.query([])?;
    while let Some(row) = rows.next()? {
        stop.check()?;
        let (blob, expected): (i64, [u8; 32]) = (row.get(0)?, row.get(1)?);
        if content::digest(db, blob)? != expected {
            report(None, format!("content {blob} has other bytes than its digest says"));
        }
    }
    let mut generated = db.prepare(
        "SELECT r.run_id, c.id, c.sha256, c.data FROM run_view_content c JOIN runs r ON r.id = c.run WHERE c.data IS NOT NULL",
    )?;
    let mut rows = generated.query([])?;
    while let Some(row) = rows.next()? {
        let (expected, data): ([u8; 32], Vec<u8>) = (row.get(2)?, row.get(3)?);
        if crate::hash::sha256(&data) != expected {
            let row_id: i64 = row.get(1)?;
            report(
                row.get(0)?,
                format!("view content {row_id} has other bytes than its digest says"),
            );
        }
    }
    let mut texts = db.prepare(
        "SELECT r.run_id, v.kind, v.hash, v.json FROM run_values v JOIN runs r ON r.id = v.run WHERE v.json IS NOT NULL
         UNION ALL SELECT NULL, 'definition ' || id, digest, snapshot_json FROM workflow_definitions WHERE snapshot_json IS NOT NULL",
    )?;
    let mut rows = texts.query([])?;
    while let Some(row) = rows.next()? {
        let (what, expected, text): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
        if expected.strip_prefix("sha256:") != Some(&sha256_hex(text.as_bytes())) {
            report(row.get(0)?, format!("{what} differs from its digest"));
        }
    }
    Ok(())
}
