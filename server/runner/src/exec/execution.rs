//! The loop of one generation: restore, start, execute, commit, until the run ends, waits, or the runner has to leave.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use piw_engine::machine::{Finished, Saved};
use piw_engine::route::Output;
use piw_engine::{Plan, Progress};
use piw_protocol::canonical;
use piw_protocol::child::{
    ChildBody, Command, ExecutionState, NodeFinish, NodeResultState, Position, Settlement, ValueRef,
};
use piw_protocol::definition::NodeType;
use piw_protocol::run::NodeOutcome;
use serde_json::Value;

use super::node::{Abort, Attempt, Context, NodeEnd, Running, error};
use super::planning::{Exits, InputCallbacks, Outputs, Proposal, exit_refused};
use super::receipt::millis;
use crate::child::client::{Order, RequestError};
use crate::child::content::{ContentError, Inline};
use crate::script::{NodeResult, ScriptHost};

/// How long an aborted node may take to come back. The server's own patience is longer.
const ABORT_PATIENCE: Duration = Duration::from_secs(3);

/// Why a generation ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The run ended or waits for an answer.
    Done,
    /// Ordered by the server.
    Ordered(Order),
    /// The run cannot go on without a person.
    Park {
        /// Failure class.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// The script thread does not come back; what there was to commit is committed.
    Stuck,
    /// Something is broken: this program, the server or the saved run.
    Broken(String),
}

/// One generation.
#[derive(Debug)]
pub(crate) struct Execution<'d, H> {
    pub(crate) context: Context<'d, H>,
    inputs: InputCallbacks,
    progress: Progress,
    /// The first attempt only settles that its visit timed out.
    overran: bool,
}

impl<'d, H: ScriptHost + Send + Sync + 'static> Execution<'d, H> {
    /// A generation of a run that has not been restored yet.
    pub(crate) fn new(context: Context<'d, H>, inputs: InputCallbacks) -> Self {
        let progress = Progress::new(context.definition);
        Self {
            context,
            inputs,
            progress,
            overran: false,
        }
    }

    /// Executes until the generation ends.
    pub(crate) async fn run(mut self, command: Command, input_hash: &str) -> Exit {
        let client = self.context.client.clone();
        let leaving = self.context.leaving.clone();
        let ordered = async {
            client.ordered(Order::Cancel).await;
            leaving.cancel();
            // Processes are ended meanwhile; what does not come back ends with this process.
            tokio::time::sleep(ABORT_PATIENCE).await;
        };
        let abort = tokio::select! {
            biased;
            result = self.generation(command.state, input_hash) => match result {
                Ok(exit) => return exit,
                Err(abort) => abort,
            },
            () = ordered => Abort::Ordered,
        };
        match abort {
            Abort::Ordered | Abort::Request(RequestError::ClaimLost | RequestError::Closed) => {
                Exit::Ordered(client.order())
            }
            Abort::Park { reason, message } => Exit::Park { reason, message },
            Abort::Requested => Exit::Done,
            broken @ (Abort::Request(_) | Abort::Content(_) | Abort::Engine(_)) => Exit::Broken(broken.to_string()),
        }
    }

    async fn generation(&mut self, state: ExecutionState, input_hash: &str) -> Result<Exit, Abort> {
        let settled = match &state.position {
            Position::Settled {
                node_id,
                visit,
                attempt_id,
                settlement,
            } => Some((self.open_attempt(node_id, *visit, attempt_id)?, settlement.clone())),
            Position::Start | Position::Node { .. } | Position::After { .. } => None,
        };
        let answer = self.restore(state, input_hash).await?;
        let (mut attempt, mut ahead) = match settled {
            Some((attempt, settlement)) => (attempt, Some(self.settled(settlement).await)),
            None => {
                let (plan, proposal) = self.first(answer).await?;
                match self.open(plan, proposal).await? {
                    Some(attempt) => (attempt, None),
                    None => return Ok(Exit::Done),
                }
            }
        };
        loop {
            let order = self.context.client.order();
            if order > Order::Continue {
                return Ok(Exit::Ordered(order));
            }
            let (end, active) = match ahead.take() {
                Some(executed) => executed?,
                None if std::mem::take(&mut self.overran) => overran(&attempt),
                None => self.execute(&attempt).await?,
            };
            let stuck = end.stuck;
            let next = self.commit(&attempt, end, active).await?;
            match next {
                Some(_) if stuck => return Ok(Exit::Stuck),
                Some(next) => Next { attempt, ahead } = next,
                None => return Ok(Exit::Done),
            }
        }
    }

    /// The attempt whose request was decided while no runner executed the run.
    fn open_attempt(&self, node_id: &str, visit: u32, id: &str) -> Result<Attempt<'d>, Abort> {
        let node = self.context.definition.node(node_id);
        let node = node.ok_or_else(|| Abort::Engine(format!("node \"{node_id}\" is unknown")))?;
        Ok(Attempt {
            id: id.to_owned(),
            node,
            visit,
            timeout: None,
            refused: None,
        })
    }

    /// The end of an attempt as its request was decided.
    async fn settled(&self, settlement: Settlement) -> Executed {
        let (end, active_ms) = match settlement {
            Settlement::Accepted { output, active_ms } => {
                (NodeEnd::ok(self.context.client.value(output).await?), active_ms)
            }
            Settlement::Failed { error, active_ms } => (NodeEnd::failed(error), active_ms),
            Settlement::TimedOut { error, active_ms } => {
                let outcome = NodeOutcome::TimedOut;
                let end = NodeEnd {
                    outcome,
                    ..NodeEnd::failed(error)
                };
                (end, active_ms)
            }
        };
        piw_fault::point!("runner::before_settlement");
        Ok((end, Duration::from_millis(active_ms)))
    }

    /// Brings the script heap and the machine to where the run stands. Answers the checkpoint's answer, when the run goes on
    /// from one.
    pub(crate) async fn restore(&mut self, state: ExecutionState, input_hash: &str) -> Result<Option<Answered>, Abort> {
        let Context {
            client,
            host,
            definition,
            ..
        } = &self.context;
        client.set_revision(state.revision);
        self.progress =
            Progress::restore(definition, &Saved::from(&state)).map_err(|error| Abort::Engine(error.to_string()))?;
        let input = client.value(state.input).await?;
        let found = canonical::digest(&input);
        if found != input_hash {
            return Err(Abort::Engine(format!(
                "the run's input has digest {found}, not {input_hash}"
            )));
        }
        host.open_scope("", &input);
        for scope in state.scopes {
            host.open_scope(&scope.mount, &client.value(scope.input).await?);
        }
        self.overran = matches!(state.position, Position::Node { overran: true, .. });
        let after = match &state.position {
            Position::After { node_id } => Some(node_id.clone()),
            Position::Start | Position::Node { .. } | Position::Settled { .. } => None,
        };
        let open: HashSet<String> = self.progress.open_mounts(definition).map(str::to_owned).collect();
        let mut answered = None;
        for result in state.results {
            let node_id = result.node_id.clone();
            let result = self.load(result).await?;
            if after.as_ref() == Some(&node_id) {
                answered = Some(Answered {
                    node_id: node_id.clone(),
                    output: result.output.clone(),
                });
            }
            self.record(&node_id, &open, &result);
        }
        match (after, answered) {
            (Some(node), None) => Err(Abort::Engine(format!("the answer of node \"{node}\" is missing"))),
            (_, answered) => Ok(answered),
        }
    }

    async fn load(&self, state: NodeResultState) -> Result<NodeResult, Abort> {
        Ok(NodeResult {
            outcome: state.outcome,
            output: self.context.client.value(state.output).await?,
            error: state.error,
            action: state.action,
            exit: state.exit,
        })
    }

    /// Records a restored result of a node or of a mount that was left, in the workflow it belongs to.
    fn record(&self, id: &str, open: &HashSet<String>, result: &NodeResult) {
        let definition = self.context.definition;
        let (scope, local) = if let Some(node) = definition.node(id) {
            (node.mount.as_str(), node.local_id.as_str())
        } else if let Some(mount) = definition.scope(id) {
            (mount.parent.as_deref().unwrap_or_default(), mount.local_name.as_str())
        } else {
            tracing::warn!(id, "a stored result belongs to nothing in the definition");
            return;
        };
        if scope.is_empty() || open.contains(scope) {
            self.context.host.record(scope, local, result);
        }
    }

    /// What this generation does first.
    async fn first(&mut self, answer: Option<Answered>) -> Result<(Plan<'d>, Proposal<'d>), Abort> {
        let definition = self.context.definition;
        let mut inline = Inline::of_message();
        let nothing = ValueRef::null();
        let Some(answered) = answer else {
            let plan = self.progress.plan_begin(definition).map_err(|error| engine(&error))?;
            let outputs = Outputs {
                node: &nothing,
                exit: None,
            };
            return self.context.propose(&self.inputs, plan, outputs, &mut inline).await;
        };
        let node = definition
            .node(&answered.node_id)
            .ok_or_else(|| Abort::Engine(format!("node \"{}\" is unknown", answered.node_id)))?;
        let left = match self.context.leave(node, &answered.output).await? {
            Exits::Left(left) => left,
            Exits::Refused { mount, error } => {
                let plan = self
                    .progress
                    .plan_exit_refused(definition, &mount, &error)
                    .map_err(|error| engine(&error))?;
                let outputs = Outputs {
                    node: &nothing,
                    exit: None,
                };
                return self.context.propose(&self.inputs, plan, outputs, &mut inline).await;
            }
        };
        let plan = self.plan_after(&answered.node_id, &NodeEnd::ok(answered.output.clone()), &left)?;
        let output = self.context.client.value_ref(&answered.output, &mut inline).await?;
        let leaves = self.context.leaves(node, &left, &mut inline).await?;
        let outputs = Outputs {
            node: &output,
            exit: leaves.last().map(|leave| &leave.output),
        };
        let (plan, mut proposal) = self.context.propose(&self.inputs, plan, outputs, &mut inline).await?;
        match &mut proposal {
            Proposal::Start(start, _) => start.leaves = leaves,
            Proposal::Finish(finish) => finish.leaves = leaves,
            Proposal::Wait => {}
        }
        Ok((plan, proposal))
    }

    /// Commits the first proposal. `None` when the run ended with it.
    async fn open(&mut self, plan: Plan<'d>, proposal: Proposal<'d>) -> Result<Option<Attempt<'d>>, Abort> {
        let (body, attempt) = match proposal {
            Proposal::Start(start, attempt) => (ChildBody::NodeStarted(start), Some(attempt)),
            Proposal::Finish(finish) => (ChildBody::RunFinished(finish), None),
            Proposal::Wait => return Err(Abort::Engine("a generation cannot begin by waiting".to_owned())),
        };
        let id = attempt.as_ref().map(|attempt| attempt.id.as_str());
        piw_fault::point!("runner::before_first_start");
        self.context.client.request(id, body).await?;
        piw_fault::point!("runner::after_first_start");
        self.progress.apply(self.context.definition, plan.transition());
        Ok(attempt)
    }

    /// Executes an attempt; answers its end and its active time. Processes that it leaves behind are ended.
    async fn execute(&self, attempt: &Attempt<'d>) -> Result<(NodeEnd, Duration), Abort> {
        let started = Instant::now();
        let running = Running {
            attempt,
            deadline: attempt.timeout.and_then(|timeout| started.checked_add(timeout)),
        };
        let end = self.context.execute(&running).await;
        let active = started.elapsed();
        // Pure code starts nothing.
        if attempt.node.spec.node_type != NodeType::Compute {
            self.context.commands.sweep().await;
        }
        Ok((end?, active))
    }

    /// Commits an end with what follows. `None` when nothing follows in this generation.
    ///
    /// A compute node that follows is executed while the commit is in flight: it is pure, so that an execution whose start
    /// was not accepted never happened for anybody. Its end is committed after its start, as always.
    async fn commit(
        &mut self,
        attempt: &Attempt<'d>,
        mut end: NodeEnd,
        active: Duration,
    ) -> Result<Option<Next<'d>>, Abort> {
        let mut inline = Inline::of_message();
        let stuck = end.stuck;
        let mut output = self.store_output(attempt, &mut end, &mut inline).await?;
        self.remember(attempt, &end);
        let mut left = Vec::new();
        // A checkpoint leaves its mounts when it is answered.
        if end.outcome == NodeOutcome::Ok && !attempt.node.waits() {
            match self.context.leave(attempt.node, &end.output).await? {
                Exits::Left(values) => left = values,
                Exits::Refused { mount, error } => {
                    let failed = NodeEnd::failed(exit_refused(&mount, error));
                    end = NodeEnd {
                        action: end.action,
                        settle: end.settle,
                        ..failed
                    };
                    output = ValueRef::null();
                    self.remember(attempt, &end);
                }
            }
        }
        let plan = self.plan_after(&attempt.node.id, &end, &left)?;
        let leaves = self.context.leaves(attempt.node, &left, &mut inline).await?;
        let outputs = Outputs {
            node: &output,
            exit: leaves.last().map(|leave| &leave.output),
        };
        let (plan, proposal) = self.context.propose(&self.inputs, plan, outputs, &mut inline).await?;
        let finish = Box::new(NodeFinish {
            attempt_id: attempt.id.clone(),
            node_id: attempt.node.id.clone(),
            outcome: end.outcome,
            output,
            error: end.error,
            action: end.action,
            status_detail: None,
            active_ms: millis(active),
            settle: end.settle,
            leaves,
            next: proposal.to_next(),
        });
        let ok = finish.outcome == NodeOutcome::Ok;
        let body = if ok {
            ChildBody::NodeFinished(finish)
        } else {
            ChildBody::NodeFailed(finish)
        };
        piw_fault::point!("runner::before_finished");
        let accepted = self.context.client.request(Some(&attempt.id), body);
        let next = match proposal {
            Proposal::Start(_, next) => Some(next),
            Proposal::Finish(_) | Proposal::Wait => None,
        };
        let ahead = match &next {
            Some(next) if !stuck && next.node.spec.node_type == NodeType::Compute => {
                let executed = async { Ok(self.execute(next).await) };
                let (_, executed) = tokio::try_join!(accepted, executed)?;
                Some(executed)
            }
            _ => {
                accepted.await?;
                None
            }
        };
        piw_fault::point!("runner::after_finished");
        self.progress.apply(self.context.definition, plan.transition());
        Ok(next.map(|attempt| Next { attempt, ahead }))
    }

    /// Stores an output where messages can name it; one that is too large or too deep fails its node.
    async fn store_output(
        &self,
        attempt: &Attempt<'d>,
        end: &mut NodeEnd,
        inline: &mut Inline,
    ) -> Result<ValueRef, Abort> {
        let refused = match piw_engine::value::check_depth(&end.output) {
            Ok(()) => match self.context.client.value_ref(&end.output, inline).await {
                Ok(stored) => return Ok(stored),
                Err(ContentError::TooLarge { bytes, limit }) => {
                    format!(
                        "output of node \"{}\" has {bytes} bytes of JSON; at most {limit} are allowed",
                        attempt.node.id
                    )
                }
                Err(other) => return Err(other.into()),
            },
            Err(deep) => format!("output of node \"{}\": {deep}", attempt.node.id),
        };
        let failed = NodeEnd::failed(error("badValue", refused));
        *end = NodeEnd {
            action: end.action.take(),
            settle: end.settle.take(),
            ..failed
        };
        Ok(ValueRef::null())
    }

    /// Lets later callbacks see an end.
    fn remember(&self, attempt: &Attempt<'d>, end: &NodeEnd) {
        let result = NodeResult {
            outcome: end.outcome,
            output: end.output.clone(),
            error: end.error.clone(),
            action: end.action.clone(),
            exit: None,
        };
        self.context
            .host
            .record(&attempt.node.mount, &attempt.node.local_id, &result);
    }

    fn plan_after(&self, node_id: &str, end: &NodeEnd, left: &[Value]) -> Result<Plan<'d>, Abort> {
        let finished = Finished {
            node_id,
            outcome: end.outcome,
            output: Output::Known(&end.output),
            error: end.error.as_ref(),
            action: end.action.as_ref(),
            left: left.last().map(Output::Known),
        };
        self.progress
            .plan_after(self.context.definition, &finished)
            .map_err(|error| engine(&error))
    }
}

/// The attempt that follows, and its end and active time when it was executed while its start was committed.
struct Next<'d> {
    attempt: Attempt<'d>,
    ahead: Option<Executed>,
}

/// The end of an attempt and its active time.
type Executed = Result<(NodeEnd, Duration), Abort>;

/// The answered checkpoint from which a continuation goes on.
pub(crate) struct Answered {
    node_id: String,
    output: Value,
}

/// The end of a visit whose earlier attempt was ended from outside, and the time that it had.
fn overran(attempt: &Attempt<'_>) -> (NodeEnd, Duration) {
    let active = attempt.timeout.unwrap_or_default();
    let message = format!(
        "node \"{}\" did not end within its {} ms, nor did its runner end it; the server ended both",
        attempt.node.id,
        millis(active)
    );
    (NodeEnd::timed_out(message), active)
}

fn engine(error: &piw_engine::TransitionError) -> Abort {
    Abort::Engine(error.to_string())
}
