//! What a session submits for the request of its run. An answer says what became of it, however often it is sent.

use std::sync::Arc;

use piw_engine::decision::INPUT;
use piw_protocol::canonical;
use piw_protocol::child::{ContentRef, ValueRef};
use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::interaction::{
    DecisionAnswer, InteractionAssistant, InteractionReceipt, InteractionSubmit, InteractionUpdate,
};
use piw_state::interaction::{NewSubmission, Reply, Submitted};
use piw_state::{PersonsAnswer, StateError};
use serde_json::Value;

use super::{decided, identity, payload};
use crate::answer::{Answer, unavailable};
use crate::connection::Context;
use crate::server::Server;

/// Longest visible reply in bytes of its stored JSON.
const REPLY_LIMIT: u64 = 16 * 1024 * 1024;

impl Server {
    pub(super) async fn interaction_submit(self: &Arc<Self>, context: &Context, request: &Request) -> Answer {
        let submit: InteractionSubmit = match payload(request) {
            Ok(submit) => submit,
            Err(answer) => return answer,
        };
        let fence = match self.session_authority(&submit.authority, context) {
            Ok(fence) => fence,
            Err(answer) => return answer,
        };
        let payload = match submit.output_content {
            Some(_) if !submit.output.is_null() => {
                return Answer::invalid(&"`output` and `outputContent` exclude each other");
            }
            Some(content) => ValueRef::Content(content),
            None => ValueRef::Inline(submit.output),
        };
        let new = NewSubmission {
            fence,
            request_id: submit.request_id,
            key: request.idempotency_key.clone(),
            payload,
            reply: None,
        };
        self.submitted(new).await
    }

    pub(super) async fn interaction_assistant(self: &Arc<Self>, context: &Context, request: &Request) -> Answer {
        let reply: InteractionAssistant = match payload(request) {
            Ok(reply) => reply,
            Err(answer) => return answer,
        };
        let fence = match self.session_authority(&reply.authority, context) {
            Ok(fence) => fence,
            Err(answer) => return answer,
        };
        let text = match self.text_of(reply.text, reply.text_content).await {
            Ok(text) => text,
            Err(answer) => return answer,
        };
        let digest = canonical::digest_bytes(text.as_bytes());
        if digest != reply.text_digest {
            let message = format!("the text has the digest {digest}, not {}", reply.text_digest);
            return Answer::invalid(&message);
        }
        let facts = Reply {
            entry_id: reply.response_session_entry_id,
            chars: text.chars().count() as u64,
            blank: text.trim().is_empty(),
        };
        let new = NewSubmission {
            fence,
            request_id: reply.request_id,
            key: request.idempotency_key.clone(),
            payload: ValueRef::Inline(Value::String(text)),
            reply: Some(facts),
        };
        self.submitted(new).await
    }

    pub(super) async fn interaction_update(&self, context: &Context, request: &Request) -> Answer {
        let update: InteractionUpdate = match payload(request) {
            Ok(update) => update,
            Err(answer) => return answer,
        };
        let fence = match self.session_authority(&update.authority, context) {
            Ok(fence) => fence,
            Err(answer) => return answer,
        };
        if let Err(error) = self.update_rates.take(&update.request_id) {
            return Answer::refuse(Outcome::Rejected, "update_refused", &error);
        }
        decided(
            self.state
                .interaction_update(identity(request), fence, update.request_id, update.update)
                .await,
        )
    }

    /// A person's answer to a protected decision: from the session that is asked, or from a terminal that no workflow started.
    pub(super) async fn decision_answer(&self, context: &Context, request: &Request) -> Answer {
        let answer: DecisionAnswer = match payload(request) {
            Ok(answer) => answer,
            Err(answer) => return answer,
        };
        let (fence, source) = match &answer.authority {
            Some(authority) => match self.session_authority(authority, context) {
                Ok(fence) => (Some(fence), format!("session {}", authority.target_session_id)),
                Err(answer) => return answer,
            },
            None => match context.peer.filter(|peer| !crate::people::is_of_a_workflow(*peer)) {
                Some(peer) => (None, format!("terminal, process {peer}")),
                None => {
                    let message =
                        "a process that a workflow started cannot answer for a person; answer from a terminal";
                    return Answer::refuse(Outcome::Rejected, "not_a_person", &message);
                }
            },
        };
        let mut inputs = answer.inputs;
        let input = match inputs.remove(INPUT) {
            None => None,
            Some(Value::String(input)) => Some(input),
            Some(other) => return Answer::invalid(&format!("`inputs.{INPUT}` must be a text, not {other}")),
        };
        if let Some(other) = inputs.keys().next() {
            return Answer::invalid(&format!(
                "a choice takes one text, `inputs.{INPUT}`; `{other}` is unknown"
            ));
        }
        let answer = PersonsAnswer {
            request_id: answer.request_id,
            digest: answer.digest,
            choice: answer.choice,
            input,
            fence,
            source,
        };
        decided(self.state.answer_decision(identity(request), answer).await)
    }

    /// Judges what an earlier server left unjudged. Nobody waits for the answers.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(crate) async fn resume_validations(self: &Arc<Self>) -> Result<(), StateError> {
        for submission in self.state.provisional_submissions().await? {
            let server = Arc::clone(self);
            tokio::spawn(async move { server.validated(submission).await });
        }
        Ok(())
    }

    async fn submitted(self: &Arc<Self>, new: NewSubmission) -> Answer {
        match self.state.submit(new).await {
            Ok(Submitted::Refused(refused)) => Answer::error(refused.outcome, refused.error),
            Ok(Submitted::Decided { receipt, repeated }) => answer(&receipt, repeated),
            Ok(Submitted::Validating { submission }) => {
                piw_fault::point!("server::submission_stored");
                self.validated(submission).await
            }
            Err(error) => unavailable(&error),
        }
    }

    /// Waits for the verdict on a stored submission, which one validator at a time looks for.
    async fn validated(self: &Arc<Self>, submission: i64) -> Answer {
        let validators = self.validators.clone();
        let judge = move || async move {
            match validators.judge(submission).await {
                Ok(receipt) => answer(&receipt, false),
                Err(error) => {
                    tracing::warn!(submission, %error, "a submission cannot be judged yet");
                    unavailable(&error)
                }
            }
        };
        let key = ("validation".to_owned(), submission.to_string());
        self.in_flight.run(key, "", judge).await.unwrap_or_default()
    }

    /// A text that travels beside a message or in it.
    async fn text_of(&self, text: Option<String>, content: Option<ContentRef>) -> Result<String, Answer> {
        let content = match (text, content) {
            (Some(text), None) => return Ok(text),
            (None, Some(content)) => content,
            _ => return Err(Answer::invalid(&"either `text` or `textContent` is needed")),
        };
        if content.bytes > REPLY_LIMIT {
            let message = format!("a reply has at most {REPLY_LIMIT} bytes, not {}", content.bytes);
            return Err(Answer::invalid(&message));
        }
        match self.state.stored_value(content).await {
            Ok(Some(Value::String(text))) => Ok(text),
            Ok(_) => Err(Answer::invalid(&"`textContent` names no stored JSON string")),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

fn answer(receipt: &InteractionReceipt, repeated: bool) -> Answer {
    let mut answer = Answer::accepted(receipt).with_revision(receipt.run_revision);
    if repeated {
        answer.outcome = Some(Outcome::Adopted);
    }
    answer
}
