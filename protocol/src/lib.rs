//! The client protocol `pi-workflows.client.v1`, the private protocol between the server and its children, and the JSON
//! rules that both share.
//!
//! This crate knows bytes and types, never SQL, processes or terminals. Without the `client` feature it performs no I/O.
//!
//! | module | owns |
//! | --- | --- |
//! | [`canonical`] | canonical JSON: writer, strict reader, digests |
//! | [`frame`] | cutting a byte stream into frames |
//! | [`envelope`] | hello, request, response, event |
//! | [`definition`] | the definition snapshot: a workflow graph as data |
//! | [`run`] | statuses, outcomes, steps, sources, updates: the vocabulary of a run |
//! | [`effect`] | effects that a person reviews |
//! | [`interaction`] | session views, workflow messages, turns, interactive requests |
//! | [`ops`] | payloads and receipts of client operations |
//! | [`view`] | run list, run view, pages and content chunks |
//! | [`content`] | verified content |
//! | `client` | the reconnecting async client (feature `client`) |
//! | `websocket` | frames over a WebSocket (feature `websocket`) |
//! | [`schema`] | the protocol as JSON Schema |
//! | [`child`] | messages between the server and resolver or runner children |

pub mod canonical;
pub mod child;
#[cfg(feature = "client")]
pub mod client;
pub mod content;
pub mod definition;
pub mod effect;
pub mod envelope;
pub mod frame;
pub mod interaction;
pub mod maintenance;
pub mod ops;
pub mod run;
pub mod schema;
pub mod session;
pub mod view;
#[cfg(feature = "websocket")]
pub mod websocket;
