//! Content that wants more than to be read: escape sequences, reordering, invisible characters, endless lines and deep values in
//! everything that a workflow can say. Whatever shows it, nothing of it reaches the terminal raw, and a key still works.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::ffi::OsStringExt;

use piw_protocol::client::{Client, ClientOptions, UnixConnector};
use piw_protocol::session::{RecordedEntry, RecordedEvent, SegmentEnd, SessionEvent};
use piw_tests::home::{Home, Printed};
use piw_tests::session::{self, Fixture, Target};
use piw_tests::terminal::{Terminal, strange};
use serde_json::{Value, json};

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
    for tab in [b"1", b"2", b"3", b"4", b"5"] {
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

/// Definitions whose node ids, mounts, exits or edges are hostile, with the word that names the place.
fn hostile_ids() -> Vec<(String, &'static str)> {
    let workflow = |nodes: &str, start: &str, edges: &str| {
        format!(
            r#"import {{ compute, defineWorkflow }} from "piw";
const evil = {EVIL}; const long = "L".repeat(100_000); const pass = compute({{ run: () => 1 }});
export default defineWorkflow({{ name: "ids", startAt: {start}, nodes: {nodes}, edges: {edges} }});"#
        )
    };
    vec![
        (workflow("{ [evil]: pass }", "evil", "[]"), "EVIL"),
        (workflow("{ ['a\\u202eEVIL']: pass }", "'a\\u202eEVIL'", "[]"), "EVIL"),
        (workflow("{ ['a\\u200bEVIL']: pass }", "'a\\u200bEVIL'", "[]"), "EVIL"),
        (workflow("{ ['a\\u001b]0;EVIL\\u0007']: pass }", "'a'", "[]"), "EVIL"),
        (workflow("{ [long]: pass }", "long", "[]"), "100000"),
        (workflow("{ a: pass }", "evil", "[]"), "EVIL"),
        (workflow("{ a: pass }", "long", "[]"), "LLL"),
        (workflow("{ a: pass }", "'a'", "[{ from: evil, to: 'a' }]"), "EVIL"),
        (workflow("{ a: pass }", "'a'", "[{ from: 'a', to: evil }]"), "EVIL"),
        (
            workflow(
                "{ a: pass }",
                "'a'",
                "[{ from: 'a', switch: { on: evil, cases: { x: 'a' } } }]",
            ),
            "EVIL",
        ),
        (workflow("{ a: pass, [evil]: { type: evil } }", "'a'", "[]"), "EVIL"),
    ]
}

#[test]
fn hostile_names_in_a_definition_are_refused_in_plain_words() {
    let home = Home::new();
    for (source, said) in hostile_ids() {
        home.workflow("ids", &source);
        for command in [
            &["check", "ids"][..],
            &["check", "ids", "--json"],
            &["run", "ids"],
            &["run", "ids", "--detach", "--json"],
            &["workflows"],
            &["workflows", "--json"],
        ] {
            let printed = home.piw(command);
            clean(&command.join(" "), &printed);
            if command[0] == "workflows" {
                continue;
            }
            assert_ne!(printed.code, Some(0), "{command:?} of {source}");
            let told = format!("{}{}", printed.stdout, printed.stderr);
            assert!(told.contains(said), "{command:?} of {source}: {told}");
        }
    }
    let mut following = Terminal::start(&home, &["run", "ids"], 40, 120);
    assert_ne!(following.wait_for_exit(), 0);
    let found = strange(following.written(), true);
    assert!(found.is_empty(), "{found:?}");
    let listed = home.piw(&["ps", "--json"]).exits(0).json();
    assert_eq!(listed, json!([]), "no such run came to be");
}

const SESSION: &str = "pi-session";

/// Runs until it is let go, bound to a session.
const BOUND: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "bound",
  title: "A bound run",
  startAt: "first",
  nodes: { first: compute({ run: () => 1 }), second: compute({ run: () => 2 }) },
  edges: [{ from: "first", to: "second" }],
});
"#;

/// [`EVIL`] itself, without the flood of marks.
fn evil_text() -> String {
    let literal = EVIL.split("\" + \"").next().unwrap().trim_matches('"');
    serde_json::from_str(&format!("\"{literal}\"")).unwrap()
}

fn nested(levels: usize, inner: Value) -> Value {
    (0..levels).fold(inner, |value, level| {
        if level % 2 == 0 {
            json!([value])
        } else {
            json!({ "EVIL\u{1b}[2J": value })
        }
    })
}

/// Markdown that wants as much as it can get.
fn greedy_markdown() -> Vec<(&'static str, String)> {
    let row = |cell: &str, cells: usize| format!("|{}\n", format!("{cell}|").repeat(cells));
    let table = row("EVIL\u{1b}[31m", 400) + &row("---", 400) + &row("x\u{202e}y", 400).repeat(3_000);
    let code = |language: &str, line: &str| format!("```{language}\n{}\n```\n", line.repeat(3_000_000 / line.len()));
    vec![
        ("quotes", "> ".repeat(20_000) + "EVIL\u{1b}[31m"),
        (
            "lists",
            (0..3_000)
                .map(|level| format!("{}- EVIL\u{9b}2J\n", "  ".repeat(level % 400)))
                .collect(),
        ),
        ("one list in another", "- ".repeat(20_000) + "x"),
        ("table", table),
        (
            "rust",
            code(
                "rust",
                "fn evil<'a>(x: &'a str) -> Result<(), \u{1b}[31m> { /* ( [ { \"\\\"\" */ }\n",
            ),
        ),
        (
            "typescript",
            code(
                "ts",
                "const x = `${`${(((((((a < b > c)))))))}`}` as unknown as /re[/]x/;\n",
            ),
        ),
        (
            "one line of code",
            format!("```js\n{}\n```\n", "((((a=>{`${".repeat(250_000)),
        ),
        (
            "perl",
            code("perl", "s{([^{}]*)}{qq{$1}}gex; m/(?:(a*)*)*b/; y/\u{202e}/x/;\n"),
        ),
        (
            "html",
            code("html", "<script>/*<style><!-- EVIL --><svg onload=\"\u{1b}\">\n"),
        ),
        ("brackets", "[".repeat(100_000) + &"](x)".repeat(100_000)),
        ("stars", "*a **b ".repeat(50_000)),
        ("ticks", (1..900).map(|count| "`".repeat(count) + " ").collect()),
        ("links", "[EVIL](http://x/\u{1b}]8;;\u{7} \"t\") ".repeat(20_000)),
        (
            "references",
            (0..30_000).map(|at| format!("[{at}]: /{at}\n")).collect::<String>() + &"[1] ".repeat(30_000),
        ),
        ("entities", "&#27;[31m&#x202e;&#155;&amp;&#0; ".repeat(5_000)),
        ("html blocks", "<div>\u{1b}[2J<b>\n".repeat(20_000)),
        ("headings", "# EVIL\u{1b}c\n".repeat(20_000)),
    ]
}

/// A conversation in which every text is hostile and every value larger than anybody wants.
fn hostile_conversation(begin: i64) -> Fixture {
    let evil = evil_text();
    let text = |role: &str, text: &str| json!({"message": {"role": role, "content": [{"type": "text", "text": text}]}});
    let mut contents = vec![
        (
            "message".to_owned(),
            json!({"message": {"role": "user", "content": evil}}),
        ),
        (
            "message".to_owned(),
            json!({"message": {"role": "assistant", "errorMessage": evil, "content": [
                {"type": "thinking", "thinking": format!("{evil}\n").repeat(200)},
                {"type": "text", "text": format!("# {evil}\n\n- {evil}\n\n```{evil}\n{evil}\n```\n")},
                {"type": "toolCall", "id": evil, "name": evil, "arguments": {evil.as_str(): [evil, nested(40, json!(evil))]}},
                {"type": evil, "data": evil},
            ]}}),
        ),
        (
            "message".to_owned(),
            json!({"message": {"role": "toolResult", "toolName": evil, "isError": true, "content": [{"type": "text", "text": format!("{evil}\n").repeat(30)}]}}),
        ),
        (
            evil.chars().take(60).collect(),
            json!({"customType": evil, "content": evil, evil.as_str(): evil}),
        ),
        (
            "message".to_owned(),
            json!({"message": {"role": evil, "content": {evil.as_str(): evil}}}),
        ),
        ("message".to_owned(), text("assistant", &"L".repeat(10_000_000))),
        (
            "message".to_owned(),
            text("toolResult", &"\u{1b}[31mR".repeat(1_500_000)),
        ),
        (
            "message".to_owned(),
            text("toolResult", &"line of a result\n".repeat(500_000)),
        ),
        (
            "message".to_owned(),
            // Deep and large, so that it is uploaded as it is.
            json!({"message": {"role": "assistant", "content": [
                {"type": "toolCall", "id": "c", "name": "deep", "arguments": nested(110, json!("D".repeat(300_000)))},
            ]}}),
        ),
        (
            "message".to_owned(),
            json!({"message": {"role": "assistant", "content": [
                {"type": "toolCall", "id": "c", "name": "wide", "arguments": (0..20_000).map(|at| (format!("EVIL\u{202e}{at}"), json!([at, {"k": evil}]))).collect::<serde_json::Map<_, _>>()},
            ]}}),
        ),
    ];
    contents.extend(
        greedy_markdown()
            .into_iter()
            .map(|(_, markdown)| ("message".to_owned(), text("assistant", &markdown))),
    );
    let at = |index: usize| piw_state::query::rfc3339(begin + index as i64 * 10);
    let mut events = vec![SessionEvent::TurnStart { turn: 0 }];
    let mut entries = Vec::new();
    for (index, (kind, content)) in contents.into_iter().enumerate() {
        let entry_id = format!("EVIL\u{1b}[2J\u{202e}{index}");
        events.push(SessionEvent::Entry {
            entry_id: entry_id.clone(),
        });
        entries.push(RecordedEntry {
            at: at(index),
            entry_id,
            kind,
            content,
            uploaded: None,
        });
    }
    // What is being written, and what did not end.
    events.extend([
        SessionEvent::MessageStart {
            role: evil.chars().take(60).collect(),
        },
        SessionEvent::Thinking { delta: evil.clone() },
        SessionEvent::Text {
            delta: format!("{evil}\n{}", "x".repeat(12_000)),
        },
        SessionEvent::ToolStart {
            call_id: "EVIL\u{1b}[2J".to_owned(),
            tool: evil.chars().take(60).collect(),
            args: json!({evil.as_str(): nested(40, json!(evil))}),
        },
    ]);
    let events = events.into_iter().enumerate();
    Fixture {
        events: events
            .map(|(index, what)| RecordedEvent { at: at(index), what })
            .collect(),
        entries,
    }
}

/// Records everything into the run, one entry with each batch, and closes the segment as failed for a hostile reason.
fn record(home: &Home, run_id: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = home.state().join("server/server.sock");
        let options = ClientOptions {
            client_id: "recorder".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::start(UnixConnector::new(socket), options);
        let fixture = hostile_conversation(jiff::Timestamp::now().as_millisecond());
        let mut batches = fixture.batches(&Target::new(run_id, SESSION), 1);
        batches.last_mut().unwrap().end = Some(SegmentEnd {
            failed: true,
            reason: Some(evil_text()),
        });
        for batch in batches {
            session::send(&client, batch).await.unwrap();
        }
    });
}

#[test]
fn a_hostile_conversation_is_shown_safely_and_stops_nothing() {
    let home = Home::new();
    home.workflow("bound", BOUND);
    let started = home
        .piw(&["run", "bound", "--session", SESSION, "--detach", "--json"])
        .exits(0)
        .json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    home.wait_for_end(&run_id);
    record(&home, &run_id);
    for command in [
        &["show", &run_id][..],
        &["show", &run_id, "--json"],
        &[&run_id, "--once"],
    ] {
        clean(&command.join(" "), &home.piw(command).exits(0));
    }
    let mut viewer = Terminal::start(&home, &[&run_id], 50, 160);
    viewer.wait("the run is shown", |screen| screen.contains("A bound run"));
    explore(&mut viewer);
    // Entry by entry, newest first: each is fetched, opened, and shown raw.
    viewer.send(b"4Z");
    viewer.wait("the conversation is shown", |screen| {
        screen.contains("capture failed") || screen.contains("EVIL")
    });
    for _ in 0..80 {
        viewer.send(b"\r\x1b[5~");
    }
    viewer.send(b"g");
    viewer.wait("the beginning is shown", |screen| screen.contains("capture failed"));
    // Back in time through what was recorded.
    viewer.send(b"Z[[[[[[[[L");
    viewer.send(b"?");
    viewer.wait("a key is answered", |screen| {
        screen.contains("help for the focused part")
    });
    viewer.send(b"\x1b");
    viewer.wait("the help is closed", |screen| {
        !screen.contains("help for the focused part")
    });
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
    let found = strange(viewer.written(), true);
    assert!(found.is_empty(), "{found:?}");
    assert!(String::from_utf8_lossy(viewer.written()).contains("EVIL"));
}
