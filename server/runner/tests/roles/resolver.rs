//! What a resolver answers, and how it refuses.

use crate::support::{Project, resolve, resolve_with};
use piw_protocol::child::{ResolveInput, ResolveResponse};
use piw_protocol::run::SourceRef;
use serde_json::{Value, json};

/// Code and message of a refusal.
fn refused(project: &Project, input: Value) -> (String, String) {
    match resolve(project, "main", Some(input)) {
        ResolveResponse::Refused(error) => (error.code.unwrap(), error.message),
        other => panic!("not refused: {other:?}"),
    }
}

fn one_node(more: &str) -> Project {
    Project::with(&format!(
        "{{ name: 'w', startAt: 'a', nodes: {{ a: compute({{ run: () => 1 }}) }}, edges: [], {more} }}"
    ))
}

#[test]
fn input_is_normalised_and_the_title_computed() {
    let project = one_node(
        "input: (value) => ({ n: Number(value.n) }), title: async ({ input, workflowName }) => `${workflowName}\\n${input.n}`",
    );
    let resolved = project.resolve(json!({ "n": "5" }));
    assert_eq!(resolved.input, Some(ResolveInput::Inline(json!({ "n": 5 }))));
    assert_eq!(resolved.title.as_deref(), Some("w 5"));
    assert!(resolved.unsupported.is_empty());
    let SourceRef::File { path, hash } = &resolved.sources.root else {
        panic!("a file")
    };
    assert!(path.ends_with("main.workflow.ts"));
    assert_eq!(hash.len(), 64);
}

#[test]
fn helper_modules_are_frozen_too() {
    let project = Project::new(
        "import { defineWorkflow, compute } from 'piw';
         import { one } from './helper.ts';
         export default defineWorkflow({ name: 'w', startAt: 'a', nodes: { a: compute({ run: () => one }) }, edges: [] });",
    );
    project.write(".pi/workflows/helper.ts", "export const one: number = 1;");
    let resolved = project.resolve(json!(null));
    assert_eq!(resolved.sources.modules.len(), 1);
}

#[test]
fn every_refusal_has_a_class_and_names_the_place() {
    let cases = [
        ("export default defineWorkflow({", "workflowSyntax", "main.workflow.ts"),
        ("export default 5", "notAWorkflow", "main.workflow.ts"),
        (
            "import x from './missing.ts'; export default x",
            "workflowImport",
            "missing.ts",
        ),
        (
            "throw new Error('at load'); export default 1",
            "workflowThrew",
            "at load",
        ),
        ("for (;;) {}; export default 1", "workflowLoadTimedOut", ""),
        (
            "import { defineWorkflow, compute } from 'piw'; export default defineWorkflow({ name: 'w', startAt: 'a', nodes: { a: compute({ run: () => 1 }) }, edges: [{ from: 'a', to: 'zz' }] })",
            "graphInvalid",
            "\"zz\"",
        ),
    ];
    for (source, code, said) in cases {
        let (found, message) = refused(&Project::new(source), json!(null));
        assert_eq!(found, code, "{source}: {message}");
        assert!(message.contains(said), "{source}: {message}");
    }
}

#[test]
fn a_refused_input_says_why() {
    let project = one_node("input: () => { throw new Error('give me a number') }");
    let (code, message) = refused(&project, json!({}));
    assert_eq!(code, "inputRefused");
    assert!(message.contains("give me a number"), "{message}");
}

#[test]
fn an_unknown_name_says_where_it_was_looked_for() {
    let project = one_node("");
    let ResolveResponse::Refused(error) = resolve(&project, "nope", None) else {
        panic!("refused")
    };
    assert_eq!(error.code.as_deref(), Some("workflowNotFound"));
    assert!(
        error.message.contains("\"nope\"") && error.message.contains(".pi/workflows"),
        "{}",
        error.message
    );
}

#[test]
fn large_inputs_and_answers_travel_in_files() {
    let project = one_node("input: (value) => ({ text: value.text, length: value.text.length })");
    let path = project.path().join("input.json");
    let text = "z".repeat(3_000_000);
    std::fs::write(&path, piw_protocol::canonical::write_value(&json!({ "text": text }))).unwrap();
    let answer = resolve_with(
        &project,
        "main",
        Some(ResolveInput::File(path.to_str().unwrap().to_owned())),
    );
    let ResolveResponse::Resolved(resolved) = answer else {
        panic!("resolved: {answer:?}")
    };
    let Some(ResolveInput::File(file)) = resolved.input else {
        panic!("a file")
    };
    let input = piw_protocol::canonical::parse(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(input["length"], 3_000_000);
}

#[test]
fn a_graph_larger_than_a_message_is_resolved() {
    let project = Project::new(
        "import { defineWorkflow, compute } from 'piw';
         const nodes = {}; const edges = [];
         const id = (i) => 'node_' + 'x'.repeat(200) + i;
         for (let i = 0; i < 1500; i++) { nodes[id(i)] = compute({ run: () => i, statusDetail: 'd'.repeat(100) }); if (i) edges.push({ from: id(i - 1), to: id(i) }); }
         export default defineWorkflow({ name: 'big', startAt: id(0), nodes, edges, maxSteps: 5000 });",
    );
    let resolved = project.resolve(json!(null));
    assert_eq!(resolved.definition.nodes.len(), 1500);
}

#[test]
fn what_needs_a_session_is_named() {
    let project = Project::new(
        "import { defineWorkflow, agent, assistantMessage } from 'piw';
         export default defineWorkflow({ name: 'w', startAt: 'say', nodes: {
           say: agent({ prompt: 'hi', expectedOutput: assistantMessage() }),
           limited: agent({ prompt: 'hi', expectedOutput: 'json', allowedTools: ['read'] }),
           free: agent({ prompt: 'hi', expectedOutput: { type: 'object' } }),
         }, edges: [{ from: 'say', to: 'limited' }, { from: 'limited', to: 'free' }] });",
    );
    let resolved = project.resolve(json!(null));
    assert!(resolved.unsupported.is_empty(), "{:?}", resolved.unsupported);
    let needs = resolved.needs_session;
    assert_eq!(needs.len(), 1, "{needs:?}");
    assert!(needs[0].contains("\"say\" asks for a visible reply"), "{needs:?}");
}

#[test]
fn limited_tools_are_refused_for_an_agent_command_only() {
    let project = Project::with(
        "{ name: 'w', startAt: 'a', nodes: { a: agent({ prompt: 'hi', expectedOutput: 'y', allowedTools: ['read'] }) }, edges: [] }",
    );
    project.write("config.toml", "[agent]\ncommand = ['cat']\n");
    let problem = project.resolve(json!(null)).agent_problem.unwrap();
    assert!(
        problem.contains("\"a\" limits the agent's tools (allowedTools)"),
        "{problem}"
    );
    project.write("config.toml", "[agent]\npi = 'cat'\n");
    assert_eq!(project.resolve(json!(null)).agent_problem, None);
}

#[test]
fn a_named_pipe_is_refused_without_waiting_for_a_writer() {
    let project = Project::new("");
    let pipe = project.path().join("pipe.workflow.ts");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let ResolveResponse::Refused(error) = resolve(&project, "./pipe.workflow.ts", None) else {
        panic!("not refused");
    };
    let expected = format!("cannot read {}: it is a named pipe, no regular file", pipe.display());
    assert_eq!(error.message, expected);
}
