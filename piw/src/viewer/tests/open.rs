//! Opening a value in the pager or the editor.

use std::sync::Arc;

use piw_protocol::view::ArtifactRef;
use serde_json::{Value, json};

use super::*;
use crate::viewer::external::{self, Program};
use crate::viewer::message::Content;

impl Stage {
    /// What was last to be written into a file.
    fn prepared(&self) -> (&str, &Content, Program) {
        match self.effects.last() {
            Some(Effect::Prepare { name, content, program }) => (name, content, *program),
            other => panic!("{other:?}"),
        }
    }

    /// Presses down until the selected row starts with a text.
    pub(super) fn down_to(&mut self, text: &str) {
        for _ in 0..200 {
            let columns = usize::from(self.model.screen().unwrap().inspector.width) - 3;
            let run = self.model.run.as_ref().unwrap();
            let rows = self
                .model
                .inspector
                .rows(run, &self.model.theme, columns, self.model.now);
            if rows[self.model.inspector.selected()]
                .line
                .to_string()
                .trim()
                .starts_with(text)
            {
                return;
            }
            self.press("down");
        }
        panic!("no row {text:?} in\n{}", self.frame());
    }
}

fn text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.to_string(),
        Content::Json(value) => value.to_string(),
    }
}

#[test]
fn each_row_opens_what_it_is_part_of() {
    let mut stage = opened((120, 40), &fixtures::failed());
    stage.press("tab enter");
    stage.down_to("nodeFailed");
    stage.press("o");
    let (name, content, program) = stage.prepared();
    assert_eq!((name, program), ("error", Program::Pager));
    assert_eq!(text(content), "exit code 101\nsee the captured output");
    stage.down_to("▾ stderr");
    stage.press("O");
    let (name, content, program) = stage.prepared();
    assert_eq!((name, program), ("stderr", Program::Editor));
    assert!(text(content).ends_with("left == right\n"));
    stage.press("down o");
    assert_eq!(stage.prepared().0, "stderr", "a line within it opens all of it");
    stage.press("up y");
    let copied = stage.effects.last();
    assert!(
        matches!(copied, Some(Effect::Copy(text)) if text.starts_with("thread 'main'") && text.ends_with("right")),
        "{copied:?}"
    );
    stage.press("g o");
    let (name, content, _) = stage.prepared();
    assert_eq!(name, "step 1");
    assert!(text(content).contains(r#""nodeId":"inspect""#));
    stage.press("3 down down o");
    let (name, content, _) = stage.prepared();
    assert_eq!(name, "event 1");
    assert!(text(content).contains("run.started"));
    stage.press("5 g o");
    let (name, content, _) = stage.prepared();
    assert_eq!(name, "run 01JNE8-release-0001");
    assert!(text(content).contains("takenTransitions"));
}

#[test]
fn the_graph_opens_the_newest_step_of_the_selected_node_and_the_list_the_run() {
    let mut stage = opened((120, 40), &fixtures::failed());
    stage.press("o");
    assert_eq!(stage.prepared().0, "run 01JNE8-release-0001");
    stage.press("enter");
    stage.model.graph.selected = stage.model.run.as_ref().unwrap().graph.as_ref().unwrap().node("test");
    stage.press("o");
    let (name, content, _) = stage.prepared();
    assert_eq!(name, "test");
    assert!(text(content).contains("exitCode"));
}

#[test]
fn content_is_fetched_first_and_opened_only_when_it_is_whole() {
    let reference = ArtifactRef {
        path: format!("artifacts/sha256/{}.json", "ab".repeat(32)),
        media_type: "application/json".into(),
        bytes: 40_000,
        sha256: "ab".repeat(32),
    };
    let mut view = fixtures::failed().view();
    view.state.steps[3].result_content = serde_json::from_value(json!({"$artifact": reference})).unwrap();
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(view);
    stage.press("tab enter");
    stage.down_to("▾ stderr");
    stage.press("o");
    let sha256 = &reference.sha256;
    assert!(
        matches!(stage.effects.last(), Some(Effect::FetchContent { reference, .. }) if reference.sha256 == *sha256)
    );
    assert!(
        stage.frame().contains("fetching 39.1 KiB to open it"),
        "{}",
        stage.frame()
    );
    stage.send(Message::ContentProgress {
        sha256: sha256.clone(),
        received: 20_000,
    });
    assert!(stage.frame().contains("loading 50 % of 39.1 KiB"), "{}", stage.frame());
    let asked = stage.effects.len();
    stage.send(Message::Content {
        sha256: sha256.clone(),
        result: Err("the bytes do not match their digest".into()),
    });
    assert_eq!(stage.effects.len(), asked, "nothing unverified is opened");
    assert!(
        stage
            .frame()
            .contains("stderr cannot be opened: the bytes do not match"),
        "{}",
        stage.frame()
    );

    stage.press("O");
    let whole: Value = json!({"action": {"stdout": "", "stderr": "the whole of it"}, "error": {"message": "all"}});
    stage.send(Message::Content {
        sha256: sha256.clone(),
        result: Ok(Content::Json(Arc::new(whole))),
    });
    let (name, content, program) = stage.prepared();
    assert_eq!((name, program), ("stderr", Program::Editor));
    assert_eq!(text(content), "the whole of it");
    assert!(
        stage.frame().contains("the whole of it") && stage.frame().contains("39.1 KiB ✓ verified"),
        "what was fetched is shown instead of the shortened text: {}",
        stage.frame()
    );
    stage.press("g");
    stage.down_to("stderr the whole");
    stage.press("o");
    assert_eq!(text(stage.prepared().1), "the whole of it", "it is not fetched again");
}

#[test]
fn a_written_file_is_shown_and_a_failure_is_told() {
    let mut stage = opened((120, 40), &fixtures::failed());
    let prepared = external::prepare("x", &Content::Text("text".into()), Program::Pager).unwrap();
    stage.send(Message::Prepared(Ok(prepared.clone())));
    assert_eq!(stage.effects.last(), Some(&Effect::Show(prepared)));
    stage.send(Message::Prepared(Err(
        "x cannot be written into a file: disk full".into()
    )));
    assert!(stage.frame().contains("disk full"));
}
