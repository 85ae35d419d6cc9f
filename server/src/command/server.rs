//! `server.status` and `server.stop`.

use std::time::Duration;

use piw_protocol::envelope::{Outcome, PACKAGE_VERSION, Request};
use piw_protocol::ops::{ServerStatusReport, ServerStop, ServerStopReport};
use tokio::sync::oneshot;

use super::payload;
use crate::answer::Answer;
use crate::projection::uncertain;
use crate::serve::DEFAULT_WAIT;
use crate::server::{Server, StopOutcome, StopRequest};
use crate::supervise::live::Executing;

/// Longest wait that a client may ask for.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Most executing nodes that a refusal names.
const MAX_NAMED: usize = 20;

impl Server {
    /// Counts and states, and nothing that a run contains.
    pub(super) async fn server_status(&self) -> Answer {
        let counts = match self.publisher.status_counts().await {
            Ok(counts) => counts,
            Err(error) => return Answer::error(error.outcome(), error.operation_error()),
        };
        Answer::accepted(&ServerStatusReport {
            state: if self.is_stopping() { "stopping" } else { "running" }.to_owned(),
            epoch: self.epoch,
            version: PACKAGE_VERSION.to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            socket_available: true,
            active_runners: u32::try_from(self.live.len()).unwrap_or(u32::MAX),
            runner_capacity: self.max_runners,
            queued: counts.queued,
            running: counts.running,
            parked: counts.parked,
            waiting: counts.waiting,
            expired_claims: counts.expired_claims,
            pending_interactions: counts.pending_interactions,
            ambiguous_effects: counts.ambiguous_effects,
            last_sweep: counts.last_sweep,
            write_error: self.state.write_error(),
        })
    }

    /// Answers when nothing executes any more, or names what still does.
    pub(super) async fn server_stop(&self, request: &Request) -> Answer {
        let ServerStop { wait_ms, now } = match payload(request) {
            Ok(stop) => stop,
            Err(answer) => return answer,
        };
        // Read before anything is interrupted; a database that cannot be read must not keep the server from stopping.
        let interrupted = if now {
            let read = self.state.read(|reader| Ok(uncertain(reader))).await;
            read.ok().and_then(Result::ok).filter(|review| review.total > 0)
        } else {
            None
        };
        let wait = wait_ms.map_or(DEFAULT_WAIT, Duration::from_millis).min(MAX_WAIT);
        let (reply, outcome) = oneshot::channel();
        if self.stop.send(StopRequest { wait, now, reply }).await.is_err() {
            return Answer::accepted(&ServerStopReport { interrupted });
        }
        match outcome.await {
            // Without an answer the main loop has ended.
            Ok(StopOutcome::Stopping) | Err(_) => Answer::accepted(&ServerStopReport { interrupted }),
            Ok(StopOutcome::Refused(executing)) => {
                Answer::refuse(Outcome::Rejected, "nodes_running", &still_executing(&executing, wait))
            }
        }
    }
}

fn still_executing(executing: &[Executing], wait: Duration) -> String {
    let named: Vec<String> = executing
        .iter()
        .take(MAX_NAMED)
        .map(|one| match &one.node_id {
            Some(node) => format!("node {node} of run {}", one.run_id),
            None => format!("run {}", one.run_id),
        })
        .collect();
    let more = executing.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "still executing after {} s: {}{more}; the server stays",
        wait.as_secs(),
        named.join(", ")
    )
}
