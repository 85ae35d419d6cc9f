//! Tests of the protocol crate from the outside: canonical JSON against ECMAScript, the golden corpus, the schema, frames,
//! content and the client against scripted servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod canonical;
mod client;
mod corpus;
mod frame;
mod schema;
mod session;
mod types;
