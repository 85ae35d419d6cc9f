//! Frames over a WebSocket: each text message is one frame without its line feed. A relay and the client's connector carry
//! them with the same code; neither stores nor translates one.
//!
//! Both directions move at once and each waits for its own receiver: at most one frame a direction is held, so a peer that
//! does not read costs bounded memory and stops only its own connection.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::frame::{Decoder, MAX_FRAME};

pub use tokio_tungstenite;

/// Path of the protocol on a relay.
pub const PATH: &str = "/ws";
/// Port of a relay unless another one is named.
pub const DEFAULT_PORT: u16 = 9377;
/// Messages that a client may send in one second; a person with a held-down key sends about a hundred.
pub const MESSAGES_PER_SECOND: u32 = 1_000;

/// Bytes read at once.
const READ_BUFFER: usize = 16 * 1024;
/// Longest text of a close frame that fits one control frame.
const REASON: usize = 120;
/// How long a peer may take to take its last bytes and to close.
const LINGER: Duration = Duration::from_secs(1);

/// Sizes of both ends: a message is a frame without its line feed, and nothing is collected before it is written.
#[must_use]
pub fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME - 1))
        .max_frame_size(Some(MAX_FRAME - 1))
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_FRAME)
}

/// Whether the host of a URL or of a `Host` header, without its port, names this machine's loopback.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What one end expects of the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Messages in one second after which the peer is refused; `None` counts nothing.
    pub messages_per_second: Option<u32>,
    /// Asks the peer for a sign of life as often, and gives it up after three times as long without one.
    pub keepalive: Option<Duration>,
}

/// A rule that a peer broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A binary message.
    #[error("binary messages are not part of the protocol: text only")]
    Binary,
    /// A message that no frame can be.
    #[error("a message is longer than {} bytes", MAX_FRAME - 1)]
    TooLarge,
    /// A message that would be two frames.
    #[error("a message holds a line feed: one frame a message")]
    LineFeed,
    /// A text that is none.
    #[error("a text message is not UTF-8")]
    NotText,
    /// Too many messages.
    #[error("more than {0} messages in one second")]
    Flood(u32),
    /// Something that is no WebSocket message.
    #[error("that is not the WebSocket protocol")]
    Protocol,
}

impl Refusal {
    const fn code(self) -> CloseCode {
        match self {
            Self::Binary => CloseCode::Unsupported,
            Self::TooLarge => CloseCode::Size,
            Self::LineFeed | Self::Flood(_) => CloseCode::Policy,
            Self::NotText => CloseCode::Invalid,
            Self::Protocol => CloseCode::Protocol,
        }
    }
}

/// Why a connection is carried no longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The peer closed the WebSocket; the reason that it gave.
    Closed(String),
    /// The byte stream ended or failed.
    StreamEnded,
    /// The peer broke a rule.
    Refused(Refusal),
    /// The WebSocket failed.
    Failed(String),
}

/// Carries frames between a WebSocket and a stream of frames with line feeds until either ends. The WebSocket stays open for
/// [`close`].
pub async fn carry<S, B>(socket: &mut WebSocketStream<S>, stream: B, rules: Rules) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let (sink, source) = socket.split();
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        end = to_stream(source, writer, rules) => end,
        end = to_socket(reader, sink, rules.keepalive) => end,
    }
}

/// Moves messages until something ends; the next one is read when the stream has taken the last.
async fn to_stream<M, W>(mut source: M, mut writer: W, rules: Rules) -> End
where
    M: Stream<Item = Result<Message, Error>> + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut flood = Flood::new(rules.messages_per_second);
    loop {
        let message = match rules.keepalive {
            Some(every) => match timeout(every * 3, source.next()).await {
                Ok(message) => message,
                Err(_) => return End::Failed(format!("nothing was heard for {} s", (every * 3).as_secs())),
            },
            None => source.next().await,
        };
        let message = match message {
            Some(Ok(message)) => message,
            Some(Err(error)) => return end_of(error),
            None => return End::Closed(String::new()),
        };
        if let Err(refusal) = flood.count() {
            return End::Refused(refusal);
        }
        match message {
            Message::Text(text) if text.as_bytes().contains(&b'\n') => return End::Refused(Refusal::LineFeed),
            Message::Text(text) => {
                if write_frame(&mut writer, text.as_bytes()).await.is_err() {
                    return End::StreamEnded;
                }
            }
            Message::Binary(_) => return End::Refused(Refusal::Binary),
            Message::Close(frame) => {
                return End::Closed(frame.map_or_else(String::new, |frame| frame.reason.to_string()));
            }
            // Answered by the next read.
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

async fn write_frame(writer: &mut (impl AsyncWrite + Unpin), text: &[u8]) -> io::Result<()> {
    writer.write_all(text).await?;
    writer.write_all(b"\n").await?;
    writer.flush().await
}

/// Moves frames until something ends; the next bytes are read when the peer has taken the last frame.
async fn to_socket<R, M>(mut reader: R, mut sink: M, keepalive: Option<Duration>) -> End
where
    R: AsyncRead + Unpin,
    M: Sink<Message, Error = Error> + Unpin,
{
    let mut decoder = Decoder::new();
    let mut incoming = vec![0; READ_BUFFER];
    let mut ping = Instant::now() + keepalive.unwrap_or_default();
    loop {
        let read = tokio::select! {
            read = reader.read(&mut incoming) => read,
            () = tokio::time::sleep_until(ping), if keepalive.is_some() => {
                ping = Instant::now() + keepalive.unwrap_or_default();
                if let Err(error) = sink.send(Message::Ping(Vec::new().into())).await {
                    return end_of(error);
                }
                continue;
            }
        };
        let Ok(length @ 1..) = read else {
            return End::StreamEnded;
        };
        decoder.push(&incoming[..length]);
        loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return End::Failed(error.to_string()),
            };
            let Ok(text) = String::from_utf8(frame) else {
                return End::Failed("a frame that is not UTF-8 was to be sent".to_owned());
            };
            if let Err(error) = sink.send(Message::Text(text.into())).await {
                return end_of(error);
            }
        }
    }
}

/// Tells the peer of a carried connection why it ends, and waits a moment for it to take that.
pub async fn close<S>(socket: &mut WebSocketStream<S>, end: &End)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match end {
        End::Refused(refusal) => close_with(socket, refusal.code(), &refusal.to_string()).await,
        End::StreamEnded => close_with(socket, CloseCode::Away, "the other side closed the connection").await,
        End::Failed(reason) => close_with(socket, CloseCode::Error, reason).await,
        // The answer to the peer's own close frame is queued; only that is left to write.
        End::Closed(_) => drop(timeout(LINGER, SinkExt::<Message>::flush(socket)).await),
    }
}

/// Closes a WebSocket with a code and a reason, and reads on for a moment: bytes that nobody reads would make the system drop
/// the reason.
pub async fn close_with<S>(socket: &mut WebSocketStream<S>, code: CloseCode, reason: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut end = reason.len().min(REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let frame = CloseFrame {
        code,
        reason: reason[..end].into(),
    };
    let farewell = async {
        socket.close(Some(frame)).await?;
        let stream = socket.get_mut();
        stream.shutdown().await?;
        let mut rest = vec![0; READ_BUFFER];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, Error>(())
    };
    // A peer that is gone or blocked misses the reason; the connection ends all the same.
    drop(timeout(LINGER, farewell).await);
}

fn end_of(error: Error) -> End {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => End::Closed(String::new()),
        Error::Capacity(_) => End::Refused(Refusal::TooLarge),
        Error::Utf8(_) => End::Refused(Refusal::NotText),
        Error::Protocol(tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
            End::Closed(String::new())
        }
        Error::Protocol(_) => End::Refused(Refusal::Protocol),
        error => End::Failed(error.to_string()),
    }
}

/// Counts messages in windows of one second.
struct Flood {
    most: Option<u32>,
    since: Instant,
    count: u32,
}

impl Flood {
    fn new(most: Option<u32>) -> Self {
        Self {
            most,
            since: Instant::now(),
            count: 0,
        }
    }

    fn count(&mut self) -> Result<(), Refusal> {
        let Some(most) = self.most else { return Ok(()) };
        let now = Instant::now();
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.count = 0;
        }
        self.count += 1;
        if self.count > most {
            return Err(Refusal::Flood(most));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    /// Both ends of a WebSocket and both ends of the byte stream behind the first.
    async fn pair() -> (
        WebSocketStream<DuplexStream>,
        WebSocketStream<DuplexStream>,
        DuplexStream,
        DuplexStream,
    ) {
        let (near, far) = duplex(4096);
        let server = WebSocketStream::from_raw_socket(near, Role::Server, Some(config())).await;
        let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let (inner, outer) = duplex(4096);
        (server, client, inner, outer)
    }

    #[tokio::test]
    async fn frames_travel_both_ways_with_and_without_their_line_feed() {
        let (mut server, mut client, inner, mut outer) = pair().await;
        let carried = tokio::spawn(async move { carry(&mut server, inner, Rules::default()).await });
        client.send(Message::Text("{\"a\":1}".into())).await.expect("taken");
        let mut frame = [0; 8];
        outer.read_exact(&mut frame).await.expect("a frame");
        assert_eq!(&frame, b"{\"a\":1}\n");
        let large = "x".repeat(MAX_FRAME - 1);
        let frames = format!("{{}}\n{large}\n");
        let sent = tokio::spawn(async move {
            outer.write_all(frames.as_bytes()).await.expect("taken");
            outer
        });
        let first = client.next().await.expect("a message").expect("a text");
        assert_eq!(first, Message::Text("{}".into()));
        let second = client.next().await.expect("a message").expect("a text");
        assert_eq!(second.len(), large.len(), "the largest frame fits");
        drop(sent.await.expect("sent"));
        assert_eq!(carried.await.expect("carried"), End::StreamEnded);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_gives_no_sign_of_life_is_given_up_and_one_that_answers_is_not() {
        let rules = Rules {
            keepalive: Some(Duration::from_secs(10)),
            ..Rules::default()
        };
        let (mut server, mut client, inner, _outer) = pair().await;
        let answering = tokio::spawn(async move { carry(&mut server, inner, rules).await });
        let until = Instant::now() + Duration::from_secs(300);
        // Reading answers the questions.
        while let Ok(Some(Ok(message))) = tokio::time::timeout_at(until, client.next()).await {
            assert!(message.is_ping(), "{message:?}");
        }
        assert!(!answering.is_finished(), "five minutes of idle life");
        let silent = Instant::now();
        let end = answering.await.expect("carried");
        assert!(
            matches!(&end, End::Failed(reason) if reason.contains("30 s")),
            "{end:?}"
        );
        assert!(silent.elapsed() <= Duration::from_secs(31));
    }

    #[tokio::test(start_paused = true)]
    async fn messages_are_counted_by_the_second() {
        let mut flood = Flood::new(Some(3));
        for _ in 0..3 {
            assert_eq!(flood.count(), Ok(()));
        }
        assert_eq!(flood.count(), Err(Refusal::Flood(3)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(flood.count(), Ok(()));
    }
}
