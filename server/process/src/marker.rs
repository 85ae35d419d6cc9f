//! A mark that every descendant of a child inherits, whatever group, session or parent it moved to: an environment variable.
//!
//! Groups and parents are lost when a daemon forks twice and both its runner and the server die; its environment is not. A
//! process that clears its environment loses the mark. Linux only: elsewhere nothing is found.

use std::io;
use std::time::Duration;

use crate::identity::ProcessIdentity;
use crate::{group, sys, tree};

/// The variable. Its value names whose child a process is.
pub const VARIABLE: &str = "PIW_CHILD_OF";

/// How often the process table is read again, for processes that were forked while others were being ended.
const ROUNDS: usize = 8;

/// Living processes of this user whose mark begins with `prefix`, the calling process left out. Processes whose environment
/// cannot be read are none of ours.
///
/// # Errors
/// When the process table cannot be read.
pub fn find(prefix: &str) -> io::Result<Vec<ProcessIdentity>> {
    let own = std::process::id();
    let mut found = Vec::new();
    for info in tree::all()? {
        if info.zombie || info.pid == own {
            continue;
        }
        let marked = sys::environment_value(info.pid, VARIABLE).is_some_and(|value| value.starts_with(prefix));
        // The environment that was read belongs to the process whose identity was read before, or to a later one under its
        // pid, which the identity then tells apart at every signal.
        if marked {
            found.push(info.identity());
        }
    }
    Ok(found)
}

/// Whether a process carries a mark, whoever made it. One whose environment cannot be read carries none.
#[must_use]
pub fn is_marked(pid: u32) -> bool {
    sys::environment_value(pid, VARIABLE).is_some()
}

/// Ends every process that [`find`] finds: SIGTERM, up to `grace`, SIGKILL. Returns how many there were.
///
/// # Errors
/// When the process table cannot be read or a signal is refused.
pub async fn end(prefix: &str, grace: Duration) -> io::Result<usize> {
    let mut ended = 0;
    for _ in 0..ROUNDS {
        let marked = find(prefix)?;
        if marked.is_empty() {
            break;
        }
        ended += marked.len();
        group::end_each(&marked, grace).await?;
    }
    Ok(ended)
}
