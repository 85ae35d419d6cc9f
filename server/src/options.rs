//! What a server is told at its start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piw_protocol::ops::WorkflowEntry;

use crate::paths::{PathError, Places};

/// Runners at once when `PIW_MAX_RUNNERS` says nothing.
pub const DEFAULT_MAX_RUNNERS: u32 = 4;
/// Most runners that may be asked for.
pub const MAX_RUNNERS_LIMIT: u32 = 256;
/// How long a server without clients and work stays when `PIW_IDLE_EXIT_SECONDS` says nothing.
pub const DEFAULT_IDLE_EXIT: Duration = Duration::from_secs(600);

/// A setting from the environment that is no number in its range.
#[derive(Debug, thiserror::Error)]
#[error("{name} must be a whole number from {least} to {most}, but is {value:?}")]
pub struct SettingError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Smallest allowed value.
    pub least: u64,
    /// Largest allowed value.
    pub most: u64,
}

/// Why options could not be made from the environment.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A place cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A number is out of its range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The executable's own path is unknown.
    #[error("cannot find the running executable: {0}")]
    Executable(std::io::Error),
}

/// Lists what can be started from a project (and the global directory): pure file work. The server cannot do it itself, since
/// it does not depend on the crate that knows workflow files.
pub type WorkflowLister = fn(project: &Path, global: Option<&Path>) -> Vec<WorkflowEntry>;

/// Options of [`crate::run`].
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// State directory and socket.
    pub places: Places,
    /// Runners at once, pending launches included.
    pub max_runners: u32,
    /// How long a server without client, run or wake stays; `None` for ever.
    pub idle_exit: Option<Duration>,
    /// Executable for children: it is run as `<exe> internal resolver|runner`.
    pub internal_exe: PathBuf,
    /// Whether the process was spawned by [`crate::ensure_started`]: its standard output is the ready handshake.
    pub detached: bool,
    /// Answers `workflow.list`; without it the operation is not built.
    pub workflows: Option<WorkflowLister>,
    /// Whether SIGTERM and SIGINT stop the server. Off for a server inside another process.
    pub signals: bool,
    /// Length of claims instead of 30 s, for tests of takeovers.
    pub lease: Option<Duration>,
    /// How long past a node's budget its runner may take to end it, instead of 90 s, for tests of runners that hang.
    pub overrun: Option<Duration>,
}

impl ServerOptions {
    /// Options from the environment: `PIW_STATE_DIR`, `PIW_SOCKET`, `PIW_MAX_RUNNERS`, `PIW_IDLE_EXIT_SECONDS` (0: never), and
    /// for tests `PIW_LEASE_MS` and `PIW_OVERRUN_MS`.
    ///
    /// # Errors
    /// A place that cannot be used or a setting out of its range.
    pub fn from_env(detached: bool) -> Result<Self, OptionsError> {
        let max_runners = number("PIW_MAX_RUNNERS", 1, u64::from(MAX_RUNNERS_LIMIT))?
            .map_or(DEFAULT_MAX_RUNNERS, |count| {
                u32::try_from(count).unwrap_or(MAX_RUNNERS_LIMIT)
            });
        let idle_exit = match number("PIW_IDLE_EXIT_SECONDS", 0, 31_536_000)? {
            None => Some(DEFAULT_IDLE_EXIT),
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
        };
        Ok(Self {
            places: Places::from_env()?,
            max_runners,
            idle_exit,
            internal_exe: own_image()?,
            detached,
            workflows: None,
            signals: true,
            lease: number("PIW_LEASE_MS", 300, 600_000)?.map(Duration::from_millis),
            overrun: number("PIW_OVERRUN_MS", 0, 600_000)?.map(Duration::from_millis),
        })
    }
}

/// The running image: on Linux through `/proc/self/exe`, so that an upgrade under a running server cannot mix versions.
fn own_image() -> Result<PathBuf, OptionsError> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe().map_err(OptionsError::Executable)
}

fn number(name: &'static str, least: u64, most: u64) -> Result<Option<u64>, SettingError> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let value = value.to_string_lossy().into_owned();
    match value.parse::<u64>() {
        Ok(count) if (least..=most).contains(&count) => Ok(Some(count)),
        _ => Err(SettingError {
            name,
            value,
            least,
            most,
        }),
    }
}
