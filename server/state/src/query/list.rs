//! The order of the run list. A chain of continuations is one row, led by its newest run.

use std::ops::ControlFlow;

use piw_protocol::run::RunStatus;
use rusqlite::{OptionalExtension, Row};

use super::{Reader, Result, word};

/// `runs.id` of every leading run, oldest first, from the covering index alone.
pub fn leading_ids(reader: &Reader) -> Result<Vec<i64>> {
    let mut statement =
        reader.prepare_cached("SELECT id FROM runs WHERE continued_by IS NULL AND deleted_at IS NULL ORDER BY id")?;
    let ids = statement
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    Ok(ids)
}

/// What filters look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListKey {
    /// `runs.id`: grows with creation.
    pub id: i64,
    /// Public id.
    pub run_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// The run's title.
    pub title: Option<String>,
    /// Durable status.
    pub status: RunStatus,
    /// Milliseconds since the epoch.
    pub created_at: i64,
    /// The run leads a row: it was not continued and is not being purged.
    pub leads: bool,
}

const KEY: &str = "SELECT id, run_id, workflow_name, title, status, created_at,
       continued_by IS NULL AND deleted_at IS NULL FROM runs";

/// Reads the leading runs, oldest first, one by one until the visitor breaks.
pub fn scan(reader: &Reader, mut visit: impl FnMut(ListKey) -> Result<ControlFlow<()>>) -> Result<()> {
    let mut statement = reader.prepare_cached(&format!(
        "{KEY} WHERE continued_by IS NULL AND deleted_at IS NULL ORDER BY id"
    ))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if visit(read_key(row)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// The key of one run, leading or not; `None` when it is gone.
pub fn key(reader: &Reader, run_id: &str) -> Result<Option<ListKey>> {
    let mut statement = reader.prepare_cached(&format!("{KEY} WHERE run_id = ?1"))?;
    let mut rows = statement.query([run_id])?;
    rows.next()?.map(read_key).transpose()
}

/// `runs.id` of the run that a run continues.
pub fn continued_run(reader: &Reader, id: i64) -> Result<Option<i64>> {
    let mut statement =
        reader.prepare_cached("SELECT parent FROM runs WHERE id = ?1 AND parent_kind = 'continuation'")?;
    Ok(statement.query_row([id], |row| row.get(0)).optional()?)
}

fn read_key(row: &Row<'_>) -> Result<ListKey> {
    Ok(ListKey {
        id: row.get(0)?,
        run_id: row.get(1)?,
        workflow_name: row.get(2)?,
        title: row.get(3)?,
        status: word("run status", row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?)?,
        created_at: row.get(5)?,
        leads: row.get(6)?,
    })
}
