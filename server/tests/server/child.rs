//! A scripted child for tests: this very test binary, started again as `internal resolver|runner` through a small shell script.
//!
//! The workflow's name is its script: nodes in order, separated by spaces, each `name` or `name:behaviour`.
//!
//! | behaviour | the node |
//! | --- | --- |
//! | (none) | finishes |
//! | `gate` | finishes once the file `<name>.go` is in the project directory |
//! | `hang` | never finishes by itself; obeys orders |
//! | `deaf` | never finishes and obeys nothing, not even SIGTERM |
//! | `crash` | kills its process |
//! | `crashonce` | kills its process the first time |
//! | `group` | starts a process in a group of its own, registers it, writes its pid to `<name>.pid`, and goes deaf |
//! | `borrow` | tries to register processes that it may not, writes the refusals to `<name>.refused`, and finishes |
//! | `overrun` | has a budget of one millisecond and goes deaf |
//! | `wait` | is a checkpoint |
//! | `fail` | fails |
//! | `notify` | tells its session something, and finishes |
//!
//! Every execution appends the node's name to the file `log` in the project directory. Special scripts: `!refuse`,
//! `!unsupported`, `!agentless`, `!die`, `!slow` (resolves once `resolve.go` exists).
#![expect(unsafe_code, reason = "descriptor 3 has no safe constructor")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::thread;
use std::time::Duration;

use piw_protocol::canonical;
use piw_protocol::child::{
    CHILD_SCHEMA, ChildBody, ChildMessage, Command, Next, NodeFinish, NodeStart, Position, PushAction, RESOLVE_SCHEMA,
    ReplyOutcome, ReplyPayload, ResolveInput, ResolveRequest, ResolveResponse, ResolvedDefinition, RunFinish,
    RunnerLaunch, ServerReply, ToRunner, ValueRef,
};
use piw_protocol::definition::{
    DEFINITION_SCHEMA, DefinitionSnapshot, EdgeRoute, EdgeSnapshot, NodeSnapshot, NodeType,
};
use piw_protocol::frame;
use piw_protocol::run::{ErrorInfo, NodeOutcome, RunStatus, SourceMap, SourceRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Names the role when this binary is a child.
const ROLE: &str = "PIW_TEST_ROLE";
/// Names the script.
const EXE: &str = "PIW_TEST_EXE";

/// Makes the executable that acts as the server (`server run --detached`) and as its children (`internal <role>`). `entry` is
/// the name of the test that calls [`child_main`], `environment` what else to set (`NAME=value …`).
pub fn executable(dir: &Path, entry: &str, environment: &str) -> PathBuf {
    let path = dir.join("child.sh");
    let binary = std::env::current_exe().expect("the test binary");
    // The test harness prints on standard output, which is the server's handshake: that moves to descriptor 3.
    let script = format!(
        "#!/bin/sh\nexport {environment} {EXE}='{path}'\nrun=\"exec '{binary}' --exact {entry} --nocapture --test-threads 1\"\n\
         case $1 in\nserver) export {ROLE}=server; eval \"$run\" 3>&1 >/dev/null ;;\n\
         *) export {ROLE}=$2; eval \"$run\" ;;\nesac\n",
        path = path.display(),
        binary = binary.display(),
    );
    fs::write(&path, script).expect("script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    path
}

/// Acts as a child when this binary was started as one; returns at once otherwise.
pub fn child_main() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => server(),
        Ok("resolver") => resolver(&mut Channel::inherited()),
        Ok("runner") => Runner::start(Channel::inherited()).run(),
        _ => return,
    }
    std::process::exit(0);
}

fn server() {
    // SAFETY: the script put the handshake on descriptor 3 and nothing else in this process uses it.
    let handshake = unsafe { OwnedFd::from_raw_fd(3) };
    nix::unistd::dup2_stdout(&handshake).expect("standard output");
    drop(handshake);
    let mut options = piw_server::ServerOptions::from_env(true).expect("options");
    options.internal_exe = std::env::var_os(EXE).expect("the script").into();
    if piw_server::run(&options).is_err() {
        std::process::exit(1);
    }
}

struct Channel {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Channel {
    fn inherited() -> Self {
        // SAFETY: the server put the channel on descriptor 3 and nothing else in this process uses it.
        let writer = unsafe { UnixStream::from_raw_fd(3) };
        Self {
            reader: BufReader::new(writer.try_clone().expect("clone")),
            writer,
        }
    }

    fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).ok()?;
        line.pop()?;
        Some(canonical::from_slice(&line).expect("a valid message"))
    }

    fn write<T: Serialize>(&mut self, message: &T) {
        let _ = self.writer.write_all(&frame::encode(message).expect("fits"));
    }
}

fn parse(script: &str) -> Vec<(String, String)> {
    let split = |word: &str| {
        let (name, behaviour) = word.split_once(':').unwrap_or((word, ""));
        (name.to_owned(), behaviour.to_owned())
    };
    script.split_whitespace().map(split).collect()
}

fn snapshot(script: &str) -> DefinitionSnapshot {
    let nodes = parse(script);
    let node = |behaviour: &str| NodeSnapshot {
        node_type: if behaviour == "wait" {
            NodeType::Checkpoint
        } else {
            NodeType::Compute
        },
        action_execution: None,
        effect: None,
        status_detail: None,
        timeout_ms: None,
        summary: (behaviour == "wait").then(|| "Go on?".to_owned()),
        human_decision: None,
        expected_output: None,
        allowed_tools: None,
        notify_kind: None,
        callbacks: if behaviour == "wait" {
            vec![]
        } else {
            vec!["run".to_owned()]
        },
    };
    DefinitionSnapshot {
        schema: DEFINITION_SCHEMA.to_owned(),
        name: "scripted".to_owned(),
        start_at: nodes[0].0.clone(),
        max_steps: None,
        node_order: nodes.iter().map(|(name, _)| name.clone()).collect(),
        nodes: nodes
            .iter()
            .map(|(name, behaviour)| (name.clone(), node(behaviour)))
            .collect(),
        edges: nodes
            .windows(2)
            .map(|pair| EdgeSnapshot {
                from: pair[0].0.clone(),
                route: EdgeRoute::To { to: pair[1].0.clone() },
            })
            .collect(),
        includes: Vec::new(),
        exits: BTreeMap::new(),
        settings: false,
    }
}

fn resolver(channel: &mut Channel) {
    let request: ResolveRequest = channel.read().expect("a request");
    assert_eq!(request.schema, RESOLVE_SCHEMA);
    let script = request.workflow.as_str();
    if script == "!die" {
        std::process::exit(3);
    }
    if script == "!refuse" {
        return channel.write(&ResolveResponse::Refused(ErrorInfo {
            code: Some("load".to_owned()),
            message: "line 3: nonsense".to_owned(),
            stack: None,
        }));
    }
    if script == "!slow" {
        wait_for(&Path::new(&request.project_path).join("resolve.go"));
    }
    let nodes = if script.starts_with('!') { "one" } else { script };
    let definition = snapshot(nodes);
    let digest = canonical::digest(&serde_json::to_value(&definition).expect("plain"));
    let input = match request.input {
        // A large one comes back as a file, as a resolver would do it.
        Some(ResolveInput::File(path)) => {
            let copy = Path::new(request.scratch_dir.as_ref().expect("scratch")).join("normalised.json");
            fs::copy(path, &copy).expect("copied");
            Some(ResolveInput::File(copy.to_string_lossy().into_owned()))
        }
        inline => inline,
    };
    channel.write(&ResolveResponse::Resolved(Box::new(ResolvedDefinition {
        definition,
        definition_digest: digest,
        sources: SourceMap {
            root: SourceRef::File {
                path: nodes.to_owned(),
                hash: "0".repeat(64),
            },
            mounted: Vec::new(),
            modules: Vec::new(),
        },
        title: Some("A title".to_owned()),
        input,
        unsupported: if script == "!unsupported" {
            vec!["node one is a human decision, which this version cannot execute".to_owned()]
        } else {
            Vec::new()
        },
        needs_session: Vec::new(),
        agent_problem: (script == "!agentless").then(|| "no agent is configured".to_owned()),
        warnings: Vec::new(),
    })));
}

fn wait_for(path: &Path) {
    while !path.exists() {
        thread::sleep(Duration::from_millis(2));
    }
}

struct Runner {
    channel: Channel,
    launch: RunnerLaunch,
    nodes: Vec<(String, String)>,
    revision: u64,
    messages: u32,
    /// A push that arrived while a reply was awaited.
    ordered: Option<PushAction>,
}

impl Runner {
    fn start(mut channel: Channel) -> Self {
        let launch: RunnerLaunch = channel.read().expect("a launch");
        let SourceRef::File { path, .. } = &launch.workflow_source.root else {
            panic!("no script")
        };
        let nodes = parse(path);
        Self {
            channel,
            launch,
            nodes,
            revision: 0,
            messages: 0,
            ordered: None,
        }
    }

    fn send(&mut self, body: ChildBody, attempt_id: Option<&str>, revision: bool) -> ServerReply {
        let reply = self.ask(body, attempt_id, revision);
        assert_ne!(reply.outcome, ReplyOutcome::Rejected, "{reply:?}");
        reply
    }

    /// Sends a message that may be refused.
    fn ask(&mut self, body: ChildBody, attempt_id: Option<&str>, revision: bool) -> ServerReply {
        self.messages += 1;
        let message_id = format!("{}-{}", self.launch.runner_epoch, self.messages);
        let message = ChildMessage {
            schema: CHILD_SCHEMA.to_owned(),
            run_id: self.launch.run_id.clone(),
            generation: self.launch.generation,
            runner_epoch: self.launch.runner_epoch.clone(),
            message_id: message_id.clone(),
            attempt_id: attempt_id.map(ToOwned::to_owned),
            expected_revision: revision.then_some(self.revision),
            body,
        };
        self.channel.write(&message);
        loop {
            match self.channel.read().unwrap_or_else(|| std::process::exit(1)) {
                ToRunner::Reply(reply) => {
                    assert_eq!(reply.message_id, message_id);
                    self.revision = reply.revision.unwrap_or(self.revision);
                    if reply.outcome == ReplyOutcome::ClaimLost {
                        std::process::exit(0);
                    }
                    return reply;
                }
                ToRunner::Push(push) => self.ordered = Some(push.push),
            }
        }
    }

    fn exit(&mut self, reason: &str) -> ! {
        self.send(
            ChildBody::Exiting {
                reason: reason.to_owned(),
            },
            None,
            false,
        );
        std::process::exit(0);
    }

    fn command(&mut self) -> Command {
        let digest = self.launch.definition_digest.clone();
        match self
            .send(
                ChildBody::Ready {
                    definition_digest: digest,
                },
                None,
                false,
            )
            .payload
        {
            Some(ReplyPayload::Command(command)) => *command,
            other => panic!("no command: {other:?}"),
        }
    }

    fn run(mut self) {
        let command = self.command();
        self.revision = command.state.revision;
        let index_of = |id: &str| self.nodes.iter().position(|(name, _)| name == id).expect("a node");
        let (mut index, visit) = match &command.state.position {
            Position::Start => (0, 1),
            Position::Node { node_id, visit, .. } => (index_of(node_id), *visit),
            Position::After { node_id } => (index_of(node_id) + 1, 1),
            Position::Settled { node_id, .. } => panic!("no script asks a session, not even {node_id}"),
        };
        if index == self.nodes.len() {
            self.send(ChildBody::RunFinished(finish(json!("answered"))), None, true);
            self.exit("done");
        }
        let mut start = self.node_start(index, visit);
        self.send(
            ChildBody::NodeStarted(start.clone()),
            Some(&start.attempt_id.clone()),
            true,
        );
        loop {
            let outcome = self.execute(index, &start.attempt_id.clone());
            let (name, behaviour) = self.nodes[index].clone();
            let last = index + 1 == self.nodes.len();
            let next = if behaviour == "wait" {
                Next::Wait
            } else if outcome == NodeOutcome::Failed {
                Next::Finish(RunFinish {
                    status: RunStatus::Failed,
                    final_output: ValueRef::null(),
                    error: Some(ErrorInfo {
                        message: format!("node \"{name}\" failed: it failed"),
                        ..failure()
                    }),
                    leaves: Vec::new(),
                })
            } else if last {
                Next::Finish(finish(json!(name)))
            } else {
                Next::Start(self.node_start(index + 1, 1))
            };
            let finished = NodeFinish {
                attempt_id: start.attempt_id.clone(),
                node_id: name.clone(),
                outcome,
                output: ValueRef::Inline(if outcome == NodeOutcome::Ok {
                    json!(name)
                } else {
                    Value::Null
                }),
                error: (outcome == NodeOutcome::Failed).then(failure),
                action: None,
                status_detail: None,
                active_ms: 1,
                settle: None,
                leaves: Vec::new(),
                next: next.clone(),
            };
            let body = match outcome {
                NodeOutcome::Ok => ChildBody::NodeFinished(Box::new(finished)),
                _ => ChildBody::NodeFailed(Box::new(finished)),
            };
            self.send(body, Some(&start.attempt_id.clone()), true);
            match next {
                Next::Start(next) if self.ordered.is_none() => (start, index) = (next, index + 1),
                Next::Start(_) => self.exit("stopped"),
                _ => self.exit("done"),
            }
        }
    }

    fn node_start(&self, index: usize, visit: u32) -> NodeStart {
        let (name, behaviour) = &self.nodes[index];
        NodeStart {
            attempt_id: format!("{}-{name}-{index}", self.launch.runner_epoch),
            node_id: name.clone(),
            visit,
            status_detail: None,
            timeout_ms: Some(if behaviour == "overrun" { 1 } else { 900_000 }),
            enters: Vec::new(),
            leaves: Vec::new(),
        }
    }

    fn project(&self, name: &str) -> PathBuf {
        Path::new(&self.launch.project_path).join(name)
    }

    fn execute(&mut self, index: usize, attempt: &str) -> NodeOutcome {
        let (name, behaviour) = self.nodes[index].clone();
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.project("log"))
            .expect("log");
        writeln!(log, "{name}").expect("logged");
        match behaviour.as_str() {
            "gate" => self.gate(&name),
            "hang" => self.obey(),
            "deaf" | "overrun" => deaf(),
            "crash" => std::process::abort(),
            "crashonce" => {
                let marker = self.project(&format!("{name}.crashed"));
                if !marker.exists() {
                    fs::write(marker, "").expect("marker");
                    std::process::abort();
                }
            }
            "group" => {
                #[expect(clippy::zombie_processes, reason = "the server has to end it")]
                let child = Process::new("sleep")
                    .arg("600")
                    .process_group(0)
                    .spawn()
                    .expect("sleep");
                let identity = piw_process::ProcessIdentity::of(child.id())
                    .expect("table")
                    .expect("alive");
                let body = ChildBody::ProcessRegister {
                    pid: identity.pid,
                    start_identity: identity.start,
                    label: "sleep".to_owned(),
                };
                self.send(body, Some(attempt), false);
                fs::write(self.project(&format!("{name}.pid")), child.id().to_string()).expect("pid");
                deaf();
            }
            "borrow" => self.borrow(&name, attempt),
            "notify" => {
                let body = ChildBody::Notification {
                    kind: "progress".to_owned(),
                    message: format!("{name} is done"),
                    index: 0,
                };
                self.send(body, Some(attempt), false);
            }
            "fail" => return NodeOutcome::Failed,
            _ => {}
        }
        NodeOutcome::Ok
    }

    /// Asks for what nobody may have: a child in this runner's own group, this runner's parent, and a process that is gone.
    fn borrow(&mut self, name: &str, attempt: &str) {
        let mut inside = Process::new("sleep").arg("600").spawn().expect("sleep");
        let mut gone = Process::new("true").process_group(0).spawn().expect("true");
        let identity = |pid| piw_process::ProcessIdentity::of(pid).expect("table").expect("alive");
        let ended = identity(gone.id());
        gone.wait().expect("ended");
        let mut refusals = String::new();
        for process in [
            identity(inside.id()),
            identity(std::os::unix::process::parent_id()),
            ended,
        ] {
            let body = ChildBody::ProcessRegister {
                pid: process.pid,
                start_identity: process.start,
                label: "borrowed".to_owned(),
            };
            let reply = self.ask(body, Some(attempt), false);
            assert_eq!(reply.outcome, ReplyOutcome::Rejected, "{reply:?}");
            refusals.push_str(&reply.error.expect("a reason").message);
            refusals.push('\n');
        }
        inside.kill().expect("killed");
        inside.wait().expect("ended");
        fs::write(self.project(&format!("{name}.refused")), refusals).expect("written");
    }

    /// Waits for the gate's file; orders wait, as they would for a node that cannot be interrupted.
    fn gate(&mut self, name: &str) {
        wait_for(&self.project(&format!("{name}.go")));
    }

    /// Waits for an order and leaves as it says.
    fn obey(&mut self) {
        loop {
            // An order to stop waits for the node's end, which never comes.
            if self.ordered.take() == Some(PushAction::Cancel) {
                self.exit("cancelled");
            }
            match self.channel.read() {
                Some(ToRunner::Push(push)) => self.ordered = Some(push.push),
                Some(ToRunner::Reply(reply)) => panic!("an answer to nothing: {reply:?}"),
                None => std::process::exit(1),
            }
        }
    }
}

/// Ignores everything but SIGKILL.
fn deaf() {
    // SAFETY: ignoring a signal touches no memory of ours.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
    loop {
        thread::park();
    }
}

fn finish(output: Value) -> RunFinish {
    RunFinish {
        status: RunStatus::Completed,
        final_output: ValueRef::Inline(output),
        error: None,
        leaves: Vec::new(),
    }
}

fn failure() -> ErrorInfo {
    ErrorInfo {
        code: Some("nodeFailed".to_owned()),
        message: "it failed".to_owned(),
        stack: None,
    }
}
