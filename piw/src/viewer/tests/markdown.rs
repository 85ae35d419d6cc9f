//! Markdown in the inspector.

use super::*;

const PROMPT: &str = "# Review the change\n\nRead `src/main.rs` and answer **briefly**, with evidence from \
[the guide](https://example.org/guide).\n\n1. What breaks?\n2. What is missing?\n   - tests\n   - docs\n\n```rust\n/// Adds.\nfn add(a: u32) -> u32 {\n    \
a + 1 // one\n}\n```\n\n> Keep it short.\n\n| file | lines |\n|------|-------|\n| main.rs | 120 |\n";

fn reviewed(prompt: &str) -> RunView {
    let mut fixture = fixtures::failed();
    fixture.definition.nodes.get_mut("fix").unwrap().node_type = piw_protocol::definition::NodeType::Agent;
    let mut view = fixture.view();
    view.state.steps[2].step.prompt = prompt.into();
    view
}

#[test]
fn a_prompt_is_shown_as_markdown_and_opened_as_it_is() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut stage = Stage::new((width, height), Some("01JNE8-release-0001"));
        stage.view(reviewed(PROMPT));
        stage.press("tab g down down enter down down enter Z");
        let frame = stage.frame();
        assert!(!frame.contains("**") && frame.contains("│ fn add"), "{frame}");
        insta::assert_snapshot!(format!("markdown_{width}x{height}"), frame);
        stage.press("down down down o");
        let opened = stage.effects.last();
        let whole = |content: &crate::viewer::message::Content| matches!(content, crate::viewer::message::Content::Text(text) if **text == *PROMPT);
        assert!(
            matches!(opened, Some(Effect::Prepare { name, content, .. }) if name == "prompt" && whole(content)),
            "{opened:?}"
        );
    }
}

#[test]
fn a_huge_prompt_is_cut_and_laid_out_once() {
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(reviewed(&format!("# Title\n\n{}", "one paragraph\n\n".repeat(700_000))));
    stage.press("tab g down down enter down down enter");
    let laid_out = stage.rendered;
    assert_eq!(laid_out, 1);
    stage.press("down down up");
    assert_eq!(stage.rendered, laid_out, "what is laid out stays");
    stage.press("G up up up up up up up up");
    let run = stage.model.run.as_ref().unwrap();
    let document = run.documents.values().next().unwrap().as_ref().unwrap();
    assert!(document.cut && document.rows.len() <= crate::viewer::markdown::ROWS);
    stage.press("Z");
    assert_eq!(stage.rendered, 2, "another width is another document");
}
