//! Telling people from workflows: who speaks on a connection. The same user can always pretend, which the documentation says.

use piw_process::{marker, tree};

/// Ancestors that are looked at.
const DEPTH: usize = 64;

/// Whether a process, or one that it descends from, was started by a workflow: it carries the mark of a server's children. A
/// process that cannot be looked up counts as one.
pub(crate) fn is_of_a_workflow(pid: u32) -> bool {
    let mut pid = pid;
    for _ in 0..DEPTH {
        if marker::is_marked(pid) {
            return true;
        }
        match tree::info(pid) {
            Ok(Some(info)) if info.parent > 1 => pid = info.parent,
            Ok(Some(_)) => return false,
            Ok(None) | Err(_) => return true,
        }
    }
    true
}
