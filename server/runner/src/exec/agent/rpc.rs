//! Records of Pi's RPC mode: the few that matter for a step, and what is written to it.
//!
//! Pi 1.x and 0.73 write the same records, except that only 1.x says when it is idle (`agent_settled`).

use serde::Deserialize;
use serde_json::{Value, json};

/// Marks dialogs and status texts of the step extension.
const MARK: &str = "piw.step";

/// What Pi says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    /// The step extension is loaded.
    Ready(Ready),
    /// A call of our tool waits for its answer.
    Call {
        /// Identity of the dialog.
        dialog: String,
        /// Arguments, as JSON.
        arguments: String,
    },
    /// Something else asks a person.
    Dialog {
        /// Identity of the dialog.
        dialog: String,
    },
    /// A prompt was not taken; why.
    Refused(String),
    /// Whether Pi is at work, as an answer to [`get_state`].
    State {
        /// Whether nothing goes on.
        idle: bool,
    },
    /// Work began, or begins again soon.
    Busy,
    /// A message of the model is complete.
    Assistant {
        /// Its visible text.
        text: String,
        /// Why it has no more, if the provider failed.
        error: Option<String>,
    },
    /// A run of the model ended; what follows is not said.
    RunEnd,
    /// Nothing follows by itself.
    Settled,
}

/// What the step extension reports when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Ready {
    /// Tools that this Pi has.
    pub(crate) known: Vec<String>,
    /// Whether this Pi says when it is idle.
    pub(crate) settles: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    method: Option<String>,
    title: Option<String>,
    placeholder: Option<String>,
    status_key: Option<String>,
    status_text: Option<String>,
    command: Option<String>,
    success: Option<bool>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Ended {
    message: Message,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    role: String,
    stop_reason: Option<String>,
    error_message: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    message: Content,
}

#[derive(Deserialize)]
struct Content {
    content: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Deserialize)]
struct StateLine {
    data: StateData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateData {
    #[serde(default)]
    is_streaming: bool,
    #[serde(default)]
    is_compacting: bool,
    #[serde(default)]
    pending_message_count: u64,
}

/// Reads a line of Pi's standard output; `None` when it does not matter here.
pub(crate) fn read(line: &[u8]) -> Option<Record> {
    let head: Line = serde_json::from_slice(line).ok()?;
    Some(match head.kind.as_str() {
        "extension_ui_request" => return dialog(head),
        "response" => return response(&head, line),
        "agent_start" | "auto_retry_start" | "compaction_start" => Record::Busy,
        "agent_end" => Record::RunEnd,
        "agent_settled" => Record::Settled,
        "message_end" => return assistant(line),
        _ => return None,
    })
}

fn dialog(head: Line) -> Option<Record> {
    let ours = |mark: &Option<String>| mark.as_deref() == Some(MARK);
    match head.method.as_deref()? {
        "setStatus" if ours(&head.status_key) => serde_json::from_str(&head.status_text?).ok().map(Record::Ready),
        "input" if ours(&head.title) => Some(Record::Call {
            dialog: head.id?,
            arguments: head.placeholder?,
        }),
        "select" | "confirm" | "input" | "editor" => Some(Record::Dialog { dialog: head.id? }),
        _ => None,
    }
}

fn response(head: &Line, line: &[u8]) -> Option<Record> {
    match (head.command.as_deref()?, head.success?) {
        ("prompt", false) => Some(Record::Refused(match &head.error {
            Some(Value::String(why)) => why.clone(),
            other => other.as_ref().map(Value::to_string).unwrap_or_default(),
        })),
        ("get_state", true) => {
            let StateLine { data } = serde_json::from_slice(line).ok()?;
            let idle = !data.is_streaming && !data.is_compacting && data.pending_message_count == 0;
            Some(Record::State { idle })
        }
        _ => None,
    }
}

fn assistant(line: &[u8]) -> Option<Record> {
    // Other roles first: a user's message may be large and is not looked into.
    let Ended { message } = serde_json::from_slice(line).ok()?;
    if message.role != "assistant" {
        return None;
    }
    let failed = message.stop_reason.as_deref() == Some("error");
    let error = failed.then(|| {
        message
            .error_message
            .unwrap_or_else(|| "the provider failed".to_owned())
    });
    let Said { message } = serde_json::from_slice(line).ok()?;
    let blocks = message.content.into_iter();
    let texts: Vec<String> = blocks
        .filter(|block| block.kind == "text")
        .filter_map(|block| block.text)
        .collect();
    let text = texts.join("\n");
    Some(Record::Assistant { text, error })
}

/// Begins a turn.
pub(crate) fn prompt(text: &str) -> String {
    line(&json!({ "type": "prompt", "message": text }))
}

/// Asks whether Pi is idle.
pub(crate) fn get_state() -> String {
    line(&json!({ "type": "get_state" }))
}

/// Answers a call of our tool. `done` ends the turn.
pub(crate) fn answer(dialog: &str, ok: bool, text: &str, done: bool) -> String {
    let value = json!({ "ok": ok, "text": text, "done": done }).to_string();
    line(&json!({ "type": "extension_ui_response", "id": dialog, "value": value }))
}

/// Answers a dialog that nobody can answer here.
pub(crate) fn dismiss(dialog: &str) -> String {
    line(&json!({ "type": "extension_ui_response", "id": dialog, "cancelled": true }))
}

fn line(record: &Value) -> String {
    format!("{record}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(record: &Value) -> Option<Record> {
        read(record.to_string().as_bytes())
    }

    #[test]
    fn what_matters_is_read() {
        let status = r#"{"known":["read","workflow"],"settles":true}"#;
        let known = vec!["read".to_owned(), "workflow".to_owned()];
        for (record, read) in [
            (
                json!({ "type": "extension_ui_request", "id": "1", "method": "setStatus", "statusKey": MARK, "statusText": status }),
                Some(Record::Ready(Ready { known, settles: true })),
            ),
            (
                json!({ "type": "extension_ui_request", "id": "2", "method": "input", "title": MARK, "placeholder": "{}" }),
                Some(Record::Call {
                    dialog: "2".into(),
                    arguments: "{}".into(),
                }),
            ),
            (
                json!({ "type": "extension_ui_request", "id": "3", "method": "confirm", "title": "Sure?" }),
                Some(Record::Dialog { dialog: "3".into() }),
            ),
            (
                json!({ "type": "extension_ui_request", "id": "4", "method": "notify", "message": "x" }),
                None,
            ),
            (
                json!({ "type": "response", "command": "prompt", "success": false, "error": "No API key" }),
                Some(Record::Refused("No API key".into())),
            ),
            (
                json!({ "type": "response", "command": "prompt", "success": true }),
                None,
            ),
            (
                json!({ "type": "response", "command": "get_state", "success": true, "data": { "isStreaming": true } }),
                Some(Record::State { idle: false }),
            ),
            (json!({ "type": "agent_start" }), Some(Record::Busy)),
            (
                json!({ "type": "agent_end", "messages": [{ "role": "user" }] }),
                Some(Record::RunEnd),
            ),
            (
                json!({ "type": "agent_settled", "aborted": false }),
                Some(Record::Settled),
            ),
            (
                json!({ "type": "message_end", "message": { "role": "user", "content": "x" } }),
                None,
            ),
            (
                json!({ "type": "message_end", "message": { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "h" }, { "type": "text", "text": "a" }, { "type": "text", "text": "b" }] } }),
                Some(Record::Assistant {
                    text: "a\nb".into(),
                    error: None,
                }),
            ),
            (
                json!({ "type": "message_end", "message": { "role": "assistant", "content": [], "stopReason": "error", "errorMessage": "500" } }),
                Some(Record::Assistant {
                    text: String::new(),
                    error: Some("500".into()),
                }),
            ),
        ] {
            assert_eq!(of(&record), read, "{record}");
        }
        assert_eq!(read(b"no JSON"), None);
    }

    #[test]
    fn what_is_written_is_one_line() {
        let written = prompt("a\nb\u{2028}c");
        assert_eq!(written.matches('\n').count(), 1);
        let record: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(record["message"], "a\nb\u{2028}c");
        let record: Value = serde_json::from_str(&answer("7", false, "why \"not\"", false)).unwrap();
        let value: Value = serde_json::from_str(record["value"].as_str().unwrap()).unwrap();
        assert_eq!(value, json!({ "ok": false, "text": "why \"not\"", "done": false }));
    }
}
