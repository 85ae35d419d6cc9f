//! Drives a run through the state crate as a runner would, one committed step at a time.

use piw_protocol::child::{
    CHILD_SCHEMA, ChildBody, ChildMessage, Next, NodeFinish, NodeStart, ReplyOutcome, RunFinish, ValueRef,
};
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus, SourceMap, SourceRef};
use piw_state::{Claim, CommandIdentity, NewRun, ResolvedRun, RunnerExit, RunnerOutcome, State};
use serde_json::{Value, json};

pub struct Driver {
    state: State,
    claim: Claim,
    digest: String,
    messages: u64,
    step: usize,
    nodes: usize,
}

/// A new identity for each command.
pub fn identity(operation: Operation) -> CommandIdentity {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    CommandIdentity {
        client_id: "test".into(),
        request_id: id.clone(),
        idempotency_key: id,
        operation,
        fingerprint: [0; 32],
    }
}

/// Starts a run and answers its id.
pub async fn start(state: &State, definition: &DefinitionSnapshot) -> String {
    let digest = piw_protocol::canonical::digest(&serde_json::to_value(definition).unwrap());
    let new = NewRun {
        project_path: "/project".into(),
        session_id: None,
        resolved: ResolvedRun {
            definition: definition.clone(),
            definition_digest: digest,
            sources: SourceMap {
                root: SourceRef::File {
                    path: "/project/f.ts".into(),
                    hash: "aa".into(),
                },
                mounted: Vec::new(),
                modules: Vec::new(),
            },
            title: Some("driven".into()),
            input: ValueRef::Inline(json!({})),
        },
    };
    let receipted = state.start_run(identity(Operation::RunStart), new).await.unwrap();
    assert_eq!(receipted.outcome, Outcome::Accepted, "{:?}", receipted.error);
    receipted.receipt.unwrap().run_id
}

impl Driver {
    /// Claims the run that is next and begins its first node.
    pub async fn claim(state: &State, nodes: usize) -> Self {
        Self::claim_at(state, nodes, 0).await
    }

    /// Claims the run that is next and goes on after so many steps.
    pub async fn claim_at(state: &State, nodes: usize, step: usize) -> Self {
        let claimed = state.claim_next(None).await.unwrap().expect("a run is ready");
        let mut driver = Self {
            state: state.clone(),
            claim: claimed.claim,
            digest: claimed.launch.definition_digest,
            messages: 0,
            step,
            nodes,
        };
        let digest = driver.digest.clone();
        driver
            .send(ChildBody::Ready {
                definition_digest: digest,
            })
            .await;
        let start = driver.next_start();
        driver.send(ChildBody::NodeStarted(start)).await;
        driver
    }

    fn next_start(&self) -> NodeStart {
        NodeStart {
            attempt_id: format!("attempt-{}", self.step),
            node_id: format!("n{}", self.step % self.nodes),
            visit: u32::try_from(self.step / self.nodes + 1).unwrap(),
            status_detail: None,
            timeout_ms: Some(900_000),
            leaves: Vec::new(),
            enters: Vec::new(),
        }
    }

    /// Finishes the running node with an output and starts the next one, in one commit.
    pub async fn step(&mut self, output: Value) {
        let finish = self.finish(output);
        self.send(ChildBody::NodeFinished(Box::new(finish))).await;
    }

    /// Finishes the running checkpoint: the run waits for its answer.
    pub async fn wait(&mut self, request: Value) {
        let mut finish = self.finish(request);
        finish.next = Next::Wait;
        self.send(ChildBody::NodeFinished(Box::new(finish))).await;
        let exit = RunnerExit {
            runner_epoch: self.claim.runner_epoch.to_string(),
            outcome: RunnerOutcome::Exited,
            exit_code: Some(0),
            signal: None,
            diagnostic: None,
        };
        self.state.runner_exited(exit).await.unwrap();
    }

    /// Fails the running node and with it the run.
    pub async fn end(&mut self) {
        let error = |code: Option<&str>, message: String| {
            Some(ErrorInfo {
                code: code.map(str::to_owned),
                message,
                stack: None,
            })
        };
        let mut finish = self.finish(Value::Null);
        let whole = format!("node \"{}\" failed: it broke", finish.node_id);
        (finish.outcome, finish.error) = (NodeOutcome::Failed, error(None, "it broke".into()));
        finish.next = Next::Finish(RunFinish {
            status: RunStatus::Failed,
            final_output: ValueRef::null(),
            error: error(Some("nodeFailed"), whole),
            leaves: Vec::new(),
        });
        self.send(ChildBody::NodeFailed(Box::new(finish))).await;
    }

    fn finish(&mut self, output: Value) -> NodeFinish {
        let current = self.next_start();
        self.step += 1;
        NodeFinish {
            attempt_id: current.attempt_id,
            node_id: current.node_id,
            outcome: NodeOutcome::Ok,
            output: ValueRef::Inline(output),
            error: None,
            action: None,
            status_detail: None,
            active_ms: 1,
            settle: None,
            leaves: Vec::new(),
            next: Next::Start(self.next_start()),
        }
    }

    async fn send(&mut self, body: ChildBody) {
        self.messages += 1;
        let message = ChildMessage {
            schema: CHILD_SCHEMA.into(),
            run_id: self.claim.run_id.to_string(),
            generation: self.claim.generation,
            runner_epoch: self.claim.runner_epoch.to_string(),
            message_id: self.messages.to_string(),
            attempt_id: None,
            expected_revision: None,
            body,
        };
        let reply = self.state.apply_child(&self.claim, message).await.unwrap();
        assert_eq!(reply.outcome, ReplyOutcome::Accepted, "{:?}", reply.error);
    }
}
