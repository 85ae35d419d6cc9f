//! Lines as characters: collects which ways lines leave each visible cell, and how strongly, and picks the box-drawing
//! character for it. Only cells of the viewport exist here.

use super::drawing::{Area, Path, Point};

/// What a line cell belongs to; the strongest wins where lines share a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Tone {
    /// No line.
    #[default]
    None,
    /// An edge that was not taken.
    Plain,
    /// A taken transition.
    Taken,
    /// The transition that led to what runs now.
    Active,
}

/// One cell: weight of the line in each direction (0 none, 1 light, 2 heavy) and what it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCell {
    /// Upwards, downwards, left, right.
    pub weights: [u8; 4],
    /// Whose line.
    pub tone: Tone,
    /// Whether an arrow head ends here.
    pub arrow: bool,
}

const UP: usize = 0;
const DOWN: usize = 1;
const LEFT: usize = 2;
const RIGHT: usize = 3;

/// Characters by `up·27 + down·9 + left·3 + right`.
const GLYPHS: [char; 81] = [
    ' ', '╶', '╺', '╴', '─', '╼', '╸', '╾', '━', '╷', '╭', '┍', '╮', '┬', '┮', '┑', '┭', '┯', '╻', '┎', '┏', '┒', '┰',
    '┲', '┓', '┱', '┳', '╵', '╰', '┕', '╯', '┴', '┶', '┙', '┵', '┷', '│', '├', '┝', '┤', '┼', '┾', '┥', '┽', '┿', '╽',
    '┟', '┢', '┧', '╁', '╆', '┪', '╅', '╈', '╹', '┖', '┗', '┚', '┸', '┺', '┛', '┹', '┻', '╿', '┞', '┡', '┦', '╀', '╄',
    '┩', '╃', '╇', '┃', '┠', '┣', '┨', '╂', '╊', '┫', '╉', '╋',
];

impl LineCell {
    /// The character of the cell.
    #[must_use]
    pub fn glyph(&self, ascii: bool) -> char {
        if self.arrow {
            return if ascii { 'v' } else { '▼' };
        }
        let [up, down, left, right] = self.weights.map(usize::from);
        if ascii {
            let heavy = self.weights.contains(&2);
            return match (up + down > 0, left + right > 0) {
                (true, true) => '+',
                (true, false) if heavy => '#',
                (true, false) => '|',
                (false, true) if heavy => '=',
                (false, true) => '-',
                (false, false) => ' ',
            };
        }
        GLYPHS[up * 27 + down * 9 + left * 3 + right]
    }
}

/// The visible part of a drawing's lines.
pub struct Canvas {
    view: Area,
    cells: Vec<LineCell>,
}

impl Canvas {
    /// An empty canvas for the given cells of a drawing.
    #[must_use]
    pub fn new(view: Area) -> Self {
        Self {
            view,
            cells: vec![LineCell::default(); (view.w.max(0) * view.h.max(0)) as usize],
        }
    }

    /// Draws a path with a tone; taken and active ones are heavy.
    pub fn path(&mut self, path: &Path, tone: Tone) {
        let weight = if tone >= Tone::Taken { 2 } else { 1 };
        for pair in path.points.windows(2) {
            self.line(pair[0], pair[1], weight, tone);
        }
        if let [only] = path.points[..] {
            self.mark(only.x, only.y, tone, |cell| {
                cell.weights[DOWN] = cell.weights[DOWN].max(weight);
            });
        }
        if path.arrow
            && let Some(end) = path.points.last()
        {
            self.mark(end.x, end.y, tone, |cell| cell.arrow = true);
        }
    }

    fn line(&mut self, from: Point, to: Point, weight: u8, tone: Tone) {
        let set = |cell: &mut LineCell, way: usize| cell.weights[way] = cell.weights[way].max(weight);
        if from.x == to.x {
            let (low, high) = (from.y.min(to.y), from.y.max(to.y));
            if from.x < self.view.x || from.x >= self.view.x + self.view.w {
                return;
            }
            for y in low.max(self.view.y)..=high.min(self.view.y + self.view.h - 1) {
                self.mark(from.x, y, tone, |cell| {
                    if y > low {
                        set(cell, UP);
                    }
                    if y < high {
                        set(cell, DOWN);
                    }
                });
            }
        } else {
            let (low, high) = (from.x.min(to.x), from.x.max(to.x));
            if from.y < self.view.y || from.y >= self.view.y + self.view.h {
                return;
            }
            for x in low.max(self.view.x)..=high.min(self.view.x + self.view.w - 1) {
                self.mark(x, from.y, tone, |cell| {
                    if x > low {
                        set(cell, LEFT);
                    }
                    if x < high {
                        set(cell, RIGHT);
                    }
                });
            }
        }
    }

    fn mark(&mut self, x: i32, y: i32, tone: Tone, change: impl FnOnce(&mut LineCell)) {
        if self.view.contains(x, y) {
            let cell = &mut self.cells[((y - self.view.y) * self.view.w + x - self.view.x) as usize];
            cell.tone = cell.tone.max(tone);
            change(cell);
        }
    }

    /// The cell at a place of the drawing, when it is visible.
    #[must_use]
    pub fn at(&self, x: i32, y: i32) -> Option<&LineCell> {
        self.view
            .contains(x, y)
            .then(|| &self.cells[((y - self.view.y) * self.view.w + x - self.view.x) as usize])
    }

    /// Every visible cell that holds a line.
    pub fn lines(&self) -> impl Iterator<Item = (Point, &LineCell)> {
        self.cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.tone != Tone::None)
            .map(|(index, cell)| {
                let (x, y) = (index as i32 % self.view.w, index as i32 / self.view.w);
                (
                    Point {
                        x: x + self.view.x,
                        y: y + self.view.y,
                    },
                    cell,
                )
            })
    }
}
