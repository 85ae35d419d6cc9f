//! Highlighting of code. `syntect` parses with the grammars of `two-face` (those that `bat` ships: TypeScript, TOML and the
//! like are not among syntect's own); which scope has which tone is ours, so that colours come from the theme. The grammars
//! are loaded when the first code block is laid out.

use std::sync::OnceLock;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use super::{Piece, Tone};
use crate::text::{LINE_LIMIT, clean_lines};

/// Bytes of one document that are highlighted; code beyond is plain.
pub const DOCUMENT: usize = 96 * 1024;
/// Longest line that is highlighted: grammars are regular expressions, and some take their time on long lines.
const LINE: usize = 2000;

/// Scopes and their tones, the more special ones first.
const TONES: &[(&str, Tone)] = &[
    ("comment", Tone::Comment),
    ("punctuation.definition.comment", Tone::Comment),
    ("constant.character.escape", Tone::Constant),
    ("punctuation.definition.string", Tone::Text),
    ("string", Tone::Text),
    ("constant", Tone::Constant),
    ("keyword.operator", Tone::Punctuation),
    ("keyword", Tone::Keyword),
    ("storage", Tone::Keyword),
    ("variable.language", Tone::Keyword),
    ("entity.name.function", Tone::Function),
    ("variable.function", Tone::Function),
    ("support.function", Tone::Function),
    ("entity.name.tag", Tone::Keyword),
    ("entity.name.section", Tone::Heading),
    ("entity.name", Tone::Type),
    ("entity.other", Tone::Type),
    ("support", Tone::Type),
    ("markup.inserted", Tone::Added),
    ("markup.deleted", Tone::Removed),
    ("meta.diff.header", Tone::Type),
    ("meta.diff.range", Tone::Function),
    ("markup.heading", Tone::Heading),
    ("punctuation", Tone::Punctuation),
];

struct Grammars {
    syntaxes: SyntaxSet,
    tones: Vec<(Scope, Tone)>,
}

fn grammars() -> &'static Grammars {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    GRAMMARS.get_or_init(|| Grammars {
        syntaxes: two_face::syntax::extra_newlines(),
        tones: TONES
            .iter()
            .filter_map(|(scope, tone)| Some((Scope::new(scope).ok()?, *tone)))
            .collect(),
    })
}

impl Grammars {
    fn find(&self, language: &str) -> Option<&SyntaxReference> {
        let name = language.split([' ', ',', '{', ':']).next()?.trim();
        let name = match name {
            "" | "text" | "txt" | "plain" => return None,
            "console" | "shell" | "shell-session" => "sh",
            "jsonc" | "json5" => "json",
            "mts" | "cts" => "ts",
            name => name,
        };
        self.syntaxes.find_syntax_by_token(name)
    }

    /// The tone of the innermost scope that has one.
    fn tone(&self, stack: &ScopeStack) -> Tone {
        let of = |scope: Scope| {
            let mut known = self.tones.iter();
            known
                .find(|(prefix, _)| prefix.is_prefix_of(scope))
                .map(|(_, tone)| *tone)
        };
        stack
            .as_slice()
            .iter()
            .rev()
            .find_map(|scope| of(*scope))
            .unwrap_or(Tone::Plain)
    }
}

/// Code as rows of pieces, at most `most`. Takes what it highlights from `budget`.
#[must_use]
pub fn highlight(language: &str, code: &str, budget: &mut usize, most: usize) -> Vec<Vec<Piece>> {
    let (lines, _) = clean_lines(code, most);
    let plain = |line: &str| vec![Piece::new(line, Tone::Plain)];
    // Nothing is loaded for a block that names no language.
    let syntax = (!language.trim().is_empty())
        .then(grammars)
        .and_then(|grammars| Some((grammars, grammars.find(language)?)));
    let Some((grammars, syntax)) = syntax else {
        return lines.iter().map(|line| plain(line)).collect();
    };
    let mut parser = Some(ParseState::new(syntax));
    let mut stack = ScopeStack::new();
    let mut rows = Vec::with_capacity(lines.len());
    for line in &lines {
        let fits = line.len() <= LINE.min(*budget) && line.chars().count() < LINE_LIMIT;
        let pieces = parser.as_mut().filter(|_| fits).and_then(|parser| {
            *budget -= line.len();
            pieces(grammars, parser, &mut stack, line)
        });
        if pieces.is_none() {
            // After a line that was not parsed nothing is known of what follows.
            parser = None;
        }
        rows.push(pieces.unwrap_or_else(|| plain(line)));
    }
    rows
}

fn pieces(grammars: &Grammars, parser: &mut ParseState, stack: &mut ScopeStack, line: &str) -> Option<Vec<Piece>> {
    let ended = format!("{line}\n");
    let operations = parser.parse_line(&ended, &grammars.syntaxes).ok()?;
    let mut out: Vec<Piece> = Vec::new();
    let mut from = 0;
    let mut add = |to: usize, stack: &ScopeStack, from: &mut usize| {
        let to = to.min(line.len());
        if to > *from {
            let (text, tone) = (&line[*from..to], grammars.tone(stack));
            match out.last_mut() {
                Some(last) if last.tone == tone => last.text.push_str(text),
                _ => out.push(Piece::new(text, tone)),
            }
            *from = to;
        }
    };
    for (at, operation) in &operations {
        add(*at, stack, &mut from);
        stack.apply(operation).ok()?;
    }
    add(line.len(), stack, &mut from);
    Some(out)
}
