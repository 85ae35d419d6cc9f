//! The connection of one command: starts the server when needed, runs the client, names runs.

use std::future::Future;
use std::time::Duration;

use piw_protocol::client::{Client, ClientError, ClientOptions, UnixConnector};
use piw_protocol::content::Verified;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::envelope::Outcome as Decision;
use piw_protocol::ops::{OperationError, RunFilter, RunList};
use piw_protocol::view::{DefinitionView, RunView, ViewValue};
use piw_server::lock;
use piw_server::paths::{self, Places};
use piw_server::start::{StartError, StartOptions, ensure_started};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Exit, Failure};
use crate::question::Question;
use crate::remote::{Host, Reaper};
use crate::text;

/// How long the end of a viewer waits for what it computes or writes on other threads: enough to save a setting.
pub const GRACE: Duration = Duration::from_millis(500);

/// A connected client and the runtime that it lives on.
#[derive(Debug)]
pub struct Session {
    runtime: Runtime,
    client: Client,
}

/// Whether a command may start a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Autostart {
    /// Start one when none runs, unless `PIW_NO_AUTOSTART` forbids it.
    Allowed,
    /// Only use a running one.
    Never,
}

/// Connects to the server.
///
/// # Errors
/// No usable place, no server and none may be or could be started, or a server of another version.
pub fn connect(autostart: Autostart) -> Result<Session, Failure> {
    connect_with(autostart, ClientOptions::impatient(), || {})
}

/// Connects to the server with a client that behaves as `options` say; calls `starting` before it starts a server.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(autostart: Autostart, options: ClientOptions, starting: impl FnOnce()) -> Result<Session, Failure> {
    let places = places()?;
    prepare_with(&places, autostart, starting)?;
    let runtime = runtime()?;
    let client = runtime
        .block_on(Client::connect(UnixConnector::new(&places.socket), options))
        .map_err(|error| failure(&error))?;
    Ok(Session { runtime, client })
}

/// The runtime of a command: one thread.
///
/// # Errors
/// When the system refuses one.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Unavailable, format!("cannot start the async runtime: {error}")))
}

/// Connects to another machine's server. The connection is kept as `options` say.
///
/// # Errors
/// When the host cannot be reached or runs another version; the message says what to do.
pub fn connect_to(host: &Host, remote_piw: &str, reaper: &Reaper, options: ClientOptions) -> Result<Session, Failure> {
    let runtime = runtime()?;
    let client = runtime.block_on(async {
        let client = host.start(remote_piw, reaper, options);
        client.ready().await.map(|()| client)
    });
    let client = client.map_err(|error| match error {
        ClientError::Unreachable { reason, .. } => Failure::new(Exit::Unavailable, text::clean(&reason)),
        ClientError::VersionMismatch { .. } => {
            let name = text::clean(&host.name);
            Failure::new(Exit::Unavailable, format!("{name}: {error}")).hint(format!(
                "install the same piw on both machines, then run piw server restart on {name}; runs go on afterwards"
            ))
        }
        error => failure(&error),
    })?;
    Ok(Session { runtime, client })
}

/// The state directory and socket from the environment.
///
/// # Errors
/// When the environment names no usable place.
pub fn places() -> Result<Places, Failure> {
    Places::from_env().map_err(|error| Failure::usage(error.to_string()))
}

/// Makes sure that a server accepts connections, as far as `autostart` allows.
///
/// # Errors
/// When none does.
pub fn prepare(places: &Places, autostart: Autostart) -> Result<(), Failure> {
    prepare_with(places, autostart, || {})
}

/// The same; calls `starting` before it starts a server.
fn prepare_with(places: &Places, autostart: Autostart, starting: impl FnOnce()) -> Result<(), Failure> {
    if piw_server::start::accepts(places) {
        return Ok(());
    }
    if autostart == Autostart::Allowed && !paths::autostart_forbidden() {
        starting();
        return start(places).map(|_| ());
    }
    if lock::is_held(places) {
        let pid = lock::read_record(places).map(|record| record.pid);
        let named = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        let failure = Failure::new(
            Exit::Unavailable,
            format!("a server holds the lock{named} but answered nobody: is it stopped, or just starting?"),
        );
        return Err(match pid {
            Some(pid) => failure.hint(format!(
                "continue a stopped one with: kill -CONT {pid}; or end it with: kill -9 {pid}, which loses nothing"
            )),
            None => failure,
        });
    }
    let absent = format!("no server listens on {}", places.socket.display());
    let said = match autostart {
        Autostart::Never => absent,
        Autostart::Allowed => format!("{absent}, and PIW_NO_AUTOSTART forbids starting one"),
    };
    Err(Failure::new(Exit::Unavailable, said).hint("start one with: piw server start"))
}

/// Starts a server unless one runs.
///
/// # Errors
/// The server's own reason, or that none came up in time.
pub fn start(places: &Places) -> Result<piw_server::start::Started, Failure> {
    let options = StartOptions::new(places.clone()).map_err(|error| {
        Failure::new(
            Exit::Unavailable,
            format!("cannot find the running executable: {error}"),
        )
    })?;
    ensure_started(&options).map_err(|error| {
        let failure = Failure::new(Exit::Unavailable, error.to_string());
        match error {
            StartError::Spawn(_) | StartError::Refused { .. } | StartError::Unresponsive { .. } => failure,
            StartError::Died { .. } | StartError::TimedOut { .. } => {
                failure.hint("piw server logs shows what it wrote")
            }
        }
    })
}

/// A client's error as a failure of the command.
#[must_use]
pub fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Refused { outcome, error, .. } => refused(*outcome, error),
        ClientError::WatchRefused(error) => Failure::new(Exit::NotFound, describe(error)),
        ClientError::VersionMismatch { .. } => Failure::new(Exit::Unavailable, error.to_string())
            .hint("piw server restart starts a server of this version; runs go on afterwards"),
        ClientError::Unreachable { .. } | ClientError::Blocked { .. } | ClientError::Closed => {
            Failure::new(Exit::Unavailable, error.to_string())
        }
        ClientError::Frame(_) => Failure::usage(error.to_string()),
        ClientError::BadAnswer { .. } | ClientError::BadView(_) | ClientError::Content(_) => {
            Failure::new(Exit::Failed, error.to_string())
        }
    }
}

fn refused(outcome: Decision, error: &OperationError) -> Failure {
    let exit = match outcome {
        Decision::NotFound => Exit::NotFound,
        Decision::Unavailable => Exit::Unavailable,
        Decision::Rejected => match error.reason.as_str() {
            "workflow_not_found" => Exit::NotFound,
            "workflow_refused" | "workflow_timed_out" | "workflow_crashed" | "unsupported" | "agent_unavailable"
            | "state_violated" => Exit::Failed,
            "workflow_reference" | "input_refused" | "input_too_large" | "invalid_request" => Exit::Usage,
            _ => Exit::Conflict,
        },
        _ => Exit::Conflict,
    };
    let failure = Failure::new(exit, describe(error));
    match error.reason.as_str() {
        "nodes_running" => failure.hint(
            "--wait SECONDS waits longer; --now ends them: idempotent work is done again, and a manual effect that is being \
             applied becomes ambiguous",
        ),
        _ => failure,
    }
}

/// The same of a command on a run, with what can be done about it.
#[must_use]
pub fn failure_of(error: &ClientError, run_id: &str) -> Failure {
    let failed = failure(error);
    let ClientError::Refused { error, .. } = error else {
        return failed;
    };
    match error.reason.as_str() {
        "effect_ambiguous" | "effect_unsettled" => {
            failed.hint(format!("piw effects list {run_id} shows what to review"))
        }
        "stale_revision" => failed.hint(format!(
            "the run changed meanwhile; look again: piw effects list {run_id}"
        )),
        "repeated_failure" => failed.hint("change the workflow, or start it with another input: piw run"),
        "restart_limit" => failed.hint("start the workflow again: piw run"),
        _ => failed,
    }
}

/// The message of a refusal with what workflow code said, cleaned line by line.
fn describe(error: &OperationError) -> String {
    let mut message = error.message.clone();
    if let Some(cause) = &error.cause {
        if !message.contains(&cause.message) {
            message.push_str(": ");
            message.push_str(&cause.message);
        }
        if let Some(stack) = &cause.stack {
            message.push('\n');
            message.push_str(stack);
        }
    }
    lines(&message)
}

/// Several lines of untrusted text, safe to print.
#[must_use]
pub fn lines(content: &str) -> String {
    const MOST: usize = 200;
    let (lines, more) = text::clean_lines(content, MOST);
    let mut out = lines.join("\n");
    if more {
        out.push_str("\n…");
    }
    out
}

impl Session {
    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a future on the session's runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Ends the session. Work on other threads that takes longer than [`GRACE`] is left behind; dropping the session would wait
    /// for it.
    pub fn end(self) {
        let Self { runtime, client } = self;
        drop(client);
        runtime.shutdown_timeout(GRACE);
    }

    /// Makes a call and turns its error into a failure.
    ///
    /// # Errors
    /// As the call.
    pub fn call<T>(&self, future: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
        self.block_on(future).map_err(|error| failure(&error))
    }

    /// The whole id of the run that `given` names: an id, or a unique beginning of one.
    ///
    /// # Errors
    /// Not found, or a conflict when several runs begin so.
    pub fn run_id(&self, given: &str) -> Result<String, Failure> {
        match self.block_on(self.client.run_status(given)) {
            Ok(report) => return Ok(report.run_id),
            Err(error) if error.outcome() == Some(Decision::NotFound) => {}
            Err(error) => return Err(failure(&error)),
        }
        let filter = RunFilter {
            text: Some(given.to_owned()),
            ..RunFilter::default()
        };
        let page = self.call(self.client.run_list(&RunList {
            filter: Some(filter),
            ..RunList::default()
        }))?;
        let mut found = page
            .items
            .iter()
            .map(|item| &item.run_id)
            .filter(|id| id.starts_with(given));
        match (found.next(), found.next()) {
            (Some(id), None) if !given.is_empty() => Ok(id.clone()),
            (Some(one), Some(two)) => Err(Failure::new(
                Exit::Conflict,
                format!("several runs begin with {}: {one}, {two}, …", text::clean(given)),
            )
            .hint("give more of the id")),
            _ => Err(Failure::new(Exit::NotFound, format!("no run {:?}", text::clean(given)))
                .hint("piw ps --all lists every run")),
        }
    }
}

/// The whole definition of a view, fetched and verified when it travels as content.
///
/// # Errors
/// As fetching content.
pub async fn definition(client: &Client, view: &RunView) -> Result<DefinitionSnapshot, ClientError> {
    match &view.workflow {
        DefinitionView::Inline(snapshot) => Ok((**snapshot).clone()),
        DefinitionView::Content { content, .. } => {
            let bytes = client.content(&view.run_id, &content.artifact, |_| {}).await?;
            Ok(bytes.json::<DefinitionSnapshot>()?.into_inner())
        }
    }
}

/// What a waiting run asks of a person as lines that are safe to print: the summary, then the request, fetched and verified
/// when it travels as content. Empty when it waits for nobody.
///
/// # Errors
/// As fetching content.
pub async fn question(client: &Client, view: &RunView) -> Result<Vec<String>, ClientError> {
    let Some(mut question) = Question::of(view) else {
        return Ok(Vec::new());
    };
    if let Some(reference) = question.content() {
        let request = ViewValue::Artifact(reference.clone());
        question = question.filled(value(client, &view.run_id, &request).await?);
    }
    let mut asked = question.summary.as_deref().map(lines).into_iter().collect::<Vec<_>>();
    asked.extend(question.request_lines());
    Ok(asked)
}

/// The whole of a view's value, fetched and verified when it travels as content.
///
/// # Errors
/// As fetching content.
pub async fn value(client: &Client, run_id: &str, value: &ViewValue) -> Result<Value, ClientError> {
    match value {
        ViewValue::Inline(value) => Ok(value.clone()),
        ViewValue::Artifact(reference) => {
            let bytes: Verified<Vec<u8>> = client.content(run_id, reference, |_| {}).await?;
            if reference.media_type.starts_with("text/") {
                Ok(Value::String(String::from_utf8_lossy(bytes.get()).into_owned()))
            } else {
                Ok(bytes.json::<Value>()?.into_inner())
            }
        }
    }
}
