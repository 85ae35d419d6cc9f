//! Which trees of runs may go, and their removal from sight (state.md, "Retention and maintenance").
//!
//! A tree is a root run with all its continuations and restarts. It may go when every run of it ended before a given time and
//! nothing protects any of them; whatever is not known to be over keeps the whole tree. The sweep and `state.prune` ask the
//! same question. A tree disappears in one transaction; its rows are purged afterwards ([`crate::purge`]).

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rusqlite::{Connection, named_params};

use crate::error::StateError;
use crate::ids::RunKey;
use crate::state::State;
use crate::writer::{Authority, Tx};

/// How long a tree is kept after its last run ended.
pub const KEEP_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// Roots that one page of the selection looks at.
const PAGE: usize = 256;
/// Runs after which a transaction marks no further tree.
const RUNS_AT_ONCE: u64 = 64;

/// Why a tree stays, and the condition on a run `r` of it. The first that holds is the reason that is reported.
const PROTECTED: &[(&str, &str)] = &[
    (
        "not ended",
        "r.finished_at IS NULL OR r.status NOT IN ('completed', 'failed', 'timed_out', 'cancelled')",
    ),
    ("ended later", "r.finished_at >= :before"),
    (
        "queued or parked work",
        "NOT EXISTS (SELECT 1 FROM run_queue q WHERE q.run = r.id AND q.claimable = 0
           AND q.status IN ('done', 'failed', 'cancelled'))",
    ),
    (
        "resumable checkpoint",
        "r.waiting_attempt IS NOT NULL OR r.current_attempt IS NOT NULL
           OR EXISTS (SELECT 1 FROM node_attempts a WHERE a.run = r.id AND a.status IN ('active', 'waiting'))",
    ),
    (
        "live claim",
        "EXISTS (SELECT 1 FROM leases l WHERE l.resource = r.id AND l.owner_id IS NOT NULL)",
    ),
    (
        "active runner",
        "EXISTS (SELECT 1 FROM run_runners a WHERE a.run = r.id AND a.status <> 'ended')
           OR EXISTS (SELECT 1 FROM run_processes p WHERE p.run = r.id)
           OR EXISTS (SELECT 1 FROM runner_messages m WHERE m.run = r.id)",
    ),
    (
        "unsettled effect",
        "r.ambiguous_effects > 0
           OR EXISTS (SELECT 1 FROM effects e INDEXED BY effects_unsettled
               WHERE e.resource = r.id AND e.status IN ('pending', 'applying', 'ambiguous'))
           OR EXISTS (SELECT 1 FROM effect_attempts t INDEXED BY effect_attempts_applying JOIN effects e ON e.id = t.effect
               WHERE t.status = 'applying' AND e.resource = r.id)",
    ),
    (
        "pending request",
        "EXISTS (SELECT 1 FROM interactive_requests q WHERE q.run = r.id AND q.status = 'pending')
           OR EXISTS (SELECT 1 FROM interactive_submissions s INDEXED BY interactive_submissions_validating
               JOIN interactive_requests q ON q.id = s.request WHERE s.outcome = 'validating' AND q.run = r.id)",
    ),
    (
        "pending decision",
        "EXISTS (SELECT 1 FROM human_decisions d WHERE d.run = r.id AND d.status = 'pending')
           OR EXISTS (SELECT 1 FROM human_decisions d JOIN channel_messages c ON c.decision = d.id
               WHERE d.run = r.id AND c.status IN ('pending', 'delivered'))",
    ),
    (
        "pending message",
        "EXISTS (SELECT 1 FROM workflow_messages m WHERE m.run = r.id AND m.state = 'pending')",
    ),
    (
        "open turn",
        "EXISTS (SELECT 1 FROM workflow_turns t WHERE t.run = r.id AND t.status = 'open')",
    ),
    (
        "queued follow-up",
        "EXISTS (SELECT 1 FROM workflow_follow_ups f WHERE f.run = r.id AND f.status IN ('queued', 'eligible'))",
    ),
    (
        "session reservation",
        "NOT EXISTS (SELECT 1 FROM run_bindings b WHERE b.run = r.id AND b.reserved = 0)",
    ),
    (
        "undelivered result",
        "r.continued_by IS NULL
           AND EXISTS (SELECT 1 FROM run_bindings b WHERE b.run = r.id AND b.execution_mode <> 'headless')
           AND NOT EXISTS (SELECT 1 FROM workflow_messages m
               WHERE m.run = r.id AND m.kind = 'terminal' AND m.state IN ('sent', 'cancelled'))",
    ),
    (
        "recording",
        "EXISTS (SELECT 1 FROM session_segments s WHERE s.run = r.id AND s.status = 'recording')",
    ),
    (
        "managed resource",
        "EXISTS (SELECT 1 FROM managed_resource_workflows w WHERE w.run = r.id)",
    ),
    (
        "outside reference",
        "EXISTS (SELECT 1 FROM runs o WHERE o.parent = r.id AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM runs o WHERE o.continued_by = r.id AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM runs o WHERE o.id IN (r.parent, r.continued_by) AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM continuations c JOIN runs o ON o.id = c.child WHERE c.parent = r.id AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM continuations c JOIN runs o ON o.id = c.parent WHERE c.child = r.id AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM interactive_requests q JOIN workflow_messages m ON m.request = q.id
               JOIN runs o ON o.id = m.run WHERE q.run = r.id AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM workflow_messages m JOIN workflow_turns t ON t.message = m.id
               JOIN runs o ON o.id = t.run WHERE m.run = r.id AND o.root <> r.root)
           OR EXISTS (SELECT 1 FROM session_entries e JOIN attempt_entries x ON x.entry = e.id
               JOIN node_attempts a ON a.id = x.attempt JOIN runs o ON o.id = a.run
              WHERE e.run = r.id AND o.root <> r.root)",
    ),
];
/// What keeps a tree whose root is not there, is no root, or is being purged already.
const UNKNOWN: &str = "unknown state";

/// One row about a tree: its runs, whether its root leads it, what protects it, when it ended, and its own steps.
static TREE: LazyLock<String> = LazyLock::new(|| {
    let cases: Vec<String> = PROTECTED
        .iter()
        .enumerate()
        .map(|(number, (_, condition))| format!("WHEN {condition} THEN {number}"))
        .collect();
    format!(
        "SELECT count(*), sum(t.id = :root), sum(t.deleted_at IS NOT NULL), min(t.why), max(t.finished_at), sum(t.steps),
                sum(t.parent IS NULL)
           FROM (SELECT r.id, r.deleted_at, r.finished_at, r.parent, r.step_count - r.carried_step_count AS steps,
                   CASE {} END AS why FROM runs r WHERE r.root = :root) t",
        cases.join("\n ")
    )
});

/// A tree that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Its root.
    pub root: RunKey,
    /// The root's public id.
    pub run_id: String,
    /// Its runs.
    pub runs: u64,
    /// Steps that they executed.
    pub steps: u64,
    /// When its last run ended, wall-clock milliseconds.
    pub finished_at: i64,
}

/// A page of the selection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Trees that may go, by age of their root.
    pub trees: Vec<Tree>,
    /// Trees whose root ended before the time and that stay, counted by what protects them.
    pub kept: BTreeMap<&'static str, u64>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<RunKey>,
}

/// Trees that a transaction removed from sight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marked {
    /// Trees.
    pub trees: u64,
    /// Runs of them.
    pub runs: u64,
    /// How many of the given roots were looked at; the rest is for another transaction.
    pub looked_at: usize,
}

impl State {
    /// A page of the trees that ended before `before` (wall-clock milliseconds), by roots after `after`. Reads only.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn select_trees(&self, before: i64, after: Option<RunKey>) -> Result<Selection, StateError> {
        self.read(move |db| select(db, before, after)).await
    }

    /// Removes trees from sight: of the given roots, those that still may go. Ends early after some runs, so that no
    /// transaction is long; a tree is never split.
    ///
    /// # Errors
    /// When the write fails: then none of them is marked.
    pub async fn mark_trees(&self, before: i64, roots: Vec<RunKey>) -> Result<Marked, StateError> {
        self.write("mark_trees", Authority::Server, move |tx| mark(tx, before, &roots))
            .await
    }
}

fn select(db: &Connection, before: i64, after: Option<RunKey>) -> Result<Selection, StateError> {
    let mut roots = db.prepare_cached(
        "SELECT id, run_id FROM runs WHERE id > ?1 AND id = root AND finished_at < ?2 AND deleted_at IS NULL ORDER BY id LIMIT ?3",
    )?;
    let rows = roots.query_map((after.map_or(0, |run| run.0), before, PAGE), |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let found: Vec<(RunKey, String)> = rows.collect::<Result<_, _>>()?;
    let mut page = Selection {
        next: found.last().filter(|_| found.len() == PAGE).map(|(run, _)| *run),
        ..Selection::default()
    };
    for (root, run_id) in found {
        match look(db, before, root)? {
            Ok(facts) => page.trees.push(Tree {
                root,
                run_id,
                runs: facts.runs,
                steps: facts.steps,
                finished_at: facts.finished_at,
            }),
            Err(why) => *page.kept.entry(why).or_default() += 1,
        }
    }
    Ok(page)
}

struct Facts {
    runs: u64,
    steps: u64,
    finished_at: i64,
}

/// Whether a tree may go, or what keeps it.
fn look(db: &Connection, before: i64, root: RunKey) -> Result<Result<Facts, &'static str>, StateError> {
    let mut statement = db.prepare_cached(&TREE)?;
    Ok(
        statement.query_row(named_params! { ":root": root, ":before": before }, |row| {
            let (runs, of_root, deleted): (u64, Option<u64>, Option<u64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (why, finished_at): (Option<usize>, Option<i64>) = (row.get(3)?, row.get(4)?);
            let (steps, first): (Option<i64>, Option<u64>) = (row.get(5)?, row.get(6)?);
            if let Some(why) = why {
                return Ok(Err(PROTECTED.get(why).map_or(UNKNOWN, |(reason, _)| reason)));
            }
            let whole = of_root == Some(1) && deleted == Some(0) && first == Some(1);
            Ok(match finished_at.filter(|_| whole) {
                Some(finished_at) => Ok(Facts {
                    runs,
                    steps: steps.and_then(|steps| u64::try_from(steps).ok()).unwrap_or(0),
                    finished_at,
                }),
                None => Err(UNKNOWN),
            })
        })?,
    )
}

fn mark(tx: &mut Tx<'_>, before: i64, roots: &[RunKey]) -> Result<Marked, StateError> {
    let mut marked = Marked::default();
    for root in roots {
        if marked.runs >= RUNS_AT_ONCE {
            break;
        }
        marked.looked_at += 1;
        // What was selected may have changed since: the same question, now inside the transaction.
        if look(tx.db, before, *root)?.is_err() {
            continue;
        }
        let mut statement = tx
            .db
            .prepare_cached("UPDATE runs SET deleted_at = ?2 WHERE root = ?1 RETURNING id, run_id")?;
        let runs: Vec<(RunKey, String)> = statement
            .query_map((root, tx.now), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        marked.trees += 1;
        marked.runs += runs.len() as u64;
        for (key, run_id) in runs {
            tx.changes.run(key, &Arc::from(run_id), true);
        }
    }
    Ok(marked)
}

/// Every reason for which a tree is kept although its root ended.
pub fn protections() -> impl Iterator<Item = &'static str> {
    PROTECTED.iter().map(|(reason, _)| *reason)
}
