//! The theme follows the terminal: which ground it has, when it answers, and whether it answers at all.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;

use piw_tests::home::Home;
use piw_tests::terminal::Terminal;
use piw_tests::wait;

/// Grounds of the themes below.
const DARK: vt100::Color = vt100::Color::Rgb(0x1e, 0x1e, 0x2e);
const LIGHT: vt100::Color = vt100::Color::Rgb(0xef, 0xf1, 0xf5);

/// A viewer of no runs, whose configuration lets the ground decide.
fn opened(extra: &str) -> (Home, Terminal) {
    let mut home = Home::new();
    let config = home.project().join("config.toml");
    fs::write(&config, format!("[theme]\nauto_switch = true\n{extra}")).unwrap();
    home.set("PIW_CONFIG_PATH", config.to_str());
    home.set("COLORTERM", Some("truecolor"));
    let mut terminal = Terminal::start(&home, &[], 24, 80);
    terminal.wait("the viewer is there", |screen| screen.contains("help"));
    (home, terminal)
}

fn ground(terminal: &Terminal) -> vt100::Color {
    terminal.emulated().cell(0, 0).unwrap().bgcolor()
}

fn wait_for(terminal: &mut Terminal, color: vt100::Color) {
    wait::until("the ground changes", || {
        let _ = terminal.bytes_within(std::time::Duration::from_millis(20));
        (ground(terminal) == color).then_some(())
    });
}

#[test]
fn a_late_answer_changes_the_theme_and_is_no_key() {
    let (_home, mut terminal) = opened("");
    assert_eq!(ground(&terminal), DARK, "nobody waits for the answer");
    // As a key, any of its characters would open something.
    terminal.send(b"\x1b]11;rgb:fafa/fafa/fafa\x1b\\");
    wait_for(&mut terminal, LIGHT);
    assert!(!terminal.screen().contains("Help"), "{}", terminal.screen());
    // Keys work as before, and a later answer counts, too.
    terminal.send(b"?");
    terminal.wait("the help is open", |screen| screen.contains("any other key closes"));
    terminal.send(b"\x1b]11;rgb:0000/0000/0000\x07");
    wait_for(&mut terminal, DARK);
    assert!(
        terminal.screen().contains("any other key closes"),
        "the answer closed the help"
    );
    terminal.send(b"q");
    terminal.wait("the help is closed", |screen| !screen.contains("any other key closes"));
    terminal.send(b"q");
    assert_eq!(terminal.wait_for_exit(), 0);
}

#[test]
fn own_colours_lie_over_the_theme() {
    let (_home, terminal) = opened("[theme.custom]\nbase = \"#102030\"\nred = \"nothing\"\n");
    assert_eq!(ground(&terminal), vt100::Color::Rgb(0x10, 0x20, 0x30));
    let screen = terminal.screen();
    assert!(screen.contains("theme.custom.red"), "the bad colour is told: {screen}");
}
