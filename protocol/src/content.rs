//! Verified content: bytes and pages that are shown or parsed only after they were checked against what was asked for.
//!
//! [`Verified`] can be made here only. No I/O: [`ContentAssembler`] says what to ask next and judges the answers.

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::canonical::{self, CanonicalError};
use crate::child::ContentRef;
use crate::ops::ContentRequest;
use crate::view::{ArtifactRef, CONTENT_CHUNK, CONTENT_CHUNK_SCHEMA, ContentChunk};

/// Media type of canonical JSON content.
pub const MEDIA_JSON: &str = "application/json";
/// Media type of text content.
pub const MEDIA_TEXT: &str = "text/plain; charset=utf-8";
/// Largest content that is fetched (the largest node output, decision 9), in bytes.
pub const MAX_CONTENT: u64 = 256 * 1024 * 1024;

/// Why content is not what its reference says. An error on that value alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The reference contradicts itself.
    #[error("the content reference is invalid: {problem}")]
    Reference {
        /// What is wrong.
        problem: String,
    },
    /// The content is larger than the limit.
    #[error("the content has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Length in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A chunk differs from its request or from the reference.
    #[error("content chunk: {field} is {found}, expected {expected}")]
    Chunk {
        /// The differing field.
        field: &'static str,
        /// What the reference or request says.
        expected: String,
        /// What the chunk says.
        found: String,
    },
    /// The data of a chunk is no base64.
    #[error("content chunk: the data is not base64")]
    Encoding,
    /// The whole has another digest.
    #[error("the content's SHA-256 is {found}, expected {expected}")]
    Digest {
        /// What the reference says.
        expected: String,
        /// What arrived.
        found: String,
    },
    /// Verified bytes that are no canonical JSON or text, as their media type says.
    #[error("the content cannot be read as {media_type}: {problem}")]
    Format {
        /// Media type of the reference.
        media_type: String,
        /// What is wrong.
        problem: String,
    },
}

/// Something whose length, SHA-256, media type and path were checked against its reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified<T> {
    value: T,
    reference: ArtifactRef,
}

impl<T> Verified<T> {
    /// The checked value.
    pub const fn get(&self) -> &T {
        &self.value
    }

    /// The checked value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// What it was checked against.
    pub const fn reference(&self) -> &ArtifactRef {
        &self.reference
    }
}

impl Verified<Vec<u8>> {
    /// Reads canonical JSON content into a type.
    ///
    /// # Errors
    /// [`ContentError::Format`] when the media type is another one, or the bytes are not canonical JSON of that type.
    pub fn json<T: DeserializeOwned>(self) -> Result<Verified<T>, ContentError> {
        self.expect_media(MEDIA_JSON)?;
        let value = canonical::from_slice(&self.value).map_err(|error| self.unreadable(&error))?;
        Ok(Verified {
            value,
            reference: self.reference,
        })
    }

    /// Reads text content.
    ///
    /// # Errors
    /// [`ContentError::Format`] when the media type is another one, or the bytes are not UTF-8.
    pub fn text(self) -> Result<Verified<String>, ContentError> {
        self.expect_media(MEDIA_TEXT)?;
        match String::from_utf8(self.value) {
            Ok(value) => Ok(Verified {
                value,
                reference: self.reference,
            }),
            Err(error) => Err(ContentError::Format {
                media_type: self.reference.media_type,
                problem: CanonicalError::NotUtf8 {
                    at: error.utf8_error().valid_up_to(),
                }
                .to_string(),
            }),
        }
    }

    fn expect_media(&self, wanted: &str) -> Result<(), ContentError> {
        if self.reference.media_type == wanted {
            return Ok(());
        }
        Err(ContentError::Format {
            media_type: self.reference.media_type.clone(),
            problem: format!("it was asked for as {wanted}"),
        })
    }

    fn unreadable(&self, error: &CanonicalError) -> ContentError {
        ContentError::Format {
            media_type: self.reference.media_type.clone(),
            problem: error.to_string(),
        }
    }
}

/// Puts content together from chunks.
#[derive(Debug)]
pub struct ContentAssembler {
    run_id: String,
    reference: ArtifactRef,
    bytes: Vec<u8>,
    hasher: Sha256,
}

impl ContentAssembler {
    /// Starts to assemble the content of a reference in a view of `run_id`.
    ///
    /// # Errors
    /// When the reference contradicts itself or its content is larger than `limit` bytes.
    pub fn new(run_id: &str, reference: &ArtifactRef, limit: u64) -> Result<Self, ContentError> {
        reference.check()?;
        if reference.bytes > limit {
            return Err(ContentError::TooLarge {
                bytes: reference.bytes,
                limit,
            });
        }
        Ok(Self {
            run_id: run_id.to_owned(),
            reference: reference.clone(),
            bytes: Vec::new(),
            hasher: Sha256::new(),
        })
    }

    /// The next request, or `None` when everything arrived.
    #[must_use]
    pub fn next_request(&self) -> Option<ContentRequest> {
        let offset = self.received();
        (offset < self.reference.bytes).then(|| ContentRequest {
            path: self.reference.path.clone(),
            offset,
        })
    }

    /// Bytes that arrived so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Adds the chunk that answers [`ContentAssembler::next_request`].
    ///
    /// # Errors
    /// When the chunk is not the one asked for, or contradicts the reference. The content is then lost.
    pub fn accept(&mut self, chunk: &ContentChunk) -> Result<(), ContentError> {
        let want = &self.reference;
        let offset = self.bytes.len() as u64;
        differs("schema", CONTENT_CHUNK_SCHEMA, &chunk.schema)?;
        differs("runId", &self.run_id, &chunk.run_id)?;
        differs("path", &want.path, &chunk.path)?;
        differs("mediaType", &want.media_type, &chunk.media_type)?;
        differs("sha256", &want.sha256, &chunk.sha256)?;
        differs("bytes", &want.bytes, &chunk.bytes)?;
        differs("offset", &offset, &chunk.offset)?;
        let data = BASE64_STANDARD
            .decode(&chunk.data)
            .map_err(|_| ContentError::Encoding)?;
        if data.is_empty() || data.len() > CONTENT_CHUNK {
            return Err(ContentError::Chunk {
                field: "data",
                expected: format!("1 to {CONTENT_CHUNK} bytes"),
                found: format!("{} bytes", data.len()),
            });
        }
        let end = offset + data.len() as u64;
        differs("nextOffset", &end, &chunk.next_offset)?;
        if end > want.bytes {
            return Err(ContentError::Chunk {
                field: "data",
                expected: format!("at most {} bytes in all", want.bytes),
                found: format!("{end}"),
            });
        }
        differs("complete", &(end == want.bytes), &chunk.complete)?;
        self.hasher.update(&data);
        self.bytes.extend_from_slice(&data);
        Ok(())
    }

    /// Ends the assembly and checks the whole.
    ///
    /// # Errors
    /// When bytes are missing or the digest differs.
    pub fn finish(self) -> Result<Verified<Vec<u8>>, ContentError> {
        differs("bytes", &self.reference.bytes, &self.received())?;
        let found = hex::encode(self.hasher.finalize());
        if found != self.reference.sha256 {
            return Err(ContentError::Digest {
                expected: self.reference.sha256,
                found,
            });
        }
        Ok(Verified {
            value: self.bytes,
            reference: self.reference,
        })
    }
}

fn differs<T: PartialEq + std::fmt::Display + ?Sized>(
    field: &'static str,
    expected: &T,
    found: &T,
) -> Result<(), ContentError> {
    if expected == found {
        return Ok(());
    }
    Err(ContentError::Chunk {
        field,
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

impl From<&ContentRef> for ArtifactRef {
    /// The reference by which clients name stored content.
    fn from(content: &ContentRef) -> Self {
        Self::named(content.sha256.clone(), content.bytes, &content.media_type)
    }
}

impl ArtifactRef {
    /// The reference of bytes of a media type ([`MEDIA_JSON`] or [`MEDIA_TEXT`]).
    #[must_use]
    pub fn of(bytes: &[u8], media_type: &str) -> Self {
        Self::named(canonical::sha256_hex(bytes), bytes.len() as u64, media_type)
    }

    /// The reference of bytes whose digest and length are known.
    #[must_use]
    pub fn named(sha256: String, bytes: u64, media_type: &str) -> Self {
        let path = format!("artifacts/sha256/{sha256}.{}", extension(media_type));
        Self {
            path,
            media_type: media_type.to_owned(),
            bytes,
            sha256,
        }
    }

    /// Checks that path, digest and media type belong together.
    ///
    /// # Errors
    /// [`ContentError::Reference`] naming the contradiction.
    pub fn check(&self) -> Result<(), ContentError> {
        let hex = self.sha256.len() == 64
            && self
                .sha256
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !hex {
            return Err(ContentError::Reference {
                problem: "sha256 is not 64 lower-case hex digits".to_owned(),
            });
        }
        if self.media_type != MEDIA_JSON && self.media_type != MEDIA_TEXT {
            return Err(ContentError::Reference {
                problem: format!("unknown media type {:?}", self.media_type),
            });
        }
        let path = format!("artifacts/sha256/{}.{}", self.sha256, extension(&self.media_type));
        if self.path != path {
            return Err(ContentError::Reference {
                problem: format!("path {:?} is not {path:?}", self.path),
            });
        }
        Ok(())
    }
}

fn extension(media_type: &str) -> &'static str {
    if media_type == MEDIA_JSON { "json" } else { "txt" }
}
