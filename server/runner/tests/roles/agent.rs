//! Agent steps: prompts, submissions, reminders and ends, with a scripted command as the agent.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Act, Project, Server};
use piw_process::ProcessIdentity;
use piw_protocol::child::{ChildBody, PushAction, Settlement, ValueRef};
use piw_protocol::run::{NodeOutcome, RunStatus};
use serde_json::json;

/// A project with one agent step `ask` of these fields, and a shell script as the agent. The script runs in the project.
fn asking(fields: &str, script: &str) -> Project {
    with_agent(
        Project::with(&format!(
            "{{ name: 'w', startAt: 'ask', nodes: {{ ask: agent({{ {fields} }}) }}, edges: [] }}"
        )),
        script,
    )
}

fn with_agent(project: Project, script: &str) -> Project {
    project.write("agent.sh", &format!("#!/bin/sh\n{script}\n"));
    let agent = project.path().join("agent.sh");
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    project.write(
        "config.toml",
        &format!("[agent]\ncommand = ['{}', 'first argument']\n", agent.display()),
    );
    project
}

fn run(project: &Project, input: serde_json::Value) -> Server {
    let mut server = project.start(input);
    let end = server.run();
    assert_eq!(end.success, Some(true), "{}", server.printed);
    assert!(server.groups.is_empty(), "every registered group is unregistered");
    server
}

/// Lines of the file `turns`, one a turn of the agent.
fn turns(project: &Project) -> usize {
    if project.has("turns") {
        project.read("turns").lines().count()
    } else {
        0
    }
}

#[test]
fn a_command_gets_the_prompt_and_its_json_is_the_output() {
    let project = asking(
        "prompt: ({ input }) => `Judge ${input.what}.`, expectedOutput: '{\"good\": boolean}'",
        "cat > prompt.txt; printf '%s' \"$1|$PIW_REQUEST_ID\" > seen.txt; echo 'I think: {\"good\": true}'; echo thinking >&2",
    );
    let server = run(&project, json!({ "what": "this" }));
    assert_eq!(server.final_output(), json!({ "good": true }));
    let request = &server.starts[0].attempt_id;
    assert_eq!(project.read("seen.txt"), format!("first argument|{request}"));
    let prompt = project.read("prompt.txt");
    for part in [
        "Judge this.",
        "{\"good\": boolean}",
        "workflow: w\nstep: ask\nattempt: 1",
        request,
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert_eq!(
        server.prompts,
        [prompt],
        "the recorded prompt is the one that was given"
    );
    assert_eq!(server.registered[0].1, "agent.sh");
    let receipt = server.step("ask").action.clone().unwrap();
    assert_eq!(
        (receipt.exit_code, receipt.stderr.as_deref()),
        (Some(0), Some("thinking\n"))
    );
}

#[test]
fn a_rejected_submission_is_corrected_within_the_same_request() {
    let project = asking(
        "prompt: 'Count.', expectedOutput: '{\"n\": number}',
         validate: (output) => { if (typeof output.n !== 'number') throw new Error('n must be a number'); return { n: output.n, checked: true }; }",
        "echo $PIW_REQUEST_ID >> turns; if grep -q 'n must be a number'; then echo '{\"n\": 3}'; else echo '{\"n\": \"three\"}'; fi",
    );
    let server = run(&project, json!(null));
    assert_eq!(server.final_output(), json!({ "n": 3, "checked": true }));
    let requests = project.read("turns");
    let mut requests = requests.lines();
    assert_eq!(
        (requests.next(), requests.count()),
        (Some(server.starts[0].attempt_id.as_str()), 1)
    );
    assert_eq!((server.steps.len(), server.prompts.len()), (1, 1));
    assert!(
        server.printed.contains("turn 1: was rejected: n must be a number"),
        "{}",
        server.printed
    );
}

#[test]
fn two_reminders_then_the_attempt_fails() {
    for (script, said) in [
        ("echo 'I would rather talk.'", "\"agent.sh\" printed no JSON"),
        (
            "echo '{\"n\": 1}'; echo no credits left >&2; exit 4",
            "exited with code 4: no credits left",
        ),
        ("echo '{\"n\": null}'", "n is missing"),
    ] {
        let project = asking(
            "prompt: 'Count.', expectedOutput: 'n', validate: (output) => { if (output.n === null) throw new Error('n is missing'); return output; }",
            &format!("cat > \"prompt.$(cat turns 2>/dev/null | wc -l | tr -d ' ')\"; echo x >> turns; {script}"),
        );
        let server = run(&project, json!(null));
        let step = server.step("ask");
        assert_eq!((step.outcome, turns(&project)), (NodeOutcome::Failed, 3), "{script}");
        assert_eq!(step.error.as_ref().unwrap().code.as_deref(), Some("noSubmission"));
        let error = server.error("ask");
        assert!(
            error.contains("in 3 turns") && error.contains(said.trim_start_matches("\"agent.sh\" ")),
            "{error}"
        );
        assert_eq!(server.finished.as_ref().unwrap().status, RunStatus::Failed);
        assert!(
            !project.read("prompt.0").contains(" reminder"),
            "the first turn is no reminder"
        );
        assert!(project.read("prompt.1").contains(" reminder") && project.read("prompt.2").contains(" reminder"));
    }
}

#[test]
fn a_validator_that_does_not_work_rejects_and_the_request_lives_on() {
    let project = asking(
        "prompt: 'x', expectedOutput: 'y', validate: (output) => output.again ? output : { broken: 1n }",
        "echo x >> turns; if grep -q ' reminder'; then echo '{\"again\": true}'; else echo '{}'; fi",
    );
    assert_eq!(run(&project, json!(null)).final_output(), json!({ "again": true }));
    assert_eq!(turns(&project), 2);
}

#[test]
fn a_decision_routes() {
    let project = with_agent(
        Project::with(
            "{ name: 'w', startAt: 'pick',
               nodes: {
                 pick: decision({ question: 'Which way?', choices: { left: 'the old road', right: 'the new one' } }),
                 left: compute({ run: () => 'went left' }), right: compute({ run: () => 'went right' }),
               },
               edges: [decisionEdge({ from: 'pick', choices: ['left', 'right'], cases: { left: 'left', right: 'right' } })] }",
        ),
        "cat > prompt.txt; echo x >> turns; if [ $(wc -l < turns) = 1 ]; then echo '{\"route\": \"up\"}'; else echo '{\"route\": \"right\"}'; fi",
    );
    let server = run(&project, json!(null));
    assert_eq!(server.final_output(), json!("went right"));
    let prompt = project.read("prompt.txt");
    assert!(
        prompt.contains("- left: the old road") && prompt.contains("must be one of left, right"),
        "{prompt}"
    );
}

#[test]
fn a_step_that_is_overdue_is_ended_with_its_agent() {
    let project = asking(
        "prompt: 'x', expectedOutput: 'y', timeoutMs: 500",
        "echo $$ > pid; exec sleep 300",
    );
    let server = run(&project, json!(null));
    let step = server.step("ask");
    assert_eq!(step.outcome, NodeOutcome::TimedOut);
    assert!(
        server.error("ask").contains("500 ms, the time the step had"),
        "{}",
        server.error("ask")
    );
    assert!(gone(&project));
}

fn gone(project: &Project) -> bool {
    let pid: u32 = project.read("pid").trim().parse().unwrap();
    ProcessIdentity::of(pid).unwrap().is_none()
}

#[test]
fn a_cancelled_run_ends_its_agent_and_commits_nothing() {
    let project = asking("prompt: 'x', expectedOutput: 'y'", "echo $$ > pid; exec sleep 300");
    let mut server = project.start(json!(null));
    let path = project.path().join("pid");
    let end = server.run_with(|message, _| {
        if matches!(message.body, ChildBody::ProcessRegister { .. }) {
            Act::AnswerAndPush(PushAction::Cancel)
        } else {
            Act::Answer
        }
    });
    assert_eq!(end.success, Some(true));
    assert!(server.steps.is_empty() && server.groups.is_empty());
    assert!(!path.exists() || gone(&project));
}

#[test]
fn a_killed_runner_asks_again_and_an_accepted_submission_is_committed_once() {
    let project = asking(
        "prompt: 'x', expectedOutput: 'y'",
        "cat > /dev/null; echo x >> turns; echo '{\"n\": 1}'",
    );
    let mut server = project.start(json!(null));
    // Killed with an accepted submission that was not committed, then after its commit.
    let finishing = |message: &piw_protocol::child::ChildMessage| matches!(message.body, ChildBody::NodeFinished(_));
    server.run_with(|message, _| if finishing(message) { Act::Kill } else { Act::Answer });
    assert!(server.steps.is_empty());
    server.run_with(|message, _| {
        if finishing(message) {
            Act::CommitAndKill
        } else {
            Act::Answer
        }
    });
    assert_eq!((server.steps.len(), turns(&project)), (1, 2));
    assert_eq!(server.final_output(), json!({ "n": 1 }));
    assert_ne!(server.starts[0].attempt_id, server.starts[1].attempt_id);
    assert_eq!(server.starts[1].visit, 1);
}

#[test]
fn a_bad_prompt_fails_its_node() {
    let project = asking(
        "prompt: () => ({ no: 'text' }), expectedOutput: 'y'",
        "echo x >> turns; echo 1",
    );
    let server = run(&project, json!(null));
    assert!(
        server.error("ask").contains("must be a string, not an object"),
        "{}",
        server.error("ask")
    );
    assert_eq!(turns(&project), 0, "no agent was asked");
}

#[test]
fn an_agent_that_is_not_there_is_named_before_and_during_a_run() {
    let project = asking("prompt: 'x', expectedOutput: 'y'", "echo 1");
    assert_eq!(project.resolve(json!(null)).agent_problem, None);
    let mut server = project.start(json!(null));
    std::fs::remove_file(project.path().join("agent.sh")).unwrap();
    let problem = project.resolve(json!(null)).agent_problem.unwrap();
    assert!(
        problem.contains("agent.command in ") && problem.contains("does not exist"),
        "{problem}"
    );
    server.run();
    assert_eq!(
        server.step("ask").error.as_ref().unwrap().code.as_deref(),
        Some("agentUnavailable")
    );
    std::fs::remove_file(project.path().join("config.toml")).unwrap();
    let problem = project.resolve(json!(null)).agent_problem.unwrap();
    assert!(
        problem.contains("no agent is configured") && problem.contains("config.toml"),
        "{problem}"
    );
    let without = Project::with("{ name: 'w', startAt: 'a', nodes: { a: compute({ run: () => 1 }) }, edges: [] }");
    assert_eq!(without.resolve(json!(null)).agent_problem, None);
}

#[test]
fn a_large_prompt_arrives_whole() {
    let project = asking(
        "prompt: () => 'é'.repeat(2500000), expectedOutput: 'y'",
        "cat > prompt.txt; echo '[1]'",
    );
    let server = run(&project, json!(null));
    assert_eq!(server.final_output(), json!([1]));
    assert_eq!(project.read("prompt.txt"), server.prompts[0]);
    assert!(server.prompts[0].len() > 5_000_000);
}

#[test]
fn a_bound_run_asks_its_session_and_goes_on_with_what_was_accepted() {
    let project = Project::with(
        "{ name: 'w', startAt: 'ask', nodes: {
           ask: agent({ prompt: ({ input }) => `Judge ${input.what}.`, expectedOutput: '{\"good\": boolean}', allowedTools: ['read'] }),
           after: compute({ run: ({ outputs, results }) => [outputs.ask.good, results.ask.outcome] }),
         }, edges: [{ from: 'ask', to: 'after' }] }",
    );
    let mut server = project.start(json!({ "what": "this" }));
    server.bound = true;
    assert_eq!(server.run().success, Some(true), "{}", server.printed);
    let attempt = server.requested.clone().unwrap();
    let prompt = &server.prompts[0];
    assert!(
        prompt.contains("task\nJudge this.\n")
            && prompt.contains("\"action\": \"submit\"")
            && prompt.contains(&attempt),
        "{prompt}"
    );
    assert!(server.steps.is_empty() && server.finished.is_none());

    server.settlement = Some(Settlement::Accepted {
        output: ValueRef::Inline(json!({ "good": true })),
        active_ms: 1234,
    });
    // A runner that dies before it committed anything changes nothing.
    server.run_with(|message, _| match message.body {
        ChildBody::NodeFinished(_) => Act::Kill,
        _ => Act::Answer,
    });
    assert!(server.steps.is_empty());
    assert_eq!(server.run().success, Some(true), "{}", server.printed);
    assert_eq!(server.starts.iter().filter(|start| start.node_id == "ask").count(), 1);
    let step = server.step("ask");
    assert_eq!((step.attempt_id.as_str(), step.active_ms), (attempt.as_str(), 1234));
    assert_eq!(server.final_output(), json!([true, "ok"]));
}

#[test]
fn a_request_that_ran_out_of_time_can_be_routed() {
    let project = Project::with(
        "{ name: 'w', startAt: 'ask', nodes: {
           ask: agent({ prompt: 'x', expectedOutput: assistantMessage() }),
           late: compute({ run: ({ results }) => results.ask.error.message }),
           fine: compute({ run: () => 'fine' }),
         }, edges: [{ from: 'ask', switch: { on: '$result.outcome', cases: { ok: 'fine', timed_out: 'late' } } }] }",
    );
    let mut server = project.start(json!(null));
    server.bound = true;
    assert_eq!(server.run().success, Some(true), "{}", server.printed);
    assert!(
        server.prompts[0].contains("One visible reply."),
        "{}",
        server.prompts[0]
    );
    let error = piw_protocol::run::ErrorInfo {
        code: Some("timedOut".to_owned()),
        message: "used up".to_owned(),
        stack: None,
    };
    server.settlement = Some(Settlement::TimedOut { error, active_ms: 5 });
    assert_eq!(server.run().success, Some(true), "{}", server.printed);
    assert_eq!(server.step("ask").outcome, NodeOutcome::TimedOut);
    assert_eq!(server.final_output(), json!("used up"));
}
