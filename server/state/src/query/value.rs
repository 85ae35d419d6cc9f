//! Column values that several queries share: stored JSON, attempt ids, times.

use piw_protocol::child::ContentRef;
use rusqlite::types::ValueRef as SqlValue;
use rusqlite::{OptionalExtension, Row};
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

/// An attempt's public id: stored as 16 bytes when it is a UUID, else as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptId(String);

impl AttemptId {
    /// Reads the column.
    pub(crate) fn from_row(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        match row.get_ref(column)? {
            SqlValue::Blob(bytes) => match uuid::Uuid::from_slice(bytes) {
                Ok(id) => Ok(Self(id.hyphenated().to_string())),
                Err(_) => Ok(Self(hex::encode(bytes))),
            },
            SqlValue::Text(text) => Ok(Self(String::from_utf8_lossy(text).into_owned())),
            other => Err(rusqlite::Error::InvalidColumnType(
                column,
                "attempt_id".into(),
                other.data_type(),
            )),
        }
    }

    /// The public id.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }

    /// How a public id is stored.
    pub(crate) fn column(public: &str) -> rusqlite::types::Value {
        match uuid::Uuid::parse_str(public) {
            Ok(id) if id.hyphenated().to_string() == public => rusqlite::types::Value::Blob(id.as_bytes().to_vec()),
            _ => rusqlite::types::Value::Text(public.to_owned()),
        }
    }
}

/// Milliseconds since the epoch as RFC 3339 UTC with milliseconds. Values out of range are clamped.
#[must_use]
pub fn rfc3339(ms: i64) -> String {
    let clamped = ms.clamp(
        jiff::Timestamp::MIN.as_millisecond() + 1,
        jiff::Timestamp::MAX.as_millisecond() - 1,
    );
    let at = jiff::Timestamp::from_millisecond(clamped).expect("the value was clamped to the range");
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

    #[test]
    fn attempt_ids_are_stored_as_bytes_when_they_are_uuids() {
        use rusqlite::types::Value as Sql;
        assert!(
            matches!(AttemptId::column("01890a5d-ac96-774b-bcce-b302099a8057"), Sql::Blob(bytes) if bytes.len() == 16)
        );
        assert_eq!(AttemptId::column("attempt-1"), Sql::Text("attempt-1".into()));
        // An upper-case UUID is another id: it must come back as it was.
        assert!(matches!(
            AttemptId::column("01890A5D-AC96-774B-BCCE-B302099A8057"),
            Sql::Text(_)
        ));
    }
}
