//! `run.restart`: a new run from the original input, with lineage.

use piw_engine::lifecycle::{self, Refusal};
use piw_protocol::canonical;
use piw_protocol::child::ValueRef;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::RunReceipt;
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus, SourceMap};
use serde_json::json;

use super::create::{Draft, Lineage, Place, ResolvedRun, read_sources, session_holder};
use super::{Facts, RunReceipted, expect, refuse};
use crate::cache::Live;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::live::{About, Bump};
use crate::receipts::{CommandIdentity, Decision, error, receipted};
use crate::state::State;
use crate::value::{Stored, maybe};
use crate::writer::{Authority, Tx};

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
    /// Whether it is bound to a session.
    pub bound: bool,
}

/// The facts of a run that restarting it depends on.
struct Before {
    project: i64,
    session_id: Option<String>,
    root: i64,
    restart_count: u32,
    /// The run that it restarted.
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
                "SELECT r.id, s.revision, r.status, p.path, v.json, v.blob,
                   EXISTS (SELECT 1 FROM run_bindings b WHERE b.run = r.id AND b.session_id IS NOT NULL) FROM runs r
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
                    row.get(6)?,
                ))
            }))?;
            let Some((key, revision, status, project_path, input, bound)) = row else {
                return Ok(None);
            };
            Ok(Some(Original {
                revision,
                status: crate::names::run_status(&status)?,
                project_path,
                sources: read_sources(db, key)?,
                input: input.to_ref(db, piw_protocol::child::INLINE_VALUE_LIMIT as u64)?,
                bound,
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
                if let Err(refusal) = check(tx, &live, &before, &draft)? {
                    return Ok(refuse(tx, live, &refusal));
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
                    paused: false,
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
        "SELECT r.project, b.session_id, r.root, r.restart_count, CASE r.parent_kind WHEN 'restart' THEN r.parent END
           FROM runs r LEFT JOIN run_bindings b ON b.run = r.id WHERE r.id = ?1",
    )?;
    Ok(statement.query_row([key], |row| {
        Ok(Before {
            project: row.get(0)?,
            session_id: row.get(1)?,
            root: row.get(2)?,
            restart_count: row.get(3)?,
            parent: row.get(4)?,
        })
    })?)
}

/// The other restarts of a run's tree.
struct Relatives {
    /// Restarts in the whole tree; purged ones count.
    restarts: u32,
    /// A restart of the run that has not ended.
    unfinished: Option<String>,
    /// The newest restart of the run that ended and was not purged.
    newest_ended: Option<RunKey>,
}

impl Relatives {
    fn read(tx: &Tx<'_>, key: RunKey, root: i64) -> Result<Self, StateError> {
        let mut restarts = tx
            .db
            .prepare_cached("SELECT count(*) FROM runs WHERE root = ?1 AND parent_kind = 'restart'")?;
        let mut unfinished = tx.db.prepare_cached(
            "SELECT run_id FROM runs
              WHERE parent = ?1 AND parent_kind = 'restart' AND status IN ('queued', 'running', 'waiting')
              ORDER BY id DESC LIMIT 1",
        )?;
        let mut newest_ended = tx.db.prepare_cached(
            "SELECT id FROM runs
              WHERE parent = ?1 AND parent_kind = 'restart' AND status NOT IN ('queued', 'running', 'waiting')
                AND deleted_at IS NULL
              ORDER BY id DESC LIMIT 1",
        )?;
        Ok(Self {
            restarts: restarts.query_row([root], |row| row.get(0))?,
            unfinished: maybe(unfinished.query_row([key], |row| row.get(0)))?,
            newest_ended: maybe(newest_ended.query_row([key], |row| row.get(0)))?,
        })
    }
}

/// Asks the rules of a restart.
fn check(tx: &Tx<'_>, live: &Live, before: &Before, draft: &Draft) -> Result<Result<(), Refusal>, StateError> {
    let facts = Facts::read(tx, live)?;
    let ending = ending(tx, live.key)?;
    let relatives = Relatives::read(tx, live.key, before.root)?;
    let previous = relatives.newest_ended.or(before.parent);
    let previous = previous.map(|run| self::ending(tx, run)).transpose()?;
    let next_source_digest = source_digest(draft.graph.definition.digest(), &draft.sources);
    let lineage = lifecycle::Lineage {
        restarts: relatives.restarts,
        restarted_as: relatives.unfinished.as_deref(),
        unsettled_effects: u64::from(live.open_effects) + u64::from(live.ambiguous_effects),
        ending: ending.as_engine(),
        previous: previous.as_ref().map(Ended::as_engine),
        next_source_digest: &next_source_digest,
    };
    Ok(lifecycle::check_restart(&facts.as_engine(), &lineage))
}

/// How a run ended, for the repeated-failure protection.
struct Ended {
    failure: Option<String>,
    input_digest: String,
    source_digest: String,
}

impl Ended {
    fn as_engine(&self) -> lifecycle::Ending<'_> {
        lifecycle::Ending {
            failure: self.failure.as_deref(),
            input_digest: &self.input_digest,
            source_digest: &self.source_digest,
        }
    }
}

fn ending(tx: &Tx<'_>, run: RunKey) -> Result<Ended, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT i.hash, d.digest, n.node_id, a.outcome, e.json, e.blob FROM runs r
           JOIN workflow_definitions d ON d.id = r.definition
           JOIN run_values i ON i.run = r.id AND i.kind = 'input'
           LEFT JOIN run_values e ON e.run = r.id AND e.kind = 'error'
           LEFT JOIN node_attempts a ON a.id = r.last_attempt
           LEFT JOIN definition_nodes n ON n.definition = r.definition AND n.node = a.node
          WHERE r.id = ?1",
    )?;
    let (input_digest, definition, node, outcome, error) = statement.query_row([run], |row| {
        Ok((
            row.get(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, Option<String>>(2)?,
            row.get::<_, Option<String>>(3)?,
            Stored::columns(row, 4)?,
        ))
    })?;
    let error: Option<ErrorInfo> = match error.to_ref(tx.db, u64::MAX)? {
        ValueRef::Inline(value) => serde_json::from_value(value)?,
        ValueRef::Content(_) => None,
    };
    let outcome = outcome
        .as_deref()
        .map_or(Ok(NodeOutcome::Failed), crate::names::outcome)?;
    let failure =
        error.map(|error| lifecycle::failure_digest(node.as_deref(), outcome, error.code.as_deref(), &error.message));
    Ok(Ended {
        failure,
        input_digest,
        source_digest: source_digest(&definition, &read_sources(tx.db, run)?),
    })
}

/// Digest of everything a run executes.
fn source_digest(definition: &str, sources: &SourceMap) -> String {
    canonical::digest(&json!([definition, sources]))
}
