//! Admission: the scheduler claims one run after the other, in the order in which they became ready.

use std::sync::Arc;

use piw_protocol::canonical;
use piw_protocol::child::{CHILD_PROTOCOL_VERSION, LAUNCH_SCHEMA, RunnerLaunch};
use piw_protocol::run::RunStatus;
use rusqlite::named_params;
use uuid::Uuid;

use crate::active;
use crate::cache::Live;
use crate::command::read_sources;
use crate::error::{ClaimLost, StateError};
use crate::ids::RunKey;
use crate::lease::{self, Token};
use crate::live::{About, Bump};
use crate::state::State;
use crate::value::maybe;
use crate::writer::{Authority, Tx};

/// The right to execute one generation of one run. Whoever holds it is fenced by generation and token.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The run.
    pub run: RunKey,
    /// Its public id.
    pub run_id: Arc<str>,
    /// Generation of the claim.
    pub generation: u64,
    /// Launch that the claim was taken for.
    pub runner_epoch: Arc<str>,
    /// Secret of the claim.
    pub token: Token,
}

/// A claimed run and how to launch its runner.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The claim.
    pub claim: Claim,
    /// First message to the runner.
    pub launch: RunnerLaunch,
}

/// Renewal of one claim.
pub type Renewed = Result<(), ClaimLost>;

impl State {
    /// Claims the next ready run for a new runner, in one transaction with the record of the launch. `None`: nothing is ready.
    /// A run whose last runner or registered processes are not yet known to be gone is passed over.
    ///
    /// # Errors
    /// When the write fails or this server is fenced.
    pub async fn claim_next(&self, global_dir: Option<String>) -> Result<Option<Claimed>, StateError> {
        self.write("claim_next", Authority::Server, move |tx| claim_next(tx, global_dir))
            .await
    }

    /// Renews claims and samples the active time of their attempts; a timer calls this. Correctness never depends on it.
    ///
    /// # Errors
    /// When the write fails or this server is fenced.
    pub async fn renew_claims(&self, claims: Vec<Claim>) -> Result<Vec<(RunKey, Renewed)>, StateError> {
        self.write("renew_claims", Authority::Server, move |tx| {
            let mut renewed = Vec::with_capacity(claims.len());
            for claim in &claims {
                let result = renew(tx, claim)?;
                if result.is_ok() {
                    active::sample(tx, claim.run)?;
                }
                renewed.push((claim.run, result));
            }
            Ok(renewed)
        })
        .await
    }
}

fn claim_next(tx: &mut Tx<'_>, global_dir: Option<String>) -> Result<Option<Claimed>, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT q.run FROM run_queue q
          WHERE q.claimable = 1
            AND NOT EXISTS (SELECT 1 FROM run_runners a WHERE a.run = q.run AND a.status <> 'ended')
            AND NOT EXISTS (SELECT 1 FROM run_processes p WHERE p.run = q.run)
          ORDER BY q.ready_seq LIMIT 1",
    )?;
    let Some(key) = maybe(statement.query_row([], |row| row.get::<_, RunKey>(0)))? else {
        return Ok(None);
    };
    drop(statement);
    let mut live = tx.cache.take(tx.db, key)?;
    let token = Token::random()?;
    let (server_id, epoch) = {
        let own = crate::server::own(tx)?;
        (own.server_id.clone(), own.epoch)
    };
    let owner = lease::Owner {
        kind: "server",
        server_id: &server_id,
        epoch: Some(epoch),
    };
    let generation = lease::seize(tx, key.0, &owner, &token)?;
    if live.status == RunStatus::Queued {
        live.set_status(tx, RunStatus::Running)?;
        tx.db
            .prepare_cached("UPDATE runs SET started_at = coalesce(started_at, ?2) WHERE id = ?1")?
            .execute((key, tx.now))?;
    }
    tx.db
        .prepare_cached(
            "UPDATE run_queue SET status = 'starting', claimable = 0, park_reason = NULL, park_detail = NULL, updated_at = ?2
              WHERE run = ?1",
        )?
        .execute((key, tx.now))?;
    tx.db
        .prepare_cached("DELETE FROM runner_messages WHERE run = ?1")?
        .execute([key])?;
    live.message_slot = 0;
    live.claimed = true;
    let runner_epoch: Arc<str> = Uuid::now_v7().to_string().into();
    let launch = launch(tx, &live, generation, &runner_epoch, global_dir)?;
    let hash =
        canonical::digest_bytes(&canonical::to_vec(&launch).map_err(|error| StateError::Invalid(error.to_string()))?);
    tx.db
        .prepare_cached(
            "INSERT INTO run_runners (run, generation, runner_epoch, launch_hash, server_epoch, status, started_at)
             VALUES (:run, :generation, :runner, :hash, :server, 'starting', :now)",
        )?
        .execute(named_params! {
            ":run": key, ":generation": generation, ":runner": runner_epoch, ":hash": hash, ":server": epoch, ":now": tx.now,
        })?;
    let run_id = Arc::clone(&live.run_id);
    let payload = format!("{{\"generation\":{generation}}}");
    live.event(
        tx,
        "run",
        "run.claimed",
        About {
            payload: Some(&payload),
            ..About::default()
        },
    )?;
    tx.changes.run(key, &run_id, true);
    live.save(tx, Bump::View)?;
    Ok(Some(Claimed {
        claim: Claim {
            run: key,
            run_id,
            generation,
            runner_epoch,
            token,
        },
        launch,
    }))
}

/// What a child that loads the workflow of a run is told.
pub(crate) fn launch(
    tx: &Tx<'_>,
    live: &Live,
    generation: u64,
    runner_epoch: &str,
    global_dir: Option<String>,
) -> Result<RunnerLaunch, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT p.path, v.hash FROM runs r JOIN projects p ON p.id = r.project
           JOIN run_values v ON v.run = r.id AND v.kind = 'input' WHERE r.id = ?1",
    )?;
    let (project_path, input_hash) = statement.query_row([live.key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let interactive = tx
        .db
        .prepare_cached("SELECT 1 FROM run_bindings WHERE run = ?1 AND execution_mode = 'interactive'")?
        .exists([live.key])?;
    Ok(RunnerLaunch {
        schema: LAUNCH_SCHEMA.to_owned(),
        run_id: live.run_id.to_string(),
        generation,
        runner_epoch: runner_epoch.to_owned(),
        project_path,
        workflow_source: read_sources(tx.db, live.key)?,
        definition_digest: live.graph.definition.digest().to_owned(),
        input_hash,
        protocol_version: CHILD_PROTOCOL_VERSION,
        global_dir,
        interactive,
    })
}

/// Renews exactly this claim as part of a protected write.
pub(crate) fn renew(tx: &Tx<'_>, claim: &Claim) -> Result<Renewed, StateError> {
    let own = crate::server::own(tx)?;
    let held = lease::Held {
        kind: "server",
        resource: claim.run.0,
        generation: claim.generation,
        owner_id: &own.server_id,
        token: &claim.token,
        epoch: Some(own.epoch),
    };
    lease::renew(tx.db, &held, &tx.moment())
}
