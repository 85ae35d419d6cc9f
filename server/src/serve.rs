//! The server's main loop: connections, signals, stop requests, idleness; and how it comes to rest.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use piw_state::query::counts;

use crate::connection;
use crate::error::ServerError;
use crate::server::{MAX_CONNECTIONS, Server, StopOutcome, StopRequest};
use crate::socket::Socket;
use crate::supervise::live::Order;

/// Longest wait for running nodes when nothing else is asked for (decision 4).
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(20);
/// Longest wait for runners that were ordered to end: abort, SIGTERM, SIGKILL and their groups.
const END_WAIT: Duration = Duration::from_secs(15);
/// Longest wait for connections to take their last messages.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long after an idle check that found work the next one follows.
const IDLE_RECHECK: Duration = Duration::from_secs(5);

/// Why the main loop ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was stopped and nothing executes any more.
    Stopped,
    /// Nobody needed it.
    Idle,
    /// It lost the database to another server, or cannot write it any more.
    Fenced(piw_state::StateError),
}

/// The main loop. Returns when the server has to end; connections are still open then.
pub(crate) struct Serving {
    pub(crate) server: Arc<Server>,
    pub(crate) requests: mpsc::Receiver<StopRequest>,
    /// Gets the error that ended the claim on the database.
    pub(crate) fenced: mpsc::Receiver<piw_state::StateError>,
    pub(crate) idle_exit: Option<Duration>,
    pub(crate) signals: bool,
}

/// A stop in progress.
struct Drain {
    result: Pin<Box<dyn Future<Output = bool> + Send>>,
    replies: Vec<oneshot::Sender<StopOutcome>>,
    now: bool,
}

impl Serving {
    pub(crate) async fn run(mut self, socket: &Socket) -> Result<Ended, ServerError> {
        let mut signals = Signals::new(self.signals).map_err(ServerError::Runtime)?;
        let mut drain: Option<Drain> = None;
        let mut connections = self.server.connections.count();
        let mut live = self.server.live.count();
        let mut idle_at = self.idle_deadline();
        loop {
            tokio::select! {
                stream = socket.accept() => self.serve(stream),
                name = signals.next() => {
                    let now = drain.is_some();
                    tracing::info!(signal = name, now, "asked to stop by a signal");
                    let (reply, _) = oneshot::channel();
                    self.stop(&mut drain, StopRequest { wait: DEFAULT_WAIT, now, reply });
                }
                Some(request) = self.requests.recv() => self.stop(&mut drain, request),
                Some(error) = self.fenced.recv() => {
                    tracing::error!(%error, "the server lost its database");
                    self.server.admissions.close();
                    self.server.live.order_all(Order::End);
                    self.server.live.drained(END_WAIT).await;
                    // A server that was asked to stop does not begin again under a new epoch.
                    if drain.is_some() {
                        self.finish(drain.take(), true);
                        return Ok(Ended::Stopped);
                    }
                    return Ok(Ended::Fenced(error));
                }
                drained = drained(&mut drain) => {
                    if self.finish(drain.take(), drained) {
                        return Ok(Ended::Stopped);
                    }
                }
                _ = connections.changed() => idle_at = self.idle_deadline(),
                _ = live.changed() => idle_at = self.idle_deadline(),
                () = sleep_until(idle_at) => {
                    if drain.is_none() && self.is_idle().await {
                        match socket.try_accept() {
                            // Somebody came while the database was asked.
                            Some(stream) => self.serve(stream),
                            None => return Ok(Ended::Idle),
                        }
                    }
                    idle_at = idle_at.map(|_| Instant::now() + IDLE_RECHECK);
                }
            }
        }
    }

    /// Serves a connection, or tells it that there are too many.
    fn serve(&self, stream: UnixStream) {
        let Some(counted) = self.server.connections.enter() else {
            let message = format!("the server has {MAX_CONNECTIONS} connections, which is the limit");
            tokio::spawn(connection::refuse(stream, "too_many_connections", message));
            return;
        };
        let server = Arc::clone(&self.server);
        let id = format!("{}-{}", server.epoch, counted.number());
        tokio::spawn(async move {
            connection::serve(server, stream, id, counted).await;
        });
    }

    /// Begins a stop, or joins (and with `now` hastens) one in progress.
    fn stop(&self, drain: &mut Option<Drain>, request: StopRequest) {
        let StopRequest { wait, now, reply } = request;
        let mut replies = drain
            .take_if(|running| !running.now || now)
            .map(|running| running.replies)
            .unwrap_or_default();
        if let Some(running) = drain {
            running.replies.push(reply);
            return;
        }
        replies.push(reply);
        self.server.admissions.close();
        self.server.live.order_all(if now { Order::End } else { Order::Stop });
        let live = Arc::clone(&self.server.live);
        let wait = if now { END_WAIT } else { wait };
        *drain = Some(Drain {
            result: Box::pin(async move { live.drained(wait).await }),
            replies,
            now,
        });
    }

    /// Tells the outcome of a stop; whether the server ends.
    fn finish(&self, drain: Option<Drain>, drained: bool) -> bool {
        let Some(drain) = drain else { return false };
        let executing = self.server.live.executing();
        let stops = drained || drain.now;
        if !stops {
            tracing::warn!(runs = executing.len(), "not stopped: nodes are still executing");
            self.server.admissions.reopen();
        }
        for reply in drain.replies {
            let outcome = if stops {
                StopOutcome::Stopping
            } else {
                StopOutcome::Refused(executing.clone())
            };
            // Whoever asked may be gone.
            let _ = reply.send(outcome);
        }
        stops
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let busy = *self.server.connections.count().borrow() > 0 || self.server.live.len() > 0;
        self.idle_exit.filter(|_| !busy).map(|idle| Instant::now() + idle)
    }

    /// Nothing is connected, executes, waits for a runner or is being decided.
    async fn is_idle(&self) -> bool {
        let server = &self.server;
        let busy = *server.connections.count().borrow() > 0 || server.live.len() > 0 || !server.in_flight.is_empty();
        if busy || server.maintenance.is_sweeping() {
            return false;
        }
        match server.state.read(|reader| Ok(counts::claimable(reader)?)).await {
            Ok(claimable) => !claimable,
            Err(error) => {
                tracing::warn!(%error, "cannot look for claimable runs");
                false
            }
        }
    }
}

/// Closes what clients see, in the order in which they should see it.
pub(crate) async fn say_goodbye(server: &Server, socket: Socket) {
    // From here on a new connection finds no socket; those that were under way are told.
    for stream in socket.close() {
        tokio::spawn(connection::refuse(
            stream,
            "stopping",
            "the server is stopping; connect again".to_owned(),
        ));
    }
    server.closing.send_replace(true);
    let mut connections = server.connections.count();
    if tokio::time::timeout(FAREWELL, connections.wait_for(|count| *count == 0))
        .await
        .is_err()
    {
        tracing::info!("closed connections that did not take their last messages");
    }
}

async fn drained(drain: &mut Option<Drain>) -> bool {
    match drain {
        Some(drain) => drain.result.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// SIGTERM and SIGINT, when this server owns its process.
struct Signals(Option<(Signal, Signal)>);

impl Signals {
    fn new(wanted: bool) -> std::io::Result<Self> {
        if !wanted {
            return Ok(Self(None));
        }
        Ok(Self(Some((
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ))))
    }

    async fn next(&mut self) -> &'static str {
        match &mut self.0 {
            Some((terminate, interrupt)) => tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            },
            None => std::future::pending().await,
        }
    }
}
