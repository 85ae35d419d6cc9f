//! Held commands, groups and descendants, with real processes.
#![cfg(test)]

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use piw_process::hold::{ExitState, Held};
use piw_process::{Liveness, group, tree};

/// `sh -c script` with piped output.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn read(from: Option<impl Read>) -> String {
    let mut text = String::new();
    from.unwrap().read_to_string(&mut text).unwrap();
    text
}

#[tokio::test]
async fn a_held_command_runs_nothing_until_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let held = Held::spawn(shell(&format!("touch {}; echo done", mark.display()))).unwrap();
    assert_eq!(held.identity().liveness().unwrap(), Liveness::Running);
    let members = tree::group_members(held.identity().pid).unwrap();
    assert_eq!(members.len(), 1, "it leads a group of its own");
    assert!(!mark.exists());
    let mut running = held.release().unwrap();
    assert_eq!(running.exited().await.unwrap(), ExitState::Code(0));
    assert_eq!(read(running.stdio.stdout.take()), "done\n");
    assert!(mark.exists());
    assert_eq!(
        running.identity.liveness().unwrap(),
        Liveness::Zombie,
        "the pid stays taken until the command is dropped"
    );
}

#[tokio::test]
async fn a_dropped_hold_ends_without_executing() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let held = Held::spawn(shell(&format!("touch {}", mark.display()))).unwrap();
    let identity = held.identity().clone();
    drop(held);
    while identity.liveness().unwrap() != Liveness::Gone {
        tokio::task::yield_now().await;
    }
    assert!(!mark.exists());
}

#[test]
fn a_missing_program_is_reported_by_release() {
    let held = Held::spawn(Command::new("/nonexistent/program")).unwrap();
    assert_eq!(held.release().unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_missing_working_directory_is_reported_by_spawn() {
    let mut command = shell("true");
    command.current_dir("/nonexistent/dir");
    assert_eq!(Held::spawn(command).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_signal_is_told_from_an_exit_code() {
    let mut killed = Held::spawn(shell("kill -9 $$")).unwrap().release().unwrap();
    assert_eq!(killed.exited().await.unwrap(), ExitState::Signal(9));
    let mut failed = Held::spawn(shell("exit 7")).unwrap().release().unwrap();
    assert_eq!(failed.exited().await.unwrap(), ExitState::Code(7));
}

#[tokio::test]
async fn many_commands_can_be_held_at_once() {
    let held: Vec<Held> = (0..16).map(|_| Held::spawn(shell("exit 3")).unwrap()).collect();
    let released = held
        .into_iter()
        .map(|one| tokio::task::spawn_blocking(move || one.release()));
    for running in released.collect::<Vec<_>>() {
        let mut running = running.await.unwrap().unwrap();
        assert_eq!(running.exited().await.unwrap(), ExitState::Code(3));
    }
}

#[tokio::test]
async fn a_group_that_obeys_is_terminated_and_one_that_does_not_is_killed() {
    let mut obeys = Held::spawn(shell("echo ready; sleep 60")).unwrap().release().unwrap();
    wait_for_line(&mut obeys.stdio.stdout);
    let ended = group::end(&obeys.identity, Duration::from_secs(20)).await.unwrap();
    assert_eq!(ended, group::Ended::Terminated);
    assert_eq!(obeys.exited().await.unwrap(), ExitState::Signal(15));

    let mut ignores = Held::spawn(shell("trap '' TERM; echo ready; while :; do sleep 1; done"))
        .unwrap()
        .release()
        .unwrap();
    wait_for_line(&mut ignores.stdio.stdout);
    let ended = group::end(&ignores.identity, Duration::from_millis(50)).await.unwrap();
    assert_eq!(ended, group::Ended::Killed);
    assert_eq!(ignores.exited().await.unwrap(), ExitState::Signal(9));
    assert_eq!(
        group::end(&ignores.identity, Duration::ZERO).await.unwrap(),
        group::Ended::AlreadyGone
    );
}

/// Reads up to the first line break, so that a trap is known to be installed.
fn wait_for_line(from: &mut Option<std::process::ChildStdout>) {
    let mut byte = [0];
    while byte != *b"\n" {
        from.as_mut().unwrap().read_exact(&mut byte).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_descendant_in_another_session_ends_with_the_group() {
    let script = "setsid sleep 300 & echo $!; wait; sleep 300";
    let mut command = Held::spawn(shell(script)).unwrap().release().unwrap();
    let mut lines = std::io::BufReader::new(command.stdio.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let daemon = piw_process::ProcessIdentity::of(line.trim().parse().unwrap())
        .unwrap()
        .unwrap();
    group::end(&command.identity, Duration::from_secs(5)).await.unwrap();
    assert_ne!(daemon.liveness().unwrap(), Liveness::Running);
}
