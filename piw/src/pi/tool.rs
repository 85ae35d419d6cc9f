//! The `workflow` tool and the commands `/workflow` and `/piw`: what was asked, or what to send instead. Pure.
//!
//! Both take the same words. A model can never answer a protected decision: no input of the tool means that, and the answer of
//! a checkpoint is refused while a decision waits.

use serde_json::{Map, Value, json};

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Say what can be started.
    List,
    /// Start a run in this session.
    Start {
        /// A name, a path, or `builtin:<id>`.
        workflow: String,
        /// Its input.
        input: Value,
    },
    /// Say how a run stands; the session's when none is named.
    Status(Option<String>),
    /// Stop a run at its next durable boundary.
    Pause(Option<String>),
    /// Go on with it.
    Resume(Option<String>),
    /// End it.
    Cancel(Option<String>),
    /// Answer a checkpoint that is no protected decision.
    Answer {
        /// The run.
        run: Option<String>,
        /// The answer.
        answer: Value,
    },
    /// Publish an update of the working step.
    Update {
        /// The request.
        request: String,
        /// Type of the update.
        update_type: String,
        /// Its key.
        key: String,
        /// Its data.
        data: Value,
    },
    /// Submit the output of the working step.
    Submit {
        /// The request.
        request: String,
        /// The output.
        output: Value,
    },
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Typed {
    /// The same as the tool does.
    Do(Action),
    /// Answer what a run waits for; asks for what is missing.
    Answer {
        /// The answer of a checkpoint, or the choice.
        given: Option<String>,
    },
    /// Stop showing a run that has ended.
    Clear,
    /// Say what can be typed.
    Help,
}

/// One word of the tool: its fields, those that must be there first, and an example.
struct Word {
    name: &'static str,
    needs: &'static [&'static str],
    takes: &'static [&'static str],
    example: &'static str,
}

const WORDS: &[Word] = &[
    Word {
        name: "list",
        needs: &[],
        takes: &[],
        example: r#"{"action":"list"}"#,
    },
    Word {
        name: "start",
        needs: &["workflow"],
        takes: &["input"],
        example: r#"{"action":"start","workflow":"<name>","input":{"task":"<what to do>"}}"#,
    },
    Word {
        name: "status",
        needs: &[],
        takes: &["run"],
        example: r#"{"action":"status"}"#,
    },
    Word {
        name: "pause",
        needs: &[],
        takes: &["run"],
        example: r#"{"action":"pause"}"#,
    },
    Word {
        name: "resume",
        needs: &[],
        takes: &["run"],
        example: r#"{"action":"resume"}"#,
    },
    Word {
        name: "cancel",
        needs: &[],
        takes: &["run"],
        example: r#"{"action":"cancel"}"#,
    },
    Word {
        name: "answer",
        needs: &["answer"],
        takes: &["run"],
        example: r#"{"action":"answer","answer":<JSON>}"#,
    },
    Word {
        name: "update",
        needs: &["request", "type", "key", "data"],
        takes: &[],
        example: r#"{"action":"update","request":"<id>","type":"progress","key":"<key>","data":{"completed":1,"total":3}}"#,
    },
    Word {
        name: "submit",
        needs: &["request", "output"],
        takes: &[],
        example: r#"{"action":"submit","request":"<id>","output":<JSON>}"#,
    },
];

/// Reads the arguments of a tool call. `current` is the request that a submission can be for now.
///
/// # Errors
/// A sentence for the model that says what to send instead.
pub(crate) fn parse_tool(input: &Value, current: Option<&str>) -> Result<Action, String> {
    let names = || WORDS.iter().map(|word| word.name).collect::<Vec<_>>().join(" ");
    let Some(fields) = input.as_object() else {
        return Err(format!(
            "the input must be an object with \"action\": one of {}",
            names()
        ));
    };
    let word = match fields.get("action") {
        Some(Value::String(name)) => WORDS
            .iter()
            .find(|word| word.name == name)
            .ok_or_else(|| format!("there is no action {name:?}; \"action\" is one of {}", names()))?,
        Some(other) => {
            return Err(format!(
                "\"action\" must be a text, found {other}; it is one of {}",
                names()
            ));
        }
        None => return Err(format!("\"action\" is missing; it is one of {}", names())),
    };
    let example = match current {
        Some(id) => word.example.replace("<id>", id),
        None => word.example.to_owned(),
    };
    let name = word.name;
    for field in fields.keys() {
        let known = field == "action" || word.needs.contains(&field.as_str()) || word.takes.contains(&field.as_str());
        if !known {
            return Err(format!("\"{name}\" takes no {field:?}; send {example}"));
        }
    }
    for field in word.needs {
        if !fields.contains_key(*field) {
            return Err(format!("\"{name}\" needs {field:?}; send {example}"));
        }
    }
    let text = |field: &str| text(fields, field, name, &example);
    let run = || fields.contains_key("run").then(|| text("run")).transpose();
    let value = |field: &str| fields.get(field).cloned().unwrap_or_default();
    Ok(match name {
        "list" => Action::List,
        "start" => Action::Start {
            workflow: text("workflow")?,
            input: match fields.get("input") {
                None | Some(Value::Null) => json!({}),
                Some(input) => input.clone(),
            },
        },
        "status" => Action::Status(run()?),
        "pause" => Action::Pause(run()?),
        "resume" => Action::Resume(run()?),
        "cancel" => Action::Cancel(run()?),
        "answer" => Action::Answer {
            run: run()?,
            answer: value("answer"),
        },
        "update" => {
            let data = value("data");
            if !data.is_object() {
                return Err(format!("\"data\" must be an object, found {data}; send {example}"));
            }
            Action::Update {
                request: text("request")?,
                update_type: text("type")?,
                key: text("key")?,
                data,
            }
        }
        _ => Action::Submit {
            request: text("request")?,
            output: value("output"),
        },
    })
}

fn text(fields: &Map<String, Value>, field: &str, name: &str, example: &str) -> Result<String, String> {
    match fields.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        other => Err(format!(
            "{field:?} of \"{name}\" must be a text that is not empty, found {}; send {example}",
            other.unwrap_or(&Value::Null)
        )),
    }
}

/// What can be typed after `/workflow`.
pub(crate) const HELP: &str = "/workflow <name> [task or JSON]   start a workflow in this session\n\
/workflow list                    what can be started here\n\
/workflow status [run]            how the run stands\n\
/workflow pause | resume | cancel [run]\n\
/workflow answer [answer]         answer what the run waits for\n\
/workflow clear                   stop showing a run that has ended\n\
/piw [right | below | window]     watch the run in the viewer (in tmux), or show how";

/// Reads what a person typed after `/workflow`.
///
/// # Errors
/// A sentence that says what to type instead.
pub(crate) fn parse_command(args: &str) -> Result<Typed, String> {
    let args = args.trim();
    let (word, rest) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
    let rest = rest.trim();
    let run = || -> Result<Option<String>, String> {
        match rest.split_whitespace().count() {
            0 => Ok(None),
            1 => Ok(Some(rest.to_owned())),
            _ => Err(format!("/workflow {word} takes one run, found {rest:?}")),
        }
    };
    let nothing = |typed: Typed| match rest {
        "" => Ok(typed),
        _ => Err(format!("/workflow {word} takes nothing more, found {rest:?}")),
    };
    match word {
        "" | "help" => Ok(Typed::Help),
        "list" => nothing(Typed::Do(Action::List)),
        "clear" => nothing(Typed::Clear),
        "status" => Ok(Typed::Do(Action::Status(run()?))),
        "pause" => Ok(Typed::Do(Action::Pause(run()?))),
        "resume" => Ok(Typed::Do(Action::Resume(run()?))),
        "cancel" => Ok(Typed::Do(Action::Cancel(run()?))),
        "answer" => Ok(Typed::Answer {
            given: (!rest.is_empty()).then(|| rest.to_owned()),
        }),
        "submit" | "update" => Err(format!(
            "/workflow {word} is for the model: it carries out the step; /workflow status shows where it stands"
        )),
        "start" if rest.is_empty() => Err("/workflow start needs a name; /workflow list shows them".to_owned()),
        "start" => {
            let (name, task) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            start(name, task.trim())
        }
        name => start(name, rest),
    }
}

/// The words after the name are the input when they are JSON, else the task.
fn start(name: &str, task: &str) -> Result<Typed, String> {
    let input = if task.is_empty() {
        json!({})
    } else if task.starts_with('{') {
        serde_json::from_str(task)
            .map_err(|error| format!("the input of {name} begins like JSON and is none: {error}"))?
    } else {
        json!({ "task": task })
    };
    Ok(Typed::Do(Action::Start {
        workflow: name.to_owned(),
        input,
    }))
}

/// Where the viewer opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beside the session.
    #[default]
    Right,
    /// Below it.
    Below,
    /// In a window of its own.
    Window,
}

/// Reads what a person typed after `/piw`.
///
/// # Errors
/// A sentence that says what to type instead.
pub(crate) fn parse_place(args: &str) -> Result<Place, String> {
    match args.trim() {
        "" | "right" => Ok(Place::Right),
        "below" => Ok(Place::Below),
        "window" => Ok(Place::Window),
        other => Err(format!("/piw takes right, below or window, found {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &Value) -> Result<Action, String> {
        parse_tool(input, Some("q1"))
    }

    #[test]
    fn every_example_is_taken_and_the_extension_offers_the_same_words() {
        let extension = include_str!("../../../assets/pi-extension/index.ts");
        let offered = extension
            .split_once("const ACTIONS = [")
            .and_then(|(_, rest)| rest.split_once(']'))
            .map(|(list, _)| list)
            .unwrap();
        let offered: Vec<&str> = offered.split(',').map(|word| word.trim().trim_matches('"')).collect();
        assert_eq!(offered, WORDS.iter().map(|word| word.name).collect::<Vec<_>>());
        for word in WORDS {
            let example = word.example.replace("<JSON>", "{\"a\":1}");
            let parsed = parse(&serde_json::from_str(&example).unwrap());
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        }
    }

    #[test]
    fn submissions_and_starts_are_read() {
        assert_eq!(
            parse(&json!({"action": "submit", "request": "q1", "output": null})),
            Ok(Action::Submit {
                request: "q1".into(),
                output: Value::Null
            })
        );
        assert_eq!(
            parse(&json!({"action": "start", "workflow": "fix"})),
            Ok(Action::Start {
                workflow: "fix".into(),
                input: json!({})
            })
        );
        assert_eq!(
            parse(&json!({"action": "status", "run": "r"})),
            Ok(Action::Status(Some("r".into())))
        );
    }

    #[test]
    fn errors_say_what_to_send_instead() {
        for (input, said) in [
            (json!(["submit"]), "must be an object"),
            (json!({}), "\"action\" is missing; it is one of list start"),
            (json!({"action": 5}), "must be a text, found 5"),
            (json!({"action": "finish"}), "there is no action \"finish\""),
            (
                json!({"action": "submit", "output": 1}),
                r#""submit" needs "request"; send {"action":"submit","request":"q1","output":<JSON>}"#,
            ),
            (
                json!({"action": "submit", "request": "q1", "result": 1}),
                r#""submit" takes no "result"; send {"action":"submit","request":"q1","output":<JSON>}"#,
            ),
            (
                json!({"action": "submit", "request": 7, "output": 1}),
                "\"request\" of \"submit\" must be a text",
            ),
            (
                json!({"action": "update", "request": "q1", "type": "progress", "key": "k", "data": 3}),
                "\"data\" must be an object, found 3",
            ),
            (
                json!({"action": "status", "run": ""}),
                "must be a text that is not empty",
            ),
            (json!({"action": "answer"}), "\"answer\" needs \"answer\""),
        ] {
            let error = parse(&input).unwrap_err();
            assert!(error.contains(said), "{input}: {error}");
        }
    }

    #[test]
    fn a_person_types_the_same_words() {
        let start = |workflow: &str, input: Value| {
            Ok(Typed::Do(Action::Start {
                workflow: workflow.into(),
                input,
            }))
        };
        assert_eq!(
            parse_command("fix the  tests\nnow"),
            start("fix", json!({"task": "the  tests\nnow"}))
        );
        assert_eq!(parse_command("start list"), start("list", json!({})));
        assert_eq!(parse_command(" fix {\"n\": 1}"), start("fix", json!({"n": 1})));
        assert_eq!(parse_command("pause"), Ok(Typed::Do(Action::Pause(None))));
        assert_eq!(
            parse_command("cancel r1"),
            Ok(Typed::Do(Action::Cancel(Some("r1".into()))))
        );
        assert_eq!(parse_command(""), Ok(Typed::Help));
        assert_eq!(parse_command("clear"), Ok(Typed::Clear));
        assert_eq!(
            parse_command("answer yes please"),
            Ok(Typed::Answer {
                given: Some("yes please".into())
            })
        );
    }

    #[test]
    fn what_a_person_mistypes_is_named() {
        for (typed, said) in [
            ("pause a b", "takes one run, found \"a b\""),
            ("list all", "takes nothing more, found \"all\""),
            ("submit 1", "is for the model"),
            ("fix {\"n\": ", "begins like JSON and is none"),
            ("start", "needs a name"),
        ] {
            let error = parse_command(typed).unwrap_err();
            assert!(error.contains(said), "{typed}: {error}");
        }
        assert_eq!(parse_place("window"), Ok(Place::Window));
        assert!(parse_place("left").unwrap_err().contains("found \"left\""));
    }
}
