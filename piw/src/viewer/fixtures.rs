//! Workflows and runs for tests.

use std::collections::BTreeMap;

use piw_protocol::definition::{
    ActionExecution, DEFINITION_SCHEMA, DefinitionSnapshot, EdgeRoute, EdgeSnapshot, IncludeSnapshot, NodeSnapshot,
    NodeType, SwitchSnapshot,
};

/// A node of the given kind: `c` compute, `s` shell, `f` function, `n` notify, `k` checkpoint, `a` agent.
pub fn node(kind: char) -> NodeSnapshot {
    let (node_type, action_execution) = match kind {
        's' => (NodeType::Action, Some(ActionExecution::Shell)),
        'f' => (NodeType::Action, Some(ActionExecution::Function)),
        'n' => (NodeType::Notify, None),
        'k' => (NodeType::Checkpoint, None),
        'a' => (NodeType::Agent, None),
        _ => (NodeType::Compute, None),
    };
    NodeSnapshot {
        node_type,
        action_execution,
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

/// A definition from `kind:id` words and `from>to` or `from>label=to,label=to` words; the first node is the start.
pub fn definition(name: &str, nodes: &str, edges: &str) -> DefinitionSnapshot {
    let parsed: Vec<(char, &str)> = nodes
        .split_whitespace()
        .map(|word| (word.chars().next().unwrap(), &word[2..]))
        .collect();
    DefinitionSnapshot {
        schema: DEFINITION_SCHEMA.into(),
        name: name.into(),
        start_at: parsed[0].1.into(),
        max_steps: Some(100),
        node_order: parsed.iter().map(|(_, id)| (*id).to_owned()).collect(),
        nodes: parsed
            .iter()
            .map(|(kind, id)| ((*id).to_owned(), node(*kind)))
            .collect(),
        edges: edges.split_whitespace().map(edge).collect(),
        includes: Vec::new(),
        exits: BTreeMap::new(),
        settings: false,
    }
}

fn edge(word: &str) -> EdgeSnapshot {
    let (from, rest) = word.split_once('>').unwrap();
    let route = if rest.contains('=') {
        let cases: Vec<(String, String)> = rest
            .split(',')
            .map(|case| case.split_once('=').unwrap())
            .map(|(label, to)| (label.to_owned(), to.to_owned()))
            .collect();
        EdgeRoute::Switch {
            switch: SwitchSnapshot {
                on: "$.route".into(),
                case_order: cases.iter().map(|case| case.0.clone()).collect(),
                cases: cases.into_iter().collect(),
            },
        }
    } else {
        EdgeRoute::To { to: rest.into() }
    };
    EdgeSnapshot {
        from: from.into(),
        route,
    }
}

/// Ten nodes with a branch and a loop.
pub fn release() -> DefinitionSnapshot {
    definition(
        "release-check",
        "s:inspect c:classify f:fix s:test c:judge n:announce s:publish k:approve n:report c:abandon",
        "inspect>classify classify>clean=test,dirty=fix,broken=abandon fix>test test>judge \
         judge>again=inspect,good=approve,hopeless=abandon approve>yes=publish,no=report publish>announce announce>report",
    )
}

/// A workflow that mounts another one twice, once nested.
pub fn composed() -> DefinitionSnapshot {
    let mut definition = definition(
        "composed",
        "c:prepare s:lint/collect c:lint/decide f:lint/repair s:lint/deep/scan c:lint/deep/rate n:lint/done n:finish c:failed",
        "prepare>lint/collect lint/collect>lint/decide lint/decide>clean=lint/done,dirty=lint/repair,odd=lint/deep/scan \
         lint/repair>lint/collect lint/deep/scan>lint/deep/rate lint/deep/rate>lint/repair lint/done>ok=finish,bad=failed",
    );
    definition.includes = vec![
        include("lint", "lint-project", "lint/collect"),
        include("lint/deep", "scan", "lint/deep/scan"),
    ];
    definition
}

fn include(mount: &str, workflow: &str, start: &str) -> IncludeSnapshot {
    IncludeSnapshot {
        mount: mount.into(),
        workflow_name: workflow.into(),
        start_at: start.into(),
        max_steps: None,
        exits: BTreeMap::new(),
        settings: false,
    }
}
