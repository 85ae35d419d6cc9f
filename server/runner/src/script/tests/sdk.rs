//! The SDK's builders: what they accept, what they make, and how they refuse.

use piw_engine::raw::RawDefinition;
use serde_json::json;

use super::*;
use crate::script::LoadErrorKind;

async fn raw(nodes: &str, rest: &str) -> Result<RawDefinition, LoadError> {
    let project = Project::new();
    let text = format!(
        "import * as sdk from '@osolmaz/pi-workflows';\nconst {{ agent, assistantMessage, decision, decisionEdge, compute, action, shell, notify, checkpoint, humanDecision, defineHumanChoices, choice, textInput, humanDecisionEdge, idempotentEffect, observedEffect, manualEffect, includeWorkflow, controlLoop, workflowSettings, settingsRoute }} = sdk;\nconst effect = manualEffect('t'); const run = () => 1; const node = compute({{ run }});\nexport default sdk.defineWorkflow({{ name: 'w', startAt: 'a', nodes: {{ {nodes} }}, {rest} }} as any);"
    );
    project.load("w.workflow.ts", &text).await.map(|(_, loaded)| loaded.raw)
}

#[tokio::test]
async fn malformed_shapes_are_refused_with_field_rule_and_value() {
    for (nodes, rest, message) in [
        (
            "a: {}",
            "edges: []",
            "defineWorkflow(\"w\"): nodes.a must be made by agent, decision, compute, action, shell, notify, checkpoint or humanDecision, not {}",
        ),
        (
            "'1a': node",
            "edges: []",
            "the node id \"1a\" must be a name of letters, digits, _ and - that begins with a letter or _",
        ),
        (
            "a: compute({})",
            "edges: []",
            "compute(...).run must be a function, not undefined",
        ),
        (
            "a: compute({ run, timeoutMs: '5s' })",
            "edges: []",
            "compute(...).timeoutMs must be a positive number of milliseconds, null or a function, not \"5s\"",
        ),
        ("a: compute({ run, timeoutMs: -1 })", "edges: []", "not -1"),
        (
            "a: action({ run })",
            "edges: []",
            "action(...).effect must be idempotentEffect(type), observedEffect(type, {observe}) or manualEffect(type), not undefined",
        ),
        (
            "a: action({ run, effect: manualEffect('') })",
            "edges: []",
            "manualEffect(type) must be a non-empty text, not \"\"",
        ),
        (
            "a: action({ run, effect: observedEffect('x', {}) })",
            "edges: []",
            "observedEffect(type, options).observe must be a function",
        ),
        (
            "a: shell({ effect })",
            "edges: []",
            "shell(...).exec must be a function (or an object) that gives {command, args, ...}, not undefined",
        ),
        (
            "a: shell({ effect, exec: run, updates: { streams: ['out'], parseLine: run } })",
            "edges: []",
            "shell(...).updates.streams[0] must be \"stdout\" or \"stderr\", not \"out\"",
        ),
        (
            "a: notify({ kind: 'loud', message: 'x' })",
            "edges: []",
            "notify(...).kind must be \"progress\" or \"final\", not \"loud\"",
        ),
        (
            "a: agent({ prompt: 'x' })",
            "edges: []",
            "agent(...).expectedOutput must describe the JSON to submit",
        ),
        (
            "a: decision({ choices: [], question: 'x' })",
            "edges: []",
            "decision(...).choices must be a non-empty array",
        ),
        (
            "a: decision({ choices: ['x', 'x'], question: 'x' })",
            "edges: []",
            "must not name a choice twice",
        ),
        (
            "a: node",
            "edges: {}",
            "defineWorkflow(\"w\"): edges must be an array, not {}",
        ),
        (
            "a: node",
            "edges: [{ from: 'a' }]",
            "defineWorkflow(\"w\"): edges[0].to must be a non-empty text, not undefined",
        ),
        (
            "a: node",
            "edges: [{ from: 'a', switch: { on: '$.x', cases: {} } }]",
            "edges[0].switch.cases must have at least one case",
        ),
        (
            "a: node",
            "edges: [decisionEdge({ from: 'a', choices: ['x', 'y'], cases: { x: 'a' } })]",
            "decisionEdge(...).cases lacks the choice \"y\"",
        ),
        (
            "a: node",
            "edges: [humanDecisionEdge({ from: 'a', choices: { x: {} }, cases: { x: 'a', z: 'a' } })]",
            "has \"z\", which is no choice of x",
        ),
        (
            "a: node",
            "edges: [], maxSteps: 0",
            "defineWorkflow(\"w\"): maxSteps must be a whole number above 0, not 0",
        ),
        (
            "a: node",
            "edges: [], title: 5",
            "title must be a non-empty text or a function, not 5",
        ),
        (
            "a: node",
            "edges: [], includes: { m: {} }",
            "defineWorkflow(\"w\"): includes.m must be includeWorkflow(...), not {}",
        ),
        (
            "a: node",
            "edges: [], includes: { m: includeWorkflow({}) }",
            "includeWorkflow(...) takes a workflow or {workflow: \"name\"}, not {}",
        ),
        (
            "a: node",
            "edges: [], exits: { done: {} }",
            "exits.done.node must be a non-empty text",
        ),
        (
            "a: node",
            "edges: [], settings: {}",
            "settings must be made by workflowSettings(...)",
        ),
        (
            "a: humanDecision({ audience: 'x', choices: {}, request: run })",
            "edges: []",
            "defineHumanChoices(...) must name at least one choice",
        ),
    ] {
        let error = raw(nodes, rest).await.unwrap_err();
        assert_eq!(error.kind, LoadErrorKind::NotAWorkflow, "{nodes} {rest}: {error}");
        assert!(error.message.contains(message), "{nodes} {rest}: {error}");
        assert!(error.message.contains("w.workflow.ts:4:"), "{nodes} {rest}: {error}");
    }
}

#[tokio::test]
async fn every_builder_is_described() {
    let nodes = "a: agent({ prompt: () => 'p', expectedOutput: assistantMessage({ maxChars: 9 }), allowedTools: ['read'], validate: (x) => x }),
        d: decision({ choices: { go: 'forward', stop: 'halt' }, question: 'which?' }), c: compute(run), t: compute({ run, timeoutMs: null, statusDetail: () => 's' }),
        e: action({ run, effect: idempotentEffect('e.x') }), o: action({ run, effect: observedEffect('o', () => 'unknown') }),
        s: shell({ effect, exec: { command: 'ls' }, parse: run, updates: { parseLine: run } }), n: notify({ message: 'hi' }), k: checkpoint({ summary: 'ok?', run }),
        h: humanDecision({ audience: 'ops', choices: defineHumanChoices({ yes: choice('Yes'), no: choice({ input: textInput('why') }) }), request: run, onTimeout: { afterMs: 5, response: { choice: 'no' } } }), r: settingsRoute(run)";
    let raw = raw(nodes, "edges: [['c', 't'], [{ from: 't', to: 'e' }], controlLoop({ decide: 'r', actions: { again: 'c' }, exits: { end: 'n' } }), decisionEdge({ from: 'd', choices: ['go', 'stop'], cases: { stop: 'n', go: 'c' } })], exits: ['n'], maxSteps: 7, contractId: 'c.v1', settings: workflowSettings({ initial: 1 }), title: 'T', presentationPrompt: 'ignored'").await.unwrap();
    let data = serde_json::to_value(&raw).unwrap();
    let node = |id: &str| {
        data["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|node| node["id"] == id)
            .unwrap()
            .clone()
    };
    assert_eq!(
        node("a")["expectedOutput"],
        json!({"type": "assistantMessage", "maxChars": 9})
    );
    assert_eq!(node("a")["callbacks"], json!(["prompt", "validate"]));
    assert_eq!(node("d")["nodeType"], "agent");
    assert!(
        node("d")["expectedOutput"]
            .as_str()
            .unwrap()
            .contains("\"route\": \"go\" | \"stop\"")
    );
    assert_eq!(
        raw.nodes.iter().find(|node| node.id == "t").unwrap().timeout_ms,
        Some(Value::Null)
    );
    assert_eq!(
        (&node("e")["effect"], &node("e")["actionExecution"]),
        (&json!({"kind": "idempotent", "type": "e.x"}), &json!("function"))
    );
    assert_eq!(node("o")["callbacks"], json!(["observe", "run"]));
    assert_eq!(
        (&node("s")["callbacks"], &node("s")["actionExecution"]),
        (&json!(["exec", "parse", "updates.parseLine"]), &json!("shell"))
    );
    assert_eq!(
        (&node("n")["notifyKind"], &node("n")["callbacks"]),
        (&json!("progress"), &json!(["message"]))
    );
    assert_eq!(
        (&node("k")["nodeType"], &node("k")["summary"]),
        (&json!("checkpoint"), &json!("ok?"))
    );
    assert_eq!(
        node("h")["humanDecision"],
        json!({"audience": "ops", "choices": [{"name": "yes", "label": "Yes"}, {"name": "no", "input": {"type": "text", "prompt": "why"}}], "onTimeout": {"afterMs": 5, "response": {"choice": "no"}}})
    );
    assert_eq!(
        data["edges"],
        json!([
            {"from": "c", "to": "t", "switch": null},
            {"from": "t", "to": "e", "switch": null},
            {"from": "r", "to": null, "switch": {"on": "$.route", "cases": [["again", "c"], ["end", "n"]]}},
            {"from": "c", "to": "r", "switch": null},
            {"from": "d", "to": null, "switch": {"on": "$.route", "cases": [["stop", "n"], ["go", "c"]]}}
        ])
    );
    assert_eq!(
        (
            raw.max_steps,
            raw.has_settings,
            raw.title.as_deref(),
            raw.contract_id.as_deref()
        ),
        (Some(7.0), true, Some("T"), Some("c.v1"))
    );
    assert_eq!(
        (
            raw.exits[0].name.as_str(),
            raw.exits[0].node.as_str(),
            raw.exits[0].has_validate
        ),
        ("n", "n", false)
    );
}

#[tokio::test]
async fn decisions_compose_prompts_and_check_choices() {
    let project = Project::new();
    let text = "import { defineWorkflow, decision, shell, manualEffect } from 'piw';
export default defineWorkflow({ name: 'w', startAt: 'd', edges: [], nodes: { d: decision({ choices: ['go', 'stop'], question: ({ input }) => `At ${input}?` }),
  s: shell({ effect: manualEffect('t'), exec: { command: 'x', args: ['y'] }, updates: { streams: ['stderr'], parseLine: (line, { stream }) => ({ type: 'x', key: stream, data: { line } }) } }) } });";
    let (host, _) = project.load("d.workflow.ts", text).await.unwrap();
    host.open_scope("", &json!("dawn"));
    let prompt = host
        .call(callback("", Some("d"), CallbackField::Prompt), args(false))
        .await
        .unwrap();
    assert_eq!(prompt, json!("At dawn?\n\nChoose exactly one:\n- go\n- stop"));
    let validate = |value| CallArgs {
        argument: Some(value),
        ..args(false)
    };
    let good = host
        .call(
            callback("", Some("d"), CallbackField::Validate),
            validate(json!({"route": "go"})),
        )
        .await
        .unwrap();
    assert_eq!(good, json!({"route": "go"}));
    let bad = host
        .call(
            callback("", Some("d"), CallbackField::Validate),
            validate(json!({"route": "fly"})),
        )
        .await
        .unwrap_err();
    assert_eq!(bad.message, "\"route\" must be one of go, stop, not \"fly\"");
    assert_eq!(
        host.call(callback("", Some("s"), CallbackField::Exec), args(false))
            .await
            .unwrap(),
        json!({"command": "x", "args": ["y"]})
    );
    let line = |stream: &str| CallArgs {
        argument: Some(json!({"line": "l", "stream": stream})),
        ..args(false)
    };
    let update = host
        .call(callback("", Some("s"), CallbackField::ParseLine), line("stderr"))
        .await
        .unwrap();
    assert_eq!(update, json!({"type": "x", "key": "stderr", "data": {"line": "l"}}));
    assert_eq!(
        host.call(callback("", Some("s"), CallbackField::ParseLine), line("stdout"))
            .await
            .unwrap(),
        Value::Null
    );
    let missing = host
        .call(callback("", Some("nope"), CallbackField::Run), args(false))
        .await
        .unwrap_err();
    assert_eq!(missing.kind, crate::script::CallErrorKind::Missing);
}

#[tokio::test]
async fn the_file_that_uses_the_whole_sdk_loads() {
    let project = Project::new();
    let text = include_str!("../../../tests/types/everything.workflow.ts")
        .replace("dyn: includeWorkflow({ workflow: \"builtin:x\" })", "");
    // Two statements at its end exist to be refused.
    let text = text.split("// @ts-expect-error").next().unwrap().to_owned();
    let (_, loaded) = project.load("everything.workflow.ts", &text).await.unwrap();
    assert_eq!(loaded.raw.name, "parent");
    assert_eq!(loaded.raw.includes[0].definition.name, "child");
}

#[tokio::test]
async fn the_shipped_workflows_load() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets");
    for place in ["workflows", "init"] {
        for file in std::fs::read_dir(root.join(place)).unwrap() {
            let path = file.unwrap().path().canonicalize().unwrap();
            if path.extension().is_some_and(|extension| extension == "ts") {
                let host = ScriptHandle::start(ScriptOptions::new(path.parent().unwrap())).unwrap();
                let entry = Entry::File {
                    bytes: std::fs::read(&path).unwrap().into(),
                    path: path.clone(),
                };
                let loaded = host
                    .load(entry)
                    .await
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                piw_engine::compile(&loaded.raw).unwrap_or_else(|problems| panic!("{}: {problems:?}", path.display()));
            }
        }
    }
}

#[tokio::test]
async fn resource_managers_can_be_defined() {
    let project = Project::new();
    let text = "import { defineResourceManager } from '@osolmaz/pi-workflows/resource-managers';\nimport { defineWorkflow, compute } from 'piw';\nconst m = defineResourceManager({ name: 'm', initialStatus: {}, reconcile: async (ctx) => ctx.settled() });\nexport default defineWorkflow({ name: m.name, startAt: 'a', nodes: { a: compute({ run: () => 1 }) }, edges: [] });";
    assert_eq!(project.load("m.workflow.ts", text).await.unwrap().1.raw.name, "m");
}

/// Every example of the guides loads and passes the graph check.
#[tokio::test]
async fn the_examples_of_the_guides_load() {
    let guides = [
        include_str!("../../../../../docs/authoring.md"),
        include_str!("../../../../../docs/agents.md"),
    ];
    let project = Project::new();
    let mut names = Vec::new();
    for block in guides.iter().flat_map(|guide| guide.split("```ts\n").skip(1)) {
        let text = block.split("```").next().unwrap();
        let name = text.lines().next().unwrap().trim_start_matches("// ");
        assert!(name.ends_with(".workflow.ts"), "{name}");
        project.write(name, text);
        names.push(name.to_owned());
    }
    assert_eq!(names.len(), 5);
    for name in names {
        let loaded = project
            .host()
            .load(project.entry(&name))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        piw_engine::compile(&loaded.raw).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
    }
}
