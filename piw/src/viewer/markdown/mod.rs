//! Markdown as styled, wrapped rows. Rows name tones, not colours, so that a document is laid out once for a width and follows
//! every change of the theme; laying out happens away from the input path ([`super::message::Effect::Render`]) and is bounded:
//! a document of any size or nesting ends with a notice instead of freezing anything.
//!
//! Parsing is `pulldown-cmark`'s, highlighting is in [`code`], wrapping in [`flow`]. Text is neutralised here.

pub mod code;
mod flow;
mod table;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use self::flow::Flow;
use self::table::Table;
use super::theme::color::Depth;
use super::theme::{Mark, Theme};
use crate::text::clean_document;

/// Bytes of a document that are read.
pub const INPUT: usize = 256 * 1024;
/// Rows that a document has at most.
pub const ROWS: usize = 2000;
/// Levels of quotes and lists that are indented; deeper ones stay at this depth.
const DEPTH: usize = 8;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Tone {
    Plain,
    Muted,
    Faint,
    Heading,
    Quote,
    Code,
    Link,
    Marker,
    Comment,
    Text,
    Constant,
    Keyword,
    Function,
    Type,
    Punctuation,
    Added,
    Removed,
}

/// A piece of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Text, neutralised.
    pub text: String,
    /// What it is.
    pub tone: Tone,
    /// Bold, italic, crossed out.
    pub modifier: Modifier,
}

impl Piece {
    /// A piece without modifiers.
    #[must_use]
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
            modifier: Modifier::empty(),
        }
    }

    /// As a span of a theme.
    #[must_use]
    pub fn span(&self, theme: &Theme) -> Span<'static> {
        Span::styled(self.text.clone(), self.tone.style(theme).add_modifier(self.modifier))
    }
}

impl Tone {
    /// All of them.
    #[cfg(test)]
    pub const ALL: [Self; 17] = [
        Self::Plain,
        Self::Muted,
        Self::Faint,
        Self::Heading,
        Self::Quote,
        Self::Code,
        Self::Link,
        Self::Marker,
        Self::Comment,
        Self::Text,
        Self::Constant,
        Self::Keyword,
        Self::Function,
        Self::Type,
        Self::Punctuation,
        Self::Added,
        Self::Removed,
    ];

    /// The style in a theme. Without colours what matters is told apart by weight.
    #[must_use]
    pub fn style(self, theme: &Theme) -> Style {
        let palette = &theme.palette;
        let color = |color| Style::new().fg(color);
        let weight = |style: Style, modifier| {
            if theme.depth == Depth::None {
                style.add_modifier(modifier)
            } else {
                style
            }
        };
        match self {
            Self::Plain => color(palette.text),
            Self::Muted => theme.muted(),
            Self::Faint => theme.faint(),
            Self::Heading => theme.accent(),
            Self::Quote => color(palette.subtext).add_modifier(Modifier::ITALIC),
            Self::Code => weight(color(palette.peach), Modifier::BOLD),
            Self::Link => color(palette.blue).add_modifier(Modifier::UNDERLINED),
            Self::Marker | Self::Constant => color(palette.peach),
            Self::Comment => theme.muted().add_modifier(Modifier::ITALIC),
            Self::Text => color(palette.green),
            Self::Keyword => weight(color(palette.mauve), Modifier::BOLD),
            Self::Function => color(palette.blue),
            Self::Type => color(palette.yellow),
            Self::Punctuation => color(palette.subtext),
            Self::Added => theme.status(Mark::Ok),
            Self::Removed => theme.error(),
        }
    }
}

/// A document as rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// The rows.
    pub rows: Vec<Vec<Piece>>,
    /// Whether something was left out.
    pub cut: bool,
}

/// Lays a document out for a width.
#[must_use]
pub fn render(text: &str, columns: usize, ascii: bool) -> Document {
    let read = &text[..text.floor_char_boundary(INPUT)];
    let mut writer = Writer::new(columns.max(8), ascii);
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    for event in Parser::new_ext(read, options) {
        if writer.rows.len() >= ROWS {
            break;
        }
        writer.event(event);
    }
    let cut = read.len() < text.len() || writer.rows.len() >= ROWS;
    writer.rows.truncate(ROWS);
    while writer.rows.last().is_some_and(Vec::is_empty) {
        writer.rows.pop();
    }
    Document { rows: writer.rows, cut }
}

/// A block that text stands in.
enum Container {
    Quote,
    /// The marker of a list item, until it was written, and its width.
    Item(Option<String>, usize),
}

struct Writer {
    columns: usize,
    ascii: bool,
    rows: Vec<Vec<Piece>>,
    containers: Vec<Container>,
    /// Next number of each open list; none counts nothing.
    lists: Vec<Option<u64>>,
    inline: Vec<Piece>,
    tone: Vec<Tone>,
    modifier: Vec<Modifier>,
    links: Vec<(String, usize)>,
    code: Option<(String, String)>,
    table: Option<Table>,
    /// Bytes of code that may still be highlighted.
    budget: usize,
}

impl Writer {
    fn new(columns: usize, ascii: bool) -> Self {
        Self {
            columns,
            ascii,
            rows: Vec::new(),
            containers: Vec::new(),
            lists: Vec::new(),
            inline: Vec::new(),
            tone: Vec::new(),
            modifier: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            budget: code::DOCUMENT,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.write(&text, None),
            },
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.write(&text, Some(Tone::Code));
            }
            Event::Html(text) | Event::InlineHtml(text) => self.write(&text, Some(Tone::Muted)),
            Event::FootnoteReference(name) => self.write(&format!("[{name}]"), Some(Tone::Muted)),
            Event::SoftBreak => self.write(" ", None),
            Event::HardBreak => self.inline.push(Piece::new("\n", Tone::Plain)),
            Event::Rule => {
                self.gap();
                let line = if self.ascii { "-" } else { "─" };
                let (prefix, room) = self.prefix();
                self.rows
                    .push([prefix, vec![Piece::new(line.repeat(room.min(40)), Tone::Faint)]].concat());
            }
            Event::TaskListMarker(done) => {
                let mark = match (done, self.ascii) {
                    (true, true) => "[x] ",
                    (false, true) => "[ ] ",
                    (true, false) => "☑ ",
                    (false, false) => "☐ ",
                };
                self.inline.push(Piece::new(mark, Tone::Marker));
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.tone.push(Tone::Heading);
                if level > HeadingLevel::H2 {
                    self.modifier.push(Modifier::ITALIC);
                }
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.gap();
                self.containers.push(Container::Quote);
                self.tone.push(Tone::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.gap();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                self.flush();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ if self.ascii => "* ".to_owned(),
                    _ => "• ".to_owned(),
                };
                let width = crate::text::width(&marker);
                self.containers.push(Container::Item(Some(marker), width));
            }
            Tag::Emphasis => self.modifier.push(Modifier::ITALIC),
            Tag::Strong => self.modifier.push(Modifier::BOLD),
            Tag::Strikethrough => self.modifier.push(Modifier::CROSSED_OUT),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.to_string(), self.inline.len()));
                self.tone.push(Tone::Link);
            }
            Tag::Table(_) => {
                self.flush();
                self.gap();
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.row();
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(level) => {
                self.flush();
                self.tone.pop();
                if level > HeadingLevel::H2 {
                    self.modifier.pop();
                }
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.containers.pop();
                self.tone.pop();
            }
            TagEnd::CodeBlock => self.code_block(),
            TagEnd::List(_) => {
                self.flush();
                self.lists.pop();
            }
            TagEnd::Item => {
                self.flush();
                if self.at_item() {
                    // An empty item still has its marker.
                    let (prefix, _) = self.prefix();
                    self.rows.push(prefix);
                }
                self.containers.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.modifier.pop();
            }
            TagEnd::Link | TagEnd::Image => self.link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let (prefix, room) = self.prefix();
                    let rows = table.rows(room, self.ascii);
                    self.rows
                        .extend(rows.into_iter().map(|row| [prefix.clone(), row].concat()));
                }
            }
            _ => {}
        }
    }

    /// A link shows where it leads, unless its text says so already.
    fn link(&mut self) {
        self.tone.pop();
        let Some((target, from)) = self.links.pop() else { return };
        let text: String = self.inline[from.min(self.inline.len())..]
            .iter()
            .map(|piece| piece.text.as_str())
            .collect();
        let target = crate::text::fit(&crate::text::clean(&target), 200).into_owned();
        if !target.is_empty() && text.trim() != target.trim_start_matches("mailto:") {
            self.inline.push(Piece::new(format!(" ({target})"), Tone::Muted));
        }
    }

    fn write(&mut self, text: &str, tone: Option<Tone>) {
        let text = clean_document(text).replace(['\n', '\t'], " ");
        let tone = tone.or_else(|| self.tone.last().copied()).unwrap_or(Tone::Plain);
        let modifier = self.modifier.iter().copied().collect();
        self.inline.push(Piece { text, tone, modifier });
    }

    /// Whether nothing of the innermost list item was written yet.
    fn at_item(&self) -> bool {
        matches!(self.containers.last(), Some(Container::Item(Some(_), _)))
    }

    /// An empty row before a block; none within a list item before its first words.
    fn gap(&mut self) {
        if !self.at_item() && self.rows.last().is_some_and(|row| !row.is_empty()) {
            self.rows.push(Vec::new());
        }
    }

    /// What stands before the next row, and the columns that are left. Markers are used up by it.
    fn prefix(&mut self) -> (Vec<Piece>, usize) {
        let bar = if self.ascii { "| " } else { "▎ " };
        let mut prefix = Vec::new();
        let mut used = 0;
        let deepest = self.containers.len();
        for (depth, container) in self.containers.iter_mut().enumerate() {
            // The innermost container always shows; those between are left out when there are too many.
            if (depth >= DEPTH && depth + 1 < deepest) || used + 12 > self.columns {
                continue;
            }
            match container {
                Container::Quote => {
                    prefix.push(Piece::new(bar, Tone::Faint));
                    used += 2;
                }
                Container::Item(marker, width) => {
                    used += *width;
                    prefix.push(match marker.take() {
                        Some(marker) => Piece::new(marker, Tone::Marker),
                        None => Piece::new(" ".repeat(*width), Tone::Plain),
                    });
                }
            }
        }
        (prefix, self.columns.saturating_sub(used).max(8))
    }

    /// Writes the collected text as rows.
    fn flush(&mut self) {
        if self.inline.is_empty() || self.table.is_some() {
            return;
        }
        let pieces = std::mem::take(&mut self.inline);
        let (mut prefix, room) = self.prefix();
        for row in Flow::new(room).take(&pieces).rows() {
            if self.rows.len() >= ROWS {
                return;
            }
            self.rows.push([prefix, row].concat());
            prefix = self.prefix().0;
        }
    }

    fn code_block(&mut self) {
        let Some((language, code)) = self.code.take() else {
            return;
        };
        let (mut prefix, room) = self.prefix();
        let bar = if self.ascii { "| " } else { "│ " };
        let rows = code::highlight(&language, &code, &mut self.budget, ROWS - self.rows.len().min(ROWS));
        for row in rows {
            for piece in Flow::new(room.saturating_sub(2)).exact(&row).rows() {
                self.rows
                    .push([prefix, vec![Piece::new(bar, Tone::Faint)], piece].concat());
                prefix = self.prefix().0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
