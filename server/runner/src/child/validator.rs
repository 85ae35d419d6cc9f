//! The validator: loads a workflow as it was frozen, runs `validate` of one node for one submission, and says what came of it.
//!
//! It speaks the runner's protocol as far as it needs it: content in both directions and its result. It executes nothing else, so
//! that a submission is judged the same however often it is.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use piw_protocol::child::{ChildBody, ExecutionState, RunnerLaunch, VALIDATE_SCHEMA, Validation, ValidatorLaunch};
use piw_protocol::run::ErrorInfo;
use tokio_util::sync::CancellationToken;

use super::channel;
use super::client::{Client, Order};
use super::runner::prepare;
use crate::child::content::Inline;
use crate::exec::agent::Verdict;
use crate::exec::command::Commands;
use crate::exec::execution::{Execution, Exit};
use crate::exec::node::{Attempt, Context, Running, bounded, error};
use crate::exec::publish::Publisher;
use crate::script::{ScriptHost, ScriptOptions};

/// Serves one submission. `Err`: there is no verdict, which the server takes for a rejection.
pub(crate) async fn serve<H, F>(stream: UnixStream, start_host: F) -> Result<(), String>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let (mut reader, writer) = channel::open(stream).map_err(|error| error.to_string())?;
    let launch = reader.next::<ValidatorLaunch>().await;
    let Some(validate) = launch.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    if validate.schema != VALIDATE_SCHEMA {
        return Err(format!(
            "the launch has the schema \"{}\", not \"{VALIDATE_SCHEMA}\"",
            validate.schema
        ));
    }
    let client = Client::start(&validate.launch, reader, writer);
    let judged = tokio::select! {
        judged = judge(&client, validate, start_host) => judged?,
        // The server is gone.
        () = client.ordered(Order::Cancel) => return Ok(()),
    };
    client.settle().await;
    piw_fault::point!("validator::before_answer");
    let said = client.request(None, ChildBody::ValidationFinished(judged)).await;
    said.map(drop).map_err(|error| error.to_string())
}

async fn judge<H, F>(client: &Client, validate: ValidatorLaunch, start_host: F) -> Result<Validation, String>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let ValidatorLaunch {
        launch,
        state,
        node_id,
        visit,
        attempt_id,
        submission,
        ..
    } = validate;
    let commands = Commands::new(client.clone());
    let ready = match prepare(client, &launch, &commands, start_host).await {
        Ok(ready) => ready,
        Err(Exit::Park { reason, message }) => return Ok(rejected(error(reason, message))),
        Err(Exit::Broken(why)) => return Err(why),
        Err(exit) => return Err(format!("{exit:?}")),
    };
    let node = ready
        .definition
        .node(&node_id)
        .ok_or_else(|| format!("node \"{node_id}\" is unknown"))?;
    let context = Context {
        client: client.clone(),
        host: ready.host,
        definition: &ready.definition,
        commands,
        publisher: Arc::new(Publisher::new(client.clone())),
        run_id: launch.run_id.clone(),
        project: PathBuf::from(&launch.project_path),
        interactive: true,
        leaving: CancellationToken::new(),
    };
    let mut execution = Execution::new(context, ready.inputs);
    restore(client, &mut execution, state, &launch).await?;
    let submission = client.value(submission).await.map_err(|error| error.to_string())?;
    let attempt = Attempt {
        id: attempt_id,
        node,
        visit,
        timeout: None,
        refused: None,
    };
    let running = Running {
        attempt: &attempt,
        deadline: None,
    };
    let verdict = execution.context.judge(&running, &submission).await;
    Ok(match verdict.map_err(|abort| abort.to_string())? {
        Verdict::Accepted(output) => match client.value_ref(&output, &mut Inline::of_message()).await {
            Ok(output) => Validation::Accepted(output),
            Err(failed) => rejected(error("badValue", failed.to_string())),
        },
        Verdict::Rejected(why) => rejected(error("rejected", why)),
        Verdict::End(end) => rejected(
            end.error
                .map_or_else(|| error("rejected", "validate gave no verdict".to_owned()), bounded),
        ),
    })
}

/// Shows `validate` the run as it stands.
async fn restore<H: ScriptHost + Send + Sync + 'static>(
    client: &Client,
    execution: &mut Execution<'_, H>,
    state: piw_protocol::child::ValueRef,
    launch: &RunnerLaunch,
) -> Result<(), String> {
    let state = client.value(state).await.map_err(|error| error.to_string())?;
    let state: ExecutionState = serde_json::from_value(state).map_err(|error| error.to_string())?;
    let restored = execution.restore(state, &launch.input_hash).await;
    restored.map(drop).map_err(|abort| abort.to_string())
}

fn rejected(error: ErrorInfo) -> Validation {
    Validation::Rejected(error)
}
