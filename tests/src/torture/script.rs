//! What happens in one seed: decided from the number alone, before anything runs.
//!
//! The same seed makes the same script. How processes interleave around it is up to the machine, so a failing seed fails again
//! often, not always: the script says where to look.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use piw_fault::names::point_index;
use piw_fault::plan::{self, Entry, Victim};
use piw_fault::{POINTS, SWITCHES, SwitchKind};
use serde_json::{Value, json};

/// A run that is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Name of the workflow.
    pub workflow: &'static str,
    /// Its input.
    pub input: Value,
}

/// Who is killed from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The server.
    Server,
    /// One runner.
    Runner,
    /// A process that a node runs.
    Command,
    /// Every process of this home, at once: the machine went down.
    Everything,
    /// The server is not killed but stopped until another one has taken over, and then wakes.
    Frozen,
}

/// A SIGKILL from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// When, after the first start was answered.
    pub at: Duration,
    /// Whom.
    pub target: Target,
}

/// A command that nobody needs, to be in the way of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nuisance {
    /// `run.pause`; the run is resumed later.
    Pause,
    /// `run.cancel`.
    Cancel,
    /// `server.stop`, as `piw server stop --now` does; the server is started again.
    Stop,
    /// `state.backup` into a new file.
    Backup,
    /// `state.verify`.
    Verify,
}

/// When a nuisance comes and to which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// When, after the first start was answered.
    pub at: Duration,
    /// Index of the start.
    pub run: usize,
    /// What.
    pub what: Nuisance,
}

/// The script of one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// The number it was made from.
    pub seed: u64,
    /// Runs.
    pub starts: Vec<Start>,
    /// What happens at fail points.
    pub faults: Vec<Entry>,
    /// What happens from outside.
    pub strikes: Vec<Strike>,
    /// What gets in the way.
    pub orders: Vec<Order>,
    /// Switches that are on in every process.
    pub switches: Vec<&'static str>,
    /// Whether unsynced writes are lost with the server.
    pub volatile: bool,
    /// `PIW_LEASE_MS`, when claims are short; only then a stopped server can be replaced in time.
    pub lease_ms: Option<u32>,
    /// `PIW_MAX_RUNNERS`.
    pub runners: u32,
    /// How long runs may take to end.
    pub patience: Duration,
}

/// Length of short claims: a busy machine must not make a server lose its own too often.
const LEASE_MS: u32 = 1500;
/// How long runs may take to end, generous because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same when a rule is broken: a run that never ends is what is looked for.
const IMPATIENCE: Duration = Duration::from_secs(15);

impl Script {
    /// The script of a seed. In a harsh world every hostile switch is on and unsynced writes are lost; else the seed chooses.
    ///
    /// Unsynced writes are never lost where a server is stopped and replaced: two processes have the database open then, and
    /// each has a simulated disk of its own. A partial checkpoint syncs nothing, so what the stopped server wrote in one would
    /// be on no disk when its successor completes it, and no real system forgets it while that process lives.
    #[must_use]
    pub fn of(seed: u64, harsh: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let starts = starts(&mut rng);
        let count = starts.len();
        let switches: Vec<&'static str> = SWITCHES
            .iter()
            .filter(|switch| switch.kind == SwitchKind::Hostile && (rng.bool() || harsh))
            .map(|switch| switch.name)
            .collect();
        let lossy = rng.bool() || harsh;
        let frozen = rng.u8(0..5) == 0;
        let mut strikes = strikes(&mut rng);
        strikes.extend(frozen.then(|| Strike {
            at: Duration::from_millis(rng.u64(0..500)),
            target: Target::Frozen,
        }));
        Self {
            seed,
            starts,
            faults: faults(seed, &mut rng),
            strikes,
            lease_ms: frozen.then_some(LEASE_MS),
            orders: orders(&mut rng, count),
            switches,
            volatile: lossy && !frozen,
            runners: rng.u32(1..=4),
            patience: PATIENCE,
        }
    }

    /// The same with a rule broken.
    #[must_use]
    pub fn with(mut self, broken: Option<&'static str>) -> Self {
        if broken.is_some() {
            self.patience = IMPATIENCE;
        }
        self.switches.extend(broken);
        self
    }
}

/// One of each workflow in turn, so that a few neighbouring seeds cover all of them, and up to two more.
fn starts(rng: &mut Rng) -> Vec<Start> {
    let count = rng.usize(2..=3);
    let mut names = ["kinds", "rounds", "talk", "long"];
    rng.shuffle(&mut names);
    // The first run is bound to a session, and agent steps of such a run are refused at its start.
    if names[0] == "talk" {
        names.swap(0, 1);
    }
    names[..count]
        .iter()
        .map(|&workflow| Start {
            workflow,
            input: match workflow {
                "kinds" => json!({ "pace": rng.u8(0..6) }),
                // Values of a few bytes, of more than a row holds, and of several parts of an upload.
                "rounds" => json!({ "rounds": rng.u8(1..4), "size": rng.choice([1, 20_000, 700_000]) }),
                _ => json!({}),
            },
        })
        .collect()
}

/// The first entry walks through all points with the seeds; the others are drawn.
fn faults(seed: u64, rng: &mut Rng) -> Vec<Entry> {
    let count = rng.usize(1..=4);
    let mut entries = vec![uncommitted(rng), entry(index_of(seed), rng)];
    entries.extend((1..count).map(|_| entry(rng.usize(0..POINTS.len()), rng)));
    entries
}

/// Every seed loses one commit: what it would have stored must be known to nobody, however long anybody had to learn of it.
fn uncommitted(rng: &mut Rng) -> Entry {
    Entry {
        point: point_index("state::before_commit"),
        ordinal: rng.u64(2..40),
        victim: Victim::Own,
        delay: Duration::from_millis(rng.u64(10..60)),
    }
}

/// The point that a seed begins with. Neighbouring seeds begin far apart, since neighbouring points are alike.
fn index_of(seed: u64) -> usize {
    let many = POINTS.len() as u64;
    // 37 is prime and larger than what the list has in common with it, so every point comes once in `many` seeds.
    let step = if many.is_multiple_of(37) { 41 } else { 37 };
    usize::try_from(seed.wrapping_mul(step) % many).unwrap_or_default()
}

fn entry(point: usize, rng: &mut Rng) -> Entry {
    let name = POINTS[point].name;
    // Points of the server are reached by processes whose parent is not one of ours.
    let has_parent = !(name.starts_with("server::") || name.starts_with("state::"));
    let victim = match rng.u8(0..10) {
        0 => Victim::Nobody,
        1 | 2 if has_parent => Victim::Parent,
        3 | 4 if has_parent => Victim::Both,
        _ => Victim::Own,
    };
    // Most points are reached a few times in a run, commits often.
    let most = if name.starts_with("state::") { 40 } else { 8 };
    let ordinal = 1 + rng.u64(0..most).min(rng.u64(0..most));
    let delay = match victim {
        Victim::Nobody => rng.u64(5..80),
        _ => rng.choice([0, 0, 3, 20]).unwrap_or(0),
    };
    Entry {
        point,
        ordinal,
        victim,
        delay: Duration::from_millis(delay),
    }
}

fn strikes(rng: &mut Rng) -> Vec<Strike> {
    let count = rng.usize(0..=2);
    let targets = [Target::Server, Target::Runner, Target::Command, Target::Everything];
    (0..count)
        .map(|_| Strike {
            at: Duration::from_millis(rng.u64(0..700)),
            target: rng.choice(targets).unwrap_or(Target::Server),
        })
        .collect()
}

fn orders(rng: &mut Rng, runs: usize) -> Vec<Order> {
    let count = rng.usize(0..=3);
    let kinds = [
        Nuisance::Pause,
        Nuisance::Pause,
        Nuisance::Pause,
        Nuisance::Cancel,
        Nuisance::Stop,
        Nuisance::Backup,
        Nuisance::Verify,
    ];
    (0..count)
        .map(|_| Order {
            at: Duration::from_millis(rng.u64(0..700)),
            run: rng.usize(0..runs),
            what: rng.choice(kinds).unwrap_or(Nuisance::Pause),
        })
        .collect()
}

impl fmt::Display for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "seed {}", self.seed)?;
        for start in &self.starts {
            writeln!(formatter, "  start    {} {}", start.workflow, start.input)?;
        }
        writeln!(formatter, "  faults   {}", plan::write(&self.faults))?;
        for strike in &self.strikes {
            writeln!(
                formatter,
                "  strike   {} ms: {:?}",
                strike.at.as_millis(),
                strike.target
            )?;
        }
        for order in &self.orders {
            writeln!(
                formatter,
                "  order    {} ms: {:?} run {}",
                order.at.as_millis(),
                order.what,
                order.run
            )?;
        }
        write!(
            formatter,
            "  switches {} volatile={} lease={:?} runners={}",
            self.switches.join(","),
            self.volatile,
            self.lease_ms,
            self.runners
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_makes_the_same_script_every_time() {
        for seed in 0..50 {
            assert_eq!(Script::of(seed, false), Script::of(seed, false));
        }
    }

    #[test]
    fn as_many_seeds_as_points_begin_with_every_point() {
        let first: HashSet<usize> = (0..POINTS.len() as u64)
            .map(|seed| Script::of(seed, false).faults[1].point)
            .collect();
        assert_eq!(first.len(), POINTS.len());
    }
}
