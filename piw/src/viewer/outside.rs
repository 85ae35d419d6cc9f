//! Effects that talk to the server or compute: each runs as a task and comes back as a message. The queue is bounded; while
//! it is full, watches keep only their newest view.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use piw_protocol::client::{Client, ClientError, RunRef};
use piw_protocol::content::Verified;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::ops::{PageRequest, RunReceipt, RunsWatch};
use piw_protocol::view::{ArtifactRef, PageKind};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::config::{self, Setting};
use super::external;
use super::graph;
use super::hosts::{HostId, RunId};
use super::markdown;
use super::message::{Command, Content, Effect, LayoutKey, Message, SharedGraph};

/// Messages that may wait for the model.
const QUEUE: usize = 256;

/// A run that is selected within this time after another one is watched only when the selection rests as long: moving through
/// the list does not ask the server for every run on the way.
const REST: Duration = Duration::from_millis(80);

/// Nodes and edges of a graph that is laid out at once: a fraction of a millisecond.
const AT_ONCE: usize = 32;

/// A task that ends when it is replaced or dropped.
#[derive(Default)]
struct Slot(Option<AbortHandle>);

impl Slot {
    fn replace(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(old) = self.0.replace(tokio::spawn(task).abort_handle()) {
            old.abort();
        }
    }

    fn clear(&mut self) {
        if let Some(old) = self.0.take() {
            old.abort();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Carries effects out.
pub struct Outside {
    clients: Vec<Client>,
    messages: mpsc::Sender<Message>,
    runs: Vec<Slot>,
    run: Slot,
    /// When a run was last asked for.
    chosen: Option<Instant>,
    pages: [Slot; 3],
    connections: Vec<Slot>,
}

impl Outside {
    /// Starts watching the connections, one for each host. The receiver gets every message.
    #[must_use]
    pub fn new(clients: Vec<Client>) -> (Self, mpsc::Receiver<Message>) {
        let (messages, inbox) = mpsc::channel(QUEUE);
        let mut outside = Self {
            runs: clients.iter().map(|_| Slot::default()).collect(),
            connections: clients.iter().map(|_| Slot::default()).collect(),
            clients,
            messages,
            run: Slot::default(),
            chosen: None,
            pages: Default::default(),
        };
        for (at, client) in outside.clients.iter().enumerate() {
            let mut states = client.state();
            let send = outside.messages.clone();
            outside.connections[at].replace(async move {
                loop {
                    let state = states.borrow_and_update().clone();
                    let message = Message::Connection {
                        host: HostId(at),
                        state,
                    };
                    if send.send(message).await.is_err() || states.changed().await.is_err() {
                        return;
                    }
                }
            });
        }
        (outside, inbox)
    }

    /// Starts an effect. Effects of the terminal are not for here and do nothing.
    pub fn start(&mut self, effect: Effect) {
        match effect {
            Effect::WatchRuns {
                host,
                generation,
                start,
                limit,
                filter,
            } => {
                let query = RunsWatch {
                    subscription_id: String::new(),
                    filter,
                    start: Some(start),
                    limit: u32::try_from(limit).ok(),
                };
                self.watch_runs(host, generation, query);
            }
            Effect::WatchRun(None) => self.run.clear(),
            Effect::WatchRun(Some(run_id)) => self.watch_run(run_id),
            Effect::FetchDefinition { run_id, reference } => {
                let (client, messages) = self.handles(run_id.host);
                tokio::spawn(async move {
                    let sha256 = reference.sha256.clone();
                    let result = definition(&client, &run_id.id, &reference).await.map(Arc::new);
                    drop(messages.send(Message::Definition { run_id, sha256, result }).await);
                });
            }
            Effect::LayOut { key, graph } => self.lay_out(key, graph),
            Effect::Render { run_id, key, text } => {
                let messages = self.messages.clone();
                tokio::task::spawn_blocking(move || {
                    let document = Arc::new(markdown::render(&text, key.columns, key.ascii));
                    drop(messages.blocking_send(Message::Rendered { run_id, key, document }));
                });
            }
            Effect::FetchPage {
                run_id,
                revision,
                request,
            } => self.fetch_page(run_id, revision, request),
            Effect::FetchContent { run_id, reference } => {
                let (client, messages) = self.handles(run_id.host);
                tokio::spawn(async move {
                    let sha256 = reference.sha256.clone();
                    let result = content(&client, &run_id.id, &reference, &messages).await;
                    drop(messages.send(Message::Content { sha256, result }).await);
                });
            }
            Effect::Command {
                run_id,
                revision,
                command,
            } => {
                let (client, messages) = self.handles(run_id.host);
                tokio::spawn(async move {
                    let result = send(&client, &run_id.id, revision, &command)
                        .await
                        .map_err(|error| error.to_string());
                    drop(
                        messages
                            .send(Message::Decided {
                                command,
                                run_id,
                                result,
                            })
                            .await,
                    );
                });
            }
            Effect::Save(setting) => self.save(setting),
            Effect::Prepare { name, content, program } => {
                let messages = self.messages.clone();
                tokio::task::spawn_blocking(move || {
                    let prepared = external::prepare(&name, &content, program)
                        .map_err(|error| format!("{name} cannot be written into a file: {error}"));
                    drop(messages.blocking_send(Message::Prepared(prepared)));
                });
            }
            Effect::Show(_) | Effect::Copy(_) | Effect::AskGround | Effect::Suspend | Effect::Quit => {}
        }
    }

    /// What a task for a host needs. Hosts are those that the viewer was opened with.
    fn handles(&self, host: HostId) -> (Client, mpsc::Sender<Message>) {
        (self.clients[host.0].clone(), self.messages.clone())
    }

    fn watch_runs(&mut self, host: HostId, generation: u64, query: RunsWatch) {
        let (client, messages) = self.handles(host);
        self.runs[host.0].replace(async move {
            let mut watch = match client.watch_runs(query) {
                Ok(watch) => watch,
                Err(error) => {
                    drop(messages.send(Message::BadView(error.to_string())).await);
                    return;
                }
            };
            loop {
                let message = match watch.changed().await {
                    Ok(()) => Message::Runs {
                        host,
                        generation,
                        page: watch.view().map(Arc::clone),
                        freshness: watch.freshness().clone(),
                    },
                    Err(ClientError::Closed) => return,
                    Err(error) => Message::BadView(format!("run list: {error}")),
                };
                if messages.send(message).await.is_err() {
                    return;
                }
            }
        });
    }

    fn watch_run(&mut self, run_id: RunId) {
        let (client, messages) = self.handles(run_id.host);
        for slot in &mut self.pages {
            slot.clear();
        }
        let now = Instant::now();
        let moving = self.chosen.replace(now).is_some_and(|before| now - before < REST * 2);
        self.run.replace(async move {
            if moving {
                tokio::time::sleep(REST).await;
            }
            let mut watch = client.watch_run(&run_id.id);
            loop {
                let message = match watch.changed().await {
                    Ok(()) => Message::Run {
                        run_id: run_id.clone(),
                        view: watch.view().map(Arc::clone),
                        freshness: watch.freshness().clone(),
                    },
                    Err(ClientError::Closed) => return,
                    Err(error) => Message::BadView(format!("run {}: {error}", run_id.id)),
                };
                if messages.send(message).await.is_err() {
                    return;
                }
            }
        });
    }

    fn fetch_page(&mut self, run_id: RunId, revision: u64, request: PageRequest) {
        let (client, messages) = self.handles(run_id.host);
        self.pages[lane(request.kind)].replace(async move {
            let result = client.page(&run_id.id, revision, &request).await;
            let result = result.map(Arc::new).map_err(|error| error.to_string());
            drop(
                messages
                    .send(Message::Page {
                        run_id,
                        request,
                        result,
                    })
                    .await,
            );
        });
    }

    fn save(&self, setting: Setting) {
        let messages = self.messages.clone();
        let path = config::path(|name| std::env::var(name).ok());
        tokio::task::spawn_blocking(move || {
            let saved = match &path {
                Some(path) => config::save(path, &setting).map_err(|error| format!("{}: {error}", path.display())),
                None => Err("there is no place for a configuration file: set PIW_CONFIG_PATH".to_owned()),
            };
            if let Err(error) = saved {
                drop(messages.blocking_send(Message::NotSaved(error)));
            }
        });
    }

    fn lay_out(&self, key: LayoutKey, graph: SharedGraph) {
        // A small graph is laid out before another thread would have woken up.
        if graph.0.nodes.len() + graph.0.edges.len() <= AT_ONCE
            && let Ok(place) = self.messages.try_reserve()
        {
            let drawing = Arc::new(graph::lay_out(&graph.0, key.density, &key.folded));
            return place.send(Message::Layout { key, drawing });
        }
        let messages = self.messages.clone();
        tokio::task::spawn_blocking(move || {
            let drawing = Arc::new(graph::lay_out(&graph.0, key.density, &key.folded));
            drop(messages.blocking_send(Message::Layout { key, drawing }));
        });
    }
}

/// What a page is for: the replay, the trace or the times. A newer request replaces an older one for the same.
const fn lane(kind: PageKind) -> usize {
    match kind {
        PageKind::Trace | PageKind::TraceAtStep => 1,
        PageKind::NodeTimes | PageKind::Pauses => 2,
        _ => 0,
    }
}

/// Fetches and reads a definition.
///
/// # Errors
///
/// A sentence for people.
pub async fn definition(client: &Client, run_id: &str, reference: &ArtifactRef) -> Result<DefinitionSnapshot, String> {
    let bytes = client
        .content(run_id, reference, |_| {})
        .await
        .map_err(|error| format!("definition: {error}"))?;
    serde_json::from_slice(bytes.get()).map_err(|error| format!("the definition cannot be read: {error}"))
}

async fn content(
    client: &Client,
    run_id: &str,
    reference: &ArtifactRef,
    messages: &mpsc::Sender<Message>,
) -> Result<Content, String> {
    let sha256 = reference.sha256.clone();
    let progress = |received| {
        // A full queue only costs a step of the progress display.
        drop(messages.try_send(Message::ContentProgress {
            sha256: sha256.clone(),
            received,
        }));
    };
    let bytes = client
        .content(run_id, reference, progress)
        .await
        .map_err(|error| error.to_string())?;
    let json = reference.media_type.starts_with("application/json");
    let read = move || read_content(&bytes, json);
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| "the content could not be read".to_owned())?
}

fn read_content(bytes: &Verified<Vec<u8>>, json: bool) -> Result<Content, String> {
    if json {
        let value = serde_json::from_slice(bytes.get()).map_err(|error| format!("verified, but not JSON: {error}"))?;
        Ok(Content::Json(Arc::new(value)))
    } else {
        Ok(Content::Text(String::from_utf8_lossy(bytes.get()).into()))
    }
}

async fn send(client: &Client, run_id: &str, revision: u64, command: &Command) -> Result<RunReceipt, ClientError> {
    let run = RunRef::at(run_id, revision);
    let done = match command {
        Command::Pause => client.run_pause(&run).await,
        Command::Resume => client.run_resume(&run).await,
        Command::Cancel => client.run_cancel(&run).await,
        Command::Restart => client.run_restart(&run).await,
        Command::Answer(answer) => client.checkpoint_answer(&run, answer.clone()).await,
        Command::Review(resolve) => return Ok(client.effect_resolve(&run, resolve).await?.receipt.run),
    };
    done.map(|done| done.receipt)
}
