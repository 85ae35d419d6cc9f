//! Current updates of a run: the newest publication of each type and key, in publication order.

use std::ops::ControlFlow;

use rusqlite::params;
use serde_json::Value;

use crate::ids::AttemptId;

use super::{QueryError, Reader, Result, signed, unsigned};

/// A current update.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateRow {
    /// Its type.
    pub update_type: String,
    /// Its key.
    pub key: String,
    /// Run-wide ordinal of the publication.
    pub seq: u64,
    /// Publishing node's index in the definition.
    pub node: i64,
    /// Publishing attempt's public id.
    pub attempt_id: String,
    /// Milliseconds since the epoch.
    pub at: i64,
    /// A JSON object of at most 64 KiB.
    pub data: Value,
    /// State of the progress estimator, as stored.
    pub estimator: Option<String>,
}

/// Current updates in all.
pub fn count(reader: &Reader, run: i64) -> Result<u64> {
    let mut statement = reader.prepare_cached("SELECT count(*) FROM workflow_updates WHERE run = ?1")?;
    unsigned("update count", statement.query_row([run], |row| row.get(0))?)
}

/// Reads current updates from a position in publication order, one by one until the visitor breaks.
pub fn scan(
    reader: &Reader,
    run: i64,
    start: u64,
    mut visit: impl FnMut(UpdateRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    read(reader, "ASC", run, start, &mut visit)
}

/// Reads current updates from the newest back.
pub fn scan_back(reader: &Reader, run: i64, mut visit: impl FnMut(UpdateRow) -> Result<ControlFlow<()>>) -> Result<()> {
    read(reader, "DESC", run, 0, &mut visit)
}

fn read(
    reader: &Reader,
    direction: &str,
    run: i64,
    offset: u64,
    visit: &mut dyn FnMut(UpdateRow) -> Result<ControlFlow<()>>,
) -> Result<()> {
    // The inner query orders narrow rows; the data, up to 64 KiB each, is read row by row.
    let mut statement = reader.prepare_cached(&format!(
        "WITH ordered(id, seq) AS MATERIALIZED
           (SELECT id, seq FROM workflow_updates WHERE run = ?1 ORDER BY seq {direction} LIMIT 256 OFFSET ?2)
         SELECT u.update_type, u.key, u.seq, u.node, a.attempt_id, u.at, u.data_json, u.estimate
           FROM ordered o CROSS JOIN workflow_updates u ON u.id = o.id LEFT JOIN node_attempts a ON a.id = u.attempt"
    ))?;
    let mut rows = statement.query(params![run, signed(offset)])?;
    while let Some(row) = rows.next()? {
        let data = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
        let update = UpdateRow {
            update_type: row.get(0)?,
            key: row.get(1)?,
            seq: unsigned("update ordinal", row.get(2)?)?,
            node: row.get(3)?,
            attempt_id: row.get::<_, AttemptId>(4)?.into_string(),
            at: row.get(5)?,
            data: serde_json::from_str(data).map_err(|error| QueryError::corrupt("update", error))?,
            estimator: row.get(7)?,
        };
        if visit(update)?.is_break() {
            break;
        }
    }
    Ok(())
}
