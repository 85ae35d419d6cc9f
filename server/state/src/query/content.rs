//! Stored bytes that views name by reference, read in chunks.
//!
//! Content is served only under the run, digest and media type under which a view stored it (`run_view_content`).

use std::io::{Read, Seek, SeekFrom};

use piw_protocol::child::ContentRef;
use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::{QueryError, Reader, Result, signed, unsigned};

/// Media type of canonical JSON.
pub const JSON: &str = "application/json";
/// Media type of text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// Where the bytes of an entry are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// `run_view_content.data` of this row.
    Generated(i64),
    /// `blobs.id`.
    Blob(i64),
}

/// Content of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub reference: ContentRef,
    source: Source,
}

/// Whether a run has stored content under a name.
pub fn is_stored(reader: &Reader, run: i64, reference: &ContentRef) -> Result<bool> {
    Ok(find(reader, run, &reference.sha256, &reference.media_type)?.is_some())
}

/// Content of a run by digest (lower-case hex) and media type.
pub fn find(reader: &Reader, run: i64, sha256: &str, media_type: &str) -> Result<Option<Entry>> {
    let Ok(digest) = hex::decode(sha256) else {
        return Ok(None);
    };
    let mut statement = reader.prepare_cached(
        "SELECT id, bytes, blob FROM run_view_content WHERE run = ?1 AND sha256 = ?2 AND media_type = ?3",
    )?;
    let row = statement
        .query_row(params![run, digest, media_type], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, Option<i64>>(2)?,
            ))
        })
        .optional()?;
    let Some((id, bytes, blob)) = row else { return Ok(None) };
    Ok(Some(Entry {
        reference: ContentRef {
            sha256: sha256.to_owned(),
            bytes: unsigned("content length", bytes)?,
            media_type: media_type.to_owned(),
        },
        source: blob.map_or(Source::Generated(id), Source::Blob),
    }))
}

/// At most `limit` bytes from `offset` on; fewer only at the end.
pub fn read(reader: &Reader, entry: &Entry, offset: u64, limit: usize) -> Result<Vec<u8>> {
    match entry.source {
        Source::Generated(row) => read_generated(reader, row, offset, limit),
        Source::Blob(blob) => read_blob(reader, blob, offset, limit),
    }
}

fn read_generated(reader: &Reader, row: i64, offset: u64, limit: usize) -> Result<Vec<u8>> {
    let mut blob = reader.blob_open(rusqlite::MAIN_DB, "run_view_content", "data", row, true)?;
    let io = |error: std::io::Error| QueryError::corrupt("content", error);
    let mut bytes = Vec::new();
    if offset < blob.len() as u64 {
        blob.seek(SeekFrom::Start(offset)).map_err(io)?;
        blob.take(limit as u64).read_to_end(&mut bytes).map_err(io)?;
    }
    Ok(bytes)
}

fn read_blob(reader: &Reader, blob: i64, offset: u64, limit: usize) -> Result<Vec<u8>> {
    // The chunk that holds the offset, then the ones after it until there is enough.
    let mut statement = reader.prepare_cached(
        "SELECT offset, data FROM blob_chunks WHERE blob = ?1 AND offset >=
           (SELECT max(offset) FROM blob_chunks WHERE blob = ?1 AND offset <= ?2) ORDER BY offset",
    )?;
    let mut rows = statement.query(params![blob, signed(offset)])?;
    let mut bytes = Vec::with_capacity(limit.min(512 * 1024));
    while let Some(row) = rows.next()? {
        let start = unsigned("chunk offset", row.get(0)?)?;
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let wanted = offset + bytes.len() as u64;
        let Some(skip) = wanted.checked_sub(start).and_then(|skip| usize::try_from(skip).ok()) else {
            return Err(QueryError::corrupt(
                "content",
                format!("bytes from {wanted} to {start} are missing"),
            ));
        };
        let rest = data.get(skip..).unwrap_or_default();
        bytes.extend_from_slice(&rest[..rest.len().min(limit - bytes.len())]);
        if bytes.len() == limit {
            break;
        }
    }
    Ok(bytes)
}

/// A blob that holds a JSON value small enough to be opened; the caller has looked at its length.
pub fn json(reader: &Reader, blob: i64, reference: &ContentRef) -> Result<Value> {
    let length = usize::try_from(reference.bytes).map_err(|error| QueryError::corrupt("content", error))?;
    let bytes = read_blob(reader, blob, 0, length)?;
    serde_json::from_slice(&bytes).map_err(|error| QueryError::corrupt("content", error))
}
