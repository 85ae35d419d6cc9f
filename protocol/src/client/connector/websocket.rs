//! Connects to a relay's WebSocket.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::http::{StatusCode, Uri};

use super::Connector;
use crate::websocket::{self, DEFAULT_PORT, End, PATH, Rules};

/// Bytes on their way between the connection and the client.
const BUFFER: usize = 64 * 1024;
/// How often a relay is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Why a relay's address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is no URL.
    #[error(
        "{url:?} is not a relay's URL ({reason}); it looks like ws://127.0.0.1:{DEFAULT_PORT}/ws?token=…, as piw serve prints it"
    )]
    Malformed {
        /// What was given, without its query.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// Its host is another machine.
    #[error(
        "{host} is not a loopback address: the connection is not encrypted, so the token would cross the network in the clear; use piw --ssh"
    )]
    NotLoopback {
        /// The host.
        host: String,
    },
    /// There is no token.
    #[error("the URL has no token: give the whole URL that piw serve prints, or set PIW_RELAY_TOKEN")]
    NoToken,
}

/// The address of a relay: a loopback host, a port and the token that the relay asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayUrl {
    host: String,
    port: u16,
    token: String,
}

impl std::fmt::Debug for RelayUrl {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        write!(to, "RelayUrl({}:{})", self.host, self.port)
    }
}

impl RelayUrl {
    /// Reads `ws://<loopback>[:port][/ws]?token=…`; `token` is used when the URL has none.
    ///
    /// # Errors
    /// When it is no such URL, or there is no token.
    pub fn parse(url: &str, token: Option<&str>) -> Result<Self, UrlError> {
        let shown = url.split('?').next().unwrap_or_default().to_owned();
        let malformed = |reason: &str| UrlError::Malformed {
            url: shown.clone(),
            reason: reason.to_owned(),
        };
        let uri: Uri = url.parse().map_err(|_| malformed("it cannot be read"))?;
        match uri.scheme_str() {
            Some("ws") => {}
            Some("wss") => return Err(malformed("a relay has no TLS: ws, not wss")),
            _ => return Err(malformed("it does not begin with ws://")),
        }
        if !["", "/", PATH].contains(&uri.path()) {
            return Err(malformed("its path is not /ws"));
        }
        let host = uri.host().unwrap_or_default().to_owned();
        if !websocket::is_loopback(&host) {
            return Err(UrlError::NotLoopback { host });
        }
        let query = uri.query().unwrap_or_default();
        let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        let token = given
            .or(token)
            .filter(|token| !token.is_empty())
            .ok_or(UrlError::NoToken)?;
        if !token.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(malformed("its token is not letters and digits"));
        }
        Ok(Self {
            port: uri.port_u16().unwrap_or(DEFAULT_PORT),
            token: token.to_owned(),
            host,
        })
    }

    /// Host and port, for people.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Connects to a relay.
#[derive(Debug, Clone)]
pub struct WebSocketConnector {
    url: RelayUrl,
}

impl WebSocketConnector {
    /// A connector for the relay at `url`.
    #[must_use]
    pub const fn new(url: RelayUrl) -> Self {
        Self { url }
    }
}

impl Connector for WebSocketConnector {
    type Stream = WebSocketFrames;

    async fn connect(&self) -> io::Result<WebSocketFrames> {
        let RelayUrl { host, port, token } = &self.url;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, *port))
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => io::Error::other(format!(
                    "nothing listens on {}: start the relay there with piw serve, or the tunnel to it",
                    self.url.address()
                )),
                _ => error,
            })?;
        stream.set_nodelay(true)?;
        let request = format!("ws://{}{PATH}?token={token}", self.url.address());
        let (mut socket, _) = client_async_with_config(request, stream, Some(websocket::config()))
            .await
            .map_err(refused)?;
        let (ours, mut theirs) = tokio::io::duplex(BUFFER);
        let reason = Arc::new(OnceLock::new());
        let set = Arc::clone(&reason);
        tokio::spawn(async move {
            let rules = Rules {
                messages_per_second: None,
                keepalive: Some(KEEPALIVE),
            };
            let end = websocket::carry(&mut socket, &mut theirs, rules).await;
            let text = match &end {
                End::Closed(reason) | End::Failed(reason) => reason.clone(),
                End::Refused(refusal) => format!("the relay broke the protocol: {refusal}"),
                End::StreamEnded => String::new(),
            };
            // Set before `theirs` is dropped, which is what the reader notices.
            drop(set.set(text));
            drop(theirs);
            websocket::close(&mut socket, &end).await;
        });
        Ok(WebSocketFrames { frames: ours, reason })
    }

    fn target(&self) -> String {
        format!("the relay at {}", self.url.address())
    }
}

fn refused(error: Error) -> io::Error {
    match error {
        Error::Http(response) if response.status() == StatusCode::UNAUTHORIZED => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the relay refused the token: connect with the URL that piw serve prints now",
        ),
        Error::Http(response) => {
            let said = response.body().as_deref().unwrap_or_default();
            let said = String::from_utf8_lossy(said);
            io::Error::other(format!(
                "the relay refused ({}): {}",
                response.status().as_u16(),
                said.trim()
            ))
        }
        Error::Io(error) => error,
        error => io::Error::other(format!("that is no relay: {error}")),
    }
}

/// A WebSocket as a byte stream of frames with line feeds.
#[derive(Debug)]
pub struct WebSocketFrames {
    frames: DuplexStream,
    reason: Arc<OnceLock<String>>,
}

impl AsyncRead for WebSocketFrames {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.frames).poll_read(context, buffer);
        let ended = matches!(polled, Poll::Ready(Ok(()))) && buffer.filled().len() == before && buffer.remaining() > 0;
        match self.reason.get().filter(|reason| ended && !reason.is_empty()) {
            Some(reason) => Poll::Ready(Err(io::Error::other(reason.clone()))),
            None => polled,
        }
    }
}

impl AsyncWrite for WebSocketFrames {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.frames).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.frames).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.frames).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_loopback_host_and_a_token() {
        for (url, address) in [
            ("ws://127.0.0.1:9377/ws?token=ab12", "127.0.0.1:9377"),
            ("ws://localhost?token=ab12", "localhost:9377"),
            ("ws://[::1]:80/?token=ab12", "[::1]:80"),
        ] {
            assert_eq!(RelayUrl::parse(url, None).expect(url).address(), address);
        }
        let pinned = RelayUrl::parse("ws://127.0.0.1", Some("cd34")).expect("token beside the URL");
        assert_eq!(pinned.token, "cd34");
        assert!(!format!("{pinned:?}").contains("cd34"));
    }

    #[test]
    fn other_urls_are_refused_by_name_and_without_their_token() {
        for (url, said) in [
            ("wss://127.0.0.1/ws?token=secret", "no TLS"),
            ("http://127.0.0.1/ws?token=secret", "ws://"),
            ("ws://127.0.0.1/other?token=secret", "/ws"),
            (
                "ws://example.org/ws?token=secret",
                "example.org is not a loopback address",
            ),
            ("ws://192.168.1.4:9377/ws?token=secret", "192.168.1.4"),
            ("ws://127.0.0.1/ws", "no token"),
            ("ws://127.0.0.1/ws?token=", "no token"),
            ("nonsense with spaces", "cannot be read"),
        ] {
            let error = RelayUrl::parse(url, None).expect_err(url).to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
