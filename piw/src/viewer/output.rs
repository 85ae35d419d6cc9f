//! Bytes on their way to the terminal.
//!
//! A terminal that does not read — a stopped emulator, a multiplexer that is stuck, a dead line — stops whoever writes to it,
//! for as long as it likes. So a thread of its own writes, and nobody else waits for it: the event loop hands over one frame
//! at a time and draws the next one, which is of the newest state, only when that is gone. On the way out the wait is bounded.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{ttyname, write};
use tokio::sync::Notify;

/// How long the last bytes may take before what the terminal has not read is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long they may take after that, when the system has room for them again.
const LAST: Duration = Duration::from_millis(300);

/// While the terminal does not read, the writer looks this often whether its bytes are still wanted, in milliseconds.
const LOOK: u16 = 100;

/// Ends whatever sequence the bytes before it were cut in.
const CANCEL: &[u8] = b"\x18";

/// The output of this process.
static OUTPUT: LazyLock<Output> = LazyLock::new(Output::default);

#[derive(Default)]
struct Output {
    state: Mutex<State>,
    /// Bytes have come, or the writer has nothing left.
    changed: Condvar,
    /// The writer has nothing left.
    free: Notify,
}

#[derive(Default)]
struct State {
    /// Whether the thread has been started.
    started: bool,
    /// What the writer takes next.
    waiting: Vec<u8>,
    /// Whether the writer has bytes that it has not written.
    writing: bool,
    /// How often everything was given up. Bytes from before the last time are not written.
    given_up: u64,
    /// The first failure since [`open`].
    failed: Option<io::ErrorKind>,
}

impl State {
    const fn is_free(&self) -> bool {
        !self.writing && self.waiting.is_empty()
    }
}

fn state() -> MutexGuard<'static, State> {
    OUTPUT.state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the writer unless it runs, and forgets that an earlier write failed.
///
/// # Errors
///
/// When the system refuses the thread or a descriptor.
pub fn open() -> io::Result<()> {
    let mut state = state();
    if !state.started {
        let terminal = terminal()?;
        std::thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || write_for_ever(&terminal))?;
        state.started = true;
    }
    state.failed = None;
    Ok(())
}

/// The terminal behind standard output, opened once more: a description of our own can refuse to wait without changing the one
/// that is shared with the shell. A terminal that belongs to somebody else (`su`) cannot be opened; writing waits there, and the
/// way out leaves the writer behind.
fn terminal() -> io::Result<OwnedFd> {
    let own = ttyname(io::stdout()).map_err(io::Error::from).and_then(|name| {
        OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
            .open(name)
    });
    match own {
        Ok(file) => Ok(file.into()),
        Err(_) => io::stdout().as_fd().try_clone_to_owned(),
    }
}

/// Whether everything handed over is written. Who hands over more before adds to what is waiting.
#[must_use]
pub fn is_free() -> bool {
    state().is_free()
}

/// Waits until everything handed over is written, or failed. May return early, once.
pub async fn freed() {
    OUTPUT.free.notified().await;
}

/// Hands bytes over to be written.
///
/// # Errors
///
/// When bytes from before could not be written: the terminal is gone.
pub fn put(bytes: &[u8]) -> io::Result<()> {
    let mut state = state();
    if let Some(kind) = state.failed {
        return Err(kind.into());
    }
    state.waiting.extend_from_slice(bytes);
    OUTPUT.changed.notify_all();
    Ok(())
}

/// Writes these bytes as the last ones and waits for it, for little more than a second. When the terminal does not read until
/// then, what it has not read is given up for them.
pub fn finish(bytes: &[u8]) {
    if put(bytes).is_err() || wait(PATIENCE) {
        return;
    }
    {
        let mut state = state();
        state.given_up += 1;
        state.waiting = [CANCEL, bytes].concat();
    }
    // Makes room for them. It fails only when the terminal is gone.
    let _ = tcflush(io::stdout(), FlushArg::TCOFLUSH);
    wait(LAST);
    // Nothing may follow, however late the terminal reads.
    let mut state = state();
    state.given_up += 1;
    state.waiting.clear();
}

/// Waits until everything is written; returns whether it is.
fn wait(most: Duration) -> bool {
    let pending = |state: &mut State| !state.is_free();
    OUTPUT
        .changed
        .wait_timeout_while(state(), most, pending)
        .unwrap_or_else(PoisonError::into_inner)
        .0
        .is_free()
}

fn write_for_ever(terminal: &OwnedFd) {
    let mut state = state();
    loop {
        while state.waiting.is_empty() {
            state.writing = false;
            OUTPUT.free.notify_one();
            OUTPUT.changed.notify_all();
            state = OUTPUT.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = std::mem::take(&mut state.waiting);
        let wanted = state.given_up;
        state.writing = true;
        drop(state);
        let written = write_while(terminal, &bytes, || self::state().given_up == wanted);
        state = self::state();
        if let Err(error) = written {
            state.failed = Some(error.kind());
            state.waiting.clear();
        }
    }
}

/// Writes everything, as long as it is wanted.
fn write_while(terminal: &OwnedFd, bytes: &[u8], wanted: impl Fn() -> bool) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() && wanted() {
        match write(terminal, left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => left = &left[count..],
            Err(Errno::EAGAIN) => {
                let mut room = [PollFd::new(terminal.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut room, PollTimeout::from(LOOK)) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
