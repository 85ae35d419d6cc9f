//! What a message of a workflow looks like in the conversation: lines that travel with the entry, so that it looks the same
//! when the session is opened again without a bridge. They are made from the structured details, never from the prompt.

use piw_protocol::interaction::{MessageContent, MessageKind, StepReason};
use serde_json::{Value, json};

use crate::text;

/// Most characters of one line. The extension cuts to the terminal's width.
const LINE: usize = 400;
/// Most lines of what a step expects.
const EXPECTED: usize = 40;

/// Adds the card to the hidden details of a message.
pub(crate) fn with_card(mut message: MessageContent, run_id: &str) -> MessageContent {
    let card = card(&message, run_id);
    if let Value::Object(details) = &mut message.details {
        details.insert("card".into(), card);
    }
    message
}

fn card(message: &MessageContent, run_id: &str) -> Value {
    let details = &message.details;
    let contract = details.get("contract").unwrap_or(&Value::Null);
    let presentation = details.get("presentation").unwrap_or(&Value::Null);
    let workflow = field(contract, "workflow").or_else(|| field(details, "workflowName"));
    let title = field(presentation, "runTitle").or_else(|| field(details, "runTitle"));
    let node = field(contract, "nodeId").or_else(|| field(details, "nodeId"));
    let reason: Option<StepReason> = details
        .get("reason")
        .and_then(|reason| serde_json::from_value(reason.clone()).ok());
    let glyph = match (kind(message), reason) {
        (Some(MessageKind::Step), Some(StepReason::Reminder | StepReason::Resumed)) => '↻',
        (Some(MessageKind::Step), _) => '▶',
        (Some(MessageKind::Decision), _) => '◆',
        (Some(MessageKind::Terminal), _) => '■',
        _ => '!',
    };
    let names: Vec<String> = [title.clone().or_else(|| workflow.clone()), node.clone()]
        .into_iter()
        .flatten()
        .collect();
    let mut head = format!("{glyph} {}", names.join(" › "));
    if names.is_empty() {
        head = format!("{glyph} workflow");
    }
    match reason {
        Some(StepReason::Reminder) => head.push_str(" · reminder"),
        Some(StepReason::Resumed) => head.push_str(" · resumed"),
        _ => {}
    }
    let mut compact = vec![head];
    let asked = details.get("request").unwrap_or(&Value::Null);
    let detail = field(presentation, "statusDetail").or_else(|| field(asked, "title"));
    compact.extend(detail.or_else(|| field(details, "status")));
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.push(format!("{name}: {value}"));
        }
    };
    fact("workflow", workflow);
    fact("title", title);
    fact("run", Some(line(run_id)));
    fact("step", node);
    fact("request", field(contract, "requestId"));
    fact("reason", reason.map(|reason| reason.name().to_owned()));
    fact("completed by", field(contract, "kind"));
    fact(
        "at most",
        contract
            .get("maxChars")
            .and_then(Value::as_u64)
            .map(|most| format!("{most} characters")),
    );
    match contract.get("expectedOutput") {
        None | Some(Value::Null) => {}
        Some(expected) => {
            let whole = match expected {
                Value::String(text) => text.clone(),
                other => serde_json::to_string_pretty(other).unwrap_or_default(),
            };
            let (lines, more) = text::clean_lines(&whole, EXPECTED);
            facts.push("expected output:".into());
            facts.extend(lines.iter().map(|found| format!("  {}", line(found))));
            if more {
                facts.push("  …".into());
            }
        }
    }
    json!({ "compact": compact, "facts": facts })
}

fn kind(message: &MessageContent) -> Option<MessageKind> {
    use MessageKind::{Decision, FollowUp, Notification, Step, Terminal};
    [Step, Decision, Notification, Terminal, FollowUp]
        .into_iter()
        .find(|kind| kind.custom_type() == message.custom_type)
}

fn field(value: &Value, name: &str) -> Option<String> {
    let found = value.get(name)?.as_str().filter(|text| !text.trim().is_empty())?;
    Some(line(found))
}

fn line(found: &str) -> String {
    text::fit(&text::clean(found), LINE).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(details: Value) -> Value {
        let message = MessageContent {
            custom_type: MessageKind::Step.custom_type().into(),
            content: "SECRET PROMPT".into(),
            display: true,
            details,
        };
        with_card(message, "run-1").details["card"].clone()
    }

    #[test]
    fn a_step_shows_where_it_stands_and_expands_to_its_contract() {
        let card = step(json!({"workflowMessageId": "m", "reason": "reminder",
            "contract": {"requestId": "q", "kind": "submit", "workflow": "monitor", "nodeId": "check",
                "expectedOutput": {"ok": "boolean"}, "maxChars": 100},
            "presentation": {"statusDetail": "Checking the monitored target"}}));
        assert_eq!(
            card["compact"],
            json!(["↻ monitor › check · reminder", "Checking the monitored target"])
        );
        assert_eq!(
            card["facts"],
            json!([
                "workflow: monitor",
                "run: run-1",
                "step: check",
                "request: q",
                "reason: reminder",
                "completed by: submit",
                "at most: 100 characters",
                "expected output:",
                "  {",
                "    \"ok\": \"boolean\"",
                "  }"
            ])
        );
        assert!(!card.to_string().contains("SECRET"), "a card never holds the prompt");
    }

    #[test]
    fn a_result_shows_how_the_run_ended() {
        let message = MessageContent {
            custom_type: MessageKind::Terminal.custom_type().into(),
            content: "whole".into(),
            display: true,
            details: json!({"workflowMessageId": "m", "runId": "run-1", "workflowName": "write", "runTitle": null,
                "status": "completed"}),
        };
        let card = with_card(message, "run-1").details["card"].clone();
        assert_eq!(card["compact"], json!(["■ write", "completed"]));
    }

    #[test]
    fn missing_and_hostile_fields_are_shown_safely() {
        assert_eq!(step(json!({}))["compact"], json!(["▶ workflow"]));
        let card = step(
            json!({"reason": 7, "contract": {"workflow": "a\u{1b}[31m\nb", "nodeId": 5},
            "presentation": {"runTitle": "t".repeat(5000), "statusDetail": " "}}),
        );
        let head = card["compact"][0].as_str().unwrap();
        assert!(head.starts_with("▶ tttt") && text::width(head) <= LINE + 2, "{head}");
        assert_eq!(card["compact"].as_array().unwrap().len(), 1, "nothing is invented");
        assert_eq!(card["facts"][0], "workflow: a␛[31m b");
    }
}
