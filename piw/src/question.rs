//! What a checkpoint asks: the pending request of a waiting run, as whoever answers must see it.

use piw_protocol::view::{ArtifactRef, RunView, ViewValue};
use serde_json::Value;

use crate::text::clean_lines;

/// Lines of a question that are shown at most.
const SHOWN: usize = 400;

/// The pending request of a waiting run.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The node that waits.
    pub node: String,
    /// Its summary, not neutralised.
    pub summary: Option<String>,
    /// What is to be decided on; large requests are content.
    pub request: Option<ViewValue>,
}

impl Question {
    /// What a view says is asked; `None` when the run waits for nobody. A request `{summary, request?}` is taken apart, of
    /// any other the whole is the request.
    #[must_use]
    pub fn of(view: &RunView) -> Option<Self> {
        let node = view.state.waiting_on.clone()?;
        let wire = view
            .state
            .human_decision
            .as_ref()
            .and_then(|pending| pending.get("request"));
        let whole = wire.map(ViewValue::from_wire).unwrap_or_default();
        Some(Self::parts(node, whole))
    }

    fn parts(node: String, whole: ViewValue) -> Self {
        let (summary, request) = match whole {
            ViewValue::Inline(Value::Null) => (None, None),
            ViewValue::Inline(Value::Object(map))
                if map.get("summary").is_some_and(Value::is_string)
                    && map.keys().all(|key| key == "summary" || key == "request") =>
            {
                let summary = map.get("summary").and_then(Value::as_str).map(str::to_owned);
                let request = map.get("request").filter(|request| !request.is_null());
                (summary, request.map(ViewValue::from_wire))
            }
            whole => (None, Some(whole)),
        };
        Self { node, summary, request }
    }

    /// The same with the value that was fetched put where [`Self::content`] referred to it.
    #[must_use]
    pub fn filled(self, value: Value) -> Self {
        if self.content().is_none() {
            return self;
        }
        if self.summary.is_none() {
            return Self::parts(self.node, ViewValue::Inline(value));
        }
        Self {
            request: Some(ViewValue::Inline(value)),
            ..self
        }
    }

    /// The content that the request is, when it is not in the view.
    #[must_use]
    pub const fn content(&self) -> Option<&ArtifactRef> {
        match &self.request {
            Some(ViewValue::Artifact(reference)) => Some(reference),
            _ => None,
        }
    }

    /// The request as neutralised lines: text as it is, anything else as indented JSON in which line ends of
    /// texts are line ends. Content that is not there yet is none.
    #[must_use]
    pub fn request_lines(&self) -> Vec<String> {
        let text = match &self.request {
            Some(ViewValue::Inline(Value::String(text))) => text.clone(),
            Some(ViewValue::Inline(value)) => readable(value),
            Some(ViewValue::Artifact(_)) | None => return Vec::new(),
        };
        let (mut lines, more) = clean_lines(&text, SHOWN);
        if more {
            lines.push(format!("… only the first {SHOWN} lines"));
        }
        lines
    }
}

/// Indented JSON with the line ends of its texts as line ends: for reading, not for parsing.
fn readable(value: &Value) -> String {
    let encoded = serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    let mut out = String::with_capacity(encoded.len());
    let mut chars = encoded.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            (c, escaped) => {
                out.push(c);
                out.extend(escaped);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::viewer::fixtures;

    fn asked(request: &Value) -> Question {
        let mut view = fixtures::waiting().view();
        view.state.human_decision = Some(json!({"kind": "checkpoint", "nodeId": "approve", "request": request}));
        Question::of(&view).unwrap()
    }

    #[test]
    fn requests_are_taken_apart() {
        let question = asked(&json!({"summary": "Publish?", "request": {"draft": "notes"}}));
        assert_eq!(question.summary.as_deref(), Some("Publish?"));
        assert_eq!(question.request_lines(), ["{", "  \"draft\": \"notes\"", "}"]);
        let question = asked(&json!({"summary": "Publish?"}));
        assert_eq!(
            (question.request, question.summary.as_deref()),
            (None, Some("Publish?"))
        );
        let question = asked(&json!({"summary": "one", "files": []}));
        assert_eq!(question.summary, None, "any other object is a request as a whole");
        assert!(question.request.is_some());
        assert_eq!(asked(&Value::Null).request, None);
        let question = asked(&json!({"path": "C:\\new", "text": "one\ntwo"}));
        assert_eq!(
            question.request_lines(),
            ["{", "  \"path\": \"C:\\\\new\",", "  \"text\": \"one", "two\"", "}"]
        );
        assert_eq!(asked(&json!("a\u{1b}[2J\nb")).request_lines(), ["a␛[2J", "b"]);
    }

    #[test]
    fn fetched_content_is_taken_apart_too() {
        let artifact = json!({"$artifact": {"sha256": "ab".repeat(32), "bytes": 20_000, "mediaType": "application/json", "path": "artifacts/sha256/ab.json"}});
        let question = asked(&artifact);
        assert!(question.content().is_some());
        assert!(question.request_lines().is_empty(), "a reference is never shown");
        let question = question.filled(json!({"summary": "Large", "request": [1]}));
        assert_eq!(question.summary.as_deref(), Some("Large"));
        assert_eq!(question.request, Some(ViewValue::Inline(json!([1]))));
        let question = asked(&json!({"summary": "Publish?", "request": artifact})).filled(json!("whole"));
        assert_eq!(question.summary.as_deref(), Some("Publish?"));
        assert_eq!(question.request_lines(), ["whole"]);
    }
}
