//! How long the layout of a large graph takes, in process.

use std::collections::BTreeSet;
use std::time::Instant;

use piw::viewer::graph::{Density, Graph, lay_out};
use piw_engine::raw::{RawDefinition, RawEdge, RawNode, RawSwitch};
use piw_protocol::definition::NodeType;
use piw_protocol::run::SourceRef;

use crate::bench::table::{Bar, Row};
use crate::bench::workloads;

/// The layouts of 2,000 nodes with 3,000 edges and of 100 nodes.
///
/// # Panics
/// When the graph does not compile.
#[must_use]
pub fn rows() -> Vec<Row> {
    vec![
        measure("layout of 2,000 nodes and 3,000 edges", 2_000, 15, 150.0),
        measure("layout of 100 nodes", 100, 200, 3.0),
    ]
}

fn measure(name: &str, count: usize, times: usize, bar: f64) -> Row {
    let compiled = piw_engine::compile(&definition(count)).expect("a sound graph");
    let graph = Graph::new(compiled.snapshot());
    let samples: Vec<_> = (0..times)
        .map(|_| {
            let begun = Instant::now();
            let drawing = lay_out(&graph, Density::Boxed, &BTreeSet::new());
            let elapsed = begun.elapsed();
            assert_eq!(drawing.cards.len(), count, "every node is drawn");
            elapsed
        })
        .collect();
    Row::millis(name, Bar::AtMost(bar), &samples)
}

fn definition(count: usize) -> RawDefinition {
    let name = |node: usize| format!("n{node}");
    let node = |id: String| RawNode {
        callbacks: vec!["run".to_owned()],
        ..RawNode::new(id, NodeType::Compute)
    };
    let edge = |(from, targets): (usize, Vec<usize>)| {
        let switch = (targets.len() > 1).then(|| RawSwitch {
            on: "$output.route".to_owned(),
            cases: ["next", "skip"]
                .into_iter()
                .map(str::to_owned)
                .zip(targets.iter().copied().map(name))
                .collect(),
        });
        RawEdge {
            from: name(from),
            to: switch.is_none().then(|| name(targets[0])),
            switch,
        }
    };
    RawDefinition {
        name: "large".to_owned(),
        source: SourceRef::File {
            path: "/large.workflow.ts".to_owned(),
            hash: "0".repeat(64),
        },
        contract_id: None,
        start_at: name(0),
        max_steps: None,
        has_input: false,
        title: None,
        has_title: false,
        nodes: (0..count).map(|index| node(name(index))).collect(),
        edges: workloads::edges(count).into_iter().map(edge).collect(),
        includes: Vec::new(),
        exits: Vec::new(),
        has_settings: false,
    }
}
