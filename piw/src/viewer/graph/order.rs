//! Order within ranks: barycenter sweeps and neighbour swaps that keep the drawing with the fewest crossings.

use super::layered::Layered;

/// Above this many vertices only a few plain sweeps are made, to bound the time.
const LARGE: usize = 3000;
/// Rounds of a small graph.
const ROUNDS: usize = 12;
/// Rounds of a large graph.
const LARGE_ROUNDS: usize = 4;

/// Reorders the ranks. Ties keep their order, so equal input gives equal output. `returning` says which items edges of loops
/// leave from.
pub fn reduce_crossings(layered: &mut Layered, returning: &[bool]) {
    let large = layered.vertices.len() > LARGE;
    let mut best = layered.order.clone();
    let mut fewest = crossings(layered);
    let mut idle = 0;
    for round in 0..if large { LARGE_ROUNDS } else { ROUNDS } {
        if fewest == 0 || idle == 4 {
            break;
        }
        sweep(layered, round % 2 == 0);
        if !large {
            transpose(layered);
        }
        let now = crossings(layered);
        if now < fewest {
            fewest = now;
            best.clone_from(&layered.order);
            idle = 0;
        } else {
            idle += 1;
        }
    }
    layered.order = best;
    push_right(layered, returning);
}

/// Moves items from which a loop leaves to the right, next to the gutter, where that costs no crossing.
fn push_right(layered: &mut Layered, returning: &[bool]) {
    let mut positions = layered.positions();
    for rank in 0..layered.order.len() {
        for start in (0..layered.order[rank].len()).rev() {
            let mut at = start;
            while at + 1 < layered.order[rank].len() {
                let (a, b) = (layered.order[rank][at], layered.order[rank][at + 1]);
                let moves = returning[a] && !returning[b];
                if !moves || pair_crossings(layered, &positions, b, a) > pair_crossings(layered, &positions, a, b) {
                    break;
                }
                layered.order[rank].swap(at, at + 1);
                positions.swap(a, b);
                at += 1;
            }
        }
    }
}

fn sweep(layered: &mut Layered, downwards: bool) {
    let mut positions = layered.positions();
    let ranks = layered.order.len();
    for step in 1..ranks {
        let rank = if downwards { step } else { ranks - 1 - step };
        let mut keyed: Vec<(f64, usize)> = layered.order[rank]
            .iter()
            .map(|&vertex| {
                let segments = if downwards {
                    &layered.up[vertex]
                } else {
                    &layered.down[vertex]
                };
                if segments.is_empty() {
                    return (positions[vertex] as f64, vertex);
                }
                let sum: f64 = segments
                    .iter()
                    .map(|segment| {
                        let segment = &layered.segments[*segment];
                        let (other, dx) = if downwards {
                            (segment.above, segment.above_dx)
                        } else {
                            (segment.below, segment.below_dx)
                        };
                        let width = f64::from(layered.vertices[other].right.max(1));
                        positions[other] as f64 + f64::from(dx) / width * 0.9
                    })
                    .sum();
                (sum / segments.len() as f64, vertex)
            })
            .collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (position, (_, vertex)) in keyed.iter().enumerate() {
            positions[*vertex] = position;
            layered.order[rank][position] = *vertex;
        }
    }
}

/// Swaps neighbours while that removes crossings.
fn transpose(layered: &mut Layered) {
    let mut positions = layered.positions();
    for _ in 0..4 {
        let mut improved = false;
        for rank in 0..layered.order.len() {
            for at in 1..layered.order[rank].len() {
                let (a, b) = (layered.order[rank][at - 1], layered.order[rank][at]);
                let kept = pair_crossings(layered, &positions, a, b);
                if kept > 0 && pair_crossings(layered, &positions, b, a) < kept {
                    layered.order[rank].swap(at - 1, at);
                    positions.swap(a, b);
                    improved = true;
                }
            }
        }
        if !improved {
            break;
        }
    }
}

/// Crossings among the segments of two neighbours when `a` stands left of `b`.
fn pair_crossings(layered: &Layered, positions: &[usize], a: usize, b: usize) -> usize {
    let ends = |segments: &[usize], upper: bool| -> Vec<(usize, i32)> {
        let mut ends: Vec<_> = segments
            .iter()
            .map(|segment| {
                let segment = &layered.segments[*segment];
                if upper {
                    (positions[segment.above], segment.above_dx)
                } else {
                    (positions[segment.below], segment.below_dx)
                }
            })
            .collect();
        ends.sort_unstable();
        ends
    };
    let count = |left: &[(usize, i32)], right: &[(usize, i32)]| -> usize {
        left.iter().map(|end| right.partition_point(|other| other < end)).sum()
    };
    count(&ends(&layered.up[a], true), &ends(&layered.up[b], true))
        + count(&ends(&layered.down[a], false), &ends(&layered.down[b], false))
}

/// All crossings, counted with one binary indexed tree a channel.
pub fn crossings(layered: &Layered) -> usize {
    let positions = layered.positions();
    let mut total = 0;
    for rank in &layered.order {
        let mut ends: Vec<_> = rank
            .iter()
            .flat_map(|vertex| &layered.down[*vertex])
            .map(|segment| {
                let segment = &layered.segments[*segment];
                (
                    (positions[segment.above], segment.above_dx),
                    (positions[segment.below], segment.below_dx),
                )
            })
            .collect();
        ends.sort_unstable();
        let mut lower: Vec<_> = ends.iter().map(|end| end.1).collect();
        lower.sort_unstable();
        lower.dedup();
        let mut tree = vec![0usize; lower.len() + 1];
        for (seen, (_, below)) in ends.iter().enumerate() {
            let slot = lower.partition_point(|other| other <= below);
            let mut not_after = 0;
            let mut at = slot;
            while at > 0 {
                not_after += tree[at];
                at &= at - 1;
            }
            total += seen - not_after;
            let mut at = slot;
            while at < tree.len() {
                tree[at] += 1;
                at += at & at.wrapping_neg();
            }
        }
    }
    total
}
