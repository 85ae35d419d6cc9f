//! Headless agent steps with the real Pi: its RPC mode, our extension in it, and a scripted model behind it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use piw_process::{Liveness, ProcessIdentity, group, marker};
use piw_protocol::canonical;
use piw_tests::home::{Home, kill_and_wait};
use piw_tests::pi::{self, Asked, Model, Reply};
use piw_tests::wait;
use serde_json::{Value, json};

/// A home whose agent is the real Pi with this model.
fn home_with(model: &Model) -> Home {
    let mut home = Home::new();
    pi::installed().serve_home(&mut home, model);
    home
}

fn run(home: &Home, workflow: &str, input: &Value) -> Value {
    let input = input.to_string();
    let printed = home
        .piw(&["run", workflow, "--input", &input, "--detach", "--json"])
        .exits(0)
        .json();
    let run_id = printed["runId"].as_str().unwrap().to_owned();
    home.wait_for_end(&run_id)
}

/// A workflow `one` of one agent step with these fields.
fn one(home: &Home, fields: &str) {
    home.workflow(
        "one",
        &format!(
            "import {{ agent, defineWorkflow }} from 'piw';
             export default defineWorkflow({{ name: 'one', startAt: 'ask', nodes: {{ ask: agent({{ {fields} }}) }}, edges: [] }});"
        ),
    );
}

fn step(view: &Value) -> &Value {
    &view["state"]["steps"][0]
}

const REVIEW: &str = r#"
import { agent, compute, decision, decisionEdge, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "review",
  startAt: "read",
  nodes: {
    read: agent({ prompt: ({ input }) => `Read ${input.file}.`, expectedOutput: `{"findings": string[]}` }),
    judge: decision({ question: ({ outputs }) => `Is ${outputs.read.findings.length} too many?`, choices: ["yes", "no"] }),
    yes: compute({ run: () => "rework" }),
    no: agent({
      prompt: "Write a note.",
      expectedOutput: `{"note": string}`,
      validate: (output) => {
        if (typeof output.note !== "string") throw new Error("note must be a text");
        return { note: output.note.trim() };
      },
    }),
  },
  edges: [{ from: "read", to: "judge" }, decisionEdge({ from: "judge", choices: ["yes", "no"], cases: { yes: "yes", no: "no" } })],
});
"#;

#[test]
fn three_steps_complete_and_a_rejected_submission_is_corrected_in_its_turn() {
    let model = Model::new(|asked| {
        let (last, prompt) = (asked.last(), asked.last_of("user"));
        if last.contains("note must be a text") {
            asked.submit(&json!({ "note": " fine " }))
        } else if last.contains("The update was published") {
            asked.submit(&json!({ "findings": ["a typo"] }))
        } else if prompt.contains("Read main.rs.") {
            let data = json!({ "status": "running", "label": "reading", "completed": 1, "total": 2 });
            Reply::text("Let me see.").and_call(
                "workflow",
                json!({ "action": "update", "requestId": asked.request_id(), "type": "progress", "key": "read", "data": data }),
            )
        } else if prompt.contains("Is 1 too many?") {
            asked.submit(&json!({ "route": "no", "reason": "it is one" }))
        } else {
            asked.submit(&json!({ "note": 3 }))
        }
    });
    let home = home_with(&model);
    home.workflow("review", REVIEW);
    let view = run(&home, "review", &json!({ "file": "main.rs" }));
    assert_eq!(view["display"]["status"], "completed", "{view:#}");
    assert_eq!(view["state"]["finalOutput"], json!({ "note": "fine" }));
    let steps = view["state"]["steps"].as_array().unwrap();
    let nodes: Vec<&str> = steps.iter().map(|step| step["nodeId"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["read", "judge", "no"]);
    assert_eq!(steps[0]["output"], json!({ "findings": ["a typo"] }));

    let asked = model.asked();
    assert_eq!(
        asked.len(),
        5,
        "one for each call: nothing is asked after an accepted submission"
    );
    assert_eq!(asked[0].last_of("user"), steps[0]["prompt"].as_str().unwrap());
    assert!(
        asked[0].tools().contains(&"workflow".to_owned()),
        "{:?}",
        asked[0].tools()
    );
    let corrected = asked[4].last();
    assert!(
        corrected.contains("The submission was rejected: note must be a text"),
        "{corrected}"
    );

    let trace = view["tracePage"]["items"].as_array().unwrap();
    let updates = trace.iter().filter(|event| event["type"] == "node.update").count();
    assert_eq!(updates, 1, "{trace:#?}");
    let receipt = &steps[0]["action"];
    assert_eq!(
        (receipt["actionType"].as_str(), receipt["exitCode"].as_i64()),
        (Some("agent"), Some(0)),
        "{receipt}"
    );
}

#[test]
fn two_reminders_in_the_same_conversation_then_the_step_fails() {
    let model = Model::new(|asked| match asked.index {
        0 => Reply::text("I would rather talk."),
        // A wrong request id and an unknown field are errors of the tool, within the turn.
        1 => Reply::call(
            "workflow",
            json!({ "action": "submit", "requestId": "other", "output": 1 }),
        ),
        2 => Reply::call(
            "workflow",
            json!({ "action": "submit", "requestId": asked.request_id(), "result": 1 }),
        ),
        3 => Reply::text("It does not want it."),
        _ => Reply::error(400, "no credits left"),
    });
    let home = home_with(&model);
    one(&home, "prompt: 'Count the unicorns.', expectedOutput: 'n'");
    let view = run(&home, "one", &Value::Null);
    let step = step(&view);
    assert_eq!(step["outcome"], "failed", "{view:#}");
    assert_eq!(step["error"]["code"], "noSubmission");
    let error = step["error"]["message"].as_str().unwrap();
    assert!(
        error.contains("in 3 turns") && error.contains("no credits left"),
        "{error}"
    );
    let asked = model.asked();
    let prompts = |asked: &Asked| {
        asked
            .messages()
            .into_iter()
            .filter(|(role, _)| role == "user")
            .collect::<Vec<_>>()
    };
    assert_eq!(prompts(&asked[0]).len(), 1);
    let last = prompts(asked.last().unwrap());
    assert_eq!(last.len(), 3, "the reminders went to the same conversation");
    for (_, reminder) in &last[1..] {
        assert!(
            reminder.contains(" reminder\n") && !reminder.contains("unicorns"),
            "{reminder}"
        );
    }
    let wrong = asked[2].last();
    assert!(
        wrong.contains("requestId must be \"") && wrong.contains("not \"other\""),
        "{wrong}"
    );
    assert!(
        asked[3].last().contains("\"result\" is no field of submit"),
        "{}",
        asked[3].last()
    );
    assert_eq!(
        step["action"]["stdout"], "",
        "the model's last message, which failed, had no text: {step}"
    );
}

#[test]
fn a_forbidden_tool_is_not_there_and_an_unknown_one_is_refused() {
    let model = Model::new(|asked| match asked.index {
        0 => {
            Reply::call("bash", json!({ "command": "touch forbidden" })).and_call("read", json!({ "path": "note.txt" }))
        }
        _ => asked.submit(&json!(
            asked
                .messages()
                .into_iter()
                .filter(|(role, _)| role == "tool")
                .collect::<Vec<_>>()
        )),
    });
    let home = home_with(&model);
    fs::write(home.project().join("note.txt"), "here it is").unwrap();
    one(&home, "prompt: 'x', expectedOutput: 'y', allowedTools: ['read', 'ls']");
    let view = run(&home, "one", &Value::Null);
    assert_eq!(view["display"]["status"], "completed", "{view:#}");
    assert!(!home.project().join("forbidden").exists());
    let results = &step(&view)["output"];
    assert!(
        results[0][1].as_str().unwrap().contains("bash") && results[1][1] == "here it is",
        "{results}"
    );
    let mut tools = model.asked()[0].tools();
    tools.sort();
    assert_eq!(tools, ["ls", "read", "workflow"]);

    one(
        &home,
        "prompt: 'x', expectedOutput: 'y', allowedTools: ['read', 'raed']",
    );
    let view = run(&home, "one", &Value::Null);
    let error = &step(&view)["error"];
    assert_eq!(error["code"], "agentNotStarted", "{view:#}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("\"raed\" (allowedTools)") && message.contains("bash, "),
        "{message}"
    );
    assert_eq!(model.asked().len(), 2, "no model was asked");
}

#[test]
fn a_large_prompt_arrives_whole() {
    let model = Model::new(|asked| asked.submit(&json!({ "bytes": asked.last_of("user").len() })));
    let home = home_with(&model);
    one(
        &home,
        "prompt: () => 'é\\u2028'.repeat(300000) + '\\nthe end', expectedOutput: 'y'",
    );
    let view = run(&home, "one", &Value::Null);
    assert_eq!(view["display"]["status"], "completed", "{view:#}");
    let prompt = model.asked()[0].last_of("user");
    assert!(prompt.contains(&format!("{}\nthe end\n", "é\u{2028}".repeat(300_000))));
    assert_eq!(step(&view)["output"], json!({ "bytes": prompt.len() }));
}

/// Living processes that some server of this home, or anything below it, started: runners, Pi and its commands.
fn marked(home: &Home) -> Vec<ProcessIdentity> {
    let state = home.state().canonicalize().unwrap();
    let digest = canonical::sha256_hex(state.as_os_str().as_encoded_bytes());
    marker::find(&format!("{}.", &digest[..24])).unwrap()
}

fn is_running(process: &ProcessIdentity) -> bool {
    process.liveness().unwrap() == Liveness::Running
}

/// Kills in the middle of a step whose Pi has a command running: nothing of that Pi is left when the next one is asked, and the
/// run completes with one step.
fn survives(kill: impl Fn(&Home)) {
    let model = Model::new(|asked| match asked.index {
        0 => Reply::call("bash", json!({ "command": "echo $$ > tool.pid; exec sleep 1000" })),
        _ => asked.submit(&json!({ "n": 1 })),
    });
    let home = home_with(&model);
    one(&home, "prompt: 'x', expectedOutput: 'y'");
    let printed = home
        .piw(&["run", "one", "--input", "null", "--detach", "--json"])
        .exits(0)
        .json();
    let run_id = printed["runId"].as_str().unwrap().to_owned();
    let tool = wait::until("Pi executes a command", || {
        let pid = fs::read_to_string(home.project().join("tool.pid"))
            .ok()?
            .trim()
            .parse()
            .ok()?;
        ProcessIdentity::of(pid).unwrap()
    });
    let found = marked(&home);
    assert!(
        found.len() >= 3 && found.contains(&tool),
        "a runner, Pi and its command: {found:?}"
    );
    kill(&home);
    let _ = home.piw(&["server", "start"]).exits(0);
    let asked = model.wait_for(2);
    assert_ne!(
        asked[0].request_id(),
        asked[1].request_id(),
        "the step is asked in a new attempt"
    );
    for process in &found {
        assert!(!is_running(process), "{process:?} outlived its runner");
        assert!(
            group::living_members(process).unwrap().is_empty(),
            "the group of {process:?} lives on"
        );
    }
    let view = home.wait_for_end(&run_id);
    assert_eq!(view["display"]["status"], "completed", "{view:#}");
    assert_eq!(view["state"]["steps"].as_array().unwrap().len(), 1);
    assert_eq!(step(&view)["output"], json!({ "n": 1 }));
    assert_eq!(model.asked().len(), 2, "one submission, once");
    wait::until("nothing of the run is left", || marked(&home).is_empty().then_some(()));
}

#[test]
fn a_killed_runner_leaves_no_pi_and_the_step_completes_once() {
    survives(|home| kill_and_wait(home.runner_pid()));
}

#[test]
fn a_killed_server_leaves_no_pi_and_the_step_completes_once() {
    survives(Home::kill_server);
}

#[test]
fn a_cancelled_run_and_a_step_that_is_overdue_end_their_pi() {
    let model = Model::new(|_| Reply::text("Thinking").endless());
    let home = home_with(&model);
    one(&home, "prompt: 'x', expectedOutput: 'y'");
    let printed = home
        .piw(&["run", "one", "--input", "null", "--detach", "--json"])
        .exits(0)
        .json();
    let run_id = printed["runId"].as_str().unwrap();
    let _ = model.wait_for(1);
    assert_eq!(marked(&home).len(), 2, "a runner and Pi");
    let _ = home.piw(&["cancel", run_id]).exits(0);
    assert_eq!(home.wait_for_end(run_id)["display"]["status"], "cancelled");
    wait::until("nothing of the run is left", || marked(&home).is_empty().then_some(()));

    one(&home, "prompt: 'x', expectedOutput: 'y', timeoutMs: 1500");
    let view = run(&home, "one", &Value::Null);
    assert_eq!(step(&view)["outcome"], "timed_out", "{view:#}");
    wait::until("nothing of the run is left", || marked(&home).is_empty().then_some(()));
}

#[test]
fn a_pi_that_dies_in_its_turn_is_replaced_and_told_everything_again() {
    let model = Model::new(|asked| match asked.index {
        0 => Reply::call("bash", json!({ "command": "kill -9 $PPID" })),
        _ => asked.submit(&json!([1])),
    });
    let home = home_with(&model);
    one(&home, "prompt: 'Count the unicorns.', expectedOutput: 'y'");
    let view = run(&home, "one", &Value::Null);
    assert_eq!(step(&view)["output"], json!([1]), "{view:#}");
    let asked = model.asked();
    assert_eq!(asked.len(), 2);
    let again = asked[1].last_of("user");
    assert!(
        again.contains("Count the unicorns.") && again.contains("\"pi\" was ended by SIGKILL"),
        "{again}"
    );
    assert_eq!(asked[0].request_id(), asked[1].request_id(), "it is the same attempt");
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_pi_that_is_missing_or_dies_at_its_start_is_named() {
    let bin = tempfile::tempdir().unwrap();
    // Enough for a shell script, and no Pi.
    for tool in ["sh", "cat"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|dir| dir.join(tool))
            .find(|path| path.exists());
        std::os::unix::fs::symlink(found.unwrap(), bin.path().join(tool)).unwrap();
    }
    let home = Home::new().env("PATH", bin.path().to_str().unwrap());
    one(&home, "prompt: 'x', expectedOutput: 'y'");
    let refused = home.piw(&["run", "one"]).exits(1);
    for said in ["\"pi\") is not on the server's PATH", "PIW_PI_COMMAND", "config.toml"] {
        assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
    }
    // What Node 20 says of Pi's code.
    script(
        &bin.path().join("pi"),
        "echo 'SyntaxError: no such export' >&2; echo 'Node.js v20.20.2' >&2; exit 1",
    );
    let view = run(&home, "one", &Value::Null);
    let error = &step(&view)["error"];
    assert_eq!(error["code"], "agentNotStarted", "{view:#}");
    let message = error["message"].as_str().unwrap();
    for said in [
        "\"pi\" exited with code 1",
        "SyntaxError: no such export",
        "it ran under Node 20.20.2",
    ] {
        assert!(message.contains(said), "{said}: {message}");
    }
}

#[test]
fn a_pi_without_a_model_says_so() {
    let model = Model::replies(vec![Reply::text("")]);
    let home = home_with(&model);
    fs::write(home.project().parent().unwrap().join(".pi/agent/models.json"), "{}").unwrap();
    one(&home, "prompt: 'x', expectedOutput: 'y'");
    let view = run(&home, "one", &Value::Null);
    let error = &step(&view)["error"];
    assert_eq!(error["code"], "agentNotStarted", "{view:#}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("does not take the prompt: No ") && message.contains("/login"),
        "{message}"
    );
}

#[test]
fn the_configuration_chooses_pi_and_gives_it_arguments() {
    let model = Model::new(|asked| asked.submit(&json!(asked.body["model"])));
    let mut home = home_with(&model);
    let elsewhere = home.project().join("my-pi");
    let pi = pi::installed().bin().join("pi");
    script(
        &elsewhere,
        &format!("echo \"$*\" > arguments; exec {} \"$@\"", pi.display()),
    );
    home.set(
        "PIW_PI_COMMAND",
        Some(&format!("{} --model scripted-1", elsewhere.display())),
    );
    one(
        &home,
        "prompt: 'x', expectedOutput: 'y', validate: (output) => `${output}!`",
    );
    let view = run(&home, "one", &Value::Null);
    assert_eq!(step(&view)["output"], "scripted-1!", "{view:#}");
    let arguments = fs::read_to_string(home.project().join("arguments")).unwrap();
    assert!(
        arguments.starts_with("--model scripted-1 --mode rpc --no-session -ne "),
        "{arguments}"
    );
}
