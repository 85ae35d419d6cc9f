//! Grammar of names: node ids, mounts, exits and workflow names.
//!
//! An id is `[A-Za-z_][A-Za-z0-9_-]*`; a qualified id joins mounts and an id by `/`. `.` and `/` can therefore separate.

use thiserror::Error;

use crate::limits;

/// Ids that would collide with what every JavaScript object has (`outputs.<id>`, `results.<id>`).
pub const RESERVED_IDS: &[&str] = &["__proto__", "constructor", "prototype"];

/// Workflow names that the conversation commands use as words (`/workflow <word>`).
pub const RESERVED_WORKFLOW_NAMES: &[&str] = &[
    "answer",
    "cancel",
    "change-settings",
    "clear",
    "list",
    "pause",
    "queue-follow-up",
    "remove-follow-up",
    "restart",
    "resume",
    "start",
    "status",
    "submit",
    "update",
];

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing there.
    #[error("the name is empty")]
    Empty,
    /// Too long.
    #[error("the name has {bytes} bytes; at most {limit} are allowed")]
    TooLong {
        /// Found length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A character that the grammar does not have.
    #[error(
        "\"{}\" contains {found:?} at byte {at}; names are [A-Za-z_][A-Za-z0-9_-]*",
        shown(name)
    )]
    BadCharacter {
        /// The whole name.
        name: String,
        /// The first character that is wrong.
        found: char,
        /// Its position in bytes.
        at: usize,
    },
    /// Reserved.
    #[error("\"{name}\" is reserved (reserved: {})", reserved.join(", "))]
    Reserved {
        /// The name.
        name: String,
        /// All reserved names of this kind.
        reserved: &'static [&'static str],
    },
    /// A workflow name with a control character or surrounding white space.
    #[error("{name:?} has control characters or surrounding white space")]
    NotPlain {
        /// The name.
        name: String,
    },
}

/// Cuts a value for a message at a character boundary.
pub(crate) fn shown(text: &str) -> String {
    const CHARS: usize = 200;
    match text.char_indices().nth(CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Checks a node id, mount name or exit name as an author writes it.
///
/// # Errors
/// Names the rule that is broken.
pub fn check_id(name: &str) -> Result<(), NameError> {
    check_grammar(name)?;
    if RESERVED_IDS.contains(&name) {
        return Err(NameError::Reserved {
            name: name.to_owned(),
            reserved: RESERVED_IDS,
        });
    }
    Ok(())
}

fn check_grammar(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > limits::ID_BYTES {
        return Err(NameError::TooLong {
            bytes: name.len(),
            limit: limits::ID_BYTES,
        });
    }
    let wrong = name.char_indices().find(|&(at, c)| {
        let first = c.is_ascii_alphabetic() || c == '_';
        !(first || at > 0 && (c.is_ascii_digit() || c == '-'))
    });
    match wrong {
        Some((at, found)) => Err(NameError::BadCharacter {
            name: name.to_owned(),
            found,
            at,
        }),
        None => Ok(()),
    }
}

/// Checks the name of a workflow: its declared name and the stem of its file.
///
/// # Errors
/// Names the rule that is broken.
pub fn check_workflow_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > limits::WORKFLOW_NAME_BYTES {
        return Err(NameError::TooLong {
            bytes: name.len(),
            limit: limits::WORKFLOW_NAME_BYTES,
        });
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return Err(NameError::NotPlain { name: name.to_owned() });
    }
    if RESERVED_WORKFLOW_NAMES.contains(&name) {
        return Err(NameError::Reserved {
            name: name.to_owned(),
            reserved: RESERVED_WORKFLOW_NAMES,
        });
    }
    Ok(())
}

/// Checks a qualified id (`mount/child/node`).
///
/// # Errors
/// Names the rule that is broken, of the whole or of one part.
pub fn check_qualified(id: &str) -> Result<(), NameError> {
    if id.len() > limits::ID_BYTES {
        return Err(NameError::TooLong {
            bytes: id.len(),
            limit: limits::ID_BYTES,
        });
    }
    id.split('/').try_for_each(check_id)
}

/// Splits a qualified id into its mount path (`""` for the root) and the local id.
#[must_use]
pub fn split_qualified(id: &str) -> (&str, &str) {
    id.rsplit_once('/').unwrap_or(("", id))
}

/// Joins a mount path and a local id.
#[must_use]
pub fn qualify(mount: &str, local: &str) -> String {
    if mount.is_empty() {
        local.to_owned()
    } else {
        format!("{mount}/{local}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_grammar() {
        for good in ["a", "_", "A-b_9", "a1"] {
            assert_eq!(check_id(good), Ok(()), "{good}");
        }
        for bad in ["1a", "-a", "a b", "a.b", "a/b", "é", "a\u{0}"] {
            assert!(matches!(check_id(bad), Err(NameError::BadCharacter { .. })), "{bad:?}");
        }
        assert_eq!(check_id(""), Err(NameError::Empty));
        assert_eq!(check_id(&"a".repeat(4096)), Ok(()));
        let message = check_id(&"a".repeat(4097)).unwrap_err().to_string();
        assert_eq!(message, "the name has 4097 bytes; at most 4096 are allowed");
        assert_eq!(
            check_id("a.b").unwrap_err().to_string(),
            "\"a.b\" contains '.' at byte 1; names are [A-Za-z_][A-Za-z0-9_-]*"
        );
    }

    #[test]
    fn reserved_names_are_refused() {
        let message = check_id("__proto__").unwrap_err().to_string();
        assert_eq!(
            message,
            "\"__proto__\" is reserved (reserved: __proto__, constructor, prototype)"
        );
        assert!(
            check_workflow_name("submit")
                .unwrap_err()
                .to_string()
                .contains("\"submit\" is reserved")
        );
        assert_eq!(check_workflow_name("release notes"), Ok(()));
        assert!(matches!(check_workflow_name(" a"), Err(NameError::NotPlain { .. })));
        assert!(matches!(
            check_workflow_name(&"a".repeat(257)),
            Err(NameError::TooLong { bytes: 257, limit: 256 })
        ));
    }

    #[test]
    fn qualified_ids_split_and_join() {
        assert_eq!(split_qualified("a/b/c"), ("a/b", "c"));
        assert_eq!(split_qualified("c"), ("", "c"));
        assert_eq!(qualify("", "c"), "c");
        assert_eq!(qualify("a/b", "c"), "a/b/c");
        assert!(check_qualified("a//b").is_err());
        assert!(check_qualified("a/b").is_ok());
    }
}
