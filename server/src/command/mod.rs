//! Client operations: one file a group, dispatched here.
//!
//! A handler decodes its payload, does its work through the state crate or the children, and says how it ended. It knows nothing of
//! frames and sockets.

mod content;
mod control;
mod coordinate;
mod effect;
mod input;
mod interaction;
mod server;
mod session;
mod start;
mod state;
mod view;
mod workflow;

use std::future::Future;
use std::sync::Arc;

use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::ops::Operation;
use piw_state::{CommandIdentity, Receipted, StateError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::{Answer, unavailable};
use crate::connection::Context;
use crate::server::Server;

impl Server {
    /// Answers one request.
    pub(crate) async fn answer(self: &Arc<Self>, context: &Context, request: Request) -> Answer {
        if takes_nothing(request.operation)
            && let Err(answer) = payload::<Nothing>(&request)
        {
            return answer;
        }
        match request.operation {
            Operation::RunStart => self.run_start(request).await,
            Operation::RunPause => self.run_pause(&request).await,
            Operation::RunResume => self.run_resume(&request).await,
            Operation::RunCancel => self.run_cancel(&request).await,
            Operation::RunRestart => self.run_restart(request).await,
            Operation::RunStatus => self.run_status(&request).await,
            Operation::CheckpointAnswer => self.checkpoint_answer(&request).await,
            Operation::DecisionAnswer => self.decision_answer(context, &request).await,
            Operation::InteractionSubmit => self.interaction_submit(context, &request).await,
            Operation::InteractionAssistant => self.interaction_assistant(context, &request).await,
            Operation::InteractionUpdate => self.interaction_update(context, &request).await,
            Operation::EffectList => self.effect_list(&request).await,
            Operation::EffectResolve => self.effect_resolve(&request).await,
            Operation::SessionRecord => self.session_record(&request).await,
            Operation::ContentPut => self.content_put(&request).await,
            Operation::RunList => self.run_list(&request).await,
            Operation::ViewRunsWatch => self.view_runs_watch(context, &request).await,
            Operation::ViewRunWatch => self.view_run_watch(context, &request).await,
            Operation::ViewSessionWatch => self.view_session_watch(context, &request).await,
            Operation::ViewSessionUnwatch => self.view_session_unwatch(context, &request),
            Operation::ViewSessionWindow => self.view_session_window(context, &request).await,
            Operation::WorkflowMessageReportBranch => self.report_branch(context, &request).await,
            Operation::WorkflowTurnReport => self.report_turn(context, &request).await,
            Operation::SessionViewClearTerminal => self.clear_terminal(context, &request).await,
            Operation::ViewRunsUnwatch | Operation::ViewRunUnwatch => self.view_unwatch(context, &request),
            Operation::ViewRunsPage => self.view_runs_page(&request).await,
            Operation::ViewRunGet => self.view_run_get(&request).await,
            Operation::ViewPage => self.view_page(&request).await,
            Operation::ViewContent => self.view_content(&request).await,
            Operation::WorkflowCheck => self.workflow_check(&request).await,
            Operation::WorkflowList => self.workflow_list(&request).await,
            Operation::StateStatus => self.state_status().await,
            Operation::StateVerify => self.state_verify().await,
            Operation::StateBackup => self.state_backup(request).await,
            Operation::StatePrune => self.state_prune(request).await,
            Operation::ServerStatus => self.server_status().await,
            Operation::ServerStop => self.server_stop(&request).await,
            operation => not_built(operation),
        }
    }
}

/// An operation of the closed list that this version does not have.
fn not_built(operation: Operation) -> Answer {
    let message = format!("{} is not built in this version", operation.name());
    Answer::refuse(Outcome::Unavailable, "not_built", &message)
}

/// The payload of operations that take none: an empty object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

const fn takes_nothing(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::RunPause
            | Operation::RunResume
            | Operation::RunCancel
            | Operation::RunRestart
            | Operation::RunStatus
            | Operation::ViewRunGet
            | Operation::StateStatus
            | Operation::StateVerify
            | Operation::ServerStatus
    )
}

/// The operation's payload, or the answer that says what is wrong with it.
fn payload<T: DeserializeOwned>(request: &Request) -> Result<T, Answer> {
    request.payload.decode().map_err(|error| {
        Answer::invalid(&format!(
            "the payload of {} is not valid: {error}",
            request.operation.name()
        ))
    })
}

/// The run that the operation is about.
fn run_id(request: &Request) -> Result<String, Answer> {
    request
        .run_id
        .clone()
        .ok_or_else(|| Answer::invalid(&format!("{} needs the field `runId`", request.operation.name())))
}

/// Identity under which the command's receipt is stored.
fn identity(request: &Request) -> CommandIdentity {
    let text = request.fingerprint();
    let mut fingerprint = [0_u8; 32];
    hex::decode_to_slice(text.trim_start_matches("sha256:"), &mut fingerprint)
        .expect("a fingerprint is 32 bytes in hex");
    CommandIdentity {
        client_id: request.client_id.clone(),
        request_id: request.request_id.clone(),
        idempotency_key: request.idempotency_key.clone(),
        operation: request.operation,
        fingerprint,
    }
}

/// A decided command as an answer.
fn decided<R: Serialize>(decided: Result<Receipted<R>, StateError>) -> Answer {
    let Receipted {
        outcome,
        revision,
        receipt,
        error,
        ..
    } = match decided {
        Ok(receipted) => receipted,
        Err(error) => return unavailable(&error),
    };
    let mut answer = match &receipt {
        Some(receipt) => Answer::accepted(receipt),
        None => Answer::default(),
    };
    answer.outcome = Some(outcome);
    answer.revision = revision;
    answer.error = error.map(Box::new);
    answer
}

impl Server {
    /// Decides a command that takes a while exactly once: a stored receipt is returned, a retry of one in work waits for the
    /// same outcome, and a refusal (`Err`) is stored.
    async fn once<F>(self: &Arc<Self>, request: Request, work: impl FnOnce(CommandIdentity, Request) -> F) -> Answer
    where
        F: Future<Output = Result<Answer, Answer>> + Send + 'static,
    {
        let identity = identity(&request);
        match self.state.stored_receipt::<Value>(identity.clone()).await {
            Ok(None) => {}
            Ok(Some(stored)) => return decided(Ok(stored)),
            Err(error) => return unavailable(&error),
        }
        let key = (request.client_id.clone(), request.idempotency_key.clone());
        let fingerprint = request.fingerprint();
        let server = Arc::clone(self);
        let decide = move || {
            let work = work(identity.clone(), request);
            async move {
                match work.await {
                    Ok(answer) => answer,
                    Err(answer) => server.refuse(identity, answer).await,
                }
            }
        };
        self.in_flight.run(key, &fingerprint, decide).await.unwrap_or_else(|| {
            Answer::refuse(
                Outcome::Conflict,
                "identity_reused",
                &"the idempotency key is in use for another command",
            )
        })
    }

    /// Stores a refusal that was decided before the command reached a run, so that a retry gets the same answer. A refusal that may
    /// be decided differently later is not stored.
    async fn refuse(&self, identity: CommandIdentity, answer: Answer) -> Answer {
        match (answer.outcome, answer.error) {
            (Some(outcome), Some(error)) if outcome != Outcome::Unavailable => {
                decided(self.state.record_refusal::<Value>(identity, outcome, *error).await)
            }
            (outcome, error) => Answer {
                outcome,
                error,
                ..Answer::default()
            },
        }
    }
}
