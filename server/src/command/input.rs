//! Run inputs on their way to and from a resolver: inline when they fit a frame, else by private files and stored content.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use piw_protocol::canonical;
use piw_protocol::child::{CONTENT_CHUNK, ContentRef, INLINE_VALUE_LIMIT, INPUT_LIMIT, ResolveInput, ValueRef};
use piw_protocol::envelope::Outcome;
use piw_state::PutChunk;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::answer::{Answer, unavailable};
use crate::scratch::Scratch;
use crate::server::Server;
use crate::supervise::resolve::Resolved;

/// Media type of stored JSON.
const JSON: &str = "application/json";

impl Server {
    /// A stored or inline value as a resolver takes it.
    pub(super) async fn resolver_input(&self, input: ValueRef, scratch: &Scratch) -> Result<ResolveInput, Answer> {
        match input {
            ValueRef::Inline(value) => inline_or_file(value, scratch),
            ValueRef::Content(content) => self.write_input(&content, scratch).await.map(ResolveInput::File),
        }
    }

    /// Writes an uploaded input into the scratch directory, chunk by chunk.
    async fn write_input(&self, content: &ContentRef, scratch: &Scratch) -> Result<String, Answer> {
        check_input_size(content.bytes)?;
        let path = scratch.path().join("input.json");
        let mut file = private_file(&path)?;
        let mut offset = 0;
        loop {
            let chunk = match self.state.get_content(&content.sha256, offset).await {
                Ok(Some(chunk)) if chunk.bytes == content.bytes => chunk,
                Ok(_) => {
                    let message = format!("no content {} of {} bytes was uploaded", content.sha256, content.bytes);
                    return Err(Answer::refuse(Outcome::Rejected, "content_not_found", &message));
                }
                Err(error) => return Err(unavailable(&error)),
            };
            file.write_all(&chunk.data).map_err(scratch_failed)?;
            offset += chunk.data.len() as u64;
            if chunk.complete {
                return Ok(path.to_string_lossy().into_owned());
            }
        }
    }

    /// The normalised input, as it will be stored: large ones become content first.
    pub(super) async fn resolved_input(&self, resolved: &Resolved, owner: &str) -> Result<ValueRef, Answer> {
        let named = match &resolved.definition.input {
            None => return Ok(ValueRef::null()),
            Some(ResolveInput::Inline(value)) => return Ok(ValueRef::Inline(value.clone())),
            Some(ResolveInput::File(path)) => path,
        };
        let broken = |message: String| Answer::refuse(Outcome::Rejected, "workflow_crashed", &message);
        let content = digest_file(resolved.scratch.open(named).map_err(broken)?)?;
        check_input_size(content.bytes)?;
        let mut file = resolved.scratch.open(named).map_err(broken)?;
        let mut offset = 0;
        loop {
            let mut data = Vec::with_capacity(CONTENT_CHUNK);
            Read::by_ref(&mut file)
                .take(CONTENT_CHUNK as u64)
                .read_to_end(&mut data)
                .map_err(scratch_failed)?;
            let length = data.len() as u64;
            let complete = offset + length == content.bytes;
            let owner = format!("start {owner}");
            let chunk = PutChunk {
                owner,
                content: content.clone(),
                offset,
                data,
                complete,
            };
            match self.state.put_content(chunk).await {
                Ok(Ok(put)) if put.complete => return Ok(ValueRef::Content(content)),
                Ok(Ok(_)) => offset += length,
                Ok(Err(error)) => return Err(broken(error.to_string())),
                Err(error) => return Err(unavailable(&error)),
            }
        }
    }
}

fn inline_or_file(input: Value, scratch: &Scratch) -> Result<ResolveInput, Answer> {
    let bytes = canonical::write_value(&input);
    if bytes.len() <= INLINE_VALUE_LIMIT {
        return Ok(ResolveInput::Inline(input));
    }
    let path = scratch.path().join("input.json");
    private_file(&path)?.write_all(&bytes).map_err(scratch_failed)?;
    Ok(ResolveInput::File(path.to_string_lossy().into_owned()))
}

fn private_file(path: &Path) -> Result<fs::File, Answer> {
    fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(scratch_failed)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn scratch_failed(error: std::io::Error) -> Answer {
    Answer::refuse(
        Outcome::Unavailable,
        "state_directory",
        &format!("a large input cannot be kept: {error}"),
    )
}

fn check_input_size(bytes: u64) -> Result<(), Answer> {
    if bytes <= INPUT_LIMIT {
        return Ok(());
    }
    let message = format!("the input has {bytes} bytes, the limit is {INPUT_LIMIT}");
    Err(Answer::refuse(Outcome::Rejected, "input_too_large", &message))
}

fn digest_file(mut file: fs::File) -> Result<ContentRef, Answer> {
    let mut hasher = Sha256::new();
    let bytes = std::io::copy(&mut file, &mut HashWriter(&mut hasher)).map_err(scratch_failed)?;
    Ok(ContentRef {
        sha256: hex::encode(hasher.finalize()),
        bytes,
        media_type: JSON.to_owned(),
    })
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
