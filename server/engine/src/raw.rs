//! What a script host reports of a loaded workflow module, before any graph rule is checked.
//!
//! Callbacks stay in the host; this tree names which ones exist. Maps that JavaScript orders by insertion are vectors here,
//! so document order survives.

use piw_protocol::definition::{ActionExecution, EffectSnapshot, NodeType};
use piw_protocol::run::SourceRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One workflow as written, includes nested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawDefinition {
    /// Declared name.
    pub name: String,
    /// File or built-in that declared it.
    pub source: SourceRef,
    /// Identity of the input-and-exit contract.
    #[serde(default)]
    pub contract_id: Option<String>,
    /// Local id of the first node, or a mount name.
    pub start_at: String,
    /// Loop bound.
    #[serde(default)]
    pub max_steps: Option<f64>,
    /// Whether an `input` callback exists.
    #[serde(default)]
    pub has_input: bool,
    /// Static title.
    #[serde(default)]
    pub title: Option<String>,
    /// Whether a `title` callback exists.
    #[serde(default)]
    pub has_title: bool,
    /// Nodes in document order.
    pub nodes: Vec<RawNode>,
    /// Edges in document order.
    pub edges: Vec<RawEdge>,
    /// Mounts in document order.
    #[serde(default)]
    pub includes: Vec<RawInclude>,
    /// Exits in document order.
    #[serde(default)]
    pub exits: Vec<RawExit>,
    /// Whether live settings are declared.
    #[serde(default)]
    pub has_settings: bool,
}

/// One node as written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawNode {
    /// Local id.
    pub id: String,
    /// Kind.
    pub node_type: NodeType,
    /// For actions.
    #[serde(default)]
    pub action_execution: Option<ActionExecution>,
    /// For actions.
    #[serde(default)]
    pub effect: Option<EffectSnapshot>,
    /// Static detail.
    #[serde(default)]
    pub status_detail: Option<String>,
    /// `null`, a number, or absent (default, or a callback in `callbacks`).
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub timeout_ms: Option<Value>,
    /// For checkpoints.
    #[serde(default)]
    pub summary: Option<String>,
    /// For protected decisions, as declared, callbacks removed.
    #[serde(default)]
    pub human_decision: Option<Value>,
    /// For agents.
    #[serde(default)]
    pub expected_output: Option<Value>,
    /// For agents.
    #[serde(default)]
    pub allowed_tools: Option<Vec<String>>,
    /// For notify.
    #[serde(default)]
    pub notify_kind: Option<String>,
    /// Names of the callbacks that exist, sorted.
    #[serde(default)]
    pub callbacks: Vec<String>,
}

impl RawNode {
    /// A node of which nothing but the kind is declared.
    #[must_use]
    pub fn new(id: impl Into<String>, node_type: NodeType) -> Self {
        Self {
            id: id.into(),
            node_type,
            action_execution: None,
            effect: None,
            status_detail: None,
            timeout_ms: None,
            summary: None,
            human_decision: None,
            expected_output: None,
            allowed_tools: None,
            notify_kind: None,
            callbacks: Vec::new(),
        }
    }
}

/// One edge as written; exactly one of `to` and `switch`. `from` is a node id or `<mount>.<exit>`; targets are node ids
/// or mount names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawEdge {
    /// Source.
    pub from: String,
    /// Fixed target.
    #[serde(default)]
    pub to: Option<String>,
    /// Switch.
    #[serde(default)]
    pub switch: Option<RawSwitch>,
}

/// A switch as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawSwitch {
    /// Path expression.
    pub on: String,
    /// Label and target, in document order.
    pub cases: Vec<(String, String)>,
}

/// One mount as written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawInclude {
    /// Local mount name.
    pub mount: String,
    /// Whether an `input` mapping callback exists.
    #[serde(default)]
    pub has_input: bool,
    /// The mounted workflow.
    pub definition: Box<RawDefinition>,
}

/// One exit as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawExit {
    /// Exit name.
    pub name: String,
    /// Local id of the terminal node.
    pub node: String,
    /// Whether a `validate` callback exists.
    #[serde(default)]
    pub has_validate: bool,
}

/// Reads a field that is there, so that `null` differs from its absence.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}
