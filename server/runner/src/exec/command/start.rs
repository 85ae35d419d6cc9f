//! Why a command did not start, in words that say what to change.

use std::io;

use super::CommandSpec;

/// Why the process could not be made.
pub(super) fn spawn_error(spec: &CommandSpec, error: &io::Error) -> String {
    let cwd = spec.cwd.display();
    match std::fs::metadata(&spec.cwd) {
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => {
            format!(
                "cannot start \"{}\": its working directory {cwd} does not exist",
                spec.command
            )
        }
        Err(problem) => format!(
            "cannot start \"{}\": its working directory {cwd}: {problem}",
            spec.command
        ),
        Ok(found) if !found.is_dir() => {
            format!(
                "cannot start \"{}\": its working directory {cwd} is no directory",
                spec.command
            )
        }
        Ok(_) => format!("cannot start \"{}\": {error}", spec.command),
    }
}

/// Why the program could not be executed.
pub(super) fn exec_error(spec: &CommandSpec, error: &io::Error) -> String {
    let name = &spec.command;
    match error.raw_os_error() {
        Some(libc::ENOENT) if name.contains('/') => format!(
            "cannot start \"{name}\": there is no such program (or its interpreter is missing), seen from {}",
            spec.cwd.display()
        ),
        Some(libc::ENOENT) => {
            let path = spec
                .env
                .iter()
                .find(|(variable, _)| variable == "PATH")
                .map(|(_, path)| path.clone());
            let path = path.or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
            format!("command not found: \"{name}\" (PATH is {path})")
        }
        Some(libc::EACCES) => format!("cannot start \"{name}\": permission denied; is it an executable file?"),
        Some(libc::ENOEXEC) => format!(
            "cannot start \"{name}\": it is no program this system can execute; a script needs a first line like #!/bin/sh"
        ),
        Some(libc::E2BIG) => {
            let bytes: usize = spec.args.iter().map(|arg| arg.len() + 1).sum::<usize>()
                + spec
                    .env
                    .iter()
                    .map(|(name, value)| name.len() + value.len() + 2)
                    .sum::<usize>();
            format!(
                "cannot start \"{name}\": its arguments and variables ({bytes} bytes besides the inherited environment) are \
                 more than the system passes; write them to standard input or a file"
            )
        }
        _ => format!("cannot start \"{name}\": {error}"),
    }
}
