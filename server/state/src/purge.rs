//! Purging what was removed from sight: rows of deleted runs, definitions and content that nothing names.
//!
//! Everything happens in small transactions. Each looks first whether a run waits for a runner and then does nothing: new work
//! waits at most for the one transaction that is under way. What a crash interrupts goes on at the next start, since the runs
//! stay marked until their last row is gone.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::error::StateError;
use crate::ids::RunKey;
use crate::query::counts;
use crate::state::State;
use crate::writer::{Authority, Tx};

/// Rows after which a transaction ends.
const ROWS: usize = 256;
/// Time after which a transaction ends; looked at after each statement, which deletes at most its own batch of rows.
const TIME: Duration = Duration::from_millis(5);
/// Definitions and content younger than this may be about to be named.
const KEEP_UNNAMED_MS: i64 = 60 * 60 * 1000;
/// A stored upload older than this is touched when somebody uploads it again, so that it stays until it is named.
pub(crate) const TOUCH_AFTER_MS: i64 = KEEP_UNNAMED_MS / 2;
/// Content rows that one page of the search looks at.
const PAGE: usize = 256;
/// Chunks of content (512 KiB each) that one transaction deletes.
const CHUNKS: usize = 4;

/// How the rows of a run go, in this order: what names other rows before what is named. `?1` is the run, `?2` the most rows of
/// one statement, which is the number beside it: small where rows can be large.
const STEPS: &[(usize, &str)] = &[
    (8, "DELETE FROM run_view_content WHERE id IN (SELECT id FROM run_view_content WHERE run = ?1 LIMIT ?2)"),
    (
        128,
        "DELETE FROM attempt_entries WHERE (attempt, ordinal) IN (
           SELECT x.attempt, x.ordinal FROM session_entries e JOIN attempt_entries x ON x.entry = e.id
            WHERE e.run = ?1 LIMIT ?2)",
    ),
    (32, "DELETE FROM session_entries WHERE id IN (SELECT id FROM session_entries WHERE run = ?1 LIMIT ?2)"),
    (64, "DELETE FROM session_events WHERE rowid IN (SELECT rowid FROM session_events WHERE run = ?1 LIMIT ?2)"),
    (
        16,
        "DELETE FROM viewer_session_checkpoints WHERE rowid IN (
           SELECT rowid FROM viewer_session_checkpoints WHERE run = ?1 LIMIT ?2)",
    ),
    (64, "DELETE FROM session_segments WHERE id IN (SELECT id FROM session_segments WHERE run = ?1 LIMIT ?2)"),
    (
        64,
        "DELETE FROM workflow_turns WHERE id IN (
           SELECT id FROM workflow_turns WHERE run = ?1
           UNION SELECT t.id FROM workflow_messages m JOIN workflow_turns t ON t.message = m.id WHERE m.run = ?1 LIMIT ?2)",
    ),
    (
        32,
        "DELETE FROM workflow_messages WHERE id IN (
           SELECT id FROM workflow_messages WHERE run = ?1
           UNION SELECT m.id FROM interactive_requests q JOIN workflow_messages m ON m.request = q.id WHERE q.run = ?1 LIMIT ?2)",
    ),
    (
        32,
        "DELETE FROM interactive_submissions WHERE id IN (
           SELECT s.id FROM interactive_requests q JOIN interactive_submissions s ON s.request = q.id WHERE q.run = ?1 LIMIT ?2)",
    ),
    (32, "DELETE FROM interactive_requests WHERE id IN (SELECT id FROM interactive_requests WHERE run = ?1 LIMIT ?2)"),
    (
        64,
        "DELETE FROM channel_messages WHERE id IN (
           SELECT c.id FROM human_decisions d JOIN channel_messages c ON c.decision = d.id WHERE d.run = ?1 LIMIT ?2)",
    ),
    (
        64,
        "DELETE FROM human_decision_resolutions WHERE decision IN (
           SELECT w.decision FROM human_decisions d JOIN human_decision_resolutions w ON w.decision = d.id
            WHERE d.run = ?1 LIMIT ?2)",
    ),
    (
        32,
        "DELETE FROM human_decision_submissions WHERE id IN (
           SELECT s.id FROM human_decisions d JOIN human_decision_submissions s ON s.decision = d.id WHERE d.run = ?1 LIMIT ?2)",
    ),
    (32, "DELETE FROM human_decisions WHERE id IN (SELECT id FROM human_decisions WHERE run = ?1 LIMIT ?2)"),
    (32, "DELETE FROM workflow_follow_ups WHERE id IN (SELECT id FROM workflow_follow_ups WHERE run = ?1 LIMIT ?2)"),
    (32, "DELETE FROM workflow_settings WHERE run = ?1 AND scope IN (SELECT scope FROM workflow_settings WHERE run = ?1 LIMIT ?2)"),
    (
        32,
        "DELETE FROM workflow_setting_changes
          WHERE run = ?1 AND number IN (SELECT number FROM workflow_setting_changes WHERE run = ?1 LIMIT ?2)",
    ),
    (
        8,
        "DELETE FROM continuations WHERE child IN (
           SELECT child FROM continuations WHERE child = ?1 UNION SELECT child FROM continuations WHERE parent = ?1 LIMIT ?2)",
    ),
    (16, "DELETE FROM workflow_updates WHERE id IN (SELECT id FROM workflow_updates WHERE run = ?1 LIMIT ?2)"),
    (16, "DELETE FROM run_notifications WHERE rowid IN (SELECT rowid FROM run_notifications WHERE run = ?1 LIMIT ?2)"),
    (32, "DELETE FROM run_scopes WHERE rowid IN (SELECT rowid FROM run_scopes WHERE run = ?1 LIMIT ?2)"),
    (
        8,
        "DELETE FROM run_graph_checkpoints
          WHERE run = ?1 AND steps IN (SELECT steps FROM run_graph_checkpoints WHERE run = ?1 LIMIT ?2)",
    ),
    (
        256,
        "DELETE FROM run_transitions WHERE run = ?1 AND (from_node, to_node) IN (
           SELECT from_node, to_node FROM run_transitions WHERE run = ?1 LIMIT ?2)",
    ),
    (256, "DELETE FROM run_nodes WHERE run = ?1 AND node IN (SELECT node FROM run_nodes WHERE run = ?1 LIMIT ?2)"),
    (
        256,
        "DELETE FROM run_steps WHERE run = ?1 AND step_index IN (SELECT step_index FROM run_steps WHERE run = ?1 LIMIT ?2)",
    ),
    (32, "DELETE FROM effects WHERE id IN (SELECT id FROM effects WHERE resource = ?1 LIMIT ?2)"),
    (64, "DELETE FROM node_attempts WHERE id IN (SELECT id FROM node_attempts WHERE run = ?1 LIMIT ?2)"),
    (256, "DELETE FROM events WHERE resource = ?1 AND seq IN (SELECT seq FROM events WHERE resource = ?1 LIMIT ?2)"),
    (32, "DELETE FROM runner_messages WHERE run = ?1 AND slot IN (SELECT slot FROM runner_messages WHERE run = ?1 LIMIT ?2)"),
    (
        64,
        "DELETE FROM run_processes WHERE (pid, start_identity) IN (
           SELECT pid, start_identity FROM run_processes WHERE run = ?1 LIMIT ?2)",
    ),
    (64, "DELETE FROM run_runners WHERE id IN (SELECT id FROM run_runners WHERE run = ?1 LIMIT ?2)"),
    (
        64,
        "DELETE FROM run_sources WHERE run = ?1 AND ordinal IN (SELECT ordinal FROM run_sources WHERE run = ?1 LIMIT ?2)",
    ),
    (8, "DELETE FROM run_values WHERE rowid IN (SELECT rowid FROM run_values WHERE run = ?1 LIMIT ?2)"),
    (1, "DELETE FROM run_queue WHERE run = ?1 AND ?2 > 0"),
    (1, "DELETE FROM run_bindings WHERE run = ?1 AND ?2 > 0"),
    (1, "DELETE FROM leases WHERE resource = ?1 AND ?2 > 0"),
];

/// Every column that names content.
pub(crate) const NAMES_OF_BLOBS: &[(&str, &str)] = &[
    ("run_values", "blob"),
    ("node_attempts", "output_blob"),
    ("node_attempts", "prompt_blob"),
    ("node_attempts", "result_blob"),
    ("run_scopes", "input_blob"),
    ("run_scopes", "output_blob"),
    ("run_view_content", "blob"),
    ("workflow_definitions", "snapshot_blob"),
    ("effects", "result_blob"),
    ("continuations", "answer_blob"),
    ("workflow_follow_ups", "content_blob"),
    ("session_entries", "content_blob"),
    ("session_events", "args_blob"),
    ("viewer_session_checkpoints", "state_blob"),
    ("interactive_requests", "contract_blob"),
    ("interactive_submissions", "payload_blob"),
    ("interactive_submissions", "output_blob"),
    ("human_decisions", "subject_blob"),
    ("workflow_messages", "content_blob"),
    ("managed_resources", "spec_blob"),
    ("managed_resources", "status_blob"),
];

/// Condition on a row `b` of `blobs`: nothing names it.
fn unnamed() -> String {
    let names: Vec<String> = NAMES_OF_BLOBS
        .iter()
        .map(|(table, column)| format!("NOT EXISTS (SELECT 1 FROM {table} n WHERE n.{column} = b.id)"))
        .collect();
    names.join(" AND ")
}

/// What one transaction of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purged {
    /// Work waits; nothing was done.
    Busy,
    /// These many rows went; there may be more.
    Some(usize),
    /// Nothing is left to do.
    Done,
}

impl State {
    /// Deletes rows of runs that were removed from sight.
    ///
    /// # Errors
    /// When the write fails: then nothing of this transaction went.
    pub async fn purge_rows(&self) -> Result<Purged, StateError> {
        self.yielding("purge_rows", purge_rows).await
    }

    /// Deletes one definition that no run uses.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn purge_definition(&self) -> Result<Purged, StateError> {
        self.yielding("purge_definition", purge_definition).await
    }

    /// Content that nothing names, by rows after `after`: a page of candidates and where the next page begins. Reads only.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn unnamed_content(&self, after: i64) -> Result<(Vec<i64>, Option<i64>), StateError> {
        let before = self.clock().wall_ms() - KEEP_UNNAMED_MS;
        self.read(move |db| unnamed_content(db, after, before)).await
    }

    /// Takes content that still nothing names out of use: it is found no more. [`Purged::Done`]: it stays.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn retire_content(&self, blob: i64) -> Result<Purged, StateError> {
        self.yielding("retire_content", move |tx| {
            let sql = format!(
                "UPDATE blobs AS b SET complete = 0 WHERE b.id = ?1 AND b.complete = 1 AND b.created_at < ?2 AND {}",
                unnamed()
            );
            let changed = tx.db.prepare_cached(&sql)?.execute((blob, tx.now - KEEP_UNNAMED_MS))?;
            Ok(if changed == 1 { Purged::Some(1) } else { Purged::Done })
        })
        .await
    }

    /// Deletes some bytes of retired content, and its row with the last of them. It does so whatever waits: nothing else would
    /// find the rest before the next start.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn purge_content(&self, blob: i64) -> Result<Purged, StateError> {
        self.write("purge_content", Authority::Server, move |tx| {
            let chunks = tx
                .db
                .prepare_cached(
                    "DELETE FROM blob_chunks WHERE rowid IN (SELECT rowid FROM blob_chunks WHERE blob = ?1 LIMIT ?2)",
                )?
                .execute((blob, CHUNKS))?;
            if chunks == CHUNKS {
                return Ok(Purged::Some(chunks));
            }
            tx.db
                .prepare_cached("DELETE FROM blobs WHERE id = ?1 AND complete = 0")?
                .execute([blob])?;
            Ok(Purged::Done)
        })
        .await
    }

    /// Runs a piece of maintenance in a transaction of its own, unless work waits.
    pub(crate) async fn yielding<F>(&self, name: &'static str, work: F) -> Result<Purged, StateError>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<Purged, StateError> + Send + 'static,
    {
        self.write(name, Authority::Server, move |tx| {
            if counts::claimable(tx.db)? {
                return Ok(Purged::Busy);
            }
            work(tx)
        })
        .await
    }
}

fn purge_rows(tx: &mut Tx<'_>) -> Result<Purged, StateError> {
    let begun = Instant::now();
    let mut rows = 0;
    // Most tables hold nothing of most runs, and some nothing at all.
    let mut steps = Vec::with_capacity(STEPS.len());
    for step in STEPS {
        let any = format!("SELECT 1 FROM {} LIMIT 1", table(step.1));
        if tx.db.prepare_cached(&any)?.exists([])? {
            steps.push(step);
        }
    }
    // Later runs name earlier ones, never the other way round, except for the continuation that a run names.
    while let Some(run) = newest_deleted(tx.db)? {
        for (batch, sql) in &steps {
            let mut statement = tx.db.prepare_cached(sql)?;
            loop {
                let deleted = statement.execute((run, batch))?;
                rows += deleted;
                if deleted > 0 && (rows >= ROWS || begun.elapsed() >= TIME) {
                    return Ok(Purged::Some(rows));
                }
                if deleted < *batch {
                    break;
                }
            }
        }
        tx.db
            .prepare_cached("UPDATE runs SET continued_by = NULL WHERE continued_by = ?1")?
            .execute([run])?;
        tx.db.prepare_cached("DELETE FROM runs WHERE id = ?1")?.execute([run])?;
        tx.db
            .prepare_cached("DELETE FROM resources WHERE id = ?1")?
            .execute([run])?;
        rows += 2;
        if rows >= ROWS || begun.elapsed() >= TIME {
            return Ok(Purged::Some(rows));
        }
    }
    Ok(if rows > 0 { Purged::Some(rows) } else { Purged::Done })
}

/// The table that a step deletes from.
fn table(step: &str) -> &str {
    step.split_whitespace().nth(2).unwrap_or_default()
}

fn newest_deleted(db: &Connection) -> Result<Option<RunKey>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM runs INDEXED BY runs_deleted WHERE deleted_at IS NOT NULL ORDER BY id DESC LIMIT 1",
    )?;
    crate::value::maybe(statement.query_row([], |row| row.get(0)))
}

fn purge_definition(tx: &mut Tx<'_>) -> Result<Purged, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT d.id FROM workflow_definitions d WHERE d.created_at < ?1
           AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.definition = d.id) LIMIT 1",
    )?;
    let unused: Option<i64> = crate::value::maybe(statement.query_row([tx.now - KEEP_UNNAMED_MS], |row| row.get(0)))?;
    let Some(definition) = unused else {
        return Ok(Purged::Done);
    };
    tx.db
        .prepare_cached("DELETE FROM workflow_definitions WHERE id = ?1")?
        .execute([definition])?;
    tx.cache.forget_graph(definition);
    Ok(Purged::Some(1))
}

fn unnamed_content(db: &Connection, after: i64, before: i64) -> Result<(Vec<i64>, Option<i64>), StateError> {
    let sql = format!(
        "SELECT b.id, b.complete = 1 AND b.created_at < ?2 AND {} FROM blobs b WHERE b.id > ?1 ORDER BY b.id LIMIT ?3",
        unnamed()
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows: Vec<(i64, bool)> = statement
        .query_map((after, before, PAGE), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let next = rows.last().filter(|_| rows.len() == PAGE).map(|(blob, _)| *blob);
    let found = rows
        .into_iter()
        .filter_map(|(blob, unnamed)| unnamed.then_some(blob))
        .collect();
    Ok((found, next))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::schema::DDL;

    fn foreign_keys(db: &Connection, parent: &str) -> BTreeSet<(String, String)> {
        let mut statement = db
            .prepare(
                "SELECT t.name, f.\"from\" FROM pragma_table_list t, pragma_foreign_key_list(t.name) f
                  WHERE t.schema = 'main' AND f.\"table\" = ?1",
            )
            .expect("a query");
        let rows = statement
            .query_map([parent], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("rows");
        rows.map(|row| row.expect("a row")).collect()
    }

    fn empty() -> Connection {
        let db = Connection::open_in_memory().expect("memory database");
        db.execute_batch(DDL).expect("the DDL is valid");
        db
    }

    #[test]
    fn every_column_that_names_content_is_known() {
        let known: BTreeSet<_> = NAMES_OF_BLOBS
            .iter()
            .map(|(table, column)| ((*table).to_owned(), (*column).to_owned()))
            .collect();
        let mut declared = foreign_keys(&empty(), "blobs");
        declared.remove(&("blob_chunks".to_owned(), "blob".to_owned()));
        assert_eq!(known, declared);
    }

    #[test]
    fn every_table_that_belongs_to_a_run_is_purged() {
        let db = empty();
        let mut tables: BTreeSet<String> = BTreeSet::new();
        let mut open = vec!["runs".to_owned()];
        while let Some(parent) = open.pop() {
            for (table, _) in foreign_keys(&db, &parent) {
                if table != "runs" && tables.insert(table.clone()) {
                    open.push(table);
                }
            }
        }
        tables.extend(["events", "leases", "effects", "run_queue"].map(str::to_owned));
        let cascades = ["attempt_active_intervals", "effect_attempts"];
        // Ownership by a resource keeps the tree.
        tables.remove("managed_resource_workflows");
        for table in tables.iter().filter(|table| !cascades.contains(&table.as_str())) {
            let is_purged = STEPS.iter().any(|(_, sql)| super::table(sql) == table);
            assert!(is_purged, "{table} is not purged");
        }
    }

    #[test]
    fn every_foreign_key_is_found_by_an_index() {
        // Deleting a row looks for rows that name it: without an index that reads the whole table.
        let db = empty();
        let mut without = Vec::new();
        let mut statement = db
            .prepare(
                "SELECT t.name, f.\"from\" FROM pragma_table_list t, pragma_foreign_key_list(t.name) f
                  WHERE t.schema = 'main' AND f.\"table\" NOT IN ('projects')",
            )
            .expect("a query");
        let keys = statement
            .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .expect("rows");
        for key in keys {
            let (table, column) = key.expect("a row");
            let plan: String = db
                .query_row(
                    &format!("EXPLAIN QUERY PLAN SELECT 1 FROM {table} WHERE {column} = 1"),
                    [],
                    |row| row.get(3),
                )
                .expect("a plan");
            if !plan.starts_with("SEARCH") && table != "workflow_server_state" {
                without.push(format!("{table}.{column}: {plan}"));
            }
        }
        assert_eq!(without, Vec::<String>::new());
    }
}
