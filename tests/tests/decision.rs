//! Protected decisions through the real binary: a person at a terminal answers, the declared policy answers, a program does not.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use piw_tests::home::Home;
use piw_tests::terminal::Terminal;
use serde_json::{Value, json};

fn decide(after: &str) -> String {
    format!(
        r#"
import {{ choice, compute, defineHumanChoices, defineWorkflow, humanDecision, humanDecisionEdge, textInput }} from "piw";
const choices = defineHumanChoices({{
  publish: choice({{ label: "Publish it" }}),
  revise: choice({{ description: "Say what is missing", input: textInput({{ prompt: "What is missing?", required: true }}) }}),
}});
export default defineWorkflow({{
  name: "release",
  startAt: "approve",
  nodes: {{
    approve: humanDecision({{
      audience: "maintainers",
      choices,
      request: () => ({{ title: "Release 1.2?", subject: {{ version: "1.2" }}, presentation: {{ summary: "All checks passed.", blocks: ["3 changes"] }} }}),
      {after}
    }}),
    published: compute({{ run: () => "published" }}),
    revised: compute({{ run: ({{ outputs }}) => `revise: ${{outputs.approve.input}}` }}),
  }},
  edges: [humanDecisionEdge({{ from: "approve", choices, cases: {{ publish: "published", revise: "revised" }} }})],
}});
"#
    )
}

fn waiting(home: &Home) -> String {
    home.workflow("release", &decide(""));
    let started = home.piw(&["run", "release", "--detach", "--json"]).exits(0).json();
    let run = started["runId"].as_str().unwrap().to_owned();
    let view = home.wait_for_status(&run, &["waiting"]);
    assert_eq!(view["display"]["controls"], json!(["human-answer", "pause", "cancel"]));
    assert_eq!(view["state"]["humanDecision"]["kind"], "decision");
    assert_eq!(view["display"]["reason"], "\"approve\" waits for a person's decision");
    run
}

fn output(home: &Home, run: &str) -> Value {
    let view = home.show(run);
    let next = view["display"]["reason"]
        .as_str()
        .unwrap()
        .trim_start_matches("continued as ")
        .to_owned();
    home.wait_for_end(&next)["state"]["finalOutput"].clone()
}

#[test]
fn a_person_at_a_terminal_decides() {
    let home = Home::new();
    let run = waiting(&home);
    let mut terminal = Terminal::start(&home, &["answer", &run], 40, 100);
    terminal.wait_for("choice:");
    let screen = terminal.screen();
    for part in [
        "Release 1.2?",
        "All checks passed.",
        "3 changes",
        "publish: Publish it",
        "revise: Say what is missing (takes a text)",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    terminal.send(b"ship\r");
    terminal.wait_for("\"ship\" is no choice; choose one of publish, revise");
    terminal.send(b"revise\r");
    terminal.wait_for("What is missing?:");
    terminal.send(b"the changelog\r");
    terminal.wait_for("it goes on as");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert_eq!(output(&home, &run), "revise: the changelog");
    let _ = home.piw(&["state", "verify"]).exits(0);
}

#[test]
fn no_program_answers_for_a_person() {
    let home = Home::new();
    let run = waiting(&home);
    let without_terminal = home.piw(&["answer", &run]).exits(2);
    assert!(
        without_terminal.stderr.contains("no terminal"),
        "{}",
        without_terminal.stderr
    );
    let as_checkpoint = home.piw(&["answer", &run, "{\"choice\":\"publish\"}"]).exits(5);
    assert!(
        as_checkpoint.stderr.contains("only a verified person"),
        "{}",
        as_checkpoint.stderr
    );
    // Not even at a terminal that a step of a workflow opened.
    let mut command = Terminal::command(&home, &["answer", &run]);
    command.env("PIW_CHILD_OF", "some.1.run.");
    let mut terminal = Terminal::run(command, 40, 100);
    terminal.wait_for("choice:");
    terminal.send(b"publish\r");
    terminal.wait_for("a process that a workflow started cannot answer for a person");
    assert_ne!(terminal.wait_for_exit(), 0);
    assert_eq!(home.show(&run)["display"]["status"], "waiting");
}

#[test]
fn the_declared_response_counts_when_nobody_answers() {
    let home = Home::new();
    home.workflow(
        "release",
        &decide("onTimeout: { afterMs: 300, response: { choice: 'publish' } },"),
    );
    let started = home.piw(&["run", "release", "--detach", "--json"]).exits(0).json();
    let run = started["runId"].as_str().unwrap().to_owned();
    home.wait_for_end(&run);
    assert_eq!(output(&home, &run), "published");
    let _ = home.piw(&["state", "verify"]).exits(0);
}
