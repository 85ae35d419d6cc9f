//! Where a run's time went, and what its nodes took in earlier runs of the same workflow.

use rusqlite::{OptionalExtension, params};

use super::run::RunFacts;
use super::steps::Chain;
use super::{QueryError, Reader, Result};

/// Runs before a run among which completed ones are looked for.
const LOOKED_AT: i64 = 512;
/// Pauses and resumptions of one run that are read.
const READ: i64 = 4096;

/// A completed run before another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierRun {
    /// `runs.id`.
    pub run: i64,
    /// `workflow_definitions.id`.
    pub definition: i64,
}

const EARLIER: &str = "SELECT id, definition FROM
       (SELECT id, definition, status FROM runs INDEXED BY runs_by_workflow
         WHERE workflow_name = ?1 AND created_at <= ?2 AND id < ?3 AND continued_by IS NULL AND deleted_at IS NULL
         ORDER BY created_at DESC LIMIT ?4)
 WHERE status = 'completed' LIMIT ?5";

/// The newest completed runs of the same workflow before a run, at most `most`, newest first. Only the last few hundred runs are
/// looked at: where nearly all fail there are fewer.
pub fn earlier_runs(reader: &Reader, facts: &RunFacts, most: usize) -> Result<Vec<EarlierRun>> {
    let mut statement = reader.prepare_cached(EARLIER)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = statement.query_map(
        params![facts.workflow_name, facts.created_at, facts.id, LOOKED_AT, most],
        |row| {
            Ok(EarlierRun {
                run: row.get(0)?,
                definition: row.get(1)?,
            })
        },
    )?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Active time of the newest attempt of a node in a run, in milliseconds; `None` when it did not succeed or there is none.
pub fn newest_time(reader: &Reader, run: i64, node: i64) -> Result<Option<i64>> {
    let mut statement = reader.prepare_cached(
        "SELECT coalesce(a.active_ms, a.finished_at - a.started_at)
           FROM run_nodes n JOIN node_attempts a ON a.id = n.latest_attempt
          WHERE n.run = ?1 AND n.node = ?2 AND a.outcome = 'ok'",
    )?;
    let time: Option<i64> = statement.query_row([run, node], |row| row.get(0)).optional()?;
    Ok(time.map(|time| time.max(0)))
}

/// What a run did beside its steps, in milliseconds since the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idle {
    /// When the run was made.
    pub created_at: i64,
    /// Its first claim.
    pub started_at: Option<i64>,
    /// Its end.
    pub finished_at: Option<i64>,
    /// Pauses in order; the last one may go on.
    pub paused: Vec<(i64, Option<i64>)>,
    /// The checkpoint that waited: its node, since when and until when.
    pub waited: Option<(i64, i64, Option<i64>)>,
}

/// [`Idle`] of every run of a chain, oldest first.
pub fn idle(reader: &Reader, chain: &Chain) -> Result<Vec<Idle>> {
    let mut parts = Vec::with_capacity(chain.segments().len());
    for segment in chain.segments().iter().rev() {
        parts.push(idle_of(reader, segment.run)?);
    }
    Ok(parts)
}

fn idle_of(reader: &Reader, run: i64) -> Result<Idle> {
    // A checkpoint that was answered is the one that the continuation names.
    let mut statement = reader.prepare_cached(
        "SELECT r.created_at, r.started_at, r.finished_at, a.node, a.finished_at, k.answered_at
           FROM runs r LEFT JOIN continuations k ON k.child = r.continued_by
           LEFT JOIN node_attempts a ON a.id = coalesce(r.waiting_attempt, k.attempt)
          WHERE r.id = ?1",
    )?;
    let mut idle = statement.query_row([run], |row| {
        let waited: (Option<i64>, Option<i64>, Option<i64>) = (row.get(3)?, row.get(4)?, row.get(5)?);
        Ok(Idle {
            created_at: row.get(0)?,
            started_at: row.get(1)?,
            finished_at: row.get(2)?,
            paused: Vec::new(),
            waited: waited.0.zip(waited.1).map(|(node, since)| (node, since, waited.2)),
        })
    })?;
    if let (Some((.., until @ None)), Some(finished)) = (&mut idle.waited, idle.finished_at) {
        // Cancelled while it waited.
        *until = Some(finished);
    }
    let mut statement = reader.prepare_cached(PAUSES)?;
    let events = statement.query_map(params![run, READ], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    for event in events {
        let (kind, at) = event.map_err(QueryError::from)?;
        match (kind.as_str(), idle.paused.last_mut()) {
            ("run.paused", _) => idle.paused.push((at, None)),
            // A parked run is resumed without having been paused.
            (_, Some((_, until @ None))) => *until = Some(at),
            _ => {}
        }
    }
    if let (Some((_, until @ None)), Some(finished)) = (idle.paused.last_mut(), idle.finished_at) {
        *until = Some(finished);
    }
    Ok(idle)
}

const PAUSES: &str = "SELECT type, at FROM events INDEXED BY events_pauses
  WHERE resource = ?1 AND type IN ('run.paused', 'run.resumed') ORDER BY seq LIMIT ?2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_goes_through_its_index() {
        let reader = Reader::open_in_memory().unwrap();
        reader.execute_batch(crate::schema::DDL).unwrap();
        for (query, way) in [
            (
                EARLIER,
                "SEARCH runs USING INDEX runs_by_workflow (workflow_name=? AND created_at<?)",
            ),
            (PAUSES, "SEARCH events USING INDEX events_pauses (resource=?)"),
        ] {
            let mut plan = reader.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let unbound = rusqlite::params_from_iter(vec![None::<i64>; plan.parameter_count()]);
            let lines = plan.query_map(unbound, |row| row.get::<_, String>(3)).unwrap();
            let lines: Vec<String> = lines.map(std::result::Result::unwrap).collect();
            assert!(lines.contains(&way.to_owned()), "{lines:?}");
            assert!(!lines.iter().any(|line| line.contains("TEMP B-TREE")), "{lines:?}");
        }
    }
}
