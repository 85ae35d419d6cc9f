//! A server that lies: it passes everything between a client and a real server and changes what it was told to change.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use piw_protocol::envelope::{ServerMessage, parse_request, parse_server_message};
use piw_protocol::frame;
use piw_protocol::ops::Operation;
use serde_json::Value;

use crate::home::Home;

/// Changes a message of the server. The flag says whether it answers a request for content.
pub type Lie = dyn Fn(&mut Value, bool) + Send + Sync;

/// A socket that lies. It is closed with the test's process.
pub struct Liar {
    dir: tempfile::TempDir,
    lie: Arc<Mutex<Arc<Lie>>>,
}

impl Liar {
    /// Stands between a home's server and whoever connects to [`Liar::socket`]. Tells the truth at first.
    ///
    /// # Panics
    /// When its socket cannot be made.
    #[must_use]
    pub fn new(home: &Home) -> Self {
        let dir = tempfile::Builder::new().prefix("liar").tempdir().expect("a directory");
        let truth: Arc<Lie> = Arc::new(|_, _| {});
        let liar = Self {
            dir,
            lie: Arc::new(Mutex::new(truth)),
        };
        let listener = UnixListener::bind(liar.socket()).expect("a socket");
        let (server, lie) = (home.state().join("server/server.sock"), Arc::clone(&liar.lie));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                serve(client, &server, &lie);
            }
        });
        liar
    }

    /// Where it listens, for `PIW_SOCKET`.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// Tells this from now on.
    pub fn tell(&self, lie: impl Fn(&mut Value, bool) + Send + Sync + 'static) {
        *self.lie.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(lie);
    }
}

/// Carries one connection with two threads, until either side closes.
fn serve(client: UnixStream, server: &Path, lie: &Arc<Mutex<Arc<Lie>>>) {
    let server = UnixStream::connect(server).expect("the real server listens");
    let asked: Arc<Mutex<HashSet<String>>> = Arc::default();
    let (mut to_client, mut to_server) = (
        client.try_clone().expect("a socket"),
        server.try_clone().expect("a socket"),
    );
    let contents = Arc::clone(&asked);
    std::thread::spawn(move || {
        each_frame(client, |line| {
            let request = parse_request(line).expect("a client sends requests");
            if request.operation == Operation::ViewContent {
                contents
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(request.request_id);
            }
            to_server.write_all(line).and_then(|()| to_server.write_all(b"\n"))
        });
        // The server may have closed it already.
        drop(to_server.shutdown(std::net::Shutdown::Both));
    });
    let lie = Arc::clone(lie);
    std::thread::spawn(move || {
        each_frame(server, |line| {
            let content = match parse_server_message(line).expect("a server sends messages") {
                ServerMessage::Response(response) => asked
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&response.request_id),
                _ => false,
            };
            let mut message: Value = serde_json::from_slice(line).expect("JSON");
            let lie = Arc::clone(&lie.lock().unwrap_or_else(PoisonError::into_inner));
            lie(&mut message, content);
            to_client.write_all(&frame::encode(&message).expect("a frame"))
        });
        drop(to_client.shutdown(std::net::Shutdown::Both));
    });
}

fn each_frame(stream: UnixStream, mut take: impl FnMut(&[u8]) -> std::io::Result<()>) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let frame = line.strip_suffix(b"\n").unwrap_or(&line);
        if take(frame).is_err() {
            return;
        }
        line.clear();
    }
}

/// Changes every content reference to `sha256` in a message.
pub fn references(message: &mut Value, sha256: &str, change: &dyn Fn(&mut Value)) {
    match message {
        Value::Object(fields) => {
            let named = fields.get("sha256").is_some_and(|found| found == sha256) && fields.contains_key("path");
            if named {
                change(message);
            } else {
                for value in fields.values_mut() {
                    references(value, sha256, change);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                references(item, sha256, change);
            }
        }
        _ => {}
    }
}
