//! Untrusted text on its way to a terminal: neutralising, measuring, fitting, wrapping.
//!
//! Everything that comes from workflows, agents, processes or servers passes through [`clean`] (one line) or
//! [`clean_lines`] (several) before it is printed or drawn, in every command. Nothing here knows colours or widgets.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for a character that must not reach the terminal.
pub const REPLACEMENT: char = '\u{fffd}';
/// Longest text, in characters, that one line is cleaned for; the rest is replaced by an ellipsis.
pub const LINE_LIMIT: usize = 4096;
/// Combining marks kept on one base character.
const MARKS_LIMIT: usize = 2;
/// Columns between tab stops.
const TAB: usize = 4;

/// What happens to one character.
enum Fate {
    Keep,
    Mark,
    Drop,
    Replace(char),
}

fn fate(c: char) -> Fate {
    match c {
        // Line ends, tabs, and spaces that measure one or two columns by terminal: a plain space is certain.
        '\t'
        | '\n'
        | '\r'
        | '\u{b}'
        | '\u{c}'
        | '\u{85}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{3000}' => Fate::Replace(' '),
        // C0 controls have visible pictures.
        '\0'..='\u{1f}' => Fate::Replace(char::from_u32(0x2400 + c as u32).unwrap_or(REPLACEMENT)),
        '\u{7f}' => Fate::Replace('\u{2421}'),
        // C1 controls are 8-bit escape sequences. Bidirectional marks, embeddings, overrides and isolates reorder what a reader sees; fillers look like nothing.
        '\u{80}'..='\u{9f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{206f}' => Fate::Replace(REPLACEMENT),
        // Zero-width characters and tags hide text or make look-alikes.
        '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}'
        | '\u{feff}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{180b}'..='\u{180f}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0000}'..='\u{e0fff}' => Fate::Drop,
        _ => match UnicodeWidthChar::width(c) {
            None => Fate::Replace(REPLACEMENT),
            Some(0) => Fate::Mark,
            Some(_) => Fate::Keep,
        },
    }
}

/// Whether a character is shown as it is: it neither controls a terminal, nor reorders or hides text.
#[must_use]
pub fn is_plain(c: char) -> bool {
    matches!(fate(c), Fate::Keep | Fate::Mark)
}

/// One line that is safe to print: no control character, escape sequence, bidi control or zero-width trick survives, line
/// ends become spaces, stacks of combining marks are cut, and nothing is longer than [`LINE_LIMIT`] characters.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.len() <= LINE_LIMIT && text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len().min(LINE_LIMIT * 4));
    push_clean(&mut out, text);
    Cow::Owned(out)
}

/// Takes characters one by one and keeps what is safe; stacks of combining marks are cut.
struct Cleaner<'a> {
    out: &'a mut String,
    /// Marks on the last character.
    marks: usize,
}

impl<'a> Cleaner<'a> {
    const fn new(out: &'a mut String) -> Self {
        // A mark needs a character to stand on.
        Self {
            out,
            marks: MARKS_LIMIT,
        }
    }

    fn push(&mut self, c: char) {
        match fate(c) {
            Fate::Keep => self.keep(c),
            Fate::Mark if self.marks < MARKS_LIMIT => {
                self.marks += 1;
                self.out.push(c);
            }
            Fate::Mark | Fate::Drop => {}
            Fate::Replace(c) => {
                self.marks = MARKS_LIMIT;
                self.out.push(c);
            }
        }
    }

    /// Takes a character as it is, whatever it does.
    fn keep(&mut self, c: char) {
        self.marks = 0;
        self.out.push(c);
    }
}

fn push_clean(out: &mut String, text: &str) {
    let mut cleaner = Cleaner::new(out);
    for (count, c) in text.chars().enumerate() {
        if count == LINE_LIMIT {
            cleaner.keep('…');
            return;
        }
        cleaner.push(c);
    }
}

/// At most `limit` clean lines of `text`, tabs expanded; the second value says whether lines were left out.
#[must_use]
pub fn clean_lines(text: &str, limit: usize) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if lines.len() == limit {
            return (lines, true);
        }
        let (line, tail) = rest.split_once('\n').unwrap_or((rest, ""));
        let line = line.strip_suffix('\r').unwrap_or(line);
        let mut out = String::new();
        if line.contains('\t') {
            let mut expanded = String::new();
            for piece in line.chars().take(LINE_LIMIT + 1) {
                if piece == '\t' {
                    let stop = TAB - expanded.chars().count() % TAB;
                    expanded.extend(std::iter::repeat_n(' ', stop));
                } else {
                    expanded.push(piece);
                }
            }
            push_clean(&mut out, &expanded);
        } else {
            push_clean(&mut out, line);
        }
        lines.push(out);
        rest = tail;
    }
    (lines, false)
}

/// A whole text of many lines, safe to print, with its line ends and tabs kept and nothing cut: for a pager.
#[must_use]
pub fn clean_document(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cleaner = Cleaner::new(&mut out);
    for c in text.chars() {
        match c {
            '\n' | '\t' => cleaner.keep(c),
            c => cleaner.push(c),
        }
    }
    out
}

/// Whether a text seems to be written as Markdown: it has a heading, fenced code, a table, or several list items or
/// emphasised words. Only its beginning is looked at.
#[must_use]
pub fn looks_like_markdown(text: &str) -> bool {
    let head = &text[..text.floor_char_boundary(8 * 1024)];
    if !head.trim_end().contains('\n') {
        return false;
    }
    let mut hints = 0;
    for line in head.lines() {
        let line = line.trim_start();
        let hashes = line.bytes().take_while(|b| *b == b'#').count();
        let heading = (1..=6).contains(&hashes) && line[hashes..].starts_with(' ');
        if heading || line.starts_with("```") || line.starts_with("|--") || line.starts_with("| --") {
            return true;
        }
        let item = line.starts_with("- ") || line.starts_with("* ") || line.starts_with("> ");
        let number = line.bytes().take_while(u8::is_ascii_digit).count();
        let numbered = number > 0 && line[number..].starts_with(". ");
        let inline = line.matches("**").count() > 1 || line.contains("](") || line.matches('`').count() > 1;
        hints += usize::from(item || numbered || inline);
    }
    hints > 1
}

/// Columns that `text` takes on a terminal.
#[must_use]
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// `text` cut to at most `columns`, with an ellipsis when something was cut.
#[must_use]
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if text.len() <= columns && text.is_ascii() || width(text) <= columns {
        return Cow::Borrowed(text);
    }
    if columns == 0 {
        return Cow::Borrowed("");
    }
    let mut out = String::new();
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        let w = width(grapheme);
        if used + w > columns - 1 {
            break;
        }
        used += w;
        out.push_str(grapheme);
    }
    out.push('…');
    Cow::Owned(out)
}

/// The end of `text`, with a leading ellipsis when the beginning was cut: for paths.
#[must_use]
pub fn fit_end(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    if columns == 0 {
        return Cow::Borrowed("");
    }
    let mut used = 0;
    let mut kept = Vec::new();
    for grapheme in text.graphemes(true).rev() {
        let w = width(grapheme);
        if used + w > columns - 1 {
            break;
        }
        used += w;
        kept.push(grapheme);
    }
    let mut out = String::from("…");
    out.extend(kept.into_iter().rev());
    Cow::Owned(out)
}

/// `text` fitted to exactly `columns`: cut with an ellipsis, or padded with spaces on the right.
#[must_use]
pub fn pad(text: &str, columns: usize) -> String {
    let fitted = fit(text, columns);
    let used = width(&fitted);
    let mut out = fitted.into_owned();
    out.extend(std::iter::repeat_n(' ', columns.saturating_sub(used)));
    out
}

/// A number with its noun: `1 step`, `2 steps`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Breaks one clean line into pieces of at most `columns`, at spaces where that wastes less than half a line.
#[must_use]
pub fn wrap(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    if width(line) <= columns {
        return vec![line.to_owned()];
    }
    let mut out = Vec::new();
    let mut current = String::new();
    let mut used = 0;
    // Byte position after the last space in `current`.
    let mut space: Option<usize> = None;
    for grapheme in line.graphemes(true).flat_map(|grapheme| breakable(grapheme, columns)) {
        let w = width(grapheme);
        if used + w > columns && !current.is_empty() {
            let tail = match space {
                Some(at) if at * 2 >= current.len() => current.split_off(at),
                _ => String::new(),
            };
            out.push(current.trim_end().to_owned());
            current = tail;
            used = width(&current);
            space = None;
        }
        current.push_str(grapheme);
        used += w;
        if grapheme == " " {
            space = Some(current.len());
        }
    }
    if !current.trim_end().is_empty() {
        out.push(current.trim_end().to_owned());
    }
    out
}

/// A grapheme whole, or in characters when spacing marks make it wider than a line.
fn breakable(grapheme: &str, columns: usize) -> Vec<&str> {
    if width(grapheme) <= columns.max(2) {
        return vec![grapheme];
    }
    let ends = grapheme.char_indices().map(|(at, c)| (at, at + c.len_utf8()));
    ends.map(|(from, to)| &grapheme[from..to]).collect()
}

/// A rate for people, per second, minute or hour so that the number is readable: `2.5 files/s`, `3/min`.
#[must_use]
pub fn rate(per_second: f64, unit: &str) -> String {
    let (count, time) = match per_second {
        fast if fast >= 1.0 || fast <= 0.0 => (fast, "s"),
        slow if slow * 60.0 >= 1.0 => (slow * 60.0, "min"),
        slower => (slower * 3600.0, "h"),
    };
    let digits = if count >= 100.0 || count <= 0.0 { 0 } else { 1 };
    let number = format!("{count:.digits$}");
    let number = number.strip_suffix(".0").unwrap_or(&number);
    let space = if unit.is_empty() { "" } else { " " };
    format!("{number}{space}{unit}/{time}")
}

/// A size for people.
#[must_use]
pub fn bytes(count: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "sizes are shown with one decimal")]
    let exact = count as f64;
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", exact / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", exact / 1_048_576.0),
        _ => format!("{:.1} GiB", exact / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_readable_at_any_speed() {
        for (per_second, unit, text) in [
            (2.5, "files", "2.5 files/s"),
            (3.0, "", "3/s"),
            (1234.56, "rows", "1235 rows/s"),
            (0.05, "pages", "3 pages/min"),
            (0.001, "pages", "3.6 pages/h"),
            (0.0, "pages", "0 pages/s"),
        ] {
            assert_eq!(rate(per_second, unit), text);
        }
    }

    #[test]
    fn a_character_with_spacing_marks_is_broken_when_it_is_wider_than_the_line() {
        assert_eq!(width("a\u{11937}\u{11f34}"), 3);
        assert_eq!(wrap("a\u{11937}\u{11f34}", 2), ["a\u{11937}", "\u{11f34}"]);
    }

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(clean("\u{1b}[31mred\u{1b}[0m"), "␛[31mred␛[0m");
        assert_eq!(clean("\u{9b}31m"), "\u{fffd}31m");
        assert_eq!(clean("bell\u{7}"), "bell␇");
    }

    #[test]
    fn bidi_and_zero_width_are_neutralised() {
        assert_eq!(clean("a\u{202e}b"), "a\u{fffd}b");
        assert_eq!(clean("pay\u{200b}pal"), "paypal");
        assert_eq!(clean("x\u{e0041}y"), "xy");
        assert_eq!(clean("two\nlines\tx"), "two lines x");
    }

    #[test]
    fn mark_stacks_are_cut() {
        let zalgo = format!("e{}", "\u{301}".repeat(50));
        assert_eq!(clean(&zalgo).chars().count(), 3);
        assert_eq!(clean("\u{301}x"), "x", "a mark without a base is dropped");
    }

    #[test]
    fn a_ten_megabyte_line_is_cut() {
        let long = "x".repeat(10 << 20);
        assert_eq!(clean(&long).chars().count(), LINE_LIMIT + 1);
        assert!(clean_lines(&long, 5).0[0].len() < LINE_LIMIT + 8);
    }

    #[test]
    fn lines_expand_tabs_and_say_when_cut() {
        assert_eq!(clean_lines("a\tb\r\nc\nd", 2), (vec!["a   b".into(), "c".into()], true));
        assert_eq!(clean_lines("a\n", 2), (vec!["a".into()], false));
    }

    #[test]
    fn fitting_counts_wide_characters() {
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 6), "日本語");
        assert_eq!(fit_end("/a/long/path", 6), "…/path");
        assert_eq!(pad("日", 4), "日  ");
        assert_eq!(fit("abc", 0), "");
    }

    #[test]
    fn documents_keep_lines_and_tabs_and_nothing_else() {
        assert_eq!(clean_document("a\tb\r\n\u{1b}[2J\u{202e}c"), "a\tb \n␛[2J\u{fffd}c");
        let long = "x".repeat(LINE_LIMIT * 3);
        assert_eq!(clean_document(&long), long);
    }

    #[test]
    fn markdown_is_told_from_output() {
        for text in [
            "# Title\ntext",
            "a\n```sh\nls\n```",
            "- one\n- two\n",
            "1. a\n2. b",
            "**a** b\nsee [x](y)",
            "|a|\n|--|",
        ] {
            assert!(looks_like_markdown(text), "{text}");
        }
        for text in [
            "# one line",
            "running 12 tests\ntest a ... ok\n",
            "#!/bin/sh\necho",
            "2 - 1\n- 3",
            "",
        ] {
            assert!(!looks_like_markdown(text), "{text}");
        }
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "step"), "1 step");
        assert_eq!(counted(0, "step"), "0 steps");
    }

    #[test]
    fn wrapping_prefers_spaces() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    }

    proptest! {
        #[test]
        fn clean_text_is_printable(text in any::<String>()) {
            for c in clean(&text).chars() {
                prop_assert!(!c.is_control());
                prop_assert!(!matches!(fate(c), Fate::Drop));
            }
        }

        #[test]
        fn fitted_text_fits(text in any::<String>(), columns in 0usize..40) {
            let text = clean(&text);
            prop_assert!(width(&fit(&text, columns)) <= columns);
            prop_assert!(width(&fit_end(&text, columns)) <= columns);
            prop_assert_eq!(width(&pad(&text, columns)), columns);
            for line in wrap(&text, columns) {
                prop_assert!(width(&line) <= columns.max(2));
            }
        }
    }

    #[test]
    fn sizes_have_a_unit() {
        let shown = [1023, 1024, 1_572_864, 3_221_225_472].map(bytes);
        assert_eq!(shown, ["1023 B", "1.0 KiB", "1.5 MiB", "3.0 GiB"]);
    }
}
