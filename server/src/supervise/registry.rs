//! The registry of living children and of the process groups that runners registered.
//!
//! Kept in memory and, after every change and before the change takes effect, in `server.children.json`: a server that
//! replaces a killed one ends exactly these processes (pid *and* start identity) before it claims any run again. The file needs
//! no fsync, since processes do not outlive the machine that would lose it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piw_process::{Liveness, ProcessIdentity, group};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::lock::LockPlace;

/// Schema of the file.
const SCHEMA: &str = "pi-workflows.server-children.v1";
/// Most groups that one runner may have registered at a time.
pub(crate) const GROUPS_PER_RUNNER: usize = 256;

/// What a registered process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    /// A resolver.
    Resolver,
    /// A runner.
    Runner,
    /// A validator.
    Validator,
    /// The group of a command that a runner runs.
    Group,
}

/// One registered process; it leads the group of the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) pid: u32,
    pub(crate) start_identity: String,
    /// The runner it belongs to (for a runner: itself); 0 for a resolver.
    #[serde(default)]
    pub(crate) runner_pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
}

impl Entry {
    pub(crate) fn identity(&self) -> ProcessIdentity {
        ProcessIdentity {
            pid: self.pid,
            start: self.start_identity.clone(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    schema: String,
    children: Vec<Entry>,
}

/// Why a group was not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    /// The file could not be written; nothing was registered.
    #[error("the child registry cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The runner has too many groups.
    #[error("a runner may have {GROUPS_PER_RUNNER} registered process groups at a time, and all are taken")]
    TooMany,
}

/// The registry. Shared by everything that spawns.
#[derive(Debug)]
pub(crate) struct Registry {
    path: PathBuf,
    /// The file belongs to whoever holds the server lock.
    lock: Option<LockPlace>,
    entries: Mutex<HashMap<u32, Entry>>,
}

impl Registry {
    /// An empty registry that will be kept at `path`.
    pub(crate) fn new(path: PathBuf, lock: Option<LockPlace>) -> Self {
        Self {
            path,
            lock,
            entries: Mutex::default(),
        }
    }

    /// Adds a process; it is in the file when this returns.
    pub(crate) fn register(&self, entry: Entry) -> Result<(), RegisterError> {
        let mut entries = self.lock();
        if entry.kind == Kind::Group {
            let siblings = entries
                .values()
                .filter(|other| other.kind == Kind::Group && other.runner_pid == entry.runner_pid);
            if siblings.count() >= GROUPS_PER_RUNNER {
                return Err(RegisterError::TooMany);
            }
        }
        let pid = entry.pid;
        let replaced = entries.insert(pid, entry);
        if let Err(error) = self.write(&entries) {
            match replaced {
                Some(old) => entries.insert(pid, old),
                None => entries.remove(&pid),
            };
            return Err(error.into());
        }
        Ok(())
    }

    /// Removes a process. A stale entry in the file is harmless, so a write error is only logged.
    pub(crate) fn unregister(&self, identity: &ProcessIdentity) {
        let mut entries = self.lock();
        if entries
            .get(&identity.pid)
            .is_some_and(|entry| entry.start_identity == identity.start)
        {
            entries.remove(&identity.pid);
            if let Err(error) = self.write(&entries) {
                tracing::warn!(%error, "the child registry cannot be written");
            }
        }
    }

    /// Groups that a runner registered and that are still registered.
    pub(crate) fn groups_of(&self, runner: &ProcessIdentity) -> Vec<ProcessIdentity> {
        let entries = self.lock();
        entries
            .values()
            .filter(|entry| entry.kind == Kind::Group && entry.runner_pid == runner.pid)
            .map(Entry::identity)
            .collect()
    }

    /// Process ids of living resolvers and runners.
    pub(crate) fn own_children(&self) -> Vec<u32> {
        self.lock()
            .values()
            .filter(|entry| entry.kind != Kind::Group)
            .map(|entry| entry.pid)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        // Every change is complete before it is visible, so a poisoned map is whole.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, entries: &HashMap<u32, Entry>) -> io::Result<()> {
        if self.lock.as_ref().is_some_and(|lock| !lock.is_ours()) {
            return Err(io::Error::other("another server took over and keeps the registry now"));
        }
        let document = Document {
            schema: SCHEMA.to_owned(),
            children: entries.values().cloned().collect(),
        };
        let bytes = serde_json::to_vec(&document)?;
        let temporary = self.path.with_extension("json.tmp");
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        io::Write::write_all(&mut file, &bytes)?;
        piw_fault::point!("server::before_registry_rename");
        fs::rename(&temporary, &self.path)
    }
}

/// Processes that an earlier server left in the file; empty when there is no readable file.
pub(crate) fn left_behind(path: &Path) -> HashSet<ProcessIdentity> {
    match fs::read(path).map(|bytes| serde_json::from_slice::<Document>(&bytes)) {
        Ok(Ok(document)) if document.schema == SCHEMA => document.children.iter().map(Entry::identity).collect(),
        Ok(_) => {
            tracing::warn!("the child registry of the last server is unreadable; nothing is reaped from it");
            HashSet::new()
        }
        Err(_) => HashSet::new(),
    }
}

/// Ends processes that an earlier server left behind: exactly these, and the groups they lead. Returns how many were still
/// alive.
pub(crate) async fn reap(left: HashSet<ProcessIdentity>, grace: Duration) -> usize {
    let mut ending = JoinSet::new();
    for identity in left {
        ending.spawn(async move { (group::end(&identity, grace).await, identity.pid) });
    }
    let mut ended = 0;
    while let Some(result) = ending.join_next().await {
        match result {
            Ok((Ok(group::Ended::AlreadyGone), _)) => {}
            Ok((Ok(how), pid)) => {
                ended += 1;
                tracing::warn!(pid, ?how, "reaped an orphan");
            }
            Ok((Err(error), pid)) => tracing::warn!(pid, %error, "an orphan cannot be reaped"),
            Err(error) => tracing::error!(%error, "reaping an orphan failed"),
        }
    }
    ended
}

/// Whether the runner itself is gone or can execute nothing more.
pub(crate) fn has_ended(identity: &ProcessIdentity) -> bool {
    !matches!(identity.liveness(), Ok(Liveness::Running))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn entry(kind: Kind, identity: &ProcessIdentity, runner_pid: u32) -> Entry {
        Entry {
            kind,
            pid: identity.pid,
            start_identity: identity.start.clone(),
            runner_pid,
            run_id: None,
        }
    }

    #[tokio::test]
    async fn the_next_server_ends_exactly_what_the_last_one_left() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("server.children.json");
        let sleep = || Command::new("sleep").arg("60").process_group(0).spawn().expect("sleep");
        let (mut left, mut innocent) = (sleep(), sleep());
        let identity = |pid| ProcessIdentity::of(pid).expect("process table").expect("alive");
        let registry = Registry::new(path.clone(), None);
        registry
            .register(entry(Kind::Group, &identity(left.id()), 1))
            .expect("registered");
        // The pid of a living process, but another start: a reused pid.
        let mut reused = entry(Kind::Runner, &identity(innocent.id()), innocent.id());
        reused.start_identity = reused.start_identity.replace(|digit: char| digit.is_ascii_digit(), "1");
        registry.register(reused).expect("registered");
        drop(registry);
        assert_eq!(reap(left_behind(&path), Duration::from_secs(5)).await, 1);
        assert!(!left.wait().expect("ended").success());
        assert!(innocent.try_wait().expect("status").is_none());
        innocent.kill().expect("killed");
        innocent.wait().expect("ended");
    }

    #[test]
    fn groups_are_bounded_and_belong_to_their_runner() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let registry = Registry::new(dir.path().join("children.json"), None);
        let made = |pid| ProcessIdentity { pid, start: "s".into() };
        for pid in 10..10 + u32::try_from(GROUPS_PER_RUNNER).expect("small") {
            registry
                .register(entry(Kind::Group, &made(pid), 2))
                .expect("registered");
        }
        assert!(matches!(
            registry.register(entry(Kind::Group, &made(9), 2)),
            Err(RegisterError::TooMany)
        ));
        registry
            .register(entry(Kind::Group, &made(9), 3))
            .expect("another runner");
        registry.unregister(&made(10));
        assert_eq!(registry.groups_of(&made(2)).len(), GROUPS_PER_RUNNER - 1);
        registry.unregister(&ProcessIdentity {
            pid: 11,
            start: "other".into(),
        });
        assert_eq!(registry.groups_of(&made(2)).len(), GROUPS_PER_RUNNER - 1);
    }
}
