//! Recorded Pi sessions: what `session.record` carries, what run views and pages show of it, and the conversation that the
//! recorded events add up to.
//!
//! A session is recorded in segments, each of one run. Events of a segment are numbered from 0 without gaps; an event that
//! is sent again is adopted, one with other content is a conflict (decision 4). Pages number the events of all
//! segments of a run in order. [`Conversation::apply`] is the one rule that turns events into what a reader sees: the
//! server makes replay checkpoints with it, the viewer replays with it.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most events or entries that one `session.record` carries.
pub const RECORD_ITEMS: usize = 512;
/// A replay checkpoint is stored before every event whose sequence is a multiple of this.
pub const CHECKPOINT_EVERY: u64 = 512;
/// Bytes of text, and of thinking, that a message in progress keeps; older text is dropped from the front, and the settled
/// entry shows the whole.
pub const LIVE_TEXT: usize = 256 * 1024;
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
    pub events: Vec<RecordedEvent>,
    /// Settled Pi entries, at most [`RECORD_ITEMS`]; an entry is stored once by its id.
    #[serde(default)]
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
        /// The entry, recorded in the same batch or an earlier one.
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
    pub content: Value,
}

/// An entry in a view or page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionEntryView {
    /// Index in the run, from 0.
    pub index: u64,
    /// Position of the event that settled it: at an event position of at most this the entry is not there yet.
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
    /// Text so far; at most the last [`LIVE_TEXT`] bytes.
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

/// Appends and keeps the last [`LIVE_TEXT`] bytes, at a character boundary.
fn append(text: &mut String, delta: &str) {
    text.push_str(delta);
    if text.len() > LIVE_TEXT {
        let mut cut = text.len() - LIVE_TEXT;
        while !text.is_char_boundary(cut) {
            cut += 1;
        }
        let _ = text.drain(..cut);
    }
}
