//! Commands that script code runs through `runCommandBatch`.

use std::convert::Infallible;
use std::path::PathBuf;

use piw_protocol::run::ActionReceipt;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::command::{CommandError, CommandSpec, Commands, Ending};
use super::receipt;
use super::shell::DEFAULT_MAX_CHARS;
use crate::script::{CommandHost, CommandRequest, HostFuture};

/// Runs commands for the script host, registered like those of shell nodes.
#[derive(Debug)]
pub(crate) struct BatchCommands {
    commands: Commands,
    project: PathBuf,
    runtime: Handle,
}

impl BatchCommands {
    /// Must be called inside the runner's runtime.
    pub(crate) fn new(commands: Commands, project: PathBuf) -> Self {
        Self {
            commands,
            project,
            runtime: Handle::current(),
        }
    }
}

impl CommandHost for BatchCommands {
    fn run(&self, request: CommandRequest, cancel: CancellationToken) -> HostFuture<Result<ActionReceipt, String>> {
        let spec = CommandSpec {
            command: request.command,
            args: request.args,
            cwd: request
                .cwd
                .map_or_else(|| self.project.clone(), |cwd| self.project.join(cwd)),
            env: request.env.into_iter().collect(),
            stdin: request.stdin,
            max_chars: request.max_output_chars.unwrap_or(DEFAULT_MAX_CHARS),
        };
        let (commands, timeout) = (self.commands.clone(), request.timeout);
        let task = self.runtime.spawn(async move {
            let run = commands.run::<Infallible>(&spec, timeout, &cancel, None).await;
            match run {
                Ok(run) if run.ending == Ending::Cancelled => Err(format!("\"{}\" was cancelled", spec.command)),
                Ok(run) => Ok(receipt::complete(&spec, &run)),
                Err(CommandError::NotStarted(why)) => Err(why),
                Err(CommandError::Request(error)) => Err(error.to_string()),
                Err(CommandError::Line(never)) => match never {},
            }
        });
        Box::pin(async move { task.await.unwrap_or_else(|_| Err("the runner is leaving".to_owned())) })
    }
}
