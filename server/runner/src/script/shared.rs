//! State shared between a runtime's native functions and the code that drives it: deadline, cancellation, purity, timers,
//! pending operations.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Instant;

use rquickjs::{Ctx, Exception};
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio_util::sync::CancellationToken;

use super::api::{ConsoleLevel, PublishUpdate, ScriptOptions};
use super::journal::Journal;
use super::modules::Modules;
use crate::regular::in_bytes;

/// Why running code was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its deadline passed.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It called `process.exit`.
    Exit(i32),
}

/// Reports that may wait for JavaScript to take them; more hold up whoever makes them.
pub(super) const EVENT_QUEUE: usize = 16;

/// What an asynchronous operation reports back to JavaScript.
#[derive(Debug)]
pub(super) enum Event {
    /// Operation `id` ended: JSON text, or an error's JSON text (`{message, code?, …}`).
    Done {
        call: u64,
        id: u32,
        result: Result<String, String>,
    },
    /// A child process wrote to stdout (1) or stderr (2); an empty chunk ends the stream.
    Output {
        call: u64,
        id: u32,
        stream: u8,
        bytes: Vec<u8>,
    },
    /// A child process ended: JSON text `{code, signal}`.
    Exit { call: u64, id: u32, status: String },
}

/// A running child process of the current call.
pub(super) struct Child {
    /// Its process id.
    pub pid: u32,
    /// Feeds its standard input; dropping it closes the pipe.
    pub stdin: Option<UnboundedSender<Vec<u8>>>,
    /// Ends the tasks that serve it.
    pub gone: CancellationToken,
    /// Fires when it has ended and its id may belong to another process.
    pub exited: CancellationToken,
}

impl Child {
    /// Sends it a signal, unless it has ended.
    pub(super) fn kill(&self, signal: i32) -> bool {
        !self.exited.is_cancelled() && super::natives::process::kill(self.pid, signal)
    }
}

/// Console output of a host, bounded over its whole life.
pub(super) struct Console {
    options: Rc<ScriptOptions>,
    left: Cell<usize>,
}

impl Console {
    pub(super) fn new(options: Rc<ScriptOptions>) -> Self {
        let left = Cell::new(options.console_limit);
        Self { options, left }
    }

    /// Writes one console call, or its beginning, or (once the bound is reached) nothing.
    pub(super) fn write(&self, level: ConsoleLevel, text: &str) {
        let left = self.left.get();
        if left == 0 {
            return;
        }
        if text.len() < left {
            self.left.set(left - text.len() - 1);
            (self.options.console)(level, text);
            return;
        }
        let mut end = left.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.left.set(0);
        (self.options.console)(level, &text[..end]);
        let limit = in_bytes(self.options.console_limit as u64);
        let notice = format!("[console output above {limit} is dropped]");
        (self.options.console)(ConsoleLevel::Warn, &notice);
    }
}

/// See the module's text.
pub(super) struct Shared {
    /// Whether this is the pure runtime.
    pub pure: bool,
    pub options: Rc<ScriptOptions>,
    pub modules: Rc<Modules>,
    pub console: Rc<Console>,
    pub started: Instant,
    pub journal: Rc<RefCell<Journal>>,
    /// Who runs while effects are refused: `compute node "x"`. `None` lets effects through.
    pub gate: RefCell<Option<String>>,
    /// The first effect that was refused in the current call.
    pub touched: RefCell<Option<String>>,
    /// Whether files may be read as modules.
    pub loader_open: Cell<bool>,
    /// Number of the current call; reports of earlier ones are dropped.
    pub call: Cell<u64>,
    pub deadline: Cell<Option<Instant>>,
    pub cancel: RefCell<CancellationToken>,
    /// When running code is ended at the latest, after its signal was aborted.
    pub hard_stop: Cell<Option<Instant>>,
    pub stopped: Cell<Option<Stop>>,
    /// Why the signal was aborted; decides the outcome whatever the code made of it.
    pub aborted: Cell<Option<Stop>>,
    pub publish: RefCell<Option<PublishUpdate>>,
    pub timers: RefCell<Timers>,
    pub events: Sender<Event>,
    /// Operations whose report is outstanding.
    pub pending: Cell<usize>,
    pub children: RefCell<HashMap<u32, Child>>,
    /// Rejections nobody handled yet, by identity of the promise.
    pub unhandled: RefCell<HashMap<u64, String>>,
}

/// Timers by due time.
#[derive(Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Instant, u32)>,
    due: HashMap<u32, Instant>,
}

impl Timers {
    pub(super) fn set(&mut self, id: u32, at: Instant) {
        self.clear(id);
        self.queue.insert((at, id));
        self.due.insert(id, at);
    }

    pub(super) fn clear(&mut self, id: u32) {
        if let Some(at) = self.due.remove(&id) {
            self.queue.remove(&(at, id));
        }
    }

    pub(super) fn clear_all(&mut self) {
        self.queue.clear();
        self.due.clear();
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes the first timer that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let &(at, id) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.clear(id);
        Some(id)
    }
}

impl Shared {
    /// Asked by the engine every few thousand steps; `true` ends the running code.
    pub(super) fn interrupted(&self) -> bool {
        if self.stopped.get().is_some() {
            return true;
        }
        let now = Instant::now();
        if self.cancel.borrow().is_cancelled() {
            let stop = self.hard_stop.get().unwrap_or_else(|| {
                let stop = now + self.options.grace;
                self.hard_stop.set(Some(stop));
                stop
            });
            if now >= stop {
                self.stopped.set(Some(Stop::Cancelled));
                return true;
            }
            return false;
        }
        let limit = self.hard_stop.get().or(self.deadline.get());
        if limit.is_some_and(|limit| now >= limit) {
            self.stopped.set(Some(Stop::TimedOut));
            return true;
        }
        false
    }

    /// Refuses an effect while the gate is closed. `what` names it as authors know it.
    pub(super) fn effect(&self, ctx: &Ctx<'_>, what: &str) -> rquickjs::Result<()> {
        if self.gate.borrow().is_none() && !self.pure {
            return Ok(());
        }
        Err(self.touch(ctx, what))
    }

    /// Records a refused effect and makes the error for it.
    pub(super) fn touch(&self, ctx: &Ctx<'_>, what: &str) -> rquickjs::Error {
        self.touched.borrow_mut().get_or_insert_with(|| what.to_owned());
        Exception::throw_message(ctx, &self.impure_message(what))
    }

    /// Text of the error for a refused effect.
    pub(super) fn impure_message(&self, what: &str) -> String {
        match &*self.gate.borrow() {
            Some(who) => format!(
                "{who} touched {what}: it must be pure, without files, processes, network, timers or environment; move the effect to an action or shell node"
            ),
            None => format!("{what} is not available to pure code"),
        }
    }

    /// Begins a call; effects are refused if `gate` says who runs.
    pub(super) fn begin(
        &self,
        gate: Option<String>,
        deadline: Option<Instant>,
        cancel: CancellationToken,
        publish: Option<PublishUpdate>,
    ) -> u64 {
        let call = self.call.get() + 1;
        self.call.set(call);
        self.deadline.set(deadline);
        self.hard_stop.set(None);
        self.stopped.set(None);
        self.aborted.set(None);
        self.pending.set(0);
        *self.cancel.borrow_mut() = cancel;
        *self.gate.borrow_mut() = gate;
        *self.touched.borrow_mut() = None;
        *self.publish.borrow_mut() = publish;
        self.unhandled.borrow_mut().clear();
        call
    }

    /// Cancels what the current call left running.
    pub(super) fn drop_leftovers(&self) {
        self.timers.borrow_mut().clear_all();
        self.pending.set(0);
        for (_, child) in self.children.borrow_mut().drain() {
            child.kill(libc::SIGKILL);
            child.gone.cancel();
        }
        // Reports of operations that still run carry the old number and are dropped.
        self.call.set(self.call.get() + 1);
        *self.publish.borrow_mut() = None;
    }
}
