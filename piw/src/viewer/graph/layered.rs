//! The level with every long edge cut into pieces of one rank: what ordering, placing and routing work on.

use std::collections::HashMap;

use super::level::Level;
use super::rank::Ranks;

/// A box or the passage of a line through a rank.
#[derive(Debug, Clone)]
pub struct Vertex {
    /// Its rank.
    pub rank: usize,
    /// The item, none for a passing line.
    pub item: Option<usize>,
    /// Columns needed to the left of the anchor (a box's left edge, a line's column).
    pub left: i32,
    /// Columns needed from the anchor on.
    pub right: i32,
}

/// A piece of edges between neighbouring ranks.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Upper vertex.
    pub above: usize,
    /// Lower vertex.
    pub below: usize,
    /// Column of the upper end, from the vertex's anchor.
    pub above_dx: i32,
    /// Column of the lower end, from the vertex's anchor.
    pub below_dx: i32,
    /// Edges of the level that run here.
    pub edges: Vec<usize>,
}

/// The layered graph.
pub struct Layered {
    /// Items first, in their own order, then passing lines.
    pub vertices: Vec<Vertex>,
    /// Pieces.
    pub segments: Vec<Segment>,
    /// Segments that leave a vertex downwards.
    pub down: Vec<Vec<usize>>,
    /// Segments that reach a vertex from above.
    pub up: Vec<Vec<usize>>,
    /// Vertices by rank, left to right.
    pub order: Vec<Vec<usize>>,
    /// Segments that an edge follows from top to bottom; empty for a back edge.
    pub route: Vec<Vec<usize>>,
}

impl Layered {
    /// Cuts the edges. Long edges with the same target share one passing line, so that many roads to one node become a trunk
    /// instead of a bundle.
    pub fn new(level: &Level, ranks: &Ranks) -> Self {
        let mut layered = Self {
            vertices: level
                .items
                .iter()
                .zip(&ranks.of)
                .enumerate()
                .map(|(index, (item, rank))| Vertex {
                    rank: *rank,
                    item: Some(index),
                    left: 0,
                    right: item.w,
                })
                .collect(),
            segments: Vec::new(),
            down: vec![Vec::new(); level.items.len()],
            up: vec![Vec::new(); level.items.len()],
            order: vec![Vec::new(); ranks.count],
            route: vec![Vec::new(); level.edges.len()],
        };
        layered.cut(level, ranks);
        layered.first_order(level);
        layered
    }

    fn cut(&mut self, level: &Level, ranks: &Ranks) {
        let mut trunks: HashMap<(usize, i32, usize), usize> = HashMap::new();
        let mut known: HashMap<(usize, i32, usize, i32), usize> = HashMap::new();
        for (index, edge) in level.edges.iter().enumerate().filter(|(index, _)| !ranks.back[*index]) {
            let label = (edge.label.chars().count() as i32).min(level.metrics.label);
            let mut at = (edge.from, edge.from_dx);
            for rank in ranks.of[edge.from] + 1..=ranks.of[edge.to] {
                let next = if rank == ranks.of[edge.to] {
                    (edge.to, edge.to_dx)
                } else {
                    let trunk = *trunks.entry((edge.to, edge.to_dx, rank)).or_insert_with(|| {
                        self.vertices.push(Vertex {
                            rank,
                            item: None,
                            left: 0,
                            right: 1,
                        });
                        self.down.push(Vec::new());
                        self.up.push(Vec::new());
                        self.vertices.len() - 1
                    });
                    (trunk, 0)
                };
                if at.0 == edge.from && label > 0 && level.metrics.label > 0 {
                    let vertex = &mut self.vertices[next.0];
                    vertex.left = vertex.left.max(label / 2 + 1 - next.1);
                    vertex.right = vertex.right.max(next.1 + label / 2 + 2);
                }
                let segment = *known.entry((at.0, at.1, next.0, next.1)).or_insert_with(|| {
                    self.segments.push(Segment {
                        above: at.0,
                        below: next.0,
                        above_dx: at.1,
                        below_dx: next.1,
                        edges: Vec::new(),
                    });
                    let segment = self.segments.len() - 1;
                    self.down[at.0].push(segment);
                    self.up[next.0].push(segment);
                    segment
                });
                self.segments[segment].edges.push(index);
                self.route[index].push(segment);
                at = next;
            }
        }
    }

    /// Depth-first from the entry, branches in document order: the order an author would expect.
    fn first_order(&mut self, level: &Level) {
        let mut seen = vec![false; self.vertices.len()];
        let roots = level.first.iter().copied().chain(0..self.vertices.len());
        for root in roots {
            let mut stack = vec![root];
            while let Some(vertex) = stack.pop() {
                if std::mem::replace(&mut seen[vertex], true) {
                    continue;
                }
                self.order[self.vertices[vertex].rank].push(vertex);
                stack.extend(
                    self.down[vertex]
                        .iter()
                        .rev()
                        .map(|segment| self.segments[*segment].below),
                );
            }
        }
    }

    /// Position of every vertex in its rank.
    pub fn positions(&self) -> Vec<usize> {
        let mut positions = vec![0; self.vertices.len()];
        for rank in &self.order {
            for (position, vertex) in rank.iter().enumerate() {
                positions[*vertex] = position;
            }
        }
        positions
    }
}
