//! Workflows that the measurements run.

/// A one-node compute workflow.
pub const ONE_NODE: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "one-node", startAt: "only", nodes: { only: compute({ run: () => ({ done: true }) }) }, edges: [],
});
"#;

/// A loop of trivial compute steps; input `{ "steps": n }`.
pub const CHAIN: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "chain-of-steps", startAt: "count", maxSteps: 1000000,
  nodes: {
    count: compute({ run: ({ input, outputs }) => {
      const n = (outputs.count?.n ?? 0) + 1;
      return { n, route: n < input.steps - 1 ? "again" : "end" };
    } }),
    last: compute({ run: ({ outputs }) => outputs.count.n + 1 }),
  },
  edges: [{ from: "count", switch: { on: "$output.route", cases: { again: "count", end: "last" } } }],
});
"#;

/// An output of 50 MB.
pub const LARGE: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "large", startAt: "only", nodes: { only: compute({ run: () => "x".repeat(50_000_000) }) }, edges: [],
});
"#;

/// A node that sleeps until it is cancelled.
pub const SLEEP: &str = r#"
import { defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "sleep", startAt: "sleep",
  nodes: { sleep: shell({ effect: idempotentEffect("sleep"), exec: () => ({ command: "sleep", args: ["600"] }) }) },
  edges: [],
});
"#;

/// Twenty nodes of a quarter of a second each.
#[must_use]
pub fn paced(nodes: usize) -> String {
    let mut text = String::from(
        "import { defineWorkflow, idempotentEffect, shell } from \"piw\";\nconst node = () => shell({ effect: \
         idempotentEffect(\"pace\"), exec: () => ({ command: \"sleep\", args: [\"0.25\"] }) });\nexport default \
         defineWorkflow({ name: \"paced\", startAt: \"n0\", nodes: {",
    );
    for index in 0..nodes {
        text.push_str(&format!("n{index}: node(), "));
    }
    text.push_str("}, edges: [");
    for index in 1..nodes {
        text.push_str(&format!("{{ from: \"n{}\", to: \"n{index}\" }}, ", index - 1));
    }
    text.push_str("] });\n");
    text
}

/// A run that waits for an answer.
pub const WAITS: &str = r#"
import { checkpoint, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "waits", startAt: "ask", nodes: { ask: checkpoint({ summary: "Go on?", run: () => ({ question: "Go on?" }) }) }, edges: [],
});
"#;

/// The edges of a large graph: a chain with a shortcut from every second node, `count` nodes and about 1.5 times as many edges.
/// The length of the shortcuts differs from node to node.
#[must_use]
pub fn edges(count: usize) -> Vec<(usize, Vec<usize>)> {
    (0..count.saturating_sub(1))
        .map(|node| {
            let shortcut = node + 2 + node * 7 % 40;
            let targets = if node % 2 == 0 && shortcut < count {
                vec![node + 1, shortcut]
            } else {
                vec![node + 1]
            };
            (node, targets)
        })
        .collect()
}

/// A workflow with the graph of [`edges`] that goes through every node.
#[must_use]
pub fn large(count: usize) -> String {
    let edges: Vec<String> = edges(count)
        .into_iter()
        .map(|(from, targets)| match targets[..] {
            [next, shortcut] => format!(
                "{{ from: \"n{from}\", switch: {{ on: \"$output.route\", cases: {{ next: \"n{next}\", skip: \"n{shortcut}\" }} }} }}"
            ),
            _ => format!("{{ from: \"n{from}\", to: \"n{}\" }}", targets[0]),
        })
        .collect();
    let nodes: Vec<String> = (0..count).map(|node| format!("n{node}: pass()")).collect();
    format!(
        "import {{ compute, defineWorkflow }} from \"piw\";\nconst pass = () => compute({{ run: () => ({{ route: \"next\" }}) \
         }});\nexport default defineWorkflow({{ name: \"large-graph\", startAt: \"n0\", maxSteps: {count},\nnodes: {{ {} }},\nedges: \
         [{}] }});\n",
        nodes.join(", "),
        edges.join(", "),
    )
}
