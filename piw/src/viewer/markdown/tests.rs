//! Rows of documents, as text and as tones.

use proptest::prelude::*;

use super::*;
use crate::text::width;

fn shown(text: &str, columns: usize) -> String {
    let document = render(text, columns, false);
    let row = |row: &Vec<Piece>| row.iter().map(|piece| piece.text.as_str()).collect::<String>();
    document
        .rows
        .iter()
        .map(|pieces| row(pieces).trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

fn tone_of(text: &str, word: &str) -> Tone {
    let document = render(text, 80, false);
    let piece = document.rows.iter().flatten().find(|piece| piece.text.contains(word));
    piece.unwrap_or_else(|| panic!("{word} in {document:?}")).tone
}

const EVERYTHING: &str = "# Release notes\n\nThe **fast** path is *new*, ~~slow~~ gone; see [the docs](https://example.org/d) \
or <https://example.org>.\nUse `piw run`.\n\n1. first, which is a long item that has to be wrapped somewhere\n2. second\n   - inner\n\
   - [x] done\n\n> quoted text that is long enough to be wrapped in a narrow column\n>\n> > twice\n\n```rust\nfn main() { println!(\"hi\"); } // \
greet\n```\n\n---\n\n| name | what it is |\n|------|-----------|\n| a | short |\n| b | a cell with so many words that it cannot stay on one line |\n";

#[test]
fn everything_has_its_place() {
    insta::assert_snapshot!(shown(EVERYTHING, 48));
}

#[test]
fn tones_tell_parts_apart() {
    assert_eq!(tone_of(EVERYTHING, "Release"), Tone::Heading);
    assert_eq!(tone_of(EVERYTHING, "piw run"), Tone::Code);
    assert_eq!(tone_of(EVERYTHING, "the docs"), Tone::Link);
    assert_eq!(tone_of(EVERYTHING, "(https"), Tone::Muted);
    assert_eq!(tone_of(EVERYTHING, "quoted"), Tone::Quote);
}

#[test]
fn code_of_many_languages_is_highlighted() {
    for (language, code, word, tone) in [
        ("rust", "fn main() {} // note", "fn", Tone::Keyword),
        ("rust", "fn main() {} // note", "note", Tone::Comment),
        ("ts", "const a: string = \"text\";", "text", Tone::Text),
        ("toml", "[table]\nkey = 12", "12", Tone::Constant),
        ("python", "def f(x):\n  return None", "def", Tone::Keyword),
        ("sh", "echo 'text'", "text", Tone::Text),
        ("diff", "+ new\n- old", "new", Tone::Added),
        ("json", "{\"a\": 12}", "12", Tone::Constant),
        ("nonsense", "let x", "let", Tone::Plain),
        ("", "let x", "let", Tone::Plain),
    ] {
        let rows = code::highlight(language, code, &mut 1000, 100);
        let piece = rows.iter().flatten().find(|piece| piece.text.contains(word)).unwrap();
        assert_eq!(piece.tone, tone, "{language}: {rows:?}");
        let lines: Vec<String> = rows
            .iter()
            .map(|row| row.iter().map(|piece| piece.text.as_str()).collect())
            .collect();
        assert_eq!(lines.join("\n"), code, "nothing is lost");
    }
}

#[test]
fn hostile_text_is_neutralised_everywhere() {
    let evil = "\u{1b}[31m\u{202e}x";
    let text = format!(
        "# {evil}\n\n{evil} `{evil}` [{evil}](http://{evil})\n\n```{evil}\n{evil}\n```\n\n|{evil}|\n|--|\n|{evil}|\n\n<b>{evil}</b>"
    );
    for piece in render(&text, 40, false).rows.iter().flatten() {
        assert!(!piece.text.contains(['\u{1b}', '\u{202e}', '\n']), "{piece:?}");
    }
}

#[test]
fn pathological_documents_end_with_a_notice() {
    let line = "word ".repeat(2 << 20);
    let document = render(&line, 80, false);
    assert!(document.cut && document.rows.len() <= ROWS);
    for text in [
        "> ".repeat(50_000) + "x",
        "- ".repeat(20_000) + "x",
        "[".repeat(100_000),
        "*a **b ".repeat(20_000),
        "|a".repeat(10_000) + "\n" + &"|-".repeat(10_000) + "\n" + &"|b".repeat(10_000),
        "```js\n".to_owned() + &"(".repeat(100_000),
        "a\n\n".repeat(100_000),
    ] {
        assert!(render(&text, 80, false).rows.len() <= ROWS);
    }
    assert!(render(&"a\n\n".repeat(100_000), 80, false).cut);
    assert!(!render("short", 80, false).cut);
}

proptest! {
    #[test]
    fn any_text_becomes_rows_that_fit(text in "[a-z #>*`|\\-\\[\\]()\n日é0-9.]{0,300}", columns in 20usize..60) {
        let document = render(&text, columns, true);
        for row in &document.rows {
            let used: usize = row.iter().map(|piece| width(&piece.text)).sum();
            // A table with more columns than fit is cut when it is drawn.
            prop_assert!(used <= columns || text.contains('|'), "{used} of {columns}: {row:?}");
        }
    }
}
