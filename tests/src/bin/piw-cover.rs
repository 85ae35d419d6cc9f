//! Makes the README's picture from a real screen: runs shipped workflows on this repository, opens the viewer in a
//! pseudo-terminal, and writes what it shows as `assets/cover.svg`.

use std::path::Path;
use std::time::Duration;

use piw_tests::home::Home;
use piw_tests::picture;
use piw_tests::terminal::Terminal;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the tests crate lies in the workspace")?;
    let home = Home::new();
    let input = serde_json::json!({ "path": root }).to_string();
    let mut newest = String::new();
    for workflow in ["project-checks", "release-notes", "repo-health", "release-readiness"] {
        let printed = home.piw(&["run", workflow, "--input", &input, "--json"]).json();
        newest = printed["runId"].as_str().ok_or("a run id")?.to_owned();
    }
    let mut terminal = Terminal::start(&home, &[], 44, 150);
    terminal.wait("the newest run is shown", |screen| {
        screen.contains(&newest[..8]) || screen.contains("readiness")
    });
    let _ = terminal.bytes_within(Duration::from_secs(1));
    std::fs::write(root.join("assets/cover.svg"), picture::svg(terminal.emulated()))?;
    println!("{}", terminal.screen());
    Ok(())
}
