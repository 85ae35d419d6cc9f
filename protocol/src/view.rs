//! Views: the server's consistent, bounded projections of runs. A renderer never derives status.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::DefinitionSnapshot;
use crate::effect::Review;
use crate::run::{DisplayStatus, ErrorInfo, NodeOutcome, RunStatus, SourceMap, SourceRef, Step, StoredUpdate};
use crate::session::{ReplayCheckpoint, SessionRunView};

/// Schema of a run-list page.
pub const RUN_LIST_SCHEMA: &str = "pi-workflows.run-list-page.v1";
/// Schema of a run view.
pub const RUN_VIEW_SCHEMA: &str = "pi-workflows.run-view.v1";
/// Schema of a page of a run view.
pub const RUN_PAGE_SCHEMA: &str = "pi-workflows.run-page.v1";
/// Schema of a content chunk.
pub const CONTENT_CHUNK_SCHEMA: &str = "pi-workflows.content-chunk.v1";
/// Schema of a run manifest.
pub const MANIFEST_SCHEMA: &str = "pi-workflows.run-manifest.v1";
/// Schema of a run state document.
pub const RUN_STATE_SCHEMA: &str = "pi-workflows.run-state.v1";
/// Schema of a trace event.
pub const TRACE_SCHEMA: &str = "pi-workflows.trace-event.v1";
/// Values whose canonical JSON is larger than this many bytes travel as artifact references.
pub const ARTIFACT_THRESHOLD: usize = 16 * 1024;
/// Most items of one page.
pub const PAGE_ITEMS: usize = 256;
/// Byte budget of one page's items.
pub const PAGE_BYTES: usize = 512 * 1024;
/// Completed runs of the same workflow whose times are compared with those of a run.
pub const EARLIER_RUNS: usize = 20;
/// Largest chunk of content in bytes before base64.
pub const CONTENT_CHUNK: usize = 512 * 1024;

/// Reference to content that is fetched with `view.content` and verified: `{"$artifact": {...}}` in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// `artifacts/sha256/<hex>.<json|txt>`.
    pub path: String,
    /// Media type of the bytes.
    pub media_type: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Lower-case hex SHA-256.
    pub sha256: String,
}

/// A workflow value in a view. On the wire a value above [`ARTIFACT_THRESHOLD`] is `{"$artifact": ref}`; a user object that
/// has exactly one key starting with `$artifact` or `$escaped` travels as `{"$escaped": object}`.
#[derive(Debug, Clone, PartialEq)]
pub enum ViewValue {
    /// The value itself.
    Inline(Value),
    /// Content to fetch.
    Artifact(ArtifactRef),
}

impl Default for ViewValue {
    fn default() -> Self {
        Self::Inline(Value::Null)
    }
}

/// What renderers show of a run and what they may offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Display {
    /// Status, decided by the server.
    pub status: DisplayStatus,
    /// `supervised_runner`, `origin_turn` or `null`.
    pub activity: Option<String>,
    /// Advisory control names; readers accept unknown ones.
    pub controls: Vec<String>,
    /// Why the run is in this status, when there is something to say.
    pub reason: Option<String>,
    /// The whole reason when `reason` is shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_content: Option<Value>,
}

/// A page of the run list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunListPage {
    /// Always [`RUN_LIST_SCHEMA`].
    pub schema: String,
    /// Opaque revision of the list.
    pub revision: String,
    /// Index of the first item.
    pub start: u64,
    /// Items in the whole (filtered) list.
    pub total: u64,
    /// Items that the list would have without its filter; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfiltered: Option<u64>,
    /// The window, newest first.
    pub items: Vec<RunListItem>,
}

/// One run in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunListItem {
    /// The run.
    pub run_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// Pi session that started it.
    pub origin_session_id: Option<String>,
    /// Run whose checkpoint answer or restart made this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// First run of the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_run_id: Option<String>,
    /// RFC 3339 UTC with milliseconds.
    pub created_at: String,
    /// RFC 3339 UTC with milliseconds.
    pub updated_at: String,
    /// Status and controls.
    pub display: Display,
    /// The manifest.
    pub manifest: Manifest,
    /// A runner or an open turn exists now.
    pub live: bool,
    /// Durable state says running, without a live claim.
    pub possibly_interrupted: bool,
}

/// Identity and timing of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always [`MANIFEST_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// The run's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    /// Root source.
    pub workflow_source: SourceRef,
    /// Start, RFC 3339 UTC with milliseconds.
    pub started_at: String,
    /// End, or `null`.
    pub finished_at: Option<String>,
    /// Durable status.
    pub status: RunStatus,
    /// Always [`TRACE_SCHEMA`].
    pub trace_schema: String,
    /// Names of the parts of the run.
    pub paths: BTreeMap<String, String>,
}

/// The run view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// Always [`RUN_VIEW_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: String,
    /// Presentation cursor: changes whenever the view changes.
    pub revision: u64,
    /// Execution revision: what commands name in `expectedRevision`.
    pub run_revision: u64,
    /// Status and controls.
    pub display: Display,
    /// Identity and timing.
    pub manifest: Manifest,
    /// State of the run.
    pub state: RunStateView,
    /// The graph.
    pub workflow: DefinitionView,
    /// Display metadata of the queue row.
    pub queue: QueueView,
    /// Latest step of each node up to the cursor (decision 8).
    pub graph_steps: Vec<GraphStep>,
    /// Index of the first graph step.
    pub graph_step_start: u64,
    /// Graph steps in all.
    pub graph_step_total: u64,
    /// Distinct transitions up to the cursor.
    pub taken_transitions: Vec<TakenTransition>,
    /// Index of the first transition.
    pub taken_transition_start: u64,
    /// Distinct transitions in all.
    pub taken_transition_total: u64,
    /// Steps that the graph cursor covers.
    pub graph_cursor: u64,
    /// Index of the first step of `state.steps`.
    pub step_start: u64,
    /// Steps in all.
    pub step_total: u64,
    /// The last trace events.
    pub trace_page: TracePage,
    /// Current updates.
    pub updates: Vec<StoredUpdate>,
    /// Index of the first update.
    pub update_start: u64,
    /// Current updates in all.
    pub update_total: u64,
    /// The recorded session, when the run is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRunView>,
    /// Effects that a person has to settle, when there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// A runner or an open turn exists now.
    pub live: bool,
    /// Durable state says running, without a live claim.
    pub possibly_interrupted: bool,
}

/// The `workflow` field of a run view: the snapshot, or a bounded projection of it with the reference to the whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DefinitionView {
    /// A reference to the whole snapshot, which must be fetched and verified before the graph is shown.
    Content {
        /// The workflow's name.
        name: String,
        /// Where the graph starts.
        #[serde(rename = "startAt")]
        start_at: String,
        /// Nodes in the graph.
        #[serde(rename = "nodeTotal")]
        node_total: u64,
        /// `{"$artifact": …}`.
        content: ArtifactEnvelope,
    },
    /// The whole snapshot.
    Inline(Box<DefinitionSnapshot>),
}

/// `{"$artifact": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEnvelope {
    /// The reference.
    #[serde(rename = "$artifact")]
    pub artifact: ArtifactRef,
}

/// State of a run in its view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStateView {
    /// Always [`RUN_STATE_SCHEMA`].
    pub schema: String,
    /// Newest trace event.
    pub trace_seq: u64,
    /// The run.
    pub run_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// The run's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    /// Root source.
    pub workflow_source: SourceRef,
    /// Parent of a continuation or restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// Steps taken over from the parent chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_step_count: Option<u64>,
    /// Every frozen source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_sources: Option<SourceMap>,
    /// Digest of the frozen graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition_digest: Option<String>,
    /// RFC 3339 UTC with milliseconds.
    pub started_at: String,
    /// RFC 3339 UTC with milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// RFC 3339 UTC with milliseconds.
    pub updated_at: String,
    /// Durable status.
    pub status: RunStatus,
    /// Normalised input.
    pub input: ViewValue,
    /// Latest `ok` output by node, of nodes in the step window.
    #[serde(default)]
    pub outputs: BTreeMap<String, ViewValue>,
    /// Latest result record by node, of nodes in the step window.
    #[serde(default)]
    pub results: BTreeMap<String, NodeResultView>,
    /// A window of steps, oldest first.
    pub steps: Vec<StepView>,
    /// Node of the unfinished attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_node: Option<String>,
    /// The unfinished attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_attempt_id: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_node_started_at: Option<String>,
    /// Its computed one-line detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Whether the run is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Node whose answer the run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_on: Option<String>,
    /// The pending request of a protected decision or checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human_decision: Option<Value>,
    /// Output of a completed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_output: Option<ViewValue>,
    /// Error of a run that ended otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Why it failed or does not go on, of a closed list: `claimLost runnerCrashed runnerNoProgress runnerTimedOut
    /// serverUnavailable sourceChanged effectAmbiguous nodeFailed protocolRejected`. What helps differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_class: Option<String>,
}

/// A step whose values may be artifacts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Everything but the large values; its own `prompt` and `output` are replaced below.
    #[serde(flatten)]
    pub step: Step,
    /// Index of the step in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The whole `{error?, action?, assistantMessage?, conversation?}`, when a text in them was shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_content: Option<ArtifactEnvelope>,
}

impl StepView {
    /// The output as a view value (an artifact envelope is recognised).
    #[must_use]
    pub fn output(&self) -> ViewValue {
        ViewValue::from_wire(&self.step.output)
    }

    /// The prompt as a view value.
    #[must_use]
    pub fn prompt(&self) -> ViewValue {
        ViewValue::from_wire(&self.step.prompt)
    }
}

/// Result record of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResultView {
    /// The attempt.
    pub attempt_id: String,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}

/// Latest attempt of a node, for the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GraphStep {
    /// Qualified node id.
    pub node_id: String,
    /// Its newest attempt.
    pub attempt_id: String,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<NodeOutcome>,
    /// Attempts so far, the newest included.
    pub attempts: u32,
    /// Index of the newest finished step of the node, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_index: Option<u64>,
    /// RFC 3339 UTC with milliseconds.
    pub started_at: String,
    /// RFC 3339 UTC with milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Computed one-line detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
}

/// A transition that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakenTransition {
    /// Source node.
    pub from: String,
    /// Target node.
    pub to: String,
    /// How often.
    pub count: u64,
}

/// Display metadata of the queue row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// The run.
    pub run_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// `queued starting running parked done failed cancelled`.
    pub status: String,
    /// `headless` or `session`.
    pub execution_mode: String,
    /// Pi session that started it.
    pub origin_session_id: Option<String>,
    /// When it was queued.
    pub queued_at: String,
    /// Last change.
    pub updated_at: String,
}

/// A window of trace events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TracePage {
    /// Index of the first event.
    pub start: u64,
    /// Events in all.
    pub total: u64,
    /// Oldest first.
    pub items: Vec<TraceEvent>,
}

/// One trace event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceEvent {
    /// Ordinal in the run, from 1.
    pub seq: u64,
    /// RFC 3339 UTC with milliseconds.
    pub at: String,
    /// `run`, `node`, `effect`, `command`, …
    pub scope: String,
    /// For example `node.finished`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The run.
    pub run_id: String,
    /// Qualified node id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// Details; large values are artifacts.
    pub payload: Value,
}

/// Kinds of pages of a run view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named by protocol.md")]
pub enum PageKind {
    Steps,
    Trace,
    TraceAtStep,
    SessionEntries,
    SessionEvents,
    Settings,
    FollowUps,
    Updates,
    WorkflowMessages,
    NodeTimes,
    Pauses,
}

/// How long a node took in earlier runs of the same workflow: an item of a `node_times` page, which has one for every node in
/// document order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTime {
    /// Qualified node id.
    pub node_id: String,
    /// Runs in which the node's newest attempt succeeded, of the last [`EARLIER_RUNS`] completed ones before this one.
    pub runs: u32,
    /// Median of the active times of those attempts, in milliseconds; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_ms: Option<u64>,
}

/// Why a run did not work for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// It had not been started yet.
    Queued,
    /// A checkpoint waited for its answer.
    Waiting,
    /// It was paused.
    Paused,
}

/// A stretch of time in which a run did not work: an item of a `pauses` page. They come in order and do not overlap; what is both
/// waiting and paused is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// Why.
    pub kind: PauseKind,
    /// RFC 3339 UTC with milliseconds.
    pub from: String,
    /// RFC 3339 UTC with milliseconds; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The checkpoint that waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
}

/// One page: the receipt of `view.page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    /// Always [`RUN_PAGE_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: String,
    /// What is paged.
    pub kind: PageKind,
    /// The cursor that was asked for, echoed.
    pub cursor: Value,
    /// Presentation revision that the page belongs to.
    pub revision: u64,
    /// Index of the first item.
    pub start: u64,
    /// Items in all.
    pub total: u64,
    /// Items: [`StepView`], [`TraceEvent`], [`StoredUpdate`], [`crate::session::SessionEntryView`],
    /// [`crate::session::SessionEventView`], [`NodeTime`] or [`Pause`] by kind.
    pub items: Vec<Value>,
    /// For steps: the graph up to the page's last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_steps: Option<Vec<GraphStep>>,
    /// For steps: number of steps that `graph_steps` covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_cursor: Option<u64>,
    /// For steps: transitions up to the cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_transitions: Option<Vec<TakenTransition>>,
    /// For session events: the conversation just before the page's first event; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_checkpoint: Option<ReplayCheckpoint>,
}

impl RunListPage {
    /// Checks that this is a page of a run list.
    ///
    /// # Errors
    /// A sentence that names what it is not.
    pub fn check(&self) -> Result<(), String> {
        if self.schema != RUN_LIST_SCHEMA {
            return Err(format!("schema {:?} is not {RUN_LIST_SCHEMA:?}", self.schema));
        }
        if self.items.len() > PAGE_ITEMS || self.start.saturating_add(self.items.len() as u64) > self.total {
            return Err(format!(
                "{} items from {} of {}",
                self.items.len(),
                self.start,
                self.total
            ));
        }
        Ok(())
    }
}

impl RunView {
    /// Checks that this is the view of `run_id`.
    ///
    /// # Errors
    /// A sentence that names what it is not.
    pub fn check(&self, run_id: &str) -> Result<(), String> {
        if self.schema != RUN_VIEW_SCHEMA {
            return Err(format!("schema {:?} is not {RUN_VIEW_SCHEMA:?}", self.schema));
        }
        if self.run_id != run_id {
            return Err(format!("the view is of run {:?}, not of {run_id:?}", self.run_id));
        }
        Ok(())
    }
}

impl RunPage {
    /// Checks that this is the page of `run_id` at a presentation revision that a request asked for. A view applies a page
    /// only when this still holds for what it shows.
    ///
    /// # Errors
    /// A sentence that names the difference.
    pub fn check(&self, run_id: &str, revision: u64, request: &crate::ops::PageRequest) -> Result<(), String> {
        if self.schema != RUN_PAGE_SCHEMA {
            return Err(format!("schema {:?} is not {RUN_PAGE_SCHEMA:?}", self.schema));
        }
        if self.run_id != run_id || self.kind != request.kind || self.cursor != request.cursor {
            return Err("the page belongs to another run, kind or cursor".to_owned());
        }
        if self.revision != revision {
            return Err(format!("the page has revision {}, the view {revision}", self.revision));
        }
        if self.items.len() > PAGE_ITEMS || self.start.saturating_add(self.items.len() as u64) > self.total {
            return Err(format!(
                "{} items from {} of {}",
                self.items.len(),
                self.start,
                self.total
            ));
        }
        Ok(())
    }
}

/// A chunk of content: the receipt of `view.content`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContentChunk {
    /// Always [`CONTENT_CHUNK_SCHEMA`].
    pub schema: String,
    /// The run.
    pub run_id: String,
    /// Artifact path.
    pub path: String,
    /// Byte offset of this chunk.
    pub offset: u64,
    /// Offset of the next chunk; equals `bytes` at the end.
    pub next_offset: u64,
    /// Length of the whole.
    pub bytes: u64,
    /// Digest of the whole.
    pub sha256: String,
    /// Media type of the whole.
    pub media_type: String,
    /// Whether the content ends with this chunk.
    pub complete: bool,
    /// Base64 bytes.
    pub data: String,
}

impl ViewValue {
    /// Reads a wire value: `{"$artifact": …}` is a reference, `{"$escaped": …}` is unwrapped, anything else is itself.
    #[must_use]
    pub fn from_wire(value: &Value) -> Self {
        if let Value::Object(map) = value
            && map.len() == 1
        {
            if let Some(inner) = map.get("$artifact")
                && let Ok(reference) = ArtifactRef::deserialize(inner)
            {
                return Self::Artifact(reference);
            }
            if let Some(inner) = map.get("$escaped") {
                return Self::Inline(inner.clone());
            }
        }
        Self::Inline(value.clone())
    }

    /// The wire form; a user object that looks like an envelope is escaped.
    #[must_use]
    pub fn to_wire(&self) -> Value {
        match self {
            Self::Artifact(reference) => serde_json::json!({ "$artifact": reference }),
            Self::Inline(value) => match value {
                Value::Object(map)
                    if map.len() == 1 && map.keys().all(|key| key == "$artifact" || key == "$escaped") =>
                {
                    serde_json::json!({ "$escaped": value })
                }
                other => other.clone(),
            },
        }
    }
}

impl Serialize for ViewValue {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_wire().serialize(to)
    }
}

impl<'de> Deserialize<'de> for ViewValue {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(|value| Self::from_wire(&value))
    }
}

impl JsonSchema for ViewValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ViewValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}
