//! What `exec` returned, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piw_engine::definition::timeout_millis;
use serde_json::{Map, Value};

use crate::exec::command::CommandSpec;
use piw_engine::value::kind;

/// Fields of a command description.
const FIELDS: [&str; 8] = [
    "command",
    "args",
    "cwd",
    "env",
    "stdin",
    "timeoutMs",
    "allowNonZeroExit",
    "maxOutputChars",
];
/// Characters kept of a stream unless the description says otherwise.
pub(crate) const DEFAULT_MAX_CHARS: usize = 1_000_000;
/// Most characters that can be kept of a stream.
pub(crate) const MAX_CHARS_LIMIT: usize = 50_000_000;

/// A checked command description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellSpec {
    /// The command.
    pub(crate) command: CommandSpec,
    /// Its own bound.
    pub(crate) timeout: Option<Duration>,
    /// Whether an exit code other than 0 is a success.
    pub(crate) allow_non_zero_exit: bool,
}

impl ShellSpec {
    /// Checks what `exec` returned. The error names field, rule and value.
    pub(crate) fn parse(described: &Value, project: &Path) -> Result<Self, String> {
        let Value::Object(fields) = described else {
            return Err(format!("it must return {{command, args, …}}, not {}", kind(described)));
        };
        if let Some(other) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(format!(
                "the field \"{other}\" is unknown; a command has {}",
                FIELDS.join(", ")
            ));
        }
        let command = match fields.get("command") {
            Some(Value::String(command)) if !command.is_empty() => system_text("command", command)?,
            Some(Value::String(_)) => return Err("command must not be empty".to_owned()),
            other => return Err(must_be("command", "a string", other)),
        };
        let cwd = match present(fields, "cwd") {
            None => project.to_owned(),
            Some(Value::String(cwd)) if !cwd.is_empty() => project.join(system_text("cwd", cwd)?),
            other => return Err(must_be("cwd", "a path", other)),
        };
        let stdin = match present(fields, "stdin") {
            None => None,
            Some(Value::String(text)) => Some(text.clone()),
            other => return Err(must_be("stdin", "a string", other)),
        };
        let allow_non_zero_exit = match present(fields, "allowNonZeroExit") {
            None => false,
            Some(Value::Bool(allow)) => *allow,
            other => return Err(must_be("allowNonZeroExit", "a boolean", other)),
        };
        Ok(Self {
            command: CommandSpec {
                command,
                args: args(fields)?,
                cwd: normal(&cwd),
                env: env(fields)?,
                stdin,
                max_chars: max_chars(fields)?,
            },
            timeout: timeout(fields)?,
            allow_non_zero_exit,
        })
    }
}

/// A field that is there and not `null`.
fn present<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn must_be(field: &str, what: &str, found: Option<&Value>) -> String {
    match found {
        Some(value) => format!("{field} must be {what}, not {}", kind(value)),
        None => format!("{field} is missing; it must be {what}"),
    }
}

/// Text that is handed to the system, which ends it at a NUL.
fn system_text(field: &str, text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err(format!("{field} must not hold a NUL character"));
    }
    Ok(text.to_owned())
}

fn args(fields: &Map<String, Value>) -> Result<Vec<String>, String> {
    let args = match present(fields, "args") {
        None => return Ok(Vec::new()),
        Some(Value::Array(args)) => args,
        other => return Err(must_be("args", "an array of strings", other)),
    };
    let one = |(at, arg): (usize, &Value)| match arg {
        Value::String(arg) => system_text(&format!("args[{at}]"), arg),
        other => Err(must_be(&format!("args[{at}]"), "a string", Some(other))),
    };
    args.iter().enumerate().map(one).collect()
}

fn env(fields: &Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let variables = match present(fields, "env") {
        None => return Ok(Vec::new()),
        Some(Value::Object(variables)) => variables,
        other => return Err(must_be("env", "an object of strings", other)),
    };
    let one = |(name, value): (&String, &Value)| match value {
        _ if name.is_empty() || name.contains(['=', '\0']) => Err(format!(
            "env: \"{name}\" is no variable name; it must not be empty or hold '=' or NUL"
        )),
        Value::String(value) => Ok((name.clone(), system_text(&format!("env.{name}"), value)?)),
        other => Err(must_be(&format!("env.{name}"), "a string", Some(other))),
    };
    variables.iter().map(one).collect()
}

fn timeout(fields: &Map<String, Value>) -> Result<Option<Duration>, String> {
    let Some(value) = present(fields, "timeoutMs") else {
        return Ok(None);
    };
    match value.as_f64().and_then(timeout_millis) {
        Some(ms) => Ok(Some(Duration::from_millis(ms))),
        None => Err(format!(
            "timeoutMs must be a positive number of milliseconds, not {value}"
        )),
    }
}

fn max_chars(fields: &Map<String, Value>) -> Result<usize, String> {
    let Some(value) = present(fields, "maxOutputChars") else {
        return Ok(DEFAULT_MAX_CHARS);
    };
    let number = value.as_u64().or_else(|| {
        // Numbers of scripts may come as doubles.
        value
            .as_f64()
            .filter(|number| number.fract() == 0.0 && (0.0..=1e15).contains(number))
            .map(|number| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the range was just checked"
                )]
                let number = number as u64;
                number
            })
    });
    let chars = number.and_then(|number| usize::try_from(number).ok());
    match chars {
        Some(chars) if (1..=MAX_CHARS_LIMIT).contains(&chars) => Ok(chars),
        _ => Err(format!(
            "maxOutputChars must be a whole number from 1 to {MAX_CHARS_LIMIT}, not {value}"
        )),
    }
}

/// A path without `.` parts, for messages and receipts; `..` stays, since links may make it matter.
fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(described: &Value) -> Result<ShellSpec, String> {
        ShellSpec::parse(described, Path::new("/project"))
    }

    #[test]
    fn defaults_and_relative_directories() {
        let spec = parse(&json!({ "command": "git", "args": ["status"], "cwd": "./sub", "env": null })).unwrap();
        assert_eq!(spec.command.cwd, Path::new("/project/sub"));
        assert_eq!(spec.command.max_chars, 1_000_000);
        assert_eq!((spec.timeout, spec.allow_non_zero_exit), (None, false));
        let spec = parse(&json!({ "command": "x", "cwd": "/abs", "timeoutMs": 1.5, "maxOutputChars": 10.0 })).unwrap();
        assert_eq!(spec.command.cwd, Path::new("/abs"));
        assert_eq!(spec.timeout, Some(Duration::from_millis(2)));
        assert_eq!(spec.command.max_chars, 10);
    }

    #[test]
    fn every_refusal_names_the_field() {
        for (described, said) in [
            (json!("ls -l"), "not a string"),
            (json!({}), "command is missing"),
            (json!({ "command": "" }), "command must not be empty"),
            (json!({ "command": ["ls"] }), "command must be a string, not an array"),
            (json!({ "command": "a\u{0}b" }), "command must not hold a NUL"),
            (
                json!({ "command": "x", "args": "a" }),
                "args must be an array of strings, not a string",
            ),
            (
                json!({ "command": "x", "args": ["a", 3] }),
                "args[1] must be a string, not a number",
            ),
            (
                json!({ "command": "x", "env": { "A=B": "c" } }),
                "\"A=B\" is no variable name",
            ),
            (json!({ "command": "x", "env": { "A": 1 } }), "env.A must be a string"),
            (
                json!({ "command": "x", "timeoutMs": 0 }),
                "timeoutMs must be a positive number",
            ),
            (
                json!({ "command": "x", "maxOutputChars": 0.5 }),
                "maxOutputChars must be a whole number",
            ),
            (
                json!({ "command": "x", "shell": true }),
                "the field \"shell\" is unknown",
            ),
        ] {
            let why = parse(&described).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }
}
