//! Proposals: what the engine planned, completed by what only user code can say (mapped inputs, validated exits, budgets,
//! details).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use piw_engine::definition::timeout_millis;
use piw_engine::machine::{CODE_EXIT_VALIDATION, FinalOutput};
use piw_engine::raw::RawDefinition;
use piw_engine::{Node, NodeTimeout, Plan, Planned, Scope, limits};
use piw_protocol::child::{Next, NodeStart, RunFinish, ScopeEnter, ScopeLeave, ValueRef};
use piw_protocol::run::ErrorInfo;
use serde_json::Value;
use uuid::Uuid;

use super::node::{Abort, Attempt, Context, bounded, bounded_call, error};
use crate::child::content::Inline;
use crate::script::{CallArgs, CallError, CallErrorKind, CallbackField, CallbackRef, NodeResult, ScriptHost};
use piw_engine::value::kind;

/// Longest computed detail, in characters.
const DETAIL_CHARS: usize = 500;

/// Which workflow callbacks exist per mount path; the definition snapshot does not say.
#[derive(Debug, Default)]
pub(crate) struct InputCallbacks {
    /// Mounts whose include maps an input.
    maps: HashMap<String, bool>,
    /// Workflows that normalise their input.
    normalises: HashMap<String, bool>,
}

impl InputCallbacks {
    /// Collects them of a loaded definition.
    pub(crate) fn of(raw: &RawDefinition) -> Self {
        let mut found = Self::default();
        found.collect(raw, "");
        found
    }

    fn collect(&mut self, raw: &RawDefinition, mount: &str) {
        self.normalises.insert(mount.to_owned(), raw.has_input);
        for include in &raw.includes {
            let inner = if mount.is_empty() {
                include.mount.clone()
            } else {
                format!("{mount}/{}", include.mount)
            };
            self.maps.insert(inner.clone(), include.has_input);
            self.collect(&include.definition, &inner);
        }
    }
}

/// Values of the finished node that a run's end may repeat as its final output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outputs<'a> {
    /// The node's output.
    pub(crate) node: &'a ValueRef,
    /// Validated value of the outermost mount that was left.
    pub(crate) exit: Option<&'a ValueRef>,
}

/// A proposal for the server, and what it means for the runner.
#[derive(Debug)]
pub(crate) enum Proposal<'d> {
    /// An attempt starts.
    Start(NodeStart, Attempt<'d>),
    /// The run ends.
    Finish(RunFinish),
    /// The run waits for an answer.
    Wait,
}

impl Proposal<'_> {
    /// The proposal as `node.finished` carries it.
    pub(crate) fn to_next(&self) -> Next {
        match self {
            Self::Start(start, _) => Next::Start(start.clone()),
            Self::Finish(finish) => Next::Finish(finish.clone()),
            Self::Wait => Next::Wait,
        }
    }
}

/// A validated exit value, or why there is none.
pub(crate) enum Exits {
    /// Values of the left mounts, innermost first.
    Left(Vec<Value>),
    /// An exit refused.
    Refused {
        /// Mount whose exit it was.
        mount: String,
        /// Why.
        error: ErrorInfo,
    },
}

impl<'d, H: ScriptHost + Send + Sync + 'static> Context<'d, H> {
    /// Completes a plan. The plan may become another one: a mount that refuses its input ends the run.
    pub(crate) async fn propose(
        &self,
        inputs: &InputCallbacks,
        plan: Plan<'d>,
        outputs: Outputs<'_>,
        inline: &mut Inline,
    ) -> Result<(Plan<'d>, Proposal<'d>), Abort> {
        let (node, visit, enters) = match &plan.next {
            Planned::Wait => return Ok((plan, Proposal::Wait)),
            Planned::Finish { .. } => {
                let finish = self.finish(&plan, outputs);
                return Ok((plan, Proposal::Finish(finish)));
            }
            Planned::Start {
                node, visit, enters, ..
            } => (*node, *visit, enters.clone()),
        };
        let mut entered = Vec::with_capacity(enters.len());
        for scope in enters {
            match self.enter(inputs, scope).await? {
                Ok(input) => {
                    let input = self.client.value_ref(&input, inline).await?;
                    entered.push(ScopeEnter {
                        mount: scope.mount.clone(),
                        input,
                    });
                }
                Err(refused) => {
                    let plan = plan
                        .entry_refused(&scope.mount, &refused)
                        .ok_or_else(|| Abort::Engine(format!("mount \"{}\" is entered by no plan", scope.mount)))?;
                    let finish = self.finish(&plan, outputs);
                    return Ok((plan, Proposal::Finish(finish)));
                }
            }
        }
        let (timeout_ms, refused) = match self.budget(node).await? {
            Ok(budget) => (budget, None),
            Err(why) => (Some(limits::DEFAULT_TIMEOUT_MS), Some(why)),
        };
        let attempt = Attempt {
            id: Uuid::now_v7().to_string(),
            node,
            visit,
            timeout: timeout_ms.map(Duration::from_millis),
            refused,
        };
        let start = NodeStart {
            attempt_id: attempt.id.clone(),
            node_id: node.id.clone(),
            visit,
            status_detail: self.detail(node).await?,
            timeout_ms,
            enters: entered,
            leaves: Vec::new(),
        };
        Ok((plan, Proposal::Start(start, attempt)))
    }

    fn finish(&self, plan: &Plan<'d>, outputs: Outputs<'_>) -> RunFinish {
        let Planned::Finish {
            status,
            error,
            final_output,
            ..
        } = &plan.next
        else {
            unreachable!("only plans that end the run are finished");
        };
        let final_output = match final_output {
            FinalOutput::None => ValueRef::null(),
            FinalOutput::Node => outputs.node.clone(),
            FinalOutput::Exit => outputs.exit.cloned().unwrap_or_else(ValueRef::null),
        };
        RunFinish {
            status: *status,
            final_output,
            error: error.clone().map(bounded),
            leaves: Vec::new(),
        }
    }

    /// Maps and normalises the input of a mount and opens its scope. The inner error is the refusal of user code.
    async fn enter(&self, inputs: &InputCallbacks, scope: &Scope) -> Result<Result<Value, ErrorInfo>, Abort> {
        let mut input = Value::Null;
        if inputs.maps.get(&scope.mount) == Some(&true) {
            let callback = CallbackRef {
                scope: scope.parent.clone().unwrap_or_default(),
                node: Some(scope.local_name.clone()),
                field: CallbackField::IncludeInput,
            };
            input = match self.helper(callback, None).await? {
                Ok(input) => input,
                Err(failed) => return Ok(Err(call_error(failed))),
            };
        }
        if inputs.normalises.get(&scope.mount) == Some(&true) {
            let callback = CallbackRef {
                scope: scope.mount.clone(),
                node: None,
                field: CallbackField::Input,
            };
            input = match self.helper(callback, Some(input)).await? {
                Ok(input) => input,
                Err(failed) => return Ok(Err(call_error(failed))),
            };
        }
        self.host.open_scope(&scope.mount, &input);
        Ok(Ok(input))
    }

    /// Validates the exits that an `ok` end of `node` takes, innermost first, and records the left mounts.
    pub(crate) async fn leave(&self, node: &Node, output: &Value) -> Result<Exits, Abort> {
        let mut values: Vec<Value> = Vec::with_capacity(node.leaves.len());
        for leave in &node.leaves {
            let mut value = values.last().unwrap_or(output).clone();
            if leave.validates {
                let callback = CallbackRef {
                    scope: leave.mount.clone(),
                    node: Some(leave.exit.clone()),
                    field: CallbackField::ExitValidate,
                };
                value = match self.helper(callback, Some(value)).await? {
                    Ok(value) => value,
                    Err(failed) => {
                        return Ok(Exits::Refused {
                            mount: leave.mount.clone(),
                            error: call_error(failed),
                        });
                    }
                };
            }
            if let Some(scope) = self.definition.scope(&leave.mount) {
                let result = NodeResult {
                    exit: Some(leave.exit.clone()),
                    ..NodeResult::ok(value.clone())
                };
                self.host
                    .record(scope.parent.as_deref().unwrap_or_default(), &scope.local_name, &result);
            }
            values.push(value);
        }
        Ok(Exits::Left(values))
    }

    /// Left mounts as messages carry them.
    pub(crate) async fn leaves(
        &self,
        node: &Node,
        values: &[Value],
        inline: &mut Inline,
    ) -> Result<Vec<ScopeLeave>, Abort> {
        let mut leaves = Vec::with_capacity(values.len());
        for (leave, value) in node.leaves.iter().zip(values) {
            let output = self.client.value_ref(value, inline).await?;
            leaves.push(ScopeLeave {
                mount: leave.mount.clone(),
                exit: leave.exit.clone(),
                output,
            });
        }
        Ok(leaves)
    }

    /// A node's budget; the inner error is why it cannot be computed.
    async fn budget(&self, node: &Node) -> Result<Result<Option<u64>, ErrorInfo>, Abort> {
        Ok(match node.timeout() {
            NodeTimeout::Ms(ms) => Ok(Some(ms)),
            NodeTimeout::Unlimited => Ok(None),
            NodeTimeout::Callback => match self.helper(of_node(node, CallbackField::TimeoutMs), None).await? {
                Ok(Value::Null) => Ok(None),
                Ok(Value::Number(number)) => number.as_f64().and_then(timeout_millis).map(Some).ok_or_else(|| {
                    let why = format!(
                        "timeoutMs of node \"{}\" must be positive milliseconds, not {number}",
                        node.id
                    );
                    error("badValue", why)
                }),
                Ok(other) => {
                    let why = format!(
                        "timeoutMs of node \"{}\" must be a number or null, not {}",
                        node.id,
                        kind(&other)
                    );
                    Err(error("badValue", why))
                }
                Err(failed) => Err(call_error(failed)),
            },
        })
    }

    /// A node's computed detail. It only decorates, so a failure is told to the run's output and fails nothing.
    async fn detail(&self, node: &Node) -> Result<Option<String>, Abort> {
        if !node.has_callback(CallbackField::StatusDetail.name()) {
            return Ok(None);
        }
        let why = match self.helper(of_node(node, CallbackField::StatusDetail), None).await? {
            Ok(Value::Null) => return Ok(None),
            Ok(Value::String(text)) => return Ok(one_line(&text)),
            Ok(other) => format!("it must be a string, not {}", kind(&other)),
            Err(failed) => failed.message,
        };
        self.client
            .print("stderr", format!("statusDetail of node \"{}\": {why}", node.id));
        Ok(None)
    }

    /// Calls a callback that runs beside nodes, with a bound of its own. One that is cancelled because the runner has to leave
    /// has said nothing: its failure must not become the run's.
    async fn helper(&self, callback: CallbackRef, argument: Option<Value>) -> Result<Result<Value, CallError>, Abort> {
        let deadline = Instant::now() + Duration::from_millis(limits::CALLBACK_MS);
        let args = CallArgs {
            argument,
            deadline: Some(deadline),
            cancel: self.leaving.child_token(),
            ..CallArgs::default()
        };
        match bounded_call(&*self.host, callback, args).await {
            Err(failed) if failed.kind == CallErrorKind::Cancelled && self.leaving.is_cancelled() => {
                Err(Abort::Ordered)
            }
            result => Ok(result),
        }
    }
}

fn of_node(node: &Node, field: CallbackField) -> CallbackRef {
    CallbackRef {
        scope: node.mount.clone(),
        node: Some(node.local_id.clone()),
        field,
    }
}

/// A failed callback as an error of the run.
pub(crate) fn call_error(failed: CallError) -> ErrorInfo {
    let code = if failed.kind == CallErrorKind::TimedOut {
        "timedOut"
    } else {
        "nodeFailed"
    };
    bounded(ErrorInfo {
        code: Some(code.to_owned()),
        message: failed.message,
        stack: failed.stack,
    })
}

/// The error of a node whose exit refused its output.
pub(crate) fn exit_refused(mount: &str, exit: ErrorInfo) -> ErrorInfo {
    bounded(ErrorInfo {
        code: Some(CODE_EXIT_VALIDATION.to_owned()),
        message: format!("the exit of mount \"{mount}\" refused the output: {}", exit.message),
        stack: exit.stack,
    })
}

/// A text as one bounded line; `None` when nothing is left.
fn one_line(text: &str) -> Option<String> {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.retain(|c| !c.is_control());
    if let Some((cut, _)) = line.char_indices().nth(DETAIL_CHARS) {
        line.truncate(cut);
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}
