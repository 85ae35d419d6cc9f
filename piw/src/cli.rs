//! The command line: flags, dispatch, exit codes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand};
use piw_protocol::envelope::MAX_ID;
use piw_protocol::run::DisplayStatus;

use crate::command;
use crate::failure::{Exit, Failure, Outcome};
use crate::filter;
use crate::text;

/// Run agent workflows durably on this machine and watch them live.
#[derive(Debug, Parser)]
#[command(name = "piw", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
#[command(
    after_help = "Without a command, piw opens the viewer on all runs; with a run id, on that run.\n\
    Exit codes: 0 done, 1 failed, 2 usage, 3 unavailable, 4 not found, 5 conflict, 6 waiting for input, 130 interrupted."
)]
pub struct Cli {
    /// The command; the viewer when absent.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to view.
    #[command(flatten)]
    pub view: View,
}

/// An id, or a beginning of one, as a server takes it: asking it for another one is no use.
fn id(given: &str) -> Result<String, String> {
    match given.len() {
        0 => Err("an id is not empty".to_owned()),
        1..=MAX_ID => Ok(given.to_owned()),
        more => Err(format!("an id has at most {MAX_ID} bytes, not {more}")),
    }
}

/// Flags of the viewer.
#[derive(Debug, Args)]
pub struct View {
    /// Open the viewer fixed on this run
    #[arg(value_name = "RUN_ID", value_parser = id)]
    pub run_id: Option<String>,
    /// Print one 120 x 40 plain-text frame of the run and exit
    #[arg(long, requires = "run_id")]
    pub once: bool,
    /// The theme; default `PIW_THEME`, else the configured one
    #[arg(long, value_name = "NAME", conflicts_with = "once")]
    pub theme: Option<String>,
    /// Draw with ASCII characters only
    #[arg(long, conflicts_with = "once")]
    pub ascii: bool,
    /// Watch another machine over ssh; may be given several times
    #[arg(long, value_name = "HOST")]
    pub ssh: Vec<String>,
    /// Watch the server behind a relay (see `piw serve`); may be given several times
    #[arg(long, value_name = "URL")]
    pub connect: Vec<String>,
    /// The piw command on the machines of --ssh
    #[arg(long, value_name = "COMMAND", default_value = "piw", requires = "ssh")]
    pub remote_piw: String,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a run and follow it
    Run(RunArgs),
    /// List runs
    Ps(PsArgs),
    /// Show one run
    Show(RunRef),
    /// Stop a run at its next durable boundary; `resume` goes on
    Pause(RunRef),
    /// Go on with a paused or parked run
    Resume(RunRef),
    /// End a run for good
    Cancel(RunRef),
    /// Start a failed or cancelled run again from its original input
    Restart(RunRef),
    /// Answer the checkpoint that a run waits for
    Answer(AnswerArgs),
    /// Side effects whose outcome nobody can prove
    #[command(subcommand)]
    Effects(EffectsCommand),
    /// List the workflows that can be started from here
    Workflows(JsonFlag),
    /// Validate a workflow and draw its graph
    Check(CheckArgs),
    /// Write a first workflow and editor types into .pi/workflows/
    Init(InitArgs),
    /// Write the TypeScript declarations of the workflow SDK
    Types(TypesArgs),
    /// Look after the stored state: sizes, checks, backups, deletion
    #[command(subcommand)]
    State(StateCommand),
    /// The workflow server's life
    #[command(subcommand)]
    Server(ServerCommand),
    /// The extension for Pi: install it, remove it, find out why it does not work
    #[command(subcommand)]
    Pi(PiCommand),
    /// Let viewers connect over a WebSocket, on loopback only
    Serve(ServeArgs),
    /// Carry one connection to the server; what `piw --ssh` runs on the other machine
    Relay(RelayArgs),
    /// List the themes of the viewer
    Themes(JsonFlag),
    /// List the viewer's actions with their keys
    Keys(JsonFlag),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Roles that the server starts; not for people
    #[command(subcommand, hide = true)]
    Internal(InternalRole),
}

/// Arguments of `piw run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A name (see `piw workflows`), a path, or builtin:<name>
    pub workflow: String,
    /// Input: JSON, @file, or - for standard input
    #[arg(long, short = 'i', value_name = "JSON|@FILE|-")]
    pub input: Option<String>,
    /// Bind the run to this Pi session
    #[arg(long, value_name = "PI_SESSION")]
    pub session: Option<String>,
    /// Print the run id and return at once
    #[arg(long, short = 'd')]
    pub detach: bool,
    /// Print one JSON document: {"runId","status","finalOutput","error"}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw ps`.
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Only runs that match, as in the viewer's filter: words, status:NAME, workflow:NAME, age:<2h, age:>3d
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Only runs of this status; may be given several times, or several with commas
    #[arg(long, short = 's', value_name = "STATUS", value_delimiter = ',', value_parser = filter::status)]
    pub status: Vec<DisplayStatus>,
    /// Only runs of the workflow of this name
    #[arg(long, short = 'w', value_name = "NAME")]
    pub workflow: Option<String>,
    /// Only runs created at most so long ago: 30s, 15m, 2h, 3d, 1w
    #[arg(long, value_name = "AGE", value_parser = filter::age)]
    pub since: Option<i64>,
    /// Only runs created longer ago than this
    #[arg(long, value_name = "AGE", value_parser = filter::age)]
    pub until: Option<i64>,
    /// At most so many runs, newest first
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: u64,
    /// Every run that matches
    #[arg(long, short = 'a', conflicts_with = "limit")]
    pub all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// A run, and how to print.
#[derive(Debug, Args)]
pub struct RunRef {
    /// The run id, or a unique beginning of it
    #[arg(value_parser = id)]
    pub run_id: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw answer`.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The run id, or a unique beginning of it
    #[arg(value_parser = id)]
    pub run_id: String,
    /// The answer of a checkpoint: JSON, @file, or - for standard input; without it a person is asked here
    #[arg(value_name = "JSON|@FILE|-")]
    pub answer: Option<String>,
    /// Follow the run that goes on with the answer
    #[arg(long, short = 'f')]
    pub follow: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Commands of the review of side effects.
#[derive(Debug, Subcommand)]
pub enum EffectsCommand {
    /// List the effects that wait for a review
    List(EffectsListArgs),
    /// Say that an effect happened: it is not tried again, and its node goes on
    Confirm(EffectsConfirmArgs),
    /// Apply an effect once more, accepting that it may happen twice
    Retry(EffectRef),
}

/// Arguments of `piw effects list`.
#[derive(Debug, Args)]
pub struct EffectsListArgs {
    /// Only effects of this run: its id, or a unique beginning of it
    #[arg(value_parser = id)]
    pub run_id: Option<String>,
    /// Effects in every state, not only those that wait for a review
    #[arg(long, short = 'a')]
    pub all: bool,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw effects confirm`.
#[derive(Debug, Args)]
pub struct EffectsConfirmArgs {
    /// The effect id, or a unique beginning of it
    #[arg(value_parser = id)]
    pub effect_id: String,
    /// What the effect gave, as the output of its node; default null
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub result: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// An effect, and how to print.
#[derive(Debug, Args)]
pub struct EffectRef {
    /// The effect id, or a unique beginning of it
    #[arg(value_parser = id)]
    pub effect_id: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Only `--json`.
#[derive(Debug, Args)]
pub struct JsonFlag {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A name, a path, or builtin:<name>
    pub workflow: String,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Also copy this example (see `piw workflows`); may be given several times
    #[arg(long, value_name = "EXAMPLE")]
    pub example: Vec<String>,
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `piw types`.
#[derive(Debug, Args)]
pub struct TypesArgs {
    /// Where to write
    #[arg(long, default_value = ".pi/workflows", value_name = "DIR")]
    pub dir: PathBuf,
}

/// Commands that look after the stored state.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Say how large the state is and whether it is sound
    Status(JsonFlag),
    /// Check the state, or a backup, against every rule that it must keep
    Verify(VerifyArgs),
    /// Make a verified copy of the state while the server runs
    Backup(BackupArgs),
    /// Delete runs that ended long ago, sooner than the server does by itself
    Prune(PruneArgs),
}

/// Arguments of `piw state verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Check this backup instead of the state in use; needs no server
    #[arg(long, value_name = "PATH")]
    pub backup: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw state backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Absolute path of a file that does not exist
    pub path: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw state prune`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("mode").required(true).args(["dry_run", "apply"]),
    override_usage = "piw state prune --before <TIME> --dry-run [--json]\n       \
                      piw state prune --before <TIME> --backup <PATH> --apply [--json]"
)]
pub struct PruneArgs {
    /// Only runs that ended before: an RFC 3339 instant, a date (UTC), or an age such as 30d or 12h
    #[arg(long, value_name = "TIME")]
    pub before: String,
    /// Only say what would go
    #[arg(long, conflicts_with = "backup")]
    pub dry_run: bool,
    /// Absolute path of the backup to make first; it must not exist
    #[arg(long, value_name = "PATH", requires = "apply")]
    pub backup: Option<PathBuf>,
    /// Delete them, once the backup is made
    #[arg(long, requires = "backup")]
    pub apply: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Commands of the server's life.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Run the server attached to this terminal
    Run(ServerRunArgs),
    /// Start the server in the background, if it is not running
    Start(JsonFlag),
    /// Say whether the server runs and what it does
    Status(JsonFlag),
    /// Stop the server; unfinished runs go on at the next start
    Stop(ServerStopArgs),
    /// Stop the server at the runs' next durable boundary and start it again
    Restart(ServerStopArgs),
    /// Print the server's log
    Logs(LogsArgs),
}

/// Arguments of `piw server run`.
#[derive(Debug, Args)]
pub struct ServerRunArgs {
    /// Report readiness on standard output and log to the file only
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// Arguments of `piw server stop` and `restart`.
#[derive(Debug, Args)]
pub struct ServerStopArgs {
    /// Longest wait in seconds for running nodes
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    pub wait: u64,
    /// Stop running nodes at once
    #[arg(long)]
    pub now: bool,
}

/// Arguments of `piw server logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Lines from the end
    #[arg(long, short = 'n', default_value_t = 100)]
    pub lines: usize,
    /// Go on printing as the log grows
    #[arg(long, short = 'f')]
    pub follow: bool,
}

/// Commands of the extension for Pi.
#[derive(Debug, Subcommand)]
pub enum PiCommand {
    /// Put the extension where Pi finds it
    Install(JsonFlag),
    /// Remove it
    Uninstall(JsonFlag),
    /// Check Pi, Node, the extension and the server, and say what to do
    Doctor(JsonFlag),
    /// Serve one Pi session; what the extension starts
    #[command(hide = true)]
    Bridge,
}

/// Arguments of `piw serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Loopback address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9377")]
    pub bind: String,
    /// Make a new token; URLs with the old one stop working
    #[arg(long)]
    pub new_token: bool,
    /// Print one JSON document: {"url"}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `piw relay`.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// Use standard input and output as the connection
    #[arg(long, required = true)]
    pub stdio: bool,
    /// Only use a running server
    #[arg(long)]
    pub no_start: bool,
}

/// Hidden roles.
#[derive(Debug, Subcommand)]
pub enum InternalRole {
    /// Load one definition and exit
    Resolver,
    /// Execute one generation of one run
    Runner,
    /// Judge one submission and exit
    Validator,
}

/// Parses the process's arguments, runs the command, prints its failure, returns its exit code.
pub fn main() -> ExitCode {
    run(std::env::args_os()).into()
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            if arguments.iter().all(|argument| is_clean(&argument.to_string_lossy())) {
                // A closed pipe while printing help is nobody's problem.
                let _ = error.print();
            } else {
                // The message repeats what was typed, so it goes without colours and neutralised.
                eprint!("{}", printable(&error.render().to_string()));
            }
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    match dispatch(cli) {
        Ok(exit) => exit,
        Err(failure) => {
            eprint!("{}", printable(&failure.to_string()));
            failure.exit
        }
    }
}

fn is_clean(text: &str) -> bool {
    text::clean(text) == text
}

/// Every line of a message, safe to print.
fn printable(message: &str) -> String {
    let (lines, _) = text::clean_lines(message, usize::MAX);
    lines.iter().fold(String::new(), |out, line| out + line + "\n")
}

fn dispatch(cli: Cli) -> Outcome {
    let Some(command) = cli.command else {
        return command::view::run(cli.view);
    };
    match command {
        Command::Run(args) => command::run::run(&args),
        Command::Ps(args) => command::ps::run(&args),
        Command::Show(args) => command::show::run(&args),
        Command::Pause(args) => command::control::run(command::control::Control::Pause, &args),
        Command::Resume(args) => command::control::run(command::control::Control::Resume, &args),
        Command::Cancel(args) => command::control::run(command::control::Control::Cancel, &args),
        Command::Restart(args) => command::control::run(command::control::Control::Restart, &args),
        Command::Answer(args) => command::answer::run(&args),
        Command::Effects(command) => command::effects::run(&command),
        Command::Workflows(args) => command::workflows::run(&args),
        Command::Check(args) => command::check::run(&args),
        Command::Init(args) => command::init::run(&args),
        Command::Types(args) => command::init::types(&args),
        Command::State(command) => command::state::run(&command),
        Command::Server(command) => command::server::run(command),
        Command::Pi(command) => command::pi::run(&command),
        Command::Serve(args) => command::relay::serve(&args),
        Command::Relay(args) => command::relay::stdio(&args),
        Command::Themes(args) => command::themes::run(&args),
        Command::Keys(args) => command::keys::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "piw", &mut script);
            command::output::text(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Done)
        }
        Command::Internal(role) => command::internal::run(&role),
    }
}

/// What a command says when a text that should be JSON is not.
pub(crate) fn not_json(what: &str, error: &serde_json::Error) -> Failure {
    Failure::usage(format!("{what} is not JSON: {error}"))
}
