//! The terminal's answer to the question for its background colour (OSC 11).
//!
//! The answer arrives among the keys, whenever it does: `ESC ] 11 ; rgb:RRRR/GGGG/BBBB ESC \`, which the key reader takes for
//! Alt-] and what follows. [`Answers`] picks it out and lets everything else through, so nobody waits for a terminal that is slow or
//! silent, and no answer is ever taken for keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::theme::Appearance;

/// The question.
pub const QUESTION: &str = "\x1b]11;?\x1b\\";

/// Longest answer, in characters: colours may have an alpha channel.
const LONGEST: usize = 40;

/// Picks answers out of the keys.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    held: Vec<KeyEvent>,
}

/// What a key turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Keys, in order; none while it may be part of an answer.
    Keys(Vec<KeyEvent>),
    /// The end of an answer.
    Ground(Appearance),
}

impl Answers {
    /// Takes the next key.
    pub fn take(&mut self, key: KeyEvent) -> Heard {
        let alt = key.modifiers == KeyModifiers::ALT;
        if self.held.is_empty() {
            if alt && key.code == KeyCode::Char(']') {
                self.held.push(key);
                return Heard::Keys(Vec::new());
            }
            return Heard::Keys(vec![key]);
        }
        self.held.push(key);
        let bell = key.modifiers == KeyModifiers::CONTROL && key.code == KeyCode::Char('g');
        if bell || (alt && key.code == KeyCode::Char('\\')) {
            let held = std::mem::take(&mut self.held);
            return match appearance(&text(&held[1..held.len() - 1])) {
                Some(ground) => Heard::Ground(ground),
                None => Heard::Keys(held),
            };
        }
        let fits = matches!(key.code, KeyCode::Char(c) if c.is_ascii_hexdigit() || "rgba:;/".contains(c));
        if fits && self.held.len() <= LONGEST {
            Heard::Keys(Vec::new())
        } else {
            Heard::Keys(std::mem::take(&mut self.held))
        }
    }
}

fn text(keys: &[KeyEvent]) -> String {
    let characters = keys.iter().filter_map(|key| match key.code {
        KeyCode::Char(c) => Some(c),
        _ => None,
    });
    characters.collect()
}

/// Reads `11;rgb:RRRR/GGGG/BBBB`, also with an alpha channel and with one to four digits a channel.
fn appearance(text: &str) -> Option<Appearance> {
    let color = text.strip_prefix("11;")?;
    let channels = color.strip_prefix("rgb:").or_else(|| color.strip_prefix("rgba:"))?;
    let channels: Vec<f64> = channels
        .split('/')
        .map(|digits| {
            let most = f64::from((1_u32 << (4 * digits.len().clamp(1, 4))) - 1);
            let value = u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() <= 4)?;
            Some(f64::from(value) / most)
        })
        .collect::<Option<_>>()?;
    let [red, green, blue, ..] = channels[..] else {
        return None;
    };
    // How bright it looks (ITU-R BT.601).
    let bright = 0.299 * red + 0.587 * green + 0.114 * blue;
    Some(if bright > 0.5 {
        Appearance::Light
    } else {
        Appearance::Dark
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
    }

    fn alt(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT)
    }

    /// The keys that the key reader makes of an answer.
    fn answer(body: &str) -> Vec<KeyEvent> {
        let mut keys = vec![alt(']')];
        keys.extend(body.chars().map(key));
        keys.push(alt('\\'));
        keys
    }

    fn hear(keys: &[KeyEvent]) -> (Vec<KeyEvent>, Vec<Appearance>) {
        let (mut answers, mut passed, mut grounds) = (Answers::default(), Vec::new(), Vec::new());
        for key in keys {
            match answers.take(*key) {
                Heard::Keys(keys) => passed.extend(keys),
                Heard::Ground(ground) => grounds.push(ground),
            }
        }
        (passed, grounds)
    }

    #[test]
    fn answers_are_picked_out_and_keys_pass() {
        let mut keys = vec![key('j')];
        keys.extend(answer("11;rgb:ffff/ffff/f0f0"));
        keys.push(key('k'));
        keys.extend(answer("11;rgba:1e/1e/2e/ff"));
        assert_eq!(
            hear(&keys),
            (vec![key('j'), key('k')], vec![Appearance::Light, Appearance::Dark])
        );
        let mut belled = answer("11;rgb:0/0/0");
        *belled.last_mut().unwrap() = KeyEvent::new(KeyCode::Char('g'), KeyModifiers::CONTROL);
        assert_eq!(hear(&belled), (vec![], vec![Appearance::Dark]));
    }

    #[test]
    fn what_only_looks_like_an_answer_is_keys() {
        let keys = [alt(']'), key('1'), key('q')];
        assert_eq!(hear(&keys), (keys.to_vec(), vec![]));
        for body in [
            "10;rgb:0/0/0",
            "11;rgb:0/0",
            "11;rgb:12345/0/0",
            "11;rgb://",
            &"1".repeat(60),
        ] {
            let keys = answer(body);
            assert_eq!(hear(&keys), (keys, vec![]), "{body}");
        }
    }

    proptest! {
        /// Whatever comes, no key is lost or reordered: what passed and what is still held is what came, but for whole answers.
        #[test]
        fn no_key_is_lost(text in "[\\]1;rgb:/0f\\\\q]{0,80}", alts in prop::collection::vec(any::<bool>(), 80)) {
            let keys: Vec<KeyEvent> =
                text.chars().zip(alts).map(|(c, held)| if held { alt(c) } else { key(c) }).collect();
            let mut answers = Answers::default();
            let (mut passed, mut grounds) = (Vec::new(), 0);
            for key in &keys {
                match answers.take(*key) {
                    Heard::Keys(keys) => passed.extend(keys),
                    Heard::Ground(_) => grounds += 1,
                }
            }
            passed.extend(answers.held);
            if grounds == 0 {
                prop_assert_eq!(passed, keys);
            } else {
                prop_assert!(passed.len() < keys.len());
            }
        }
    }
}
