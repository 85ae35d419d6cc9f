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
    ClearFilter,
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
    TraceScope,
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

impl Action {
    /// Whether it changes the run on the server.
    #[must_use]
    pub const fn is_control(self) -> bool {
        matches!(
            self,
            Self::Pause | Self::Resume | Self::Cancel | Self::Restart | Self::Answer | Self::Review
        )
    }
}

/// An action as users know it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The action.
    pub action: Action,
    /// Its name in the configuration file.
    pub name: &'static str,
    /// Its keys unless the configuration says otherwise, the first is shown.
    pub keys: &'static [&'static str],
    /// What it does.
    pub text: &'static str,
    /// The part of the screen that it is for; none is everywhere.
    pub part: Option<Part>,
}

const fn entry(
    action: Action,
    name: &'static str,
    keys: &'static [&'static str],
    text: &'static str,
    part: Option<Part>,
) -> Entry {
    Entry {
        action,
        name,
        keys,
        text,
        part,
    }
}

/// All actions, in the order of help.
pub const ENTRIES: &[Entry] = &[
    entry(Action::Help, "help", &["?", "f1"], "help for the focused part", None),
    entry(
        Action::Palette,
        "palette",
        &[":", "ctrl-p"],
        "command palette: every action by name",
        None,
    ),
    entry(Action::NextPart, "next-part", &["tab"], "focus the next part", None),
    entry(
        Action::PreviousPart,
        "previous-part",
        &["backtab"],
        "focus the previous part",
        None,
    ),
    entry(Action::Up, "up", &["up", "k"], "up", None),
    entry(Action::Down, "down", &["down", "j"], "down", None),
    entry(Action::Left, "left", &["left", "h"], "left", None),
    entry(Action::Right, "right", &["right", "l"], "right", None),
    entry(Action::PageUp, "page-up", &["pageup", "ctrl-u"], "a page up", None),
    entry(
        Action::PageDown,
        "page-down",
        &["pagedown", "ctrl-d"],
        "a page down",
        None,
    ),
    entry(Action::First, "first", &["g", "home"], "to the first", None),
    entry(
        Action::Last,
        "last",
        &["G", "end"],
        "to the last; in a replay back to live",
        None,
    ),
    entry(Action::Open, "open", &["enter"], "open or close", None),
    entry(Action::Back, "back", &["esc"], "back", None),
    entry(
        Action::Search,
        "search",
        &["/"],
        "filter runs (text, status:failed, age:<2h), or search the inspector",
        None,
    ),
    entry(
        Action::ClearFilter,
        "clear-filter",
        &["F"],
        "end the filter and show every run",
        None,
    ),
    entry(
        Action::NextMatch,
        "next-match",
        &["n"],
        "next match of the search",
        Some(Part::Inspector),
    ),
    entry(
        Action::PreviousMatch,
        "previous-match",
        &["N"],
        "previous match of the search",
        Some(Part::Inspector),
    ),
    entry(
        Action::StepBack,
        "step-back",
        &["["],
        "one step or recorded event back in time",
        None,
    ),
    entry(
        Action::StepForward,
        "step-forward",
        &["]"],
        "one step or recorded event forward in time",
        None,
    ),
    entry(Action::Play, "play", &["space"], "play or pause the replay", None),
    entry(Action::Slower, "slower", &["{"], "slower", None),
    entry(Action::Faster, "faster", &["}"], "faster", None),
    entry(Action::Live, "live", &["L"], "back to live", None),
    entry(
        Action::ShowTab(Tab::Steps),
        "show-steps",
        &["1"],
        "Steps",
        Some(Part::Inspector),
    ),
    entry(
        Action::ShowTab(Tab::Time),
        "show-time",
        &["2"],
        "Time",
        Some(Part::Inspector),
    ),
    entry(
        Action::ShowTab(Tab::Trace),
        "show-trace",
        &["3"],
        "Trace",
        Some(Part::Inspector),
    ),
    entry(
        Action::ShowTab(Tab::Conversation),
        "show-conversation",
        &["4"],
        "Conversation",
        Some(Part::Inspector),
    ),
    entry(
        Action::ShowTab(Tab::Info),
        "show-info",
        &["5"],
        "Info",
        Some(Part::Inspector),
    ),
    entry(Action::NextTab, "next-tab", &["t"], "next tab", Some(Part::Inspector)),
    entry(
        Action::OlderPage,
        "older-page",
        &["<"],
        "older steps, events or entries",
        Some(Part::Inspector),
    ),
    entry(
        Action::NewerPage,
        "newer-page",
        &[">"],
        "newer steps, events or entries",
        Some(Part::Inspector),
    ),
    entry(
        Action::TraceScope,
        "trace-scope",
        &["v"],
        "trace of the whole run, up to here, or of the attempt",
        Some(Part::Inspector),
    ),
    entry(
        Action::Copy,
        "copy",
        &["y"],
        "copy the selected row",
        Some(Part::Inspector),
    ),
    entry(
        Action::Page,
        "pager",
        &["o"],
        "open the selected value in the pager ($PAGER)",
        None,
    ),
    entry(
        Action::Edit,
        "editor",
        &["O"],
        "open it in the editor ($VISUAL, $EDITOR)",
        None,
    ),
    entry(
        Action::ToggleBrowser,
        "browser",
        &["b"],
        "browser: full, rail, hidden",
        None,
    ),
    entry(
        Action::Follow,
        "follow",
        &["f"],
        "follow the active node",
        Some(Part::Graph),
    ),
    entry(
        Action::NextDensity,
        "density",
        &["z"],
        "density: boxed, compact, dots",
        Some(Part::Graph),
    ),
    entry(Action::Roomier, "roomier", &["+", "="], "roomier", Some(Part::Graph)),
    entry(Action::Denser, "denser", &["-"], "denser", Some(Part::Graph)),
    entry(
        Action::ResetView,
        "reset-view",
        &["0"],
        "reset the view",
        Some(Part::Graph),
    ),
    entry(
        Action::Fold,
        "fold",
        &["x"],
        "fold or unfold the include around the selected node",
        Some(Part::Graph),
    ),
    entry(
        Action::Zoom,
        "zoom",
        &["Z"],
        "give the focused part the whole screen",
        None,
    ),
    entry(Action::Themes, "themes", &[","], "choose a theme", None),
    entry(Action::Pause, "pause", &["p"], "pause the run", None),
    entry(Action::Resume, "resume", &["r"], "resume the run", None),
    entry(Action::Cancel, "cancel", &["c"], "cancel the run", None),
    entry(Action::Restart, "restart", &["R"], "restart the run", None),
    entry(Action::Answer, "answer", &["a"], "answer what the run waits for", None),
    entry(
        Action::Review,
        "review",
        &["e"],
        "review an effect that may have happened",
        None,
    ),
    entry(Action::Hosts, "hosts", &["H"], "what is wrong with the hosts", None),
    entry(
        Action::Suspend,
        "suspend",
        &["ctrl-z"],
        "back to the shell until fg",
        None,
    ),
    entry(Action::Quit, "quit", &["q", "ctrl-c"], "quit", None),
];

/// The name of a key: `a`, `G`, `ctrl-p`, `enter`, `f1`.
#[must_use]
pub fn key_name(key: &KeyEvent) -> String {
    let name = match key.code {
        KeyCode::Char(' ') => "space".to_owned(),
        // Terminals disagree on the case of a letter with Ctrl.
        KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => c.to_lowercase().collect(),
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
