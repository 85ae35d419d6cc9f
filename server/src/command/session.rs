//! `session.record`: batches of recorded Pi sessions. Repeats are told by segment and sequence, so there are no receipts.

use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::session::SessionRecord;

use super::payload;
use crate::answer::{Answer, unavailable};
use crate::server::Server;

impl Server {
    /// Stores a batch; `adopted` when all of it was there already.
    pub(super) async fn session_record(&self, request: &Request) -> Answer {
        let record: SessionRecord = match payload(request) {
            Ok(record) => record,
            Err(answer) => return answer,
        };
        match self.state.record_session(record).await {
            Ok(Ok(recorded)) => {
                piw_fault::point!("server::session_recorded");
                let mut answer = Answer::accepted(&recorded.receipt);
                if !recorded.new {
                    answer.outcome = Some(Outcome::Adopted);
                }
                answer
            }
            Ok(Err(refused)) => Answer::error(refused.outcome, refused.error),
            Err(error) => unavailable(&error),
        }
    }
}
