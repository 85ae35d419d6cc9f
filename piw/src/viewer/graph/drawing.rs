//! The finished drawing: cards, group boxes, edge paths and labels in cell coordinates. Plain data; it never depends on the
//! state of a run, so nothing moves while one runs.

use super::model::Graph;

/// How much room a node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Density {
    /// Bordered cards of three rows: name and kind, then time, attempts and detail.
    Boxed,
    /// One row: status, kind, name.
    Compact,
    /// One cell.
    Dots,
}

impl Density {
    /// From roomy to dense.
    pub const ALL: [Self; 3] = [Self::Boxed, Self::Compact, Self::Dots];

    /// The next one, cyclically.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Boxed => Self::Compact,
            Self::Compact => Self::Dots,
            Self::Dots => Self::Boxed,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boxed => "boxed",
            Self::Compact => "compact",
            Self::Dots => "dots",
        }
    }
}

/// A point in cells; the drawing's top left corner is (0, 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Point {
    /// Column.
    pub x: i32,
    /// Row.
    pub y: i32,
}

/// A rectangle of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Area {
    /// Left column.
    pub x: i32,
    /// Top row.
    pub y: i32,
    /// Columns.
    pub w: i32,
    /// Rows.
    pub h: i32,
}

impl Area {
    /// Whether a cell is inside.
    #[must_use]
    pub const fn contains(&self, x: i32, y: i32) -> bool {
        x >= self.x && x < self.x + self.w && y >= self.y && y < self.y + self.h
    }

    /// Whether two areas share a cell.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.x < other.x + other.w
            && other.x < self.x + self.w
            && self.y < other.y + other.h
            && other.y < self.y + self.h
    }

    /// The middle cell.
    #[must_use]
    pub const fn center(&self) -> Point {
        Point {
            x: self.x + self.w / 2,
            y: self.y + self.h / 2,
        }
    }
}

/// Where a node is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Node index in the graph.
    pub node: usize,
    /// Its cells.
    pub area: Area,
}

/// Where an include is drawn: a box around its nodes, or one card when folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupBox {
    /// Group index in the graph.
    pub group: usize,
    /// Its cells, border included.
    pub area: Area,
    /// Whether its inside is hidden.
    pub folded: bool,
}

/// An orthogonal line that one or more edges follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Corners; consecutive points share a row or a column. The first lies on the source's border row.
    pub points: Vec<Point>,
    /// Edge indexes in the graph.
    pub edges: Vec<usize>,
    /// Whether the last point is an arrow head (pointing down at the card below it).
    pub arrow: bool,
}

impl Path {
    /// Whether some of the path may be within an area: whether both have a row in common.
    #[must_use]
    pub fn reaches(&self, area: &Area) -> bool {
        let rows = || self.points.iter().map(|point| point.y);
        rows().any(|y| y >= area.y) && rows().any(|y| y < area.y + area.h)
    }
}

/// A branch name on an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// First cell.
    pub at: Point,
    /// Text, cut to fit.
    pub text: String,
    /// Edge indexes in the graph.
    pub edges: Vec<usize>,
}

/// A laid-out graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing {
    /// Density it was laid out for.
    pub density: Density,
    /// Columns.
    pub width: i32,
    /// Rows.
    pub height: i32,
    /// Cards from top to bottom.
    pub cards: Vec<Card>,
    /// Group boxes, outer before inner.
    pub groups: Vec<GroupBox>,
    /// Lines.
    pub paths: Vec<Path>,
    /// Branch names.
    pub labels: Vec<Label>,
    /// The start marker.
    pub start: Option<Point>,
}

impl Drawing {
    /// Whether everything that is drawn is in a graph.
    #[must_use]
    pub fn shows(&self, graph: &Graph) -> bool {
        let edges = |list: &[usize]| list.iter().all(|edge| *edge < graph.edges.len());
        self.cards.iter().all(|card| card.node < graph.nodes.len())
            && self.groups.iter().all(|group| group.group < graph.groups.len())
            && self.paths.iter().all(|path| edges(&path.edges))
            && self.labels.iter().all(|label| edges(&label.edges))
    }

    /// The card at a cell.
    #[must_use]
    pub fn card_at(&self, x: i32, y: i32) -> Option<&Card> {
        self.cards.iter().find(|card| card.area.contains(x, y))
    }

    /// The card of a node; none while an enclosing group is folded.
    #[must_use]
    pub fn card_of(&self, node: usize) -> Option<&Card> {
        self.cards.iter().find(|card| card.node == node)
    }

    /// The innermost group whose border or inside covers a cell.
    #[must_use]
    pub fn group_at(&self, x: i32, y: i32) -> Option<&GroupBox> {
        self.groups.iter().rev().find(|group| group.area.contains(x, y))
    }
}
