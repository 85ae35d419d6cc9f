//! Push on commit, and everything else that clients read.
//!
//! A commit names what changed; only the watchers of that get a snapshot. The first change goes out at once, then at most one
//! snapshot per subscription in 16 ms. A view is read and encoded once per revision however many watch it. This module must
//! not know what views contain ([`crate::projection`]) and must not do I/O on sockets (the connection's writer drains the
//! [`ConnectionSink`]).
//!
//! How a connection uses it:
//!
//! ```text
//! let sink = ConnectionSink::new();                                   // one per connection; the writer loops on sink.next()
//! let watching = publisher.watch_run(&sink, sub_id, run_id).await?;   // notFound installs nothing
//! queue the `accepted` response, then watching.start();               // the first snapshot follows the response
//! publisher.unwatch(&sink, sub_id)                                    // whether it existed
//! publisher.disconnect(&sink)                                         // at the end of the connection
//! ```

mod board;
mod frame;
mod list_topic;
mod run_topic;
mod session_topic;
mod sink;
mod task;

use std::sync::Arc;

use piw_protocol::ops::{ContentRequest, PageRequest, RunFilter, RunList, RunsPage, RunsWatch};
use piw_protocol::view::{ContentChunk, RunListPage, RunPage, RunView};
use piw_state::query::counts::{self, StatusCounts};
use piw_state::{Interest, State};
use tokio::sync::{mpsc, oneshot};

use crate::coordinator::Coordinators;
use crate::projection::{ListFilter, Projector, ViewError, Window, content_chunk};
use list_topic::PageWanted;
use task::{Command, ListName, Task};

pub use frame::{EncodedView, EventFrame};
pub use sink::{ConnectionSink, MAX_SUBSCRIPTIONS, TooManySubscriptions};

/// Answers reads of clients and pushes views to their subscriptions. Clones share one task, which ends with the last clone.
#[derive(Debug, Clone)]
pub struct Publisher {
    state: State,
    projector: Projector,
    commands: mpsc::UnboundedSender<Command>,
}

/// A subscription that may be made: what it watches exists. Dropping it makes none.
#[derive(Debug)]
#[must_use = "nothing is delivered before it is started"]
pub struct Watching {
    publisher: Publisher,
    sink: ConnectionSink,
    subscription_id: String,
    /// `None` once it was started.
    target: Option<Target>,
}

#[derive(Debug)]
enum Target {
    Run(Arc<str>),
    List(ListName, Window),
    Session(Arc<str>, u64),
}

impl Publisher {
    /// Starts the publisher's task on the current runtime. `server` names this server among all that ever served the
    /// database: revisions of lists are only good within one.
    #[must_use]
    pub fn start(state: State, server: &str, coordinators: Coordinators) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let projector = Projector::default();
        let task = Task {
            changes: state.changes(Interest::Everything),
            state: state.clone(),
            projector: projector.clone(),
            coordinators,
            server: server.into(),
            commands: received,
        };
        tokio::spawn(task.run());
        Self {
            state,
            projector,
            commands,
        }
    }

    /// Checks that a run can be watched. Nothing is delivered before [`Watching::start`].
    ///
    /// # Errors
    /// [`ViewError::RunNotFound`], [`ViewError::TooManySubscriptions`], or why the run cannot be shown.
    pub async fn watch_run(
        &self,
        sink: &ConnectionSink,
        subscription_id: &str,
        run_id: &str,
    ) -> Result<Watching, ViewError> {
        sink.check_room(subscription_id)?;
        let run_id: Arc<str> = run_id.into();
        self.ask(|join| Command::JoinRun {
            run_id: Arc::clone(&run_id),
            join,
        })
        .await??;
        Ok(self.watching(sink, subscription_id, Target::Run(run_id)))
    }

    /// Checks that a window of a run list can be watched. Nothing is delivered before [`Watching::start`].
    ///
    /// # Errors
    /// When the filter or the window is wrong, or the list cannot be read.
    pub async fn watch_runs(&self, sink: &ConnectionSink, request: &RunsWatch) -> Result<Watching, ViewError> {
        sink.check_room(&request.subscription_id)?;
        let list = list_name(request.filter.as_ref())?;
        let window = Window::new(request.start, request.limit)?;
        self.ask(|join| Command::JoinList {
            list: list.clone(),
            window,
            join,
        })
        .await??;
        Ok(self.watching(sink, &request.subscription_id, Target::List(list, window)))
    }

    /// Watches a session as its coordinator of an epoch. There is nothing that could be missing: a session that no run ever named
    /// has a view, too.
    ///
    /// # Errors
    /// [`ViewError::TooManySubscriptions`].
    pub fn watch_session(
        &self,
        sink: &ConnectionSink,
        subscription_id: &str,
        session: &Arc<str>,
        epoch: u64,
    ) -> Result<Watching, ViewError> {
        sink.check_room(subscription_id)?;
        Ok(self.watching(sink, subscription_id, Target::Session(Arc::clone(session), epoch)))
    }

    /// Moves the node window of a session's subscription: to a first row, or (`None`) after the working node. Whether there is such a
    /// subscription; its view follows as an event.
    ///
    /// # Errors
    /// When the server is stopping.
    pub async fn move_window(
        &self,
        sink: &ConnectionSink,
        subscription_id: &str,
        start: Option<u64>,
    ) -> Result<bool, ViewError> {
        self.ask(|reply| Command::Look {
            sink: sink.clone(),
            subscription_id: subscription_id.to_owned(),
            start,
            reply,
        })
        .await
    }

    /// A session's coordination changed: its watchers get a new view.
    pub fn touch_session(&self, session: &str) {
        self.tell(Command::TouchSession {
            session: session.into(),
        });
    }

    fn watching(&self, sink: &ConnectionSink, subscription_id: &str, target: Target) -> Watching {
        Watching {
            publisher: self.clone(),
            sink: sink.clone(),
            subscription_id: subscription_id.to_owned(),
            target: Some(target),
        }
    }

    /// Ends a subscription; whether there was one.
    pub fn unwatch(&self, sink: &ConnectionSink, subscription_id: &str) -> bool {
        let existed = sink.remove(subscription_id);
        self.tell(Command::Prune);
        existed
    }

    /// Ends every subscription of a connection.
    pub fn disconnect(&self, sink: &ConnectionSink) {
        sink.close();
        self.tell(Command::Prune);
    }

    /// A run view for `view.run.get`.
    ///
    /// # Errors
    /// [`ViewError::RunNotFound`], or why the run cannot be shown.
    pub async fn run_view(&self, run_id: &str) -> Result<RunView, ViewError> {
        let (projector, run_id, now) = (self.projector.clone(), run_id.to_owned(), self.state.clock().wall_ms());
        let projected = self
            .state
            .read(move |reader| Ok(projector.run_view(reader, &run_id, now)))
            .await??;
        projected.content.store(&self.state).await?;
        Ok(projected.view)
    }

    /// A page of a run view for `view.page`.
    ///
    /// # Errors
    /// [`ViewError::RunNotFound`], [`ViewError::StaleRevision`], or what is wrong with the request.
    pub async fn page(
        &self,
        run_id: &str,
        expected_revision: Option<u64>,
        request: PageRequest,
    ) -> Result<RunPage, ViewError> {
        let (projector, run_id, now) = (self.projector.clone(), run_id.to_owned(), self.state.clock().wall_ms());
        let (page, content) = self
            .state
            .read(move |reader| Ok(projector.page(reader, &run_id, expected_revision, &request, now)))
            .await??;
        content.store(&self.state).await?;
        Ok(page)
    }

    /// A chunk of content for `view.content`.
    ///
    /// # Errors
    /// [`ViewError::RunNotFound`], [`ViewError::ContentNotFound`], or what is wrong with the request.
    pub async fn content(&self, run_id: &str, request: ContentRequest) -> Result<ContentChunk, ViewError> {
        let run_id = run_id.to_owned();
        self.state
            .read(move |reader| Ok(content_chunk(reader, &run_id, &request)))
            .await?
    }

    /// A window of a run list as it was at a revision, for `view.runs.page`.
    ///
    /// # Errors
    /// [`ViewError::StaleList`] when the revision is no longer held, or what is wrong with the request.
    pub async fn runs_page(&self, request: RunsPage) -> Result<RunListPage, ViewError> {
        let window = Window::new(Some(request.cursor), request.limit)?;
        self.list_page(request.filter.as_ref(), Some(request.revision), window)
            .await
    }

    /// A window of a run list as it is now, for `run.list`.
    ///
    /// # Errors
    /// What is wrong with the request, or why the list cannot be read.
    pub async fn run_list(&self, request: RunList) -> Result<RunListPage, ViewError> {
        let window = Window::new(request.start, request.limit)?;
        self.list_page(request.filter.as_ref(), None, window).await
    }

    async fn list_page(
        &self,
        filter: Option<&RunFilter>,
        revision: Option<String>,
        window: Window,
    ) -> Result<RunListPage, ViewError> {
        let list = list_name(filter)?;
        self.ask(|reply| Command::Page {
            list,
            page: PageWanted {
                revision,
                window,
                reply,
            },
        })
        .await?
    }

    /// Counts for `server.status`.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn status_counts(&self) -> Result<StatusCounts, ViewError> {
        let now = self.state.clock().wall_ms();
        Ok(self.state.read(move |reader| Ok(counts::status(reader, now)?)).await?)
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, ViewError> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply));
        answer.await.map_err(|_| ViewError::Stopping)
    }

    fn tell(&self, command: Command) {
        // The task ends only with the runtime; then nobody is left to be told.
        let _ = self.commands.send(command);
    }
}

impl Watching {
    /// Makes the subscription, replacing an older one of the same id; its first snapshot is delivered at once. Nothing
    /// happens when the connection was closed, or got as many other subscriptions as it may have meanwhile.
    pub fn start(mut self) {
        let Ok(slot) = self.sink.open(&self.subscription_id) else {
            return;
        };
        match self.target.take() {
            Some(Target::Run(run_id)) => self.publisher.tell(Command::WatchRun { run_id, slot }),
            Some(Target::Session(session, epoch)) => {
                self.publisher.tell(Command::WatchSession { session, epoch, slot });
            }
            Some(Target::List(list, window)) => self.publisher.tell(Command::WatchList { list, window, slot }),
            None => {}
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.target.is_some() {
            self.publisher.tell(Command::Prune);
        }
    }
}

fn list_name(filter: Option<&RunFilter>) -> Result<ListName, ViewError> {
    Ok(ListName {
        filter: ListFilter::new(filter)?,
        name: ListFilter::name(filter),
    })
}
