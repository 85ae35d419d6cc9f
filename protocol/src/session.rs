//! Recorded Pi sessions: what `session.record` carries, what run views and pages show of it, and the conversation that the
//! recorded events add up to.
//!
//! A session is recorded in segments, each of one run. Events of a segment are numbered from 0 without gaps; an event that
//! is sent again is adopted, one with other content is a conflict. Views and pages number the events of all
//! segments of a run in one row, from 0: their *position*. [`Conversation::apply`] is the one rule that turns events into
//! what a reader sees: the server makes replay checkpoints with it, the viewer replays with it.

use std::collections::{HashSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::MAX_SAFE_INTEGER;
use crate::child::ContentRef;
use crate::envelope::{MAX_ID, is_id};

/// Most events or entries that one `session.record` carries.
pub const RECORD_ITEMS: usize = 512;
/// Bytes of a reason why a segment failed.
pub const REASON_BYTES: usize = 1024;
/// A replay checkpoint is stored before every event whose position is a multiple of this.
pub const CHECKPOINT_EVERY: u64 = 512;
/// Bytes of text, and of thinking, that a message in progress keeps; older text is dropped from the front, and the settled
/// entry shows the whole.
pub const LIVE_TEXT: usize = 64 * 1024;
/// Tool calls in progress that a conversation keeps, newest last.
pub const LIVE_TOOLS: usize = 64;

/// Payload of `session.record`: one batch of a segment. The answer comes after the commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionRecord {
    /// The Pi session.
    pub session_id: String,
    /// The segment, made by the recorder; the first batch opens it.
    pub segment_id: String,
    /// The run it belongs to, which must be bound to the session.
    pub run_id: String,
    /// Sequence of the first event of the batch.
    pub sequence: u64,
    /// Events in order, at most [`RECORD_ITEMS`].
    #[serde(default)]
    #[schemars(length(max = RECORD_ITEMS))]
    pub events: Vec<RecordedEvent>,
    /// The entries that the batch's `entry` events settle, at most [`RECORD_ITEMS`]; an entry is stored once by its id.
    #[serde(default)]
    #[schemars(length(max = RECORD_ITEMS))]
    pub entries: Vec<RecordedEntry>,
    /// Ends the segment after this batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<SegmentEnd>,
}

/// How a segment ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SegmentEnd {
    /// Whether everything was recorded; a failed capture never fails a workflow.
    pub failed: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Receipt of `session.record`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecordReceipt {
    /// The segment.
    pub segment_id: String,
    /// Sequence that the next event has.
    pub next_sequence: u64,
    /// Events of this batch that were there already.
    pub adopted: u64,
}

/// One recorded event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedEvent {
    /// RFC 3339 UTC with milliseconds.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub what: SessionEvent,
}

/// What a recorded event says. Text and thinking deltas are coalesced by the recorder, a few a second for each message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "type",
    content = "payload",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum SessionEvent {
    /// A model turn begins.
    TurnStart {
        /// Number of the turn in the session, from 0.
        turn: u64,
    },
    /// It is over.
    TurnEnd {
        /// The same number.
        turn: u64,
        /// `completed`, `aborted`, `error` or `lost`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
    },
    /// A message begins.
    MessageStart {
        /// `user`, `assistant`, `toolResult` or `custom`.
        role: String,
    },
    /// Text was added to the message.
    Text {
        /// What was added.
        delta: String,
    },
    /// Thinking was added to the message.
    Thinking {
        /// What was added.
        delta: String,
    },
    /// The message is complete.
    MessageEnd {
        /// The Pi entry that holds it, once that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<String>,
    },
    /// A tool begins.
    ToolStart {
        /// Identifies the call.
        call_id: String,
        /// The tool.
        tool: String,
        /// Its arguments; a large value is an artifact when read.
        #[serde(default)]
        args: Value,
    },
    /// The tool reported partial output; only the time is kept.
    ToolUpdate {
        /// The call.
        call_id: String,
    },
    /// The tool is done.
    ToolEnd {
        /// The call.
        call_id: String,
        /// Whether it failed.
        #[serde(default)]
        is_error: bool,
    },
    /// A Pi entry settled; it replaces what was streamed for it.
    Entry {
        /// The entry, which the same batch carries or an earlier one carried.
        entry_id: String,
    },
}

impl SessionEvent {
    /// The name on the wire, as stored in `session_events.kind`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TurnStart { .. } => "turn_start",
            Self::TurnEnd { .. } => "turn_end",
            Self::MessageStart { .. } => "message_start",
            Self::Text { .. } => "text",
            Self::Thinking { .. } => "thinking",
            Self::MessageEnd { .. } => "message_end",
            Self::ToolStart { .. } => "tool_start",
            Self::ToolUpdate { .. } => "tool_update",
            Self::ToolEnd { .. } => "tool_end",
            Self::Entry { .. } => "entry",
        }
    }
}

/// A settled Pi entry as the recorder sends it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedEntry {
    /// Pi's id of the entry.
    pub entry_id: String,
    /// RFC 3339 UTC with milliseconds.
    pub at: String,
    /// Pi's `type`: `message`, `custom_message`, …
    pub kind: String,
    /// The entry as Pi has it.
    #[serde(default)]
    pub content: Value,
    /// Instead of `content`, for an entry that no frame holds: JSON that was uploaded with `content.put`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uploaded: Option<ContentRef>,
}

impl SessionRecord {
    /// Checks what needs no stored state: lengths, counts, and that entries and `entry` events fit together.
    ///
    /// # Errors
    /// A sentence that names the field, the rule and the value.
    pub fn check(&self) -> Result<(), String> {
        id("sessionId", &self.session_id)?;
        id("segmentId", &self.segment_id)?;
        id("runId", &self.run_id)?;
        for (name, count) in [("events", self.events.len()), ("entries", self.entries.len())] {
            if count > RECORD_ITEMS {
                return Err(format!("{name} has {count} items, the limit is {RECORD_ITEMS}"));
            }
        }
        if self.sequence > MAX_SAFE_INTEGER - RECORD_ITEMS as u64 {
            return Err(format!("sequence {} is too large", self.sequence));
        }
        for event in &self.events {
            event.what.check()?;
        }
        let settled: HashSet<&str> = self.events.iter().filter_map(|event| event.what.settles()).collect();
        let mut seen = HashSet::new();
        for entry in &self.entries {
            id("entryId", &entry.entry_id)?;
            id("kind", &entry.kind)?;
            let name = &entry.entry_id;
            if !settled.contains(name.as_str()) {
                return Err(format!("no event of the batch settles the entry {name:?}"));
            }
            if !seen.insert(name) {
                return Err(format!("the batch has the entry {name:?} twice"));
            }
            if entry.uploaded.is_some() && !entry.content.is_null() {
                return Err(format!("the entry {name:?} has both content and uploaded"));
            }
        }
        match self.end.as_ref().and_then(|end| end.reason.as_ref()) {
            Some(reason) if reason.len() > REASON_BYTES => Err(format!(
                "end.reason has {} bytes, the limit is {REASON_BYTES}",
                reason.len()
            )),
            _ => Ok(()),
        }
    }
}

impl SessionEvent {
    /// The entry that the event settles.
    #[must_use]
    pub fn settles(&self) -> Option<&str> {
        match self {
            Self::Entry { entry_id } => Some(entry_id),
            _ => None,
        }
    }

    /// Checks lengths; those of deltas and arguments are bounded where they are stored.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::TurnStart { turn } | Self::TurnEnd { turn, .. } if *turn > MAX_SAFE_INTEGER => {
                Err(format!("turn {turn} is too large"))
            }
            Self::TurnEnd {
                stop_reason: Some(reason),
                ..
            } => id("stopReason", reason),
            Self::MessageStart { role } => id("role", role),
            Self::MessageEnd { entry_id: Some(entry) } | Self::Entry { entry_id: entry } => id("entryId", entry),
            Self::ToolStart { call_id, tool, .. } => id("callId", call_id).and_then(|()| id("tool", tool)),
            Self::ToolUpdate { call_id } | Self::ToolEnd { call_id, .. } => id("callId", call_id),
            _ => Ok(()),
        }
    }
}

fn id(field: &str, value: &str) -> Result<(), String> {
    if is_id(value) {
        return Ok(());
    }
    Err(format!("{field} must have 1 to {MAX_ID} bytes, found {}", value.len()))
}

/// An entry in a view or page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionEntryView {
    /// Index in the run, from 0.
    pub index: u64,
    /// Position of the event that settled it: just before that event the entry is not there yet, after it it is.
    pub event: u64,
    /// Pi's id.
    pub entry_id: String,
    /// RFC 3339 UTC with milliseconds.
    pub at: String,
    /// Pi's `type`.
    pub kind: String,
    /// The entry; values above 16 KiB are artifacts.
    pub content: Value,
}

/// An event in a view or page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionEventView {
    /// Position in the run, from 0.
    pub position: u64,
    /// Steps of the run that were finished by then: keeps graph, trace and conversation aligned.
    pub steps: u64,
    /// Entries of the run that had settled by then, this event included.
    pub entries: u64,
    /// The event; values above 16 KiB are artifacts.
    #[serde(flatten)]
    pub event: RecordedEvent,
}

/// Session part of a run view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRunView {
    /// What the run is bound to.
    pub binding: SessionBinding,
    /// The newest entries.
    pub entry_page: SessionPage<SessionEntryView>,
    /// The newest events.
    pub event_page: SessionPage<SessionEventView>,
    /// How the recording stands.
    pub capture: Capture,
    /// Sentences about recorded data that is missing or damaged.
    pub integrity: Vec<String>,
    /// The conversation just before the first event of `event_page`; none when there are no events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_checkpoint: Option<ReplayCheckpoint>,
}

/// The session of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionBinding {
    /// The Pi session.
    pub session_id: String,
    /// Recorded segments of the run.
    pub segments: u64,
}

/// A window of entries or events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage<T> {
    /// Index of the first item.
    pub start: u64,
    /// Items in all.
    pub total: u64,
    /// Oldest first.
    pub items: Vec<T>,
}

/// State of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    /// Where it stands; that of the newest segment.
    pub state: CaptureState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a recording stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureState {
    /// Nothing was recorded.
    None,
    /// A segment is open.
    Recording,
    /// The newest segment ended whole.
    Complete,
    /// The newest segment ended early.
    Failed,
}

/// The conversation just before an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayCheckpoint {
    /// Position of the event that it stands before.
    pub position: u64,
    /// A [`Conversation`], or the artifact of one above 16 KiB.
    pub state: Value,
}

/// What recorded events add up to beside the settled entries: the turn, the message and the tool calls in progress.
/// Bounded, whatever the length of the session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// The open turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// How the last turn ended, while none is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// The message in progress, or complete and not settled yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<LiveMessage>,
    /// Tool calls in progress, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub tools: VecDeque<LiveTool>,
}

/// A message in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveMessage {
    /// `user`, `assistant`, `toolResult` or `custom`.
    pub role: String,
    /// Text so far; of a long one the last part, at most [`LIVE_TEXT`] bytes.
    pub text: String,
    /// Thinking so far, bounded alike.
    pub thinking: String,
    /// Whether it is complete.
    pub complete: bool,
    /// The entry that will hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<String>,
}

/// A tool call in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveTool {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Value,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it last reported, RFC 3339.
    pub updated_at: String,
    /// Whether it failed; none while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
}

impl Conversation {
    /// Takes the next event. Events that fit nothing (an end without a start) change nothing: a recording may begin anywhere.
    pub fn apply(&mut self, event: &RecordedEvent) {
        match &event.what {
            SessionEvent::TurnStart { turn } => {
                *self = Self {
                    turn: Some(*turn),
                    ..Self::default()
                };
            }
            SessionEvent::TurnEnd { stop_reason, .. } => {
                *self = Self {
                    stop_reason: stop_reason.clone(),
                    ..Self::default()
                };
            }
            SessionEvent::MessageStart { role } => {
                self.message = Some(LiveMessage {
                    role: role.clone(),
                    ..LiveMessage::default()
                });
            }
            SessionEvent::Text { delta } => {
                if let Some(message) = self.message.as_mut().filter(|message| !message.complete) {
                    append(&mut message.text, delta);
                }
            }
            SessionEvent::Thinking { delta } => {
                if let Some(message) = self.message.as_mut().filter(|message| !message.complete) {
                    append(&mut message.thinking, delta);
                }
            }
            SessionEvent::MessageEnd { entry_id } => {
                if let Some(message) = &mut self.message {
                    message.complete = true;
                    message.entry_id.clone_from(entry_id);
                }
            }
            SessionEvent::ToolStart { call_id, tool, args } => {
                self.tools.retain(|tool| tool.call_id != *call_id);
                if self.tools.len() == LIVE_TOOLS {
                    let _ = self.tools.pop_front();
                }
                self.tools.push_back(LiveTool {
                    call_id: call_id.clone(),
                    tool: tool.clone(),
                    args: args.clone(),
                    started_at: event.at.clone(),
                    updated_at: event.at.clone(),
                    failed: None,
                });
            }
            SessionEvent::ToolUpdate { call_id } => {
                if let Some(tool) = self.tools.iter_mut().find(|tool| tool.call_id == *call_id) {
                    tool.updated_at.clone_from(&event.at);
                }
            }
            SessionEvent::ToolEnd { call_id, is_error } => {
                if let Some(tool) = self.tools.iter_mut().find(|tool| tool.call_id == *call_id) {
                    tool.updated_at.clone_from(&event.at);
                    tool.failed = Some(*is_error);
                }
            }
            SessionEvent::Entry { entry_id } => {
                // The settled entry shows the whole message, and with a tool's result the call is told too.
                let settled = |message: &LiveMessage| {
                    message.complete && message.entry_id.as_ref().is_none_or(|id| id == entry_id)
                };
                if self.message.as_ref().is_some_and(settled) {
                    self.message = None;
                }
                self.tools.retain(|tool| tool.failed.is_none());
            }
        }
    }
}

/// Appends and keeps at most [`LIVE_TEXT`] bytes. A full text gives up a quarter at once, so that a long message is not moved
/// in memory with every delta.
fn append(text: &mut String, delta: &str) {
    text.push_str(delta);
    if text.len() > LIVE_TEXT {
        let mut cut = text.len() - LIVE_TEXT / 4 * 3;
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        let _ = text.drain(..cut);
    }
}
