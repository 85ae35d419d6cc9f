//! Definitions, graph rules, composition and the run state machine: pure, no I/O.
//!
//! The runner uses this crate to decide the next step and the server to check a proposed one; both call the same functions.

pub mod raw;
