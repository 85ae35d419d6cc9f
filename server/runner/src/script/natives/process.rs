//! Child processes of `node:child_process`.
//!
//! Children stay in the runner's process group unless they ask to be detached, so that they die with it; those of a call are
//! killed when the call settles.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rquickjs::{Ctx, Exception, Function, Object, Result, TypedArray};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{Sender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::core::view;
use super::{describe_io, throw_io};
use crate::script::shared::{Child, Event, Shared};

/// A child process as JavaScript describes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    command: String,
    args: Vec<String>,
    #[serde(default)]
    argv0: Option<String>,
    cwd: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    /// `pipe`, `inherit` or `ignore` for each of the three streams.
    stdio: [String; 3],
    #[serde(default)]
    detached: bool,
    /// Milliseconds, for the blocking form.
    #[serde(default)]
    timeout: Option<f64>,
    /// Bytes a stream, for the blocking form.
    #[serde(default)]
    max_buffer: Option<f64>,
    #[serde(default)]
    kill_signal: Option<i32>,
}

impl Spec {
    fn command(&self, shared: &Shared) -> std::process::Command {
        let mut command = std::process::Command::new(&self.command);
        command.args(&self.args);
        if let Some(name) = &self.argv0 {
            command.arg0(name);
        }
        command.current_dir(match &self.cwd {
            Some(cwd) => shared.options.project.join(cwd),
            None => shared.options.project.clone(),
        });
        command.env_clear();
        command.envs(self.env.as_ref().unwrap_or(&shared.options.env));
        if let Some(mark) = std::env::var_os(piw_process::marker::VARIABLE) {
            command.env(piw_process::marker::VARIABLE, mark);
        }
        let stdio = |how: &str| if how == "ignore" { Stdio::null() } else { Stdio::piped() };
        command.stdin(if self.stdio[0] == "pipe" {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(stdio(&self.stdio[1])).stderr(stdio(&self.stdio[2]));
        if self.detached {
            command.process_group(0);
        }
        command
    }
}

/// Sends a signal to one process; errors (it is gone) do not matter.
pub(in crate::script) fn kill(pid: u32, signal: i32) -> bool {
    // Process 0 would mean the caller's own group.
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else {
        return false;
    };
    let Ok(signal) = nix::sys::signal::Signal::try_from(signal) else {
        return false;
    };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).is_ok()
}

pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    children(ctx, host, shared)
}

fn children<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let at = Rc::clone(shared);
    host.set(
        "spawn",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, id: u32, spec: String| -> Result<u32> {
                at.effect(&ctx, "node:child_process")?;
                let spec = parse(&ctx, &spec)?;
                start(&at, id, &spec).map_err(|error| throw_io(&ctx, &error, "spawn", &spec.command))
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "childWrite",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, id: u32, bytes: TypedArray<'js, u8>| -> Result<bool> {
                let bytes = view(&ctx, &bytes)?.to_vec();
                let children = at.children.borrow();
                let stdin = children.get(&id).and_then(|child| child.stdin.as_ref());
                Ok(stdin.is_some_and(|stdin| stdin.send(bytes).is_ok()))
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "childEnd",
        Function::new(ctx.clone(), move |id: u32| {
            if let Some(child) = at.children.borrow_mut().get_mut(&id) {
                child.stdin = None;
            }
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "childKill",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, id: u32, signal: i32| -> Result<bool> {
                at.effect(&ctx, "node:child_process")?;
                Ok(at.children.borrow().get(&id).is_some_and(|child| child.kill(signal)))
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "kill",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, pid: i32, signal: i32| -> Result<bool> {
                at.effect(&ctx, "process.kill")?;
                let signal = nix::sys::signal::Signal::try_from(signal).ok();
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal)
                    .map(|()| true)
                    .map_err(|error| throw_io(&ctx, &std::io::Error::from(error), "kill", ""))
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "spawnSync",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, spec: String, input: Option<TypedArray<'js, u8>>| -> Result<Object<'js>> {
                at.effect(&ctx, "node:child_process")?;
                let spec = parse(&ctx, &spec)?;
                let input = input
                    .as_ref()
                    .map(|input| view(&ctx, input).map(<[u8]>::to_vec))
                    .transpose()?;
                let out = Object::new(ctx.clone())?;
                match run_to_end(&at, &spec, input) {
                    Ok(done) => {
                        out.set("pid", done.pid)?;
                        out.set("status", status_json(done.status).to_string())?;
                        out.set("stdout", TypedArray::new_copy(ctx.clone(), done.output.0)?)?;
                        out.set("stderr", TypedArray::new_copy(ctx, done.output.1)?)?;
                        out.set("ended", done.ended)?;
                    }
                    Err(error) => {
                        let (code, text) = describe_io(&error);
                        out.set("errorCode", code)?;
                        out.set("errorText", text)?;
                        out.set("errno", error.raw_os_error().unwrap_or(0))?;
                    }
                }
                Ok(out)
            },
        )?,
    )
}

fn parse(ctx: &Ctx<'_>, spec: &str) -> Result<Spec> {
    serde_json::from_str(spec)
        .map_err(|error| Exception::throw_type(ctx, &format!("malformed process options: {error}")))
}

fn status_json(status: ExitStatus) -> Value {
    json!({ "code": status.code(), "signal": status.signal() })
}

fn start(shared: &Shared, id: u32, spec: &Spec) -> std::io::Result<u32> {
    let mut child = tokio::process::Command::from(spec.command(shared))
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().unwrap_or(0);
    let call = shared.call.get();
    let gone = CancellationToken::new();
    let stdin = child.stdin.take().map(|mut pipe| {
        let (sender, mut receiver) = unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(bytes) = receiver.recv().await {
                if pipe.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        });
        sender
    });
    let exited = CancellationToken::new();
    let port = Port {
        call,
        id,
        events: shared.events.clone(),
        exited: exited.clone(),
        gone: gone.clone(),
    };
    let out = child
        .stdout
        .take()
        .map(|pipe| tokio::spawn(port.clone().forward(pipe, 1)));
    let err = child
        .stderr
        .take()
        .map(|pipe| tokio::spawn(port.clone().forward(pipe, 2)));
    shared.children.borrow_mut().insert(
        id,
        Child {
            pid,
            stdin,
            gone: gone.clone(),
            exited: exited.clone(),
        },
    );
    shared.pending.set(shared.pending.get() + 1);
    tokio::spawn(async move {
        let status = tokio::select! {
            status = child.wait() => status,
            () = gone.cancelled() => return,
        };
        exited.cancel();
        let status = status.map_or_else(|_| json!({ "code": null, "signal": null }), status_json);
        // Exit is reported after the last output.
        for stream in [out, err].into_iter().flatten() {
            let _ = stream.await;
        }
        let _ = port
            .events
            .send(Event::Exit {
                call,
                id,
                status: status.to_string(),
            })
            .await;
    });
    Ok(pid)
}

/// Where the reports of a child process go.
#[derive(Clone)]
struct Port {
    call: u64,
    id: u32,
    events: Sender<Event>,
    /// The process has ended.
    exited: CancellationToken,
    /// The call has ended.
    gone: CancellationToken,
}

impl Port {
    /// Reads a stream to its end. A grandchild that keeps it open does not hold up the exit: once the process has ended, a
    /// quiet moment counts as the end, and so does more than a pipe can have held.
    async fn forward(self, mut pipe: impl tokio::io::AsyncRead + Unpin + Send, stream: u8) {
        const QUIET: Duration = Duration::from_millis(200);
        let mut buffer = vec![0; 64 << 10];
        let mut held = 1_usize << 20;
        loop {
            let quiet = async {
                self.exited.cancelled().await;
                tokio::time::sleep(QUIET).await;
            };
            let read = tokio::select! {
                biased;
                () = self.gone.cancelled() => return,
                read = pipe.read(&mut buffer) => read.unwrap_or(0),
                () = quiet => 0,
            };
            let read = if held == 0 { 0 } else { read };
            if self.exited.is_cancelled() {
                held = held.saturating_sub(read);
            }
            let bytes = buffer[..read].to_vec();
            let report = Event::Output {
                call: self.call,
                id: self.id,
                stream,
                bytes,
            };
            if self.events.send(report).await.is_err() || read == 0 {
                return;
            }
        }
    }
}

struct Finished {
    pid: u32,
    status: ExitStatus,
    output: (Vec<u8>, Vec<u8>),
    /// Why it was ended early: `ETIMEDOUT`, `ENOBUFS`, or empty.
    ended: &'static str,
}

/// Runs a process while the script waits; ends it at its own timeout and at the call's.
fn run_to_end(shared: &Shared, spec: &Spec, input: Option<Vec<u8>>) -> std::io::Result<Finished> {
    const DEFAULT_BUFFER: f64 = 1_048_576.0;
    let mut child = spec.command(shared).spawn()?;
    let pid = child.id();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped; fractions do not matter"
    )]
    let most = spec
        .max_buffer
        .unwrap_or(DEFAULT_BUFFER)
        .clamp(0.0, shared.options.memory_limit as f64) as usize;
    let started = Instant::now();
    let timeout = spec
        .timeout
        .filter(|ms| *ms > 0.0)
        .map(|ms| Duration::from_secs_f64(ms.min(1e9) / 1e3));
    if let Some(mut pipe) = child.stdin.take() {
        std::thread::spawn(move || {
            let _ = pipe.write_all(&input.unwrap_or_default());
        });
    }
    let (sender, receiver) = mpsc::sync_channel::<(u8, Vec<u8>)>(16);
    if let Some(pipe) = child.stdout.take() {
        collect(pipe, 1, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        collect(pipe, 2, sender.clone());
    }
    drop(sender);
    let mut output = (Vec::new(), Vec::new());
    let mut ended = "";
    let mut streams_open = true;
    let mut status = None;
    let mut drained_by = None::<Instant>;
    let signal = spec.kill_signal.unwrap_or(libc::SIGTERM);
    while status.is_none() || streams_open {
        if streams_open {
            match receiver.recv_timeout(Duration::from_millis(5)) {
                Ok((stream, bytes)) => {
                    let kept = if stream == 1 { &mut output.0 } else { &mut output.1 };
                    let room = most - kept.len();
                    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    if bytes.len() > room && ended.is_empty() {
                        ended = "ENOBUFS";
                        kill(pid, signal);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => streams_open = false,
            }
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
        if status.is_none() {
            status = child.try_wait()?;
        }
        if status.is_some() {
            // A grandchild may hold the streams open; give late output a moment only.
            let until = *drained_by.get_or_insert_with(|| Instant::now() + Duration::from_millis(200));
            streams_open = streams_open && Instant::now() < until;
        } else if timeout.is_some_and(|timeout| started.elapsed() >= timeout) && ended.is_empty() {
            ended = "ETIMEDOUT";
            kill(pid, signal);
        } else if shared.interrupted() {
            kill(pid, libc::SIGKILL);
        }
    }
    let status = status.ok_or_else(|| std::io::Error::other("the process has no status"))?;
    Ok(Finished {
        pid,
        status,
        output,
        ended,
    })
}

fn collect(mut pipe: impl Read + Send + 'static, stream: u8, to: mpsc::SyncSender<(u8, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            if to.send((stream, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    });
}
