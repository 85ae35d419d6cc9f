//! What clients see: bounded, consistent views made from database facts.
//!
//! Everything here turns rows of [`piw_state::query`] into the types of [`piw_protocol::view`]: large values become content
//! references, windows are cut to byte budgets, the display status is decided. It knows nothing of sockets or subscriptions
//! ([`crate::publish`]) and writes nothing itself: content that a view needs stored is handed back to the caller.

mod error;

pub use error::ViewError;
