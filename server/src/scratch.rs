//! Private scratch directories for values that are too large for a frame on their way to and from a resolver.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::paths::Places;

/// One directory, mode 0700, removed with its files on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a fresh one.
    pub(crate) fn new(places: &Places) -> io::Result<Self> {
        let path = places.scratch().join(Uuid::new_v4().simple().to_string());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Removes what an earlier server left.
    pub(crate) fn clear_all(places: &Places) {
        match fs::remove_dir_all(places.scratch()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "old scratch files cannot be removed");
            }
            _ => {}
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file that a child named. It must be a regular file in this directory.
    pub(crate) fn open(&self, named: &str) -> Result<fs::File, String> {
        let path = Path::new(named);
        if path.parent() != Some(&self.path) {
            return Err(format!("{named:?} is outside its scratch directory"));
        }
        let metadata = fs::symlink_metadata(path).map_err(|error| format!("{named:?}: {error}"))?;
        if !metadata.is_file() {
            return Err(format!("{named:?} is no regular file"));
        }
        fs::File::open(path).map_err(|error| format!("{named:?}: {error}"))
    }

    /// Reads such a file whole.
    pub(crate) fn read(&self, named: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut self.open(named)?, &mut bytes).map_err(|error| format!("{named:?}: {error}"))?;
        Ok(bytes)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "a scratch directory cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_inside_are_read_and_all_go_with_the_directory() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let places = Places::new(dir.path().to_owned(), None).expect("places");
        let scratch = Scratch::new(&places).expect("scratch");
        let inside = scratch.path().join("answer.json");
        fs::write(&inside, "{}").expect("file");
        fs::write(dir.path().join("secret"), "s").expect("file");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("secret"), &link).expect("link");
        assert_eq!(scratch.read(&inside.to_string_lossy()).expect("inside"), b"{}");
        assert!(scratch.read(&dir.path().join("secret").to_string_lossy()).is_err());
        assert!(scratch.read(&link.to_string_lossy()).is_err());
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
    }
}
