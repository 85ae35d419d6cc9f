//! Viewers over `ssh`, with an `ssh` that runs its command on this machine.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use nix::sys::signal::Signal;
use piw_tests::home::{Home, is_running};
use piw_tests::relay::FakeSsh;
use piw_tests::terminal::Terminal;
use piw_tests::wait;

/// Waits at a checkpoint, so that its view offers something.
fn asking(home: &Home, name: &str, title: &str) -> String {
    let source = format!(
        r#"
import {{ checkpoint, compute, defineWorkflow }} from "piw";
export default defineWorkflow({{
  name: "{name}",
  title: "{title}",
  startAt: "ask",
  nodes: {{ ask: checkpoint({{ summary: "Go on?" }}), after: compute({{ run: () => 1 }}) }},
  edges: [{{ from: "ask", to: "after" }}],
}});
"#
    );
    home.workflow(name, &source);
    let started = home.piw(&["run", name, "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    home.wait_for_status(&run_id, &["waiting"]);
    run_id
}

/// A viewer's own home, whose `ssh` is the given one.
fn watcher(ssh: &FakeSsh) -> Home {
    Home::new().env("PIW_SSH", ssh.path().to_str().unwrap())
}

fn ssh_is_gone(ssh: &FakeSsh) {
    let calls = ssh.calls();
    assert!(!calls.is_empty(), "ssh was run");
    for (pid, call) in calls {
        wait::until(&format!("ssh ({call}) has ended"), || (!is_running(pid)).then_some(()));
    }
}

#[test]
fn a_run_of_another_machine_is_watched_and_answered_over_ssh() {
    let gpu = Home::new();
    let run_id = asking(&gpu, "asking", "A question");
    let ssh = FakeSsh::new(&[("gpu", &gpu)]);
    let home = watcher(&ssh);
    let mut viewer = Terminal::start(&home, &["--ssh", "gpu"], 40, 120);
    viewer.wait("the run can be answered", |screen| {
        screen.contains("A question") && screen.contains("a answer")
    });
    let (_, call) = ssh.calls().remove(0);
    assert!(call.contains("BatchMode=yes") && call.contains("-T"), "{call}");
    assert!(call.ends_with("-- gpu piw relay --stdio"), "{call}");
    viewer.send(b"a");
    viewer.wait("the dialog is open", |screen| screen.contains("Go on?"));
    viewer.send(b"1\r");
    gpu.wait_for_end(&run_id);
    viewer.wait("the end is shown", |screen| screen.contains("completed"));
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
    ssh_is_gone(&ssh);
    assert!(home.server_pid().is_none(), "no server was started on this machine");
}

#[test]
fn the_runs_of_two_machines_are_one_list_and_each_is_commanded_where_it_is() {
    let (build, gpu) = (Home::new(), Home::new());
    let older = asking(&build, "older", "Older question");
    let newer = asking(&gpu, "newer", "Newer question");
    let ssh = FakeSsh::new(&[("build", &build), ("gpu", &gpu)]);
    let home = watcher(&ssh);
    let mut viewer = Terminal::start(&home, &["--ssh", "build", "--ssh", "gpu", "--ssh", "nowhere"], 40, 120);
    viewer.wait("both lists and all three hosts are shown", |screen| {
        let row = |title: &str, host: &str| screen.lines().any(|line| line.contains(title) && line.contains(host));
        row("Newer question", " gpu ")
            && row("Older question", " build ")
            && screen.contains("build   live · 1 run")
            && screen.contains("nowhere attempt ")
            && screen.contains("ssh knows no host nowhere")
    });
    let place = |screen: &str, title: &str| screen.find(title).unwrap();
    let screen = viewer.screen();
    assert!(
        place(&screen, "Newer question") < place(&screen, "Older question"),
        "{screen}"
    );
    viewer.wait("the newest can be answered", |screen| {
        screen.contains("a answer") && screen.contains("gpu · live")
    });
    viewer.send(b"a");
    viewer.wait("the dialog is open", |screen| screen.contains("Go on?"));
    viewer.send(b"1\r");
    gpu.wait_for_end(&newer);
    // One machine goes; the other one is worked with as before.
    ssh.set_down("gpu", true);
    for (pid, call) in ssh.calls() {
        if call.contains("-- gpu ") {
            piw_tests::home::kill_and_wait(pid);
        }
    }
    viewer.wait("it is stale with attempt and delay", |screen| {
        screen.contains("gpu     stale · attempt ")
    });
    assert!(viewer.screen().contains("Newer question"), "its runs stay");
    viewer.send(b"j");
    viewer.wait("the other machine's run can be answered", |screen| {
        screen.contains("build · live") && screen.contains("a answer")
    });
    viewer.send(b"a");
    viewer.wait("the dialog is open", |screen| screen.contains("Go on?"));
    viewer.send(b"2\r");
    build.wait_for_end(&older);
    ssh.set_down("gpu", false);
    viewer.wait("the first machine comes back by itself", |screen| {
        screen.contains("gpu     live · 1 run")
    });
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
    ssh_is_gone(&ssh);
}

#[test]
fn ssh_ends_with_the_viewer_however_that_ends() {
    let gpu = Home::new();
    asking(&gpu, "asking", "A question");
    for end in [None, Some(Signal::SIGTERM), Some(Signal::SIGHUP), Some(Signal::SIGKILL)] {
        let ssh = FakeSsh::new(&[("gpu", &gpu)]);
        let home = watcher(&ssh);
        let mut viewer = Terminal::start(&home, &["--ssh", "gpu"], 40, 120);
        viewer.wait("the run is shown", |screen| screen.contains("A question"));
        match end {
            None => viewer.send(b"q"),
            Some(signal) => viewer.signal(signal),
        }
        viewer.wait_for_exit();
        ssh_is_gone(&ssh);
    }
}

#[test]
fn an_ssh_that_does_not_leave_is_killed() {
    let gpu = Home::new();
    asking(&gpu, "asking", "A question");
    let ssh = FakeSsh::new(&[("gpu", &gpu)]).stubborn();
    let home = watcher(&ssh);
    let mut viewer = Terminal::start(&home, &["--ssh", "gpu"], 40, 120);
    viewer.wait("the run is shown", |screen| screen.contains("A question"));
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
    for (pid, _) in ssh.calls() {
        assert!(!is_running(pid), "ssh is gone when the viewer is");
    }
}

#[test]
fn a_server_that_was_stopped_over_there_stays_stopped_and_is_found_again() {
    let gpu = Home::new();
    asking(&gpu, "asking", "A question");
    let ssh = FakeSsh::new(&[("gpu", &gpu)]);
    let home = watcher(&ssh);
    let mut viewer = Terminal::start(&home, &["--ssh", "gpu"], 40, 120);
    viewer.wait("the run can be answered", |screen| screen.contains("a answer"));
    let _ = gpu.piw(&["server", "stop", "--now"]).exits(0);
    viewer.wait("further attempts are counted", |screen| screen.contains("attempt 3 "));
    assert!(gpu.server_pid().is_none(), "watching starts no server again");
    viewer.send(b"H");
    viewer.wait("the reason is shown", |screen| {
        screen.contains("gpu: piw on gpu failed: no server")
    });
    let _ = gpu.piw(&["server", "start"]).exits(0);
    viewer.wait("it is live again without a key", |screen| screen.contains("a answer"));
}

#[test]
fn a_lost_machine_is_stale_with_attempt_and_delay_and_comes_back_by_itself() {
    let gpu = Home::new();
    asking(&gpu, "asking", "A question");
    let ssh = FakeSsh::new(&[("gpu", &gpu)]);
    let home = watcher(&ssh);
    let mut viewer = Terminal::start(&home, &["--ssh", "gpu"], 40, 120);
    viewer.wait("the run can be answered", |screen| screen.contains("a answer"));
    ssh.set_down("gpu", true);
    let (pid, _) = ssh.calls().remove(0);
    piw_tests::home::kill_and_wait(pid);
    viewer.wait("the view is stale", |screen| {
        screen.contains("stale · reconnecting: attempt ")
    });
    assert!(viewer.screen().contains("A question") && !viewer.screen().contains("a answer"));
    viewer.wait("further attempts are counted", |screen| screen.contains("attempt 3 "));
    ssh.set_down("gpu", false);
    viewer.wait("it is live again without a key", |screen| screen.contains("a answer"));
    let last = ssh.calls().pop().unwrap().1;
    assert!(
        last.ends_with("relay --stdio --no-start"),
        "a stopped server stays stopped: {last}"
    );
    viewer.send(b"q");
    viewer.wait_for_exit();
    ssh_is_gone(&ssh);
}

#[test]
fn what_is_wrong_is_named_with_what_to_do() {
    let home = Home::new().env("PIW_SSH", "/nonexistent/ssh");
    let failed = home.piw(&["--ssh", "gpu"]).exits(3);
    assert!(
        failed.stderr.contains("/nonexistent/ssh") && failed.stderr.contains("PIW_SSH"),
        "{}",
        failed.stderr
    );
    let hello = r#"{"connectionId":"1","packageVersion":"9.9.9","schema":"pi-workflows.client.v1","type":"hello"}"#;
    let cases = [
        (
            String::new(),
            "ada@gpu: Permission denied (publickey).",
            255,
            "ssh gpu true",
        ),
        (
            String::new(),
            "ssh: Could not resolve hostname gpu",
            255,
            "knows no host gpu",
        ),
        (String::new(), "sh: 1: piw: not found", 127, "--remote-piw"),
        (String::new(), "error: unrecognized subcommand", 2, "install version"),
        ("Welcome!\n".to_owned(), "", 0, ".bashrc"),
        (format!("{hello}\n"), "", 0, "install the same piw on both machines"),
    ];
    for (output, errors, code, todo) in cases {
        let ssh = FakeSsh::failing(&output, errors, code);
        let home = watcher(&ssh);
        let failed = home.piw(&["--ssh", "gpu"]).exits(3);
        assert!(
            failed.stderr.contains("gpu") && failed.stderr.contains(todo),
            "{}",
            failed.stderr
        );
    }
    let home = Home::new();
    let refused = home.piw(&["some-run", "--ssh", "a", "--ssh", "b"]).exits(2);
    assert!(refused.stderr.contains("one host"), "{}", refused.stderr);
    let refused = home.piw(&["--ssh=-oProxyCommand=true"]).exits(2);
    assert!(refused.stderr.contains("-oProxyCommand"), "{}", refused.stderr);
    let refused = home.piw(&["--connect", "ws://192.0.2.1/ws?token=ab"]).exits(2);
    assert!(
        refused.stderr.contains("192.0.2.1") && refused.stderr.contains("--ssh"),
        "{}",
        refused.stderr
    );
    let refused = home.piw(&["--connect", "ws://127.0.0.1:1/ws?token=ab"]).exits(3);
    assert!(refused.stderr.contains("piw serve"), "{}", refused.stderr);
}

#[test]
fn one_frame_of_another_machine() {
    let gpu = Home::new();
    let run_id = asking(&gpu, "asking", "A question");
    let ssh = FakeSsh::new(&[("gpu", &gpu)]);
    let frame = watcher(&ssh).piw(&[&run_id, "--once", "--ssh", "gpu"]).exits(0).stdout;
    assert!(frame.contains("A question") && frame.lines().count() == 40, "{frame}");
    ssh_is_gone(&ssh);
}
