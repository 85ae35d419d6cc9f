//! Random interleavings of commands, runners, crashes, clock jumps and server restarts against a simple model.

mod common;

use common::{Flow, Place, Runner, command, facts};
use piw_protocol::child::ReplyOutcome;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_state::{CommandIdentity, RunnerOutcome, State};
use proptest::prelude::*;
use serde_json::json;

const NODES: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Op {
    Start,
    Launch,
    Step(usize),
    Exit(usize, bool),
    Pause(usize),
    Resume(usize),
    Cancel(usize),
    Repeat,
    ExpireClaims,
    Sleep,
    RestartServer,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Start),
        6 => Just(Op::Launch),
        14 => (0..8usize).prop_map(Op::Step),
        5 => (0..8usize, any::<bool>()).prop_map(|(pick, crash)| Op::Exit(pick, crash)),
        3 => (0..8usize).prop_map(Op::Pause),
        4 => (0..8usize).prop_map(Op::Resume),
        1 => (0..8usize).prop_map(Op::Cancel),
        2 => Just(Op::Repeat),
        1 => Just(Op::ExpireClaims),
        1 => Just(Op::Sleep),
        1 => Just(Op::RestartServer),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct ModelRun {
    id: String,
    status: &'static str,
    queue: &'static str,
    paused: bool,
    claimable: bool,
    steps: u64,
    streak: u32,
    /// Order of admission.
    ready: u64,
}

struct ModelRunner {
    runner: Runner,
    run: usize,
    /// The process was not seen to end.
    alive: bool,
    /// The claim was not released or taken.
    holds: bool,
    /// The claim's time ran out.
    expired: bool,
    begun: bool,
}

struct World {
    place: Place,
    state: State,
    runs: Vec<ModelRun>,
    runners: Vec<ModelRunner>,
    commands: u32,
    ready: u64,
    last: Option<(Operation, CommandIdentity, String, Outcome)>,
}

impl World {
    async fn new() -> Self {
        let mut place = Place::new();
        let state = place.serve().await;
        Self {
            place,
            state,
            runs: Vec::new(),
            runners: Vec::new(),
            commands: 0,
            ready: 0,
            last: None,
        }
    }

    fn identity(&mut self, operation: Operation) -> CommandIdentity {
        self.commands += 1;
        command(operation, &format!("k{}", self.commands))
    }

    fn flow() -> Flow {
        Flow::new("a")
            .compute("a")
            .compute("b")
            .compute("c")
            .edge("a", "b")
            .edge("b", "c")
    }

    fn make_ready(&mut self, run: usize) {
        self.ready += 1;
        self.runs[run].ready = self.ready;
        self.runs[run].claimable = true;
    }

    /// A command, an exit or a restart took the run from its runner.
    fn release(&mut self, run: usize) {
        for runner in self.runners.iter_mut().filter(|runner| runner.run == run) {
            runner.holds = false;
        }
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Start => self.start().await,
            Op::Launch => self.launch().await,
            Op::Step(pick) => self.step(pick).await,
            Op::Exit(pick, crash) => self.exit(pick, crash).await,
            Op::Pause(pick) => self.pause(pick).await,
            Op::Resume(pick) => self.resume(pick).await,
            Op::Cancel(pick) => self.cancel(pick).await,
            Op::Repeat => self.repeat().await,
            Op::ExpireClaims => {
                for _ in 0..2 {
                    self.place.clock.advance(20_000);
                    self.state.renew_server().await.expect("the server renews");
                }
                for runner in &mut self.runners {
                    runner.expired = true;
                }
            }
            Op::Sleep => self.place.clock.suspend(3_600_000),
            Op::RestartServer => self.restart_server().await,
        }
        self.check().await;
    }

    async fn start(&mut self) {
        let identity = self.identity(Operation::RunStart);
        let receipted = self
            .state
            .start_run(identity, Self::flow().new_run(json!(1)))
            .await
            .expect("start");
        self.runs.push(ModelRun {
            id: common::run_id(&receipted),
            status: "queued",
            queue: "queued",
            paused: false,
            claimable: true,
            steps: 0,
            streak: 0,
            ready: 0,
        });
        self.make_ready(self.runs.len() - 1);
    }

    async fn launch(&mut self) {
        let busy = |run: usize| self.runners.iter().any(|runner| runner.run == run && runner.alive);
        let next = (0..self.runs.len())
            .filter(|&run| self.runs[run].claimable && !busy(run))
            .min_by_key(|&run| self.runs[run].ready);
        let claimed = Runner::claim(&self.state).await;
        let Some(run) = next else {
            assert!(claimed.is_none(), "nothing was ready");
            return;
        };
        let mut runner = claimed.expect("a run is ready");
        assert_eq!(
            *runner.claim.run_id, *self.runs[run].id,
            "the first ready run is claimed"
        );
        let told = runner.ready().await;
        assert_eq!(told.state.step_count, self.runs[run].steps);
        let model = &mut self.runs[run];
        (model.status, model.queue, model.claimable) = ("running", "running", false);
        self.runners.push(ModelRunner {
            runner,
            run,
            alive: true,
            holds: true,
            expired: false,
            begun: false,
        });
    }

    /// Any runner ever launched may try to go on, also those that were fenced off long ago.
    async fn step(&mut self, pick: usize) {
        if self.runners.is_empty() {
            return;
        }
        let at = pick % self.runners.len();
        let run = self.runners[at].run;
        let steps = usize::try_from(self.runs[run].steps).expect("small");
        let slot = &mut self.runners[at];
        let may = slot.holds && !slot.expired;
        if !may && slot.runner.attempt.is_none() {
            return;
        }
        let node = NODES[steps.min(2)];
        let reply = if may && !slot.begun {
            slot.runner.begin(node, 1).await
        } else if steps >= 2 {
            slot.runner.complete(node, json!(steps)).await
        } else {
            slot.runner.step(node, json!(steps), NODES[steps + 1], 1).await
        };
        if !may {
            assert_eq!(reply.outcome, ReplyOutcome::ClaimLost, "{reply:?}");
            return;
        }
        assert_eq!(reply.outcome, ReplyOutcome::Accepted, "{reply:?}");
        if !slot.begun {
            slot.begun = true;
            return;
        }
        self.runs[run].steps += 1;
        self.runs[run].streak = 0;
        if steps >= 2 {
            (self.runs[run].status, self.runs[run].queue) = ("completed", "done");
            self.release(run);
        }
    }

    async fn exit(&mut self, pick: usize, crash: bool) {
        let alive: Vec<usize> = (0..self.runners.len()).filter(|&at| self.runners[at].alive).collect();
        if alive.is_empty() {
            return;
        }
        let at = alive[pick % alive.len()];
        let outcome = if crash {
            RunnerOutcome::Crashed
        } else {
            RunnerOutcome::Cancelled
        };
        self.runners[at].runner.exit(outcome).await;
        let (run, held, begun) = (self.runners[at].run, self.runners[at].holds, self.runners[at].begun);
        self.runners[at].alive = false;
        if !held {
            return;
        }
        self.release(run);
        self.runs[run].queue = "parked";
        if crash && begun {
            self.runs[run].streak += 1;
        }
        if !crash || (begun && self.runs[run].streak < 3) {
            self.make_ready(run);
        }
    }

    fn pick(&self, pick: usize) -> Option<usize> {
        (!self.runs.is_empty()).then(|| pick % self.runs.len())
    }

    async fn pause(&mut self, pick: usize) {
        let Some(run) = self.pick(pick) else { return };
        let identity = self.identity(Operation::RunPause);
        let id = self.runs[run].id.clone();
        let decided = self
            .state
            .pause_run(identity.clone(), id.clone(), None)
            .await
            .expect("pause")
            .receipted;
        let model = &mut self.runs[run];
        let allowed = matches!(model.status, "queued" | "running") && !model.paused;
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed {
            (model.paused, model.claimable, model.queue) = (true, false, "parked");
            self.release(run);
        }
        self.last = Some((Operation::RunPause, identity, id, decided.outcome));
    }

    async fn resume(&mut self, pick: usize) {
        let Some(run) = self.pick(pick) else { return };
        let identity = self.identity(Operation::RunResume);
        let id = self.runs[run].id.clone();
        let decided = self
            .state
            .resume_run(identity.clone(), id.clone(), None)
            .await
            .expect("resume");
        let model = &mut self.runs[run];
        let parked = model.status == "running" && model.queue == "parked" && !model.claimable;
        let allowed = matches!(model.status, "queued" | "running") && (model.paused || parked);
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed {
            model.queue = if model.status == "queued" { "queued" } else { "parked" };
            (model.paused, model.streak) = (false, 0);
            self.make_ready(run);
        }
        self.last = Some((Operation::RunResume, identity, id, decided.outcome));
    }

    async fn cancel(&mut self, pick: usize) {
        let Some(run) = self.pick(pick) else { return };
        let identity = self.identity(Operation::RunCancel);
        let id = self.runs[run].id.clone();
        let decided = self
            .state
            .cancel_run(identity.clone(), id.clone(), None)
            .await
            .expect("cancel")
            .receipted;
        let model = &mut self.runs[run];
        let allowed = matches!(model.status, "queued" | "running");
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed {
            (model.status, model.queue, model.claimable, model.paused) = ("cancelled", "cancelled", false, false);
            self.release(run);
        }
        self.last = Some((Operation::RunCancel, identity, id, decided.outcome));
    }

    /// The last command again, as after a lost answer: the same outcome, no second effect.
    async fn repeat(&mut self) {
        let Some((operation, mut identity, id, first)) = self.last.clone() else {
            return;
        };
        identity.request_id = format!("{} again", identity.request_id);
        let outcome = match operation {
            Operation::RunPause => {
                let again = self.state.pause_run(identity, id, None).await.expect("pause");
                assert_eq!(again.stop, None);
                again.receipted.outcome
            }
            Operation::RunResume => self.state.resume_run(identity, id, None).await.expect("resume").outcome,
            _ => {
                self.state
                    .cancel_run(identity, id, None)
                    .await
                    .expect("cancel")
                    .receipted
                    .outcome
            }
        };
        assert_eq!(
            outcome,
            if first == Outcome::Accepted {
                Outcome::Adopted
            } else {
                first
            }
        );
    }

    async fn restart_server(&mut self) {
        self.state.close();
        self.state = self.place.serve().await;
        let taken = self.state.recorded_processes().await.expect("read").len();
        assert_eq!(taken, self.runners.iter().filter(|runner| runner.alive).count());
        self.state.recover().await.expect("recover");
        // In order of launch, as recovery finds them.
        for at in 0..self.runners.len() {
            let slot = &mut self.runners[at];
            slot.runner.state = self.state.clone();
            slot.alive = false;
            if !slot.holds {
                continue;
            }
            let run = slot.run;
            self.release(run);
            self.runs[run].queue = "parked";
            self.make_ready(run);
        }
    }

    async fn check(&self) {
        for run in &self.runs {
            let (status, queue, claimable, steps) = facts(&self.state, &run.id).await;
            let found = (status.as_str(), queue.as_str(), claimable, steps);
            assert_eq!(found, (run.status, run.queue, run.claimable, run.steps), "{run:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
        runtime.block_on(async {
            let mut world = World::new().await;
            for op in ops {
                world.apply(op).await;
            }
            let found = world.state.verify().await.expect("verify");
            assert_eq!(found, vec![]);
            world.state.close();
        });
    }
}
