//! A server in this process, in a directory of its own, and a raw client that speaks frames.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::envelope::{Event, Hello, Outcome, Request, Response, ServerMessage, parse_server_message};
use piw_protocol::ops::Operation;
use piw_server::paths::Places;
use piw_server::{ServerError, ServerOptions};
use serde_json::Value;

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server thread and its directory.
pub struct TestServer {
    pub dir: tempfile::TempDir,
    pub places: Places,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

impl TestServer {
    /// Starts a server whose children are made by `internal_exe`, and waits until it accepts.
    pub fn start(internal_exe: impl Into<PathBuf>) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        Self::start_in(dir, internal_exe)
    }

    pub fn start_in(dir: tempfile::TempDir, internal_exe: impl Into<PathBuf>) -> Self {
        let places = Places::new(dir.path().join("state"), None).expect("places");
        let options = ServerOptions {
            places: places.clone(),
            max_runners: 4,
            idle_exit: None,
            internal_exe: internal_exe.into(),
            detached: false,
            workflows: None,
            signals: false,
            lease: None,
            overrun: None,
        };
        let thread = thread::spawn(move || piw_server::run(&options));
        let server = Self {
            dir,
            places,
            thread: Some(thread),
        };
        wait_until("the server accepts", || {
            piw_server::start::accepts(&server.places) || server.has_ended()
        });
        server
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn client(&self) -> RawClient {
        RawClient::connect(&self.places)
    }

    /// Stops the server at once and returns how it ended.
    pub fn stop(self) -> (Result<(), ServerError>, tempfile::TempDir) {
        let response = self
            .client()
            .request(Operation::ServerStop, None, &serde_json::json!({"now": true}));
        assert_eq!(response.outcome, Outcome::Accepted, "{response:?}");
        self.joined()
    }

    /// Waits until the server has ended by itself.
    pub fn joined(mut self) -> (Result<(), ServerError>, tempfile::TempDir) {
        let ended = self.thread.take().expect("running").join().expect("no panic");
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().expect("temporary directory"));
        (ended, dir)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && !thread::panicking()
        {
            let _ = self
                .client()
                .request(Operation::ServerStop, None, &serde_json::json!({"now": true}));
            let _ = thread.join();
        }
    }
}

/// One connection, one request at a time.
pub struct RawClient {
    pub stream: UnixStream,
    reader: BufReader<UnixStream>,
    pub hello: Hello,
    client_id: String,
    number: u32,
    pub events: Vec<Event>,
}

impl RawClient {
    pub fn connect(places: &Places) -> Self {
        let stream = UnixStream::connect(&places.socket).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut reader = BufReader::new(stream.try_clone().expect("clone"));
        let Some(ServerMessage::Hello(hello)) = read(&mut reader) else {
            panic!("no hello")
        };
        let client_id = format!("test-{}", hello.connection_id);
        Self {
            stream,
            reader,
            hello,
            client_id,
            number: 0,
            events: Vec::new(),
        }
    }

    /// Sends a request with a fresh key and waits for its answer.
    pub fn request(&mut self, operation: Operation, run_id: Option<&str>, payload: &Value) -> Response {
        self.number += 1;
        let key = format!("key-{}", self.number);
        self.command(operation, run_id, payload, &key)
    }

    /// The same with a chosen idempotency key.
    pub fn command(&mut self, operation: Operation, run_id: Option<&str>, payload: &Value, key: &str) -> Response {
        let request_id = self.send(operation, run_id, payload, key);
        loop {
            match self.next().expect("an answer") {
                ServerMessage::Response(response) if response.request_id == request_id => return response,
                ServerMessage::Event(event) => self.events.push(event),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub fn send(&mut self, operation: Operation, run_id: Option<&str>, payload: &Value, key: &str) -> String {
        self.number += 1;
        let request = Request {
            request_id: format!("request-{}", self.number),
            client_id: self.client_id.clone(),
            operation,
            idempotency_key: key.to_owned(),
            run_id: run_id.map(ToOwned::to_owned),
            expected_revision: None,
            payload: CanonicalJson::try_from(payload).expect("canonical"),
        };
        self.stream
            .write_all(&request.encode().expect("fits"))
            .expect("written");
        request.request_id
    }

    /// Uses another client's identity.
    pub fn named(mut self, client_id: &str) -> Self {
        self.client_id = client_id.to_owned();
        self
    }

    /// The next message; `None` when the server closed the connection.
    pub fn next(&mut self) -> Option<ServerMessage> {
        read(&mut self.reader)
    }
}

fn read(reader: &mut BufReader<UnixStream>) -> Option<ServerMessage> {
    let mut line = Vec::new();
    let count = reader
        .read_until(b'\n', &mut line)
        .expect("a message or the end in time");
    (count > 0).then(|| {
        assert_eq!(line.pop(), Some(b'\n'), "a half frame");
        parse_server_message(&line).expect("a valid message")
    })
}

/// Waits for a condition, failing the test after [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
