//! Shell nodes, batches and effects, with real processes.

use crate::support::{Act, Project, Server};
use piw_engine::effect::EffectState;
use piw_process::ProcessIdentity;
use piw_protocol::child::{ChildBody, PushAction};
use piw_protocol::run::{NodeOutcome, RunStatus};
use serde_json::json;

/// A project with one shell node `s`, whose `exec` returns this, and the given further fields.
fn shell(exec: &str, more: &str) -> Project {
    Project::with(&format!(
        "{{
            name: 's', startAt: 's',
            nodes: {{ s: shell({{ effect: idempotentEffect('run'), exec: () => ({exec}), {more} }}) }},
            edges: [],
        }}"
    ))
}

fn run(project: &Project) -> Server {
    let mut server = project.start(json!(null));
    let end = server.run();
    assert_eq!(end.success, Some(true));
    assert!(server.groups.is_empty(), "every registered group is unregistered");
    server
}

/// `sh -c` of a script, as `exec` returns it.
fn sh(script: &str) -> String {
    format!(
        "{{ command: 'sh', args: ['-c', {}] }}",
        serde_json::to_string(script).unwrap()
    )
}

#[test]
fn a_command_is_registered_runs_in_the_project_and_leaves_a_receipt() {
    let project = shell(
        "{ command: 'sh', args: ['-c', 'pwd; echo $GREETING $PIW_EFFECT_KEY; cat; echo oops >&2'], env: { GREETING: 'hi' }, stdin: 'typed' }",
        "",
    );
    let server = run(&project);
    let output = server.final_output();
    let stdout = output["stdout"].as_str().unwrap();
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], project.path().to_str().unwrap());
    assert!(lines[1].starts_with("hi piw-"), "{stdout}");
    assert_eq!(lines[2], "typed");
    assert_eq!(output["exitCode"], 0);
    assert_eq!(server.registered.len(), 1);
    assert_eq!(server.registered[0].1, "sh");
    let receipt = server.step("s").action.clone().unwrap();
    assert_eq!(
        (receipt.exit_code, receipt.stderr.as_deref()),
        (Some(0), Some("oops\n"))
    );
    assert_eq!(server.effect_states(), [EffectState::Applied]);
}

#[test]
fn parse_makes_the_output() {
    let project = shell(
        &sh("printf '[1,2]'"),
        "parse: (result) => ({ list: JSON.parse(result.stdout), code: result.exitCode })",
    );
    assert_eq!(run(&project).final_output(), json!({ "list": [1, 2], "code": 0 }));
}

#[test]
fn failures_are_clear_and_keep_the_receipt() {
    for (exec, said, code, signal) in [
        (sh("echo why >&2; exit 7"), "exited with code 7: why", Some(7), None),
        (sh("kill -SEGV $$"), "ended by SIGSEGV", None, Some("SIGSEGV")),
        (
            "{ command: 'no-such-program-here' }".to_owned(),
            "command not found: \"no-such-program-here\"",
            None,
            None,
        ),
        ("{ command: './main.txt' }".to_owned(), "permission denied", None, None),
        (
            "{ command: 'true', cwd: 'nowhere' }".to_owned(),
            "does not exist",
            None,
            None,
        ),
        (
            "{ command: 'true', shell: true }".to_owned(),
            "\"shell\" is unknown",
            None,
            None,
        ),
    ] {
        let project = shell(&exec, "");
        project.write("main.txt", "text");
        let server = run(&project);
        assert_eq!(server.step("s").outcome, NodeOutcome::Failed, "{exec}");
        assert!(server.error("s").contains(said), "{exec}: {}", server.error("s"));
        if code.is_some() || signal.is_some() {
            let receipt = server.step("s").action.clone().unwrap();
            assert_eq!((receipt.exit_code, receipt.signal.as_deref()), (code, signal));
        }
        assert_eq!(server.finished.as_ref().unwrap().status, RunStatus::Failed);
    }
}

#[test]
fn a_non_zero_exit_can_be_allowed() {
    let project = shell(
        "{ command: 'sh', args: ['-c', 'exit 3'], allowNonZeroExit: true }",
        "parse: (r) => r.exitCode",
    );
    assert_eq!(run(&project).final_output(), json!(3));
}

#[test]
fn output_is_bounded_and_decoded() {
    let project = shell(
        "{ command: 'sh', args: ['-c', 'head -c 5000000 /dev/zero | tr \"\\\\0\" x; printf \"\\\\377\" >&2'], maxOutputChars: 1000 }",
        "parse: (r) => [r.stdout.length, r.stdoutTruncated, r.stderr]",
    );
    assert_eq!(run(&project).final_output(), json!([1000, true, "\u{fffd}"]));
    let project = shell(&sh("head -c 3000000 /dev/urandom"), "parse: (r) => r.stdoutTruncated");
    assert_eq!(run(&project).final_output(), json!(true));
}

#[test]
fn megabytes_of_output_fit_the_messages() {
    let project = shell(&sh("head -c 900000 /dev/zero | tr '\\0' '\\001'; exit 1"), "");
    let server = run(&project);
    let receipt = server.step("s").action.clone().unwrap();
    assert!(receipt.stdout_truncated);
    assert_eq!(receipt.exit_code, Some(1));
}

#[test]
fn a_hanging_command_is_ended_with_its_group() {
    let project = shell(
        "{ command: 'sh', args: ['-c', 'echo before; trap \"\" TERM; sleep 300 & echo $! > child.pid; wait; sleep 300'], timeoutMs: 500 }",
        "",
    );
    let server = run(&project);
    assert_eq!(server.step("s").outcome, NodeOutcome::TimedOut);
    assert!(server.error("s").contains("after 500 ms"), "{}", server.error("s"));
    let receipt = server.step("s").action.clone().unwrap();
    assert_eq!(receipt.stdout.as_deref(), Some("before\n"), "what it wrote is kept");
    assert_eq!(receipt.signal.as_deref(), Some("SIGKILL"));
    let child = project.read("child.pid").trim().parse().unwrap();
    assert_eq!(ProcessIdentity::of(child).unwrap(), None, "its child is gone");
    assert_eq!(
        server.effect_states(),
        [EffectState::Pending],
        "an idempotent effect may be tried again"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn daemons_die_with_their_node() {
    let project = shell(
        &sh(
            "setsid sh -c 'echo $$ > daemon.pid; exec sleep 300' >/dev/null 2>&1 & while [ ! -s daemon.pid ]; do :; done",
        ),
        "",
    );
    let server = run(&project);
    assert_eq!(server.step("s").outcome, NodeOutcome::Ok);
    let daemon = project.read("daemon.pid").trim().parse().unwrap();
    assert_eq!(ProcessIdentity::of(daemon).unwrap(), None);
}

#[cfg(target_os = "linux")]
#[test]
fn a_daemon_that_holds_the_output_does_not_hold_the_node() {
    let project = shell(&sh("echo out; setsid sleep 300 & exit 0"), "parse: (r) => r.stdout");
    assert_eq!(run(&project).final_output(), json!("out\n"));
}

#[test]
fn a_cancelled_command_is_ended_and_commits_nothing() {
    let project = shell(&sh("echo $$ > own.pid; exec sleep 300"), "");
    let mut server = project.start(json!(null));
    let end = server.run_with(|message, _| match message.body {
        ChildBody::ProcessRegister { .. } => Act::AnswerAndPush(PushAction::Cancel),
        _ => Act::Answer,
    });
    assert_eq!(end.success, Some(true));
    assert!(server.steps.is_empty());
    assert!(server.groups.is_empty());
    for (pid, _) in &server.registered {
        assert_eq!(ProcessIdentity::of(*pid).unwrap(), None);
    }
}

#[test]
fn a_command_that_is_not_registered_does_not_run() {
    let project = shell(&sh("touch ran"), "");
    let mut server = project.start(json!(null));
    server.run_with(|message, _| match message.body {
        ChildBody::ProcessRegister { .. } => Act::ClaimLost,
        _ => Act::Answer,
    });
    assert!(!project.has("ran"));
    // The same when the runner dies while it waits for the answer.
    let mut server = project.start(json!(null));
    server.run_with(|message, _| match message.body {
        ChildBody::ProcessRegister { .. } => Act::Kill,
        _ => Act::Answer,
    });
    assert!(!project.has("ran"));
    server.run();
    assert!(project.has("ran"));
}

#[test]
fn lines_become_updates() {
    let project = shell(
        &sh("for i in 1 2 3; do echo step $i; done; echo noise"),
        "updates: { streams: ['stdout'], parseLine: (line) => line.startsWith('step') ? { type: 'note', key: 'k', data: { line } } : null }",
    );
    let server = run(&project);
    let lines: Vec<_> = server
        .updates
        .iter()
        .map(|update| update.data["line"].as_str().unwrap())
        .collect();
    assert_eq!(lines, ["step 1", "step 2", "step 3"]);
}

#[test]
fn a_bad_update_of_a_line_fails_the_node() {
    let project = shell(
        &sh("echo hello; sleep 300"),
        "updates: { streams: ['stdout'], parseLine: () => ({ type: 'BAD', key: 'k', data: {} }) }",
    );
    let server = run(&project);
    assert_eq!(server.step("s").outcome, NodeOutcome::Failed);
    assert!(
        server.error("s").contains("BAD") && server.error("s").contains("hello"),
        "{}",
        server.error("s")
    );
}

#[test]
fn actions_publish_updates_within_their_allowance() {
    let project = Project::with(
        "{
            name: 'u', startAt: 'a',
            nodes: { a: action({ effect: idempotentEffect('x'), run: async ({ publishUpdate }) => {
                let ok = 0; let why = '';
                for (let i = 0; i < 200; i++) {
                    try { await publishUpdate({ type: 'note', key: 'k' + i, data: { i } }); ok++; } catch (e) { why = e.message; break; }
                }
                return { ok, why };
            } }) },
            edges: [],
        }",
    );
    let server = run(&project);
    let output = server.final_output();
    let ok = output["ok"].as_u64().unwrap();
    assert!((100..200).contains(&ok), "{output}");
    assert_eq!(server.updates.len() as u64, ok);
    assert!(output["why"].as_str().unwrap().contains("too fast"), "{output}");
}

#[test]
fn console_output_reaches_the_server() {
    let project = Project::with(
        "{ name: 'c', startAt: 'a', nodes: { a: compute({ run: () => { console.log('hello', { n: 1 }); console.error('bad'); return 1 } }) }, edges: [] }",
    );
    let server = run(&project);
    assert!(
        server.printed.contains("hello") && server.printed.contains("bad"),
        "{}",
        server.printed
    );
}

#[test]
fn notifications_are_recorded() {
    let project = Project::with(
        "{ name: 'n', startAt: 'a', nodes: { a: notify({ kind: 'progress', message: ({ input }) => `at ${input}` }), b: notify({ kind: 'final', message: 'done' }) }, edges: [{ from: 'a', to: 'b' }] }",
    );
    let mut server = project.start(json!("work"));
    server.run();
    assert_eq!(server.notifications, ["at work", "done"]);
}

#[test]
fn a_batch_registers_each_command() {
    let project = Project::with(
        "{
            name: 'b', startAt: 'a',
            nodes: { a: action({ effect: idempotentEffect('x'), run: (ctx) => runCommandBatch({
                concurrency: 2, signal: ctx.signal,
                commands: [1, 2, 3].map((n) => ({ id: 'c' + n, command: 'sh', args: ['-c', `echo ${n}; exit ${n - 1}`] })),
            }) }) },
            edges: [],
        }",
    );
    let server = run(&project);
    assert_eq!(server.registered.len(), 3);
    assert_eq!(
        server.step("a").outcome,
        NodeOutcome::Ok,
        "{:?}",
        server.step("a").error
    );
}

/// An action that appends a line to `applied` each time it is applied.
fn effectful(effect: &str) -> Project {
    Project::new(&format!(
        "import {{ defineWorkflow, action, compute, idempotentEffect, observedEffect, manualEffect }} from 'piw';
         import {{ appendFileSync, existsSync }} from 'node:fs';
         export default defineWorkflow({{
            name: 'e', startAt: 'a',
            nodes: {{
                a: action({{ effect: {effect}, run: ({{ effect }}) => {{ appendFileSync('applied', effect.key + '\\n'); return {{ done: true }} }} }}),
                b: compute({{ run: ({{ outputs }}) => outputs.a }}),
            }},
            edges: [{{ from: 'a', to: 'b' }}],
         }});"
    ))
}

/// Kills the runner when the effect is applied and not yet committed, then runs again.
fn crash_while_applying(project: &Project) -> Server {
    let mut server = project.start(json!(null));
    server.run_with(|message, _| match message.body {
        ChildBody::NodeFinished(_) => Act::Kill,
        _ => Act::Answer,
    });
    assert_eq!(server.effect_states(), [EffectState::Applying]);
    server.run();
    server
}

#[test]
fn an_idempotent_effect_is_repeated_with_the_same_key() {
    let project = effectful("idempotentEffect('x')");
    let server = crash_while_applying(&project);
    assert_eq!(server.final_output(), json!({ "done": true }));
    let keys = project.read("applied");
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn an_observed_effect_is_read_back_and_adopted() {
    let project = effectful(
        "observedEffect('x', { observe: () => existsSync('applied') ? { status: 'applied', output: { found: true } } : 'notApplied' })",
    );
    let server = crash_while_applying(&project);
    assert_eq!(server.final_output(), json!({ "found": true }));
    assert_eq!(project.read("applied").lines().count(), 1, "it was not applied again");
}

#[test]
fn an_observed_effect_that_did_not_happen_is_applied() {
    let project = effectful("observedEffect('x', { observe: () => 'notApplied' })");
    let server = crash_while_applying(&project);
    assert_eq!(server.final_output(), json!({ "done": true }));
    assert_eq!(project.read("applied").lines().count(), 2);
}

#[test]
fn what_nobody_can_know_parks_the_run() {
    for effect in ["manualEffect('x')", "observedEffect('x', { observe: () => 'unknown' })"] {
        let project = effectful(effect);
        let server = crash_while_applying(&project);
        let (reason, message) = server.parked.clone().expect("the run parks");
        assert_eq!(reason, "effectAmbiguous");
        assert!(message.contains("\"x\"") && message.contains("\"a\""), "{message}");
        assert_eq!(
            project.read("applied").lines().count(),
            1,
            "nothing is repeated: {effect}"
        );
    }
}

#[test]
fn an_applied_command_is_adopted_and_parsed_again() {
    let project = Project::with(
        "{
            name: 's', startAt: 's',
            nodes: { s: shell({ effect: manualEffect('deploy'), exec: () => ({ command: 'sh', args: ['-c', 'echo once >> applied; echo out'] }), parse: (r) => r.stdout.trim() }) },
            edges: [],
        }",
    );
    let server = {
        let mut server = project.start(json!(null));
        server.run_with(|message, _| match message.body {
            ChildBody::NodeFinished(_) => Act::Kill,
            _ => Act::Answer,
        });
        server.run();
        server
    };
    assert_eq!(server.final_output(), json!("out"));
    assert_eq!(project.read("applied").lines().count(), 1);
}

#[test]
fn an_observed_effect_of_a_timed_out_node_is_read_back() {
    let project = Project::new(
        "import { defineWorkflow, action, observedEffect } from 'piw';
         import { writeFileSync, existsSync } from 'node:fs';
         export default defineWorkflow({
            name: 'e', startAt: 'a',
            nodes: { a: action({
                timeoutMs: 300,
                effect: observedEffect('x', { observe: () => existsSync('applied') ? 'applied' : 'unknown' }),
                run: async () => { writeFileSync('applied', ''); await new Promise((r) => setTimeout(r, 60_000)); },
            }) },
            edges: [],
         });",
    );
    let server = run(&project);
    assert_eq!(server.step("a").outcome, NodeOutcome::TimedOut);
    assert_eq!(server.effect_states(), [EffectState::Applied]);
}

#[test]
fn a_caught_error_rejects_the_effect_and_a_timeout_of_a_manual_one_is_ambiguous() {
    let project = effectful("manualEffect('x')");
    project.write(
        ".pi/workflows/main.workflow.ts",
        &project
            .read(".pi/workflows/main.workflow.ts")
            .replace("return { done: true }", "throw new Error('no')"),
    );
    assert_eq!(run(&project).effect_states(), [EffectState::Rejected]);
    let project = Project::with(
        "{ name: 's', startAt: 's', nodes: { s: shell({ effect: manualEffect('x'), timeoutMs: 200, exec: () => ({ command: 'sleep', args: ['60'] }) }) }, edges: [] }",
    );
    let server = run(&project);
    assert_eq!(server.step("s").outcome, NodeOutcome::TimedOut);
    assert_eq!(server.effect_states(), [EffectState::Ambiguous]);
}

#[test]
fn a_timed_out_batch_leaves_no_process() {
    let project = Project::with(
        "{
            name: 'b', startAt: 'a',
            nodes: { a: action({ timeoutMs: 800, effect: idempotentEffect('x'), run: (ctx) => runCommandBatch({
                concurrency: 3, signal: ctx.signal,
                commands: [1, 2, 3].map((n) => ({ id: 'c' + n, command: 'sh', args: ['-c', `echo $$ > pid${n}; exec sleep 300`] })),
            }) }) },
            edges: [],
        }",
    );
    let server = run(&project);
    assert_eq!(server.step("a").outcome, NodeOutcome::TimedOut);
    for n in 1..=3 {
        let pid = project.read(format!("pid{n}")).trim().parse().unwrap();
        assert_eq!(ProcessIdentity::of(pid).unwrap(), None, "command {n} is gone");
    }
}

#[test]
fn a_batch_gets_everything_that_was_captured() {
    let project = Project::with(
        "{
            name: 'b', startAt: 'a',
            nodes: { a: action({ effect: idempotentEffect('x'), run: async () => {
                const [all, missing, slow] = await runCommandBatch({ commands: [
                    { command: 'sh', args: ['-c', 'yes x | head -c 400000'] },
                    { command: 'no-such-program-here' },
                    { command: 'sleep', args: ['300'], timeoutMs: 200 },
                ] });
                if (!all.ok) throw new Error(JSON.stringify(all)); return { length: all.stdout.length, missing: missing.error.message, slow: slow.signal };
            } }) },
            edges: [],
        }",
    );
    let output = run(&project).final_output();
    assert_eq!(output["length"], 400_000);
    assert!(
        output["missing"].as_str().unwrap().contains("command not found"),
        "{output}"
    );
    assert_eq!(output["slow"], "SIGTERM");
}

#[test]
fn children_of_script_code_die_with_their_node() {
    let project = Project::new(
        "import { defineWorkflow, action, idempotentEffect } from 'piw';
         import { spawn } from 'node:child_process';
         import { writeFileSync } from 'node:fs';
         export default defineWorkflow({
            name: 'c', startAt: 'a',
            nodes: { a: action({ effect: idempotentEffect('x'), run: () => { const child = spawn('sleep', ['300'], { detached: true, stdio: 'ignore' }); writeFileSync('pid', String(child.pid)); return 1 } }) },
            edges: [],
         });",
    );
    run(&project);
    let pid = project.read("pid").trim().parse().unwrap();
    assert_eq!(ProcessIdentity::of(pid).unwrap(), None);
}

#[test]
fn paced_lines_hold_the_command_back() {
    let project = shell(
        &sh("i=0; while [ $i -lt 130 ]; do echo $i; i=$((i+1)); done"),
        "updates: { parseLine: (line) => ({ type: 'note', key: 'k', data: { line } }) }",
    );
    let server = run(&project);
    assert_eq!(server.updates.len(), 130, "none is dropped, none is refused");
}

#[test]
fn ending_one_command_of_a_batch_spares_the_others() {
    let project = Project::with(
        "{
            name: 'b', startAt: 'a',
            nodes: { a: action({ effect: idempotentEffect('x'), run: async () => {
                const commands = Array.from({ length: 40 }, (_, n) => ({ id: 'c' + n, command: 'sh', args: ['-c', n % 3 ? 'sleep 0.02' : 'sleep 60 & exit 0'] }));
                const results = await runCommandBatch({ concurrency: 4, commands });
                return results.filter((result) => !result.ok).map((result) => result.error?.message ?? result.signal);
            } }) },
            edges: [],
        }",
    );
    assert_eq!(run(&project).final_output(), json!([]));
}
