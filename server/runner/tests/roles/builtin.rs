//! The shipped workflows and the quick start's example, run in git repositories that hold much, little or nothing.

use std::process::Command;

use crate::support::{Project, Server, resolve};
use piw_protocol::child::ResolveResponse;
use serde_json::json;

/// Runs git in the project, with a configuration that depends on nobody's.
fn git(project: &Project, args: &[&str]) {
    let status = Command::new("git")
        .args([
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(["-c", "tag.gpgsign=false", "-c", "core.hooksPath=/dev/null"])
        .args(args)
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(status.status.success(), "git {args:?}: {status:?}");
}

/// A repository without a commit, whose only file is ignored.
fn empty_repository() -> Project {
    let project = Project::new("");
    git(&project, &["init", "-q", "-b", "trunk", "."]);
    project.write(".git/info/exclude", ".pi\n");
    project
}

fn commit(project: &Project, file: &str, subject: &str) {
    project.write(file, "text\n");
    git(project, &["add", file]);
    git(project, &["commit", "-q", "-m", subject]);
}

/// Runs a workflow of the project, or a shipped one, as far as it goes.
fn run(project: &Project, workflow: &str) -> Server {
    let ResolveResponse::Resolved(resolved) = resolve(project, workflow, Some(json!({}))) else {
        panic!("{workflow} does not resolve");
    };
    let mut server = Server::new(project, *resolved);
    server.run();
    server
}

#[test]
fn repo_health_of_an_empty_repository_names_the_branch() {
    let project = empty_repository();
    let report = run(&project, "builtin:repo-health").final_output();
    assert_eq!(report["branch"], "trunk");
    assert_eq!(report["verdict"], "no commits yet");
    assert_eq!(report["recent"]["commits"], 0);
    assert_eq!(report["files"], 0);
    commit(&project, "a.txt", "Add a");
    let report = run(&project, "builtin:repo-health").final_output();
    assert_eq!(report["branch"], "trunk");
    assert_eq!(report["verdict"], "healthy");
    assert_eq!(report["recent"]["commits"], 1);
}

#[test]
fn an_empty_repository_is_not_ready_because_nothing_was_committed() {
    let report = run(&empty_repository(), "builtin:release-readiness").final_output();
    assert_eq!(report["ready"], false);
    assert_eq!(report["reasons"], json!(["nothing was committed yet"]));
}

#[test]
fn release_notes_without_commits_say_so_and_ask_nothing() {
    let project = empty_repository();
    let nothing = run(&project, "builtin:release-notes").final_output();
    assert_eq!(nothing, json!({ "written": null, "reason": "no commits yet" }));
    commit(&project, "a.txt", "Add a");
    git(&project, &["tag", "v1"]);
    let nothing = run(&project, "builtin:release-notes").final_output();
    assert_eq!(nothing["reason"], "no commits since v1");
    commit(&project, "b.txt", "Fix b");
    let mut server = run(&project, "builtin:release-notes");
    let draft = server.output("draft");
    assert_eq!(draft["since"], "v1");
    let text = draft["text"].as_str().unwrap();
    assert!(
        text.contains("## Fixed") && text.contains("Fix b") && !text.contains("Add a"),
        "{text}"
    );
    assert_eq!(server.progress.waiting_on(&server.definition), Some("approve"));
    server.answer(json!({ "approve": true }));
    server.run();
    assert!(
        project
            .read("RELEASE_NOTES.md")
            .starts_with("# Release notes\n\n## Fixed")
    );
}

#[test]
fn release_notes_outside_a_repository_fail_in_gits_words() {
    let server = run(&Project::new(""), "builtin:release-notes");
    assert!(
        server.error("commits").contains("not a git repository"),
        "{}",
        server.error("commits")
    );
}

#[test]
fn the_quick_starts_example_counts_what_it_says() {
    let guide = include_str!("../../../../docs/quick-start.md");
    let (_, rest) = guide.split_once("```ts\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let project = Project::new(example);
    git(&project, &["init", "-q", "."]);
    assert_eq!(
        run(&project, "main").final_output(),
        json!({ "files": 0, "endings": {} })
    );
    for (file, subject) in [("a.txt", "a"), ("b.d/b.txt", "b"), ("b.d/LICENSE", "c")] {
        commit(&project, file, subject);
    }
    let counted = run(&project, "main").final_output();
    assert_eq!(counted, json!({ "files": 3, "endings": { ".txt": 2, "none": 1 } }));
}
