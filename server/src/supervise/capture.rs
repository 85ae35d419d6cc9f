//! What a child prints on its own standard output and error: the last bytes of it, for diagnosis.
//!
//! Nothing of it reaches the log. When a child ends badly, the tail is written to one file in the private state directory;
//! old files go when there are too many.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;

/// Bytes kept of each stream.
const TAIL: usize = 64 * 1024;
/// Files kept in the output directory.
const MAX_FILES: usize = 64;

/// Reads both streams of a child to their ends and keeps the tails.
#[derive(Debug)]
pub(crate) struct Capture {
    streams: [(&'static str, JoinHandle<VecDeque<u8>>); 2],
}

impl Capture {
    /// Starts reading.
    pub(crate) fn start(
        stdout: impl AsyncRead + Unpin + Send + 'static,
        stderr: impl AsyncRead + Unpin + Send + 'static,
    ) -> Self {
        Self {
            streams: [
                ("stdout", tokio::spawn(tail(stdout))),
                ("stderr", tokio::spawn(tail(stderr))),
            ],
        }
    }

    /// The tails of a child that ended normally are of no use.
    pub(crate) fn discard(self) {
        for (_, stream) in self.streams {
            stream.abort();
        }
    }

    /// What the child printed so far, as text. Call it after the child's end; a descendant that still holds the pipe does not
    /// delay it.
    pub(crate) async fn text(self) -> String {
        let mut text = String::new();
        for (name, mut stream) in self.streams {
            let bytes = tokio::select! {
                bytes = &mut stream => bytes.unwrap_or_default(),
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                    stream.abort();
                    continue;
                }
            };
            if !bytes.is_empty() {
                let (front, back) = bytes.as_slices();
                text.push_str(&format!(
                    "[{name}]\n{}",
                    String::from_utf8_lossy(&[front, back].concat())
                ));
            }
        }
        text
    }
}

async fn tail(mut stream: impl AsyncRead + Unpin) -> VecDeque<u8> {
    let mut kept = VecDeque::new();
    let mut buffer = [0_u8; 4096];
    // An error is the end, too: what was read is kept.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        kept.extend(&buffer[..count]);
        if kept.len() > TAIL {
            kept.drain(..kept.len() - TAIL);
        }
    }
    kept
}

/// Keeps the output of a child that ended badly and returns the file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn keep(directory: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{name}.log"));
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(text.as_bytes())?;
    prune(directory)?;
    Ok(path)
}

fn prune(directory: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(directory)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(MAX_FILES);
    files
        .into_iter()
        .take(surplus)
        .try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_tail_of_a_flood_is_kept() {
        let flood = [vec![b'a'; 3 * TAIL], b"the end".to_vec()].concat();
        let kept = tail(flood.as_slice()).await;
        assert_eq!(kept.len(), TAIL);
        let text: Vec<u8> = kept.into_iter().collect();
        assert!(text.ends_with(b"athe end"));
    }

    #[test]
    fn old_files_make_room() {
        let dir = tempfile::tempdir().expect("temporary directory");
        for number in 0..MAX_FILES + 5 {
            keep(dir.path(), &format!("run-{number}"), "text").expect("kept");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), MAX_FILES);
    }
}
