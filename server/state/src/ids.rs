//! Keys: the integer keys of rows and the compact form of public attempt ids.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};
use uuid::Uuid;

/// `runs.id`: grows with creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey(pub i64);

/// `node_attempts.id`: grows with creation, over all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey(pub i64);

/// Index of a node in the document order of its definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

macro_rules! integer_key {
    ($name:ident) => {
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::Owned(Value::Integer(i64::from(self.0))))
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value
                    .as_i64()?
                    .try_into()
                    .map(Self)
                    .map_err(|_| FromSqlError::OutOfRange(value.as_i64().unwrap_or(-1)))
            }
        }
    };
}

integer_key!(RunKey);
integer_key!(AttemptKey);
integer_key!(NodeIndex);

/// A public attempt id. A UUID in its usual form is stored as 16 bytes, any other text as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttemptId(String);

impl AttemptId {
    /// Wraps an id.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as it appears in messages and views.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as owned text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl ToSql for AttemptId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        // Only the canonical spelling may become bytes: it is the one that comes back.
        if self.0.len() == 36
            && let Ok(uuid) = Uuid::try_parse(&self.0)
            && uuid.as_hyphenated().to_string() == self.0
        {
            return Ok(ToSqlOutput::Owned(Value::Blob(uuid.as_bytes().to_vec())));
        }
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0.as_bytes())))
    }
}

impl FromSql for AttemptId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Blob(bytes) => {
                let bytes: [u8; 16] = bytes.try_into().map_err(|_| FromSqlError::InvalidBlobSize {
                    expected_size: 16,
                    blob_size: bytes.len(),
                })?;
                Ok(Self(Uuid::from_bytes(bytes).as_hyphenated().to_string()))
            }
            other => other.as_str().map(|text| Self(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(id: &str) -> (String, String) {
        let connection = rusqlite::Connection::open_in_memory().expect("memory database");
        connection
            .execute_batch("CREATE TABLE t (id ANY) STRICT")
            .expect("table");
        connection
            .execute("INSERT INTO t VALUES (?1)", [AttemptId::new(id)])
            .expect("insert");
        connection
            .query_row("SELECT id, typeof(id) FROM t", [], |row| {
                Ok((row.get::<_, AttemptId>(0)?.into_string(), row.get(1)?))
            })
            .expect("read")
    }

    #[test]
    fn ids_come_back_as_they_were() {
        for (id, kind) in [
            ("0197b6a2-6a1e-7c5e-9d5a-0a4b8f1c2d3e", "blob"),
            ("0197B6A2-6A1E-7C5E-9D5A-0A4B8F1C2D3E", "text"),
            ("0197b6a26a1e7c5e9d5a0a4b8f1c2d3e", "text"),
            ("attempt-1", "text"),
            ("sixteen-bytes-id", "text"),
        ] {
            assert_eq!(round_trip(id), (id.to_owned(), kind.to_owned()));
        }
    }
}
