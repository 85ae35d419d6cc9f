//! Recorded sessions of `tests/fixtures/session/`, and recording them into a run as the recorder of a Pi session does.
//!
//! A fixture holds events and entries with times in milliseconds from its start. `{"$repeat": text, "times": n}` stands for a long
//! text.

use std::path::Path;

use piw_protocol::canonical;
use piw_protocol::client::{Client, ClientError};
use piw_protocol::content::MEDIA_JSON;
use piw_protocol::session::{
    RecordedEntry, RecordedEvent, SegmentEnd, SessionEvent, SessionRecord, SessionRecordReceipt,
};
use serde::Deserialize;
use serde_json::Value;

/// An entry of more bytes than this is uploaded, so that every batch fits a frame.
const UPLOAD_FROM: usize = 256 * 1024;
/// Events of one batch.
const BATCH: usize = 40;

/// A recorded session.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixture {
    /// What happened, in order.
    pub events: Vec<RecordedEvent>,
    /// What settled, in order; each is settled by one event.
    pub entries: Vec<RecordedEntry>,
}

/// Where a fixture is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The run, which is bound to the session.
    pub run_id: String,
    /// The Pi session.
    pub session_id: String,
    /// The segment.
    pub segment_id: String,
}

#[derive(Deserialize)]
struct File {
    events: Vec<Timed<SessionEvent>>,
    entries: Vec<Timed<Entry>>,
}

#[derive(Deserialize)]
struct Timed<T> {
    ms: i64,
    #[serde(flatten)]
    what: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    entry_id: String,
    kind: String,
    content: Value,
}

impl Target {
    /// A new segment of a run that is bound to a session.
    #[must_use]
    pub fn new(run_id: &str, session_id: &str) -> Self {
        Self {
            run_id: run_id.to_owned(),
            session_id: session_id.to_owned(),
            segment_id: format!("segment-of-{run_id}"),
        }
    }
}

impl Fixture {
    /// Reads `tests/fixtures/session/<name>.json`; it begins at `begin`, milliseconds since the epoch.
    ///
    /// # Panics
    /// When there is no such fixture or it is no recording.
    #[must_use]
    pub fn read(name: &str, begin: i64) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/session/{name}.json"));
        let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let value: Value = serde_json::from_slice(&text).expect("a fixture is JSON");
        let file: File = serde_json::from_value(expand(value)).expect("a fixture is a recording");
        let at = |ms: i64| piw_state::query::rfc3339(begin + ms);
        Self {
            events: file
                .events
                .into_iter()
                .map(|event| RecordedEvent {
                    at: at(event.ms),
                    what: event.what,
                })
                .collect(),
            entries: file
                .entries
                .into_iter()
                .map(|entry| RecordedEntry {
                    at: at(entry.ms),
                    entry_id: entry.what.entry_id,
                    kind: entry.what.kind,
                    content: entry.what.content,
                    uploaded: None,
                })
                .collect(),
        }
    }

    /// The recording in batches of `size` events; the last one ends the segment.
    #[must_use]
    pub fn batches(&self, target: &Target, size: usize) -> Vec<SessionRecord> {
        let mut batches: Vec<SessionRecord> = self
            .events
            .chunks(size)
            .enumerate()
            .map(|(number, events)| SessionRecord {
                session_id: target.session_id.clone(),
                segment_id: target.segment_id.clone(),
                run_id: target.run_id.clone(),
                sequence: (number * size) as u64,
                events: events.to_vec(),
                entries: events
                    .iter()
                    .filter_map(|event| event.what.settles())
                    .filter_map(|id| self.entries.iter().find(|entry| entry.entry_id == id).cloned())
                    .collect(),
                end: None,
            })
            .collect();
        if let Some(last) = batches.last_mut() {
            last.end = Some(SegmentEnd {
                failed: false,
                reason: None,
            });
        }
        batches
    }
}

/// Records a whole fixture into a run.
///
/// # Errors
/// When a batch is refused or not answered.
pub async fn record(client: &Client, fixture: &Fixture, target: &Target) -> Result<(), ClientError> {
    for batch in fixture.batches(target, BATCH) {
        send(client, batch).await?;
    }
    Ok(())
}

/// Sends one batch, after the entries that do not fit it.
///
/// # Errors
/// When it is refused or not answered.
pub async fn send(client: &Client, mut batch: SessionRecord) -> Result<SessionRecordReceipt, ClientError> {
    for entry in &mut batch.entries {
        let bytes = canonical::write_value(&entry.content);
        if bytes.len() > UPLOAD_FROM {
            entry.uploaded = Some(client.put_content(&bytes, MEDIA_JSON).await?);
            entry.content = Value::Null;
        }
    }
    Ok(client.session_record(&batch).await?.receipt)
}

fn expand(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => {
            if let (Some(Value::String(text)), Some(times)) =
                (fields.get("$repeat"), fields.get("times").and_then(Value::as_u64))
            {
                return Value::String(text.repeat(usize::try_from(times).unwrap_or(usize::MAX)));
            }
            for field in fields.values_mut() {
                *field = expand(field.take());
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.into_iter().map(expand).collect(),
        other => other,
    }
}
