//! The harness itself: the pinned Pi runs offline and talks to a scripted model.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::process::Stdio;

use piw_tests::pi::{self, Model, Reply};
use serde_json::json;

#[test]
fn pi_prints_what_its_scripted_model_says() {
    let pi = pi::installed();
    let home = tempfile::tempdir().unwrap();
    let model = Model::new(|asked| match asked.index {
        0 => Reply::error(500, "try again"),
        1 => Reply::text("Let me look.")
            .and_call("ls", json!({ "path": "." }))
            .and_call("read", json!({ "path": "note.txt" })),
        _ => Reply::text(&format!("It says {}.", asked.last().trim())),
    });
    let agent_dir = home.path().join("agent");
    pi::write_agent_dir(&agent_dir, &model);
    let cwd = home.path().join("work");
    std::fs::create_dir(&cwd).unwrap();
    std::fs::write(cwd.join("note.txt"), "grüße").unwrap();
    let output = pi
        .command(home.path(), &agent_dir)
        .args([
            "-p",
            "--no-session",
            "-na",
            "--tools",
            "ls,read",
            "What does note.txt say?",
        ])
        .current_dir(&cwd)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(printed.trim(), "It says grüße.");
    let asked = model.asked();
    assert_eq!(asked.len(), 3, "an error is tried again");
    assert_eq!(asked[0].last_of("user"), "What does note.txt say?");
    assert!(asked[1].tools().contains(&"read".to_owned()), "{:?}", asked[1].tools());
}
