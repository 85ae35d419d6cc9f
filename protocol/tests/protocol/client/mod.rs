//! The client against servers that follow a script. Time is paused: a test that waits ten seconds takes none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::client::{Client, ClientOptions, Connector};
use piw_protocol::envelope::{Event, EventKind, Hello, Outcome, PACKAGE_VERSION, Request, Response, parse_request};
use piw_protocol::frame::Decoder;
use piw_protocol::ops::OperationError;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

mod calls;
mod connection;
mod content;
mod hostile;
mod views;

/// Bytes that fit between client and server before a writer has to wait: little, so that every frame is cut in pieces.
const PIPE: usize = 1000;

/// Hands the client's connections to the test.
struct ScriptedConnector {
    offered: mpsc::UnboundedSender<DuplexStream>,
    refuse: Arc<AtomicBool>,
    shut_out: Arc<AtomicBool>,
}

impl Connector for ScriptedConnector {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        if self.refuse.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens"));
        }
        if self.shut_out.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not with this token"));
        }
        let (ours, theirs) = tokio::io::duplex(PIPE);
        self.offered
            .send(theirs)
            .map_err(|_| io::Error::other("the test is over"))?;
        Ok(ours)
    }

    fn target(&self) -> String {
        "the scripted server".to_owned()
    }
}

struct ScriptedServer {
    offered: mpsc::UnboundedReceiver<DuplexStream>,
    refuse: Arc<AtomicBool>,
    shut_out: Arc<AtomicBool>,
}

impl ScriptedServer {
    fn shut_out(&self, shut_out: bool) {
        self.shut_out.store(shut_out, Ordering::SeqCst);
    }

    fn refuse(&self, refuse: bool) {
        self.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Waits for a connection.
    async fn accept(&mut self) -> Peer {
        let stream = tokio::time::timeout(Duration::from_secs(120), self.offered.recv());
        Peer {
            stream: stream.await.expect("the client connects").unwrap(),
            decoder: Decoder::new(),
        }
    }

    /// Waits for a connection and says hello.
    async fn greet(&mut self) -> Peer {
        let mut peer = self.accept().await;
        peer.hello(PACKAGE_VERSION).await;
        peer
    }

    /// Whether the client connects again within an hour.
    async fn is_left_alone(&mut self) -> bool {
        !matches!(
            tokio::time::timeout(Duration::from_secs(3600), self.offered.recv()).await,
            Ok(Some(_))
        )
    }
}

fn start(options: ClientOptions) -> (Client, ScriptedServer) {
    let (offered, inbox) = mpsc::unbounded_channel();
    let (refuse, shut_out) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let client = Client::start(
        ScriptedConnector {
            offered,
            refuse: Arc::clone(&refuse),
            shut_out: Arc::clone(&shut_out),
        },
        options,
    );
    let server = ScriptedServer {
        offered: inbox,
        refuse,
        shut_out,
    };
    (client, server)
}

/// The server's end of one connection.
struct Peer {
    stream: DuplexStream,
    decoder: Decoder,
}

impl Peer {
    async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn hello(&mut self, version: &str) {
        let hello = Hello {
            connection_id: "scripted".into(),
            package_version: version.into(),
        };
        self.raw(&hello.encode().unwrap()).await;
    }

    /// The next request, or `None` when the client closed the connection.
    async fn next(&mut self) -> Option<Request> {
        let mut buffer = [0; 512];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(parse_request(&frame).unwrap());
            }
            match self.stream.read(&mut buffer).await.unwrap() {
                0 => return None,
                length => self.decoder.push(&buffer[..length]),
            }
        }
    }

    async fn request(&mut self) -> Request {
        let next = tokio::time::timeout(Duration::from_secs(60), self.next());
        next.await.expect("a request comes").expect("the connection stays")
    }

    /// Whether no request comes for a while.
    async fn is_quiet(&mut self, seconds: u64) -> bool {
        tokio::time::timeout(Duration::from_secs(seconds), self.next())
            .await
            .is_err()
    }

    async fn respond(&mut self, to: &Request, outcome: Outcome, receipt: Option<Value>, error: Option<OperationError>) {
        let receipt = receipt.map(|receipt| CanonicalJson::new(&receipt).unwrap());
        let response = Response {
            request_id: to.request_id.clone(),
            outcome,
            revision: None,
            receipt,
            error,
        };
        self.raw(&response.encode().unwrap()).await;
    }

    async fn accept(&mut self, request: &Request, receipt: Value) {
        self.respond(request, Outcome::Accepted, Some(receipt), None).await;
    }

    async fn refuse(&mut self, request: &Request, outcome: Outcome, reason: &str) {
        self.respond(
            request,
            outcome,
            None,
            Some(OperationError::new(reason, format!("because of {reason}"))),
        )
        .await;
    }

    async fn event<T: Serialize>(&mut self, to: &Request, event: EventKind, payload: &T) {
        let subscription_id = to.payload.to_value()["subscriptionId"].as_str().unwrap().to_owned();
        let payload = CanonicalJson::new(payload).unwrap();
        let event = Event {
            subscription_id,
            event,
            revision: Some(1),
            run_id: to.run_id.clone(),
            payload,
        };
        self.raw(&event.encode().unwrap()).await;
    }

    /// Delivers a run list whose revision is `revision`.
    async fn runs(&mut self, to: &Request, revision: &str) {
        self.event(to, EventKind::Runs, &runs(revision)).await;
    }
}

fn runs(revision: &str) -> Value {
    json!({"schema": "pi-workflows.run-list-page.v1", "revision": revision, "start": 0, "total": 0, "items": []})
}

fn receipt() -> Value {
    json!({"runId": "run-1", "status": "running", "runRevision": 3})
}
