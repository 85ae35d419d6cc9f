//! What callbacks may return, and what they see of earlier results.

use serde_json::json;

use super::*;
use crate::script::{CallErrorKind, NodeResult};

#[tokio::test]
async fn outputs_become_json_as_stringify_would() {
    let project = Project::new();
    let cases = [
        ("return undefined", json!(null)),
        (
            "return { a: undefined, b: [undefined, NaN, -0, 1.5, 2 ** 40], d: new Date(0) }",
            json!({"b": [null, null, 0, 1.5, 1_099_511_627_776_i64], "d": "1970-01-01T00:00:00.000Z"}),
        ),
        ("return new Map([[1, 2]])", json!({})),
        (
            "return { toJSON: () => ({ x: new String('s'), n: new Number(3), b: Object(false) }) }",
            json!({"x": "s", "n": 3, "b": false}),
        ),
        (
            "return Buffer.from('hi')",
            json!({"type": "Buffer", "data": [104, 105]}),
        ),
        (
            "class P { constructor(public a: number) {} get b() { return 2 } } return new P(1)",
            json!({"a": 1}),
        ),
        ("return 'é\\u{1F600}\\0'", json!("é\u{1F600}\0")),
        (
            "const shared = { s: 1 }; return [shared, shared]",
            json!([{"s": 1}, {"s": 1}]),
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(project.compute("", body).await.unwrap(), expected, "{body}");
    }
}

#[tokio::test]
async fn values_that_are_no_json_fail_and_name_the_path() {
    let project = Project::new();
    let cases = [
        ("return { a: [1, 2n] }", "$.a[1]", "BigInt"),
        ("return { a: { 'b c': () => 1 } }", "$.a[\"b c\"]", "function"),
        ("return Symbol('x')", "$", "symbol"),
        (
            "const o: any = { list: [{}] }; o.list[0].up = o; return o",
            "$.list[0].up",
            "refers back",
        ),
        ("return { s: '\\ud800' }", "$.s", "lone surrogate"),
        ("return { ['k\\ud800']: 1 }", "$", "lone surrogate"),
        (
            "let v: any = 1; for (let i = 0; i < 200; i++) v = [v]; return v",
            "$[0]",
            "deeper than 128",
        ),
        ("return { bad: { toJSON: () => 1n } }", "$.bad", "BigInt"),
    ];
    for (body, path, why) in cases {
        let error = project.compute("", body).await.unwrap_err();
        let CallErrorKind::BadValue { path: found } = &error.kind else {
            panic!("{body}: {error:?}")
        };
        assert!(found.starts_with(path), "{body}: {found}");
        assert!(error.message.contains(why), "{body}: {}", error.message);
    }
    let thrown = project
        .compute("", "return { get a() { throw new Error('from a getter') } }")
        .await
        .unwrap_err();
    assert_eq!(
        (thrown.kind, thrown.message.as_str()),
        (CallErrorKind::Thrown, "from a getter")
    );
}

#[tokio::test]
async fn scopes_hold_inputs_and_the_latest_results() {
    let project = Project::new();
    let text = "import { defineWorkflow, compute } from 'piw';
const see = compute({ run: ({ input, outputs, results, state }) => ({ input, outputs, keys: Object.keys(outputs), a: results.a, has: 'a' in outputs, same: state.outputs === outputs, extra: state.runId }) });
const spoil = compute({ run: ({ outputs, input }: any) => { outputs.b.list.sort(); outputs.b.list.push(9); input.x = 2; delete outputs.b; return [outputs.b ?? null, Object.keys(outputs)] } });
export default defineWorkflow({ name: 'w', startAt: 'see', nodes: { see, spoil }, edges: [{ from: 'see', to: 'spoil' }] });";
    let (host, _) = project.load("s.workflow.ts", text).await.unwrap();
    host.open_scope("", &json!({"x": 1}));
    host.record("", "a", &NodeResult::ok(json!(1)));
    host.record("", "b", &NodeResult::ok(json!({"list": [3, 1]})));
    for pure in [false, true] {
        let mut with_state = args(pure);
        with_state.extras.insert("state".into(), json!({"runId": "r1"}));
        let seen = host.call(run("see"), with_state).await.unwrap();
        assert_eq!(
            seen,
            json!({"input": {"x": 1}, "outputs": {"a": 1, "b": {"list": [3, 1]}}, "keys": ["a", "b"], "a": {"outcome": "ok", "output": 1}, "has": true, "same": true, "extra": "r1"})
        );
        // What a callback does to its copy is not seen by the next.
        assert_eq!(host.call(run("spoil"), args(pure)).await.unwrap(), json!([null, ["a"]]));
    }
    let failed = NodeResult {
        outcome: piw_protocol::run::NodeOutcome::Failed,
        output: Value::Null,
        error: Some(piw_protocol::run::ErrorInfo {
            code: Some("nodeFailed".into()),
            message: "no".into(),
            stack: None,
        }),
        action: None,
        exit: None,
    };
    host.record("", "a", &failed);
    let seen = host.call(run("see"), args(true)).await.unwrap();
    assert_eq!(seen["outputs"], json!({"b": {"list": [3, 1]}}));
    assert_eq!(
        seen["a"],
        json!({"outcome": "failed", "output": null, "error": {"code": "nodeFailed", "message": "no"}})
    );
    host.open_scope("", &json!("again"));
    let seen = host.call(run("see"), args(true)).await.unwrap();
    assert_eq!((&seen["input"], &seen["outputs"]), (&json!("again"), &json!({})));
}

#[tokio::test]
async fn thrown_values_of_every_kind_are_told() {
    let project = Project::new();
    let cases = [
        ("throw new Error('plain')", "plain"),
        ("throw new TypeError('typed')", "TypeError: typed"),
        (
            "throw new Error('outer', { cause: new Error('inner') })",
            "outer\n  caused by: inner",
        ),
        ("throw 'text'", "text"),
        ("throw { code: 5 }", "thrown value {\"code\":5}"),
        ("throw null", "thrown value null"),
        ("return Promise.reject(new RangeError('late'))", "RangeError: late"),
        (
            "(undefined as any).x",
            "TypeError: cannot read property 'x' of undefined",
        ),
        (
            "return new Promise(() => {})",
            "it waits for a promise that nothing can settle",
        ),
    ];
    for (body, message) in cases {
        let error = project.action("", body).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Thrown, "{body}");
        assert!(error.message.starts_with(message), "{body}: {}", error.message);
    }
}

#[tokio::test]
async fn a_thousand_small_steps_cost_little() {
    let project = Project::new();
    let (host, _) = project
        .load(
            "n.workflow.ts",
            &one_node("compute", "", "return { n: (ctx.outputs.a?.n ?? 0) + 1 }"),
        )
        .await
        .unwrap();
    host.open_scope("", &Value::Null);
    for expected in 1..=1000 {
        let output = host.call(run("a"), args(true)).await.unwrap();
        assert_eq!(output, json!({ "n": expected }));
        host.record("", "a", &NodeResult::ok(output));
    }
}
