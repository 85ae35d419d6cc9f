//! The process beside a Pi session: lines of the extension in, instructions out, one client connection to the server. It ends
//! when the extension closes its input.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::io::{self, BufRead, Read as _, Write};
use std::sync::Arc;
use std::time::Duration;

use piw_protocol::canonical;
use piw_protocol::client::{Client, ClientError, ClientOptions, Connector, Freshness, SessionWatch, UnixConnector};
use piw_protocol::content::MEDIA_JSON;
use piw_protocol::envelope::PACKAGE_VERSION;
use piw_protocol::interaction::{InteractionAssistant, SessionAuthority, SessionView};
use piw_protocol::session::{RecordedEntry, SessionRecord};
use piw_server::paths::Places;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::act::{Desk, Questions, Said, Starter, explain};
use super::card;
use super::coordinator::{self, Coordinator, Effect, Input, Trouble};
use super::glue::{FromGlue, GLUE_VERSION, LINE_LIMIT, Level, ToGlue};
use super::recorder::{self, Recorder};
use super::tool::{self, Typed};
use super::widget;
use crate::command::session::{self, Autostart};

/// Pause between two looks at what time brings about.
const TICK: Duration = Duration::from_millis(250);
/// Longest delay between attempts to reach a server. A socket of one's own machine costs nothing to try.
const RETRY: Duration = Duration::from_secs(2);
/// Longest wait for the last batches of a recording at the end.
const FAREWELL: Duration = Duration::from_secs(2);
/// Lines of the extension that wait at most.
const LINES: usize = 64;
/// Bytes of an assistant message above which it is uploaded.
const INLINE_TEXT: usize = 256 * 1024;

/// What a task of the bridge brought.
enum Done {
    Input(Input),
    Tool {
        call_id: String,
        said: Said,
    },
    Typed(Said),
    Recorded(Result<(), (Trouble, String)>),
    Accepted {
        request_id: String,
        call_id: String,
        said: Said,
    },
    Window(Result<(), ClientError>),
}

/// What the extension said of itself first.
struct Hello {
    session_id: String,
    cwd: String,
    columns: u16,
    queued: Vec<String>,
    turn: Option<String>,
}

struct Bridge {
    client: Client,
    watch: SessionWatch,
    coordinator: Coordinator,
    recorder: Recorder,
    desk: Desk,
    live: watch::Sender<Option<Arc<SessionView>>>,
    out: mpsc::UnboundedSender<ToGlue>,
    done: mpsc::UnboundedSender<Done>,
    columns: usize,
    widget: Vec<String>,
    status: Option<String>,
    /// Why the view is not live, when that is worth saying.
    trouble: Option<String>,
    /// First row of the widget, when a person moved it.
    cursor: Option<u64>,
    ticked: Instant,
}

/// A line of the extension, or why it means nothing.
pub(crate) type Line = Result<FromGlue, String>;

/// Serves one extension until it says nothing more.
///
/// # Errors
/// A sentence: the extension speaks another version, or a line means nothing.
pub(crate) async fn serve<C: Connector>(
    mut lines: mpsc::Receiver<Line>,
    out: mpsc::UnboundedSender<ToGlue>,
    connector: C,
    starter: Starter,
) -> Result<(), String> {
    let Some(first) = lines.recv().await else { return Ok(()) };
    let hello = hello(first?)?;
    let options = ClientOptions {
        client_id: format!("pi:{}", hello.session_id),
        longest_delay: RETRY,
        slow_delay: RETRY,
        ..ClientOptions::default()
    };
    let client = Client::start(connector, options);
    let (done, mut results) = mpsc::unbounded_channel();
    let mut bridge = Bridge::new(client, hello, out, done, starter);
    bridge.tell(ToGlue::Ready {
        version: PACKAGE_VERSION,
    });
    let end = loop {
        let timer = bridge.timer();
        tokio::select! {
            line = lines.recv() => match line {
                Some(Ok(line)) => bridge.heard(line),
                Some(Err(why)) => break Err(why),
                None => break Ok(()),
            },
            changed = bridge.watch.changed() => bridge.viewed(changed),
            Some(result) = results.recv() => bridge.finished(result),
            () = wait(timer) => bridge.tick(),
        }
    };
    bridge.farewell(&mut results).await;
    end
}

/// Serves the extension at the other end of the standard streams.
///
/// # Errors
/// As [`serve`].
pub(crate) fn run(runtime: &tokio::runtime::Runtime, places: Places) -> Result<(), String> {
    let (incoming, lines) = mpsc::channel(LINES);
    let (out, queue) = mpsc::unbounded_channel();
    // The reader stays in its read until the process ends, the writer until its last line is out.
    std::thread::spawn(move || read(&mut io::stdin().lock(), &incoming));
    let (written, writer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        write(&mut io::stdout().lock(), queue);
        let _ = written.send(());
    });
    let connector = UnixConnector::new(&places.socket);
    let served = runtime.block_on(serve(lines, out, connector, starter(places)));
    // Whatever is still to be written has no reader when Pi is gone.
    let _ = writer.recv_timeout(FAREWELL);
    served
}

fn hello(line: FromGlue) -> Result<Hello, String> {
    let FromGlue::Hello {
        glue,
        session_id,
        cwd,
        columns,
        queued,
        turn,
    } = line
    else {
        return Err("the first line is no hello".into());
    };
    if glue != GLUE_VERSION {
        return Err(format!(
            "the extension speaks version {glue} of the bridge's language, this bridge {GLUE_VERSION}: run piw pi install"
        ));
    }
    Ok(Hello {
        session_id,
        cwd,
        columns,
        queued,
        turn,
    })
}

/// Reads lines of bounded length until the end, or until one means nothing.
fn read(input: &mut impl BufRead, lines: &mpsc::Sender<Line>) {
    loop {
        let line = read_line(input);
        let is_last = !matches!(line, Ok(Some(_)));
        let Some(line) = line.transpose() else { return };
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

fn read_line(input: &mut impl BufRead) -> Result<Option<FromGlue>, String> {
    let mut line = Vec::new();
    let read = input.take(LINE_LIMIT as u64 + 1).read_until(b'\n', &mut line);
    let read = read.map_err(|error| format!("the extension cannot be heard: {error}"))?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() > LINE_LIMIT {
        return Err(format!("a line of the extension has more than {LINE_LIMIT} bytes"));
    }
    let parsed = serde_json::from_slice(&line);
    parsed
        .map(Some)
        .map_err(|error| format!("a line of the extension means nothing: {error}"))
}

fn write(output: &mut impl Write, mut queue: mpsc::UnboundedReceiver<ToGlue>) {
    while let Some(message) = queue.blocking_recv() {
        let mut line = serde_json::to_vec(&message).expect("instructions are JSON");
        line.push(b'\n');
        // Without a reader the input ends too, which ends the bridge.
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl Bridge {
    fn new(
        client: Client,
        hello: Hello,
        out: mpsc::UnboundedSender<ToGlue>,
        done: mpsc::UnboundedSender<Done>,
        starter: Starter,
    ) -> Self {
        let now = Instant::now();
        let (live, receiver) = watch::channel(None);
        let watch = client.watch_session(&hello.session_id);
        let desk = Desk {
            client: client.clone(),
            session: hello.session_id.clone(),
            cwd: hello.cwd,
            live: receiver,
            starter,
            questions: Questions::new(out.clone()),
        };
        Self {
            client,
            watch,
            coordinator: Coordinator::new(hello.session_id.clone(), hello.queued, hello.turn, now),
            recorder: Recorder::new(hello.session_id, now),
            desk,
            live,
            out,
            done,
            columns: usize::from(hello.columns),
            widget: Vec::new(),
            status: None,
            trouble: None,
            cursor: None,
            ticked: now,
        }
    }

    fn tell(&self, message: ToGlue) {
        // The writer ends only with the extension.
        drop(self.out.send(message));
    }

    fn spawn<F>(&self, task: F)
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let done = self.done.clone();
        tokio::spawn(async move {
            let result = task.await;
            // The bridge may have ended meanwhile.
            drop(done.send(result));
        });
    }

    fn timer(&self) -> Option<Instant> {
        let view = self.watch.live();
        let moves = view.is_some_and(|view| widget::moves(view)) && !self.widget.is_empty();
        let busy = self.recorder.has_work() || self.coordinator.waits();
        match (busy, moves) {
            (true, _) => Some(self.ticked + TICK),
            (false, true) => Some(self.ticked + widget::REFRESH),
            (false, false) => None,
        }
    }

    fn tick(&mut self) {
        self.ticked = Instant::now();
        self.take(Input::Tick);
        self.record();
        self.draw();
    }

    fn take(&mut self, input: Input) {
        for effect in self.coordinator.take(input, Instant::now()) {
            self.carry_out(effect);
        }
    }

    fn heard(&mut self, line: FromGlue) {
        match line {
            FromGlue::Hello { .. } => {}
            FromGlue::Columns { columns } => {
                self.columns = usize::from(columns);
                self.draw();
            }
            FromGlue::Observed(observation) => self.take(Input::Observed(observation)),
            FromGlue::Sent { message_id, sent } => self.take(Input::Sent { message_id, sent }),
            FromGlue::TurnStart { turn_id } => self.take(Input::TurnStart { turn_id }),
            FromGlue::TurnEnd {
                turn_id,
                stop,
                entry_id,
            } => self.take(Input::TurnEnd {
                turn_id,
                stop,
                entry_id,
            }),
            FromGlue::Changed => self.take(Input::Changed),
            FromGlue::Record { at, event } => self.recorder.event(at, event, Instant::now()),
            FromGlue::Entry { id, kind, at, content } => self.recorder.entry(RecordedEntry {
                entry_id: id,
                at,
                kind,
                content,
                uploaded: None,
            }),
            FromGlue::Tool { call_id, input } => self.tool(call_id, &input),
            FromGlue::Command { name, args } => self.command(&name, &args),
            FromGlue::Choice { seq, value } => self.desk.questions.answered(seq, value),
            FromGlue::Scroll { delta } => self.scroll(delta),
        }
        self.record();
    }

    fn tool(&self, call_id: String, input: &serde_json::Value) {
        let view = self.watch.live().cloned();
        let current = view.as_ref().and_then(|view| view.interaction.as_ref());
        let current = current.map(|request| request.request_id.as_str());
        let action = match tool::parse_tool(input, current) {
            Ok(action) => action,
            Err(why) => {
                self.tell(ToGlue::ToolResult {
                    call_id,
                    text: why,
                    is_error: true,
                });
                return;
            }
        };
        let desk = self.desk.clone();
        self.spawn(async move {
            let submitted = match &action {
                tool::Action::Submit { request, .. } => Some(request.clone()),
                _ => None,
            };
            let said = desk.act(action, &call_id).await;
            match submitted {
                Some(request_id) if said.is_ok() => Done::Accepted {
                    request_id,
                    call_id,
                    said,
                },
                _ => Done::Tool { call_id, said },
            }
        });
    }

    fn command(&self, name: &str, args: &str) {
        let desk = self.desk.clone();
        let key = uuid::Uuid::new_v4().to_string();
        if name == "piw" {
            match tool::parse_place(args) {
                Ok(place) => self.spawn(async move { Done::Typed(desk.watch(place).await) }),
                Err(why) => self.notify(why, Level::Error),
            }
            return;
        }
        match tool::parse_command(args) {
            Ok(Typed::Help) => self.notify(tool::HELP.into(), Level::Info),
            Ok(typed) => self.spawn(async move { Done::Typed(desk.typed(typed, &key).await) }),
            Err(why) => self.notify(why, Level::Error),
        }
    }

    fn notify(&self, text: String, level: Level) {
        self.tell(ToGlue::Notify { text, level });
    }

    fn scroll(&mut self, delta: i64) {
        let Some(run) = self.watch.live().and_then(|view| view.run.clone()) else {
            return;
        };
        let last = run.node_total.saturating_sub(1);
        let from = i64::try_from(self.cursor.unwrap_or(run.node_start)).unwrap_or(0);
        let cursor = u64::try_from(from.saturating_add(delta)).unwrap_or(0).min(last);
        self.cursor = Some(cursor);
        let client = self.client.clone();
        let id = self.watch.id().to_owned();
        self.spawn(async move { Done::Window(client.session_window(&id, Some(cursor)).await) });
    }

    fn viewed(&mut self, changed: Result<(), ClientError>) {
        if let Err(error) = changed {
            if error == ClientError::Closed {
                return;
            }
            self.trouble = Some(explain(&error));
        }
        let live = self.watch.live().cloned();
        if live.is_some() {
            self.trouble = None;
        } else if let Some(why) = trouble(self.watch.freshness()) {
            self.trouble = Some(why);
        }
        self.live.send_replace(live.clone());
        self.take(Input::View(live));
        self.draw();
    }

    fn finished(&mut self, done: Done) {
        match done {
            Done::Input(input) => self.take(input),
            Done::Tool { call_id, said } => self.answer(call_id, said),
            Done::Accepted {
                request_id,
                call_id,
                said,
            } => {
                self.take(Input::Accepted { request_id });
                self.answer(call_id, said);
            }
            Done::Typed(Ok(text)) => self.notify(text, Level::Info),
            Done::Typed(Err(text)) => self.notify(text, Level::Error),
            Done::Recorded(result) => {
                let gave_up = self.recorder.answered(result, Instant::now());
                if let Some(why) = gave_up {
                    self.notify(
                        format!("the recording of this turn was given up: {why}"),
                        Level::Warning,
                    );
                }
                self.record();
            }
            Done::Window(result) => {
                if result.is_err() {
                    self.cursor = None;
                }
            }
        }
    }

    fn answer(&self, call_id: String, said: Said) {
        let is_error = said.is_err();
        let text = said.unwrap_or_else(|why| why);
        self.tell(ToGlue::ToolResult {
            call_id,
            text,
            is_error,
        });
    }

    fn carry_out(&mut self, effect: Effect) {
        let client = self.client.clone();
        match effect {
            Effect::Observe {
                seq,
                message_id,
                reply_to,
            } => self.tell(ToGlue::Observe {
                seq,
                message_id,
                reply_to,
            }),
            Effect::Report(report) => self.spawn(async move {
                let result = client.report_branch(&report).await;
                Done::Input(Input::BranchReported(result.map_err(|error| Trouble::of(&error))))
            }),
            Effect::Turn(report) => self.spawn(async move {
                let result = client.report_turn(&report).await;
                Done::Input(Input::TurnReported(result.map_err(|error| Trouble::of(&error))))
            }),
            Effect::Fetch {
                run_id,
                reference,
                digest,
            } => self.spawn(async move {
                let content = match client.content(&run_id, &reference, |_| {}).await {
                    Ok(bytes) => coordinator::parse_content(bytes.get(), &digest),
                    Err(error) => Err(error.to_string()),
                };
                Done::Input(Input::Fetched { digest, content })
            }),
            Effect::Send {
                epoch,
                message_id,
                run_id,
                starts_turn,
                message,
            } => self.tell(ToGlue::Send {
                epoch,
                message_id,
                starts_turn,
                message: card::with_card(*message, &run_id),
            }),
            Effect::Assistant {
                epoch,
                request_id,
                entry_id,
                text,
            } => self.assistant(epoch, request_id, entry_id, text),
            Effect::Abort { turn_id } => self.tell(ToGlue::Abort { turn_id }),
            Effect::Epoch(epoch) => self.tell(ToGlue::Epoch { epoch }),
            Effect::Gate(gate) => self.tell(ToGlue::Gate(gate)),
            Effect::Record { run_id, from } => {
                self.recorder.start(run_id);
                self.tell(ToGlue::Record { on: true, from });
            }
            Effect::RecordEnd { stop } => {
                self.recorder.end(stop);
                self.tell(ToGlue::Record { on: false, from: None });
            }
            Effect::Notice(text) => self.notify(text, Level::Warning),
        }
    }

    fn assistant(&self, epoch: u64, request_id: String, entry_id: String, text: String) {
        let client = self.client.clone();
        let session = self.desk.session.clone();
        self.spawn(async move {
            let key = format!("assistant:{request_id}:{entry_id}");
            let mut message = InteractionAssistant {
                authority: SessionAuthority {
                    target_session_id: session,
                    coordinator_epoch: epoch,
                },
                request_id,
                response_session_entry_id: entry_id,
                text_digest: format!("sha256:{}", canonical::sha256_hex(text.as_bytes())),
                text: None,
                text_content: None,
            };
            let result = async {
                if text.len() > INLINE_TEXT {
                    let bytes = canonical::to_vec(&text).expect("a text has a canonical form");
                    message.text_content = Some(client.put_content(&bytes, MEDIA_JSON).await?);
                } else {
                    message.text = Some(text);
                }
                client.assistant(&message, &key).await
            };
            let result = result.await.map(drop).map_err(|error| Trouble::of(&error));
            Done::Input(Input::AssistantReported(result))
        });
    }

    /// Sends the next batch of the recording, when one is due.
    fn record(&mut self) {
        if let Some(batch) = self.recorder.batch(Instant::now()) {
            let client = self.client.clone();
            self.spawn(async move { Done::Recorded(store(&client, batch).await) });
        }
    }

    fn draw(&mut self) {
        let view = self.watch.view().cloned();
        let is_stale = self.watch.live().is_none();
        let now = jiff::Timestamp::now().to_string();
        let lines = view
            .as_ref()
            .map(|view| widget::lines(view, is_stale, self.columns, &now))
            .unwrap_or_default();
        if lines != self.widget {
            self.widget.clone_from(&lines);
            self.tell(ToGlue::Widget { lines });
        }
        let status = widget::status(view.as_deref(), self.trouble.as_deref().filter(|_| is_stale));
        if status != self.status {
            self.status.clone_from(&status);
            self.tell(ToGlue::Status { text: status });
        }
    }

    /// Stores what is still to be recorded, as far as that goes quickly.
    async fn farewell(&mut self, results: &mut mpsc::UnboundedReceiver<Done>) {
        self.recorder.end(piw_protocol::interaction::StopReason::Lost);
        let rest = async {
            while self.recorder.has_work() && self.watch.live().is_some() {
                self.record();
                tokio::select! {
                    Some(result) = results.recv() => {
                        if let Done::Recorded(result) = result {
                            drop(self.recorder.answered(result, Instant::now()));
                        }
                    }
                    () = tokio::time::sleep(TICK) => {}
                }
            }
        };
        // What could not be stored in time is missing from the recording; its segment says so when the session goes on.
        drop(timeout(FAREWELL, rest).await);
    }
}

/// Uploads what no frame holds, then stores the batch.
async fn store(client: &Client, mut batch: SessionRecord) -> Result<(), (Trouble, String)> {
    let failed = |error: ClientError| (Trouble::of(&error), error.to_string());
    for entry in &mut batch.entries {
        if recorder::is_large(&entry.content) {
            let bytes = canonical::to_vec(&entry.content).map_err(|error| (Trouble::Refused, error.to_string()))?;
            entry.uploaded = Some(client.put_content(&bytes, MEDIA_JSON).await.map_err(failed)?);
            entry.content = serde_json::Value::Null;
        }
    }
    client.session_record(&batch).await.map(drop).map_err(failed)
}

/// What is worth saying of a view that is not live.
fn trouble(freshness: &Freshness) -> Option<String> {
    match freshness {
        Freshness::Opening | Freshness::Live => None,
        Freshness::Stale(_) => Some("connecting to the workflow server …".into()),
        Freshness::Blocked(_) => Some("the workflow server is away; runs go on when it is back".into()),
        Freshness::Refused(error) => Some(error.to_string()),
        Freshness::Stopped(error) => Some(explain(error)),
    }
}

/// Starts a server unless one runs.
fn starter(places: Places) -> Starter {
    Arc::new(move || session::prepare(&places, Autostart::Allowed).map_err(|failure| failure.message))
}
