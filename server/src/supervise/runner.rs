//! One runner from its claim to the moment at which its run may be claimed again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piw_process::group;
use piw_state::{Claimed, RunnerExit, State};
use tokio::sync::mpsc;

use super::capture;
use super::channel;
use super::live::{LiveRunners, Order};
use super::registry::{self, Registry};
use super::session::{End, Seen, Session};
use super::spawn::{Role, Spawned, Spawner};
use super::sweep;

/// How long a runner may take to leave after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long a runner that closed its channel may take to exit by itself.
const EXIT_GRACE: Duration = Duration::from_secs(2);
/// How long the group of a command may take to leave after SIGTERM.
const GROUP_GRACE: Duration = Duration::from_secs(2);
/// Pause between two tries to record an exit.
const RECORD_RETRY: Duration = Duration::from_millis(500);

/// Launches runners and sees them to their end. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor {
    pub(crate) state: State,
    pub(crate) spawner: Spawner,
    pub(crate) registry: Arc<Registry>,
    pub(crate) live: Arc<LiveRunners>,
    pub(crate) output: PathBuf,
    /// Whether every child of this process belongs to this server.
    pub(crate) owns_process: bool,
}

impl Supervisor {
    /// Takes over a claimed run. Returns at once; the run leaves the table of live runners when it may be claimed again.
    pub(crate) fn launch(&self, claimed: Claimed) {
        let orders = self.live.add(&claimed.run_id);
        let supervisor = self.clone();
        tokio::spawn(async move {
            let run_id = claimed.run_id.clone();
            supervisor.run(claimed, orders).await;
            supervisor.live.remove(&run_id);
        });
    }

    async fn run(&self, claimed: Claimed, mut orders: mpsc::UnboundedReceiver<Order>) {
        let (run_id, generation) = (claimed.run_id.as_str(), claimed.generation);
        let exit = match self.spawner.spawn(Role::Runner, Some(run_id)).await {
            Ok(spawned) => self.supervise(&claimed, spawned, &mut orders).await,
            Err(error) => {
                tracing::error!(run_id, generation, %error, "a runner cannot be spawned");
                RunnerExit::SpawnFailed { message: error.to_string() }
            }
        };
        tracing::info!(run_id, generation, exit = exit.name(), "a runner ended");
        self.record(&claimed, exit).await;
    }

    /// Records the exit; without it the run could not go on before its claim expires.
    async fn record(&self, claimed: &Claimed, exit: RunnerExit) {
        loop {
            match self.state.runner_exited(&claimed.claim, exit.clone()).await {
                Ok(()) => return,
                Err(error) if error.is_final() => {
                    tracing::warn!(run_id = claimed.run_id, %error, "a runner's exit is not recorded");
                    return;
                }
                Err(error) => {
                    tracing::warn!(run_id = claimed.run_id, %error, "a runner's exit cannot be recorded yet");
                    tokio::time::sleep(RECORD_RETRY).await;
                }
            }
        }
    }

    async fn supervise(
        &self,
        claimed: &Claimed,
        mut spawned: Spawned,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> RunnerExit {
        let identity = spawned.identity.clone();
        let (mut incoming, mut outgoing) = channel::split(spawned.channel);
        let started = match self.state.runner_spawned(&claimed.claim, identity.pid, identity.start.clone()).await {
            Ok(()) => outgoing.send(&claimed.launch).await.map_err(|error| End::Violation(error.to_string())),
            Err(error) => Err(End::Failed(error)),
        };
        let mut session = Session::new(
            &self.state,
            &self.registry,
            &self.live,
            claimed.claim.clone(),
            (&claimed.run_id, claimed.generation, &claimed.launch.runner_epoch),
            &identity,
            outgoing,
        );
        let end = match started {
            Ok(()) => session.talk(&mut incoming, orders, &mut spawned.child).await,
            Err(end) => end,
        };
        let seen = std::mem::take(&mut session.seen);
        // Closes the channel: a runner that still lives knows that it has to leave.
        drop((session, incoming));
        let status = self.end(&end, &seen, &mut spawned.child, &identity).await;
        let exit = classify(end, &seen, status);
        self.keep_output(claimed, &exit, seen, spawned.capture).await;
        exit
    }

    /// Ends the runner's own group, then every group it registered, then what it left elsewhere.
    async fn end(
        &self,
        end: &End,
        seen: &Seen,
        child: &mut tokio::process::Child,
        identity: &piw_process::ProcessIdentity,
    ) -> Option<std::process::ExitStatus> {
        let patience = if matches!(end, End::Left) { EXIT_GRACE } else { Duration::ZERO };
        let mut status = tokio::time::timeout(patience, child.wait()).await.ok().and_then(Result::ok);
        let orderly = status.is_some_and(|status| status.success()) && seen.exiting.is_some();
        if !orderly && let Err(error) = group::end(identity, TERM_GRACE).await {
            tracing::warn!(pid = identity.pid, %error, "a runner's group cannot be ended");
        }
        if status.is_none() {
            status = tokio::time::timeout(EXIT_GRACE, child.wait()).await.ok().and_then(Result::ok);
        }
        let mut groups = tokio::task::JoinSet::new();
        for leader in self.registry.groups_of(identity) {
            let registry = Arc::clone(&self.registry);
            groups.spawn(async move {
                match group::end(&leader, GROUP_GRACE).await {
                    Ok(_) => registry.unregister(&leader),
                    Err(error) => tracing::warn!(pid = leader.pid, %error, "a command's group cannot be ended"),
                }
            });
        }
        while groups.join_next().await.is_some() {}
        if registry::has_ended(identity) {
            self.registry.unregister(identity);
        }
        if !orderly && self.owns_process {
            match sweep::end_orphans(&self.registry, &self.spawner, GROUP_GRACE).await {
                Ok(0) => {}
                Ok(count) => tracing::warn!(count, "ended processes that a runner left behind"),
                Err(error) => tracing::warn!(%error, "cannot look for processes that a runner left behind"),
            }
        }
        status
    }

    /// Keeps the output of user code, and of the runner itself when it ended badly.
    async fn keep_output(&self, claimed: &Claimed, exit: &RunnerExit, seen: Seen, capture: capture::Capture) {
        let mut text = seen.output;
        if exit.is_bad() {
            text.push_str(&capture.text().await);
        } else {
            capture.discard();
        }
        if text.is_empty() {
            return;
        }
        let name = format!("{}.{}", claimed.run_id, claimed.generation);
        if let Err(error) = capture::keep(&self.output, &name, &text) {
            tracing::warn!(run_id = claimed.run_id, %error, "a runner's output cannot be kept");
        }
    }
}

/// The one outcome of an ended runner.
fn classify(end: End, seen: &Seen, status: Option<std::process::ExitStatus>) -> RunnerExit {
    let how = || status.map_or_else(|| "it did not exit".to_owned(), |status| status.to_string());
    match end {
        _ if seen.claim_lost => RunnerExit::ClaimLost,
        _ if seen.ordered.is_some() => RunnerExit::Stopped,
        End::NodeOverran => RunnerExit::NodeTimedOut,
        End::StartupTimedOut => RunnerExit::StartupTimedOut,
        End::Violation(message) => RunnerExit::Crashed { ready: seen.ready, message },
        End::Failed(error) => RunnerExit::Crashed { ready: seen.ready, message: error.to_string() },
        End::Lingered => RunnerExit::Crashed { ready: seen.ready, message: "it did not leave and was ended".to_owned() },
        End::Left => match (&seen.exiting, status) {
            (Some(reason), Some(status)) if status.success() => RunnerExit::Exited { reason: reason.clone() },
            _ => RunnerExit::Crashed { ready: seen.ready, message: how() },
        },
    }
}
