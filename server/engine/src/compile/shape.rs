//! Rules of one workflow that need no graph: names, bounds, timeouts and what each kind of node needs.

use std::collections::HashSet;

use piw_protocol::definition::{ActionExecution, EffectKind, NodeType};
use serde_json::Value;

use super::Reporter;
use crate::definition::timeout_millis;
use crate::limits;
use crate::names::{check_id, check_workflow_name, shown};
use crate::problem::Rule;
use crate::raw::{RawDefinition, RawNode};

pub(super) fn check(reporter: &mut Reporter<'_>) {
    let raw = reporter.raw;
    if let Err(error) = check_workflow_name(&raw.name) {
        reporter.report(None, Rule::Name, &raw.name, error.to_string());
    }
    names(reporter, raw);
    if let Some(steps) = raw.max_steps
        && super::flatten::whole_steps(steps).is_none()
    {
        let message = format!("maxSteps is {steps}; it must be a whole number from 1 to {}", u32::MAX);
        reporter.report(None, Rule::MaxSteps, "maxSteps", message);
    }
    for node in &raw.nodes {
        let subject = Some(format!("node \"{}\"", shown(&node.id)));
        if let Some(message) = timeout_problem(node) {
            reporter.report(subject.clone(), Rule::Timeout, &node.id, message);
        }
        for message in kind_problems(node) {
            reporter.report(subject.clone(), Rule::NodeShape, &node.id, message);
        }
    }
}

/// Grammar, reserved names and duplicates. Nodes and mounts share one name space, exits have their own.
fn names(reporter: &mut Reporter<'_>, raw: &RawDefinition) {
    let nodes = raw.nodes.iter().map(|node| ("node", node.id.as_str()));
    let mounts = raw.includes.iter().map(|include| ("mount", include.mount.as_str()));
    let mut seen = HashSet::new();
    for (kind, name) in nodes.chain(mounts) {
        name_rule(reporter, kind, name);
        if !seen.insert(name) {
            let message = "the name is used twice; nodes and mounts share one name space".to_owned();
            reporter.report(
                Some(format!("{kind} \"{}\"", shown(name))),
                Rule::Duplicate,
                name,
                message,
            );
        }
    }
    let mut seen = HashSet::new();
    for exit in &raw.exits {
        name_rule(reporter, "exit", &exit.name);
        if !seen.insert(&exit.name) {
            let subject = Some(format!("exit \"{}\"", shown(&exit.name)));
            reporter.report(
                subject,
                Rule::Duplicate,
                &exit.name,
                "the name is used twice".to_owned(),
            );
        }
    }
}

fn name_rule(reporter: &mut Reporter<'_>, kind: &str, name: &str) {
    if let Err(error) = check_id(name) {
        reporter.report(
            Some(format!("{kind} \"{}\"", shown(name))),
            Rule::Name,
            name,
            error.to_string(),
        );
    }
}

fn timeout_problem(node: &RawNode) -> Option<String> {
    let value = node.timeout_ms.as_ref()?;
    let good = match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64().is_some_and(|ms| timeout_millis(ms).is_some()),
        _ => false,
    };
    (!good).then(|| {
        format!(
            "timeoutMs is {}; it must be a positive number of milliseconds up to {}, null, or a callback",
            shown(&crate::canonical_text(value)),
            limits::MAX_TIMEOUT_MS
        )
    })
}

fn kind_problems(node: &RawNode) -> Vec<String> {
    let mut problems = Vec::new();
    let has = |name: &str| node.callbacks.iter().any(|callback| callback == name);
    let mut need = |good: bool, message: &str| {
        if !good {
            problems.push(message.to_owned());
        }
    };
    match node.node_type {
        NodeType::Compute => need(has("run"), "a compute node needs a `run` callback"),
        NodeType::Action => {
            need(node.effect.is_some(), "an action or shell node needs an `effect`");
            match node.action_execution {
                Some(ActionExecution::Function) => need(has("run"), "an action node needs a `run` callback"),
                Some(ActionExecution::Shell) => need(has("exec"), "a shell node needs an `exec` callback"),
                None => need(false, "an action node must say how it executes"),
            }
        }
        NodeType::Notify => {
            let kind = node.notify_kind.as_deref();
            need(
                matches!(kind, Some("progress" | "final")),
                "the `kind` of a notify node is `progress` or `final`",
            );
        }
        NodeType::Agent => need(
            node.expected_output.is_some(),
            "an agent node needs an `expectedOutput`",
        ),
        NodeType::Checkpoint => {}
    }
    if node.node_type != NodeType::Action {
        need(node.effect.is_none(), "only action and shell nodes have an `effect`");
    }
    if let Some(effect) = &node.effect {
        let chars = effect.effect_type.chars().count();
        let plain = !effect.effect_type.chars().any(char::is_control);
        need(
            chars > 0 && chars <= limits::EFFECT_TYPE_CHARS && plain,
            "the type of an effect is a text of 1 to 256 characters without control characters",
        );
        let observes = effect.kind != EffectKind::Observed || has("observe");
        need(observes, "an observed effect needs an `observe` callback");
    }
    problems
}
