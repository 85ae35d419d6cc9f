//! Progress updates (`pi-workflows.progress.v1`): the checked data, and when it will end.

mod eta;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

pub use eta::{EtaTracker, INTERVALS, MIN_INTERVALS, SOURCE_FRESH};

use crate::names::shown;

/// Schema that a progress update may name in its `schema` field.
pub const PROGRESS_SCHEMA: &str = "pi-workflows.progress.v1";
/// Longest `label`, `phase` and `unit`, in characters.
pub const TEXT_CHARS: usize = 1024;

const FIELDS: &[&str] = &[
    "completed",
    "label",
    "phase",
    "schema",
    "sourceEstimatedFinishAt",
    "sourceUpdatedAt",
    "status",
    "total",
    "unit",
];

/// Status of the work that progress is reported for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the documentation; authoring.md lists them")]
pub enum ProgressStatus {
    Pending,
    Running,
    Waiting,
    Blocked,
    Completed,
    Failed,
    Cancelled,
    Unknown,
}

impl ProgressStatus {
    const ALL: [(&'static str, Self); 8] = [
        ("pending", Self::Pending),
        ("running", Self::Running),
        ("waiting", Self::Waiting),
        ("blocked", Self::Blocked),
        ("completed", Self::Completed),
        ("failed", Self::Failed),
        ("cancelled", Self::Cancelled),
        ("unknown", Self::Unknown),
    ];

    fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, status)| *status)
    }
}

impl fmt::Display for ProgressStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(_, status)| status == self)
            .map_or("unknown", |(name, _)| name);
        f.write_str(name)
    }
}

/// Checked data of a progress update. Times are milliseconds of Unix time.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressData {
    /// Status.
    pub status: ProgressStatus,
    /// What is being done.
    pub label: Option<String>,
    /// Part of the work.
    pub phase: Option<String>,
    /// Units done.
    pub completed: Option<f64>,
    /// Units in all.
    pub total: Option<f64>,
    /// Name of a unit.
    pub unit: Option<String>,
    /// When the source of the figures last changed them.
    pub source_updated_at: Option<i64>,
    /// When the source expects to end.
    pub source_estimated_finish_at: Option<i64>,
}

/// Why progress data is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProgressError {
    /// The data is no object.
    #[error("the data must be an object")]
    NotObject,
    /// A field that the schema does not have.
    #[error("unknown field \"{}\" (fields: {})", shown(.0), FIELDS.join(", "))]
    UnknownField(String),
    /// The status is missing.
    #[error("status is missing")]
    NoStatus,
    /// A field has a value that it cannot have.
    #[error("{field} is {found}; it must be {rule}")]
    Field {
        /// The field.
        field: &'static str,
        /// The value, shortened.
        found: String,
        /// What it must be.
        rule: &'static str,
    },
}

const STATUS_RULE: &str = "one of pending, running, waiting, blocked, completed, failed, cancelled, unknown";
const TEXT_RULE: &str = "a text of at most 1024 characters";
const COUNT_RULE: &str = "a number from 0 up";
const TIME_RULE: &str = "an RFC 3339 time";

impl ProgressData {
    /// Checks and reads the data of a progress update.
    ///
    /// # Errors
    /// Names the field, the value and the rule.
    pub fn parse(data: &Value) -> Result<Self, ProgressError> {
        let map = data.as_object().ok_or(ProgressError::NotObject)?;
        if let Some(field) = map.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            return Err(ProgressError::UnknownField(field.clone()));
        }
        read(map, "schema", "the text pi-workflows.progress.v1", |value| {
            (value.as_str() == Some(PROGRESS_SCHEMA)).then_some(())
        })?;
        let status = |value: &Value| value.as_str().and_then(ProgressStatus::parse);
        Ok(Self {
            status: read(map, "status", STATUS_RULE, status)?.ok_or(ProgressError::NoStatus)?,
            label: read(map, "label", TEXT_RULE, text)?,
            phase: read(map, "phase", TEXT_RULE, text)?,
            completed: read(map, "completed", COUNT_RULE, count)?,
            total: read(map, "total", COUNT_RULE, count)?,
            unit: read(map, "unit", TEXT_RULE, text)?,
            source_updated_at: read(map, "sourceUpdatedAt", TIME_RULE, time)?,
            source_estimated_finish_at: read(map, "sourceEstimatedFinishAt", TIME_RULE, time)?,
        })
    }
}

fn read<T>(
    map: &Map<String, Value>,
    field: &'static str,
    rule: &'static str,
    parse: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, ProgressError> {
    let Some(value) = map.get(field) else {
        return Ok(None);
    };
    let parsed = parse(value);
    if parsed.is_none() {
        return Err(ProgressError::Field {
            field,
            found: shown(&crate::canonical_text(value)),
            rule,
        });
    }
    Ok(parsed)
}

fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|text| text.chars().nth(TEXT_CHARS).is_none())
        .map(str::to_owned)
}

fn count(value: &Value) -> Option<f64> {
    value.as_f64().filter(|count| count.is_finite() && *count >= 0.0)
}

fn time(value: &Value) -> Option<i64> {
    value
        .as_str()?
        .parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(data: &Value) -> String {
        ProgressData::parse(data).unwrap_err().to_string()
    }

    #[test]
    fn reads_every_field() {
        let data = json!({
            "schema": PROGRESS_SCHEMA, "status": "running", "label": "Copying", "phase": "upload", "completed": 3,
            "total": 10.5, "unit": "files", "sourceUpdatedAt": "2026-01-02T03:04:05.678Z",
            "sourceEstimatedFinishAt": "2026-01-02T04:04:05+01:00"
        });
        let progress = ProgressData::parse(&data).unwrap();
        assert_eq!(progress.status, ProgressStatus::Running);
        assert_eq!((progress.completed, progress.total), (Some(3.0), Some(10.5)));
        assert_eq!(progress.source_updated_at, Some(1_767_323_045_678));
        assert_eq!(progress.source_estimated_finish_at, Some(1_767_323_045_000));
    }

    #[test]
    fn refuses_what_the_schema_does_not_have() {
        assert!(
            message(&json!({ "status": "running", "eta": 1 })).starts_with("unknown field \"eta\" (fields: completed,")
        );
        assert_eq!(message(&json!({})), "status is missing");
        assert_eq!(message(&json!(3)), "the data must be an object");
        assert_eq!(
            message(&json!({ "status": "done" })),
            format!("status is \"done\"; it must be {STATUS_RULE}")
        );
        let with = |field: &str, value: Value| {
            let mut data = json!({ "status": "running" });
            data[field] = value;
            message(&data)
        };
        assert_eq!(
            with("completed", json!(-1)),
            "completed is -1; it must be a number from 0 up"
        );
        assert_eq!(
            with("total", json!("9")),
            "total is \"9\"; it must be a number from 0 up"
        );
        assert_eq!(
            with("label", json!(null)),
            "label is null; it must be a text of at most 1024 characters"
        );
        assert_eq!(
            with("sourceUpdatedAt", json!("soon")),
            "sourceUpdatedAt is \"soon\"; it must be an RFC 3339 time"
        );
        assert!(with("schema", json!("v2")).starts_with("schema is \"v2\""));
        assert!(with("unit", json!("x".repeat(1025))).ends_with("it must be a text of at most 1024 characters"));
    }
}
