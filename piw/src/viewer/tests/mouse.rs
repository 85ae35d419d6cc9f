//! Everything that keys reach is reached with the mouse alone.

use super::*;
use crate::viewer::action::{Action, ENTRIES};

/// Cells of the row that holds all of `words`, and the column where the first begins.
fn place(frame: &str, words: &[&str]) -> Option<(u16, u16)> {
    let (row, line) = frame
        .lines()
        .enumerate()
        .find(|(_, line)| words.iter().all(|word| line.contains(word)))?;
    let column = crate::text::width(&line[..line.find(words[0])?]);
    Some((u16::try_from(column).unwrap(), u16::try_from(row).unwrap()))
}

impl Stage {
    fn click_on(&mut self, words: &[&str]) {
        let frame = self.frame();
        let (column, row) = place(&frame, words).unwrap_or_else(|| panic!("{words:?} is not there: {frame}"));
        self.click(column, row);
    }

    fn wheel(&mut self, column: u16, row: u16) {
        self.send(Message::Terminal(Event::Mouse(MouseEvent {
            kind: MouseEventKind::ScrollDown,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        })));
    }
}

/// A run that offers things, in a viewer of the given size.
fn stage(size: (u16, u16)) -> Stage {
    let mut stage = opened(size, &fixtures::running());
    stage.effects.clear();
    stage
}

#[test]
fn every_action_is_a_row_of_the_help_that_can_be_clicked() {
    for size in [(60, 20), (80, 24), (120, 40)] {
        for entry in ENTRIES {
            let mut by_mouse = stage(size);
            let help = by_mouse
                .frame()
                .lines()
                .last()
                .unwrap()
                .rfind('?')
                .expect("a button for the help");
            let column = crate::text::width(&by_mouse.frame().lines().last().unwrap()[..help]);
            by_mouse.click(column as u16, size.1 - 1);
            // Long helps are scrolled with the wheel. The first key and the first word name the row.
            let words: Vec<&str> = [entry.keys[0]]
                .into_iter()
                .chain(entry.text.split(' ').take(2))
                .collect();
            let is_row = |line: &&str| {
                let row = line.split('│').find(|part| part.trim_start().starts_with(words[0]));
                row.is_some_and(|row| row.contains(&words[1..].join(" ")))
            };
            let row = (0..ENTRIES.len())
                .find_map(|_| {
                    let frame = by_mouse.frame();
                    let found = frame.lines().position(|line| is_row(&line));
                    if found.is_none() {
                        by_mouse.wheel(size.0 / 2, size.1 / 2);
                    }
                    found
                })
                .unwrap_or_else(|| panic!("{} is not in the help at {size:?}: {}", entry.name, by_mouse.frame()));
            by_mouse.click(size.0 / 2, row as u16);
            let mut by_key = stage(size);
            let effects = crate::viewer::update::act(&mut by_key.model, entry.action);
            by_key.effects.extend(effects);
            by_key.send(Message::Tick(by_key.model.now));
            assert_eq!(by_mouse.frame(), by_key.frame(), "{} at {size:?}", entry.name);
            assert_eq!(by_mouse.effects, by_key.effects, "{} at {size:?}", entry.name);
        }
    }
}

#[test]
fn dialogs_are_answered_with_the_mouse() {
    let mut stage = opened((120, 40), &fixtures::running());
    stage.click_on(&["c cancel"]);
    stage.click_on(&["[y] yes"]);
    let sent = |stage: &Stage| {
        stage
            .effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Command { .. }))
            .count()
    };
    assert_eq!(sent(&stage), 1);

    let mut stage = opened((120, 40), &fixtures::waiting());
    stage.click_on(&["a answer"]);
    stage.press("1");
    stage.click_on(&["Esc closes"]);
    assert!(stage.model.popup.is_none());
    stage.click_on(&["a answer"]);
    stage.press("1");
    stage.click_on(&["Enter sends"]);
    assert_eq!(sent(&stage), 1);

    stage.press(",");
    stage.click_on(&["catppuccin-latte"]);
    assert!(stage.model.popup.is_some(), "the first click shows it");
    stage.click_on(&["catppuccin-latte"]);
    assert!(stage.model.popup.is_none(), "the second keeps it");
    assert!(stage.effects.iter().any(|effect| matches!(effect, Effect::Save(_))));
}

#[test]
fn a_click_elsewhere_ends_typing() {
    let mut stage = opened((120, 40), &fixtures::running());
    stage.press("/");
    assert!(stage.model.browser.line.typing);
    stage.click(80, 10);
    assert!(!stage.model.browser.line.typing);
    stage.effects.clear();
    stage.press("q");
    assert_eq!(stage.effects, [Effect::Quit], "a key is a key again");
    assert_eq!(Action::Quit, ENTRIES.last().unwrap().action);
}
