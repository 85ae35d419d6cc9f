//! The state of one run and the answers to its runners.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use piw_engine::effect::{self, EffectState, Reservation, StoredEffect};
use piw_engine::machine::SavedPosition;
use piw_engine::{Definition, Progress};
use piw_protocol::canonical;
use piw_protocol::child::{
    CHILD_PROTOCOL_VERSION, ChildBody, ChildMessage, Command, CommandAction, ContentChunkReply, ContentRef,
    EffectReservation, EffectSettlement, ExecutionState, LAUNCH_SCHEMA, Next, NodeFinish, NodeResultState, NodeStart,
    Position, PushAction, REPLY_SCHEMA, ReplyOutcome, ReplyPayload, ResolveInput, ResolvedDefinition, RunFinish,
    RunnerLaunch, ScopeState, ServerPush, ServerReply, Settlement, ValueRef,
};
use piw_protocol::definition::EffectKind;
use piw_protocol::run::{ErrorInfo, Update};
use serde_json::Value;

use super::{Project, Role};

/// What a test does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Decide and answer it.
    Answer,
    /// Decide and answer it, then push an order.
    AnswerAndPush(PushAction),
    /// Kill the runner before the message is decided.
    Kill,
    /// Decide it and kill the runner before the answer.
    CommitAndKill,
    /// The claim is gone.
    ClaimLost,
    /// Close the channel without an answer.
    Close,
}

/// How a generation ended.
#[derive(Debug)]
pub struct End {
    /// Exit status of the process; `None` when the test killed it.
    pub success: Option<bool>,
    /// Every message, in order.
    pub messages: Vec<ChildMessage>,
}

struct StoredResult {
    state: EffectState,
    kind: EffectKind,
    fingerprint: String,
    attempts: u32,
    result: Value,
}

/// One run and what was committed of it.
pub struct Server {
    project: String,
    resolved: ResolvedDefinition,
    pub definition: Definition,
    pub progress: Progress,
    input: Value,
    scopes: Vec<(String, ValueRef)>,
    results: Vec<NodeResultState>,
    generation: u64,
    pub revision: u64,
    contents: HashMap<String, Vec<u8>>,
    upload: Vec<u8>,
    effects: HashMap<String, StoredResult>,
    answer: Option<ValueRef>,
    /// Committed ends, in order.
    pub steps: Vec<NodeFinish>,
    /// Committed starts, in order.
    pub starts: Vec<NodeStart>,
    /// The run's end.
    pub finished: Option<RunFinish>,
    /// Why the run is parked.
    pub parked: Option<(String, String)>,
    pub updates: Vec<Update>,
    /// Registered and not yet unregistered groups.
    pub groups: Vec<u32>,
    /// Everything registered, by label.
    pub registered: Vec<(u32, String)>,
    /// What user code printed.
    pub printed: String,
    pub notifications: Vec<String>,
    /// What models were told, once an attempt.
    pub prompts: Vec<String>,
    /// Whether the run is bound to a session.
    pub bound: bool,
    /// The attempt that waits for its session.
    pub requested: Option<String>,
    /// How its request was decided.
    pub settlement: Option<Settlement>,
}

impl Server {
    pub fn new(project: &Project, resolved: ResolvedDefinition) -> Self {
        let definition = Definition::from_snapshot(resolved.definition.clone()).unwrap();
        let input = match resolved.input.clone() {
            Some(ResolveInput::Inline(input)) => input,
            Some(ResolveInput::File(path)) => canonical::parse(&std::fs::read(path).unwrap()).unwrap(),
            None => Value::Null,
        };
        Self {
            project: project.path().to_str().unwrap().to_owned(),
            progress: Progress::new(&definition),
            definition,
            resolved,
            input,
            scopes: Vec::new(),
            results: Vec::new(),
            generation: 0,
            revision: 7,
            contents: HashMap::new(),
            upload: Vec::new(),
            effects: HashMap::new(),
            answer: None,
            steps: Vec::new(),
            starts: Vec::new(),
            finished: None,
            parked: None,
            updates: Vec::new(),
            groups: Vec::new(),
            registered: Vec::new(),
            printed: String::new(),
            notifications: Vec::new(),
            prompts: Vec::new(),
            bound: false,
            requested: None,
            settlement: None,
        }
    }

    /// Runs one generation that is only answered.
    pub fn run(&mut self) -> End {
        self.run_with(|_, _| Act::Answer)
    }

    /// Runs one generation; the test decides what happens to each message.
    pub fn run_with(&mut self, mut act: impl FnMut(&ChildMessage, &mut Self) -> Act) -> End {
        self.generation += 1;
        self.parked = None;
        let mut role = Role::start("runner", Path::new(&self.project));
        role.send(&self.launch());
        let mut messages = Vec::new();
        while let Some(message) = role.next::<ChildMessage>() {
            assert_eq!(message.generation, self.generation);
            let act = act(&message, self);
            messages.push(message.clone());
            if act == Act::Close {
                return End {
                    success: self.hang_up(role),
                    messages,
                };
            }
            if act == Act::Kill {
                role.kill();
                self.interrupt();
                return End {
                    success: None,
                    messages,
                };
            }
            let mut reply = self.decide(&message);
            if act == Act::ClaimLost {
                reply.outcome = ReplyOutcome::ClaimLost;
                reply.payload = None;
            }
            if act == Act::CommitAndKill {
                role.kill();
                self.interrupt();
                return End {
                    success: None,
                    messages,
                };
            }
            role.send(&reply);
            if let Act::AnswerAndPush(push) = act {
                role.send(&ServerPush {
                    schema: REPLY_SCHEMA.to_owned(),
                    push,
                });
            }
        }
        self.interrupt();
        End {
            success: Some(role.child.wait().unwrap().success()),
            messages,
        }
    }

    /// An attempt that has a request outlives its runner.
    fn interrupt(&mut self) {
        let newest = self.starts.last().map(|start| &start.attempt_id);
        if self.requested.is_none() || newest != self.requested.as_ref() {
            self.progress.interrupt();
        }
    }

    fn hang_up(&mut self, role: Role) -> Option<bool> {
        self.interrupt();
        Some(role.hang_up().success())
    }

    /// The continuation of a run that waits at a checkpoint.
    pub fn answer(&mut self, answer: Value) {
        let node = self
            .progress
            .waiting_on(&self.definition)
            .expect("the run waits")
            .to_owned();
        self.progress.answer();
        let stored = ValueRef::Inline(answer);
        self.answer = Some(stored.clone());
        self.results.retain(|result| result.node_id != node);
        self.results.push(NodeResultState {
            node_id: node,
            outcome: piw_protocol::run::NodeOutcome::Ok,
            output: stored,
            error: None,
            action: None,
            exit: None,
        });
    }

    /// Value behind a reference.
    pub fn value(&self, from: &ValueRef) -> Value {
        match from {
            ValueRef::Inline(value) => value.clone(),
            ValueRef::Content(content) => canonical::parse(&self.contents[&content.sha256]).unwrap(),
        }
    }

    /// Output of the last committed end of a node.
    pub fn output(&self, node: &str) -> Value {
        let step = self
            .steps
            .iter()
            .rev()
            .find(|step| step.node_id == node)
            .expect("the node has ended");
        self.value(&step.output)
    }

    /// The last committed end of a node.
    pub fn step(&self, node: &str) -> &NodeFinish {
        self.steps
            .iter()
            .rev()
            .find(|step| step.node_id == node)
            .expect("the node has ended")
    }

    /// Error text of the last committed end of a node.
    pub fn error(&self, node: &str) -> String {
        self.step(node)
            .error
            .as_ref()
            .expect("the node has an error")
            .message
            .clone()
    }

    /// Committed node ids, in order.
    pub fn path(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.node_id.as_str()).collect()
    }

    /// Final output of the completed run.
    pub fn final_output(&self) -> Value {
        let finished = self.finished.as_ref().expect("the run has ended");
        assert_eq!(finished.error, None);
        self.value(&finished.final_output)
    }

    fn launch(&self) -> RunnerLaunch {
        RunnerLaunch {
            schema: LAUNCH_SCHEMA.to_owned(),
            run_id: "run-1".to_owned(),
            generation: self.generation,
            runner_epoch: format!("epoch-{}", self.generation),
            project_path: self.project.clone(),
            workflow_source: self.resolved.sources.clone(),
            definition_digest: self.resolved.definition_digest.clone(),
            input_hash: canonical::digest(&self.input),
            protocol_version: CHILD_PROTOCOL_VERSION,
            global_dir: None,
            interactive: self.bound,
        }
    }

    fn state(&self) -> ExecutionState {
        let saved = self.progress.save(&self.definition);
        let position = match saved.position {
            SavedPosition::Start => Position::Start,
            SavedPosition::Interrupted { node_id } => {
                let visit = self.progress.visits(&self.definition, &node_id);
                Position::Node {
                    node_id,
                    visit,
                    overran: false,
                }
            }
            SavedPosition::Answered { node_id } => Position::After { node_id },
            SavedPosition::Running { node_id } => Position::Settled {
                visit: self.progress.visits(&self.definition, &node_id),
                node_id,
                attempt_id: self.requested.clone().expect("the open attempt has a request"),
                settlement: self.settlement.clone().expect("its request is decided"),
            },
            other => panic!("a generation cannot begin at {other:?}"),
        };
        let scope_input = |mount: &str| {
            let found = self.scopes.iter().rev().find(|(known, _)| known == mount);
            found.expect("an open mount was entered").1.clone()
        };
        ExecutionState {
            revision: self.revision,
            input: ValueRef::Inline(self.input.clone()),
            run_title: None,
            step_count: saved.steps,
            scopes: saved
                .scopes
                .into_iter()
                .map(|scope| ScopeState {
                    input: scope_input(&scope.mount),
                    mount: scope.mount,
                    step_count: scope.steps,
                })
                .collect(),
            results: self.results.clone(),
            visits: saved.visits,
            position,
        }
    }

    fn decide(&mut self, message: &ChildMessage) -> ServerReply {
        let mut reply = ServerReply {
            schema: REPLY_SCHEMA.to_owned(),
            message_id: message.message_id.clone(),
            outcome: ReplyOutcome::Accepted,
            revision: None,
            payload: None,
            error: None,
        };
        if let Some(expected) = message.expected_revision {
            assert_eq!(expected, self.revision, "the runner knows the revision");
            self.revision += 1;
            reply.revision = Some(self.revision);
        }
        match self.apply(message) {
            Ok(payload) => reply.payload = payload,
            Err(why) => {
                reply.outcome = ReplyOutcome::Rejected;
                reply.error = Some(ErrorInfo {
                    code: None,
                    message: why,
                    stack: None,
                });
            }
        }
        reply
    }

    fn apply(&mut self, message: &ChildMessage) -> Result<Option<ReplyPayload>, String> {
        match message.body.clone() {
            ChildBody::Ready { definition_digest } => {
                assert_eq!(definition_digest, self.resolved.definition_digest);
                let command = Command {
                    action: CommandAction::Resume,
                    state: self.state(),
                };
                return Ok(Some(self.command(command)));
            }
            ChildBody::NodeStarted(start) => {
                let answer = self.answer.take();
                let transition = {
                    let load = |content: &ContentRef| self.load(content);
                    let checked = self
                        .progress
                        .check_started(&self.definition, &start, answer.as_ref(), &load);
                    checked.unwrap_or_else(|error| panic!("{error}"))
                };
                self.progress.apply(&self.definition, &transition);
                self.leave(&start.leaves.clone());
                self.started(start);
            }
            ChildBody::NodeFinished(finish) | ChildBody::NodeFailed(finish) => self.finish(*finish),
            ChildBody::RunFinished(finish) => {
                let answer = self.answer.take();
                let transition = {
                    let load = |content: &ContentRef| self.load(content);
                    let checked = self
                        .progress
                        .check_run_finished(&self.definition, &finish, answer.as_ref(), &load);
                    checked.unwrap_or_else(|error| panic!("{error}"))
                };
                self.progress.apply(&self.definition, &transition);
                self.finished = Some(finish);
            }
            ChildBody::NodePrompted { prompt } => self.prompts.push(self.value(&prompt).as_str().unwrap().to_owned()),
            ChildBody::InteractionRequested { prompt } => {
                self.prompts.push(self.value(&prompt).as_str().unwrap().to_owned());
                self.requested = message.attempt_id.clone();
            }
            ChildBody::ValidationFinished(_) => return Err("a runner validates nothing".to_owned()),
            ChildBody::NodeUpdate { updates } => self.updates.extend(updates),
            ChildBody::RunParked { reason, message } => self.parked = Some((reason, message)),
            ChildBody::Notification { message, .. } => self.notifications.push(message),
            ChildBody::EffectReserve {
                key, kind, fingerprint, ..
            } => {
                return self
                    .reserve(key, kind, fingerprint)
                    .map(|reserved| Some(ReplyPayload::Effect(reserved)));
            }
            ChildBody::EffectSettle { key, outcome, result } => {
                let result = result.map_or(Value::Null, |result| self.value(&result));
                self.settle(&key, outcome, result);
            }
            ChildBody::Progress { text, .. } => {
                self.printed.push_str(&text);
                self.printed.push('\n');
            }
            ChildBody::ProcessRegister {
                pid,
                label,
                start_identity,
            } => {
                let known = piw_process::ProcessIdentity::of(pid)
                    .unwrap()
                    .expect("a registered process exists");
                assert_eq!(known.start, start_identity);
                self.groups.push(pid);
                self.registered.push((pid, label));
            }
            ChildBody::ProcessUnregister { pid, .. } => self.groups.retain(|known| *known != pid),
            ChildBody::ContentPut {
                content,
                offset,
                data,
                complete,
            } => {
                assert_eq!(offset as usize, self.upload.len());
                self.upload.extend(BASE64.decode(data).unwrap());
                if complete {
                    let bytes = std::mem::take(&mut self.upload);
                    assert_eq!(canonical::sha256_hex(&bytes), content.sha256);
                    assert_eq!(bytes.len() as u64, content.bytes);
                    self.contents.insert(content.sha256, bytes);
                }
            }
            ChildBody::ContentGet { sha256, offset } => return Ok(Some(self.chunk(&sha256, offset))),
            ChildBody::Exiting { .. } => {}
        }
        Ok(None)
    }

    /// Large commands travel as content.
    fn command(&mut self, command: Command) -> ReplyPayload {
        let bytes = canonical::to_vec(&command).unwrap();
        if bytes.len() < 200_000 {
            return ReplyPayload::Command(Box::new(command));
        }
        let sha256 = canonical::sha256_hex(&bytes);
        let content = ContentRef {
            sha256: sha256.clone(),
            bytes: bytes.len() as u64,
            media_type: "application/json".into(),
        };
        self.contents.insert(sha256, bytes);
        ReplyPayload::CommandContent(content)
    }

    fn load(&self, content: &ContentRef) -> Option<Value> {
        self.contents
            .get(&content.sha256)
            .map(|bytes| canonical::parse(bytes).unwrap())
    }

    fn started(&mut self, start: NodeStart) {
        for enter in &start.enters {
            let inside = format!("{}/", enter.mount);
            self.results.retain(|result| !result.node_id.starts_with(&inside));
            self.scopes.push((enter.mount.clone(), enter.input.clone()));
        }
        self.starts.push(start);
    }

    fn leave(&mut self, leaves: &[piw_protocol::child::ScopeLeave]) {
        for leave in leaves {
            let inside = format!("{}/", leave.mount);
            self.results
                .retain(|result| result.node_id != leave.mount && !result.node_id.starts_with(&inside));
            self.results.push(NodeResultState {
                node_id: leave.mount.clone(),
                outcome: piw_protocol::run::NodeOutcome::Ok,
                output: leave.output.clone(),
                error: None,
                action: None,
                exit: Some(leave.exit.clone()),
            });
        }
    }

    fn finish(&mut self, finish: NodeFinish) {
        let transition = {
            let load = |content: &ContentRef| self.load(content);
            let checked = self.progress.check_finished(&self.definition, &finish, &load);
            checked.unwrap_or_else(|error| panic!("{error}"))
        };
        self.progress.apply(&self.definition, &transition);
        if let Some(settle) = &finish.settle {
            let result = self.value(&finish.output);
            self.settle(&settle.key.clone(), settle.outcome, result);
        }
        self.results.retain(|result| result.node_id != finish.node_id);
        self.results.push(NodeResultState {
            node_id: finish.node_id.clone(),
            outcome: finish.outcome,
            output: finish.output.clone(),
            error: finish.error.clone(),
            action: finish.action.clone(),
            exit: None,
        });
        self.leave(&finish.leaves.clone());
        match &finish.next {
            Next::Start(start) => self.started(start.clone()),
            Next::Finish(end) => self.finished = Some(end.clone()),
            Next::Wait => {}
        }
        self.steps.push(finish);
    }

    fn reserve(&mut self, key: String, kind: EffectKind, fingerprint: String) -> Result<EffectReservation, String> {
        let stored = self.effects.get(&key).map(|effect| StoredEffect {
            state: effect.state,
            kind: effect.kind,
            fingerprint: &effect.fingerprint,
            attempts: effect.attempts,
        });
        let reservation = effect::reserve(stored.as_ref(), kind, &fingerprint).map_err(|error| error.to_string())?;
        let effect = self.effects.entry(key).or_insert(StoredResult {
            state: EffectState::Pending,
            kind,
            fingerprint,
            attempts: 0,
            result: Value::Null,
        });
        Ok(match reservation {
            Reservation::Apply { attempt } => {
                effect.state = EffectState::Applying;
                effect.attempts = attempt;
                EffectReservation::Apply { attempt }
            }
            Reservation::Observe { attempt } => EffectReservation::Observe { attempt },
            Reservation::Adopt => EffectReservation::Adopt {
                result: ValueRef::Inline(effect.result.clone()),
            },
            Reservation::Ambiguous => EffectReservation::Ambiguous,
        })
    }

    fn settle(&mut self, key: &str, outcome: EffectSettlement, result: Value) {
        let effect = self.effects.get_mut(key).expect("a settled effect was reserved");
        assert_eq!(effect.state, EffectState::Applying, "an effect is settled once");
        effect.state = outcome.into();
        effect.result = result;
    }

    /// States of all effects.
    pub fn effect_states(&self) -> Vec<EffectState> {
        self.effects.values().map(|effect| effect.state).collect()
    }

    fn chunk(&self, sha256: &str, offset: u64) -> ReplyPayload {
        let bytes = &self.contents[sha256];
        let start = offset as usize;
        let end = bytes.len().min(start + piw_protocol::child::CONTENT_CHUNK);
        ReplyPayload::Content(ContentChunkReply {
            bytes: bytes.len() as u64,
            offset,
            data: BASE64.encode(&bytes[start..end]),
            complete: end == bytes.len(),
        })
    }
}
