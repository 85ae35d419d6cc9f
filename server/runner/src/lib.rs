//! Children that evaluate user code: the script host, the SDK, and the resolver, runner and validator roles.
//!
//! The server starts [`run_resolver`], [`run_runner`] and [`run_validator`] as processes of their own and talks to them over an
//! inherited socket. None has access to the database; all end when their channel does.

pub mod builtin;
mod child;
pub mod discover;
mod exec;
mod regular;
mod roles;
pub mod script;
pub mod sdk;

pub use exec::agent::config::path as config_path;
pub use roles::{run_resolver, run_runner, run_validator};
