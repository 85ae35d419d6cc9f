//! Files that were damaged, cut, deleted or swapped between two servers: refused with what to do, or opened as what they
//! still are. Nothing of a refused database is changed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Flow, Runner, accepted, facts, identity_of, start};
use piw_protocol::child::ContentRef;
use piw_state::{PutChunk, State, StateError, StateOptions};
use serde_json::json;

const PAGE: usize = 4096;

fn open(dir: &Path) -> Result<State, piw_state::OpenError> {
    State::open(StateOptions {
        readers: 1,
        ..StateOptions::new(dir)
    })
}

fn file(dir: &Path, suffix: &str) -> PathBuf {
    dir.join(format!("state.sqlite{suffix}"))
}

/// A database with more content than is looked at when it is opened.
async fn large(dir: &Path) -> String {
    let state = open(dir).expect("new");
    state.take_server_epoch(identity_of(1), None).await.expect("epoch");
    let bytes = vec![b'x'; 6_000_000];
    let content = ContentRef::of(&bytes, "text/plain; charset=utf-8");
    for (number, part) in bytes.chunks(500_000).enumerate() {
        let chunk = PutChunk {
            owner: "client".to_owned(),
            content: content.clone(),
            offset: number as u64 * 500_000,
            data: part.to_vec(),
            complete: number == 11,
        };
        state.put_content(chunk).await.expect("stored").expect("accepted");
    }
    state.release_server().await.expect("released");
    state.close();
    content.sha256
}

#[tokio::test]
async fn a_database_that_lost_its_end_is_refused_whatever_its_size() {
    let dir = tempfile::tempdir().expect("temp dir");
    large(dir.path()).await;
    let path = file(dir.path(), "");
    let bytes = fs::read(&path).expect("read");
    fs::write(&path, &bytes[..bytes.len() - 100 * PAGE]).expect("cut");
    let error = open(dir.path()).expect_err("refused").to_string();
    assert!(error.contains("state.sqlite is damaged"), "{error}");
    assert!(error.contains("restore a backup"), "{error}");
    assert_eq!(
        fs::metadata(&path).expect("there").len() as usize,
        bytes.len() - 100 * PAGE
    );
}

#[tokio::test]
async fn a_page_that_is_damaged_while_nobody_looks_fails_what_needs_it_and_says_so() {
    let dir = tempfile::tempdir().expect("temp dir");
    let digest = large(dir.path()).await;
    let path = file(dir.path(), "");
    let mut bytes = fs::read(&path).expect("read");
    // The tables of a new database lie in the first pages; the content behind them.
    for page in bytes.chunks_mut(PAGE).skip(300) {
        page[..16].fill(0xff);
    }
    fs::write(&path, bytes).expect("write");
    let state = open(dir.path()).expect("what is read at the start is whole");
    let error = state.get_content(&digest, 3_000_000).await.expect_err("damaged");
    assert!(matches!(error, StateError::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
    let found = state.verify().await;
    assert!(found.is_err() || !found.expect("checked").is_empty(), "verify finds it");
    state.close();
}

/// Executes steps and leaves the database as a killed server does: with its log. Returns the run and copies of the files.
async fn killed(dir: &Path) -> (String, Vec<u8>, Vec<u8>) {
    let state = open(dir).expect("new");
    state.take_server_epoch(identity_of(1), None).await.expect("epoch");
    let flow = Flow::new("a").compute("a").compute("b").edge("a", "b").edge("b", "a");
    let id = start(&state, &flow, "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    for visit in 1..=4 {
        accepted(&runner.step("a", json!(visit), "b", visit).await);
        accepted(&runner.step("b", json!(visit), "a", visit + 1).await);
    }
    let files = ["", "-wal"].map(|suffix| fs::read(file(dir, suffix)).expect("read"));
    state.close();
    let [database, log] = files;
    (id, database, log)
}

/// Writes the files of a killed server anew.
fn put_back(dir: &Path, database: &[u8], log: Option<&[u8]>) {
    for suffix in ["", "-wal", "-shm"] {
        // What is not there need not be removed.
        let _ = fs::remove_file(file(dir, suffix));
    }
    fs::write(file(dir, ""), database).expect("write");
    if let Some(log) = log {
        fs::write(file(dir, "-wal"), log).expect("write");
    }
}

#[tokio::test]
async fn a_log_that_is_torn_anywhere_gives_the_commits_before_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (id, database, log) = killed(dir.path()).await;
    let mut last = 0;
    for cut in (0..=20).map(|part| log.len() * part / 20) {
        let mut torn = log[..cut].to_vec();
        // The last sector that was being written holds anything.
        let from = torn.len().saturating_sub(300);
        if cut < log.len() {
            torn[from..].fill(0x5a);
        }
        put_back(dir.path(), &database, Some(&torn));
        let state = open(dir.path()).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(state.verify().await.expect("verify"), vec![], "cut at {cut}");
        let known = state.original(id.clone()).await.expect("read").is_some();
        let steps = if known { facts(&state, &id).await.3 } else { 0 };
        assert!(steps >= last, "cut at {cut}: {steps} steps, {last} before");
        last = steps;
        state.close();
    }
    assert_eq!(last, 8, "the whole log has everything");
}

#[tokio::test]
async fn a_lost_log_of_a_killed_server_is_refused_until_somebody_accepts_the_loss() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (id, database, log) = killed(dir.path()).await;
    put_back(dir.path(), &database, None);
    for _ in 0..2 {
        let error = open(dir.path()).expect_err("refused").to_string();
        assert!(error.contains("state.sqlite-wal is missing"), "{error}");
        assert!(
            error.contains("restore a backup") && error.contains("touch '"),
            "{error}"
        );
        assert_eq!(
            fs::read(file(dir.path(), "")).expect("kept"),
            database,
            "nothing was changed"
        );
        assert!(!file(dir.path(), "-wal").exists(), "nothing was made");
    }
    // The log comes back.
    put_back(dir.path(), &database, Some(&log));
    let state = open(dir.path()).expect("opens");
    assert_eq!(facts(&state, &id).await.3, 8);
    state.close();
    // It is gone for good: an empty one is the word of whoever accepts that.
    put_back(dir.path(), &database, Some(b""));
    let state = open(dir.path()).expect("opens");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    assert!(state.original(id).await.expect("read").is_none());
    state.close();
}

#[tokio::test]
async fn only_a_server_that_stopped_takes_the_log_away() {
    let dir = tempfile::tempdir().expect("temp dir");
    let log = file(dir.path(), "-wal");
    let state = open(dir.path()).expect("new");
    state.take_server_epoch(identity_of(1), None).await.expect("epoch");
    state.close();
    assert!(log.exists(), "it was not released");
    // Somebody who only looks leaves it as well.
    open(dir.path()).expect("opens").close();
    assert!(log.exists());
    let state = open(dir.path()).expect("opens");
    state
        .take_server_epoch(identity_of(2), Some(identity_of(1).server_id))
        .await
        .expect("epoch");
    state.release_server().await.expect("released");
    state.close();
    assert!(!log.exists(), "everything is in the database");
    open(dir.path()).expect("opens without a log").close();
}

#[tokio::test]
async fn the_index_of_the_log_may_be_lost() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (id, database, log) = killed(dir.path()).await;
    put_back(dir.path(), &database, Some(&log));
    fs::write(file(dir.path(), "-shm"), vec![0xa5; 32_768]).expect("a foreign index");
    let state = open(dir.path()).expect("opens");
    assert_eq!(facts(&state, &id).await.3, 8);
    state.close();
}

/// A log belongs to one database; another one does not take its frames.
#[tokio::test]
async fn the_log_of_another_schema_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (_, database, log) = killed(dir.path()).await;
    put_back(dir.path(), &database, Some(&log));
    let other = rusqlite::Connection::open(file(dir.path(), "")).expect("open");
    other.pragma_update(None, "wal_autocheckpoint", 0).expect("pragma");
    other.execute_batch("CREATE TABLE extra (x)").expect("change");
    let changed = ["", "-wal"].map(|suffix| fs::read(file(dir.path(), suffix)).expect("read"));
    drop(other);
    put_back(dir.path(), &changed[0], Some(&changed[1]));
    let error = open(dir.path()).expect_err("refused").to_string();
    assert!(error.contains("table extra is not part of the schema"), "{error}");
    assert_eq!(
        fs::read(file(dir.path(), "-wal")).expect("kept"),
        changed[1],
        "nothing was changed"
    );
}

/// What is written to a file that nobody finds again is lost: it is refused instead, until the file is back.
#[tokio::test]
async fn a_file_that_is_moved_under_a_server_is_noticed_before_the_next_commit() {
    for suffix in ["", "-wal"] {
        let dir = tempfile::tempdir().expect("temp dir");
        let state = open(dir.path()).expect("new");
        state.take_server_epoch(identity_of(1), None).await.expect("epoch");
        let flow = Flow::new("a").compute("a");
        let first = start(&state, &flow, "first").await;
        let (here, away) = (file(dir.path(), suffix), dir.path().join("away"));
        fs::rename(&here, &away).expect("moved");
        let error = state.renew_server().await.expect_err("refused");
        assert!(error.is_of_the_disk(), "it may pass");
        let name = format!("state.sqlite{suffix} was moved or deleted");
        assert!(error.to_string().contains(&name), "{error}");
        assert_eq!(state.write_error(), Some(error.to_string()));
        fs::rename(&away, &here).expect("moved back");
        let second = start(&state, &flow, "second").await;
        assert_eq!(state.write_error(), None);
        state.close();
        let state = open(dir.path()).expect("opens");
        for run in [first, second] {
            assert_eq!(facts(&state, &run).await.0, "queued");
        }
        state.close();
    }
}

#[tokio::test]
async fn a_server_whose_log_was_deleted_stores_everything_when_it_is_stopped() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = open(dir.path()).expect("new");
    state.take_server_epoch(identity_of(1), None).await.expect("epoch");
    let run = start(&state, &Flow::new("a").compute("a"), "k").await;
    fs::remove_file(file(dir.path(), "-wal")).expect("deleted");
    state.renew_server().await.expect_err("refused");
    state.close();
    let state = open(dir.path()).expect("opens");
    assert_eq!(facts(&state, &run).await.0, "queued");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    state.close();
}
