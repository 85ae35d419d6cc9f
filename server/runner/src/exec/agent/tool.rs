//! Calls of the tool `workflow` in a step: closed shapes, and errors that say what to send instead.

use piw_engine::value::kind;
use serde_json::{Map, Value};

/// The tool's name.
pub(crate) const NAME: &str = "workflow";

/// A checked call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    /// Hands in the step's output.
    Submit(Value),
    /// Publishes `{type, key, data}`.
    Update(Value),
}

/// What a prompt says of completing its step.
pub(crate) fn completion(request: &str) -> String {
    format!(
        "Do the task, then call the tool \"{NAME}\" with {}, where \"output\" is the JSON value that the expected output describes. \
         The step is complete only when the tool says that the submission was accepted; correct a rejected one and submit it \
         again. An answer in text completes nothing. Long work may report progress with {}.",
        submit_form(request),
        update_form(request)
    )
}

fn submit_form(request: &str) -> String {
    format!("{{\"action\": \"submit\", \"requestId\": \"{request}\", \"output\": …}}")
}

fn update_form(request: &str) -> String {
    format!(
        "{{\"action\": \"update\", \"requestId\": \"{request}\", \"type\": \"progress\", \"key\": \"work\", \"data\": {{\"status\": \
         \"running\", \"label\": …}}}}"
    )
}

/// Checks the arguments of a call for a request. The error is for the model.
pub(crate) fn parse(arguments: &str, request: &str) -> Result<Call, String> {
    let either = || format!("send {} or {}", submit_form(request), update_form(request));
    let fields = match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => {
            return Err(format!(
                "The arguments must be an object, not {}; {}.",
                kind(&other),
                either()
            ));
        }
        Err(error) => {
            return Err(format!(
                "The arguments are no JSON that can be read ({error}); {}.",
                either()
            ));
        }
    };
    match fields.get("action") {
        Some(Value::String(action)) if action == "submit" => submit(fields, request),
        Some(Value::String(action)) if action == "update" => update(fields, request),
        Some(other) => Err(format!(
            "action must be \"submit\" or \"update\", not {}; {}.",
            shown(other),
            either()
        )),
        None => Err(format!("action is missing; {}.", either())),
    }
}

fn submit(mut fields: Map<String, Value>, request: &str) -> Result<Call, String> {
    let form = || format!("send {}", submit_form(request));
    closed(&fields, &["action", "requestId", "output"]).map_err(|why| format!("{why} of submit; {}.", form()))?;
    matches(&fields, request).map_err(|why| format!("{why}; {}.", form()))?;
    match fields.remove("output") {
        Some(output) => Ok(Call::Submit(output)),
        None => Err(format!("output is missing; {}.", form())),
    }
}

fn update(mut fields: Map<String, Value>, request: &str) -> Result<Call, String> {
    let form = || format!("send {}", update_form(request));
    closed(&fields, &["action", "requestId", "type", "key", "data"])
        .map_err(|why| format!("{why} of update; {}.", form()))?;
    matches(&fields, request).map_err(|why| format!("{why}; {}.", form()))?;
    fields.remove("action");
    fields.remove("requestId");
    Ok(Call::Update(Value::Object(fields)))
}

fn closed(fields: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(other) => Err(format!("{} is no field", shown(&Value::String(other.clone())))),
        None => Ok(()),
    }
}

fn matches(fields: &Map<String, Value>, request: &str) -> Result<(), String> {
    match fields.get("requestId") {
        Some(Value::String(found)) if found == request => Ok(()),
        Some(other) => Err(format!(
            "requestId must be \"{request}\", the request of this step, not {}",
            shown(other)
        )),
        None => Err("requestId is missing".to_owned()),
    }
}

/// A value, short enough for an error.
fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    piw_engine::text::cut(&mut text, 100);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_taken_as_they_are() {
        let call = |fields: Value| parse(&fields.to_string(), "r1");
        assert_eq!(
            call(json!({ "action": "submit", "requestId": "r1", "output": null })),
            Ok(Call::Submit(Value::Null))
        );
        assert_eq!(
            call(json!({ "action": "update", "requestId": "r1", "type": "progress", "key": "k", "data": { "a": 1 } })),
            Ok(Call::Update(
                json!({ "type": "progress", "key": "k", "data": { "a": 1 } })
            ))
        );
    }

    #[test]
    fn a_refusal_says_what_to_send_instead() {
        for (arguments, said) in [
            ("[1]", "must be an object, not an array"),
            ("{", "no JSON that can be read"),
            ("{}", "action is missing"),
            (r#"{"action":"start"}"#, r#"must be "submit" or "update", not "start""#),
            (r#"{"action":"submit","output":1}"#, "requestId is missing"),
            (
                r#"{"action":"submit","requestId":"r2","output":1}"#,
                r#"must be "r1", the request of this step, not "r2""#,
            ),
            (r#"{"action":"submit","requestId":"r1"}"#, "output is missing"),
            (
                r#"{"action":"submit","requestId":"r1","output":1,"type":"x"}"#,
                r#""type" is no field of submit"#,
            ),
            (
                r#"{"action":"update","requestId":"r1","output":1}"#,
                r#""output" is no field of update"#,
            ),
        ] {
            let why = parse(arguments, "r1").unwrap_err();
            assert!(
                why.contains(said) && why.contains(r#""requestId": "r1""#),
                "{arguments}: {why}"
            );
        }
        let long = json!({ "action": "x".repeat(1_000) }).to_string();
        assert!(parse(&long, "r1").unwrap_err().len() < 700);
    }
}
