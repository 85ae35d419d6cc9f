//! The server's life as commands show it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use piw_tests::home::Home;

#[test]
fn status_of_no_server_is_unavailable_and_start_is_idempotent() {
    let home = Home::new();
    let status = home.piw(&["server", "status"]).exits(3);
    assert!(status.stderr.contains("piw server start"), "{}", status.stderr);
    let _ = home.piw(&["server", "start"]).exits(0);
    let first = home.server_pid();
    let _ = home.piw(&["server", "start"]).exits(0);
    assert_eq!(home.server_pid(), first);
    let report = home.piw(&["server", "status", "--json"]).exits(0).json();
    assert_eq!(report["pid"].as_i64().map(|pid| i32::try_from(pid).unwrap()), first);
    assert_eq!(report["activeRunners"], 0);
    let _ = home.piw(&["server", "stop"]).exits(0);
    assert_eq!(home.server_pid(), None);
}

#[test]
fn two_starts_at_once_yield_one_server_and_two_successes() {
    let home = Home::new();
    let children: Vec<_> = (0..2)
        .map(|_| home.spawn(&["server", "start"], std::process::Stdio::null()))
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(home.server_pid().is_some());
}

#[test]
fn a_second_attached_server_refuses_and_the_first_goes_on() {
    let home = Home::new();
    let _ = home.piw(&["server", "start"]).exits(0);
    let pid = home.server_pid().unwrap();
    let second = home.piw(&["server", "run"]);
    assert_ne!(second.code, Some(0));
    assert!(
        second.stderr.contains(&pid.to_string()),
        "names the running server: {}",
        second.stderr
    );
    assert_eq!(home.server_pid(), Some(pid));
}

#[test]
fn a_socket_path_too_long_is_reported_with_its_length() {
    let long = format!("/tmp/{}/server.sock", "x".repeat(120));
    let home = Home::new().env("PIW_SOCKET", &long);
    let status = home.piw(&["server", "start"]);
    assert_ne!(status.code, Some(0));
    assert!(status.stderr.contains(&long.len().to_string()), "{}", status.stderr);
}

#[test]
fn no_autostart_is_respected() {
    let home = Home::new().env("PIW_NO_AUTOSTART", "1");
    let ps = home.piw(&["ps"]).exits(3);
    assert!(ps.stderr.contains("PIW_NO_AUTOSTART"), "{}", ps.stderr);
}

#[test]
fn a_database_of_another_program_is_left_untouched() {
    let home = Home::new();
    std::fs::create_dir_all(home.state()).unwrap();
    let path = home.state().join("state.sqlite");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE mine(x); INSERT INTO mine VALUES (1);")
        .unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    let start = home.piw(&["server", "start"]);
    assert_ne!(start.code, Some(0));
    assert!(start.stderr.contains("state.sqlite"), "{}", start.stderr);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn garbage_on_the_socket_closes_only_that_connection() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let home = Home::new();
    let _ = home.piw(&["server", "start"]).exits(0);
    let socket = home.state().join("server/server.sock");
    let mut bad = UnixStream::connect(&socket).unwrap();
    bad.set_read_timeout(Some(piw_tests::wait::DEADLINE)).unwrap();
    bad.write_all(b"this is no frame\n").unwrap();
    let mut text = Vec::new();
    bad.read_to_end(&mut text).unwrap();
    let mut half = UnixStream::connect(&socket).unwrap();
    half.write_all(b"{\"schema\":").unwrap();
    let mut flood = UnixStream::connect(&socket).unwrap();
    flood.set_write_timeout(Some(piw_tests::wait::DEADLINE)).unwrap();
    let chunk = vec![b'x'; 1 << 16];
    let mut refused = false;
    for _ in 0..64 {
        if flood.write_all(&chunk).is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused, "four megabytes without a newline are not swallowed");
    let _ = home.piw(&["server", "status"]).exits(0);
}
