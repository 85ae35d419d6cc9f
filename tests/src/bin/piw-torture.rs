//! Tortures the real binary: kills servers, runners and their processes at fail points and at random, restarts them, and checks
//! from outside that nothing that was acknowledged is lost or done twice.
//!
//! ```text
//! piw-torture [--seeds N] [--seed X] [--jobs N] [--all-points] [--harsh] [--broken NAME] [--self-check] [--list]
//! ```

use std::process::ExitCode;

use piw_fault::{SWITCHES, SwitchKind};
use piw_tests::torture::binary;
use piw_tests::torture::report::{self, Seeds, Summary};

const USAGE: &str =
    "piw-torture [--seeds N] [--seed X] [--jobs N] [--all-points] [--harsh] [--broken NAME] [--self-check] [--list]

  --seeds N      how many seeds, from 0 or from --seed (default 200)
  --seed X       one seed alone, or the first of --seeds
  --jobs N       seeds at a time (default 4)
  --all-points   fail when a fail point was never reached
  --harsh        every hostile switch is on, and unsynced writes are lost in every seed that replaces no stopped server
  --broken NAME  harsh, with a rule broken on purpose: ends at the first seed that shows it, with exit code 1
  --self-check   every broken rule is found within 60 seeds, and the seed that shows it is clean without
  --list         names of fail points and switches";

/// Seeds in which a broken rule must be found.
const SELF_CHECK_SEEDS: u64 = 60;

#[derive(Default)]
struct Options {
    seeds: Option<u64>,
    seed: Option<u64>,
    jobs: Option<usize>,
    all_points: bool,
    harsh: bool,
    broken: Option<&'static str>,
    self_check: bool,
    list: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let options = read(std::env::args().skip(1))?;
    if options.list {
        list();
        return Ok(true);
    }
    let binary = binary::with_failpoints()?;
    let seeds = Seeds {
        first: options.seed.unwrap_or(0),
        count: options.seeds.unwrap_or(if options.seed.is_some() { 1 } else { 200 }),
        jobs: options.jobs.unwrap_or(4),
        broken: options.broken,
        harsh: options.harsh || options.broken.is_some(),
    };
    if options.self_check {
        return Ok(self_check(&binary, &seeds));
    }
    println!(
        "seeds {} to {}, {} at a time, {}",
        seeds.first,
        seeds.first + seeds.count - 1,
        seeds.jobs,
        binary.display()
    );
    let summary = report::play(&binary, &seeds);
    print!("\n{}\n{}", summary.points(), summary.table());
    Ok(verdict(&summary, options.all_points))
}

fn verdict(summary: &Summary, all_points: bool) -> bool {
    let missed = summary.missed();
    if !missed.is_empty() {
        println!("never reached         {}", missed.join(", "));
    }
    for (seed, violations) in &summary.failed {
        println!("seed {seed}: {}", violations.join("\n    "));
    }
    summary.failed.is_empty() && (missed.is_empty() || !all_points)
}

/// Every rule that can be broken is found to be broken, and the seed that shows it is clean when the rule is kept.
fn self_check(binary: &std::path::Path, seeds: &Seeds) -> bool {
    let mut good = true;
    for switch in SWITCHES.iter().filter(|switch| switch.kind == SwitchKind::Broken) {
        let broken = Seeds {
            count: SELF_CHECK_SEEDS,
            broken: Some(switch.name),
            harsh: true,
            ..seeds.clone()
        };
        let summary = report::play(binary, &broken);
        let Some((&seed, violations)) = summary.failed.iter().next() else {
            good = false;
            println!(
                "{:<14} NOT FOUND in {} seeds: {}",
                switch.name, summary.seeds, switch.what
            );
            continue;
        };
        println!("{:<14} found by seed {seed}: {}", switch.name, switch.what);
        let shown: String = violations[0].chars().take(300).collect();
        println!("{:<14} {shown}", "");
        let kept = Seeds {
            first: seed,
            count: 1,
            broken: None,
            ..broken
        };
        let clean = report::play(binary, &kept).failed.is_empty();
        println!(
            "{:<14} the same seed without it {}",
            "",
            if clean { "is clean" } else { "FAILS" }
        );
        good &= clean;
    }
    good
}

fn list() {
    for point in piw_fault::POINTS {
        println!("{:<34} {}", point.name, point.what);
    }
    for switch in SWITCHES {
        println!("{:<34} {:?}: {}", switch.name, switch.kind, switch.what);
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n\n{USAGE}"));
        match argument.as_str() {
            "--seeds" => options.seeds = Some(number(&value()?)?),
            "--seed" => options.seed = Some(number(&value()?)?),
            "--jobs" => options.jobs = Some(number(&value()?)?),
            "--broken" => options.broken = Some(switch(&value()?)?),
            "--harsh" => options.harsh = true,
            "--all-points" => options.all_points = true,
            "--self-check" => options.self_check = true,
            "--list" => options.list = true,
            _ => return Err(format!("unknown argument {argument:?}\n\n{USAGE}")),
        }
    }
    Ok(options)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number\n\n{USAGE}"))
}

fn switch(name: &str) -> Result<&'static str, String> {
    let known = SWITCHES.iter().find(|switch| switch.name == name);
    known.map(|switch| switch.name).ok_or_else(|| {
        let names: Vec<&str> = SWITCHES.iter().map(|switch| switch.name).collect();
        format!("no switch {name:?}; there are {}", names.join(", "))
    })
}
