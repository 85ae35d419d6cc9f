//! The real Pi coding agent, and a scripted model for it: nothing of Pi is imitated, only the provider behind it.
//!
//! Node and Pi are installed from npm once, into a directory below the target directory that all tests share. Each test has an
//! agent directory of its own whose only model is a [`Model`].
//!
//! | module | owns |
//! | --- | --- |
//! | [`install`] | the pinned versions, and installing them |
//! | [`model`] | an HTTP server on loopback that speaks streamed chat completions |

mod install;
mod model;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

pub use install::{Installation, NODE_VERSION, PI_VERSION, installed};
pub use model::{Asked, Model, Reply};

use crate::home::Home;

/// Variables that keep Pi away from every network but loopback.
const OFFLINE: [(&str, &str); 3] = [
    ("PI_OFFLINE", "1"),
    ("PI_TELEMETRY", "0"),
    ("PI_SKIP_VERSION_CHECK", "1"),
];

/// Writes the agent directory `dir` so that `model` is the only model of a Pi that uses it.
///
/// # Panics
/// When it cannot be written.
pub fn write_agent_dir(dir: &Path, model: &Model) {
    let models = json!({ "providers": { "scripted": {
        "name": "scripted", "baseUrl": model.url(), "api": "openai-completions", "apiKey": "none",
        "models": [{
            "id": "scripted-1", "name": "scripted", "reasoning": false, "input": ["text"],
            "contextWindow": 4_000_000, "maxTokens": 4096,
            "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
        }],
    } } });
    fs::create_dir_all(dir).expect("a new directory");
    fs::write(dir.join("models.json"), models.to_string()).expect("a new file");
}

impl Installation {
    /// The search path of a process that may call `pi`: the right Node first.
    ///
    /// # Panics
    /// When `PATH` cannot be extended.
    #[must_use]
    pub fn search_path(&self) -> OsString {
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(self.bin()).chain(std::env::split_paths(&inherited));
        std::env::join_paths(dirs).expect("a search path")
    }

    /// What a process needs in its environment to be, or to start, a Pi whose agent directory is `agent_dir`.
    #[must_use]
    pub fn environment(&self, agent_dir: &Path) -> Vec<(String, OsString)> {
        let mut variables = vec![
            ("PATH".to_owned(), self.search_path()),
            ("PI_CODING_AGENT_DIR".to_owned(), agent_dir.into()),
            // Compiled scripts are shared, so that only the first start is slow.
            ("NODE_COMPILE_CACHE".to_owned(), self.compile_cache().into()),
        ];
        variables.extend(OFFLINE.map(|(name, value)| (name.to_owned(), value.into())));
        variables
    }

    /// `pi` with a clean environment, for a home and an agent directory of its own. Arguments and working directory are the
    /// caller's.
    #[must_use]
    pub fn command(&self, home: &Path, agent_dir: &Path) -> Command {
        let mut command = Command::new(self.bin().join("pi"));
        command.env_clear().env("HOME", home).envs(self.environment(agent_dir));
        for name in ["LANG", "TMPDIR", "TERM"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }

    /// Makes this Pi, with `model` behind it, available to every command and server of a home.
    ///
    /// # Panics
    /// When the agent directory cannot be written.
    pub fn serve_home(&self, home: &mut Home, model: &Model) {
        let agent_dir = home.project().parent().expect("a home").join(".pi/agent");
        write_agent_dir(&agent_dir, model);
        for (name, value) in self.environment(&agent_dir) {
            home.set(&name, Some(value.to_str().expect("UTF-8")));
        }
    }
}
