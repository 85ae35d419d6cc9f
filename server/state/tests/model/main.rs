//! Random interleavings of commands, runners, crashes, clock jumps, server restarts and losses of power against a simple model.
//! The database lies on a disk that loses what was not synced.

#[path = "../common/mod.rs"]
mod common;
mod loss;
mod review;

use common::{Flow, Place, Runner, command, facts};
use piw_protocol::child::{EffectSettlement, ReplyOutcome, ValueRef};
use piw_protocol::definition::EffectKind;
use piw_protocol::effect::EffectDecision;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_state::vfs::{self, Disk, On, Survives};
use piw_state::{Answer, CommandIdentity, RunnerOutcome, State};
use proptest::prelude::*;
use serde_json::json;

/// Workflows of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Three compute nodes.
    Chain,
    /// A checkpoint between compute nodes.
    Ask,
    /// A manual effect, then a compute node.
    Effect,
}

impl Kind {
    const fn nodes(self) -> &'static [&'static str] {
        match self {
            Self::Chain => &["a", "b", "c"],
            Self::Ask => &["a", "b", "ask", "d"],
            Self::Effect => &["a", "b"],
        }
    }

    fn flow(self) -> Flow {
        match self {
            Self::Chain => Flow::new("a")
                .compute("a")
                .compute("b")
                .compute("c")
                .edge("a", "b")
                .edge("b", "c"),
            Self::Ask => Flow::new("a")
                .compute("a")
                .compute("b")
                .checkpoint("ask")
                .compute("d")
                .edge("a", "b")
                .edge("b", "ask")
                .edge("ask", "d"),
            Self::Effect => Flow::new("a")
                .action("a", EffectKind::Manual)
                .compute("b")
                .edge("a", "b"),
        }
    }
}

/// The manual effect of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Effect {
    None,
    Applying,
    Applied,
    Ambiguous,
    Pending,
}

#[derive(Debug, Clone)]
enum Op {
    Start(Kind),
    Launch,
    Step(usize),
    Exit(usize, bool),
    Pause(usize),
    Resume(usize),
    Cancel(usize),
    Repeat,
    Answer(usize),
    Resolve(usize, EffectDecision),
    ExpireClaims,
    Sleep,
    RestartServer,
    /// The power goes while nothing is written.
    LosePower(Survives),
    /// The power goes at so many operations from now, while runs are started and a node is finished.
    LosePowerAt(On, u64, Survives),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop_oneof![2 => Just(Kind::Chain), 1 => Just(Kind::Ask), 1 => Just(Kind::Effect)].prop_map(Op::Start),
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
        2 => (0..8usize).prop_map(Op::Answer),
        2 => (0..8usize, prop_oneof![Just(EffectDecision::Confirm), Just(EffectDecision::Retry)])
            .prop_map(|(pick, decision)| Op::Resolve(pick, decision)),
        1 => survives().prop_map(Op::LosePower),
        2 => (prop_oneof![Just(On::Write), Just(On::Sync)], 1..40u64, survives())
            .prop_map(|(on, at, survives)| Op::LosePowerAt(on, at, survives)),
    ]
}

fn survives() -> impl Strategy<Value = Survives> {
    prop_oneof![Just(Survives::Nothing), any::<u64>().prop_map(Survives::Some)]
}

#[derive(Debug, Clone, PartialEq)]
struct ModelRun {
    id: String,
    kind: Kind,
    effect: Effect,
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
    disk: Disk,
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
        let disk = vfs::lay_under(place.dir.path());
        disk.set_volatile(true);
        disk.checkpoint_after(60);
        let state = place.serve().await;
        Self {
            place,
            disk,
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
            Op::Start(kind) => self.start(kind).await,
            Op::Answer(pick) => self.answer(pick).await,
            Op::Resolve(pick, decision) => self.resolve(pick, decision).await,
            Op::LosePower(survives) => self.lose_power(survives).await,
            Op::LosePowerAt(on, at, survives) => self.lose_power_at(on, at, survives).await,
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

    async fn start(&mut self, kind: Kind) {
        let identity = self.identity(Operation::RunStart);
        let receipted = self
            .state
            .start_run(identity, kind.flow().new_run(json!(1)))
            .await
            .expect("start");
        self.add(common::run_id(&receipted), kind, 0);
    }

    /// A new run is ready.
    fn add(&mut self, id: String, kind: Kind, steps: u64) {
        self.runs.push(ModelRun {
            id,
            kind,
            effect: Effect::None,
            status: "queued",
            queue: "queued",
            paused: false,
            claimable: true,
            steps,
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
        let nodes = self.runs[run].kind.nodes();
        let node = nodes[steps.min(nodes.len() - 1)];
        if may
            && slot.begun
            && node == "a"
            && self.runs[run].kind == Kind::Effect
            && self.runs[run].effect != Effect::Applied
        {
            self.runs[run].effect = review::apply(&mut slot.runner, self.runs[run].effect).await;
            return;
        }
        let last = steps + 1 >= nodes.len();
        let reply = if may && !slot.begun {
            slot.runner.begin(node, 1).await
        } else if node == "ask" {
            slot.runner.wait(node, json!("go on?")).await
        } else if last {
            slot.runner.complete(node, json!(steps)).await
        } else {
            slot.runner.step(node, json!(steps), nodes[steps + 1], 1).await
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
        if node == "ask" {
            (self.runs[run].status, self.runs[run].queue) = ("waiting", "parked");
            self.release(run);
        } else if last {
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
        if self.interrupt(run) {
            return;
        }
        if !crash || (begun && self.runs[run].streak < 3) {
            self.make_ready(run);
        }
    }

    /// A manual effect that was being applied may have happened or not: the run waits for a person.
    fn interrupt(&mut self, run: usize) -> bool {
        let applying = self.runs[run].effect == Effect::Applying;
        if applying {
            self.runs[run].effect = Effect::Ambiguous;
        }
        applying
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
        let allowed = matches!(model.status, "queued" | "running" | "waiting")
            && !model.paused
            && model.effect != Effect::Ambiguous;
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed {
            (model.paused, model.claimable, model.queue) = (true, false, "parked");
            self.release(run);
            self.interrupt(run);
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
        let alive = matches!(model.status, "queued" | "running" | "waiting");
        let allowed = alive && (model.paused || parked) && model.effect != Effect::Ambiguous;
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed && model.status == "waiting" {
            model.paused = false;
        } else if allowed {
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
        let allowed = matches!(model.status, "queued" | "running" | "waiting");
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed {
            self.interrupt(run);
            let model = &mut self.runs[run];
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

    async fn answer(&mut self, pick: usize) {
        let Some(run) = self.pick(pick) else { return };
        let identity = self.identity(Operation::CheckpointAnswer);
        let answer = Answer {
            value: ValueRef::Inline(json!("yes")),
            source: "shell".to_owned(),
        };
        let decided = self
            .state
            .answer_checkpoint(identity, self.runs[run].id.clone(), None, answer)
            .await
            .expect("answer");
        let model = &mut self.runs[run];
        let allowed = model.status == "waiting" && !model.paused;
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if allowed {
            (model.status, model.queue) = ("completed", "done");
            let (kind, steps) = (model.kind, model.steps);
            let id = decided.receipt.and_then(|receipt| receipt.new_run_id);
            self.add(id.expect("a continuation"), kind, steps);
        }
    }

    async fn restart_server(&mut self) {
        self.state.close();
        self.reopen().await;
    }

    /// A new server finds what was acknowledged, and takes back what was interrupted.
    async fn reopen(&mut self) {
        self.state = self.place.serve().await;
        self.check().await;
        assert_eq!(self.state.verify().await.expect("verify"), vec![]);
        self.recover().await;
    }

    async fn recover(&mut self) {
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
            if !self.interrupt(run) {
                self.make_ready(run);
            }
        }
    }

    async fn check(&self) {
        for run in &self.runs {
            let (status, queue, claimable, steps) = facts(&self.state, &run.id).await;
            let found = (status.as_str(), queue.as_str(), claimable, steps);
            assert_eq!(found, (run.status, run.queue, run.claimable, run.steps), "{run:?}");
        }
        let counted: usize = self
            .state
            .read(|db| Ok(db.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?))
            .await
            .expect("read");
        assert_eq!(counted, self.runs.len(), "runs");
    }
}

fn in_runtime(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("runtime");
    runtime.block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(ops in prop::collection::vec(op(), 1..60)) {
        in_runtime(async {
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

/// The same checks fail on a database that does not sync: without that they would prove nothing.
#[test]
fn the_model_notices_a_database_that_does_not_sync() {
    let lost = std::panic::catch_unwind(|| {
        in_runtime(async {
            let mut world = World::new().await;
            world.state.close();
            world.disk.open_without_syncs();
            world.reopen().await;
            for op in [Op::Start(Kind::Chain), Op::Launch, Op::Step(0), Op::Step(0)] {
                world.apply(op).await;
            }
            world.apply(Op::LosePower(Survives::Nothing)).await;
        });
    });
    assert!(lost.is_err(), "nothing was missed although nothing was synced");
}
