//! Judging a submission in a child: it loads the workflow as it was frozen, runs one `validate`, and is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piw_process::group;
use piw_protocol::child::{CHILD_SCHEMA, ChildBody, ChildMessage, VALIDATE_SCHEMA, Validation, ValidatorLaunch};
use piw_protocol::interaction::InteractionReceipt;
use piw_protocol::run::ErrorInfo;
use piw_state::interaction::ToValidate;
use piw_state::{State, StateError};
use tokio::process::Child;
use tokio::sync::Semaphore;

use super::capture;
use super::channel::{self, ChannelError};
use super::registry::Registry;
use super::spawn::{Role, Spawned, Spawner};
use crate::paths;

/// Longest life of a validator: `validate` has 30 s, loading 20 s; this ends what escapes both.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a validator may take to leave after its answer, and after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// Runs validators. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Validators {
    state: State,
    spawner: Spawner,
    registry: Arc<Registry>,
    slots: Arc<Semaphore>,
    output: PathBuf,
}

/// Why a validator gave no verdict.
#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error("the process cannot be started: {0}")]
    Spawn(std::io::Error),
    #[error("it broke its protocol: {0}")]
    Channel(#[from] ChannelError),
    #[error("it broke its protocol: {0}")]
    Message(#[from] piw_protocol::canonical::CanonicalError),
    #[error("it ended without a verdict ({0})")]
    Ended(String),
    #[error("it gave no verdict within {} s", DEADLINE.as_secs())]
    TimedOut,
    #[error(transparent)]
    State(#[from] StateError),
}

impl Validators {
    /// `at_once`: as many validators as there may be runners.
    pub(crate) fn new(
        state: State,
        spawner: Spawner,
        registry: Arc<Registry>,
        output: PathBuf,
        at_once: usize,
    ) -> Self {
        Self {
            state,
            spawner,
            registry,
            slots: Arc::new(Semaphore::new(at_once.max(1))),
            output,
        }
    }

    /// Has a stored submission judged and decides it. A validator that dies rejects it.
    ///
    /// # Errors
    /// When the database fails: the submission stays stored, and is judged again after the next start of the server.
    pub(crate) async fn judge(&self, submission: i64) -> Result<InteractionReceipt, StateError> {
        let _slot = self.slots.acquire().await.map_err(|_| StateError::Closed)?;
        let global_dir = paths::global_workflows().map(|path| path.to_string_lossy().into_owned());
        let verdict = match self.state.validation(submission, global_dir).await? {
            Some(wanted) => match self.ask(submission, wanted).await {
                Ok(verdict) => verdict,
                Err(NoVerdict::State(error)) => return Err(error),
                Err(why) => died(&why),
            },
            // Decided meanwhile: the stored decision is adopted.
            None => died(&NoVerdict::Ended("decided before".to_owned())),
        };
        piw_fault::point!("server::validated");
        let receipt = match self.state.decide_submission(submission, verdict).await {
            Err(StateError::Invalid(why)) => {
                let verdict = Validation::Rejected(error("badValue", why));
                self.state.decide_submission(submission, verdict).await?
            }
            decided => decided?,
        };
        piw_fault::point!("server::submission_decided");
        Ok(receipt)
    }

    async fn ask(&self, submission: i64, wanted: ToValidate) -> Result<Validation, NoVerdict> {
        let run_id = wanted.launch.run_id.clone();
        let mut spawned = self
            .spawner
            .spawn(Role::Validator, None)
            .await
            .map_err(NoVerdict::Spawn)?;
        let launch = ValidatorLaunch {
            schema: VALIDATE_SCHEMA.to_owned(),
            launch: wanted.launch,
            state: wanted.state,
            node_id: wanted.node_id,
            visit: wanted.visit,
            attempt_id: wanted.attempt_id,
            submission: wanted.submission,
        };
        let talked = tokio::time::timeout(DEADLINE, self.talk(&mut spawned, &launch)).await;
        let verdict = match talked {
            Ok(Ok(Some(verdict))) => Ok(verdict),
            Ok(Ok(None)) => Err(NoVerdict::Ended(how_it_ended(&mut spawned.child).await)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NoVerdict::TimedOut),
        };
        if let Err(why) = &verdict {
            tracing::warn!(run_id, submission, %why, "a validator gave no verdict");
        }
        self.dismiss(spawned, verdict.is_ok()).await;
        verdict
    }

    /// Answers the child until it says what it found; `None` when it leaves before.
    async fn talk(&self, spawned: &mut Spawned, launch: &ValidatorLaunch) -> Result<Option<Validation>, NoVerdict> {
        let (ours, closed) = tokio::net::UnixStream::pair().map_err(ChannelError::from)?;
        drop(closed);
        let stream = std::mem::replace(&mut spawned.channel, ours);
        let (mut incoming, mut outgoing) = channel::split(stream).map_err(ChannelError::from)?;
        outgoing.send(launch).await?;
        while let Some(frame) = incoming.next().await? {
            let message: ChildMessage = piw_protocol::canonical::from_slice(&frame)?;
            if message.schema != CHILD_SCHEMA {
                return Err(NoVerdict::Ended(format!(
                    "schema {:?} is not {CHILD_SCHEMA:?}",
                    message.schema
                )));
            }
            let verdict = match &message.body {
                ChildBody::ValidationFinished(verdict) => Some(verdict.clone()),
                _ => None,
            };
            let reply = self.state.answer_validator(message).await?;
            match (outgoing.send(&reply).await, verdict) {
                // What it found counts, also when it is gone before it was told so.
                (_, Some(verdict)) => return Ok(Some(verdict)),
                (sent, None) => sent?,
            }
        }
        Ok(None)
    }

    /// Waits for the child to leave, ends its group, and keeps its output when it failed.
    async fn dismiss(&self, mut spawned: Spawned, answered: bool) {
        drop(spawned.channel);
        let left = answered && tokio::time::timeout(GRACE, spawned.child.wait()).await.is_ok();
        if !left {
            if let Err(error) = group::end(&spawned.identity, GRACE).await {
                tracing::warn!(pid = spawned.identity.pid, %error, "a validator cannot be ended");
            }
            let _ = tokio::time::timeout(GRACE, spawned.child.wait()).await;
        }
        self.registry.unregister(&spawned.identity);
        if answered {
            spawned.capture.discard();
            return;
        }
        let text = spawned.capture.text().await;
        if !text.is_empty()
            && let Err(error) = capture::keep(&self.output, &format!("validator-{}", spawned.identity.pid), &text)
        {
            tracing::warn!(%error, "a validator's output cannot be kept");
        }
    }
}

async fn how_it_ended(child: &mut Child) -> String {
    match tokio::time::timeout(GRACE, child.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it closed its channel".to_owned(),
    }
}

fn died(why: &NoVerdict) -> Validation {
    let message = format!("the output could not be validated: {why}; the step still waits, so submit it again");
    Validation::Rejected(error("validatorDied", message))
}

fn error(code: &str, message: String) -> ErrorInfo {
    ErrorInfo {
        code: Some(code.to_owned()),
        message,
        stack: None,
    }
}
