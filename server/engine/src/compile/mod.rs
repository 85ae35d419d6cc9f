//! From what an author wrote to a checked [`Definition`]: every rule is checked, then includes are flattened.
//!
//! All problems are reported, not the first one only. Each workflow of the tree is checked by itself (`shape`, `graph`); the
//! tree is checked here (cycles, depth, size).

mod flatten;
mod graph;
mod shape;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use piw_protocol::run::SourceRef;

use crate::definition::Definition;
use crate::limits;
use crate::names::qualify;
use crate::problem::{GraphProblem, Rule, source_label};
use crate::raw::RawDefinition;

/// Checks every shape and graph rule and flattens includes.
///
/// # Errors
/// Every problem found (at most [`limits::PROBLEMS`]), each naming file, subject, rule and value.
pub fn compile(raw: &RawDefinition) -> Result<Definition, Vec<GraphProblem>> {
    let mut problems = Problems::default();
    let mut tree = Tree {
        chain: Vec::new(),
        nodes: 0,
    };
    tree.check(raw, "", "", &mut problems);
    if !problems.list.is_empty() {
        return Err(problems.list);
    }
    let snapshot = flatten::flatten(raw).map_err(|problem| vec![*problem])?;
    Definition::from_snapshot(snapshot).map_err(|error| {
        let mut reporter = Reporter {
            raw,
            mount: "",
            problems: &mut problems,
        };
        reporter.report(None, Rule::Internal, &raw.name, error.to_string());
        problems.list
    })
}

/// Tells whether `next` is already being mounted: the check that a host makes before it loads a mounted workflow, so that a
/// cycle of dynamic references ends. `chain` holds the mounting workflows with the mount names that led to them, the root
/// (with `""`) first.
///
/// # Errors
/// Names the whole chain of mounts.
pub fn check_cycle(
    chain: &[MountLink<'_>],
    mount: &str,
    next: &SourceRef,
    next_name: &str,
) -> Result<(), Box<GraphProblem>> {
    let same = |link: &&MountLink<'_>| same_source(link.source, next) && link.name == next_name;
    if chain.iter().find(same).is_none() {
        return Ok(());
    }
    let parent = chain.last().expect("a found link makes the chain non-empty");
    let path = chain
        .iter()
        .map(|link| (link.mount, link.source, link.name))
        .chain(std::iter::once((mount, next, next_name)))
        .map(|(mount, source, name)| match mount {
            "" => format!("{name} ({})", source_label(source)),
            mount => format!("{mount}: {name} ({})", source_label(source)),
        })
        .collect::<Vec<_>>()
        .join(" → ");
    let mounts: Vec<&str> = chain.iter().skip(1).map(|link| link.mount).collect();
    Err(Box::new(GraphProblem {
        file: source_label(parent.source),
        workflow: parent.name.to_owned(),
        mount: mounts.join("/"),
        subject: Some(format!("mount \"{mount}\"")),
        value: mount.to_owned(),
        rule: Rule::IncludeCycle,
        message: format!("\"{next_name}\" is already being mounted: {path}"),
    }))
}

/// One workflow on the way from the root to a mount.
#[derive(Debug, Clone, Copy)]
pub struct MountLink<'a> {
    /// Local name of the mount that led here, `""` for the root.
    pub mount: &'a str,
    /// The workflow's source.
    pub source: &'a SourceRef,
    /// The workflow's name (one file can declare several).
    pub name: &'a str,
}

/// Identity of a source: its path or built-in id, whatever its content.
fn same_source(a: &SourceRef, b: &SourceRef) -> bool {
    match (a, b) {
        (SourceRef::File { path: a, .. }, SourceRef::File { path: b, .. })
        | (SourceRef::Builtin { id: a, .. }, SourceRef::Builtin { id: b, .. }) => a == b,
        _ => false,
    }
}

/// The walk over a definition and what it mounts.
struct Tree<'a> {
    chain: Vec<MountLink<'a>>,
    nodes: usize,
}

impl<'a> Tree<'a> {
    /// Checks the workflow mounted as `local` at `mount`, and what it mounts.
    fn check(&mut self, raw: &'a RawDefinition, local: &'a str, mount: &str, problems: &mut Problems) {
        let mut reporter = Reporter { raw, mount, problems };
        shape::check(&mut reporter);
        graph::check(&mut reporter);
        let before = self.nodes;
        self.nodes = self.nodes.saturating_add(raw.nodes.len());
        if before <= limits::NODES && self.nodes > limits::NODES {
            let message = format!("the resolved graph has more than {} nodes", limits::NODES);
            reporter.report(None, Rule::NodeCount, &raw.name, message);
        }
        if self.nodes > limits::NODES {
            return;
        }
        self.chain.push(MountLink {
            mount: local,
            source: &raw.source,
            name: &raw.name,
        });
        for include in &raw.includes {
            let name = include.mount.as_str();
            if let Err(cycle) = check_cycle(&self.chain, name, &include.definition.source, &include.definition.name) {
                problems.add(*cycle);
            } else if self.chain.len() > limits::INCLUDE_DEPTH {
                let message = format!("mounts are nested deeper than {}", limits::INCLUDE_DEPTH);
                let mut reporter = Reporter { raw, mount, problems };
                reporter.report(Some(format!("mount \"{name}\"")), Rule::IncludeDepth, name, message);
            } else {
                self.check(&include.definition, name, &qualify(mount, name), problems);
            }
        }
        self.chain.pop();
    }
}

/// Problems found so far. A workflow that is mounted twice reports its own problems once.
#[derive(Default)]
struct Problems {
    list: Vec<GraphProblem>,
    seen: HashSet<(String, String, Option<String>, Rule, String)>,
}

impl Problems {
    fn add(&mut self, problem: GraphProblem) {
        let key = (
            problem.file.clone(),
            problem.workflow.clone(),
            problem.subject.clone(),
            problem.rule,
            problem.value.clone(),
        );
        if self.list.len() < limits::PROBLEMS && self.seen.insert(key) {
            self.list.push(problem);
        }
    }
}

/// Reports problems of one workflow.
struct Reporter<'a> {
    raw: &'a RawDefinition,
    mount: &'a str,
    problems: &'a mut Problems,
}

impl Reporter<'_> {
    fn report(&mut self, subject: Option<String>, rule: Rule, value: &str, message: String) {
        self.problems
            .add(problem(self.raw, self.mount, subject, rule, value, message));
    }
}

fn problem(
    raw: &RawDefinition,
    mount: &str,
    subject: Option<String>,
    rule: Rule,
    value: &str,
    message: String,
) -> GraphProblem {
    GraphProblem {
        file: source_label(&raw.source),
        workflow: raw.name.clone(),
        mount: mount.to_owned(),
        subject,
        value: value.to_owned(),
        rule,
        message,
    }
}

fn boxed(
    raw: &RawDefinition,
    mount: &str,
    subject: Option<String>,
    rule: Rule,
    value: &str,
    message: String,
) -> Box<GraphProblem> {
    Box::new(problem(raw, mount, subject, rule, value, message))
}
