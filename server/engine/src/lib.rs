//! Definitions, graph rules, composition and the run state machine: pure, no I/O.
//!
//! The runner uses this crate to decide the next step and the server to check a proposed one; both call the same functions.
//! Clocks and loaded values are arguments.
//!
//! | module | owns |
//! | --- | --- |
//! | [`raw`] | what a script host reports of a workflow module |
//! | [`mod@compile`] | shape and graph checks, flattening of includes |
//! | [`definition`] | the checked definition and its index |
//! | [`route`] | path expressions and the choice of a case |
//! | [`machine`] | the run machine: what follows, checked and planned by the same code |
//! | [`attempt`], [`failure`] | crashed attempts, failure classes, reasons to park |
//! | [`lifecycle`] | which command a run takes in which state |
//! | [`display`] | status, activity and controls that renderers show |
//! | [`effect`] | effect keys, reservations, settlements |
//! | [`decision`] | requests and answers of protected decisions |
//! | [`prompt`] | the text that a model gets for a step |
//! | [`update`], [`progress`] | published updates, their limits, the time that is left |
//! | [`value`], [`title`], [`text`] | JSON value rules, run titles, bounds of free text |
//! | [`names`], [`problem`], [`locate`], [`limits`] | names, problems and their lines, bounds |

pub mod attempt;
pub mod compile;
pub mod decision;
pub mod definition;
pub mod display;
pub mod effect;
pub mod failure;
pub mod lifecycle;
pub mod limits;
pub mod locate;
pub mod machine;
pub mod names;
pub mod notice;
pub mod problem;
pub mod progress;
pub mod prompt;
pub mod raw;
pub mod route;
#[cfg(test)]
mod testing;
pub mod text;
pub mod title;
pub mod update;
pub mod value;

pub use compile::compile;
pub use definition::{Definition, Node, NodeTimeout, Scope};
pub use machine::{Plan, Planned, Progress, Transition, TransitionError};
pub use problem::{GraphProblem, Rule};

use piw_protocol::canonical::{self, CanonicalError};
use serde::Serialize;
use serde_json::Value;

/// Canonical JSON of a value as text.
pub(crate) fn canonical_text(value: &Value) -> String {
    String::from_utf8(canonical::write_value(value)).expect("canonical JSON is UTF-8")
}

/// `sha256:<hex>` of the canonical JSON of anything that serialises.
pub(crate) fn digest_of<T: Serialize>(value: &T) -> Result<String, CanonicalError> {
    Ok(format!("sha256:{}", canonical::sha256_hex(&canonical::to_vec(value)?)))
}
