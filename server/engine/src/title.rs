//! Run titles: one line of text.

use crate::limits;

/// Makes a run title of declared or computed text: control characters and runs of white space become single spaces, and
/// what is longer than [`limits::TITLE_CHARS`] is cut with `…`. `None` when nothing is left.
#[must_use]
pub fn normalise(text: &str) -> Option<String> {
    let mut title = String::new();
    let words = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    for word in words {
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
        if let Some((cut, _)) = title.char_indices().nth(limits::TITLE_CHARS) {
            let keep = title[..cut].char_indices().next_back().map_or(0, |(at, _)| at);
            title.truncate(keep);
            title.truncate(title.trim_end().len());
            title.push('…');
            break;
        }
    }
    (!title.is_empty()).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_line() {
        assert_eq!(normalise("  Fix\n\tthe \u{7} bug "), Some("Fix the bug".to_owned()));
        assert_eq!(normalise(" \n "), None);
        assert_eq!(normalise(""), None);
    }

    #[test]
    fn long_titles_are_cut_at_a_character() {
        let title = normalise(&"é".repeat(500)).unwrap();
        assert_eq!(title.chars().count(), 200);
        assert!(title.ends_with('…'));
        assert_eq!(normalise(&"é".repeat(200)).unwrap().chars().count(), 200);
        assert!(!normalise(&"é".repeat(200)).unwrap().ends_with('…'));
    }
}
