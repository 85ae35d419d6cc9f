//! One level of the drawing: items (cards, folded or laid-out groups, ports of the enclosing group) and edges between them.
//! Lays them out in ranks by the classic four phases — ranks, order, coordinates, routes — each in a module of its own.

use super::drawing::{Label, Path};
use super::layered::Layered;
use super::{order, place, rank, route};

/// A box to place.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Columns.
    pub w: i32,
    /// Rows; 0 for a port on the border of the enclosing group.
    pub h: i32,
    /// Row, counted from the top, at which an edge may leave through the right side; none when it may not.
    pub side: Option<i32>,
    /// Whether edges that arrive here end in an arrow head.
    pub arrow: bool,
}

/// An edge between items.
#[derive(Debug, Clone)]
pub struct LevelEdge {
    /// Source item.
    pub from: usize,
    /// Target item.
    pub to: usize,
    /// Column, from the item's left, at which it leaves.
    pub from_dx: i32,
    /// Column, from the item's left, at which it arrives.
    pub to_dx: i32,
    /// Text on it; may be empty.
    pub label: String,
    /// Edges of the graph that it stands for.
    pub edges: Vec<usize>,
}

/// Distances in cells.
#[derive(Debug, Clone, Copy)]
pub struct Metrics {
    /// Between two boxes of a rank.
    pub card_gap: i32,
    /// Beside a line that passes a rank.
    pub line_gap: i32,
    /// Longest label; 0 leaves labels out.
    pub label: i32,
}

/// Input of the layout.
#[derive(Debug, Clone)]
pub struct Level {
    /// Boxes in document order.
    pub items: Vec<Item>,
    /// Edges in document order.
    pub edges: Vec<LevelEdge>,
    /// Items at which the drawing starts.
    pub first: Vec<usize>,
    /// Items that stand on the last rank.
    pub last: Vec<usize>,
    /// Distances.
    pub metrics: Metrics,
}

/// Output of the layout; the top left corner is (0, 0).
#[derive(Debug, Clone, Default)]
pub struct Placed {
    /// Left column by item.
    pub x: Vec<i32>,
    /// Top row by item.
    pub y: Vec<i32>,
    /// Columns.
    pub width: i32,
    /// Rows.
    pub height: i32,
    /// Lines.
    pub paths: Vec<Path>,
    /// Branch names.
    pub labels: Vec<Label>,
}

impl Level {
    /// Lays the level out. Pure and deterministic.
    #[must_use]
    pub fn lay_out(&self) -> Placed {
        if self.items.is_empty() {
            return Placed::default();
        }
        let ranks = rank::rank(self);
        let mut layered = Layered::new(self, &ranks);
        let mut returning = vec![false; layered.vertices.len()];
        for (edge, _) in self.edges.iter().zip(&ranks.back).filter(|(_, back)| **back) {
            returning[edge.from] = true;
        }
        order::reduce_crossings(&mut layered, &returning);
        let x = place::columns(&layered, &self.metrics);
        route::route(self, &ranks, &layered, x)
    }
}
