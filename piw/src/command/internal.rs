//! Hidden roles that the server starts.

use crate::cli::InternalRole;
use crate::failure::{Exit, Outcome};

/// File descriptor of the private channel.
const CHANNEL: i32 = 3;

/// Runs a role until it is done.
///
/// # Errors
/// None of its own: a role reports over its channel and by its exit code.
pub fn run(role: &InternalRole) -> Outcome {
    let code = match role {
        InternalRole::Resolver => piw_runner::run_resolver(CHANNEL),
        InternalRole::Runner => piw_runner::run_runner(CHANNEL),
        InternalRole::Validator => piw_runner::run_validator(CHANNEL),
    };
    Ok(if code == std::process::ExitCode::SUCCESS {
        Exit::Done
    } else {
        Exit::Failed
    })
}
