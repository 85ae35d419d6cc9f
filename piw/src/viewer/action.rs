//! Every action of the viewer with its keys and its words: the one table behind key handling, hints, help and the palette.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::inspector::Tab;
use super::screen::Part;

/// Something a user can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table below describes each for users")]
pub enum Action {
    Quit,
    Help,
    Palette,
    NextPart,
    PreviousPart,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    Back,
    Search,
    NextMatch,
    PreviousMatch,
    StepBack,
    StepForward,
    Play,
    Slower,
    Faster,
    Live,
    ShowTab(Tab),
    NextTab,
    OlderPage,
    NewerPage,
    ToggleBrowser,
    Follow,
    NextDensity,
    Roomier,
    Denser,
    ResetView,
    Zoom,
    Fold,
    Themes,
    Copy,
    Page,
    Edit,
    Pause,
    Resume,
    Cancel,
    Restart,
    Answer,
    Review,
    Hosts,
    Suspend,
}

/// An action as users know it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The action.
    pub action: Action,
    /// Keys by name, the first is shown.
    pub keys: &'static [&'static str],
    /// What it does.
    pub text: &'static str,
    /// The part of the screen that it is for; none is everywhere.
    pub part: Option<Part>,
}

const fn entry(action: Action, keys: &'static [&'static str], text: &'static str, part: Option<Part>) -> Entry {
    Entry {
        action,
        keys,
        text,
        part,
    }
}

/// All actions, in the order of help.
pub const ENTRIES: &[Entry] = &[
    entry(Action::Help, &["?"], "help for the focused part", None),
    entry(
        Action::Palette,
        &[":", "ctrl-p"],
        "command palette: every action by name",
        None,
    ),
    entry(Action::NextPart, &["tab"], "focus the next part", None),
    entry(Action::PreviousPart, &["backtab"], "focus the previous part", None),
    entry(Action::Up, &["up", "k"], "up", None),
    entry(Action::Down, &["down", "j"], "down", None),
    entry(Action::Left, &["left", "h"], "left", None),
    entry(Action::Right, &["right", "l"], "right", None),
    entry(Action::PageUp, &["pageup", "ctrl-u"], "a page up", None),
    entry(Action::PageDown, &["pagedown", "ctrl-d"], "a page down", None),
    entry(Action::First, &["g", "home"], "to the first", None),
    entry(
        Action::Last,
        &["G", "end"],
        "to the last; in a replay back to live",
        None,
    ),
    entry(Action::Open, &["enter"], "open or close", None),
    entry(Action::Back, &["esc"], "back", None),
    entry(
        Action::Search,
        &["/"],
        "filter runs (text, status:failed, workflow:name), or search the inspector",
        None,
    ),
    entry(
        Action::NextMatch,
        &["n"],
        "next match of the search",
        Some(Part::Inspector),
    ),
    entry(
        Action::PreviousMatch,
        &["N"],
        "previous match of the search",
        Some(Part::Inspector),
    ),
    entry(Action::StepBack, &["["], "one step back in time", None),
    entry(Action::StepForward, &["]"], "one step forward in time", None),
    entry(Action::Play, &["space"], "play or pause the replay", None),
    entry(Action::Slower, &["{"], "slower", None),
    entry(Action::Faster, &["}"], "faster", None),
    entry(Action::Live, &["L"], "back to live", None),
    entry(Action::ShowTab(Tab::Steps), &["1"], "Steps", Some(Part::Inspector)),
    entry(Action::ShowTab(Tab::Time), &["2"], "Time", Some(Part::Inspector)),
    entry(Action::ShowTab(Tab::Trace), &["3"], "Trace", Some(Part::Inspector)),
    entry(Action::ShowTab(Tab::Info), &["4"], "Info", Some(Part::Inspector)),
    entry(Action::NextTab, &["t"], "next tab", Some(Part::Inspector)),
    entry(
        Action::OlderPage,
        &["<"],
        "older steps or events",
        Some(Part::Inspector),
    ),
    entry(
        Action::NewerPage,
        &[">"],
        "newer steps or events",
        Some(Part::Inspector),
    ),
    entry(Action::Copy, &["y"], "copy the selected row", Some(Part::Inspector)),
    entry(
        Action::Page,
        &["o"],
        "open the selected value in the pager ($PAGER)",
        None,
    ),
    entry(Action::Edit, &["O"], "open it in the editor ($VISUAL, $EDITOR)", None),
    entry(Action::ToggleBrowser, &["b"], "browser: full, rail, hidden", None),
    entry(Action::Follow, &["f"], "follow the active node", Some(Part::Graph)),
    entry(
        Action::NextDensity,
        &["z"],
        "density: boxed, compact, dots",
        Some(Part::Graph),
    ),
    entry(Action::Roomier, &["+", "="], "roomier", Some(Part::Graph)),
    entry(Action::Denser, &["-"], "denser", Some(Part::Graph)),
    entry(Action::ResetView, &["0"], "reset the view", Some(Part::Graph)),
    entry(
        Action::Fold,
        &["x"],
        "fold or unfold the include around the selected node",
        Some(Part::Graph),
    ),
    entry(Action::Zoom, &["Z"], "give the focused part the whole screen", None),
    entry(Action::Themes, &[","], "choose a theme", None),
    entry(Action::Pause, &["p"], "pause the run", None),
    entry(Action::Resume, &["r"], "resume the run", None),
    entry(Action::Cancel, &["c"], "cancel the run", None),
    entry(Action::Restart, &["R"], "restart the run", None),
    entry(Action::Answer, &["a"], "answer what the run waits for", None),
    entry(Action::Review, &["e"], "review an effect that may have happened", None),
    entry(Action::Hosts, &["H"], "what is wrong with the hosts", None),
    entry(Action::Suspend, &["ctrl-z"], "back to the shell until fg", None),
    entry(Action::Quit, &["q", "ctrl-c"], "quit", None),
];

/// The name of a key: `a`, `G`, `ctrl-p`, `enter`, `f1`.
#[must_use]
pub fn key_name(key: &KeyEvent) -> String {
    let name = match key.code {
        KeyCode::Char(' ') => "space".to_owned(),
        KeyCode::Char(c) => c.to_string(),
        KeyCode::BackTab => return "backtab".to_owned(),
        KeyCode::F(number) => format!("f{number}"),
        other => format!("{other:?}").to_lowercase(),
    };
    let mut out = String::new();
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        out.push_str("ctrl-");
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        out.push_str("alt-");
    }
    if key.modifiers.contains(KeyModifiers::SHIFT) && !matches!(key.code, KeyCode::Char(_)) {
        out.push_str("shift-");
    }
    out.push_str(&name);
    out
}

/// The action of a key.
#[must_use]
pub fn find(key: &KeyEvent) -> Option<Action> {
    let name = key_name(key);
    ENTRIES
        .iter()
        .find(|entry| entry.keys.contains(&name.as_str()))
        .map(|entry| entry.action)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        let mut seen = HashSet::new();
        for entry in ENTRIES {
            for key in entry.keys {
                assert!(seen.insert(key), "{key} is bound twice");
            }
        }
    }

    #[test]
    fn keys_have_the_names_of_the_table() {
        let name = |code, modifiers| key_name(&KeyEvent::new(code, modifiers));
        assert_eq!(name(KeyCode::Char('p'), KeyModifiers::CONTROL), "ctrl-p");
        assert_eq!(name(KeyCode::Char('G'), KeyModifiers::SHIFT), "G");
        assert_eq!(name(KeyCode::BackTab, KeyModifiers::SHIFT), "backtab");
        assert_eq!(name(KeyCode::PageUp, KeyModifiers::NONE), "pageup");
        assert_eq!(name(KeyCode::Char(' '), KeyModifiers::NONE), "space");
    }
}
