//! Supervision of children: spawning, the private protocol's server end, orders, exits and what they leave behind.
//!
//! Nothing here decides what a run does next: every proposal of a runner is judged by the state crate with the engine, in the
//! transaction that applies it.

mod capture;
mod channel;
#[cfg(feature = "failpoints")]
mod late;
pub(crate) mod live;
pub(crate) mod registry;
pub(crate) mod resolve;
mod runner;
mod session;
pub(crate) mod spawn;
mod sweep;
pub(crate) mod validate;

pub(crate) use runner::Supervisor;
pub(crate) use session::OVERRUN;
