//! Bounds of free text: errors, stacks, details. Measured as JSON, since that is what must fit into messages.

use piw_protocol::run::ErrorInfo;

use crate::limits;

/// Marks a cut.
pub const CUT_MARK: &str = " …";

/// Length of a character inside a JSON string, in bytes.
#[must_use]
pub fn json_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// Cuts a text to at most `limit` bytes of JSON (quotes not counted), mark included, at a character boundary. Cutting twice
/// changes nothing.
pub fn cut(text: &mut String, limit: usize) {
    if text.len() <= limit / 6 {
        return;
    }
    let (mut used, mut keep) = (0, 0);
    for (at, c) in text.char_indices() {
        used += json_len(c);
        if used > limit {
            text.truncate(keep);
            text.push_str(CUT_MARK);
            return;
        }
        if used + CUT_MARK.len() <= limit {
            keep = at + c.len_utf8();
        }
    }
}

/// Cuts the message and the stack of an error to [`limits::ERROR_MESSAGE_BYTES`] and [`limits::ERROR_STACK_BYTES`]. Every error
/// that the run machine makes is bounded so; proposals are compared with it, so both sides must use this one function.
#[must_use]
pub fn bounded_error(mut error: ErrorInfo) -> ErrorInfo {
    cut(&mut error.message, limits::ERROR_MESSAGE_BYTES);
    if let Some(stack) = &mut error.stack {
        cut(stack, limits::ERROR_STACK_BYTES);
    }
    error
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn json_bytes(text: &str) -> usize {
        crate::canonical_text(&Value::from(text)).len() - 2
    }

    #[test]
    fn a_text_that_fits_stays() {
        let mut text = "x".repeat(100);
        cut(&mut text, 100);
        assert_eq!(text, "x".repeat(100));
        text.push('x');
        cut(&mut text, 100);
        assert_eq!(text, format!("{}{CUT_MARK}", "x".repeat(96)));
    }

    proptest! {
        #[test]
        fn cuts_fit_and_are_final(mut text in "(.|\u{1}|\n|\"){0,60}", limit in 4usize..80) {
            let whole = text.clone();
            let counted: usize = text.chars().map(json_len).sum();
            prop_assert_eq!(counted, json_bytes(&text));
            cut(&mut text, limit);
            prop_assert!(json_bytes(&text) <= limit);
            prop_assert_eq!(text == whole, json_bytes(&whole) <= limit);
            let once = text.clone();
            cut(&mut text, limit);
            prop_assert_eq!(text, once);
        }
    }
}
