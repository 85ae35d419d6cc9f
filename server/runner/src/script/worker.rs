//! The script thread: owns both runtimes, applies scope records to them and runs one request at a time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use piw_protocol::run::SourceRef;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::api::{
    CallArgs, CallError, CallErrorKind, CallbackRef, Entry, LoadError, LoadErrorKind, Loaded, NodeResult, ScriptOptions,
};
use super::failure::Failure;
use super::journal::{Journal, Record};
use super::modules::{MAX_SOURCE, Modules};
use super::realm::{Parts, Realm};
use super::shared::Console;
use crate::regular::{self, ReadError};

/// Deepest nesting of dynamic includes, as for all includes.
const MAX_INCLUDES: usize = 4_096;

/// What the handle asks of the thread.
pub(super) enum Request {
    Load {
        entry: Entry,
        reply: oneshot::Sender<Result<Loaded, LoadError>>,
    },
    OpenScope {
        scope: String,
        input: String,
    },
    Record {
        scope: String,
        local_id: String,
        meta: String,
        output: String,
        ok: bool,
    },
    Call {
        callback: CallbackRef,
        args: CallArgs,
        reply: oneshot::Sender<Result<Value, CallError>>,
    },
}

impl Request {
    /// A record of `result`, serialised by the caller's thread.
    pub(super) fn record(scope: &str, local_id: &str, result: &NodeResult) -> Self {
        let mut meta = serde_json::Map::new();
        meta.insert(
            "outcome".into(),
            serde_json::to_value(result.outcome).unwrap_or_default(),
        );
        let optional = [
            (
                "error",
                result.error.as_ref().and_then(|error| serde_json::to_value(error).ok()),
            ),
            (
                "action",
                result
                    .action
                    .as_ref()
                    .and_then(|action| serde_json::to_value(action).ok()),
            ),
            ("exit", result.exit.clone().map(Value::from)),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                meta.insert(key.into(), value);
            }
        }
        Self::Record {
            scope: scope.to_owned(),
            local_id: local_id.to_owned(),
            meta: Value::Object(meta).to_string(),
            output: result.output.to_string(),
            ok: result.outcome == piw_protocol::run::NodeOutcome::Ok,
        }
    }
}

/// Serves requests until the handle is gone.
pub(super) async fn serve(options: ScriptOptions, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut worker = Worker::new(options);
    while let Some(request) = requests.recv().await {
        match request {
            Request::Load { entry, reply } => drop(reply.send(worker.load(entry).await)),
            Request::OpenScope { scope, input } => worker.journal.borrow_mut().open(scope, input),
            Request::Record {
                scope,
                local_id,
                meta,
                output,
                ok,
            } => worker
                .journal
                .borrow_mut()
                .record(&scope, local_id, Record { meta, output, ok }),
            Request::Call { callback, args, reply } => drop(reply.send(worker.call(&callback, args).await)),
        }
    }
}

/// The pure runtime, once it was asked for.
enum Pure {
    NotYet,
    Ready(Box<Realm>),
    /// Module code touched something at its top level: pure callbacks run in the full runtime, behind the gate.
    Impossible,
}

struct Worker {
    options: Rc<ScriptOptions>,
    parts: Option<Parts>,
    full: Option<Realm>,
    pure: Pure,
    journal: Rc<RefCell<Journal>>,
    entry: Option<(String, SourceRef)>,
    /// What each dynamic reference, as written in a module, resolved to.
    references: HashMap<(String, String), String>,
}

impl Worker {
    fn new(options: ScriptOptions) -> Self {
        Self {
            options: Rc::new(options),
            parts: None,
            full: None,
            pure: Pure::NotYet,
            journal: Rc::default(),
            entry: None,
            references: HashMap::new(),
        }
    }

    async fn load(&mut self, entry: Entry) -> Result<Loaded, LoadError> {
        self.full = None;
        self.pure = Pure::NotYet;
        self.references.clear();
        let parts = Parts {
            options: Rc::clone(&self.options),
            modules: Rc::new(Modules::new(
                self.options.verified.clone(),
                self.options.workflows.clone(),
            )),
            console: Rc::new(Console::new(Rc::clone(&self.options))),
            started: Instant::now(),
            journal: Rc::clone(&self.journal),
        };
        let name = parts.modules.add_entry(&entry);
        let mut realm = Realm::new(&parts, false).map_err(|message| LoadError {
            kind: LoadErrorKind::OutOfMemory,
            message: format!("the script engine did not start: {message}"),
            stack: None,
        })?;
        let loaded = self
            .load_into(&mut realm, &parts, &name, self.options.load_timeout)
            .await;
        let loaded = match loaded {
            Ok(()) => parts
                .modules
                .source_ref(&name)
                .ok_or_else(|| Failure::new(CallErrorKind::Thrown, "the entry has no source"))
                .and_then(|source| Ok((realm.describe(&source)?, source))),
            Err(failure) => Err(failure),
        };
        let loaded = loaded.map_err(|failure| match failure.code.as_deref() {
            Some("ERR_INCLUDE") => LoadError {
                kind: LoadErrorKind::Include,
                message: failure.message,
                stack: failure.stack,
            },
            _ => realm.load_error(failure),
        });
        realm.end_load();
        let (raw, source) = loaded?;
        let modules = parts.modules.loaded();
        self.entry = Some((name, source));
        self.parts = Some(parts);
        self.full = Some(realm);
        Ok(Loaded { raw, modules })
    }

    async fn load_into(
        &mut self,
        realm: &mut Realm,
        parts: &Parts,
        name: &str,
        timeout: Duration,
    ) -> Result<(), Failure> {
        realm.begin_load(timeout);
        realm.evaluate(name, None).await?;
        for _ in 0..MAX_INCLUDES {
            let Some((number, reference, from)) = realm.next_reference()? else {
                return Ok(());
            };
            let target = self.lookup(parts, &reference, &from)?;
            realm.evaluate(&target, Some(number)).await?;
        }
        Err(include_failure(format!("more than {MAX_INCLUDES} dynamic includes")))
    }

    fn lookup(&mut self, parts: &Parts, reference: &str, from: &str) -> Result<String, Failure> {
        let key = (reference.to_owned(), from.to_owned());
        if let Some(found) = self.references.get(&key) {
            return Ok(found.clone());
        }
        let source = parts.modules.source_ref(from).unwrap_or_else(|| SourceRef::File {
            path: from.to_owned(),
            hash: String::new(),
        });
        let entry = local_file(reference, from)
            .unwrap_or_else(|| self.options.workflows.find(reference, &source))
            .map_err(|why| include_failure(format!("cannot include \"{reference}\" in {from}: {why}")))?;
        let name = parts.modules.add_entry(&entry);
        self.references.insert(key, name.clone());
        Ok(name)
    }

    async fn call(&mut self, callback: &CallbackRef, mut args: CallArgs) -> Result<Value, CallError> {
        if args.pure {
            // Making the pure runtime is no part of the node's time.
            let started = Instant::now();
            self.prepare_pure().await;
            args.deadline = args.deadline.map(|deadline| deadline + started.elapsed());
        }
        let realm = match (&mut self.pure, &mut self.full) {
            (Pure::Ready(pure), _) if args.pure => &mut **pure,
            (_, Some(full)) => full,
            _ => {
                return Err(CallError {
                    kind: CallErrorKind::Missing,
                    message: "no workflow is loaded".to_owned(),
                    stack: None,
                });
            }
        };
        realm.call(callback, args).await
    }

    /// Evaluates the definition a second time, in the pure runtime, unless that was tried before.
    async fn prepare_pure(&mut self) {
        if !matches!(self.pure, Pure::NotYet) {
            return;
        }
        self.pure = Pure::Impossible;
        let (Some(parts), Some((name, _))) = (self.parts.clone(), self.entry.clone()) else {
            return;
        };
        let Ok(mut realm) = Realm::new(&parts, true) else {
            return;
        };
        // Bounded well below the watchdog, which counts this as part of the call.
        let timeout = self.options.load_timeout.min(self.options.watchdog / 2);
        let loaded = self.load_into(&mut realm, &parts, &name, timeout).await;
        let touched = realm.end_load();
        match (loaded, touched) {
            (Ok(()), None) => self.pure = Pure::Ready(Box::new(realm)),
            (Err(failure), None) => {
                tracing::debug!(message = %failure.message, "module does not load in the pure runtime");
            }
            (_, Some(what)) => tracing::debug!(%what, "module needs an effect at its top level; using the gate"),
        }
    }
}

/// A reference by path, relative to the module that has it.
fn local_file(reference: &str, from: &str) -> Option<Result<Entry, String>> {
    if !from.starts_with('/') {
        return None;
    }
    let relative = reference.starts_with("./") || reference.starts_with("../");
    if !relative && !reference.starts_with('/') && !reference.starts_with("file:") {
        return None;
    }
    let path = match reference.strip_prefix("file:") {
        Some(_) => url::Url::parse(reference).ok()?.to_file_path().ok()?,
        None => Path::new(from).parent()?.join(reference),
    };
    let plain: std::path::PathBuf = path.components().fold(std::path::PathBuf::new(), |mut plain, part| {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            other => plain.push(other),
        }
        plain
    });
    Some(match regular::read(&plain, MAX_SOURCE) {
        Ok(bytes) => Ok(Entry::File {
            path: plain,
            bytes: bytes.into(),
        }),
        Err(ReadError::TooLarge) => {
            let limit = regular::in_bytes(MAX_SOURCE);
            Err(format!(
                "{}: it has more than {limit}, the limit of a module",
                plain.display()
            ))
        }
        Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(format!("no such file: {}", plain.display()))
        }
        Err(ReadError::Io(error)) => Err(format!("{}: {error}", plain.display())),
    })
}

fn include_failure(message: String) -> Failure {
    Failure {
        kind: CallErrorKind::Thrown,
        message,
        stack: None,
        code: Some("ERR_INCLUDE".to_owned()),
    }
}
