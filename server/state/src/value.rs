//! Values in rows: canonical JSON up to 16 KiB beside the facts, anything larger as a blob.
//!
//! Encoding and hashing happen in [`Prepared`], on the caller's side of the writer's queue.

use piw_protocol::canonical;
use piw_protocol::child::{ContentRef, ValueRef};
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use serde_json::Value;

use crate::content;
use crate::error::StateError;
use crate::hash::sha256;

/// Canonical JSON of at most this many bytes is stored in its row.
pub const INLINE_LIMIT: usize = 16 * 1024;
/// Media type of canonical JSON.
pub(crate) const JSON: &str = "application/json";

/// A value that is ready to be stored.
#[derive(Debug, Clone)]
pub(crate) enum Prepared {
    /// Stored in the row.
    Inline(String),
    /// Bytes to be stored as a blob.
    Large { sha256: [u8; 32], bytes: Vec<u8> },
    /// Names content that must be stored already.
    Content(ContentRef),
}

/// A value as columns hold it: at most one is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) json: Option<String>,
    pub(crate) blob: Option<i64>,
}

impl Prepared {
    /// Encodes a value.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when it has no canonical form (too deep, a lone surrogate).
    pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, StateError> {
        let bytes = canonical::to_vec(value).map_err(|error| StateError::Invalid(error.to_string()))?;
        Ok(Self::bytes(bytes))
    }

    /// Takes canonical JSON.
    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        if bytes.len() <= INLINE_LIMIT {
            match String::from_utf8(bytes) {
                Ok(text) => return Self::Inline(text),
                Err(error) => {
                    let bytes = error.into_bytes();
                    return Self::Large {
                        sha256: sha256(&bytes),
                        bytes,
                    };
                }
            }
        }
        Self::Large {
            sha256: sha256(&bytes),
            bytes,
        }
    }

    /// Encodes a value of a message.
    ///
    /// # Errors
    /// As [`Self::json`].
    pub(crate) fn value(value: &ValueRef) -> Result<Self, StateError> {
        match value {
            ValueRef::Inline(value) => Self::json(value),
            ValueRef::Content(content) => Ok(Self::Content(content.clone())),
        }
    }

    /// `sha256:<hex>` of the canonical JSON.
    pub(crate) fn digest(&self) -> String {
        match self {
            Self::Inline(text) => canonical::digest_bytes(text.as_bytes()),
            Self::Large { sha256, .. } => format!("sha256:{}", hex::encode(sha256)),
            Self::Content(content) => format!("sha256:{}", content.sha256),
        }
    }

    /// Stores what is no column value yet.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when named content is not there.
    pub(crate) fn store(self, db: &Connection, now: i64) -> Result<Stored, StateError> {
        match self {
            Self::Inline(text) => Ok(Stored {
                json: Some(text),
                blob: None,
            }),
            Self::Large { sha256, bytes } => content::insert(db, &sha256, &bytes, JSON, now).map(|blob| Stored {
                json: None,
                blob: Some(blob),
            }),
            Self::Content(content) => stored_content(db, &content),
        }
    }
}

/// Content by reference. Small JSON moves into the row, so that one value never has two representations.
fn stored_content(db: &Connection, content: &ContentRef) -> Result<Stored, StateError> {
    let missing = || StateError::Invalid(format!("content {} is not stored; upload it first", content.sha256));
    let digest: [u8; 32] = hex::decode(&content.sha256)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(missing)?;
    let (blob, bytes) = content::find(db, &digest)?.ok_or_else(missing)?;
    if bytes != content.bytes {
        let text = format!("content {} has {bytes} bytes, not {}", content.sha256, content.bytes);
        return Err(StateError::Invalid(text));
    }
    if content.media_type != JSON {
        let text = format!(
            "content {} is {}, but a value must be {JSON}",
            content.sha256, content.media_type
        );
        return Err(StateError::Invalid(text));
    }
    if usize::try_from(bytes).is_ok_and(|bytes| bytes <= INLINE_LIMIT) {
        let text = String::from_utf8(content::read_all(db, blob)?)
            .map_err(|_| StateError::Invalid(format!("content {} is not text", content.sha256)))?;
        return Ok(Stored {
            json: Some(text),
            blob: None,
        });
    }
    Ok(Stored {
        json: None,
        blob: Some(blob),
    })
}

impl Stored {
    /// The value as a message carries it: small blobs by value up to `inline` bytes, the rest by reference. SQL `NULL` in both
    /// columns is JSON `null`.
    pub(crate) fn to_ref(&self, db: &Connection, inline: u64) -> Result<ValueRef, StateError> {
        match (&self.json, self.blob) {
            (Some(text), _) => Ok(ValueRef::Inline(serde_json::from_str(text)?)),
            (None, None) => Ok(ValueRef::null()),
            (None, Some(blob)) => {
                let content = content::reference(db, blob)?;
                if content.bytes <= inline {
                    return Ok(ValueRef::Inline(serde_json::from_slice(&content::read_all(db, blob)?)?));
                }
                Ok(ValueRef::Content(content))
            }
        }
    }

    /// Reads the two columns that start at `at`.
    pub(crate) fn columns(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            json: row.get(at)?,
            blob: row.get(at + 1)?,
        })
    }
}

/// Loads a value by digest for a routing decision; `None` when it is not stored or no JSON.
pub(crate) fn load(db: &Connection, content: &ContentRef) -> Result<Option<Value>, StateError> {
    let Some(digest) = hex::decode(&content.sha256)
        .ok()
        .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
    else {
        return Ok(None);
    };
    let Some((blob, _)) = content::find(db, &digest)? else {
        return Ok(None);
    };
    Ok(serde_json::from_slice(&content::read_all(db, blob)?).ok())
}

/// One optional row of a query.
pub(crate) fn maybe<T>(result: rusqlite::Result<T>) -> Result<Option<T>, StateError> {
    Ok(result.optional()?)
}
