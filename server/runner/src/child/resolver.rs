//! The resolver: loads one definition, checks it, normalises one input, answers once.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use piw_engine::raw::RawDefinition;
use piw_engine::{GraphProblem, limits, title};
use piw_protocol::canonical;
use piw_protocol::child::{
    INLINE_VALUE_LIMIT, INPUT_LIMIT, RESOLVE_SCHEMA, ResolveInput, ResolveRequest, ResolveResponse, ResolvedDefinition,
};
use piw_protocol::frame::MAX_FRAME;
use piw_protocol::run::{ErrorInfo, SourceRef};
use serde_json::Value;

use super::channel::{self, ChannelError};
use super::source::{self, Lookup};
use crate::discover::{self, DiscoverError, Places};
use crate::exec::node::{bounded, bounded_call};
use crate::regular::in_bytes;
use crate::script::{
    CallArgs, CallError, CallErrorKind, CallbackField, CallbackRef, LoadError, LoadErrorKind, ScriptHost, ScriptOptions,
};

/// Time for everything after the load: the server ends a resolver after a minute, and a message is better than that.
const CALLBACKS: Duration = Duration::from_millis(limits::CALLBACK_MS);
/// Time for the load.
const LOAD: Duration = Duration::from_secs(20);
/// Graph problems that one message shows.
const SHOWN_PROBLEMS: usize = 20;

/// Why there is no definition.
struct Refusal(ErrorInfo);

impl Refusal {
    fn new(code: &str, message: String) -> Self {
        Self(bounded(ErrorInfo {
            code: Some(code.to_owned()),
            message,
            stack: None,
        }))
    }
}

/// Serves one request.
pub(crate) async fn serve<H, F>(stream: UnixStream, start_host: F) -> Result<(), ChannelError>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    let (mut reader, mut writer) = channel::open(stream)?;
    let Some(request) = reader.next::<ResolveRequest>().await? else {
        return Ok(());
    };
    let answer = match resolve(&request, start_host).await {
        Ok(resolved) => ResolveResponse::Resolved(Box::new(resolved)),
        Err(Refusal(error)) => ResolveResponse::Refused(error),
    };
    let frame = fit(&request, &answer)?;
    piw_fault::point!("resolver::before_answer");
    writer.send_frame(&frame).await
}

/// The answer as a frame; a large one as a frame that names a file.
fn fit(request: &ResolveRequest, answer: &ResolveResponse) -> Result<Vec<u8>, ChannelError> {
    let mut bytes = canonical::to_vec(answer)?;
    bytes.push(b'\n');
    if bytes.len() <= MAX_FRAME {
        return Ok(bytes);
    }
    bytes.pop();
    let answer = match write_scratch(request, "answer", &bytes) {
        Ok(path) => ResolveResponse::File(path),
        Err(Refusal(error)) => ResolveResponse::Refused(error),
    };
    Ok(piw_protocol::frame::encode(&answer)?)
}

async fn resolve<H, F>(request: &ResolveRequest, start_host: F) -> Result<ResolvedDefinition, Refusal>
where
    H: ScriptHost + Send + Sync + 'static,
    F: FnOnce(ScriptOptions) -> io::Result<H>,
{
    if request.schema != RESOLVE_SCHEMA {
        let why = format!(
            "the request has the schema \"{}\", not \"{RESOLVE_SCHEMA}\"",
            request.schema
        );
        return Err(Refusal::new("protocolRejected", why));
    }
    let input = request.input.as_ref().map(read_input).transpose()?;
    let project = PathBuf::from(&request.project_path);
    let places = Places {
        project: project.clone(),
        global: request.global_dir.as_ref().map(PathBuf::from),
    };
    let entry = discover::find(&request.workflow, &places, &project)
        .and_then(|found| discover::read(&found))
        .map_err(|error| not_found(&error))?;
    let lookup = Lookup {
        places,
        files: std::collections::BTreeMap::new(),
    };
    let options = ScriptOptions {
        load_timeout: LOAD,
        workflows: std::sync::Arc::new(lookup),
        ..ScriptOptions::new(&project)
    };
    let host = start_host(options)
        .map_err(|error| Refusal::new("unavailable", format!("the script host cannot start: {error}")))?;
    let loaded = host.load(entry).await.map_err(load_refused)?;
    let definition = piw_engine::compile(&loaded.raw).map_err(|problems| graph_refused(&problems))?;
    let deadline = Instant::now() + CALLBACKS;
    let (title, normalised) = match input {
        None => (None, None),
        Some(raw) => {
            let input = normalise(&host, &loaded.raw, raw, deadline).await?;
            let title = run_title(&host, &loaded.raw, &input, deadline).await?;
            (title, Some(hand_over(request, input)?))
        }
    };
    Ok(ResolvedDefinition {
        definition_digest: definition.digest().to_owned(),
        unsupported: definition.unsupported(),
        needs_session: definition.needs_session(),
        agent_problem: crate::exec::agent::config::problem(&definition),
        definition: definition.snapshot().clone(),
        sources: source::source_map(&loaded),
        title,
        input: normalised,
        warnings: warnings(&loaded.raw),
    })
}

/// What is allowed and probably not meant.
fn warnings(raw: &RawDefinition) -> Vec<String> {
    let stem = match &raw.source {
        SourceRef::File { path, .. } => discover::name_of(Path::new(path)),
        SourceRef::Builtin { id, .. } => Some(id.clone()),
    };
    let misnamed = stem.filter(|stem| *stem != raw.name);
    let told = |stem: String| {
        format!(
            "the workflow calls itself \"{}\" but is started as \"{stem}\", the name of its file",
            raw.name
        )
    };
    misnamed.map(told).into_iter().collect()
}

fn read_input(input: &ResolveInput) -> Result<Value, Refusal> {
    match input {
        ResolveInput::Inline(value) => Ok(value.clone()),
        ResolveInput::File(path) => {
            let broken = |why: String| Refusal::new("inputRefused", format!("the input cannot be read: {why}"));
            let mut bytes = Vec::new();
            let file = File::open(path).map_err(|error| broken(error.to_string()))?;
            file.take(INPUT_LIMIT + 1)
                .read_to_end(&mut bytes)
                .map_err(|error| broken(error.to_string()))?;
            if bytes.len() as u64 > INPUT_LIMIT {
                return Err(input_too_large(bytes.len()));
            }
            canonical::parse(&bytes).map_err(|error| broken(error.to_string()))
        }
    }
}

fn input_too_large(bytes: usize) -> Refusal {
    let limit = in_bytes(INPUT_LIMIT);
    let why = format!("the input has {bytes} bytes or more; a run's input has at most {limit}");
    Refusal::new("inputTooLarge", why)
}

async fn normalise<H: ScriptHost>(
    host: &H,
    raw: &RawDefinition,
    input: Value,
    deadline: Instant,
) -> Result<Value, Refusal> {
    if !raw.has_input {
        return Ok(input);
    }
    let normalised = call(host, CallbackField::Input, Some(input), deadline).await;
    normalised.map_err(|failed| call_refused("inputRefused", "the workflow refused the input", failed))
}

async fn run_title<H: ScriptHost>(
    host: &H,
    raw: &RawDefinition,
    input: &Value,
    deadline: Instant,
) -> Result<Option<String>, Refusal> {
    if !raw.has_title {
        return Ok(raw.title.as_deref().and_then(title::normalise));
    }
    host.open_scope("", input);
    match call(host, CallbackField::Title, None, deadline).await {
        Ok(Value::String(text)) => Ok(title::normalise(&text)),
        Ok(Value::Null) => Ok(None),
        Ok(other) => {
            let why = format!("title must give a string, not {}", piw_engine::value::kind(&other));
            Err(Refusal::new("titleFailed", why))
        }
        Err(failed) => Err(call_refused("titleFailed", "the workflow's title failed", failed)),
    }
}

async fn call<H: ScriptHost>(
    host: &H,
    field: CallbackField,
    argument: Option<Value>,
    deadline: Instant,
) -> Result<Value, CallError> {
    let callback = CallbackRef {
        scope: String::new(),
        node: None,
        field,
    };
    let args = CallArgs {
        argument,
        deadline: Some(deadline),
        ..CallArgs::default()
    };
    bounded_call(host, callback, args).await
}

/// The normalised input as the answer carries it.
fn hand_over(request: &ResolveRequest, input: Value) -> Result<ResolveInput, Refusal> {
    piw_engine::value::check_depth(&input)
        .map_err(|error| Refusal::new("inputRefused", format!("the normalised input: {error}")))?;
    let bytes = canonical::write_value(&input);
    if bytes.len() as u64 > INPUT_LIMIT {
        return Err(input_too_large(bytes.len()));
    }
    // An input nested to the limit would nest the answer beyond it.
    if bytes.len() <= INLINE_VALUE_LIMIT && canonical::depth(&input) < limits::VALUE_DEPTH / 2 {
        return Ok(ResolveInput::Inline(input));
    }
    write_scratch(request, "input", &bytes).map(ResolveInput::File)
}

/// Writes a private file into the request's directory.
fn write_scratch(request: &ResolveRequest, what: &str, bytes: &[u8]) -> Result<String, Refusal> {
    let Some(dir) = &request.scratch_dir else {
        let why = format!(
            "the {what} has {} bytes, which is more than a message holds",
            bytes.len()
        );
        return Err(Refusal::new("tooLarge", why));
    };
    let path = Path::new(dir).join(format!("resolver-{what}-{}.json", std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes)
    };
    write().map_err(|error| {
        Refusal::new(
            "unavailable",
            format!("the {what} cannot be written to {}: {error}", path.display()),
        )
    })?;
    Ok(path.to_string_lossy().into_owned())
}

fn not_found(error: &DiscoverError) -> Refusal {
    let code = match error {
        DiscoverError::NoSuchName { .. } | DiscoverError::NoSuchFile { .. } | DiscoverError::NoSuchBuiltin { .. } => {
            "workflowNotFound"
        }
        DiscoverError::Reserved { .. } => "reservedName",
        DiscoverError::Ambiguous { .. } => "ambiguousName",
        DiscoverError::BadReference { .. } | DiscoverError::NotAWorkflowFile { .. } => "badReference",
        DiscoverError::Unreadable { .. } => "workflowUnreadable",
    };
    Refusal::new(code, error.to_string())
}

fn load_refused(error: LoadError) -> Refusal {
    let code = match error.kind {
        LoadErrorKind::Syntax => "workflowSyntax",
        LoadErrorKind::Import => "workflowImport",
        LoadErrorKind::Thrown => "workflowThrew",
        LoadErrorKind::NotAWorkflow => "notAWorkflow",
        LoadErrorKind::Include => "workflowInclude",
        LoadErrorKind::TimedOut | LoadErrorKind::Stuck => "workflowLoadTimedOut",
        LoadErrorKind::OutOfMemory => "workflowOutOfMemory",
    };
    Refusal(bounded(ErrorInfo {
        code: Some(code.to_owned()),
        message: error.message,
        stack: error.stack,
    }))
}

fn graph_refused(problems: &[GraphProblem]) -> Refusal {
    let mut message = piw_engine::locate::report(problems.iter().take(SHOWN_PROBLEMS), source_text).join("\n");
    if problems.len() > SHOWN_PROBLEMS {
        // Writing to a string cannot fail.
        let _ = write!(message, "\n… and {} more problems", problems.len() - SHOWN_PROBLEMS);
    }
    Refusal::new("graphInvalid", message)
}

/// The text of a workflow as problems name it, for finding lines in it; `None` costs only the line.
fn source_text(file: &str) -> Option<String> {
    const MOST: u64 = 4 * 1024 * 1024;
    if let Some(id) = file.strip_prefix("builtin:") {
        let shipped = crate::builtin::find(id)?;
        return Some(String::from_utf8_lossy(&shipped.bytes).into_owned());
    }
    let mut text = String::new();
    File::open(file).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn call_refused(code: &str, what: &str, failed: CallError) -> Refusal {
    let message = match failed.kind {
        CallErrorKind::TimedOut | CallErrorKind::Stuck => {
            format!("{what}: it took longer than {} s", CALLBACKS.as_secs())
        }
        _ => format!("{what}: {}", failed.message),
    };
    Refusal(bounded(ErrorInfo {
        code: Some(code.to_owned()),
        message,
        stack: failed.stack,
    }))
}
