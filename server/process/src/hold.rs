//! A command that exists before it runs.
//!
//! The child is forked into its own process group and waits on a pipe. Its identity can be registered somewhere durable
//! while it waits; [`Held::release`] lets it execute. When the holder dies first, the pipe closes and the child ends without
//! having run anything.
//!
//! Once it runs, it is killed when the holder dies without ending it (Linux; what it started itself is not).
//!
//! One thread a command forks it, waits for its end *without* collecting it (so its pid and group id stay taken while
//! leftovers of the group are being ended) and collects it when [`Running`] is dropped or finished.
#![expect(
    unsafe_code,
    reason = "code between fork and exec, and waitid with WNOWAIT, have no safe interface on every platform"
)]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use tokio::sync::oneshot;

use crate::identity::ProcessIdentity;

/// Orders "create pipes" and "fork" of concurrent commands. Without it two held children could each inherit the write end
/// of the other's pipe, and neither would notice that their holder died.
static FORK_ORDER: Mutex<()> = Mutex::new(());

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitState {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A forked command that waits to be released. Dropping it ends the child without executing anything.
#[derive(Debug)]
pub struct Held {
    identity: ProcessIdentity,
    go: PipeWriter,
    spawned: mpsc::Receiver<io::Result<Stdio>>,
    exit: oneshot::Receiver<io::Result<ExitState>>,
    collect: mpsc::Sender<()>,
}

/// The ends of the command's piped standard streams that belong to us.
#[derive(Debug, Default)]
pub struct Stdio {
    /// Standard input, when piped.
    pub stdin: Option<ChildStdin>,
    /// Standard output, when piped.
    pub stdout: Option<ChildStdout>,
    /// Standard error, when piped.
    pub stderr: Option<ChildStderr>,
}

/// A command that executes. Its zombie stays in the process table until this is dropped.
#[derive(Debug)]
pub struct Running {
    /// The command, which leads its own group.
    pub identity: ProcessIdentity,
    /// Piped streams.
    pub stdio: Stdio,
    exit: oneshot::Receiver<io::Result<ExitState>>,
    /// Dropping it lets the waiting thread collect the child.
    _collect: mpsc::Sender<()>,
}

impl Held {
    /// Forks `command` into its own process group and holds it. Blocks for the fork only.
    ///
    /// # Errors
    /// When the pipe, the thread or the fork fails, or the working directory cannot be entered (checked in the child).
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        let order = FORK_ORDER.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut pid_reader, pid_writer) = io::pipe()?;
        let (go_reader, go) = io::pipe()?;
        command.process_group(0);
        hold_before_exec(&mut command, pid_writer, go_reader, go.as_raw_fd());
        let (spawned_to, spawned) = mpsc::channel();
        let (exit_to, exit) = oneshot::channel();
        let (collect, collect_when) = mpsc::channel();
        thread::Builder::new()
            .name("command".to_owned())
            .stack_size(128 * 1024)
            .spawn(move || own_child(command, &spawned_to, exit_to, &collect_when))?;
        let mut pid = [0; 4];
        let held = pid_reader.read_exact(&mut pid);
        drop(order);
        if held.is_err() {
            // The child ended before it reached the hold: spawning failed, and its error says why.
            return Err(match spawned.recv() {
                Ok(Err(error)) => error,
                Ok(Ok(_)) | Err(_) => io::Error::other("the command's process ended before it could be held"),
            });
        }
        let pid = u32::from_ne_bytes(pid);
        let identity = ProcessIdentity::of(pid)?
            .ok_or_else(|| io::Error::other(format!("held process {pid} is not in the process table")))?;
        Ok(Self {
            identity,
            go,
            spawned,
            exit,
            collect,
        })
    }

    /// The held process.
    #[must_use]
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Lets the command execute. Blocks until that is known, which may take until other commands that are held now execute or
    /// end too: one that was forked at the wrong instant has a copy of the pipe whose end tells. So never release one command
    /// after the other on the same thread.
    ///
    /// # Errors
    /// The error of `exec`: not found, permission denied, argument list too long, a bad executable format.
    pub fn release(mut self) -> io::Result<Running> {
        self.go.write_all(b"g")?;
        let stdio = self
            .spawned
            .recv()
            .map_err(|_| io::Error::other("the command's thread ended"))??;
        Ok(Running {
            identity: self.identity,
            stdio,
            exit: self.exit,
            _collect: self.collect,
        })
    }
}

impl Running {
    /// Waits for the command's own process to end. The zombie stays until `self` is dropped; its group may live on.
    /// Cancel safe; once it has returned, it must not be called again.
    ///
    /// # Errors
    /// When the system cannot tell how it ended.
    pub async fn exited(&mut self) -> io::Result<ExitState> {
        (&mut self.exit)
            .await
            .map_err(|_| io::Error::other("the command's thread ended"))?
    }
}

/// The life of a command's thread: fork, report, wait, collect.
fn own_child(
    mut command: Command,
    spawned: &mpsc::Sender<io::Result<Stdio>>,
    exit: oneshot::Sender<io::Result<ExitState>>,
    collect_when: &mpsc::Receiver<()>,
) {
    let result = command.spawn();
    // Drops our copies of the child's pipe ends.
    drop(command);
    let mut child = match result {
        Ok(child) => child,
        Err(error) => {
            // The receiver is gone when the command was dropped while held.
            let _ = spawned.send(Err(error));
            return;
        }
    };
    let stdio = Stdio {
        stdin: child.stdin.take(),
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
    };
    let _ = spawned.send(Ok(stdio));
    let _ = exit.send(wait_without_collecting(&child));
    // Nothing is ever sent: this returns when `Running` (or `Held`) is dropped.
    let _ = collect_when.recv();
    let _ = child.wait();
}

/// Installs the hold: the last thing that happens in the child before `exec`.
/// `go_writer` is the holder's end, which the child inherits and must close, or it would wait for itself.
fn hold_before_exec(command: &mut Command, pid_writer: PipeWriter, go_reader: PipeReader, go_writer: RawFd) {
    let held = move || {
        let (pid_fd, go_fd) = (pid_writer.as_raw_fd(), go_reader.as_raw_fd());
        // SAFETY: close, getpid, write and read are async-signal-safe; the descriptors are open in the child, and the
        // buffers live on this stack for the whole call.
        unsafe {
            libc::close(go_writer);
            // The forking thread waits for the command's end, so its own end means that this whole process died.
            #[cfg(target_os = "linux")]
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == -1 {
                return Err(io::Error::from_raw_os_error(*errno()));
            }
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(pid_fd, pid.as_ptr().cast(), pid.len()) != 4 {
                return Err(io::Error::from_raw_os_error(libc::EPIPE));
            }
            let mut byte = 0_u8;
            loop {
                match libc::read(go_fd, (&raw mut byte).cast(), 1) {
                    1 => return Ok(()),
                    0 => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    _ if *errno() == libc::EINTR => {}
                    _ => return Err(io::Error::from_raw_os_error(*errno())),
                }
            }
        }
    };
    // SAFETY: the closure allocates nothing, takes no lock and calls async-signal-safe functions only.
    unsafe {
        command.pre_exec(held);
    }
}

/// The address of `errno`, which differs in name only.
unsafe fn errno() -> *mut libc::c_int {
    // SAFETY: both functions return a valid pointer to the calling thread's errno.
    unsafe {
        #[cfg(target_os = "linux")]
        {
            libc::__errno_location()
        }
        #[cfg(target_os = "macos")]
        {
            libc::__error()
        }
    }
}

/// Waits for a child's end and leaves its zombie.
fn wait_without_collecting(child: &Child) -> io::Result<ExitState> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `info` is a valid, zeroed siginfo_t that outlives the call.
        let result = unsafe {
            libc::waitid(
                libc::P_PID,
                child.id(),
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: waitid succeeded, so it filled the structure's child fields.
    let (code, status) = unsafe {
        let info = info.assume_init();
        (info.si_code, info.si_status())
    };
    Ok(if code == libc::CLD_EXITED {
        ExitState::Code(status)
    } else {
        ExitState::Signal(status)
    })
}

/// Whether the calling process has a child at all, collected or not.
pub(crate) fn peek_any_child() -> bool {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is a valid, zeroed siginfo_t that outlives the call; WNOHANG and WNOWAIT change nothing.
    let result = unsafe {
        libc::waitid(
            libc::P_ALL,
            0,
            info.as_mut_ptr(),
            libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
        )
    };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD)
}
