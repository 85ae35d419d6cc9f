//! Counts for the server's status: numbers and states, no content.

use super::{Reader, Result, rfc3339, unsigned};

/// What `server.status` reports of the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCounts {
    /// Runs that wait for a runner for the first time.
    pub queued: u64,
    /// Runs with a starting or running queue row.
    pub running: u64,
    /// Runs stopped at a durable boundary.
    pub parked: u64,
    /// Runs that wait for an answer.
    pub waiting: u64,
    /// Claims on unfinished runs past their expiry.
    pub expired_claims: u64,
    /// Pending requests and decisions.
    pub pending_interactions: u64,
    /// Effects whose outcome is unknown.
    pub ambiguous_effects: u64,
    /// Last finished retention sweep, RFC 3339.
    pub last_sweep: Option<String>,
}

/// Whether a run waits for a runner.
pub fn claimable(reader: &Reader) -> Result<bool> {
    let mut statement = reader.prepare_cached("SELECT 1 FROM run_queue WHERE claimable = 1 LIMIT 1")?;
    Ok(statement.exists([])?)
}

/// Counts, from the indexes of unfinished work only. `now` is wall-clock milliseconds.
pub fn status(reader: &Reader, now: i64) -> Result<StatusCounts> {
    let mut counts = StatusCounts::default();
    let mut unfinished = reader.prepare_cached(
        "SELECT r.status, q.status, count(*) FROM runs r JOIN run_queue q ON q.run = r.id
          WHERE r.status IN ('queued', 'running', 'waiting') GROUP BY r.status, q.status",
    )?;
    let mut rows = unfinished.query([])?;
    while let Some(row) = rows.next()? {
        let number = unsigned("count", row.get(2)?)?;
        match (text(row, 0)?, text(row, 1)?) {
            ("queued", _) => counts.queued += number,
            ("waiting", _) => counts.waiting += number,
            (_, "parked") => counts.parked += number,
            _ => counts.running += number,
        }
    }
    let count = |sql: &str, parameters: &[i64]| -> Result<u64> {
        let mut statement = reader.prepare_cached(sql)?;
        let count: i64 = statement.query_row(rusqlite::params_from_iter(parameters), |row| row.get(0))?;
        unsigned("count", count)
    };
    Ok(StatusCounts {
        expired_claims: count(
            "SELECT count(*) FROM runs r JOIN leases l ON l.resource = r.id
              WHERE r.status IN ('queued', 'running', 'waiting') AND l.owner_type IS NOT NULL AND l.expires_at <= ?1",
            &[now],
        )?,
        pending_interactions: count(
            "SELECT (SELECT count(*) FROM interactive_requests WHERE status = 'pending')
                  + (SELECT count(*) FROM human_decisions WHERE status = 'pending')",
            &[],
        )?,
        // The list of states is the condition of the index.
        ambiguous_effects: count(
            "SELECT count(*) FROM effects WHERE status IN ('pending', 'applying', 'ambiguous') AND status = 'ambiguous'",
            &[],
        )?,
        last_sweep: reader
            .prepare_cached("SELECT max(last_sweep_at) FROM workflow_server_state")?
            .query_row([], |row| row.get::<_, Option<i64>>(0))?
            .map(rfc3339),
        ..counts
    })
}

fn text<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> Result<&'r str> {
    Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
}
