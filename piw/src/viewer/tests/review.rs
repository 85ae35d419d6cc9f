//! The review of effects that may have happened.

use piw_protocol::effect::EffectDecision;
use piw_protocol::ops::RunReceipt;
use piw_protocol::run::RunStatus;

use super::*;
use crate::viewer::message::Command;

fn opened_on(view: RunView) -> Stage {
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(view);
    stage
}

/// The decisions that were sent: revision, effect, decision, result.
fn sent(stage: &Stage) -> Vec<(u64, String, EffectDecision, serde_json::Value)> {
    let decision = |effect: &Effect| match effect {
        Effect::Command {
            revision,
            command: Command::Review(resolve),
            ..
        } => Some((
            *revision,
            resolve.effect_id[..6].to_owned(),
            resolve.decision,
            resolve.result.clone(),
        )),
        _ => None,
    };
    stage.effects.iter().filter_map(decision).collect()
}

#[test]
fn an_ambiguous_run_says_what_may_have_happened_and_how_to_settle_it() {
    let mut stage = opened_on(fixtures::ambiguous());
    stage.press("5");
    insta::assert_snapshot!("ambiguous_info", stage.frame());
    stage.press("e");
    insta::assert_snapshot!("review", stage.frame());
    stage.press("down");
    let frame = stage.frame();
    assert!(
        frame.contains("2 of 2 effects") && frame.contains("give it up"),
        "{frame}"
    );
    stage.press("esc");
    assert!(stage.model.popup.is_none());
    assert_eq!(sent(&stage), []);
}

#[test]
fn a_confirmation_carries_the_result_and_shows_the_receipt() {
    let mut stage = opened_on(fixtures::ambiguous());
    stage.press("e h");
    assert!(stage.frame().contains("What did it give?"), "{}", stage.frame());
    stage.press("x enter");
    assert_eq!(sent(&stage), [], "nullx is not JSON");
    stage.send(Message::Terminal(Event::Key(KeyEvent::new(
        KeyCode::Char('u'),
        KeyModifiers::CONTROL,
    ))));
    stage.send(Message::Terminal(Event::Paste("{\"id\": 7}".into())));
    stage.press("enter");
    assert_eq!(
        sent(&stage),
        [(23, "piw-3f".into(), EffectDecision::Confirm, json!({"id": 7}))]
    );
    let Some(Effect::Command { command, .. }) = stage.effects.pop() else {
        panic!("no command")
    };
    stage.send(Message::Decided {
        command,
        run_id: here("01JNE8-release-0001"),
        result: Ok(RunReceipt {
            run_id: "01JNE8-release-0001".into(),
            status: RunStatus::Running,
            paused: false,
            run_revision: 24,
            new_run_id: None,
            message: Some("confirmed; effects left to review: 1".into()),
        }),
    });
    assert!(stage.frame().contains("effects left to review: 1"), "{}", stage.frame());
}

#[test]
fn doing_it_again_is_asked_for_twice() {
    let mut stage = opened_on(fixtures::ambiguous());
    stage.press("e d");
    assert!(
        stage.frame().contains("it will have happened twice"),
        "{}",
        stage.frame()
    );
    stage.press("enter n");
    assert_eq!(sent(&stage), [], "only y says yes");
    stage.press("d y");
    assert_eq!(
        sent(&stage),
        [(23, "piw-3f".into(), EffectDecision::Retry, json!(null))]
    );
}

#[test]
fn the_buttons_can_be_clicked() {
    let mut stage = opened_on(fixtures::ambiguous());
    stage.press("e");
    let frame = stage.frame();
    let (row, line) = frame
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains("[d] do it again"))
        .unwrap();
    let column = crate::text::width(line.split("[d]").next().unwrap()) as u16;
    stage.click(column + 5, row as u16);
    assert!(
        stage.frame().contains("it will have happened twice"),
        "{}",
        stage.frame()
    );
    let frame = stage.frame();
    let (row, line) = frame
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains("[y] yes"))
        .unwrap();
    let column = crate::text::width(line.split("[y]").next().unwrap()) as u16;
    stage.click(column + 1, row as u16);
    assert_eq!(sent(&stage).len(), 1);
}

#[test]
fn an_effect_that_is_settled_meanwhile_is_not_decided_on() {
    let mut stage = opened_on(fixtures::ambiguous());
    stage.press("e d");
    let mut view = fixtures::ambiguous();
    view.run_revision += 1;
    let review = view.review.as_mut().unwrap();
    review.effects.remove(0);
    review.total = 1;
    stage.view(view);
    assert!(stage.model.popup.is_none());
    assert!(stage.frame().contains("settled meanwhile"), "{}", stage.frame());
    // One that is still the same is decided on at the revision that is shown now.
    stage.press("e d");
    let mut view = fixtures::ambiguous();
    view.run_revision += 2;
    let review = view.review.as_mut().unwrap();
    review.effects.remove(0);
    review.total = 1;
    stage.view(view);
    stage.press("y");
    assert_eq!(
        sent(&stage),
        [(25, "piw-a0".into(), EffectDecision::Retry, json!(null))]
    );
}

#[test]
fn a_stale_view_reviews_nothing() {
    let mut stage = opened_on(fixtures::ambiguous());
    stage.press("e d");
    stage.send(Message::Run {
        run_id: here("01JNE8-release-0001"),
        view: None,
        freshness: Freshness::Stale(Retry {
            attempt: 1,
            delay: std::time::Duration::from_secs(1),
            reason: "gone".into(),
        }),
    });
    stage.press("y");
    assert_eq!(sent(&stage), []);
    assert!(stage.frame().contains("the view is stale"), "{}", stage.frame());
    assert!(stage.model.popup.is_some(), "the decision is not lost");
    stage.press("esc esc");
    stage.press("e");
    assert!(stage.model.popup.is_none());
}

#[test]
fn the_list_marks_ended_runs_with_something_to_review() {
    let mut stage = Stage::new((120, 40), None);
    let generation = stage.effects.iter().rev().find_map(|effect| match effect {
        Effect::WatchRuns { generation, .. } => Some(*generation),
        _ => None,
    });
    let mut page = run_list(3);
    page.items[1].display.status = piw_protocol::run::DisplayStatus::Cancelled;
    page.items[1].display.controls = vec!["review".to_owned()];

    stage.send(Message::Runs {
        host: HostId::default(),
        generation: generation.unwrap(),
        page: Some(Arc::new(page)),
        freshness: Freshness::Live,
    });
    let frame = stage.frame();
    let line = frame.lines().find(|line| line.contains("Check number 1 ")).unwrap();
    assert!(line.contains('≈'), "{frame}");
}
