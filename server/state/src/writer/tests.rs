//! Group commit: jobs succeed and fail alone, and a full or locked disk loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Authority;
use crate::clock::ManualClock;
use crate::error::StateError;
use crate::open::FILE_NAME;
use crate::state::{State, StateOptions};

fn open(dir: &tempfile::TempDir) -> State {
    State::open(StateOptions {
        dir: dir.path().to_path_buf(),
        clock: Arc::new(ManualClock::new()),
        readers: 1,
        busy_timeout: Some(Duration::from_millis(50)),
    })
    .expect("a new database")
}

async fn add(state: &State, path: String, then: Result<(), &'static str>) -> Result<(), StateError> {
    state
        .write("add", Authority::None, move |tx| {
            tx.db
                .execute("INSERT INTO projects (path, created_at) VALUES (?1, 0)", [path])?;
            then.map_err(|text| StateError::Invalid(text.to_owned()))
        })
        .await
}

async fn paths(state: &State) -> Vec<String> {
    let all = state.read(|db| {
        let mut statement = db.prepare("SELECT path FROM projects ORDER BY path")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    });
    all.await.expect("read")
}

/// Keeps the writer busy until the returned sender is used, so that what is queued meanwhile forms one group.
fn hold(state: &State, jobs: &mut tokio::task::JoinSet<Result<(), StateError>>) -> std::sync::mpsc::Sender<()> {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let state = state.clone();
    jobs.spawn(async move {
        let block = move |_: &mut super::Tx<'_>| held.recv().map_err(|_| StateError::Closed);
        state.write("hold", Authority::None, block).await
    });
    hold
}

#[tokio::test]
async fn a_job_that_fails_or_panics_rolls_back_alone() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = open(&dir);
    let mut jobs = tokio::task::JoinSet::new();
    let hold = hold(&state, &mut jobs);
    let started = Arc::new(AtomicU32::new(0));
    for number in 0..20u32 {
        let (state, started) = (state.clone(), Arc::clone(&started));
        jobs.spawn(async move {
            started.fetch_add(1, Ordering::SeqCst);
            match number % 4 {
                3 if number == 7 => {
                    let panics = |tx: &mut super::Tx<'_>| -> Result<(), StateError> {
                        tx.db
                            .execute("INSERT INTO projects (path, created_at) VALUES ('panic', 0)", [])?;
                        panic!("as the test wants it")
                    };
                    state.write("panic", Authority::None, panics).await
                }
                3 => add(&state, format!("bad {number:02}"), Err("refused")).await,
                _ => add(&state, format!("good {number:02}"), Ok(())).await,
            }
        });
    }
    while started.load(Ordering::SeqCst) < 20 {
        tokio::task::yield_now().await;
    }
    hold.send(()).expect("the writer waits");
    let results: Vec<_> = jobs.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 16);
    assert_eq!(
        results
            .iter()
            .filter(|result| matches!(result, Err(StateError::Invalid(_))))
            .count(),
        4
    );
    assert_eq!(
        results
            .iter()
            .filter(|result| matches!(result, Err(StateError::Closed)))
            .count(),
        1
    );
    let paths = paths(&state).await;
    assert_eq!(paths.len(), 15);
    assert!(paths.iter().all(|path| path.starts_with("good")), "{paths:?}");
    state.close();
    assert!(matches!(
        add(&state, "late".to_owned(), Ok(())).await,
        Err(StateError::Closed)
    ));
}

#[tokio::test]
async fn a_full_disk_fails_the_write_and_only_the_write() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = open(&dir);
    add(&state, "before".to_owned(), Ok(())).await.expect("room");
    let limit = |pages: i64| {
        state.write("limit", Authority::None, move |tx| {
            Ok(tx
                .db
                .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| {
                    row.get::<_, i64>(0)
                })?)
        })
    };
    limit(1).await.expect("the file's size is the least limit");
    let error = add(&state, "x".repeat(100_000), Ok(())).await.expect_err("no room");
    assert!(matches!(error, StateError::DiskFull(_)), "{error}");
    assert_eq!(state.write_error(), Some(error.to_string()));
    assert_eq!(paths(&state).await, vec!["before".to_owned()]);
    limit(1_000_000).await.expect("room again");
    add(&state, "x".repeat(100_000), Ok(())).await.expect("room again");
    assert_eq!(state.write_error(), None);
}

/// SQLite answers a full disk by rolling back the whole transaction: the rest of the group must not run without one.
#[tokio::test]
async fn a_group_whose_transaction_is_gone_answers_the_truth() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = open(&dir);
    let pages = state
        .write("limit", Authority::None, |tx| {
            let pages: i64 = tx.db.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            tx.db
                .query_row(&format!("PRAGMA max_page_count = {}", pages + 8), [], |_| Ok(()))?;
            Ok(pages)
        })
        .await
        .expect("limited");
    let mut jobs = tokio::task::JoinSet::new();
    let hold = hold(&state, &mut jobs);
    let names: Vec<String> = (0..12).map(|number| format!("{number:02}")).collect();
    let (answers, answered) = std::sync::mpsc::channel();
    for name in names.clone() {
        let (state, answers) = (state.clone(), answers.clone());
        jobs.spawn(async move {
            let path = if name == "05" {
                name.clone() + &"x".repeat(100_000)
            } else {
                name.clone()
            };
            let answer = add(&state, path, Ok(())).await;
            answers.send((name, answer.clone())).expect("the test listens");
            answer
        });
    }
    tokio::task::yield_now().await;
    hold.send(()).expect("the writer waits");
    jobs.join_all().await;
    let stored = paths(&state).await;
    for (name, answer) in answered.try_iter() {
        let there = stored.iter().any(|path| path.starts_with(&name));
        assert_eq!(answer.is_ok(), there, "{name}: {answer:?}, {pages} pages");
        if let Err(error) = answer {
            assert!(error.is_of_the_disk(), "{name}: {error}");
        }
    }
    assert!(stored.len() >= 6, "what came after was stored: {stored:?}");
}

/// The lock cannot be taken again between a job that failed and the next one of its group.
#[tokio::test]
async fn nothing_runs_without_a_transaction() {
    let dir = tempfile::tempdir().expect("temp dir");
    let disk = crate::vfs::lay_under(dir.path());
    let state = open(&dir);
    let mut jobs = tokio::task::JoinSet::new();
    let hold = hold(&state, &mut jobs);
    let twice = state.clone();
    jobs.spawn(async move {
        let twice_the_same = |tx: &mut super::Tx<'_>| {
            for _ in 0..2 {
                tx.db
                    .execute("INSERT INTO projects (path, created_at) VALUES ('half', 0)", [])?;
            }
            Ok(())
        };
        twice.write("twice", Authority::None, twice_the_same).await
    });
    tokio::task::yield_now().await;
    disk.inject(crate::vfs::Fault::io(crate::vfs::On::Lock).times(1));
    // The first job fails.
    drop(hold);
    let failed = jobs.join_all().await.iter().filter(|result| result.is_err()).count();
    assert_eq!(failed, 2);
    assert_eq!(paths(&state).await, Vec::<String>::new());
}

#[tokio::test]
async fn another_programs_lock_fails_the_write_until_it_is_gone() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = open(&dir);
    let other = rusqlite::Connection::open(dir.path().join(FILE_NAME)).expect("open");
    other.execute_batch("BEGIN IMMEDIATE").expect("lock");
    let error = add(&state, "a".to_owned(), Ok(())).await.expect_err("locked");
    assert!(matches!(error, StateError::Busy(_)), "{error}");
    other.execute_batch("ROLLBACK").expect("unlock");
    add(&state, "a".to_owned(), Ok(())).await.expect("unlocked");
}
