//! `piw server …`: the server's life.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use piw_protocol::client::{Client, ClientOptions, UnixConnector};
use piw_protocol::effect::Review;
use piw_protocol::envelope::PACKAGE_VERSION;
use piw_protocol::ops::{ServerStatusReport, ServerStop, ServerStopReport, WorkflowEntry};
use piw_runner::discover::{self, Origin};
use piw_server::paths::Places;
use piw_server::start::Started;
use piw_server::stop::stop_by_signal;
use piw_server::{ServerOptions, lock};
use serde_json::json;

use super::output;
use super::session::{self, Autostart};
use crate::cli::{JsonFlag, LogsArgs, ServerCommand, ServerStopArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::text;

/// How long a stopped server may take to leave after it agreed to.
const LEAVE: Duration = Duration::from_secs(10);
/// Pause between two looks at the lock of a server that is being stopped.
const RELEASE_POLL: Duration = Duration::from_millis(50);

/// Carries out a server command.
///
/// # Errors
/// As the command.
pub fn run(command: ServerCommand) -> Outcome {
    match command {
        ServerCommand::Run(args) => attached(args.detached),
        ServerCommand::Start(args) => start(&args),
        ServerCommand::Status(args) => status(&args),
        ServerCommand::Stop(args) => stop(&args).map(|_| Exit::Done),
        ServerCommand::Restart(args) => restart(&args),
        ServerCommand::Logs(args) => logs(&args),
    }
}

fn attached(detached: bool) -> Outcome {
    let mut options = ServerOptions::from_env(detached).map_err(|error| Failure::usage(error.to_string()))?;
    options.workflows = Some(startable);
    piw_server::run(&options).map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    Ok(Exit::Done)
}

/// What `workflow.list` answers: the server itself knows no workflow files.
fn startable(project: &Path, global: Option<&Path>) -> Vec<WorkflowEntry> {
    let places = discover::Places {
        project: project.to_owned(),
        global: global.map(Path::to_owned),
    };
    // A directory that cannot be read has no workflows to start.
    let listed = discover::list(&places).unwrap_or_default();
    let mut names = HashSet::new();
    listed
        .into_iter()
        .map(|listed| WorkflowEntry {
            shadowed: !names.insert(listed.name.clone()),
            name: listed.name,
            origin: match listed.origin {
                Origin::Project => "project",
                Origin::Global => "global",
                Origin::Builtin => "builtin",
            }
            .to_owned(),
            path: listed.path.map(|path| path.to_string_lossy().into_owned()),
            summary: listed.description,
        })
        .collect()
}

fn start(args: &JsonFlag) -> Outcome {
    let places = session::places()?;
    let started = session::start(&places)?;
    let pid = lock::read_record(&places).map(|record| record.pid);
    if args.json {
        output::json(&json!({ "started": started == Started::Spawned, "pid": pid, "socket": places.socket }))?;
    } else {
        let said = match started {
            Started::Spawned => "started the server",
            Started::AlreadyRunning => "the server is running",
        };
        let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        output::text(&format!("{said}{pid} on {}\n", places.socket.display()))?;
    }
    Ok(Exit::Done)
}

fn status(args: &JsonFlag) -> Outcome {
    let session = session::connect(Autostart::Never)?;
    let report = session.call(session.client().server_status())?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&human(&report))?;
    }
    Ok(Exit::Done)
}

fn human(report: &ServerStatusReport) -> String {
    let mut rows = vec![
        ("state", report.state.clone()),
        ("version", report.version.clone()),
        ("pid", report.pid.to_string()),
        ("epoch", report.epoch.to_string()),
        (
            "uptime",
            crate::follow::elapsed(Duration::from_secs(report.uptime_seconds)),
        ),
        (
            "runners",
            format!("{} of {}", report.active_runners, report.runner_capacity),
        ),
        (
            "runs",
            format!(
                "{} queued, {} running, {} parked, {} waiting",
                report.queued, report.running, report.parked, report.waiting
            ),
        ),
        ("expired claims", report.expired_claims.to_string()),
        ("pending interactions", report.pending_interactions.to_string()),
        ("ambiguous effects", report.ambiguous_effects.to_string()),
        (
            "last sweep",
            report.last_sweep.clone().unwrap_or_else(|| "never".to_owned()),
        ),
    ];
    if let Some(error) = &report.write_error {
        rows.push(("cannot write", error.clone()));
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    output::table(&rows)
}

/// Stops the server; answers whether one ran.
fn stop(args: &ServerStopArgs) -> Result<bool, Failure> {
    let places = session::places()?;
    if !lock::is_held(&places) {
        output::text("no server is running\n")?;
        return Ok(false);
    }
    if let Some(other) = lock::read_record(&places).filter(|record| record.package_version != PACKAGE_VERSION) {
        // Its protocol is another one; its process is known all the same.
        stop_by_signal(&places, Duration::from_secs(args.wait), args.now)
            .map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
        output::text(&format!("stopped the server of version {}\n", other.package_version))?;
        return Ok(true);
    }
    session::prepare(&places, Autostart::Never)?;
    let request = ServerStop {
        wait_ms: Some(args.wait.saturating_mul(1000)),
        now: args.now,
    };
    // A server that ends otherwise while it is being stopped is stopped, too: nobody has to wait until it is given up.
    let stopped = session::runtime()?.block_on(async {
        let client = Client::start(UnixConnector::new(&places.socket), ClientOptions::impatient());
        tokio::select! {
            stopped = client.server_stop(&request) => stopped.map(|done| done.receipt),
            () = released(&places) => Ok(ServerStopReport::default()),
        }
    });
    let report = stopped.map_err(|error| session::failure(&error))?;
    let deadline = std::time::Instant::now() + LEAVE;
    while lock::is_held(&places) {
        if std::time::Instant::now() > deadline {
            return Err(Failure::new(
                Exit::Unavailable,
                format!("the server did not leave within {} s", LEAVE.as_secs()),
            )
            .hint("piw server logs shows what it is doing"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::from("stopped the server\n");
    if let Some(interrupted) = &report.interrupted {
        said.push_str(&warning(interrupted));
    }
    output::text(&said)?;
    Ok(true)
}

/// What a stop with `--now` may have left for a person to settle.
fn warning(interrupted: &Review) -> String {
    let mut said = String::from("manual effects were being applied; what was interrupted of them is ambiguous:\n");
    for effect in &interrupted.effects {
        said.push_str(&format!(
            "  {} of node {}, run {}\n",
            text::clean(&effect.effect_type),
            text::clean(&effect.node),
            effect.run_id
        ));
    }
    let more = interrupted.total.saturating_sub(interrupted.effects.len() as u64);
    if more > 0 {
        said.push_str(&format!("  and {more} more\n"));
    }
    said.push_str("after the next start, piw effects list shows what to review\n");
    said
}

/// Resolves once no server holds the lock.
async fn released(places: &Places) {
    while lock::is_held(places) {
        tokio::time::sleep(RELEASE_POLL).await;
    }
}

fn restart(args: &ServerStopArgs) -> Outcome {
    stop(args)?;
    start(&JsonFlag { json: false })
}

fn logs(args: &LogsArgs) -> Outcome {
    let path = session::places()?.log();
    let unreadable = |error: &io::Error| {
        Failure::new(
            Exit::NotFound,
            format!("cannot read the log {}: {error}", path.display()),
        )
        .hint("there is no log before the first server start")
    };
    let mut file = File::open(&path).map_err(|error| unreadable(&error))?;
    let from = tail_offset(&mut file, args.lines).map_err(|error| unreadable(&error))?;
    file.seek(SeekFrom::Start(from)).map_err(|error| unreadable(&error))?;
    let mut position = print_from(file, from).map_err(|error| unreadable(&error))?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    loop {
        std::thread::sleep(Duration::from_millis(200));
        position = continue_from(&path, position).map_err(|error| unreadable(&error))?;
    }
}

/// Byte offset of the last `lines` lines.
fn tail_offset(file: &mut File, lines: usize) -> io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let length = file.seek(SeekFrom::End(0))?;
    let mut start = length;
    let mut found = 0;
    while start > 0 {
        let block = BLOCK.min(start);
        start -= block;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; usize::try_from(block).unwrap_or(0)];
        file.read_exact(&mut bytes)?;
        for (index, byte) in bytes.iter().enumerate().rev() {
            // The newline that ends the file ends its last line, it does not begin another.
            if *byte == b'\n' && start + index as u64 + 1 < length {
                found += 1;
                if found == lines {
                    return Ok(start + index as u64 + 1);
                }
            }
        }
    }
    Ok(if lines == 0 { length } else { 0 })
}

fn print_from(file: File, from: u64) -> io::Result<u64> {
    let mut position = from;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        position += line.len() as u64;
        let content = String::from_utf8_lossy(&line);
        if output::text(&format!("{}\n", text::clean(content.trim_end_matches('\n')))).is_err() {
            return Err(io::Error::other("standard output is closed"));
        }
        line.clear();
    }
    Ok(position)
}

/// Prints what was appended; starts over when the log was rotated.
fn continue_from(path: &Path, position: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = if length < position { 0 } else { position };
    file.seek(SeekFrom::Start(from))?;
    print_from(file, from)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_tail_counts_lines_not_newlines() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\nthree\n").unwrap();
        let offsets = [0, 1, 2, 3, 9].map(|lines| tail_offset(&mut file, lines).unwrap());
        assert_eq!(offsets, [14, 8, 4, 0, 0]);
    }
}
