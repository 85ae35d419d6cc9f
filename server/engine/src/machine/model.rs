//! Random workflows and outcomes: the machine against an interpreter that walks the tree as written, and the server's check
//! against what the runner planned and against mutations of it.

use piw_protocol::child::{ContentRef, Next, NodeFinish, NodeStart, RunFinish, ScopeEnter, ScopeLeave, ValueRef};
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{Run, error};
use super::*;
use crate::definition::{Node, NodeTimeout};
use crate::limits;
use crate::raw::{RawDefinition, RawEdge};
use crate::route::Output;
use crate::testing::{Choices, random_workflow};

/// How a visit of a node ends: decided by its id and visit alone, so that both sides agree.
fn scripted(seed: u64, id: &str, visit: u32) -> (NodeOutcome, Value) {
    let hash = id
        .bytes()
        .fold(seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut choices = Choices::new(hash.wrapping_add(u64::from(visit).wrapping_mul(0x1234_5678_9ABC)));
    let outcome = match choices.below(40) {
        0 => NodeOutcome::Failed,
        1 => NodeOutcome::TimedOut,
        _ => NodeOutcome::Ok,
    };
    let values = [json!("a"), json!("b"), json!(true), json!(7)];
    let value = if choices.chance(60) {
        json!("odd")
    } else {
        values[choices.below(4)].clone()
    };
    let output = json!({ "r": value });
    (
        outcome,
        if outcome == NodeOutcome::Ok {
            output
        } else {
            Value::Null
        },
    )
}

/// What an exit's `validate` makes of a value.
fn validated(value: &Value, exit: &str) -> Value {
    json!({ "r": value["r"], "by": exit })
}

/// Walks the tree as written: no flattening, no index, recursion for mounts.
struct Interpreter {
    seed: u64,
    /// `start <id> #<visit>` and the end.
    log: Vec<String>,
    visits: std::collections::HashMap<String, u32>,
    /// Steps and bound of the root and of every open mount.
    bounds: Vec<(u64, u64)>,
}

/// The run is over.
struct Over;

impl Interpreter {
    fn run(seed: u64, raw: &RawDefinition) -> Vec<String> {
        let mut this = Self {
            seed,
            log: Vec::new(),
            visits: Default::default(),
            bounds: Vec::new(),
        };
        if let Ok((_, value)) = this.workflow(raw, "") {
            this.log.push(format!("Completed {value}"));
        }
        this.log
    }

    fn over<T>(&mut self, end: String) -> Result<T, Over> {
        self.log.push(end);
        Err(Over)
    }

    /// Executes a workflow to one of its exits (or, for the root, to its end).
    fn workflow(&mut self, raw: &RawDefinition, prefix: &str) -> Result<(String, Value), Over> {
        let bound = raw
            .max_steps
            .map_or(u64::from(limits::DEFAULT_MAX_STEPS), |steps| steps as u64);
        self.bounds.push((0, bound));
        let mut unit = raw.start_at.clone();
        loop {
            let (source, outcome, value) = self.unit(raw, prefix, &unit)?;
            let edge = raw.edges.iter().find(|edge| edge.from == source);
            match edge {
                Some(edge) => unit = self.follow(edge, outcome, &value)?,
                None if outcome != NodeOutcome::Ok => return self.over(format!("{outcome:?}")),
                None => {
                    let exit = raw.exits.iter().find(|exit| exit.node == source && !prefix.is_empty());
                    let Some(exit) = exit else {
                        return self.over(format!("Completed {value}"));
                    };
                    self.bounds.pop();
                    return Ok((exit.name.clone(), validated(&value, &exit.name)));
                }
            }
        }
    }

    /// Executes a node or mount and names what an edge leaves.
    fn unit(&mut self, raw: &RawDefinition, prefix: &str, unit: &str) -> Result<(String, NodeOutcome, Value), Over> {
        if let Some(include) = raw.includes.iter().find(|include| include.mount == unit) {
            let (exit, value) = self.workflow(&include.definition, &format!("{prefix}{unit}/"))?;
            return Ok((format!("{unit}.{exit}"), NodeOutcome::Ok, value));
        }
        if self.bounds.iter().any(|(steps, bound)| steps >= bound) {
            return self.over("maxSteps".to_owned());
        }
        let id = format!("{prefix}{unit}");
        let visit = *self
            .visits
            .entry(id.clone())
            .and_modify(|count| *count += 1)
            .or_insert(1);
        self.log.push(format!("start {id} #{visit}"));
        let (outcome, value) = scripted(self.seed, &id, visit);
        for (steps, _) in &mut self.bounds {
            *steps += 1;
        }
        Ok((unit.to_owned(), outcome, value))
    }

    fn follow(&mut self, edge: &RawEdge, outcome: NodeOutcome, value: &Value) -> Result<String, Over> {
        let ok = outcome == NodeOutcome::Ok;
        let Some(switch) = &edge.switch else {
            return if ok {
                Ok(edge.to.clone().unwrap())
            } else {
                self.over(format!("{outcome:?}"))
            };
        };
        let on_result = switch.on.starts_with("$result");
        if !ok && !on_result {
            return self.over(format!("{outcome:?}"));
        }
        let found = match switch.on.as_str() {
            "$result.outcome" => serde_json::to_value(outcome).unwrap(),
            _ => value["r"].clone(),
        };
        let label = match found {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let case = switch.cases.iter().find(|(case, _)| *case == label);
        match case {
            Some((_, to)) => Ok(to.clone()),
            None => self.over("routing".to_owned()),
        }
    }
}

/// The runner's messages, made from plans.
struct Runner<'r> {
    run: &'r Run,
}

impl Runner<'_> {
    fn start(&self, plan: &Plan<'_>) -> Option<NodeStart> {
        let Planned::Start {
            node, visit, enters, ..
        } = &plan.next
        else {
            return None;
        };
        Some(NodeStart {
            attempt_id: format!("{}#{visit}", node.id),
            node_id: node.id.clone(),
            visit: *visit,
            status_detail: None,
            timeout_ms: match node.timeout() {
                NodeTimeout::Ms(ms) => Some(ms),
                _ => None,
            },
            enters: enters
                .iter()
                .map(|scope| ScopeEnter {
                    mount: scope.mount.clone(),
                    input: ValueRef::null(),
                })
                .collect(),
            leaves: Vec::new(),
        })
    }

    fn end(&self, plan: &Plan<'_>, output: &Value, leaves: &[ScopeLeave]) -> RunFinish {
        let Planned::Finish {
            status,
            error,
            final_output,
            ..
        } = &plan.next
        else {
            panic!("no end")
        };
        let final_output = match final_output {
            FinalOutput::None => ValueRef::null(),
            FinalOutput::Node => ValueRef::Inline(output.clone()),
            FinalOutput::Exit => leaves.last().unwrap().output.clone(),
        };
        RunFinish {
            status: *status,
            final_output,
            error: error.clone(),
            leaves: Vec::new(),
        }
    }

    /// Leaves of an `ok` end, each with its validated value.
    fn leaves(&self, node: &Node, output: &Value) -> Vec<ScopeLeave> {
        let mut value = output.clone();
        let mut leaves = Vec::new();
        for leave in &node.leaves {
            value = validated(&value, &leave.exit);
            leaves.push(ScopeLeave {
                mount: leave.mount.clone(),
                exit: leave.exit.clone(),
                output: ValueRef::Inline(value.clone()),
            });
        }
        leaves
    }

    fn plan(
        &self,
        node: &Node,
        outcome: NodeOutcome,
        output: &Value,
        leaves: &[ScopeLeave],
        failure: &ErrorInfo,
    ) -> Plan<'_> {
        let left = leaves.last().map(|leave| match &leave.output {
            ValueRef::Inline(value) => Output::Known(value),
            ValueRef::Content(_) => panic!("inline only"),
        });
        let finished = Finished {
            node_id: &node.id,
            outcome,
            output: Output::Known(output),
            error: (outcome != NodeOutcome::Ok).then_some(failure),
            action: None,
            left,
        };
        self.run.progress.plan_after(&self.run.definition, &finished).unwrap()
    }
}

fn nothing(_: &ContentRef) -> Option<Value> {
    None
}

/// Proposals that differ from a right one in one way each.
fn mutations(finish: &NodeFinish, definition: &Definition) -> Vec<NodeFinish> {
    let mut all = Vec::new();
    let mut push = |change: &dyn Fn(&mut NodeFinish)| {
        let mut changed = finish.clone();
        change(&mut changed);
        if changed != *finish {
            all.push(changed);
        }
    };
    let leave = ScopeLeave {
        mount: "q".into(),
        exit: "x".into(),
        output: ValueRef::null(),
    };
    push(&|finish| finish.node_id = definition.nodes()[0].id.clone());
    push(&|finish| finish.node_id = "nowhere".into());
    push(&|finish| finish.leaves.push(leave.clone()));
    push(&|finish| drop(finish.leaves.pop()));
    push(&|finish| finish.next = Next::Wait);
    push(&|finish| {
        let end = RunFinish {
            status: RunStatus::Completed,
            final_output: ValueRef::Inline(json!("made up")),
            error: None,
            leaves: Vec::new(),
        };
        finish.next = Next::Finish(end);
    });
    if let Next::Start(_) = &finish.next {
        let mut with_start = |change: &dyn Fn(&mut NodeStart)| {
            push(&|finish| {
                if let Next::Start(start) = &mut finish.next {
                    change(start);
                }
            });
        };
        with_start(&|start| start.visit += 1);
        with_start(&|start| start.visit = 0);
        with_start(&|start| drop(start.enters.pop()));
        with_start(&|start| {
            start.enters.push(ScopeEnter {
                mount: "q".into(),
                input: ValueRef::null(),
            });
        });
        with_start(&|start| start.leaves.push(leave.clone()));
        with_start(&|start| start.timeout_ms = Some(1));
        for node in definition.nodes() {
            with_start(&|start| start.node_id.clone_from(&node.id));
        }
    }
    if let Next::Finish(_) = &finish.next {
        let mut with_end = |change: &dyn Fn(&mut RunFinish)| {
            push(&|finish| {
                if let Next::Finish(end) = &mut finish.next {
                    change(end);
                }
            });
        };
        for status in [
            RunStatus::Completed,
            RunStatus::Failed,
            RunStatus::TimedOut,
            RunStatus::Cancelled,
            RunStatus::Running,
        ] {
            with_end(&|end| end.status = status);
        }
        with_end(&|end| end.final_output = ValueRef::Inline(json!({ "other": 1 })));
        with_end(&|end| end.error = Some(error("made up")));
        with_end(&|end| end.error = None);
        with_end(&|end| end.leaves.push(leave.clone()));
        let first = definition.start();
        push(&|finish| {
            finish.next = Next::Start(NodeStart {
                attempt_id: "x".into(),
                node_id: first.id.clone(),
                visit: 1,
                status_detail: None,
                timeout_ms: Some(limits::DEFAULT_TIMEOUT_MS),
                enters: Vec::new(),
                leaves: Vec::new(),
            });
        });
    }
    all
}

/// Runs a random workflow through runner and server and returns the log that the interpreter writes too.
fn drive(seed: u64, raw: &RawDefinition, choices: &mut Choices) -> Result<Vec<String>, TestCaseError> {
    let mut run = Run::new(raw);
    let mut server = run.progress.clone();
    let mut log = Vec::new();
    let first = run.progress.plan_begin(&run.definition).unwrap();
    let start = Runner { run: &run }.start(&first).unwrap();
    log.push(format!("start {} #{}", start.node_id, start.visit));
    let planned = first.transition().clone();
    let checked = server.check_started(&run.definition, &start, None, &nothing).unwrap();
    prop_assert_eq!(&planned, &checked);
    server.apply(&run.definition, &checked);
    run.progress.apply(&run.definition, &planned);
    let bound = u64::from(run.definition.scope("").unwrap().max_steps);

    while !run.progress.has_ended() {
        prop_assert!(run.progress.steps() < bound, "a step more than the bound allows");
        restart_somewhere(&mut run, &mut server, choices)?;
        let (id, visit) = run
            .progress
            .running(&run.definition)
            .expect("between steps a node runs");
        let node = run.definition.node(id).unwrap();
        let (outcome, output) = scripted(seed, id, visit);
        let runner = Runner { run: &run };
        let failure = error("scripted");
        let ok = outcome == NodeOutcome::Ok;
        let waits = ok && node.waits();
        let leaves = if ok && !waits {
            runner.leaves(node, &output)
        } else {
            Vec::new()
        };
        let plan = runner.plan(node, outcome, &output, &leaves, &failure);
        let finish = NodeFinish {
            attempt_id: "at".into(),
            node_id: node.id.clone(),
            outcome,
            output: ValueRef::Inline(output.clone()),
            error: (!ok).then(|| failure.clone()),
            action: None,
            status_detail: None,
            active_ms: 0,
            settle: None,
            leaves: leaves.clone(),
            next: match &plan.next {
                Planned::Start { .. } => Next::Start(runner.start(&plan).unwrap()),
                Planned::Finish { .. } => Next::Finish(runner.end(&plan, &output, &leaves)),
                Planned::Wait => Next::Wait,
            },
        };
        let checked = server.check_finished(&run.definition, &finish, &nothing);
        prop_assert_eq!(checked.as_ref(), Ok(plan.transition()));
        for changed in mutations(&finish, &run.definition) {
            let refused = server.check_finished(&run.definition, &changed, &nothing);
            prop_assert!(refused.is_err(), "accepted {:?}\ninstead of {:?}", changed, finish);
        }
        record(&mut log, &plan, &output, &leaves);
        let transition = plan.transition().clone();
        server.apply(&run.definition, &transition);
        run.progress.apply(&run.definition, &transition);
        prop_assert_eq!(&server, &run.progress);
        if waits {
            answer(&mut run, &mut server, &output, &mut log)?;
        }
    }
    Ok(log)
}

/// The continuation of a waiting run, answered with the scripted output.
fn answer(run: &mut Run, server: &mut Progress, output: &Value, log: &mut Vec<String>) -> Result<(), TestCaseError> {
    let id = run.progress.waiting_on(&run.definition).unwrap().to_owned();
    run.progress.answer();
    server.answer();
    let node = run.definition.node(&id).unwrap();
    let runner = Runner { run };
    let leaves = runner.leaves(node, output);
    let plan = runner.plan(node, NodeOutcome::Ok, output, &leaves, &error("unused"));
    let answered = ValueRef::Inline(output.clone());
    let checked = match &plan.next {
        Planned::Start { .. } => {
            let mut start = runner.start(&plan).unwrap();
            start.leaves.clone_from(&leaves);
            server.check_started(&run.definition, &start, Some(&answered), &nothing)
        }
        Planned::Finish { .. } => {
            let mut end = runner.end(&plan, output, &leaves);
            end.leaves.clone_from(&leaves);
            server.check_run_finished(&run.definition, &end, Some(&answered), &nothing)
        }
        Planned::Wait => panic!("an answered checkpoint does not wait again"),
    };
    prop_assert_eq!(checked.as_ref(), Ok(plan.transition()));
    record(log, &plan, output, &leaves);
    let transition = plan.transition().clone();
    server.apply(&run.definition, &transition);
    run.progress.apply(&run.definition, &transition);
    prop_assert_eq!(&*server, &run.progress);
    Ok(())
}

fn record(log: &mut Vec<String>, plan: &Plan<'_>, output: &Value, leaves: &[ScopeLeave]) {
    match &plan.next {
        Planned::Start { node, visit, .. } => log.push(format!("start {} #{visit}", node.id)),
        Planned::Finish {
            cause: EndCause::Routing,
            ..
        } => log.push("routing".to_owned()),
        Planned::Finish {
            cause: EndCause::MaxSteps,
            ..
        } => log.push("maxSteps".to_owned()),
        Planned::Finish {
            status: RunStatus::Completed,
            final_output,
            ..
        } => {
            let value = match (final_output, leaves.last()) {
                (
                    FinalOutput::Exit,
                    Some(ScopeLeave {
                        output: ValueRef::Inline(value),
                        ..
                    }),
                ) => value,
                _ => output,
            };
            log.push(format!("Completed {value}"));
        }
        Planned::Finish { status, .. } => log.push(format!("{status:?}")),
        Planned::Wait => {}
    }
}

/// Now and then the runner dies, or both sides are restored from their durable form.
fn restart_somewhere(run: &mut Run, server: &mut Progress, choices: &mut Choices) -> Result<(), TestCaseError> {
    if choices.chance(5) {
        run.progress.interrupt();
        server.interrupt();
        let saved = server.save(&run.definition);
        run.progress = Progress::restore(&run.definition, &saved).unwrap();
        prop_assert_eq!(&run.progress, &*server);
        let plan = run.progress.plan_begin(&run.definition).unwrap();
        let start = Runner { run }.start(&plan).unwrap();
        let checked = server.check_started(&run.definition, &start, None, &nothing).unwrap();
        let planned = plan.transition().clone();
        prop_assert_eq!(&planned, &checked);
        run.progress.apply(&run.definition, &planned);
        server.apply(&run.definition, &checked);
    }
    if choices.chance(5) {
        let saved = server.save(&run.definition);
        let stored = serde_json::to_string(&saved).unwrap();
        *server = Progress::restore(&run.definition, &serde_json::from_str(&stored).unwrap()).unwrap();
        prop_assert_eq!(&*server, &run.progress);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// No reachable state is stuck, every run ends within its bound, the server accepts exactly what the runner plans, and
    /// the flattened graph goes where the tree as written goes.
    #[test]
    fn machine_check_and_tree_agree(seed in any::<u64>()) {
        let mut choices = Choices::new(seed);
        let raw = random_workflow(&mut choices, 3, "w");
        let log = drive(seed, &raw, &mut choices)?;
        prop_assert_eq!(log, Interpreter::run(seed, &raw));
    }
}
