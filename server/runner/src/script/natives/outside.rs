//! Operations that the code around the host performs: the commands of `runCommandBatch`, and `publishUpdate`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rquickjs::{Ctx, Exception, Function, Object, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::script::api::CommandRequest;
use crate::script::shared::{Child, Event, Shared};

/// A command of `runCommandBatch` as JavaScript describes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchCommand {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    timeout_ms: Option<f64>,
    max_output_chars: Option<usize>,
}

pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let at = Rc::clone(shared);
    host.set(
        "runCommand",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, id: u32, command: String| -> Result<()> {
                at.effect(&ctx, "runCommandBatch")?;
                let Some(commands) = at.options.commands.clone() else {
                    return Err(Exception::throw_message(
                        &ctx,
                        "runCommandBatch: no commands can be run here",
                    ));
                };
                let command: BatchCommand = serde_json::from_str(&command).map_err(|error| {
                    Exception::throw_type(&ctx, &format!("runCommandBatch: malformed command: {error}"))
                })?;
                let request = CommandRequest {
                    command: command.command,
                    args: command.args,
                    cwd: command.cwd,
                    env: command.env,
                    stdin: command.stdin,
                    timeout: command
                        .timeout_ms
                        .and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
                    max_output_chars: command.max_output_chars,
                };
                // Ended with the call: by its cancellation, or because the call is over.
                let cancel = at.cancel.borrow().child_token();
                at.children.borrow_mut().insert(
                    id,
                    Child {
                        pid: 0,
                        stdin: None,
                        gone: cancel.clone(),
                        exited: CancellationToken::new(),
                    },
                );
                at.pending.set(at.pending.get() + 1);
                let (call, events) = (at.call.get(), at.events.clone());
                tokio::spawn(async move {
                    let result = match commands.run(request, cancel).await {
                        Ok(receipt) => serde_json::to_string(&receipt).map_err(|error| error.to_string()),
                        Err(message) => Err(message),
                    };
                    let result = result.map_err(|message| json!({ "message": message }).to_string());
                    let _ = events.send(Event::Done { call, id, result }).await;
                });
                Ok(())
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "publish",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, id: u32, update: String| -> Result<()> {
                at.effect(&ctx, "publishUpdate")?;
                let Some(publish) = at.publish.borrow().clone() else {
                    return Err(Exception::throw_message(
                        &ctx,
                        "updates can be published only while an action or shell node runs",
                    ));
                };
                let update: Value = serde_json::from_str(&update).unwrap_or(Value::Null);
                at.pending.set(at.pending.get() + 1);
                let (call, events) = (at.call.get(), at.events.clone());
                tokio::spawn(async move {
                    let result = match publish(update).await {
                        Ok(()) => Ok("null".to_owned()),
                        Err(message) => Err(json!({ "message": message }).to_string()),
                    };
                    let _ = events.send(Event::Done { call, id, result }).await;
                });
                Ok(())
            },
        )?,
    )
}
