//! Rows: styled lines with something to do on Enter, and how values become them. Strings are neutralised here.

use std::collections::HashSet;
use std::sync::Arc;

use piw_protocol::view::{ArtifactRef, ViewValue};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use serde_json::Value;

use crate::text::{bytes, clean, clean_lines, counted, fit, looks_like_markdown, width, wrap};
use crate::viewer::action;
use crate::viewer::keymap::KeyMap;
use crate::viewer::markdown::INPUT;
use crate::viewer::message::{Content, DocumentKey};
use crate::viewer::run::{Loaded, Run};
use crate::viewer::theme::{Mark, Theme};

/// Lines of one text, and children of one list, that are shown at most.
const SHOWN: usize = 400;
/// Deepest shown level of a value.
const DEPTH: usize = 40;

/// What Enter or a click on a row does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Opens or closes the part with this key.
    Toggle(String),
    /// Fetches content.
    Fetch(ArtifactRef),
    /// Opens the part with this key, of which only a piece is here, and fetches the content that has all of it.
    OpenWhole(String, ArtifactRef),
    /// Shows the run as it was at a step.
    Seek(u64),
    /// Does what a key does.
    Act(action::Action),
}

/// Keys that rows speak of, as they are configured; `None` where an action has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hints {
    open: Option<String>,
    pager: Option<String>,
    back: Option<String>,
    older: Option<String>,
    newer: Option<String>,
    scope: Option<String>,
}

impl Hints {
    /// The keys of a table.
    #[must_use]
    pub fn of(keys: &KeyMap) -> Self {
        let name = |action| {
            keys.shown(action).map(|key| match key {
                // The names of keys are capitalised in sentences; characters are what they are.
                "enter" => "Enter".to_owned(),
                "space" => "Space".to_owned(),
                key => key.to_owned(),
            })
        };
        Self {
            open: name(action::Action::Open),
            pager: name(action::Action::Page),
            back: name(action::Action::StepBack),
            older: name(action::Action::OlderPage),
            newer: name(action::Action::NewerPage),
            scope: name(action::Action::TraceScope),
        }
    }

    /// How what is not here is loaded: `Enter loads it`.
    #[must_use]
    pub fn loads(&self, what: &str) -> String {
        format!("{} loads {what}", self.open.as_deref().unwrap_or("a click"))
    }

    /// How all of a shortened text is seen, after the words before it.
    fn opens(&self, what: &str) -> String {
        self.pager
            .as_ref()
            .map_or_else(String::new, |key| format!("; {key} opens {what}"))
    }

    /// How earlier steps are reached, after the words before it.
    #[must_use]
    pub fn goes_back(&self) -> String {
        let keys: Vec<&str> = [&self.back, &self.older]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        if keys.is_empty() {
            String::new()
        } else {
            format!("; {} goes back", keys.join(" or "))
        }
    }

    /// The key that goes to the next scope of the trace.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// How the pages around items `start` to `end` of `total` are reached, as far as there are any, after the words before it.
    #[must_use]
    pub fn pages(&self, start: u64, end: u64, total: u64) -> String {
        let one = |there: bool, key: &Option<String>, what: &str| {
            let key = key.as_ref().filter(|_| there);
            key.map_or_else(String::new, |key| format!("   {key} {what}"))
        };
        one(start > 0, &self.older, "older") + &one(end < total, &self.newer, "newer")
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self::of(&KeyMap::default())
    }
}

/// The whole of what a row stands for: what the pager, the editor and the clipboard get.
#[derive(Debug, Clone, PartialEq)]
pub enum Whole {
    /// Text.
    Text(String),
    /// A JSON value.
    Json(Value),
    /// Content to fetch and verify first; the pointer says which part of it is meant.
    Fetched(ArtifactRef, Option<&'static str>),
}

/// What was found for a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Picked {
    /// Its name, for people and for a file.
    pub name: String,
    /// The whole.
    pub whole: Whole,
    /// Whether the row is the head of the value, rather than a line within it.
    pub head: bool,
}

/// A line.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it shows.
    pub line: Line<'static>,
    /// What Enter does.
    pub action: Option<Action>,
    /// Text that `y` copies, when it differs from the line.
    pub copy: Option<String>,
    /// Step that the row belongs to.
    pub step: Option<u64>,
}

/// Collects rows.
pub struct Rows<'a> {
    /// The rows so far.
    pub rows: Vec<Row>,
    /// Colours.
    pub theme: &'a Theme,
    /// The run that values belong to.
    pub run: &'a Run,
    /// Keys whose state differs from the default.
    pub toggled: &'a HashSet<String>,
    /// Keys to speak of.
    pub hints: &'a Hints,
    /// Columns.
    pub columns: usize,
    /// Step that new rows belong to.
    pub step: Option<u64>,
    /// Whether nobody can press a key: a plain frame.
    pub still: bool,
    /// Row whose whole value is wanted: only for this one a value is copied, however many rows there are.
    pub pick: Option<usize>,
    /// What the picked row stands for.
    pub picked: Option<Picked>,
    /// Deepest level of a tree at which a reference to content is one, rather than a value that looks like it.
    pub wire: Option<usize>,
    /// Markdown that is not laid out yet.
    pub wanted: Vec<(DocumentKey, Arc<str>)>,
    /// Markdown that is shown.
    pub used: HashSet<DocumentKey>,
}

impl<'a> Rows<'a> {
    /// None yet.
    #[must_use]
    pub fn new(run: &'a Run, theme: &'a Theme, toggled: &'a HashSet<String>, hints: &'a Hints, columns: usize) -> Self {
        Self {
            rows: Vec::new(),
            theme,
            run,
            toggled,
            hints,
            columns,
            step: None,
            still: false,
            pick: None,
            picked: None,
            wire: None,
            wanted: Vec::new(),
            used: HashSet::new(),
        }
    }

    /// Says what the rows from `from` on stand for. Parts say it before what they are part of, and the first word counts.
    pub fn stands_for(&mut self, from: usize, name: &str, whole: impl FnOnce() -> Whole) {
        if let Some(pick) = self.pick
            && self.picked.is_none()
            && (from..self.rows.len()).contains(&pick)
        {
            self.picked = Some(Picked {
                name: name.to_owned(),
                whole: whole(),
                head: pick == from,
            });
        }
    }

    /// Adds a row.
    pub fn push(&mut self, spans: Vec<Span<'static>>, action: Option<Action>) {
        self.rows.push(Row {
            line: Line::from(spans),
            action,
            copy: None,
            step: self.step,
        });
    }

    /// Adds an empty row.
    pub fn gap(&mut self) {
        self.push(Vec::new(), None);
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        if !self.rows.is_empty() {
            self.gap();
        }
        self.push(vec![Span::styled(text.to_owned(), self.theme.accent())], None);
    }

    /// Adds a named fact; long values continue below.
    pub fn fact(&mut self, name: &str, value: &str, style: Style) {
        const NAME: usize = 11;
        let value = clean(value);
        let room = self.columns.saturating_sub(NAME + 2).max(8);
        for (index, piece) in wrap(&value, room).into_iter().enumerate() {
            let name = if index == 0 {
                format!("{name:<NAME$} ")
            } else {
                " ".repeat(NAME + 1)
            };
            self.push(
                vec![Span::styled(name, self.theme.label()), Span::styled(piece, style)],
                None,
            );
        }
        if let Some(row) = self.rows.last_mut() {
            row.copy = Some(value.into_owned());
        }
    }

    /// Whether the part with this key is open.
    #[must_use]
    pub fn is_open(&self, key: &str, by_default: bool) -> bool {
        self.toggled.contains(key) != by_default
    }

    /// Adds text of several lines.
    pub fn text(&mut self, indent: usize, text: &str, style: Style) {
        let (lines, more) = clean_lines(text, SHOWN);
        let room = self.columns.saturating_sub(indent).max(8);
        for line in lines {
            for piece in wrap(&line, room) {
                self.push(vec![Span::raw(" ".repeat(indent)), Span::styled(piece, style)], None);
            }
        }
        if more {
            let how = if self.still {
                String::new()
            } else {
                self.hints.opens("all of them")
            };
            let notice = format!("{}… only the first {SHOWN} lines{how}", " ".repeat(indent));
            self.push(vec![Span::styled(notice, self.theme.muted())], None);
        }
    }

    /// Adds text of several lines that somebody may have written as Markdown.
    pub fn prose(&mut self, indent: usize, key: &str, text: &str, style: Style) {
        if self.still || !looks_like_markdown(text) {
            return self.text(indent, text, style);
        }
        self.markdown(indent, key, text);
    }

    /// Adds Markdown; until it is laid out, its text.
    pub fn markdown(&mut self, indent: usize, key: &str, text: &str) {
        let theme = self.theme;
        let document = DocumentKey {
            value: key.to_owned(),
            bytes: text.len(),
            columns: self.columns.saturating_sub(indent).max(8),
            ascii: theme.ascii,
        };
        let run = self.run;
        match run.documents.get(&document) {
            Some(Some(ready)) => {
                for row in &ready.rows {
                    let mut spans = vec![Span::raw(" ".repeat(indent))];
                    spans.extend(row.iter().map(|piece| piece.span(theme)));
                    self.push(spans, None);
                }
                if ready.cut {
                    let how = self.hints.opens("it");
                    let notice = format!("{}… the rest is not shown here{how}", " ".repeat(indent));
                    self.push(vec![Span::styled(notice, theme.muted())], None);
                }
            }
            known => {
                if known.is_none() {
                    // One byte more than is read tells that there is more.
                    let read = &text[..text.ceil_char_boundary(INPUT + 1)];
                    self.wanted.push((document.clone(), read.into()));
                }
                self.text(indent, text, theme.text());
            }
        }
        self.used.insert(document);
    }

    /// Adds a value under a name: inline values as trees, large ones when they were fetched and verified.
    pub fn value(&mut self, indent: usize, key: &str, name: &str, value: &ViewValue) {
        match value {
            ViewValue::Inline(value) => self.json(indent, key, name, value, 0),
            ViewValue::Artifact(reference) => self.artifact(indent, key, name, reference),
        }
    }

    fn artifact(&mut self, indent: usize, key: &str, name: &str, reference: &ArtifactRef) {
        let from = self.rows.len();
        match self.fetched(indent, name, reference) {
            Some(Content::Json(value)) => self.json(indent + 2, key, "", value, 0),
            Some(Content::Text(text)) => self.prose(indent + 2, key, text, self.theme.subtext()),
            None => {}
        }
        self.stands_for(from, name, || Whole::Fetched(reference.clone(), None));
    }

    /// Adds the row of content that has to be fetched, with how far that is; returns it once it is there and verified.
    pub fn fetched(&mut self, indent: usize, name: &str, reference: &ArtifactRef) -> Option<&'a Content> {
        let theme = self.theme;
        let head = |text: String, style: Style| {
            vec![
                Span::raw(" ".repeat(indent)),
                Span::styled(format!("{} ", clean(name)), theme.label()),
                Span::styled(text, style),
            ]
        };
        let size = bytes(reference.bytes);
        let fetch = Action::Fetch(reference.clone());
        match self.run.contents.get(&reference.sha256) {
            None if self.still => self.push(head(format!("{size}, not shown"), theme.muted()), None),
            None => self.push(
                head(format!("{size}: {}", self.hints.loads("it")), theme.muted()),
                Some(fetch),
            ),
            Some(Loaded::Loading(got, all)) => {
                let percent = if *all == 0 { 0 } else { got * 100 / all };
                self.push(head(format!("loading {percent} % of {size}"), theme.warning()), None);
            }
            Some(Loaded::Failed(error)) => {
                let error = clean(error);
                let column = indent + width(name) + 1;
                let room = self.columns.saturating_sub(column).max(8);
                for (at, piece) in wrap(&error, room).into_iter().enumerate() {
                    let spans = if at == 0 {
                        head(piece, theme.error())
                    } else {
                        vec![Span::raw(" ".repeat(column)), Span::styled(piece, theme.error())]
                    };
                    self.push(spans, Some(fetch.clone()));
                }
            }
            Some(Loaded::Ready(content)) => {
                let mark = if theme.ascii { "verified" } else { "✓ verified" };
                self.push(head(format!("{size} {mark}"), theme.status(Mark::Ok)), None);
                return Some(content);
            }
        }
        None
    }

    /// Adds a JSON value as a foldable tree.
    pub fn json(&mut self, indent: usize, key: &str, name: &str, value: &Value, depth: usize) {
        if self.wire.is_some_and(|deepest| depth <= deepest)
            && let ViewValue::Artifact(reference) = ViewValue::from_wire(value)
        {
            let deepest = self.wire.take();
            self.artifact(indent + 2, key, name, &reference);
            self.wire = deepest;
            return;
        }
        let from = self.rows.len();
        self.tree(indent, key, name, value, depth);
        let name = if name.is_empty() { "value" } else { name };
        self.stands_for(from, name, || match value {
            Value::String(text) => Whole::Text(text.clone()),
            value => Whole::Json(value.clone()),
        });
    }

    fn tree(&mut self, indent: usize, key: &str, name: &str, value: &Value, depth: usize) {
        let theme = self.theme;
        let mut head = vec![Span::raw(" ".repeat(indent))];
        let label = if name.is_empty() {
            String::new()
        } else {
            format!("{} ", fit(&clean(name), 40))
        };
        let (count, open_mark, close_mark) = match value {
            Value::Object(map) => (map.len(), "{", "}"),
            Value::Array(list) => (list.len(), "[", "]"),
            Value::String(text) => return self.string(indent, key, &label, text, true),
            other => {
                head.extend([Span::styled("  ", theme.faint()), Span::styled(label, theme.label())]);
                head.push(Span::styled(other.to_string(), scalar(theme, other)));
                return self.push(head, None);
            }
        };
        let open = self.is_open(key, depth < 1 || count <= 4 && depth < 3) && depth < DEPTH;
        let arrow = match (count, open, theme.ascii) {
            (0, ..) => "  ",
            (_, true, false) => "▾ ",
            (_, false, false) => "▸ ",
            (_, true, true) => "- ",
            (_, false, true) => "+ ",
        };
        head.extend([
            Span::styled(arrow, theme.muted()),
            Span::styled(label.clone(), theme.label()),
        ]);
        if count == 0 {
            head.push(Span::styled(format!("{open_mark}{close_mark}"), theme.muted()));
            return self.push(head, None);
        }
        let room = self.columns.saturating_sub(indent + width(&label) + 4);
        let summary = if open {
            format!("{open_mark}{count}{close_mark}")
        } else {
            preview(value, room)
        };
        head.push(Span::styled(summary, theme.muted()));
        self.push(head, Some(Action::Toggle(key.to_owned())));
        if !open {
            return;
        }
        match value {
            Value::Object(map) => {
                for (child, value) in map.iter().take(SHOWN) {
                    self.json(indent + 2, &format!("{key}/{child}"), child, value, depth + 1);
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().take(SHOWN).enumerate() {
                    self.json(
                        indent + 2,
                        &format!("{key}/{index}"),
                        &index.to_string(),
                        value,
                        depth + 1,
                    );
                }
            }
            _ => {}
        }
        if count > SHOWN {
            let more = format!("{}… {} more", " ".repeat(indent + 4), count - SHOWN);
            self.push(vec![Span::styled(more, theme.muted())], None);
        }
    }

    /// Adds captured output: as it is, line by line, whatever it looks like.
    pub fn lines(&mut self, indent: usize, key: &str, name: &str, text: &str) {
        let from = self.rows.len();
        self.string(indent, key, &format!("{name} "), text, false);
        self.stands_for(from, name, || Whole::Text(text.to_owned()));
    }

    fn string(&mut self, indent: usize, key: &str, label: &str, text: &str, prose: bool) {
        let theme = self.theme;
        let style = Style::new().fg(theme.palette.green);
        let room = self.columns.saturating_sub(indent + 2 + width(label)).max(8);
        let single = !text.trim_end().contains('\n');
        if single && text.len() <= room * 4 && width(&clean(text.trim_end())) <= room {
            let spans = vec![
                Span::raw(" ".repeat(indent + 2)),
                Span::styled(label.to_owned(), theme.label()),
                Span::styled(clean(text.trim_end()).into_owned(), style),
            ];
            self.push(spans, None);
            return;
        }
        let count = text.lines().take(10_000).count();
        let open = self.is_open(key, count <= 12 || self.still);
        let arrow = match (open, theme.ascii) {
            (true, false) => "▾ ",
            (false, false) => "▸ ",
            (true, true) => "- ",
            (false, true) => "+ ",
        };
        let summary = match (open, count) {
            (true, 1) => String::new(),
            (true, count) => counted(count as u64, "line"),
            (false, _) => fit(&clean(text), room).into_owned(),
        };
        let spans = vec![
            Span::raw(" ".repeat(indent)),
            Span::styled(arrow, theme.muted()),
            Span::styled(label.to_owned(), theme.label()),
            Span::styled(summary, if open { theme.muted() } else { style }),
        ];
        self.push(spans, Some(Action::Toggle(key.to_owned())));
        if open && prose {
            self.prose(indent + 4, key, text, style);
        } else if open {
            self.text(indent + 4, text, style);
        }
    }
}

fn scalar(theme: &Theme, value: &Value) -> Style {
    let color = match value {
        Value::Number(_) => theme.palette.peach,
        Value::Bool(_) => theme.palette.mauve,
        _ => theme.palette.muted,
    };
    Style::new().fg(color)
}

/// One line of a closed value.
#[must_use]
pub fn preview(value: &Value, room: usize) -> String {
    fn write(out: &mut String, value: &Value, room: usize) {
        if out.len() > room * 4 {
            return;
        }
        match value {
            Value::Object(map) => {
                out.push_str("{ ");
                for (index, (key, value)) in map.iter().take(8).enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    out.push_str(&clean(key));
                    out.push_str(": ");
                    write(out, value, room);
                }
                out.push_str(" }");
            }
            Value::Array(list) => {
                out.push_str("[ ");
                for (index, value) in list.iter().take(8).enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    write(out, value, room);
                }
                out.push_str(" ]");
            }
            Value::String(text) => out.push_str(&clean(&text[..text.floor_char_boundary(200)])),
            other => out.push_str(&other.to_string()),
        }
    }
    let mut out = String::new();
    write(&mut out, value, room);
    fit(&out, room).into_owned()
}
