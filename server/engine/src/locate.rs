//! Finds the line of a problem in the text of its workflow file.
//!
//! The script host does not keep positions of object literals, so this looks for what the author must have written: a key, a
//! `from: "x"`, a quoted value. It answers only when the text really holds it; computed names have no line.

use crate::problem::{GraphProblem, Rule};

/// The line (from 1) that a problem is about; `None` when the text does not show it literally.
#[must_use]
pub fn line_of(problem: &GraphProblem, text: &str) -> Option<usize> {
    let at = match problem.subject.as_deref().and_then(|subject| subject.split_once(" \"")) {
        Some(("edge from", name)) => edge(problem, text, name.strip_suffix('"')?)?,
        Some(("node", _)) => key_in(text, "nodes", &problem.value).or_else(|| key(text, &problem.value, 0))?,
        Some(("mount", _)) => key_in(text, "includes", &problem.value).or_else(|| key(text, &problem.value, 0))?,
        Some(("exit", name)) => key_in(text, "exits", name.strip_suffix('"')?)?,
        _ => match problem.rule {
            Rule::MissingStart => key(text, "startAt", 0)?,
            Rule::MaxSteps => key(text, "maxSteps", 0)?,
            Rule::Name => quoted(text, &problem.value, 0)?,
            _ => return None,
        },
    };
    Some(text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1)
}

/// The problems as text, one a line, with `file:line` where the line is known. `read` gives the text of a file.
pub fn report<'p>(
    problems: impl IntoIterator<Item = &'p GraphProblem>,
    mut read: impl FnMut(&str) -> Option<String>,
) -> Vec<String> {
    let mut texts: std::collections::HashMap<&str, Option<String>> = std::collections::HashMap::new();
    problems
        .into_iter()
        .map(|problem| {
            let text = texts.entry(&problem.file).or_insert_with(|| read(&problem.file));
            let line = text.as_deref().and_then(|text| line_of(problem, text));
            let shown = problem.to_string();
            match (line, shown.strip_prefix(&problem.file)) {
                (Some(line), Some(rest)) => format!("{}:{line}{rest}", problem.file),
                _ => shown,
            }
        })
        .collect()
}

/// The edge that comes from `name`: its own place, or that of the wrong value inside it. Of several, the last: a second edge is
/// the one too many.
fn edge(problem: &GraphProblem, text: &str, name: &str) -> Option<usize> {
    let mut found = None;
    let mut from = 0;
    while let Some(at) = key(text, "from", from) {
        from = at + "from".len();
        let value = text[from..].trim_start_matches(['"', '\'', ' ', '\t', '\r', '\n', ':']);
        if starts_quoted(&text[text.len() - value.len() - 1..], name) {
            let inside = (problem.value != name)
                .then(|| quoted(text, &problem.value, from))
                .flatten();
            found = Some(inside.unwrap_or(at));
            if problem.rule != Rule::TwoEdges && inside.is_some() {
                break;
            }
        }
    }
    found
}

/// A key after the first `section:`.
fn key_in(text: &str, section: &str, name: &str) -> Option<usize> {
    key(text, name, key(text, section, 0)?)
}

/// The next `name:`, `"name":` or shorthand `name,` from a position on.
fn key(text: &str, name: &str, from: usize) -> Option<usize> {
    words(text, name, from).find(|&at| {
        let after = text[at + name.len()..].trim_start_matches(['"', '\'']).trim_start();
        after.starts_with(':') || after.starts_with(',') || after.starts_with('(') || after.starts_with('}')
    })
}

/// The next quoted `name` from a position on.
fn quoted(text: &str, name: &str, from: usize) -> Option<usize> {
    words(text, name, from).find(|&at| at > 0 && starts_quoted(&text[at - 1..], name))
}

fn starts_quoted(text: &str, name: &str) -> bool {
    ['"', '\'', '`'].into_iter().any(|quote| {
        text.strip_prefix(quote)
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with(quote))
    })
}

/// Places where `name` stands as a whole word.
fn words<'t>(text: &'t str, name: &'t str, from: usize) -> impl Iterator<Item = usize> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '-');
    let start = if name.is_empty() { text.len() } else { from };
    text[start..]
        .match_indices(name)
        .map(move |(at, _)| start + at)
        .filter(move |&at| {
            let before = text[..at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !before.is_some_and(part) && !after.is_some_and(part)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile;
    use crate::raw::RawDefinition;
    use crate::testing::workflow;

    const TEXT: &str = r#"import { defineWorkflow, compute } from "piw";
export default defineWorkflow({
  name: "w",
  startAt: "a",
  maxSteps: 0,
  nodes: {
    a: compute(() => 1),
    "b": compute(() => 2),
    lost: compute(() => 3),
  },
  edges: [
    { from: "a", to: "b" },
    {
      from: 'b',
      switch: { on: "$.x", cases: { yes: "a", no: "nowhere" } },
    },
    { from: "a", to: "b" },
  ],
  exits: { done: { node: "a" } },
});
"#;

    fn lines(raw: &RawDefinition) -> Vec<(Rule, Option<usize>)> {
        let problems = compile(raw).unwrap_err();
        problems
            .iter()
            .map(|problem| (problem.rule, line_of(problem, TEXT)))
            .collect()
    }

    #[test]
    fn problems_are_found_where_the_author_wrote_them() {
        let raw = workflow("w", "a").computes(&["a", "b", "lost"]).max_steps(0.0);
        let raw = raw
            .edge("a", "b")
            .switch("b", "$.x", &[("yes", "a"), ("no", "nowhere")])
            .edge("a", "b");
        assert_eq!(
            lines(&raw.exit("done", "a")),
            [
                (Rule::MaxSteps, Some(5)),
                (Rule::UnknownTarget, Some(15)),
                (Rule::TwoEdges, Some(17)),
                (Rule::Exit, Some(19)),
            ]
        );
        let lost = workflow("w", "a").computes(&["a", "b", "lost"]).edge("a", "b");
        assert_eq!(lines(&lost), [(Rule::Unreachable, Some(9))]);
        assert_eq!(
            lines(&workflow("w", "z").computes(&["a"])),
            [(Rule::MissingStart, Some(4))]
        );
    }

    #[test]
    fn computed_names_have_no_line() {
        let raw = workflow("w", "a").computes(&["a", "made_up"]);
        assert_eq!(lines(&raw), [(Rule::Unreachable, None)]);
        assert_eq!(
            lines(&workflow("w", "a").computes(&["a"]).edge("made_up", "a")),
            [(Rule::UnknownSource, None)]
        );
    }

    #[test]
    fn reports_name_file_and_line() {
        let raw = workflow("w", "a").computes(&["a", "b", "lost"]).edge("a", "b");
        let problems = compile(&raw).unwrap_err();
        assert_eq!(
            report(&problems, |_| Some(TEXT.to_owned())),
            ["/w/w.workflow.ts:9: workflow \"w\": node \"lost\": nothing leads here from startAt \"a\" [unreachable]"]
        );
        assert_eq!(report(&problems, |_| None), [problems[0].to_string()]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_searched_safely(text in "(.|\n|a|:|\"|'|é){0,80}", value in ".{0,4}") {
            let mut problem = compile(&workflow("w", "z").computes(&["a"])).unwrap_err().remove(0);
            for subject in [None, Some("node \"a\""), Some("edge from \"a\""), Some("exit \"é\"")] {
                problem.subject = subject.map(str::to_owned);
                problem.value.clone_from(&value);
                let line = line_of(&problem, &text);
                proptest::prop_assert!(line.is_none_or(|line| line >= 1 && line <= text.lines().count().max(1) + 1));
            }
        }
    }
}
