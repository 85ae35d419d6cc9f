//! Shell nodes: a process described by `exec`, its output given to `parse`.

mod spec;

use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_process::hold::ExitState;
use piw_protocol::child::EffectSettlement;
use piw_protocol::run::ActionReceipt;
use serde_json::{Value, json};

pub(crate) use self::spec::DEFAULT_MAX_CHARS;
use self::spec::ShellSpec;
use super::command::{CommandError, Ending, Finished, LineSink};
use super::effect::{Adopted, Effect, Reserved};
use super::node::{Abort, Context, NodeEnd, Running, error};
use super::publish::PublishError;
use super::receipt;
use crate::child::client::RequestError;
use crate::child::content::Inline;
use crate::script::{CallArgs, CallError, CallbackField, CallbackRef, ScriptHost};

/// Variable in which a command finds the key of its effect.
const EFFECT_KEY: &str = "PIW_EFFECT_KEY";

/// What a process gave: `parse`'s argument, and the node's output without `parse`.
struct Processed {
    result: Value,
    receipt: ActionReceipt,
}

/// Why a line was not taken.
enum LineError {
    /// `parseLine` failed.
    Call(CallError),
    /// Its update was refused.
    Update { line: String, why: String },
    /// The runner has to leave.
    Request(RequestError),
}

impl<H: ScriptHost + Send + Sync + 'static> Context<'_, H> {
    /// Runs a shell node.
    pub(crate) async fn shell(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let effect = Effect::of(running, &self.run_id);
        let extras = effect.as_ref().map(Effect::as_context).unwrap_or_default();
        let args = CallArgs {
            extras: extras.clone(),
            ..self.args(running)
        };
        let described = match self.call(running, CallbackField::Exec, args).await {
            Ok(described) => described,
            Err(failed) => return self.call_failed(failed),
        };
        let mut spec = match ShellSpec::parse(&described, &self.project) {
            Ok(spec) => spec,
            Err(why) => {
                let why = format!("exec of node \"{}\": {why}", running.attempt.node.id);
                return Ok(NodeEnd::failed(error("badCommand", why)));
            }
        };
        if let Some(effect) = &effect {
            match self.reserve(running, effect, &described).await? {
                Reserved::Apply => spec.command.env.push((EFFECT_KEY.to_owned(), effect.key.clone())),
                Reserved::Adopt(Adopted::Output(output)) => return Ok(NodeEnd::ok(output)),
                Reserved::Adopt(Adopted::Process(result)) => return self.parse(running, result, extras).await,
                Reserved::End(end) => return Ok(*end),
            }
        }
        match self.process(running, &spec).await? {
            Ok(processed) => self.applied(running, effect.as_ref(), processed, extras).await,
            Err(end) => match &effect {
                Some(effect) => self.settle_by_end(running, effect, *end).await,
                None => Ok(*end),
            },
        }
    }

    /// The process did its work: what follows can no longer undo it.
    async fn applied(
        &self,
        running: &Running<'_, '_>,
        effect: Option<&Effect>,
        processed: Processed,
        extras: serde_json::Map<String, Value>,
    ) -> Result<NodeEnd, Abort> {
        let Processed { result, receipt } = processed;
        if !running.attempt.node.has_callback(CallbackField::Parse.name()) {
            let end = NodeEnd::ok(result).with_receipt(receipt);
            return match effect {
                Some(effect) => self.settle_by_end(running, effect, end).await,
                None => Ok(end),
            };
        }
        if let Some(effect) = effect {
            let stored = Adopted::Process(result.clone()).to_stored();
            let stored = self.client.value_ref(&stored, &mut Inline::of_message()).await?;
            self.settle_now(running, effect, EffectSettlement::Applied, Some(stored))
                .await?;
        }
        Ok(self.parse(running, result, extras).await?.with_receipt(receipt))
    }

    async fn parse(
        &self,
        running: &Running<'_, '_>,
        result: Value,
        extras: serde_json::Map<String, Value>,
    ) -> Result<NodeEnd, Abort> {
        let args = CallArgs {
            argument: Some(result),
            extras,
            ..self.args(running)
        };
        self.end_of(self.call(running, CallbackField::Parse, args).await)
    }

    /// Runs the process. The inner error is the node's end.
    async fn process(
        &self,
        running: &Running<'_, '_>,
        spec: &ShellSpec,
    ) -> Result<Result<Processed, Box<NodeEnd>>, Abort> {
        let left = running
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = [left, spec.timeout].into_iter().flatten().min();
        let lines = self.line_sink(running);
        let run = match self.commands.run(&spec.command, timeout, &self.leaving, lines).await {
            Ok(run) => run,
            Err(CommandError::Request(error)) => return Err(error.into()),
            Err(CommandError::NotStarted(why)) => {
                let end = NodeEnd::failed(error("commandNotStarted", why));
                return Ok(Err(Box::new(end.with_receipt(receipt::of_unstarted(&spec.command)))));
            }
            Err(CommandError::Line(failed)) => {
                let end = self.line_failed(running, failed)?;
                return Ok(Err(Box::new(end.with_receipt(receipt::of_unstarted(&spec.command)))));
            }
        };
        let receipt = receipt::of_command(&spec.command, &run);
        if run.ending == Ending::Cancelled {
            return Err(Abort::Ordered);
        }
        if run.ending == Ending::TimedOut {
            let end = NodeEnd::timed_out(timed_out(spec, &run, timeout));
            return Ok(Err(Box::new(end.with_receipt(receipt))));
        }
        match failure(spec, &run) {
            Some(why) => {
                let end = NodeEnd::failed(error("commandFailed", why));
                Ok(Err(Box::new(end.with_receipt(receipt))))
            }
            None => Ok(Ok(Processed {
                result: result_of(&run),
                receipt,
            })),
        }
    }

    fn line_failed(&self, running: &Running<'_, '_>, failed: LineError) -> Result<NodeEnd, Abort> {
        match failed {
            LineError::Call(failed) => self.call_failed(failed),
            LineError::Request(error) => Err(error.into()),
            LineError::Update { line, why } => {
                let node = &running.attempt.node.id;
                let mut shown = line;
                receipt::cut(&mut shown, 200);
                Ok(NodeEnd::failed(error(
                    "updateRefused",
                    format!("update of node \"{node}\" from line {shown:?}: {why}"),
                )))
            }
        }
    }

    /// Makes updates of lines, when the node wants that.
    fn line_sink(&self, running: &Running<'_, '_>) -> Option<LineSink<LineError>> {
        let node = running.attempt.node;
        if !node.has_callback(CallbackField::ParseLine.name()) {
            return None;
        }
        let callback = CallbackRef {
            scope: node.mount.clone(),
            node: Some(node.local_id.clone()),
            field: CallbackField::ParseLine,
        };
        let (host, publisher) = (Arc::clone(&self.host), Arc::clone(&self.publisher));
        let (attempt, args) = (running.attempt.id.clone(), self.args(running));
        Some(Arc::new(move |stream, line| {
            let (host, publisher) = (Arc::clone(&host), Arc::clone(&publisher));
            let (attempt, callback, mut args) = (attempt.clone(), callback.clone(), args.clone());
            args.argument = Some(json!({ "line": line, "stream": stream.name() }));
            Box::pin(async move {
                let updates = match super::node::bounded_call(&*host, callback, args)
                    .await
                    .map_err(LineError::Call)?
                {
                    Value::Null => return Ok(()),
                    Value::Array(updates) => updates,
                    update => vec![update],
                };
                for update in updates {
                    match publisher.publish_paced(&attempt, update).await {
                        Ok(()) => {}
                        Err(PublishError::Refused(why)) => return Err(LineError::Update { line, why }),
                        Err(PublishError::Request(error)) => return Err(LineError::Request(error)),
                    }
                }
                Ok(())
            })
        }))
    }
}

/// Why a command that ended by itself fails its node; `None` when it does not.
fn failure(spec: &ShellSpec, run: &Finished) -> Option<String> {
    let name = &spec.command.command;
    let how = match run.exit {
        Some(ExitState::Code(0)) => return None,
        Some(ExitState::Code(_)) if spec.allow_non_zero_exit => return None,
        Some(ExitState::Code(code)) => format!("exited with code {code}"),
        Some(ExitState::Signal(signal)) => format!("was ended by {}", receipt::signal_name(signal)),
        None => "ended in a way that the system does not tell".to_owned(),
    };
    Some(format!("\"{name}\" {how}{}", last_words(run)))
}

fn timed_out(spec: &ShellSpec, run: &Finished, timeout: Option<Duration>) -> String {
    let after = timeout.map_or(0, receipt::millis);
    format!(
        "\"{}\" was stopped after {after} ms, the time it had{}",
        spec.command.command,
        last_words(run)
    )
}

/// The end of what a command wrote to standard error.
pub(crate) fn last_words(run: &Finished) -> String {
    const LINES: usize = 5;
    const CHARS: usize = 1000;
    let text = run.stderr.text.trim_end();
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
    let mut tail: String = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
    if let Some((from, _)) = tail.char_indices().rev().nth(CHARS) {
        tail = format!("… {}", &tail[from..]);
    }
    format!(": {tail}")
}

/// The process result as code sees it.
fn result_of(run: &Finished) -> Value {
    let (exit_code, signal) = match run.exit {
        Some(ExitState::Code(code)) => (json!(code), Value::Null),
        Some(ExitState::Signal(signal)) => (Value::Null, json!(receipt::signal_name(signal))),
        None => (Value::Null, Value::Null),
    };
    json!({
        "exitCode": exit_code,
        "signal": signal,
        "stdout": run.stdout.text,
        "stderr": run.stderr.text,
        "stdoutTruncated": run.stdout.truncated,
        "stderrTruncated": run.stderr.truncated,
        "durationMs": receipt::millis(run.duration),
    })
}
