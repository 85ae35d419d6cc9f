//! Side effects as clients see and settle them: `effect.list`, `effect.resolve`, and the review in a run view.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::child::EffectSettlement;
use crate::definition::EffectKind;
use crate::ops::RunReceipt;
use crate::run::RunStatus;

/// Most effects of one `effect.list`.
pub const EFFECT_PAGE: u32 = 64;
/// Most effects in the review of a run view.
pub const REVIEW_ITEMS: u32 = 16;

/// State of a stored effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EffectState {
    /// To be tried (again).
    Pending,
    /// Reserved by an attempt that may be applying it.
    Applying,
    /// It happened.
    Applied,
    /// It provably did not happen.
    Rejected,
    /// It was cancelled before it was applied, or given up by a person.
    Cancelled,
    /// Only a person can say.
    Ambiguous,
}

impl EffectState {
    /// The word on the wire and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Ambiguous => "ambiguous",
        }
    }

    /// Whether no automatic try follows.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::Pending | Self::Applying)
    }
}

impl From<EffectSettlement> for EffectState {
    fn from(settlement: EffectSettlement) -> Self {
        match settlement {
            EffectSettlement::Applied => Self::Applied,
            EffectSettlement::Rejected => Self::Rejected,
            EffectSettlement::Cancelled => Self::Cancelled,
            EffectSettlement::Ambiguous => Self::Ambiguous,
            EffectSettlement::Pending => Self::Pending,
        }
    }
}

/// An effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectView {
    /// The engine-made key: what code sees as `effect.key` and commands as `PIW_EFFECT_KEY`.
    pub effect_id: String,
    /// The run.
    pub run_id: String,
    /// The workflow's name.
    pub workflow_name: String,
    /// Durable status of the run.
    pub run_status: RunStatus,
    /// Execution revision of the run: what `effect.resolve` names in `expectedRevision`.
    pub revision: u64,
    /// Qualified id of the node that declares it.
    pub node: String,
    /// Ordinal of the node's visit, from 1.
    pub visit: u32,
    /// The author's type.
    pub effect_type: String,
    /// How uncertainty is resolved.
    pub kind: EffectKind,
    /// Where it stands.
    pub state: EffectState,
    /// Ordinal of the newest try, from 1.
    pub attempt: u32,
    /// When it was reserved first, RFC 3339 UTC with milliseconds.
    pub reserved_at: String,
    /// When the newest try began, RFC 3339 UTC with milliseconds.
    pub attempted_at: String,
    /// Who or what settled the newest try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Its node's visit has not finished: `retry` applies it again. Otherwise `retry` only gives it up.
    pub unfinished: bool,
}

/// The effects of a run that a person has to settle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Review {
    /// Ambiguous effects of the run.
    pub total: u64,
    /// The oldest of them, at most [`REVIEW_ITEMS`].
    pub effects: Vec<EffectView>,
}

/// Payload of `effect.list`; the envelope's `runId` limits it to one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectList {
    /// Effects in every state, not only ambiguous ones; needs a run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Only this effect, or effects whose ids begin so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect_id: Option<String>,
    /// Index of the first wanted effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Wanted effects, default and maximum [`EFFECT_PAGE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Receipt of `effect.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectListReport {
    /// Index of the first effect.
    pub start: u64,
    /// Effects that match in all.
    pub total: u64,
    /// Oldest first.
    pub effects: Vec<EffectView>,
}

/// What a person says of an ambiguous effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EffectDecision {
    /// It happened: it is not tried again, and the node goes on with the given result.
    Confirm,
    /// Try it again as a new numbered attempt and accept that it may happen twice.
    Retry,
}

/// Payload of `effect.resolve`; the envelope names the run and, in `expectedRevision`, what the person saw of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectResolve {
    /// The effect.
    pub effect_id: String,
    /// The decision.
    pub decision: EffectDecision,
    /// Of a confirmation: what the effect gave. Becomes the node's output; of a command with `parse` it is not parsed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
}

/// Receipt of `effect.resolve`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectReceipt {
    /// The effect.
    pub effect_id: String,
    /// Where it stands now: `applied` when confirmed, `pending` when it is tried again, `cancelled` when it was given up.
    pub state: EffectState,
    /// The run after the command; its `message` says what follows.
    #[serde(flatten)]
    pub run: RunReceipt,
}
