//! Mounts every include in place: one graph with qualified ids, in document order (a workflow's own nodes, then those of its
//! mounts). Works on a checked tree; a name that still does not resolve is reported, never skipped.

use std::collections::BTreeMap;

use piw_protocol::definition::{
    DEFINITION_SCHEMA, DefinitionSnapshot, EdgeRoute, EdgeSnapshot, ExitSnapshot, IncludeSnapshot, NodeSnapshot,
    SwitchSnapshot,
};
use serde_json::Value;

use super::boxed;
use crate::limits;
use crate::names::{qualify, shown};
use crate::problem::{GraphProblem, Rule};
use crate::raw::{RawDefinition, RawEdge, RawNode};

type Flat<T> = Result<T, Box<GraphProblem>>;

pub(super) fn flatten(raw: &RawDefinition) -> Flat<DefinitionSnapshot> {
    let mut snapshot = DefinitionSnapshot {
        schema: DEFINITION_SCHEMA.to_owned(),
        name: raw.name.clone(),
        start_at: entry(raw, "", &raw.start_at)?,
        max_steps: raw.max_steps.and_then(whole_steps),
        node_order: Vec::new(),
        nodes: BTreeMap::new(),
        edges: Vec::new(),
        includes: Vec::new(),
        exits: exits(raw, "")?,
        settings: raw.has_settings,
    };
    add(raw, "", &mut snapshot)?;
    Ok(snapshot)
}

/// `maxSteps` as a whole number, when it is one from 1 up.
pub(super) fn whole_steps(steps: f64) -> Option<u32> {
    let whole = steps.fract() == 0.0 && steps >= 1.0 && steps <= f64::from(u32::MAX);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was just checked"
    )]
    whole.then_some(steps as u32)
}

fn add(raw: &RawDefinition, mount: &str, snapshot: &mut DefinitionSnapshot) -> Flat<()> {
    for node in &raw.nodes {
        let id = bounded(raw, mount, "node", &node.id)?;
        snapshot.node_order.push(id.clone());
        snapshot.nodes.insert(id, node_snapshot(node));
    }
    for edge in &raw.edges {
        let from = source(raw, mount, &edge.from)?;
        snapshot.edges.push(EdgeSnapshot {
            from,
            route: route(raw, mount, edge)?,
        });
    }
    for include in &raw.includes {
        let path = bounded(raw, mount, "mount", &include.mount)?;
        let child = &include.definition;
        snapshot.includes.push(IncludeSnapshot {
            mount: path.clone(),
            workflow_name: child.name.clone(),
            start_at: entry(child, &path, &child.start_at)?,
            max_steps: child.max_steps.and_then(whole_steps),
            exits: exits(child, &path)?,
            settings: child.has_settings,
        });
        add(child, &path, snapshot)?;
    }
    Ok(())
}

fn bounded(raw: &RawDefinition, mount: &str, kind: &str, name: &str) -> Flat<String> {
    let id = qualify(mount, name);
    if id.len() > limits::ID_BYTES {
        let message = format!(
            "the qualified id has {} bytes; at most {} are allowed",
            id.len(),
            limits::ID_BYTES
        );
        return Err(boxed(
            raw,
            mount,
            Some(format!("{kind} \"{}\"", shown(name))),
            Rule::Name,
            name,
            message,
        ));
    }
    Ok(id)
}

fn node_snapshot(node: &RawNode) -> NodeSnapshot {
    NodeSnapshot {
        node_type: node.node_type,
        action_execution: node.action_execution,
        effect: node.effect.clone(),
        status_detail: node.status_detail.clone(),
        timeout_ms: node.timeout_ms.as_ref().map(Value::as_f64),
        summary: node.summary.clone(),
        human_decision: node.human_decision.clone(),
        expected_output: node.expected_output.clone(),
        allowed_tools: node.allowed_tools.clone(),
        notify_kind: node.notify_kind.clone(),
        callbacks: sorted(&node.callbacks),
    }
}

fn sorted(names: &[String]) -> Vec<String> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    names
}

fn route(raw: &RawDefinition, mount: &str, edge: &RawEdge) -> Flat<EdgeRoute> {
    if let Some(to) = &edge.to {
        return Ok(EdgeRoute::To {
            to: entry(raw, mount, to)?,
        });
    }
    let Some(switch) = &edge.switch else {
        let message = "an edge needs `to` or `switch`".to_owned();
        return Err(boxed(raw, mount, None, Rule::EdgeShape, &edge.from, message));
    };
    let cases = switch
        .cases
        .iter()
        .map(|(label, to)| Ok((label.clone(), entry(raw, mount, to)?)))
        .collect::<Flat<BTreeMap<_, _>>>()?;
    let case_order = switch.cases.iter().map(|(label, _)| label.clone()).collect();
    Ok(EdgeRoute::Switch {
        switch: SwitchSnapshot {
            on: switch.on.clone(),
            cases,
            case_order,
        },
    })
}

/// Qualified id of the node at which a node or mount name is entered.
fn entry(raw: &RawDefinition, mount: &str, name: &str) -> Flat<String> {
    if let Some(include) = raw.includes.iter().find(|include| include.mount == name) {
        let child = &include.definition;
        return entry(child, &qualify(mount, name), &child.start_at);
    }
    if raw.nodes.iter().any(|node| node.id == name) {
        return Ok(qualify(mount, name));
    }
    let message = format!("\"{}\" is no node and no mount", shown(name));
    Err(boxed(raw, mount, None, Rule::UnknownTarget, name, message))
}

/// Qualified id of the node that an edge or exit leaves: a node, or the node behind `<mount>.<exit>`.
fn source(raw: &RawDefinition, mount: &str, name: &str) -> Flat<String> {
    let Some((child_mount, exit_name)) = name.split_once('.') else {
        return Ok(qualify(mount, name));
    };
    let child = raw
        .includes
        .iter()
        .find(|include| include.mount == child_mount)
        .map(|include| &include.definition);
    let exit = child.and_then(|child| child.exits.iter().find(|exit| exit.name == exit_name));
    match (child, exit) {
        (Some(child), Some(exit)) => source(child, &qualify(mount, child_mount), &exit.node),
        _ => {
            let message = format!("\"{}\" names no exit of a mount", shown(name));
            Err(boxed(raw, mount, None, Rule::UnknownExit, name, message))
        }
    }
}

fn exits(raw: &RawDefinition, mount: &str) -> Flat<BTreeMap<String, ExitSnapshot>> {
    raw.exits
        .iter()
        .map(|exit| {
            let node = source(raw, mount, &exit.node)?;
            Ok((
                exit.name.clone(),
                ExitSnapshot {
                    node,
                    validates: exit.has_validate,
                },
            ))
        })
        .collect()
}
