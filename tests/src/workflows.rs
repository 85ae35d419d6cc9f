//! Workflows that several tests and the tour run.

/// Loads two parts; the second attempt fails with a standard error of 26 KiB.
pub const IMPORT: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
const script = `
[ "$1" = 1 ] && { echo '{"rows":120}'; exit 0; }
i=0; while [ $i -lt 320 ]; do i=$((i+1)); echo "row $i: the date in column 4 is not a date, it is kept as it is" >&2; done
echo "fatal: column 4 has no date in any row" >&2; exit 3`;
export default defineWorkflow({
  name: "import", title: "Import of the orders", startAt: "fetch", maxSteps: 20,
  nodes: {
    fetch: compute({ run: ({ outputs }) => ({ part: (outputs.fetch?.part ?? 0) + 1 }) }),
    load: shell({
      effect: idempotentEffect("load"),
      exec: ({ outputs }) => ({ command: "sh", args: ["-c", script, "load", String(outputs.fetch.part)] }),
    }),
    more: compute({ run: () => ({ route: "again" }) }),
    done: compute({ run: () => 1 }),
  },
  edges: [
    { from: "fetch", to: "load" },
    { from: "load", to: "more" },
    { from: "more", switch: { on: "$output.route", cases: { again: "fetch", end: "done" } } },
  ],
});
"#;

/// A chain of compute nodes `step1`, `step2`, …
#[must_use]
pub fn chain(name: &str, title: &str, nodes: usize) -> String {
    format!(
        r#"
import {{ compute, defineWorkflow }} from "piw";
const names = Array.from({{ length: {nodes} }}, (_, at) => `step${{at + 1}}`);
export default defineWorkflow({{
  name: "{name}",
  title: "{title}",
  startAt: "step1",
  nodes: Object.fromEntries(names.map((name) => [name, compute({{ run: () => name }})])),
  edges: names.slice(1).map((name, at) => ({{ from: names[at], to: name }})),
}});
"#
    )
}
