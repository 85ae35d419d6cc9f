//! Path expressions of switches and the choice of a case.
//!
//! `$`, `$.a.b`, `$output`, `$output.a.b` read the accepted output; `$result.<field>…` reads the result record, so that
//! failures can be routed. A segment is `[A-Za-z0-9_$-]+`; on arrays a decimal segment is an index. The found value must be
//! a string, a number or a boolean and is compared with the labels as text (`true`, `3`, `0.5`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use piw_protocol::child::NodeResultState;
use piw_protocol::run::{ActionReceipt, ErrorInfo, NodeOutcome};
use serde_json::Value;
use thiserror::Error;

use crate::limits;
use crate::names::shown;
use crate::value::kind;

/// Fields of a result record that `$result` can read.
pub const RESULT_FIELDS: &[&str] = &["action", "error", "exit", "nodeId", "outcome", "output"];

/// What a path reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// The accepted output.
    Output,
    /// The result record.
    Result,
}

/// A parsed path expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathExpr {
    text: String,
    root: Root,
    segments: Vec<String>,
}

/// Why a path expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathError {
    /// Too long.
    #[error("the path has {0} bytes; at most {max} are allowed", max = limits::PATH_BYTES)]
    TooLong(usize),
    /// Does not start with a known root.
    #[error("path \"{}\" must start with $, $output or $result (for example $.route or $result.outcome)", shown(.0))]
    Root(String),
    /// An empty segment or a character outside the grammar.
    #[error(
        "path \"{}\" has the bad part \"{}\"; parts are [A-Za-z0-9_$-]+ separated by single dots",
        shown(path),
        shown(part)
    )]
    Segment {
        /// The path.
        path: String,
        /// The part.
        part: String,
    },
    /// `$result` without a known field.
    #[error("path \"{}\" must name a field of the result record ({})", shown(.0), RESULT_FIELDS.join(", "))]
    ResultField(String),
}

impl PathExpr {
    /// Parses a path expression.
    ///
    /// # Errors
    /// Names the path and the part that breaks the grammar.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > limits::PATH_BYTES {
            return Err(PathError::TooLong(text.len()));
        }
        let mut parts = text.split('.');
        let root = match parts.next() {
            Some("$" | "$output") => Root::Output,
            Some("$result") => Root::Result,
            _ => return Err(PathError::Root(text.to_owned())),
        };
        let segments: Vec<String> = parts.map(str::to_owned).collect();
        let good = |part: &String| !part.is_empty() && part.bytes().all(is_segment_byte);
        if let Some(part) = segments.iter().find(|part| !good(part)) {
            return Err(PathError::Segment {
                path: text.to_owned(),
                part: part.clone(),
            });
        }
        let field_known = segments
            .first()
            .is_some_and(|field| RESULT_FIELDS.contains(&field.as_str()));
        if root == Root::Result && !field_known {
            return Err(PathError::ResultField(text.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            root,
            segments,
        })
    }

    /// The expression as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it reads from. Only [`Root::Result`] is followed after an outcome other than `ok`.
    #[must_use]
    pub fn root(&self) -> Root {
        self.root
    }

    /// Whether the value of the output decides (and must therefore be at hand to check a route).
    #[must_use]
    pub fn reads_output(&self) -> bool {
        self.root == Root::Output || self.segments.first().is_some_and(|field| field == "output")
    }
}

fn is_segment_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-')
}

/// An output as far as it is at hand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Output<'a> {
    /// The value.
    Known(&'a Value),
    /// Stored content that was not loaded.
    NotLoaded,
}

/// The result record of a finished node, or of a mount that was left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record<'a> {
    /// Qualified node id, or the mount path.
    pub node_id: &'a str,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Its output (`null` unless `ok`).
    pub output: Output<'a>,
    /// Its error.
    pub error: Option<&'a ErrorInfo>,
    /// Its receipt.
    pub action: Option<&'a ActionReceipt>,
    /// Exit by which a mount was left.
    pub exit: Option<&'a str>,
}

/// The record of a stored result, for restored runs. `output` is the loaded value of `result.output`.
impl<'a> Record<'a> {
    /// Makes a record from a stored result.
    #[must_use]
    pub fn of_state(result: &'a NodeResultState, output: Output<'a>) -> Self {
        Self {
            node_id: &result.node_id,
            outcome: result.outcome,
            output,
            error: result.error.as_ref(),
            action: result.action.as_ref(),
            exit: result.exit.as_deref(),
        }
    }
}

/// Why no case could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RouteError {
    /// The path leads nowhere.
    #[error("routing from \"{node}\": {path} is missing: {at} has no \"{part}\"")]
    Missing {
        /// Node or mount.
        node: String,
        /// The path expression.
        path: String,
        /// The longest prefix that exists, with the kind of value found there.
        at: String,
        /// The part that is missing.
        part: String,
    },
    /// The value is no string, number or boolean.
    #[error("routing from \"{node}\": {path} is {value}, which is no text, number or boolean (cases: {cases})")]
    NotScalar {
        /// Node or mount.
        node: String,
        /// The path expression.
        path: String,
        /// The value, shortened.
        value: String,
        /// The labels.
        cases: String,
    },
    /// No label equals the value.
    #[error("routing from \"{node}\": {path} is {value}, which is none of the cases {cases}")]
    Unmatched {
        /// Node or mount.
        node: String,
        /// The path expression.
        path: String,
        /// The value, shortened.
        value: String,
        /// The labels.
        cases: String,
    },
    /// The output decides and is not at hand.
    #[error("routing from \"{node}\": {path} reads the output, which was not loaded")]
    NotLoaded {
        /// Node or mount.
        node: String,
        /// The path expression.
        path: String,
    },
}

/// Chooses the case whose label equals the value at `path`.
///
/// # Errors
/// Names the node, the path, the value and the cases. [`RouteError::NotLoaded`] is no routing failure of the run: the caller
/// must load the output and ask again.
pub fn choose<'c, T>(
    path: &PathExpr,
    cases: &'c BTreeMap<String, T>,
    order: &[String],
    record: &Record<'_>,
) -> Result<&'c T, RouteError> {
    let value = select(path, record)?;
    let node = || record.node_id.to_owned();
    let Some(label) = label(&value) else {
        return Err(RouteError::NotScalar {
            node: node(),
            path: path.text.clone(),
            value: shown_value(&value),
            cases: shown_cases(order),
        });
    };
    cases.get(label.as_ref()).ok_or_else(|| RouteError::Unmatched {
        node: node(),
        path: path.text.clone(),
        value: shown_value(&value),
        cases: shown_cases(order),
    })
}

/// Reads the value at `path`.
///
/// # Errors
/// [`RouteError::Missing`] or [`RouteError::NotLoaded`].
pub fn select<'a>(path: &PathExpr, record: &Record<'a>) -> Result<Cow<'a, Value>, RouteError> {
    let missing = |at: String, part: &str| RouteError::Missing {
        node: record.node_id.to_owned(),
        path: path.text.clone(),
        at,
        part: part.to_owned(),
    };
    let (start, rest) = match path.root {
        Root::Output => (output_of(path, record)?, &path.segments[..]),
        Root::Result => {
            let (field, rest) = path
                .segments
                .split_first()
                .expect("parse refuses $result without a field");
            let found = match field.as_str() {
                "output" => Some(output_of(path, record)?),
                other => record_field(record, other),
            };
            (
                found.ok_or_else(|| missing("the result record".to_owned(), field))?,
                rest,
            )
        }
    };
    let taken = path.segments.len() - rest.len();
    walk(start, rest).map_err(|(depth, kind)| {
        let prefix = if path.root == Root::Output {
            "$output"
        } else {
            "$result"
        };
        let at = std::iter::once(prefix)
            .chain(path.segments[..taken + depth].iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(".");
        missing(format!("{at} ({kind})"), &path.segments[taken + depth])
    })
}

fn output_of<'a>(path: &PathExpr, record: &Record<'a>) -> Result<Cow<'a, Value>, RouteError> {
    match record.output {
        Output::Known(value) => Ok(Cow::Borrowed(value)),
        Output::NotLoaded => Err(RouteError::NotLoaded {
            node: record.node_id.to_owned(),
            path: path.text.clone(),
        }),
    }
}

fn record_field<'a>(record: &Record<'a>, field: &str) -> Option<Cow<'a, Value>> {
    let value = match field {
        "outcome" => serde_json::to_value(record.outcome).ok()?,
        "nodeId" => Value::from(record.node_id),
        "exit" => Value::from(record.exit?),
        "error" => serde_json::to_value(record.error?).ok()?,
        "action" => serde_json::to_value(record.action?).ok()?,
        _ => return None,
    };
    Some(Cow::Owned(value))
}

/// Follows `segments`; on failure says how many were followed and what stands there.
fn walk<'a>(start: Cow<'a, Value>, segments: &[String]) -> Result<Cow<'a, Value>, (usize, &'static str)> {
    fn step<'v>(value: &'v Value, segment: &str) -> Option<&'v Value> {
        match value {
            Value::Object(map) => map.get(segment),
            Value::Array(items) => items.get(array_index(segment)?),
            _ => None,
        }
    }
    fn all<'v>(mut value: &'v Value, segments: &[String]) -> Result<&'v Value, (usize, &'static str)> {
        for (depth, segment) in segments.iter().enumerate() {
            value = step(value, segment).ok_or((depth, kind(value)))?;
        }
        Ok(value)
    }
    match start {
        Cow::Borrowed(value) => all(value, segments).map(Cow::Borrowed),
        Cow::Owned(value) => all(&value, segments).map(|found| Cow::Owned(found.clone())),
    }
}

fn array_index(segment: &str) -> Option<usize> {
    let canonical = segment == "0" || !segment.starts_with('0');
    (canonical && segment.bytes().all(|byte| byte.is_ascii_digit())).then(|| segment.parse().ok())?
}

fn label(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Number(_) => Some(Cow::Owned(crate::canonical_text(value))),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(map) => format!("an object with {} keys", map.len()),
        Value::String(text) => crate::canonical_text(&Value::from(shown(text))),
        other => crate::canonical_text(other),
    }
}

fn shown_cases(order: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut text = order
        .iter()
        .take(SHOWN)
        .map(|label| format!("\"{}\"", shown(label)))
        .collect::<Vec<_>>()
        .join(", ");
    if order.len() > SHOWN {
        text.push_str(&format!(" and {} more", order.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests;
