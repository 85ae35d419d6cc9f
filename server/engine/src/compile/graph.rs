//! Rules of one workflow's graph: start, edges, exits, reachability. Mounted workflows are seen by their exits only.

use std::collections::{HashMap, HashSet};

use super::Reporter;
use crate::names::shown;
use crate::problem::Rule;
use crate::raw::{RawDefinition, RawEdge, RawSwitch};
use crate::route::PathExpr;

pub(super) fn check(reporter: &mut Reporter<'_>) {
    let names = Names::of(reporter.raw);
    let mut clean = start(reporter, &names);
    clean &= edges(reporter, &names);
    exits(reporter, &names);
    // After a wrong target everything behind it would be reported as unreachable too.
    if clean {
        reachable(reporter, &names);
    }
}

/// Names of a workflow.
struct Names<'a> {
    nodes: HashSet<&'a str>,
    /// Exits by mount.
    mounts: HashMap<&'a str, Vec<&'a str>>,
}

/// What the source of an edge or an exit names.
enum Source<'a> {
    Node(&'a str),
    MountExit(&'a str),
}

impl<'a> Names<'a> {
    fn of(raw: &'a RawDefinition) -> Self {
        let exits = |definition: &'a RawDefinition| definition.exits.iter().map(|exit| exit.name.as_str()).collect();
        Self {
            nodes: raw.nodes.iter().map(|node| node.id.as_str()).collect(),
            mounts: raw
                .includes
                .iter()
                .map(|include| (include.mount.as_str(), exits(&include.definition)))
                .collect(),
        }
    }

    fn is_target(&self, name: &str) -> bool {
        self.nodes.contains(name) || self.mounts.contains_key(name)
    }

    /// Resolves `<node>` or `<mount>.<exit>`.
    fn source(&self, text: &'a str) -> Result<Source<'a>, (Rule, String)> {
        if self.nodes.contains(text) {
            return Ok(Source::Node(text));
        }
        if let Some(exits) = self.mounts.get(text) {
            let message = format!(
                "\"{text}\" is a mount: name an exit, as \"{text}.<exit>\" ({})",
                known(exits)
            );
            return Err((Rule::UnknownExit, message));
        }
        let Some((mount, exit)) = text.split_once('.') else {
            return Err((
                Rule::UnknownSource,
                format!("\"{}\" is no node and no mount", shown(text)),
            ));
        };
        match self.mounts.get(mount) {
            Some(exits) if exits.contains(&exit) => Ok(Source::MountExit(mount)),
            Some(exits) => {
                let message = format!("mount \"{mount}\" has no exit \"{}\" ({})", shown(exit), known(exits));
                Err((Rule::UnknownExit, message))
            }
            None => Err((
                Rule::UnknownSource,
                format!("\"{}\" names no mount of this workflow", shown(text)),
            )),
        }
    }
}

fn known(exits: &[&str]) -> String {
    if exits.is_empty() {
        "it has no exits".to_owned()
    } else {
        format!("exits: {}", exits.join(", "))
    }
}

fn start(reporter: &mut Reporter<'_>, names: &Names<'_>) -> bool {
    let start = &reporter.raw.start_at;
    let good = names.is_target(start);
    if !good {
        let message = if start.is_empty() {
            "startAt is missing".to_owned()
        } else {
            format!("startAt \"{}\" is no node and no mount", shown(start))
        };
        reporter.report(None, Rule::MissingStart, start, message);
    }
    good
}

fn edges(reporter: &mut Reporter<'_>, names: &Names<'_>) -> bool {
    let raw = reporter.raw;
    let mut clean = true;
    let mut sources = HashSet::new();
    for edge in &raw.edges {
        let subject = Some(format!("edge from \"{}\"", shown(&edge.from)));
        let mut report = |rule, value: &str, message| {
            clean = false;
            reporter.report(subject.clone(), rule, value, message);
        };
        if let Err((rule, message)) = names.source(&edge.from) {
            report(rule, &edge.from, message);
        }
        if !sources.insert(edge.from.as_str()) {
            let message = "a second edge leaves here; one edge with a switch can choose".to_owned();
            report(Rule::TwoEdges, &edge.from, message);
        }
        match (&edge.to, &edge.switch) {
            (Some(_), None) => {}
            (None, Some(switch)) => {
                for (rule, value, message) in switch_problems(switch) {
                    report(rule, &value, message);
                }
            }
            (Some(_), Some(_)) => report(
                Rule::EdgeShape,
                &edge.from,
                "an edge has `to` or `switch`, not both".to_owned(),
            ),
            (None, None) => report(Rule::EdgeShape, &edge.from, "an edge needs `to` or `switch`".to_owned()),
        }
        for (case, target) in targets(edge) {
            if !names.is_target(target) {
                report(Rule::UnknownTarget, target, unknown_target(names, case, target));
            }
        }
    }
    clean
}

/// Targets of an edge with the labels that lead there.
fn targets(edge: &RawEdge) -> impl Iterator<Item = (Option<&str>, &str)> {
    let fixed = edge.to.iter().map(|to| (None, to.as_str()));
    let cases = edge.switch.iter().flat_map(|switch| &switch.cases);
    fixed.chain(cases.map(|(label, to)| (Some(label.as_str()), to.as_str())))
}

fn unknown_target(names: &Names<'_>, case: Option<&str>, target: &str) -> String {
    let which = case
        .map(|label| format!("case \"{}\": ", shown(label)))
        .unwrap_or_default();
    let hint = match target.split_once('.') {
        Some((mount, _)) if names.mounts.contains_key(mount) => format!("; enter the mount as \"{mount}\""),
        _ => String::new(),
    };
    format!("{which}target \"{}\" is no node and no mount{hint}", shown(target))
}

fn switch_problems(switch: &RawSwitch) -> Vec<(Rule, String, String)> {
    let mut problems = Vec::new();
    if let Err(error) = PathExpr::parse(&switch.on) {
        problems.push((Rule::SwitchPath, switch.on.clone(), error.to_string()));
    }
    if switch.cases.is_empty() {
        let message = format!("the switch on \"{}\" has no cases", shown(&switch.on));
        problems.push((Rule::EmptyCases, switch.on.clone(), message));
    }
    let mut seen = HashSet::new();
    for (label, _) in &switch.cases {
        if !seen.insert(label) {
            let message = format!("case \"{}\" is listed twice", shown(label));
            problems.push((Rule::Duplicate, label.clone(), message));
        }
    }
    problems
}

fn exits(reporter: &mut Reporter<'_>, names: &Names<'_>) {
    let raw = reporter.raw;
    let leaving: HashSet<&str> = raw.edges.iter().map(|edge| edge.from.as_str()).collect();
    let mut used: HashMap<&str, &str> = HashMap::new();
    for exit in &raw.exits {
        let subject = Some(format!("exit \"{}\"", shown(&exit.name)));
        let node = exit.node.as_str();
        let message = match names.source(node) {
            Err((_, message)) => Some(message),
            Ok(_) if leaving.contains(node) => {
                Some(format!("\"{}\" is no terminal node: an edge leaves it", shown(node)))
            }
            Ok(_) => used.insert(node, &exit.name).map(|other| {
                format!(
                    "\"{}\" already is the exit \"{}\"; a node is one exit",
                    shown(node),
                    shown(other)
                )
            }),
        };
        if let Some(message) = message {
            reporter.report(subject, Rule::Exit, node, message);
        }
    }
}

/// Every node and mount can be reached from the start. The exits of a reached mount all count as taken.
fn reachable(reporter: &mut Reporter<'_>, names: &Names<'_>) {
    let raw = reporter.raw;
    let mut leads: HashMap<&str, Vec<&str>> = HashMap::new();
    for edge in &raw.edges {
        let Ok(Source::Node(from) | Source::MountExit(from)) = names.source(&edge.from) else {
            continue;
        };
        leads.entry(from).or_default().extend(targets(edge).map(|(_, to)| to));
    }
    let mut reached = HashSet::from([raw.start_at.as_str()]);
    let mut open = vec![raw.start_at.as_str()];
    while let Some(name) = open.pop() {
        for &to in leads.get(name).into_iter().flatten() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    let nodes = raw.nodes.iter().map(|node| ("node", node.id.as_str()));
    let mounts = raw.includes.iter().map(|include| ("mount", include.mount.as_str()));
    for (kind, name) in nodes.chain(mounts) {
        if !reached.contains(name) {
            let message = format!("nothing leads here from startAt \"{}\"", shown(&raw.start_at));
            reporter.report(
                Some(format!("{kind} \"{}\"", shown(name))),
                Rule::Unreachable,
                name,
                message,
            );
        }
    }
}
