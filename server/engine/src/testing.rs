//! Workflows for tests: a builder, and random ones that keep every rule.

use piw_protocol::definition::{ActionExecution, EffectKind, EffectSnapshot, NodeType};
use piw_protocol::run::SourceRef;

use crate::raw::{RawDefinition, RawEdge, RawExit, RawInclude, RawNode, RawSwitch};

pub(crate) const SHELL: ActionExecution = ActionExecution::Shell;

pub(crate) fn workflow(name: &str, start: &str) -> RawDefinition {
    RawDefinition {
        name: name.to_owned(),
        source: SourceRef::File {
            path: format!("/w/{name}.workflow.ts"),
            hash: "0".repeat(64),
        },
        contract_id: None,
        start_at: start.to_owned(),
        max_steps: None,
        has_input: false,
        title: None,
        has_title: false,
        nodes: Vec::new(),
        edges: Vec::new(),
        includes: Vec::new(),
        exits: Vec::new(),
        has_settings: false,
    }
}

pub(crate) fn node(id: &str, node_type: NodeType) -> RawNode {
    let action = node_type == NodeType::Action;
    RawNode {
        action_execution: action.then_some(ActionExecution::Function),
        effect: action.then(|| EffectSnapshot {
            kind: EffectKind::Idempotent,
            effect_type: "test".to_owned(),
        }),
        expected_output: (node_type == NodeType::Agent).then(|| "JSON".into()),
        notify_kind: (node_type == NodeType::Notify).then(|| "progress".to_owned()),
        callbacks: vec!["run".to_owned()],
        ..RawNode::new(id, node_type)
    }
}

impl RawDefinition {
    pub(crate) fn with(mut self, id: &str, node_type: NodeType) -> Self {
        self.nodes.push(node(id, node_type));
        self
    }

    pub(crate) fn computes(self, ids: &[&str]) -> Self {
        ids.iter().fold(self, |raw, id| raw.with(id, NodeType::Compute))
    }

    pub(crate) fn edge(mut self, from: &str, to: &str) -> Self {
        self.edges.push(RawEdge {
            from: from.to_owned(),
            to: Some(to.to_owned()),
            switch: None,
        });
        self
    }

    pub(crate) fn switch(mut self, from: &str, on: &str, cases: &[(&str, &str)]) -> Self {
        let cases = cases
            .iter()
            .map(|(label, to)| ((*label).to_owned(), (*to).to_owned()))
            .collect();
        let switch = Some(RawSwitch {
            on: on.to_owned(),
            cases,
        });
        self.edges.push(RawEdge {
            from: from.to_owned(),
            to: None,
            switch,
        });
        self
    }

    pub(crate) fn mount(mut self, name: &str, child: Self) -> Self {
        self.includes.push(RawInclude {
            mount: name.to_owned(),
            has_input: true,
            definition: Box::new(child),
        });
        self
    }

    pub(crate) fn exit(mut self, name: &str, node: &str) -> Self {
        self.exits.push(RawExit {
            name: name.to_owned(),
            node: node.to_owned(),
            has_validate: true,
        });
        self
    }

    pub(crate) fn max_steps(mut self, steps: f64) -> Self {
        self.max_steps = Some(steps);
        self
    }
}

/// A small deterministic generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Choices(u64);

impl Choices {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// A random workflow that keeps every rule: a backbone of nodes and mounts, terminals behind its last part, switches that
/// jump anywhere, exits on some terminals (nested ones among them).
pub(crate) fn random_workflow(choices: &mut Choices, depth: usize, name: &str) -> RawDefinition {
    const LABELS: [&str; 4] = ["a", "b", "true", "7"];
    let mut raw = workflow(name, "");
    if choices.chance(2) {
        raw.max_steps = Some(f64::from(u32::try_from(1 + choices.below(40)).unwrap()));
    }
    let mut units = Vec::new();
    for index in 0..1 + choices.below(4) {
        let id = format!("n{index}");
        let kinds = [
            NodeType::Compute,
            NodeType::Action,
            NodeType::Notify,
            NodeType::Checkpoint,
        ];
        raw = raw.with(&id, *choices.pick(&kinds));
        units.push(id);
    }
    if depth > 0 {
        for index in 0..choices.below(3) {
            let mount = format!("m{index}");
            let child = random_workflow(choices, depth - 1, &format!("{name}-{index}"));
            raw = raw.mount(&mount, child);
            units.insert(choices.below(units.len() + 1), mount);
        }
    }
    raw.start_at.clone_from(&units[0]);
    let terminals: Vec<String> = (0..1 + choices.below(3)).map(|index| format!("t{index}")).collect();
    for terminal in &terminals {
        let kind = if choices.chance(4) {
            NodeType::Checkpoint
        } else {
            NodeType::Compute
        };
        raw = raw.with(terminal, kind);
    }
    let all: Vec<String> = units.iter().chain(&terminals).cloned().collect();
    let mut open_exits = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        // What must stay reachable behind this part: the next one, or every terminal.
        let must = if at + 1 == units.len() {
            terminals.clone()
        } else {
            vec![units[at + 1].clone()]
        };
        let include = raw.includes.iter().find(|include| include.mount == *unit);
        let sources = match include {
            None => vec![unit.clone()],
            Some(include) => include
                .definition
                .exits
                .iter()
                .map(|exit| format!("{unit}.{}", exit.name))
                .collect(),
        };
        for (nth, source) in sources.iter().enumerate() {
            if nth > 0 && choices.chance(2) {
                open_exits.push(source.clone());
                continue;
            }
            let must: &[String] = if nth == 0 { &must } else { &[] };
            if must.len() == 1 && choices.chance(3) {
                raw = raw.edge(source, &must[0]);
                continue;
            }
            let outcomes = choices.chance(3);
            let labels: &[&str] = if outcomes {
                &["ok", "failed", "timed_out"]
            } else {
                &LABELS
            };
            let on = if outcomes {
                "$result.outcome"
            } else {
                *choices.pick(&["$.r", "$output.r", "$result.output.r"])
            };
            let mut cases: Vec<(String, String)> = Vec::new();
            for (index, target) in must.iter().enumerate() {
                cases.push((labels[index].to_owned(), target.clone()));
            }
            for label in &labels[must.len()..] {
                if cases.is_empty() || !choices.chance(12) {
                    cases.push(((*label).to_owned(), choices.pick(&all).clone()));
                }
            }
            let cases: Vec<(&str, &str)> = cases.iter().map(|(label, to)| (label.as_str(), to.as_str())).collect();
            raw = raw.switch(source, on, &cases);
        }
    }
    let candidates: Vec<String> = terminals.into_iter().chain(open_exits).collect();
    for (index, candidate) in candidates.iter().enumerate() {
        if index == 0 || choices.chance(2) {
            raw = raw.exit(&format!("x{index}"), candidate);
        }
    }
    raw
}
