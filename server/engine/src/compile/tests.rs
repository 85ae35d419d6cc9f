//! Every rule's message, and what flattening gives.

use piw_protocol::definition::{EdgeRoute, NodeType};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{Choices, node, random_workflow, workflow};

fn problems(raw: &RawDefinition) -> Vec<String> {
    compile(raw).unwrap_err().iter().map(ToString::to_string).collect()
}

/// The only problem, without its file.
fn only(raw: &RawDefinition) -> String {
    let all = problems(raw);
    assert_eq!(all.len(), 1, "{all:#?}");
    let prefix = format!("/w/{0}.workflow.ts: workflow \"{0}\"", raw.name);
    all[0]
        .strip_prefix(&prefix)
        .unwrap_or_else(|| panic!("{}", all[0]))
        .to_owned()
}

fn two() -> RawDefinition {
    workflow("w", "a").computes(&["a", "b"]).edge("a", "b")
}

fn child() -> RawDefinition {
    workflow("child", "s")
        .computes(&["s", "t"])
        .edge("s", "t")
        .exit("done", "t")
}

#[test]
fn a_good_definition_passes() {
    let definition = compile(&two()).unwrap();
    assert_eq!(definition.start().id, "a");
    assert!(definition.node("b").unwrap().is_terminal());
    assert!(definition.digest().starts_with("sha256:"));
    assert_eq!(definition.scope("").unwrap().max_steps, 100);
}

#[test]
fn targets_sources_and_starts_must_exist() {
    assert_eq!(
        only(&two().edge("b", "c")),
        ": edge from \"b\": target \"c\" is no node and no mount [unknown-target]"
    );
    assert_eq!(
        only(&two().switch("b", "$.x", &[("1", "c")])),
        ": edge from \"b\": case \"1\": target \"c\" is no node and no mount [unknown-target]"
    );
    assert_eq!(
        only(&two().edge("c", "b")),
        ": edge from \"c\": \"c\" is no node and no mount [unknown-source]"
    );
    let mut no_start = two();
    no_start.start_at = "z".to_owned();
    assert_eq!(
        only(&no_start),
        ": startAt \"z\" is no node and no mount [missing-start]"
    );
    no_start.start_at = String::new();
    assert_eq!(only(&no_start), ": startAt is missing [missing-start]");
}

#[test]
fn one_edge_leaves_a_node() {
    assert_eq!(
        only(&two().edge("a", "a")),
        ": edge from \"a\": a second edge leaves here; one edge with a switch can choose [one-outgoing-edge]"
    );
    let mut neither = two();
    neither.edges[0].to = None;
    assert_eq!(
        only(&neither),
        ": edge from \"a\": an edge needs `to` or `switch` [edge-shape]"
    );
    let mut both = two().switch("b", "$.x", &[("1", "a")]);
    both.edges[1].to = Some("a".to_owned());
    assert_eq!(
        only(&both),
        ": edge from \"b\": an edge has `to` or `switch`, not both [edge-shape]"
    );
}

#[test]
fn everything_is_reachable() {
    let lost = two().computes(&["lost"]).mount("island", child());
    assert_eq!(
        problems(&lost)
            .iter()
            .map(|text| text.split_once("\"w\": ").unwrap().1)
            .collect::<Vec<_>>(),
        [
            "node \"lost\": nothing leads here from startAt \"a\" [unreachable]",
            "mount \"island\": nothing leads here from startAt \"a\" [unreachable]"
        ]
    );
}

#[test]
fn switches_have_a_path_and_cases() {
    assert_eq!(
        only(&two().switch("b", "x.y", &[("1", "a")])),
        ": edge from \"b\": path \"x.y\" must start with $, $output or $result (for example $.route or $result.outcome) \
         [switch-path]"
    );
    assert_eq!(
        only(&two().switch("b", "$.x", &[])),
        ": edge from \"b\": the switch on \"$.x\" has no cases [empty-cases]"
    );
    assert_eq!(
        only(&two().switch("b", "$.x", &[("1", "a"), ("1", "b")])),
        ": edge from \"b\": case \"1\" is listed twice [duplicate-name]"
    );
}

#[test]
fn names_follow_the_grammar_and_are_unique() {
    let bad = workflow("w", "a b").computes(&["a b"]);
    assert_eq!(
        only(&bad),
        ": node \"a b\": \"a b\" contains ' ' at byte 1; names are [A-Za-z_][A-Za-z0-9_-]* [name]"
    );
    let reserved = workflow("w", "constructor").computes(&["constructor"]);
    assert!(only(&reserved).contains("\"constructor\" is reserved"));
    assert!(only(&workflow("submit", "a").computes(&["a"])).starts_with(": \"submit\" is reserved"));
    assert!(only(&workflow("w", &"n".repeat(4097)).computes(&[&"n".repeat(4097)])).contains("has 4097 bytes"));
    assert_eq!(
        only(&two().computes(&["b"])),
        ": node \"b\": the name is used twice; nodes and mounts share one name space [duplicate-name]"
    );
}

#[test]
fn qualified_ids_are_bounded_too() {
    let long = "n".repeat(4000);
    let deep = workflow("w", &long).mount(&long, workflow("child", &long).computes(&[&long]));
    let all = problems(&deep);
    assert_eq!(all.len(), 1);
    assert!(
        all[0].ends_with("the qualified id has 8001 bytes; at most 4096 are allowed [name]"),
        "{}",
        all[0]
    );
    assert!(all[0].len() < 1000, "long names are shortened");
}

#[test]
fn bounds_and_timeouts_are_positive() {
    for (steps, shown) in [
        (0.0, "0"),
        (-1.0, "-1"),
        (1.5, "1.5"),
        (f64::NAN, "NaN"),
        (1e10, "10000000000"),
    ] {
        let text = only(&two().max_steps(steps));
        assert!(
            text.starts_with(&format!(": maxSteps is {shown}; it must be a whole number from 1")),
            "{text}"
        );
    }
    assert_eq!(compile(&two().max_steps(7.0)).unwrap().scope("").unwrap().max_steps, 7);
    let with = |value| {
        let mut raw = two();
        raw.nodes[0].timeout_ms = Some(value);
        raw
    };
    for bad in [json!(0), json!(-5), json!("1s"), json!(1e300), json!([])] {
        let text = only(&with(bad));
        assert!(text.contains("it must be a positive number of milliseconds"), "{text}");
    }
    let timeout = |raw: &RawDefinition| compile(raw).unwrap().node("a").unwrap().timeout();
    assert_eq!(timeout(&with(json!(null))), crate::NodeTimeout::Unlimited);
    assert_eq!(timeout(&with(json!(0.5))), crate::NodeTimeout::Ms(1));
    assert_eq!(timeout(&two()), crate::NodeTimeout::Ms(900_000));
    let mut computed = two();
    computed.nodes[0].callbacks.push("timeoutMs".to_owned());
    assert_eq!(timeout(&computed), crate::NodeTimeout::Callback);
}

#[test]
fn each_kind_of_node_has_what_it_needs() {
    let with = |change: &dyn Fn(&mut crate::raw::RawNode), kind| {
        let mut only_node = node("a", kind);
        change(&mut only_node);
        let mut raw = workflow("w", "a");
        raw.nodes.push(only_node);
        only(&raw)
    };
    let bare = |node: &mut crate::raw::RawNode| node.callbacks.clear();
    assert_eq!(
        with(&bare, NodeType::Compute),
        ": node \"a\": a compute node needs a `run` callback [node-shape]"
    );
    assert!(with(&|node| node.effect = None, NodeType::Action).contains("needs an `effect`"));
    assert!(
        with(
            &|node| node.action_execution = Some(crate::testing::SHELL),
            NodeType::Action
        )
        .contains("`exec`")
    );
    assert!(with(&|node| node.notify_kind = Some("loud".into()), NodeType::Notify).contains("`progress` or `final`"));
    assert!(with(&|node| node.expected_output = None, NodeType::Agent).contains("`expectedOutput`"));
    let observed = |node: &mut crate::raw::RawNode| {
        node.effect.as_mut().unwrap().kind = piw_protocol::definition::EffectKind::Observed;
    };
    assert!(with(&observed, NodeType::Action).contains("an observed effect needs an `observe` callback"));
    let untyped = |node: &mut crate::raw::RawNode| node.effect.as_mut().unwrap().effect_type.clear();
    assert!(with(&untyped, NodeType::Action).contains("1 to 256 characters"));
}

#[test]
fn exits_are_terminal_nodes() {
    assert_eq!(
        only(&two().exit("done", "a")),
        ": exit \"done\": \"a\" is no terminal node: an edge leaves it [exit]"
    );
    assert_eq!(
        only(&two().exit("done", "z")),
        ": exit \"done\": \"z\" is no node and no mount [exit]"
    );
    assert_eq!(
        only(&two().exit("done", "b").exit("again", "b")),
        ": exit \"again\": \"b\" already is the exit \"done\"; a node is one exit [exit]"
    );
    let twice = two()
        .computes(&["c"])
        .switch("b", "$.x", &[("1", "c")])
        .exit("done", "c")
        .exit("done", "c");
    let twice = problems(&twice);
    assert!(
        twice[0].ends_with("exit \"done\": the name is used twice [duplicate-name]"),
        "{twice:?}"
    );
}

#[test]
fn mounts_are_left_by_their_exits() {
    let parent = || workflow("w", "m").mount("m", child()).computes(&["end"]);
    assert!(compile(&parent().edge("m.done", "end")).is_ok());
    assert_eq!(
        only(&parent().edge("m", "end")),
        ": edge from \"m\": \"m\" is a mount: name an exit, as \"m.<exit>\" (exits: done) [unknown-exit]"
    );
    assert_eq!(
        only(&parent().edge("m.lost", "end")),
        ": edge from \"m.lost\": mount \"m\" has no exit \"lost\" (exits: done) [unknown-exit]"
    );
    assert_eq!(
        only(&parent().edge("z.done", "end")),
        ": edge from \"z.done\": \"z.done\" names no mount of this workflow [unknown-source]"
    );
    assert_eq!(
        only(&parent().edge("m.done", "end").edge("end", "m.done")),
        ": edge from \"end\": target \"m.done\" is no node and no mount; enter the mount as \"m\" [unknown-target]"
    );
}

#[test]
fn a_problem_of_a_mounted_workflow_names_its_file_and_mount_once() {
    let broken = child().edge("t", "nowhere");
    let mut parent = workflow("w", "m")
        .mount("m", broken.clone())
        .mount("again", broken)
        .edge("m.done", "again");
    parent.nodes.clear();
    let all = problems(&parent);
    assert_eq!(
        all,
        [
            "/w/child.workflow.ts: workflow \"child\" (mounted as m): edge from \"t\": target \"nowhere\" is no node and no \
          mount [unknown-target]",
            "/w/child.workflow.ts: workflow \"child\" (mounted as m): exit \"done\": \"t\" is no terminal node: an edge leaves \
          it [exit]"
        ]
    );
}

#[test]
fn include_cycles_show_the_chain() {
    let inner = workflow("w", "x").computes(&["x"]);
    let middle = workflow("middle", "back").mount("back", inner);
    let outer = workflow("w", "m").mount("m", middle);
    assert_eq!(
        problems(&outer),
        [
            "/w/middle.workflow.ts: workflow \"middle\" (mounted as m): mount \"back\": \"w\" is already being mounted: \
          w (/w/w.workflow.ts) → m: middle (/w/middle.workflow.ts) → back: w (/w/w.workflow.ts) [include-cycle]"
        ]
    );
}

#[test]
fn one_file_may_declare_parent_and_child() {
    let mut inner = child();
    let outer = workflow("w", "m");
    inner.source = outer.source.clone();
    assert!(compile(&outer.mount("m", inner)).is_ok());
}

fn nest(depth: usize) -> RawDefinition {
    (0..depth)
        .rev()
        .fold(workflow("leaf", "n").computes(&["n"]), |inner, level| {
            workflow(&format!("w{level}"), "m").mount("m", inner)
        })
}

#[test]
fn depth_32_passes_and_33_does_not() {
    assert!(compile(&nest(32)).is_ok());
    let all = problems(&nest(33));
    assert_eq!(all.len(), 1);
    assert!(
        all[0].ends_with("mount \"m\": mounts are nested deeper than 32 [include-depth]"),
        "{}",
        all[0]
    );
    assert_eq!(problems(&nest(2000)).len(), 1);
}

fn chain(count: usize) -> RawDefinition {
    let mut raw = workflow("w", "n0");
    for index in 0..count {
        raw = raw.with(&format!("n{index}"), NodeType::Compute);
        if index > 0 {
            raw = raw.edge(&format!("n{}", index - 1), &format!("n{index}"));
        }
    }
    raw
}

#[test]
fn four_thousand_and_ninety_six_nodes_pass_and_one_more_does_not() {
    assert_eq!(compile(&chain(4096)).unwrap().nodes().len(), 4096);
    assert_eq!(
        only(&chain(4097)),
        ": the resolved graph has more than 4096 nodes [node-count]"
    );
}

#[test]
fn problems_are_bounded() {
    let mut raw = two();
    for index in 0..1000 {
        raw = raw.edge(&format!("x{index}"), "a");
    }
    assert_eq!(problems(&raw).len(), limits::PROBLEMS);
}

#[test]
fn includes_are_mounted_in_place() {
    let middle = workflow("middle", "g")
        .mount("g", child())
        .exit("through", "g.done")
        .max_steps(9.0);
    let outer = workflow("w", "a")
        .computes(&["a", "z"])
        .mount("m", middle)
        .edge("a", "m")
        .edge("m.through", "z");
    let definition = compile(&outer).unwrap();
    let snapshot = definition.snapshot();
    assert_eq!(snapshot.node_order, ["a", "z", "m/g/s", "m/g/t"]);
    let edges: Vec<(&str, &str)> = snapshot
        .edges
        .iter()
        .map(|edge| match &edge.route {
            EdgeRoute::To { to } => (edge.from.as_str(), to.as_str()),
            EdgeRoute::Switch { .. } => panic!("no switch here"),
        })
        .collect();
    assert_eq!(edges, [("a", "m/g/s"), ("m/g/t", "z"), ("m/g/s", "m/g/t")]);
    let mounts: Vec<&str> = snapshot.includes.iter().map(|include| include.mount.as_str()).collect();
    assert_eq!(mounts, ["m", "m/g"]);
    assert_eq!(snapshot.includes[0].start_at, "m/g/s");
    let leaves = &definition.node("m/g/t").unwrap().leaves;
    let left: Vec<(&str, &str)> = leaves
        .iter()
        .map(|leave| (leave.mount.as_str(), leave.exit.as_str()))
        .collect();
    assert_eq!(left, [("m/g", "done"), ("m", "through")]);
    assert_eq!(definition.scope("m").unwrap().max_steps, 9);
    assert_eq!(definition.scope_of("m/g/t"), Some("m/g"));
    assert_eq!(definition.scope("m/g").unwrap().parent.as_deref(), Some("m"));
}

#[test]
fn what_is_not_built_yet_is_named() {
    let mut raw = workflow("w", "ask")
        .with("ask", NodeType::Agent)
        .with("decide", NodeType::Checkpoint)
        .edge("ask", "decide");
    raw.nodes[0].expected_output = Some(json!({ "type": "assistantMessage" }));
    raw.nodes[1].human_decision = Some(json!({ "choices": ["yes"] }));
    raw.has_settings = true;
    let definition = compile(&raw).unwrap();
    let expected = ["workflow \"w\" declares live settings, which this build cannot execute yet"];
    assert_eq!(definition.unsupported(), expected);
    let needs = [
        "node \"ask\" asks for a visible reply (assistantMessage), which needs a session; start the run from a Pi session, or \
         ask for JSON with a text as expectedOutput",
    ];
    assert_eq!(definition.needs_session(), needs);
    let stored = Definition::from_snapshot(definition.snapshot().clone()).unwrap();
    assert_eq!(stored.unsupported(), expected);
    assert!(compile(&two()).unwrap().unsupported().is_empty());
}

#[test]
fn stored_snapshots_are_checked_again() {
    let parent = workflow("w", "m")
        .mount("m", child())
        .computes(&["end"])
        .edge("m.done", "end");
    let good = compile(&parent).unwrap().snapshot().clone();
    let broken = |change: &dyn Fn(&mut piw_protocol::definition::DefinitionSnapshot)| {
        let mut snapshot = good.clone();
        change(&mut snapshot);
        Definition::from_snapshot(snapshot).unwrap_err().to_string()
    };
    assert!(broken(&|s| s.schema = "v2".into()).contains("schema is \"v2\""));
    assert!(broken(&|s| s.start_at = "m/t".into()).contains("enters \"m\" at \"m/t\", not at its start"));
    assert!(broken(&|s| s.start_at = "x".into()).contains("unknown node \"x\""));
    assert!(broken(&|s| drop(s.node_order.pop())).contains("nodeOrder"));
    assert!(broken(&|s| s.edges.push(s.edges[0].clone())).contains("two outgoing edges"));
    assert!(broken(&|s| s.includes.clear()).contains("belongs to no mount"));
    assert!(broken(&|s| s.includes[0].mount = "q".into()).contains("belongs to no mount"));
    assert!(broken(&|s| s.includes[0].max_steps = Some(0)).contains("maxSteps of m is 0"));
    let leave_inside = |s: &mut piw_protocol::definition::DefinitionSnapshot| {
        s.edges[1].route = EdgeRoute::To { to: "end".into() };
    };
    assert!(broken(&leave_inside).contains("leads out of its workflow"));
    let foreign_exit = |s: &mut piw_protocol::definition::DefinitionSnapshot| {
        s.includes[0].exits.get_mut("done").unwrap().node = "end".into();
    };
    assert!(broken(&foreign_exit).contains("does not end the workflow"));
}

proptest! {
    /// Compilation of a rule-keeping tree succeeds, is deterministic, and its snapshot is the whole definition.
    #[test]
    fn snapshots_are_the_whole_definition(seed in any::<u64>()) {
        let raw = random_workflow(&mut Choices::new(seed), 3, "w");
        let definition = compile(&raw).unwrap();
        let again = compile(&raw).unwrap();
        prop_assert_eq!(definition.digest(), again.digest());
        let bytes = piw_protocol::canonical::to_vec(definition.snapshot()).unwrap();
        let stored = Definition::from_snapshot(serde_json::from_slice(&bytes).unwrap()).unwrap();
        prop_assert_eq!(stored.digest(), definition.digest());
        prop_assert_eq!(stored.snapshot(), definition.snapshot());
        let order = |definition: &Definition| -> Vec<String> {
            definition.nodes().iter().map(|node| node.id.clone()).collect()
        };
        prop_assert_eq!(order(&stored), order(&definition));
    }

    /// Whatever is broken, compilation answers, and never with an internal fault.
    #[test]
    fn broken_trees_are_explained(seed in any::<u64>()) {
        let mut choices = Choices::new(seed);
        let mut raw = random_workflow(&mut choices, 2, "w");
        for _ in 0..=choices.below(3) {
            break_something(&mut raw, &mut choices);
        }
        if let Err(problems) = compile(&raw) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| problem.rule != Rule::Internal), "{:?}", problems);
        }
    }
}

fn break_something(raw: &mut RawDefinition, choices: &mut Choices) {
    if !raw.includes.is_empty() && choices.chance(2) {
        let at = choices.below(raw.includes.len());
        return break_something(&mut raw.includes[at].definition, choices);
    }
    let at = |choices: &mut Choices, len: usize| choices.below(len.max(1));
    match choices.below(10) {
        0 => raw.start_at = "t0".to_owned(),
        1 => drop(raw.edges.pop()),
        2 => drop(raw.nodes.pop()),
        3 => drop(raw.includes.pop()),
        4 => drop(raw.exits.pop()),
        5 => {
            let extra = raw.edges.get(at(choices, raw.edges.len())).cloned();
            raw.edges.extend(extra);
        }
        6 => {
            let extra = raw.nodes[at(choices, raw.nodes.len())].clone();
            raw.nodes.push(extra);
        }
        7 => raw.nodes[0].id = "a.b".to_owned(),
        8 => {
            for exit in &mut raw.exits {
                exit.node = "n0".to_owned();
            }
        }
        _ => {
            for include in &mut raw.includes {
                include.mount = "n0".to_owned();
            }
        }
    }
}
