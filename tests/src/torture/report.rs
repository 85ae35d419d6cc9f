//! Seeds side by side, and what is printed of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use piw_fault::POINTS;

use super::Outcome;
use super::script::Script;

/// Lines of a failing seed's server log that are shown.
const LOG_LINES: usize = 25;

/// Which seeds.
#[derive(Debug, Clone)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// How many at a time.
    pub jobs: usize,
    /// Whether every hostile switch is on and unsynced writes are lost, whatever the seed says.
    pub harsh: bool,
    /// A switch that breaks a rule. Failing is what is expected then: it ends at the first failing seed and keeps nothing.
    pub broken: Option<&'static str>,
}

impl Seeds {
    fn script(&self, seed: u64) -> Script {
        Script::of(seed, self.harsh).with(self.broken)
    }
}

/// What all seeds showed.
#[derive(Debug, Default)]
pub struct Summary {
    /// Seeds that were played.
    pub seeds: u64,
    /// Those of them that failed, and how.
    pub failed: BTreeMap<u64, Vec<String>>,
    /// Processes that reached each point.
    pub hits: BTreeMap<String, u64>,
    runs: BTreeMap<String, u64>,
    effects: BTreeMap<String, u64>,
    commands: usize,
    fired: usize,
    struck: u32,
    starts: u32,
    slowest: (Duration, u64),
    took: Duration,
}

/// Plays seeds, a few at a time; prints each that fails at once.
#[must_use]
pub fn play(binary: &Path, seeds: &Seeds) -> Summary {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let mut summary = Summary::default();
    thread::scope(|scope| {
        let (done, outcomes) = mpsc::channel::<Outcome>();
        for _ in 0..seeds.jobs {
            let (done, next) = (done.clone(), &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= seeds.count {
                        return;
                    }
                    let script = seeds.script(seeds.first + number);
                    let outcome = super::run(binary, &script, seeds.broken.is_none());
                    // The receiver is gone once a first failure was enough.
                    if done.send(outcome).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        for outcome in outcomes {
            let failed = !outcome.violations.is_empty();
            if failed && seeds.broken.is_none() {
                print!("{}", failure(&outcome, &seeds.script(outcome.seed)));
            }
            for slow in &outcome.slow {
                println!("seed {}: {slow}", outcome.seed);
            }
            summary.add(outcome);
            if failed && seeds.broken.is_some() {
                next.store(seeds.count, Ordering::Relaxed);
                break;
            }
        }
    });
    summary.took = started.elapsed();
    summary
}

/// A failing seed: what is wrong, what was done, and where to look.
fn failure(outcome: &Outcome, script: &Script) -> String {
    let mut text = format!("\nseed {} FAILED\n", outcome.seed);
    for violation in &outcome.violations {
        let _ = writeln!(text, "  {violation}");
    }
    let _ = writeln!(text, "{script}");
    let _ = writeln!(text, "  fired    {}", outcome.fired.join(";"));
    if let Some((home, log)) = &outcome.kept {
        let _ = writeln!(text, "  home     {}", home.display());
        let lines: Vec<&str> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
            let _ = writeln!(text, "  log      {line}");
        }
    }
    text
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        for (name, count) in outcome.hits {
            *self.hits.entry(name).or_default() += count;
        }
        for (name, count) in outcome.runs {
            *self.runs.entry(name).or_default() += count;
        }
        for (name, count) in outcome.effects {
            *self.effects.entry(name).or_default() += count;
        }
        self.commands += outcome.commands;
        self.fired += outcome.fired.len();
        self.struck += outcome.struck;
        self.starts += outcome.starts;
        self.slowest = self.slowest.max((outcome.took, outcome.seed));
        if !outcome.violations.is_empty() {
            self.failed.insert(outcome.seed, outcome.violations);
        }
    }

    /// Points that nobody reached, those aside at which no run of a seed can be.
    #[must_use]
    pub fn missed(&self) -> Vec<&'static str> {
        let reached = |name: &str| self.hits.contains_key(name);
        POINTS
            .iter()
            .filter(|point| !point.asks)
            .map(|point| point.name)
            .filter(|name| !reached(name))
            .collect()
    }

    /// The table of all seeds.
    #[must_use]
    pub fn table(&self) -> String {
        let list = |counts: &BTreeMap<String, u64>| {
            let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
            parts.join(", ")
        };
        let rows = [
            ("seeds", format!("{} in {:.0} s", self.seeds, self.took.as_secs_f64())),
            (
                "slowest",
                format!("seed {}, {:.1} s", self.slowest.1, self.slowest.0.as_secs_f64()),
            ),
            ("servers started", self.starts.to_string()),
            ("killed at fail points", self.fired.to_string()),
            ("killed from outside", self.struck.to_string()),
            ("commands answered", self.commands.to_string()),
            ("runs", list(&self.runs)),
            ("effects", list(&self.effects)),
            ("seeds with violations", self.failed.len().to_string()),
        ];
        let mut text = String::new();
        for (name, value) in rows {
            let _ = writeln!(text, "{name:<22} {value}");
        }
        text
    }

    /// Every fail point with the number of processes that reached it.
    #[must_use]
    pub fn points(&self) -> String {
        let mut text = String::new();
        for point in POINTS {
            let count = self.hits.get(point.name).copied().unwrap_or_default();
            let _ = writeln!(text, "{count:>7}  {:<32} {}", point.name, point.what);
        }
        text
    }
}
