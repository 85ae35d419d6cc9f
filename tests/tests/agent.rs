//! Agent steps end to end: a scripted command as the agent, recorded prompts, refusals at start, and recovery after kills.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use piw_tests::home::{Home, is_running, kill_and_wait};
use piw_tests::wait;
use serde_json::{Value, json};

const REVIEW: &str = r#"
import { agent, compute, decision, decisionEdge, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "review",
  startAt: "read",
  nodes: {
    read: agent({
      prompt: ({ input }) => `Read ${input.file}.`,
      expectedOutput: `{"findings": string[]}`,
      validate: (output) => {
        if (!Array.isArray(output.findings)) throw new Error("findings must be a list");
        return { findings: output.findings };
      },
    }),
    judge: decision({ question: ({ outputs }) => `Is ${outputs.read.findings.length} too many?`, choices: ["yes", "no"] }),
    yes: compute({ run: () => "rework" }),
    no: compute({ run: ({ outputs }) => `ship with ${outputs.read.findings[0]}` }),
  },
  edges: [{ from: "read", to: "judge" }, decisionEdge({ from: "judge", choices: ["yes", "no"], cases: { yes: "yes", no: "no" } })],
});
"#;

/// Makes a script the agent of this home's user; it runs in the project.
fn agent(home: &Home, script: &str) {
    let path = home.project().join("agent.sh");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let config = home.project().parent().unwrap().join(".config/piw");
    fs::create_dir_all(&config).unwrap();
    fs::write(
        config.join("config.toml"),
        format!("[agent]\ncommand = ['{}']\n", path.display()),
    )
    .unwrap();
}

fn started(home: &Home, workflow: &str, input: &str) -> String {
    let printed = home
        .piw(&["run", workflow, "--input", input, "--detach", "--json"])
        .exits(0)
        .json();
    printed["runId"].as_str().unwrap().to_owned()
}

fn lines(home: &Home, file: &str) -> Vec<String> {
    let text = fs::read_to_string(home.project().join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_workflow_with_a_rejection_and_a_decision_completes() {
    let home = Home::new();
    home.workflow("review", REVIEW);
    agent(
        &home,
        r#"prompt=$(cat); echo turn >> turns
case "$prompt" in
  *"findings must be a list"*) echo 'Sorry. {"findings": ["a typo"]}' ;;
  *"Read main.rs."*) echo '{"findings": "a typo"}' ;;
  *"Is 1 too many?"*) printf '```json\n{"route": "no", "reason": "it is one"}\n```\n' ;;
esac"#,
    );
    let printed = home
        .piw(&["run", "review", "--input", r#"{"file":"main.rs"}"#, "--json"])
        .exits(0)
        .json();
    assert_eq!(printed["finalOutput"], "ship with a typo");
    assert_eq!(lines(&home, "turns").len(), 3);
    let view = home.show(printed["runId"].as_str().unwrap());
    let steps = view["state"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3, "a rejected submission is no step");
    let prompt = steps[0]["prompt"].as_str().unwrap();
    assert!(
        prompt.contains("Read main.rs.") && prompt.contains("{\"findings\": string[]}"),
        "{prompt}"
    );
    assert_eq!(steps[0]["output"], json!({ "findings": ["a typo"] }));
    assert_eq!(steps[1]["output"]["route"], "no");
    assert_eq!(steps[2]["prompt"], Value::Null);
    let trace = view["tracePage"]["items"].as_array().unwrap();
    let prompted: Vec<&Value> = trace.iter().filter(|event| event["type"] == "node.prompted").collect();
    assert_eq!(prompted.len(), 2);
    assert_eq!(prompted[0]["payload"]["prompt"], prompt);
}

#[test]
fn a_start_without_an_agent_says_what_to_do() {
    // Whoever runs this test may have Pi, which would be the agent.
    let nothing = tempfile::tempdir().unwrap();
    let home = Home::new().env("PATH", nothing.path().to_str().unwrap());
    home.workflow("review", REVIEW);
    let checked = home.piw(&["check", "review"]).exits(0);
    assert!(
        checked.stderr.contains("warning: no agent is configured"),
        "{}",
        checked.stderr
    );
    let refused = home.piw(&["run", "review", "--input", r#"{"file":"x"}"#]).exits(1);
    for said in [
        "\"review\" has agent steps",
        "no agent is configured",
        "config.toml",
        "PIW_AGENT_COMMAND",
    ] {
        assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
    }
    assert_eq!(home.piw(&["ps", "--all", "--json"]).stdout.matches("runId").count(), 0);
    agent(&home, "echo '{}'");
    let checked = home.piw(&["check", "review"]).exits(0);
    assert!(!checked.stderr.contains("no agent"), "{}", checked.stderr);
    let limited = "prompt: 'x', expectedOutput: 'y', allowedTools: ['read']";
    home.workflow(
        "limited",
        &format!(
            "import {{ agent, defineWorkflow }} from 'piw';
             export default defineWorkflow({{ name: 'limited', startAt: 'a', nodes: {{ a: agent({{ {limited} }}) }}, edges: [] }});"
        ),
    );
    let refused = home.piw(&["run", "limited"]).exits(1);
    assert!(
        refused
            .stderr
            .contains("node \"a\" limits the agent's tools (allowedTools)"),
        "{}",
        refused.stderr
    );
}

#[test]
fn the_variable_of_the_server_names_an_agent_before_the_file() {
    let home = Home::new().env(
        "PIW_AGENT_COMMAND",
        r#"["sh", "-c", "cat > /dev/null; echo '{\"findings\": [1]}'"]"#,
    );
    agent(&home, "exit 1");
    home.workflow(
        "one",
        "import { agent, defineWorkflow } from 'piw';\nexport default defineWorkflow({ name: 'one', startAt: 'a', nodes: { a: agent({ prompt: 'x', expectedOutput: 'y' }) }, edges: [] });",
    );
    let printed = home.piw(&["run", "one", "--json"]).exits(0).json();
    assert_eq!(printed["finalOutput"], json!({ "findings": [1] }));
}

/// The first agent process blocks until `go` exists; later ones answer at once.
const BLOCKING: &str = r#"cat > /dev/null; echo $$ >> pids; while [ ! -e go ]; do sleep 0.02; done; echo '{"n": 1}'"#;
const ONE: &str = "import { agent, compute, defineWorkflow } from 'piw';
export default defineWorkflow({ name: 'one', startAt: 'a', nodes: {
  a: agent({ prompt: 'x', expectedOutput: 'y' }), b: compute({ run: ({ outputs }) => outputs.a.n + 1 }) }, edges: [{ from: 'a', to: 'b' }] });";

/// Kills in the middle of an agent step; afterwards no agent is left and the run completes with one step a node.
fn survives(kill: impl Fn(&Home)) {
    let home = Home::new();
    home.workflow("one", ONE);
    agent(&home, BLOCKING);
    let run_id = started(&home, "one", "null");
    let first = wait::until("the agent works", || lines(&home, "pids").first().cloned());
    let first: i32 = first.parse().unwrap();
    kill(&home);
    let _ = home.piw(&["server", "start"]).exits(0);
    wait::until("the agent is asked again", || {
        (lines(&home, "pids").len() > 1).then_some(())
    });
    assert!(
        !is_running(first),
        "the first agent was ended before the second was asked"
    );
    fs::write(home.project().join("go"), "").unwrap();
    let view = home.wait_for_end(&run_id);
    assert_eq!(view["display"]["status"], "completed", "{}", view["display"]);
    let steps = view["state"]["steps"].as_array().unwrap();
    let nodes: Vec<&str> = steps.iter().map(|step| step["nodeId"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["a", "b"]);
    assert_eq!(
        (&steps[0]["output"], &steps[1]["output"]),
        (&json!({ "n": 1 }), &json!(2))
    );
    assert_eq!(lines(&home, "pids").len(), 2);
}

#[test]
fn a_killed_runner_leaves_no_agent_and_the_step_completes_once() {
    survives(|home| kill_and_wait(home.runner_pid()));
}

#[test]
fn a_killed_server_leaves_no_agent_and_the_step_completes_once() {
    survives(Home::kill_server);
}

#[test]
fn a_killed_server_and_runner_leave_no_agent_and_the_step_completes_once() {
    survives(|home| {
        let runner = home.runner_pid();
        home.kill_server();
        kill_and_wait(runner);
    });
}

#[test]
fn a_cancelled_run_ends_its_agent() {
    let home = Home::new();
    home.workflow("one", ONE);
    agent(&home, BLOCKING);
    let run_id = started(&home, "one", "null");
    let pid = wait::until("the agent works", || lines(&home, "pids").first().cloned());
    let _ = home.piw(&["cancel", &run_id]).exits(0);
    let view = home.wait_for_end(&run_id);
    assert_eq!(view["display"]["status"], "cancelled");
    assert!(!is_running(pid.parse().unwrap()));
}
