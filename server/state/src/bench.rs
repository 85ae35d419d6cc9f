//! The step-shaped commit rate: the SQL of one step, one transaction each, without scripts, children or threads (decision 29).
//!
//! Throughput bars of the product are ratios to this rate, measured in the same run on the same disk.

mod messages;
mod retention;
mod stored;

use std::path::Path;
use std::time::{Duration, Instant};

use piw_engine::raw::{RawDefinition, RawEdge, RawNode};
use piw_protocol::child::{
    CHILD_SCHEMA, ChildBody, ChildMessage, Next, NodeFinish, NodeStart, ReplyOutcome, ServerReply, ValueRef,
};
use piw_protocol::definition::NodeType;
use piw_protocol::ops::Operation;
use piw_protocol::run::{NodeOutcome, SourceMap, SourceRef};
use rusqlite::Connection;
use serde_json::json;

use crate::cache::RunCache;
use crate::changes::Changes;
use crate::child;
use crate::clock::{Clock, SystemClock};
use crate::command::{NewRun, ResolvedRun};
use crate::error::StateError;
use crate::open::{FILE_NAME, open_writer};
use crate::queue::Claim;
use crate::receipts::CommandIdentity;
use crate::server::{OwnEpoch, ServerIdentity};
use crate::state::{State, StateOptions};
use crate::writer::Tx;

pub use messages::{History, session_history};
pub use retention::{Purging, purging};
pub use stored::{ended_runs, long_run};

/// Steps over which the write-ahead log is measured.
const WAL_SAMPLE: u64 = 500;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRate {
    /// Steps executed, one transaction each.
    pub steps: u64,
    /// Time they took.
    pub elapsed: Duration,
    /// Time of the first tenth of them.
    pub first_tenth: Duration,
    /// Time of the last tenth of them.
    pub last_tenth: Duration,
    /// Growth of the database file per step, after a checkpoint.
    pub growth_bytes: f64,
    /// Write-ahead log per step.
    pub wal_bytes: f64,
}

impl StepRate {
    /// Steps per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of steps is far below 2^53")]
        let steps = self.steps as f64;
        steps / self.elapsed.as_secs_f64()
    }
}

/// Executes `steps` steps of one run, one transaction each, in a new database in `dir`.
///
/// # Errors
/// When the database cannot be made or a step is refused.
pub async fn step_rate(dir: &Path, steps: u64) -> Result<StepRate, StateError> {
    let mut bench = Bench::new(dir).await?;
    let wal_bytes = bench.sample_wal()?;
    bench.checkpoint()?;
    let before = file_bytes(dir);
    let tenth = (steps / 10).max(1);
    let begun = Instant::now();
    let (mut first_tenth, mut last_begun) = (Duration::ZERO, begun);
    for step in 0..steps {
        bench.step()?;
        if step + 1 == tenth {
            first_tenth = begun.elapsed();
        }
        if step + tenth == steps {
            last_begun = Instant::now();
        }
    }
    let elapsed = begun.elapsed();
    let last_tenth = last_begun.elapsed();
    bench.checkpoint()?;
    #[expect(clippy::cast_precision_loss, reason = "file sizes and counts are far below 2^53")]
    let growth_bytes = file_bytes(dir).saturating_sub(before) as f64 / steps as f64;
    Ok(StepRate {
        steps,
        elapsed,
        first_tenth,
        last_tenth,
        growth_bytes,
        wal_bytes,
    })
}

fn file_bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join(FILE_NAME)).map_or(0, |meta| meta.len())
}

struct Bench {
    db: Connection,
    clock: SystemClock,
    boot: String,
    own: Option<OwnEpoch>,
    cache: RunCache,
    script: Script,
    wal: std::path::PathBuf,
}

impl Bench {
    /// Makes the database with one claimed run, through the ordinary commands.
    async fn new(dir: &Path) -> Result<Self, StateError> {
        let state = State::open(StateOptions::new(dir)).map_err(|error| StateError::Io(error.to_string()))?;
        take_epoch(&state).await?;
        state
            .start_run(command(&uuid::Uuid::now_v7().to_string()), new_run(&two_nodes(), None)?)
            .await?;
        let claimed = state
            .claim_next(None)
            .await?
            .ok_or_else(|| StateError::Invalid("nothing to claim".to_owned()))?;
        let own = state.own_epoch().await?;
        state.close();
        let clock = SystemClock::new();
        let db = open_writer(dir, clock.wall_ms(), None).map_err(|error| StateError::Io(error.to_string()))?;
        let mut bench = Self {
            db,
            boot: clock.boot_id(),
            clock,
            own: Some(own),
            cache: RunCache::default(),
            script: Script::new(claimed.claim),
            wal: dir.join(format!("{FILE_NAME}-wal")),
        };
        let message = bench.script.begin("a");
        bench.commit(&message)?;
        Ok(bench)
    }

    /// One step in one transaction.
    fn step(&mut self) -> Result<(), StateError> {
        let message = self.script.next();
        self.commit(&message)
    }

    fn commit(&mut self, message: &ChildMessage) -> Result<(), StateError> {
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let reply = self.apply(message)?;
        self.db.execute_batch("COMMIT")?;
        self.script.take(&reply)
    }

    /// Applies a message inside the open transaction.
    fn apply(&mut self, message: &ChildMessage) -> Result<ServerReply, StateError> {
        let (now, steady) = (self.clock.wall_ms(), self.clock.steady_ms());
        if let Some(own) = &self.own {
            let at = crate::lease::Moment {
                now,
                steady,
                boot: &self.boot,
                lease: crate::lease::LEASE_MS,
            };
            crate::server::check_and_renew(&self.db, own, &at)?;
        }
        let mut tx = Tx {
            db: &self.db,
            now,
            steady,
            boot: &self.boot,
            lease: crate::lease::LEASE_MS,
            own: &mut self.own,
            cache: &mut self.cache,
            changes: Changes::default(),
        };
        tx.cache.begin_job();
        child::apply_alone(&mut tx, &self.script.claim, message)
    }

    fn checkpoint(&self) -> Result<(), StateError> {
        self.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    fn wal_bytes(&self) -> Result<u64, StateError> {
        std::fs::metadata(&self.wal)
            .map(|meta| meta.len())
            .map_err(|error| StateError::Io(error.to_string()))
    }

    /// Write-ahead log per step, with checkpoints held back.
    fn sample_wal(&mut self) -> Result<f64, StateError> {
        self.checkpoint()?;
        self.db.pragma_update(None, "wal_autocheckpoint", 0)?;
        for _ in 0..WAL_SAMPLE {
            self.step()?;
        }
        let bytes = self.wal_bytes()?;
        self.db.pragma_update(None, "wal_autocheckpoint", 1000)?;
        #[expect(clippy::cast_precision_loss, reason = "file sizes and counts are far below 2^53")]
        let per_step = bytes as f64 / WAL_SAMPLE as f64;
        Ok(per_step)
    }
}

/// Executes `steps` steps in each of `runs` runs at once through the writer thread, as the server does, and returns the steps per
/// second of all together.
///
/// # Errors
/// When the database cannot be made or a step is refused.
pub async fn writer_rate(dir: &Path, runs: u32, steps: u64) -> Result<f64, StateError> {
    let state = State::open(StateOptions::new(dir)).map_err(|error| StateError::Io(error.to_string()))?;
    take_epoch(&state).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..runs {
        let new = new_run(&two_nodes(), None)?;
        state.start_run(command(&format!("start {number}")), new).await?;
        let claimed = state
            .claim_next(None)
            .await?
            .ok_or_else(|| StateError::Invalid("nothing to claim".to_owned()))?;
        let mut script = Script::new(claimed.claim);
        let reply = state.apply_child(&script.claim.clone(), script.begin("a")).await?;
        script.take(&reply)?;
        let state = state.clone();
        tasks.spawn(async move {
            for _ in 0..steps {
                let message = script.next();
                let reply = state.apply_child(&script.claim, message).await?;
                script.take(&reply)?;
            }
            Ok::<(), StateError>(())
        });
    }
    let begun = Instant::now();
    for done in tasks.join_all().await {
        done?;
    }
    let elapsed = begun.elapsed().as_secs_f64();
    state.close();
    #[expect(clippy::cast_precision_loss, reason = "a count of steps is far below 2^53")]
    let all = (u64::from(runs) * steps) as f64;
    Ok(all / elapsed)
}

async fn take_epoch(state: &State) -> Result<(), StateError> {
    let identity = ServerIdentity {
        server_id: "bench".to_owned(),
        pid: std::process::id(),
        start_identity: "bench".to_owned(),
        package_version: "bench".to_owned(),
    };
    let taken = state.take_server_epoch(identity, None).await;
    taken
        .map(|_| ())
        .map_err(|error| StateError::Invalid(error.to_string()))
}

fn command(key: &str) -> CommandIdentity {
    CommandIdentity {
        client_id: "bench".to_owned(),
        request_id: key.to_owned(),
        idempotency_key: key.to_owned(),
        operation: Operation::RunStart,
        fingerprint: [0; 32],
    }
}

/// The messages of a runner that executes two nodes in a loop.
struct Script {
    claim: Claim,
    revision: u64,
    attempt: String,
    number: u64,
}

impl Script {
    fn new(claim: Claim) -> Self {
        Self {
            claim,
            revision: 1,
            attempt: uuid::Uuid::now_v7().to_string(),
            number: 0,
        }
    }

    fn begin(&self, node: &str) -> ChildMessage {
        self.message(ChildBody::NodeStarted(start(&self.attempt, node, 1)))
    }

    /// The running node finishes and the next one starts.
    fn next(&mut self) -> ChildMessage {
        self.number += 1;
        let next = uuid::Uuid::now_v7().to_string();
        let attempt = std::mem::replace(&mut self.attempt, next);
        let next = Next::Start(start(
            &self.attempt,
            loop_of_two(self.number + 1),
            u32::try_from((self.number + 1).div_ceil(2)).unwrap_or(u32::MAX),
        ));
        let output = ValueRef::Inline(json!({ "n": self.number }));
        let done = finish(&attempt, loop_of_two(self.number), output, next);
        self.message(ChildBody::NodeFinished(Box::new(done)))
    }

    fn message(&self, body: ChildBody) -> ChildMessage {
        ChildMessage {
            schema: CHILD_SCHEMA.to_owned(),
            run_id: self.claim.run_id.to_string(),
            generation: self.claim.generation,
            runner_epoch: self.claim.runner_epoch.to_string(),
            message_id: format!("{}-{}", self.claim.generation, self.number),
            attempt_id: None,
            expected_revision: Some(self.revision),
            body,
        }
    }

    fn take(&mut self, reply: &ServerReply) -> Result<(), StateError> {
        if reply.outcome != ReplyOutcome::Accepted {
            return Err(StateError::Invalid(format!("a step was refused: {:?}", reply.error)));
        }
        self.revision = reply.revision.unwrap_or(self.revision);
        Ok(())
    }
}

/// The node of a step, numbered from 1, of two nodes that follow each other in a loop.
fn loop_of_two(step: u64) -> &'static str {
    if step % 2 == 1 { "a" } else { "b" }
}

fn start(attempt_id: &str, node: &str, visit: u32) -> NodeStart {
    NodeStart {
        attempt_id: attempt_id.to_owned(),
        node_id: node.to_owned(),
        visit,
        status_detail: None,
        timeout_ms: Some(piw_engine::limits::DEFAULT_TIMEOUT_MS),
        enters: Vec::new(),
        leaves: Vec::new(),
    }
}

fn finish(attempt_id: &str, node: &str, output: ValueRef, next: Next) -> NodeFinish {
    NodeFinish {
        attempt_id: attempt_id.to_owned(),
        node_id: node.to_owned(),
        outcome: NodeOutcome::Ok,
        output,
        error: None,
        action: None,
        status_detail: None,
        active_ms: 1,
        settle: None,
        leaves: Vec::new(),
        next,
    }
}

/// Two nodes in a loop.
fn two_nodes() -> RawDefinition {
    let edge = |from: &str, to: &str| RawEdge {
        from: from.to_owned(),
        to: Some(to.to_owned()),
        switch: None,
    };
    definition(&["a", "b"], vec![edge("a", "b"), edge("b", "a")])
}

/// One node, and the end.
fn one_node() -> RawDefinition {
    definition(&["only"], Vec::new())
}

fn definition(nodes: &[&str], edges: Vec<RawEdge>) -> RawDefinition {
    let node = |id: &str| RawNode {
        callbacks: vec!["run".to_owned()],
        ..RawNode::new(id, NodeType::Compute)
    };
    RawDefinition {
        name: "bench".to_owned(),
        source: SourceRef::File {
            path: "/bench.workflow.ts".to_owned(),
            hash: "0".repeat(64),
        },
        contract_id: None,
        start_at: nodes[0].to_owned(),
        max_steps: Some(1_000_000.0),
        has_input: false,
        title: None,
        has_title: false,
        nodes: nodes.iter().map(|id| node(id)).collect(),
        edges,
        includes: Vec::new(),
        exits: Vec::new(),
        has_settings: false,
    }
}

fn new_run(raw: &RawDefinition, title: Option<String>) -> Result<NewRun, StateError> {
    let source = raw.source.clone();
    let definition = piw_engine::compile(raw).map_err(|problems| StateError::Invalid(format!("{problems:?}")))?;
    Ok(NewRun {
        project_path: "/".to_owned(),
        session_id: None,
        resolved: ResolvedRun {
            definition: definition.snapshot().clone(),
            definition_digest: definition.digest().to_owned(),
            sources: SourceMap {
                root: source,
                mounted: Vec::new(),
                modules: Vec::new(),
            },
            title,
            input: ValueRef::null(),
        },
    })
}

/// The rate of single-row transactions on the same disk, for scale.
///
/// # Errors
/// When the database cannot be made.
pub fn commit_rate(dir: &Path, commits: u32) -> Result<f64, StateError> {
    let db = Connection::open(dir.join("commits.sqlite"))?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER) STRICT")?;
    let begun = Instant::now();
    for number in 0..commits {
        db.prepare_cached("INSERT INTO t (x) VALUES (?1)")?.execute([number])?;
    }
    Ok(f64::from(commits) / begun.elapsed().as_secs_f64())
}
