//! Which key does what: the table of [`super::action`] with the changes of the configuration's `[keys]`.
//!
//! Dialogs keep keys of their own (Enter, Esc, arrows, what they show as buttons); `[keys]` is about everything else.

use std::collections::HashMap;

use crossterm::event::KeyEvent;

use super::action::{Action, ENTRIES, Entry, key_name};

/// Keys that nobody can take away: the way out, and the way to every other key.
const RESERVED: [(&str, Action); 2] = [("ctrl-c", Action::Quit), ("f1", Action::Help)];

/// Keys with a name of more than one character, besides `f1` to `f24`.
const NAMED: [&str; 16] = [
    "enter",
    "esc",
    "tab",
    "backtab",
    "space",
    "backspace",
    "insert",
    "delete",
    "up",
    "down",
    "left",
    "right",
    "home",
    "end",
    "pageup",
    "pagedown",
];

/// What `[keys]` says of one action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The action's name.
    pub action: String,
    /// Its keys; none takes all away.
    pub keys: Vec<String>,
}

/// The effective keys.
#[derive(Debug, Clone)]
pub struct KeyMap {
    /// Keys of each entry of the table, in its order.
    keys: Vec<Vec<String>>,
    actions: HashMap<String, Action>,
}

impl Default for KeyMap {
    fn default() -> Self {
        let keys = ENTRIES
            .iter()
            .map(|entry| entry.keys.iter().map(|key| (*key).to_owned()).collect());
        Self::of(keys.collect())
    }
}

impl KeyMap {
    fn of(keys: Vec<Vec<String>>) -> Self {
        let actions = ENTRIES.iter().zip(&keys).flat_map(|(entry, keys)| {
            let action = entry.action;
            keys.iter().map(move |key| (key.clone(), action))
        });
        let actions = actions.collect();
        Self { keys, actions }
    }

    /// The table changed by `[keys]`, and sentences about what cannot be used. A key that two actions claim goes to the first
    /// in the file; one that the file gives away is taken from the action that has it by default.
    #[must_use]
    pub fn configured(bindings: &[Binding]) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut keys = Self::default().keys;
        // Index of the entry that the file gave a key to.
        let mut given: HashMap<String, usize> = HashMap::new();
        let mut named = vec![false; ENTRIES.len()];
        for binding in bindings {
            let Some(index) = ENTRIES.iter().position(|entry| entry.name == binding.action) else {
                problems.push(unknown_action(&binding.action));
                continue;
            };
            let mut taken: Vec<String> = reserved(ENTRIES[index].action).map(str::to_owned).collect();
            for written in &binding.keys {
                let key = match canonical(written) {
                    Ok(key) => key,
                    Err(rule) => {
                        problems.push(format!("keys.{}: {written:?} {rule}", binding.action));
                        continue;
                    }
                };
                if let Some((_, owner)) = RESERVED.iter().find(|(fixed, _)| *fixed == key) {
                    if *owner != ENTRIES[index].action {
                        let owner = name_of(*owner);
                        problems.push(format!("keys.{}: {key} always means {owner}", binding.action));
                    }
                    continue;
                }
                match given.get(&key) {
                    Some(other) if *other != index => problems.push(format!(
                        "keys.{}: {key} is the key of {} already, which keeps it",
                        binding.action, ENTRIES[*other].name
                    )),
                    _ => {
                        given.insert(key.clone(), index);
                        // Keys that the file names come before reserved ones: the first is shown.
                        let at = taken.len().saturating_sub(reserved(ENTRIES[index].action).count());
                        if !taken.contains(&key) {
                            taken.insert(at, key);
                        }
                    }
                }
            }
            keys[index] = taken;
            named[index] = true;
        }
        for (index, entry) in ENTRIES.iter().enumerate().filter(|(index, _)| !named[*index]) {
            let before = keys[index].len();
            keys[index].retain(|key| !given.contains_key(key));
            if before > 0 && keys[index].is_empty() {
                let lost = entry.keys.first().copied().unwrap_or_default();
                let owner = given.get(lost).map_or("another action", |owner| ENTRIES[*owner].name);
                problems.push(format!(
                    "keys.{owner}: takes {lost} from {}, which has no key now",
                    entry.name
                ));
            }
        }
        (Self::of(keys), problems)
    }

    /// The action of a key.
    #[must_use]
    pub fn find(&self, key: &KeyEvent) -> Option<Action> {
        self.actions.get(&key_name(key)).copied()
    }

    /// The keys of an action, the one to show first.
    #[must_use]
    pub fn keys(&self, action: Action) -> &[String] {
        let index = ENTRIES.iter().position(|entry| entry.action == action);
        index.map_or(&[], |index| self.keys[index].as_slice())
    }

    /// The key to show for an action; none when it has no key.
    #[must_use]
    pub fn shown(&self, action: Action) -> Option<&str> {
        self.keys(action).first().map(String::as_str)
    }

    /// Every action with its keys, in the order of help.
    pub fn entries(&self) -> impl Iterator<Item = (&'static Entry, &[String])> {
        ENTRIES.iter().zip(self.keys.iter().map(Vec::as_slice))
    }
}

fn reserved(action: Action) -> impl Iterator<Item = &'static str> {
    let fixed = RESERVED.iter().filter(move |(_, owner)| *owner == action);
    fixed.map(|(key, _)| *key)
}

fn name_of(action: Action) -> &'static str {
    let entry = ENTRIES.iter().find(|entry| entry.action == action);
    entry.map_or("nothing", |entry| entry.name)
}

fn unknown_action(name: &str) -> String {
    // Below this similarity a suggestion is a guess.
    const SIMILAR: f64 = 0.75;
    let nearest = ENTRIES
        .iter()
        .map(|entry| (strsim::jaro_winkler(entry.name, name), entry.name))
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .filter(|(similar, _)| *similar >= SIMILAR);
    match nearest {
        Some((_, nearest)) => format!("keys.{name}: no such action; did you mean {nearest}?"),
        None => format!("keys.{name}: no such action; piw keys lists them"),
    }
}

/// The name of a key as [`key_name`] gives it.
fn canonical(written: &str) -> Result<String, &'static str> {
    let (mut ctrl, mut alt, mut shift) = (false, false, false);
    let mut rest = written;
    // A lone `-`, also behind a prefix, is a key itself.
    while let Some((prefix, behind)) = rest.split_once('-').filter(|(_, behind)| !behind.is_empty()) {
        let modifier = match prefix.to_ascii_lowercase().as_str() {
            "ctrl" => &mut ctrl,
            "alt" => &mut alt,
            "shift" => &mut shift,
            _ => break,
        };
        *modifier = true;
        rest = behind;
    }
    let mut characters = rest.chars();
    let name = match (characters.next(), characters.next()) {
        (None, _) => return Err("is empty; write a key such as x, G, ctrl-p, enter or f2"),
        (Some(' '), None) => "space".to_owned(),
        (Some(one), None) if one.is_control() => return Err("is a control character; write its key's name"),
        (Some(_), None) if shift => return Err("is a character with shift; write the character that it gives"),
        (Some(one), None) if ctrl => one.to_lowercase().collect(),
        (Some(one), None) => one.to_string(),
        _ => {
            let name = rest.to_ascii_lowercase();
            let function = name
                .strip_prefix('f')
                .and_then(|number| number.parse::<u8>().ok())
                .is_some_and(|number| (1..=24).contains(&number));
            if !function && !NAMED.contains(&name.as_str()) {
                return Err(
                    "is no key; write one character, a name such as enter, space, pageup or f2, with ctrl- or alt- before it",
                );
            }
            name
        }
    };
    if name == "backtab" || (name == "tab" && shift) {
        return Ok("backtab".to_owned());
    }
    let mut key = String::new();
    for (held, prefix) in [(ctrl, "ctrl-"), (alt, "alt-"), (shift, "shift-")] {
        if held {
            key.push_str(prefix);
        }
    }
    key.push_str(&name);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};
    use proptest::prelude::*;

    use super::*;

    fn bind(action: &str, keys: &[&str]) -> Binding {
        Binding {
            action: action.into(),
            keys: keys.iter().map(|key| (*key).into()).collect(),
        }
    }

    fn press(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn a_configured_key_replaces_the_default_ones() {
        let (map, problems) = KeyMap::configured(&[bind("pause", &["f2", "ctrl-S"]), bind("fold", &[])]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(map.find(&press(KeyCode::F(2), KeyModifiers::NONE)), Some(Action::Pause));
        assert_eq!(
            map.find(&press(KeyCode::Char('s'), KeyModifiers::CONTROL)),
            Some(Action::Pause)
        );
        assert_eq!(map.find(&press(KeyCode::Char('p'), KeyModifiers::NONE)), None);
        assert_eq!(map.shown(Action::Pause), Some("f2"));
        assert_eq!(map.shown(Action::Fold), None);
        assert_eq!(map.shown(Action::Resume), Some("r"));
    }

    #[test]
    fn conflicts_name_both_actions_and_who_keeps_the_key() {
        let (map, problems) = KeyMap::configured(&[bind("pause", &["x"]), bind("cancel", &["x", "f4"])]);
        assert_eq!(
            problems,
            [
                "keys.cancel: x is the key of pause already, which keeps it",
                "keys.pause: takes x from fold, which has no key now",
            ]
        );
        let x = press(KeyCode::Char('x'), KeyModifiers::NONE);
        assert_eq!(map.find(&x), Some(Action::Pause));
        assert_eq!(map.keys(Action::Cancel), ["f4"]);
        assert!(map.keys(Action::Fold).is_empty());
    }

    #[test]
    fn the_ways_out_and_to_help_stay() {
        let (map, problems) =
            KeyMap::configured(&[bind("quit", &[]), bind("help", &["f9"]), bind("pause", &["ctrl-c"])]);
        assert_eq!(problems, ["keys.pause: ctrl-c always means quit"]);
        assert_eq!(map.keys(Action::Quit), ["ctrl-c"]);
        assert_eq!(map.keys(Action::Help), ["f9", "f1"]);
    }

    #[test]
    fn unknown_names_are_told_with_what_was_meant() {
        let (_, problems) = KeyMap::configured(&[
            bind("pasue", &["x"]),
            bind("qqqq", &["x"]),
            bind("pause", &["hyper-x", "", "shift-a", "f25"]),
        ]);
        assert_eq!(problems[0], "keys.pasue: no such action; did you mean pause?");
        assert_eq!(problems[1], "keys.qqqq: no such action; piw keys lists them");
        assert_eq!(problems.len(), 6, "{problems:?}");
        assert!(
            problems[2].starts_with("keys.pause: \"hyper-x\" is no key"),
            "{problems:?}"
        );
        assert!(problems[3].contains("is empty"), "{problems:?}");
        assert!(problems[4].contains("with shift"), "{problems:?}");
    }

    #[test]
    fn the_names_of_the_table_are_canonical() {
        for (entry, keys) in KeyMap::default().entries() {
            for key in keys {
                assert_eq!(canonical(key).as_ref(), Ok(key), "{}", entry.name);
            }
        }
        assert_eq!(canonical("Alt-Ctrl-PageDown").as_deref(), Ok("ctrl-alt-pagedown"));
        assert_eq!(canonical("-").as_deref(), Ok("-"));
        assert_eq!(canonical("ctrl--").as_deref(), Ok("ctrl--"));
        assert_eq!(canonical("shift-tab").as_deref(), Ok("backtab"));
    }

    proptest! {
        /// Whatever a file says: no key means two things, and help and the way out are reachable.
        #[test]
        fn every_configuration_gives_a_usable_map(
            bindings in prop::collection::vec(
                (prop::sample::select(ENTRIES.iter().map(|entry| entry.name).collect::<Vec<_>>()),
                 prop::collection::vec("[a-c?:]|ctrl-[a-d]|f[0-9]{1,2}|.{0,6}", 0..4)),
                0..12,
            )
        ) {
            let bindings: Vec<Binding> = bindings
                .into_iter()
                .map(|(action, keys)| Binding { action: action.into(), keys })
                .collect();
            let (map, _) = KeyMap::configured(&bindings);
            let all: Vec<&String> = map.entries().flat_map(|(_, keys)| keys).collect();
            let distinct: std::collections::HashSet<&String> = all.iter().copied().collect();
            prop_assert_eq!(all.len(), distinct.len());
            prop_assert_eq!(map.find(&press(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Quit));
            prop_assert_eq!(map.find(&press(KeyCode::F(1), KeyModifiers::NONE)), Some(Action::Help));
        }
    }
}
