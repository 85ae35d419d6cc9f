//! The resolver and runner roles as the server uses them: real processes on a socket, answered by a server in miniature.
#![cfg(test)]

mod agent;
mod builtin;
mod processes;
mod resolver;
mod run;
mod support;

/// Not a test: what this program does when it was started as a role.
#[test]
fn role_process() {
    support::process::role_process();
}
