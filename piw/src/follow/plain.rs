//! Progress where there is no terminal: a line when a node starts and one when it ends, never rewritten.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::view::RunView;

use super::lines::{self, outcome_mark};
use super::{between, elapsed};
use crate::text;

/// Remembers what was printed.
#[derive(Debug, Default)]
pub struct Plain {
    steps: u64,
    started: BTreeSet<String>,
}

impl Plain {
    /// Lines (each with its newline) for what is new in `view`.
    pub fn news(&mut self, view: &RunView, definition: &DefinitionSnapshot) -> String {
        let mut out = String::new();
        if view.step_start > self.steps {
            let _ = writeln!(out, "… {} steps not shown", view.step_start - self.steps);
            self.steps = view.step_start;
        }
        for (index, step) in (view.step_start..).zip(&view.state.steps) {
            if index < self.steps {
                continue;
            }
            let step = &step.step;
            let (glyph, _) = outcome_mark(step.outcome);
            let time = elapsed(between(&step.started_at, &step.finished_at));
            let _ = write!(out, "{glyph} {}  {time}", text::clean(&step.node_id).into_owned());
            if let Some(error) = &step.error {
                let _ = write!(out, "  {}", text::clean(&error.message).into_owned());
            }
            out.push('\n');
            self.started.remove(&step.attempt_id);
            self.steps = index + 1;
        }
        if let (Some(node), Some(attempt)) = (&view.state.current_node, &view.state.current_attempt_id)
            && self.started.insert(attempt.clone())
        {
            let kind = lines::kind_glyph(definition, node);
            let _ = writeln!(out, "◉ {kind} {}", text::clean(node));
        }
        out
    }
}
