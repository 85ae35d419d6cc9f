//! The seam between the script host and the code that executes nodes: options, requests, results, errors.
//!
//! Plain data and small traits only; no JavaScript engine type may appear here.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_engine::raw::RawDefinition;
use piw_protocol::run::{ActionReceipt, ErrorInfo, NodeOutcome, SourceRef};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// Boxed future of a host function.
pub type HostFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How important a console line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsoleLevel {
    /// `console.debug`.
    Debug,
    /// `console.log`, `console.info`.
    Info,
    /// `console.warn`.
    Warn,
    /// `console.error`, `console.trace`, a failed `console.assert`.
    Error,
}

/// Receives console output, one call a `console` method call; the text may hold newlines and ends without one.
pub type ConsoleSink = Arc<dyn Fn(ConsoleLevel, &str) + Send + Sync>;

/// Publishes one update (`{type, key, data}`, not yet validated); the error text goes to the publisher.
pub type PublishUpdate = Arc<dyn Fn(Value) -> HostFuture<Result<(), String>> + Send + Sync>;

/// A command of `runCommandBatch`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandRequest {
    /// Program, found through `PATH`; no shell is implied.
    pub command: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Working directory; the project when absent. Relative ones are relative to the project.
    pub cwd: Option<PathBuf>,
    /// Variables set in addition to the inherited environment.
    pub env: BTreeMap<String, String>,
    /// Text written to standard input, which is then closed.
    pub stdin: Option<String>,
    /// Wall-clock bound of this command.
    pub timeout: Option<Duration>,
    /// Captured characters per stream.
    pub max_output_chars: Option<usize>,
}

/// Runs the commands of `runCommandBatch` for the script host. The receipt says how a command ended; an error means that it
/// could not be started or was cancelled.
pub trait CommandHost: Send + Sync {
    /// Runs one command to its end. When `cancel` fires the command must be ended, with everything it started.
    fn run(&self, request: CommandRequest, cancel: CancellationToken) -> HostFuture<Result<ActionReceipt, String>>;
}

/// Finds the workflows that `includeWorkflow({workflow: …})` names.
pub trait WorkflowLookup: Send + Sync {
    /// Finds `reference` (a name, a path, `builtin:<id>`) as written in `from`. The error says why there is none.
    fn find(&self, reference: &str, from: &SourceRef) -> Result<Entry, String>;
}

/// A lookup that knows no workflows.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWorkflows;

impl WorkflowLookup for NoWorkflows {
    fn find(&self, reference: &str, _from: &SourceRef) -> Result<Entry, String> {
        Err(format!("no workflow is called \"{reference}\""))
    }
}

/// A workflow module to load. The host evaluates exactly these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file of the project or of the global directory.
    File {
        /// Absolute path.
        path: PathBuf,
        /// Its content, already verified by the caller where a hash is known.
        bytes: Arc<[u8]>,
    },
    /// Shipped in the binary; always TypeScript.
    Builtin {
        /// Its id, without `builtin:`.
        id: String,
        /// Its revision (hex SHA-256 of the shipped bytes).
        revision: String,
        /// Its content.
        bytes: Arc<[u8]>,
    },
}

/// How a script host is set up.
#[derive(Clone)]
pub struct ScriptOptions {
    /// Directory of the project: `process.cwd()`, and where relative paths start.
    pub project: PathBuf,
    /// Bytes each of the two runtimes may allocate.
    pub memory_limit: usize,
    /// Bytes of native stack JavaScript may use.
    pub stack_limit: usize,
    /// Time for one `load`, includes and all.
    pub load_timeout: Duration,
    /// Time a callback gets to clean up after its signal was aborted (by deadline or cancellation).
    pub grace: Duration,
    /// Time after deadline and grace until a thread that does not answer counts as stuck in native code.
    pub watchdog: Duration,
    /// Where console output goes.
    pub console: ConsoleSink,
    /// Bytes of console output kept in the life of the host; the rest is dropped with one notice.
    pub console_limit: usize,
    /// Variables seen as `process.env`.
    pub env: BTreeMap<String, String>,
    /// Resolves dynamic workflow references.
    pub workflows: Arc<dyn WorkflowLookup>,
    /// Runs the commands of `runCommandBatch`; without one, such calls fail.
    pub commands: Option<Arc<dyn CommandHost>>,
    /// Verified content of further files: used instead of what is on disk.
    pub verified: BTreeMap<PathBuf, Arc<[u8]>>,
}

impl ScriptOptions {
    /// Default limits for `project`, silent console, inherited environment.
    #[must_use]
    pub fn new(project: impl AsRef<Path>) -> Self {
        Self {
            project: project.as_ref().to_path_buf(),
            memory_limit: 256 << 20,
            stack_limit: 4 << 20,
            load_timeout: Duration::from_secs(30),
            grace: Duration::from_millis(250),
            watchdog: Duration::from_secs(5),
            console: Arc::new(|_, _| {}),
            console_limit: 1 << 20,
            env: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            workflows: Arc::new(NoWorkflows),
            commands: None,
            verified: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for ScriptOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptOptions")
            .field("project", &self.project)
            .field("memory_limit", &self.memory_limit)
            .field("stack_limit", &self.stack_limit)
            .field("load_timeout", &self.load_timeout)
            .finish_non_exhaustive()
    }
}

/// A loaded workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The definition tree, includes resolved, callbacks named.
    pub raw: RawDefinition,
    /// Every project module that was evaluated (files outside `node_modules`, built-in workflows), in load order, entry first.
    pub modules: Vec<SourceRef>,
}

/// Why a module did not load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// Not valid TypeScript or JavaScript, or nested too deeply.
    Syntax,
    /// An import cannot be resolved, or is not supported.
    Import,
    /// Module code threw.
    Thrown,
    /// The default export is not a workflow, or a workflow is malformed.
    NotAWorkflow,
    /// A dynamic include cannot be resolved, or includes itself.
    Include,
    /// Module code did not end in time.
    TimedOut,
    /// Module code used more memory than allowed.
    OutOfMemory,
    /// The script thread does not answer, or is gone: this host cannot be used again.
    Stuck,
}

/// A failed load. `Display` is the complete text for people, positions included.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct LoadError {
    /// Class.
    pub kind: LoadErrorKind,
    /// What failed and where, possibly several lines.
    pub message: String,
    /// Stack with positions in the author's source, when code threw.
    pub stack: Option<String>,
}

/// Names a callback of a loaded definition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallbackRef {
    /// Mount path of the workflow that declares it; empty for the root.
    pub scope: String,
    /// Local node id, mount name or exit name, as `field` demands; `None` for callbacks of the workflow itself.
    pub node: Option<String>,
    /// Which callback.
    pub field: CallbackField,
}

/// The callbacks a workflow can declare. Those given as a plain value instead of a function answer with that value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallbackField {
    /// Workflow `input(value)`: argument is the raw input, result the normalised one.
    Input,
    /// Workflow `title({input, workflowName})`.
    Title,
    /// Node `run(ctx)`.
    Run,
    /// Shell `exec(ctx)`.
    Exec,
    /// Shell `parse(result, ctx)`; argument is the process result.
    Parse,
    /// Agent `validate(output, ctx)`; argument is the submission.
    Validate,
    /// Agent `prompt(ctx)`.
    Prompt,
    /// Shell `updates.parseLine(line, ctx)`; argument is `{line, stream}`: passed as `(line, {stream, …ctx})`.
    ParseLine,
    /// Observed effect `observe(ctx)`.
    Observe,
    /// Node `statusDetail(ctx)`.
    StatusDetail,
    /// Node `timeoutMs(ctx)`.
    TimeoutMs,
    /// Notify `message(ctx)`.
    Message,
    /// Checkpoint `summary(ctx)`.
    Summary,
    /// Human decision `request(ctx)`.
    Request,
    /// Human decision `onTimeout(ctx)` or `onTimeout.response(ctx)`.
    OnTimeout,
    /// `includeWorkflow(child, {input(ctx)})`: scope is the parent's, node the mount name.
    IncludeInput,
    /// `exits.<name>.validate(output, ctx)`: scope is the child's, node the exit name.
    ExitValidate,
}

impl CallbackField {
    /// The name under which `RawNode::callbacks` lists it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Title => "title",
            Self::Run => "run",
            Self::Exec => "exec",
            Self::Parse => "parse",
            Self::Validate => "validate",
            Self::Prompt => "prompt",
            Self::ParseLine => "updates.parseLine",
            Self::Observe => "observe",
            Self::StatusDetail => "statusDetail",
            Self::TimeoutMs => "timeoutMs",
            Self::Message => "message",
            Self::Summary => "summary",
            Self::Request => "request",
            Self::OnTimeout => "onTimeout",
            Self::IncludeInput => "include.input",
            Self::ExitValidate => "exit.validate",
        }
    }
}

/// What a callback is called with, beyond its scope's `input`, `outputs`, `results` and `state`.
#[derive(Clone, Default)]
pub struct CallArgs {
    /// First positional argument of callbacks that take one (`parse`, `validate`, `input`, …).
    pub argument: Option<Value>,
    /// Members added to the context, for example `effect: {key, type}` or `settings`.
    pub extras: Map<String, Value>,
    /// Makes `publishUpdate` available.
    pub publish: Option<PublishUpdate>,
    /// When the callback must have settled.
    pub deadline: Option<Instant>,
    /// Cancels the callback: its `signal` is aborted, then it is ended.
    pub cancel: CancellationToken,
    /// Runs without access to files, processes, network, timers or environment.
    pub pure: bool,
}

impl fmt::Debug for CallArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallArgs")
            .field("argument", &self.argument)
            .field("extras", &self.extras)
            .field("deadline", &self.deadline)
            .field("pure", &self.pure)
            .finish_non_exhaustive()
    }
}

/// Result of a finished node as callbacks see it under `results.<id>`.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeResult {
    /// How it ended.
    pub outcome: NodeOutcome,
    /// Output; seen under `outputs.<id>` while the outcome is `ok`.
    pub output: Value,
    /// Error of an outcome that is not `ok`.
    pub error: Option<ErrorInfo>,
    /// Receipt of an action or shell node.
    pub action: Option<ActionReceipt>,
    /// For a left mount: the exit it was left by.
    pub exit: Option<String>,
}

impl NodeResult {
    /// A successful result.
    #[must_use]
    pub fn ok(output: Value) -> Self {
        Self {
            outcome: NodeOutcome::Ok,
            output,
            error: None,
            action: None,
            exit: None,
        }
    }
}

/// Why a callback gave no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallErrorKind {
    /// It threw or rejected.
    Thrown,
    /// It did not settle before its deadline.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It used more memory than allowed. The host stays usable.
    OutOfMemory,
    /// A pure callback touched something that is not pure, for example `node:fs.readFileSync`.
    Impure {
        /// The first thing touched.
        what: String,
    },
    /// Its result is no JSON value.
    BadValue {
        /// Where in the result, for example `$.items[3].size`.
        path: String,
    },
    /// It called `process.exit`.
    Exit {
        /// Given exit code.
        code: i32,
    },
    /// There is no such callback or scope; a mistake of the caller.
    Missing,
    /// The script thread does not answer, or is gone: this host cannot be used again.
    Stuck,
}

/// A failed callback.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// Class.
    pub kind: CallErrorKind,
    /// What failed; for thrown errors their message.
    pub message: String,
    /// Stack with positions in the author's source.
    pub stack: Option<String>,
}

/// Loads definitions and runs callbacks. One host serves one run generation, one resolution or one validation.
pub trait ScriptHost {
    /// Loads the workflow and everything it includes, and keeps it for `call`.
    fn load(&self, entry: Entry) -> impl Future<Output = Result<Loaded, LoadError>> + Send;

    /// Starts (or starts again, empty) the scope of the workflow mounted at `scope`; the root's is `""`.
    fn open_scope(&self, scope: &str, input: &Value);

    /// Records a finished node (or left mount) of `scope`; later calls see it. Replaces an earlier result of that node.
    fn record(&self, scope: &str, local_id: &str, result: &NodeResult);

    /// Calls one callback. What it leaves running (timers, processes) is cancelled when it settles.
    fn call(&self, callback: CallbackRef, args: CallArgs) -> impl Future<Output = Result<Value, CallError>> + Send;
}
