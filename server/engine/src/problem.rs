//! What is wrong with a definition: file, subject, rule, value and a sentence.

use std::fmt;

use piw_protocol::run::SourceRef;

use crate::names::shown;

/// The closed list of graph rules. The text form is stable and appears at the end of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// A workflow, node, mount or exit name breaks the grammar, a limit or is reserved.
    Name,
    /// Two things of one scope have the same name.
    Duplicate,
    /// `startAt` names nothing.
    MissingStart,
    /// An edge comes from nothing.
    UnknownSource,
    /// An edge leads to nothing.
    UnknownTarget,
    /// An edge leaves a mount by an exit that the mounted workflow does not have.
    UnknownExit,
    /// An edge is neither fixed nor a switch, or both.
    EdgeShape,
    /// A second edge leaves the same node.
    TwoEdges,
    /// The path of a switch breaks its grammar.
    SwitchPath,
    /// A switch has no case.
    EmptyCases,
    /// Nothing leads to a node or mount.
    Unreachable,
    /// An exit names something that is no terminal node.
    Exit,
    /// A workflow mounts itself, directly or through others.
    IncludeCycle,
    /// Mounts are nested too deeply.
    IncludeDepth,
    /// The resolved graph has too many nodes.
    NodeCount,
    /// `maxSteps` is no positive integer.
    MaxSteps,
    /// `timeoutMs` is neither `null` nor a positive number.
    Timeout,
    /// A node lacks something that its kind needs, or has something that it cannot have.
    NodeShape,
    /// A checked definition did not pass its own second check: a fault of this program, not of the author.
    Internal,
}

impl Rule {
    /// The stable text form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Duplicate => "duplicate-name",
            Self::MissingStart => "missing-start",
            Self::UnknownSource => "unknown-source",
            Self::UnknownTarget => "unknown-target",
            Self::UnknownExit => "unknown-exit",
            Self::EdgeShape => "edge-shape",
            Self::TwoEdges => "one-outgoing-edge",
            Self::SwitchPath => "switch-path",
            Self::EmptyCases => "empty-cases",
            Self::Unreachable => "unreachable",
            Self::Exit => "exit",
            Self::IncludeCycle => "include-cycle",
            Self::IncludeDepth => "include-depth",
            Self::NodeCount => "node-count",
            Self::MaxSteps => "max-steps",
            Self::Timeout => "timeout",
            Self::NodeShape => "node-shape",
            Self::Internal => "internal",
        }
    }
}

/// One broken rule of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphProblem {
    /// File (absolute path) or `builtin:<id>` that declares the workflow.
    pub file: String,
    /// Declared name of the workflow.
    pub workflow: String,
    /// Mount path of the workflow, `""` for the root.
    pub mount: String,
    /// What is wrong: `node "x"`, `edge from "x"`, `mount "m"`, `exit "e"`, or `None` for the workflow itself.
    pub subject: Option<String>,
    /// The text as the author wrote it: what a source position can be found by.
    pub value: String,
    /// The broken rule.
    pub rule: Rule,
    /// A sentence that names the value.
    pub message: String,
}

impl fmt::Display for GraphProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: workflow \"{}\"", self.file, shown(&self.workflow))?;
        if !self.mount.is_empty() {
            write!(f, " (mounted as {})", shown(&self.mount))?;
        }
        if let Some(subject) = &self.subject {
            write!(f, ": {subject}")?;
        }
        write!(f, ": {} [{}]", self.message, self.rule.as_str())
    }
}

impl std::error::Error for GraphProblem {}

/// The file or built-in id of a source, as messages show it.
#[must_use]
pub fn source_label(source: &SourceRef) -> String {
    match source {
        SourceRef::File { path, .. } => path.clone(),
        SourceRef::Builtin { id, .. } => format!("builtin:{id}"),
    }
}
