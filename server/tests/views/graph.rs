//! Graph history at any position: the same with and without checkpoints, and through continuations.

use piw_state::query::graph::{self, GraphAt, TransitionRow};
use piw_state::query::run::facts;
use piw_state::query::steps::Chain;
use rusqlite::Connection;

use crate::fixture::{Fixture, Run};

fn at(sql: &Connection, run_id: &str, cursor: u64) -> GraphAt {
    let facts = facts(sql, run_id).unwrap().unwrap();
    graph::at(sql, &Chain::of(sql, &facts).unwrap(), cursor).unwrap()
}

fn brute(nodes: i64, cursor: u64) -> Vec<TransitionRow> {
    let mut all: Vec<TransitionRow> = Vec::new();
    for step in 1..cursor {
        let (from, to) = ((step - 1) as i64 % nodes, step as i64 % nodes);
        match all.iter_mut().find(|row| (row.from, row.to) == (from, to)) {
            Some(row) => row.count += 1,
            None => all.push(TransitionRow { from, to, count: 1 }),
        }
    }
    all.sort_by_key(|row| (row.from, row.to));
    all
}

#[tokio::test]
async fn checkpoints_do_not_change_the_answer() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(7), &Run::new("r", "completed"));
    let cursors = [0, 1, 2, 7, 4095, 4096, 4097, 9000, 10_000];
    f.steps(run, 7, 4096);
    graph::write_checkpoint(&f.sql, run).unwrap();
    f.steps(run, 7, 4096);
    graph::write_checkpoint(&f.sql, run).unwrap();
    graph::write_checkpoint(&f.sql, run).unwrap();
    f.steps(run, 7, 10_000 - 8192);
    graph::write_checkpoint(&f.sql, run).unwrap();
    let stored: i64 = f
        .sql
        .query_row("SELECT count(*) FROM run_graph_checkpoints", [], |row| row.get(0))
        .unwrap();
    assert_eq!(stored, 2, "one at each position, and none where none is due");
    let with: Vec<_> = cursors.map(|cursor| at(&f.sql, "r", cursor)).into();
    f.sql.execute("DELETE FROM run_graph_checkpoints", []).unwrap();
    for (cursor, with) in cursors.into_iter().zip(with) {
        let without = at(&f.sql, "r", cursor);
        assert_eq!(with, without, "after {cursor} steps");
        assert_eq!(
            with.transitions().collect::<Vec<_>>(),
            brute(7, cursor),
            "after {cursor} steps"
        );
        assert_eq!(with.steps, cursor);
    }
}

#[tokio::test]
async fn a_continuation_goes_on_from_its_parents_graph() {
    let f = Fixture::new().await;
    let definition = f.circle(5);
    let mut parent = f.run(definition, &Run::new("r0", "completed"));
    f.steps(parent, 5, 11);
    for n in 1..6 {
        let run_id = format!("r{n}");
        let carried = 11 + (n - 1) * 3;
        let child = f.run(
            definition,
            &Run {
                parent: Some((parent, "continuation")),
                carried,
                ..Run::new(&run_id, "completed")
            },
        );
        if n % 2 == 0 {
            graph::write_checkpoint(&f.sql, child).unwrap();
        }
        f.steps(child, 5, 3);
        parent = child;
    }
    let facts = facts(&f.sql, "r5").unwrap().unwrap();
    let chain = Chain::of(&f.sql, &facts).unwrap();
    for cursor in 0..=26 {
        let graph = at(&f.sql, "r5", cursor);
        assert_eq!(
            graph.transitions().collect::<Vec<_>>(),
            brute(5, cursor),
            "after {cursor} steps"
        );
        let latest: Vec<_> = graph
            .nodes(&f.sql, &chain)
            .unwrap()
            .into_iter()
            .map(|row| row.latest_step)
            .collect();
        let expected: Vec<_> = (0..5)
            .filter_map(|node| (0..cursor).rev().find(|step| step % 5 == node))
            .map(Some)
            .collect();
        assert_eq!(latest, expected, "after {cursor} steps");
    }
}
