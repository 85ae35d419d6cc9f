//! The workflow server: the only process that opens the live database.
//!
//! It does bounded protocol work, short transactions, projections, scheduling and supervision. It never loads or evaluates user
//! code: definitions are resolved and nodes executed in children.
//!
//! | module | owns |
//! | --- | --- |
//! | [`paths`] | the state directory, the socket path and their rules |
//! | [`options`] | settings of a server |
//! | [`lock`] | one live server in a state directory |
//! | [`start`] | starting a detached server from a client |
//! | [`stop`] | stopping a server of another version |
//! | [`publish`] | subscriptions, push on commit |
//! | [`log`] | the bounded log |

#[cfg(feature = "bench")]
pub mod bench;
pub mod coordinator;
pub mod error;
pub mod lock;
pub mod log;
pub mod options;
pub mod paths;
pub mod projection;
pub mod publish;
pub mod start;
pub mod stop;

mod admissions;
mod answer;
mod command;
mod connection;
mod deadlines;
mod inflight;
mod lifecycle;
mod maintenance;
mod people;
mod scheduler;
mod scratch;
mod serve;
mod server;
mod socket;
mod supervise;
mod update_rates;

pub use error::ServerError;
pub use lifecycle::run;
pub use options::ServerOptions;
pub use piw_state::verify::checks as verify_checks;
pub use piw_state::{BackupRefused, Violation, verify_backup};
pub use start::{StartError, StartOptions, Started, ensure_started};
