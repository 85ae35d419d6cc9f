//! One attempt of one node: which kind does what, and how its end becomes an outcome.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_engine::machine::{CODE_CANCELLED, CODE_NODE_FAILED, CODE_TIMED_OUT};
use piw_engine::{Definition, Node};
use piw_protocol::child::FinishSettlement;
use piw_protocol::definition::{ActionExecution, NodeType};
use piw_protocol::run::{ActionReceipt, ErrorInfo, NodeOutcome};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::command::Commands;
use super::publish::Publisher;
use crate::child::client::{Client, RequestError};
use crate::child::content::ContentError;
use crate::script::{CallArgs, CallError, CallErrorKind, CallbackField, CallbackRef, ScriptHost};

/// How long past its deadline a callback may take to come back before the host counts as stuck. The host has limits of its
/// own below this; the server's patience is above it.
const CALLBACK_SLACK: Duration = Duration::from_secs(8);

/// What every node needs.
#[derive(Debug)]
pub(crate) struct Context<'d, H> {
    /// Channel.
    pub(crate) client: Client,
    /// User code.
    pub(crate) host: Arc<H>,
    /// The graph.
    pub(crate) definition: &'d Definition,
    /// Processes.
    pub(crate) commands: Commands,
    /// Updates.
    pub(crate) publisher: Arc<Publisher>,
    /// The run.
    pub(crate) run_id: String,
    /// Its working directory.
    pub(crate) project: PathBuf,
    /// The run is bound to a session, which its agent steps ask.
    pub(crate) interactive: bool,
    /// Fires when whatever runs has to be aborted.
    pub(crate) leaving: CancellationToken,
}

/// A started attempt.
#[derive(Debug, Clone)]
pub(crate) struct Attempt<'d> {
    /// Its id.
    pub(crate) id: String,
    /// Its node.
    pub(crate) node: &'d Node,
    /// Its visit.
    pub(crate) visit: u32,
    /// Active-time budget.
    pub(crate) timeout: Option<Duration>,
    /// Why it fails before it does anything: its budget could not be computed.
    pub(crate) refused: Option<ErrorInfo>,
}

/// A started attempt while it runs.
#[derive(Debug)]
pub(crate) struct Running<'a, 'd> {
    /// The attempt.
    pub(crate) attempt: &'a Attempt<'d>,
    /// When its budget is used up.
    pub(crate) deadline: Option<Instant>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeEnd {
    /// Outcome.
    pub(crate) outcome: NodeOutcome,
    /// Output, `null` unless `ok`.
    pub(crate) output: Value,
    /// Error of another outcome.
    pub(crate) error: Option<ErrorInfo>,
    /// Receipt.
    pub(crate) action: Option<ActionReceipt>,
    /// Settles the reserved effect with the end.
    pub(crate) settle: Option<FinishSettlement>,
    /// The script thread does not come back: this process has to end.
    pub(crate) stuck: bool,
}

/// Why an attempt has no end that could be committed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Abort {
    /// The server ordered the end, or is gone, or the claim is.
    #[error("the node was aborted")]
    Ordered,
    /// The node's request is stored: another generation settles its attempt.
    #[error("the node waits for its session")]
    Requested,
    /// The run cannot go on without a person.
    #[error("{message}")]
    Park {
        /// Failure class.
        reason: &'static str,
        /// For people.
        message: String,
    },
    /// A message was not accepted.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A value could not be stored or read.
    #[error(transparent)]
    Content(ContentError),
    /// The engine and the saved run disagree.
    #[error("{0}")]
    Engine(String),
}

impl From<ContentError> for Abort {
    fn from(error: ContentError) -> Self {
        match error {
            ContentError::Request(error) => Self::Request(error),
            other => Self::Content(other),
        }
    }
}

impl NodeEnd {
    /// A success.
    pub(crate) fn ok(output: Value) -> Self {
        Self {
            outcome: NodeOutcome::Ok,
            output,
            error: None,
            action: None,
            settle: None,
            stuck: false,
        }
    }

    /// A failure with this error.
    pub(crate) fn failed(error: ErrorInfo) -> Self {
        Self {
            outcome: NodeOutcome::Failed,
            output: Value::Null,
            error: Some(error),
            action: None,
            settle: None,
            stuck: false,
        }
    }

    /// A budget that ran out.
    pub(crate) fn timed_out(message: String) -> Self {
        Self {
            outcome: NodeOutcome::TimedOut,
            ..Self::failed(error(CODE_TIMED_OUT, message))
        }
    }

    /// A callback that gave no value.
    pub(crate) fn of_call(failed: CallError) -> Self {
        let (outcome, code) = match &failed.kind {
            CallErrorKind::Cancelled => (NodeOutcome::Cancelled, CODE_CANCELLED),
            // What does not come back was given its whole budget.
            CallErrorKind::TimedOut | CallErrorKind::Stuck => (NodeOutcome::TimedOut, CODE_TIMED_OUT),
            CallErrorKind::Thrown | CallErrorKind::Missing => (NodeOutcome::Failed, CODE_NODE_FAILED),
            CallErrorKind::OutOfMemory => (NodeOutcome::Failed, "outOfMemory"),
            CallErrorKind::Impure { .. } => (NodeOutcome::Failed, "impure"),
            CallErrorKind::BadValue { .. } => (NodeOutcome::Failed, "badValue"),
            CallErrorKind::Exit { .. } => (NodeOutcome::Failed, "processExit"),
        };
        let stuck = failed.kind == CallErrorKind::Stuck;
        let info = ErrorInfo {
            code: Some(code.to_owned()),
            message: failed.message,
            stack: failed.stack,
        };
        Self {
            outcome,
            stuck,
            ..Self::failed(bounded(info))
        }
    }

    /// The same end with a receipt.
    pub(crate) fn with_receipt(mut self, receipt: ActionReceipt) -> Self {
        self.action = Some(receipt);
        self
    }
}

/// An error with a code.
pub(crate) fn error(code: &str, message: String) -> ErrorInfo {
    bounded(ErrorInfo {
        code: Some(code.to_owned()),
        message,
        stack: None,
    })
}

/// Cuts messages and stacks that would not fit beside the rest of a message.
pub(crate) fn bounded(mut info: ErrorInfo) -> ErrorInfo {
    const MESSAGE: usize = 16 * 1024;
    const STACK: usize = 32 * 1024;
    super::receipt::cut(&mut info.message, MESSAGE);
    if let Some(stack) = &mut info.stack {
        super::receipt::cut(stack, STACK);
    }
    info
}

impl<H: ScriptHost + Send + Sync + 'static> Context<'_, H> {
    /// Executes an attempt to its end.
    pub(crate) async fn execute(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let attempt = running.attempt;
        if let Some(refused) = &attempt.refused {
            return Ok(NodeEnd::failed(refused.clone()));
        }
        let spec = &attempt.node.spec;
        match (spec.node_type, spec.action_execution) {
            (NodeType::Compute, _) => self.compute(running).await,
            (NodeType::Action, Some(ActionExecution::Shell)) => self.shell(running).await,
            (NodeType::Action, _) => self.action(running).await,
            (NodeType::Notify, _) => self.notify(running).await,
            (NodeType::Checkpoint, _) => match &spec.human_decision {
                Some(declared) => self.human_decision(running, declared).await,
                None => self.checkpoint(running).await,
            },
            (NodeType::Agent, _) => self.agent(running).await,
        }
    }

    async fn compute(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let args = CallArgs {
            pure: true,
            ..self.args(running)
        };
        self.end_of(self.call(running, CallbackField::Run, args).await)
    }

    /// The end of a node whose callback decides it.
    pub(crate) fn end_of(&self, result: Result<Value, CallError>) -> Result<NodeEnd, Abort> {
        match result {
            Ok(output) => Ok(NodeEnd::ok(output)),
            Err(error) => self.call_failed(error),
        }
    }

    /// The end of a node whose callback failed. A cancelled callback of a runner that has to leave has no end.
    pub(crate) fn call_failed(&self, error: CallError) -> Result<NodeEnd, Abort> {
        if error.kind == CallErrorKind::Cancelled && self.leaving.is_cancelled() {
            return Err(Abort::Ordered);
        }
        Ok(NodeEnd::of_call(error))
    }

    /// Arguments that every callback of a running node gets.
    pub(crate) fn args(&self, running: &Running<'_, '_>) -> CallArgs {
        CallArgs {
            argument: None,
            extras: Map::new(),
            publish: None,
            deadline: running.deadline,
            cancel: self.leaving.child_token(),
            pure: false,
        }
    }

    /// Calls a callback of the running node.
    pub(crate) async fn call(
        &self,
        running: &Running<'_, '_>,
        field: CallbackField,
        args: CallArgs,
    ) -> Result<Value, CallError> {
        let node = running.attempt.node;
        let callback = CallbackRef {
            scope: node.mount.clone(),
            node: Some(node.local_id.clone()),
            field,
        };
        bounded_call(&*self.host, callback, args).await
    }
}

/// Calls a callback and gives up on a host that does not come back.
pub(crate) async fn bounded_call<H: ScriptHost>(
    host: &H,
    callback: CallbackRef,
    args: CallArgs,
) -> Result<Value, CallError> {
    let what = callback.field.name();
    let Some(deadline) = args.deadline else {
        return host.call(callback, args).await;
    };
    let latest = tokio::time::Instant::from_std(deadline) + CALLBACK_SLACK;
    match tokio::time::timeout_at(latest, host.call(callback, args)).await {
        Ok(result) => result,
        Err(_) => Err(CallError {
            kind: CallErrorKind::Stuck,
            message: format!("{what} did not come back after its time was up; its process is ended"),
            stack: None,
        }),
    }
}
