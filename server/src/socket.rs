//! The listening socket: opened only by the lock's holder, mode 0600, for this user's processes.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{UnixListener, UnixStream};

use crate::error::ServerError;
use crate::lock::ServerLock;
use crate::paths::Places;

/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket, removed on drop if it is still ours.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl Socket {
    /// Listens. A socket that nobody answers on is stale and removed, which is why the lock must be held. After a takeover the
    /// old holder's socket is in its place.
    pub(crate) fn open(places: &Places, held: &ServerLock) -> Result<Self, ServerError> {
        let path = places.socket.clone();
        let failed = |source| ServerError::Listen {
            path: path.clone(),
            source,
        };
        remove_stale(&path, held.took_over()).map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        piw_fault::point!("server::socket_bound");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        Ok(Self {
            listener,
            path,
            inode: (metadata.dev(), metadata.ino()),
        })
    }

    /// The next connection of this user. Others are closed unanswered.
    pub(crate) async fn accept(&self) -> UnixStream {
        let own = nix::unistd::geteuid().as_raw();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == own => return stream,
                    Ok(peer) => tracing::warn!(uid = peer.uid(), "a connection of another user was refused"),
                    Err(error) => tracing::warn!(%error, "a connection without credentials was refused"),
                },
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// A connection that waits to be accepted.
    pub(crate) fn try_accept(&self) -> Option<UnixStream> {
        let own = nix::unistd::geteuid().as_raw();
        let (stream, _) = self.listener.accept().now_or_never()?.ok()?;
        stream.peer_cred().is_ok_and(|peer| peer.uid() == own).then_some(stream)
    }

    /// Removes the socket and returns the connections that were still waiting.
    pub(crate) fn close(self) -> Vec<UnixStream> {
        self.unlink();
        std::iter::from_fn(|| self.try_accept()).collect()
    }

    fn unlink(&self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.inode);
        if ours {
            // A socket left behind is stale; the next server removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.unlink();
    }
}

fn remove_stale(path: &PathBuf, took_over: bool) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "something that is no socket is in its place",
        ));
    }
    // Of a holder that was taken over from it was proved that it greets nobody, though the system still takes connections.
    if !took_over && std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another program listens there",
        ));
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Gate;

    fn places() -> (tempfile::TempDir, Places, ServerLock) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let places = Places::new(dir.path().join("state"), None).expect("places");
        places.prepare().expect("prepared");
        let gate = Gate::enter(&places).expect("gate");
        let lock = ServerLock::acquire(&places, &gate).expect("lock");
        (dir, places, lock)
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let (_dir, places, lock) = places();
        drop(std::os::unix::net::UnixListener::bind(&places.socket).expect("stale"));
        assert!(places.socket.exists());
        let socket = Socket::open(&places, &lock).expect("opened");
        assert_eq!(
            fs::metadata(&places.socket).expect("socket").permissions().mode() & 0o777,
            0o600
        );
        let error = Socket::open(&places, &lock).expect_err("in use");
        assert!(error.to_string().contains("another program listens there"), "{error}");
        drop(socket);
        assert!(!places.socket.exists());
    }

    #[tokio::test]
    async fn a_file_in_the_sockets_place_is_left_alone() {
        let (_dir, places, lock) = places();
        fs::write(&places.socket, "precious").expect("file");
        let error = Socket::open(&places, &lock).expect_err("a file");
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(fs::read(&places.socket).expect("kept"), b"precious");
    }
}
