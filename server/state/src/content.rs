//! The content store: bytes by SHA-256, written and read in chunks.
//!
//! An upload is a blob row that is not complete; its chunks arrive in order, and the last one is checked against the digest.
//! Uploads that were never finished are removed at recovery. Hashing happens on the caller's side.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use piw_protocol::child::{CONTENT_CHUNK, ContentRef, OUTPUT_LIMIT};
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use crate::error::StateError;
use crate::purge::TOUCH_AFTER_MS;
use crate::state::State;
use crate::writer::{Authority, Tx};

/// Uploads that may be open at once, over all clients.
const MAX_UPLOADS: usize = 256;

/// Why a chunk was refused. Nothing of the upload remains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The digest is not 64 lower-case hex digits.
    #[error("content digest {0:?} is not 64 lower-case hex digits")]
    BadDigest(String),
    /// The content is too large.
    #[error("content of {bytes} bytes is above the limit of {limit}")]
    TooLarge {
        /// Announced length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A chunk is too large.
    #[error("a chunk of {0} bytes is above the limit of {CONTENT_CHUNK}")]
    ChunkTooLarge(usize),
    /// The chunk does not follow the one before.
    #[error("chunk at offset {found} does not follow: {expected} bytes were received")]
    Gap {
        /// Bytes received so far.
        expected: u64,
        /// Offset of the chunk.
        found: u64,
    },
    /// The bytes are not what was announced.
    #[error("the uploaded bytes do not match: announced {announced}, received {received}")]
    Mismatch {
        /// Announced digest and length.
        announced: String,
        /// Received digest and length.
        received: String,
    },
    /// Too many uploads are open.
    #[error("{MAX_UPLOADS} uploads are open; finish one first")]
    TooMany,
}

/// Progress of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// Bytes received so far.
    pub received: u64,
    /// Whether the content is stored and verified.
    pub complete: bool,
}

/// One chunk of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutChunk {
    /// Who uploads: chunks of one owner and digest belong together.
    pub owner: String,
    /// What is uploaded.
    pub content: ContentRef,
    /// Offset of the chunk.
    pub offset: u64,
    /// Its bytes.
    pub data: Vec<u8>,
    /// Whether it is the last one.
    pub complete: bool,
}

/// One chunk of stored content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Length of the whole.
    pub bytes: u64,
    /// Offset of this chunk.
    pub offset: u64,
    /// Its bytes.
    pub data: Vec<u8>,
    /// Whether the content ends here.
    pub complete: bool,
}

/// Open uploads by owner and digest.
#[derive(Default)]
pub(crate) struct Uploads {
    open: Mutex<HashMap<(String, String), Upload>>,
}

#[derive(Clone)]
struct Upload {
    hasher: Sha256,
    received: u64,
    blob: i64,
}

impl State {
    /// Stores one chunk of content. Content that is stored already is accepted without being stored again.
    ///
    /// # Errors
    /// The outer error is a failure of the database, after which the same chunk may be sent again; the inner one names what is wrong with the upload, which is then gone.
    pub async fn put_content(&self, chunk: PutChunk) -> Result<Result<Put, PutError>, StateError> {
        let digest = match check_chunk(&chunk) {
            Ok(digest) => digest,
            Err(error) => return Ok(Err(error)),
        };
        let key = (chunk.owner.clone(), chunk.content.sha256.clone());
        if chunk.offset == 0 {
            if let Some((blob, bytes)) = self.read(move |db| find(db, &digest)).await?
                && bytes == chunk.content.bytes
                && self.keep_content(blob).await?
            {
                self.uploads().drop_upload(&key);
                return Ok(Ok(Put {
                    received: bytes,
                    complete: true,
                }));
            }
            self.abandon(&key).await?;
        }
        let upload = match self.uploads().take(&key, chunk.offset) {
            Ok(upload) => upload,
            Err(error) => {
                self.abandon(&key).await?;
                return Ok(Err(error));
            }
        };
        self.append(key, upload, chunk, digest).await
    }

    /// The JSON value of stored content; `None` when it is not stored, or no JSON.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn stored_value(&self, content: ContentRef) -> Result<Option<serde_json::Value>, StateError> {
        self.read(move |db| crate::value::load(db, &content)).await
    }

    async fn append(
        &self,
        key: (String, String),
        upload: Option<Upload>,
        chunk: PutChunk,
        digest: [u8; 32],
    ) -> Result<Result<Put, PutError>, StateError> {
        let before = upload.clone();
        let mut upload = upload.unwrap_or_else(|| Upload {
            hasher: Sha256::new(),
            received: 0,
            blob: 0,
        });
        upload.hasher.update(&chunk.data);
        let received = upload.received + chunk.data.len() as u64;
        let over = received > chunk.content.bytes || (chunk.complete && received != chunk.content.bytes);
        let found: [u8; 32] = upload.hasher.clone().finalize().into();
        if over || (chunk.complete && found != digest) {
            self.remove_blob(upload.blob).await?;
            return Ok(Err(PutError::Mismatch {
                announced: format!("{} ({} bytes)", chunk.content.sha256, chunk.content.bytes),
                received: format!("{} ({received} bytes)", hex::encode(found)),
            }));
        }
        let (blob, complete) = (upload.blob, chunk.complete);
        let stored = self
            .write("put_content", Authority::Server, move |tx| {
                store_chunk(tx, blob, &digest, &chunk)
            })
            .await;
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                // The disk did not take it: the same chunk may be sent again.
                if let Some(before) = before {
                    self.uploads().put_back(key, before);
                }
                return Err(error);
            }
        };
        upload.received = received;
        upload.blob = stored;
        if !complete {
            self.uploads().put_back(key, upload);
        }
        Ok(Ok(Put { received, complete }))
    }

    /// Drops the unfinished uploads of an owner that is gone.
    ///
    /// # Errors
    /// When the write fails; what remains is removed at the next recovery.
    pub async fn abandon_uploads(&self, owner: &str) -> Result<(), StateError> {
        for blob in self.uploads().drop_owner(owner) {
            self.remove_blob(blob).await?;
        }
        Ok(())
    }

    /// Makes sure that stored content stays until it is named. `false`: it is gone.
    async fn keep_content(&self, blob: i64) -> Result<bool, StateError> {
        let old = self.clock().wall_ms() - TOUCH_AFTER_MS;
        let young = self
            .read(move |db| {
                let mut statement =
                    db.prepare_cached("SELECT 1 FROM blobs WHERE id = ?1 AND complete = 1 AND created_at > ?2")?;
                Ok(statement.exists((blob, old))?)
            })
            .await?;
        if young {
            return Ok(true);
        }
        self.write("keep_content", Authority::Server, move |tx| {
            let kept = tx.db.execute(
                "UPDATE blobs SET created_at = ?2 WHERE id = ?1 AND complete = 1",
                (blob, tx.now),
            )?;
            Ok(kept == 1)
        })
        .await
    }

    async fn abandon(&self, key: &(String, String)) -> Result<(), StateError> {
        match self.uploads().drop_upload(key) {
            Some(blob) => self.remove_blob(blob).await,
            None => Ok(()),
        }
    }

    async fn remove_blob(&self, blob: i64) -> Result<(), StateError> {
        if blob == 0 {
            return Ok(());
        }
        self.write("abandon_upload", Authority::Server, move |tx| {
            tx.db
                .execute("DELETE FROM blobs WHERE id = ?1 AND complete = 0", [blob])?;
            Ok(())
        })
        .await
    }

    /// Reads at most one chunk of stored content by its digest; `None` when it is not stored.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn get_content(&self, sha256: &str, offset: u64) -> Result<Option<Chunk>, StateError> {
        let Some(digest) = digest_bytes(sha256) else {
            return Ok(None);
        };
        self.read(move |db| {
            let Some((blob, bytes)) = find(db, &digest)? else {
                return Ok(None);
            };
            if offset > bytes {
                return Err(StateError::Invalid(format!(
                    "offset {offset} is beyond the content's {bytes} bytes"
                )));
            }
            let data = read_range(db, blob, offset, CONTENT_CHUNK)?;
            let complete = offset + data.len() as u64 == bytes;
            Ok(Some(Chunk {
                bytes,
                offset,
                data,
                complete,
            }))
        })
        .await
    }
}

impl Uploads {
    /// Takes the upload that a chunk continues; `None` for a first chunk.
    fn take(&self, key: &(String, String), offset: u64) -> Result<Option<Upload>, PutError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            return if open.len() >= MAX_UPLOADS {
                Err(PutError::TooMany)
            } else {
                Ok(None)
            };
        }
        match open.remove(key) {
            Some(upload) if upload.received == offset => Ok(Some(upload)),
            Some(upload) => {
                let expected = upload.received;
                open.insert(key.clone(), upload);
                Err(PutError::Gap {
                    expected,
                    found: offset,
                })
            }
            None => Err(PutError::Gap {
                expected: 0,
                found: offset,
            }),
        }
    }

    fn put_back(&self, key: (String, String), upload: Upload) {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, upload);
    }

    fn drop_owner(&self, owner: &str) -> Vec<i64> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extract_if(|(of, _), _| of == owner)
            .map(|(_, upload)| upload.blob)
            .collect()
    }

    fn drop_upload(&self, key: &(String, String)) -> Option<i64> {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key)
            .map(|upload| upload.blob)
    }
}

fn check_chunk(chunk: &PutChunk) -> Result<[u8; 32], PutError> {
    let digest =
        digest_bytes(&chunk.content.sha256).ok_or_else(|| PutError::BadDigest(chunk.content.sha256.clone()))?;
    if chunk.content.bytes > OUTPUT_LIMIT {
        return Err(PutError::TooLarge {
            bytes: chunk.content.bytes,
            limit: OUTPUT_LIMIT,
        });
    }
    if chunk.data.len() > CONTENT_CHUNK {
        return Err(PutError::ChunkTooLarge(chunk.data.len()));
    }
    Ok(digest)
}

fn digest_bytes(hex_text: &str) -> Option<[u8; 32]> {
    if hex_text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    hex::decode(hex_text).ok()?.try_into().ok()
}

fn store_chunk(tx: &Tx<'_>, blob: i64, digest: &[u8; 32], chunk: &PutChunk) -> Result<i64, StateError> {
    let blob = if blob == 0 {
        tx.db.execute(
            "INSERT INTO blobs (sha256, bytes, media_type, complete, created_at) VALUES (?1, ?2, ?3, 0, ?4)",
            (digest, chunk.content.bytes, &chunk.content.media_type, tx.now),
        )?;
        tx.db.last_insert_rowid()
    } else {
        blob
    };
    if !chunk.data.is_empty() {
        tx.db.execute(
            "INSERT INTO blob_chunks (blob, offset, data) VALUES (?1, ?2, ?3)",
            (blob, chunk.offset, &chunk.data),
        )?;
    }
    if chunk.complete {
        if let Some((same, _)) = find(tx.db, digest)? {
            // Somebody else finished the same content first; it stays until it is named.
            tx.db.execute("DELETE FROM blobs WHERE id = ?1", [blob])?;
            tx.db
                .execute("UPDATE blobs SET created_at = ?2 WHERE id = ?1", (same, tx.now))?;
        } else {
            tx.db.execute("UPDATE blobs SET complete = 1 WHERE id = ?1", [blob])?;
        }
    }
    Ok(blob)
}

/// Stores bytes whole; the row that is there already is reused.
pub(crate) fn insert(
    db: &Connection,
    digest: &[u8; 32],
    bytes: &[u8],
    media_type: &str,
    now: i64,
) -> Result<i64, StateError> {
    if let Some((blob, _)) = find(db, digest)? {
        return Ok(blob);
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO blobs (sha256, bytes, media_type, complete, created_at) VALUES (?1, ?2, ?3, 1, ?4)",
    )?;
    statement.execute((digest, bytes.len() as u64, media_type, now))?;
    let blob = db.last_insert_rowid();
    let mut statement = db.prepare_cached("INSERT INTO blob_chunks (blob, offset, data) VALUES (?1, ?2, ?3)")?;
    for (number, part) in bytes.chunks(CONTENT_CHUNK).enumerate() {
        statement.execute((blob, (number * CONTENT_CHUNK) as u64, part))?;
    }
    Ok(blob)
}

/// Complete content by digest: its row and length.
pub(crate) fn find(db: &Connection, digest: &[u8; 32]) -> Result<Option<(i64, u64)>, StateError> {
    let mut statement = db.prepare_cached("SELECT id, bytes FROM blobs WHERE sha256 = ?1 AND complete = 1")?;
    Ok(statement
        .query_row([digest], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// The name of stored content.
pub(crate) fn reference(db: &Connection, blob: i64) -> Result<ContentRef, StateError> {
    let mut statement = db.prepare_cached("SELECT sha256, bytes, media_type FROM blobs WHERE id = ?1")?;
    Ok(statement.query_row([blob], |row| {
        Ok(ContentRef {
            sha256: hex::encode(row.get::<_, [u8; 32]>(0)?),
            bytes: row.get(1)?,
            media_type: row.get(2)?,
        })
    })?)
}

/// All bytes of stored content.
pub(crate) fn read_all(db: &Connection, blob: i64) -> Result<Vec<u8>, StateError> {
    let mut bytes = Vec::new();
    let mut statement = db.prepare_cached("SELECT data FROM blob_chunks WHERE blob = ?1 ORDER BY offset")?;
    let mut rows = statement.query([blob])?;
    while let Some(row) = rows.next()? {
        bytes.extend_from_slice(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(bytes)
}

/// SHA-256 of the stored bytes, read chunk by chunk.
pub(crate) fn digest(db: &Connection, blob: i64) -> Result<[u8; 32], StateError> {
    let mut hasher = Sha256::new();
    let mut statement = db.prepare_cached("SELECT data FROM blob_chunks WHERE blob = ?1 ORDER BY offset")?;
    let mut rows = statement.query([blob])?;
    while let Some(row) = rows.next()? {
        hasher.update(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(hasher.finalize().into())
}

/// At most `limit` bytes from `offset` on; fewer only at the end.
pub(crate) fn read_range(db: &Connection, blob: i64, offset: u64, limit: usize) -> Result<Vec<u8>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT offset, data FROM blob_chunks
          WHERE blob = ?1 AND offset >= coalesce((SELECT max(offset) FROM blob_chunks WHERE blob = ?1 AND offset <= ?2), 0)
          ORDER BY offset",
    )?;
    let mut rows = statement.query((blob, offset))?;
    let mut bytes = Vec::new();
    while bytes.len() < limit
        && let Some(row) = rows.next()?
    {
        let start: u64 = row.get(0)?;
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let skip = usize::try_from((offset + bytes.len() as u64).saturating_sub(start)).unwrap_or(usize::MAX);
        let part = data.get(skip..).unwrap_or_default();
        bytes.extend_from_slice(&part[..part.len().min(limit - bytes.len())]);
    }
    Ok(bytes)
}
