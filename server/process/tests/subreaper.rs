//! A daemon that left its session is found through the subreaper. A binary of its own: it ends every descendant of its process,
//! which would take the commands of tests on other threads along.
#![cfg(all(test, target_os = "linux"))]

use std::process::{Command, Stdio};
use std::time::Duration;

use piw_process::hold::{ExitState, Held};
use piw_process::{Liveness, group, tree};

#[tokio::test]
async fn a_daemon_that_left_its_session_is_found_through_the_subreaper() {
    tree::become_subreaper().unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "setsid sh -c 'echo $$; exec sleep 300' & exit 0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut command = Held::spawn(shell).unwrap().release().unwrap();
    assert_eq!(command.exited().await.unwrap(), ExitState::Code(0));
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(command.stdio.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let daemon = piw_process::ProcessIdentity::of(line.trim().parse().unwrap())
        .unwrap()
        .unwrap();
    assert!(
        group::living_members(&command.identity).unwrap().is_empty(),
        "it is not in the command's group"
    );
    let leader = command.identity.pid;
    group::end_descendants(std::process::id(), Duration::from_secs(5), &[leader])
        .await
        .unwrap();
    assert_eq!(daemon.liveness().unwrap(), Liveness::Gone);
}
