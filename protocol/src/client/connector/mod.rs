//! How the client reaches a server. A connection is any byte stream that carries frames; what makes the bytes travel (a Unix
//! socket, a pipe to `ssh`, a WebSocket) is the connector's business alone.

#[cfg(feature = "websocket")]
mod websocket;

use std::future::Future;
use std::io;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "websocket")]
pub use websocket::{RelayUrl, UrlError, WebSocketConnector, WebSocketFrames};

/// Opens byte streams to one server.
pub trait Connector: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Opens a new connection. Dropping the future gives up. An error of kind [`io::ErrorKind::PermissionDenied`] says that trying
    /// again is of no use until somebody does something: the client is blocked at once and goes on slowly.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// What is connected to, for people.
    fn target(&self) -> String;
}

/// Connects to the server's Unix socket.
#[derive(Debug, Clone)]
pub struct UnixConnector {
    path: PathBuf,
}

impl UnixConnector {
    /// A connector for the socket at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl Connector for UnixConnector {
    type Stream = tokio::net::UnixStream;

    async fn connect(&self) -> io::Result<Self::Stream> {
        tokio::net::UnixStream::connect(&self.path).await
    }

    fn target(&self) -> String {
        self.path.display().to_string()
    }
}
