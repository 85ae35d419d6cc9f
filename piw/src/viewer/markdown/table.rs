//! Tables: as wide as their cells, cells wrapped when that is too much.

use ratatui::style::Modifier;

use super::flow::Flow;
use super::{Piece, Tone};
use crate::text::width;

/// Rows and columns that are kept.
const MOST: usize = 256;
/// Narrowest column.
const NARROWEST: usize = 3;

/// A table being read; the first row is the head.
#[derive(Default)]
pub struct Table {
    cells: Vec<Vec<Vec<Piece>>>,
}

impl Table {
    /// Begins a row.
    pub fn row(&mut self) {
        if self.cells.len() < MOST {
            self.cells.push(Vec::new());
        }
    }

    /// Adds a cell to the row.
    pub fn cell(&mut self, cell: Vec<Piece>) {
        if let Some(row) = self.cells.last_mut().filter(|row| row.len() < MOST) {
            row.push(cell);
        }
    }

    /// As rows of at most `room` columns, if there is any way.
    pub fn rows(&self, room: usize, ascii: bool) -> Vec<Vec<Piece>> {
        let widths = self.widths(room);
        let (bar, line, cross) = if ascii {
            (" | ", "-", "-+-")
        } else {
            (" │ ", "─", "─┼─")
        };
        let mut out = Vec::new();
        for (at, cells) in self.cells.iter().enumerate() {
            let mut wrapped: Vec<Vec<Vec<Piece>>> = Vec::new();
            for (column, columns) in widths.iter().enumerate() {
                let mut cell = cells.get(column).cloned().unwrap_or_default();
                if at == 0 {
                    for piece in &mut cell {
                        piece.modifier |= Modifier::BOLD;
                    }
                }
                wrapped.push(Flow::new(*columns).take(&cell).rows());
            }
            let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                let mut row = Vec::new();
                for (column, columns) in widths.iter().enumerate() {
                    if column > 0 {
                        row.push(Piece::new(bar, Tone::Faint));
                    }
                    let pieces = wrapped[column].get(line).cloned().unwrap_or_default();
                    let used: usize = pieces.iter().map(|piece| width(&piece.text)).sum();
                    row.extend(pieces);
                    row.push(Piece::new(" ".repeat(columns.saturating_sub(used)), Tone::Plain));
                }
                out.push(row);
            }
            if at == 0 {
                let rule: Vec<String> = widths.iter().map(|columns| line.repeat(*columns)).collect();
                out.push(vec![Piece::new(rule.join(cross), Tone::Faint)]);
            }
        }
        out
    }

    /// Columns of each column: what its widest cell needs, taken from the widest until the table fits.
    fn widths(&self, room: usize) -> Vec<usize> {
        let columns = self.cells.iter().map(Vec::len).max().unwrap_or(0);
        let need = |column: usize| {
            let cells = self.cells.iter().filter_map(|row| row.get(column));
            let widths = cells.map(|cell| cell.iter().map(|piece| width(&piece.text)).sum());
            widths.max().unwrap_or(0).clamp(NARROWEST, 4096)
        };
        let mut widths: Vec<usize> = (0..columns).map(need).collect();
        let room = room.saturating_sub(3 * columns.saturating_sub(1));
        while widths.iter().sum::<usize>() > room {
            let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }
}
