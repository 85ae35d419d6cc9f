//! What points and switches do in a test build.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};

use crate::names::{POINTS, SWITCHES};
use crate::plan::{self, Entry, Victim};

/// Which points this process has reached.
static REACHED: [AtomicBool; POINTS.len()] = [const { AtomicBool::new(false) }; POINTS.len()];
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The environment of this process.
#[derive(Debug, Default)]
struct Settings {
    dir: Option<PathBuf>,
    plan: Vec<Entry>,
    on: Vec<bool>,
}

impl Settings {
    /// # Panics
    /// When a variable names something that does not exist: a test that sets nothing off would prove nothing.
    fn read() -> Self {
        // Reads `FAILPOINTS`. Its guard would take the actions away again.
        std::mem::forget(fail::FailScenario::setup());
        let plan = env::var("PIW_FAULT_PLAN").unwrap_or_default();
        let plan = plan::read(&plan).unwrap_or_else(|error| panic!("PIW_FAULT_PLAN: {error}"));
        let names = env::var("PIW_FAULT_SWITCHES").unwrap_or_default();
        let mut on = vec![false; SWITCHES.len()];
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let index = SWITCHES.iter().position(|switch| switch.name == name);
            on[index.unwrap_or_else(|| panic!("PIW_FAULT_SWITCHES: no switch {name:?}"))] = true;
        }
        let dir = env::var_os("PIW_FAULT_DIR").map(PathBuf::from);
        assert!(
            dir.is_some() || plan.is_empty(),
            "PIW_FAULT_PLAN needs PIW_FAULT_DIR to count in"
        );
        Self { dir, plan, on }
    }
}

fn settings() -> &'static Settings {
    SETTINGS.get_or_init(Settings::read)
}

/// Whether a switch is on.
#[must_use]
pub fn is_on(switch: usize) -> bool {
    settings().on[switch]
}

/// A point is reached: notes it, and does what the plan and `FAILPOINTS` say.
pub fn reach(point: usize) {
    let settings = settings();
    let name = POINTS[point].name;
    if let Some(dir) = &settings.dir {
        if !REACHED[point].swap(true, Ordering::Relaxed) {
            note(&dir.join("hits"), name);
        }
        if settings.plan.iter().any(|entry| entry.point == point) {
            let ordinal = arrive(&dir.join(format!("count.{}", name.replace("::", "."))));
            for entry in settings
                .plan
                .iter()
                .filter(|entry| entry.point == point && entry.ordinal == ordinal)
            {
                fire(dir, entry);
            }
        }
    }
    fail::eval(name, |action| {
        if action.as_deref() == Some("kill") {
            end_self();
        }
    });
}

fn fire(dir: &Path, entry: &Entry) {
    note(&dir.join("fired"), &entry.to_string());
    thread::sleep(entry.delay);
    match entry.victim {
        Victim::Nobody => {}
        Victim::Own => end_self(),
        Victim::Parent => end_parent(),
        Victim::Both => {
            end_parent();
            end_self();
        }
    }
}

fn end_self() {
    // The signal is delivered before the call returns.
    let _ = kill(Pid::this(), Signal::SIGKILL);
}

/// Ends the parent, if it is another process of this program and not whatever adopts orphans.
fn end_parent() {
    let parent = getppid();
    let same = std::fs::read_link(format!("/proc/{parent}/exe"))
        .and_then(|theirs| Ok(theirs == std::fs::read_link("/proc/self/exe")?))
        .unwrap_or(false);
    if same {
        let _ = kill(parent, Signal::SIGKILL);
    }
}

/// Appends a line with one write, so that lines of several processes never mix.
fn note(path: &Path, line: &str) {
    append(path, format!("{line}\n").as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Counts an arrival: each appends one byte, and the position after its own write is its number.
fn arrive(path: &Path) -> u64 {
    append(path, b".")
        .and_then(|mut file| file.stream_position())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}
