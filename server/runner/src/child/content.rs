//! Values that are too large for a message: uploaded and read in chunks, verified by digest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use piw_protocol::canonical;
use piw_protocol::child::{CONTENT_CHUNK, ChildBody, ContentRef, OUTPUT_LIMIT, ReplyPayload, ValueRef};
use piw_protocol::frame::MAX_FRAME;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::client::{Client, RequestError};
use crate::regular::in_bytes;

/// Media type of stored JSON.
const JSON: &str = "application/json";
/// Values nested deeper than this travel as content, so that a message around them stays within the depth of a frame.
const INLINE_DEPTH: usize = 96;

/// Why content is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The server's bytes are not what was asked for.
    #[error("stored content {sha256} does not verify: {why}")]
    Unverified {
        /// Digest that was asked for.
        sha256: String,
        /// What is wrong.
        why: String,
    },
    /// A value is above the limit.
    #[error("the value has {bytes} bytes of JSON, the limit is {}", in_bytes(*limit))]
    TooLarge {
        /// Size in bytes.
        bytes: u64,
        /// Limit in bytes.
        limit: u64,
    },
}

/// Bytes of values that one message may still carry inline. Values that share a message share one allowance, so that the
/// message fits its frame whatever their number.
#[derive(Debug)]
pub(crate) struct Inline {
    left: usize,
}

impl Inline {
    /// The allowance of one message: half a frame.
    pub(crate) const fn of_message() -> Self {
        Self { left: MAX_FRAME / 2 }
    }
}

impl Client {
    /// A value as a message carries it: inline while the allowance lasts, else stored first.
    pub(crate) async fn value_ref(&self, value: &Value, inline: &mut Inline) -> Result<ValueRef, ContentError> {
        if small(value) {
            inline.left = inline.left.saturating_sub(SMALL);
            return Ok(ValueRef::Inline(value.clone()));
        }
        let bytes = canonical::write_value(value);
        let fits = bytes.len() <= piw_protocol::child::INLINE_VALUE_LIMIT.min(inline.left);
        if fits && canonical::depth(value) <= INLINE_DEPTH {
            inline.left -= bytes.len();
            return Ok(ValueRef::Inline(value.clone()));
        }
        Ok(ValueRef::Content(self.put_content(&bytes).await?))
    }

    /// Stores canonical JSON.
    pub(crate) async fn put_content(&self, bytes: &[u8]) -> Result<ContentRef, ContentError> {
        let size = bytes.len() as u64;
        if size > OUTPUT_LIMIT {
            return Err(ContentError::TooLarge {
                bytes: size,
                limit: OUTPUT_LIMIT,
            });
        }
        let content = ContentRef {
            sha256: canonical::sha256_hex(bytes),
            bytes: size,
            media_type: JSON.to_owned(),
        };
        let chunks = bytes.len().div_ceil(CONTENT_CHUNK).max(1);
        for number in 0..chunks {
            let start = number * CONTENT_CHUNK;
            let chunk = &bytes[start..bytes.len().min(start + CONTENT_CHUNK)];
            let body = ChildBody::ContentPut {
                content: content.clone(),
                offset: start as u64,
                data: BASE64.encode(chunk),
                complete: number + 1 == chunks,
            };
            piw_fault::point!("runner::before_upload");
            self.request(None, body).await?;
            piw_fault::point!("runner::after_upload");
        }
        Ok(content)
    }

    /// The value behind a reference, verified.
    pub(crate) async fn value(&self, from: ValueRef) -> Result<Value, ContentError> {
        match from {
            ValueRef::Inline(value) => Ok(value),
            ValueRef::Content(content) => {
                let bytes = self.get_content(&content).await?;
                canonical::parse(&bytes).map_err(|error| unverified(&content, &error.to_string()))
            }
        }
    }

    /// Reads stored content and verifies length and digest.
    pub(crate) async fn get_content(&self, content: &ContentRef) -> Result<Vec<u8>, ContentError> {
        if content.bytes > OUTPUT_LIMIT {
            return Err(ContentError::TooLarge {
                bytes: content.bytes,
                limit: OUTPUT_LIMIT,
            });
        }
        let mut bytes = Vec::new();
        let mut hash = Sha256::new();
        loop {
            let offset = bytes.len() as u64;
            let body = ChildBody::ContentGet {
                sha256: content.sha256.clone(),
                offset,
            };
            let Some(ReplyPayload::Content(chunk)) = self.request(None, body).await?.payload else {
                return Err(unverified(content, "the answer holds no content"));
            };
            if chunk.offset != offset || chunk.bytes != content.bytes {
                return Err(unverified(content, "a chunk of another place or length was sent"));
            }
            let data = BASE64
                .decode(&chunk.data)
                .map_err(|_| unverified(content, "a chunk is no valid base64"))?;
            if data.is_empty() && !chunk.complete {
                return Err(unverified(content, "an empty chunk was sent"));
            }
            hash.update(&data);
            bytes.extend_from_slice(&data);
            if bytes.len() as u64 > content.bytes {
                return Err(unverified(content, "more bytes than announced were sent"));
            }
            if chunk.complete {
                break;
            }
        }
        if bytes.len() as u64 != content.bytes || hex::encode(hash.finalize()) != content.sha256 {
            return Err(unverified(content, "length or digest differ"));
        }
        Ok(bytes)
    }
}

fn unverified(content: &ContentRef, why: &str) -> ContentError {
    ContentError::Unverified {
        sha256: content.sha256.clone(),
        why: why.to_owned(),
    }
}

/// Upper bound of the JSON of a value that [`small`] accepts.
const SMALL: usize = 64;

/// Whether a value is so small that it need not be measured.
fn small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        // A control character becomes six.
        Value::String(text) => text.len() * 6 + 2 <= SMALL,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}
