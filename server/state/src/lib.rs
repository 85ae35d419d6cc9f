//! The durable state of the workflow server: one SQLite file, one thread that writes it, a pool that reads it.
//!
//! This crate knows SQL and nothing of sockets or processes. Every write is a typed method of [`State`] that resolves after its
//! commit; the rules of claims, fencing, receipts and transitions are checked inside the transaction that applies it.
//!
//! | module | owns |
//! | --- | --- |
//! | [`schema`], [`open`] | the DDL and the checks before a file is used |
//! | `writer`, `readers`, [`changes`] | group commit, the read pool, what commits changed |
//! | [`query`] | what views read |
//! | [`command`], [`receipts`] | client commands on runs, each decided once |
//! | [`queue`], [`runner`], `child` | admission and claims, the life of a runner, its messages |
//! | [`session`] | what `session.record` stores of recorded sessions |
//! | [`message`] | workflow messages, model turns, and what a session's coordinator reports |
//! | [`interaction`] | requests of session-bound agent steps, their submissions and their time |
//! | `decision` | protected decisions, their answers and deadlines |
//! | `active` | active time of attempts |
//! | `cache`, `live`, `restore`, `execution` | a run in memory, its rows, and what a runner is told of it |
//! | [`recovery`], [`verify`] | what a new server takes back, and the invariants as queries |
//! | [`content`], `value` | large values |
//! | `vfs` | in test builds: a disk that loses unsynced writes and fails on demand |
//! | [`retention`], [`purge`], [`maintenance`], [`backup`] | what may go and how it goes, sizes, giving space back, copies |
//! | [`server`], [`lease`] | the server's epoch, claims and their fence |

pub mod backup;
#[cfg(feature = "bench")]
pub mod bench;
pub mod changes;
pub mod clock;
pub mod command;
pub mod content;
pub mod error;
pub mod ids;
#[allow(
    dead_code,
    unused_imports,
    reason = "what reports turns and branches comes with the session views"
)]
pub mod interaction;
pub mod lease;
pub mod maintenance;

pub mod message;
pub mod open;
pub mod purge;
pub mod query;
pub mod queue;
pub mod receipts;
pub mod recovery;
pub mod retention;
pub mod runner;
pub mod schema;
pub mod server;
pub mod session;
pub mod state;
pub mod verify;
#[cfg(feature = "failpoints")]
pub mod vfs;
pub mod view_content;

mod active;
mod aside;
mod cache;
mod child;
mod decision;
mod effects;
mod execution;
mod files;
mod hash;
mod live;
mod names;
mod os;
mod readers;
mod restore;
mod unclosed;
mod updates;
mod value;
mod writer;

pub use backup::{BackupError, BackupMade};
pub use changes::{ChangeFeed, Changes, Interest, RunChange};
pub use clock::{Clock, ManualClock, SystemClock};
pub use command::{Answer, Controlled, FencedRunner, NewRun, Original, Resolution, ResolvedRun, RunReceipted};
pub use content::{Chunk, Put, PutChunk, PutError};
pub use decision::PersonsAnswer;
pub use error::{ClaimLost, StateError};
pub use ids::{AttemptId, AttemptKey, NodeIndex, RunKey};
pub use maintenance::{StateFacts, SweepRecord};
pub use message::SessionFence;
pub use open::OpenError;
pub use purge::Purged;
pub use queue::{Claim, Claimed, Renewed};
pub use receipts::{CommandIdentity, Receipted};
pub use recovery::{ProcessKind, RecordedProcess, Recovered};
pub use retention::{Marked, Selection, Tree};
pub use runner::{AfterExit, RunnerExit, RunnerOutcome};
pub use server::{RecordedServer, ServerIdentity, TakeEpochError};
pub use session::{RecordRefused, Recorded};
pub use state::{State, StateOptions};
pub use verify::{BackupRefused, Violation, verify_backup};
pub use view_content::{ViewContent, ViewContentSource};
