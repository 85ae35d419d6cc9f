//! The torture of the real binary: kills it at fail points and at random, restarts it, and checks from outside that nothing that
//! was acknowledged is lost or done twice.
//!
//! | module | owns |
//! | --- | --- |
//! | [`script`] | what happens in a seed, decided before |
//! | [`world`] | a home, its server, commands and their answers |
//! | [`processes`] | the processes of a home, and killing them |
//! | [`scenario`] | playing a script until every run has ended |
//! | [`recorder`] | the recorder of the session that the first run is bound to |
//! | [`reviewer`], [`viewer`] | the person who settles ambiguous effects, and the one who watches |
//! | [`facts`] | what the database says, read by SQL alone |
//! | [`check`] | what must hold afterwards |
//! | [`binary`] | the binary with fail points |
//! | [`report`] | seeds side by side, and what is printed |

pub mod binary;
pub mod check;
pub mod facts;
pub mod processes;
pub mod recorder;
pub mod report;
pub mod reviewer;
pub mod scenario;
pub mod script;
pub mod viewer;
pub mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::check::Findings;
use self::scenario::Played;
use self::script::Script;
use self::world::{Stuck, World};

/// What one seed showed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The number.
    pub seed: u64,
    /// What was found wrong.
    pub violations: Vec<String>,
    /// Stored runs by status.
    pub runs: BTreeMap<String, u64>,
    /// Stored effects by kind and status.
    pub effects: BTreeMap<String, u64>,
    /// Commands that were answered.
    pub commands: usize,
    /// Entries of the plan that fired.
    pub fired: Vec<String>,
    /// Processes killed from outside.
    pub struck: u32,
    /// Servers that were started.
    pub starts: u32,
    /// Processes that reached each point.
    pub hits: BTreeMap<String, u64>,
    /// Time from first start to last end.
    pub took: Duration,
    /// Commands that took long.
    pub slow: Vec<String>,
    /// Where the home of a failing seed is, and what its server wrote.
    pub kept: Option<(PathBuf, String)>,
}

/// Plays and checks one script. `keep` leaves the home of a failing one in place.
///
/// # Panics
/// When the harness itself fails: no temporary directory, no runtime.
#[must_use]
pub fn run(binary: &Path, script: &Script, keep: bool) -> Outcome {
    let mut world = World::new(binary, script);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut outcome = Outcome {
        seed: script.seed,
        ..Outcome::default()
    };
    let mut findings = Findings::default();
    if let Err(stuck) = runtime.block_on(torture(&mut world, script, &mut findings, &mut outcome)) {
        findings.0.push(stuck.to_string());
    }
    findings.0.append(&mut world.wrong);
    outcome.commands = world.answered.len();
    outcome.fired = world.fired();
    outcome.starts = world.starts;
    outcome.slow = std::mem::take(&mut world.slow);
    for name in world.hits() {
        *outcome.hits.entry(name).or_default() += 1;
    }
    outcome.violations = findings.0;
    if keep && !outcome.violations.is_empty() {
        let log = world.log();
        outcome.kept = Some((world.keep(), log));
    }
    outcome
}

async fn torture(
    world: &mut World,
    script: &Script,
    findings: &mut Findings,
    outcome: &mut Outcome,
) -> Result<(), Stuck> {
    world.ensure_server()?;
    let played = scenario::play(world, script).await?;
    outcome.took = played.took;
    outcome.struck = played.struck;
    // Half of the seeds end in order, the others with one more crash.
    if script.seed.is_multiple_of(2) {
        world.stop_server(false);
    }
    world.kill_server();
    world.calm();
    world.ensure_server()?;
    check::receipts(world, findings).await?;
    let shown = check::shown(world, &played).await?;
    check::recorded(world, &played, findings).await?;
    world.stop_server(false);
    world.kill_server();
    check::nothing_runs(world, findings);
    check::verified(world, findings).await?;
    let facts =
        facts::read(&world.state_dir()).map_err(|error| Stuck(format!("the database cannot be read: {error}")))?;
    check_facts(world, &facts, &played, findings);
    check::projections(&facts, &shown, findings);
    count(&facts, outcome);
    Ok(())
}

fn check_facts(world: &World, facts: &facts::Facts, played: &Played, findings: &mut Findings) {
    check::runs(facts, played, findings);
    check::effects(facts, &world.effects_log(), played, findings);
}

fn count(facts: &facts::Facts, outcome: &mut Outcome) {
    for run in facts.runs.values() {
        *outcome.runs.entry(run.status.clone()).or_default() += 1;
    }
    for effect in facts.effects.values() {
        let name = format!("{} {}", effect.kind, effect.status);
        *outcome.effects.entry(name).or_default() += 1;
    }
}
