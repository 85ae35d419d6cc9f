//! Loading a workflow and calling its callbacks.

use serde_json::json;

use super::*;
use crate::script::NodeResult;

#[tokio::test]
async fn a_workflow_loads_and_its_callbacks_run() {
    let project = Project::new();
    let text = r#"
import { defineWorkflow, compute, shell, idempotentEffect } from "@osolmaz/pi-workflows";
enum Size { Small = "small", Big = "big" }
interface Input { n: number }
export default defineWorkflow({
  name: "demo",
  title: ({ input, workflowName }: { input: Input; workflowName: string }) => `${workflowName} of ${input.n}`,
  input: (value: any): Input => {
    if (typeof value?.n !== "number") throw new Error("n must be a number");
    return { n: value.n };
  },
  startAt: "list",
  nodes: {
    list: shell({ effect: idempotentEffect("list"), exec: ({ input }: any) => ({ command: "ls", args: ["-n", String(input.n)] }), parse: (result: any) => result.stdout.split("\n") }),
    judge: compute({ timeoutMs: 1000, statusDetail: "sizes", run: async ({ outputs }: any) => ({ size: outputs.list.length > 2 ? Size.Big : Size.Small }) }),
  },
  edges: [{ from: "list", to: "judge" }],
});
"#;
    let (host, loaded) = project.load("demo.workflow.ts", text).await.unwrap();
    assert_eq!(loaded.raw.name, "demo");
    assert_eq!(loaded.raw.start_at, "list");
    assert!(loaded.raw.has_input && loaded.raw.has_title);
    assert_eq!(loaded.raw.nodes[0].callbacks, ["exec", "parse"]);
    assert_eq!(loaded.raw.nodes[1].timeout_ms, Some(json!(1000)));
    assert_eq!(loaded.modules.len(), 1);

    let normalised = host
        .call(
            callback("", None, CallbackField::Input),
            CallArgs {
                argument: Some(json!({"n": 3, "x": 1})),
                ..args(false)
            },
        )
        .await
        .unwrap();
    assert_eq!(normalised, json!({"n": 3}));
    let refused = host
        .call(
            callback("", None, CallbackField::Input),
            CallArgs {
                argument: Some(json!({})),
                ..args(false)
            },
        )
        .await
        .unwrap_err();
    assert_eq!(refused.message, "n must be a number");
    assert!(refused.stack.unwrap().contains("demo.workflow.ts:9:"));

    host.open_scope("", &normalised);
    let title = host
        .call(callback("", None, CallbackField::Title), args(false))
        .await
        .unwrap();
    assert_eq!(title, json!("demo of 3"));
    let command = host
        .call(callback("", Some("list"), CallbackField::Exec), args(false))
        .await
        .unwrap();
    assert_eq!(command, json!({"command": "ls", "args": ["-n", "3"]}));
    let parsed = host
        .call(
            callback("", Some("list"), CallbackField::Parse),
            CallArgs {
                argument: Some(json!({"stdout": "a\nb\nc"})),
                ..args(false)
            },
        )
        .await
        .unwrap();
    host.record("", "list", &NodeResult::ok(parsed));
    let judged = host.call(run("judge"), args(true)).await.unwrap();
    assert_eq!(judged, json!({"size": "big"}));
}
