//! Content that wants more than to be read: escape sequences, reordering, invisible characters, endless lines and deep values in
//! everything that a workflow can say. Whatever shows it, nothing of it reaches the terminal raw, and a key still works.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::ffi::OsStringExt;

use piw_tests::home::{Home, Printed};
use piw_tests::terminal::{Terminal, strange};

/// What everything below is called, says and fails with, as a JavaScript string: CSI, OSC 0, 8 and 52, DCS, APC, C1, bidi overrides
/// and isolates, zero-width and variation selectors, tags, a flood of marks, tab, CR, wide characters.
const EVIL: &str = r#""EVIL\u001b[31m\u001b[2J\u001b]0;own\u0007\u001b]8;;http://x\u001b\\\u001b]52;c;eA==\u0007\u001bPq\u001b\\\u001b_G\u001b\\\u009b5m\u009d0;c\u009c\u202eo\u2066d\u2069\u200b\u200d\ufe0f\udb40\udc41\u0301\u0301\t\r\u0008\u007f日本" + "e" + "\u0301".repeat(500)"#;

/// Ends in a failure that is as hostile as its values.
fn evil() -> String {
    format!(
        r#"
import {{ action, checkpoint, compute, defineWorkflow, idempotentEffect, notify, progress, shell }} from "piw";
const evil = {EVIL};
const effect = idempotentEffect("x");
export default defineWorkflow({{
  name: "evil",
  title: evil,
  startAt: "say",
  nodes: {{
    say: compute({{ statusDetail: evil, run: () => ({{ [evil]: evil, route: evil, deep: {{ [evil]: [evil, evil] }} }}) }}),
    tell: notify({{ kind: "progress", message: evil }}),
    update: action({{
      effect,
      statusDetail: () => evil,
      run: async ({{ publishUpdate }}) => {{
        await publishUpdate(progress("key", {{ status: "running", label: evil, phase: evil, completed: 1, total: 2, unit: evil }}));
        await publishUpdate({{ type: "note", key: "k" + evil.slice(0, 40), data: {{ [evil]: evil }} }});
        return evil;
      }},
    }}),
    print: shell({{
      effect,
      exec: () => ({{
        command: "sh",
        args: ["-c", "printf '\\033]0;own\\007\\033[2J\\302\\233m\\342\\200\\256EVIL\\377'; printf '\\033[31mEVIL\\033]52;c;eA==\\007\\r' >&2"],
        env: {{ EVIL: "1" }},
      }}),
    }}),
    fail: compute({{ run: () => {{ const error = new Error(evil); error.name = evil; throw error; }} }}),
    never: compute({{ run: () => 1 }}),
  }},
  edges: [
    {{ from: "say", switch: {{ on: "$output.route", cases: {{ [evil]: "tell", other: "never" }} }} }},
    {{ from: "tell", to: "update" }},
    {{ from: "update", to: "print" }},
    {{ from: "print", to: "fail" }},
  ],
}});
"#
    )
}

/// Waits, asking something hostile.
fn asking() -> String {
    format!(
        r#"
import {{ checkpoint, compute, defineWorkflow, manualEffect, shell }} from "piw";
const evil = {EVIL};
export default defineWorkflow({{
  name: "asking",
  title: evil,
  startAt: "ask",
  nodes: {{
    ask: checkpoint({{ summary: evil, run: () => ({{ [evil]: [evil, "line\n\u001b[2J"] }}) }}),
    a: compute({{ run: () => 1 }}),
    b: compute({{ run: () => 2 }}),
  }},
  edges: [{{ from: "ask", switch: {{ on: "$output.route", cases: {{ [evil]: "a", b: "b" }} }} }}],
}});
"#
    )
}

/// Ten million characters in one line and values a hundred thousand levels deep, as far as they get.
const HUGE: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "huge",
  title: "Huge " + "x".repeat(400),
  startAt: "line",
  nodes: {
    line: compute({ run: () => ({ ["k".repeat(100_000)]: "L".repeat(10_000_000) }) }),
    middle: compute({ run: () => "M".repeat(15_000) }),
    nested: compute({ run: () => { let value = 1; for (let at = 0; at < 90; at += 1) value = [value]; return value; } }),
    print: shell({
      effect: idempotentEffect("x"),
      exec: () => ({ command: "sh", args: ["-c", "head -c 10000000 /dev/zero | tr '\\0' P; head -c 9000000 /dev/zero | tr '\\0' E >&2"] }),
    }),
    deep: compute({ run: () => { let value = 1; for (let at = 0; at < 100_000; at += 1) value = [value]; return value; } }),
  },
  edges: [{ from: "line", to: "middle" }, { from: "middle", to: "nested" }, { from: "nested", to: "print" }, { from: "print", to: "deep" }],
});
"#;

fn clean(what: &str, printed: &Printed) {
    for (stream, text) in [("stdout", &printed.stdout), ("stderr", &printed.stderr)] {
        let found = strange(text.as_bytes(), false);
        assert!(
            found.is_empty(),
            "{what}: {stream} has {found:?}:\n{}",
            text.escape_debug()
        );
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        // JSON documents hold whole values, in escapes.
        assert!(
            longest < 20_000 || what.contains("json"),
            "{what}: a line of {longest} characters"
        );
    }
}

fn started(home: &Home, name: &str) -> String {
    let printed = home.piw(&["run", name, "--detach", "--json"]);
    clean(&format!("run {name} --json"), &printed);
    printed.json()["runId"].as_str().unwrap().to_owned()
}

#[test]
fn no_command_prints_it_raw() {
    let home = Home::new();
    home.workflow("evil", &evil());
    home.workflow("asking", &asking());
    let run_id = started(&home, "evil");
    let waiting = started(&home, "asking");
    let view = home.wait_for_end(&run_id);
    assert!(
        view["state"]["error"]["message"].as_str().unwrap().contains("EVIL"),
        "{view}"
    );
    home.wait_for_status(&waiting, &["waiting"]);
    let mut said = 0;
    for command in [
        &["ps"][..],
        &["ps", "--json"],
        &["show", &run_id],
        &["show", &waiting],
        &["show", &run_id, "--json"],
        &["run", "evil"],
        &["run", "asking"],
        &["workflows"],
        &["workflows", "--json"],
        &["check", "evil"],
        &["check", "asking", "--json"],
        &["effects", "list", "--all"],
        &[&run_id, "--once"],
        &[&waiting, "--once"],
        &["restart", &run_id],
        &["pause", &waiting],
        &["answer", &waiting, "{\"route\": \"\u{1b}[31m\u{202e}\"}"],
        &["server", "status"],
        &["state", "status"],
    ] {
        let printed = home.piw(command);
        clean(&command.join(" "), &printed);
        said += usize::from(printed.stdout.contains("EVIL") || printed.stderr.contains("EVIL"));
    }
    assert!(said >= 9, "only {said} commands showed the text at all");
}

/// A TOML string of escapes.
fn toml_string(text: &str) -> String {
    let escapes: String = text.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
    format!("\"{escapes}\"")
}

#[test]
fn names_and_flags_are_not_repeated_raw() {
    let home = Home::new();
    let evil = "\u{1b}]0;own\u{7}\u{1b}[31mEVIL\u{9b}2J\u{202e}\u{200b}";
    std::fs::write(home.project().join(format!("{evil}.workflow.ts")), "export default {{{").unwrap();
    let config = home.project().join("config.toml");
    std::fs::write(&config, format!("[theme]\nname = {}\n", toml_string(evil))).unwrap();
    let file = format!("./{evil}.workflow.ts");
    let flag = format!("--{evil}");
    let path = format!("/{evil}/backup");
    for command in [
        &["run", evil][..],
        &["run", &file],
        &["check", &file],
        &["check", evil],
        &["run", "x", &flag],
        &[&flag],
        &[evil],
        &[evil, "--once"],
        &["show", evil],
        &["cancel", evil],
        &["answer", evil, evil],
        &["answer", "x", evil],
        &["run", "builtin:x", "--input", evil],
        &["effects", "confirm", evil],
        &["completions", evil],
        &["state", "backup", &path],
        &["state", "prune", "--before", evil, "--dry-run"],
        &["serve", "--bind", evil],
        &["--connect", evil],
        &["--ssh", evil],
        &["init", evil],
    ] {
        let printed = home.piw(command);
        assert_ne!(printed.code, Some(0), "{command:?}");
        assert!(!printed.stderr.is_empty(), "{command:?}");
        clean(&format!("{command:?}"), &printed);
    }
    // Bytes that are no text at all.
    let bytes = std::ffi::OsString::from_vec(b"\x1b[31m\xff\xfe\x9b".to_vec());
    for command in [
        [std::ffi::OsString::from("show"), bytes.clone()],
        [std::ffi::OsString::from("run"), bytes],
    ] {
        clean("bytes", &home.piw(&command));
    }
    for (name, value) in [
        ("PIW_THEME", evil),
        ("PIW_CONFIG_PATH", config.to_str().unwrap()),
        ("PIW_SOCKET", evil),
    ] {
        let home = Home::new().env(name, value);
        let mut viewer = Terminal::start(&home, &[], 30, 100);
        viewer.wait(&format!("{name} is spoken of"), |screen| screen.contains("EVIL"));
        viewer.send(b"q");
        viewer.wait_for_exit();
        let found = strange(viewer.written(), true);
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn following_a_run_in_a_terminal_is_safe() {
    let home = Home::new();
    home.workflow("evil", &evil());
    home.workflow("asking", &asking());
    for name in ["evil", "asking"] {
        let mut terminal = Terminal::start(&home, &["run", name], 40, 120);
        terminal.wait_for_exit();
        let found = strange(terminal.written(), true);
        assert!(found.is_empty(), "{name}: {found:?}");
        assert!(String::from_utf8_lossy(terminal.written()).contains("EVIL"), "{name}");
    }
}

/// Opens everything in every tab.
fn explore(viewer: &mut Terminal) {
    viewer.send(b"\t");
    for tab in [b"1", b"2", b"3", b"4"] {
        viewer.send(tab);
        viewer.send(b"g");
        // Opening a row adds rows below it, so this reaches new ones too.
        for _ in 0..40 {
            viewer.send(b"\rj");
        }
        for _ in 0..20 {
            viewer.send(b"\x1b[6~");
        }
        viewer.send(b"G");
    }
    // Whatever all that cost, the next key is answered.
    viewer.send(b"?");
    viewer.wait("the help is shown", |screen| screen.contains("Help"));
    viewer.send(b"\x1b");
    viewer.wait("it is closed", |screen| !screen.contains("Help ·"));
}

#[test]
fn the_viewer_shows_it_safely() {
    let home = Home::new();
    home.workflow("evil", &evil());
    home.workflow("asking", &asking());
    let run_id = started(&home, "evil");
    let waiting = started(&home, "asking");
    home.wait_for_end(&run_id);
    home.wait_for_status(&waiting, &["waiting"]);
    for run_id in [&run_id, &waiting] {
        let mut viewer = Terminal::start(&home, &[run_id], 50, 160);
        viewer.wait("the run is shown", |screen| screen.contains("EVIL"));
        explore(&mut viewer);
        viewer.send(b"a");
        viewer.send(b"\x1b[200~\x1b]0;own\x07\xc2\x9bm\xe2\x80\xae pasted\x1b[201~");
        viewer.send(b"\x1b\x1b");
        viewer.send(b"q");
        viewer.wait_for_exit();
        let found = strange(viewer.written(), true);
        assert!(found.is_empty(), "{found:?}");
    }
    let mut viewer = Terminal::start(&home, &[], 24, 80);
    viewer.wait("the list is shown", |screen| screen.contains("EVIL"));
    viewer.send(b"b");
    viewer.send(b"/EVIL\r");
    viewer.send(b"j");
    viewer.send(b"q");
    viewer.wait_for_exit();
    let found = strange(viewer.written(), true);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn huge_values_do_not_stop_the_viewer() {
    let home = Home::new();
    home.workflow("huge", HUGE);
    let run_id = started(&home, "huge");
    home.wait_for_end(&run_id);
    for command in [&["show", &run_id][..], &[&run_id, "--once"], &["ps"], &["run", "huge"]] {
        clean(&command.join(" "), &home.piw(command));
    }
    let mut viewer = Terminal::start(&home, &[&run_id], 50, 160);
    viewer.wait("the run is shown", |screen| screen.contains("Huge"));
    explore(&mut viewer);
    viewer.send(b"q");
    viewer.wait_for_exit();
    assert!(strange(viewer.written(), true).is_empty());
}
