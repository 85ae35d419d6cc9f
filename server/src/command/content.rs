//! `content.put`: uploads, chunk by chunk, verified at the last one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::ops::{ContentPut, ContentPutReport};
use piw_state::PutChunk;

use super::payload;
use crate::answer::{Answer, unavailable};
use crate::server::Server;

impl Server {
    /// The receipt of every chunk names the content again; the last one says that it is stored.
    pub(super) async fn content_put(&self, request: &Request) -> Answer {
        let ContentPut {
            content,
            offset,
            data,
            complete,
        } = match payload(request) {
            Ok(put) => put,
            Err(answer) => return answer,
        };
        let data = match STANDARD.decode(&data) {
            Ok(data) => data,
            Err(error) => return Answer::invalid(&format!("`data` is no base64: {error}")),
        };
        let chunk = PutChunk {
            owner: request.client_id.clone(),
            content: content.clone(),
            offset,
            data,
            complete,
        };
        match self.state.put_content(chunk).await {
            Ok(Ok(put)) => Answer::accepted(&ContentPutReport {
                sha256: content.sha256,
                received: put.received,
                complete: put.complete,
            }),
            Ok(Err(error)) => Answer::refuse(Outcome::Rejected, "content_refused", &error),
            Err(error) => unavailable(&error),
        }
    }
}
