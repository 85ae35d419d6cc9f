//! The run browser: the runs of all hosts, newest first. Only the visible windows are ever fetched; the selection follows a
//! run by id when newer runs push it down.

mod line;
mod merge;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use piw_protocol::client::Freshness;
use piw_protocol::ops::RunFilter;
use piw_protocol::view::{RunListItem, RunListPage};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use self::line::Kind;
use self::merge::{Extent, Merged};
use super::clock::{self, Millis};
use super::hosts::{self, HostId, Hosts, RunId};
use super::message::Effect;
use super::theme::{Mark, Theme};
use super::{screen, widgets};
use crate::text::{clean, counted, fit, fit_end, pad, width, wrap};

pub use self::line::FilterLine;
pub use self::merge::List;

/// Columns of a time beside a host.
const TIME: usize = 6;

/// State of the browser.
#[derive(Debug, Clone)]
pub struct Browser {
    /// The list of every host.
    pub lists: Vec<List>,
    /// Index of the selected run.
    pub selected: u64,
    /// The selected run.
    pub selected_id: Option<RunId>,
    /// Index of the first visible run.
    pub top: u64,
    /// What filters the list.
    pub line: FilterLine,
    /// What the servers were asked for: ages as instants, so that every window is one of the same list.
    asked: Option<RunFilter>,
    /// The list still is that of an older filter.
    seeking: bool,
    /// Whether the user has chosen a run.
    chosen: bool,
    generation: u64,
    merged: Merged,
    /// How much of each list is watched.
    extent: Extent,
}

impl Browser {
    /// The browser of as many hosts, with at most so many visible rows.
    #[must_use]
    pub fn new(hosts: usize, height: u64) -> Self {
        Self {
            lists: vec![List::default(); hosts],
            selected: 0,
            selected_id: None,
            top: 0,
            line: FilterLine::default(),
            asked: None,
            seeking: false,
            chosen: false,
            generation: 0,
            merged: Merged::default(),
            extent: Extent::of(height, hosts),
        }
    }

    /// Runs in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.merged.total
    }

    /// Whether any list is there.
    fn is_loaded(&self) -> bool {
        self.lists.iter().any(|list| list.page.is_some() && !list.hidden)
    }

    /// The run at an index, when its window is loaded.
    #[must_use]
    pub fn item(&self, index: u64) -> Option<(HostId, &RunListItem)> {
        let (host, at) = self.merged.at(index)?;
        Some((host, self.lists[host.0].page.as_ref()?.items.get(at)?))
    }

    fn id_at(&self, index: u64) -> Option<RunId> {
        self.item(index).map(|(host, item)| RunId {
            host,
            id: item.run_id.clone(),
        })
    }

    /// Runs that there would be without the filter, as far as the hosts say.
    fn unfiltered(&self) -> u64 {
        let pages = self.lists.iter().filter_map(|list| list.page.as_ref());
        pages.map(|page| page.unfiltered.unwrap_or(page.total)).sum()
    }

    /// Takes another text of the filter; asks for other runs when it means others.
    pub fn filter(&mut self, text: String, hosts: &Hosts, now: Millis) -> Vec<Effect> {
        if self.line.set(text, hosts) {
            self.watch(hosts, now)
        } else {
            Vec::new()
        }
    }

    /// Carries the last word of the filter on as far as there is only one way.
    pub fn complete(&mut self, hosts: &Hosts, now: Millis) -> Vec<Effect> {
        match self.line.completed() {
            Some(text) => self.filter(text, hosts, now),
            None => Vec::new(),
        }
    }

    /// Watches the runs that match the filter from the newest on, on every host that it names.
    pub fn watch(&mut self, hosts: &Hosts, now: Millis) -> Vec<Effect> {
        self.top = 0;
        self.selected = 0;
        self.selected_id = None;
        self.chosen = false;
        self.seeking = true;
        let named = &self.line.filter().hosts;
        for (id, host) in hosts.iter() {
            let name = host.name.to_lowercase();
            self.lists[id.0].hidden = !named.is_empty() && !named.iter().any(|part| name.contains(part));
        }
        self.merged = Merged::of(&self.lists);
        self.fix_ages(now);
        let ids: Vec<HostId> = hosts
            .iter()
            .map(|(id, _)| id)
            .filter(|id| !self.lists[id.0].hidden)
            .collect();
        ids.into_iter().map(|id| self.watch_one(id, 0)).collect()
    }

    /// Turns the ages of the filter into instants.
    fn fix_ages(&mut self, now: Millis) {
        let filter = self.line.filter();
        self.asked = filter.request(now);
        self.line.refresh_at = filter.refresh_after().map(|after| now + after);
    }

    /// Turns the ages into instants anew when it is time. Selection and place stay. A lost host is asked when it is back.
    pub fn refresh(&mut self, now: Millis) -> Vec<Effect> {
        if self.line.refresh_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.fix_ages(now);
        let asked = |list: &List| !list.hidden && !list.is_lost();
        let ids: Vec<HostId> = (0..self.lists.len())
            .filter(|at| asked(&self.lists[*at]))
            .map(HostId)
            .collect();
        ids.into_iter()
            .map(|id| self.watch_one(id, self.lists[id.0].wanted))
            .collect()
    }

    /// When the ages have to be turned into instants anew.
    #[must_use]
    pub fn refresh_at(&self) -> Option<Millis> {
        self.line.refresh_at
    }

    fn watch_one(&mut self, host: HostId, start: u64) -> Effect {
        self.generation += 1;
        let list = &mut self.lists[host.0];
        list.generation = self.generation;
        list.wanted = start;
        list.limit = self.extent.items;
        list.awaited = true;
        Effect::WatchRuns {
            host,
            generation: self.generation,
            start,
            limit: self.extent.items,
            filter: self.asked.clone(),
        }
    }

    /// Takes a newer window of a host; says whether another run is selected now.
    pub fn take(
        &mut self,
        host: HostId,
        generation: u64,
        page: Option<Arc<RunListPage>>,
        freshness: Freshness,
        height: u64,
    ) -> bool {
        let several = self.lists.len() > 1;
        let Some(list) = self.lists.get_mut(host.0).filter(|list| list.generation == generation) else {
            return false;
        };
        list.freshness = freshness;
        let is_first = page.is_some() && list.awaited;
        if let Some(page) = page {
            list.page = Some(page);
            list.awaited = false;
        } else if !several {
            return false;
        }
        self.seeking &= self
            .lists
            .iter()
            .any(|list| list.awaited && !list.hidden && !list.is_lost());
        self.merged = Merged::of(&self.lists);
        if several && is_first && !self.chosen {
            // Hosts answer one after the other; until somebody chooses, the newest of all is selected.
            (self.selected, self.top) = (0, 0);
            return self.adopt();
        }
        if let Some(index) = self.index_of_selected() {
            // What is above the selection changed: keep it on its row.
            if index > self.selected && self.top > 0 {
                self.top += index - self.selected;
            }
            self.selected = index;
        }
        self.selected = self.selected.min(self.total().saturating_sub(1));
        self.keep_visible(height);
        self.adopt()
    }

    fn index_of_selected(&self) -> Option<u64> {
        let wanted = self.selected_id.as_ref()?;
        let items = self.merged.iter().filter(|(_, host, _)| *host == wanted.host);
        let mut indexes = items.filter_map(|(index, ..)| Some((index, self.item(index)?.1)));
        indexes
            .find(|(_, item)| item.run_id == wanted.id)
            .map(|(index, _)| index)
    }

    /// Makes the selected index's run the selected run; says whether that is another one.
    fn adopt(&mut self) -> bool {
        let id = self.id_at(self.selected);
        if id.is_some() && id != self.selected_id {
            self.selected_id = id;
            return true;
        }
        false
    }

    /// Selects an index; says whether another run is selected now.
    pub fn select(&mut self, index: u64, height: u64) -> bool {
        self.chosen = true;
        self.selected = index.min(self.total().saturating_sub(1));
        self.keep_visible(height);
        if self.item(self.selected).is_none() {
            self.selected_id = None;
        }
        self.adopt()
    }

    /// Scrolls the list without changing the selection.
    pub fn scroll(&mut self, by: i64, height: u64) {
        self.chosen = true;
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

    /// The watches that move the windows when the visible rows leave them, or are about to.
    pub fn follow_window(&mut self, height: u64) -> Vec<Effect> {
        self.extent = Extent::of(height, self.lists.len());
        let moves = self.merged.windows(&self.lists, self.top, height).unwrap_or_default();
        moves
            .into_iter()
            .map(|(host, start)| self.watch_one(host, start))
            .collect()
    }

    /// The place of the list in the panel: several hosts have a line each below it.
    #[must_use]
    pub fn rows_area(&self, area: Rect) -> Rect {
        let inner = screen::inside(area);
        let below = |part: Option<Rect>| part.map_or(0, |part| part.height + 1);
        Rect {
            height: inner.height - below(self.hosts_area(area)) - below(self.help_area(area)),
            ..inner
        }
    }

    /// The place of the filter's help in the panel: below the list, above the hosts.
    fn help_area(&self, area: Rect) -> Option<Rect> {
        let inner = screen::inside(area);
        let lines = self.line.help(usize::from(inner.width)).len();
        let height = u16::try_from(lines).unwrap_or(u16::MAX).min(inner.height / 2);
        let bottom = self.hosts_area(area).map_or(inner.bottom(), |hosts| hosts.y - 1);
        (height > 0).then(|| Rect {
            y: bottom - height,
            height,
            ..inner
        })
    }

    /// The button that clears the filter.
    #[must_use]
    pub fn clear_button(&self, area: Rect) -> Option<Rect> {
        (self.line.is_shown() && area.width > 20).then(|| Rect::new(area.right() - 4, area.y, 3, 1))
    }

    /// The place of the hosts in the panel.
    #[must_use]
    pub fn hosts_area(&self, area: Rect) -> Option<Rect> {
        let inner = screen::inside(area);
        let height = u16::try_from(self.lists.len())
            .unwrap_or(u16::MAX)
            .min(inner.height / 3);
        (self.lists.len() > 1 && height > 0).then(|| Rect {
            y: inner.bottom() - height,
            height,
            ..inner
        })
    }

    /// Whether something in the list changes with the time.
    #[must_use]
    pub fn has_clock(&self, height: u64) -> bool {
        (self.top..self.top + height)
            .filter_map(|index| self.item(index))
            .any(|(_, item)| item.manifest.finished_at.is_none() && Mark::of(item.display.status) != Mark::Paused)
    }

    /// Title of the panel in so many columns.
    fn title(&self, theme: &Theme, rail: bool, columns: usize) -> Line<'static> {
        if rail {
            // There is room to say that runs are left out.
            return Line::styled(if self.line.is_active() { "/" } else { "" }, theme.key());
        }
        let total = self.total();
        let count = match (self.is_loaded(), self.line.is_shown()) {
            (false, _) => String::new(),
            (true, false) => format!("{total} "),
            (true, true) if self.seeking => "… ".to_owned(),
            (true, true) => format!("{total} of {} ", self.unfiltered()),
        };
        if !self.line.is_shown() {
            return Line::from(vec![
                Span::styled(" Runs ", theme.accent()),
                Span::styled(count, theme.muted()),
            ]);
        }
        let (text, room) = (clean(&self.line.text), columns.saturating_sub(4 + width(&count)));
        let text = if self.line.typing {
            format!(" /{}▏ ", fit_end(&text, room))
        } else {
            format!(" /{} ", fit(&text, room))
        };
        Line::from(vec![
            Span::styled(text, theme.key()),
            Span::styled(count, theme.muted()),
        ])
    }

    /// Draws the browser.
    pub fn draw(&self, look: &Look<'_>, area: Rect, buffer: &mut Buffer) {
        let (theme, rail) = (look.theme, look.rail);
        let button = self.clear_button(area);
        let columns = usize::from(area.width.saturating_sub(2 + button.map_or(0, |button| button.width)));
        widgets::panel(self.title(theme, rail, columns), theme, look.focused, area, buffer);
        if let Some(place) = button {
            let cross = if theme.ascii { " x " } else { " ✕ " };
            buffer.set_stringn(place.x, place.y, cross, 3, theme.key());
        }
        if let Some(place) = self.help_area(area) {
            self.draw_help(theme, place, buffer);
        }
        if let Some(place) = self.hosts_area(area) {
            rule(theme, place, buffer);
            let total = |list: &List| list.page.as_ref().map(|page| page.total);
            let runs: Vec<Option<u64>> = self.lists.iter().map(total).collect();
            look.hosts.draw(&runs, theme, rail, place, buffer);
        }
        let inner = self.rows_area(area);
        if self.total() == 0 {
            if !rail {
                self.draw_empty(look, inner, buffer);
            }
            return;
        }
        for (y, index) in (inner.y..inner.bottom()).zip(self.top..self.total()) {
            match self.item(index) {
                Some((host, item)) => {
                    let place = look.hosts.several().then(|| Place {
                        name: &look.hosts.get(host).name,
                        columns: look.hosts.columns(),
                        lost: self.lists[host.0].is_lost(),
                    });
                    let line = line(item, place, look, usize::from(inner.width));
                    buffer.set_line(inner.x, y, &line, inner.width);
                    if self.seeking && self.line.is_shown() {
                        // Nobody has said yet that these match.
                        buffer.set_style(Rect::new(inner.x, y, inner.width, 1), theme.muted());
                    }
                }
                None => {
                    buffer.set_stringn(inner.x + 1, y, "·", 1, theme.faint());
                }
            }
            if index == self.selected {
                let row = Rect::new(inner.x, y, inner.width, 1);
                buffer.set_style(row, theme.selected(look.focused));
                if !look.focused && !rail {
                    buffer.set_style(row, Style::new().add_modifier(Modifier::BOLD));
                }
            }
        }
        let top = usize::try_from(self.top).unwrap_or(usize::MAX);
        let total = usize::try_from(self.total()).unwrap_or(usize::MAX);
        widgets::scrollbar(theme, total, top, usize::from(inner.height), area, buffer);
    }

    /// Why no run is selected.
    #[must_use]
    pub fn why_empty(&self) -> &'static str {
        match (self.is_loaded(), !self.line.is_active(), self.total()) {
            (false, ..) => "loading…",
            (true, false, 0) => "no run matches",
            (true, true, 0) => "no runs yet: piw run <workflow> starts one",
            _ => "no run selected",
        }
    }

    fn draw_help(&self, theme: &Theme, place: Rect, buffer: &mut Buffer) {
        rule(theme, place, buffer);
        let lines = self.line.help(usize::from(place.width));
        for (y, (kind, line)) in (place.y..place.bottom()).zip(&lines) {
            let style = match kind {
                Kind::Help => theme.subtext(),
                Kind::Error => theme.error(),
            };
            let columns = usize::from(place.width).saturating_sub(1);
            buffer.set_stringn(place.x + 1, y, fit(line, columns.saturating_sub(1)), columns, style);
        }
    }

    fn draw_empty(&self, look: &Look<'_>, inner: Rect, buffer: &mut Buffer) {
        let theme = look.theme;
        let columns = usize::from(inner.width).saturating_sub(1);
        let (text, hint) = match (self.is_loaded() && !self.seeking, self.line.is_active()) {
            (false, _) => ("loading…", String::new()),
            (true, false) => ("no runs yet", "start one: piw run <workflow>".to_owned()),
            (true, true) => {
                let how = match (self.line.typing, look.clear) {
                    (true, _) => "Esc".to_owned(),
                    (false, Some(key)) => key.to_owned(),
                    (false, None) => "the cross above".to_owned(),
                };
                let all = counted(self.unfiltered(), "run");
                (
                    "no run matches",
                    format!("{how} clears the filter and shows all of {all}"),
                )
            }
        };
        buffer.set_stringn(inner.x + 1, inner.y, text, columns, theme.muted());
        for (y, line) in (inner.y + 2..inner.bottom()).zip(wrap(&hint, columns.saturating_sub(1).max(1))) {
            buffer.set_stringn(inner.x + 1, y, line, columns, theme.subtext());
        }
    }
}

/// A line above a part of the panel.
fn rule(theme: &Theme, below: Rect, buffer: &mut Buffer) {
    let line = if theme.ascii { "-" } else { "─" }.repeat(usize::from(below.width));
    buffer.set_stringn(below.x, below.y - 1, line, usize::from(below.width), theme.faint());
}

/// How the browser is drawn.
#[derive(Debug)]
pub struct Look<'a> {
    /// The hosts.
    pub hosts: &'a Hosts,
    /// Colours.
    pub theme: &'a Theme,
    /// Whether the browser has the focus.
    pub focused: bool,
    /// Whether only glyphs are shown.
    pub rail: bool,
    /// The present.
    pub now: Millis,
    /// The key that clears the filter.
    pub clear: Option<&'a str>,
}

/// The host of a line.
struct Place<'a> {
    name: &'a str,
    columns: usize,
    lost: bool,
}

/// One run as a line.
fn line(item: &RunListItem, place: Option<Place<'_>>, look: &Look<'_>, columns: usize) -> Line<'static> {
    let (theme, now) = (look.theme, look.now);
    let mark = Mark::of(item.display.status);
    let glyph = Span::styled(format!(" {} ", theme.glyph(mark)), theme.status(mark));
    if look.rail {
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
    let time = format!("{flag}{time}");
    // The names stand below each other.
    let gap = if place.is_some() {
        TIME.saturating_sub(width(&time))
    } else {
        0
    };
    let tail = format!(" {}{time} ", " ".repeat(gap));
    let named = place.as_ref().map_or(0, |place| place.columns + 1);
    let room = columns.saturating_sub(3 + width(&tail) + named);
    let lost = place.as_ref().is_some_and(|place| place.lost);
    let text = if lost {
        theme.muted()
    } else {
        Style::new().fg(theme.palette.text)
    };
    let workflow = clean(&item.workflow_name);
    let mut spans = vec![glyph];
    let title = item
        .manifest
        .run_title
        .as_deref()
        .filter(|title| !title.trim().is_empty());
    let title = title.map_or(workflow, clean);
    spans.push(Span::styled(pad(&title, room), text));
    if let Some(place) = place {
        let (mark, style) = match (lost, theme.ascii) {
            (true, true) => ("~", theme.warning()),
            (true, false) => ("↻", theme.warning()),
            (false, _) => ("", theme.subtext()),
        };
        let name = hosts::short(place.name, place.columns.saturating_sub(mark.len().min(1)));
        spans.push(Span::styled(
            format!(" {}", pad(&format!("{mark}{name}"), place.columns)),
            style,
        ));
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
