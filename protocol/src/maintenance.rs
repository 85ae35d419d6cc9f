//! Payloads and receipts of `state.status`, `state.verify`, `state.backup` and `state.prune`.
//!
//! Counts, sizes, states, run ids and reasons; nothing of what the state holds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A broken invariant of the stored state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ViolationReport {
    /// Name of the invariant.
    pub invariant: String,
    /// The run, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// What was found.
    pub detail: String,
}

/// How many runs have a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusCount {
    /// Durable status.
    pub status: String,
    /// Runs.
    pub runs: u64,
}

/// Receipt of `state.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateStatusReport {
    /// Bytes of the database file.
    pub database_bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages of the database.
    pub pages: u64,
    /// Pages of it that hold nothing.
    pub free_pages: u64,
    /// Runs by durable status; statuses without runs are absent.
    pub runs: Vec<StatusCount>,
    /// Trees: root runs with all their continuations and restarts.
    pub trees: u64,
    /// Runs that were removed and whose rows are being purged.
    pub deleted_runs: u64,
    /// Executed steps of all runs.
    pub steps: u64,
    /// Large values in the content store.
    pub contents: u64,
    /// Their bytes.
    pub content_bytes: u64,
    /// Receipts of commands.
    pub receipts: u64,
    /// When the oldest run was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_run: Option<String>,
    /// The last complete retention sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sweep: Option<String>,
    /// The next sweep may begin from then on, once the server is idle.
    pub next_sweep: String,
    /// Why the last sweep failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep_error: Option<String>,
    /// Violated invariants; bounded.
    pub violations: Vec<ViolationReport>,
}

/// Receipt of `state.verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateVerifyReport {
    /// Whether nothing is violated.
    pub sound: bool,
    /// Invariants that were checked.
    pub checks: u64,
    /// All violations; `violations` may hold fewer.
    pub violation_total: u64,
    /// Violations; bounded.
    pub violations: Vec<ViolationReport>,
}

/// Payload of `state.backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateBackup {
    /// Absolute path of a file that does not exist.
    pub path: String,
}

/// Receipt of `state.backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateBackupReport {
    /// Where the backup is.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Lower-case hex SHA-256 of the file.
    pub sha256: String,
    /// When its snapshot was taken.
    pub taken_at: String,
    /// Invariants that the copied state violates; the file itself is whole.
    pub violations: Vec<ViolationReport>,
}

/// Payload of `state.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatePrune {
    /// Trees whose last run ended before this RFC 3339 instant, which must not lie in the future.
    pub before: String,
    /// Delete them. Without it they are only counted.
    #[serde(default)]
    pub apply: bool,
    /// Absolute path of the backup that is made before anything is deleted; needed exactly with `apply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
}

/// A tree that goes or went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrunedTree {
    /// Its root run.
    pub run_id: String,
    /// Its runs.
    pub runs: u64,
    /// When its last run ended.
    pub finished_at: String,
}

/// Trees that stay although their root ended before the instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptTrees {
    /// What protects them.
    pub reason: String,
    /// How many.
    pub trees: u64,
}

/// Receipt of `state.prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePruneReport {
    /// The instant.
    pub before: String,
    /// Whether they were deleted. Their rows are purged while the server is idle.
    pub applied: bool,
    /// Trees that go or went.
    pub trees: u64,
    /// Their runs.
    pub runs: u64,
    /// Their steps.
    pub steps: u64,
    /// The first of them.
    pub first: Vec<PrunedTree>,
    /// Trees that stay, by what protects them.
    pub kept: Vec<KeptTrees>,
    /// The backup that was made before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<StateBackupReport>,
}
