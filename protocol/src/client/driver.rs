//! The client's task: moves bytes between a connection and the state machine, and waits between attempts. It holds no
//! protocol rules of its own.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::connector::Connector;
use super::core::{Command, Core};
use crate::frame::Decoder;

/// Bytes read at once.
const READ_BUFFER: usize = 64 * 1024;

/// Why a connection is no longer used.
enum End {
    /// It failed.
    Lost(String),
    /// The other side does not let this client in.
    Refused(String),
    /// Nobody needs it any more.
    Unused,
    /// The client must not go on.
    Stopped,
}

/// Runs until every handle is gone.
pub(super) async fn run<C: Connector>(connector: C, mut core: Core, mut commands: mpsc::UnboundedReceiver<Command>) {
    loop {
        let end = match attempt(&connector, &mut core, &mut commands).await {
            Ok(stream) => serve(stream, &mut core, &mut commands).await,
            Err(end) => end,
        };
        let delay = match end {
            End::Unused => return,
            End::Stopped => break,
            End::Lost(reason) => core.lost(reason, false),
            End::Refused(reason) => core.lost(reason, true),
        };
        if !idle(delay, &mut core, &mut commands).await {
            return;
        }
    }
    // Stopped: every further command is answered with the reason.
    while let Some(command) = commands.recv().await {
        core.command(command, Instant::now());
    }
}

async fn attempt<C: Connector>(
    connector: &C,
    core: &mut Core,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> Result<C::Stream, End> {
    let connect = timeout(core.hello_timeout(), connector.connect());
    tokio::pin!(connect);
    loop {
        tokio::select! {
            connected = &mut connect => {
                return match connected {
                    Ok(Ok(stream)) => Ok(stream),
                    Ok(Err(error)) if error.kind() == ErrorKind::PermissionDenied => Err(End::Refused(error.to_string())),
                    Ok(Err(error)) => Err(End::Lost(error.to_string())),
                    Err(_) => Err(End::Lost("connecting took too long".to_owned())),
                };
            }
            command = commands.recv() => match command {
                Some(command) => core.command(command, Instant::now()),
                None => return Err(End::Unused),
            },
        }
    }
}

/// Waits between attempts; answers whether there is still someone to wait for.
async fn idle(delay: Duration, core: &mut Core, commands: &mut mpsc::UnboundedReceiver<Command>) -> bool {
    let until = Instant::now() + delay;
    loop {
        tokio::select! {
            () = sleep_until(until) => return true,
            command = commands.recv() => match command {
                Some(command) => core.command(command, Instant::now()),
                None => return false,
            },
        }
    }
}

async fn serve<S>(stream: S, core: &mut Core, commands: &mut mpsc::UnboundedReceiver<Command>) -> End
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut decoder = Decoder::new();
    let mut incoming = vec![0; READ_BUFFER];
    // The frame being written and how much of it is out; reading goes on meanwhile, so that two full buffers cannot block.
    let mut frame: Vec<u8> = Vec::new();
    let mut written = 0;
    core.connected(Instant::now());
    loop {
        if core.is_stopped() {
            return End::Stopped;
        }
        if written == frame.len() {
            written = 0;
            frame = core.next_frame().unwrap_or_default();
        }
        let timer = core.next_timer();
        let step = tokio::select! {
            read = reader.read(&mut incoming) => match read {
                Ok(0) => Err(match decoder.finish() {
                    Ok(()) => "the server closed the connection".to_owned(),
                    Err(error) => error.to_string(),
                }),
                Ok(length) => take(&incoming[..length], &mut decoder, core),
                Err(error) => Err(error.to_string()),
            },
            wrote = writer.write(&frame[written..]), if written < frame.len() => match wrote {
                Ok(0) => Err("the server takes no more bytes".to_owned()),
                Ok(length) => {
                    written += length;
                    Ok(())
                }
                Err(error) => Err(error.to_string()),
            },
            command = commands.recv() => match command {
                Some(command) => {
                    core.command(command, Instant::now());
                    Ok(())
                }
                None => return End::Unused,
            },
            () = wait(timer) => core.timer(Instant::now()),
        };
        if let Err(reason) = step {
            return End::Lost(reason);
        }
    }
}

fn take(bytes: &[u8], decoder: &mut Decoder, core: &mut Core) -> Result<(), String> {
    core.heard(Instant::now());
    decoder.push(bytes);
    while let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
        core.frame(&frame, Instant::now())?;
        if core.is_stopped() {
            break;
        }
    }
    Ok(())
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
