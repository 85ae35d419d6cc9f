//! Prints how long it takes to start a script host and load a workflow, and what one compute step costs:
//! `cargo run --release -p piw-runner --example load-time -- <file.workflow.ts>`.

use std::path::PathBuf;
use std::time::Instant;

use piw_runner::script::{
    CallArgs, CallbackField, CallbackRef, Entry, NodeResult, ScriptHandle, ScriptHost, ScriptOptions,
};
use serde_json::Value;

const SMALL: &str = "import { defineWorkflow, compute } from 'piw';
export default defineWorkflow({ name: 'w', startAt: 'a', edges: [], nodes: { a: compute({ run: ({ outputs }) => ({ n: (outputs.a?.n ?? 0) + 1 }) }) } });";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().nth(1).map(PathBuf::from);
    let (path, bytes) = match given {
        Some(path) => (path.canonicalize()?, std::fs::read(&path)?),
        None => (
            std::env::temp_dir().join("small.workflow.ts"),
            SMALL.as_bytes().to_vec(),
        ),
    };
    let project = path.parent().ok_or("no parent directory")?.to_path_buf();
    let mut times = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        let host = ScriptHandle::start(ScriptOptions::new(&project))?;
        host.load(Entry::File {
            path: path.clone(),
            bytes: bytes.clone().into(),
        })
        .await?;
        times.push(started.elapsed());
    }
    times.sort();
    println!(
        "start and load: {:?} median, {:?} best, {:?} worst",
        times[10], times[0], times[19]
    );
    if std::env::args().nth(1).is_some() {
        return Ok(());
    }
    let host = ScriptHandle::start(ScriptOptions::new(&project))?;
    host.load(Entry::File {
        path,
        bytes: bytes.into(),
    })
    .await?;
    host.open_scope("", &Value::Null);
    let callback = CallbackRef {
        scope: String::new(),
        node: Some("a".to_owned()),
        field: CallbackField::Run,
    };
    let pure = || CallArgs {
        pure: true,
        ..CallArgs::default()
    };
    let started = Instant::now();
    host.call(callback.clone(), pure()).await?;
    println!("first compute step (makes the pure runtime): {:?}", started.elapsed());
    let started = Instant::now();
    for _ in 0..10_000 {
        let output = host.call(callback.clone(), pure()).await?;
        host.record("", "a", &NodeResult::ok(output));
    }
    println!("a compute step: {:?}", started.elapsed() / 10_000);
    Ok(())
}
