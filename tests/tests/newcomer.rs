//! Somebody who opens the viewer for the first time finds out why a run failed, with the keys that `?` names and with the mouse.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use piw_tests::home::Home;
use piw_tests::terminal::Terminal;
use piw_tests::workflows::IMPORT;

/// 10,000 runs that went well, half of them before and half of them after the one that did not.
fn home() -> Home {
    let home = Home::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let fill = |first| {
        std::fs::create_dir_all(home.state()).unwrap();
        runtime
            .block_on(piw_state::bench::ended_runs(&home.state(), first, 5_000))
            .unwrap();
    };
    fill(1);
    home.workflow("import", IMPORT);
    let _ = home.piw(&["run", "import"]).exits(1);
    let _ = home.piw(&["server", "stop"]).exits(0);
    fill(5_001);
    let _ = home.piw(&["server", "start"]).exits(0);
    let _ = home.piw(&["state", "verify"]).exits(0);
    home
}

/// What must hold on the way, whatever the hands do.
struct Story(Terminal);

impl Story {
    fn begin(home: &Home) -> Self {
        let mut terminal = Terminal::start(home, &[], 40, 120);
        terminal.wait_for("Nightly import 10000");
        Self(terminal)
    }

    fn sees(&mut self, what: &str) {
        self.0.wait_for(what);
    }

    /// Repeats a movement until a text is on the screen.
    fn until(&mut self, what: &str, mut move_on: impl FnMut(&mut Terminal)) {
        for _ in 0..200 {
            self.0.settle();
            if self.0.screen().contains(what) {
                return;
            }
            move_on(&mut self.0);
        }
        panic!("{what:?} is nowhere:\n{}", self.0.screen());
    }

    /// The whole of it was read on the way from its first to its last line.
    fn read_whole(&self) {
        let screen = self.0.screen();
        assert!(screen.contains("row 320: the date"), "{screen}");
        assert!(screen.contains("compare with step 2"), "{screen}");
    }

    /// The restarted run is another one, and it fails like the first.
    fn sees_it_restarted(mut self, home: &Home) {
        self.sees("restart: accepted");
        drop(self.0);
        let runs = home.piw(&["ps", "--json"]).exits(0).json();
        let again = runs[0]["runId"].as_str().unwrap().to_owned();
        let view = home.wait_for_end(&again);
        assert_eq!(view["state"]["workflowName"], "import");
        assert_eq!(view["display"]["status"], "failed");
    }
}

/// Asserts that the help names every key that the story uses.
fn help_names(story: &mut Story, keys: &[(&str, &str)]) {
    story.0.send(b"?");
    for (key, text) in keys {
        story.until(text, |terminal| terminal.send(b"\x1b[B"));
        let screen = story.0.screen();
        let line = screen.lines().find(|line| line.contains(text)).unwrap();
        assert!(line.contains(key), "{line}");
    }
    story.0.send(b"x");
    story
        .0
        .wait("the help is closed", |screen| !screen.contains("Everywhere"));
}

#[test]
fn a_newcomer_finds_out_why_a_run_failed_and_restarts_it() {
    let home = home();
    with_keys(&home);
    // A restart that can only fail in the same way is refused: somebody has worked on the file meanwhile.
    home.workflow(
        "import",
        &format!("{IMPORT}\n// The column is read as text from now on.\n"),
    );
    with_the_mouse(&home);
}

fn with_keys(home: &Home) {
    let mut story = Story::begin(home);
    let keys = [
        ("down j", " down "),
        ("pagedown", "a page down"),
        ("enter", "open or close"),
        ("/", "filter runs (text, status:failed"),
        ("R", "restart"),
    ];
    help_names(&mut story, &keys);
    story.0.send(b"/status:failed\r");
    story.sees("Import of the orders");
    // To the graph, then to the newest step of the node that the run stopped at.
    story.0.send(b"\r");
    story.sees("✗ load");
    story.0.send(b"\r");
    story.sees("exited with code 3");
    story.sees("fatal: column 4 has no date in any row");
    // A search goes to the captured text; Enter loads all of it.
    story.0.send(b"/stderr (cut");
    story.until("stderr (cut, Enter loads all of it)", |_| {});
    story.0.send(b"\r\r");
    story.sees("stderr 321 lines");
    story.until("row 1: the date", |terminal| terminal.send(b"j"));
    story.until("compare with step 2", |terminal| terminal.send(b"\x1b[6~"));
    story.read_whole();
    story.0.send(b"/compare with\r\r");
    story.until("+ outcome: failed", |terminal| terminal.send(b"j"));
    story.0.send(b"R");
    story.sees("Restart");
    story.0.send(b"y");
    story.sees_it_restarted(home);
}

/// Only the words of the filter are typed.
fn with_the_mouse(home: &Home) {
    let mut story = Story::begin(home);
    story.0.click("/ filter");
    story.0.send(b"status:failed");
    story.sees("Import of the orders");
    story.0.click("Import of the orders");
    story.sees("exited with code 3");
    story.0.click("exited with code 3");
    story.until("stderr (cut", |terminal| terminal.wheel("1 Steps", true));
    story.0.click("stderr (cut");
    story.sees("stderr 321 lines");
    story.until("row 1: the date", |terminal| terminal.wheel("1 Steps", true));
    story.until("compare with step 2", |terminal| terminal.wheel("1 Steps", true));
    story.read_whole();
    story.0.click("compare with step 2");
    story.until("+ outcome: failed", |terminal| terminal.wheel("1 Steps", true));
    story.0.click("R restart");
    story.sees("Restart");
    story.0.click("[y]");
    story.sees_it_restarted(home);
}
