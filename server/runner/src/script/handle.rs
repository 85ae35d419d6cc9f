//! The caller's side of the script thread, and the watchdog for a thread that does not answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::api::{
    CallArgs, CallError, CallErrorKind, CallbackRef, Entry, LoadError, LoadErrorKind, Loaded, NodeResult, ScriptHost,
    ScriptOptions,
};
use super::worker::{self, Request};

/// Stack of the script thread: room for the TypeScript tree walkers at their deepest, far above JavaScript's own limit.
const THREAD_STACK: usize = 512 << 20;

/// A running script thread. Dropping it ends the thread once its current request is done.
#[derive(Debug)]
pub struct ScriptHandle {
    requests: mpsc::UnboundedSender<Request>,
    load_timeout: Duration,
    grace: Duration,
    watchdog: Duration,
    /// Set once the thread did not answer: nothing more is asked of it.
    lost: AtomicBool,
}

impl ScriptHandle {
    /// Starts the script thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(options: ScriptOptions) -> std::io::Result<Self> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (load_timeout, grace, watchdog) = (options.load_timeout, options.grace, options.watchdog);
        thread::Builder::new()
            .name("script".to_owned())
            .stack_size(THREAD_STACK)
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                match runtime {
                    Ok(runtime) => runtime.block_on(worker::serve(options, receiver)),
                    Err(error) => tracing::error!(%error, "the script thread has no event loop"),
                }
            })?;
        Ok(Self {
            requests,
            load_timeout,
            grace,
            watchdog,
            lost: AtomicBool::new(false),
        })
    }

    fn stuck(&self, what: &str) -> String {
        self.lost.store(true, Ordering::Relaxed);
        format!(
            "{what} did not give up control within {:.0} s after its deadline; it runs in native code that cannot be interrupted",
            (self.grace + self.watchdog).as_secs_f64()
        )
    }
}

impl ScriptHost for ScriptHandle {
    async fn load(&self, entry: Entry) -> Result<Loaded, LoadError> {
        let (reply, answer) = oneshot::channel();
        let gone = |message: String| LoadError {
            kind: LoadErrorKind::Stuck,
            message,
            stack: None,
        };
        if self.lost.load(Ordering::Relaxed) || self.requests.send(Request::Load { entry, reply }).is_err() {
            return Err(gone("the script thread is gone".to_owned()));
        }
        match tokio::time::timeout(self.load_timeout + self.grace + self.watchdog, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(gone("the script thread ended while it loaded the module".to_owned())),
            Err(_) => Err(gone(self.stuck("the module"))),
        }
    }

    fn open_scope(&self, scope: &str, input: &Value) {
        // A dead thread shows at the next call.
        let _ = self.requests.send(Request::OpenScope {
            scope: scope.to_owned(),
            input: input.to_string(),
        });
    }

    fn record(&self, scope: &str, local_id: &str, result: &NodeResult) {
        let _ = self.requests.send(Request::record(scope, local_id, result));
    }

    async fn call(&self, callback: CallbackRef, args: CallArgs) -> Result<Value, CallError> {
        let gone = |message: String| CallError {
            kind: CallErrorKind::Stuck,
            message,
            stack: None,
        };
        let (reply, mut answer) = oneshot::channel();
        let (deadline, cancel) = (args.deadline, args.cancel.clone());
        if self.lost.load(Ordering::Relaxed) || self.requests.send(Request::Call { callback, args, reply }).is_err() {
            return Err(gone("the script thread is gone".to_owned()));
        }
        let patience = self.grace + self.watchdog;
        let overdue = async {
            let by_deadline = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until((deadline.max(Instant::now()) + patience).into()).await,
                    None => std::future::pending().await,
                }
            };
            let by_cancel = async {
                cancel.cancelled().await;
                tokio::time::sleep(patience).await;
            };
            tokio::select! { () = by_deadline => {} () = by_cancel => {} }
        };
        tokio::select! {
            biased;
            result = &mut answer => result.unwrap_or_else(|_| Err(gone("the script thread ended during the call".to_owned()))),
            () = overdue => Err(gone(self.stuck("the callback"))),
        }
    }
}
