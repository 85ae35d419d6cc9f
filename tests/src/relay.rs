//! `piw serve` as a process, clients that talk to it in ways no viewer would, and an `ssh` that stays on this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use futures_util::{SinkExt, StreamExt};
use piw_protocol::canonical;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::Message;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::protocol::CloseFrame;
use piw_protocol::websocket::tokio_tungstenite::{WebSocketStream, client_async};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::home::{Home, piw_binary};
use crate::wait::DEADLINE;

/// A request as the protocol wants it, as the one line that a frame is.
///
/// # Panics
/// When the payload has no canonical form.
#[must_use]
pub fn request(id: &str, operation: &str, run_id: Option<&str>, payload: &Value) -> String {
    let mut request = json!({
        "schema": "pi-workflows.client.v1", "type": "request", "requestId": id, "clientId": "raw",
        "operation": operation, "idempotencyKey": id, "payload": payload,
    });
    if let Some(run_id) = run_id {
        request["runId"] = json!(run_id);
    }
    String::from_utf8(canonical::to_vec(&request).expect("a canonical form")).expect("JSON is text")
}

/// A running `piw serve`; ended with the test.
#[derive(Debug)]
pub struct Served {
    child: Child,
    /// What it printed.
    pub url: String,
}

impl Served {
    /// Serves on a free port.
    ///
    /// # Panics
    /// When it prints no URL.
    #[must_use]
    pub fn start(home: &Home) -> Self {
        Self::start_on(home, "127.0.0.1:0")
    }

    /// Serves on an address.
    ///
    /// # Panics
    /// When it prints no URL.
    #[must_use]
    pub fn start_on(home: &Home, address: &str) -> Self {
        let mut child = home.spawn(&["serve", "--bind", address, "--json"], Stdio::null());
        let mut output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut text = String::new();
        while !text.contains('}') {
            let count = output.read_line(&mut text).expect("readable output");
            if count == 0 {
                let mut errors = String::new();
                let mut stderr = child.stderr.take().expect("stderr is piped");
                stderr.read_to_string(&mut errors).expect("readable errors");
                panic!("piw serve printed no URL: {text}{errors}");
            }
        }
        let document: Value = serde_json::from_str(&text).expect("one JSON document");
        let url = document["url"].as_str().expect("a URL").to_owned();
        Self { child, url }
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        let rest = self.url.strip_prefix("ws://").expect("a ws URL");
        rest.split('/').next().expect("an address")
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> &str {
        self.url.split("token=").nth(1).expect("a token")
    }

    /// Process id of the relay.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Sends SIGTERM.
    ///
    /// # Panics
    /// When it is gone.
    pub fn terminate(&self) {
        let pid = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("the relay runs");
    }

    /// Waits for its end and returns the exit code.
    ///
    /// # Panics
    /// When it does not end.
    pub fn wait(&mut self) -> Option<i32> {
        crate::wait::until("the relay ends", || self.child.try_wait().expect("a child")).code()
    }

    /// Sends an upgrade request with these headers beside the ones that make it one; returns the status of the answer.
    ///
    /// # Panics
    /// When the relay cannot be reached.
    #[must_use]
    pub fn knock(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address()).expect("the relay listens");
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        // An accepted connection stays open: its head and the first frame's first bytes are enough.
        while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
            match stream.read(&mut chunk).expect("an answer") {
                0 => break,
                count => answer.extend_from_slice(&chunk[..count]),
            }
        }
        let head = String::from_utf8_lossy(&answer).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        if status != Some(101) {
            stream.read_to_end(&mut answer).expect("the rest");
        }
        (status.unwrap_or(0), String::from_utf8_lossy(&answer).into_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A WebSocket client without any protocol of its own.
#[derive(Debug)]
pub struct RawClient {
    runtime: Runtime,
    socket: WebSocketStream<tokio::net::TcpStream>,
}

impl RawClient {
    /// Connects with the relay's URL.
    ///
    /// # Panics
    /// When the relay does not accept.
    #[must_use]
    pub fn connect(served: &Served) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let socket = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(served.address())
                .await
                .expect("the relay listens");
            client_async(&served.url, stream).await.expect("the relay accepts").0
        });
        Self { runtime, socket }
    }

    /// Sends a message. Answers whether the relay took it.
    pub fn send(&mut self, message: Message) -> bool {
        self.runtime.block_on(async {
            tokio::time::timeout(DEADLINE, self.socket.send(message))
                .await
                .is_ok_and(|sent| sent.is_ok())
        })
    }

    /// The next text message.
    ///
    /// # Panics
    /// When none comes.
    pub fn text(&mut self) -> String {
        match self.next() {
            Some(Message::Text(text)) => text.to_string(),
            other => panic!("a text message was expected, not {other:?}"),
        }
    }

    /// Reads until the relay closes; returns its code and reason.
    ///
    /// # Panics
    /// When it closes without a close frame.
    pub fn closed(&mut self) -> (u16, String) {
        loop {
            match self.next() {
                Some(Message::Close(Some(CloseFrame { code, reason }))) => return (code.into(), reason.to_string()),
                Some(Message::Text(_) | Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("a close frame was expected, not {other:?}"),
            }
        }
    }

    fn next(&mut self) -> Option<Message> {
        self.runtime.block_on(async {
            tokio::time::timeout(DEADLINE, self.socket.next())
                .await
                .expect("the relay answers in time")
                .and_then(Result::ok)
        })
    }
}

/// An `ssh` that runs its command on this machine, in the home of the host that it was asked for.
#[derive(Debug)]
pub struct FakeSsh {
    dir: tempfile::TempDir,
}

impl FakeSsh {
    /// Knows these hosts.
    ///
    /// # Panics
    /// When its script cannot be written.
    #[must_use]
    pub fn new(hosts: &[(&str, &Home)]) -> Self {
        let dir = tempfile::Builder::new().prefix("ssh").tempdir().expect("a directory");
        let mut cases = String::new();
        for (name, home) in hosts {
            cases.push_str(&format!(
                "{name}) export HOME='{}' PIW_STATE_DIR='{}';;\n",
                home.project().display(),
                home.state().display()
            ));
        }
        let script = format!(
            "#!/bin/sh\necho \"$$ $*\" >> '{log}'\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2; shift 3\n\
             if [ -e '{dir}/down-'\"$host\" ]; then echo \"ssh: connect to host $host port 22: No route to host\" >&2; exit 255; fi\n\
             case $host in\n{cases}*) echo \"ssh: Could not resolve hostname $host: Name or service not known\" >&2; exit 255;;\nesac\n\
             exec '{piw}' \"$@\"\n",
            log = dir.path().join("log").display(),
            dir = dir.path().display(),
            piw = piw_binary().display(),
        );
        let made = Self { dir };
        write_script(&made.path(), &script);
        made
    }

    /// Keeps a shell around the command that takes no notice of signals and does not end with it.
    #[must_use]
    pub fn stubborn(self) -> Self {
        let script = std::fs::read_to_string(self.path()).expect("a script");
        let script = script.replace("exec '", "trap '' TERM HUP INT; '") + "while :; do sleep 1; done\n";
        write_script(&self.path(), &script);
        self
    }

    /// Prints to standard error and exits instead of doing anything.
    ///
    /// # Panics
    /// When its script cannot be written.
    #[must_use]
    pub fn failing(output: &str, errors: &str, code: i32) -> Self {
        let dir = tempfile::Builder::new().prefix("ssh").tempdir().expect("a directory");
        let made = Self { dir };
        let script = format!("#!/bin/sh\nprintf '%s' '{output}'\nprintf '%s\\n' '{errors}' >&2\nexit {code}\n");
        write_script(&made.path(), &script);
        made
    }

    /// The script, for `PIW_SSH`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("ssh")
    }

    /// Makes a host unreachable for further connections, or reachable again.
    ///
    /// # Panics
    /// When the file system refuses.
    pub fn set_down(&self, host: &str, down: bool) {
        let marker = self.dir.path().join(format!("down-{host}"));
        if down {
            std::fs::write(marker, "").expect("a marker");
        } else {
            std::fs::remove_file(marker).expect("no marker");
        }
    }

    /// Every call so far: process id and arguments.
    ///
    /// # Panics
    /// When the log is broken.
    #[must_use]
    pub fn calls(&self) -> Vec<(i32, String)> {
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines()
            .map(|line| {
                let (pid, rest) = line.split_once(' ').expect("a pid and arguments");
                (pid.parse().expect("a pid"), rest.to_owned())
            })
            .collect()
    }
}

fn write_script(path: &Path, script: &str) {
    std::fs::write(path, script).expect("a script");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

/// Resident memory of a process in KiB.
///
/// # Panics
/// When the process is gone.
#[must_use]
pub fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("a resident size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
