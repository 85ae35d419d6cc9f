//! Behaviour of the script host as the code around it sees it.

mod basics;
mod limits;
mod modules;
mod node;
mod purity;
mod sdk;
mod values;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    CallArgs, CallError, CallbackField, CallbackRef, ConsoleLevel, Entry, LoadError, Loaded, ScriptHandle, ScriptHost,
    ScriptOptions,
};

/// A project directory and the host that works in it.
struct Project {
    dir: tempfile::TempDir,
    console: Arc<Mutex<Vec<String>>>,
    options: ScriptOptions,
}

impl Project {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let console = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&console);
        let mut options = ScriptOptions::new(dir.path().canonicalize().unwrap());
        options.console = Arc::new(move |level: ConsoleLevel, text: &str| {
            sink.lock().unwrap().push(format!("{level:?} {text}"));
        });
        Self { dir, console, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn entry(&self, name: &str) -> Entry {
        let path = self.path(name);
        Entry::File {
            bytes: std::fs::read(&path).unwrap().into(),
            path,
        }
    }

    fn host(&self) -> ScriptHandle {
        ScriptHandle::start(self.options.clone()).unwrap()
    }

    /// Loads `name`, which holds `text`.
    async fn load(&self, name: &str, text: &str) -> Result<(ScriptHandle, Loaded), LoadError> {
        self.write(name, text);
        let host = self.host();
        let loaded = host.load(self.entry(name)).await?;
        Ok((host, loaded))
    }

    /// Loads a workflow of one action node with this body and runs it.
    async fn action(&self, imports: &str, body: &str) -> Result<Value, CallError> {
        let (host, _) = self
            .load("a.workflow.ts", &one_node("action", imports, body))
            .await
            .unwrap();
        host.open_scope("", &Value::Null);
        host.call(run("a"), args(false)).await
    }

    /// The same for a compute node.
    async fn compute(&self, imports: &str, body: &str) -> Result<Value, CallError> {
        let (host, _) = self
            .load("a.workflow.ts", &one_node("compute", imports, body))
            .await
            .unwrap();
        host.open_scope("", &Value::Null);
        host.call(run("a"), args(true)).await
    }

    fn printed(&self) -> Vec<String> {
        self.console.lock().unwrap().clone()
    }
}

fn one_node(kind: &str, imports: &str, body: &str) -> String {
    let effect = if kind == "action" {
        "effect: manualEffect('t'), "
    } else {
        ""
    };
    format!(
        "import {{ defineWorkflow, compute, action, manualEffect, runCommandBatch, progress }} from 'piw';\n{imports}\nexport default defineWorkflow({{ name: 'w', startAt: 'a', edges: [], nodes: {{ a: {kind}({{ {effect}run: async (ctx: any) => {{\n{body}\n}} }}) }} }});\n"
    )
}

fn run(node: &str) -> CallbackRef {
    callback("", Some(node), CallbackField::Run)
}

fn callback(scope: &str, node: Option<&str>, field: CallbackField) -> CallbackRef {
    CallbackRef {
        scope: scope.to_owned(),
        node: node.map(str::to_owned),
        field,
    }
}

fn args(pure: bool) -> CallArgs {
    CallArgs {
        pure,
        deadline: Some(Instant::now() + Duration::from_secs(20)),
        ..CallArgs::default()
    }
}

fn within(pure: bool, milliseconds: u64) -> CallArgs {
    CallArgs {
        pure,
        deadline: Some(Instant::now() + Duration::from_millis(milliseconds)),
        ..CallArgs::default()
    }
}

fn builtin(id: &str, text: &str) -> Entry {
    Entry::Builtin {
        id: id.to_owned(),
        revision: piw_protocol::canonical::sha256_hex(text.as_bytes()),
        bytes: text.as_bytes().into(),
    }
}

fn contains(list: &[String], part: &str) -> bool {
    list.iter().any(|line| line.contains(part))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or("")
}
