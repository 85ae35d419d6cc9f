//! Agent steps: a model is asked, its submission is checked, and it is told what is wrong with it. A run that is bound to a
//! session asks there, and its runner leaves; any other asks an agent of its own.
//!
//! For such an agent, `validate` runs in this process's script host, under a deadline of its own: the runner is a supervised child
//! already and lives as long as its request, so that a validator that dies takes nothing with it that a further child would have
//! saved.
//!
//! | module | subject |
//! | --- | --- |
//! | [`executor`] | what an agent is |
//! | [`command`], [`answer`] | any command as an agent, and what it submits |
//! | [`pi`], [`rpc`], [`tool`] | the Pi coding agent: its process, its records, its calls of our tool |
//! | [`config`] | which agent the user wants |

mod answer;
mod command;
pub(crate) mod config;
mod executor;
mod pi;
mod rpc;
mod tool;

use std::time::{Duration, Instant};

use piw_engine::limits;
use piw_engine::prompt::{self, Contract, Reminder, TASK_LIMIT};
use piw_engine::value::kind;
use piw_protocol::child::ChildBody;
use serde_json::Value;

use self::command::CommandAgent;
use self::config::Agent;
use self::executor::{Event, Executor, Stop, Work};
use self::pi::PiAgent;
use super::node::{Abort, Context, NodeEnd, Running, error};
use super::publish::PublishError;
use super::receipt;
use crate::child::content::Inline;
use crate::script::{CallArgs, CallErrorKind, CallbackField, ScriptHost};

/// Reminders after turns that end without an accepted submission; one more such turn fails the attempt.
const REMINDERS: u32 = 2;
/// How an agent command submits.
const COMPLETION: &str = "Do the task, then print the JSON value that the expected output describes as the last thing. Print no \
                          other JSON object or array after it. The step is complete only when this value is accepted.";

/// What became of a submission.
pub(crate) enum Verdict {
    /// The normalised value.
    Accepted(Value),
    /// Why it is refused.
    Rejected(String),
    /// The step ends with it.
    End(Box<NodeEnd>),
}

/// Why a turn brought nothing.
enum Missing {
    Nothing(String),
    Rejected { submission: String, why: String },
}

impl Missing {
    fn why(&self) -> &str {
        match self {
            Self::Nothing(why) | Self::Rejected { why, .. } => why,
        }
    }

    fn as_reminder(&self) -> Reminder<'_> {
        match self {
            Self::Nothing(why) => Reminder::Nothing { why },
            Self::Rejected { submission, why } => Reminder::Rejected { submission, why },
        }
    }
}

impl<H: ScriptHost + Send + Sync + 'static> Context<'_, H> {
    /// Runs an agent step.
    pub(crate) async fn agent(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let node = running.attempt.node;
        let task = match self.task(running).await? {
            Ok(task) => task,
            Err(end) => return Ok(*end),
        };
        if self.interactive {
            return self.request(running, &task).await;
        }
        let configured = config::agent().and_then(|agent| match config::refusal(&agent, node) {
            Some(why) => Err(why),
            None => Ok(agent),
        });
        let configured = match configured {
            Ok(agent) => agent,
            Err(why) => return Ok(NodeEnd::failed(error("agentUnavailable", why))),
        };
        let completion = match &configured {
            Agent::Command(_) => COMPLETION.to_owned(),
            Agent::Pi(_) => tool::completion(&running.attempt.id),
        };
        let expected = node.spec.expected_output.clone().unwrap_or_default();
        let contract = self.contract(running, &task, &expected, &completion);
        let prompt = contract.prompt(None);
        let shown = Value::String(prompt);
        let stored = self.client.value_ref(&shown, &mut Inline::of_message()).await?;
        piw_fault::point!("runner::before_prompt");
        let body = ChildBody::NodePrompted { prompt: stored };
        self.client.request(Some(&running.attempt.id), body).await?;
        piw_fault::point!("runner::after_prompt");
        match configured {
            Agent::Command(command) => {
                let work = self.work(running);
                self.ask(running, &contract, CommandAgent::new(command, work)).await
            }
            Agent::Pi(command) => {
                let extension = match pi::extension() {
                    Ok(path) => path,
                    Err(why) => return Ok(NodeEnd::failed(error("agentNotStarted", why))),
                };
                let allowed = node.spec.allowed_tools.as_deref();
                let agent = PiAgent::new(command, &extension, allowed, self.work(running));
                self.ask(running, &contract, agent).await
            }
        }
    }

    /// What every agent of an attempt works with.
    fn work<'a>(&'a self, running: &'a Running<'_, '_>) -> Work<'a> {
        Work {
            commands: &self.commands,
            cwd: &self.project,
            request: &running.attempt.id,
            deadline: running.deadline,
            cancel: &self.leaving,
        }
    }

    /// Converses with an agent and ends it.
    async fn ask(
        &self,
        running: &Running<'_, '_>,
        contract: &Contract<'_>,
        mut agent: impl Executor,
    ) -> Result<NodeEnd, Abort> {
        let end = self.converse(running, contract, &mut agent).await;
        agent.close().await;
        let end = end?;
        Ok(match agent.receipt() {
            Some(receipt) => end.with_receipt(receipt),
            None => end,
        })
    }

    fn contract<'a>(
        &'a self,
        running: &'a Running<'_, '_>,
        task: &'a str,
        expected: &'a Value,
        completion: &'a str,
    ) -> Contract<'a> {
        Contract {
            task,
            workflow: &self.definition.snapshot().name,
            step: &running.attempt.node.id,
            visit: running.attempt.visit,
            request: &running.attempt.id,
            expected,
            completion,
        }
    }

    /// Lets the run's session be asked; this generation is over then.
    async fn request(&self, running: &Running<'_, '_>, task: &str) -> Result<NodeEnd, Abort> {
        let spec = &running.attempt.node.spec;
        let completion = if spec.replies_visibly() {
            prompt::REPLY_VISIBLY
        } else {
            prompt::SUBMIT_BY_TOOL
        };
        let expected = spec.expected_output.clone().unwrap_or_default();
        let prompt = Value::String(self.contract(running, task, &expected, completion).prompt(None));
        let prompt = self.client.value_ref(&prompt, &mut Inline::of_message()).await?;
        piw_fault::point!("runner::before_request");
        let body = ChildBody::InteractionRequested { prompt };
        self.client.request(Some(&running.attempt.id), body).await?;
        piw_fault::point!("runner::after_request");
        Err(Abort::Requested)
    }

    /// The author's prompt; the inner error is the node's end.
    async fn task(&self, running: &Running<'_, '_>) -> Result<Result<String, Box<NodeEnd>>, Abort> {
        let node = &running.attempt.node.id;
        let bad = |why: String| Ok(Err(Box::new(NodeEnd::failed(error("badValue", why)))));
        match self.call(running, CallbackField::Prompt, self.args(running)).await {
            Ok(Value::String(task)) if task.len() > TASK_LIMIT => bad(format!(
                "the prompt of node \"{node}\" has {} bytes; at most {TASK_LIMIT} are allowed",
                task.len()
            )),
            Ok(Value::String(task)) => Ok(Ok(task)),
            Ok(other) => bad(format!(
                "the prompt of node \"{node}\" must be a string, not {}",
                kind(&other)
            )),
            Err(failed) => Ok(Err(Box::new(self.call_failed(failed)?))),
        }
    }

    /// Takes turns with an agent until a submission is accepted or there is no more use in asking.
    async fn converse(
        &self,
        running: &Running<'_, '_>,
        contract: &Contract<'_>,
        agent: &mut impl Executor,
    ) -> Result<NodeEnd, Abort> {
        let node = &running.attempt.node.id;
        let mut missing: Option<Missing> = None;
        for turn in 0..=REMINDERS {
            agent.say(contract, missing.as_ref().map(Missing::as_reminder));
            missing = None;
            let stop = loop {
                let submission = match agent.next().await? {
                    Event::Submission(submission) => submission,
                    Event::Update(update) => {
                        match self.publisher.publish(&running.attempt.id, update).await {
                            Ok(()) => agent.answer(Ok(())),
                            Err(PublishError::Refused(why)) => agent.answer(Err(&why)),
                            Err(PublishError::Request(error)) => return Err(error.into()),
                        }
                        continue;
                    }
                    Event::TurnEnd(stop) => break stop,
                };
                match self.judge(running, &submission).await? {
                    Verdict::Accepted(output) => {
                        piw_fault::point!("runner::submission_accepted");
                        agent.answer(Ok(()));
                        return Ok(NodeEnd::ok(output));
                    }
                    Verdict::End(end) => return Ok(*end),
                    Verdict::Rejected(why) => {
                        agent.answer(Err(&why));
                        missing = Some(Missing::Rejected {
                            submission: submission.to_string(),
                            why,
                        });
                    }
                }
            };
            let found = match stop {
                Stop::Cancelled => return Err(Abort::Ordered),
                Stop::TimedOut => return Ok(NodeEnd::timed_out(overdue(running))),
                Stop::NotStarted(why) => return Ok(NodeEnd::failed(error("agentNotStarted", why))),
                Stop::Completed(why) | Stop::Failed(why) => missing.take().unwrap_or(Missing::Nothing(why)),
            };
            let what = match &found {
                Missing::Nothing(_) => "submitted nothing",
                Missing::Rejected { .. } => "was rejected",
            };
            let turn = turn + 1;
            self.client.print(
                "stderr",
                format!("agent of node \"{node}\", turn {turn}: {what}: {}", found.why()),
            );
            missing = Some(found);
        }
        let why = missing.as_ref().map(Missing::why).unwrap_or_default();
        let why = format!(
            "the agent of node \"{node}\" had no submission accepted in {} turns: {why}",
            REMINDERS + 1
        );
        Ok(NodeEnd::failed(error("noSubmission", why)))
    }

    /// Lets `validate` say whether a submission is what was asked for.
    pub(crate) async fn judge(&self, running: &Running<'_, '_>, submission: &Value) -> Result<Verdict, Abort> {
        piw_fault::point!("runner::submitted");
        if let Err(deep) = piw_engine::value::check_depth(submission) {
            return Ok(Verdict::Rejected(deep.to_string()));
        }
        if !running.attempt.node.has_callback(CallbackField::Validate.name()) {
            return Ok(Verdict::Accepted(submission.clone()));
        }
        let bound = Instant::now() + Duration::from_millis(limits::CALLBACK_MS);
        let args = CallArgs {
            argument: Some(submission.clone()),
            deadline: Some(running.deadline.map_or(bound, |deadline| deadline.min(bound))),
            ..self.args(running)
        };
        Ok(match self.call(running, CallbackField::Validate, args).await {
            Ok(output) => Verdict::Accepted(output),
            Err(failed) => match failed.kind {
                CallErrorKind::Cancelled | CallErrorKind::Stuck | CallErrorKind::Exit { .. } => {
                    Verdict::End(Box::new(self.call_failed(failed)?))
                }
                _ => Verdict::Rejected(failed.message),
            },
        })
    }
}

fn overdue(running: &Running<'_, '_>) -> String {
    format!(
        "the agent of node \"{}\" was stopped after {} ms, the time the step had",
        running.attempt.node.id,
        running.attempt.timeout.map_or(0, receipt::millis)
    )
}
