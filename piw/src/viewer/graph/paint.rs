//! Paints the visible part of a drawing with the state of a run over it. Reads only; geometry never changes here.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::canvas::{Canvas, LineCell, Tone};
use super::drawing::{Area, Card, Density, Drawing, GroupBox, Point};
use super::model::Graph;
use crate::text::{fit, width};
use crate::viewer::theme::{Mark, Theme};

/// State of one node at the shown position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeState {
    /// What it is doing.
    pub mark: Mark,
    /// Attempts so far.
    pub attempts: u32,
    /// Time of the newest attempt, ready to print; empty when it never started.
    pub time: String,
    /// One line, neutralised; empty when there is none.
    pub detail: String,
}

impl Default for NodeState {
    fn default() -> Self {
        Self {
            mark: Mark::Idle,
            attempts: 0,
            time: String::new(),
            detail: String::new(),
        }
    }
}

/// State of a run over its graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// By node.
    pub nodes: Vec<NodeState>,
    /// By edge: how often it was taken.
    pub taken: Vec<u64>,
    /// The edge into what runs now.
    pub active_edge: Option<usize>,
}

impl Overlay {
    /// Nothing has happened.
    #[must_use]
    pub fn idle(graph: &Graph) -> Self {
        Self {
            nodes: vec![NodeState::default(); graph.nodes.len()],
            taken: vec![0; graph.edges.len()],
            active_edge: None,
        }
    }
}

/// What to paint.
pub struct Scene<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its drawing.
    pub drawing: &'a Drawing,
    /// The run's state.
    pub overlay: &'a Overlay,
    /// Drawing cell at the top left of the view.
    pub origin: Point,
    /// Selected node.
    pub selected: Option<usize>,
    /// Colours and glyphs.
    pub theme: &'a Theme,
}

/// Paints into `area`.
pub fn paint(scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
    let view = Area {
        x: scene.origin.x,
        y: scene.origin.y,
        w: i32::from(area.width),
        h: i32::from(area.height),
    };
    let mut brush = Brush {
        scene,
        area,
        view,
        buffer,
    };
    for group in scene.drawing.groups.iter().filter(|group| group.area.overlaps(&view)) {
        brush.group(group);
    }
    let canvas = brush.lines();
    for label in &scene.drawing.labels {
        if !brush.shows(label.at, &label.text) {
            continue;
        }
        let style = match tone(scene, &label.edges) {
            Tone::Active => scene.theme.active(),
            Tone::Taken => scene.theme.path().add_modifier(Modifier::BOLD),
            _ => scene.theme.subtext(),
        };
        brush.text(label.at.x, label.at.y, &label.text, i32::MAX, style);
    }
    for group in scene
        .drawing
        .groups
        .iter()
        .filter(|group| group.folded && group.area.overlaps(&view))
    {
        brush.folded(group, &canvas);
    }
    for card in scene.drawing.cards.iter().filter(|card| card.area.overlaps(&view)) {
        brush.card(card, &canvas);
    }
    brush.start();
}

fn tone(scene: &Scene<'_>, edges: &[usize]) -> Tone {
    let one = |edge: &usize| {
        if scene.overlay.active_edge == Some(*edge) {
            Tone::Active
        } else if scene.overlay.taken.get(*edge).is_some_and(|count| *count > 0) {
            Tone::Taken
        } else {
            Tone::Plain
        }
    };
    edges.iter().map(one).max().unwrap_or(Tone::Plain)
}

struct Brush<'a, 'b> {
    scene: &'a Scene<'a>,
    area: Rect,
    view: Area,
    buffer: &'b mut Buffer,
}

impl Brush<'_, '_> {
    fn cell(&mut self, x: i32, y: i32, text: &str, style: Style) {
        if self.view.contains(x, y) {
            let column = self.area.x + (x - self.view.x) as u16;
            let row = self.area.y + (y - self.view.y) as u16;
            if let Some(cell) = self.buffer.cell_mut((column, row)) {
                cell.set_symbol(text).set_style(style);
            }
        }
    }

    /// Whether some of a text from a drawing cell on may be in view. No text is wider than it has bytes.
    fn shows(&self, at: Point, text: &str) -> bool {
        let end = at.x.saturating_add(i32::try_from(text.len()).unwrap_or(i32::MAX));
        at.y >= self.view.y && at.y < self.view.y + self.view.h && at.x < self.view.x + self.view.w && end > self.view.x
    }

    /// Text from a drawing cell on, at most `columns` wide, clipped to the view.
    fn text(&mut self, x: i32, y: i32, text: &str, columns: i32, style: Style) {
        use unicode_segmentation::UnicodeSegmentation;
        if !self.shows(Point { x, y }, text) {
            return;
        }
        if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            // A column each, without a look at what belongs together.
            for (at, index) in (x..x.saturating_add(columns)).zip(0..text.len()) {
                self.cell(at, y, &text[index..=index], style);
            }
            return;
        }
        let mut at = x;
        for grapheme in text.graphemes(true) {
            let wide = width(grapheme) as i32;
            if at + wide > x.saturating_add(columns) {
                break;
            }
            if wide == 2 && (!self.view.contains(at, y) || !self.view.contains(at + 1, y)) {
                self.cell(at, y, " ", style);
                self.cell(at + 1, y, " ", style);
            } else if wide > 0 {
                self.cell(at, y, grapheme, style);
                if wide == 2 {
                    self.cell(at + 1, y, " ", style);
                    if self.view.contains(at + 1, y) {
                        let column = self.area.x + (at + 1 - self.view.x) as u16;
                        let row = self.area.y + (y - self.view.y) as u16;
                        if let Some(cell) = self.buffer.cell_mut((column, row)) {
                            cell.reset();
                            cell.set_style(style);
                        }
                    }
                }
            }
            at += wide;
        }
    }

    fn lines(&mut self) -> Canvas {
        let mut canvas = Canvas::new(self.view);
        for path in self.scene.drawing.paths.iter().filter(|path| path.reaches(&self.view)) {
            let tone = if path.edges.is_empty() {
                let begun = self.scene.graph.start.is_some_and(|start| {
                    self.scene
                        .overlay
                        .nodes
                        .get(start)
                        .is_some_and(|node| node.mark != Mark::Idle)
                });
                if begun { Tone::Taken } else { Tone::Plain }
            } else {
                tone(self.scene, &path.edges)
            };
            canvas.path(path, tone);
        }
        let marks: Vec<(Point, LineCell)> = canvas.lines().map(|(point, cell)| (point, *cell)).collect();
        for (point, cell) in marks {
            let mut glyph = cell.glyph(self.scene.theme.ascii);
            if cell.arrow && cell.tone == Tone::Plain && !self.scene.theme.ascii {
                glyph = '▽';
            }
            let style = self.tone_style(cell.tone);
            self.cell(point.x, point.y, glyph.encode_utf8(&mut [0; 4]), style);
        }
        canvas
    }

    fn tone_style(&self, tone: Tone) -> Style {
        match tone {
            Tone::Active => self.scene.theme.active(),
            Tone::Taken => self.scene.theme.path(),
            Tone::Plain | Tone::None => self.scene.theme.edge(),
        }
    }

    fn start(&mut self) {
        if let Some(start) = self.scene.drawing.start {
            let style = self.scene.theme.status(Mark::Ok);
            self.cell(start.x, start.y, if self.scene.theme.ascii { ">" } else { "▶" }, style);
        }
    }

    fn card(&mut self, card: &Card, canvas: &Canvas) {
        let idle = NodeState::default();
        let state = self.scene.overlay.nodes.get(card.node).unwrap_or(&idle);
        let selected = self.scene.selected == Some(card.node);
        match self.scene.drawing.density {
            Density::Boxed => self.boxed(card, state, selected, canvas),
            Density::Compact => self.compact(card, state, selected),
            Density::Dots => {
                let mut style = self.scene.theme.status(state.mark);
                if selected {
                    style = style.add_modifier(Modifier::REVERSED);
                }
                self.cell(card.area.x, card.area.y, self.scene.theme.glyph(state.mark), style);
            }
        }
    }

    fn ground(&self, selected: bool) -> Style {
        if selected {
            self.scene.theme.selected(true)
        } else {
            Style::new()
        }
    }

    fn boxed(&mut self, card: &Card, state: &NodeState, selected: bool, canvas: &Canvas) {
        let theme = self.scene.theme;
        let node = &self.scene.graph.nodes[card.node];
        let frame = Frame::of(state.mark, selected, theme.ascii);
        let line = if selected {
            theme.accent()
        } else {
            theme.status(state.mark)
        };
        let ground = self.ground(selected);
        let area = card.area;
        self.frame(area, &frame, line.patch(ground));
        let mark = theme.status(state.mark);
        let name_style = match state.mark {
            Mark::Idle => theme.subtext(),
            _ => Style::new().fg(theme.palette.text).add_modifier(Modifier::BOLD),
        };
        self.text(area.x + 2, area.y, " ", 1, ground);
        self.text(area.x + 3, area.y, theme.glyph(state.mark), 1, mark.patch(ground));
        let room = area.w - 10;
        let name = format!(" {} ", fit(&node.name, room.max(1) as usize));
        self.text(area.x + 4, area.y, &name, area.w - 8, name_style.patch(ground));
        self.text(
            area.x + area.w - 4,
            area.y,
            &format!(" {}", node.kind.glyph()),
            2,
            theme.muted().patch(ground),
        );
        self.text(area.x + area.w - 2, area.y, " ", 1, ground);
        self.card_line(card, state, ground);
        self.joins(area, &frame, ground, canvas);
        if node.terminal {
            let end = if theme.ascii { "#" } else { "■" };
            self.cell(area.x + area.w / 2, area.y + area.h - 1, end, mark.patch(ground));
        }
    }

    /// Where lines leave a card: their pieces merged into its border.
    fn joins(&mut self, area: Area, frame: &Frame, ground: Style, canvas: &Canvas) {
        let theme = self.scene.theme;
        for dx in 1..area.w - 1 {
            let (x, y) = (area.x + dx, area.y + area.h - 1);
            if let Some(cell) = canvas.at(x, y).filter(|cell| cell.tone != Tone::None) {
                let mut join = *cell;
                join.weights[2] = join.weights[2].max(frame.weight);
                join.weights[3] = join.weights[3].max(frame.weight);
                let style = self.tone_style(cell.tone).patch(ground);
                self.cell(x, y, join.glyph(theme.ascii).encode_utf8(&mut [0; 4]), style);
            }
        }
        let side = (area.x + area.w - 1, area.y + area.h / 2);
        if let Some(cell) = canvas.at(side.0, side.1).filter(|cell| cell.tone != Tone::None) {
            let mut join = *cell;
            join.weights[0] = join.weights[0].max(frame.weight);
            join.weights[1] = join.weights[1].max(frame.weight);
            join.weights[2] = 0;
            let style = self.tone_style(cell.tone).patch(ground);
            self.cell(side.0, side.1, join.glyph(theme.ascii).encode_utf8(&mut [0; 4]), style);
        }
    }

    /// Time, attempts and detail.
    fn card_line(&mut self, card: &Card, state: &NodeState, ground: Style) {
        let theme = self.scene.theme;
        let (y, end) = (card.area.y + 1, card.area.x + card.area.w - 2);
        let mut x = card.area.x + 2;
        if !state.time.is_empty() {
            let time = format!("{} {}", if theme.ascii { "t" } else { "◷" }, state.time);
            self.text(x, y, &time, end - x, theme.subtext().patch(ground));
            x += width(&time) as i32 + 2;
        }
        if state.attempts > 1 {
            let attempts = format!("{}{}", if theme.ascii { "x" } else { "↻" }, state.attempts);
            self.text(x, y, &attempts, end - x, theme.warning().patch(ground));
            x += width(&attempts) as i32 + 2;
        }
        let node = &self.scene.graph.nodes[card.node];
        let detail = match (&state.detail, &node.detail) {
            (detail, _) if !detail.is_empty() => detail.as_str(),
            (_, Some(detail)) => detail.as_str(),
            _ if state.mark == Mark::Idle => node.kind.word(),
            _ => "",
        };
        if end > x {
            let detail = fit(detail, (end - x) as usize).into_owned();
            self.text(x, y, &detail, end - x, theme.muted().patch(ground));
        }
    }

    fn compact(&mut self, card: &Card, state: &NodeState, selected: bool) {
        let theme = self.scene.theme;
        let node = &self.scene.graph.nodes[card.node];
        let ground = self.ground(selected);
        let area = card.area;
        let mark = theme.status(state.mark);
        let (open, close) = match (state.mark, selected) {
            (_, true) => ("▌", "▐"),
            (Mark::Running | Mark::Replay, _) => ("⟦", "⟧"),
            _ => ("[", "]"),
        };
        let (open, close) = if theme.ascii { ("[", "]") } else { (open, close) };
        let name_style = match state.mark {
            Mark::Idle => theme.subtext(),
            _ => Style::new().fg(theme.palette.text).add_modifier(Modifier::BOLD),
        };
        self.text(area.x, area.y, &" ".repeat(area.w.max(0) as usize), area.w, ground);
        self.text(area.x, area.y, open, 1, mark.patch(ground));
        self.text(area.x + area.w - 1, area.y, close, 1, mark.patch(ground));
        self.text(area.x + 1, area.y, theme.glyph(state.mark), 1, mark.patch(ground));
        self.text(area.x + 3, area.y, node.kind.glyph(), 1, theme.muted().patch(ground));
        let name = fit(&node.name, (area.w - 6).max(1) as usize).into_owned();
        self.text(area.x + 5, area.y, &name, area.w - 6, name_style.patch(ground));
        if state.attempts > 1 {
            let attempts = format!("{}{}", if theme.ascii { "x" } else { "↻" }, state.attempts);
            let x = area.x + area.w - 1 - width(&attempts) as i32;
            if x > area.x + 5 + width(&name) as i32 {
                self.text(x, area.y, &attempts, 4, theme.warning().patch(ground));
            }
        } else if node.terminal {
            let end = if theme.ascii { "#" } else { "■" };
            self.text(area.x + area.w - 2, area.y, end, 1, mark.patch(ground));
        }
    }

    fn group(&mut self, group: &GroupBox) {
        let theme = self.scene.theme;
        let area = group.area;
        if group.folded {
            return;
        }
        let frame = if theme.ascii { Frame::ASCII_LIGHT } else { Frame::DOTTED };
        self.frame(area, &frame, theme.faint());
        let title = &self.scene.graph.groups[group.group].title;
        let (x, room) = self.title_place(area, width(title) as i32 + 4);
        let mark = if theme.ascii { "-" } else { "▾" };
        let text = format!(" {mark} {} ", fit(title, (room - 4).max(1) as usize));
        self.text(x, area.y, &text, room, theme.label());
    }

    /// A folded group as one card with the most telling state of its nodes.
    fn folded(&mut self, group: &GroupBox, canvas: &Canvas) {
        let theme = self.scene.theme;
        let info = &self.scene.graph.groups[group.group];
        let area = group.area;
        let inside = (0..self.scene.graph.nodes.len())
            .filter(|node| self.scene.graph.around(*node).any(|around| around == group.group))
            .filter_map(|node| self.scene.overlay.nodes.get(node).map(|state| state.mark));
        let marks: Vec<Mark> = inside.filter(|mark| *mark != Mark::Idle).collect();
        let mark = marks
            .iter()
            .copied()
            .max_by_key(|mark| mark.weight())
            .unwrap_or(Mark::Idle);
        let style = theme.status(mark);
        let fold = if theme.ascii { "+" } else { "▸" };
        if area.h < 3 {
            let text = format!("[{} {fold} {}", theme.glyph(mark), info.title);
            self.text(
                area.x,
                area.y,
                &crate::text::pad(&text, area.w.max(0) as usize),
                area.w,
                style,
            );
            if area.w > 4 {
                self.text(area.x + area.w - 1, area.y, "]", 1, style);
            }
            return;
        }
        let frame = Frame::of(mark, false, theme.ascii);
        self.frame(area, &frame, style);
        let title = fit(&info.title, (area.w - 10).max(1) as usize).into_owned();
        self.text(
            area.x + 2,
            area.y,
            &format!(" {} {fold} ", theme.glyph(mark)),
            area.w - 4,
            style,
        );
        self.text(area.x + 7, area.y, &format!("{title} "), area.w - 9, theme.label());
        let line = format!("{} nodes · {} reached", info.nodes, marks.len());
        let line = fit(&line, (area.w - 4).max(1) as usize).into_owned();
        self.text(area.x + 2, area.y + 1, &line, area.w - 4, theme.muted());
        self.joins(area, &frame, Style::new(), canvas);
    }

    /// First column and columns for a title of `wanted` columns on the upper border of a group: the widest piece between the
    /// lines that cross the border, the first one that is wide enough.
    fn title_place(&self, area: Area, wanted: i32) -> (i32, i32) {
        let crossing = self.scene.drawing.paths.iter().filter_map(|path| {
            let top = path.points.iter().find(|point| point.y == area.y)?;
            (top.x > area.x && top.x < area.x + area.w - 1).then_some(top.x)
        });
        let mut columns: Vec<i32> = crossing.collect();
        columns.push(area.x + area.w - 2);
        columns.sort_unstable();
        let mut from = area.x + 2;
        let mut best = (from, 0);
        for column in columns {
            let room = column - from - 1;
            if room > best.1 {
                best = (from, room);
            }
            if best.1 >= wanted {
                break;
            }
            from = column + 2;
        }
        best
    }

    fn frame(&mut self, area: Area, frame: &Frame, style: Style) {
        let (right, bottom) = (area.x + area.w - 1, area.y + area.h - 1);
        for x in area.x.max(self.view.x)..=right.min(self.view.x + self.view.w - 1) {
            for y in area.y.max(self.view.y)..=bottom.min(self.view.y + self.view.h - 1) {
                let text = match (x == area.x, x == right, y == area.y, y == bottom) {
                    (true, _, true, _) => frame.corners[0],
                    (_, true, true, _) => frame.corners[1],
                    (true, _, _, true) => frame.corners[2],
                    (_, true, _, true) => frame.corners[3],
                    (_, _, true, _) | (_, _, _, true) => frame.across,
                    (true, _, _, _) | (_, true, _, _) => frame.down,
                    _ if frame.fill => " ",
                    _ => continue,
                };
                self.cell(x, y, text, style);
            }
        }
    }
}

/// Border characters.
struct Frame {
    corners: [&'static str; 4],
    across: &'static str,
    down: &'static str,
    weight: u8,
    fill: bool,
}

impl Frame {
    const LIGHT: Self = Self {
        corners: ["╭", "╮", "╰", "╯"],
        across: "─",
        down: "│",
        weight: 1,
        fill: true,
    };
    const HEAVY: Self = Self {
        corners: ["┏", "┓", "┗", "┛"],
        across: "━",
        down: "┃",
        weight: 2,
        fill: true,
    };
    const DOTTED: Self = Self {
        corners: ["╭", "╮", "╰", "╯"],
        across: "╌",
        down: "┊",
        weight: 1,
        fill: false,
    };
    const ASCII: Self = Self {
        corners: ["+"; 4],
        across: "-",
        down: "|",
        weight: 1,
        fill: true,
    };
    const ASCII_HEAVY: Self = Self {
        corners: ["#"; 4],
        across: "=",
        down: "#",
        weight: 2,
        fill: true,
    };
    const ASCII_LIGHT: Self = Self {
        corners: ["."; 4],
        across: ".",
        down: ":",
        weight: 1,
        fill: false,
    };

    /// Work in progress and the selection stand out without colours too.
    const fn of(mark: Mark, selected: bool, ascii: bool) -> Self {
        let heavy = selected || matches!(mark, Mark::Running | Mark::Replay | Mark::Waiting);
        match (heavy, ascii) {
            (true, false) => Self::HEAVY,
            (true, true) => Self::ASCII_HEAVY,
            (false, false) => Self::LIGHT,
            (false, true) => Self::ASCII,
        }
    }
}
