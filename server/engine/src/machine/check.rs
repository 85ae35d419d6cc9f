//! The server's side: a proposal must be what the same plan gives.

use std::fmt::Debug;

use piw_protocol::child::{ContentRef, Next, NodeFinish, NodeStart, RunFinish, ScopeLeave, ValueRef};
use piw_protocol::run::{NodeOutcome, RunStatus};
use serde_json::Value;

use super::{At, TransitionError};
use super::{CODE_EXIT_VALIDATION, CODE_INCLUDE_INPUT, FinalOutput, Finished, Plan, Planned, Progress, Transition};
use crate::definition::{Definition, Node, NodeTimeout};
use crate::route::Output;

/// Loads stored content as a value; `None` when it is not there. Only asked when the value decides a route.
pub type Load<'a> = &'a dyn Fn(&ContentRef) -> Option<Value>;

type Checked<T> = Result<T, TransitionError>;

impl Progress {
    /// Checks `node.started`: the first start of a generation. `answer` is the answer of the checkpoint at which a
    /// continuation goes on.
    ///
    /// # Errors
    /// Says what would have followed.
    pub fn check_started(
        &self,
        definition: &Definition,
        start: &NodeStart,
        answer: Option<&ValueRef>,
        load: Load<'_>,
    ) -> Checked<Transition> {
        let plan = self.plan_first(definition, &start.leaves, answer, load)?;
        check_leaves(&plan, &start.leaves)?;
        check_start(&plan, start)?;
        Ok(plan.transition)
    }

    /// Checks `run.finished`: a generation that ends its run without a start.
    ///
    /// # Errors
    /// Says what would have followed.
    pub fn check_run_finished(
        &self,
        definition: &Definition,
        finish: &RunFinish,
        answer: Option<&ValueRef>,
        load: Load<'_>,
    ) -> Checked<Transition> {
        let code = finish.error.as_ref().and_then(|error| error.code.as_deref());
        if code == Some(CODE_EXIT_VALIDATION)
            && let At::Answered(node) = self.at
            && !definition.at(node).leaves.is_empty()
        {
            check_failed(finish)?;
            expect_eq("mounts left", &Vec::<&str>::new(), &mounts(&finish.leaves))?;
            return Ok(Transition {
                finished: None,
                leaves: 0,
                then: super::Then::End,
            });
        }
        let plan = self.plan_first(definition, &finish.leaves, answer, load)?;
        check_leaves(&plan, &finish.leaves)?;
        let output = answer.cloned().unwrap_or_else(ValueRef::null);
        check_finish(&plan, finish, &output, &finish.leaves)
    }

    /// Checks `node.finished` and `node.failed`.
    ///
    /// # Errors
    /// Says what would have followed, or how the message contradicts itself.
    pub fn check_finished(&self, definition: &Definition, finish: &NodeFinish, load: Load<'_>) -> Checked<Transition> {
        check_shape(finish)?;
        let Some(node) = definition.node(&finish.node_id) else {
            return Err(TransitionError::UnknownNode(finish.node_id.clone()));
        };
        if !matches!(self.at, At::Running(_)) {
            return Err(self.out_of_order(definition, format!("the end of node \"{}\"", finish.node_id)));
        }
        let values = Values::of(node, finish.outcome, &finish.output, &finish.leaves, load);
        let finished = Finished {
            node_id: &finish.node_id,
            outcome: finish.outcome,
            output: values.output(),
            error: finish.error.as_ref(),
            action: finish.action.as_ref(),
            left: values.left(),
        };
        let plan = self.plan_after(definition, &finished)?;
        check_leaves(&plan, &finish.leaves)?;
        match (&plan.next, &finish.next) {
            (Planned::Wait, Next::Wait) => Ok(plan.transition),
            (Planned::Start { .. }, Next::Start(start)) => {
                if !start.leaves.is_empty() {
                    return malformed(
                        &finish.node_id,
                        "mounts left stand beside the outcome, not in the next start",
                    );
                }
                check_start(&plan, start)?;
                Ok(plan.transition)
            }
            (_, Next::Finish(run)) => {
                if !run.leaves.is_empty() {
                    return malformed(
                        &finish.node_id,
                        "mounts left stand beside the outcome, not in the run's end",
                    );
                }
                check_finish(&plan, run, &finish.output, &finish.leaves)
            }
            (planned, proposed) => mismatch("what follows", describe(planned), describe_next(proposed)),
        }
    }

    /// What the first message of a generation must say.
    fn plan_first<'d>(
        &self,
        definition: &'d Definition,
        leaves: &[ScopeLeave],
        answer: Option<&ValueRef>,
        load: Load<'_>,
    ) -> Checked<Plan<'d>> {
        let (At::Answered(ix), Some(answer)) = (self.at, answer) else {
            return self.plan_begin(definition);
        };
        let node = definition.at(ix);
        let values = Values::of(node, NodeOutcome::Ok, answer, leaves, load);
        let finished = Finished {
            node_id: &node.id,
            outcome: NodeOutcome::Ok,
            output: values.output(),
            error: None,
            action: None,
            left: values.left(),
        };
        self.plan_after(definition, &finished)
    }
}

/// The values of a finished node, loaded as far as they decide.
struct Values<'a> {
    output: Held<'a>,
    left: Option<Held<'a>>,
}

enum Held<'a> {
    Borrowed(&'a Value),
    Loaded(Value),
    NotLoaded,
}

impl Held<'_> {
    fn as_output(&self) -> Output<'_> {
        match self {
            Self::Borrowed(value) => Output::Known(value),
            Self::Loaded(value) => Output::Known(value),
            Self::NotLoaded => Output::NotLoaded,
        }
    }
}

impl<'a> Values<'a> {
    fn of(node: &Node, outcome: NodeOutcome, output: &'a ValueRef, leaves: &'a [ScopeLeave], load: Load<'_>) -> Self {
        let decides = node.routes_on_output(outcome) && (!node.waits() || outcome == NodeOutcome::Ok);
        let hold = |value: &'a ValueRef, needed: bool| match value {
            ValueRef::Inline(value) => Held::Borrowed(value),
            ValueRef::Content(content) if needed => load(content).map_or(Held::NotLoaded, Held::Loaded),
            ValueRef::Content(_) => Held::NotLoaded,
        };
        Self {
            output: hold(output, decides && leaves.is_empty()),
            left: leaves.last().map(|leave| hold(&leave.output, decides)),
        }
    }

    fn output(&self) -> Output<'_> {
        self.output.as_output()
    }

    fn left(&self) -> Option<Output<'_>> {
        self.left.as_ref().map(Held::as_output)
    }
}

fn check_shape(finish: &NodeFinish) -> Checked<()> {
    match finish.outcome {
        NodeOutcome::Ok if finish.error.is_some() => malformed(&finish.node_id, "an `ok` end has no error"),
        NodeOutcome::Ok => Ok(()),
        _ if finish.error.is_none() => malformed(&finish.node_id, "an end other than `ok` needs an error"),
        _ if finish.output != ValueRef::null() => malformed(&finish.node_id, "only an `ok` end has an output"),
        _ if !finish.leaves.is_empty() => malformed(&finish.node_id, "only an `ok` end leaves mounts"),
        _ => Ok(()),
    }
}

fn check_leaves(plan: &Plan<'_>, found: &[ScopeLeave]) -> Checked<()> {
    let planned: Vec<(&str, &str)> = plan.leaves.iter().map(|leave| (&*leave.mount, &*leave.exit)).collect();
    let proposed: Vec<(&str, &str)> = found.iter().map(|leave| (&*leave.mount, &*leave.exit)).collect();
    expect_eq("mounts left", &planned, &proposed)
}

fn check_start(plan: &Plan<'_>, start: &NodeStart) -> Checked<()> {
    let Planned::Start {
        node, visit, enters, ..
    } = &plan.next
    else {
        return mismatch(
            "what follows",
            describe(&plan.next),
            format!("a start of \"{}\"", start.node_id),
        );
    };
    expect_eq("the next node", &node.id.as_str(), &start.node_id.as_str())?;
    expect_eq("the visit", visit, &start.visit)?;
    let planned: Vec<&str> = enters.iter().map(|scope| scope.mount.as_str()).collect();
    let proposed: Vec<&str> = start.enters.iter().map(|enter| enter.mount.as_str()).collect();
    expect_eq("mounts entered", &planned, &proposed)?;
    match node.timeout() {
        NodeTimeout::Callback => Ok(()),
        NodeTimeout::Ms(ms) => expect_eq("the timeout", &Some(ms), &start.timeout_ms),
        NodeTimeout::Unlimited => expect_eq("the timeout", &None, &start.timeout_ms),
    }
}

/// Checks the end of a run against the plan: the planned end, or the refused input of a planned entry.
fn check_finish(plan: &Plan<'_>, run: &RunFinish, output: &ValueRef, leaves: &[ScopeLeave]) -> Checked<Transition> {
    match &plan.next {
        Planned::Finish {
            status,
            error,
            final_output,
            ..
        } => {
            expect_eq("the run's status", status, &run.status)?;
            expect_eq("the run's error", error, &run.error)?;
            let null = ValueRef::null();
            let expected = match (final_output, leaves.last()) {
                (FinalOutput::Node, _) => output,
                (FinalOutput::Exit, Some(leave)) => &leave.output,
                _ => &null,
            };
            if *expected != run.final_output {
                return mismatch(
                    "the final output",
                    "the accepted output".to_owned(),
                    "another value".to_owned(),
                );
            }
            Ok(plan.transition.clone())
        }
        Planned::Start { enters, .. } if !enters.is_empty() => {
            check_failed(run)?;
            let code = run.error.as_ref().and_then(|error| error.code.as_deref());
            expect_eq(
                "the error code of a refused mount input",
                &Some(CODE_INCLUDE_INPUT),
                &code,
            )?;
            Ok(plan.transition.ending())
        }
        planned => mismatch("what follows", describe(planned), format!("an end as {:?}", run.status)),
    }
}

fn check_failed(run: &RunFinish) -> Checked<()> {
    expect_eq("the run's status", &RunStatus::Failed, &run.status)?;
    expect_eq("the final output of a failed run", &ValueRef::null(), &run.final_output)
}

fn mounts(leaves: &[ScopeLeave]) -> Vec<&str> {
    leaves.iter().map(|leave| leave.mount.as_str()).collect()
}

fn malformed<T>(node: &str, rule: &'static str) -> Checked<T> {
    Err(TransitionError::Malformed {
        node: node.to_owned(),
        rule,
    })
}

fn mismatch<T>(what: &'static str, expected: String, found: String) -> Checked<T> {
    Err(TransitionError::Mismatch { what, expected, found })
}

fn expect_eq<T: PartialEq + Debug>(what: &'static str, expected: &T, found: &T) -> Checked<()> {
    if expected == found {
        return Ok(());
    }
    let show = |value: &T| crate::names::shown(&format!("{value:?}"));
    mismatch(what, show(expected), show(found))
}

fn describe(planned: &Planned<'_>) -> String {
    match planned {
        Planned::Start { node, visit, .. } => format!("a start of \"{}\" (visit {visit})", node.id),
        Planned::Finish { status, .. } => format!("an end as {status:?}"),
        Planned::Wait => "a wait for the checkpoint's answer".to_owned(),
    }
}

fn describe_next(next: &Next) -> String {
    match next {
        Next::Start(start) => format!("a start of \"{}\" (visit {})", start.node_id, start.visit),
        Next::Finish(run) => format!("an end as {:?}", run.status),
        Next::Wait => "a wait".to_owned(),
    }
}
