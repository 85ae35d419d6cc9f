//! Broken workflows and hostile code: a clear message, a documented exit code, a server that serves on.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use piw_tests::home::Home;

fn refused(home: &Home, name: &str, source: &str, wanted: &[&str]) {
    home.workflow(name, source);
    let printed = home.piw(&["run", name]);
    assert!(
        matches!(printed.code, Some(1 | 2)),
        "{name}: {:?}\n{}\n{}",
        printed.code,
        printed.stdout,
        printed.stderr
    );
    for text in wanted {
        assert!(
            printed.stderr.contains(text),
            "{name}: {text:?} is missing in:\n{}",
            printed.stderr
        );
    }
}

#[test]
fn definitions_that_do_not_load_are_refused_at_start() {
    let home = Home::new();
    refused(
        &home,
        "syntax",
        "export default {\n  name: 'x',\n  nodes: {{\n};\n",
        &["syntax.workflow.ts:3"],
    );
    refused(&home, "plain", "export default { hello: 1 };", &["default export"]);
    refused(&home, "none", "export const x = 1;", &["default export"]);
    refused(
        &home,
        "missing",
        "import x from './not-there.ts'; export default x;",
        &["./not-there.ts", "missing.workflow.ts"],
    );
    refused(
        &home,
        "target",
        "import { compute, defineWorkflow } from 'piw';\nexport default defineWorkflow({ name: 'target', startAt: 'a', \
         nodes: { a: compute({ run: () => 1 }) }, edges: [{ from: 'a', to: 'nowhere' }] });",
        &["nowhere"],
    );
    refused(&home, "throws", "throw new Error('at load: ' + 41);", &["at load: 41"]);
    refused(&home, "exits", "process.exit(0);", &["process.exit"]);
    let _ = home.piw(&["server", "status"]).exits(0);
}

#[test]
fn hostile_loads_end_with_a_message() {
    let home = Home::new();
    refused(&home, "forever", "for (;;) {}", &["did not finish loading", "20 s"]);
    refused(
        &home,
        "flood",
        "const all = []; for (;;) all.push(new Array(1e6).fill('x'.repeat(100)));",
        &["memory"],
    );
    refused(&home, "terabyte", "Buffer.alloc(1e12);", &[]);
    refused(
        &home,
        "deep",
        &format!("const x = {}1{};", "(".repeat(100_000), ")".repeat(100_000)),
        &["nest"],
    );
    let _ = home.piw(&["server", "status"]).exits(0);
}

fn one_node(kind: &str, body: &str) -> String {
    format!(
        "import {{ action, compute, defineWorkflow, idempotentEffect, shell }} from 'piw';\n\
         import * as fs from 'node:fs'; import * as child from 'node:child_process'; import * as os from 'node:os';\n\
         void fs; void child; void os;\n\
         export default defineWorkflow({{ name: 'one', startAt: 'only', nodes: {{ only: {kind}({body}) }}, edges: [] }});\n"
    )
}

#[test]
fn compute_cannot_touch_the_world_and_says_what_it_touched() {
    let home = Home::new();
    for (code, touched) in [
        ("fs.readFileSync('/etc/passwd')", "readFileSync"),
        ("fs.promises.readFile('/etc/passwd')", "readFile"),
        ("child.spawnSync('true')", "spawnSync"),
        ("process.env.HOME", "env"),
        ("fetch('http://127.0.0.1:1')", "fetch"),
        ("import('node:fs').then((m) => m.readFileSync('/etc/passwd'))", ""),
    ] {
        home.workflow(
            "one",
            &one_node("compute", &format!("{{ run: async () => {{ return await {code}; }} }}")),
        );
        let printed = home.piw(&["run", "one", "--json"]).exits(1).json();
        let message = printed["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(touched), "{code}: {message}");
    }
}

#[test]
fn nodes_that_misbehave_end_as_failed_or_timed_out_nodes() {
    let home = Home::new();
    let shell = |spec: &str| {
        one_node(
            "shell",
            &format!("{{ effect: idempotentEffect('x'), exec: () => ({spec}) }}"),
        )
    };
    let action = |body: &str, more: &str| {
        one_node(
            "action",
            &format!("{{ effect: idempotentEffect('x'), {more} run: async () => {{ {body} }} }}"),
        )
    };
    let cases = [
        (
            "missing command",
            shell("{ command: 'no-such-command-here', args: [] }"),
            "failed",
            "no-such-command-here",
        ),
        (
            "hangs",
            shell("{ command: 'sleep', args: ['300'], timeoutMs: 200 }"),
            "timed_out",
            "200",
        ),
        (
            "dies by signal",
            shell("{ command: 'sh', args: ['-c', 'kill -9 $$'] }"),
            "failed",
            "SIGKILL",
        ),
        (
            "ignores signals",
            shell("{ command: 'sh', args: ['-c', 'trap \"\" TERM INT; sleep 300'], timeoutMs: 200 }"),
            "timed_out",
            "",
        ),
        ("exits", action("process.exit(3)", ""), "failed", "process.exit"),
        ("loops", action("for (;;) {}", "timeoutMs: 300,"), "timed_out", ""),
        (
            "native loop",
            action("new Array(5e8).fill(0).indexOf(1)", "timeoutMs: 300,"),
            "",
            "",
        ),
        ("terabyte", action("Buffer.alloc(1e12)", ""), "failed", ""),
        ("bigint", action("return { big: 1n }", ""), "failed", "big"),
    ];
    for (name, source, status, text) in cases {
        home.workflow("one", &source);
        let printed = home.piw(&["run", "one", "--json"]).exits(1).json();
        if !status.is_empty() {
            assert_eq!(printed["status"], status, "{name}: {printed}");
        }
        assert!(printed["error"].to_string().contains(text), "{name}: {printed}");
    }
    let _ = home.piw(&["server", "status"]).exits(0);
}

#[test]
fn megabytes_of_output_are_bounded_and_daemons_die_with_the_node() {
    let home = Home::new();
    home.workflow(
        "one",
        &one_node(
            "shell",
            "{ effect: idempotentEffect('x'), exec: () => ({ command: 'sh', args: ['-c', \
             'setsid sleep 300 & echo $! > daemon.pid; head -c 5000000 /dev/zero | tr \"\\\\0\" x'], maxOutputChars: 1000 }), \
             parse: ({ stdout }) => ({ length: stdout.length }) }",
        ),
    );
    let printed = home.piw(&["run", "one", "--json"]).exits(0).json();
    assert_eq!(printed["finalOutput"]["length"], 1000, "{printed}");
    let pid: i32 = std::fs::read_to_string(home.project().join("daemon.pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    piw_tests::wait::until("the daemon is gone", || {
        (!piw_tests::home::is_running(pid)).then_some(())
    });
}

#[test]
fn agent_steps_that_need_a_session_are_refused_at_start() {
    let home = Home::new();
    refused(
        &home,
        "asks",
        "import { agent, assistantMessage, defineWorkflow } from 'piw';\nexport default defineWorkflow({ name: 'asks', startAt: 'think', nodes: { \
         think: agent({ prompt: () => 'think', expectedOutput: assistantMessage() }) }, edges: [] });",
        &["think", "needs a session"],
    );
}

#[test]
fn an_id_that_no_server_takes_is_refused_without_asking_one() {
    let home = Home::new();
    let long = "x".repeat(257);
    for id in ["", long.as_str()] {
        for command in [
            &["show", id][..],
            &[id],
            &[id, "--once"],
            &["cancel", id],
            &["answer", id, "1"],
            &["effects", "list", id],
            &["effects", "confirm", id],
            &["effects", "retry", id],
        ] {
            let refused = home.piw(command).exits(2);
            assert!(refused.stderr.contains("an id "), "{command:?}: {}", refused.stderr);
        }
    }
    let _ = home.piw(&["server", "status"]).exits(3);
}

#[test]
fn a_prune_without_a_mode_names_both() {
    let home = Home::new();
    let refused = home.piw(&["state", "prune", "--before", "30d"]).exits(2);
    for mode in ["--dry-run", "--backup <PATH> --apply"] {
        assert!(refused.stderr.contains(mode), "{mode}: {}", refused.stderr);
    }
}
