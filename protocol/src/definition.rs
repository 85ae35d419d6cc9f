//! The definition snapshot: a resolved workflow graph as plain data, with every include mounted in place.
//!
//! Canonical JSON sorts object keys, so document order travels beside the maps: [`DefinitionSnapshot::node_order`] and
//! [`EdgeRoute::Switch`]'s `case_order` (decision 7). Drawing, session rows and "definition order" use them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Schema name of a definition snapshot.
pub const DEFINITION_SCHEMA: &str = "pi-workflows.definition-snapshot.v1";

/// A resolved workflow graph. Node ids are qualified (`mount/child/node`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionSnapshot {
    /// Always [`DEFINITION_SCHEMA`].
    pub schema: String,
    /// The workflow's declared name.
    pub name: String,
    /// Qualified id of the first node.
    pub start_at: String,
    /// Loop bound of the root workflow: the number of node visits after which a run fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Every node id in document order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_order: Vec<String>,
    /// Nodes by qualified id.
    pub nodes: BTreeMap<String, NodeSnapshot>,
    /// At most one outgoing edge per node, in document order.
    pub edges: Vec<EdgeSnapshot>,
    /// Mounted workflows in document order, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<IncludeSnapshot>,
    /// The root workflow's named exits, by exit name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exits: BTreeMap<String, ExitSnapshot>,
    /// Whether the root workflow declares live settings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settings: bool,
}

/// What a node is. The closed list of node kinds an author can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeType {
    /// A model step.
    Agent,
    /// Pure code.
    Compute,
    /// Code with a declared side effect, or (with [`ActionExecution::Shell`]) a process.
    Action,
    /// A durable passive message.
    Notify,
    /// Waits for an answer, or for a protected human decision.
    Checkpoint,
}

/// How an action node executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ActionExecution {
    /// The node's `run` callback.
    Function,
    /// A process described by the node's `exec` callback.
    Shell,
}

/// The declared kind of a side effect (`idempotentEffect`, `observedEffect`, `manualEffect`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EffectKind {
    /// A repeat with the same key is safe.
    Idempotent,
    /// A read-back check proves whether it was applied.
    Observed,
    /// Nothing can prove whether it was applied.
    Manual,
}

/// A declared side effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectSnapshot {
    /// How uncertainty is resolved.
    pub kind: EffectKind,
    /// The author's name for the effect, part of the engine-made key.
    #[serde(rename = "type")]
    pub effect_type: String,
}

/// A node as data. Presence flags say which callbacks the source declares; the callbacks live in the script host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSnapshot {
    /// What the node is.
    pub node_type: NodeType,
    /// For action nodes: how it executes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_execution: Option<ActionExecution>,
    /// For action nodes: the declared side effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectSnapshot>,
    /// A static one-line detail; absent when computed by a callback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Timeout in milliseconds of active time; `null` is none, absent means the default or a callback.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "double_option")]
    #[schemars(with = "Option<f64>")]
    pub timeout_ms: Option<Option<f64>>,
    /// For checkpoints and human decisions: the declared summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// For protected decisions: audience, choices and timeout policy as declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub human_decision: Option<Value>,
    /// For agent nodes: what the model is asked to submit, as declared (a text or an assistant-message form).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<Value>,
    /// For agent nodes: the tools the model may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// For notify nodes: `progress` or `final`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify_kind: Option<String>,
    /// Names of declared callbacks (`run`, `exec`, `parse`, `validate`, `timeoutMs`, …), sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<String>,
}

impl NodeSnapshot {
    /// Whether an agent node asks for one visible reply instead of submitted JSON.
    #[must_use]
    pub fn replies_visibly(&self) -> bool {
        let form = self.expected_output.as_ref().and_then(|expected| expected.get("type"));
        form.and_then(Value::as_str) == Some("assistantMessage")
    }
}

/// One outgoing edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EdgeSnapshot {
    /// Qualified id of the source node.
    pub from: String,
    /// Where it leads.
    #[serde(flatten)]
    pub route: EdgeRoute,
}

/// Where an edge leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EdgeRoute {
    /// Always to one node.
    To {
        /// Qualified id of the target.
        to: String,
    },
    /// By a value.
    Switch {
        /// The value and its cases.
        switch: SwitchSnapshot,
    },
}

/// A switch: the case whose label equals the value at `on` is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchSnapshot {
    /// `$.a.b`, `$output.a.b` or `$result.outcome`.
    pub on: String,
    /// Targets by label.
    pub cases: BTreeMap<String, String>,
    /// Labels in document order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub case_order: Vec<String>,
}

/// A mounted workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncludeSnapshot {
    /// Qualified mount path (`mount/child`).
    pub mount: String,
    /// The mounted workflow's name.
    pub workflow_name: String,
    /// Qualified id of the mounted workflow's first node.
    pub start_at: String,
    /// The mounted workflow's own loop bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Exits of the mounted workflow by exit name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exits: BTreeMap<String, ExitSnapshot>,
    /// Whether the mounted workflow declares live settings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settings: bool,
}

/// A named successful end of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExitSnapshot {
    /// Qualified id of the terminal node.
    pub node: String,
    /// Whether the exit declares a `validate` callback.
    #[serde(default)]
    pub validates: bool,
}

/// Serde for a field whose `null` differs from its absence.
pub(crate) mod double_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &Option<Option<T>>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(inner) => inner.serialize(to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Option::<T>::deserialize(from).map(Some)
    }
}
