//! Columns: lines that can be straight become rigid blocks, blocks are packed from the left and then drawn towards what they
//! are connected to, as far as their neighbours let them.

use std::collections::BTreeMap;

use super::layered::Layered;
use super::level::Metrics;

/// Passes that pull blocks towards their connections.
const PULLS: usize = 8;

/// Vertices that stand exactly below each other.
struct Blocks {
    /// Block of a vertex.
    of: Vec<usize>,
    /// Column of a vertex within its block.
    offset: Vec<i32>,
    /// Members.
    members: Vec<Vec<usize>>,
}

/// Anchor column of every vertex; the leftmost needed column is 0.
pub fn columns(layered: &Layered, metrics: &Metrics) -> Vec<i32> {
    let blocks = align(layered);
    let space = Space::new(layered, &blocks, metrics);
    let mut x = space.pack();
    let wishes = wishes(layered, &blocks);
    for pass in 0..PULLS {
        space.pull(&mut x, &wishes, pass % 2 == 0);
    }
    let mut columns: Vec<i32> = (0..layered.vertices.len())
        .map(|vertex| x[blocks.of[vertex]] + blocks.offset[vertex])
        .collect();
    let least = layered
        .vertices
        .iter()
        .zip(&columns)
        .map(|(vertex, x)| x - vertex.left)
        .min()
        .unwrap_or(0);
    for column in &mut columns {
        *column -= least;
    }
    columns
}

/// How much an edge piece deserves to be straight.
fn priority(layered: &Layered, segment: usize) -> i32 {
    let piece = &layered.segments[segment];
    let real = |vertex: usize| layered.vertices[vertex].item.is_some();
    let (down, up) = (&layered.down[piece.above], &layered.up[piece.below]);
    let middle = |list: &[usize]| {
        let at = list.iter().position(|other| *other == segment).unwrap_or(0);
        at == if list.len().is_multiple_of(2) {
            0
        } else {
            list.len() / 2
        }
    };
    let base = match (real(piece.above), real(piece.below)) {
        (false, false) => 100,
        (true, true) => 50,
        _ => 20,
    };
    base + 10 * i32::from(down.len() == 1)
        + 10 * i32::from(up.len() == 1)
        + 6 * i32::from(middle(down))
        + 5 * i32::from(middle(up))
}

fn align(layered: &Layered) -> Blocks {
    let positions = layered.positions();
    let count = layered.vertices.len();
    let mut below: Vec<Option<usize>> = vec![None; count];
    let mut above: Vec<Option<usize>> = vec![None; count];
    for rank in &layered.order {
        let mut pieces: Vec<usize> = rank
            .iter()
            .flat_map(|vertex| layered.down[*vertex].iter().copied())
            .collect();
        pieces.sort_by_key(|piece| (-priority(layered, *piece), *piece));
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        for piece in pieces {
            let segment = &layered.segments[piece];
            if below[segment.above].is_some() || above[segment.below].is_some() {
                continue;
            }
            let (top, bottom) = (positions[segment.above], positions[segment.below]);
            let left_ok = taken.range(..top).next_back().is_none_or(|(_, other)| *other < bottom);
            let right_ok = taken.range(top..).next().is_none_or(|(_, other)| *other > bottom);
            if left_ok && right_ok {
                taken.insert(top, bottom);
                below[segment.above] = Some(piece);
                above[segment.below] = Some(piece);
            }
        }
    }
    let mut blocks = Blocks {
        of: vec![0; count],
        offset: vec![0; count],
        members: Vec::new(),
    };
    for head in layered
        .order
        .iter()
        .flatten()
        .copied()
        .filter(|vertex| above[*vertex].is_none())
    {
        let block = blocks.members.len();
        let mut members = vec![head];
        blocks.of[head] = block;
        let mut at = head;
        while let Some(piece) = below[at] {
            let segment = &layered.segments[piece];
            let next = segment.below;
            blocks.of[next] = block;
            blocks.offset[next] = blocks.offset[at] + segment.above_dx - segment.below_dx;
            members.push(next);
            at = next;
        }
        blocks.members.push(members);
    }
    blocks
}

/// Distances that blocks must keep from each other.
struct Space {
    /// Per block: (block to its left, least distance of the block origins).
    left: Vec<Vec<(usize, i32)>>,
    /// Per block: (block to its right, least distance of the block origins).
    right: Vec<Vec<(usize, i32)>>,
    /// Blocks so that every one comes after those to its left.
    order: Vec<usize>,
}

impl Space {
    fn new(layered: &Layered, blocks: &Blocks, metrics: &Metrics) -> Self {
        let count = blocks.members.len();
        let mut space = Self {
            left: vec![Vec::new(); count],
            right: vec![Vec::new(); count],
            order: Vec::new(),
        };
        for rank in &layered.order {
            for pair in rank.windows(2) {
                let (a, b) = (&layered.vertices[pair[0]], &layered.vertices[pair[1]]);
                let gap = if a.item.is_some() && b.item.is_some() {
                    metrics.card_gap
                } else {
                    metrics.line_gap
                };
                let distance = a.right + gap + b.left + blocks.offset[pair[0]] - blocks.offset[pair[1]];
                let (from, to) = (blocks.of[pair[0]], blocks.of[pair[1]]);
                space.left[to].push((from, distance));
                space.right[from].push((to, distance));
            }
        }
        let mut missing: Vec<usize> = space.left.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..count).filter(|block| missing[*block] == 0).collect();
        while let Some(block) = ready.pop() {
            space.order.push(block);
            for (next, _) in &space.right[block] {
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    ready.push(*next);
                }
            }
        }
        space
    }

    fn pack(&self) -> Vec<i32> {
        let mut x = vec![0; self.left.len()];
        for &block in &self.order {
            x[block] = self.left[block]
                .iter()
                .map(|(other, distance)| x[*other] + distance)
                .max()
                .unwrap_or(0);
        }
        x
    }

    /// Moves every block to the median of its wishes, within the room that its neighbours leave.
    fn pull(&self, x: &mut [i32], wishes: &[Vec<(usize, i32)>], from_right: bool) {
        let mut step = |block: usize| {
            if wishes[block].is_empty() {
                return;
            }
            let mut wanted: Vec<i32> = wishes[block].iter().map(|(other, offset)| x[*other] + offset).collect();
            wanted.sort_unstable();
            let median = wanted[(wanted.len() - 1) / 2];
            let least = self.left[block]
                .iter()
                .map(|(other, distance)| x[*other] + distance)
                .max();
            let most = self.right[block]
                .iter()
                .map(|(other, distance)| x[*other] - distance)
                .min();
            let goal = most.map_or(median, |most| median.min(most));
            x[block] = least.map_or(goal, |least| goal.max(least));
        };
        if from_right {
            self.order.iter().rev().for_each(|block| step(*block));
        } else {
            self.order.iter().for_each(|block| step(*block));
        }
    }
}

/// Per block: where its connections to other blocks would like it to be, relative to those blocks.
fn wishes(layered: &Layered, blocks: &Blocks) -> Vec<Vec<(usize, i32)>> {
    let mut wishes = vec![Vec::new(); blocks.members.len()];
    for segment in &layered.segments {
        let (a, b) = (blocks.of[segment.above], blocks.of[segment.below]);
        if a != b {
            let offset =
                blocks.offset[segment.above] + segment.above_dx - blocks.offset[segment.below] - segment.below_dx;
            wishes[b].push((a, offset));
            wishes[a].push((b, -offset));
        }
    }
    wishes
}
