//! What changed between two attempts of a node, line by line.

use piw_protocol::view::StepView;
use ratatui::text::Span;
use serde_json::Value;

use super::rows::Rows;
use crate::text::{clean_lines, fit};

/// Lines of each side that are compared.
const LINES: usize = 400;
/// Equal lines shown around a change.
const CONTEXT: usize = 2;

/// A line of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// On both sides.
    Same(String),
    /// Only in the earlier attempt.
    Removed(String),
    /// Only in the later attempt.
    Added(String),
    /// Equal lines that are left out.
    Gap(usize),
}

/// Adds the differences between two attempts.
pub fn build(rows: &mut Rows<'_>, indent: usize, earlier: &StepView, later: &StepView) {
    let theme = rows.theme;
    let changes = compare(&lines(earlier), &lines(later));
    let pad = " ".repeat(indent);
    if changes
        .iter()
        .all(|change| matches!(change, Change::Same(_) | Change::Gap(_)))
    {
        rows.push(vec![Span::styled(format!("{pad}no difference"), theme.muted())], None);
        return;
    }
    let room = rows.columns.saturating_sub(indent + 2).max(8);
    for change in changes {
        let (mark, text, style) = match &change {
            Change::Same(line) => (" ", line.as_str(), theme.muted()),
            Change::Removed(line) => ("-", line.as_str(), theme.error()),
            Change::Added(line) => ("+", line.as_str(), theme.status(crate::viewer::theme::Mark::Ok)),
            Change::Gap(count) => {
                rows.push(
                    vec![Span::styled(format!("{pad}  … {count} equal lines"), theme.muted())],
                    None,
                );
                continue;
            }
        };
        rows.push(
            vec![Span::styled(format!("{pad}{mark} {}", fit(text, room)), style)],
            None,
        );
    }
}

/// A step as comparable lines: outcome, error, receipt, streams, output. Times are left out: they always differ.
fn lines(view: &StepView) -> Vec<String> {
    let step = &view.step;
    let mut out = vec![format!("outcome: {:?}", step.outcome).to_lowercase()];
    let mut text = |name: &str, text: &str| {
        out.push(format!("{name}:"));
        out.extend(clean_lines(text, LINES).0.into_iter().map(|line| format!("  {line}")));
    };
    if let Some(error) = &step.error {
        text("error", &error.message);
    }
    if let Some(action) = &step.action {
        let words = action.command.iter().chain(action.args.iter().flatten());
        text("command", &words.cloned().collect::<Vec<_>>().join(" "));
        if let Some(code) = action.exit_code {
            text("exit code", &code.to_string());
        }
        for (name, stream) in [("stdout", &action.stdout), ("stderr", &action.stderr)] {
            if let Some(stream) = stream {
                text(name, stream);
            }
        }
    }
    for (name, value) in [("prompt", &step.prompt), ("output", &step.output)] {
        match value {
            Value::Null => {}
            Value::String(value) => text(name, value),
            value => text(name, &serde_json::to_string_pretty(value).unwrap_or_default()),
        }
    }
    out.truncate(LINES);
    out
}

/// The longest common subsequence of two texts as changes, equal stretches shortened.
#[must_use]
pub fn compare(before: &[String], after: &[String]) -> Vec<Change> {
    let (rows, columns) = (before.len(), after.len());
    let width = columns + 1;
    let mut common = vec![0u16; (rows + 1) * width];
    for a in (0..rows).rev() {
        for b in (0..columns).rev() {
            common[a * width + b] = if before[a] == after[b] {
                common[(a + 1) * width + b + 1] + 1
            } else {
                common[(a + 1) * width + b].max(common[a * width + b + 1])
            };
        }
    }
    let mut changes = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < rows || b < columns {
        if a < rows && b < columns && before[a] == after[b] {
            changes.push(Change::Same(before[a].clone()));
            (a, b) = (a + 1, b + 1);
        } else if a < rows && (b == columns || common[(a + 1) * width + b] >= common[a * width + b + 1]) {
            changes.push(Change::Removed(before[a].clone()));
            a += 1;
        } else {
            changes.push(Change::Added(after[b].clone()));
            b += 1;
        }
    }
    shorten(&changes)
}

fn shorten(changes: &[Change]) -> Vec<Change> {
    let near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        changes[from..(at + CONTEXT + 1).min(changes.len())]
            .iter()
            .any(|change| !matches!(change, Change::Same(_)))
    };
    let mut out = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        if near(at) {
            out.push(change.clone());
        } else if let Some(Change::Gap(count)) = out.last_mut() {
            *count += 1;
        } else {
            out.push(Change::Gap(1));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_what_changed_is_shown() {
        let changes = compare(&texts("a b c d e f g h"), &texts("a b c d X f g h"));
        let same = |text: &str| Change::Same(text.into());
        assert_eq!(
            changes,
            [
                Change::Gap(2),
                same("c"),
                same("d"),
                Change::Removed("e".into()),
                Change::Added("X".into()),
                same("f"),
                same("g"),
                Change::Gap(1)
            ]
        );
        assert_eq!(compare(&texts("a"), &texts("a")), [Change::Gap(1)]);
        assert_eq!(compare(&[], &texts("a")), [Change::Added("a".into())]);
    }
}
