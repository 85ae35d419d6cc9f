//! The relay's token: a random secret in a private file, the same until it is renewed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the file in the server's directory.
const FILE: &str = "relay.token";
/// Random bytes of a token; it is written in hexadecimal.
const BYTES: usize = 32;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot keep the relay's token in {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for a token: {0}")]
    Random(String),
}

/// The secret that a client must know.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Token(…)")
    }
}

impl Token {
    /// The token kept in `dir`, or a new one when there is none, when `renew` is set, or when others could have read the
    /// file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn keep(dir: &Path, renew: bool) -> Result<Self, TokenError> {
        let path = dir.join(FILE);
        let failed = |source| TokenError::File {
            path: path.clone(),
            source,
        };
        if !renew && let Some(kept) = read(&path).map_err(failed)? {
            return Ok(kept);
        }
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
        let token = Self(hex::encode(bytes));
        // A new file has mode 0600 from its first byte on, and replaces the old one as a whole.
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(token.0.as_bytes())?;
            file.persist(&path)?;
            io::Result::Ok(())
        };
        write().map_err(failed)?;
        Ok(token)
    }

    /// The token as it stands in a URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the token. The time that the answer takes says nothing about where a wrong one differs.
    #[must_use]
    pub fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let differing = own.iter().zip(given).fold(0, |sum, (one, other)| sum | (one ^ other));
        own.len() == given.len() && std::hint::black_box(differing) == 0
    }
}

/// The kept token; `None` when it is missing, no token, or not private.
fn read(path: &Path) -> io::Result<Option<Token>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let private = metadata.is_file()
        && metadata.permissions().mode() & 0o077 == 0
        && metadata.uid() == nix::unistd::geteuid().as_raw();
    if !private {
        return Ok(None);
    }
    let text = fs::read_to_string(path)?;
    let whole = text.len() == BYTES * 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(whole.then_some(Token(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn a_token_is_private_and_stays_until_it_is_renewed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE);
        let first = Token::keep(dir.path(), false).expect("a token");
        assert_eq!((first.as_str().len(), mode(&path)), (64, 0o600));
        assert_eq!(Token::keep(dir.path(), false).expect("the same"), first);
        let second = Token::keep(dir.path(), true).expect("another");
        assert_ne!(second, first);
        assert!(second.is(second.as_str()) && !second.is(first.as_str()) && !second.is("") && !second.is("ab"));
    }

    #[test]
    fn a_token_that_others_could_read_or_that_is_none_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(FILE);
        let first = Token::keep(dir.path(), false).expect("a token");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
        let second = Token::keep(dir.path(), false).expect("another");
        assert_ne!(second, first);
        assert_eq!(mode(&path), 0o600);
        fs::write(&path, "short").expect("written");
        assert_ne!(Token::keep(dir.path(), false).expect("another").as_str(), "short");
    }
}
