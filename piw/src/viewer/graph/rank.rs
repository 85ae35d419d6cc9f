//! Ranks: which edges run backwards, and on which row of the drawing each item stands.

use super::level::{Level, LevelEdge};

/// Ranks of a level's items.
pub struct Ranks {
    /// Rank by item, from 0 without gaps.
    pub of: Vec<usize>,
    /// By edge: whether it closes a cycle and is drawn through the gutter.
    pub back: Vec<bool>,
    /// Number of ranks.
    pub count: usize,
}

/// Ranks every item so that every edge that is not a back edge leads downwards.
pub fn rank(level: &Level) -> Ranks {
    let count = level.items.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, edge) in level.edges.iter().enumerate() {
        out[edge.from].push(index);
    }
    let (back, order) = back_edges(level, &out);
    let mut of = vec![0; count];
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, edge) in level.edges.iter().enumerate().filter(|(index, _)| !back[*index]) {
        into[edge.to].push(index);
    }
    let forward_out: Vec<Vec<usize>> = out
        .iter()
        .map(|edges| edges.iter().copied().filter(|edge| !back[*edge]).collect())
        .collect();
    longest_path(&mut of, &order, &into, &level.edges, |_| true);
    for _ in 0..2 {
        // Items with more ways out than in shorten the drawing's lines when they stand further down.
        for &item in order.iter().rev() {
            if forward_out[item].len() > into[item].len() && !level.first.contains(&item) {
                let below = forward_out[item].iter().map(|edge| of[level.edges[*edge].to]).min();
                of[item] = below.map_or(of[item], |below| below - 1);
            }
        }
        longest_path(&mut of, &order, &into, &level.edges, |item| {
            forward_out[item].len() <= into[item].len()
        });
    }
    if !level.last.is_empty() {
        let deepest = (0..count)
            .filter(|item| !level.last.contains(item))
            .map(|item| of[item])
            .max();
        let bottom = deepest.map_or(0, |rank| rank + 1);
        for item in &level.last {
            of[*item] = bottom;
        }
    }
    compact(&mut of);
    let ranks = of.iter().max().map_or(0, |rank| rank + 1);
    Ranks { of, back, count: ranks }
}

fn longest_path(
    of: &mut [usize],
    order: &[usize],
    into: &[Vec<usize>],
    edges: &[LevelEdge],
    moves: impl Fn(usize) -> bool,
) {
    for &item in order.iter().filter(|item| moves(**item)) {
        of[item] = into[item]
            .iter()
            .map(|edge| of[edges[*edge].from] + 1)
            .max()
            .unwrap_or(0);
    }
}

/// Removes empty ranks.
fn compact(of: &mut [usize]) {
    let mut used: Vec<usize> = of.to_vec();
    used.sort_unstable();
    used.dedup();
    for rank in of {
        *rank = used.binary_search(rank).unwrap_or(0);
    }
}

/// Depth-first search in document order from the entry: edges to an item that is still open close a cycle. Returns the flags
/// and a topological order of the rest.
fn back_edges(level: &Level, out: &[Vec<usize>]) -> (Vec<bool>, Vec<usize>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut mark = vec![Mark::New; level.items.len()];
    let mut back = vec![false; level.edges.len()];
    let mut finished = Vec::with_capacity(level.items.len());
    let roots = level.first.iter().copied().chain(0..level.items.len());
    for root in roots {
        if mark[root] != Mark::New {
            continue;
        }
        mark[root] = Mark::Open;
        let mut stack = vec![(root, 0)];
        while let Some((item, next)) = stack.last_mut() {
            let item = *item;
            let Some(&edge) = out[item].get(*next) else {
                mark[item] = Mark::Done;
                finished.push(item);
                stack.pop();
                continue;
            };
            *next += 1;
            let to = level.edges[edge].to;
            match mark[to] {
                Mark::New => {
                    mark[to] = Mark::Open;
                    stack.push((to, 0));
                }
                Mark::Open => back[edge] = true,
                Mark::Done => {}
            }
        }
    }
    finished.reverse();
    (back, finished)
}
