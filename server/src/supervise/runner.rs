//! One runner from its claim to the moment at which its run may be claimed again.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use piw_process::{ProcessIdentity, group, marker};
use piw_state::{Claimed, RunnerExit, RunnerOutcome, State, StateError};
use tokio::process::Child;
use tokio::sync::mpsc;

use super::capture::{self, Capture};
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
/// First pause between two tries to spawn a runner, or to record its exit; doubled each time.
const RETRY: Duration = Duration::from_millis(200);
/// Tries to spawn a runner before its run parks.
const SPAWN_TRIES: u32 = 5;

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
    /// How long past a node's own budget the runner may take to end the node itself.
    pub(crate) overrun: Duration,
}

/// How a runner ended.
struct Exit {
    outcome: RunnerOutcome,
    status: Option<ExitStatus>,
    diagnostic: Option<String>,
}

impl Supervisor {
    /// Takes over a claimed run. Returns at once; the run leaves the table of live runners when it may be claimed again.
    pub(crate) fn launch(&self, claimed: Claimed) {
        let orders = self.live.add(claimed.claim.clone());
        let supervisor = self.clone();
        tokio::spawn(async move {
            supervisor.run(&claimed, orders).await;
            supervisor.live.remove(&claimed.claim);
        });
    }

    async fn run(&self, claimed: &Claimed, mut orders: mpsc::UnboundedReceiver<Order>) {
        let (run_id, generation) = (&*claimed.claim.run_id, claimed.claim.generation);
        let exit = match self.spawn(run_id).await {
            Ok(spawned) => self.supervise(claimed, spawned, &mut orders).await,
            Err(error) => {
                tracing::error!(run_id, generation, %error, "a runner cannot be spawned");
                let diagnostic = Some(format!("the runner's process cannot be started: {error}"));
                Exit {
                    outcome: RunnerOutcome::Crashed,
                    status: None,
                    diagnostic,
                }
            }
        };
        let status = exit.status.map(|status| status.to_string());
        match exit.outcome {
            RunnerOutcome::Exited => tracing::info!(run_id, generation, "a runner ended"),
            outcome => tracing::warn!(run_id, generation, ?outcome, status, "a runner ended"),
        }
        self.record(claimed, exit).await;
    }

    /// Spawns a runner; a system that is short of something gets some time.
    async fn spawn(&self, run_id: &str) -> std::io::Result<Spawned> {
        let mut pause = RETRY;
        for _ in 1..SPAWN_TRIES {
            match self.spawner.spawn(Role::Runner, Some(run_id)).await {
                Ok(spawned) => return Ok(spawned),
                Err(error) => tracing::warn!(run_id, %error, "a runner cannot be spawned yet"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.spawner.spawn(Role::Runner, Some(run_id)).await
    }

    /// Records the exit; until that is done the run cannot be claimed again.
    async fn record(&self, claimed: &Claimed, exit: Exit) {
        let exit = RunnerExit {
            runner_epoch: claimed.claim.runner_epoch.to_string(),
            outcome: exit.outcome,
            exit_code: exit.status.and_then(|status| status.code()),
            signal: exit.status.and_then(signal_name),
            diagnostic: exit.diagnostic,
        };
        let run_id = &*claimed.claim.run_id;
        let mut pause = RETRY;
        piw_fault::point!("server::before_record_exit");
        loop {
            match self.state.runner_exited(exit.clone()).await {
                Ok(after) => {
                    piw_fault::point!("server::after_record_exit");
                    return tracing::debug!(run_id, ?after, "a runner's exit is recorded");
                }
                Err(error @ (StateError::Fenced(_) | StateError::Closed | StateError::Invalid(_))) => {
                    return tracing::warn!(run_id, %error, "a runner's exit is not recorded");
                }
                Err(error) => tracing::warn!(run_id, %error, "a runner's exit cannot be recorded yet"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    async fn supervise(
        &self,
        claimed: &Claimed,
        mut spawned: Spawned,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Exit {
        let identity = spawned.identity.clone();
        let (mut incoming, mut outgoing) = match channel::split(spawned.channel) {
            Ok(halves) => halves,
            Err(error) => {
                let (end, seen) = (End::Violation(error.to_string()), Seen::default());
                let status = self.end(&end, &seen, &mut spawned.child, &identity).await;
                let (outcome, diagnostic) = classify(&end, &seen, status);
                return Exit {
                    outcome,
                    status,
                    diagnostic,
                };
            }
        };
        let claim = &claimed.claim;
        let started = match self
            .state
            .runner_spawned(claim, identity.pid, identity.start.clone())
            .await
        {
            Ok(Ok(())) => {
                piw_fault::point!("server::before_launch");
                outgoing
                    .send(&claimed.launch)
                    .await
                    .map_err(|error| End::Violation(error.to_string()))
            }
            Ok(Err(_)) => Err(End::ClaimLost),
            Err(error) => Err(End::Failed(error)),
        };
        let mut session = Session::new(&self.state, &self.registry, &self.live, claim, &identity, outgoing);
        session.overrun = self.overrun;
        let end = match started {
            Ok(()) => session.talk(&mut incoming, orders, &mut spawned.child).await,
            Err(end) => end,
        };
        let seen = std::mem::take(&mut session.seen);
        // Closes the channel: a runner that still lives knows that it has to leave.
        drop((session, incoming));
        let status = self.end(&end, &seen, &mut spawned.child, &identity).await;
        if status.is_none_or(|status| !status.success()) || seen.exiting.is_none() {
            self.end_marked(&claim.run_id).await;
        }
        let (outcome, diagnostic) = classify(&end, &seen, status);
        let printed = self.keep_output(claimed, outcome, seen, spawned.capture).await;
        let diagnostic = diagnostic.map(|text| match printed.trim() {
            "" => text,
            printed => format!("{text}\n{printed}"),
        });
        Exit {
            outcome,
            status,
            diagnostic,
        }
    }

    /// Ends the runner's own group, then every group it registered, then what it left elsewhere.
    async fn end(&self, end: &End, seen: &Seen, child: &mut Child, identity: &ProcessIdentity) -> Option<ExitStatus> {
        let patience = if matches!(end, End::Left) {
            EXIT_GRACE
        } else {
            Duration::ZERO
        };
        let mut status = tokio::time::timeout(patience, child.wait())
            .await
            .ok()
            .and_then(Result::ok);
        let orderly = status.is_some_and(|status| status.success()) && seen.exiting.is_some();
        if !orderly && let Err(error) = group::end(identity, TERM_GRACE).await {
            tracing::warn!(pid = identity.pid, %error, "a runner's group cannot be ended");
        }
        if status.is_none() {
            status = tokio::time::timeout(EXIT_GRACE, child.wait())
                .await
                .ok()
                .and_then(Result::ok);
        }
        piw_fault::point!("server::before_end_groups");
        self.end_groups(identity).await;
        piw_fault::point!("server::after_end_groups");
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

    /// Ends what descends from the runner and was found by neither group nor parent.
    async fn end_marked(&self, run_id: &str) {
        match marker::end(&self.spawner.marks().of(run_id), GROUP_GRACE).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(run_id, count, "ended daemons that a runner left behind"),
            Err(error) => tracing::warn!(run_id, %error, "cannot look for daemons that a runner left behind"),
        }
    }

    async fn end_groups(&self, runner: &ProcessIdentity) {
        let mut groups = tokio::task::JoinSet::new();
        for leader in self.registry.groups_of(runner) {
            let registry = Arc::clone(&self.registry);
            groups.spawn(async move {
                match group::end(&leader, GROUP_GRACE).await {
                    Ok(_) => registry.unregister(&leader),
                    Err(error) => tracing::warn!(pid = leader.pid, %error, "a command's group cannot be ended"),
                }
            });
        }
        while groups.join_next().await.is_some() {}
    }

    /// Keeps the output of user code, and of the runner itself when it ended badly; returns the latter.
    async fn keep_output(&self, claimed: &Claimed, outcome: RunnerOutcome, seen: Seen, capture: Capture) -> String {
        let printed = if outcome.failure().is_some_and(|_| outcome != RunnerOutcome::ClaimLost) {
            capture.text().await
        } else {
            capture.discard();
            String::new()
        };
        let text = seen.output + &printed;
        if !text.is_empty() {
            let name = format!("{}.{}", claimed.claim.run_id, claimed.claim.generation);
            if let Err(error) = capture::keep(&self.output, &name, &text) {
                tracing::warn!(run_id = %claimed.claim.run_id, %error, "a runner's output cannot be kept");
            }
        }
        printed
    }
}

/// The one outcome of an ended runner, and for a bad one what to tell people.
fn classify(end: &End, seen: &Seen, status: Option<ExitStatus>) -> (RunnerOutcome, Option<String>) {
    let said = |outcome, text: String| (outcome, Some(text));
    match end {
        End::ClaimLost => (RunnerOutcome::ClaimLost, None),
        _ if seen.claim_lost => (RunnerOutcome::ClaimLost, None),
        _ if seen.ordered.is_some() => (RunnerOutcome::Cancelled, None),
        End::StartupTimedOut => said(
            RunnerOutcome::TimedOut,
            "the runner did not become ready in time".to_owned(),
        ),
        End::NodeOverran => said(
            RunnerOutcome::Overran,
            "the node overran its budget and its runner did not end it".to_owned(),
        ),
        End::Violation(message) => said(RunnerOutcome::ProtocolRejected, message.clone()),
        // Not the runner's fault: it is tried again once its exit can be recorded.
        End::Failed(error) => said(RunnerOutcome::Unavailable, error.to_string()),
        End::Lingered => said(
            RunnerOutcome::Crashed,
            "the runner did not leave and was ended".to_owned(),
        ),
        End::Left => match status {
            Some(status) if status.success() && seen.exiting.is_some() => (RunnerOutcome::Exited, None),
            Some(status) => said(RunnerOutcome::Crashed, format!("the runner ended: {status}")),
            None => said(
                RunnerOutcome::Crashed,
                "the runner closed its channel and was ended".to_owned(),
            ),
        },
    }
}

fn signal_name(status: ExitStatus) -> Option<String> {
    let number = std::os::unix::process::ExitStatusExt::signal(&status)?;
    Some(Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.as_str().to_owned()))
}
