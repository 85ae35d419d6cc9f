//! Configured keys: what they do, and that every text shows them.

use super::*;
use crate::viewer::config::Config;
use crate::viewer::keymap::Binding;

fn bound(pairs: &[(&str, &[&str])]) -> Config {
    let binding = |(action, keys): &(&str, &[&str])| Binding {
        action: (*action).into(),
        keys: keys.iter().map(|key| (*key).into()).collect(),
    };
    Config {
        keys: pairs.iter().map(binding).collect(),
        ..Config::default()
    }
}

fn sent(stage: &Stage) -> usize {
    let commands = stage.effects.iter();
    commands
        .filter(|effect| matches!(effect, Effect::Command { .. }))
        .count()
}

#[test]
fn configured_keys_act_and_are_shown() {
    let mut stage = opened((120, 40), &fixtures::running());
    stage
        .model
        .configure(&bound(&[("pause", &["P"]), ("help", &["!"]), ("quit", &["Q"])]), &[]);
    let frame = stage.frame();
    assert!(frame.contains("P pause") && frame.contains("! help  Q quit"), "{frame}");
    stage.press("p");
    assert_eq!(sent(&stage), 0, "p means nothing any more");
    stage.press("P");
    assert_eq!(sent(&stage), 1);
    // The hint is a button whatever its key.
    let hint = frame.lines().last().unwrap().find("P pause").unwrap();
    let column = frame.lines().last().unwrap()[..hint].chars().count() as u16;
    stage.click(column, 39);
    assert_eq!(sent(&stage), 2);
    stage.press("!");
    let top = stage.frame();
    stage.press("down down down down down down down down down down down down");
    let help = top + &stage.frame();
    for row in ["P pause the run", "! f1 help for the focused part", "Q ctrl-c quit"] {
        let same = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ").contains(row);
        assert!(help.lines().any(same), "{row}: {help}");
    }
}

#[test]
fn what_the_file_says_wrong_is_told_and_stays_in_help() {
    let mut stage = opened((120, 40), &fixtures::running());
    let problems = ["ui.sidebar_width: expected a number from 1 to 500".to_owned()];
    stage
        .model
        .configure(&bound(&[("pasue", &["x"]), ("fold", &["alpha"])]), &problems);
    let frame = stage.frame();
    assert!(frame.contains("configuration: ui.sidebar_width"), "{frame}");
    let words = frame
        .split_whitespace()
        .filter(|word| ["(?", "shows", "all", "3)"].contains(word));
    assert_eq!(words.count(), 4, "{frame}");
    stage.press("?");
    let help = stage.frame();
    for told in ["did you mean pause?", "\"alpha\" is no key", "ui.sidebar_width"] {
        assert!(help.contains(told), "{told}: {help}");
    }
}
