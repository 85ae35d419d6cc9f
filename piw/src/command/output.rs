//! Printing: JSON documents, tables, colour. A closed pipe ends the command quietly.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::{Exit, Failure};

/// Whether standard output gets colour: a terminal, and no `NO_COLOR`.
#[must_use]
pub fn colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stdout().is_terminal()
}

/// Prints text; a reader that went away (`piw ps | head -1`) is no failure.
///
/// # Errors
/// When standard output cannot be written.
pub fn text(content: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(content.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Failed,
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Prints one JSON document and a newline.
///
/// # Errors
/// When it cannot be encoded or standard output cannot be written.
pub fn json(document: &impl Serialize) -> Result<(), Failure> {
    let mut encoded = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot encode the result: {error}")))?;
    encoded.push('\n');
    text(&escaped(&encoded))
}

/// JSON text in which every character that a terminal could obey or that reorders what a reader sees is a `\u` escape. Such
/// characters stand only inside JSON strings, so the document stays the same.
fn escaped(encoded: &str) -> Cow<'_, str> {
    let is_safe = |c: char| c == '\n' || crate::text::is_plain(c);
    if encoded.chars().all(is_safe) {
        return Cow::Borrowed(encoded);
    }
    let mut out = String::with_capacity(encoded.len() + 64);
    for c in encoded.chars() {
        if is_safe(c) {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Cow::Owned(out)
}

/// Lays out rows in columns two spaces apart; the last column is not padded. Cells must be clean already.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| crate::text::width(cell))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                let gap = widths[column] - crate::text::width(cell) + 2;
                line.extend(std::iter::repeat_n(' ', gap));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_value_and_loses_what_a_terminal_obeys() {
        let value = serde_json::json!({ "title": "a\u{9b}31m\u{202e}b\u{2028}\u{fe0f}\u{e0041}", "plain": "ü" });
        let encoded = serde_json::to_string_pretty(&value).unwrap();
        let printed = escaped(&encoded);
        assert!(
            !printed.contains(['\u{9b}', '\u{202e}', '\u{2028}', '\u{fe0f}', '\u{e0041}'])
                && printed.contains("\\u009b")
                && printed.contains('ü')
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).unwrap(), value);
    }

    #[test]
    fn columns_line_up_also_with_wide_characters() {
        let rows = [["名前", "x", "end"], ["ab", "yyy", ""]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "名前  x    end\nab    yyy\n");
    }
}
