//! A database in a temporary directory, small workflows, and a runner that proposes what a test tells it to.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use piw_engine::raw::{RawDefinition, RawEdge, RawExit, RawInclude, RawNode, RawSwitch};
use piw_protocol::child::{
    CHILD_SCHEMA, ChildBody, ChildMessage, Command, EffectReservation, Next, NodeFinish, NodeStart, ReplyOutcome,
    ReplyPayload, RunFinish, ServerReply, ValueRef,
};
use piw_protocol::definition::{ActionExecution, EffectKind, EffectSnapshot, NodeType};
use piw_protocol::ops::Operation;
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus, SourceMap, SourceRef};
use piw_state::{
    Claim, Clock, CommandIdentity, ManualClock, NewRun, ResolvedRun, RunKey, RunReceipted, RunnerExit, RunnerOutcome,
    ServerIdentity, State, StateOptions,
};
use serde_json::{Value, json};

/// A state directory with its clock; reopening keeps both.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub clock: Arc<ManualClock>,
    pub servers: u32,
}

impl Place {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("temp dir"),
            clock: Arc::new(ManualClock::new()),
            servers: 0,
        }
    }

    pub fn open(&self) -> State {
        State::open(StateOptions {
            dir: self.dir.path().to_path_buf(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            readers: 1,
            busy_timeout: Some(Duration::from_secs(5)),
        })
        .expect("the database opens")
    }

    /// Opens the database as a new server that took its epoch; the previous server is provably gone.
    pub async fn serve(&mut self) -> State {
        let state = self.open();
        let previous = state
            .recorded_server()
            .await
            .expect("read")
            .map(|server| server.identity.server_id);
        self.servers += 1;
        state
            .take_server_epoch(identity_of(self.servers), previous)
            .await
            .expect("the epoch is free");
        state
    }
}

pub fn identity_of(number: u32) -> ServerIdentity {
    ServerIdentity {
        server_id: format!("server-{number}"),
        pid: 100 + number,
        start_identity: format!("start-{number}"),
        package_version: "0.1.0".to_owned(),
    }
}

pub fn command(operation: Operation, key: &str) -> CommandIdentity {
    CommandIdentity {
        client_id: "client".to_owned(),
        request_id: format!("request-{key}"),
        idempotency_key: key.to_owned(),
        operation,
        fingerprint: [7; 32],
    }
}

fn node(id: &str, node_type: NodeType) -> RawNode {
    let action = node_type == NodeType::Action;
    RawNode {
        action_execution: action.then_some(ActionExecution::Function),
        callbacks: vec!["run".to_owned()],
        ..RawNode::new(id, node_type)
    }
}

/// Builds workflows.
pub struct Flow(RawDefinition);

impl Flow {
    pub fn new(start: &str) -> Self {
        Self::named("flow", start)
    }

    pub fn named(name: &str, start: &str) -> Self {
        Self(RawDefinition {
            name: name.to_owned(),
            source: SourceRef::File {
                path: format!("/w/{name}.workflow.ts"),
                hash: "0".repeat(64),
            },
            contract_id: None,
            start_at: start.to_owned(),
            max_steps: Some(1_000_000.0),
            has_input: false,
            title: None,
            has_title: false,
            nodes: Vec::new(),
            edges: Vec::new(),
            includes: Vec::new(),
            exits: Vec::new(),
            has_settings: false,
        })
    }

    pub fn compute(mut self, id: &str) -> Self {
        self.0.nodes.push(node(id, NodeType::Compute));
        self
    }

    /// An agent step, with or without a `validate` callback.
    pub fn agent(mut self, id: &str, validates: bool) -> Self {
        let mut agent = node(id, NodeType::Agent);
        agent.callbacks = vec!["prompt".to_owned()];
        if validates {
            agent.callbacks.push("validate".to_owned());
        }
        agent.expected_output = Some(json!("{\"n\": number}"));
        self.0.nodes.push(agent);
        self
    }

    /// An agent step that is completed by a visible reply of at most so many characters.
    pub fn reply(mut self, id: &str, most: u32) -> Self {
        let mut agent = node(id, NodeType::Agent);
        agent.callbacks = vec!["prompt".to_owned()];
        agent.expected_output = Some(json!({ "type": "assistantMessage", "maxChars": most }));
        self.0.nodes.push(agent);
        self
    }

    /// A protected decision between `yes` and `no` (with a text), which is `no` after so many milliseconds.
    pub fn human(mut self, id: &str, after_ms: Option<u32>) -> Self {
        let mut checkpoint = node(id, NodeType::Checkpoint);
        checkpoint.callbacks = vec!["request".to_owned()];
        let mut declared = json!({
            "audience": "ops",
            "choices": [{ "name": "yes" }, { "name": "no", "input": { "type": "text" } }],
        });
        if let Some(after) = after_ms {
            declared["onTimeout"] = json!({ "afterMs": after, "response": { "choice": "no" } });
        }
        checkpoint.human_decision = Some(declared);
        self.0.nodes.push(checkpoint);
        self
    }

    /// The declared decision of a node.
    pub fn declared(&self, id: &str) -> Value {
        let node = self.0.nodes.iter().find(|node| node.id == id).expect("a node");
        node.human_decision.clone().expect("a decision")
    }

    pub fn checkpoint(mut self, id: &str) -> Self {
        let mut checkpoint = node(id, NodeType::Checkpoint);
        checkpoint.summary = Some("may it go on?".to_owned());
        self.0.nodes.push(checkpoint);
        self
    }

    pub fn action(mut self, id: &str, kind: EffectKind) -> Self {
        let mut action = node(id, NodeType::Action);
        action.effect = Some(EffectSnapshot {
            kind,
            effect_type: "deploy".to_owned(),
        });
        if kind == EffectKind::Observed {
            action.callbacks.push("observe".to_owned());
        }
        self.0.nodes.push(action);
        self
    }

    pub fn edge(mut self, from: &str, to: &str) -> Self {
        self.0.edges.push(RawEdge {
            from: from.to_owned(),
            to: Some(to.to_owned()),
            switch: None,
        });
        self
    }

    pub fn switch(mut self, from: &str, on: &str, cases: &[(&str, &str)]) -> Self {
        let cases = cases
            .iter()
            .map(|(label, to)| ((*label).to_owned(), (*to).to_owned()))
            .collect();
        let switch = Some(RawSwitch {
            on: on.to_owned(),
            cases,
        });
        self.0.edges.push(RawEdge {
            from: from.to_owned(),
            to: None,
            switch,
        });
        self
    }

    pub fn exit(mut self, name: &str, node: &str) -> Self {
        self.0.exits.push(RawExit {
            name: name.to_owned(),
            node: node.to_owned(),
            has_validate: true,
        });
        self
    }

    pub fn include(mut self, mount: &str, child: Self) -> Self {
        self.0.includes.push(RawInclude {
            mount: mount.to_owned(),
            definition: Box::new(child.0),
            has_input: true,
        });
        self
    }

    pub fn resolved(&self, input: Value) -> ResolvedRun {
        let definition = piw_engine::compile(&self.0).expect("the workflow is valid");
        ResolvedRun {
            definition: definition.snapshot().clone(),
            definition_digest: definition.digest().to_owned(),
            sources: SourceMap {
                root: self.0.source.clone(),
                mounted: Vec::new(),
                modules: Vec::new(),
            },
            title: Some("a run".to_owned()),
            input: ValueRef::Inline(input),
        }
    }

    pub fn new_run(&self, input: Value) -> NewRun {
        NewRun {
            project_path: "/w".to_owned(),
            session_id: None,
            resolved: self.resolved(input),
        }
    }
}

/// Starts a run that is bound to a session and returns its id.
pub async fn start_in(state: &State, flow: &Flow, session: &str, key: &str) -> String {
    let new = NewRun {
        session_id: Some(session.to_owned()),
        ..flow.new_run(json!({"n": 1}))
    };
    let receipted = state.start_run(command(Operation::RunStart, key), new).await;
    run_id(&receipted.expect("start"))
}

/// Starts a run and returns its id.
pub async fn start(state: &State, flow: &Flow, key: &str) -> String {
    let receipted = state
        .start_run(command(Operation::RunStart, key), flow.new_run(json!({"n": 1})))
        .await;
    run_id(&receipted.expect("start"))
}

pub fn run_id(receipted: &RunReceipted) -> String {
    receipted
        .receipt
        .as_ref()
        .unwrap_or_else(|| panic!("refused: {receipted:?}"))
        .run_id
        .clone()
}

/// A runner under a test's control.
pub struct Runner {
    pub state: State,
    pub claim: Claim,
    pub revision: u64,
    pub command: Option<Command>,
    messages: u32,
    attempts: u32,
    pub attempt: Option<String>,
    /// When counted, messages that the disk refuses are sent again, as the supervisor does.
    pub refused: Option<u32>,
}

impl Runner {
    /// Claims the next run and says ready.
    pub async fn launch(state: &State) -> Self {
        let mut runner = Self::claim(state).await.expect("a run is ready");
        runner.ready().await;
        runner
    }

    pub async fn claim(state: &State) -> Option<Self> {
        let claimed = state.claim_next(None).await.expect("claim")?;
        assert_eq!(claimed.launch.generation, claimed.claim.generation);
        let pid = 1000 + u32::try_from(claimed.claim.generation).expect("small");
        let spawned = state
            .runner_spawned(&claimed.claim, pid, "start".to_owned())
            .await
            .expect("spawned");
        assert_eq!(spawned, Ok(()));
        Some(Self::of(state, claimed.claim))
    }

    /// The runner of a claim, before it said anything.
    pub fn of(state: &State, claim: Claim) -> Self {
        Self {
            state: state.clone(),
            claim,
            revision: 0,
            command: None,
            messages: 0,
            attempts: 0,
            attempt: None,
            refused: None,
        }
    }

    pub fn run(&self) -> RunKey {
        self.claim.run
    }

    pub async fn ready(&mut self) -> &Command {
        let (_, digest) = self.definition().await;
        let reply = self
            .send(ChildBody::Ready {
                definition_digest: digest,
            })
            .await;
        assert!(
            matches!(reply.outcome, ReplyOutcome::Accepted | ReplyOutcome::Adopted),
            "{reply:?}"
        );
        let Some(ReplyPayload::Command(command)) = reply.payload else {
            panic!("no command: {reply:?}")
        };
        self.revision = command.state.revision;
        self.command.insert(*command)
    }

    async fn definition(&self) -> (i64, String) {
        let run = self.claim.run;
        loop {
            let read = self.state.read(move |db| {
                Ok(db.query_row(
                    "SELECT d.id, d.digest FROM runs r JOIN workflow_definitions d ON d.id = r.definition WHERE r.id = ?1",
                    [run],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )?)
            });
            match read.await {
                Ok(found) => return found,
                Err(_) if self.refused.is_some() => {}
                Err(error) => panic!("definition: {error}"),
            }
        }
    }

    pub fn message(&mut self, body: ChildBody) -> ChildMessage {
        self.messages += 1;
        ChildMessage {
            schema: CHILD_SCHEMA.to_owned(),
            run_id: self.claim.run_id.to_string(),
            generation: self.claim.generation,
            runner_epoch: self.claim.runner_epoch.to_string(),
            message_id: format!("{}-{}", self.claim.generation, self.messages),
            attempt_id: self.attempt.clone(),
            expected_revision: (self.revision > 0).then_some(self.revision),
            body,
        }
    }

    pub async fn send(&mut self, body: ChildBody) -> ServerReply {
        let message = self.message(body);
        self.deliver(message).await
    }

    pub async fn deliver(&mut self, message: ChildMessage) -> ServerReply {
        let reply = loop {
            match (
                self.state.apply_child(&self.claim, message.clone()).await,
                &mut self.refused,
            ) {
                (Ok(reply), _) => break reply,
                (Err(_), Some(refused)) if *refused < 50 => *refused += 1,
                (Err(error), _) => panic!("the database works: {error}"),
            }
        };
        if let Some(revision) = reply.revision {
            self.revision = revision;
        }
        reply
    }

    pub fn node_start(&mut self, node: &str, visit: u32) -> NodeStart {
        self.attempts += 1;
        let attempt_id = uuid::Uuid::now_v7().to_string();
        self.attempt = Some(attempt_id.clone());
        NodeStart {
            attempt_id,
            node_id: node.to_owned(),
            visit,
            status_detail: None,
            timeout_ms: Some(piw_engine::limits::DEFAULT_TIMEOUT_MS),
            enters: Vec::new(),
            leaves: Vec::new(),
        }
    }

    /// The first start of this generation.
    pub async fn begin(&mut self, node: &str, visit: u32) -> ServerReply {
        let start = self.node_start(node, visit);
        self.send(ChildBody::NodeStarted(start)).await
    }

    pub fn finish_body(&mut self, node: &str, output: Value, next: Next) -> NodeFinish {
        NodeFinish {
            attempt_id: String::new(),
            node_id: node.to_owned(),
            outcome: NodeOutcome::Ok,
            output: ValueRef::Inline(output),
            error: None,
            action: None,
            status_detail: None,
            active_ms: 1,
            settle: None,
            leaves: Vec::new(),
            next,
        }
    }

    /// Finishes `node` and starts `next`.
    pub async fn step(&mut self, node: &str, output: Value, next: &str, visit: u32) -> ServerReply {
        let message = self.step_message(node, output, next, visit);
        self.deliver(message).await
    }

    /// The message of [`Runner::step`].
    pub fn step_message(&mut self, node: &str, output: Value, next: &str, visit: u32) -> ChildMessage {
        let attempt = self.attempt.clone().expect("an attempt runs");
        let start = self.node_start(next, visit);
        let mut finish = self.finish_body(node, output, Next::Start(start));
        finish.attempt_id = attempt;
        self.message(ChildBody::NodeFinished(Box::new(finish)))
    }

    /// Finishes `node` and completes the run with its output.
    pub async fn complete(&mut self, node: &str, output: Value) -> ServerReply {
        let next = Next::Finish(RunFinish {
            status: RunStatus::Completed,
            final_output: ValueRef::Inline(output.clone()),
            error: None,
            leaves: Vec::new(),
        });
        let mut finish = self.finish_body(node, output, next);
        finish.attempt_id = self.attempt.clone().expect("an attempt runs");
        self.send(ChildBody::NodeFinished(Box::new(finish))).await
    }

    /// Asks the session for the running agent step.
    pub async fn ask(&mut self, node: &str) -> ServerReply {
        let expected = json!("{\"n\": number}");
        let prompt = piw_engine::prompt::Contract {
            task: "Count the files.",
            workflow: "flow",
            step: node,
            visit: 1,
            request: self.attempt.as_deref().expect("an attempt runs"),
            expected: &expected,
            completion: piw_engine::prompt::SUBMIT_BY_TOOL,
        }
        .prompt(None);
        let prompt = ValueRef::Inline(Value::String(prompt));
        self.send(ChildBody::InteractionRequested { prompt }).await
    }

    /// Finishes a checkpoint.
    pub async fn wait(&mut self, node: &str, request: Value) -> ServerReply {
        let mut finish = self.finish_body(node, request, Next::Wait);
        finish.attempt_id = self.attempt.clone().expect("an attempt runs");
        self.send(ChildBody::NodeFinished(Box::new(finish))).await
    }

    /// Fails `node` and the run with it.
    pub async fn fail(&mut self, node: &str, message: &str) -> ServerReply {
        let error = ErrorInfo {
            code: Some("nodeFailed".to_owned()),
            message: message.to_owned(),
            stack: None,
        };
        let next = Next::Finish(RunFinish {
            status: RunStatus::Failed,
            final_output: ValueRef::null(),
            error: Some(ErrorInfo {
                message: format!("node \"{node}\" failed: {message}"),
                ..error.clone()
            }),
            leaves: Vec::new(),
        });
        let mut finish = self.finish_body(node, Value::Null, next);
        finish.attempt_id = self.attempt.clone().expect("an attempt runs");
        finish.outcome = NodeOutcome::Failed;
        finish.error = Some(error);
        self.send(ChildBody::NodeFailed(Box::new(finish))).await
    }

    pub async fn reserve(&mut self, node: &str, visit: u32, kind: EffectKind) -> EffectReservation {
        let body = ChildBody::EffectReserve {
            key: self.effect_key(node, visit),
            effect_type: "deploy".to_owned(),
            kind,
            fingerprint: "sha256:1".to_owned(),
        };
        let reply = self.send(body).await;
        match reply.payload {
            Some(ReplyPayload::Effect(reservation)) => reservation,
            _ => panic!("no reservation: {reply:?}"),
        }
    }

    pub fn effect_key(&self, node: &str, visit: u32) -> String {
        piw_engine::effect::key(&self.claim.run_id, "deploy", node, visit)
    }

    pub async fn exit(&self, outcome: RunnerOutcome) -> piw_state::AfterExit {
        let exit = RunnerExit {
            runner_epoch: self.claim.runner_epoch.to_string(),
            outcome,
            exit_code: None,
            signal: None,
            diagnostic: None,
        };
        self.state.runner_exited(exit).await.expect("the database works")
    }
}

/// Status, queue status, claimable and step count of a run.
pub async fn facts(state: &State, run_id: &str) -> (String, String, bool, u64) {
    let run_id = run_id.to_owned();
    state
        .read(move |db| {
            Ok(db.query_row(
                "SELECT r.status, q.status, q.claimable, r.step_count FROM runs r JOIN run_queue q ON q.run = r.id
                  WHERE r.run_id = ?1",
                [run_id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )?)
        })
        .await
        .expect("the run exists")
}

pub fn accepted(reply: &ServerReply) {
    assert_eq!(reply.outcome, ReplyOutcome::Accepted, "{reply:?}");
}

pub fn rejected(reply: &ServerReply) -> String {
    assert_eq!(reply.outcome, ReplyOutcome::Rejected, "{reply:?}");
    reply.error.as_ref().expect("an error").message.clone()
}
