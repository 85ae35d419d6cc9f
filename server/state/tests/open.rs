//! Opening checks: a file that is not ours is refused with a message that says what to do, and is left as it was.

use std::fs;
use std::path::Path;
use std::time::Duration;

use piw_state::{OpenError, State, StateOptions};

fn options(dir: &Path) -> StateOptions {
    StateOptions {
        busy_timeout: Some(Duration::from_millis(20)),
        ..StateOptions::new(dir)
    }
}

fn file(dir: &Path) -> std::path::PathBuf {
    dir.join("state.sqlite")
}

/// Every file of the directory with its bytes, the shared-memory index aside.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .expect("read directory")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| !path.to_string_lossy().ends_with("-shm"))
        .map(|path| {
            (
                path.file_name().expect("name").to_string_lossy().into_owned(),
                fs::read(&path).expect("bytes"),
            )
        })
        .collect();
    all.sort();
    all
}

/// Makes a database and closes it.
fn make(dir: &Path) {
    State::open(options(dir)).expect("new database").close();
}

fn refused(dir: &Path) -> String {
    let before = contents(dir);
    let error = State::open(options(dir)).expect_err("must be refused");
    assert_eq!(contents(dir), before, "a refused file must stay as it was");
    error.to_string()
}

#[test]
fn a_new_database_is_private_and_opens_again() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().expect("temp dir");
    let dir = root.path().join("state");
    make(&dir);
    assert_eq!(fs::metadata(&dir).expect("dir").permissions().mode() & 0o777, 0o700);
    assert_eq!(
        fs::metadata(file(&dir)).expect("file").permissions().mode() & 0o777,
        0o600
    );
    make(&dir);
}

#[test]
fn an_interrupted_creation_is_started_over() {
    let dir = tempfile::tempdir().expect("temp dir");
    fs::write(file(dir.path()), b"").expect("empty file");
    make(dir.path());
}

#[test]
fn text_is_no_database() {
    let dir = tempfile::tempdir().expect("temp dir");
    for bytes in [&b"hello"[..], &[b'x'; 5000][..]] {
        fs::write(file(dir.path()), bytes).expect("write");
        assert!(refused(dir.path()).contains("is not a SQLite database; move it away"));
    }
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let other = rusqlite::Connection::open(file(dir.path())).expect("open");
    other
        .execute_batch("PRAGMA application_id = 7; CREATE TABLE t (x)")
        .expect("make");
    drop(other);
    assert!(
        refused(dir.path()).contains("belongs to another program (application id 0x00000007, expected 0x50495746)")
    );
}

#[test]
fn another_schema_is_refused_and_named() {
    for (change, message) in [
        (
            "UPDATE schema_meta SET ddl_sha256 = 'abc'",
            "schema digest abc, expected",
        ),
        ("PRAGMA user_version = 2", "schema version 2, expected 1"),
        ("CREATE TABLE extra (x)", "table extra is not part of the schema"),
        ("DROP INDEX runs_by_root", "index runs_by_root is missing"),
        ("DELETE FROM schema_meta", "schema_meta is empty"),
        ("DROP TABLE schema_meta", "no such table: schema_meta"),
    ] {
        let dir = tempfile::tempdir().expect("temp dir");
        make(dir.path());
        let db = rusqlite::Connection::open(file(dir.path())).expect("open");
        db.execute_batch(change).expect("change");
        drop(db);
        let text = refused(dir.path());
        assert!(text.contains(message), "{change}: {text}");
        assert!(text.contains("Back up the file with its -wal and -shm"), "{text}");
    }
}

#[test]
fn a_damaged_page_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    make(dir.path());
    let mut bytes = fs::read(file(dir.path())).expect("read");
    let page = 4096 * 5;
    bytes[page..page + 64].fill(0xff);
    fs::write(file(dir.path()), bytes).expect("write");
    assert!(refused(dir.path()).contains("is damaged"));
}

#[test]
fn a_torn_file_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    make(dir.path());
    let bytes = fs::read(file(dir.path())).expect("read");
    fs::write(file(dir.path()), &bytes[..bytes.len() - 1000]).expect("write");
    assert!(refused(dir.path()).contains("is no multiple of its page size 4096"));
}

#[test]
fn a_log_without_its_database_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    fs::write(dir.path().join("state.sqlite-wal"), [1u8; 100]).expect("write");
    assert!(refused(dir.path()).contains("is missing but its write-ahead log"));
}

#[test]
fn a_locked_database_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    make(dir.path());
    let other = rusqlite::Connection::open(file(dir.path())).expect("open");
    other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .expect("lock");
    let error = State::open(options(dir.path())).expect_err("must be refused");
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    drop(other);
    make(dir.path());
}

#[test]
fn a_directory_in_the_way_is_named() {
    let dir = tempfile::tempdir().expect("temp dir");
    fs::create_dir(file(dir.path())).expect("directory");
    let error = State::open(options(dir.path()))
        .expect_err("must be refused")
        .to_string();
    assert!(error.contains("is not a regular file"), "{error}");
    fs::remove_dir(file(dir.path())).expect("clean");
    fs::write(dir.path().join("plain"), b"").expect("file");
    let error = State::open(options(&dir.path().join("plain")))
        .expect_err("must be refused")
        .to_string();
    assert!(error.contains("cannot use the state directory"), "{error}");
}

#[test]
fn a_link_that_leads_nowhere_is_not_replaced_by_an_empty_database() {
    let dir = tempfile::tempdir().expect("temp dir");
    let elsewhere = tempfile::tempdir().expect("temp dir");
    let target = file(elsewhere.path());
    std::os::unix::fs::symlink(&target, file(dir.path())).expect("link");
    let error = State::open(options(dir.path()))
        .expect_err("must be refused")
        .to_string();
    assert!(error.contains("is a link to") && error.contains("not there"), "{error}");
    assert_eq!(fs::read_link(file(dir.path())).expect("still a link"), target);
    assert!(!target.exists(), "nothing was made");
    // Once it is there again, it is used through the link.
    make(elsewhere.path());
    make(dir.path());
    assert_eq!(fs::read_link(file(dir.path())).expect("still a link"), target);
}

#[test]
fn a_database_with_a_second_name_is_refused() {
    let root = tempfile::tempdir().expect("temp dir");
    let (first, second) = (root.path().join("first"), root.path().join("second"));
    make(&first);
    fs::create_dir(&second).expect("directory");
    fs::hard_link(file(&first), file(&second)).expect("hard link");
    for dir in [&first, &second] {
        assert!(refused(dir).contains("has 2 hard links"));
    }
    fs::remove_file(file(&second)).expect("removed");
    make(&first);
}
