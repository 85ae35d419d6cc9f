//! Whatever happens to the viewer's terminal or server: the terminal is as it was in the end, and nothing stale is acted on.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::Read as _;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use piw_tests::home::{Home, is_running, kill_and_wait};
use piw_tests::modes::Modes;
use piw_tests::terminal::Terminal;
use piw_tests::{wait, workflows};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::Value;

const QUICK: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "quick",
  title: "A quick one",
  startAt: "first",
  nodes: { first: compute({ run: () => 1 }), second: compute({ run: () => 2 }) },
  edges: [{ from: "first", to: "second" }],
});
"#;

/// Waits at a checkpoint, so that its view offers something.
const ASKING: &str = r#"
import { checkpoint, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "asking",
  title: "A question",
  startAt: "ask",
  nodes: { ask: checkpoint({ summary: "Go on?" }) },
  edges: [],
});
"#;

fn finished(home: &Home, name: &str, source: &str) -> String {
    home.workflow(name, source);
    home.piw(&["run", name, "--json"]).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn asking(home: &Home) -> String {
    home.workflow("asking", ASKING);
    let started = home.piw(&["run", "asking", "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    home.wait_for_status(&run_id, &["waiting"]);
    run_id
}

fn opened(home: &Home, run_id: &str) -> Terminal {
    let mut terminal = Terminal::start(home, &[run_id], 40, 120);
    drawn(&mut terminal);
    terminal
}

fn drawn(terminal: &mut Terminal) {
    terminal.wait("the run is drawn", |screen| {
        screen.contains("A quick one") && screen.contains("second") && screen.contains("completed")
    });
}

/// Line discipline, modes, colours and cursor are as before anything ran.
fn assert_sane(terminal: &Terminal, after: &str) {
    assert_eq!(Modes::after(terminal.written()), Modes::untouched(), "after {after}");
    assert!(terminal.is_as_before(), "after {after}: {}", terminal.discipline());
}

/// The terminal is the viewer's: otherwise "as before" would say nothing.
fn assert_taken(terminal: &Terminal) {
    let on = Modes::after(terminal.written()).on;
    for mode in [1000, 1004, 1006, 1049, 2004] {
        assert!(on.contains(&mode), "{mode} is off: {on:?}");
    }
    assert!(!on.contains(&25), "the cursor is hidden");
    assert!(!terminal.is_as_before(), "keys come unbuffered");
}

#[test]
fn every_end_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let ends: [(&str, &[u8], Option<Signal>, u32); 8] = [
        ("q", b"q", None, 0),
        ("Ctrl-C", b"\x03", None, 0),
        ("Ctrl-C in a dialog", b"?\x03", None, 0),
        ("SIGTERM", b"", Some(Signal::SIGTERM), 143),
        ("SIGHUP", b"", Some(Signal::SIGHUP), 129),
        ("SIGINT", b"", Some(Signal::SIGINT), 130),
        ("SIGQUIT", b"", Some(Signal::SIGQUIT), 131),
        ("SIGTERM while the help is open", b"?", Some(Signal::SIGTERM), 143),
    ];
    for (name, keys, signal, code) in ends {
        let mut terminal = opened(&home, &run_id);
        assert_taken(&terminal);
        terminal.send(keys);
        if let Some(signal) = signal {
            terminal.signal(signal);
        }
        assert_eq!(terminal.wait_for_exit(), code, "{name}");
        assert_sane(&terminal, name);
    }
}

/// Has the viewer draw until the terminal, which does not read, has no room any more.
fn fill(terminal: &mut Terminal) {
    terminal.stop_reading();
    wait::until("the terminal is full", || {
        // Every size is a whole frame. The keys open and close the help.
        for (rows, cols) in [(60, 200), (40, 120)] {
            terminal.resize(rows, cols);
            terminal.send(b"?");
        }
        terminal.is_full().then_some(())
    });
}

/// Nothing can be written to such a terminal, the sequences that give it back included, until what it has not read is given up.
#[test]
fn a_terminal_that_does_not_read_keeps_nobody_from_ending_the_viewer() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let ends: [(&str, &[u8], Option<Signal>, u32); 5] = [
        ("SIGTERM", b"", Some(Signal::SIGTERM), 143),
        ("SIGHUP", b"", Some(Signal::SIGHUP), 129),
        ("SIGINT", b"", Some(Signal::SIGINT), 130),
        ("Ctrl-C", b"\x03", None, 0),
        ("SIGTERM without a server", b"", Some(Signal::SIGTERM), 143),
    ];
    for (name, keys, signal, code) in ends {
        let mut terminal = opened(&home, &run_id);
        assert_taken(&terminal);
        fill(&mut terminal);
        if name.ends_with("without a server") {
            home.kill_server();
        }
        terminal.send(keys);
        if let Some(signal) = signal {
            terminal.signal(signal);
        }
        assert_eq!(terminal.wait_for_exit(), code, "{name}");
        assert!(terminal.is_as_before(), "{name}: {}", terminal.discipline());
        assert_ne!(
            Modes::after(terminal.written()),
            Modes::untouched(),
            "{name}: nothing was read"
        );
        terminal.read_again();
        assert_eq!(terminal.wait_for_exit(), code);
        assert_sane(&terminal, name);
    }
}

#[test]
fn a_terminal_that_reads_again_gets_the_newest_state() {
    let home = Home::new();
    let run_id = asking(&home);
    let mut terminal = Terminal::start(&home, &[&run_id], 40, 120);
    terminal.wait("the run can be answered", |screen| {
        screen.contains("a answer") && screen.contains("live")
    });
    fill(&mut terminal);
    let _ = home.piw(&["answer", &run_id, "\"the newest\""]).exits(0);
    home.wait_for_status(&run_id, &["completed"]);
    terminal.read_again();
    let is_newest = |screen: &str| screen.contains("✓ completed") && !screen.contains("Help");
    let mut again = Terminal::start(&home, &[&run_id], 40, 120);
    again.wait("another viewer shows it", is_newest);
    again.settle();
    // The help may be open: a key went for every size.
    terminal.send(b"\x1b");
    terminal.wait("the newest state is shown", is_newest);
    terminal.settle();
    assert_eq!(terminal.screen(), again.screen(), "whole, with nothing left over");
    terminal.send(b"q");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert_sane(&terminal, "reading again");
}

/// A real shell with job control: it is told that its job stopped, has a terminal as before, and `fg` brings the viewer back.
#[test]
fn a_shell_gets_its_terminal_while_the_viewer_is_stopped() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let script = format!(
        "set -m; stty -g > before; \"$PIW\" {run_id}; stty -g > stopped; echo SHELL; read word; fg > /dev/null; \
         stty -g > ended; echo \"ENDED $?\"; read word"
    );
    let mut terminal = Terminal::run(Terminal::script(&home, &script), 40, 120);
    let read = |name: &str| fs::read_to_string(home.project().join(name)).unwrap();
    drawn(&mut terminal);
    assert_taken(&terminal);
    terminal.send(b"\x1a");
    terminal.wait("the shell has its turn", |screen| screen.contains("SHELL"));
    assert_eq!(read("stopped"), read("before"));
    assert_sane(&terminal, "Ctrl-Z");
    terminal.resize(30, 100);
    terminal.send(b"go\r");
    drawn(&mut terminal);
    assert!(terminal.emulated().alternate_screen());
    terminal.send(b"?");
    terminal.wait("keys work again", |screen| screen.contains("help for the focused part"));
    terminal.send(b"\x1b");
    terminal.wait("the help is closed", |screen| {
        !screen.contains("help for the focused part")
    });
    terminal.send(b"q");
    terminal.wait("the viewer has ended", |screen| screen.contains("ENDED 0"));
    assert_eq!(read("ended"), read("before"));
    assert_sane(&terminal, "the end");
    terminal.send(b"\r");
    terminal.wait_for_exit();
}

/// As in `xterm -e piw`: whoever stopped there would stand still for ever.
#[test]
fn without_a_shell_ctrl_z_does_not_stop_the_viewer() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let mut terminal = opened(&home, &run_id);
    terminal.send(b"\x1a");
    terminal.wait("it says why not", |screen| screen.contains("there is no shell"));
    terminal.signal(Signal::SIGTSTP);
    terminal.send(b"?");
    terminal.wait("keys work", |screen| screen.contains("help for the focused part"));
    terminal.send(b"\x03");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert_sane(&terminal, "Ctrl-Z without a shell");
}

#[test]
fn a_closed_terminal_ends_the_viewer() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let size = PtySize {
        rows: 40,
        cols: 120,
        pixel_width: 0,
        pixel_height: 0,
    };
    for hangup in ["", "trap '' HUP; "] {
        let pair = native_pty_system().openpty(size).unwrap();
        let script = Terminal::script(&home, &format!("{hangup}exec \"$PIW\" {run_id}"));
        let mut child = pair.slave.spawn_command(script).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let mut seen = Vec::new();
        let mut chunk = [0; 4096];
        while !String::from_utf8_lossy(&seen).contains("second") {
            let count = reader.read(&mut chunk).unwrap();
            seen.extend_from_slice(&chunk[..count]);
        }
        drop((reader, pair.master));
        let status = wait::until("the viewer ends", || child.try_wait().unwrap());
        assert_ne!(status.exit_code(), 0, "{hangup:?}");
    }
    let _ = home.piw(&["server", "status"]).exits(0);
}

#[test]
fn a_storm_of_resizes_while_a_large_graph_is_drawn_is_survived() {
    let home = Home::new();
    let run_id = finished(&home, "wide", &workflows::chain("wide", "A large one", 90));
    let mut terminal = Terminal::start(&home, &[&run_id], 60, 200);
    terminal.wait("the run is drawn", |screen| screen.contains("A large one"));
    for round in 0..60_u16 {
        terminal.resize(10 + round * 7 % 50, 30 + round * 37 % 170);
        terminal.send(b"jz");
        let _ = terminal.bytes_within(Duration::from_millis(2));
    }
    terminal.resize(40, 120);
    terminal.send(b"?");
    terminal.wait("it is drawn at the last size", |screen| {
        screen.contains("any other key closes")
    });
    // Its frame may still be on its way.
    wait::until("the frame is whole", || {
        let _ = terminal.bytes_within(Duration::from_millis(20));
        let modes = Modes::after(terminal.written());
        (!modes.on.contains(&2026) && !modes.cut).then_some(())
    });
    terminal.resize(20, 60);
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.wait_for_exit(), 143);
    assert_sane(&terminal, "an end in the middle of a resize");
}

/// The pager leaves everything behind that a full-screen program may.
#[test]
fn a_signal_while_the_pager_is_open_leaves_the_terminal_as_it_was() {
    let untidy = r"untidy() { trap '' TERM HUP; stty raw -echo; printf '\033[?1049h\033[?1h\033[?25l\033[31mPAGER'; while :; do sleep 0.1; done; }; untidy";
    let tidy = r"tidy() { echo PAGER; read line; }; tidy";
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    for (pager, signal, code) in [
        (untidy, Signal::SIGTERM, 143),
        (untidy, Signal::SIGHUP, 129),
        (tidy, Signal::SIGTERM, 143),
    ] {
        let mut command = Terminal::command(&home, &[&run_id]);
        command.env("PAGER", pager);
        let mut terminal = Terminal::run(command, 40, 120);
        drawn(&mut terminal);
        terminal.send(b"o");
        terminal.wait("the pager has the terminal", |screen| screen.contains("PAGER"));
        terminal.signal(signal);
        assert_eq!(terminal.wait_for_exit(), code);
        assert_sane(&terminal, &format!("{signal} with {pager}"));
    }
}

/// A run in a terminal of that kind, and the screen after its end.
fn visit(home: &Home, run_id: &str, change: impl Fn(&mut CommandBuilder)) -> (String, Vec<u8>) {
    let mut command = Terminal::command(home, &[run_id]);
    change(&mut command);
    let mut terminal = Terminal::run(command, 40, 120);
    drawn(&mut terminal);
    let seen = terminal.screen();
    let frame = terminal.written().to_vec();
    terminal.send(b"q");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert_sane(&terminal, "q");
    (seen, frame)
}

#[test]
fn a_terminal_with_few_colours_sees_the_same_text() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let (full, colourful) = visit(&home, &run_id, |_| {});
    let coloured = |bytes: &[u8], form: &str| String::from_utf8_lossy(bytes).contains(form);
    assert!(coloured(&colourful, "\x1b[38;2;"), "24 bits");
    let (named, frame) = visit(&home, &run_id, |command| {
        command.env_remove("TERM");
        command.env_remove("COLORTERM");
    });
    assert!(!coloured(&frame, "38;2;") && !coloured(&frame, "48;2;"), "no 24 bits");
    let (plain, frame) = visit(&home, &run_id, |command| command.env("NO_COLOR", "1"));
    for form in [
        "38;2;", "38;5;", "48;2;", "48;5;", "\x1b[31m", "\x1b[32m", "\x1b[91m", "\x1b[94m",
    ] {
        let text = String::from_utf8_lossy(&frame);
        let at = text
            .find(form)
            .map(|at| text[at..].chars().take(60).collect::<String>());
        assert_eq!(at, None, "NO_COLOR and {form:?}");
    }
    let text = |screen: &str| screen.lines().take(20).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(text(&named), text(&full));
    assert_eq!(text(&plain), text(&full));
}

/// What such a terminal shows: everything but the switch to the alternate screen.
#[test]
fn without_an_alternate_screen_nothing_is_left_over() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    let (rows, cols) = (40_u16.try_into().unwrap(), 120_u16.try_into().unwrap());
    let mut plain = vt100::Parser::new(rows, cols, 0);
    plain.process("debris of the shell\r\n".repeat(40).as_bytes());
    let show = |parser: &mut vt100::Parser, bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        parser.process(text.replace("\x1b[?1049h", "").replace("\x1b[?1049l", "").as_bytes());
        parser.screen().contents()
    };
    let mut terminal = opened(&home, &run_id);
    let during = terminal.written().len();
    let seen = show(&mut plain, terminal.written());
    assert_eq!(seen, terminal.screen(), "nothing shows through");
    terminal.send(b"q");
    terminal.wait_for_exit();
    let left = show(&mut plain, &terminal.written()[during..]);
    assert_eq!(left.trim(), "", "the shell goes on with an empty screen");
    assert_eq!(plain.screen().cursor_position(), (0, 0));
}

#[test]
fn where_no_viewer_can_be_shown_it_says_so_and_touches_nothing() {
    let home = Home::new();
    let run_id = finished(&home, "quick", QUICK);
    for (script, said) in [
        ("TERM=dumb \"$PIW\" RUN", "TERM says that this one is dumb"),
        ("\"$PIW\" RUN < /dev/null", "standard input is not one"),
        ("\"$PIW\" RUN > out", "standard output is not one"),
        ("\"$PIW\" RUN | cat", "standard output is not one"),
    ] {
        let script = format!("{} ; echo \"code $?\"", script.replace("RUN", &run_id));
        let mut terminal = Terminal::run(Terminal::script(&home, &script), 40, 120);
        assert_eq!(terminal.wait_for_exit(), 0);
        let screen = terminal.screen().replace('\n', "");
        assert!(screen.contains(said) && screen.contains("--once"), "{script}: {screen}");
        assert!(
            script.contains("| cat") || screen.contains("code 2"),
            "{script}: {screen}"
        );
        assert!(!terminal.written().contains(&0x1b), "{script}: no control sequence");
        assert_sane(&terminal, &script);
    }
    assert_eq!(fs::read_to_string(home.project().join("out")).unwrap(), "");
}

fn revisions(home: &Home, run_id: &str) -> (Value, Value, Value) {
    let view = home.show(run_id);
    let trace = view["tracePage"]["total"].clone();
    (view["runRevision"].clone(), view["display"]["status"].clone(), trace)
}

const STALE: &str = "the view is stale: nothing can be done";

/// Presses every control; each must be refused with words. A toast is waited away so that the next one proves itself.
fn assert_refuses_everything(viewer: &mut Terminal) {
    for key in [b"p", b"r", b"c", b"R", b"a", b"e"] {
        viewer.send(key);
        let name = String::from_utf8_lossy(key).into_owned();
        viewer.wait(&format!("{name} is refused"), |screen| screen.contains(STALE));
        viewer.wait("the words are gone again", |screen| !screen.contains(STALE));
    }
    assert!(!viewer.screen().contains("Sure?"), "{}", viewer.screen());
}

#[test]
fn a_view_without_its_server_refuses_every_control_and_comes_back_by_itself() {
    let home = Home::new();
    let run_id = asking(&home);
    let mut viewer = Terminal::start(&home, &[&run_id], 40, 120);
    viewer.wait("the run can be answered", |screen| {
        screen.contains("a answer") && screen.contains("live")
    });
    let before = revisions(&home, &run_id);
    home.kill_server();
    viewer.wait("the view is stale, with attempt and delay", |screen| {
        screen.contains("stale · reconnecting: attempt ") && screen.contains(" in ")
    });
    assert!(viewer.screen().contains("A question"), "the view stays");
    assert_refuses_everything(&mut viewer);
    let _ = home.piw(&["server", "start"]).exits(0);
    viewer.wait("it is live again without a key", |screen| {
        screen.contains("a answer") && !screen.contains("reconnecting") && !screen.contains("disconnected")
    });
    assert_eq!(revisions(&home, &run_id), before, "nothing was sent");
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
    assert_sane(&viewer, "a lost server");
}

#[test]
fn a_dialog_from_before_sends_nothing_while_stale_and_keeps_what_was_typed() {
    let home = Home::new();
    let run_id = asking(&home);
    let before = revisions(&home, &run_id);
    let mut viewers = [b"c", b"a"].map(|key| {
        let mut viewer = Terminal::start(&home, &[&run_id], 40, 120);
        viewer.wait("the run can be answered", |screen| {
            screen.contains("a answer") && screen.contains("live")
        });
        viewer.send(key);
        viewer
    });
    let [cancelling, answering] = &mut viewers;
    cancelling.wait("it asks first", |screen| screen.contains("Sure?"));
    answering.wait("it asks for the answer", |screen| screen.contains("Go on?"));
    answering.send(b"\"typed before\"");
    answering.wait("it was typed", |screen| screen.contains("typed before"));
    home.kill_server();
    for viewer in [&mut *cancelling, &mut *answering] {
        viewer.wait("the view is stale", |screen| screen.contains("stale · "));
        viewer.send(b"\r");
        viewer.wait("nothing is sent", |screen| screen.contains(STALE));
    }
    assert!(cancelling.screen().contains("Sure?"), "the dialog stays");
    assert!(answering.screen().contains("typed before"), "the text stays");
    let _ = home.piw(&["server", "start"]).exits(0);
    for viewer in [&mut *cancelling, &mut *answering] {
        viewer.wait("live again", |screen| {
            screen.contains("live") && !screen.contains("stale · ")
        });
    }
    assert_eq!(revisions(&home, &run_id), before, "nothing was sent");
    answering.send(b"\r");
    let view = home.wait_for_status(&run_id, &["completed"]);
    assert_eq!(
        view["state"]["finalOutput"], "typed before",
        "what was kept can be sent"
    );
}

/// Its effect is being applied until its runner is killed.
const DEPLOY: &str = r#"
import { defineWorkflow, manualEffect, shell } from "piw";
export default defineWorkflow({
  name: "deploy",
  title: "A deployment",
  startAt: "send",
  nodes: {
    send: shell({
      effect: manualEffect("release"),
      exec: () => ({ command: "sh", args: ["-c", "echo ran >> ran.txt; [ -e go ] || sleep 600"] }),
    }),
  },
  edges: [],
});
"#;

const FAILING: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "failing",
  title: "A failure",
  startAt: "fail",
  nodes: { fail: compute({ run: () => { throw new Error("on purpose"); } }) },
  edges: [],
});
"#;

fn ran(home: &Home) -> usize {
    let told = fs::read_to_string(home.project().join("ran.txt")).unwrap_or_default();
    told.lines().count()
}

/// A run that can be resumed, one that can be restarted, and one with an effect to review.
fn resumable_restartable_reviewable(home: &Home) -> [String; 3] {
    home.workflow("deploy", DEPLOY);
    let started = home.piw(&["run", "deploy", "--detach", "--json"]).exits(0).json();
    let reviewable = started["runId"].as_str().unwrap().to_owned();
    wait::until("the effect is being applied", || (ran(home) == 1).then_some(()));
    kill_and_wait(home.runner_pid());
    home.wait_for_status(&reviewable, &["ambiguous"]);
    let resumable = asking(home);
    let _ = home.piw(&["pause", &resumable]).exits(0);
    home.wait_for_status(&resumable, &["paused"]);
    home.workflow("failing", FAILING);
    let failed = home.piw(&["run", "failing", "--json"]).json();
    [resumable, failed["runId"].as_str().unwrap().to_owned(), reviewable]
}

/// Key and button of each control in the order of [`resumable_restartable_reviewable`], and what stands in its dialog.
const LATER: [(&[u8], &str, &str); 3] = [
    (b"r", "r resume", "there is none"),
    (b"R", "R restart", "Sure?"),
    (b"e", "e review", "Did it happen?"),
];

fn wait_until_stale(viewers: &mut [Terminal]) {
    for viewer in viewers {
        viewer.wait("the view is stale", |screen| {
            screen.contains("stale · reconnecting: attempt ")
        });
    }
}

fn wait_until_live(viewers: &mut [Terminal]) {
    for (viewer, (_, button, _)) in viewers.iter_mut().zip(LATER) {
        let lost = ["stale", "reconnecting", "disconnected"];
        viewer.wait("the view is live and offers its control", |screen| {
            screen.contains(button) && lost.iter().all(|word| !screen.contains(word))
        });
    }
}

fn run_count(home: &Home) -> usize {
    let listed = home.piw(&["ps", "--json"]).exits(0).json();
    listed.as_array().unwrap().len()
}

#[test]
fn a_stale_view_resumes_restarts_and_reviews_nothing_and_a_live_one_does() {
    let home = Home::new();
    let runs = resumable_restartable_reviewable(&home);
    let state = || runs.each_ref().map(|run_id| revisions(&home, run_id));
    let before = state();
    let mut viewers = runs.each_ref().map(|run_id| Terminal::start(&home, &[run_id], 40, 120));
    wait_until_live(&mut viewers);
    let buttons: Vec<(usize, usize)> = viewers
        .iter()
        .zip(LATER)
        .map(|(viewer, (_, button, _))| viewer.place(button))
        .collect();
    home.kill_server();
    wait_until_stale(&mut viewers);
    for ((viewer, (key, button, dialog)), at) in viewers.iter_mut().zip(LATER).zip(buttons) {
        assert!(
            !viewer.screen().contains(button),
            "{button} is not on offer: {}",
            viewer.screen()
        );
        // What was a button is none; the key after the click tells that both were taken.
        viewer.click_at(at);
        viewer.send(key);
        viewer.wait(&format!("{button} is refused"), |screen| screen.contains(STALE));
        assert!(!viewer.screen().contains(dialog), "{button}: {}", viewer.screen());
        // The palette offers every action by name.
        viewer.wait("the words are gone again", |screen| !screen.contains(STALE));
        viewer.send(b":");
        viewer.send(&button.as_bytes()[2..]);
        let typed = format!(": {}", &button[2..]);
        viewer.wait("the palette is open", |screen| screen.contains(&typed));
        viewer.send(b"\r");
        viewer.wait(&format!("{button} is refused in the palette"), |screen| {
            screen.contains(STALE)
        });
        assert!(!viewer.screen().contains(dialog), "{button}: {}", viewer.screen());
    }
    let _ = home.piw(&["server", "start"]).exits(0);
    wait_until_live(&mut viewers);
    assert_eq!(state(), before, "nothing was sent");
    assert_eq!(run_count(&home), 3, "no run was made");

    let [resuming, restarting, reviewing] = &mut viewers;
    resuming.send(b"r");
    home.wait_for_status(&runs[0], &["waiting"]);
    restarting.send(b"R");
    restarting.wait("it asks first", |screen| screen.contains("Sure?"));
    restarting.send(b"y");
    wait::until("a new run was made", || (run_count(&home) == 4).then_some(()));
    fs::write(home.project().join("go"), "").unwrap();
    reviewing.click("e review");
    reviewing.wait("it asks", |screen| screen.contains("Did it happen?"));
    reviewing.send(b"dy");
    home.wait_for_status(&runs[2], &["completed"]);
    assert_eq!(ran(&home), 2, "it was done again, once");
}

#[test]
fn dialogs_from_before_restart_and_review_nothing_while_stale() {
    let home = Home::new();
    let runs = resumable_restartable_reviewable(&home);
    let state = || runs.each_ref().map(|run_id| revisions(&home, run_id));
    let before = state();
    let mut viewers = runs.each_ref().map(|run_id| Terminal::start(&home, &[run_id], 40, 120));
    wait_until_live(&mut viewers);
    let [_, restarting, reviewing] = &mut viewers;
    restarting.send(b"R");
    restarting.wait("it asks first", |screen| screen.contains("Sure?"));
    reviewing.send(b"ed");
    reviewing.wait("it asks once more", |screen| screen.contains("happened twice"));
    home.kill_server();
    wait_until_stale(&mut viewers[1..]);
    let [_, restarting, reviewing] = &mut viewers;
    for (viewer, dialog) in [(&mut *restarting, "Sure?"), (&mut *reviewing, "happened twice")] {
        viewer.send(b"y");
        viewer.wait("the key is refused", |screen| screen.contains(STALE));
        viewer.wait("the words are gone again", |screen| !screen.contains(STALE));
        viewer.click("[y]");
        viewer.wait("the button is refused", |screen| screen.contains(STALE));
        assert!(
            viewer.screen().contains(dialog),
            "the dialog stays: {}",
            viewer.screen()
        );
    }
    let _ = home.piw(&["server", "start"]).exits(0);
    for viewer in &mut viewers[1..] {
        viewer.wait("live again", |screen| !screen.contains("stale"));
    }
    assert_eq!(state(), before, "nothing was sent");
    assert_eq!(run_count(&home), 3);
    let [_, restarting, reviewing] = &mut viewers;
    fs::write(home.project().join("go"), "").unwrap();
    for viewer in [restarting, reviewing] {
        viewer.send(b"y");
    }
    wait::until("a new run was made", || (run_count(&home) == 4).then_some(()));
    home.wait_for_status(&runs[2], &["completed"]);
    assert_eq!(ran(&home), 2);
}

/// Nobody closes the connection of a stopped server: silence is what tells.
#[test]
fn a_stopped_server_makes_the_view_stale() {
    let home = Home::new();
    let run_id = asking(&home);
    let mut viewer = Terminal::start(&home, &[&run_id], 40, 120);
    viewer.wait("the run is live", |screen| {
        screen.contains("a answer") && screen.contains("live")
    });
    let before = revisions(&home, &run_id);
    let server = home.server_pid().unwrap();
    kill(Pid::from_raw(server), Signal::SIGSTOP).unwrap();
    viewer.wait("the view is stale", |screen| {
        screen.contains("stale · ") && !screen.contains("a answer")
    });
    viewer.send(b"c");
    viewer.wait("the key is refused", |screen| screen.contains(STALE));
    kill(Pid::from_raw(server), Signal::SIGCONT).unwrap();
    viewer.wait("it is live again", |screen| {
        screen.contains("a answer") && !screen.contains("stale · ")
    });
    assert!(is_running(server), "the same server");
    assert_eq!(revisions(&home, &run_id), before, "nothing was done");
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
}

/// Its terminal stays as it is, which nobody can help (`reset` is documented); everything else goes on.
#[test]
fn a_killed_viewer_leaves_the_server_and_its_run_alone() {
    let home = Home::new();
    let run_id = asking(&home);
    let viewer = Terminal::start(&home, &[&run_id], 40, 120);
    kill_and_wait(viewer.pid().unwrap());
    assert_eq!(home.show(&run_id)["display"]["status"], "waiting");
}
