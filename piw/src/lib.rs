//! The `piw` command: shell commands, the terminal viewer and the hidden roles that the server starts.
//!
//! | module | owns |
//! | --- | --- |
//! | [`cli`] | the command line: flags, dispatch, exit codes |
//! | [`command`] | one file for each command |
//! | [`failure`] | how an error becomes a message, a hint and an exit code |
//! | [`filter`] | what runs are filtered by, in the viewer and in `piw ps` |
//! | [`follow`] | the progress display of `piw run` |
//! | [`pi`] | the Pi side: the bridge beside a Pi session, and the extension that starts it |
//! | [`question`] | what a waiting run asks of a person |
//! | [`relay`] | what other machines' viewers connect to: the WebSocket relay and the one over standard streams |
//! | [`remote`] | the hosts of `--connect` and `--ssh` |
//! | [`text`] | untrusted text on its way to a terminal |
//! | [`viewer`] | the terminal viewer |

pub mod cli;
pub mod command;
pub mod failure;
pub mod filter;
pub mod follow;
pub mod pi;
pub mod question;
pub mod relay;
pub mod remote;
pub mod text;
pub mod viewer;
