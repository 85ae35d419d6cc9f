//! The messages between the extension in Pi and the bridge: one JSON object a line, in both directions, in order.
//!
//! Both ends come from one binary and are installed together; [`GLUE_VERSION`] only tells an extension that was left behind by
//! an upgrade. A line that cannot be read ends the bridge: nothing is guessed.

use piw_protocol::interaction::{MessageContent, StopReason};
use piw_protocol::session::SessionEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Grows when a message changes its meaning.
pub(crate) const GLUE_VERSION: u32 = 1;
/// Most bytes of one line. A submission travels as one line.
pub(crate) const LINE_LIMIT: usize = 64 * 1024 * 1024;

/// What the extension says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum FromGlue {
    /// The first line: which session this is and what the extension holds of it.
    Hello {
        /// [`GLUE_VERSION`] of the extension.
        glue: u32,
        /// The Pi session.
        session_id: String,
        /// Project directory of the session.
        cwd: String,
        /// Columns of the terminal; 80 where there is none.
        columns: u16,
        /// Messages that were handed to Pi and may not be in the branch yet.
        queued: Vec<String>,
        /// The turn that is open now.
        turn: Option<String>,
    },
    /// The terminal changed its width.
    Columns {
        /// Columns now.
        columns: u16,
    },
    /// One observation of the active branch: the answer to [`ToGlue::Observe`].
    Observed(Observation),
    /// The answer to [`ToGlue::Send`].
    Sent {
        /// The message.
        message_id: String,
        /// Whether it was handed to Pi.
        sent: bool,
    },
    /// A turn of the model begins.
    TurnStart {
        /// Made by the extension.
        turn_id: String,
    },
    /// The turn is over and Pi is idle.
    TurnEnd {
        /// The same id.
        turn_id: String,
        /// How it ended.
        stop: StopReason,
        /// Entry of its last assistant message.
        entry_id: Option<String>,
    },
    /// Something happened after which the branch or Pi's idleness may be another one.
    Changed,
    /// Something to record, while recording is asked for.
    Record {
        /// When, in milliseconds since 1970.
        at: i64,
        /// What.
        event: SessionEvent,
    },
    /// An entry of the branch settled, while recording is asked for.
    Entry {
        /// Pi's id.
        id: String,
        /// Pi's `type`.
        kind: String,
        /// RFC 3339.
        at: String,
        /// The entry as Pi has it.
        content: Value,
    },
    /// The model calls the `workflow` tool.
    Tool {
        /// Pi's id of the call.
        call_id: String,
        /// The arguments.
        input: Value,
    },
    /// A person typed `/workflow …` or `/piw …`.
    Command {
        /// `workflow` or `piw`.
        name: String,
        /// The rest of the line.
        args: String,
    },
    /// The answer to [`ToGlue::Select`] or [`ToGlue::Input`].
    Choice {
        /// The question's number.
        seq: u64,
        /// What was chosen or typed; nothing when it was dismissed.
        value: Option<String>,
    },
    /// A person scrolls the widget.
    Scroll {
        /// Rows, negative upwards.
        delta: i64,
    },
}

/// One look at the active branch and at Pi, all at the same moment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Observation {
    /// Number of the question.
    pub(crate) seq: u64,
    /// The message that was looked for.
    pub(crate) message_id: Option<String>,
    /// The entry of the branch that holds it.
    pub(crate) entry_id: Option<String>,
    /// Whether Pi is idle.
    pub(crate) idle: bool,
    /// Whether input of the user is queued.
    pub(crate) pending: bool,
    /// Whether the message was handed to Pi and did not appear yet.
    pub(crate) queued: bool,
    /// The last complete assistant message after the entry of the message whose answer was asked for.
    pub(crate) reply: Option<Reply>,
}

/// An assistant message that ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reply {
    /// Its entry.
    pub(crate) entry_id: String,
    /// Its visible text.
    pub(crate) text: String,
}

/// How loud a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Level {
    /// Worth knowing.
    Info,
    /// Something is not as it should be.
    Warning,
    /// Something failed.
    Error,
}

/// What the bridge tells the extension to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum ToGlue {
    /// The bridge is there.
    Ready {
        /// Package version of the bridge.
        version: &'static str,
    },
    /// The epoch in which messages may be handed to Pi; none while the view is stale.
    Epoch {
        /// The coordinator epoch.
        epoch: Option<u64>,
    },
    /// Look at the branch now.
    Observe {
        /// Number of the question.
        seq: u64,
        /// The message to look for.
        message_id: Option<String>,
        /// The message whose answer to look for.
        reply_to: Option<String>,
    },
    /// Hand a message to Pi, if one last synchronous check allows it.
    Send {
        /// The epoch that must still be current.
        epoch: u64,
        /// The message.
        message_id: String,
        /// Whether it starts a turn.
        starts_turn: bool,
        /// What Pi gets.
        message: MessageContent,
    },
    /// End the turn, if it is still this one.
    Abort {
        /// The turn.
        turn_id: String,
    },
    /// Which tools the model may use.
    Gate(Gate),
    /// Forward what has to be recorded, or stop that.
    Record {
        /// Whether to forward.
        on: bool,
        /// The entry to begin with.
        from: Option<String>,
    },
    /// The answer to [`FromGlue::Tool`].
    ToolResult {
        /// The call.
        call_id: String,
        /// For the model.
        text: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// Show these lines; none removes the widget.
    Widget {
        /// At most ten, none wider than the terminal.
        lines: Vec<String>,
    },
    /// Show this in the status line; nothing removes it.
    Status {
        /// One line.
        text: Option<String>,
    },
    /// Tell the person.
    Notify {
        /// What.
        text: String,
        /// How loud.
        level: Level,
    },
    /// Let the person choose.
    Select {
        /// Number of the question.
        seq: u64,
        /// What is asked.
        title: String,
        /// The choices.
        options: Vec<String>,
    },
    /// Let the person type.
    Input {
        /// Number of the question.
        seq: u64,
        /// What is asked.
        title: String,
    },
}

/// What the extension lets through while a workflow has a say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gate {
    /// Whether a turn of a workflow is open, so that the extension closes the gate by itself when the bridge dies.
    pub(crate) owned: bool,
    /// The tools that may be used besides `workflow`; all when absent.
    pub(crate) allowed: Option<Vec<String>>,
    /// Why no other tool may be used now.
    pub(crate) blocked: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_have_the_shapes_that_the_extension_speaks() {
        let read = |value: Value| serde_json::from_value::<FromGlue>(value).unwrap();
        assert_eq!(
            read(
                json!({"type": "hello", "glue": 1, "sessionId": "s", "cwd": "/p", "columns": 80, "queued": [], "turn": null})
            ),
            FromGlue::Hello {
                glue: 1,
                session_id: "s".into(),
                cwd: "/p".into(),
                columns: 80,
                queued: vec![],
                turn: None,
            }
        );
        assert_eq!(
            read(
                json!({"type": "observed", "seq": 1, "messageId": "m", "entryId": null, "idle": true, "pending": false,
                "queued": false, "reply": {"entryId": "e", "text": "x"}})
            ),
            FromGlue::Observed(Observation {
                seq: 1,
                message_id: Some("m".into()),
                entry_id: None,
                idle: true,
                pending: false,
                queued: false,
                reply: Some(Reply {
                    entry_id: "e".into(),
                    text: "x".into()
                }),
            })
        );
        assert_eq!(
            read(json!({"type": "turnEnd", "turnId": "t", "stop": "aborted", "entryId": null})),
            FromGlue::TurnEnd {
                turn_id: "t".into(),
                stop: StopReason::Aborted,
                entry_id: None,
            }
        );
        assert_eq!(
            read(json!({"type": "record", "at": 5, "event": {"type": "text", "payload": {"delta": "x"}}})),
            FromGlue::Record {
                at: 5,
                event: SessionEvent::Text { delta: "x".into() },
            }
        );
        assert_eq!(
            serde_json::to_value(ToGlue::Gate(Gate::default())).unwrap(),
            json!({"type": "gate", "owned": false, "allowed": null, "blocked": null})
        );
        assert_eq!(
            serde_json::to_value(ToGlue::Widget {
                lines: vec!["a".into()]
            })
            .unwrap(),
            json!({"type": "widget", "lines": ["a"]})
        );
    }

    #[test]
    fn a_line_that_means_nothing_is_refused() {
        for bad in [
            json!({"type": "nonsense"}),
            json!({"type": "turnStart"}),
            json!({"glue": 1}),
        ] {
            assert!(serde_json::from_value::<FromGlue>(bad).is_err());
        }
    }
}
