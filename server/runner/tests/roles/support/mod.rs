//! A workflow server in miniature: starts the real roles as processes, answers them with the engine's own checks, and can
//! misbehave where a test wants it to.

pub mod process;
pub mod server;

pub use process::{Role, resolve, resolve_with};
pub use server::{Act, Server};

use std::path::{Path, PathBuf};

use piw_protocol::child::{ResolveResponse, ResolvedDefinition};
use serde_json::Value;

/// A project directory that is removed with it.
pub struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    /// A project with one workflow called `main`.
    pub fn new(source: &str) -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        project.write(".pi/workflows/main.workflow.ts", source);
        project
    }

    /// A project whose workflow `main` is `defineWorkflow` of this text, with everything of the SDK imported.
    pub fn with(definition: &str) -> Self {
        Self::new(&format!(
            "{}\nexport default defineWorkflow({definition});\n",
            imports()
        ))
    }

    /// Absolute path of the project.
    pub fn path(&self) -> PathBuf {
        std::fs::canonicalize(self.dir.path()).unwrap()
    }

    /// Writes a file.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Text of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.dir.path().join(path)).unwrap()
    }

    /// Whether a file exists.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.dir.path().join(path).exists()
    }

    /// The resolved definition of `main` for an input.
    pub fn resolve(&self, input: Value) -> ResolvedDefinition {
        match resolve(self, "main", Some(input)) {
            ResolveResponse::Resolved(resolved) => *resolved,
            other => panic!("not resolved: {other:?}"),
        }
    }

    /// A server with one run of `main`.
    pub fn start(&self, input: Value) -> Server {
        Server::new(self, self.resolve(input))
    }
}

/// The import line of workflows in tests.
pub fn imports() -> &'static str {
    "import { defineWorkflow, compute, action, shell, agent, decision, decisionEdge, assistantMessage, notify, checkpoint, includeWorkflow, idempotentEffect, \
     observedEffect, manualEffect, runCommandBatch } from 'piw';"
}
