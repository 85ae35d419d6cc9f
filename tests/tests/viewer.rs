//! The viewer in a pseudo-terminal and its one frame, against a real server.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use piw_tests::home::Home;
use piw_tests::terminal::Terminal;

/// Ten nodes, a loop and a branch.
const TEN: &str = r#"
import { compute, defineWorkflow } from "piw";
const pass = (value) => compute({ run: () => value });
export default defineWorkflow({
  name: "ten",
  title: "Ten nodes",
  startAt: "prepare",
  nodes: {
    prepare: pass(1),
    fetch: pass(2),
    inspect: compute({ run: ({ outputs }) => ({ round: (outputs.inspect?.round ?? 0) + 1 }) }),
    decide: compute({ run: ({ outputs }) => ({ route: outputs.inspect.round < 3 ? "again" : "good" }) }),
    refine: pass(3),
    accept: pass(4),
    reject: pass(5),
    package: pass(6),
    publish: pass(7),
    report: pass(8),
  },
  edges: [
    { from: "prepare", to: "fetch" },
    { from: "fetch", to: "inspect" },
    { from: "inspect", to: "decide" },
    { from: "decide", switch: { on: "$output.route", cases: { again: "refine", good: "accept", bad: "reject" } } },
    { from: "refine", to: "inspect" },
    { from: "accept", to: "package" },
    { from: "package", to: "publish" },
    { from: "publish", to: "report" },
    { from: "reject", to: "report" },
  ],
});
"#;

const NODES: [&str; 10] = [
    "prepare", "fetch", "inspect", "decide", "refine", "accept", "reject", "package", "publish", "report",
];

fn ten(home: &Home) -> String {
    home.workflow("ten", TEN);
    home.piw(&["run", "ten", "--json"]).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn one_frame_holds_the_whole_graph() {
    let home = Home::new();
    let run_id = ten(&home);
    let frame = home.piw(&[run_id.as_str(), "--once"]).exits(0).stdout;
    let lines: Vec<&str> = frame.lines().collect();
    assert_eq!(lines.len(), 40);
    for node in NODES {
        assert!(frame.contains(node), "{node} is missing:\n{frame}");
    }
    assert!(frame.contains("completed"), "{frame}");
    assert!(!frame.contains('\u{1b}'));
    let again = home.piw(&[run_id.as_str(), "--once"]).exits(0).stdout;
    let graph = |frame: &str| frame.lines().skip(2).take(20).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        graph(&frame),
        graph(&again),
        "the same definition gives the same drawing"
    );
    let missing = home.piw(&["no-such-run", "--once"]).exits(4);
    assert!(missing.stderr.contains("no-such-run"));
}

#[test]
fn the_viewer_shows_runs_and_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let run_id = ten(&home);
    for (name, end) in [
        ("q", b"q".as_slice()),
        ("Ctrl-C", b"\x03"),
        ("SIGTERM", b""),
        ("SIGHUP", b""),
    ] {
        let mut terminal = Terminal::start(&home, &[], 40, 120);
        terminal.wait("the run is drawn", |screen| {
            screen.contains("Ten nodes") && screen.contains("inspect")
        });
        assert!(
            terminal.emulated().alternate_screen(),
            "{name}: drawn on the alternate screen"
        );
        match name {
            "SIGTERM" => terminal.signal(nix::sys::signal::Signal::SIGTERM),
            "SIGHUP" => terminal.signal(nix::sys::signal::Signal::SIGHUP),
            _ => terminal.send(end),
        }
        terminal.wait_for_exit();
        let screen = terminal.emulated();
        assert!(!screen.alternate_screen(), "{name}: back on the normal screen");
        assert!(!screen.hide_cursor(), "{name}: the cursor is visible");
        assert_eq!(
            screen.mouse_protocol_mode(),
            vt100::MouseProtocolMode::None,
            "{name}: no mouse reports"
        );
        assert!(!screen.bracketed_paste(), "{name}: no bracketed paste");
    }
    let _ = run_id;
}

/// `PAGER` is a program that tells about the file and the terminal, then reads a line like a program of its own.
#[test]
fn a_value_opens_in_the_pager_with_the_terminal_to_itself() {
    let pager = r#"telling() { echo "mode $(stat -c %a "$2" 2>/dev/null || stat -f %Lp "$2")"; head -c 30 "$2"; stty -a | grep -o ' icanon'; read key; echo "key $key"; exit "$1"; }; telling 3"#;
    let home = Home::new().env("PAGER", pager);
    let run_id = ten(&home);
    let mut terminal = Terminal::start(&home, &[run_id.as_str()], 40, 120);
    terminal.wait("the run is drawn", |screen| {
        screen.contains("Ten nodes") && screen.contains("report")
    });
    terminal.send(b"o");
    terminal.wait("the pager has the terminal", |screen| {
        screen.contains("mode 600") && screen.contains(r#""schema""#) && screen.contains(" icanon")
    });
    assert!(!terminal.emulated().alternate_screen(), "it is the normal screen");
    assert_eq!(
        terminal.emulated().mouse_protocol_mode(),
        vt100::MouseProtocolMode::None,
        "the mouse belongs to the pager"
    );
    terminal.resize(30, 100);
    terminal.send(b"q\r");
    terminal.wait("the viewer is back and tells how the pager ended", |screen| {
        screen.contains("Ten nodes") && screen.contains("exit code 3")
    });
    assert!(terminal.emulated().alternate_screen());
    terminal.send(b"?");
    terminal.wait("keys reach the viewer again", |screen| {
        screen.contains("help for the focused part")
    });
    terminal.send(b"\x1b");
    terminal.wait("the help is closed", |screen| {
        !screen.contains("help for the focused part")
    });
    terminal.send(b"q");
    terminal.wait_for_exit();
    assert!(!terminal.emulated().alternate_screen());
}

#[test]
fn a_killed_server_makes_the_view_stale_and_a_new_one_makes_it_live_again() {
    let home = Home::new();
    let run_id = ten(&home);
    let mut terminal = Terminal::start(&home, &[&run_id], 40, 120);
    terminal.wait("the run is live", |screen| screen.contains("inspect"));
    home.kill_server();
    terminal.wait("the view is stale", |screen| {
        screen.contains("stale") || screen.contains("reconnect")
    });
    assert!(terminal.screen().contains("inspect"), "the view stays");
    let _ = home.piw(&["server", "start"]).exits(0);
    terminal.wait("the view is live again", |screen| {
        !screen.contains("stale") && !screen.contains("reconnect")
    });
    terminal.send(b"q");
    terminal.wait_for_exit();
}

#[test]
fn small_and_changing_sizes_are_survived() {
    let home = Home::new();
    let run_id = ten(&home);
    let mut terminal = Terminal::start(&home, &[&run_id], 40, 120);
    terminal.wait("the run is drawn", |screen| screen.contains("inspect"));
    for (rows, cols) in [(20, 60), (3, 10), (1, 1), (80, 250), (24, 80)] {
        terminal.resize(rows, cols);
    }
    terminal.wait("it is drawn at 80 by 24", |screen| screen.contains("Ten nodes"));
    terminal.send(b"q");
    terminal.wait_for_exit();
}

#[test]
fn an_effect_is_reviewed_in_the_viewer() {
    let home = Home::new();
    home.workflow(
        "deploy",
        r#"
import { defineWorkflow, manualEffect, shell } from "piw";
export default defineWorkflow({
  name: "deploy",
  startAt: "send",
  nodes: { send: shell({ effect: manualEffect("release"), exec: () => ({ command: "sh", args: ["-c", "echo ran >> ran.txt; sleep 600"] }) }) },
  edges: [],
});
"#,
    );
    let started = home.piw(&["run", "deploy", "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    let ran = || std::fs::read_to_string(home.project().join("ran.txt")).unwrap_or_default();
    piw_tests::wait::until("the effect is being applied", || (ran() == "ran\n").then_some(()));
    let mut terminal = Terminal::start(&home, &[&run_id], 40, 120);
    terminal.wait("the run is live", |screen| screen.contains("running"));
    assert!(!terminal.screen().contains("e review"), "nothing to review yet");
    piw_tests::home::kill_and_wait(home.runner_pid());
    terminal.wait("the review is on offer", |screen| {
        screen.contains("ambiguous") && screen.contains("e review")
    });
    terminal.send(b"e");
    terminal.wait("the dialog says what it is", |screen| {
        screen.contains("Did it happen?") && screen.contains("manual effect") && screen.contains("release")
    });
    terminal.send(b"h");
    terminal.wait("it asks for the result", |screen| screen.contains("What did it give?"));
    // Ctrl-U empties the line.
    terminal.send(b"\x15{\"by\":\"hand\"}\r");
    terminal.wait("the run goes on and ends", |screen| {
        screen.contains("review: accepted") && screen.contains("completed")
    });
    terminal.send(b"q");
    terminal.wait_for_exit();
    let view = home.show(&run_id);
    assert_eq!(view["state"]["finalOutput"], serde_json::json!({"by": "hand"}));
    assert_eq!(ran(), "ran\n", "it was not applied again");
}
