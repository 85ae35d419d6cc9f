//! Spawning children of this executable.
//!
//! A child leads its own process group, finds its channel on descriptor 3 and reads nothing from standard input. When the server
//! dies, a runner sees its channel end, ends its commands and leaves; a resolver or validator is killed (Linux). That follows the spawning
//! *thread*, so one thread that lives as long as the server spawns everything; it also keeps the fork away from the message path.
//!
//! Children get the server's environment (shell steps need `PATH`, `HOME` and what else the user's programs read) without the
//! server's own settings, and with the server's places, so that a `piw` inside a step finds this server.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::thread;

use piw_process::role::{RoleSetup, prepare};
use piw_process::{ProcessIdentity, marker};
use piw_protocol::canonical;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, oneshot};

use super::capture::Capture;
use super::registry::{Entry, Kind, Registry};
use crate::paths::{self, Places};

/// Most open files of a child.
const OPEN_FILES: u64 = 4096;
/// Settings of the server that a child must not inherit.
const SERVER_ONLY: [&str; 6] = [
    "PIW_MAX_RUNNERS",
    "PIW_IDLE_EXIT_SECONDS",
    "PIW_LEASE_MS",
    "PIW_OVERRUN_MS",
    "PIW_LOG",
    "PIW_NO_AUTOSTART",
];

/// What a child is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Loads one definition.
    Resolver,
    /// Executes one generation of one run.
    Runner,
    /// Judges one submission.
    Validator,
}

impl Role {
    /// The hidden subcommand.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Resolver => "resolver",
            Self::Runner => "runner",
            Self::Validator => "validator",
        }
    }
}

/// A child that was spawned.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Who it is; it leads the group of the same id.
    pub(crate) identity: ProcessIdentity,
    /// Our end of its channel.
    pub(crate) channel: UnixStream,
    /// To wait for its end.
    pub(crate) child: Child,
    /// What it prints.
    pub(crate) capture: Capture,
}

struct Job {
    role: Role,
    mark: String,
    reply: oneshot::Sender<io::Result<Spawned>>,
}

/// Handle of the spawning thread. Clones share it; it ends with the last one.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    jobs: mpsc::Sender<Job>,
    registry: Arc<Registry>,
    marks: Marks,
    /// Taken from fork to registration, so that a sweep never meets a child that is not registered yet.
    order: Arc<Mutex<()>>,
}

impl Spawner {
    /// Starts the thread. Must be called inside the server's runtime.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(executable: PathBuf, places: Places, registry: Arc<Registry>, epoch: u64) -> io::Result<Self> {
        let marks = Marks::new(&places, epoch);
        let (jobs, queue) = mpsc::channel::<Job>();
        let runtime = tokio::runtime::Handle::current();
        thread::Builder::new()
            .name("spawn".into())
            .stack_size(256 * 1024)
            .spawn(move || {
                let _inside = runtime.enter();
                for job in queue {
                    let spawned = spawn(&executable, &places, &job);
                    // A caller that gave up drops the child, which kills it.
                    let _ = job.reply.send(spawned);
                }
            })?;
        Ok(Self {
            jobs,
            registry,
            marks,
            order: Arc::default(),
        })
    }

    /// Spawns one child and registers it; for a runner, with its run.
    ///
    /// # Errors
    /// What the system says, or that the registry cannot be written; then no child is left.
    pub(crate) async fn spawn(&self, role: Role, run_id: Option<&str>) -> io::Result<Spawned> {
        let _order = self.order.lock().await;
        let (reply, answer) = oneshot::channel();
        let ended = || io::Error::other("the spawning thread ended");
        let mark = self.marks.of(run_id.unwrap_or(role.name()));
        self.jobs.send(Job { role, mark, reply }).map_err(|_| ended())?;
        let spawned = answer.await.map_err(|_| ended())??;
        let entry = Entry {
            kind: match role {
                Role::Resolver => Kind::Resolver,
                Role::Runner => Kind::Runner,
                Role::Validator => Kind::Validator,
            },
            pid: spawned.identity.pid,
            start_identity: spawned.identity.start.clone(),
            runner_pid: spawned.identity.pid,
            run_id: run_id.map(ToOwned::to_owned),
        };
        // Dropping the child kills it.
        self.registry.register(entry).map_err(io::Error::other)?;
        piw_fault::point!("server::spawn_registered");
        Ok(spawned)
    }

    /// How processes of this server's children are marked.
    pub(crate) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Nothing is spawned until the guard is dropped, and everything spawned before is registered.
    pub(crate) async fn pause(&self) -> impl Drop + '_ {
        self.order.lock().await
    }
}

/// The marks of children and of everything below them: state directory, server epoch, run.
#[derive(Debug, Clone)]
pub(crate) struct Marks(String);

impl Marks {
    fn new(places: &Places, epoch: u64) -> Self {
        Self(format!("{}{epoch}.", Self::of_any_server(places)))
    }

    /// Beginning of the marks of every server of a state directory, whatever its epoch.
    pub(crate) fn of_any_server(places: &Places) -> String {
        const DIGITS: usize = 24;
        let digest = canonical::sha256_hex(places.state_dir.as_os_str().as_bytes());
        format!("{}.", &digest[..DIGITS])
    }

    /// The mark of a run's processes, or of a child without a run.
    pub(crate) fn of(&self, what: &str) -> String {
        format!("{}{what}.", self.0)
    }
}

fn spawn(executable: &Path, places: &Places, job: &Job) -> io::Result<Spawned> {
    let role = job.role;
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = std::process::Command::new(executable);
    command
        .arg0("piw")
        .args(["internal", role.name()])
        .current_dir("/")
        .env(paths::STATE_DIR_VAR, &places.state_dir)
        .env(paths::SOCKET_VAR, &places.socket)
        .env(marker::VARIABLE, &job.mark)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in SERVER_ONLY {
        command.env_remove(name);
    }
    prepare(
        &mut command,
        RoleSetup {
            channel: theirs.into(),
            // A runner leaves when its channel ends; killed, it could not end its commands first.
            die_with_thread: role != Role::Runner,
            open_files: Some(OPEN_FILES),
        },
    )?;
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    piw_fault::point!("server::before_spawn");
    let mut child = command.spawn()?;
    piw_fault::point!("server::after_spawn");
    // Closes our copy of the child's end, so that its death closes the channel.
    drop(command);
    let pid = child
        .id()
        .ok_or_else(|| io::Error::other("the child ended while it was spawned"))?;
    let identity = ProcessIdentity::of(pid)?
        .ok_or_else(|| io::Error::other(format!("child {pid} is not in the process table")))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let capture = match (stdout, stderr) {
        (Some(stdout), Some(stderr)) => Capture::start(stdout, stderr),
        _ => return Err(io::Error::other("the child has no output pipes")),
    };
    Ok(Spawned {
        identity,
        channel: UnixStream::from_std(ours)?,
        child,
        capture,
    })
}
