//! Every invariant of the stored state as a query. A healthy database violates none; a violation names the run.

use rusqlite::Connection;

use crate::error::StateError;
use crate::state::State;

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

/// Violations of one invariant that are reported at most.
const MAX_REPORTED: usize = 100;

impl State {
    /// Checks the file's integrity, its foreign keys and every domain invariant, in one read transaction.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn verify(&self) -> Result<Vec<Violation>, StateError> {
        self.read(verify).await
    }
}

/// Checks a database; see [`State::verify`].
pub(crate) fn verify(db: &Connection) -> Result<Vec<Violation>, StateError> {
    let mut found = Vec::new();
    integrity(db, &mut found)?;
    for (invariant, query) in INVARIANTS {
        let mut statement = db.prepare(query)?;
        let mut rows = statement.query([])?;
        let mut reported = 0;
        while let Some(row) = rows.next()? {
            if reported == MAX_REPORTED {
                let detail = format!("more than {MAX_REPORTED} violations");
                found.push(Violation {
                    invariant,
                    run_id: None,
                    detail,
                });
                break;
            }
            reported += 1;
            found.push(Violation {
                invariant,
                run_id: row.get(0)?,
                detail: row.get(1)?,
            });
        }
    }
    Ok(found)
}

fn integrity(db: &Connection, found: &mut Vec<Violation>) -> Result<(), StateError> {
    let mut statement = db.prepare("PRAGMA integrity_check(100)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let detail: String = row.get(0)?;
        if detail != "ok" {
            found.push(Violation {
                invariant: "file integrity",
                run_id: None,
                detail,
            });
        }
    }
    let mut statement = db.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        let detail = format!("a row of {table} names a missing row of {parent}");
        found.push(Violation {
            invariant: "foreign keys",
            run_id: None,
            detail,
        });
    }
    Ok(())
}

/// Name and query of each invariant; a query returns run id and detail of each violation.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "run and queue states fit",
        "SELECT r.run_id, r.status || ' with queue ' || coalesce(q.status, 'missing')
           FROM runs r LEFT JOIN run_queue q ON q.run = r.id
          WHERE r.deleted_at IS NULL AND NOT coalesce(CASE r.status
            WHEN 'queued' THEN q.status = 'queued' OR (q.status = 'parked' AND r.paused_at IS NOT NULL)
            WHEN 'running' THEN q.status IN ('starting', 'running', 'parked')
            WHEN 'waiting' THEN q.status = 'parked'
            WHEN 'completed' THEN q.status = 'done'
            WHEN 'cancelled' THEN q.status = 'cancelled'
            ELSE q.status = 'failed' END, 0)",
    ),
    (
        "only ready runs are claimable",
        "SELECT r.run_id, 'claimable while ' || r.status || coalesce(', paused', '') FROM run_queue q JOIN runs r ON r.id = q.run
          WHERE q.claimable = 1 AND (r.status NOT IN ('queued', 'running') OR r.paused_at IS NOT NULL
            OR r.ambiguous_effects > 0 OR r.deleted_at IS NOT NULL)",
    ),
    (
        "queued runs are claimable unless paused",
        "SELECT r.run_id, 'queued and not claimable' FROM run_queue q JOIN runs r ON r.id = q.run
          WHERE r.status = 'queued' AND q.claimable = 0 AND r.paused_at IS NULL",
    ),
    (
        "a claim exists exactly while a runner may execute",
        "SELECT r.run_id, 'queue ' || q.status || CASE WHEN l.owner_id IS NULL THEN ' without a claim' ELSE ' with a claim' END
           FROM runs r JOIN run_queue q ON q.run = r.id LEFT JOIN leases l ON l.resource = r.id
          WHERE (q.status IN ('starting', 'running')) <> (l.owner_id IS NOT NULL)",
    ),
    (
        "a claim belongs to the server's epoch",
        "SELECT r.run_id, 'claim of epoch ' || l.server_epoch FROM leases l JOIN runs r ON r.id = l.resource
           JOIN workflow_server_state s ON s.id = 1
          WHERE l.owner_id IS NOT NULL AND (l.server_epoch IS NULL OR l.server_epoch > s.epoch)",
    ),
    (
        "the server's epoch is its claim's generation",
        "SELECT NULL, 'epoch ' || s.epoch || ', generation ' || l.generation
           FROM workflow_server_state s JOIN leases l ON l.resource = s.resource WHERE s.epoch <> l.generation",
    ),
    (
        "an executing run has an active launch of its generation",
        "SELECT r.run_id, 'queue ' || q.status || ' without an active launch' FROM run_queue q JOIN runs r ON r.id = q.run
           JOIN leases l ON l.resource = r.id
          WHERE q.status IN ('starting', 'running') AND NOT EXISTS (
            SELECT 1 FROM run_runners a WHERE a.run = r.id AND a.generation = l.generation AND a.status <> 'ended')",
    ),
    (
        "the unfinished attempt is the run's current one",
        "SELECT r.run_id, 'current attempt ' || coalesce(r.current_attempt, 'none') || ', open attempt ' || coalesce(a.id, 'none')
           FROM runs r LEFT JOIN node_attempts a ON a.run = r.id AND a.status IN ('active', 'waiting')
          WHERE r.current_attempt IS NOT a.id",
    ),
    (
        "an active attempt has a claim",
        "SELECT r.run_id, 'attempt ' || a.id || ' is active without a claim' FROM node_attempts a JOIN runs r ON r.id = a.run
           LEFT JOIN leases l ON l.resource = r.id WHERE a.status = 'active' AND l.owner_id IS NULL",
    ),
    (
        "ended runs have no open attempt",
        "SELECT r.run_id, 'attempt ' || a.id || ' is ' || a.status FROM node_attempts a JOIN runs r ON r.id = a.run
          WHERE a.status IN ('active', 'waiting') AND r.finished_at IS NOT NULL",
    ),
    (
        "steps are numbered without gaps",
        "SELECT r.run_id, r.step_count || ' steps counted, ' || r.carried_step_count || ' carried, ' || count(s.step_index) || ' stored'
           FROM runs r LEFT JOIN run_steps s ON s.run = r.id WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.step_count <> r.carried_step_count + count(s.step_index)
              OR coalesce(min(s.step_index), r.carried_step_count) <> r.carried_step_count
              OR coalesce(max(s.step_index), r.step_count - 1) <> r.step_count - 1",
    ),
    (
        "a step is a finished attempt of its run",
        "SELECT r.run_id, 'step ' || s.step_index || ' is attempt ' || s.attempt || ', ' || coalesce(a.status, 'missing')
           FROM run_steps s JOIN runs r ON r.id = s.run LEFT JOIN node_attempts a ON a.id = s.attempt
          WHERE a.run IS NOT s.run OR a.status <> 'finished' OR a.node <> s.node",
    ),
    (
        "a finished attempt is one step",
        "SELECT r.run_id, 'attempt ' || a.id || ' is finished and ' || count(s.step_index) || ' steps'
           FROM node_attempts a JOIN runs r ON r.id = a.run
           LEFT JOIN run_steps s ON s.run = a.run AND s.attempt = a.id
          WHERE a.status = 'finished' AND r.deleted_at IS NULL GROUP BY a.id HAVING count(s.step_index) <> 1",
    ),
    (
        "no visit finishes twice",
        "SELECT r.run_id, 'node ' || a.node || ' visit ' || a.visit || ' finished ' || count(*) || ' times'
           FROM node_attempts a JOIN runs r ON r.id = a.run WHERE a.status = 'finished'
          GROUP BY a.run, a.node, a.visit HAVING count(*) > 1",
    ),
    (
        "node aggregates match the attempts",
        "SELECT r.run_id, 'node ' || n.node || ': ' || n.attempts || ' attempts counted' FROM run_nodes n JOIN runs r ON r.id = n.run
          WHERE r.carried_step_count = 0 AND r.deleted_at IS NULL AND (
            n.attempts <> (SELECT count(*) FROM node_attempts a WHERE a.run = n.run AND a.node = n.node)
            OR n.latest_attempt <> (SELECT max(a.id) FROM node_attempts a WHERE a.run = n.run AND a.node = n.node)
            OR n.latest_step IS NOT (SELECT max(s.step_index) FROM run_steps s WHERE s.run = n.run AND s.node = n.node))",
    ),
    (
        "events are numbered without gaps",
        "SELECT r.run_id, r.trace_seq || ' events counted, ' || count(e.seq) || ' stored' FROM runs r
           LEFT JOIN events e ON e.resource = r.id WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.trace_seq <> count(e.seq) OR coalesce(max(e.seq), 0) <> r.trace_seq",
    ),
    (
        "open effects belong to runs that can settle them",
        "SELECT r.run_id, 'effect ' || e.id || ' is ' || e.status FROM effects e JOIN runs r ON r.id = e.resource
          WHERE e.status IN ('pending', 'applying') AND r.finished_at IS NOT NULL",
    ),
    (
        "ambiguous effects are counted",
        "SELECT r.run_id, r.ambiguous_effects || ' ambiguous effects counted, ' || count(e.id) || ' stored' FROM runs r
           LEFT JOIN effects e ON e.resource = r.id AND e.status = 'ambiguous' WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.ambiguous_effects <> count(e.id)",
    ),
    (
        "an effect has as many tries as it counts",
        "SELECT r.run_id, 'effect ' || e.id || ' counts ' || e.attempts || ' tries, ' || count(t.number) || ' stored'
           FROM effects e LEFT JOIN runs r ON r.id = e.resource LEFT JOIN effect_attempts t ON t.effect = e.id
          GROUP BY e.id HAVING e.attempts <> count(t.number)",
    ),
    (
        "only an applying effect has an open try",
        "SELECT r.run_id, 'effect ' || e.id || ' is ' || e.status || ' with an open try' FROM effect_attempts t
           JOIN effects e ON e.id = t.effect LEFT JOIN runs r ON r.id = e.resource
          WHERE t.status = 'applying' AND e.status <> 'applying'",
    ),
    (
        "a continuation follows its settled parent",
        "SELECT r.run_id, 'continuation ' || c.child FROM continuations c JOIN runs r ON r.id = c.parent
           JOIN runs k ON k.id = c.child
          WHERE r.status <> 'completed' OR r.continued_by IS NOT c.child OR k.parent IS NOT r.id
             OR k.carried_step_count <> r.step_count OR k.definition <> r.definition",
    ),
    (
        "a continued run names its continuation",
        "SELECT r.run_id, 'continued by ' || r.continued_by FROM runs r
          WHERE r.continued_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM continuations c WHERE c.parent = r.id)",
    ),
    (
        "a reservation is held by an unfinished run",
        "SELECT r.run_id, 'reservation of an ended run' FROM run_bindings b JOIN runs r ON r.id = b.run
          WHERE b.reserved = 1 AND r.finished_at IS NOT NULL",
    ),
    (
        "restarts stay within their limit",
        "SELECT r.run_id, 'restart count ' || r.restart_count FROM runs r JOIN runs p ON p.id = r.parent
          WHERE r.parent_kind = 'restart' AND r.restart_count <> p.restart_count + 1",
    ),
    (
        "every run has its frozen facts",
        "SELECT r.run_id, 'input, root source or binding is missing' FROM runs r
          WHERE r.deleted_at IS NULL AND (
            NOT EXISTS (SELECT 1 FROM run_values v WHERE v.run = r.id AND v.kind = 'input')
            OR NOT EXISTS (SELECT 1 FROM run_sources s WHERE s.run = r.id AND s.role = 'root')
            OR NOT EXISTS (SELECT 1 FROM run_bindings b WHERE b.run = r.id))",
    ),
    (
        "content is whole",
        "SELECT NULL, 'blob ' || b.id || ' has ' || coalesce(sum(length(c.data)), 0) || ' of ' || b.bytes || ' bytes'
           FROM blobs b LEFT JOIN blob_chunks c ON c.blob = b.id WHERE b.complete = 1 GROUP BY b.id
          HAVING coalesce(sum(length(c.data)), 0) <> b.bytes",
    ),
    (
        "open requests belong to waiting runs",
        "SELECT r.run_id, 'request ' || q.id || ' is pending' FROM interactive_requests q JOIN runs r ON r.id = q.run
          WHERE q.status = 'pending' AND r.status <> 'waiting'",
    ),
    (
        "open turns belong to unfinished runs or their last message",
        "SELECT r.run_id, 'turn ' || t.id || ' is open' FROM workflow_turns t JOIN runs r ON r.id = t.run
           JOIN workflow_messages m ON m.id = t.message
          WHERE t.status = 'open' AND m.kind = 'step' AND r.finished_at IS NOT NULL",
    ),
];
