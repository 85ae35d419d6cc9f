//! The roles as processes: this test program started again.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use piw_process::role::{RoleSetup, prepare};
use piw_protocol::canonical;
use piw_protocol::child::{RESOLVE_SCHEMA, ResolveInput, ResolveRequest, ResolveResponse};
use piw_protocol::frame::{self, Decoder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Project;

/// Variable that turns the test program into a role.
const ROLE: &str = "PIW_TEST_ROLE";
/// Longest silence of a role before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A started role.
pub struct Role {
    pub child: Child,
    stream: UnixStream,
    decoder: Decoder,
}

impl Role {
    /// Starts `resolver` or `runner`. The user's configuration is `config.toml` in the project.
    pub fn start(role: &str, project: &Path) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "role_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("PIW_CONFIG_PATH", project.join("config.toml"))
            .env_remove("PIW_AGENT_COMMAND")
            .env_remove("PIW_PI_COMMAND")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        prepare(
            &mut command,
            RoleSetup {
                channel: theirs.into(),
                die_with_thread: true,
                open_files: None,
            },
        )
        .unwrap();
        let child = command.spawn().unwrap();
        drop(command);
        Self {
            child,
            stream: ours,
            decoder: Decoder::new(),
        }
    }

    /// Sends a message; a role that is gone takes none.
    pub fn send<T: Serialize>(&mut self, message: &T) -> bool {
        self.stream.write_all(&frame::encode(message).unwrap()).is_ok()
    }

    /// The next message; `None` when the role closed its channel.
    pub fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(canonical::from_slice(&frame).unwrap());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.decoder.push(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no message from the role: {error}"),
            }
        }
    }

    /// Closes the channel and waits for the process.
    pub fn hang_up(mut self) -> std::process::ExitStatus {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        self.child.wait().unwrap()
    }

    /// Kills the process at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of every test program's `role_process`: becomes the role when this process was started as one.
pub fn role_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let code = match role.as_str() {
        "resolver" => piw_runner::run_resolver(3),
        "validator" => piw_runner::run_validator(3),
        _ => piw_runner::run_runner(3),
    };
    // The test harness would print and could wait for the script thread; a role's process ends here.
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

/// Resolves a workflow in a resolver process.
pub fn resolve(project: &Project, workflow: &str, input: Option<Value>) -> ResolveResponse {
    resolve_with(project, workflow, input.map(ResolveInput::Inline))
}

/// The same with any kind of input.
pub fn resolve_with(project: &Project, workflow: &str, input: Option<ResolveInput>) -> ResolveResponse {
    let scratch = project.path().join("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let mut role = Role::start("resolver", &project.path());
    role.send(&ResolveRequest {
        schema: RESOLVE_SCHEMA.to_owned(),
        workflow: workflow.to_owned(),
        project_path: project.path().to_str().unwrap().to_owned(),
        global_dir: None,
        input,
        scratch_dir: Some(scratch.to_str().unwrap().to_owned()),
    });
    let answer = match role.next().expect("the resolver answers") {
        ResolveResponse::File(path) => canonical::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        answer => answer,
    };
    assert!(role.next::<Value>().is_none(), "a resolver answers once");
    assert!(role.child.wait().unwrap().success());
    answer
}
