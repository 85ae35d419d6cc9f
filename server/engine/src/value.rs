//! Rules of JSON values that workflows make: nesting and size, with the path of what is wrong.
//!
//! Lone surrogates cannot occur in Rust text; the script host reports them with a [`Path`] of its own.

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use crate::limits;

/// What a value is, as messages name it.
#[must_use]
pub const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A place inside a value, as messages show it: `$.items[3].name`, `$["odd key"]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Key(String),
    Index(usize),
}

impl Path {
    /// The value itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// A member of the object at this path.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push(Part::Key(key.to_owned()));
        self
    }

    /// An element of the array at this path.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Part::Index(index));
        self
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 12;
        f.write_str("$")?;
        for part in self.0.iter().take(SHOWN) {
            match part {
                Part::Index(index) => write!(f, "[{index}]")?,
                Part::Key(key) if crate::names::check_id(key).is_ok() => write!(f, ".{key}")?,
                Part::Key(key) => {
                    let quoted = crate::canonical_text(&Value::from(crate::names::shown(key)));
                    write!(f, "[{quoted}]")?;
                }
            }
        }
        match self.0.len().checked_sub(SHOWN) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "… ({more} levels more)"),
        }
    }
}

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValueError {
    /// Nested too deeply.
    #[error("the value is nested deeper than {max} at {path}", max = limits::VALUE_DEPTH)]
    TooDeep {
        /// The first array or object beyond the limit.
        path: Path,
    },
    /// Too large.
    #[error("{what} has {bytes} bytes of JSON; at most {limit} are allowed")]
    TooLarge {
        /// What the value is, for example `output of node "x"`.
        what: String,
        /// Found size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// Checks that arrays and objects nest at most [`limits::VALUE_DEPTH`] deep (`[[]]` has depth 2).
///
/// # Errors
/// [`ValueError::TooDeep`] with the path of the first array or object beyond the limit.
pub fn check_depth(value: &Value) -> Result<(), ValueError> {
    let mut trail = Vec::new();
    if too_deep(value, &mut trail) {
        return Err(ValueError::TooDeep { path: Path(trail) });
    }
    Ok(())
}

/// Recursion ends at the limit, whatever the value.
fn too_deep(value: &Value, trail: &mut Vec<Part>) -> bool {
    if !matches!(value, Value::Array(_) | Value::Object(_)) {
        return false;
    }
    if trail.len() == limits::VALUE_DEPTH {
        return true;
    }
    let mut inside = |part: Part, inner: &Value| {
        if !matches!(inner, Value::Array(_) | Value::Object(_)) {
            return false;
        }
        trail.push(part);
        let found = too_deep(inner, trail);
        if !found {
            trail.pop();
        }
        found
    };
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .any(|(at, inner)| inside(Part::Index(at), inner)),
        Value::Object(map) => map.iter().any(|(key, inner)| inside(Part::Key(key.clone()), inner)),
        _ => false,
    }
}

/// Checks the size of a value's canonical JSON.
///
/// # Errors
/// [`ValueError::TooLarge`] that names what the value is.
pub fn check_size(what: &str, bytes: u64, limit: u64) -> Result<(), ValueError> {
    if bytes <= limit {
        return Ok(());
    }
    Err(ValueError::TooLarge {
        what: what.to_owned(),
        bytes,
        limit,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!(1), |inner, level| {
            if level % 2 == 0 {
                json!([0, inner])
            } else {
                json!({ "k": inner })
            }
        })
    }

    #[test]
    fn depth_128_passes_and_129_names_its_place() {
        assert_eq!(check_depth(&nested(128)), Ok(()));
        let message = check_depth(&nested(129)).unwrap_err().to_string();
        assert!(
            message.starts_with(
                "the value is nested deeper than 128 at $[1].k[1].k[1].k[1].k[1].k[1].k… (116 levels more)"
            ),
            "{message}"
        );
    }

    #[test]
    fn depth_agrees_with_canonical_json() {
        for depth in [0, 1, 2, 127, 128] {
            assert_eq!(piw_protocol::canonical::depth(&nested(depth)), depth);
        }
    }

    #[test]
    fn paths_quote_odd_keys() {
        let path = Path::root().key("a").index(3).key("odd key").key("1");
        assert_eq!(path.to_string(), "$.a[3][\"odd key\"][\"1\"]");
    }

    #[test]
    fn sizes_name_what_is_too_large() {
        assert_eq!(check_size("x", 5, 5), Ok(()));
        assert_eq!(
            check_size("output of node \"a\"", 6, 5).unwrap_err().to_string(),
            "output of node \"a\" has 6 bytes of JSON; at most 5 are allowed"
        );
    }
}
