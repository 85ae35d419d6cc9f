//! `piw serve`: accepts WebSocket connections on loopback and carries each one to a server connection of its own.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use piw_protocol::websocket::tokio_tungstenite::accept_hdr_async_with_config;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use piw_protocol::websocket::tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use piw_protocol::websocket::{self, End, MESSAGES_PER_SECOND, PATH, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::gate;
use super::token::Token;
use crate::text::clean;

/// Connections at once, unfinished handshakes included.
pub const MAX_CONNECTIONS: usize = 32;

/// Connections beyond them that are told so at once.
const MAX_REFUSALS: usize = 8;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a refusal may take to be written and read.
const REFUSAL: Duration = Duration::from_millis(500);
/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Shortest time between two notices.
const NOTICE: Duration = Duration::from_secs(1);
/// Longest wait for connections to end when the relay ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// A relay that listens.
#[derive(Debug)]
pub struct Relay {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    token: Token,
    socket: PathBuf,
    notices: Notices,
}

/// What the relay says of clients that it turns away: one line in a second at most, because a web page can knock without end.
#[derive(Debug, Default)]
struct Notices(Mutex<Option<(Instant, u32)>>);

impl Notices {
    fn say(&self, text: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some((said, more)) if said.elapsed() < NOTICE => *more += 1,
            _ => {
                let more = last.map_or(0, |(_, more)| more);
                let others = if more > 0 {
                    format!(" (and {more} others before)")
                } else {
                    String::new()
                };
                eprintln!("{}{others}", clean(text));
                *last = Some((Instant::now(), 0));
            }
        }
    }
}

impl Relay {
    /// Listens on `address`; clients are carried to the server on `socket`.
    ///
    /// # Errors
    /// When the address is taken or not allowed.
    pub async fn open(address: SocketAddr, token: Token, socket: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            shared: Arc::new(Shared {
                token,
                socket: socket.to_owned(),
                notices: Notices::default(),
            }),
        })
    }

    /// What a client connects to, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("ws://{}{PATH}?token={}", self.address, self.shared.token.as_str())
    }

    /// Serves until `stop` resolves, then tells every client and ends.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => match Arc::clone(&room).try_acquire_owned() {
                        Ok(permit) => {
                            let (shared, stopped) = (Arc::clone(&self.shared), stopped.clone());
                            connections.spawn(async move {
                                serve(stream, &shared, stopped).await;
                                drop(permit);
                            });
                        }
                        // Beyond even that, the connection is dropped unanswered.
                        Err(_) => if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
                            connections.spawn(async move {
                                refuse_full(stream).await;
                                drop(permit);
                            });
                        },
                    },
                    Err(error) => {
                        eprintln!("accepting a connection failed: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.listener);
        stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        // Whoever does not take the farewell in time is cut off when the set is dropped.
        drop(timeout(FAREWELL, all).await);
    }
}

async fn serve(stream: TcpStream, shared: &Shared, mut stopped: watch::Receiver<bool>) {
    // Frames are small and each is written whole: waiting for more would only delay them.
    drop(stream.set_nodelay(true));
    #[expect(
        clippy::result_large_err,
        reason = "the library's callback answers a refusal with a whole HTTP response"
    )]
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        gate::admit(request, &shared.token)
            .map(|()| response)
            .map_err(|refused| {
                shared.notices.say(&format!("refused a connection: {refused}"));
                refused.response()
            })
    };
    let handshake = accept_hdr_async_with_config(stream, check, Some(websocket::config()));
    let Ok(Ok(mut socket)) = timeout(HANDSHAKE, handshake).await else {
        return;
    };
    let server = match UnixStream::connect(&shared.socket).await {
        Ok(server) => server,
        Err(error) => {
            let reason = format!("no server listens on this machine ({error}): piw server start");
            return websocket::close_with(&mut socket, CloseCode::Again, &reason).await;
        }
    };
    let rules = Rules {
        messages_per_second: Some(MESSAGES_PER_SECOND),
        keepalive: None,
    };
    let end = tokio::select! {
        end = websocket::carry(&mut socket, server, rules) => Some(end),
        // The sender lives until every connection has ended.
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    match end {
        Some(End::StreamEnded) => {
            websocket::close_with(&mut socket, CloseCode::Away, "the server closed the connection").await;
        }
        Some(end) => {
            if let End::Refused(refusal) = &end {
                shared.notices.say(&format!("closed a connection: {refusal}"));
            }
            websocket::close(&mut socket, &end).await;
        }
        None => websocket::close_with(&mut socket, CloseCode::Away, "the relay was stopped").await,
    }
}

async fn refuse_full(mut stream: TcpStream) {
    let text = format!("the relay has {MAX_CONNECTIONS} connections, which is the limit\n");
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    let refusal = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // A client that is gone misses the reason.
    drop(timeout(REFUSAL, refusal).await);
}
