//! A batch, checked and encoded on the caller's side of the writer's queue.

use piw_protocol::canonical::{self, INLINE_DEPTH};
use piw_protocol::session::{RecordedEntry, RecordedEvent, SegmentEnd, SessionEvent, SessionRecord};
use serde_json::Value;

use crate::hash::sha256;
use crate::value::{INLINE_LIMIT, Prepared};

pub(super) struct Batch {
    pub(super) session_id: String,
    pub(super) segment_id: String,
    pub(super) run_id: String,
    pub(super) sequence: u64,
    pub(super) events: Vec<Event>,
    pub(super) entries: Vec<Entry>,
    pub(super) end: Option<SegmentEnd>,
}

pub(super) struct Event {
    pub(super) at: i64,
    pub(super) kind: &'static str,
    /// Canonical JSON, without arguments that are content.
    pub(super) payload: String,
    pub(super) args: Option<Args>,
    /// The entry that it settles.
    pub(super) settles: Option<String>,
}

/// Arguments that are stored as content.
pub(super) struct Args {
    pub(super) sha256: [u8; 32],
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Entry {
    pub(super) id: String,
    pub(super) at: i64,
    pub(super) kind: String,
    pub(super) content: Prepared,
}

impl Batch {
    /// # Errors
    /// A sentence that names the field, the rule and the value.
    pub(super) fn prepare(record: SessionRecord) -> Result<Self, String> {
        record.check()?;
        Ok(Self {
            session_id: record.session_id,
            segment_id: record.segment_id,
            run_id: record.run_id,
            sequence: record.sequence,
            events: record.events.iter().map(event).collect::<Result<_, _>>()?,
            entries: record.entries.into_iter().map(entry).collect::<Result<_, _>>()?,
            end: record.end,
        })
    }
}

fn event(event: &RecordedEvent) -> Result<Event, String> {
    let (at, kind) = (time(&event.at)?, event.what.kind());
    let settles = event.what.settles().map(str::to_owned);
    let mut payload = serde_json::to_value(&event.what)
        .ok()
        .and_then(|mut tagged| tagged.get_mut("payload").map(Value::take))
        .unwrap_or_default();
    let mut args = None;
    if let SessionEvent::ToolStart { args: given, .. } = &event.what
        && (canonical::depth(given) > INLINE_DEPTH || canonical::write_value(&payload).len() > INLINE_LIMIT)
    {
        let bytes = canonical::write_value(given);
        args = Some(Args {
            sha256: sha256(&bytes),
            bytes,
        });
        if let Value::Object(fields) = &mut payload {
            fields.remove("args");
        }
    }
    let payload = canonical::write_value(&payload);
    if payload.len() > INLINE_LIMIT {
        let bytes = payload.len();
        return Err(format!(
            "the payload of a {kind} event has {bytes} bytes of JSON, the limit is {INLINE_LIMIT}; split it"
        ));
    }
    Ok(Event {
        at,
        kind,
        payload: String::from_utf8(payload).map_err(|error| error.to_string())?,
        args,
        settles,
    })
}

fn entry(entry: RecordedEntry) -> Result<Entry, String> {
    let content = match entry.uploaded {
        // What fits a row is stored there, whatever way it came; only parsed JSON may be.
        Some(uploaded) if uploaded.bytes <= INLINE_LIMIT as u64 => {
            return Err(format!(
                "the entry {:?} has {} bytes: up to {INLINE_LIMIT} are sent as content, not uploaded",
                entry.entry_id, uploaded.bytes
            ));
        }
        Some(uploaded) => Prepared::Content(uploaded),
        None => {
            let bytes = canonical::write_value(&entry.content);
            if canonical::depth(&entry.content) > INLINE_DEPTH {
                Prepared::Large {
                    sha256: sha256(&bytes),
                    bytes,
                }
            } else {
                Prepared::bytes(bytes)
            }
        }
    };
    Ok(Entry {
        at: time(&entry.at)?,
        id: entry.entry_id,
        kind: entry.kind,
        content,
    })
}

/// Milliseconds since the epoch.
fn time(text: &str) -> Result<i64, String> {
    let at = text
        .parse::<jiff::Timestamp>()
        .ok()
        .map(jiff::Timestamp::as_millisecond);
    at.filter(|at| *at >= 0)
        .ok_or_else(|| format!("at must be an RFC 3339 time since 1970, found {text:?}"))
}
