//! Batches of `session.record`: what a turn of a workflow did, in segments of one run. No I/O and no clock of its own.
//!
//! Text and thinking are coalesced, so that replay shows a text as it grew while little more than the settled entries is stored.
//! A recording that cannot go on ends as failed; nothing else notices.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use piw_protocol::canonical::{self, INLINE_DEPTH};
use piw_protocol::interaction::StopReason;
use piw_protocol::session::{RecordedEntry, RecordedEvent, SegmentEnd, SessionEvent, SessionRecord};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::coordinator::Trouble;

/// Longest time for which deltas of one message are put together.
const COALESCE: Duration = Duration::from_millis(300);
/// Longest text that is put together.
const DELTA: usize = 16 * 1024;
/// Pause between batches.
const BATCH: Duration = Duration::from_millis(500);
/// Pause before a batch that nobody decided on is sent again.
const RETRY: Duration = Duration::from_secs(2);
/// Most events of a batch.
const EVENTS: usize = 256;
/// Most bytes of a batch that travel in its frame.
const INLINE: usize = 384 * 1024;
/// Bytes of an entry above which it is uploaded before its batch.
pub(crate) const UPLOAD: usize = 96 * 1024;
/// Bytes of the arguments of a tool above which only their size is recorded; the settled entry has them.
const ARGS: usize = 32 * 1024;
/// Bytes that wait at most. A recording that falls further behind has failed.
const BACKLOG: usize = 32 * 1024 * 1024;

/// One event with the entry that it settles.
struct Item {
    event: RecordedEvent,
    entry: Option<RecordedEntry>,
    bytes: usize,
}

struct Segment {
    id: String,
    run_id: String,
    /// Sequence of the first item.
    sequence: u64,
    items: VecDeque<Item>,
    bytes: usize,
    /// Text that is being put together.
    delta: Option<Delta>,
    entries: HashSet<String>,
    end: Option<SegmentEnd>,
}

struct Delta {
    at: i64,
    since: Instant,
    event: SessionEvent,
}

/// The recordings of one session, oldest first; only the newest takes events.
pub(crate) struct Recorder {
    session: String,
    segments: VecDeque<Segment>,
    /// Items of the batch that is under way, and whether it ends its segment.
    under_way: Option<(usize, bool)>,
    next: Instant,
    turns: u64,
}

impl Recorder {
    pub(crate) fn new(session: String, now: Instant) -> Self {
        Self {
            session,
            segments: VecDeque::new(),
            under_way: None,
            next: now,
            turns: 0,
        }
    }

    /// Begins a segment of a run.
    pub(crate) fn start(&mut self, run_id: String) {
        self.end(StopReason::Lost);
        self.segments.push_back(Segment {
            id: uuid::Uuid::new_v4().to_string(),
            run_id,
            sequence: 0,
            items: VecDeque::new(),
            bytes: 0,
            delta: None,
            entries: HashSet::new(),
            end: None,
        });
    }

    /// Whether something still has to be sent.
    pub(crate) fn has_work(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Records an event; `at` is in milliseconds since 1970.
    pub(crate) fn event(&mut self, at: i64, event: SessionEvent, now: Instant) {
        let turns = &mut self.turns;
        let Some(segment) = self.segments.back_mut().filter(|segment| segment.end.is_none()) else {
            return;
        };
        let event = match event {
            // The session's own count, whatever Pi counts.
            SessionEvent::TurnStart { .. } => {
                *turns += 1;
                SessionEvent::TurnStart { turn: *turns - 1 }
            }
            SessionEvent::TurnEnd { stop_reason, .. } => SessionEvent::TurnEnd {
                turn: turns.saturating_sub(1),
                stop_reason,
            },
            SessionEvent::ToolStart { call_id, tool, args } => SessionEvent::ToolStart {
                call_id,
                tool,
                args: short(args),
            },
            event => event,
        };
        segment.take(at, event, now);
    }

    /// Records a settled entry, once.
    pub(crate) fn entry(&mut self, entry: RecordedEntry) {
        let Some(segment) = self.segments.back_mut().filter(|segment| segment.end.is_none()) else {
            return;
        };
        if !segment.entries.insert(entry.entry_id.clone()) {
            return;
        }
        segment.flush();
        let bytes = size(&entry.content);
        segment.push(Item {
            event: RecordedEvent {
                at: entry.at.clone(),
                what: SessionEvent::Entry {
                    entry_id: entry.entry_id.clone(),
                },
            },
            entry: Some(entry),
            bytes,
        });
    }

    /// Ends the segment.
    pub(crate) fn end(&mut self, stop: StopReason) {
        if let Some(segment) = self.segments.back_mut().filter(|segment| segment.end.is_none()) {
            segment.flush();
            let lost = stop == StopReason::Lost;
            segment.end = Some(SegmentEnd {
                failed: lost,
                reason: lost.then(|| "the end of the turn was not seen".to_owned()),
            });
        }
    }

    /// The next batch, when one is due and none is under way.
    pub(crate) fn batch(&mut self, now: Instant) -> Option<SessionRecord> {
        if self.under_way.is_some() {
            return None;
        }
        let segment = self.segments.front_mut()?;
        if segment
            .delta
            .as_ref()
            .is_some_and(|delta| now >= delta.since + COALESCE)
        {
            segment.flush();
        }
        let is_due = now >= self.next || segment.items.len() >= EVENTS;
        if !is_due || (segment.items.is_empty() && segment.end.is_none()) {
            return None;
        }
        let mut count = 0;
        let mut inline = 0;
        for item in &segment.items {
            inline += item.bytes.min(UPLOAD);
            if count == EVENTS || (count > 0 && inline > INLINE) {
                break;
            }
            count += 1;
        }
        let ends = count == segment.items.len();
        self.under_way = Some((count, ends && segment.end.is_some()));
        let items = segment.items.iter().take(count);
        Some(SessionRecord {
            session_id: self.session.clone(),
            segment_id: segment.id.clone(),
            run_id: segment.run_id.clone(),
            sequence: segment.sequence,
            events: items.clone().map(|item| item.event.clone()).collect(),
            entries: items.filter_map(|item| item.entry.clone()).collect(),
            end: segment.end.clone().filter(|_| ends),
        })
    }

    /// The server decided on the batch that is under way. Says why a recording was given up, if it was.
    pub(crate) fn answered(&mut self, result: Result<(), (Trouble, String)>, now: Instant) -> Option<String> {
        let (count, ended) = self.under_way.take()?;
        self.next = now + BATCH;
        let segment = self.segments.front_mut()?;
        match result {
            Ok(()) => {
                for item in segment.items.drain(..count) {
                    segment.bytes -= item.bytes;
                }
                segment.sequence += count as u64;
                if ended {
                    self.segments.pop_front();
                }
                None
            }
            Err((Trouble::Unavailable | Trouble::Fenced, _)) => {
                self.next = now + RETRY;
                None
            }
            Err((Trouble::Refused, why)) => {
                self.segments.pop_front();
                Some(why)
            }
        }
    }
}

impl Segment {
    fn take(&mut self, at: i64, event: SessionEvent, now: Instant) {
        if let Some(delta) = &mut self.delta {
            let joined = match (&mut delta.event, &event) {
                (SessionEvent::Text { delta: all }, SessionEvent::Text { delta: more })
                | (SessionEvent::Thinking { delta: all }, SessionEvent::Thinking { delta: more })
                    if all.len() + more.len() <= DELTA && now < delta.since + COALESCE =>
                {
                    all.push_str(more);
                    true
                }
                _ => false,
            };
            if joined {
                return;
            }
            self.flush();
        }
        match event {
            event @ (SessionEvent::Text { .. } | SessionEvent::Thinking { .. }) => {
                self.delta = Some(Delta { at, since: now, event });
            }
            event => self.push(item(at, event)),
        }
    }

    fn flush(&mut self) {
        if let Some(delta) = self.delta.take() {
            self.push(item(delta.at, delta.event));
        }
    }

    fn push(&mut self, item: Item) {
        if self.end.is_some() {
            return;
        }
        self.bytes += item.bytes;
        self.items.push_back(item);
        if self.bytes > BACKLOG {
            self.end = Some(SegmentEnd {
                failed: true,
                reason: Some(format!("more than {BACKLOG} bytes waited to be stored")),
            });
        }
    }
}

fn item(at: i64, event: SessionEvent) -> Item {
    let bytes = match &event {
        SessionEvent::Text { delta } | SessionEvent::Thinking { delta } => delta.len() * 2,
        SessionEvent::ToolStart { args, .. } => size(args),
        _ => 0,
    };
    let at = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    Item {
        event: RecordedEvent {
            at: format!("{at:.3}"),
            what: event,
        },
        entry: None,
        bytes: bytes + 256,
    }
}

/// Bytes of a value in a frame, and more than any limit for one that no frame takes.
fn size(value: &Value) -> usize {
    if canonical::depth(value) > INLINE_DEPTH {
        return UPLOAD + 1;
    }
    serde_json::to_vec(value).map_or(UPLOAD + 1, |bytes| bytes.len())
}

/// Whether an entry has to be uploaded before its batch.
pub(crate) fn is_large(value: &Value) -> bool {
    size(value) > UPLOAD
}

fn short(args: Value) -> Value {
    match size(&args) {
        bytes if bytes > ARGS => json!({ "omittedBytes": bytes }),
        _ => args,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(now: Instant) -> Recorder {
        let mut recorder = Recorder::new("s".into(), now);
        recorder.start("r".into());
        recorder
    }

    fn text(delta: &str) -> SessionEvent {
        SessionEvent::Text { delta: delta.into() }
    }

    fn entry(id: &str, content: Value) -> RecordedEntry {
        RecordedEntry {
            entry_id: id.into(),
            at: "2026-01-01T00:00:00.000Z".into(),
            kind: "message".into(),
            content,
            uploaded: None,
        }
    }

    fn kinds(record: &SessionRecord) -> Vec<&'static str> {
        record.events.iter().map(|event| event.what.kind()).collect()
    }

    #[test]
    fn a_stream_of_words_becomes_a_few_records_a_second() {
        let mut now = Instant::now();
        let mut recorder = recorder(now);
        for _ in 0..100 {
            recorder.event(0, text("word "), now);
            now += Duration::from_millis(20);
        }
        recorder.event(0, SessionEvent::MessageEnd { entry_id: None }, now);
        let batch = recorder.batch(now).unwrap();
        let texts: Vec<&SessionEvent> = batch.events.iter().map(|event| &event.what).collect();
        assert!(
            (6..=8).contains(&(texts.len() - 1)),
            "{} records in two seconds",
            texts.len() - 1
        );
        let whole: String = texts
            .iter()
            .filter_map(|event| match event {
                SessionEvent::Text { delta } => Some(delta.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(whole, "word ".repeat(100), "nothing is lost");
        assert_eq!(batch.check(), Ok(()));
    }

    #[test]
    fn text_and_thinking_are_not_mixed_and_order_is_kept() {
        let now = Instant::now();
        let mut recorder = recorder(now);
        recorder.event(0, SessionEvent::TurnStart { turn: 9 }, now);
        recorder.event(0, SessionEvent::Thinking { delta: "hm".into() }, now);
        recorder.event(0, text("a"), now);
        recorder.event(0, text("b"), now);
        recorder.entry(entry("e", json!({"x": 1})));
        recorder.entry(entry("e", json!({"x": 1})));
        recorder.end(StopReason::Completed);
        let batch = recorder.batch(now).unwrap();
        assert_eq!(kinds(&batch), ["turn_start", "thinking", "text", "entry"]);
        assert_eq!(
            batch.events[0].what,
            SessionEvent::TurnStart { turn: 0 },
            "turns are counted from 0"
        );
        assert_eq!(batch.events[2].what, text("ab"));
        assert_eq!(batch.entries.len(), 1, "an entry is recorded once");
        assert_eq!(
            batch.end,
            Some(SegmentEnd {
                failed: false,
                reason: None
            })
        );
        assert_eq!(recorder.answered(Ok(()), now), None);
        assert!(!recorder.has_work());
    }

    #[test]
    fn a_batch_is_sent_again_as_it_was_until_it_is_decided() {
        let mut now = Instant::now();
        let mut recorder = recorder(now);
        recorder.event(
            0,
            SessionEvent::MessageStart {
                role: "assistant".into(),
            },
            now,
        );
        let first = recorder.batch(now).unwrap();
        assert_eq!(recorder.batch(now), None, "one is under way");
        assert_eq!(recorder.answered(Err((Trouble::Unavailable, "away".into())), now), None);
        assert_eq!(recorder.batch(now), None, "not in a rush");
        now += RETRY;
        let again = recorder.batch(now).unwrap();
        assert_eq!((again.sequence, &again.events), (0, &first.events));
        recorder.answered(Ok(()), now);
        recorder.event(0, text("x"), now);
        recorder.end(StopReason::Aborted);
        now += BATCH;
        let last = recorder.batch(now).unwrap();
        assert_eq!((last.sequence, kinds(&last)), (1, vec!["text"]));
        assert!(last.end.is_some());
    }

    #[test]
    fn a_refused_recording_is_given_up_and_the_next_one_goes_on() {
        let mut now = Instant::now();
        let mut recorder = recorder(now);
        recorder.event(0, text("x"), now);
        recorder.end(StopReason::Completed);
        recorder.start("r2".into());
        recorder.event(0, text("y"), now);
        recorder.end(StopReason::Completed);
        recorder.batch(now).unwrap();
        let why = recorder.answered(Err((Trouble::Refused, "no such run".into())), now);
        assert_eq!(why.as_deref(), Some("no such run"));
        now += BATCH;
        assert_eq!(recorder.batch(now).unwrap().run_id, "r2");
    }

    #[test]
    fn a_backlog_that_grows_too_large_ends_as_failed() {
        let now = Instant::now();
        let mut recorder = recorder(now);
        for n in 0..40 {
            recorder.entry(entry(&format!("e{n}"), json!("x".repeat(1024 * 1024))));
        }
        assert!(recorder.segments[0].end.is_some());
        let mut sent = 0;
        loop {
            let now = now + Duration::from_secs(60);
            let batch = recorder.batch(now).unwrap();
            sent += batch.events.len();
            let end = batch.end.clone();
            recorder.answered(Ok(()), now);
            recorder.next = now;
            if let Some(end) = end {
                assert!(end.failed && end.reason.unwrap().contains("bytes waited"));
                break;
            }
        }
        assert!((30..40).contains(&sent), "{sent}");
    }

    #[test]
    fn batches_fit_a_frame_and_large_arguments_are_left_out() {
        let now = Instant::now();
        let mut recorder = recorder(now);
        recorder.event(
            0,
            SessionEvent::ToolStart {
                call_id: "c".into(),
                tool: "write".into(),
                args: json!({"content": "x".repeat(ARGS)}),
            },
            now,
        );
        for n in 0..20 {
            recorder.entry(entry(&format!("e{n}"), json!("x".repeat(UPLOAD - 10))));
        }
        let batch = recorder.batch(now).unwrap();
        assert!(matches!(&batch.events[0].what, SessionEvent::ToolStart { args, .. } if args["omittedBytes"].is_u64()));
        assert!(serde_json::to_vec(&batch).unwrap().len() < 512 * 1024);
        assert!(batch.end.is_none() && batch.entries.len() < 20);
    }
}
