//! The closed list of client operations and the payloads and receipts of those that change or read runs.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::ContentRef;
use crate::effect::Review;
use crate::run::{ErrorInfo, RunStatus, SourceMap};
use crate::view::PageKind;

macro_rules! operations {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// Every operation of the protocol. An operation that is not built answers `unavailable` with reason `not_built`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[expect(missing_docs, reason = "the wire names are listed in protocol.md")]
        pub enum Operation { $(#[serde(rename = $name)] $variant,)* }

        impl Operation {
            /// Every operation in the order of protocol.md.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The operation of a name on the wire.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    RunStart = "run.start", RunPause = "run.pause", RunResume = "run.resume", RunCancel = "run.cancel",
    RunRestart = "run.restart", RunChangeSettings = "run.changeSettings", RunStatus = "run.status", RunList = "run.list",
    CheckpointAnswer = "checkpoint.answer", DecisionAnswer = "decision.answer",
    InteractionSubmit = "interaction.submit", InteractionAssistant = "interaction.assistant",
    InteractionUpdate = "interaction.update",
    WorkflowMessageReportBranch = "workflowMessage.reportBranch", WorkflowTurnReport = "workflowTurn.report",
    SessionViewClearTerminal = "sessionView.clearTerminal", FollowUpQueue = "followUp.queue",
    FollowUpRemove = "followUp.remove", SessionRecord = "session.record",
    EffectList = "effect.list", EffectResolve = "effect.resolve",
    ChannelStatus = "channel.status", ChannelReload = "channel.reload", ChannelRecover = "channel.recover",
    ResourceManagerList = "resourceManager.list", ResourceManagerGet = "resourceManager.get",
    ResourceManagerApply = "resourceManager.apply", ResourceManagerReconcile = "resourceManager.reconcile",
    ResourceManagerDelete = "resourceManager.delete",
    ViewRunsWatch = "view.runs.watch", ViewRunsPage = "view.runs.page", ViewRunGet = "view.run.get",
    ViewRunsUnwatch = "view.runs.unwatch",
    ViewRunWatch = "view.run.watch", ViewRunUnwatch = "view.run.unwatch", ViewPage = "view.page",
    ViewContent = "view.content", ViewSessionWatch = "view.session.watch", ViewSessionWindow = "view.session.window",
    ViewSessionUnwatch = "view.session.unwatch",
    ServerStatus = "server.status", ServerStop = "server.stop",
    StateStatus = "state.status", StateVerify = "state.verify", StateBackup = "state.backup", StatePrune = "state.prune",
    ContentPut = "content.put", WorkflowList = "workflow.list", WorkflowCheck = "workflow.check",
}

/// Payload of `run.start`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunStart {
    /// A name, a path, or `builtin:<id>`.
    pub workflow: String,
    /// Absolute project directory.
    pub project_path: String,
    /// Input; absent is `{}`-less `null`. Large inputs are uploaded with `content.put` and named by `inputContent`.
    #[serde(default)]
    pub input: Value,
    /// Digest-bound reference to an uploaded input, instead of `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_content: Option<ContentRef>,
    /// Pi session to bind; absent for a headless run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// Receipt of operations that act on one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunReceipt {
    /// The run acted on, or created.
    pub run_id: String,
    /// Durable status after the command. A paused run keeps the status that it was paused in; see `paused`.
    pub status: RunStatus,
    /// Whether the run is paused after the command; absent when it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Execution revision after the command.
    pub run_revision: u64,
    /// The run that a restart or an answer created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_run_id: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Payload of `checkpoint.answer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointAnswer {
    /// The answer; becomes the checkpoint's output in the continuation.
    pub answer: Value,
}

/// Which runs a list holds. Absent fields do not filter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunFilter {
    /// Case-insensitive text in run id, workflow name or title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Display statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Vec<crate::run::DisplayStatus>>,
    /// Workflow name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only runs created at or after this RFC 3339 instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<String>,
    /// Only runs created before this RFC 3339 instant; not before `createdAfter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<String>,
}

/// Payload of `view.runs.watch`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunsWatch {
    /// Chosen by the client.
    pub subscription_id: String,
    /// Which runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RunFilter>,
    /// Index of the first wanted item, default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Wanted items, default and maximum 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Payload of `view.runs.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunsPage {
    /// List revision that the page must belong to.
    pub revision: String,
    /// Index of the first item.
    pub cursor: u64,
    /// Which runs; must be the filter of the watch that gave the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RunFilter>,
    /// Wanted items, default and maximum 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Payload of `run.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunList {
    /// Which runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RunFilter>,
    /// Index of the first wanted item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Wanted items, default and maximum 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Payload of `view.run.watch`, `view.run.unwatch`, `view.runs.unwatch` and `view.session.unwatch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubscriptionRef {
    /// Chosen by the client.
    pub subscription_id: String,
}

/// Payload of `view.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PageRequest {
    /// What is paged.
    pub kind: PageKind,
    /// Index of the first item (a number), or for `trace_at_step` `{attemptId}` or `{step}`.
    pub cursor: Value,
    /// Wanted items, default and maximum 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Payload of `view.content`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContentRequest {
    /// `artifacts/sha256/<hex>.<json|txt>`.
    pub path: String,
    /// Byte offset.
    pub offset: u64,
}

/// Payload of `content.put`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContentPut {
    /// What is being stored.
    pub content: ContentRef,
    /// Byte offset of this chunk.
    pub offset: u64,
    /// Base64 bytes.
    pub data: String,
    /// Whether this is the last chunk.
    pub complete: bool,
}

/// Receipt of `content.put`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentPutReport {
    /// Digest of the whole.
    pub sha256: String,
    /// Bytes that the server has of it.
    pub received: u64,
    /// Whether the whole arrived and was verified.
    pub complete: bool,
}

/// Payload of `server.stop`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerStop {
    /// Longest wait for running nodes, in milliseconds; default 20,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Stop running nodes at once.
    #[serde(default)]
    pub now: bool,
}

/// Receipt of `server.stop`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStopReport {
    /// Manual effects that were being applied when a stop with `now` was asked for: what it interrupts of them becomes
    /// ambiguous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Review>,
}

/// Receipt of `server.status` (state.md, "Privacy": counts, states, no content).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatusReport {
    /// `running` or `stopping`.
    pub state: String,
    /// Server epoch.
    pub epoch: u64,
    /// Package version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since the server took its epoch.
    pub uptime_seconds: u64,
    /// Whether the socket accepts commands.
    pub socket_available: bool,
    /// Live runners, pending launches included.
    pub active_runners: u32,
    /// Most runners at once.
    pub runner_capacity: u32,
    /// Queued runs.
    pub queued: u64,
    /// Running runs.
    pub running: u64,
    /// Parked runs.
    pub parked: u64,
    /// Waiting runs.
    pub waiting: u64,
    /// Claims past their expiry.
    pub expired_claims: u64,
    /// Pending requests.
    pub pending_interactions: u64,
    /// Effects whose outcome is unknown.
    pub ambiguous_effects: u64,
    /// Last finished retention sweep.
    pub last_sweep: Option<String>,
    /// Why the newest write of the state failed, while writes fail: a full disk, for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_error: Option<String>,
}

/// Payload of `workflow.check`: load and validate without starting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowCheck {
    /// A name, a path, or `builtin:<id>`.
    pub workflow: String,
    /// Absolute project directory.
    pub project_path: String,
}

/// Payload of `workflow.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowList {
    /// Absolute project directory.
    pub project_path: String,
}

/// A startable workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowEntry {
    /// Name to start it by.
    pub name: String,
    /// `project`, `global` or `builtin`.
    pub origin: String,
    /// File path, absent for built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// First line of the file's leading comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Whether another workflow of the same name comes first in the lookup order.
    #[serde(default)]
    pub shadowed: bool,
}

/// Receipt of `run.status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatusReport {
    /// The run.
    pub run_id: String,
    /// Durable status.
    pub status: RunStatus,
    /// Execution revision: what commands name in `expectedRevision`.
    pub run_revision: u64,
    /// Status and controls as renderers show them.
    pub display: crate::view::Display,
}

/// Receipt of `workflow.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowListReport {
    /// In lookup order, shadowed ones included.
    pub workflows: Vec<WorkflowEntry>,
}

/// Receipt of `workflow.check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowCheckReport {
    /// The resolved graph; a reference when it is large.
    pub workflow: crate::view::DefinitionView,
    /// `sha256:<hex>` of the snapshot's canonical JSON.
    pub definition_digest: String,
    /// Frozen sources.
    pub sources: SourceMap,
    /// Why a start would be refused: things that this build cannot execute, a sentence each.
    #[serde(default)]
    pub unsupported: Vec<String>,
    /// Things worth knowing.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Error of a response that is not `accepted` or `adopted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationError {
    /// Stable machine reason, for example `not_built`, `stale_revision`, `workflow_not_found`.
    pub reason: String,
    /// What failed, with the value and the limit.
    pub message: String,
    /// Details, when the error came from workflow code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<ErrorInfo>,
}

impl OperationError {
    /// An error with a reason and a message.
    #[must_use]
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
            cause: None,
        }
    }
}

impl std::fmt::Display for OperationError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for OperationError {}

impl ContentPut {
    /// The chunk of `content` that starts at `offset`.
    #[must_use]
    pub fn chunk(content: &ContentRef, offset: u64, bytes: &[u8]) -> Self {
        Self {
            content: content.clone(),
            offset,
            data: BASE64_STANDARD.encode(bytes),
            complete: offset + bytes.len() as u64 == content.bytes,
        }
    }
}
