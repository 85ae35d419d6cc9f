//! Processes as the operating system knows them: start identities, groups, descendants, and commands that are held until
//! they are registered.
//!
//! The server and the runner both end processes that they did not start themselves, so both need the same exact notion of
//! "that process and no other". This crate knows nothing of runs, nodes or messages.
//!
//! | module | subject |
//! | --- | --- |
//! | [`identity`] | pid plus start time: a process, not a reused number |
//! | [`tree`] | the process table, descendants, the subreaper |
//! | [`channel`] | the bytes between a server and its child |
//! | [`group`] | signals to groups; SIGTERM, a grace period, SIGKILL |
//! | [`hold`] | a command in its own group that waits on a pipe before it executes |
//! | [`marker`] | descendants that left their group and their parent, by a mark in their environment |
//! | [`memory`] | giving freed memory back to the system |
//! | [`role`] | preparing a child that speaks on file descriptor 3 |

pub mod channel;
pub mod group;
pub mod hold;
pub mod identity;
pub mod marker;
pub mod memory;
pub mod role;
pub mod tree;

#[cfg(target_os = "linux")]
#[path = "sys_linux.rs"]
mod sys;
#[cfg(target_os = "macos")]
#[path = "sys_macos.rs"]
mod sys;

pub use identity::{Liveness, ProcessIdentity};
