//! Starting a server from a client: spawn one detached and wait until it is ready.
//!
//! The spawned process gets a pipe as its standard output and writes one JSON line there: that it is ready, that another server
//! holds the lock, or why it could not start. Two clients at once therefore yield one server and two successes, and a start-up
//! error reaches the person who asked.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::lock;
use crate::paths::Places;

/// How long a start may take before it is reported as failed.
pub const START_TIMEOUT: Duration = Duration::from_secs(20);
const HANDSHAKE_LIMIT: u64 = 64 * 1024;
const RETRY_PAUSE: Duration = Duration::from_millis(5);
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a holder of the lock may say nothing before another server is spawned, to take over if it may.
const SILENCE: Duration = Duration::from_secs(1);

/// What [`ensure_started`] needs.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// State directory and socket.
    pub places: Places,
    /// Executable that understands `server run --detached`; usually the running one.
    pub executable: PathBuf,
    /// Longest wait.
    pub timeout: Duration,
}

impl StartOptions {
    /// Starts this executable's server in `places`, waiting [`START_TIMEOUT`].
    ///
    /// # Errors
    /// When the running executable has no path.
    pub fn new(places: Places) -> io::Result<Self> {
        let executable = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe()?
        };
        Ok(Self {
            places,
            executable,
            timeout: START_TIMEOUT,
        })
    }
}

/// How the server came to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It was running.
    AlreadyRunning,
    /// It was spawned for this call, or by another caller meanwhile.
    Spawned,
}

/// Why no server could be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server process could not be spawned.
    #[error("cannot start a server process: {0}")]
    Spawn(io::Error),
    /// The server ended while starting, and said why.
    #[error("the server could not start: {message}")]
    Refused {
        /// The class of [`crate::ServerError::class`].
        class: String,
        /// The server's own words.
        message: String,
    },
    /// The server ended while starting, and said nothing.
    #[error("the server ended while starting ({status}); see {}", log.display())]
    Died {
        /// Its exit status.
        status: String,
        /// Its log.
        log: PathBuf,
    },
    /// A process holds the lock and answers nobody.
    #[error(
        "a server holds the lock{} but answered nobody for {} s: is it stopped? 30 s after it last worked, another start takes over from it (one that was stopped in the middle of a write must be woken or killed first)",
        pid.map_or_else(String::new, |pid| format!(" (pid {pid})")), timeout.as_secs()
    )]
    Unresponsive {
        /// The process that the lock names.
        pid: Option<u32>,
        /// The limit.
        timeout: Duration,
    },
    /// No server accepted connections in time.
    #[error("no server accepted connections on {} within {} s; see {}", socket.display(), timeout.as_secs(), log.display())]
    TimedOut {
        /// The socket.
        socket: PathBuf,
        /// The limit.
        timeout: Duration,
        /// The server's log.
        log: PathBuf,
    },
}

/// The one line of the ready handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub(crate) enum Handshake {
    /// The socket accepts.
    Ready,
    /// Another process holds the lock.
    AlreadyRunning,
    /// The start failed.
    Failed { class: String, message: String },
}

/// Makes sure that a server accepts connections: returns at once when one does, else spawns one and waits. Blocks for at most
/// the timeout; usually for some milliseconds.
///
/// # Errors
/// The server's own start-up error, or that none came up in time.
pub fn ensure_started(options: &StartOptions) -> Result<Started, StartError> {
    if accepts(&options.places) {
        return Ok(Started::AlreadyRunning);
    }
    let deadline = Instant::now() + options.timeout;
    loop {
        if !lock::is_held(&options.places) {
            match spawn_and_wait(options, deadline)? {
                Handshake::Ready => return Ok(Started::Spawned),
                Handshake::AlreadyRunning => {}
                Handshake::Failed { class, message } => return Err(StartError::Refused { class, message }),
            }
        }
        // Another process is on its way up (or down): until it accepts, or lets go of the lock. One that is stopped or hangs
        // does neither; a server that is spawned then takes over once that one's claim has expired.
        let mut silence = Instant::now();
        while lock::is_held(&options.places) {
            if accepts(&options.places) {
                return Ok(Started::Spawned);
            }
            if Instant::now() >= deadline {
                return Err(unresponsive(options));
            }
            if silence.elapsed() >= SILENCE {
                silence = Instant::now();
                match spawn_and_wait(options, deadline)? {
                    Handshake::Ready => return Ok(Started::Spawned),
                    Handshake::AlreadyRunning => {}
                    Handshake::Failed { class, message } => return Err(StartError::Refused { class, message }),
                }
            }
            std::thread::sleep(RETRY_PAUSE);
        }
        if Instant::now() >= deadline {
            return Err(timed_out(options));
        }
    }
}

/// Whether a server greets on the socket. A connection alone proves nothing: the socket of a killed server lives on for an
/// instant in a child that was being forked.
#[must_use]
pub fn accepts(places: &Places) -> bool {
    let Ok(mut stream) = UnixStream::connect(&places.socket) else {
        return false;
    };
    let mut first = [0_u8; 1];
    stream.set_read_timeout(Some(GREETING_TIMEOUT)).is_ok() && stream.read_exact(&mut first).is_ok()
}

fn unresponsive(options: &StartOptions) -> StartError {
    StartError::Unresponsive {
        pid: lock::read_record(&options.places).map(|record| record.pid),
        timeout: options.timeout,
    }
}

fn timed_out(options: &StartOptions) -> StartError {
    StartError::TimedOut {
        socket: options.places.socket.clone(),
        timeout: options.timeout,
        log: options.places.log(),
    }
}

/// Spawns `server run --detached` and reads its handshake. The process leaves this one's session by itself.
fn spawn_and_wait(options: &StartOptions, deadline: Instant) -> Result<Handshake, StartError> {
    let mut child = Command::new(&options.executable)
        .arg0("piw")
        .args(["server", "run", "--detached"])
        .env(crate::paths::STATE_DIR_VAR, &options.places.state_dir)
        .env(crate::paths::SOCKET_VAR, &options.places.socket)
        // Started inside a step, the server is none of its processes.
        .env_remove(piw_process::marker::VARIABLE)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(StartError::Spawn)?;
    match read_handshake(&mut child, deadline) {
        Some(Ok(handshake)) => {
            // A server that stays is reaped by init once this process is gone; until then by this thread.
            std::thread::spawn(move || child.wait());
            Ok(handshake)
        }
        Some(Err(_)) => {
            let status = child
                .wait()
                .map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(StartError::Died {
                status,
                log: options.places.log(),
            })
        }
        // The one that was spawned waited for a holder that says nothing.
        None if lock::is_held(&options.places) => Err(unresponsive(options)),
        None => Err(timed_out(options)),
    }
}

/// The handshake line; `Some(Err)` when the pipe closed without one, `None` when the deadline passed.
fn read_handshake(child: &mut Child, deadline: Instant) -> Option<Result<Handshake, ()>> {
    let stdout = child.stdout.take()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout.take(HANDSHAKE_LIMIT)).read_line(&mut line);
        // The receiver is gone only after its deadline.
        let _ = sender.send(read.ok().and_then(|_| serde_json::from_str(&line).ok()).ok_or(()));
    });
    receiver
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .ok()
}

/// The server's end of the handshake: writes the line, then gives standard output back to nobody.
pub(crate) fn report(handshake: &Handshake) {
    use std::io::Write;
    let mut line = serde_json::to_vec(handshake).expect("a handshake is plain data");
    line.push(b'\n');
    let mut stdout = io::stdout();
    // Whoever asked may be gone; the server stays.
    let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(&null);
    }
}
