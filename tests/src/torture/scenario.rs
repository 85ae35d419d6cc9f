//! Plays a script: starts runs, answers what they ask, gets in their way, kills, restarts, until every run has ended.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use piw_protocol::canonical::{self, CanonicalJson};
use piw_protocol::client::Call;
use piw_protocol::effect::{EffectDecision, EffectList, EffectListReport, EffectResolve};
use piw_protocol::maintenance::{StateBackup, StateBackupReport, StateVerifyReport};
use piw_protocol::ops::{CheckpointAnswer, Operation, RunList, RunStart};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{RunListItem, RunListPage, RunView};
use serde::Serialize;
use serde_json::json;

use super::processes::{self, Kind};
use super::recorder::{Recorder, SESSION};
use super::reviewer::{self, Review};
use super::script::{Nuisance, Order, Script, Strike, Target};
use super::viewer::Viewer;
use super::world::{Answered, Stuck, World};

/// Pause between two looks at the runs.
const LOOK: Duration = Duration::from_millis(15);
/// How long whoever watches may take to see the end.
const CATCH_UP: Duration = Duration::from_secs(15);
/// Starts of one run that may be refused because its resolver was killed.
const START_TRIES: u32 = 4;

/// A played script.
#[derive(Debug, Default)]
pub struct Played {
    /// Ids of the runs that accepted commands made, in that order.
    pub runs: Vec<String>,
    /// Runs that an accepted `run.cancel` ended.
    pub cancelled: HashSet<String>,
    /// A process of a node was killed, so its node may have failed.
    pub struck_command: bool,
    /// Processes that were killed from outside.
    pub struck: u32,
    /// Effects that somebody had tried again without looking, and how often.
    pub careless: HashMap<String, u64>,
    /// What was recorded of the first run's session.
    pub recorder: Option<Recorder>,
    /// How long it took.
    pub took: Duration,
}

/// Plays the script in a fresh world.
///
/// # Errors
/// When something does not come to an end.
pub async fn play(world: &mut World, script: &Script) -> Result<Played, Stuck> {
    let socket = world.state_dir().join("server/server.sock");
    let mut player = Player {
        world,
        rng: Rng::with_seed(script.seed ^ 0x5eed),
        started: Instant::now(),
        keys: 0,
        firsts: Vec::new(),
        played: Played::default(),
        paused: HashMap::new(),
        done: HashSet::new(),
        viewer: Viewer::new(socket),
    };
    let started = Instant::now();
    for start in &script.starts {
        player.start(start.workflow, &start.input).await?;
    }
    player.started = Instant::now();
    player.played.recorder = player.firsts.first().cloned().flatten().map(Recorder::of);
    player.until_all_have_ended(script).await?;
    player.played.took = started.elapsed();
    Ok(player.played)
}

struct Player<'a> {
    world: &'a mut World,
    rng: Rng,
    started: Instant,
    keys: u32,
    /// The run that each start made; `None` when it was refused.
    firsts: Vec<Option<String>>,
    played: Played,
    /// Runs whose pause was acknowledged, and when.
    paused: HashMap<String, Instant>,
    /// Runs that are asked for nothing any more.
    done: HashSet<String>,
    viewer: Viewer,
}

impl Player<'_> {
    fn call<T: Serialize>(&mut self, operation: Operation, run: Option<&str>, payload: &T) -> Call {
        self.keys += 1;
        let call = Call {
            operation,
            idempotency_key: format!("{}-{}", operation.name(), self.keys),
            run_id: None,
            expected_revision: None,
            payload: CanonicalJson::new(payload).expect("a plain payload has a canonical form"),
        };
        match run {
            Some(run) => call.run(run),
            None => call,
        }
    }

    async fn start(&mut self, workflow: &str, input: &serde_json::Value) -> Result<(), Stuck> {
        let start = RunStart {
            workflow: workflow.to_owned(),
            project_path: self.world.project().to_string_lossy().into_owned(),
            input: input.clone(),
            input_content: None,
            session_id: self.firsts.is_empty().then(|| SESSION.to_owned()),
        };
        for _ in 0..START_TRIES {
            let call = self.call(Operation::RunStart, None, &start);
            let answered = self.world.send(call).await?;
            if let Some(receipt) = answered.receipt() {
                self.firsts.push(Some(receipt.run_id.clone()));
                self.played.runs.push(receipt.run_id);
                return Ok(());
            }
            let reason = answered.response.error.map(|error| error.reason).unwrap_or_default();
            if reason != "workflow_crashed" {
                return Err(Stuck(format!("the start of {workflow} is refused: {reason}")));
            }
        }
        self.firsts.push(None);
        Ok(())
    }

    async fn until_all_have_ended(&mut self, script: &Script) -> Result<(), Stuck> {
        let mut strikes: Vec<Strike> = script.strikes.clone();
        let mut orders: Vec<Order> = script.orders.clone();
        let deadline = Instant::now() + script.patience;
        loop {
            let now = self.started.elapsed();
            for strike in take_due(&mut strikes, |strike| strike.at <= now) {
                self.strike(strike.target)?;
            }
            for order in take_due(&mut orders, |order| order.at <= now) {
                self.order(order).await?;
            }
            // It goes on after the run's end, until everything has ended.
            if let Some(recorder) = &mut self.played.recorder {
                recorder.record(self.world, &mut self.rng).await?;
            }
            let items = self.list().await?.items;
            if items.iter().all(|item| has_ended(item.display.status)) {
                if let Some(recorder) = &mut self.played.recorder {
                    recorder.end(self.world).await?;
                }
                return self.viewer_sees_it().await;
            }
            for item in &items {
                self.viewer.watch(&item.run_id);
                self.serve(item).await?;
            }
            if Instant::now() > deadline {
                let open: Vec<_> = items
                    .iter()
                    .filter(|item| !has_ended(item.display.status))
                    .map(|item| {
                        (
                            &item.run_id,
                            &item.workflow_name,
                            item.display.status,
                            &item.display.reason,
                        )
                    })
                    .collect();
                return Err(Stuck(format!("runs do not come to an end: {open:?}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The whole list; there are few runs.
    async fn list(&mut self) -> Result<RunListPage, Stuck> {
        let call = self.call(Operation::RunList, None, &RunList::default());
        let response = self.world.deliver(&call).await?;
        let page: Option<RunListPage> = response.receipt.and_then(|receipt| receipt.decode().ok());
        page.ok_or_else(|| Stuck(format!("run.list is refused: {:?}", response.error)))
    }

    /// Whoever watched all the time sees in the end what is read now.
    async fn viewer_sees_it(&mut self) -> Result<(), Stuck> {
        let deadline = Instant::now() + CATCH_UP;
        loop {
            let list = self.list().await?;
            let mut seen = vec![self.viewer.shows_list(&list).await];
            for run in self.played.runs.clone() {
                let view = self.view(&run).await?;
                seen.push(self.viewer.shows_run(&view).await);
            }
            let wrong: Vec<String> = seen.into_iter().filter_map(Result::err).collect();
            if wrong.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let wrong = wrong.into_iter();
                self.world
                    .wrong
                    .extend(wrong.map(|what| format!("what is watched is what is stored: {what}")));
                return Ok(());
            }
        }
    }

    async fn view(&mut self, run: &str) -> Result<RunView, Stuck> {
        let call = self.call(Operation::ViewRunGet, Some(run), &json!({}));
        let response = self.world.deliver(&call).await?;
        let view: Option<RunView> = response.receipt.and_then(|receipt| receipt.decode().ok());
        view.ok_or_else(|| Stuck(format!("view.run.get of {run} is refused: {:?}", response.error)))
    }

    /// Gives a run what it needs to go on.
    async fn serve(&mut self, item: &RunListItem) -> Result<(), Stuck> {
        let run = item.run_id.as_str();
        if let Some(since) = self.paused.get(run).copied() {
            if item.display.status != DisplayStatus::Paused && item.display.status != DisplayStatus::Ambiguous {
                self.world.wrong.push(format!(
                    "run {run} was paused, that was acknowledged, and it is {:?}",
                    item.display.status
                ));
            }
            if since.elapsed() < Duration::from_millis(60) {
                return Ok(());
            }
        }
        let offers = |control: &str| item.display.controls.iter().any(|name| name == control);
        if item.display.status == DisplayStatus::Ambiguous {
            self.review(run).await?;
        } else if offers("answer") {
            let answer = json!({ "word": format!("word-{}", self.keys), "sure": true });
            let call = self.call(Operation::CheckpointAnswer, Some(run), &CheckpointAnswer { answer });
            let answered = self.world.send(call).await?;
            self.note(run, &answered);
        } else if offers("resume") {
            let call = self.call(Operation::RunResume, Some(run), &json!({}));
            let answered = self.world.send(call).await?;
            self.note(run, &answered);
        }
        Ok(())
    }

    /// Settles the effects of a run whose outcome nobody can prove.
    async fn review(&mut self, run: &str) -> Result<(), Stuck> {
        let call = self.call(Operation::EffectList, Some(run), &EffectList::default());
        let response = self.world.deliver(&call).await?;
        let listed: Option<EffectListReport> = response.receipt.and_then(|receipt| receipt.decode().ok());
        let Some(listed) = listed else {
            return Err(Stuck(format!("effect.list is refused: {:?}", response.error)));
        };
        // A decision moves the run's revision: one at a time.
        let Some(effect) = listed.effects.first() else {
            return Ok(());
        };
        let review = reviewer::decide(effect, &self.world.effects_log(), &mut self.rng);
        let decision = match review {
            Review::GiveUp => return self.cancel(run).await,
            Review::Careless => EffectDecision::Retry,
            Review::Careful(decision) => decision,
        };
        let resolve = EffectResolve {
            effect_id: effect.effect_id.clone(),
            decision,
            result: serde_json::Value::Null,
        };
        let call = self
            .call(Operation::EffectResolve, Some(run), &resolve)
            .at(Some(effect.revision));
        let answered = self.world.send(call).await?;
        if review == Review::Careless && answered.receipt().is_some() {
            *self.played.careless.entry(effect.effect_id.clone()).or_default() += 1;
        }
        Ok(())
    }

    async fn cancel(&mut self, run: &str) -> Result<(), Stuck> {
        if self.done.contains(run) {
            return Ok(());
        }
        let call = self.call(Operation::RunCancel, Some(run), &json!({}));
        let answered = self.world.send(call).await?;
        self.note(run, &answered);
        Ok(())
    }

    /// Remembers what an accepted command promises.
    fn note(&mut self, run: &str, answered: &Answered) {
        let Some(receipt) = answered.receipt() else {
            return;
        };
        match answered.call.operation {
            Operation::RunPause if receipt.paused => {
                self.paused.insert(run.to_owned(), Instant::now());
            }
            Operation::RunResume => {
                self.paused.remove(run);
            }
            Operation::RunCancel => {
                self.paused.remove(run);
                self.done.insert(run.to_owned());
                self.played.cancelled.insert(run.to_owned());
            }
            _ => {}
        }
        self.played.runs.extend(receipt.new_run_id);
    }

    async fn order(&mut self, order: Order) -> Result<(), Stuck> {
        let Some(run) = self.firsts.get(order.run).cloned().flatten() else {
            return Ok(());
        };
        match order.what {
            Nuisance::Pause => {
                let call = self.call(Operation::RunPause, Some(&run), &json!({}));
                let answered = self.world.send(call).await?;
                self.note(&run, &answered);
            }
            Nuisance::Cancel => self.cancel(&run).await?,
            Nuisance::Stop => self.world.stop_server(true),
            Nuisance::Backup => self.back_up().await?,
            Nuisance::Verify => {
                let call = self.call(Operation::StateVerify, None, &json!({}));
                let response = self.world.deliver(&call).await?;
                let report: Option<StateVerifyReport> = response.receipt.and_then(|receipt| receipt.decode().ok());
                if !report.as_ref().is_some_and(|report| report.sound) {
                    self.world
                        .wrong
                        .push(format!("state.verify in the middle: {report:?} {:?}", response.error));
                }
            }
        }
        Ok(())
    }

    /// Copies the state while it changes. A copy that was acknowledged is whole and is the file that the receipt names.
    async fn back_up(&mut self) -> Result<(), Stuck> {
        let path = self.world.project().join(format!("backup-{}.sqlite", self.keys));
        let backup = StateBackup {
            path: path.to_string_lossy().into_owned(),
        };
        let call = self.call(Operation::StateBackup, None, &backup);
        let answered = self.world.send(call).await?;
        let receipt = answered.response.receipt.as_ref();
        let Some(report) = receipt.and_then(|receipt| receipt.decode::<StateBackupReport>().ok()) else {
            return Ok(());
        };
        let found = std::fs::read(&path).map_or_else(|error| error.to_string(), |bytes| canonical::sha256_hex(&bytes));
        if found != report.sha256 || !report.violations.is_empty() {
            self.world
                .wrong
                .push(format!("a backup was acknowledged as {report:?} and is {found}"));
        }
        Ok(())
    }

    fn strike(&mut self, target: Target) -> Result<(), Stuck> {
        let kind = match target {
            Target::Server => {
                self.played.struck += 1;
                self.world.kill_server();
                return Ok(());
            }
            Target::Frozen => {
                self.played.struck += 1;
                return self.world.replace_frozen_server();
            }
            Target::Runner => Kind::Runner,
            Target::Command => Kind::Command,
            Target::Everything => {
                for process in self.world.processes() {
                    self.played.struck += 1;
                    processes::end(&process);
                }
                self.world.kill_server();
                return Ok(());
            }
        };
        let rng = &mut self.rng;
        if let Some(process) = self.world.victim(kind, |count| rng.usize(0..count)) {
            processes::end(&process);
            self.played.struck += 1;
            self.played.struck_command |= kind == Kind::Command;
        }
        Ok(())
    }
}

fn take_due<T: Copy>(all: &mut Vec<T>, due: impl Fn(&T) -> bool) -> Vec<T> {
    let taken = all.iter().copied().filter(&due).collect();
    all.retain(|one| !due(one));
    taken
}

/// Whether a run does nothing more by itself or when asked.
const fn has_ended(status: DisplayStatus) -> bool {
    matches!(
        status,
        DisplayStatus::Completed | DisplayStatus::Failed | DisplayStatus::TimedOut | DisplayStatus::Cancelled
    )
}
