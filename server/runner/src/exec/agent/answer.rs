//! The submission in what an agent command printed.

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::de::Deserializer;

/// The whole text when it is JSON, else the last object or array in it: prose and code fences around an answer do no harm.
/// A lone number, word or string inside prose is no answer, and neither is a part of something that is broken or too deep.
pub(crate) fn find(printed: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(printed.trim()) {
        return Some(value);
    }
    let mut found = None;
    let mut at = 0;
    while let Some(step) = printed[at..].find(['{', '[']) {
        at += step;
        let rest = &printed[at..];
        let mut values = Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        at += match values.next() {
            Some(Err(broken)) => place(rest, &broken),
            _ => {
                let end = values.byte_offset();
                found = serde_json::from_str(&rest[..end]).ok();
                end
            }
        };
    }
    found
}

/// Where to go on after an error: at the character that does not fit, so that no text is read again and again.
fn place(text: &str, error: &serde_json::Error) -> usize {
    let line: usize = text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum();
    let mut at = (line + error.column()).saturating_sub(1).clamp(1, text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_whole_text_or_the_last_value_counts() {
        for (printed, submitted) in [
            (" {\"a\": 1}\n", Some(json!({ "a": 1 }))),
            ("\"text\"", Some(json!("text"))),
            ("7", Some(json!(7))),
            (
                "First I thought {\"a\": 1}.\n```json\n{\"a\": [2]}\n```\nDone.",
                Some(json!({ "a": [2] })),
            ),
            ("{\"a\": 1}{\"a\": 2}", Some(json!({ "a": 2 }))),
            ("see [1] and {broken", Some(json!([1]))),
            ("{\"outer\": {\"inner\": 1}, oops", None),
            ("a list [of {\"a\": 3}]", Some(json!({ "a": 3 }))),
            ("[\n1,\n\u{e9} {\"a\": 4}", Some(json!({ "a": 4 }))),
            ("the answer is 7", None),
            ("{broken", None),
            ("", None),
        ] {
            assert_eq!(find(printed), submitted, "{printed}");
        }
    }

    #[test]
    fn deep_nesting_is_no_answer_and_is_read_once() {
        let deep = format!("see {}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(find(&deep), None);
        assert_eq!(find(&"[".repeat(1_000_000)), None);
        assert_eq!(find(&"{\"a\":".repeat(200_000)), None);
    }

    proptest! {
        #[test]
        fn an_answer_after_prose_is_found(prose in "[^\\[\\]{}\"]{0,80}", number in any::<i64>()) {
            let value = json!({ "n": number, "list": [number] });
            prop_assert_eq!(find(&format!("{prose}\n{value}\n{prose}")), Some(value));
        }

        #[test]
        fn no_text_breaks_it(printed in any::<String>()) {
            let _ = find(&printed);
        }
    }
}
