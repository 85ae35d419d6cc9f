//! Commands on one run: pause, resume, cancel, restart, answer.

use piw_protocol::child::ValueRef;
use piw_protocol::envelope::Request;
use piw_protocol::ops::CheckpointAnswer;
use piw_state::{Controlled, StateError};

use super::{decided, identity, payload, run_id};
use crate::answer::Answer;
use crate::server::Server;
use crate::supervise::live::Order;

impl Server {
    pub(super) async fn run_pause(&self, request: &Request) -> Answer {
        let run_id = match run_id(request) {
            Ok(run_id) => run_id,
            Err(answer) => return answer,
        };
        let controlled = self
            .state
            .pause_run(identity(request), run_id.clone(), request.expected_revision)
            .await;
        self.controlled(&run_id, controlled)
    }

    pub(super) async fn run_resume(&self, request: &Request) -> Answer {
        match run_id(request) {
            Ok(run_id) => decided(
                self.state
                    .resume_run(identity(request), run_id, request.expected_revision)
                    .await,
            ),
            Err(answer) => answer,
        }
    }

    pub(super) async fn run_cancel(&self, request: &Request) -> Answer {
        let run_id = match run_id(request) {
            Ok(run_id) => run_id,
            Err(answer) => return answer,
        };
        let controlled = self
            .state
            .cancel_run(identity(request), run_id.clone(), request.expected_revision)
            .await;
        self.controlled(&run_id, controlled)
    }

    /// Any client may answer; the run must be waiting.
    pub(super) async fn checkpoint_answer(&self, request: &Request) -> Answer {
        let answered = run_id(request).and_then(|run_id| Ok((run_id, payload::<CheckpointAnswer>(request)?)));
        match answered {
            Ok((run_id, CheckpointAnswer { answer })) => decided(
                self.state
                    .answer_checkpoint(
                        identity(request),
                        run_id,
                        request.expected_revision,
                        checkpoint_answer(request, answer),
                    )
                    .await,
            ),
            Err(answer) => answer,
        }
    }

    /// A command that fenced a runner off has committed: now the runner is ended. The answer does not wait for that; the run
    /// cannot be claimed again before.
    fn controlled(&self, run_id: &str, controlled: Result<Controlled, StateError>) -> Answer {
        decided(controlled.map(|Controlled { receipted, stop }| {
            if stop.is_some() {
                self.live.order(run_id, Order::End);
            }
            receipted
        }))
    }
}

/// An answer and where it came from.
fn checkpoint_answer(request: &Request, answer: serde_json::Value) -> piw_state::Answer {
    piw_state::Answer {
        value: ValueRef::Inline(answer),
        source: format!("client {}", request.client_id),
    }
}
