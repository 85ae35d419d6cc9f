//! What clients see: bounded, consistent views made from database facts.
//!
//! Everything here turns rows of [`piw_state::query`] into the types of [`piw_protocol::view`]: large values become content
//! references, windows are cut to byte budgets, the display status is decided. It knows nothing of sockets or subscriptions
//! ([`crate::publish`]) and writes nothing itself: content that a view needs stored is handed back to the caller.

mod bounds;
mod content;
mod display;
mod effect;
mod error;
mod filter;
mod graph;
mod list;
mod nodes;
mod pages;
mod run;
mod session;
mod session_view;
mod step;
mod times;
mod update;

pub(crate) use effect::{list as effects, uncertain};
pub use error::ViewError;
pub(crate) use filter::{ListFilter, Window};
pub(crate) use list::{Changes, ListChange, RunListFeed};
pub(crate) use pages::content_chunk;
pub(crate) use run::Projector;
pub(crate) use session_view::Looking;
