//! Canonical JSON: the one byte form of a value, as RFC 8785 and ECMAScript's `JSON.stringify` define it.
//!
//! UTF-8 without spaces; object keys in UTF-16 code-unit order; numbers are IEEE doubles in ECMAScript's shortest form;
//! strings with ECMAScript's minimal escapes. Digests, fingerprints and frames are made of these bytes, so a reader accepts
//! *only* them: [`parse`] and [`from_slice`] refuse every other spelling of the same value, duplicate keys, lone surrogates,
//! numbers beyond a double and nesting deeper than [`MAX_DEPTH`].
//!
//! | part | owns |
//! | --- | --- |
//! | `write` | the writer, a serde serializer that sorts keys in place |
//! | `key` | what may be an object key |
//! | `parse` | the strict single-pass reader |
//! | `number` | ECMAScript's number form |
//! | `text` | [`CanonicalJson`], a value kept as its canonical bytes |
//!
//! Nothing here knows what the values mean.

mod key;
mod number;
mod parse;
mod text;
mod write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use text::CanonicalJson;

/// Deepest nesting of arrays and objects; `[[]]` has depth 2.
pub const MAX_DEPTH: usize = 128;

/// Deepest value that is sent inline. An envelope, a view or a message adds levels of its own around a value, so a deeper
/// value travels as content, where it may use all of [`MAX_DEPTH`].
pub const INLINE_DEPTH: usize = 64;

/// Largest integer that every JSON reader keeps exactly: 2^53 − 1.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Why bytes are not canonical JSON, or a value has no canonical form. Positions are byte offsets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The bytes are no UTF-8 text.
    #[error("byte {at} is not valid UTF-8")]
    NotUtf8 {
        /// First bad byte.
        at: usize,
    },
    /// The text is no JSON at all.
    #[error("expected {expected} at byte {at}, found {found}")]
    Syntax {
        /// Where.
        at: usize,
        /// What the grammar wants there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// JSON, but spelled differently from its canonical form.
    #[error("not canonical JSON at byte {at}: {rule}")]
    NotCanonical {
        /// Where.
        at: usize,
        /// The broken rule.
        rule: &'static str,
    },
    /// Object keys are out of order.
    #[error("not canonical JSON at byte {at}: key {key:?} must come before {previous:?}")]
    KeyOrder {
        /// Where.
        at: usize,
        /// The late key.
        key: String,
        /// The key before it.
        previous: String,
    },
    /// An object has a key twice.
    #[error("duplicate key {key:?}")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// Half of a surrogate pair, which no UTF-8 text can hold.
    #[error("lone surrogate escape at byte {at}")]
    LoneSurrogate {
        /// Where.
        at: usize,
    },
    /// A number that no double can hold.
    #[error("number at byte {at} is beyond the range of a double")]
    NumberRange {
        /// Where.
        at: usize,
    },
    /// Too many nested arrays and objects.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// NaN or an infinity.
    #[error("{value} is not a JSON number")]
    NotFinite {
        /// `NaN`, `inf` or `-inf`.
        value: String,
    },
    /// A map key that is no string, number or unit variant.
    #[error("an object key must be a string")]
    KeyNotString,
    /// Canonical JSON of another shape than the wanted type.
    #[error("{0}")]
    Shape(String),
}

impl serde::ser::Error for CanonicalError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Shape(message.to_string())
    }
}

/// Canonical bytes of anything serializable.
///
/// # Errors
/// When the value holds NaN, an infinity, a duplicate key or a key that is no string, or nests deeper than [`MAX_DEPTH`].
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    write::to_vec(value, MAX_DEPTH)
}

/// Canonical text of anything serializable; otherwise as [`to_vec`].
///
/// # Errors
/// As [`to_vec`].
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, CanonicalError> {
    to_vec(value).map(|bytes| String::from_utf8(bytes).expect("the writer only writes UTF-8"))
}

/// Canonical bytes of a JSON value, whatever its depth. It is written recursively: values from outside come
/// through [`parse`] or are bounded elsewhere.
#[must_use]
pub fn write_value(value: &Value) -> Vec<u8> {
    write::to_vec(value, usize::MAX).expect("a JSON value has finite numbers and distinct string keys")
}

/// Reads canonical bytes into a JSON value. Integers up to 2^53 become integers, every other number a double.
///
/// # Errors
/// When the bytes are not exactly the canonical form of a value nested at most [`MAX_DEPTH`] deep.
pub fn parse(bytes: &[u8]) -> Result<Value, CanonicalError> {
    parse::parse(bytes).map(|(value, _)| value)
}

/// Checks canonical bytes without building anything; answers the nesting depth.
///
/// # Errors
/// As [`parse`].
pub fn check(bytes: &[u8]) -> Result<usize, CanonicalError> {
    parse::parse::<()>(bytes).map(|((), depth)| depth)
}

/// Reads canonical bytes into a type.
///
/// # Errors
/// As [`parse`], and [`CanonicalError::Shape`] when the value does not fit the type.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CanonicalError> {
    let depth = check(bytes)?;
    decode(bytes, depth)
}

/// Reads bytes already known to be canonical, `depth` levels deep.
fn decode<T: DeserializeOwned>(bytes: &[u8], depth: usize) -> Result<T, CanonicalError> {
    // serde_json stops at 127 levels; only the deepest allowed documents take the longer way.
    let decoded = if depth < MAX_DEPTH {
        serde_json::from_slice(bytes)
    } else {
        parse(bytes).map(serde_json::from_value)?
    };
    decoded.map_err(|error| CanonicalError::Shape(error.to_string()))
}

/// Nesting depth of a value: 0 for a scalar, 1 for `[]`.
#[must_use]
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Lower-case hex SHA-256 of bytes.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// `sha256:<hex>` of bytes.
#[must_use]
pub fn digest_bytes(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256_hex(bytes))
}

/// `sha256:<hex>` of a value's canonical bytes.
#[must_use]
pub fn digest(value: &Value) -> String {
    digest_bytes(&write_value(value))
}

/// Order of object keys: by UTF-16 code units, which differs from byte order only between U+E000…U+FFFF and the
/// characters above them.
fn key_order(left: &str, right: &str) -> std::cmp::Ordering {
    let rank = |byte: u8| {
        if (0xEE..0xF0).contains(&byte) {
            byte + 0x10
        } else {
            byte
        }
    };
    let (left, right) = (left.as_bytes(), right.as_bytes());
    match left.iter().zip(right).find(|(a, b)| a != b) {
        Some((a, b)) => rank(*a).cmp(&rank(*b)),
        None => left.len().cmp(&right.len()),
    }
}
