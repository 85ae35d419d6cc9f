//! Client operations: one file a group, dispatched here.
//!
//! A handler decodes its payload, does its work through the state crate or the children, and says how it ended. It knows nothing of
//! frames and sockets.

mod server;

use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::ops::Operation;
use serde::de::DeserializeOwned;

use crate::answer::Answer;
use crate::connection::Context;
use crate::server::Server;

impl Server {
    /// Answers one request.
    pub(crate) async fn answer(&self, _context: &Context, request: Request) -> Answer {
        match request.operation {
            Operation::ServerStatus => self.server_status().await,
            Operation::ServerStop => self.server_stop(&request).await,
            operation => not_built(operation),
        }
    }
}

/// An operation of the closed list that this version does not have.
fn not_built(operation: Operation) -> Answer {
    let message = format!("{} is not built in this version", operation.name());
    Answer::refuse(Outcome::Unavailable, "not_built", &message)
}

/// The operation's payload, or the answer that says what is wrong with it.
fn payload<T: DeserializeOwned>(request: &Request) -> Result<T, Answer> {
    request.payload.decode().map_err(|error| {
        Answer::invalid(&format!(
            "the payload of {} is not valid: {error}",
            request.operation.name()
        ))
    })
}
