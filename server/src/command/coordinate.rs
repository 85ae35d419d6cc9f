//! What a session's coordinator asks for: its view, and reports of its branch and its turns.

use std::sync::Arc;

use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::interaction::{BranchReport, ClearTerminal, SessionWatch, SessionWindow, TurnReport};
use piw_protocol::ops::SubscriptionRef;
use piw_state::{Receipted, StateError};
use serde::Serialize;

use super::view::refused;
use super::{decided, identity, payload};
use crate::answer::{Answer, unavailable};
use crate::connection::Context;
use crate::server::Server;

/// Longest id of a Pi session or of a subscription, in bytes.
const ID_LIMIT: usize = 256;

impl Server {
    /// Delivers a session's view, now and after every commit that changes it. The connection becomes the session's coordinator; the one
    /// before is fenced and sees that in its next view.
    pub(super) async fn view_session_watch(&self, context: &Context, request: &Request) -> Answer {
        let SessionWatch {
            subscription_id,
            session_id,
        } = match payload(request) {
            Ok(watch) => watch,
            Err(answer) => return answer,
        };
        for (field, id) in [("subscriptionId", &subscription_id), ("sessionId", &session_id)] {
            if !(1..=ID_LIMIT).contains(&id.len()) {
                return Answer::invalid(&format!("{field} has 1 to {ID_LIMIT} bytes, not {}", id.len()));
            }
        }
        if let Err(error) = context.sink.check_room(&subscription_id) {
            return refused(&error.into());
        }
        let session: Arc<str> = session_id.into();
        // Until the new coordinator reports its branch, nobody knows that a model works.
        if self.coordinators.is_held(&session)
            && let Err(error) = self.state.hold_session_time(session.to_string()).await
        {
            return unavailable(&error);
        }
        let epoch = self.coordinators.take(&session, context.number, &subscription_id);
        match self
            .publisher
            .watch_session(&context.sink, &subscription_id, &session, epoch)
        {
            Ok(watching) => Answer::done().then(move || watching.start()),
            Err(error) => refused(&error),
        }
    }

    /// Ends a session's subscription; the connection coordinates the session no more.
    pub(super) fn view_session_unwatch(&self, context: &Context, request: &Request) -> Answer {
        match payload::<SubscriptionRef>(request) {
            Ok(SubscriptionRef { subscription_id }) => {
                self.publisher.unwatch(&context.sink, &subscription_id);
                self.left(self.coordinators.leave(context.number, &subscription_id));
                Answer::done()
            }
            Err(answer) => answer,
        }
    }

    /// A connection ended.
    pub(crate) fn connection_ended(&self, connection: u64) {
        self.left(self.coordinators.disconnect(connection));
    }

    /// Nobody coordinates these sessions any more: their views say so, and the time of their model turns stands still.
    fn left(&self, sessions: Vec<Arc<str>>) {
        for session in sessions {
            self.publisher.touch_session(&session);
            let (state, coordinators) = (self.state.clone(), self.coordinators.clone());
            tokio::spawn(async move {
                // Whoever took the session meanwhile reports its branch, and the time counts.
                if coordinators.is_held(&session) {
                    return;
                }
                if let Err(error) = state.hold_session_time(session.to_string()).await {
                    tracing::warn!(%error, "the time of a session whose coordinator left cannot be held");
                }
            });
        }
    }

    /// Moves the node window; the view follows as an event.
    pub(super) async fn view_session_window(&self, context: &Context, request: &Request) -> Answer {
        let SessionWindow {
            subscription_id,
            cursor,
        } = match payload(request) {
            Ok(window) => window,
            Err(answer) => return answer,
        };
        match self
            .publisher
            .move_window(&context.sink, &subscription_id, cursor)
            .await
        {
            Ok(true) => Answer::done(),
            Ok(false) => {
                let message = format!("this connection watches no session under {subscription_id:?}");
                Answer::refuse(Outcome::NotFound, "subscription_not_found", &message)
            }
            Err(error) => refused(&error),
        }
    }

    pub(super) async fn report_branch(&self, context: &Context, request: &Request) -> Answer {
        let report: BranchReport = match payload(request) {
            Ok(report) => report,
            Err(answer) => return answer,
        };
        let session = report.target_session_id.clone();
        let epoch = report.coordinator_epoch;
        let fence = match self.coordinators.fence(&session, epoch, context.number) {
            Ok(fence) => fence,
            Err(answer) => return answer,
        };
        let reported = self.state.report_branch(fence, identity(request), report).await;
        if is_success(&reported) && self.coordinators.reported(&session, epoch) {
            self.publisher.touch_session(&session);
        }
        decided(reported)
    }

    pub(super) async fn report_turn(&self, context: &Context, request: &Request) -> Answer {
        let report: TurnReport = match payload(request) {
            Ok(report) => report,
            Err(answer) => return answer,
        };
        let fence = match self
            .coordinators
            .fence(&report.target_session_id, report.coordinator_epoch, context.number)
        {
            Ok(fence) => fence,
            Err(answer) => return answer,
        };
        decided(self.state.report_turn(fence, identity(request), report).await)
    }

    pub(super) async fn clear_terminal(&self, context: &Context, request: &Request) -> Answer {
        let clear: ClearTerminal = match payload(request) {
            Ok(clear) => clear,
            Err(answer) => return answer,
        };
        let fence = match self
            .coordinators
            .fence(&clear.target_session_id, clear.coordinator_epoch, context.number)
        {
            Ok(fence) => fence,
            Err(answer) => return answer,
        };
        decided(self.state.clear_terminal(fence, identity(request)).await)
    }
}

fn is_success<R: Serialize>(reported: &Result<Receipted<R>, StateError>) -> bool {
    reported.as_ref().is_ok_and(|reported| reported.error.is_none())
}
