//! One client connection: a reader, a bounded number of requests in work, one writer.
//!
//! The writer encodes nothing and waits for nobody but the socket: answers come ready, events wait in the latest-wins slots of the
//! [`ConnectionSink`]. What a client that does not read can pile up is bounded by the permits below; it delays no other
//! connection. A bad frame closes this connection alone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::envelope::{self, Event, EventKind, Hello, PACKAGE_VERSION, Request};
use piw_protocol::frame::{Decoder, FrameError};
use piw_protocol::ops::{Operation, OperationError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::publish::{ConnectionSink, EventFrame};
use crate::server::{Counted, MAX_CONNECTIONS, Server};

/// Requests of one connection in work at once, answers that wait for the socket included. Further ones wait in the socket.
pub(crate) const REQUESTS_AT_ONCE: usize = 16;
/// Of these, requests whose answers may be large.
const LARGE_AT_ONCE: usize = 4;
/// How long the rest of a begun frame may take.
const FRAME_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a closing connection may take to take its last messages.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);
const READ_BUFFER: usize = 16 * 1024;
/// Events below this many bytes are written with one call.
const SMALL_EVENT: usize = 16 * 1024;

/// What a request handler may know of its connection.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Where its events go.
    pub(crate) sink: ConnectionSink,
    /// Its number, unique in this server's life.
    pub(crate) number: u64,
    /// The process at its other end, when the system says so.
    pub(crate) peer: Option<u32>,
}

/// A frame for the socket; the permits are free once it is written.
struct Line {
    bytes: Vec<u8>,
    _permits: Permits,
    last: bool,
}

type Permits = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

/// Why reading stopped before the client closed its side.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Envelope(#[from] envelope::EnvelopeError),
    #[error("the rest of a begun frame did not arrive within {} s", FRAME_TIMEOUT.as_secs())]
    HalfFrame,
    #[error("the server has {MAX_CONNECTIONS} connections, which is the limit; this one never sent a request")]
    Displaced,
}

impl Closed {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Displaced => "too_many_connections",
            Self::Io(_) | Self::Frame(_) | Self::Envelope(_) | Self::HalfFrame => "bad_frame",
        }
    }
}

/// Serves one connection until either side closes it, or it has to leave for another.
pub(crate) async fn serve(server: Arc<Server>, stream: UnixStream, connection_id: String, counted: Counted) {
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (read, write) = stream.into_split();
    let sink = ConnectionSink::new();
    let gone = CancellationToken::new();
    let (lines, queue) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write_lines(write, queue, sink.clone(), gone.clone()));
    let mut reader = Reader {
        context: Context {
            sink: sink.clone(),
            number: counted.number(),
            peer: peer.and_then(|pid| u32::try_from(pid).ok()),
        },
        server: Arc::clone(&server),
        lines,
        requests: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)),
        large: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
    };
    reader.hello(&connection_id);
    let closed = tokio::select! {
        result = reader.read(read, &counted) => result,
        () = counted.displaced() => Err(Closed::Displaced),
        () = gone.cancelled() => Ok(()),
        () = server.closing() => Ok(()),
    };
    if let Err(error) = closed {
        tracing::debug!(connection_id, %error, "closing a connection");
        reader.farewell(&error);
    }
    // Answers in work still hold the queue; the writer ends with the last of them.
    drop(reader);
    if writer.await.is_err() {
        tracing::error!(connection_id, "a connection's writer failed");
    }
    server.publisher.disconnect(&sink);
    server.connection_ended(counted.number());
}

/// The server refuses a connection at once: one event that says why.
pub(crate) async fn refuse(mut stream: UnixStream, reason: &str, message: String) {
    let bytes = unavailable(reason, message);
    // The client may be gone already.
    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, stream.write_all(&bytes)).await;
}

struct Reader {
    context: Context,
    server: Arc<Server>,
    lines: mpsc::UnboundedSender<Line>,
    requests: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Reader {
    fn hello(&self, connection_id: &str) {
        let hello = Hello {
            connection_id: connection_id.to_owned(),
            package_version: PACKAGE_VERSION.to_owned(),
        };
        let bytes = hello.encode().expect("a hello fits a frame");
        // The writer is gone only when the connection is.
        let _ = self.lines.send(Line {
            bytes,
            _permits: (None, None),
            last: false,
        });
    }

    fn farewell(&self, error: &Closed) {
        if !matches!(error, Closed::Io(_)) {
            let bytes = unavailable(error.reason(), error.to_string());
            let _ = self.lines.send(Line {
                bytes,
                _permits: (None, None),
                last: true,
            });
        }
    }

    /// Reads requests until the client closes its side. A frame that has begun must end in time.
    async fn read(&mut self, mut stream: OwnedReadHalf, counted: &Counted) -> Result<(), Closed> {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0_u8; READ_BUFFER].into_boxed_slice();
        loop {
            while let Some(frame) = decoder.next_frame()? {
                let request = envelope::parse_request(&frame)?;
                drop(frame);
                counted.has_spoken();
                self.accept(request).await;
            }
            let count = if decoder.pending() == 0 {
                stream.read(&mut buffer).await?
            } else {
                let rest = tokio::time::timeout(FRAME_TIMEOUT, stream.read(&mut buffer));
                rest.await.map_err(|_| Closed::HalfFrame)??
            };
            if count == 0 {
                return Ok(decoder.finish()?);
            }
            decoder.push(&buffer[..count]);
        }
    }

    /// Takes a request into work when there is room. Operations whose order on a connection matters are done in place.
    async fn accept(&self, request: Request) {
        // The semaphores are never closed.
        let one = Arc::clone(&self.requests).acquire_owned().await.ok();
        let large = match is_large(request.operation) {
            true => Arc::clone(&self.large).acquire_owned().await.ok(),
            false => None,
        };
        let (server, context, lines) = (Arc::clone(&self.server), self.context.clone(), self.lines.clone());
        let in_order = is_ordered(request.operation);
        let work = async move {
            let request_id = request.request_id.clone();
            piw_fault::point!("server::request_read");
            let mut answer = server.answer(&context, request).await;
            piw_fault::point!("server::before_answer");
            let then = answer.then.take();
            let _ = lines.send(Line {
                bytes: answer.encode(request_id),
                _permits: (one, large),
                last: false,
            });
            if let Some(then) = then {
                then();
            }
        };
        if in_order {
            work.await;
        } else {
            tokio::spawn(work);
        }
    }
}

/// Subscriptions follow each other in the order in which the client asked, and so do the chunks of an upload.
const fn is_ordered(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::ViewRunsWatch
            | Operation::ViewRunsUnwatch
            | Operation::ViewRunWatch
            | Operation::ViewRunUnwatch
            | Operation::ViewSessionWatch
            | Operation::ViewSessionUnwatch
            | Operation::ContentPut
    )
}

const fn is_large(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::ViewRunsPage
            | Operation::ViewRunGet
            | Operation::ViewPage
            | Operation::ViewContent
            | Operation::ViewSessionWindow
            | Operation::RunList
            | Operation::RunStatus
            | Operation::WorkflowCheck
            | Operation::WorkflowList
    )
}

/// Writes answers and events until the last handler is done, the client is gone, or a farewell was written.
async fn write_lines(
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::UnboundedReceiver<Line>,
    sink: ConnectionSink,
    gone: CancellationToken,
) {
    loop {
        let written = tokio::select! {
            biased;
            line = queue.recv() => match line {
                None => break,
                Some(Line { bytes, last: true, .. }) => {
                    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, stream.write_all(&bytes)).await;
                    break;
                }
                Some(line) => {
                    let written = stream.write_all(&line.bytes).await;
                    piw_fault::point!("server::after_answer");
                    written
                }
            },
            Some(frame) = sink.next() => {
                piw_fault::point!("server::before_event");
                write_event(&mut stream, &frame).await
            }
        };
        if written.is_err() {
            break;
        }
    }
    gone.cancel();
    sink.close();
    // The peer may have closed already.
    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, stream.shutdown()).await;
}

async fn write_event(stream: &mut OwnedWriteHalf, frame: &EventFrame) -> io::Result<()> {
    if frame.len() <= SMALL_EVENT {
        return stream.write_all(&frame.to_vec()).await;
    }
    for part in frame.parts() {
        stream.write_all(part).await?;
    }
    Ok(())
}

/// An event about the connection itself.
fn unavailable(reason: &str, message: String) -> Vec<u8> {
    let error = OperationError {
        reason: reason.to_owned(),
        message,
        cause: None,
    };
    let event = Event {
        subscription_id: "connection".to_owned(),
        event: EventKind::Unavailable,
        revision: None,
        run_id: None,
        payload: CanonicalJson::new(&error).unwrap_or_default(),
    };
    event.encode().expect("a short event fits a frame")
}
