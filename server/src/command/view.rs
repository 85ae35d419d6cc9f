//! Views, pages, content and subscriptions: what the publisher reads and pushes.

use piw_protocol::envelope::Request;
use piw_protocol::ops::{ContentRequest, PageRequest, RunList, RunStatusReport, RunsPage, RunsWatch, SubscriptionRef};
use serde::Serialize;

use super::{payload, run_id};
use crate::answer::Answer;
use crate::connection::Context;
use crate::projection::ViewError;
use crate::server::Server;

impl Server {
    /// Delivers a window of the run list, now and after every commit that changes it.
    pub(super) async fn view_runs_watch(&self, context: &Context, request: &Request) -> Answer {
        let watch: RunsWatch = match payload(request) {
            Ok(watch) => watch,
            Err(answer) => return answer,
        };
        match self.publisher.watch_runs(&context.sink, &watch).await {
            Ok(watching) => Answer::done().then(move || watching.start()),
            Err(error) => refused(&error),
        }
    }

    /// Delivers a run's view, now and after every commit that changes it. A missing run installs nothing.
    pub(super) async fn view_run_watch(&self, context: &Context, request: &Request) -> Answer {
        let named = run_id(request).and_then(|run_id| Ok((run_id, payload::<SubscriptionRef>(request)?)));
        let (run_id, SubscriptionRef { subscription_id }) = match named {
            Ok(named) => named,
            Err(answer) => return answer,
        };
        match self.publisher.watch_run(&context.sink, &subscription_id, &run_id).await {
            Ok(watching) => Answer::done().then(move || watching.start()),
            Err(error) => refused(&error),
        }
    }

    /// Accepted also when there was no such subscription: it may just have ended.
    pub(super) fn view_unwatch(&self, context: &Context, request: &Request) -> Answer {
        match payload::<SubscriptionRef>(request) {
            Ok(SubscriptionRef { subscription_id }) => {
                self.publisher.unwatch(&context.sink, &subscription_id);
                Answer::done()
            }
            Err(answer) => answer,
        }
    }

    pub(super) async fn view_runs_page(&self, request: &Request) -> Answer {
        match payload::<RunsPage>(request) {
            Ok(page) => viewed(self.publisher.runs_page(page).await, |_| None),
            Err(answer) => answer,
        }
    }

    pub(super) async fn run_list(&self, request: &Request) -> Answer {
        match payload::<RunList>(request) {
            Ok(list) => viewed(self.publisher.run_list(list).await, |_| None),
            Err(answer) => answer,
        }
    }

    pub(super) async fn view_run_get(&self, request: &Request) -> Answer {
        match run_id(request) {
            Ok(run_id) => viewed(self.publisher.run_view(&run_id).await, |view| Some(view.revision)),
            Err(answer) => answer,
        }
    }

    /// Status, controls and the execution revision, without the rest of the view.
    pub(super) async fn run_status(&self, request: &Request) -> Answer {
        let run_id = match run_id(request) {
            Ok(run_id) => run_id,
            Err(answer) => return answer,
        };
        let report = self.publisher.run_view(&run_id).await.map(|view| RunStatusReport {
            run_id: view.run_id,
            status: view.state.status,
            run_revision: view.run_revision,
            display: view.display,
        });
        viewed(report, |report| Some(report.run_revision))
    }

    pub(super) async fn view_page(&self, request: &Request) -> Answer {
        let named = run_id(request).and_then(|run_id| Ok((run_id, payload::<PageRequest>(request)?)));
        match named {
            Ok((run_id, page)) => viewed(
                self.publisher.page(&run_id, request.expected_revision, page).await,
                |page| Some(page.revision),
            ),
            Err(answer) => answer,
        }
    }

    pub(super) async fn view_content(&self, request: &Request) -> Answer {
        let named = run_id(request).and_then(|run_id| Ok((run_id, payload::<ContentRequest>(request)?)));
        match named {
            Ok((run_id, content)) => viewed(self.publisher.content(&run_id, content).await, |_| None),
            Err(answer) => answer,
        }
    }
}

fn viewed<V: Serialize>(view: Result<V, ViewError>, revision: impl FnOnce(&V) -> Option<u64>) -> Answer {
    match view {
        Ok(view) => {
            let answer = Answer::accepted(&view);
            match revision(&view) {
                Some(revision) => answer.with_revision(revision),
                None => answer,
            }
        }
        Err(error) => refused(&error),
    }
}

pub(super) fn refused(error: &ViewError) -> Answer {
    Answer::error(error.outcome(), error.operation_error())
}
