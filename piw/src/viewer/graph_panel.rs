//! The graph panel: which part of the drawing is visible, the density, the selected node, follow mode and the minimap.

use std::sync::Arc;

use piw_protocol::client::Freshness;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::graph::drawing::Point;
use super::graph::paint::{Scene, paint};
use super::graph::{Density, Drawing};
use super::run::Run;
use super::theme::{Mark, Theme};
use super::{screen, widgets};
use crate::text::clean;

/// Cells that stay visible around a followed node.
const MARGIN: i32 = 2;
/// Densities that are chosen without being asked for: node names are always readable.
pub const AUTOMATIC: [Density; 2] = [Density::Boxed, Density::Compact];
/// Size of the minimap.
const MINIMAP: (u16, u16) = (18, 8);

/// State of the panel.
#[derive(Debug, Clone)]
pub struct GraphPanel {
    /// Density.
    pub density: Density,
    /// Whether the density was chosen by the user; until then one of [`AUTOMATIC`] is taken.
    pub chosen: bool,
    /// Drawing cell at the top left.
    pub origin: Point,
    /// Whether the view follows the active node.
    pub follow: bool,
    /// Selected node.
    pub selected: Option<usize>,
}

impl Default for GraphPanel {
    fn default() -> Self {
        Self {
            density: Density::Boxed,
            chosen: false,
            origin: Point::default(),
            follow: true,
            selected: None,
        }
    }
}

impl GraphPanel {
    /// Moves the view; panning turns follow mode off.
    pub fn pan(&mut self, dx: i32, dy: i32, drawing: &Drawing, panel: Rect) {
        self.follow = false;
        self.origin.x += dx;
        self.origin.y += dy;
        self.clamp(drawing, panel);
    }

    /// Keeps the drawing in view: centred when it is smaller than the panel, else without empty margins.
    pub fn clamp(&mut self, drawing: &Drawing, panel: Rect) {
        let inner = screen::inside(panel);
        let fit = |origin: i32, size: i32, room: i32| {
            if size <= room {
                -(room - size) / 2
            } else {
                origin.clamp(-1, size - room + 1)
            }
        };
        self.origin.x = fit(self.origin.x, drawing.width, i32::from(inner.width));
        self.origin.y = fit(self.origin.y, drawing.height, i32::from(inner.height));
    }

    /// Scrolls as little as needed to show a node with some room around it; `center` puts it into the middle.
    pub fn reveal(&mut self, node: usize, drawing: &Drawing, panel: Rect, center: bool) {
        let inner = screen::inside(panel);
        let (w, h) = (i32::from(inner.width), i32::from(inner.height));
        if let Some(card) = drawing.card_of(node) {
            let area = card.area;
            let near = |origin: i32, at: i32, size: i32, room: i32| {
                if center && (at < origin + MARGIN || at + size > origin + room - MARGIN) {
                    at + size / 2 - room / 2
                } else {
                    origin.min(at - MARGIN).max(at + size + MARGIN - room)
                }
            };
            self.origin.x = near(self.origin.x, area.x, area.w, w);
            self.origin.y = near(self.origin.y, area.y, area.h, h);
        }
        self.clamp(drawing, panel);
    }

    /// Puts a node into the middle, as far as the drawing's edges allow.
    fn center(&mut self, node: usize, drawing: &Drawing, panel: Rect) {
        let inner = screen::inside(panel);
        if let Some(card) = drawing.card_of(node) {
            let middle = card.area.center();
            self.origin = Point {
                x: middle.x - i32::from(inner.width) / 2,
                y: middle.y - i32::from(inner.height) / 2,
            };
        }
        self.clamp(drawing, panel);
    }

    /// Follows the run and keeps the view in bounds; called after everything that may have changed either.
    pub fn settle(&mut self, run: &Run, panel: Rect) {
        let Some(drawing) = run.drawing(self.density).map(Arc::clone) else {
            return;
        };
        match run.focus_node().filter(|_| self.follow) {
            Some(node) => self.center(node, &drawing, panel),
            None => self.clamp(&drawing, panel),
        }
    }

    /// The node from which keys move the selection.
    fn from(&self, run: &Run) -> Option<usize> {
        self.selected.or_else(|| run.focus_node())
    }

    /// The node next to the selected one in a direction.
    #[must_use]
    pub fn neighbour(&self, run: &Run, dx: i32, dy: i32) -> Option<usize> {
        let drawing = run.drawing(self.density)?;
        let from = drawing.card_of(self.from(run)?)?.area;
        let here = from.center();
        drawing
            .cards
            .iter()
            .filter_map(|card| {
                let there = card.area.center();
                let (x, y) = (there.x - here.x, there.y - here.y);
                let ahead = x * dx + y * dy;
                // Cards on the same rank share their top row; moving up or down means another rank.
                let clear = if dy == 0 {
                    ahead > 0 && (card.area.y - from.y).abs() <= from.h
                } else {
                    ahead > 0 && card.area.y != from.y
                };
                // A row is about as tall as two columns are wide.
                let (along, across) = if dy == 0 {
                    (x.abs(), y.abs() * 6)
                } else {
                    (y.abs() * 3, x.abs())
                };
                clear.then_some((along + across, card.node))
            })
            .min()
            .map(|(_, node)| node)
    }

    /// The node at a terminal cell.
    #[must_use]
    pub fn node_at(&self, run: &Run, panel: Rect, column: u16, row: u16) -> Option<usize> {
        let (x, y) = self.to_drawing(panel, column, row)?;
        run.drawing(self.density)?.card_at(x, y).map(|card| card.node)
    }

    /// The group whose title row is at a terminal cell, or the folded group there.
    #[must_use]
    pub fn group_at(&self, run: &Run, panel: Rect, column: u16, row: u16) -> Option<usize> {
        let (x, y) = self.to_drawing(panel, column, row)?;
        let group = run.drawing(self.density)?.group_at(x, y)?;
        (group.folded || group.area.y == y).then_some(group.group)
    }

    fn to_drawing(&self, panel: Rect, column: u16, row: u16) -> Option<(i32, i32)> {
        let inner = screen::inside(panel);
        let inside = column >= inner.x && column < inner.right() && row >= inner.y && row < inner.bottom();
        inside.then(|| {
            (
                i32::from(column - inner.x) + self.origin.x,
                i32::from(row - inner.y) + self.origin.y,
            )
        })
    }

    /// The roomiest readable density whose drawing fits the panel; when none does, the roomiest that needs scrolling in one
    /// direction only, else the densest readable one. `None` until enough drawings are there to tell.
    #[must_use]
    pub fn best(run: &Run, panel: Rect) -> Option<Density> {
        let inner = screen::inside(panel);
        let (w, h) = (i32::from(inner.width), i32::from(inner.height));
        let mut narrow = None;
        for density in AUTOMATIC {
            let drawing = run.drawing(density)?;
            if drawing.width <= w && drawing.height <= h {
                return Some(density);
            }
            if drawing.width <= w && narrow.is_none() {
                narrow = Some(density);
            }
        }
        narrow.or(AUTOMATIC.last().copied())
    }

    fn title(&self, run: Option<&Run>, theme: &Theme) -> Line<'static> {
        let name = run.and_then(|run| run.view.as_ref()).map_or_else(String::new, |view| {
            let title = view.state.run_title.as_deref().unwrap_or(&view.state.workflow_name);
            clean(title).into_owned()
        });
        let mut spans = vec![Span::styled(" Graph ", theme.accent())];
        if !name.is_empty() {
            spans.push(Span::styled(format!("{name} "), theme.subtext()));
        }
        spans.push(Span::styled(format!("· {} ", self.density.name()), theme.muted()));
        if self.follow {
            spans.push(Span::styled("· follow ", theme.muted()));
        }
        Line::from(spans)
    }

    /// Draws the panel; without a run, why there is none.
    pub fn draw(&self, run: Result<&Run, &str>, theme: &Theme, focused: bool, area: Rect, buffer: &mut Buffer) {
        let inner = widgets::panel(self.title(run.ok(), theme), theme, focused, area, buffer);
        let notice = |buffer: &mut Buffer, text: &str, style| {
            let lines = crate::text::wrap(text, usize::from(inner.width));
            let top = inner.y + (inner.height + 1).saturating_sub(lines.len() as u16) / 2;
            for (y, line) in (top..inner.bottom()).zip(lines) {
                let x = inner.x + inner.width.saturating_sub(crate::text::width(&line) as u16) / 2;
                buffer.set_stringn(x, y, line, usize::from(inner.width), style);
            }
        };
        let run = match run {
            Ok(run) => run,
            Err(why) => return notice(buffer, why, theme.muted()),
        };
        if let Some(error) = &run.graph_error {
            return notice(buffer, &clean(error), theme.error());
        }
        if let Freshness::Refused(error) = &run.freshness {
            return notice(buffer, &clean(&error.to_string()), theme.error());
        }
        let (Some(graph), Some(drawing)) = (&run.graph, run.drawing(self.density)) else {
            return notice(buffer, "loading…", theme.muted());
        };
        let scene = Scene {
            graph,
            drawing,
            overlay: &run.overlay,
            origin: self.origin,
            selected: self.selected,
            theme,
        };
        paint(&scene, inner, buffer);
        if drawing.width > i32::from(inner.width) || drawing.height > i32::from(inner.height) {
            self.minimap(run, drawing, theme, inner, buffer);
        }
    }

    /// The whole drawing in a corner, with the visible part marked.
    fn minimap(&self, run: &Run, drawing: &Drawing, theme: &Theme, inner: Rect, buffer: &mut Buffer) {
        let (w, h) = (MINIMAP.0.min(inner.width / 4), MINIMAP.1.min(inner.height / 3));
        if w < 12 || h < 5 {
            return;
        }
        let area = Rect::new(inner.right() - w, inner.bottom() - h, w, h);
        widgets::cover(area, buffer);
        buffer.set_style(area, theme.text());
        let map = widgets::panel(Line::raw(""), theme, false, area, buffer);
        let scale = |value: i32, size: i32, room: u16| {
            (i64::from(value) * i64::from(room) / i64::from(size.max(1))).clamp(0, i64::from(room)) as u16
        };
        let x0 = scale(self.origin.x, drawing.width, map.width);
        let y0 = scale(self.origin.y, drawing.height, map.height);
        let x1 = scale(self.origin.x + i32::from(inner.width), drawing.width, map.width).max(x0 + 1);
        let y1 = scale(self.origin.y + i32::from(inner.height), drawing.height, map.height).max(y0 + 1);
        let mut cells: Vec<Mark> = vec![Mark::Idle; usize::from(map.width) * usize::from(map.height)];
        let mut filled = vec![false; cells.len()];
        for card in &drawing.cards {
            let center = card.area.center();
            let x = scale(center.x, drawing.width, map.width).min(map.width - 1);
            let y = scale(center.y, drawing.height, map.height).min(map.height - 1);
            let at = usize::from(y) * usize::from(map.width) + usize::from(x);
            let mark = run.overlay.nodes.get(card.node).map_or(Mark::Idle, |node| node.mark);
            filled[at] = true;
            if mark.weight() > cells[at].weight() {
                cells[at] = mark;
            }
        }
        for y in 0..map.height {
            for x in 0..map.width {
                let at = usize::from(y) * usize::from(map.width) + usize::from(x);
                let Some(cell) = buffer.cell_mut((map.x + x, map.y + y)) else {
                    continue;
                };
                if filled[at] {
                    cell.set_symbol(if theme.ascii { "o" } else { "▪" })
                        .set_style(theme.status(cells[at]));
                }
                if x >= x0 && x < x1 && y >= y0 && y < y1 {
                    cell.set_style(theme.selected(true));
                }
            }
        }
    }
}
