//! What a Pi session is told and what it reports: the session view, workflow messages, model turns and interactive requests.
//!
//! The session view is small whatever the history: it names at most one workflow message, one request and one open turn.
//! Every operation that acts for a session carries the coordinator epoch that the view gave; an older epoch changes nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::ContentRef;
use crate::definition::NodeType;
use crate::run::{DisplayStatus, ErrorInfo, StoredUpdate};
use crate::view::Display;

/// Schema of a session view.
pub const SESSION_VIEW_SCHEMA: &str = "pi-workflows.session-view.v1";
/// Schema of the hidden details of a step message.
pub const STEP_DETAILS_SCHEMA: &str = "pi-workflows.agent-step-message.v1";
/// Schema of the hidden details of a terminal message.
pub const TERMINAL_DETAILS_SCHEMA: &str = "pi-workflows.terminal-message.v1";
/// Schema of the hidden details of a notification.
pub const NOTIFICATION_DETAILS_SCHEMA: &str = "pi-workflows.notification-message.v1";
/// Schema of the receipt of a turn report.
pub const TURN_RECEIPT_SCHEMA: &str = "pi-workflows.workflow-turn-report-receipt.v1";
/// Largest session view, in bytes of canonical JSON.
pub const SESSION_VIEW_LIMIT: usize = 256 * 1024;
/// Most node rows of one session view.
pub const NODE_ROWS: usize = 32;
/// Most progress keys of one session view, newest first.
pub const PROGRESS_KEYS: usize = 16;
/// Bytes of a free-form text in a session view; longer ones are cut at a character boundary.
pub const FIELD_BYTES: usize = 8 * 1024;
/// How long a session view keeps showing a terminal run after its terminal message needs nothing more, in milliseconds.
pub const TERMINAL_RETENTION_MS: u64 = 60_000;

/// What a Pi session needs to know now. Payload of `session_snapshot` events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Always [`SESSION_VIEW_SCHEMA`].
    pub schema: String,
    /// The Pi session.
    pub session_id: String,
    /// Epoch of the connection that this view was made for. Greater than every earlier epoch of the session.
    pub coordinator_epoch: u64,
    /// Whether that connection is the session's coordinator and its branch report was accepted: only then it may send.
    pub coordinator_active: bool,
    /// Whether the branch must be reported (for `workflowMessage`, or for none) before anything else.
    pub branch_report_required: bool,
    /// The run that holds the session, or the newest terminal one while it is retained.
    pub run: Option<SessionRun>,
    /// The one current request.
    pub interaction: Option<SessionInteraction>,
    /// The one message that Pi must inspect, add, finish or confirm next.
    pub workflow_message: Option<SessionMessage>,
    /// The one open turn.
    pub open_workflow_turn: Option<WorkflowTurn>,
}

impl SessionView {
    /// Checks that this is the view of a session in this version.
    ///
    /// # Errors
    /// A sentence that names what it is not.
    pub fn check(&self, session_id: &str) -> Result<(), String> {
        if self.schema != SESSION_VIEW_SCHEMA {
            return Err(format!("schema {:?}, expected {SESSION_VIEW_SCHEMA:?}", self.schema));
        }
        if self.session_id != session_id {
            return Err(format!("session {:?}, expected {session_id:?}", self.session_id));
        }
        Ok(())
    }
}

/// A run as a session sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRun {
    /// The run.
    pub run_id: String,
    /// Execution revision: what commands name in `expectedRevision`.
    pub run_revision: u64,
    /// Session that it is bound to.
    pub origin_session_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// The run's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    /// Status and controls, made by the server.
    pub display: Display,
    /// Node of the unfinished attempt; absent when its id alone would not fit.
    pub current_node: Option<String>,
    /// Node whose answer or submission is awaited.
    pub waiting_on: Option<String>,
    /// Whether the run is paused.
    pub paused: bool,
    /// RFC 3339 UTC with milliseconds.
    pub started_at: String,
    /// Set when the run ended.
    pub finished_at: Option<String>,
    /// RFC 3339 UTC with milliseconds.
    pub updated_at: String,
    /// The node window, in definition order.
    pub nodes: Vec<SessionNode>,
    /// Index of the first row of the window.
    pub node_start: u64,
    /// Nodes of the definition.
    pub node_total: u64,
    /// Newest progress, at most [`PROGRESS_KEYS`].
    pub progress: Vec<StoredUpdate>,
}

/// One row of the node window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionNode {
    /// Qualified node id, never cut.
    pub node_id: String,
    /// Kind of node.
    pub node_type: NodeType,
    /// Of the newest attempt; absent when there was none.
    pub status: Option<DisplayStatus>,
    /// Started attempts.
    pub attempts: u32,
    /// When the newest attempt started.
    pub started_at: Option<String>,
    /// When it finished.
    pub finished_at: Option<String>,
    /// One line of detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
}

/// Kinds of interactive requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum InteractionKind {
    /// A model submits JSON through the `workflow` tool.
    Submit,
    /// The visible text of the turn's last assistant message completes the step.
    Assistant,
    /// A person decides.
    Decision,
}

impl InteractionKind {
    /// The name on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Assistant => "assistant",
            Self::Decision => "decision",
        }
    }
}

/// The current interactive request of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionInteraction {
    /// Exact id that a submission names. A step's request id is its attempt id.
    pub request_id: String,
    /// Its run.
    pub run_id: String,
    /// Its node.
    pub node_id: String,
    /// Its attempt.
    pub attempt_id: String,
    /// How it is completed.
    pub kind: InteractionKind,
    /// Grows when an aborted step is presented again.
    pub revision: u64,
    /// `pending` or `validating`.
    pub status: String,
    /// Whether it is paused because its run is.
    pub paused: bool,
    /// What the model is asked to submit, or what a person decides: bounded, an artifact when large.
    pub contract: Value,
    /// Why the newest submission was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<String>,
    /// Turns that ended without an accepted submission.
    pub unproductive_turn_ends: u32,
    /// Tools that the model may use while this request is pending; absent when all are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Wall-clock deadline of a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<String>,
}

/// What a step asks of a model: the `contract` of an agent step's request. Made from the frozen definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepContract {
    /// Exact id that a submission names.
    pub request_id: String,
    /// How it is completed.
    pub kind: InteractionKind,
    /// The workflow's name.
    pub workflow: String,
    /// Qualified node id.
    pub node_id: String,
    /// Ordinal of the visit of the node within the run, from 1.
    pub visit: u32,
    /// What is to be submitted, as the author declared it.
    pub expected_output: Value,
    /// Tools that the model may use; absent when all are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Most characters of a visible reply; absent when it is not bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<u64>,
    /// Active-time budget in milliseconds; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Kinds of workflow messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MessageKind {
    /// Prompt of an interactive step; starts a turn.
    Step,
    /// A protected decision for a person.
    Decision,
    /// Passive notice.
    Notification,
    /// Final result of a continuation chain; starts a turn except after a cancellation.
    Terminal,
    /// Work saved for after success; starts a turn.
    FollowUp,
}

impl MessageKind {
    /// The name on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Decision => "decision",
            Self::Notification => "notification",
            Self::Terminal => "terminal",
            Self::FollowUp => "followUp",
        }
    }

    /// The custom type of its entry in a Pi session.
    #[must_use]
    pub const fn custom_type(self) -> &'static str {
        match self {
            Self::Step => "pi-workflows-step",
            Self::Decision => "pi-workflows-decision",
            Self::Notification => "pi-workflows-notification",
            Self::Terminal => "pi-workflows-terminal",
            Self::FollowUp => "pi-workflows-follow-up",
        }
    }
}

/// Why a step message exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StepReason {
    /// The step begins.
    Initial,
    /// A turn ended without an accepted submission.
    Reminder,
    /// The step goes on after a pause, or its message left the branch.
    Resumed,
}

impl StepReason {
    /// The name on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Reminder => "reminder",
            Self::Resumed => "resumed",
        }
    }
}

/// Whether Pi has a workflow message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MessageStatus {
    /// Not known to be in the session.
    Pending,
    /// An entry of the active branch holds it.
    Sent,
    /// Its source no longer needs it.
    Cancelled,
}

impl MessageStatus {
    /// The name on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The current workflow message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionMessage {
    /// Stable id; travels in the entry's hidden details only.
    pub workflow_message_id: String,
    /// Its run.
    pub run_id: String,
    /// Its kind.
    pub kind: MessageKind,
    /// What caused it: a request id, a run id, a notification, a follow-up.
    pub source_id: String,
    /// Why a step message exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StepReason>,
    /// Acceptance order in the session.
    pub order: u64,
    /// Whether Pi has it.
    pub status: MessageStatus,
    /// The entry that holds it, when known.
    pub pi_session_entry_id: Option<String>,
    /// Whether it may be delivered now, once the branch is reported and Pi is idle.
    pub deliver: bool,
    /// Whether its delivery starts a model turn.
    pub starts_turn: bool,
    /// `sha256:<hex>` of the canonical JSON of the whole [`MessageContent`].
    pub content_digest: String,
    /// A [`MessageContent`]; an artifact under `runId` when its canonical JSON is above 16 KiB.
    pub content: Value,
    /// RFC 3339 UTC with milliseconds.
    pub created_at: String,
    /// RFC 3339 UTC with milliseconds.
    pub updated_at: String,
}

/// What Pi's `sendMessage` gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageContent {
    /// [`MessageKind::custom_type`].
    pub custom_type: String,
    /// The complete text for the model; holds no message id.
    pub content: String,
    /// Whether people see it.
    pub display: bool,
    /// For the renderer and for recovery: `{schema, workflowMessageId, reason?, contract?, presentation?}`.
    pub details: Value,
}

/// A model turn that a workflow message opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowTurn {
    /// Made by the Pi side when the turn starts.
    pub workflow_turn_id: String,
    /// The message that opened it.
    pub workflow_message_id: String,
    /// The run.
    pub run_id: String,
    /// `started` or `ended`.
    pub state: TurnState,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// RFC 3339 UTC with milliseconds.
    pub started_at: String,
    /// RFC 3339 UTC with milliseconds.
    pub ended_at: Option<String>,
}

/// State of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TurnState {
    /// The model works.
    Started,
    /// It is over.
    Ended,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// By itself.
    Completed,
    /// By a person.
    Aborted,
    /// By a failure of the model.
    Error,
    /// Its end was never reported; decided by the server only.
    Lost,
}

impl StopReason {
    /// The name on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Error => "error",
            Self::Lost => "lost",
        }
    }
}

/// Payload of `view.session.watch`. The connection becomes the session's coordinator, with a new epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionWatch {
    /// Chosen by the client.
    pub subscription_id: String,
    /// The Pi session.
    pub session_id: String,
}

/// Payload of `view.session.window`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionWindow {
    /// The subscription.
    pub subscription_id: String,
    /// Index of the first row; `null` follows the working node.
    pub cursor: Option<u64>,
}

/// Payload of `workflowMessage.reportBranch`: one observation of the active branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BranchReport {
    /// The Pi session.
    pub target_session_id: String,
    /// Epoch that the view gave.
    pub coordinator_epoch: u64,
    /// The current message; `null` when the view names none.
    pub workflow_message_id: Option<String>,
    /// Entry that holds it; `null`: absent.
    pub pi_session_entry_id: Option<String>,
    /// Whether Pi is idle.
    pub is_idle: bool,
    /// Whether input of the user is queued.
    pub has_pending_messages: bool,
}

/// Receipt of `workflowMessage.reportBranch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchReceipt {
    /// The message that was reported.
    pub workflow_message_id: Option<String>,
    /// What is known of it now.
    pub status: Option<MessageStatus>,
}

/// Payload of `workflowTurn.report`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnReport {
    /// What happened.
    pub state: TurnState,
    /// The message that opened the turn.
    pub workflow_message_id: String,
    /// The turn.
    pub workflow_turn_id: String,
    /// The run.
    pub run_id: String,
    /// The Pi session.
    pub target_session_id: String,
    /// Epoch that the view gave.
    pub coordinator_epoch: u64,
    /// How it ended: exactly when `state` is `ended`, and never `lost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Entry of the last assistant message, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_session_entry_id: Option<String>,
}

/// What a reported turn is to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TurnOwnership {
    /// Open: activity and recording may begin.
    Active,
    /// Over.
    Settled,
    /// No workflow turn: nothing may be attributed to a run.
    Absent,
}

/// Receipt of `workflowTurn.report`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnReceipt {
    /// Always [`TURN_RECEIPT_SCHEMA`].
    pub schema: String,
    /// What the turn is now.
    pub ownership: TurnOwnership,
    /// The saved turn.
    pub turn: Option<WorkflowTurn>,
}

/// Payload of `sessionView.clearTerminal`: the session stops showing its terminal run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClearTerminal {
    /// The Pi session.
    pub target_session_id: String,
    /// Epoch that the view gave.
    pub coordinator_epoch: u64,
}

/// Receipt of `sessionView.clearTerminal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClearedTerminal {
    /// The run that is no longer shown; `null` when none was.
    pub run_id: Option<String>,
}

/// Who acts in a session: part of every `interaction.*` payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionAuthority {
    /// The Pi session.
    pub target_session_id: String,
    /// Epoch that the view gave.
    pub coordinator_epoch: u64,
}

/// Payload of `interaction.submit`. The idempotency key is the tool call's id. The answer comes when it is decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InteractionSubmit {
    /// Who submits.
    pub authority: SessionAuthority,
    /// Exact request.
    pub request_id: String,
    /// What is submitted.
    #[serde(default)]
    pub output: Value,
    /// Instead of `output`, for one that no frame holds: JSON that was uploaded with `content.put`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_content: Option<ContentRef>,
}

/// Receipt of `interaction.submit` and `interaction.assistant`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InteractionReceipt {
    /// The request.
    pub request_id: String,
    /// The run.
    pub run_id: String,
    /// `accepted` or `rejected`. A rejected submission leaves the request pending.
    pub decision: String,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Execution revision after it.
    pub run_revision: u64,
}

/// Payload of `interaction.assistant`: the visible text of the turn's last assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InteractionAssistant {
    /// Who submits.
    pub authority: SessionAuthority,
    /// Exact request.
    pub request_id: String,
    /// Entry of the assistant message.
    pub response_session_entry_id: String,
    /// `sha256:<hex>` of the text's bytes.
    pub text_digest: String,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Instead of `text`, for one that no frame holds: a JSON string that was uploaded with `content.put`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_content: Option<ContentRef>,
}

/// Payload of `interaction.update`: an update of the working step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InteractionUpdate {
    /// Who publishes.
    pub authority: SessionAuthority,
    /// Exact request.
    pub request_id: String,
    /// What is published.
    pub update: crate::run::Update,
}

/// Payload of `decision.answer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecisionAnswer {
    /// Exact request.
    pub request_id: String,
    /// `sha256:<hex>` of what was shown: the answer counts for exactly that.
    pub digest: String,
    /// The choice.
    pub choice: String,
    /// Text inputs of the choice, by name.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub inputs: serde_json::Map<String, Value>,
    /// Session that a person answers in; absent from a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<SessionAuthority>,
}
