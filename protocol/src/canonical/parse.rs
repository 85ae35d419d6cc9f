//! The strict reader: one pass that accepts canonical bytes only, and builds a value or nothing.
//!
//! Memory is bounded by the input: nothing is sized by a number in it, and nesting stops at [`MAX_DEPTH`].

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::number::{self, NumberProblem};
use super::{CanonicalError, MAX_DEPTH, key_order};

/// What the reader makes of a document.
pub(super) trait Build: Sized {
    type Items: Default;
    type Entries: Default;
    fn null() -> Self;
    fn bool(value: bool) -> Self;
    fn number(value: Number) -> Self;
    fn string(value: Cow<'_, str>) -> Self;
    fn push(array: &mut Self::Items, item: Self);
    fn array(items: Self::Items) -> Self;
    fn insert(object: &mut Self::Entries, key: Cow<'_, str>, value: Self);
    fn object(entries: Self::Entries) -> Self;
}

impl Build for Value {
    type Items = Vec<Value>;
    type Entries = Map<String, Value>;

    fn null() -> Self {
        Self::Null
    }
    fn bool(value: bool) -> Self {
        Self::Bool(value)
    }
    fn number(value: Number) -> Self {
        Self::Number(value)
    }
    fn string(value: Cow<'_, str>) -> Self {
        Self::String(value.into_owned())
    }
    fn push(array: &mut Self::Items, item: Self) {
        array.push(item);
    }
    fn array(items: Self::Items) -> Self {
        Value::Array(items)
    }
    fn insert(object: &mut Self::Entries, key: Cow<'_, str>, value: Self) {
        object.insert(key.into_owned(), value);
    }
    fn object(entries: Self::Entries) -> Self {
        Value::Object(entries)
    }
}

/// Builds nothing: the check alone.
impl Build for () {
    type Items = ();
    type Entries = ();

    fn null() -> Self {}
    fn bool(_: bool) -> Self {}
    fn number(_: Number) -> Self {}
    fn string(_: Cow<'_, str>) -> Self {}
    fn push((): &mut (), (): Self) {}
    fn array((): ()) -> Self {}
    fn insert((): &mut (), _: Cow<'_, str>, (): Self) {}
    fn object((): ()) -> Self {}
}

/// Reads a whole document; answers it and its depth.
pub(super) fn parse<B: Build>(bytes: &[u8]) -> Result<(B, usize), CanonicalError> {
    let text = std::str::from_utf8(bytes).map_err(|error| CanonicalError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    if text.starts_with('\u{feff}') {
        return Err(CanonicalError::NotCanonical {
            at: 0,
            rule: "a byte order mark is not allowed",
        });
    }
    let mut parser = Parser {
        text,
        bytes,
        at: 0,
        depth: 0,
        deepest: 0,
    };
    let value = parser.value::<B>()?;
    match parser.peek() {
        None => Ok((value, parser.deepest)),
        Some(byte) if is_space(byte) => Err(parser.not_canonical("space outside a string")),
        Some(_) => Err(parser.syntax("the end of the document")),
    }
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    deepest: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn syntax(&self, expected: &'static str) -> CanonicalError {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => format!("{found:?}"),
            None => "the end".to_owned(),
        };
        CanonicalError::Syntax {
            at: self.at,
            expected,
            found,
        }
    }

    fn not_canonical(&self, rule: &'static str) -> CanonicalError {
        CanonicalError::NotCanonical { at: self.at, rule }
    }

    fn expect(&mut self, byte: u8, name: &'static str) -> Result<(), CanonicalError> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(found) if is_space(found) => Err(self.not_canonical("space outside a string")),
            _ => Err(self.syntax(name)),
        }
    }

    fn value<B: Build>(&mut self) -> Result<B, CanonicalError> {
        match self.peek() {
            Some(b'"') => self.string().map(B::string),
            Some(b'{') => self.nested(Self::object::<B>),
            Some(b'[') => self.nested(Self::array::<B>),
            Some(b'-' | b'0'..=b'9') => self.number().map(B::number),
            Some(b't') => self.word("true").map(|()| B::bool(true)),
            Some(b'f') => self.word("false").map(|()| B::bool(false)),
            Some(b'n') => self.word("null").map(|()| B::null()),
            Some(byte) if is_space(byte) => Err(self.not_canonical("space outside a string")),
            _ => Err(self.syntax("a value")),
        }
    }

    fn word(&mut self, word: &'static str) -> Result<(), CanonicalError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.syntax("a value"))
        }
    }

    fn nested<B>(&mut self, read: impl FnOnce(&mut Self) -> Result<B, CanonicalError>) -> Result<B, CanonicalError> {
        if self.depth == MAX_DEPTH {
            return Err(CanonicalError::TooDeep { limit: MAX_DEPTH });
        }
        self.at += 1;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn array<B: Build>(&mut self) -> Result<B, CanonicalError> {
        let mut items = B::Items::default();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(B::array(items));
        }
        loop {
            let item = self.value::<B>()?;
            B::push(&mut items, item);
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(B::array(items));
            }
            self.expect(b',', "',' or ']'")?;
        }
    }

    fn object<B: Build>(&mut self) -> Result<B, CanonicalError> {
        let mut entries = B::Entries::default();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(B::object(entries));
        }
        let mut previous: Option<Cow<'a, str>> = None;
        loop {
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(match self.peek() {
                    Some(byte) if is_space(byte) => self.not_canonical("space outside a string"),
                    _ => self.syntax("an object key"),
                });
            }
            let key = self.string()?;
            if let Some(before) = &previous {
                check_order(before, &key, key_at)?;
            }
            self.expect(b':', "':'")?;
            let value = self.value::<B>()?;
            B::insert(&mut entries, key.clone(), value);
            previous = Some(key);
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(B::object(entries));
            }
            self.expect(b',', "',' or '}'")?;
        }
    }

    fn number(&mut self) -> Result<Number, CanonicalError> {
        let start = self.at;
        let rest = &self.bytes[start..];
        let length = rest
            .iter()
            .position(|byte| !is_number_byte(*byte))
            .unwrap_or(rest.len());
        let token = &self.text[start..start + length];
        let number = number::read(token).map_err(|problem| match problem {
            NumberProblem::Form => self.not_canonical("a number must be in ECMAScript's shortest form"),
            NumberProblem::Range => CanonicalError::NumberRange { at: start },
        })?;
        self.at += length;
        Ok(number)
    }

    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        self.at += 1;
        let start = self.at;
        self.plain()?;
        if self.peek() == Some(b'"') {
            let text = &self.text[start..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(text));
        }
        let mut text = String::from(&self.text[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(text));
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => {
                    let start = self.at;
                    self.plain()?;
                    text.push_str(&self.text[start..self.at]);
                }
            }
        }
    }

    /// Moves to the next quote or backslash.
    fn plain(&mut self) -> Result<(), CanonicalError> {
        let rest = &self.bytes[self.at..];
        let Some(length) = rest
            .iter()
            .position(|byte| *byte < 0x20 || matches!(*byte, b'"' | b'\\'))
        else {
            self.at = self.bytes.len();
            return Err(self.syntax("the end of a string"));
        };
        self.at += length;
        if self.bytes[self.at] < 0x20 {
            return Err(self.syntax("an escape, as control characters need one"));
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<char, CanonicalError> {
        let character = match self.bytes.get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(b'/') => return Err(self.not_canonical("'/' must not be escaped")),
            _ => return Err(self.syntax("an escape")),
        };
        self.at += 2;
        Ok(character)
    }

    /// `\u00xx` of a control character that has no short form; every other use is refused.
    fn unicode_escape(&mut self) -> Result<char, CanonicalError> {
        let digits = self.bytes.get(self.at + 2..self.at + 6).unwrap_or_default();
        if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.syntax("four hex digits after '\\u'"));
        }
        let code = digits.iter().fold(0_u32, |code, digit| {
            code * 16 + char::from(*digit).to_digit(16).expect("checked to be hex digits above")
        });
        if (0xD800..0xE000).contains(&code) && !self.is_surrogate_pair(code) {
            return Err(CanonicalError::LoneSurrogate { at: self.at });
        }
        let short = matches!(code, 0x08 | 0x09 | 0x0A | 0x0C | 0x0D);
        if code >= 0x20 || short || digits.iter().any(u8::is_ascii_uppercase) {
            return Err(self.not_canonical("only control characters are escaped, in their shortest form"));
        }
        self.at += 6;
        Ok(char::from_u32(code).expect("below 0x20"))
    }

    fn is_surrogate_pair(&self, high: u32) -> bool {
        let low = self
            .text
            .get(self.at + 6..self.at + 12)
            .and_then(|next| next.strip_prefix("\\u"));
        let low = low.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        high < 0xDC00 && low.is_some_and(|low| (0xDC00..0xE000).contains(&low))
    }
}

fn check_order(previous: &str, key: &str, at: usize) -> Result<(), CanonicalError> {
    match key_order(previous, key) {
        std::cmp::Ordering::Less => Ok(()),
        std::cmp::Ordering::Equal => Err(CanonicalError::DuplicateKey { key: key.to_owned() }),
        std::cmp::Ordering::Greater => Err(CanonicalError::KeyOrder {
            at,
            key: key.to_owned(),
            previous: previous.to_owned(),
        }),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_number_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}
