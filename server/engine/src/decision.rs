//! Protected decisions: what a person is shown, which answers there are, and what happens when nobody answers in time.
//!
//! The request is one JSON object, made once when the node runs. Its digest binds everything shown: an answer counts for exactly
//! that. Choices and audience come from the definition, whatever else user code makes.

use piw_protocol::canonical;
use serde_json::{Map, Value, json};

use crate::limits;
use crate::value::kind;

/// Schema of a decision's request.
pub const REQUEST_SCHEMA: &str = "pi-workflows.decision-request.v1";
/// Schema of what a person is shown of it.
pub const PRESENTATION_SCHEMA: &str = "pi-workflows.decision-presentation.v1";
/// Name of the text that a person adds to a choice.
pub const INPUT: &str = "input";
/// Longest text that a person adds, in characters, unless the choice says less.
const INPUT_CHARS: usize = 16 * 1024;
/// Longest title in bytes.
const TITLE_BYTES: usize = 1024;

/// Makes the request that is stored and shown, of what the author's `request` gave, the declared decision, and the timeout policy
/// that was resolved.
///
/// # Errors
/// A sentence that names the rule and what was found.
pub fn request(declared: &Value, made: &Value, on_timeout: Option<&Value>) -> Result<Value, String> {
    let Value::Object(made) = made else {
        return Err(format!(
            "request must give {{title, subject, presentation}}, not {}",
            kind(made)
        ));
    };
    if let Some(other) = made
        .keys()
        .find(|key| !matches!(key.as_str(), "title" | "subject" | "presentation"))
    {
        return Err(format!(
            "request gives {{title, subject, presentation}}; \"{other}\" is unknown"
        ));
    }
    let title = match made.get("title") {
        Some(Value::String(title)) if !title.trim().is_empty() && title.len() <= TITLE_BYTES => title,
        Some(Value::String(title)) => {
            let bytes = title.len();
            return Err(format!("request.title must have 1 to {TITLE_BYTES} bytes, not {bytes}"));
        }
        other => {
            return Err(format!(
                "request.title must be a string, not {}",
                kind(other.unwrap_or(&Value::Null))
            ));
        }
    };
    let presentation = presentation(made.get("presentation"))?;
    let mut request = Map::new();
    for (name, value) in [
        ("schema", json!(REQUEST_SCHEMA)),
        ("title", json!(title)),
        ("subject", made.get("subject").cloned().unwrap_or_default()),
        ("presentation", presentation),
        ("audience", declared.get("audience").cloned().unwrap_or_default()),
        ("choices", declared.get("choices").cloned().unwrap_or_default()),
    ] {
        request.insert(name.to_owned(), value);
    }
    let mut request = Value::Object(request);
    if let Some(policy) = on_timeout {
        let policy = timeout(&request, policy)?;
        request["onTimeout"] = policy;
    }
    Ok(request)
}

fn presentation(given: Option<&Value>) -> Result<Value, String> {
    let Some(Value::Object(given)) = given else {
        let found = kind(given.unwrap_or(&Value::Null));
        return Err(format!(
            "request.presentation must be {{summary, blocks?}}, not {found}"
        ));
    };
    if let Some(schema) = given
        .get("schema")
        .filter(|schema| **schema != json!(PRESENTATION_SCHEMA))
    {
        return Err(format!(
            "request.presentation.schema must be \"{PRESENTATION_SCHEMA}\", not {schema}"
        ));
    }
    if !given.get("summary").is_some_and(Value::is_string) {
        let found = kind(given.get("summary").unwrap_or(&Value::Null));
        return Err(format!("request.presentation.summary must be a string, not {found}"));
    }
    if let Some(blocks) = given.get("blocks").filter(|blocks| !blocks.is_array()) {
        return Err(format!(
            "request.presentation.blocks must be an array, not {}",
            kind(blocks)
        ));
    }
    let mut whole = given.clone();
    whole.insert("schema".to_owned(), json!(PRESENTATION_SCHEMA));
    Ok(Value::Object(whole))
}

/// The policy `{afterMs, response}` with a checked response.
fn timeout(request: &Value, policy: &Value) -> Result<Value, String> {
    let after = policy.get("afterMs").and_then(Value::as_f64);
    let Some(after) = after.and_then(crate::definition::timeout_millis) else {
        let most = limits::MAX_TIMEOUT_MS;
        let found = policy.get("afterMs").unwrap_or(&Value::Null);
        return Err(format!(
            "onTimeout.afterMs must be a positive number up to {most}, not {found}"
        ));
    };
    let response = policy.get("response").unwrap_or(&Value::Null);
    let choice = response.get("choice").and_then(Value::as_str).unwrap_or_default();
    let input = response.get(INPUT).map(|input| input.as_str().unwrap_or_default());
    let answer = answer(request, choice, input).map_err(|why| format!("onTimeout.response: {why}"))?;
    Ok(json!({ "afterMs": after, "response": answer }))
}

/// Whether a request that a runner proposes is one of the declared decision.
///
/// # Errors
/// What differs.
pub fn check(declared: &Value, request: &Value) -> Result<(), String> {
    for name in ["audience", "choices"] {
        if request.get(name).unwrap_or(&Value::Null) != declared.get(name).unwrap_or(&Value::Null) {
            return Err(format!("the {name} of the request are not those of the workflow"));
        }
    }
    match request.get("onTimeout") {
        Some(policy) if timeout(request, policy)? != *policy => Err("onTimeout is not normalised".to_owned()),
        Some(_) if declared.get("onTimeout").is_none() => Err("the workflow declares no onTimeout".to_owned()),
        None if declared.get("onTimeout").is_some() => Err("the workflow's onTimeout is missing".to_owned()),
        _ => Ok(()),
    }
}

/// The node's output for a choice of a request, with the text that was added.
///
/// # Errors
/// A sentence that names the choices or the rule of the text.
pub fn answer(request: &Value, choice: &str, input: Option<&str>) -> Result<Value, String> {
    let choices = request.get("choices").and_then(Value::as_array);
    let choices = choices.map(Vec::as_slice).unwrap_or_default();
    let name = |declared: &Value| declared.get("name").and_then(Value::as_str).map(str::to_owned);
    let Some(declared) = choices
        .iter()
        .find(|declared| name(declared).as_deref() == Some(choice))
    else {
        let names: Vec<String> = choices.iter().filter_map(name).collect();
        return Err(format!("\"{choice}\" is no choice; choose one of {}", names.join(", ")));
    };
    let field = declared.get(INPUT);
    let required = field.and_then(|field| field.get("required")) == Some(&Value::Bool(true));
    let input = input.filter(|input| !input.is_empty());
    match (field, input) {
        (None, Some(_)) => Err(format!("the choice \"{choice}\" takes no text")),
        (Some(_), None) if required => Err(format!("the choice \"{choice}\" needs a text")),
        (_, None) => Ok(json!({ "choice": choice })),
        (Some(field), Some(input)) => {
            let most = field.get("maxLength").and_then(Value::as_u64);
            let most = most
                .and_then(|most| usize::try_from(most).ok())
                .unwrap_or(INPUT_CHARS)
                .min(INPUT_CHARS);
            let chars = input.chars().count();
            if chars > most {
                return Err(format!(
                    "the text of \"{choice}\" has {chars} characters; at most {most} are allowed"
                ));
            }
            Ok(json!({ "choice": choice, INPUT: input }))
        }
    }
}

/// Wall-clock milliseconds after which the declared response counts, and that response.
#[must_use]
pub fn on_timeout(request: &Value) -> Option<(u64, &Value)> {
    let policy = request.get("onTimeout")?;
    Some((policy.get("afterMs")?.as_u64()?, policy.get("response")?))
}

/// `sha256:<hex>` of a request: what an answer names.
#[must_use]
pub fn digest(request: &Value) -> String {
    canonical::digest(request)
}

/// A request as text, for conversations and terminals.
#[must_use]
pub fn text(request: &Value) -> String {
    let words = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut text = words(request.get("title"));
    let presentation = request.get("presentation");
    let summary = words(presentation.and_then(|shown| shown.get("summary")));
    text.push_str(&format!("\n\n{summary}\n"));
    let blocks = presentation
        .and_then(|shown| shown.get("blocks"))
        .and_then(Value::as_array);
    for block in blocks.into_iter().flatten() {
        let shown = match block {
            Value::String(shown) => shown.clone(),
            block => match block.get("text").and_then(Value::as_str) {
                Some(shown) => shown.to_owned(),
                None => serde_json::to_string_pretty(block).expect("JSON is text"),
            },
        };
        text.push_str(&format!("\n{shown}\n"));
    }
    text.push_str("\nChoices:\n");
    for choice in request.get("choices").and_then(Value::as_array).into_iter().flatten() {
        let name = words(choice.get("name"));
        let said: Vec<String> = ["label", "description"]
            .into_iter()
            .filter_map(|field| choice.get(field).and_then(Value::as_str).map(str::to_owned))
            .collect();
        let said = said.join(" – ");
        let adds = if choice.get(INPUT).is_some() {
            " (takes a text)"
        } else {
            ""
        };
        let between = if said.is_empty() { "" } else { ": " };
        text.push_str(&format!("  {name}{between}{said}{adds}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Value {
        json!({
            "audience": "ops",
            "choices": [
                { "name": "yes", "label": "Yes" },
                { "name": "no", "input": { "type": "text", "required": true, "maxLength": 5 } },
            ],
            "onTimeout": { "afterMs": 10.2, "response": { "choice": "yes" } },
        })
    }

    fn made() -> Value {
        json!({ "title": "Publish?", "subject": { "id": 7 }, "presentation": { "summary": "All is green.", "blocks": ["one", { "text": "two" }, { "n": 3 }] } })
    }

    #[test]
    fn a_request_holds_everything_that_is_shown() {
        let declared = declared();
        let request = request(&declared, &made(), declared.get("onTimeout")).unwrap();
        assert_eq!(check(&declared, &request), Ok(()));
        assert_eq!(on_timeout(&request), Some((11, &json!({ "choice": "yes" }))));
        let text = text(&request);
        for part in [
            "Publish?\n\nAll is green.\n",
            "one\n\ntwo\n",
            "\"n\": 3",
            "  yes: Yes\n  no (takes a text)\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut other = request.clone();
        other["subject"]["id"] = json!(8);
        assert_ne!(digest(&request), digest(&other));
        other["choices"][0]["name"] = json!("maybe");
        assert!(check(&declared, &other).unwrap_err().contains("choices"));
    }

    #[test]
    fn answers_are_choices_with_their_text() {
        let declared = declared();
        let request = request(&declared, &made(), None).unwrap();
        assert_eq!(answer(&request, "yes", None), Ok(json!({ "choice": "yes" })));
        assert_eq!(
            answer(&request, "no", Some("late")),
            Ok(json!({ "choice": "no", "input": "late" }))
        );
        for (choice, input, said) in [
            ("maybe", None, "\"maybe\" is no choice; choose one of yes, no"),
            ("yes", Some("x"), "takes no text"),
            ("no", Some(""), "needs a text"),
            ("no", Some("far too long"), "has 12 characters; at most 5 are allowed"),
        ] {
            let why = answer(&request, choice, input).unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
        let declared = declared();
        for (made, policy, said) in [
            (
                json!("x"),
                None,
                "must give {title, subject, presentation}, not a string",
            ),
            (json!({ "title": "t", "body": 1 }), None, "\"body\" is unknown"),
            (json!({ "title": " " }), None, "request.title must have 1 to"),
            (
                json!({ "title": "t", "presentation": {} }),
                None,
                "presentation.summary must be a string, not null",
            ),
            (
                made(),
                Some(json!({ "afterMs": 0, "response": { "choice": "yes" } })),
                "onTimeout.afterMs must be",
            ),
            (
                made(),
                Some(json!({ "afterMs": 1, "response": { "choice": "x" } })),
                "onTimeout.response: \"x\" is no choice",
            ),
        ] {
            let why = request(&declared, &made, policy.as_ref()).unwrap_err();
            assert!(why.contains(said), "{said}: {why}");
        }
    }
}
