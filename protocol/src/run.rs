//! The vocabulary of a run: statuses, outcomes, steps, sources, updates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Durable status of a run row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Accepted, not yet claimed.
    Queued,
    /// Claimed, or parked between claims.
    Running,
    /// A checkpoint or interactive request needs input.
    Waiting,
    /// Ended successfully.
    Completed,
    /// Ended with an error.
    Failed,
    /// Ended because a declared time budget ran out.
    TimedOut,
    /// Ended by a person.
    Cancelled,
}

impl RunStatus {
    /// The name on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    /// The name as people read it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the run has ended and cannot execute again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::TimedOut | Self::Cancelled)
    }
}

/// Status that renderers show, decided by the server in one place (protocol.md, "Views").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the names are the documentation; protocol.md lists their order"
)]
pub enum DisplayStatus {
    Queued,
    Running,
    Waiting,
    Paused,
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    Ambiguous,
}

impl DisplayStatus {
    /// Every status, in the order of a run's life.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Paused,
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Ambiguous,
    ];

    /// The name on the wire, which is also what people type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// Outcome of one executed node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// Finished with an output.
    Ok,
    /// Its time budget ran out.
    TimedOut,
    /// Ended with an error.
    Failed,
    /// Was cancelled.
    Cancelled,
}

/// An error as users see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorInfo {
    /// Machine class, for example `nodeFailed` or `routing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// One or more lines of text.
    pub message: String,
    /// A stack with positions in the author's source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
}

/// Receipt of an action or process, kept also on failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionReceipt {
    /// `function`, `shell` or `agent`.
    pub action_type: String,
    /// Executed program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Its working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Exit code, when it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal name, when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Wall time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Captured standard output, bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Captured standard error, bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Whether standard output lost bytes to its bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stdout_truncated: bool,
    /// Whether standard error lost bytes to its bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stderr_truncated: bool,
}

/// A finished node attempt, as stored and as shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The attempt's id.
    pub attempt_id: String,
    /// Qualified node id.
    pub node_id: String,
    /// What the node is.
    pub node_type: crate::definition::NodeType,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// RFC 3339 UTC with milliseconds.
    pub started_at: String,
    /// RFC 3339 UTC with milliseconds.
    pub finished_at: String,
    /// Prompt of an agent step, else `null`.
    #[serde(default)]
    pub prompt: Value,
    /// Accepted output, `null` unless the outcome is `ok`.
    #[serde(default)]
    pub output: Value,
    /// Error text of an outcome other than `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Receipt of an action or process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionReceipt>,
    /// The visible reply of an assistant-message step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assistant_message: Option<Value>,
    /// First and last Pi entry ids of the step's conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Value>,
    /// Computed one-line detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Active time in milliseconds: without what it waited, and without the sleep of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_ms: Option<u64>,
    /// Ordinal of this visit of the node within the run, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visit: Option<u32>,
}

/// Where a workflow's code comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum SourceRef {
    /// A file and the SHA-256 (hex) of its bytes.
    File {
        /// Absolute path.
        path: String,
        /// Lower-case hex SHA-256 of the bytes.
        hash: String,
    },
    /// Shipped in the binary.
    Builtin {
        /// Its id.
        id: String,
        /// Its revision (hex SHA-256 of the shipped bytes).
        revision: String,
    },
}

/// The root source and every mounted one, frozen at start and verified before each generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceMap {
    /// The started workflow.
    pub root: SourceRef,
    /// Mounted workflows by qualified mount path.
    #[serde(default)]
    pub mounted: Vec<MountedSource>,
    /// Other project modules that the graph imports, in load order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<SourceRef>,
}

/// One mounted source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MountedSource {
    /// Qualified mount path.
    pub mount: String,
    /// Its source.
    pub source: SourceRef,
}

/// A published update: the latest per (type, key) is current.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Update {
    /// `[a-z][a-z0-9.-]{0,63}`.
    #[serde(rename = "type")]
    pub update_type: String,
    /// `[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}`.
    pub key: String,
    /// A JSON object of at most 64 KiB.
    pub data: Value,
}

/// A stored current update with the node that published it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredUpdate {
    /// What was published.
    #[serde(flatten)]
    pub update: Update,
    /// Publishing node.
    pub node_id: String,
    /// Publishing attempt.
    pub attempt_id: String,
    /// Run-wide ordinal of the publication.
    pub seq: u64,
    /// RFC 3339 UTC with milliseconds.
    pub at: String,
    /// For `progress` updates: the server's estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<ProgressEstimate>,
    /// For `progress` updates of running work: units a second, the median of the last measured intervals. Absent until two
    /// intervals are measured. It does not need a total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// When a `progress` update is expected to end, or why nobody can say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ProgressEstimate {
    /// An estimate exists.
    Available {
        /// Expected end, RFC 3339 UTC with milliseconds.
        finish_at: String,
        /// End at the fast quartile of the measured rates; absent for a reported estimate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        earliest_at: Option<String>,
        /// End at the slow quartile; absent for a reported estimate and when the slow quartile stands still.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latest_at: Option<String>,
        /// Where the estimate comes from.
        source: EstimateSource,
        /// How far it can be trusted.
        confidence: EstimateConfidence,
        /// Measured intervals behind it (0 for a reported estimate).
        intervals: u32,
    },
    /// No estimate: "ETA unavailable" and why.
    Unavailable {
        /// One sentence.
        reason: String,
    },
}

/// Where an estimate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EstimateSource {
    /// The publisher reported it.
    Reported,
    /// Measured from the published counts.
    Measured,
}

/// How far an estimate can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum EstimateConfidence {
    Low,
    Medium,
    High,
}
