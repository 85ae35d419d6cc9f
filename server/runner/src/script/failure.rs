//! Failures inside a runtime and their words: what was thrown, by whom.

use rquickjs::Value;

use super::api::{CallError, CallErrorKind, CallbackField, CallbackRef};
use super::value;

/// A failure inside the runtime, before it is put into the words of a load or call error.
pub(super) struct Failure {
    pub kind: CallErrorKind,
    pub message: String,
    pub stack: Option<String>,
    /// Node's error code, where the error has one.
    pub code: Option<String>,
}

impl Failure {
    pub(super) fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            stack: None,
            code: None,
        }
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind,
            message: failure.message,
            stack: failure.stack,
        }
    }
}

/// An error of the SDK's own as it reads in a list of problems: without `TypeError: `.
pub(super) fn without_class(message: String) -> String {
    message
        .strip_prefix("TypeError: ")
        .map(str::to_owned)
        .unwrap_or(message)
}

/// The text for an import of a name that the module does not export, if `message` tells of one.
pub(super) fn link_error(message: &str) -> Option<String> {
    let rest = message.strip_prefix("SyntaxError: Could not find export ")?;
    Some(format!(
        "cannot import {}",
        rest.replace("in module 'piw:sdk", "from 'piw")
            .replace("in module", "from")
    ))
}

/// Code of the failure of a callback or module that waits for what can never happen.
pub(super) const UNSETTLED: &str = "ERR_UNSETTLED";

/// Text of a thrown `null`.
pub(super) const NOTHING_THROWN: &str = "thrown value null";

/// What was thrown, as one text: an error's name and message with its causes, or the value.
pub(super) fn thrown_text(thrown: &Value<'_>) -> String {
    let mut text = one_thrown(thrown);
    let mut at = thrown.clone();
    for _ in 0..4 {
        let cause = at
            .as_object()
            .and_then(|object| object.get::<_, Value<'_>>("cause").ok());
        let Some(cause) = cause.filter(|cause| !cause.is_undefined() && !cause.is_null()) else {
            break;
        };
        text.push_str("\n  caused by: ");
        text.push_str(&one_thrown(&cause));
        at = cause;
    }
    text
}

fn one_thrown(thrown: &Value<'_>) -> String {
    let ctx = thrown.ctx();
    if let Some(object) = thrown
        .as_object()
        .filter(|_| thrown.is_error() || is_error_like(thrown))
    {
        let part = |key: &str| object.get::<_, Option<String>>(key).ok().flatten().unwrap_or_default();
        let (name, message) = (part("name"), part("message"));
        return match (name.as_str(), message.as_str()) {
            ("" | "Error", message) => message.to_owned(),
            (name, "") => name.to_owned(),
            (name, message) => format!("{name}: {message}"),
        };
    }
    if let Some(text) = thrown.as_string() {
        return text.to_string().unwrap_or_default();
    }
    match value::to_json(ctx, thrown.clone()) {
        Ok(json) => format!("thrown value {json}"),
        Err(_) => {
            ctx.catch();
            format!("thrown {}", thrown.type_of().as_str())
        }
    }
}

fn is_error_like(thrown: &Value<'_>) -> bool {
    thrown.as_object().is_some_and(|object| {
        object
            .get::<_, Value<'_>>("message")
            .is_ok_and(|message| message.is_string())
            && object.get::<_, Value<'_>>("name").is_ok_and(|name| name.is_string())
    })
}

/// Names a callback as errors do: `compute node "a/b"`.
pub(super) fn label(callback: &CallbackRef) -> String {
    let node = match (callback.scope.as_str(), callback.node.as_deref()) {
        ("", None) => "the workflow".to_owned(),
        (scope, None) => format!("workflow \"{scope}\""),
        ("", Some(node)) => format!("node \"{node}\""),
        (scope, Some(node)) => format!("node \"{scope}/{node}\""),
    };
    match callback.field {
        CallbackField::Run => format!("compute {node}"),
        field => format!("{} of {node}", field.name()),
    }
}
