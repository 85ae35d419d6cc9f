//! `run.restart`: a new run from the original input, with lineage.

use piw_protocol::child::ValueRef;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::RunReceipt;
use piw_protocol::run::{RunStatus, SourceMap};

use super::create::{Draft, Lineage, Place, ResolvedRun, read_sources, session_holder};
use super::{RunReceipted, expect, refuse};
use crate::cache::Live;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::live::{About, Bump};
use crate::receipts::{CommandIdentity, Decision, error, receipted};
use crate::state::State;
use crate::value::{Stored, maybe};
use crate::writer::{Authority, Tx};

/// Most restarts in a line (state.md).
const MAX_RESTARTS: u32 = 3;

/// What is needed to resolve a run's workflow again.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    /// Execution revision of the run.
    pub revision: u64,
    /// Its status.
    pub status: RunStatus,
    /// Canonical absolute project directory.
    pub project_path: String,
    /// Its frozen sources; the root says what to load.
    pub sources: SourceMap,
    /// Its original input, already normalised.
    pub input: ValueRef,
}

/// The facts of a run that restarting it depends on.
struct Before {
    project: i64,
    session_id: Option<String>,
    root: i64,
    restart_count: u32,
    definition_digest: String,
    error_hash: Option<String>,
    parent: Option<RunKey>,
}

impl State {
    /// Reads what is needed to restart a run. `None`: no such run.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn original(&self, run_id: String) -> Result<Option<Original>, StateError> {
        self.read(move |db| {
            let mut statement = db.prepare_cached(
                "SELECT r.id, s.revision, r.status, p.path, v.json, v.blob FROM runs r
                   JOIN resources s ON s.id = r.id JOIN projects p ON p.id = r.project
                   JOIN run_values v ON v.run = r.id AND v.kind = 'input'
                  WHERE r.run_id = ?1 AND r.deleted_at IS NULL",
            )?;
            let row = maybe(statement.query_row([run_id], |row| {
                Ok((
                    row.get::<_, RunKey>(0)?,
                    row.get(1)?,
                    row.get::<_, String>(2)?,
                    row.get(3)?,
                    Stored::columns(row, 4)?,
                ))
            }))?;
            let Some((key, revision, status, project_path, input)) = row else {
                return Ok(None);
            };
            Ok(Some(Original {
                revision,
                status: crate::names::run_status(&status)?,
                project_path,
                sources: read_sources(db, key)?,
                input: input.to_ref(db, piw_protocol::child::INLINE_VALUE_LIMIT as u64)?,
            }))
        })
        .await
    }

    /// Starts a new run from the original input of an ended one, as resolved now.
    ///
    /// # Errors
    /// As [`State::start_run`].
    pub async fn restart_run(
        &self,
        identity: CommandIdentity,
        run_id: String,
        expected_revision: Option<u64>,
        resolved: ResolvedRun,
    ) -> Result<RunReceipted, StateError> {
        let draft = Draft::new(resolved)?;
        self.write("restart_run", Authority::Server, move |tx| {
            receipted(tx, &identity, |tx| {
                let mut live = match expect(tx, &run_id, expected_revision)? {
                    Ok(live) => live,
                    Err(refused) => return Ok(refused),
                };
                let before = before(tx, live.key)?;
                if let Some((reason, text)) = not_restartable(tx, &live, &before, &draft)? {
                    return Ok(refuse(tx, live, reason, text));
                }
                if let Some(holder) = session_holder(tx, before.session_id.as_deref())? {
                    let message = format!("the session is held by run {holder} until it ends");
                    let error = error("session_busy", message);
                    return Ok(Decision::Refuse {
                        run: Some(live.key),
                        outcome: Outcome::Rejected,
                        error,
                    });
                }
                let place = Place {
                    project: before.project,
                    session_id: before.session_id.as_deref(),
                };
                let lineage = Lineage {
                    parent: Some((live.key, "restart")),
                    root: Some(before.root),
                    restart_count: before.restart_count + 1,
                    action: "restart",
                };
                let (_, new_run_id) = draft.insert(tx, &place, &lineage)?;
                let (key, status) = (live.key, live.status);
                live.event(tx, "command", "run.restarted", About::default())?;
                let revision = live.save(tx, Bump::Execution)?;
                let receipt = RunReceipt {
                    run_id,
                    status,
                    run_revision: revision,
                    new_run_id: Some(new_run_id),
                    message: None,
                };
                Ok(Decision::Accept {
                    run: Some(key),
                    revision: Some(revision),
                    receipt,
                })
            })
        })
        .await
    }
}

fn before(tx: &Tx<'_>, key: RunKey) -> Result<Before, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT r.project, b.session_id, r.root, r.restart_count, d.digest, e.hash,
           CASE r.parent_kind WHEN 'restart' THEN r.parent END
           FROM runs r JOIN workflow_definitions d ON d.id = r.definition
           LEFT JOIN run_bindings b ON b.run = r.id
           LEFT JOIN run_values e ON e.run = r.id AND e.kind = 'error' WHERE r.id = ?1",
    )?;
    Ok(statement.query_row([key], |row| {
        Ok(Before {
            project: row.get(0)?,
            session_id: row.get(1)?,
            root: row.get(2)?,
            restart_count: row.get(3)?,
            definition_digest: row.get(4)?,
            error_hash: row.get(5)?,
            parent: row.get(6)?,
        })
    })?)
}

fn not_restartable(
    tx: &Tx<'_>,
    live: &Live,
    before: &Before,
    draft: &Draft,
) -> Result<Option<(&'static str, String)>, StateError> {
    let run_id = &live.run_id;
    if !live.status.is_terminal() {
        return Ok(Some((
            "run_not_ended",
            format!("run {run_id} has not ended; cancel it first"),
        )));
    }
    if live.open_effects > 0 || live.ambiguous_effects > 0 {
        return Ok(Some((
            "effect_unsettled",
            format!("run {run_id} has a side effect of unknown outcome; resolve it first"),
        )));
    }
    if before.restart_count >= MAX_RESTARTS {
        let text = format!("run {run_id} is the last of {MAX_RESTARTS} restarts; start a new run instead");
        return Ok(Some(("restart_limit", text)));
    }
    if repeats_failure(tx, live, before, draft)? {
        let text = format!(
            "run {run_id} failed exactly as the run it restarted, and neither its input nor its source changed"
        );
        return Ok(Some(("repeated_failure", text)));
    }
    Ok(None)
}

/// Whether a run and the one it restarted failed the same way, and the new one would do nothing else.
fn repeats_failure(tx: &Tx<'_>, live: &Live, before: &Before, draft: &Draft) -> Result<bool, StateError> {
    let (Some(parent), Some(error)) = (before.parent, &before.error_hash) else {
        return Ok(false);
    };
    if live.status == RunStatus::Cancelled || draft.graph.definition.digest() != before.definition_digest {
        return Ok(false);
    }
    let previous = self::before(tx, parent)?;
    let same_failure =
        previous.error_hash.as_ref() == Some(error) && previous.definition_digest == before.definition_digest;
    Ok(
        same_failure
            && read_sources(tx.db, live.key)? == draft.sources
            && read_sources(tx.db, parent)? == draft.sources,
    )
}
