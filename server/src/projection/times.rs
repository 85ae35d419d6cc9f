//! Where a run's time went: stretches in which it did not work, and what its nodes took in earlier runs of the workflow.

use std::collections::HashMap;

use piw_protocol::view::{EARLIER_RUNS, NodeTime, Pause, PauseKind};
use piw_state::query::run::RunFacts;
use piw_state::query::steps::Chain;
use piw_state::query::times::{self, Idle};
use piw_state::query::{QueryError, Reader, rfc3339};

use super::nodes::{NodeCache, Nodes};

/// A stretch of time in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    kind: PauseKind,
    from: i64,
    to: Option<i64>,
    node: Option<i64>,
}

/// Times of `count` nodes from the one at `start` on, in document order.
pub(crate) fn nodes(
    reader: &Reader,
    facts: &RunFacts,
    known: &NodeCache,
    start: usize,
    count: usize,
) -> Result<Vec<NodeTime>, QueryError> {
    let own = known.get(reader, facts.definition)?;
    let wanted: Vec<&str> = own.ids().skip(start).take(count).collect();
    let mut found: Vec<Vec<u64>> = vec![Vec::new(); wanted.len()];
    for earlier in times::earlier_runs(reader, facts, EARLIER_RUNS)? {
        let nodes = known.get(reader, earlier.definition)?;
        let index = index(&nodes, earlier.definition != facts.definition);
        for (at, id) in wanted.iter().enumerate() {
            let node = match &index {
                Some(index) => index.get(id).copied(),
                None => Some(start + at),
            };
            let Some(node) = node.and_then(|node| i64::try_from(node).ok()) else {
                continue;
            };
            if let Some(time) = times::newest_time(reader, earlier.run, node)? {
                found[at].push(time.unsigned_abs());
            }
        }
    }
    let items = wanted.iter().zip(found).map(|(id, mut times)| NodeTime {
        node_id: (*id).to_owned(),
        runs: u32::try_from(times.len()).unwrap_or(u32::MAX),
        median_ms: median(&mut times),
    });
    Ok(items.collect())
}

/// Nodes of another definition by id.
fn index(nodes: &Nodes, other: bool) -> Option<HashMap<&str, usize>> {
    other.then(|| nodes.ids().enumerate().map(|(at, id)| (id, at)).collect())
}

fn median(times: &mut [u64]) -> Option<u64> {
    times.sort_unstable();
    let middle = times.len() / 2;
    match times.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(times[middle]),
        _ => Some(times[middle - 1].midpoint(times[middle])),
    }
}

/// The stretches in which the runs of a chain did not work, in order.
pub(crate) fn pauses(reader: &Reader, chain: &Chain, nodes: &Nodes) -> Result<Vec<Pause>, QueryError> {
    let parts = times::idle(reader, chain)?;
    let spans = parts.iter().flat_map(spans);
    let pauses = spans.map(|span| {
        Ok(Pause {
            kind: span.kind,
            from: rfc3339(span.from),
            to: span.to.map(rfc3339),
            node_id: span.node.map(|node| nodes.id(node)).transpose()?,
        })
    });
    pauses.collect()
}

/// The stretches of one run; a pause cuts through what it interrupts.
fn spans(idle: &Idle) -> Vec<Span> {
    let mut spans = Vec::new();
    let queued = (idle.created_at, idle.started_at.or(idle.finished_at));
    cut(&mut spans, PauseKind::Queued, None, queued, &idle.paused);
    if let Some((node, from, to)) = idle.waited {
        cut(&mut spans, PauseKind::Waiting, Some(node), (from, to), &idle.paused);
    }
    spans.extend(idle.paused.iter().map(|(from, to)| Span {
        kind: PauseKind::Paused,
        from: *from,
        to: *to,
        node: None,
    }));
    spans.retain(|span| span.to.is_none_or(|to| to > span.from));
    spans.sort_by_key(|span| span.from);
    spans
}

/// Adds what of a stretch lies outside the pauses.
fn cut(
    spans: &mut Vec<Span>,
    kind: PauseKind,
    node: Option<i64>,
    (from, to): (i64, Option<i64>),
    paused: &[(i64, Option<i64>)],
) {
    let mut from = Some(from);
    let end = to.unwrap_or(i64::MAX);
    for (start, stop) in paused {
        let Some(begin) = from else { return };
        if stop.is_some_and(|stop| stop <= begin) || *start >= end {
            continue;
        }
        spans.push(Span {
            kind,
            from: begin,
            to: Some(*start),
            node,
        });
        from = stop.filter(|stop| *stop < end);
    }
    spans.extend(from.map(|from| Span { kind, from, to, node }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_cuts_what_it_interrupts() {
        let idle = Idle {
            created_at: 0,
            started_at: Some(10),
            finished_at: None,
            paused: vec![(5, Some(7)), (40, Some(50)), (60, None)],
            waited: Some((3, 30, None)),
        };
        let shown: Vec<_> = spans(&idle)
            .into_iter()
            .map(|span| (span.kind, span.from, span.to, span.node))
            .collect();
        assert_eq!(
            shown,
            [
                (PauseKind::Queued, 0, Some(5), None),
                (PauseKind::Paused, 5, Some(7), None),
                (PauseKind::Queued, 7, Some(10), None),
                (PauseKind::Waiting, 30, Some(40), Some(3)),
                (PauseKind::Paused, 40, Some(50), None),
                (PauseKind::Waiting, 50, Some(60), Some(3)),
                (PauseKind::Paused, 60, None, None),
            ]
        );
    }

    #[test]
    fn a_pause_over_the_end_of_a_wait_leaves_nothing_behind_it() {
        let idle = Idle {
            created_at: 0,
            started_at: Some(0),
            finished_at: Some(90),
            paused: vec![(10, Some(90))],
            waited: Some((1, 20, Some(90))),
        };
        let kinds: Vec<_> = spans(&idle).iter().map(|span| (span.kind, span.from)).collect();
        assert_eq!(kinds, [(PauseKind::Paused, 10)]);
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [9]), Some(9));
        assert_eq!(median(&mut [8, 1]), Some(4));
        assert_eq!(median(&mut [70, 1, 5]), Some(5));
    }
}
