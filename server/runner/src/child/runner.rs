//! The runner: verifies the frozen sources, loads them, says that it is ready, executes what it is told to, and leaves.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use piw_engine::Definition;
use piw_protocol::canonical;
use piw_protocol::child::{CHILD_PROTOCOL_VERSION, ChildBody, Command, LAUNCH_SCHEMA, ReplyPayload, RunnerLaunch};

use tokio_util::sync::CancellationToken;

use super::channel::{self, ChannelError};
use super::client::{Client, Order, RequestError};
use super::source::{self, Lookup, SourceChanged};
use crate::discover::Places;
use crate::exec::batch::BatchCommands;
use crate::exec::command::Commands;
use crate::exec::execution::{Execution, Exit};
use crate::exec::node::Context;
use crate::exec::planning::InputCallbacks;
use crate::exec::publish::Publisher;
use crate::script::{ConsoleLevel, LoadError, LoadErrorKind, Loaded, ScriptHost, ScriptOptions};

/// Park reason of a source that differs from the frozen one.
const SOURCE_CHANGED: &str = "workflowSourceChanged";
/// Park reason of a module that does not finish loading.
const TIMED_OUT: &str = "runnerTimedOut";
/// How long the last messages may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Exit code of a runner whose script thread did not come back.
const STUCK: u8 = 3;
/// Exit code of a runner that found something broken.
const BROKEN: u8 = 4;

/// A loaded and checked workflow.
pub(super) struct Ready<H> {
    pub(super) host: Arc<H>,
    pub(super) definition: Definition,
    pub(super) inputs: InputCallbacks,
}

/// Serves one generation of one run.
pub(crate) async fn serve<H, F>(stream: UnixStream, start_host: F) -> ExitCode
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let (client, launch) = match open(stream).await {
        Ok(Some(opened)) => opened,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "no launch");
            return ExitCode::from(BROKEN);
        }
    };
    piw_fault::point!("runner::launched");
    let commands = Commands::new(client.clone());
    let exit = generation(&client, &launch, &commands, start_host).await;
    piw_fault::point!("runner::before_leave");
    Commands::end_all().await;
    let code = leave(&client, exit).await;
    piw_fault::point!("runner::before_exit");
    code
}

async fn open(stream: UnixStream) -> Result<Option<(Client, RunnerLaunch)>, ChannelError> {
    let (mut reader, writer) = channel::open(stream)?;
    let Some(launch) = reader.next::<RunnerLaunch>().await? else {
        return Ok(None);
    };
    let client = Client::start(&launch, reader, writer);
    Ok(Some((client, launch)))
}

async fn generation<H, F>(client: &Client, launch: &RunnerLaunch, commands: &Commands, start_host: F) -> Exit
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    if launch.schema != LAUNCH_SCHEMA || launch.protocol_version != CHILD_PROTOCOL_VERSION {
        return Exit::Broken(format!(
            "the launch has schema \"{}\" and version {}, not \"{LAUNCH_SCHEMA}\" and {CHILD_PROTOCOL_VERSION}",
            launch.schema, launch.protocol_version
        ));
    }
    let ready = tokio::select! {
        ready = prepare(client, launch, commands, start_host) => ready,
        () = client.ordered(Order::Stop) => return Exit::Ordered(client.order()),
    };
    let ready = match ready {
        Ok(ready) => ready,
        Err(exit) => return exit,
    };
    piw_fault::point!("runner::before_ready");
    let command = match say_ready(client, &ready.definition).await {
        Ok(command) => command,
        Err(exit) => return exit,
    };
    piw_fault::point!("runner::commanded");
    let Ready {
        host,
        definition,
        inputs,
    } = ready;
    let context = Context {
        client: client.clone(),
        host,
        definition: &definition,
        commands: commands.clone(),
        publisher: Arc::new(Publisher::new(client.clone())),
        run_id: launch.run_id.clone(),
        project: PathBuf::from(&launch.project_path),
        interactive: launch.interactive,
        leaving: CancellationToken::new(),
    };
    Execution::new(context, inputs).run(command, &launch.input_hash).await
}

/// Verifies, loads, verifies again.
pub(super) async fn prepare<H, F>(
    client: &Client,
    launch: &RunnerLaunch,
    commands: &Commands,
    start_host: F,
) -> Result<Ready<H>, Exit>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let verified = source::verify(&launch.workflow_source).map_err(|change| source_changed(&change))?;
    let project = PathBuf::from(&launch.project_path);
    if !project.is_dir() {
        return Err(changed(format!(
            "the project directory {} does not exist any more",
            project.display()
        )));
    }
    let options = options(client, launch, commands, verified.files);
    let host = start_host(options).map_err(|error| Exit::Broken(format!("the script host cannot start: {error}")))?;
    let loaded = host.load(verified.root).await.map_err(load_failed)?;
    let definition = check(launch, &loaded)?;
    Ok(Ready {
        host: Arc::new(host),
        definition,
        inputs: InputCallbacks::of(&loaded.raw),
    })
}

fn options(
    client: &Client,
    launch: &RunnerLaunch,
    commands: &Commands,
    files: BTreeMap<PathBuf, Arc<[u8]>>,
) -> ScriptOptions {
    let project = PathBuf::from(&launch.project_path);
    let places = Places {
        project: project.clone(),
        global: launch.global_dir.as_ref().map(PathBuf::from),
    };
    let console = client.clone();
    ScriptOptions {
        console: Arc::new(move |level, text| {
            let stream = if matches!(level, ConsoleLevel::Warn | ConsoleLevel::Error) {
                "stderr"
            } else {
                "stdout"
            };
            console.print(stream, text.to_owned());
        }),
        workflows: Arc::new(Lookup {
            places,
            files: files.clone(),
        }),
        commands: Some(Arc::new(BatchCommands::new(commands.clone(), project.clone()))),
        verified: files,
        ..ScriptOptions::new(project)
    }
}

/// The loaded definition must be the frozen one: every source and the graph.
fn check(launch: &RunnerLaunch, loaded: &Loaded) -> Result<Definition, Exit> {
    source::compare(&launch.workflow_source, &source::source_map(loaded)).map_err(|change| source_changed(&change))?;
    let definition = piw_engine::compile(&loaded.raw).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        changed(format!("the workflow does not pass its checks any more: {first}"))
    })?;
    if definition.digest() != launch.definition_digest {
        return Err(changed(format!(
            "the resolved graph changed since the run started, though its files did not (digest {} then, {} now)",
            launch.definition_digest,
            definition.digest()
        )));
    }
    Ok(definition)
}

async fn say_ready(client: &Client, definition: &Definition) -> Result<Command, Exit> {
    let body = ChildBody::Ready {
        definition_digest: definition.digest().to_owned(),
    };
    let accepted = client.request(None, body).await.map_err(|error| match error {
        RequestError::ClaimLost | RequestError::Closed => Exit::Ordered(client.order()),
        broken => Exit::Broken(broken.to_string()),
    })?;
    match accepted.payload {
        Some(ReplyPayload::Command(command)) => Ok(*command),
        Some(ReplyPayload::CommandContent(content)) => {
            let bytes = client
                .get_content(&content)
                .await
                .map_err(|error| Exit::Broken(error.to_string()))?;
            canonical::from_slice(&bytes).map_err(|error| Exit::Broken(format!("the command is not valid: {error}")))
        }
        other => Err(Exit::Broken(format!("runner.ready was answered with {other:?}"))),
    }
}

/// Says what there is to say and how the process ends.
async fn leave(client: &Client, exit: Exit) -> ExitCode {
    let (reason, code) = match &exit {
        Exit::Done => ("done".to_owned(), ExitCode::SUCCESS),
        Exit::Ordered(Order::ClaimLost | Order::Closed) => return ExitCode::SUCCESS,
        Exit::Ordered(Order::Cancel) => ("cancelled".to_owned(), ExitCode::SUCCESS),
        Exit::Ordered(_) => ("stopped".to_owned(), ExitCode::SUCCESS),
        Exit::Park { reason, .. } => ((*reason).to_owned(), ExitCode::SUCCESS),
        Exit::Stuck => ("the script thread does not answer".to_owned(), ExitCode::from(STUCK)),
        Exit::Broken(why) => {
            tracing::error!(why, "the generation cannot go on");
            (why.clone(), ExitCode::from(BROKEN))
        }
    };
    let farewell = async {
        if let Exit::Park { reason, message } = exit {
            let body = ChildBody::RunParked {
                reason: reason.to_owned(),
                message,
            };
            if let Err(error) = client.request(None, body).await {
                tracing::error!(%error, "the run cannot be parked");
            }
        }
        client.settle().await;
        // After the run's end the claim is gone, and so may be the server's interest.
        let _ = client.request(None, ChildBody::Exiting { reason }).await;
    };
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
    code
}

fn changed(message: String) -> Exit {
    Exit::Park {
        reason: SOURCE_CHANGED,
        message,
    }
}

fn source_changed(change: &SourceChanged) -> Exit {
    changed(change.to_string())
}

fn load_failed(error: LoadError) -> Exit {
    match error.kind {
        LoadErrorKind::TimedOut | LoadErrorKind::Stuck => Exit::Park {
            reason: TIMED_OUT,
            message: error.message,
        },
        _ => changed(format!("the workflow does not load any more: {}", error.message)),
    }
}
