//! Generations of whole runs: order, routing, mounts, failures, restores, and leaving in time.

use crate::support::{Act, Project, Server};
use piw_protocol::child::{ChildBody, PushAction, ValueRef};
use piw_protocol::run::{NodeOutcome, RunStatus};
use serde_json::json;

/// a → b → a … until `a` has counted to `times`, then `done`.
fn counting(times: u32) -> Project {
    Project::with(&format!(
        "{{
            name: 'count', startAt: 'a', maxSteps: 2000,
            nodes: {{
                a: compute({{ run: ({{ outputs }}) => ({{ n: (outputs.b?.n ?? 0) + 1, go: (outputs.b?.n ?? 0) + 1 < {times} }}) }}),
                b: compute({{ run: ({{ outputs }}) => outputs.a }}),
                done: compute({{ run: ({{ outputs, input }}) => ({{ total: outputs.a.n, hello: input.hello }}) }}),
            }},
            edges: [
                {{ from: 'a', switch: {{ on: '$.go', cases: {{ true: 'b', false: 'done' }} }} }},
                {{ from: 'b', to: 'a' }},
            ],
        }}"
    ))
}

#[test]
fn a_loop_runs_to_its_end() {
    let project = counting(3);
    let mut server = project.start(json!({ "hello": "you" }));
    let end = server.run();
    assert_eq!(end.success, Some(true));
    assert_eq!(server.path(), ["a", "b", "a", "b", "a", "done"]);
    assert_eq!(server.final_output(), json!({ "total": 3, "hello": "you" }));
    let visits: Vec<u32> = server.starts.iter().map(|start| start.visit).collect();
    assert_eq!(visits, [1, 1, 2, 2, 3, 1]);
}

#[test]
fn between_two_nodes_there_is_one_message() {
    let project = counting(50);
    let mut server = project.start(json!({}));
    let end = server.run();
    let kinds: Vec<&str> = end
        .messages
        .iter()
        .map(|message| match message.body {
            ChildBody::Ready { .. } => "ready",
            ChildBody::NodeStarted(_) => "started",
            ChildBody::NodeFinished(_) => "finished",
            ChildBody::Exiting { .. } => "exiting",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds[..2], ["ready", "started"]);
    assert_eq!(kinds[kinds.len() - 1], "exiting");
    assert_eq!(kinds.len(), server.steps.len() + 3);
    assert!(kinds[2..kinds.len() - 1].iter().all(|kind| *kind == "finished"));
}

#[test]
fn a_run_killed_at_any_message_goes_on_where_it_was() {
    let project = counting(2);
    let mut whole = project.start(json!({ "hello": 1 }));
    let messages = whole.run().messages.len();
    for act in [Act::Kill, Act::CommitAndKill] {
        for at in 0..messages - 1 {
            let mut server = project.start(json!({ "hello": 1 }));
            let mut seen = 0;
            server.run_with(|_, _| {
                seen += 1;
                if seen == at + 1 { act } else { Act::Answer }
            });
            if server.finished.is_none() {
                let before = server.path().len();
                server.run();
                assert!(server.path().len() > before);
            }
            assert_eq!(server.path(), whole.path(), "{act:?} at message {at}");
            assert_eq!(server.final_output(), whole.final_output());
        }
    }
}

#[test]
fn a_failure_is_routed_where_the_edge_says_so_and_ends_the_run_elsewhere() {
    let routed = Project::with(
        "{
            name: 'f', startAt: 'a',
            nodes: {
                a: compute({ run: () => { throw new Error('broken on purpose') } }),
                rescue: compute({ run: ({ results }) => ({ saw: results.a.outcome, why: results.a.error.message }) }),
                fine: compute({ run: () => 1 }),
            },
            edges: [{ from: 'a', switch: { on: '$result.outcome', cases: { ok: 'fine', failed: 'rescue' } } }],
        }",
    );
    let mut server = routed.start(json!(null));
    server.run();
    assert_eq!(server.path(), ["a", "rescue"]);
    let output = server.final_output();
    assert_eq!(output["saw"], "failed");
    assert!(output["why"].as_str().unwrap().contains("broken on purpose"));
    let error = server.step("a").error.clone().unwrap();
    assert!(
        error.stack.unwrap().contains("main.workflow.ts:"),
        "the stack names the source"
    );

    let plain = Project::with(
        "{
            name: 'f', startAt: 'a',
            nodes: { a: compute({ run: () => { throw new Error('no way on') } }), b: compute({ run: () => 1 }) },
            edges: [{ from: 'a', to: 'b' }],
        }",
    );
    let mut server = plain.start(json!(null));
    server.run();
    let finished = server.finished.unwrap();
    assert_eq!(finished.status, RunStatus::Failed);
    assert!(finished.error.unwrap().message.contains("no way on"));
}

#[test]
fn a_routing_error_shows_path_and_value() {
    let project = Project::with(
        "{
            name: 'r', startAt: 'a',
            nodes: { a: compute({ run: () => ({ route: 'sideways' }) }), b: compute({ run: () => 1 }) },
            edges: [{ from: 'a', switch: { on: '$.route', cases: { up: 'b' } } }],
        }",
    );
    let mut server = project.start(json!(null));
    server.run();
    let error = server.finished.unwrap().error.unwrap();
    assert_eq!(error.code.as_deref(), Some("routing"));
    assert!(
        error.message.contains("$.route") && error.message.contains("sideways"),
        "{}",
        error.message
    );
}

#[test]
fn compute_cannot_touch_the_outside() {
    let project = Project::new(
        "import { defineWorkflow, compute } from 'piw';
         import { readFileSync } from 'node:fs';
         export default defineWorkflow({
            name: 'p', startAt: 'a',
            nodes: { a: compute({ run: () => readFileSync('/etc/passwd', 'utf8').length }) },
            edges: [],
         });",
    );
    let mut server = project.start(json!(null));
    server.run();
    assert_eq!(server.step("a").outcome, NodeOutcome::Failed);
    assert!(server.error("a").contains("readFileSync"), "{}", server.error("a"));
}

/// A child mounted twice in a loop: `twice` is entered, left by an exit, entered again.
fn mounted() -> Project {
    let project = Project::new(
        "import { defineWorkflow, compute, includeWorkflow } from 'piw';
         import child from './child.workflow.ts';
         export default defineWorkflow({
            name: 'parent', startAt: 'first', source: import.meta.url,
            includes: { twice: includeWorkflow(child, { input: ({ outputs }) => ({ n: outputs.next?.n ?? outputs.first.n }) }) },
            nodes: {
                first: compute({ run: () => ({ n: 1 }) }),
                next: compute({ run: ({ outputs, results }) => ({ n: outputs.twice.doubled, exit: results.twice.exit, go: outputs.twice.doubled < 4 }) }),
                end: compute({ run: ({ outputs }) => ({ n: outputs.next.n, seen: Object.keys(outputs).sort() }) }),
            },
            edges: [
                { from: 'first', to: 'twice' },
                { from: 'twice.done', to: 'next' },
                { from: 'next', switch: { on: '$.go', cases: { true: 'twice', false: 'end' } } },
            ],
         });",
    );
    project.write(
        ".pi/workflows/child.workflow.ts",
        "import { defineWorkflow, compute } from 'piw';
         export default defineWorkflow({
            name: 'child', startAt: 'work', source: import.meta.url,
            input: (value) => { if (typeof value.n !== 'number') throw new Error('n is missing'); return { n: value.n, fresh: true } },
            nodes: {
                work: compute({ run: ({ input, outputs }) => ({ n: input.n * 2, fresh: input.fresh, empty: outputs.report === undefined }) }),
                report: compute({ run: ({ outputs }) => ({ ...outputs.work }) }),
            },
            edges: [{ from: 'work', to: 'report' }],
            exits: { done: { node: 'report', validate: (value) => { if (!value.empty) throw new Error('not empty'); return { doubled: value.n } } } },
         });",
    );
    project
}

#[test]
fn a_mounted_workflow_is_entered_left_and_entered_again_empty() {
    let project = mounted();
    let mut server = project.start(json!(null));
    server.run();
    let path = [
        "first",
        "twice/work",
        "twice/report",
        "next",
        "twice/work",
        "twice/report",
        "next",
        "end",
    ];
    assert_eq!(server.path(), path);
    assert_eq!(
        server.final_output(),
        json!({ "n": 4, "seen": ["first", "next", "twice"] })
    );
    let entered = server
        .starts
        .iter()
        .find(|start| start.node_id == "twice/work")
        .unwrap();
    assert_eq!(entered.enters[0].mount, "twice");
    assert_eq!(
        entered.enters[0].input,
        ValueRef::Inline(json!({ "n": 1, "fresh": true }))
    );
    let left = server.step("twice/report");
    assert_eq!(
        (left.leaves[0].mount.as_str(), left.leaves[0].exit.as_str()),
        ("twice", "done")
    );
}

#[test]
fn a_mounted_run_goes_on_after_a_crash_at_every_node() {
    let project = mounted();
    let steps = 8;
    for at in 0..steps {
        let mut server = project.start(json!(null));
        server.run_with(|message, server| {
            let ends = matches!(message.body, ChildBody::NodeFinished(_));
            if ends && server.steps.len() == at {
                Act::CommitAndKill
            } else {
                Act::Answer
            }
        });
        if server.finished.is_none() {
            server.run();
        }
        assert_eq!(server.path().len(), steps, "killed at step {at}");
        assert_eq!(server.final_output()["n"], 4);
    }
}

#[test]
fn a_mount_that_refuses_its_input_ends_the_run() {
    let project = mounted();
    project.write(
        ".pi/workflows/main.workflow.ts",
        "import { defineWorkflow, compute, includeWorkflow } from 'piw';
         import child from './child.workflow.ts';
         export default defineWorkflow({
            name: 'parent', startAt: 'first',
            includes: { sub: includeWorkflow(child, { input: () => ({ wrong: 1 }) }) },
            nodes: { first: compute({ run: () => 1 }), end: compute({ run: () => 2 }) },
            edges: [{ from: 'first', to: 'sub' }, { from: 'sub.done', to: 'end' }],
         });",
    );
    let mut server = project.start(json!(null));
    server.run();
    let error = server.finished.unwrap().error.unwrap();
    assert_eq!(error.code.as_deref(), Some("includeInput"));
    assert!(
        error.message.contains("\"sub\"") && error.message.contains("n is missing"),
        "{}",
        error.message
    );
}

#[test]
fn a_refusing_exit_fails_its_node() {
    let project = Project::new(
        "import { defineWorkflow, compute, includeWorkflow } from 'piw';
         import child from './child.workflow.ts';
         export default defineWorkflow({
            name: 'parent', startAt: 'sub',
            includes: { sub: includeWorkflow(child, {}) },
            nodes: { end: compute({ run: () => 2 }) },
            edges: [{ from: 'sub.done', to: 'end' }],
         });",
    );
    project.write(
        ".pi/workflows/child.workflow.ts",
        "import { defineWorkflow, compute } from 'piw';
         export default defineWorkflow({
            name: 'child', startAt: 'work', nodes: { work: compute({ run: () => 5 }) }, edges: [],
            exits: { done: { node: 'work', validate: () => { throw new Error('five is not enough') } } },
         });",
    );
    let mut server = project.start(json!(null));
    server.run();
    assert_eq!(server.step("sub/work").outcome, NodeOutcome::Failed);
    assert!(server.error("sub/work").contains("five is not enough"));
    assert_eq!(server.finished.as_ref().unwrap().status, RunStatus::Failed);
}

#[test]
fn a_checkpoint_waits_and_its_continuation_goes_on_with_the_answer() {
    let project = Project::with(
        "{
            name: 'c', startAt: 'a',
            nodes: {
                a: compute({ run: () => 'before' }),
                ask: checkpoint({ summary: 'Is it good?', run: ({ outputs }) => ({ about: outputs.a }) }),
                then: compute({ run: ({ outputs, input }) => ({ answer: outputs.ask, before: outputs.a, input }) }),
            },
            edges: [{ from: 'a', to: 'ask' }, { from: 'ask', to: 'then' }],
        }",
    );
    let mut server = project.start(json!("in"));
    let end = server.run();
    assert_eq!(end.success, Some(true));
    assert_eq!(server.progress.waiting_on(&server.definition), Some("ask"));
    assert_eq!(
        server.output("ask"),
        json!({ "summary": "Is it good?", "request": { "about": "before" } })
    );
    server.answer(json!({ "yes": true }));
    server.run();
    assert_eq!(server.path(), ["a", "ask", "then"]);
    let expected = json!({ "answer": { "yes": true }, "before": "before", "input": "in" });
    assert_eq!(server.final_output(), expected);
}

#[test]
fn a_checkpoint_at_the_end_ends_its_run_with_the_answer() {
    let project =
        Project::with("{ name: 'c', startAt: 'ask', nodes: { ask: checkpoint({ summary: 'Well?' }) }, edges: [] }");
    let mut server = project.start(json!(null));
    server.run();
    server.answer(json!(42));
    server.run();
    assert_eq!(server.final_output(), json!(42));
}

#[test]
fn a_loop_bound_ends_the_run() {
    let project = Project::with(
        "{
            name: 'l', startAt: 'a', maxSteps: 5,
            nodes: { a: compute({ run: () => 1 }), b: compute({ run: () => 2 }) },
            edges: [{ from: 'a', to: 'b' }, { from: 'b', to: 'a' }],
        }",
    );
    let mut server = project.start(json!(null));
    server.run();
    assert_eq!(server.path().len(), 5);
    assert_eq!(
        server.finished.unwrap().error.unwrap().code.as_deref(),
        Some("maxSteps")
    );
}

#[test]
fn details_and_budgets_can_be_computed() {
    let project = Project::with(
        "{
            name: 'd', startAt: 'a',
            nodes: {
                a: compute({ statusDetail: ({ input }) => `for  ${input.who}\\n`, timeoutMs: ({ input }) => input.ms, run: () => 1 }),
                b: compute({ statusDetail: () => { throw new Error('no detail') }, timeoutMs: null, run: () => 2 }),
                c: compute({ timeoutMs: () => -5, run: () => 3 }),
            },
            edges: [{ from: 'a', to: 'b' }, { from: 'b', to: 'c' }],
        }",
    );
    let mut server = project.start(json!({ "who": "you", "ms": 1234 }));
    server.run();
    let start = |node: &str| server.starts.iter().find(|start| start.node_id == node).unwrap();
    assert_eq!(start("a").status_detail.as_deref(), Some("for you"));
    assert_eq!(start("a").timeout_ms, Some(1234));
    assert_eq!(
        (start("b").status_detail.as_deref(), start("b").timeout_ms),
        (None, None)
    );
    assert!(server.printed.contains("no detail"), "{}", server.printed);
    assert_eq!(server.step("c").outcome, NodeOutcome::Failed);
    assert!(
        server.error("c").contains("timeoutMs of node \"c\""),
        "{}",
        server.error("c")
    );
}

#[test]
fn a_callback_that_never_settles_times_out() {
    let project = Project::with(
        "{
            name: 't', startAt: 'a',
            nodes: {
                a: action({ effect: idempotentEffect('x'), timeoutMs: 100, run: () => new Promise((resolve) => setTimeout(resolve, 60_000)) }),
                b: compute({ timeoutMs: 100, run: () => { for (;;) {} } }),
                c: compute({ run: ({ results }) => [results.a.outcome, results.b.outcome] }),
            },
            edges: [
                { from: 'a', switch: { on: '$result.outcome', cases: { timed_out: 'b' } } },
                { from: 'b', switch: { on: '$result.outcome', cases: { timed_out: 'c' } } },
            ],
        }",
    );
    let mut server = project.start(json!(null));
    server.run();
    assert_eq!(server.final_output(), json!(["timed_out", "timed_out"]));
}

#[test]
fn a_loop_in_native_code_ends_as_a_timed_out_node() {
    let project = Project::with(
        "{
            name: 't', startAt: 'a',
            nodes: {
                a: compute({ timeoutMs: 200, run: () => { const s = 'a'.repeat(2e6); for (;;) s.indexOf('b'.repeat(1e6)); } }),
                b: compute({ run: ({ results }) => results.a.outcome }),
            },
            edges: [{ from: 'a', switch: { on: '$result.outcome', cases: { timed_out: 'b' } } }],
        }",
    );
    let mut server = project.start(json!(null));
    let end = server.run();
    assert_eq!(server.step("a").outcome, NodeOutcome::TimedOut);
    if end.success == Some(false) {
        // The process had to end; the next generation goes on.
        server.run();
    }
    assert_eq!(server.final_output(), json!("timed_out"));
}

#[test]
fn large_values_travel_outside_the_messages() {
    let project = Project::with(
        "{
            name: 'l', startAt: 'a',
            nodes: {
                a: compute({ run: ({ input }) => ({ text: 'x'.repeat(5_000_000), echo: input.length }) }),
                b: compute({ run: ({ outputs }) => ({ length: outputs.a.text.length, echo: outputs.a.echo, text: outputs.a.text }) }),
            },
            edges: [{ from: 'a', to: 'b' }],
        }",
    );
    let input = "y".repeat(300_000);
    let mut server = project.start(json!(input));
    server.run_with(|message, _| match message.body {
        ChildBody::NodeFinished(_) => Act::CommitAndKill,
        _ => Act::Answer,
    });
    assert_eq!(server.path(), ["a"], "a large output is committed");
    server.run();
    let output = server.final_output();
    assert_eq!(
        (output["length"].as_u64(), output["echo"].as_u64()),
        (Some(5_000_000), Some(300_000))
    );
    assert!(matches!(server.step("a").output, ValueRef::Content(_)));
}

#[test]
fn a_changed_source_parks_before_anything_is_evaluated() {
    let project = mounted();
    for (file, changed) in [
        (".pi/workflows/main.workflow.ts", "throw new Error('evaluated')"),
        (".pi/workflows/child.workflow.ts", "throw new Error('evaluated')"),
    ] {
        let before = project.read(file);
        let mut server = project.start(json!(null));
        project.write(file, changed);
        let end = server.run();
        assert_eq!(end.success, Some(true));
        let (reason, message) = server.parked.clone().expect("the run parks");
        assert_eq!(reason, "workflowSourceChanged");
        assert!(message.contains(file.rsplit('/').next().unwrap()), "{message}");
        assert!(server.starts.is_empty());
        project.write(file, &before);
        server.run();
        assert_eq!(server.final_output()["n"], 4);
    }
}

#[test]
fn orders_end_a_generation_at_the_right_place() {
    let project = Project::with(
        "{
            name: 'o', startAt: 'a',
            nodes: {
                a: compute({ run: () => 1 }),
                b: action({ effect: idempotentEffect('x'), run: async ({ signal }) => { await new Promise((r) => setTimeout(r, 60_000)); } }),
                c: compute({ run: () => 3 }),
            },
            edges: [{ from: 'a', to: 'b' }, { from: 'b', to: 'c' }],
        }",
    );
    // A stop lets the running node finish; the next one has only been started.
    let mut server = project.start(json!(null));
    let end = server.run_with(|message, _| match message.body {
        ChildBody::NodeStarted(_) => Act::AnswerAndPush(PushAction::Stop),
        _ => Act::Answer,
    });
    assert_eq!(end.success, Some(true));
    assert!(server.path().len() <= 1, "nothing runs after a stop");
    // A cancelled node is aborted and commits nothing.
    let mut server = project.start(json!(null));
    let started = std::time::Instant::now();
    let end = server.run_with(|message, _| match message.body {
        ChildBody::EffectReserve { .. } => Act::AnswerAndPush(PushAction::Cancel),
        _ => Act::Answer,
    });
    assert_eq!(end.success, Some(true));
    assert_eq!(server.path(), ["a"]);
    assert!(
        started.elapsed() < std::time::Duration::from_secs(30),
        "it does not wait for the node"
    );
    assert!(matches!(end.messages.last().unwrap().body, ChildBody::Exiting { .. }));
}

#[test]
fn a_lost_claim_or_a_closed_channel_ends_the_runner_without_a_word() {
    let project = counting(5);
    for act in [Act::ClaimLost, Act::Close] {
        let mut server = project.start(json!({}));
        let end = server.run_with(|_, server| if server.steps.len() == 2 { act } else { Act::Answer });
        assert_eq!(end.success, Some(true), "{act:?}");
        let last = &end.messages.last().unwrap().body;
        assert!(matches!(last, ChildBody::NodeFinished(_)), "nothing follows: {last:?}");
    }
}

#[test]
fn a_compute_node_whose_start_was_refused_never_happened() {
    // The node that follows is executed while the end before it is committed; this one would not come back by itself.
    let project = Project::with(
        "{ name: 'v', startAt: 'a', nodes: { a: compute({ run: () => 1 }), b: compute({ run: () => { for (;;) {} } }) },
           edges: [{ from: 'a', to: 'b' }] }",
    );
    let mut server = project.start(json!(null));
    let end = server.run_with(|message, _| match message.body {
        ChildBody::NodeFinished(_) => Act::ClaimLost,
        _ => Act::Answer,
    });
    assert_eq!(end.success, Some(true));
    let last = &end.messages.last().unwrap().body;
    assert!(
        matches!(last, ChildBody::NodeFinished(finish) if finish.node_id == "a"),
        "nothing follows: {last:?}"
    );
}

#[test]
fn bad_outputs_fail_their_node_and_name_the_place() {
    for (run, said) in [
        ("() => ({ a: [1, 10n] })", "$.a[1]"),
        ("() => { const x = {}; x.self = x; return x }", "self"),
        (
            "() => { let x = 1; for (let i = 0; i < 200; i++) x = [x]; return x }",
            "128",
        ),
        ("() => ({ bad: '\\ud800' })", "$.bad"),
        ("() => process.exit(3)", "exit"),
    ] {
        let project = Project::with(&format!(
            "{{ name: 'v', startAt: 'a', nodes: {{ a: compute({{ run: {run} }}) }}, edges: [] }}"
        ));
        let mut server: Server = project.start(json!(null));
        let end = server.run();
        assert_eq!(end.success, Some(true), "{run}");
        assert_eq!(server.step("a").outcome, NodeOutcome::Failed, "{run}");
        assert!(server.error("a").contains(said), "{run}: {}", server.error("a"));
    }
}

#[test]
fn nested_mounts_are_left_together_and_included_by_name() {
    let project = Project::new(
        "import { defineWorkflow, compute, includeWorkflow } from 'piw';
         export default defineWorkflow({
            name: 'outer', startAt: 'mid',
            includes: { mid: includeWorkflow({ workflow: 'middle' }, { input: ({ input }) => ({ from: input }) }) },
            nodes: { end: compute({ run: ({ outputs, results }) => ({ mid: outputs.mid, exit: results.mid.exit }) }) },
            edges: [{ from: 'mid.out', to: 'end' }],
         });",
    );
    project.write(
        ".pi/workflows/middle.workflow.ts",
        "import { defineWorkflow, compute, includeWorkflow } from 'piw';
         export default defineWorkflow({
            name: 'middle', startAt: 'in',
            includes: { in: includeWorkflow({ workflow: './inner.workflow.ts' }, { input: ({ input }) => ({ ...input, by: 'middle' }) }) },
            nodes: { wrap: compute({ run: ({ outputs }) => outputs.in }) },
            edges: [{ from: 'in.good', to: 'wrap' }],
            exits: { out: { node: 'wrap', validate: (value) => ({ wrapped: value }) } },
         });",
    );
    project.write(
        ".pi/workflows/inner.workflow.ts",
        "import { defineWorkflow, compute } from 'piw';
         export default defineWorkflow({
            name: 'inner', startAt: 'work', nodes: { work: compute({ run: ({ input }) => ({ saw: input }) }) }, edges: [],
            exits: { good: { node: 'work', validate: (value) => ({ ...value, checked: true }) } },
         });",
    );
    for kill_at in 0..3 {
        let mut server = project.start(json!("top"));
        server.run_with(|message, server| match message.body {
            ChildBody::NodeFinished(_) if server.steps.len() == kill_at => Act::CommitAndKill,
            _ => Act::Answer,
        });
        if server.finished.is_none() {
            server.run();
        }
        assert_eq!(server.path(), ["mid/in/work", "mid/wrap", "end"]);
        let inner = json!({ "saw": { "from": "top", "by": "middle" }, "checked": true });
        assert_eq!(
            server.final_output(),
            json!({ "mid": { "wrapped": inner }, "exit": "out" })
        );
    }
}

#[test]
fn a_checkpoint_inside_a_mount_can_be_its_exit() {
    let project = Project::new(
        "import { defineWorkflow, compute, includeWorkflow } from 'piw';
         import child from './child.workflow.ts';
         export default defineWorkflow({
            name: 'parent', startAt: 'sub',
            includes: { sub: includeWorkflow(child, {}) },
            nodes: { end: compute({ run: ({ outputs }) => outputs.sub }) },
            edges: [{ from: 'sub.answered', to: 'end' }],
         });",
    );
    project.write(
        ".pi/workflows/child.workflow.ts",
        "import { defineWorkflow, checkpoint } from 'piw';
         export default defineWorkflow({
            name: 'child', startAt: 'ask', nodes: { ask: checkpoint({ summary: 'Go on?' }) }, edges: [],
            exits: { answered: { node: 'ask', validate: (value) => { if (value === 'no') throw new Error('it must be yes'); return { answer: value } } } },
         });",
    );
    let mut server = project.start(json!(null));
    server.run();
    server.answer(json!("yes"));
    server.run();
    assert_eq!(server.final_output(), json!({ "answer": "yes" }));
    let mut server = project.start(json!(null));
    server.run();
    server.answer(json!("no"));
    server.run();
    let error = server.finished.unwrap().error.unwrap();
    assert_eq!(error.code.as_deref(), Some("exitValidation"));
    assert!(error.message.contains("it must be yes"), "{}", error.message);
}

#[test]
fn a_run_with_many_results_is_restored() {
    let project = Project::new(
        "import { defineWorkflow, compute } from 'piw';
         const nodes = {}; const edges = [];
         for (let i = 0; i < 40; i++) {
            nodes['n' + i] = compute({ run: ({ outputs }) => ({ i, before: Object.keys(outputs).length, pad: 'p'.repeat(20_000) }) });
            if (i) edges.push({ from: 'n' + (i - 1), to: 'n' + i });
         }
         export default defineWorkflow({ name: 'many', startAt: 'n0', nodes, edges });",
    );
    let mut server = project.start(json!(null));
    server.run_with(|message, server| match message.body {
        ChildBody::NodeFinished(_) if server.steps.len() == 35 => Act::CommitAndKill,
        _ => Act::Answer,
    });
    server.run();
    assert_eq!(server.final_output()["before"], 39);
}

#[test]
fn a_memory_flood_fails_its_node_and_the_run_goes_on() {
    let project = Project::with(
        "{
            name: 'm', startAt: 'a',
            nodes: {
                a: compute({ run: () => { const all = []; for (;;) all.push('x'.repeat(100_000) + all.length); } }),
                b: compute({ run: ({ results }) => results.a.outcome }),
            },
            edges: [{ from: 'a', switch: { on: '$result.outcome', cases: { failed: 'b' } } }],
        }",
    );
    let mut server = project.start(json!(null));
    let end = server.run();
    assert_eq!(end.success, Some(true));
    assert_eq!(server.final_output(), json!("failed"));
}
