//! Makes the README's picture from a real screen: runs shipped workflows on this repository, opens the viewer in a
//! pseudo-terminal, and writes what it shows as `assets/cover.svg`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use piw_tests::home::Home;
use piw_tests::picture;
use piw_tests::terminal::Terminal;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the tests crate lies in the workspace")?;
    let mut home = Home::new();
    // The checks call cargo, which finds its tool chain below the real home.
    for (name, dir) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
        let usual = std::env::home_dir().ok_or("a home directory")?.join(dir);
        let value = std::env::var_os(name).map_or(usual, PathBuf::from);
        home = home.env(name, &value.to_string_lossy());
    }
    let cloned = Command::new("git")
        .args(["clone", "--quiet"])
        .arg(root)
        .arg(home.project())
        .status()?;
    if !cloned.success() {
        return Err("git clone of this repository failed".into());
    }
    let mut newest = String::new();
    for workflow in ["project-checks", "release-notes", "release-readiness", "repo-health"] {
        let printed = home.piw(&["run", workflow, "--json"]).json();
        newest = printed["runId"].as_str().ok_or("a run id")?.to_owned();
    }
    let mut terminal = Terminal::start(&home, &[], 44, 150);
    terminal.wait("the newest run is shown", |screen| {
        screen.contains(&newest[..8]) || screen.contains("Health of this")
    });
    let _ = terminal.bytes_within(Duration::from_secs(1));
    std::fs::write(root.join("assets/cover.svg"), picture::svg(terminal.emulated()))?;
    println!("{}", terminal.screen());
    Ok(())
}
