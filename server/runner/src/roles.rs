//! The entry points of the two roles.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::child::{fd, resolver, runner};
use crate::script::{ScriptHost, ScriptOptions};

/// Exit code of a role that could not begin.
const NOT_STARTED: u8 = 2;

/// Loads one definition for the server on the channel `fd`, answers, and ends. Returns the process's exit code.
#[must_use]
pub fn run_resolver(fd: RawFd) -> ExitCode {
    start(fd, "resolver", |stream| {
        serve_resolver(stream, crate::script::ScriptHandle::start)
    })
}

/// Executes one generation of one run for the server on the channel `fd`. Returns the process's exit code: 0 when it left in
/// order, 3 when user code did not give up control, 4 when something was broken.
#[must_use]
pub fn run_runner(fd: RawFd) -> ExitCode {
    start(fd, "runner", |stream| {
        // Daemons of user code must not outlive their node.
        piw_process::tree::become_subreaper()?;
        serve_runner(stream, crate::script::ScriptHandle::start)
    })
}

/// The resolver on an open channel, with a script host of the caller's choice.
///
/// # Errors
/// When there is no event loop.
pub fn serve_resolver<H, F>(stream: UnixStream, start_host: F) -> io::Result<ExitCode>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let runtime = runtime()?;
    let served = runtime.block_on(resolver::serve(stream, start_host));
    // A thread that never comes back must not keep the process.
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "no answer could be given");
            ExitCode::FAILURE
        }
    })
}

/// The runner on an open channel, with a script host of the caller's choice.
///
/// # Errors
/// When there is no event loop.
pub fn serve_runner<H, F>(stream: UnixStream, start_host: F) -> io::Result<ExitCode>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let runtime = runtime()?;
    let code = runtime.block_on(runner::serve(stream, start_host));
    // A thread that never comes back must not keep the process.
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(code)
}

fn start(fd: RawFd, role: &str, serve: impl FnOnce(UnixStream) -> io::Result<ExitCode>) -> ExitCode {
    match fd::adopt(fd).and_then(serve) {
        Ok(code) => code,
        Err(error) => {
            // The server captures standard error; a person who typed the command sees it.
            eprintln!("piw internal {role}: {error}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// One thread: user code has its own, everything else waits for something.
fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
