//! Content that views generate: stored under run, digest and media type before a view that names it is sent, reused by later
//! views, and collected when no view names it any more.

use piw_protocol::child::ContentRef;
use rusqlite::params;

use crate::error::StateError;
use crate::ids::RunKey;
use crate::state::State;
use crate::writer::Authority;

/// Generated rows of a run that are kept whatever names them.
const KEEP_ROWS: i64 = 64;
/// How long a row stays after the last view that might name it: time for a client to fetch what it was shown.
const KEEP_MS: i64 = 5 * 60 * 1000;

/// Content that a view of a run names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewContent {
    /// Its name; the digest is the caller's claim about the bytes.
    pub reference: ContentRef,
    /// Where its bytes are.
    pub source: ViewContentSource,
}

/// Where the bytes of view content are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewContentSource {
    /// In the content store, under `blobs.id`.
    Blob(i64),
    /// Made by the view.
    Generated(Vec<u8>),
}

impl State {
    /// Makes content available under a run. `named` are all references of the view, so that generated content that no view
    /// names any more can go. Resolves after the commit; a run that was deleted meanwhile is left alone.
    ///
    /// # Errors
    /// When the database cannot be written, or the server was fenced.
    pub async fn store_view_content(
        &self,
        run: RunKey,
        contents: Vec<ViewContent>,
        named: Vec<ContentRef>,
    ) -> Result<(), StateError> {
        self.write("store view content", Authority::Server, move |tx| {
            let exists: bool = tx
                .db
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND deleted_at IS NULL)")?
                .query_row([run], |row| row.get(0))?;
            if !exists {
                return Ok(());
            }
            let mut insert = tx.db.prepare_cached(
                "INSERT OR IGNORE INTO run_view_content (run, sha256, media_type, bytes, data, blob, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?;
            for content in &contents {
                let ContentRef {
                    sha256,
                    bytes,
                    media_type,
                } = &content.reference;
                let digest = hex::decode(sha256)
                    .map_err(|_| StateError::Invalid(format!("content digest {sha256:?} is not lower-case hex")))?;
                let (data, blob) = match &content.source {
                    ViewContentSource::Blob(blob) => (None, Some(*blob)),
                    ViewContentSource::Generated(data) => (Some(data), None),
                };
                let length = i64::try_from(*bytes)
                    .map_err(|_| StateError::Invalid(format!("content of {bytes} bytes is too large to store")))?;
                insert.execute(params![run, digest, media_type, length, data, blob, tx.now])?;
            }
            collect(tx.db, run, &named, tx.now)
        })
        .await
    }
}

/// Deletes generated content of a run that is old and that its newest view does not name.
fn collect(db: &rusqlite::Connection, run: RunKey, named: &[ContentRef], now: i64) -> Result<(), StateError> {
    let rows: i64 = db
        .prepare_cached("SELECT count(*) FROM run_view_content WHERE run = ?1 AND data IS NOT NULL")?
        .query_row([run], |row| row.get(0))?;
    if rows <= KEEP_ROWS {
        return Ok(());
    }
    let mut old = db.prepare_cached(
        "SELECT id, sha256, media_type FROM run_view_content
          WHERE run = ?1 AND data IS NOT NULL AND created_at < ?2 ORDER BY id LIMIT ?3",
    )?;
    let candidates = old
        .query_map(params![run, now - KEEP_MS, rows - KEEP_ROWS], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, Vec<u8>>(1)?,
                row.get::<_, String>(2)?,
            ))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut delete = db.prepare_cached("DELETE FROM run_view_content WHERE id = ?1")?;
    for (id, digest, media_type) in candidates {
        let sha256 = hex::encode(digest);
        if !named
            .iter()
            .any(|kept| kept.sha256 == sha256 && kept.media_type == media_type)
        {
            delete.execute([id])?;
        }
    }
    Ok(())
}
