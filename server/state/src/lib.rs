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
//! | [`server`], [`lease`] | the server's epoch, claims and their fence |

pub mod changes;
pub mod clock;
pub mod error;
pub mod ids;
pub mod lease;
pub mod open;
pub mod query;
pub mod schema;
pub mod server;
pub mod state;
pub mod view_content;

mod cache;
mod failpoint;
mod hash;
mod os;
mod readers;
mod writer;

pub use changes::{ChangeFeed, Changes, RunChange};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{ClaimLost, StateError};
pub use ids::{AttemptId, AttemptKey, NodeIndex, RunKey};
pub use open::OpenError;
pub use server::{RecordedServer, ServerIdentity, TakeEpochError};
pub use state::{State, StateOptions};
pub use view_content::{ViewContent, ViewContentSource};
