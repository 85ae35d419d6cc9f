//! Makes the recorded tour of the README and the screens of the viewer's documentation: runs real workflows on a real server, uses
//! the viewer in a pseudo-terminal, and writes what it shows as `assets/tour.svg` and `assets/screens/*.svg`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use piw_protocol::client::{Client, ClientOptions, UnixConnector};
use piw_tests::home::Home;
use piw_tests::picture;
use piw_tests::session::{self, Fixture, Target};
use piw_tests::terminal::Terminal;
use piw_tests::workflows::IMPORT;

const ROWS: u16 = 36;
const COLS: u16 = 116;

/// Checks, repairs once, builds, asks, publishes.
const RELEASE: &str = r#"
import { checkpoint, compute, defineWorkflow, idempotentEffect, shell } from "piw";
const work = (name: string, seconds: string, detail: string) => shell({
  statusDetail: detail,
  effect: idempotentEffect(name),
  exec: () => ({ command: "sleep", args: [seconds] }),
  parse: () => ({ checked: name, seconds: Number(seconds) }),
});
export default defineWorkflow({
  name: "release", title: ({ input }) => `Release ${input}`, input: (value) => String(value), startAt: "collect", maxSteps: 40,
  nodes: {
    collect: compute({ statusDetail: "what is new", run: () => ({ changes: 14, fixes: 9, breaking: 0 }) }),
    lint: work("lint", "0.5", "formatting and lints"),
    test: work("test", "0.9", "1,204 tests"),
    judge: compute({ run: ({ outputs }) => {
      const round = (outputs.judge?.round ?? 0) + 1;
      return { round, route: round < 2 ? "flaky" : "good" };
    } }),
    repair: work("repair", "0.6", "seed of the failing test"),
    build: work("build", "1.0", "three platforms"),
    notes: compute({ run: () => ({ text: "**2.4**\n\n- Faster start\n- `--json` everywhere" }) }),
    approve: checkpoint({
      summary: "Publish this release?",
      run: ({ outputs }) => ({ version: "2.4.0", changes: outputs.collect.changes, notes: outputs.notes.text }),
    }),
    publish: work("publish", "0.7", "upload"),
  },
  edges: [
    { from: "collect", to: "lint" }, { from: "lint", to: "test" }, { from: "test", to: "judge" },
    { from: "judge", switch: { on: "$output.route", cases: { good: "build", flaky: "repair" } } },
    { from: "repair", to: "test" }, { from: "build", to: "notes" }, { from: "notes", to: "approve" },
    { from: "approve", to: "publish" },
  ],
});
"#;

/// A small one for the list.
const BACKUP: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "backup", title: ({ input }) => `Backup of ${input}`, input: (value) => String(value), startAt: "copy",
  nodes: { copy: compute({ run: () => ({ files: 18211 }) }), verify: compute({ run: () => ({ sound: true }) }) },
  edges: [{ from: "copy", to: "verify" }],
});
"#;

/// The run that the recorded session belongs to.
const FLAKY: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
export default defineWorkflow({
  name: "flaky-test", title: "A test that fails now and then", startAt: "reproduce",
  nodes: {
    reproduce: shell({ statusDetail: "20 runs", effect: idempotentEffect("reproduce"), exec: () => ({ command: "sleep", args: ["2"] }) }),
    repair: compute({ run: () => ({ seed: 7, cause: "shared state" }) }),
    verify: shell({ statusDetail: "200 runs", effect: idempotentEffect("verify"), exec: () => ({ command: "sleep", args: ["1"] }) }),
  },
  edges: [{ from: "reproduce", to: "repair" }, { from: "repair", to: "verify" }],
});
"#;

/// The Pi session of [`FLAKY`].
const SESSION: &str = "pi-7f3a";

/// The viewer, and what it has shown so far.
struct Camera {
    terminal: Terminal,
    film: Vec<(vt100::Screen, Duration)>,
    screens: PathBuf,
}

impl Camera {
    /// Films for a while, at most ten screens a second.
    fn film(&mut self, time: Duration) {
        const EXPOSURE: Duration = Duration::from_millis(100);
        let end = Instant::now() + time;
        while Instant::now() < end {
            let _ = self.terminal.bytes_within(EXPOSURE);
            let screen = self.terminal.emulated().clone();
            match self.film.last_mut() {
                Some((last, shown)) if last.contents_formatted() == screen.contents_formatted() => *shown += EXPOSURE,
                _ => self.film.push((screen, EXPOSURE)),
            }
        }
    }

    /// Presses keys one after the other and films what they do.
    fn press(&mut self, keys: &[&str], each: Duration) {
        for key in keys {
            self.terminal.send(key.as_bytes());
            self.film(each);
        }
    }

    /// Types a text.
    fn write(&mut self, text: &str) {
        for letter in text.chars() {
            self.terminal.send(letter.to_string().as_bytes());
            self.film(Duration::from_millis(100));
        }
    }

    /// Films until a text is on the screen.
    fn until(&mut self, text: &str) {
        let end = Instant::now() + piw_tests::wait::DEADLINE;
        while !self.terminal.screen().contains(text) {
            assert!(Instant::now() < end, "{text:?} never came:\n{}", self.terminal.screen());
            self.film(Duration::from_millis(100));
        }
    }

    /// Keeps what is on the screen as a picture.
    fn keep(&self, name: &str) -> std::io::Result<()> {
        std::fs::write(
            self.screens.join(format!("{name}.svg")),
            picture::svg(self.terminal.emulated()),
        )
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the tests crate lies in the workspace")?;
    let screens = root.join("assets/screens");
    std::fs::create_dir_all(&screens)?;
    let home = Home::new();
    home.workflow("release", RELEASE);
    home.workflow("import", IMPORT);
    home.workflow("backup", BACKUP);
    for what in ["\"photos\"", "\"mail\"", "\"the wiki\"", "\"the orders\""] {
        let _ = home.piw(&["run", "backup", "--input", what]).exits(0);
    }
    let _ = home.piw(&["run", "import"]).exits(1);
    let _ = home.piw(&["run", "backup", "--input", "\"the archive\""]).exits(0);
    // Two releases before, which the next one is compared with.
    for version in ["\"2.2\"", "\"2.3\""] {
        let started = home
            .piw(&["run", "release", "--input", version, "--detach", "--json"])
            .exits(0)
            .json();
        let run_id = started["runId"].as_str().ok_or("a run id")?.to_owned();
        let waits = || home.piw(&["show", &run_id, "--json"]).stdout.contains("\"waiting\"");
        piw_tests::wait::until("the release waits", || waits().then_some(()));
        let _ = home.piw(&["answer", &run_id, "{\"approve\": true}"]).exits(0);
    }
    let mut camera = Camera {
        terminal: Terminal::start(&home, &[], ROWS, COLS),
        film: Vec::new(),
        screens,
    };
    let second = Duration::from_secs(1);
    camera.terminal.wait_for("Backup of the archive");
    camera.terminal.settle();
    camera.film(second);
    // A run appears at the top and is watched.
    let _ = home.piw(&["run", "release", "--input", "\"2.4\"", "--detach"]).exits(0);
    camera.until("Release 2.4");
    camera.press(&["g"], second / 2);
    camera.until("repair");
    camera.film(second * 2);
    camera.keep("runs")?;
    camera.until("a answer");
    camera.film(second);
    camera.press(&["a"], second * 2);
    camera.keep("answer")?;
    camera.press(&["\x15"], second / 5);
    camera.write("{\"approve\": true}");
    camera.press(&["\r"], second);
    camera.until("completed");
    camera.film(second);
    // The whole workflow, then back in time.
    camera.press(&["\r", "Z"], second);
    camera.keep("graph")?;
    // Where the time went, and the notes of the release.
    camera.press(&["Z", "2", "Z"], second);
    camera.film(second);
    camera.keep("time")?;
    camera.press(&["1", "Z"], second / 2);
    camera.press(&["[", "[", "[", "[", "["], second / 2);
    camera.keep("replay")?;
    camera.press(&[" "], second * 3);
    camera.press(&["L"], second / 2);
    // Why did the import fail?
    camera.press(&["/"], second / 3);
    camera.write("status:failed");
    camera.press(&["\r", "\r", "\r", "Z"], second);
    camera.press(&["/"], second / 3);
    camera.write("stderr");
    camera.press(&["\r", "\r"], second);
    camera.press(&["\x1b[6~"], second * 2);
    camera.keep("failed")?;
    camera.press(&["Z"], second / 2);
    camera.press(&[","], second);
    camera.terminal.send(b"\x1b[B\x1b[B");
    camera.press(&["\x1b[B", "\x1b[B"], second);
    camera.keep("themes")?;
    camera.press(&["\x1b"], second * 2);
    conversation(&home, &camera.screens)?;
    let tour = picture::animated(&camera.film);
    println!("{} screens, {} bytes", camera.film.len(), tour.len());
    std::fs::write(root.join("assets/tour.svg"), tour)?;
    Ok(())
}

/// Records a session into a run and keeps how the viewer shows it.
fn conversation(home: &Home, screens: &Path) -> Result<(), Box<dyn std::error::Error>> {
    home.workflow("flaky-test", FLAKY);
    let started = home
        .piw(&["run", "flaky-test", "--session", SESSION, "--detach", "--json"])
        .exits(0)
        .json();
    let run_id = started["runId"].as_str().ok_or("a run id")?;
    let fixture = Fixture::read("flaky-test", jiff::Timestamp::now().as_millisecond());
    let connector = UnixConnector::new(home.state().join("server/server.sock"));
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(async {
            let client = Client::start(connector, ClientOptions::default());
            session::record(&client, &fixture, &Target::new(run_id, SESSION)).await
        })?;
    let mut camera = Camera {
        terminal: Terminal::start(home, &[run_id], ROWS, COLS),
        film: Vec::new(),
        screens: screens.to_owned(),
    };
    camera.until("completed");
    camera.terminal.send(b"4");
    camera.until("recorded whole");
    camera.press(&["g"], Duration::from_secs(1));
    camera.keep("conversation").map_err(Into::into)
}
