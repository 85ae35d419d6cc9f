//! Where the server's files are, and the rules those places must meet.
//!
//! Owns the environment variables `PIW_STATE_DIR`, `PIW_SOCKET` and `PIW_NO_AUTOSTART`, the names inside the state directory,
//! directory modes and the socket path limit. Opens no database and no socket.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longest socket path in bytes on this system (`sun_path` without its terminator).
pub const SOCKET_PATH_LIMIT: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Names the state directory, instead of `~/.pi/agent/workflows`.
pub const STATE_DIR_VAR: &str = "PIW_STATE_DIR";
/// Fixes the socket, instead of `server/server.sock` in the state directory.
pub const SOCKET_VAR: &str = "PIW_SOCKET";
/// Forbids starting a server when not empty and not `0`.
pub const NO_AUTOSTART_VAR: &str = "PIW_NO_AUTOSTART";

/// A place that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Neither `PIW_STATE_DIR` nor `HOME` is set.
    #[error("no state directory: neither PIW_STATE_DIR nor HOME is set")]
    NoHome,
    /// A path from the environment is not absolute.
    #[error("{name} must be an absolute path, but is {}", path.display())]
    NotAbsolute {
        /// The variable.
        name: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// The socket path does not fit the system's limit.
    #[error(
        "the socket path has {length} bytes, but this system allows {limit}: {} (set PIW_SOCKET or PIW_STATE_DIR to a shorter path)",
        path.display()
    )]
    SocketTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// [`SOCKET_PATH_LIMIT`].
        limit: usize,
    },
    /// A directory could not be created or made private.
    #[error("cannot use the state directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory belongs to another user.
    #[error("the state directory {} belongs to user {owner}, not to user {user}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's user.
        user: u32,
    },
    /// Nothing can be written in a directory: read-only or full.
    #[error("cannot write in the state directory {}: {source}", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The places of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// State directory, mode 0700.
    pub state_dir: PathBuf,
    /// The server's socket.
    pub socket: PathBuf,
}

impl Places {
    /// Places from the environment.
    ///
    /// # Errors
    /// When no state directory can be named, a variable holds a relative path, or the socket path is too long.
    pub fn from_env() -> Result<Self, PathError> {
        Self::from_values(env::var_os(STATE_DIR_VAR), env::var_os(SOCKET_VAR), env::var_os("HOME"))
    }

    fn from_values(
        state_dir: Option<OsString>,
        socket: Option<OsString>,
        home: Option<OsString>,
    ) -> Result<Self, PathError> {
        let set = |value: Option<OsString>| value.filter(|text| !text.is_empty()).map(PathBuf::from);
        let state_dir = match set(state_dir) {
            Some(dir) => absolute(STATE_DIR_VAR, dir)?,
            None => set(home).ok_or(PathError::NoHome)?.join(".pi/agent/workflows"),
        };
        let socket = set(socket).map(|path| absolute(SOCKET_VAR, path)).transpose()?;
        Self::new(state_dir, socket)
    }

    /// Places in `state_dir`, with the socket at `socket` or in the usual place.
    ///
    /// # Errors
    /// [`PathError::SocketTooLong`].
    pub fn new(state_dir: PathBuf, socket: Option<PathBuf>) -> Result<Self, PathError> {
        let socket = socket.unwrap_or_else(|| state_dir.join("server/server.sock"));
        let length = socket.as_os_str().as_bytes().len();
        if length > SOCKET_PATH_LIMIT {
            return Err(PathError::SocketTooLong {
                path: socket,
                length,
                limit: SOCKET_PATH_LIMIT,
            });
        }
        Ok(Self { state_dir, socket })
    }

    /// Directory of the server's own files, mode 0700.
    #[must_use]
    pub fn server_dir(&self) -> PathBuf {
        self.state_dir.join("server")
    }

    /// The server lock.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.server_dir().join("server.lock")
    }

    /// Record of the process that holds the server lock.
    #[must_use]
    pub fn lock_record(&self) -> PathBuf {
        self.server_dir().join("server.lock.json")
    }

    /// Record of the children that are alive.
    #[must_use]
    pub fn children(&self) -> PathBuf {
        self.server_dir().join("server.children.json")
    }

    /// The server's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.server_dir().join("server.log")
    }

    /// Private scratch files: large inputs on their way to a resolver. Emptied at start.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.server_dir().join("scratch")
    }

    /// Captured output of children, one bounded file a launch, pruned by age.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.server_dir().join("output")
    }

    /// Creates the directories, makes them private and checks that they can be written.
    ///
    /// # Errors
    /// A directory that cannot be made, belongs to somebody else, is read-only or on a full disk.
    pub fn prepare(&self) -> Result<(), PathError> {
        let server_dir = self.server_dir();
        for dir in [&self.state_dir, &server_dir] {
            private_directory(dir)?;
        }
        probe_writable(&server_dir)
    }
}

/// Whether the environment forbids starting a server.
#[must_use]
pub fn autostart_forbidden() -> bool {
    env::var_os(NO_AUTOSTART_VAR).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Global workflow directory of this user, where names are looked up after the project.
#[must_use]
pub fn global_workflows() -> Option<PathBuf> {
    env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(|home| Path::new(&home).join(".pi/agent/workflows"))
}

fn absolute(name: &'static str, path: PathBuf) -> Result<PathBuf, PathError> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(PathError::NotAbsolute { name, path })
    }
}

/// Creates `dir` with mode 0700, or takes group and world bits off one that exists and is ours.
pub(crate) fn private_directory(dir: &Path) -> Result<(), PathError> {
    let failed = |source| PathError::Directory {
        path: dir.to_owned(),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    let metadata = fs::metadata(dir).map_err(failed)?;
    let user = nix::unistd::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(PathError::Foreign {
            path: dir.to_owned(),
            owner: metadata.uid(),
            user,
        });
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Writes and removes a small file: a read-only or full disk shows itself here, before anything is changed.
fn probe_writable(dir: &Path) -> Result<(), PathError> {
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    let written = fs::write(&probe, [0_u8; 4096]);
    let removed = fs::remove_file(&probe);
    written.and(removed).map_err(|source| PathError::NotWritable {
        path: dir.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(state: Option<&str>, socket: Option<&str>, home: Option<&str>) -> Result<Places, PathError> {
        Places::from_values(state.map(Into::into), socket.map(Into::into), home.map(Into::into))
    }

    #[test]
    fn the_state_directory_comes_from_the_variable_then_from_home() {
        let places = values(None, None, Some("/home/ada")).expect("home");
        assert_eq!(places.state_dir, Path::new("/home/ada/.pi/agent/workflows"));
        assert_eq!(
            places.socket,
            Path::new("/home/ada/.pi/agent/workflows/server/server.sock")
        );
        let places = values(Some("/s"), Some("/run/piw.sock"), Some("/home/ada")).expect("variables");
        assert_eq!((places.state_dir, places.socket), ("/s".into(), "/run/piw.sock".into()));
        assert!(matches!(values(None, None, None), Err(PathError::NoHome)));
        assert!(matches!(
            values(Some("state"), None, None),
            Err(PathError::NotAbsolute { .. })
        ));
        assert!(matches!(
            values(Some("/s"), Some("x.sock"), None),
            Err(PathError::NotAbsolute { .. })
        ));
    }

    #[test]
    fn a_socket_path_at_the_limit_passes_and_one_byte_more_is_reported_with_its_length() {
        let path = |length: usize| PathBuf::from(format!("/{}", "s".repeat(length - 1)));
        assert!(Places::new("/s".into(), Some(path(SOCKET_PATH_LIMIT))).is_ok());
        let error = Places::new("/s".into(), Some(path(SOCKET_PATH_LIMIT + 1))).expect_err("too long");
        assert!(
            error
                .to_string()
                .contains(&format!("has {} bytes", SOCKET_PATH_LIMIT + 1)),
            "{error}"
        );
    }

    #[test]
    fn directories_become_private() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let state = dir.path().join("state");
        fs::create_dir(&state).expect("state directory");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("mode");
        let places = Places::new(state.clone(), None).expect("places");
        places.prepare().expect("prepared");
        for path in [state, places.server_dir()] {
            assert_eq!(
                fs::metadata(path).expect("directory").permissions().mode() & 0o777,
                0o700
            );
        }
    }
}
