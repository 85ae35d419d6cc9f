//! The entry points of the roles.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::child::{fd, resolver, runner, validator};
use crate::exec::command::Commands;
use crate::script::ScriptHandle;

/// Exit code of a role that could not begin.
const NOT_STARTED: u8 = 2;

/// Loads one definition for the server on the channel `fd`, answers, and ends. Returns the process's exit code.
#[must_use]
pub fn run_resolver(fd: RawFd) -> ExitCode {
    start(fd, "resolver", |stream| async {
        let served = resolver::serve(stream, ScriptHandle::start).await;
        // What a module started while it was loaded.
        Commands::end_all().await;
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(%error, "no answer could be given");
                ExitCode::FAILURE
            }
        }
    })
}

/// Executes one generation of one run for the server on the channel `fd`. Returns the process's exit code: 0 when it left in
/// order, 3 when user code did not give up control, 4 when something was broken.
#[must_use]
pub fn run_runner(fd: RawFd) -> ExitCode {
    start(fd, "runner", |stream| runner::serve(stream, ScriptHandle::start))
}

/// Runs `validate` of one node for one submission, for the server on the channel `fd`, and ends. Returns the process's exit code.
#[must_use]
pub fn run_validator(fd: RawFd) -> ExitCode {
    start(fd, "validator", |stream| async {
        let served = validator::serve(stream, ScriptHandle::start).await;
        // What user code started while it was loaded or asked.
        Commands::end_all().await;
        match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                tracing::error!(why, "no verdict could be given");
                ExitCode::FAILURE
            }
        }
    })
}

fn start<F>(fd: RawFd, role: &str, serve: impl FnOnce(UnixStream) -> F) -> ExitCode
where
    F: Future<Output = ExitCode> + Send + 'static,
{
    match run(fd, serve) {
        Ok(code) => code,
        Err(error) => {
            // The server captures standard error; a person who typed the command sees it.
            eprintln!("piw internal {role}: {error}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn run<F>(fd: RawFd, serve: impl FnOnce(UnixStream) -> F) -> io::Result<ExitCode>
where
    F: Future<Output = ExitCode> + Send + 'static,
{
    let stream = fd::adopt(fd)?;
    // Daemons of user code must not outlive it.
    piw_process::tree::become_subreaper()?;
    // One thread: user code has its own, everything else waits for something.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // As a task of its own: what wakes the future that a runtime blocks on goes through the system, also from its own thread.
    let served = runtime.block_on(async { tokio::spawn(serve(stream)).await });
    let code = served.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    // A thread that never comes back must not keep the process.
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(code)
}
