//! The extension in the real Pi: it never keeps Pi from ending, never breaks a narrow terminal, and carries a workflow's steps.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::{Command, Stdio};

use piw_tests::home::Home;
use piw_tests::pi::{self, Model, Reply};
use piw_tests::terminal::Terminal;
use piw_tests::wait;
use serde_json::{Value, json};

const WRITE: &str = r#"
import { agent, compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "write",
  startAt: "draft",
  nodes: {
    draft: agent({
      prompt: ({ input }) => `Write about ${input.task}.`,
      expectedOutput: `{"text": string}`,
      validate: (output) => {
        if (typeof output.text !== "string") throw new Error("text must be a string");
        return output;
      },
    }),
    polish: agent({ prompt: ({ outputs }) => `Polish: ${outputs.draft.text}`, expectedOutput: `{"text": string}` }),
    join: compute({ run: ({ outputs }) => outputs.polish.text }),
  },
  edges: [{ from: "draft", to: "polish" }, { from: "polish", to: "join" }],
});
"#;

/// A home with Pi, `model` behind it, and the extension.
fn installed(model: &Model) -> Home {
    let mut home = Home::new();
    pi::installed().serve_home(&mut home, model);
    let printed = home.piw(&["pi", "install", "--json"]).exits(0).json();
    assert_eq!(printed["changed"], true);
    home
}

/// `pi` in this home, not yet started.
fn command(home: &Home) -> Command {
    let mut command = Command::new(pi::installed().bin().join("pi"));
    command.env_clear().current_dir(home.project());
    command
        .env("HOME", home.project().parent().unwrap())
        .env("PIW_STATE_DIR", home.state());
    command.envs(home.environment().iter().map(|(name, value)| (name, value)));
    command
}

/// Runs it to its end, which must come by itself.
fn ends(mut command: Command) -> (bool, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait::until("pi ends by itself", || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn text(asked: &pi::Asked) -> Reply {
    match asked.last().as_str() {
        "use the tool" => Reply::call("workflow", json!({ "action": "list" })),
        _ => Reply::text("A plain answer."),
    }
}

#[test]
fn print_and_json_modes_end_by_themselves_also_without_piw() {
    let model = Model::new(text);
    let home = installed(&model);
    for program in [None, Some("/nowhere/piw"), Some("/bin/false"), Some("/bin/cat")] {
        for mode in [&["-p", "hello"][..], &["--mode", "json", "hello"]] {
            let mut command = command(&home);
            command.args(mode);
            if let Some(program) = program {
                command.env("PIW_BIN", program);
            }
            let (is_success, printed) = ends(command);
            assert!(
                is_success && printed.contains("A plain answer."),
                "{program:?} {mode:?}: {printed}"
            );
        }
    }
    assert_eq!(home.server_pid(), None, "a session alone starts no server");
}

#[test]
fn a_tool_call_of_print_mode_is_answered_and_starts_the_server() {
    let model = Model::new(text);
    let home = installed(&model);
    home.workflow("write", WRITE);
    let mut command = command(&home);
    command.args(["-p", "use the tool"]);
    let (is_success, printed) = ends(command);
    assert!(is_success && printed.contains("A plain answer."), "{printed}");
    let asked = model.asked();
    assert!(asked[0].tools().contains(&"workflow".to_owned()));
    assert!(asked[1].last().contains("write (project)"), "{}", asked[1].last());
    assert!(home.server_pid().is_some());
}

#[test]
fn the_doctor_names_what_is_missing() {
    let model = Model::new(text);
    let home = installed(&model);
    let verdict = |document: &Value, name: &str| {
        let checks = document["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap().clone()
    };
    let well = home.piw(&["pi", "doctor", "--json"]).exits(0).json();
    assert_eq!(well["ok"], true, "{well}");
    assert_eq!(
        verdict(&well, "pi")["message"].as_str().unwrap().split(' ').next(),
        Some(pi::PI_VERSION)
    );
    assert_eq!(
        home.piw(&["pi", "uninstall", "--json"]).exits(0).json()["changed"],
        true
    );
    let missing = home.piw(&["pi", "doctor", "--json"]).exits(1).json();
    assert_eq!(verdict(&missing, "extension")["verdict"], "bad");
    assert_eq!(verdict(&missing, "extension")["hint"], "piw pi install");
    let long = format!("/{}", "s".repeat(150));
    let printed = home
        .env("PATH", "/nowhere")
        .env("PIW_SOCKET", &long)
        .piw(&["pi", "doctor"])
        .exits(1);
    for said in ["no node on PATH", "no pi on PATH", "151 bytes", "PIW_SOCKET"] {
        assert!(printed.stdout.contains(said), "{said}: {}", printed.stdout);
    }
}

/// The model of the workflow: carries out what it is asked, the first draft badly once.
fn worker(asked: &pi::Asked) -> Reply {
    let last = asked.last();
    let submit = |output: Value| {
        Reply::call(
            "workflow",
            json!({ "action": "submit", "request": asked.request_id(), "output": output }),
        )
    };
    if last.contains("Write about") {
        submit(json!({ "text": 7 }))
    } else if last.contains("text must be a string") {
        submit(json!({ "text": "durable tests" }))
    } else if last.contains("Polish: durable tests") {
        submit(json!({ "text": "very durable tests" }))
    } else {
        Reply::text("I am done.")
    }
}

/// The newest run of a home.
fn run_id(home: &Home) -> String {
    wait::until("a run exists", || {
        let runs = home.piw(&["ps", "--json"]).exits(0).json();
        runs.as_array()?.first()?["runId"].as_str().map(str::to_owned)
    })
}

/// Waits until Pi reads its keyboard: it draws its editor before, and loses what is typed then.
fn listens(terminal: &mut Terminal) {
    let mut typed = 0;
    while !terminal.screen().contains('?') {
        assert!(typed < 100, "Pi reads nothing: {}", terminal.screen());
        terminal.send(b"?");
        typed += 1;
        terminal.settle();
    }
    terminal.send(&b"\x7f".repeat(typed));
    terminal.wait("the editor is empty", |screen| !screen.contains('?'));
}

#[test]
fn a_workflow_goes_through_a_narrow_terminal_of_pi() {
    let model = Model::new(worker);
    let home = installed(&model);
    home.workflow("write", WRITE);
    let mut terminal = Terminal::run(Terminal::script(&home, "exec pi -na"), 40, 40);
    terminal.wait("pi is ready", |screen| screen.contains("scripted"));
    listens(&mut terminal);
    terminal.send(b"/workflow write tests that last");
    // Pi takes no command while it says that its startup is still in progress.
    wait::until("the command is taken", || {
        terminal.settle();
        let kept = terminal.screen().contains("/workflow write");
        if kept {
            terminal.send(b"\r");
        }
        (!kept).then_some(())
    });
    let run = run_id(&home);
    let view = home.wait_for_end(&run);
    assert_eq!(view["display"]["status"], "completed", "{view}");
    assert_eq!(view["state"]["finalOutput"], "very durable tests");
    terminal.wait("the result arrives", |screen| screen.contains("■"));
    terminal.wait("the model has seen the result", |_| {
        model
            .asked()
            .last()
            .is_some_and(|asked| asked.last_of("user").contains("completed"))
    });
    let prompts: Vec<String> = model.asked().iter().map(|asked| asked.last_of("user")).collect();
    let of = |what: &str| {
        let mut found: Vec<&String> = prompts.iter().filter(|prompt| prompt.contains(what)).collect();
        found.dedup();
        found.len()
    };
    assert_eq!(
        (of("Write about"), of("Polish:")),
        (1, 1),
        "each step is presented once"
    );
    let last = model.asked().pop().unwrap();
    let cards = last
        .messages()
        .iter()
        .filter(|(role, text)| role == "user" && text.contains("Write about"))
        .count();
    assert_eq!(cards, 1, "the conversation holds the step once");
    terminal.send(b"\x0f");
    terminal.send(b"/quit\r");
    assert_eq!(terminal.wait_for_exit(), 0, "a narrow terminal breaks nothing");
}
