//! The filter of the run list: what is typed, what is asked of servers, what is shown.

use piw_protocol::ops::RunFilter;
use piw_protocol::run::DisplayStatus;

use super::*;
use crate::viewer::screen::Part;

/// A page of a filtered list: so many of the runs of a larger one.
fn answer(stage: &mut Stage, generation: u64, matches: u64, of: u64) {
    let mut page = run_list(matches);
    page.unfiltered = Some(of);
    stage.send(Message::Runs {
        host: HostId::default(),
        generation,
        page: Some(Arc::new(page)),
        freshness: Freshness::Live,
    });
}

/// What the newest watch asks for.
fn asked(stage: &Stage) -> (u64, u64, Option<RunFilter>) {
    let watch = stage.effects.iter().rev().find_map(|effect| match effect {
        Effect::WatchRuns {
            generation,
            start,
            filter,
            ..
        } => Some((*generation, *start, filter.clone())),
        _ => None,
    });
    watch.expect("runs are watched")
}

fn watches(stage: &Stage) -> usize {
    let is_watch = |effect: &&Effect| matches!(effect, Effect::WatchRuns { .. });
    stage.effects.iter().filter(is_watch).count()
}

fn types(stage: &mut Stage, text: &str) {
    for c in text.chars() {
        let code = KeyCode::Char(c);
        stage.send(Message::Terminal(Event::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    }
}

/// A viewer of 40 runs in which the filter is being typed.
fn typing(size: (u16, u16), text: &str) -> Stage {
    let mut stage = Stage::new(size, None);
    stage.runs(40);
    stage.press("/");
    types(&mut stage, text);
    stage
}

#[test]
fn the_filter_line_in_all_its_states() {
    for size in [(80, 24), (120, 40)] {
        let (width, height) = size;
        let shown = |name: &str, stage: &Stage| {
            insta::assert_snapshot!(format!("filter_{name}_{width}x{height}"), stage.frame());
        };
        shown("help", &typing(size, ""));
        shown("values", &typing(size, "status:c"));
        let mut stage = typing(size, "status:faild");
        shown("wrong_status", &stage);
        stage.press("esc");
        assert!(!stage.model.browser.line.typing);
        shown("wrong_age", &typing(size, "age:x"));

        let mut stage = typing(size, "status:failed age:<2h");
        shown("sought", &stage);
        let (generation, ..) = asked(&stage);
        answer(&mut stage, generation, 7, 40);
        stage.press("enter");
        shown("active", &stage);
        answer(&mut stage, generation, 0, 40);
        shown("nothing", &stage);
    }
}

#[test]
fn a_mistake_is_said_and_leaves_the_list_alone() {
    let mut stage = typing((120, 40), "status:failed");
    let (generation, _, filter) = asked(&stage);
    assert_eq!(filter.unwrap().status, Some(vec![DisplayStatus::Failed]));
    answer(&mut stage, generation, 7, 40);
    let (before, selected) = (watches(&stage), stage.model.browser.selected_id.clone());
    stage.send(Message::Terminal(Event::Paste(" status:faild".into())));
    // Enter cannot keep what means nothing.
    stage.press("enter");
    assert!(stage.model.browser.line.typing);
    let frame = stage.frame();
    for said in ["\"faild\" is no status", "timed_out", "7 of 40"] {
        assert!(frame.contains(said), "{said}:\n{frame}");
    }
    assert_eq!((watches(&stage), stage.model.browser.total()), (before, 7));
    assert_eq!(stage.model.browser.selected_id, selected);
    // Who goes elsewhere goes back to what is in force.
    stage.click(60, 5);
    assert_eq!(stage.model.browser.line.text, "status:failed");
    assert!(!stage.model.browser.line.typing);
}

#[test]
fn a_value_that_is_not_whole_yet_is_no_mistake_until_enter() {
    let mut stage = typing((120, 40), "");
    stage.send(Message::Terminal(Event::Paste("status:fai".into())));
    assert_eq!(watches(&stage), 1, "nothing is asked before it means something");
    assert!(stage.frame().contains("Tab completes"));
    stage.press("enter");
    assert!(stage.frame().contains("not a whole status"), "{}", stage.frame());
    types(&mut stage, "l");
    stage.press("tab");
    assert_eq!(stage.model.browser.line.text, "status:failed");
    assert_eq!(asked(&stage).2.unwrap().status, Some(vec![DisplayStatus::Failed]));
}

#[test]
fn results_of_an_older_text_are_never_taken_for_a_newer_one() {
    let mut stage = typing((120, 40), "a");
    let (older, ..) = asked(&stage);
    types(&mut stage, "b");
    let (newer, _, filter) = asked(&stage);
    assert_eq!(filter.unwrap().text.as_deref(), Some("ab"));
    answer(&mut stage, older, 9, 40);
    assert_eq!(stage.model.browser.total(), 40, "the older answer is dropped");
    let frame = stage.frame();
    assert!(
        frame.contains("/ab▏ …") && !frame.contains("of 40"),
        "no number yet:\n{frame}"
    );
    answer(&mut stage, newer, 2, 40);
    answer(&mut stage, older, 9, 40);
    assert_eq!(stage.model.browser.total(), 2);
    assert!(stage.frame().contains("2 of 40"), "{}", stage.frame());
}

#[test]
fn a_key_a_click_and_esc_clear_the_filter() {
    for how in ["F", "esc", "click"] {
        let mut stage = typing((120, 40), "status:failed");
        let (generation, ..) = asked(&stage);
        answer(&mut stage, generation, 7, 40);
        stage.press("enter");
        assert!(stage.model.browser.line.is_active());
        if how == "click" {
            let at = stage.frame().lines().next().unwrap().chars().position(|c| c == '✕');
            stage.click(u16::try_from(at.unwrap()).unwrap(), 0);
        } else {
            if how == "F" {
                stage.model.focus = Part::Graph;
            }
            stage.press(how);
        }
        assert!(!stage.model.browser.line.is_active(), "{how}");
        assert_eq!(
            (asked(&stage).2, stage.model.browser.line.text.as_str()),
            (None, ""),
            "{how}"
        );
    }
}

#[test]
fn ages_are_instants_that_move_on_without_moving_the_list() {
    let mut stage = typing((120, 40), "age:<2h");
    let (generation, _, filter) = asked(&stage);
    assert_eq!(
        filter.unwrap().created_after.as_deref(),
        Some("2026-03-01T08:00:31.000Z")
    );
    answer(&mut stage, generation, 30, 40);
    stage.press("enter down down down");
    let selected = stage.model.browser.selected_id.clone();
    // A sixtieth of two hours later.
    let later = fixtures::START + 31_000 + 120_000;
    stage.send(Message::Tick(later - 1));
    assert_eq!(asked(&stage).0, generation, "not yet");
    stage.send(Message::Tick(later));
    let (newer, start, filter) = asked(&stage);
    assert_eq!(
        (start, filter.unwrap().created_after.as_deref()),
        (0, Some("2026-03-01T08:02:31.000Z"))
    );
    assert!(stage.frame().contains("30 of 40"), "the list stays meanwhile");
    answer(&mut stage, newer, 29, 40);
    assert_eq!(
        (stage.model.browser.total(), &stage.model.browser.selected_id),
        (29, &selected)
    );
    assert_eq!(stage.model.browser.refresh_at(), Some(later + 120_000));
}

#[test]
fn an_unknown_host_is_named_with_those_that_there_are() {
    let hosts = Hosts::new(&["build".to_owned(), "gpu".to_owned()]);
    let mut stage = Stage::with(hosts, (120, 40), None);
    stage.press("/");
    types(&mut stage, "host:attic");
    let frame = stage.frame();
    assert!(
        frame.contains("no host is called \"attic\"") && frame.contains("build gpu"),
        "{frame}"
    );
}
