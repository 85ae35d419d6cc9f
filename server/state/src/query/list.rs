//! The order of the run list. A chain of continuations is one row, led by its newest run.

use piw_protocol::run::RunStatus;
use rusqlite::{OptionalExtension, Row, ToSql};

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

/// Number of leading runs and `runs.id` of the newest, from the covering index alone.
pub fn leading_count(reader: &Reader) -> Result<(u64, i64)> {
    let mut statement = reader.prepare_cached(&format!(
        "SELECT count(*), coalesce(max(id), 0) FROM runs {EVERY} {LEADS}"
    ))?;
    let (count, newest) = statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((super::unsigned("number of runs", count)?, newest))
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

/// Which leading runs a scan reads, so that a filter need not look at all of them. Of several limits the one that leaves least
/// leads through an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrow<'a> {
    /// Only runs of these durable statuses.
    pub status: Option<Vec<RunStatus>>,
    /// Only runs of this workflow.
    pub workflow: Option<&'a str>,
    /// Only runs created at or after this, in milliseconds since the epoch.
    pub after: Option<i64>,
    /// Only runs created before this.
    pub before: Option<i64>,
}

impl Narrow<'_> {
    /// Whether a scan reads every leading run.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        let by_status = self
            .status
            .as_ref()
            .is_some_and(|status| !status.contains(&RunStatus::Completed));
        !by_status && self.workflow.is_none() && self.after.is_none() && self.before.is_none()
    }
}

const EVERY: &str = "INDEXED BY runs_leading WHERE";
const BY_CREATION: &str = "INDEXED BY runs_by_creation WHERE created_at >= ?1 AND created_at < ?2 AND";
const BY_WORKFLOW: &str =
    "INDEXED BY runs_by_workflow WHERE workflow_name = ?3 AND created_at >= ?1 AND created_at < ?2 AND";
const ENDED_BADLY: &str = "INDEXED BY runs_ended_badly WHERE status IN ('failed', 'timed_out', 'cancelled')
       AND status = ?3 AND created_at >= ?1 AND created_at < ?2 AND";
const UNFINISHED: &str =
    "INDEXED BY runs_unfinished WHERE status IN ('queued', 'running', 'waiting') AND status = ?3 AND";
const LEADS: &str = "continued_by IS NULL AND deleted_at IS NULL";

/// Reads leading runs in any order, one by one: all that a filter of these limits can let through, and maybe more.
pub fn scan(reader: &Reader, narrow: &Narrow<'_>, mut visit: impl FnMut(ListKey) -> Result<()>) -> Result<()> {
    let (after, before) = (narrow.after.unwrap_or(i64::MIN), narrow.before.unwrap_or(i64::MAX));
    let mut read = |which: &str, word: Option<&str>| {
        let mut statement = reader.prepare_cached(&format!("{KEY} {which} {LEADS}"))?;
        let values: [&dyn ToSql; 3] = [&after, &before, &word];
        let count = statement.parameter_count();
        let mut rows = statement.query(&values[..count])?;
        while let Some(row) = rows.next()? {
            visit(read_key(row)?)?;
        }
        Ok(())
    };
    match narrow {
        // Most runs are completed: no index by status would leave fewer.
        Narrow {
            status: Some(status), ..
        } if !status.contains(&RunStatus::Completed) => {
            for status in status {
                let which = if status.is_terminal() { ENDED_BADLY } else { UNFINISHED };
                read(which, Some(status.name()))?;
            }
            Ok(())
        }
        Narrow {
            workflow: Some(name), ..
        } => read(BY_WORKFLOW, Some(name)),
        Narrow {
            after: None,
            before: None,
            ..
        } => read(EVERY, None),
        _ => read(BY_CREATION, None),
    }
}

const WORDS: &str = "SELECT id, run_id, workflow_name, title FROM runs INDEXED BY runs_words
       WHERE continued_by IS NULL AND deleted_at IS NULL ORDER BY id";

/// Reads what texts are looked for in, of every leading run, oldest first, from the covering index alone: `runs.id`, public id,
/// workflow name and title.
pub fn scan_words(reader: &Reader, mut visit: impl FnMut(i64, [Option<&str>; 3]) -> Result<()>) -> Result<()> {
    let mut statement = reader.prepare_cached(WORDS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text = |column: usize| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
        visit(row.get(0)?, [text(1)?, text(2)?, text(3)?])?;
    }
    Ok(())
}

/// The key of one run by `runs.id`, leading or not; `None` when it is gone.
pub fn key_by_id(reader: &Reader, id: i64) -> Result<Option<ListKey>> {
    let mut statement = reader.prepare_cached(&format!("{KEY} WHERE id = ?1"))?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(read_key).transpose()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scan_goes_through_its_index() {
        let reader = Reader::open_in_memory().unwrap();
        reader.execute_batch(crate::schema::DDL).unwrap();
        for (which, way) in [
            (EVERY, "SCAN runs USING INDEX runs_leading"),
            (
                BY_CREATION,
                "SEARCH runs USING INDEX runs_by_creation (created_at>? AND created_at<?)",
            ),
            (
                BY_WORKFLOW,
                "SEARCH runs USING INDEX runs_by_workflow (workflow_name=? AND created_at>? AND created_at<?)",
            ),
            (
                ENDED_BADLY,
                "SEARCH runs USING INDEX runs_ended_badly (status=? AND created_at>? AND created_at<?)",
            ),
            (UNFINISHED, "SEARCH runs USING INDEX runs_unfinished (status=?)"),
        ] {
            let mut plan = reader
                .prepare(&format!("EXPLAIN QUERY PLAN {KEY} {which} {LEADS}"))
                .unwrap();
            let unbound = rusqlite::params_from_iter(vec![None::<i64>; plan.parameter_count()]);
            let lines = plan.query_map(unbound, |row| row.get::<_, String>(3)).unwrap();
            let lines: Vec<String> = lines.map(std::result::Result::unwrap).collect();
            assert_eq!(lines, [way], "{which}");
        }
        let mut plan = reader.prepare(&format!("EXPLAIN QUERY PLAN {WORDS}")).unwrap();
        let lines = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let lines: Vec<String> = lines.map(std::result::Result::unwrap).collect();
        assert_eq!(lines, ["SCAN runs USING COVERING INDEX runs_words"]);
    }
}
