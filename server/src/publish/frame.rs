//! Encoded event frames.
//!
//! A view is encoded once and shared by everyone who watches it; only the few bytes of the envelope around it differ by
//! subscription. This module owns that split and the size check. It must not know what a view contains.

use std::sync::Arc;

use piw_protocol::envelope::{CLIENT_SCHEMA, EventKind};
use piw_protocol::frame::MAX_FRAME;
use piw_protocol::ops::OperationError;
use serde::Serialize;

/// A view in canonical JSON, with what its envelope needs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EncodedView {
    /// What the payload is.
    pub event: EventKind,
    /// Run of a run snapshot.
    pub run_id: Option<Arc<str>>,
    /// Presentation revision, when the event carries one.
    pub revision: Option<u64>,
    /// Canonical JSON of the payload.
    pub payload: Arc<[u8]>,
}

/// One event as it goes to the socket: canonical JSON with its newline, in three parts so that the payload is not copied.
#[derive(Debug, Clone)]
pub struct EventFrame {
    head: Vec<u8>,
    payload: Arc<[u8]>,
    tail: Vec<u8>,
}

impl EventFrame {
    /// Wraps a view for one subscription. `Err` holds the frame's length when it is above [`MAX_FRAME`].
    pub fn view(view: &EncodedView, subscription_id: &str) -> Result<Self, usize> {
        // Keys in UTF-16 order: event payload [revision] [runId] schema subscriptionId type.
        let head = format!("{{\"event\":{},\"payload\":", json(view.event.name())).into_bytes();
        let mut tail = String::new();
        if let Some(revision) = view.revision {
            tail.push_str(",\"revision\":");
            tail.push_str(&revision.to_string());
        }
        if let Some(run_id) = &view.run_id {
            tail.push_str(",\"runId\":");
            tail.push_str(&json(run_id.as_ref()));
        }
        finish_tail(&mut tail, subscription_id);
        let frame = Self {
            head,
            payload: Arc::clone(&view.payload),
            tail: tail.into_bytes(),
        };
        if frame.len() > MAX_FRAME {
            Err(frame.len())
        } else {
            Ok(frame)
        }
    }

    /// The `unavailable` event that ends a subscription.
    #[must_use]
    pub fn unavailable(subscription_id: &str, run_id: Option<&str>, error: &OperationError) -> Self {
        let head = format!("{{\"event\":{},\"payload\":", json(EventKind::Unavailable.name())).into_bytes();
        let payload = format!(
            "{{\"message\":{},\"reason\":{}}}",
            json(&error.message),
            json(&error.reason)
        );
        let mut tail = String::new();
        if let Some(run_id) = run_id {
            tail.push_str(",\"runId\":");
            tail.push_str(&json(run_id));
        }
        finish_tail(&mut tail, subscription_id);
        Self {
            head,
            payload: Arc::from(payload.into_bytes()),
            tail: tail.into_bytes(),
        }
    }

    /// Length in bytes, newline included.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len() + self.tail.len()
    }

    /// The bytes, to be written one after the other.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.head, &self.payload, &self.tail]
    }

    /// The whole frame in one buffer.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

fn finish_tail(tail: &mut String, subscription_id: &str) {
    tail.push_str(",\"schema\":");
    tail.push_str(&json(CLIENT_SCHEMA));
    tail.push_str(",\"subscriptionId\":");
    tail.push_str(&json(subscription_id));
    tail.push_str(",\"type\":\"event\"}\n");
}

/// A JSON string; for strings serde_json writes what ECMAScript writes.
fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("strings always encode")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(bytes: usize) -> EncodedView {
        let payload = format!("\"{}\"", "x".repeat(bytes)).into_bytes();
        EncodedView {
            event: EventKind::RunSnapshot,
            run_id: Some("r1".into()),
            revision: Some(7),
            payload: payload.into(),
        }
    }

    #[test]
    fn an_event_is_one_canonical_line() {
        let bytes = EventFrame::view(&view(2), "sub \"a\"").unwrap().to_vec();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text,
            "{\"event\":\"run_snapshot\",\"payload\":\"xx\",\"revision\":7,\"runId\":\"r1\",\"schema\":\"pi-workflows.client.v1\",\
             \"subscriptionId\":\"sub \\\"a\\\"\",\"type\":\"event\"}\n"
        );
    }

    #[test]
    fn the_limit_counts_the_newline() {
        let overhead = EventFrame::view(&view(0), "s").unwrap().len();
        assert_eq!(
            EventFrame::view(&view(MAX_FRAME - overhead), "s").unwrap().len(),
            MAX_FRAME
        );
        assert_eq!(
            EventFrame::view(&view(MAX_FRAME - overhead + 1), "s").unwrap_err(),
            MAX_FRAME + 1
        );
    }
}
