//! One JavaScript runtime: sets it up, evaluates modules in it, and drives one call at a time to its end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant};

use piw_engine::raw::RawDefinition;
use piw_protocol::run::SourceRef;
use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{
    CatchResultExt, CaughtError, Context, Ctx, Exception, Function, Module, Object, Persistent, Runtime, TypedArray,
    Value,
};
use serde_json::Value as Json;
use tokio::sync::mpsc::{Receiver, channel};

use super::api::{CallArgs, CallError, CallErrorKind, CallbackRef, ConsoleLevel, LoadError, LoadErrorKind};
use super::failure::{Failure, NOTHING_THROWN, UNSETTLED, label, link_error, thrown_text, without_class};
use super::journal::Journal;
use super::loader::{GlueSlot, Load, Resolve};
use super::memory::{Counting, Peak};
use super::modules::Modules;
use super::natives;
use super::shared::{Console, EVENT_QUEUE, Event, Shared, Stop, Timers};
use super::stack;
use super::value::{self, NotJson};
use crate::regular::in_bytes;

/// What both runtimes of a host are made from.
#[derive(Clone)]
pub(super) struct Parts {
    pub options: Rc<super::api::ScriptOptions>,
    pub modules: Rc<Modules>,
    pub console: Rc<Console>,
    pub started: Instant,
    pub journal: Rc<RefCell<Journal>>,
}

/// A runtime and what drives it.
pub(super) struct Realm {
    // Dropped first: the runtime must not be freed while values of it are held.
    glue: GlueSlot,
    context: Context,
    runtime: Runtime,
    memory: Rc<Peak>,
    pub shared: Rc<Shared>,
    events: Receiver<Event>,
}

impl Drop for Realm {
    fn drop(&mut self) {
        self.shared.drop_leftovers();
        self.glue.borrow_mut().take();
    }
}

impl Realm {
    /// A fresh runtime with the host's globals.
    pub(super) fn new(parts: &Parts, pure: bool) -> Result<Self, String> {
        let (sender, events) = channel(EVENT_QUEUE);
        let shared = Rc::new(Shared {
            pure,
            options: Rc::clone(&parts.options),
            modules: Rc::clone(&parts.modules),
            console: Rc::clone(&parts.console),
            started: parts.started,
            journal: Rc::clone(&parts.journal),
            gate: None.into(),
            touched: None.into(),
            loader_open: true.into(),
            call: 0.into(),
            deadline: None.into(),
            cancel: tokio_util::sync::CancellationToken::new().into(),
            hard_stop: None.into(),
            stopped: None.into(),
            aborted: None.into(),
            publish: None.into(),
            timers: Timers::default().into(),
            events: sender,
            pending: 0.into(),
            children: HashMap::new().into(),
            unhandled: HashMap::new().into(),
        });
        let glue = GlueSlot::default();
        let memory = Rc::new(Peak::default());
        let runtime = Runtime::new_with_alloc(Counting(Rc::clone(&memory))).map_err(|error| error.to_string())?;
        runtime.set_memory_limit(parts.options.memory_limit);
        runtime.set_max_stack_size(parts.options.stack_limit);
        let watched = Rc::clone(&shared);
        runtime.set_interrupt_handler(Some(Box::new(move || watched.interrupted())));
        let watched = Rc::clone(&shared);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |_ctx, promise, reason, handled| {
            let mut hasher = DefaultHasher::new();
            promise.hash(&mut hasher);
            let mut unhandled = watched.unhandled.borrow_mut();
            if handled {
                unhandled.remove(&hasher.finish());
            } else if unhandled.len() < 16 {
                unhandled.insert(hasher.finish(), thrown_text(&reason));
            }
        })));
        runtime.set_loader(
            Resolve(Rc::clone(&shared)),
            Load {
                shared: Rc::clone(&shared),
                glue: Rc::clone(&glue),
            },
        );
        let context = Context::full(&runtime).map_err(|error| error.to_string())?;
        context.with(|ctx| {
            let made = bootstrap(&ctx, &shared)
                .catch(&ctx)
                .map_err(|error| error.to_string())?;
            *glue.borrow_mut() = Some(Persistent::save(&ctx, made));
            Ok::<_, String>(())
        })?;
        Ok(Self {
            glue,
            context,
            runtime,
            memory,
            shared,
            events,
        })
    }

    fn glue<'js>(&self, ctx: &Ctx<'js>, function: &str) -> rquickjs::Result<Function<'js>> {
        let glue = self.glue.borrow().clone();
        match glue {
            Some(glue) => glue.restore(ctx)?.get(function),
            None => Err(Exception::throw_message(ctx, "the script host is not ready")),
        }
    }

    /// Calls a function of the bootstrap script that answers with text or nothing.
    fn ask<A>(&self, function: &str, args: A) -> Result<Option<String>, Failure>
    where
        A: for<'js> rquickjs::function::IntoArgs<'js>,
    {
        self.context.with(|ctx| {
            let done = self
                .glue(&ctx, function)
                .and_then(|function| function.call::<_, Option<String>>(args));
            done.map_err(|error| self.failure(&ctx, error))
        })
    }

    /// Evaluates the module `name` and makes its default export the root of the definition tree, or the target of the
    /// reference `reference`.
    pub(super) async fn evaluate(&mut self, name: &str, reference: Option<u32>) -> Result<(), Failure> {
        let promise = self.context.with(|ctx| {
            let started = Module::import(&ctx, name).map(|promise| Persistent::save(&ctx, promise.into_value()));
            started.map_err(|error| self.failure(&ctx, error))
        })?;
        let settled = self.settle(promise).await?;
        self.context.with(|ctx| {
            let adopt = || -> rquickjs::Result<()> {
                let namespace = settled.restore(&ctx)?;
                self.glue(&ctx, "adopt")?.call((namespace, name, reference))
            };
            adopt().map_err(|error| self.failure(&ctx, error))
        })
    }

    /// The next dynamic include that has no workflow yet: its number, what it names, and the module that names it.
    pub(super) fn next_reference(&self) -> Result<Option<(u32, String, String)>, Failure> {
        let text = self.ask("nextReference", ())?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// The definition tree as data.
    pub(super) fn describe(&self, root: &SourceRef) -> Result<RawDefinition, Failure> {
        let source = serde_json::to_string(root).unwrap_or_default();
        let text = self.ask("describe", (source,))?.unwrap_or_default();
        serde_json::from_str(&text)
            .map_err(|error| Failure::new(CallErrorKind::Thrown, format!("the definition cannot be read: {error}")))
    }

    /// Runs one callback to its end and drops what it left running.
    pub(super) async fn call(&mut self, callback: &CallbackRef, args: CallArgs) -> Result<Json, CallError> {
        let gate = args.pure.then(|| label(callback));
        self.memory.reset();
        self.shared
            .begin(gate, args.deadline, args.cancel.clone(), args.publish.clone());
        let result = self.call_inner(callback, &args).await;
        let result = self.judge(result);
        self.finish();
        result.map_err(CallError::from)
    }

    async fn call_inner(&mut self, callback: &CallbackRef, args: &CallArgs) -> Result<Json, Failure> {
        if args.cancel.is_cancelled() {
            return Err(Failure::new(CallErrorKind::Cancelled, "cancelled before it began"));
        }
        let argument = args.argument.as_ref().map(ToString::to_string);
        let extras = serde_json::to_string(&args.extras).unwrap_or_default();
        let started = self.context.with(|ctx| {
            let begin = || {
                self.glue(&ctx, "call")?.call::<_, Value<'_>>((
                    &callback.scope,
                    callback.node.as_deref(),
                    callback.field.name(),
                    argument,
                    extras,
                    args.publish.is_some(),
                ))
            };
            begin()
                .map(|value| Persistent::save(&ctx, value))
                .map_err(|error| self.failure(&ctx, error))
        })?;
        let settled = self.settle(started).await?;
        let json = self.context.with(|ctx| {
            let value = settled.restore(&ctx).map_err(|error| self.failure(&ctx, error))?;
            match value::to_json(&ctx, value) {
                Ok(json) => Ok(json),
                Err(NotJson::Bad { path, why }) => {
                    let message = format!("the result is not JSON: {path} {why}");
                    Err(Failure::new(CallErrorKind::BadValue { path }, message))
                }
                Err(NotJson::Threw(error)) => Err(self.failure(&ctx, error)),
            }
        })?;
        // Updates that were published without awaiting them count before the result does; processes do not, they end with
        // the call.
        self.drive(|realm| realm.shared.pending.get() <= realm.shared.children.borrow().len())
            .await?;
        Ok(json)
    }

    /// Overrides a result by what ended or spoiled the call, even if its code caught that.
    fn judge<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        let stack = result.as_ref().err().and_then(|failure| failure.stack.clone());
        let failure = match self.shared.stopped.get().or(self.shared.aborted.get()) {
            Some(Stop::Exit(code)) => Failure::new(
                CallErrorKind::Exit { code },
                format!("process.exit({code}) was called; a node ends by returning or throwing"),
            ),
            Some(Stop::TimedOut) => Failure::new(CallErrorKind::TimedOut, "did not settle before its deadline"),
            Some(Stop::Cancelled) => Failure::new(CallErrorKind::Cancelled, "was cancelled"),
            None => match self.shared.touched.borrow().clone() {
                Some(what) => {
                    let message = self.shared.impure_message(&what);
                    Failure::new(CallErrorKind::Impure { what }, message)
                }
                None => return result.map_err(|failure| self.recognise_exhaustion(failure)),
            },
        };
        Err(Failure { stack, ..failure })
    }

    /// Leaves nothing of the call behind: no timer, process or queued job.
    fn finish(&mut self) {
        for reason in self.shared.unhandled.borrow_mut().drain().map(|(_, reason)| reason) {
            self.shared
                .console
                .write(ConsoleLevel::Error, &format!("unhandled rejection: {reason}"));
        }
        let _ = self.ask("endCall", ());
        self.shared.drop_leftovers();
        // The gate is still closed while the last jobs run; an endless chain of them is cut off.
        self.shared.stopped.set(None);
        self.shared.cancel.replace(tokio_util::sync::CancellationToken::new());
        self.shared
            .hard_stop
            .set(Some(Instant::now() + Duration::from_millis(50)));
        while self.run_job() {}
        self.shared.drop_leftovers();
        self.shared.stopped.set(None);
        self.shared.hard_stop.set(None);
        self.shared.deadline.set(None);
        self.shared.gate.replace(None);
        self.shared.touched.replace(None);
        while self.events.try_recv().is_ok() {}
    }

    /// Prepares for `evaluate` and friends.
    pub(super) fn begin_load(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.memory.reset();
        self.shared
            .begin(None, Some(deadline), tokio_util::sync::CancellationToken::new(), None);
        self.shared.loader_open.set(true);
    }

    /// Ends loading; says what the module code touched, in the pure runtime, even if it caught the refusal.
    pub(super) fn end_load(&mut self) -> Option<String> {
        let touched = self.shared.touched.borrow().clone();
        self.finish();
        if self.shared.pure {
            self.shared.loader_open.set(false);
        }
        touched
    }

    /// Puts a failure while loading into words.
    pub(super) fn load_error(&self, failure: Failure) -> LoadError {
        let failure = match self.judge::<()>(Err(failure)) {
            Err(failure) => failure,
            Ok(()) => Failure::new(CallErrorKind::Thrown, "unknown failure"),
        };
        let seconds = self.shared.options.load_timeout.as_secs_f64();
        let (kind, message) = match (failure.kind, failure.code.as_deref()) {
            (CallErrorKind::TimedOut, _) => (
                LoadErrorKind::TimedOut,
                format!("the module did not finish loading within {seconds} s"),
            ),
            (CallErrorKind::OutOfMemory, _) => (
                LoadErrorKind::OutOfMemory,
                format!("the module ran {}", self.out_of_memory()),
            ),
            (_, Some(UNSETTLED)) => (
                LoadErrorKind::Thrown,
                format!("the module never finishes loading: {}", failure.message),
            ),
            (CallErrorKind::Exit { code }, _) => (
                LoadErrorKind::Thrown,
                format!("process.exit({code}) was called while the module loaded"),
            ),
            (_, Some("ERR_SYNTAX")) => (LoadErrorKind::Syntax, failure.message),
            (_, Some("ERR_MODULE_NOT_FOUND" | "ERR_UNKNOWN_BUILTIN_MODULE" | "ERR_UNSUPPORTED")) => {
                (LoadErrorKind::Import, failure.message)
            }
            (_, Some("ERR_NOT_A_WORKFLOW")) => (LoadErrorKind::NotAWorkflow, without_class(failure.message)),
            (_, Some("ERR_WORKFLOW_SHAPE")) => {
                let place = failure
                    .stack
                    .as_deref()
                    .and_then(|stack| stack.lines().next())
                    .unwrap_or("")
                    .trim();
                let place = if place.is_empty() {
                    String::new()
                } else {
                    format!("\n  {place}")
                };
                (
                    LoadErrorKind::NotAWorkflow,
                    format!("{}{place}", without_class(failure.message)),
                )
            }
            _ if link_error(&failure.message).is_some() => {
                let message = link_error(&failure.message).unwrap_or_default();
                (LoadErrorKind::Import, message)
            }
            _ => {
                let stack = failure
                    .stack
                    .as_deref()
                    .map(|stack| format!("\n{stack}"))
                    .unwrap_or_default();
                (
                    LoadErrorKind::Thrown,
                    format!("the module threw while loading: {}{stack}", failure.message),
                )
            }
        };
        LoadError {
            kind,
            message,
            stack: failure.stack,
        }
    }

    /// Runs jobs, timers and reports until `value` is no pending promise; answers with what it became.
    async fn settle(&mut self, value: Persistent<Value<'static>>) -> Result<Persistent<Value<'static>>, Failure> {
        let watched = value.clone();
        self.drive(move |realm| {
            realm.context.with(|ctx| {
                let Ok(value) = watched.clone().restore(&ctx) else {
                    return true;
                };
                value
                    .into_promise()
                    .is_none_or(|promise| promise.state() != PromiseState::Pending)
            })
        })
        .await?;
        self.context.with(|ctx| {
            let value = value.restore(&ctx).map_err(|error| self.failure(&ctx, error))?;
            let Some(promise) = value.clone().into_promise() else {
                return Ok(Persistent::save(&ctx, value));
            };
            match promise.result::<Value<'_>>() {
                Some(Ok(value)) => Ok(Persistent::save(&ctx, value)),
                Some(Err(error)) => Err(self.failure(&ctx, error)),
                None => Err(Failure::new(CallErrorKind::TimedOut, "did not settle")),
            }
        })
    }

    /// The event loop of one call.
    async fn drive(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        loop {
            while self.run_job() {
                if self.shared.stopped.get().is_some() {
                    break;
                }
            }
            if self.shared.stopped.get().is_some() {
                return Err(Failure::new(CallErrorKind::TimedOut, "was ended"));
            }
            if done(self) {
                return Ok(());
            }
            self.wait().await?;
        }
    }

    /// Waits for the next thing that can make progress and lets JavaScript see it.
    async fn wait(&mut self) -> Result<(), Failure> {
        let timer = self.shared.timers.borrow().next();
        let aborting = self.shared.hard_stop.get();
        let limit = aborting.or(self.shared.deadline.get());
        let idle = timer.is_none() && self.shared.pending.get() == 0;
        if idle && !self.listens_for_abort()? {
            let why = "it waits for a promise that nothing can settle: no timer, process or other operation is pending";
            return Err(Failure {
                code: Some(UNSETTLED.to_owned()),
                ..Failure::new(CallErrorKind::Thrown, why)
            });
        }
        let cancel = self.shared.cancel.borrow().clone();
        let sleep = |at: Option<Instant>| async move {
            match at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled(), if aborting.is_none() => self.abort(Stop::Cancelled),
            () = sleep(limit) => {
                if aborting.is_some() {
                    let cancelled = self.shared.cancel.borrow().is_cancelled();
                    self.shared.stopped.set(Some(if cancelled { Stop::Cancelled } else { Stop::TimedOut }));
                    Ok(())
                } else {
                    self.abort(Stop::TimedOut)
                }
            }
            event = self.events.recv() => match event {
                Some(event) => self.deliver(event),
                None => Ok(()),
            },
            () = sleep(timer) => {
                // Only timers that are due now: one that sets itself again waits for the next round.
                let now = Instant::now();
                loop {
                    let due = self.shared.timers.borrow_mut().take_due(now);
                    let Some(id) = due else { return Ok(()) };
                    self.ask("fireTimer", (id,))?;
                    while self.shared.stopped.get().is_none() && self.run_job() {}
                    if self.shared.stopped.get().is_some() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn listens_for_abort(&self) -> Result<bool, Failure> {
        let bounded = self.shared.deadline.get().is_some() || !self.shared.cancel.borrow().is_cancelled();
        Ok(bounded && self.ask("listensForAbort", ())?.is_some())
    }

    /// Aborts the call's signal and grants the grace period.
    fn abort(&self, why: Stop) -> Result<(), Failure> {
        self.shared
            .hard_stop
            .set(Some(Instant::now() + self.shared.options.grace));
        self.shared.aborted.set(Some(why));
        let reason = if why == Stop::TimedOut {
            "TimeoutError"
        } else {
            "AbortError"
        };
        let told = self.ask("abort", (reason,));
        while self.shared.stopped.get().is_none() && self.run_job() {}
        told.map(drop)
    }

    fn deliver(&self, event: Event) -> Result<(), Failure> {
        let current = self.shared.call.get();
        match event {
            Event::Done { call, id, result } if call == current => {
                self.shared.pending.set(self.shared.pending.get().saturating_sub(1));
                self.shared.children.borrow_mut().remove(&id);
                let (error, value) = match result {
                    Ok(value) => (None, Some(value)),
                    Err(error) => (Some(error), None),
                };
                self.ask("finishOperation", (id, error, value)).map(drop)
            }
            Event::Output {
                call,
                id,
                stream,
                bytes,
            } if call == current => self.context.with(|ctx| {
                let push = || -> rquickjs::Result<()> {
                    let bytes = TypedArray::<u8>::new_copy(ctx.clone(), bytes)?;
                    self.glue(&ctx, "childOutput")?.call((id, stream, bytes))
                };
                push().map_err(|error| self.failure(&ctx, error))
            }),
            Event::Exit { call, id, status } if call == current => {
                self.shared.pending.set(self.shared.pending.get().saturating_sub(1));
                self.shared.children.borrow_mut().remove(&id);
                self.ask("childExit", (id, status)).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Runs one queued job; `false` when there is none.
    fn run_job(&self) -> bool {
        match self.runtime.execute_pending_job() {
            Ok(ran) => ran,
            Err(error) => {
                // The job's exception is nobody's; an interruption is recorded in `stopped`.
                error.0.with(|ctx| drop(ctx.catch()));
                true
            }
        }
    }

    fn failure(&self, ctx: &Ctx<'_>, error: rquickjs::Error) -> Failure {
        let caught = CaughtError::from_error(ctx, error);
        let (message, stack, code, name) = match &caught {
            CaughtError::Error(rquickjs::Error::Allocation) => ("out of memory".to_owned(), None, None, String::new()),
            CaughtError::Error(error) => (error.to_string(), None, None, String::new()),
            CaughtError::Value(value) => (thrown_text(value), None, None, String::new()),
            CaughtError::Exception(exception) => {
                let stack = exception
                    .stack()
                    .map(|stack| stack::remap(&stack, &*self.shared.modules));
                let code = exception.as_object().get::<_, Option<String>>("code").ok().flatten();
                let name = exception
                    .as_object()
                    .get::<_, Option<String>>("name")
                    .ok()
                    .flatten()
                    .unwrap_or_default();
                (
                    thrown_text(exception.as_value()),
                    stack.filter(|stack| !stack.is_empty()),
                    code,
                    name,
                )
            }
        };
        let memory = message == "out of memory" || (name == "InternalError" && message.ends_with("out of memory"));
        let kind = match code.as_deref() {
            _ if memory => CallErrorKind::OutOfMemory,
            Some("ERR_MISSING_CALLBACK") => CallErrorKind::Missing,
            _ => CallErrorKind::Thrown,
        };
        let message = if memory { self.out_of_memory() } else { message };
        Failure {
            kind,
            message,
            stack,
            code,
        }
    }

    fn out_of_memory(&self) -> String {
        let limit = in_bytes(self.shared.options.memory_limit as u64);
        format!("out of memory: scripts may use {limit}")
    }

    /// When memory is so short that no error object can be made, the engine throws `null`, or, in a job, nothing at all, so that
    /// a promise is never settled.
    fn recognise_exhaustion(&self, failure: Failure) -> Failure {
        let short = self.memory.reached(self.shared.options.memory_limit);
        let wordless = failure.message == NOTHING_THROWN || failure.code.as_deref() == Some(UNSETTLED);
        if wordless && short {
            return Failure::new(CallErrorKind::OutOfMemory, self.out_of_memory());
        }
        failure
    }
}

/// Runs the bootstrap script and returns its object.
fn bootstrap<'js>(ctx: &Ctx<'js>, shared: &Rc<Shared>) -> rquickjs::Result<Object<'js>> {
    let host = natives::install(ctx, shared)?;
    let mut options = EvalOptions::default();
    options.global = true;
    options.strict = true;
    options.filename = Some("piw:internal/bootstrap".to_owned());
    let function: Function<'js> = ctx.eval_with_options(include_str!("js/bootstrap.js"), options)?;
    function.call((host,))
}
