//! A disk that fails, at every operation in turn: while the database is made, opened and used. What was answered is there,
//! what was refused is not half there, the message says what is wrong, and work goes on when the disk works again.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Flow, Runner, command, facts, identity_of, run_id};
use piw_protocol::child::{ContentRef, ReplyOutcome};
use piw_protocol::ops::Operation;
use piw_state::vfs::{self, Disk, Fault, On, Survives, Which};
use piw_state::{OpenError, PutChunk, State, StateError, StateOptions};
use serde_json::json;

struct Place {
    dir: tempfile::TempDir,
    disk: Disk,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let disk = vfs::lay_under(dir.path());
        disk.set_volatile(true);
        disk.checkpoint_after(40);
        Self { dir, disk }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self) -> Result<State, OpenError> {
        State::open(StateOptions {
            busy_timeout: Some(Duration::from_millis(20)),
            readers: 1,
            ..StateOptions::new(self.path())
        })
    }

    /// Opens as a new server; the last one is gone.
    async fn serve(&self) -> State {
        let state = self.open().expect("the disk works");
        let last = state.recorded_server().await.expect("read");
        let number = last
            .as_ref()
            .map_or(1, |last| u32::try_from(last.epoch).expect("small") + 1);
        state
            .take_server_epoch(identity_of(number), last.map(|last| last.identity.server_id))
            .await
            .expect("the epoch is free");
        state
    }
}

/// Wherever making the database is cut off: it is there afterwards, or made anew.
#[tokio::test]
async fn a_creation_that_is_cut_off_anywhere_is_started_over() {
    for on in [On::Open, On::Write, On::Sync, On::Truncate, On::Delete] {
        let mut at = 1;
        loop {
            let place = Place::new();
            place
                .disk
                .inject(Fault::power_loss(on).at(at).survives(Survives::Some(at)));
            let made = place.open();
            let lost = place.disk.counts().faults > 0;
            place.disk.heal();
            if let Ok(state) = made {
                state.close();
            }
            let state = place.open().unwrap_or_else(|error| panic!("{on:?} {at}: {error}"));
            assert_eq!(state.verify().await.expect("verify"), vec![], "{on:?} {at}");
            state.close();
            if !lost {
                break;
            }
            at += 1 + at / 4;
        }
    }
}

fn flow() -> Flow {
    Flow::new("a").compute("a").compute("b").edge("a", "b").edge("b", "a")
}

/// Repeats what the disk refuses, as clients and supervisors do. Counts the refusals.
async fn persist<T>(refused: &mut u32, mut attempt: impl AsyncFnMut() -> Result<T, StateError>) -> T {
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(StateError::Io(_) | StateError::DiskFull(_) | StateError::Busy(_) | StateError::ReadOnly(_)) => {
                *refused += 1;
            }
            Err(error) => panic!("not the disk's fault: {error}"),
        }
        assert!(*refused < 50, "it does not pass");
    }
}

/// What the workload was told.
#[derive(Debug, PartialEq)]
struct Told {
    /// Runs and the steps that were acknowledged for each.
    runs: Vec<(String, u64)>,
    /// Digests of stored contents.
    contents: Vec<String>,
}

/// Starts runs, executes steps and stores contents; the log is checkpointed several times meanwhile.
async fn workload(state: &State, refused: &mut u32) -> Told {
    let mut told = Told {
        runs: Vec::new(),
        contents: Vec::new(),
    };
    for number in 0..3u64 {
        let identity = command(Operation::RunStart, &format!("k{number}"));
        let started = persist(refused, async || {
            state.start_run(identity.clone(), flow().new_run(json!(1))).await
        })
        .await;
        let claimed = persist(refused, async || state.claim_next(None).await)
            .await
            .expect("a run is ready");
        persist(refused, async || {
            state.runner_spawned(&claimed.claim, 1000, "start".to_owned()).await
        })
        .await
        .expect("its claim holds");
        let mut runner = Runner::of(state, claimed.claim);
        runner.refused = Some(0);
        runner.ready().await;
        runner.begin("a", 1).await;
        for visit in 1..=2 {
            done(&runner.step("a", json!(visit), "b", visit).await.outcome);
            let bytes = vec![u8::try_from(number * 2 + u64::from(visit)).expect("small"); 60_000];
            told.contents.push(store(state, refused, &bytes).await);
            done(&runner.step("b", json!(visit), "a", visit + 1).await.outcome);
        }
        *refused += runner.refused.expect("counted");
        told.runs.push((run_id(&started), 4));
    }
    told
}

fn done(outcome: &ReplyOutcome) {
    assert!(
        matches!(outcome, ReplyOutcome::Accepted | ReplyOutcome::Adopted),
        "{outcome:?}"
    );
}

/// Uploads text in chunks, each repeated until it is stored.
async fn store(state: &State, refused: &mut u32, bytes: &[u8]) -> String {
    let content = ContentRef::of(bytes, "text/plain; charset=utf-8");
    for (number, part) in bytes.chunks(25_000).enumerate() {
        let chunk = PutChunk {
            owner: "client".to_owned(),
            content: content.clone(),
            offset: number as u64 * 25_000,
            data: part.to_vec(),
            complete: (number + 1) * 25_000 >= bytes.len(),
        };
        persist(refused, async || state.put_content(chunk.clone()).await)
            .await
            .unwrap_or_else(|error| panic!("chunk {number}: {error}"));
    }
    content.sha256
}

/// Everything that was told is there, once, and nothing else.
async fn check(state: &State, told: &Told, what: &str) {
    assert_eq!(state.verify().await.expect("verify"), vec![], "{what}");
    for (id, steps) in &told.runs {
        assert_eq!(facts(state, id).await.3, *steps, "{what}: steps of {id}");
    }
    let counted: u64 = state
        .read(|db| Ok(db.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?))
        .await
        .expect("read");
    assert_eq!(counted, told.runs.len() as u64, "{what}: runs");
    for digest in &told.contents {
        let chunk = state.get_content(digest, 0).await.expect("read");
        assert!(chunk.is_some(), "{what}: content {digest} is missing");
    }
}

/// Runs the workload with a fault at ever later operations, then takes the power, and looks.
async fn survives(name: &str, fault: impl Fn(u64) -> Fault) {
    let (mut at, mut hit) = (1, 0);
    loop {
        let place = Place::new();
        let state = place.serve().await;
        place.disk.inject(fault(at));
        let mut refused = 0;
        let told = workload(&state, &mut refused).await;
        let faults = place.disk.counts().faults;
        place.disk.heal();
        check(&state, &told, &format!("{name} {at}, running")).await;
        assert_eq!(state.write_error(), None, "{name} {at}");
        place.disk.lose_power(Survives::Some(at));
        state.close();
        let state = place.serve().await;
        check(&state, &told, &format!("{name} {at}, after a loss of power")).await;
        state.close();
        if faults == 0 {
            assert!(hit > 1, "{name} hit only {hit} times");
            return;
        }
        hit += 1;
        at += 1 + at / 4;
    }
}

#[tokio::test]
async fn writes_that_fail_for_a_while_lose_nothing() {
    survives("write of the log", |at| {
        Fault::io(On::Write).of(Which::Wal).at(at).times(3)
    })
    .await;
    survives("write of the database", |at| {
        Fault::io(On::Write).of(Which::Database).at(at).times(3)
    })
    .await;
}

#[tokio::test]
async fn syncs_that_fail_and_forget_lose_nothing() {
    survives("sync of the log", |at| {
        Fault::io(On::Sync).of(Which::Wal).at(at).times(2).forget()
    })
    .await;
    survives("sync of the database", |at| {
        Fault::io(On::Sync).of(Which::Database).at(at).times(1).forget()
    })
    .await;
}

#[tokio::test]
async fn reads_that_fail_for_a_while_lose_nothing() {
    survives("read of the log", |at| {
        Fault::io(On::Read).of(Which::Wal).at(at).times(2)
    })
    .await;
    survives("read of the database", |at| {
        Fault::io(On::Read).of(Which::Database).at(at).times(2)
    })
    .await;
}

#[tokio::test]
async fn locks_that_fail_for_a_while_lose_nothing() {
    survives("lock", |at| Fault::io(On::Lock).at(at * 3).times(2)).await;
}

#[tokio::test]
async fn a_disk_that_is_full_for_a_while_loses_nothing() {
    survives("full disk", |at| Fault::full(at * 20_000).times(3)).await;
}
