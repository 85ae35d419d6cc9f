//! The modes that a program has left a terminal in, read from every byte that it wrote.

use std::collections::BTreeSet;

/// Modes of a terminal that are on by nature: wrapping and a visible cursor.
const ON: [u16; 2] = [7, 25];

/// What a terminal was told so far, as far as it stays in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes {
    /// DEC private modes that are on: 25 is the visible cursor, 1049 the alternate screen, 1000 to 1006 the mouse, 1004 focus,
    /// 2004 bracketed paste, 2026 a synchronized update.
    pub on: BTreeSet<u16>,
    /// Whether colours or attributes are set.
    pub styled: bool,
    /// Whether the bytes end in the middle of a sequence.
    pub cut: bool,
}

impl Modes {
    /// A terminal that nobody has told anything.
    #[must_use]
    pub fn untouched() -> Self {
        Self {
            on: BTreeSet::from(ON),
            styled: false,
            cut: false,
        }
    }

    /// After these bytes.
    #[must_use]
    pub fn after(bytes: &[u8]) -> Self {
        let mut modes = Self::untouched();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == 0x1b) {
            rest = &rest[at + 1..];
            let Some(body) = rest.strip_prefix(b"[") else {
                modes.cut = rest.is_empty();
                continue;
            };
            // CAN and ESC end a sequence that was cut.
            let ends = |byte: &u8| matches!(byte, 0x18 | 0x1b | 0x40..=0x7e);
            let Some(end) = body.iter().position(ends) else {
                modes.cut = true;
                break;
            };
            if body[end] < 0x40 {
                rest = &body[end..];
                continue;
            }
            modes.take(&body[..end], body[end]);
            rest = &body[end + 1..];
        }
        modes
    }

    fn take(&mut self, parameters: &[u8], last: u8) {
        let text = String::from_utf8_lossy(parameters);
        match (text.strip_prefix('?'), last) {
            (Some(numbers), b'h' | b'l') => {
                for number in numbers.split(';').filter_map(|number| number.parse().ok()) {
                    if last == b'h' {
                        self.on.insert(number);
                    } else {
                        self.on.remove(&number);
                    }
                }
            }
            // Without an intermediate or private byte it is "select graphic rendition"; the defaults of the colours are plain.
            (None, b'm')
                if text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':')) =>
            {
                self.styled = match &*text {
                    "" | "0" => false,
                    "39" | "49" | "59" => self.styled,
                    _ => true,
                };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_on_is_seen() {
        let modes = Modes::after(b"a\x1b[?1049h\x1b[?25l\x1b[?1000;1006hb\x1b[38;5;1mred\x1b[39m\x1b[?1006l");
        assert_eq!(modes.on, BTreeSet::from([7, 1000, 1049]));
        assert!(modes.styled && !modes.cut);
        let tidy = Modes::after(b"\x1b[?2026h\x1b[1mbold\x1b[0m\x1b[?2026l\x1b]52;c;AA==\x07");
        assert_eq!(tidy, Modes::untouched());
        assert!(Modes::after(b"\x1b[?20").cut);
        let ended = Modes::after(b"\x1b[?25l\x1b[38;2;1\x18\x1b[?25h\x1b[?10\x1b[0m");
        assert_eq!(ended, Modes::untouched());
    }
}
