//! The run browser: a window of the run list, newest first. Only the visible window is ever fetched; the selection follows a
//! run by id when newer runs push it down.

use std::sync::Arc;

use piw_protocol::client::Freshness;
use piw_protocol::ops::RunFilter;
use piw_protocol::view::{RunListItem, RunListPage};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::clock::{self, Millis};
use super::message::Effect;
use super::theme::{Mark, Theme};
use super::widgets;
use crate::text::{clean, fit, pad, width};

/// Items of one window.
const WINDOW: u64 = 256;
/// Items that a new window starts before the first visible one.
const LEAD: u64 = 96;

/// State of the browser.
#[derive(Debug, Clone)]
pub struct Browser {
    /// The newest window.
    pub page: Option<Arc<RunListPage>>,
    /// How current it is.
    pub freshness: Freshness,
    /// Index of the selected run.
    pub selected: u64,
    /// The selected run.
    pub selected_id: Option<String>,
    /// Index of the first visible run.
    pub top: u64,
    /// Text that runs must contain.
    pub filter: String,
    /// Whether the filter is being typed.
    pub typing: bool,
    generation: u64,
    wanted_start: u64,
}

impl Default for Browser {
    fn default() -> Self {
        Self {
            page: None,
            freshness: Freshness::Opening,
            selected: 0,
            selected_id: None,
            top: 0,
            filter: String::new(),
            typing: false,
            generation: 0,
            wanted_start: 0,
        }
    }
}

impl Browser {
    /// Runs in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.page.as_ref().map_or(0, |page| page.total)
    }

    /// The item at an index, when its window is loaded.
    #[must_use]
    pub fn item(&self, index: u64) -> Option<&RunListItem> {
        let page = self.page.as_ref()?;
        page.items.get(usize::try_from(index.checked_sub(page.start)?).ok()?)
    }

    /// Watches the window around the visible rows from scratch.
    pub fn watch(&mut self) -> Effect {
        self.generation += 1;
        self.wanted_start = self.top.saturating_sub(LEAD);
        Effect::WatchRuns {
            generation: self.generation,
            start: self.wanted_start,
            filter: self.run_filter(),
        }
    }

    /// What the typed filter means: `status:failed`, `workflow:name` and free text, separated by spaces.
    fn run_filter(&self) -> Option<RunFilter> {
        let mut filter = RunFilter::default();
        let mut text = Vec::new();
        for word in self.filter.split_whitespace() {
            match word.split_once(':') {
                Some(("status" | "s", value)) => {
                    let value = value.replace('-', "_").to_lowercase();
                    if let Ok(status) = serde_json::from_value(serde_json::Value::String(value)) {
                        filter.status.get_or_insert_default().push(status);
                    }
                }
                Some(("workflow" | "w", value)) => filter.workflow = Some(value.to_owned()),
                _ => text.push(word),
            }
        }
        filter.text = (!text.is_empty()).then(|| text.join(" "));
        (filter != RunFilter::default()).then_some(filter)
    }

    /// Takes a newer window; says whether another run is selected now.
    pub fn take(&mut self, generation: u64, page: Option<Arc<RunListPage>>, freshness: Freshness, height: u64) -> bool {
        if generation != self.generation {
            return false;
        }
        self.freshness = freshness;
        let Some(page) = page else { return false };
        if let Some(at) = page
            .items
            .iter()
            .position(|item| Some(&item.run_id) == self.selected_id.as_ref())
        {
            let index = page.start + at as u64;
            let moved = index.cmp(&self.selected);
            // What is above the selection changed: keep it on its row.
            if moved.is_gt() && self.top > 0 {
                self.top += index - self.selected;
            }
            self.selected = index;
        }
        self.page = Some(page);
        self.selected = self.selected.min(self.total().saturating_sub(1));
        self.keep_visible(height);
        self.adopt()
    }

    /// Makes the selected index's run the selected run; says whether that is another one.
    fn adopt(&mut self) -> bool {
        let id = self.item(self.selected).map(|item| item.run_id.clone());
        if id.is_some() && id != self.selected_id {
            self.selected_id = id;
            return true;
        }
        false
    }

    /// Selects an index; says whether another run is selected now.
    pub fn select(&mut self, index: u64, height: u64) -> bool {
        self.selected = index.min(self.total().saturating_sub(1));
        self.keep_visible(height);
        if self.item(self.selected).is_none() {
            self.selected_id = None;
        }
        self.adopt()
    }

    /// Scrolls the list without changing the selection.
    pub fn scroll(&mut self, by: i64, height: u64) {
        let most = self.total().saturating_sub(height);
        self.top = self.top.saturating_add_signed(by).min(most);
    }

    fn keep_visible(&mut self, height: u64) {
        let height = height.max(1);
        self.top = self
            .top
            .min(self.selected)
            .max((self.selected + 1).saturating_sub(height));
        self.top = self.top.min(self.total().saturating_sub(height));
    }

    /// The watch that moves the window when the visible rows leave it.
    pub fn follow_window(&mut self, height: u64) -> Option<Effect> {
        let page = self.page.as_ref()?;
        let end = (self.top + height).min(page.total);
        let covered = self.wanted_start <= self.top && end <= self.wanted_start + WINDOW;
        (!covered).then(|| self.watch())
    }

    /// Whether something in the list changes with the time.
    #[must_use]
    pub fn has_clock(&self, height: u64) -> bool {
        (self.top..self.top + height)
            .filter_map(|index| self.item(index))
            .any(|item| item.manifest.finished_at.is_none() && Mark::of(item.display.status) != Mark::Paused)
    }

    /// Title of the panel.
    fn title(&self, theme: &Theme, rail: bool) -> Line<'static> {
        if rail {
            return Line::raw("");
        }
        let mut spans = vec![Span::styled(" Runs ", theme.accent())];
        if self.typing || !self.filter.is_empty() {
            let cursor = if self.typing { "▏" } else { "" };
            spans.push(Span::styled(format!("/{}{cursor} ", clean(&self.filter)), theme.key()));
        }
        if self.page.is_some() {
            spans.push(Span::styled(format!("{} ", self.total()), theme.muted()));
        }
        Line::from(spans)
    }

    /// Draws the browser.
    pub fn draw(&self, theme: &Theme, focused: bool, rail: bool, now: Millis, area: Rect, buffer: &mut Buffer) {
        let inner = widgets::panel(self.title(theme, rail), theme, focused, area, buffer);
        if self.total() == 0 {
            let text = match (&self.page, self.filter.is_empty()) {
                (None, _) => "loading…",
                (Some(_), false) => "no run matches",
                (Some(_), true) => "no runs yet",
            };
            if !rail {
                buffer.set_stringn(inner.x + 1, inner.y, text, usize::from(inner.width), theme.muted());
                if self.page.is_some() && self.filter.is_empty() && inner.height > 2 {
                    let hint = fit(
                        "start one: piw run <workflow>",
                        usize::from(inner.width.saturating_sub(1)),
                    );
                    buffer.set_stringn(
                        inner.x + 1,
                        inner.y + 2,
                        hint,
                        usize::from(inner.width),
                        theme.subtext(),
                    );
                }
            }
            return;
        }
        for (y, index) in (inner.y..inner.bottom()).zip(self.top..self.total()) {
            let selected = index == self.selected;
            let row = Rect::new(inner.x, y, inner.width, 1);
            match self.item(index) {
                Some(item) => {
                    let line = line(item, theme, usize::from(inner.width), rail, now);
                    buffer.set_line(inner.x, y, &line, inner.width);
                }
                None => {
                    buffer.set_stringn(inner.x + 1, y, "·", 1, theme.faint());
                }
            }
            if selected {
                buffer.set_style(row, theme.selected(focused));
                if !focused && !rail {
                    buffer.set_style(row, Style::new().add_modifier(Modifier::BOLD));
                }
            }
        }
        let top = usize::try_from(self.top).unwrap_or(usize::MAX);
        let total = usize::try_from(self.total()).unwrap_or(usize::MAX);
        widgets::scrollbar(theme, total, top, usize::from(inner.height), area, buffer);
    }
}

/// One run as a line.
fn line(item: &RunListItem, theme: &Theme, columns: usize, rail: bool, now: Millis) -> Line<'static> {
    let mark = Mark::of(item.display.status);
    let glyph = Span::styled(format!(" {} ", theme.glyph(mark)), theme.status(mark));
    if rail {
        return Line::from(glyph);
    }
    let started = clock::parse(&item.manifest.started_at).or_else(|| clock::parse(&item.created_at));
    let ended = item.manifest.finished_at.as_deref().and_then(clock::parse);
    let time = started.map_or_else(String::new, |from| clock::duration(ended.unwrap_or(now) - from));
    // Of a run that has ended the glyph does not tell that an effect of it waits for a review.
    let unsettled = mark != Mark::Ambiguous && item.display.controls.iter().any(|control| control == "review");
    let flag = match (unsettled, item.possibly_interrupted) {
        (true, _) => theme.glyph(Mark::Ambiguous),
        (false, true) => "?",
        (false, false) => "",
    };
    let tail = format!(" {flag}{time} ");
    let room = columns.saturating_sub(3 + width(&tail));
    let workflow = clean(&item.workflow_name);
    let mut spans = vec![glyph];
    match item
        .manifest
        .run_title
        .as_deref()
        .filter(|title| !title.trim().is_empty())
    {
        Some(title) => spans.push(Span::styled(
            pad(&clean(title), room),
            Style::new().fg(theme.palette.text),
        )),
        None => spans.push(Span::styled(pad(&workflow, room), Style::new().fg(theme.palette.text))),
    }
    spans.push(Span::styled(
        tail,
        if flag.is_empty() {
            theme.muted()
        } else {
            theme.warning()
        },
    ));
    Line::from(spans)
}
