//! `piw state …` and the retention sweep on the real binary.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use piw_tests::bench::workloads;
use piw_tests::home::Home;
use piw_tests::wait;

fn home() -> Home {
    let home = Home::new();
    home.workflow("one", workloads::ONE_NODE);
    home.workflow("chain", workloads::CHAIN);
    home
}

fn completed(home: &Home) -> String {
    let run = home.piw(&["run", "one", "--json"]).exits(0).json();
    run["runId"].as_str().unwrap().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn database(home: &Home) -> std::path::PathBuf {
    home.state().join("state.sqlite")
}

/// Makes runs look as if they had ended `days` ago. The server must be stopped.
fn age(home: &Home, runs: &[&str], days: i64) {
    assert_eq!(home.server_pid(), None);
    let db = rusqlite::Connection::open(database(home)).unwrap();
    for run in runs {
        let changed = db
            .execute(
                "UPDATE runs SET finished_at = finished_at - ?2, created_at = created_at - ?2 WHERE run_id = ?1",
                (run, days * 24 * 60 * 60 * 1000),
            )
            .unwrap();
        assert_eq!(changed, 1);
    }
}

fn listed(home: &Home) -> Vec<String> {
    let runs = home.piw(&["ps", "--all", "--json"]).exits(0).json();
    let mut ids: Vec<_> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["runId"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn the_state_is_described_checked_and_found_sound() {
    let home = home();
    completed(&home);
    let status = home.piw(&["state", "status", "--json"]).exits(0).json();
    assert_eq!(status["trees"], 1);
    assert_eq!(status["runs"][0]["status"], "completed");
    assert_eq!(status["violations"].as_array().unwrap().len(), 0);
    assert!(status["databaseBytes"].as_u64().unwrap() > 100_000);
    let shown = home.piw(&["state", "status"]).exits(0).stdout;
    assert!(
        shown.contains("1 completed (in 1 trees)") && shown.contains("all hold"),
        "{shown}"
    );
    let verified = home.piw(&["state", "verify", "--json"]).exits(0).json();
    assert_eq!(verified["sound"], true);
    let shown = home.piw(&["state", "verify"]).exits(0).stdout;
    assert!(shown.contains("the state is sound"), "{shown}");
}

#[test]
fn a_violated_invariant_is_named_by_run_and_fails_the_check() {
    let home = home();
    let run = completed(&home);
    let _ = home.piw(&["server", "stop"]).exits(0);
    let db = rusqlite::Connection::open(database(&home)).unwrap();
    db.execute("UPDATE runs SET step_count = 7", []).unwrap();
    drop(db);
    let verified = home.piw(&["state", "verify", "--json"]).exits(1).json();
    assert_eq!(verified["sound"], false);
    let found = &verified["violations"][0];
    assert_eq!(found["invariant"], "steps are numbered without gaps");
    assert_eq!(found["runId"], *run);
    let shown = home.piw(&["state", "verify"]).exits(1).stdout;
    assert!(shown.contains(&run) && shown.contains("7 steps counted"), "{shown}");
    // A prune trusts no state that contradicts itself.
    let backup = home.project().join("before-prune.sqlite");
    let refused = home
        .piw(&["state", "prune", "--before", "0h", "--backup", text(&backup), "--apply"])
        .exits(1);
    assert!(refused.stderr.contains("nothing was deleted"), "{}", refused.stderr);
    assert_eq!(listed(&home), [run]);
}

#[test]
fn a_backup_is_private_verified_and_becomes_a_working_state() {
    let home = home();
    let run = completed(&home);
    let backup = home.project().join("backup.sqlite");
    let made = home.piw(&["state", "backup", text(&backup), "--json"]).exits(0).json();
    let meta = fs::metadata(&backup).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(made["bytes"].as_u64().unwrap(), meta.len());
    let checked = home.piw(&["state", "verify", "--backup", text(&backup)]).exits(0);
    assert!(checked.stdout.contains("the backup is sound"), "{}", checked.stdout);
    let names: Vec<_> = fs::read_dir(home.project())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("backup.sqlite"))
        .collect();
    assert_eq!(names, ["backup.sqlite"], "nothing else is left beside it");

    // A run after the backup is not in it; the restored state goes on with what was.
    completed(&home);
    let other = self::home();
    fs::create_dir_all(other.state()).unwrap();
    fs::copy(&backup, database(&other)).unwrap();
    assert_eq!(listed(&other), [run]);
    completed(&other);
    let _ = other.piw(&["state", "verify"]).exits(0);
}

#[test]
fn a_backup_under_load_verifies() {
    let home = home();
    let input = r#"{"steps":100000}"#;
    let started: Vec<String> = (0..3)
        .map(|_| {
            let run = home
                .piw(&["run", "chain", "--input", input, "--detach", "--json"])
                .exits(0)
                .json();
            run["runId"].as_str().unwrap().to_owned()
        })
        .collect();
    wait::until("every chain makes steps", || {
        started
            .iter()
            .all(|run| home.show(run)["stepTotal"].as_u64().unwrap() > 20)
            .then_some(())
    });
    for number in 0..3 {
        let steps = |home: &Home| home.show(&started[0])["stepTotal"].as_u64().unwrap();
        let before = steps(&home);
        let backup = home.project().join(format!("load-{number}.sqlite"));
        let _ = home.piw(&["state", "backup", text(&backup)]).exits(0);
        let _ = home.piw(&["state", "verify", "--backup", text(&backup)]).exits(0);
        assert!(steps(&home) > before, "the runs went on");
        let db = rusqlite::Connection::open_with_flags(&backup, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let copied: u64 = db
            .query_row("SELECT step_count FROM runs WHERE run_id = ?1", [&started[0]], |row| {
                row.get(0)
            })
            .unwrap();
        assert!(copied >= before, "{copied} steps copied, {before} were shown before");
    }
    for run in &started {
        let _ = home.piw(&["cancel", run]).exits(0);
    }
}

#[test]
fn a_backup_survives_the_command_that_asked_for_it() {
    let home = home();
    completed(&home);
    let backup = home.project().join("alone.sqlite");
    let mut asked = home.spawn(&["state", "backup", text(&backup)], Stdio::null());
    wait::until("the copy has begun or ended", || {
        fs::read_dir(home.project())
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("alone.sqlite"))
            .then_some(())
    });
    let _ = asked.kill();
    asked.wait().unwrap();
    wait::until("the backup is there", || backup.exists().then_some(()));
    let _ = home.piw(&["state", "verify", "--backup", text(&backup)]).exits(0);
}

#[test]
fn wrong_backups_are_refused_and_nothing_is_written() {
    let home = home();
    completed(&home);
    let relative = home.piw(&["state", "backup", "backup.sqlite"]).exits(2);
    assert!(relative.stderr.contains("absolute path"), "{}", relative.stderr);
    let existing = home.project().join("existing");
    fs::write(&existing, "mine").unwrap();
    let refused = home.piw(&["state", "backup", text(&existing)]).exits(5);
    assert!(refused.stderr.contains("exists"), "{}", refused.stderr);
    assert_eq!(fs::read(&existing).unwrap(), b"mine");
    let dangling = home.project().join("dangling");
    symlink("/nowhere/at/all", &dangling).unwrap();
    let _ = home.piw(&["state", "backup", text(&dangling)]).exits(5);
    let missing = home.project().join("no/such/dir/backup.sqlite");
    let refused = home.piw(&["state", "backup", text(&missing)]).exits(3);
    assert!(refused.stderr.contains("No such file"), "{}", refused.stderr);
    let reserved = home.state().join("state.sqlite-journal");
    let refused = home.piw(&["state", "backup", text(&reserved)]).exits(2);
    assert!(refused.stderr.contains("database in use"), "{}", refused.stderr);
    assert!(!reserved.exists() && !missing.exists());
    let over = home.piw(&["state", "backup", text(&database(&home))]).exits(5);
    assert!(over.stderr.contains("exists"), "{}", over.stderr);
    let _ = home.piw(&["state", "verify"]).exits(0);
}

#[test]
fn the_database_in_use_is_no_backup_under_any_path() {
    let home = home();
    completed(&home);
    let link = home.project().join("link");
    symlink(database(&home), &link).unwrap();
    let hard = home.state().join("hard");
    fs::hard_link(database(&home), &hard).unwrap();
    let dotted = home.state().join("../state/./state.sqlite");
    for path in [&database(&home), &link, &hard, &dotted] {
        let refused = home.piw(&["state", "verify", "--backup", text(path)]).exits(5);
        assert!(refused.stderr.contains("the database in use"), "{}", refused.stderr);
    }
    let _ = home.piw(&["state", "verify"]).exits(0);
    let missing = home.piw(&["state", "verify", "--backup", "/no/such/backup"]).exits(4);
    assert!(missing.stderr.contains("/no/such/backup"), "{}", missing.stderr);
    let text_file = home.project().join("text");
    fs::write(&text_file, "x".repeat(5000)).unwrap();
    let refused = home.piw(&["state", "verify", "--backup", text(&text_file)]).exits(1);
    assert!(refused.stderr.contains("not a SQLite database"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("start again"), "{}", refused.stderr);
}

#[test]
fn a_damaged_backup_is_told() {
    let home = home();
    completed(&home);
    let backup = home.project().join("backup.sqlite");
    let _ = home.piw(&["state", "backup", text(&backup)]).exits(0);
    let mut bytes = fs::read(&backup).unwrap();
    for page in bytes.chunks_mut(4096).skip(3).step_by(5) {
        page[..64].fill(0xff);
    }
    fs::write(&backup, bytes).unwrap();
    let told = home.piw(&["state", "verify", "--backup", text(&backup)]).exits(1);
    assert!(!(told.stdout + &told.stderr).is_empty());
}

#[test]
fn a_prune_shows_what_would_go_and_then_removes_it_everywhere() {
    let home = home();
    let (old, young) = (completed(&home), completed(&home));
    let _ = home.piw(&["server", "stop"]).exits(0);
    age(&home, &[&old], 10);
    let counted = home
        .piw(&["state", "prune", "--before", "5d", "--dry-run", "--json"])
        .exits(0)
        .json();
    assert_eq!((&counted["trees"], &counted["applied"]), (&1.into(), &false.into()));
    assert_eq!(counted["first"][0]["runId"], *old);
    let mut both = vec![old.clone(), young.clone()];
    both.sort();
    assert_eq!(listed(&home), both, "a dry run deletes nothing");

    let backup = home.project().join("before.sqlite");
    let arguments = ["state", "prune", "--before", "5d", "--backup", text(&backup), "--apply"];
    let pruned = home.piw(&arguments).exits(0).stdout;
    assert!(pruned.contains("deleted 1 run in 1 tree"), "{pruned}");
    assert_eq!(listed(&home), [young]);
    let _ = home.piw(&["show", &old]).exits(4);
    wait::until("its rows are purged", || {
        let status = home.piw(&["state", "status", "--json"]).exits(0).json();
        (status["deletedRuns"] == 0).then_some(())
    });
    let _ = home.piw(&["state", "verify"]).exits(0);
    // What was deleted is in the backup.
    let other = self::home();
    fs::create_dir_all(other.state()).unwrap();
    fs::copy(&backup, database(&other)).unwrap();
    assert_eq!(listed(&other), both);
}

#[test]
fn a_prune_says_what_is_wrong_with_how_it_was_asked() {
    let home = home();
    completed(&home);
    for wrong in [
        &["state", "prune", "--before", "5d"][..],
        &["state", "prune", "--dry-run"],
        &["state", "prune", "--before", "5d", "--apply"],
        &["state", "prune", "--before", "5d", "--dry-run", "--apply"],
        &["state", "prune", "--before", "5d", "--backup", "/x"],
        &["state", "prune", "--before", "soon", "--dry-run"],
        &["state", "prune", "--before", "2999-01-01", "--dry-run"],
        &["state", "prune", "--before", "5d", "--backup", "relative", "--apply"],
    ] {
        let refused = home.piw(wrong).exits(2);
        assert!(!refused.stderr.is_empty(), "{wrong:?}");
    }
}

#[test]
fn the_sweep_removes_what_is_old_enough_by_itself() {
    let home = home();
    let (old, young) = (completed(&home), completed(&home));
    let _ = home.piw(&["server", "stop"]).exits(0);
    age(&home, &[&old], 31);
    age(&home, &[&young], 29);
    let db = rusqlite::Connection::open(database(&home)).unwrap();
    db.execute("UPDATE workflow_server_state SET last_sweep_at = NULL", [])
        .unwrap();
    drop(db);
    let _ = home.piw(&["server", "start"]).exits(0);
    wait::until("the sweep is complete", || {
        let status = home.piw(&["server", "status", "--json"]).exits(0).json();
        status["lastSweep"].is_string().then_some(())
    });
    assert_eq!(listed(&home), [young]);
    let status = home.piw(&["state", "status", "--json"]).exits(0).json();
    assert_eq!(status["deletedRuns"], 0);
    assert!(status["nextSweep"].as_str() > status["lastSweep"].as_str());
    let _ = home.piw(&["state", "verify"]).exits(0);
}
