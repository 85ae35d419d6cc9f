//! Column values that several queries share: stored JSON and times.

use piw_protocol::child::ContentRef;
use rusqlite::OptionalExtension;
use serde_json::Value;

use super::{QueryError, Reader, Result, unsigned};

/// A JSON value as stored: small ones in the row, large ones as content.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredValue {
    /// The value itself, at most 16 KiB of canonical JSON.
    Inline(Value),
    /// Content that holds its canonical JSON.
    Content {
        /// `blobs.id`.
        blob: i64,
        /// Its name.
        reference: ContentRef,
    },
}

impl StoredValue {
    /// JSON `null`.
    #[must_use]
    pub const fn null() -> Self {
        Self::Inline(Value::Null)
    }

    /// Reads the `*_json` and `*_blob` columns of one value; `None` when both are empty.
    pub(crate) fn read(
        reader: &Reader,
        what: &'static str,
        json: Option<&str>,
        blob: Option<i64>,
    ) -> Result<Option<Self>> {
        match (json, blob) {
            (Some(text), _) => {
                let value = serde_json::from_str(text).map_err(|error| QueryError::corrupt(what, error))?;
                Ok(Some(Self::Inline(value)))
            }
            (None, Some(blob)) => Ok(Some(Self::Content {
                blob,
                reference: content_ref(reader, what, blob)?,
            })),
            (None, None) => Ok(None),
        }
    }
}

/// Names a stored blob.
pub(crate) fn content_ref(reader: &Reader, what: &'static str, blob: i64) -> Result<ContentRef> {
    let row = reader
        .prepare_cached("SELECT sha256, bytes, media_type FROM blobs WHERE id = ?1 AND complete = 1")?
        .query_row([blob], |row| {
            Ok((
                row.get::<_, Vec<u8>>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, String>(2)?,
            ))
        })
        .optional()?;
    let Some((sha256, bytes, media_type)) = row else {
        return Err(QueryError::corrupt(what, format!("content {blob} is missing")));
    };
    Ok(ContentRef {
        sha256: hex::encode(sha256),
        bytes: unsigned(what, bytes)?,
        media_type,
    })
}

/// Milliseconds since the epoch as RFC 3339 UTC with milliseconds. Values out of range are clamped.
#[must_use]
pub fn rfc3339(ms: i64) -> String {
    let limit = if ms < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    };
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or(limit);
    format!("{at:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_767_225_599_999), "2025-12-31T23:59:59.999Z");
        assert!(!rfc3339(i64::MAX).is_empty());
        assert!(!rfc3339(i64::MIN).is_empty());
    }
}
