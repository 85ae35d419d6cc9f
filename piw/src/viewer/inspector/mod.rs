//! The inspector: what is known of the run on screen, in tabs. Each tab is a list of rows built from the model; this module
//! owns which tab, which row and which part is open, and draws the visible rows.

pub mod conversation;
pub mod diff;
pub mod info;
pub mod rows;
pub mod steps;
pub mod time;
pub mod trace;

use std::collections::HashSet;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use self::rows::{Action, Hints, Picked, Row, Rows};
use super::clock::Millis;
use super::run::Run;
use super::run::trace::Scope;
use super::theme::Theme;
use super::widgets;
use crate::text::clean;

/// What the inspector shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tab {
    /// Attempts in order.
    Steps,
    /// The waterfall.
    Time,
    /// Recorded events.
    Trace,
    /// The Pi session.
    Conversation,
    /// Facts.
    Info,
}

impl Tab {
    /// From left to right.
    pub const ALL: [Self; 5] = [Self::Steps, Self::Time, Self::Trace, Self::Conversation, Self::Info];

    /// Its title.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steps => "Steps",
            Self::Time => "Time",
            Self::Trace => "Trace",
            Self::Conversation => "Conversation",
            Self::Info => "Info",
        }
    }

    /// Whether new rows come at its end, which a reader wants to see.
    const fn grows(self) -> bool {
        matches!(self, Self::Steps | Self::Conversation)
    }

    /// Its title where there is little room.
    const fn short(self) -> &'static str {
        match self {
            Self::Conversation => "Conv",
            tab => tab.name(),
        }
    }

    const fn slot(self) -> usize {
        self as usize
    }
}

/// State of the inspector.
#[derive(Debug, Clone)]
pub struct Inspector {
    /// Shown tab.
    pub tab: Tab,
    /// Selected row by tab.
    selected: [usize; 5],
    /// First shown row by tab.
    top: [usize; 5],
    /// Whether each tab stays at its end; only those that grow do.
    at_end: [bool; 5],
    /// Keys whose state differs from the default.
    pub toggled: HashSet<String>,
    /// Text that is searched for.
    pub search: String,
    /// Whether the text is being typed.
    pub typing: bool,
    /// What the trace is about.
    pub scope: Scope,
    /// The step of the row that was selected last.
    pub chosen: Option<u64>,
    /// Keys that rows speak of.
    pub hints: Hints,
    /// Rows of the shown tab, while nothing has changed that they are made of.
    kept: Option<Kept>,
}

/// Rows and what they were built for.
#[derive(Debug, Clone)]
struct Kept {
    rows: Arc<[Row]>,
    theme: Theme,
    columns: usize,
}

impl Default for Inspector {
    fn default() -> Self {
        Self {
            tab: Tab::Steps,
            selected: [0; 5],
            top: [0; 5],
            at_end: [true; 5],
            toggled: HashSet::new(),
            search: String::new(),
            typing: false,
            scope: Scope::default(),
            chosen: None,
            kept: None,
            hints: Hints::default(),
        }
    }
}

impl Inspector {
    /// The same tab for another run.
    #[must_use]
    pub fn for_new_run(&self) -> Self {
        Self {
            tab: self.tab,
            scope: self.scope,
            hints: self.hints.clone(),
            ..Self::default()
        }
    }

    /// All rows of the shown tab: the kept ones, else new ones.
    #[must_use]
    pub fn rows(&self, run: &Run, theme: &Theme, columns: usize, now: Millis) -> Arc<[Row]> {
        match self.kept(theme, columns) {
            Some(rows) => Arc::clone(rows),
            None => self.build(run, theme, columns, now, None).rows.into(),
        }
    }

    /// The kept rows, when they were built for this theme and width.
    #[must_use]
    pub fn kept(&self, theme: &Theme, columns: usize) -> Option<&Arc<[Row]>> {
        let kept = self.kept.as_ref();
        let fits = kept.filter(|kept| kept.columns == columns && kept.theme == *theme);
        fits.map(|kept| &kept.rows)
    }

    /// Keeps rows that were built for everything as it is now.
    pub fn keep(&mut self, rows: Vec<Row>, theme: &Theme, columns: usize) {
        self.kept = Some(Kept {
            rows: rows.into(),
            theme: theme.clone(),
            columns,
        });
    }

    /// The rows may be others from now on. Whoever changes what they are made of says so.
    pub fn forget(&mut self) {
        self.kept = None;
    }

    /// What the selected row stands for, whole; without one of its own, the whole run.
    #[must_use]
    pub fn picked(&self, run: &Run, theme: &Theme, columns: usize, now: Millis) -> Option<Picked> {
        self.build(run, theme, columns, now, Some(self.selected())).picked
    }

    /// Builds the rows of the shown tab; `pick` is the row whose whole value is wanted.
    #[must_use]
    pub fn build<'a>(
        &'a self,
        run: &'a Run,
        theme: &'a Theme,
        columns: usize,
        now: Millis,
        pick: Option<usize>,
    ) -> Rows<'a> {
        let mut rows = Rows::new(run, theme, &self.toggled, &self.hints, columns);
        rows.pick = pick;
        match self.tab {
            Tab::Steps => steps::build(&mut rows, now),
            Tab::Time => time::build(&mut rows, now),
            Tab::Trace => trace::build(&mut rows, self.scope),
            Tab::Conversation => conversation::build(&mut rows, now),
            Tab::Info => info::build(&mut rows, now),
        }
        rows
    }

    /// Selected row of the shown tab.
    #[must_use]
    pub const fn selected(&self) -> usize {
        self.selected[self.tab.slot()]
    }

    /// First shown row of the shown tab.
    #[must_use]
    pub const fn top(&self) -> usize {
        self.top[self.tab.slot()]
    }

    /// Moves the selection and keeps it visible.
    pub fn select(&mut self, row: usize, rows: usize, height: usize) {
        let slot = self.tab.slot();
        self.selected[slot] = row.min(rows.saturating_sub(1));
        self.at_end[slot] = self.selected[slot] + 1 >= rows;
        self.show(rows, height);
    }

    /// Scrolls without moving the selection more than needed.
    pub fn scroll(&mut self, by: isize, rows: usize, height: usize) {
        let slot = self.tab.slot();
        let most = rows.saturating_sub(height);
        self.top[slot] = self.top[slot].saturating_add_signed(by).min(most);
        let (top, bottom) = (self.top[slot], (self.top[slot] + height).saturating_sub(1));
        self.selected[slot] = self.selected[slot]
            .clamp(top, bottom.max(top))
            .min(rows.saturating_sub(1));
        self.at_end[slot] = self.selected[slot] + 1 >= rows;
    }

    /// Keeps selection and scroll position within `rows`.
    pub fn show(&mut self, rows: usize, height: usize) {
        let slot = self.tab.slot();
        self.selected[slot] = self.selected[slot].min(rows.saturating_sub(1));
        if self.at_end[slot] && self.tab.grows() {
            self.selected[slot] = rows.saturating_sub(1);
        }
        let (selected, height) = (self.selected[slot], height.max(1));
        self.top[slot] = self.top[slot].min(selected).max((selected + 1).saturating_sub(height));
        self.top[slot] = self.top[slot].min(rows.saturating_sub(height));
    }

    /// Stays at the end of a tab, or leaves the selection where it is.
    pub const fn stay_at_end(&mut self, tab: Tab, stay: bool) {
        self.at_end[tab.slot()] = stay;
    }

    /// Opens or closes a part.
    pub fn toggle(&mut self, key: &str) {
        if !self.toggled.remove(key) {
            self.toggled.insert(key.to_owned());
        }
    }

    /// Whether a row contains the searched text.
    fn matches(&self, row: &Row) -> bool {
        !self.search.is_empty()
            && row
                .line
                .to_string()
                .to_lowercase()
                .contains(&self.search.to_lowercase())
    }

    /// The next row from `from` on, in a direction, that contains the text; goes round at the ends.
    #[must_use]
    pub fn find(&self, rows: &[Row], from: usize, forward: bool) -> Option<usize> {
        let wanted = self.search.to_lowercase();
        if wanted.is_empty() || rows.is_empty() {
            return None;
        }
        let count = rows.len();
        (0..count)
            .map(|step| {
                if forward {
                    (from + step) % count
                } else {
                    (from + count - step % count) % count
                }
            })
            .find(|at| rows[*at].line.to_string().to_lowercase().contains(&wanted))
    }

    /// The action of a row.
    #[must_use]
    pub fn action(rows: &[Row], row: usize) -> Option<Action> {
        rows.get(row).and_then(|row| row.action.clone())
    }

    /// Title with the tabs for a panel of `room` columns; the columns of each tab within the title.
    #[must_use]
    pub fn title(&self, theme: &Theme, room: u16) -> (Line<'static>, Vec<(Tab, u16, u16)>) {
        let mut spans = vec![Span::raw(" ")];
        let mut hits = Vec::new();
        let mut x = 1;
        let whole: usize = Tab::ALL.iter().map(|tab| tab.name().len() + 4).sum();
        let fits = whole <= usize::from(room);
        for (number, tab) in Tab::ALL.into_iter().enumerate() {
            let name = if fits { tab.name() } else { tab.short() };
            let text = format!("{} {name}", number + 1);
            let columns = text.len() as u16;
            hits.push((tab, x, columns));
            let style = if tab == self.tab { theme.accent() } else { theme.muted() };
            spans.push(Span::styled(text, style));
            spans.push(Span::raw("  "));
            x += columns + 2;
        }
        spans.pop();
        if self.typing || !self.search.is_empty() {
            let cursor = if self.typing { "▏" } else { "" };
            spans.push(Span::styled(format!("  /{}{cursor}", clean(&self.search)), theme.key()));
        }
        spans.push(Span::raw(" "));
        (Line::from(spans), hits)
    }

    /// Draws the inspector.
    pub fn draw(&self, run: Option<&Run>, theme: &Theme, focused: bool, now: Millis, area: Rect, buffer: &mut Buffer) {
        let inner = widgets::panel(
            self.title(theme, area.width.saturating_sub(2)).0,
            theme,
            focused,
            area,
            buffer,
        );
        let Some(run) = run else { return };
        let rows = self.rows(run, theme, usize::from(inner.width.saturating_sub(1)), now);
        let top = self.top().min(rows.len().saturating_sub(usize::from(inner.height)));
        for (y, (index, row)) in (inner.y..inner.bottom()).zip(rows.iter().enumerate().skip(top)) {
            let room = inner.width.saturating_sub(1);
            buffer.set_line(inner.x, y, &row.line, room);
            if row.line.width() > usize::from(room) && room > 0 {
                // What does not fit is not just gone; a wide character in the last two cells goes as a whole.
                let last = Rect::new(inner.x + room - 1, y, 1, 1);
                if crate::text::width(buffer[(last.x.saturating_sub(1), y)].symbol()) > 1 {
                    buffer[(last.x - 1, y)].set_symbol(" ");
                }
                buffer[(last.x, y)].set_symbol("…").set_style(theme.muted());
            }
            if self.matches(row) {
                buffer.set_style(
                    Rect::new(inner.x, y, 1, 1),
                    theme.key().add_modifier(Modifier::REVERSED),
                );
            }
            if index == self.selected() && focused {
                buffer.set_style(Rect::new(inner.x, y, inner.width, 1), theme.selected(true));
            }
        }
        widgets::scrollbar(theme, rows.len(), top, usize::from(inner.height), area, buffer);
    }
}
