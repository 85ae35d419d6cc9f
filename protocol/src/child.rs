//! Private protocol between the server and the children that load user code.
//!
//! Canonical JSON lines over a socket pair, at most 1 MiB a frame. The server starts a child, writes one launch message,
//! and the child answers. Requests flow from the child ([`ChildMessage`]), replies from the server ([`ServerReply`]);
//! the server may also push [`ServerPush`] at any time after `runner.ready`.
//!
//! ```text
//! resolver   server → ResolveRequest            child → ResolveResponse, exits
//! validator  server → ValidatorLaunch           child → content.get / content.put, validation.finished, exits
//! runner     server → RunnerLaunch              child → runner.ready
//!            server → reply to ready: Command   child → node.started / node.finished / … each with a reply
//!            server → push cancel | stop        child → runner.exiting, exits
//! ```
//!
//! Every [`ChildMessage`] carries run, generation and runner epoch; the server checks generation and epoch before it looks
//! at the payload. A message id that was already accepted is answered with the stored reply. After one `claimLost` reply the
//! child must exit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical;
use crate::definition::{DefinitionSnapshot, EffectKind};
use crate::run::{ActionReceipt, ErrorInfo, NodeOutcome, RunStatus, SourceMap, Update};

/// Schema of a runner launch message.
pub const LAUNCH_SCHEMA: &str = "pi-workflows.runner-launch.v1";
/// Schema of a validator launch message.
pub const VALIDATE_SCHEMA: &str = "pi-workflows.validate.v1";
/// Schema of a resolver request and response.
pub const RESOLVE_SCHEMA: &str = "pi-workflows.resolve.v1";
/// Schema of messages from a runner.
pub const CHILD_SCHEMA: &str = "pi-workflows.runner-message.v1";
/// Schema of replies and pushes to a runner.
pub const REPLY_SCHEMA: &str = "pi-workflows.runner-reply.v1";
/// Version of this private protocol.
pub const CHILD_PROTOCOL_VERSION: u32 = 1;
/// Values whose canonical JSON is at most this many bytes travel inline; larger ones go through `content.put`/`content.get`.
pub const INLINE_VALUE_LIMIT: usize = 256 * 1024;
/// Largest chunk of content, in bytes before base64.
pub const CONTENT_CHUNK: usize = 512 * 1024;
/// Largest node output, in bytes of canonical JSON (decision 9).
pub const OUTPUT_LIMIT: u64 = 256 * 1024 * 1024;
/// Largest run input, in bytes of canonical JSON (decision 9).
pub const INPUT_LIMIT: u64 = 64 * 1024 * 1024;

/// A JSON value, inline or by digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ValueRef {
    /// The value itself.
    Inline(Value),
    /// Stored content that holds the canonical JSON of the value.
    Content(ContentRef),
}

impl ValueRef {
    /// JSON `null`, inline.
    #[must_use]
    pub const fn null() -> Self {
        Self::Inline(Value::Null)
    }
}

/// Names stored content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentRef {
    /// Lower-case hex SHA-256 of the bytes.
    pub sha256: String,
    /// Length in bytes.
    pub bytes: u64,
    /// `application/json` or `text/plain; charset=utf-8`.
    pub media_type: String,
}

impl ContentRef {
    /// The name of bytes.
    #[must_use]
    pub fn of(bytes: &[u8], media_type: &str) -> Self {
        Self {
            sha256: canonical::sha256_hex(bytes),
            bytes: bytes.len() as u64,
            media_type: media_type.to_owned(),
        }
    }
}

/// Asks a resolver to load one definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolveRequest {
    /// Always [`RESOLVE_SCHEMA`].
    pub schema: String,
    /// A name, a path, or `builtin:<id>`; see authoring.md for the lookup order.
    pub workflow: String,
    /// Absolute project directory: where names are looked up and relative paths start.
    pub project_path: String,
    /// Global workflow directory, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_dir: Option<String>,
    /// Run input to normalise; absent to resolve the definition only. Read as a file of canonical JSON when it is large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<ResolveInput>,
    /// Absolute private directory for a large answer or a large normalised input; the server removes the files. Without it,
    /// such an answer is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_dir: Option<String>,
}

/// Input of a resolver, which has no content channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResolveInput {
    /// The value.
    Inline(Value),
    /// Absolute path of a private file that holds the canonical JSON.
    File(String),
}

/// A resolver's one answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResolveResponse {
    /// The definition loaded and passed every check.
    Resolved(Box<ResolvedDefinition>),
    /// It did not; the source or the input is at fault.
    Refused(ErrorInfo),
    /// The answer is larger than a frame: absolute path of a file in the request's `scratch_dir` that holds the canonical
    /// JSON of a `resolved` answer.
    File(String),
}

/// What a resolver found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedDefinition {
    /// The resolved graph.
    pub definition: DefinitionSnapshot,
    /// `sha256:<hex>` of the snapshot's canonical JSON.
    pub definition_digest: String,
    /// Frozen sources.
    pub sources: SourceMap,
    /// Title for this input, when the workflow declares one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Normalised input, when one was given; a file in the request's `scratch_dir` when it is large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<ResolveInput>,
    /// Things this build cannot execute yet, each a sentence that names the node: a start must refuse when not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<String>,
    /// Things that only a run with a session can execute, each a sentence that names the node: a start without one must refuse
    /// when not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs_session: Vec<String>,
    /// Why the graph's agent steps cannot be executed without a session here: no agent is configured, or it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_problem: Option<String>,
    /// Warnings for `piw check`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// First message to a runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerLaunch {
    /// Always [`LAUNCH_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: String,
    /// Claim generation that this runner executes.
    pub generation: u64,
    /// Opaque id of this launch.
    pub runner_epoch: String,
    /// Absolute project directory, the working directory of the run.
    pub project_path: String,
    /// Sources to verify before anything is loaded.
    pub workflow_source: SourceMap,
    /// Digest the loaded graph must have.
    pub definition_digest: String,
    /// `sha256:<hex>` of the input's canonical JSON.
    pub input_hash: String,
    /// Always [`CHILD_PROTOCOL_VERSION`].
    pub protocol_version: u32,
    /// Global workflow directory, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_dir: Option<String>,
    /// The run is bound to a session: its agent steps are requested there and not executed by the runner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interactive: bool,
}

/// First and only message to a validator before its replies: run `validate` of one node for one submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValidatorLaunch {
    /// Always [`VALIDATE_SCHEMA`].
    pub schema: String,
    /// What to load and verify, as for a runner. Generation and epoch name the validation.
    pub launch: RunnerLaunch,
    /// Stored canonical JSON of the run's [`ExecutionState`], or the state itself.
    pub state: ValueRef,
    /// Qualified id of the node.
    pub node_id: String,
    /// Visit of the node, from 1.
    pub visit: u32,
    /// The attempt whose request was answered.
    pub attempt_id: String,
    /// What was submitted.
    pub submission: ValueRef,
}

/// A message from a runner. `message_id` is stable across retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildMessage {
    /// Always [`CHILD_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: String,
    /// Claim generation.
    pub generation: u64,
    /// Launch id.
    pub runner_epoch: String,
    /// Stable id of this message.
    pub message_id: String,
    /// Attempt that the message is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// Execution revision that the runner last saw; checked for messages that change the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_revision: Option<u64>,
    /// What is proposed.
    #[serde(flatten)]
    pub body: ChildBody,
}

/// Bodies of runner messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
pub enum ChildBody {
    /// Sources verified, definition loaded, digest matches. The reply is a [`Command`].
    #[serde(rename = "runner.ready")]
    Ready {
        /// Digest of the loaded graph.
        definition_digest: String,
    },
    /// The first attempt of this generation starts (later ones start inside `node.finished`).
    #[serde(rename = "node.started")]
    NodeStarted(NodeStart),
    /// An attempt ended with `ok`; the same transaction starts the next one or ends the run.
    #[serde(rename = "node.finished")]
    NodeFinished(Box<NodeFinish>),
    /// An attempt ended with another outcome; otherwise as `node.finished`.
    #[serde(rename = "node.failed")]
    NodeFailed(Box<NodeFinish>),
    /// The prompt of the running agent step is made: shown from now on, whoever executes the step.
    #[serde(rename = "node.prompted")]
    NodePrompted {
        /// The whole text for the model.
        prompt: ValueRef,
    },
    /// The running agent step of a run that is bound to a session has its prompt: its request is stored, the run waits and the
    /// claim is released. The attempt stays open; a later generation settles it.
    #[serde(rename = "interaction.requested")]
    InteractionRequested {
        /// The whole text for the model.
        prompt: ValueRef,
    },
    /// A validator's one result: the accepted value, or why the submission is rejected.
    #[serde(rename = "validation.finished")]
    ValidationFinished(Validation),
    /// Updates of the running attempt.
    #[serde(rename = "node.update")]
    NodeUpdate {
        /// In publication order.
        updates: Vec<Update>,
    },
    /// The run cannot go on in this generation and stays resumable.
    #[serde(rename = "run.parked")]
    RunParked {
        /// `workflowSourceChanged` or another reason of the closed failure classes.
        reason: String,
        /// For people.
        message: String,
    },
    /// The run ended without a further attempt (for example a routing error of the first step).
    #[serde(rename = "run.finished")]
    RunFinished(RunFinish),
    /// A durable passive message.
    #[serde(rename = "notification.requested")]
    Notification {
        /// `progress` or `final`.
        kind: String,
        /// Text.
        message: String,
        /// Index within the visit, stable across re-execution.
        index: u32,
    },
    /// Reserve an effect before it is applied. The reply is [`EffectReservation`].
    #[serde(rename = "effect.reserve")]
    EffectReserve {
        /// Engine-made key.
        key: String,
        /// The author's type.
        effect_type: String,
        /// How uncertainty is resolved.
        kind: EffectKind,
        /// `sha256:<hex>` of the request.
        fingerprint: String,
    },
    /// Settle a reserved effect.
    #[serde(rename = "effect.settle")]
    EffectSettle {
        /// The reserved key.
        key: String,
        /// How it ended.
        outcome: EffectSettlement,
        /// Result of an applied effect: what a re-execution adopts.
        result: Option<ValueRef>,
    },
    /// Output that user code printed (bounded, for diagnosis).
    #[serde(rename = "runner.progress")]
    Progress {
        /// `stdout` or `stderr`.
        stream: String,
        /// Text.
        text: String,
    },
    /// Register a process group that the runner is about to run (decision 1).
    #[serde(rename = "process.register")]
    ProcessRegister {
        /// Process id, also the group id.
        pid: u32,
        /// Start identity as the operating system reports it.
        start_identity: String,
        /// What it is, for people: the command's file name.
        label: String,
    },
    /// The registered group is gone. Valid after a terminal state released the claim.
    #[serde(rename = "process.unregister")]
    ProcessUnregister {
        /// Process id.
        pid: u32,
        /// Start identity.
        start_identity: String,
    },
    /// Store one chunk of content. The last chunk (`complete`) is checked against the digest.
    #[serde(rename = "content.put")]
    ContentPut {
        /// What is being stored.
        content: ContentRef,
        /// Byte offset of this chunk.
        offset: u64,
        /// Base64 bytes.
        data: String,
        /// Whether this is the last chunk.
        complete: bool,
    },
    /// Read one chunk of content. The reply is [`ContentChunkReply`].
    #[serde(rename = "content.get")]
    ContentGet {
        /// Digest of the wanted content.
        sha256: String,
        /// Byte offset.
        offset: u64,
    },
    /// The runner is about to exit.
    #[serde(rename = "runner.exiting")]
    Exiting {
        /// Why.
        reason: String,
    },
}

impl ChildBody {
    /// Whether the message moves the execution revision, so that it must name the one it saw.
    #[must_use]
    pub const fn changes_run(&self) -> bool {
        matches!(
            self,
            Self::NodeStarted(_)
                | Self::NodeFinished(_)
                | Self::NodeFailed(_)
                | Self::RunParked { .. }
                | Self::RunFinished(_)
                | Self::InteractionRequested { .. }
        )
    }
}

/// What `validate` says of a submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Validation {
    /// The normalised value.
    Accepted(ValueRef),
    /// Why it is rejected.
    Rejected(ErrorInfo),
}

/// How an effect ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EffectSettlement {
    /// It happened.
    Applied,
    /// It provably did not happen.
    Rejected,
    /// It was cancelled before it was applied.
    Cancelled,
    /// Unknown; only a person can say.
    Ambiguous,
    /// Idempotent work that will be tried again.
    Pending,
}

/// Answer to `effect.reserve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EffectReservation {
    /// Apply it now.
    Apply {
        /// Ordinal of the try, from 1.
        attempt: u32,
    },
    /// An earlier generation was interrupted while applying: an observed effect must be read back first.
    Observe {
        /// Ordinal of the interrupted try.
        attempt: u32,
    },
    /// It was applied before; adopt the result and do not apply.
    Adopt {
        /// Stored result.
        result: ValueRef,
    },
    /// It cannot be applied until a person resolves it; the runner parks.
    Ambiguous,
}

/// A started attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStart {
    /// The attempt's new id.
    pub attempt_id: String,
    /// Qualified node id.
    pub node_id: String,
    /// Ordinal of this visit of the node within the run, from 1 (a re-execution after a crash keeps it).
    pub visit: u32,
    /// Computed one-line detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Active-time budget in milliseconds, `None` for none.
    pub timeout_ms: Option<u64>,
    /// Mounts entered by this start, outermost first, each with its mapped input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enters: Vec<ScopeEnter>,
    /// Mounts left before this start, innermost first. Only in `node.started` right after an answered checkpoint that is an
    /// exit of its workflow; inside `node.finished` the leaves stand beside the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<ScopeLeave>,
}

/// A mounted workflow is entered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScopeEnter {
    /// Qualified mount path.
    pub mount: String,
    /// Mapped and normalised input of the invocation.
    pub input: ValueRef,
}

/// A mounted workflow is left through an exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScopeLeave {
    /// Qualified mount path.
    pub mount: String,
    /// Exit name.
    pub exit: String,
    /// Validated value of the exit: the mount's output in its parent.
    pub output: ValueRef,
}

/// A finished attempt and what follows, committed together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFinish {
    /// The attempt.
    pub attempt_id: String,
    /// Qualified node id.
    pub node_id: String,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Output; `null` unless the outcome is `ok`.
    pub output: ValueRef,
    /// Error of an outcome other than `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Receipt of an action or process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionReceipt>,
    /// Computed one-line detail, when it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Active time of the attempt in milliseconds, by a monotonic clock.
    pub active_ms: u64,
    /// Settles the attempt's effect in the same transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<FinishSettlement>,
    /// Mounts left by this finish, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<ScopeLeave>,
    /// What follows.
    pub next: Next,
}

/// Settlement of the effect that a finishing attempt reserved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FinishSettlement {
    /// The reserved key.
    pub key: String,
    /// How it ended.
    pub outcome: EffectSettlement,
}

/// What follows a finished attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Next {
    /// Another attempt starts.
    Start(NodeStart),
    /// The run ends.
    Finish(RunFinish),
    /// The finished node is a checkpoint: the run waits for its answer. The node's output is the checkpoint's request.
    Wait,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunFinish {
    /// A terminal status.
    pub status: RunStatus,
    /// Output of a completed run.
    pub final_output: ValueRef,
    /// Error of another end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Mounts left before this end, innermost first. Only in `run.finished` right after an answered checkpoint that is an
    /// exit of its workflow; inside `node.finished` the leaves stand beside the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<ScopeLeave>,
}

/// Reply to one [`ChildMessage`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerReply {
    /// Always [`REPLY_SCHEMA`].
    pub schema: String,
    /// The answered message.
    pub message_id: String,
    /// How it was decided.
    pub outcome: ReplyOutcome,
    /// Execution revision after the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Answer to messages that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<ReplyPayload>,
    /// Why it was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}

/// How a runner message was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReplyOutcome {
    /// Committed.
    Accepted,
    /// Committed earlier under the same message id.
    Adopted,
    /// Refused; nothing changed.
    Rejected,
    /// The claim is gone; the child must exit.
    ClaimLost,
}

/// Answers that carry data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReplyPayload {
    /// To `runner.ready`.
    Command(Box<Command>),
    /// To `runner.ready`, when the command is larger than a frame: content that holds the canonical JSON of the [`Command`].
    CommandContent(ContentRef),
    /// To `effect.reserve`.
    Effect(EffectReservation),
    /// To `content.get`.
    Content(ContentChunkReply),
}

/// One chunk of stored content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentChunkReply {
    /// Total length in bytes.
    pub bytes: u64,
    /// Byte offset of this chunk.
    pub offset: u64,
    /// Base64 bytes.
    pub data: String,
    /// Whether the content ends here.
    pub complete: bool,
}

/// The one command that follows `runner.ready`. Never inferred from other fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// What to do.
    pub action: CommandAction,
    /// Where the run stands.
    pub state: ExecutionState,
}

/// What a runner is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CommandAction {
    /// From the workflow's start, nothing executed yet.
    Start,
    /// From the last durable boundary.
    Resume,
    /// From an answered checkpoint of the parent run.
    Continue,
    /// From the workflow's start, as a restart of another run.
    Restart,
}

/// What a runner needs to know of a run to go on. Never viewer history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionState {
    /// Execution revision.
    pub revision: u64,
    /// Normalised run input.
    pub input: ValueRef,
    /// The run's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    /// Steps committed so far (this run and, for a continuation, its parents).
    pub step_count: u64,
    /// Current invocations of mounts, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<ScopeState>,
    /// Latest result of every node of every current invocation, in commit order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<NodeResultState>,
    /// Visits of every node in the whole run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visits: Vec<VisitCount>,
    /// Where to go on.
    pub position: Position,
}

/// A current invocation of a mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScopeState {
    /// Qualified mount path.
    pub mount: String,
    /// Its input.
    pub input: ValueRef,
    /// Steps executed in this invocation (its own loop bound counts them).
    pub step_count: u64,
}

/// The latest result of a node in its current invocation. For a mount that was left, `node_id` is the mount path and
/// `exit` names the exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResultState {
    /// Qualified node id or mount path.
    pub node_id: String,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Output.
    pub output: ValueRef,
    /// Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionReceipt>,
    /// Exit by which a mount was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
}

/// Visits of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VisitCount {
    /// Qualified node id.
    pub node_id: String,
    /// Started visits.
    pub count: u32,
}

/// Where a generation goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Position {
    /// At the workflow's start.
    Start,
    /// Execute this node again in a new attempt; the visit number is kept (an earlier attempt was interrupted).
    Node {
        /// Qualified node id.
        node_id: String,
        /// The visit's number.
        visit: u32,
        /// The earlier attempt used its whole budget up and was ended from outside: the new one ends as timed out at once.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        overran: bool,
    },
    /// Finish this open attempt as its request was decided, without executing the node.
    Settled {
        /// Qualified node id.
        node_id: String,
        /// The visit's number.
        visit: u32,
        /// The open attempt.
        attempt_id: String,
        /// How the request was decided.
        settlement: Settlement,
    },
    /// Follow the edge of this finished node, whose result is the last of `results`.
    After {
        /// Qualified node id.
        node_id: String,
    },
}

/// How the request of an open attempt was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Settlement {
    /// A submission was accepted.
    Accepted {
        /// The attempt's output.
        output: ValueRef,
        /// Active time of the attempt in milliseconds.
        active_ms: u64,
    },
    /// The attempt fails.
    Failed {
        /// Why.
        error: ErrorInfo,
        /// Active time of the attempt in milliseconds.
        active_ms: u64,
    },
    /// The attempt's budget ran out.
    TimedOut {
        /// Why.
        error: ErrorInfo,
        /// Active time of the attempt in milliseconds.
        active_ms: u64,
    },
}

/// A message from the server that answers nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerPush {
    /// Always [`REPLY_SCHEMA`].
    pub schema: String,
    /// What to do.
    pub push: PushAction,
}

/// Orders from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PushAction {
    /// Abort the running node and exit.
    Cancel,
    /// Finish the running node, commit nothing further, exit at the durable boundary.
    Stop,
}

/// Anything the server sends to a runner after the launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ToRunner {
    /// An answer.
    Reply(ServerReply),
    /// An order.
    Push(ServerPush),
}
