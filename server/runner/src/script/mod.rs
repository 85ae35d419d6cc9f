//! The script host: loads workflow modules and runs their callbacks, without Node.js.
//!
//! Owns everything that touches JavaScript: TypeScript stripping, module resolution, the two runtimes (a full one, and a
//! pure one for `compute` and routing callbacks), the Node subset, limits and stack positions. It knows nothing of runs,
//! claims or the server: callers give it bytes and JSON and get JSON or a typed error back.
//!
//! All JavaScript runs on one thread of its own, behind [`ScriptHandle`]. A callback that computes for ever therefore
//! blocks that thread only; the caller learns of it from the watchdog and stays able to report it.

mod api;
mod builtins;
mod bytes;
mod failure;
mod handle;
mod journal;
mod loader;
mod memory;
mod modules;
mod natives;
mod nesting;
mod realm;
mod shared;
mod stack;
#[cfg(test)]
mod tests;
mod transpile;
mod value;
mod worker;

pub use api::{
    CallArgs, CallError, CallErrorKind, CallbackField, CallbackRef, CommandHost, CommandRequest, ConsoleLevel,
    ConsoleSink, Entry, HostFuture, LoadError, LoadErrorKind, Loaded, NoWorkflows, NodeResult, PublishUpdate,
    ScriptHost, ScriptOptions, WorkflowLookup,
};
pub use handle::ScriptHandle;
