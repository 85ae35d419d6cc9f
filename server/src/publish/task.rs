//! The task around the [`Board`]: takes commands and commits, runs the reads that the board asks for, keeps the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piw_protocol::canonical;
use piw_protocol::envelope::EventKind;
use piw_protocol::view::RunListPage;
use piw_state::query::{Reader, run as runs};
use piw_state::{ChangeFeed, Changes, State};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::board::{Board, Job, ListBuild, ListJob, RunBuild, RunJob};
use super::frame::EncodedView;
use super::list_topic::{ListTopic, PageWanted};
use super::run_topic::Join;
use super::session_topic::{Look, SessionBuilt, SessionJob};
use super::sink::{ConnectionSink, SlotHandle};
use crate::coordinator::Coordinators;
use crate::projection::{ListChange, ListFilter, Looking, Projector, RunListFeed, ViewError, Window};

/// What the publisher is told.
#[derive(Debug)]
pub(crate) enum Command {
    JoinRun {
        run_id: Arc<str>,
        join: Join,
    },
    WatchRun {
        run_id: Arc<str>,
        slot: SlotHandle,
    },
    JoinList {
        list: ListName,
        window: Window,
        join: Join,
    },
    WatchList {
        list: ListName,
        window: Window,
        slot: SlotHandle,
    },
    Page {
        list: ListName,
        page: PageWanted,
    },
    WatchSession {
        session: Arc<str>,
        epoch: u64,
        slot: SlotHandle,
    },
    /// The node window of a session's subscription moves.
    Look {
        sink: ConnectionSink,
        subscription_id: String,
        start: Option<u64>,
        reply: oneshot::Sender<bool>,
    },
    /// A session's coordination changed.
    TouchSession {
        session: Arc<str>,
    },
    /// Subscriptions may be gone.
    Prune,
}

/// A list by its filter.
#[derive(Debug, Clone)]
pub(crate) struct ListName {
    pub(crate) name: Arc<str>,
    pub(crate) filter: ListFilter,
}

/// A finished read.
#[derive(Debug)]
enum Done {
    Run {
        run_id: Arc<str>,
        result: Result<RunBuild, ViewError>,
    },
    List {
        filter: Arc<str>,
        build: ListBuild,
    },
    Session {
        session: Arc<str>,
        result: Result<Vec<SessionBuilt>, ViewError>,
    },
}

/// The publisher's task.
pub(crate) struct Task {
    pub(crate) state: State,
    pub(crate) projector: Projector,
    /// Who acts for sessions.
    pub(crate) coordinators: Coordinators,
    /// Tells this server's list revisions from any other's.
    pub(crate) server: Arc<str>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) changes: ChangeFeed,
}

impl Task {
    /// Runs until every handle is gone.
    pub(crate) async fn run(mut self) {
        let mut board = Board::default();
        let mut reads = JoinSet::new();
        loop {
            // What is committed is known before anything is read: who was answered sees what was answered.
            self.changes.listen(!board.is_empty());
            touch(&mut board, &self.changes.take());
            let now = Instant::now();
            for job in board.due(now) {
                self.start(job, &mut reads);
            }
            let due = board.next_due(now);
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.command(&mut board, command),
                    None => break,
                },
                changes = self.changes.next() => touch(&mut board, &changes),
                Some(done) = reads.join_next() => match done {
                    Ok(Done::Run { run_id, result }) => board.run_done(&run_id, result, Instant::now()),
                    Ok(Done::Session { session, result }) => board.session_done(&session, result, Instant::now()),
                    Ok(Done::List { filter, build }) => board.list_done(&filter, build, Instant::now()),
                    Err(error) => tracing::error!(%error, "a read of a view ended unexpectedly"),
                },
                () = tokio::time::sleep_until(due.unwrap_or(now).into()), if due.is_some() => {}
            }
        }
    }

    fn command(&self, board: &mut Board, command: Command) {
        let now = Instant::now();
        match command {
            Command::JoinRun { run_id, join } => board.join_run(&run_id, join, now),
            Command::WatchRun { run_id, slot } => board.watch_run(&run_id, slot),
            Command::JoinList { list, window, join } => self.list(board, list, now).join(window, join),
            Command::WatchList { list, window, slot } => self.list(board, list, now).watch(window, slot),
            Command::Page { list, page } => self.list(board, list, now).page(page),
            Command::WatchSession { session, epoch, slot } => board.watch_session(&session, epoch, slot),
            Command::Look {
                sink,
                subscription_id,
                start,
                reply,
            } => {
                // The other end may have gone away; then nobody needs the answer.
                let _ = reply.send(board.look(&sink, &subscription_id, start));
            }
            Command::TouchSession { session } => board.touch_session(&session),
            Command::Prune => board.prune(now),
        }
    }

    fn list<'b>(&self, board: &'b mut Board, list: ListName, now: Instant) -> &'b mut ListTopic {
        let ListName { name, filter } = list;
        board.list(&name, now, || RunListFeed::new(filter, &self.server))
    }

    fn start(&self, job: Job, reads: &mut JoinSet<Done>) {
        let (state, projector) = (self.state.clone(), self.projector.clone());
        match job {
            Job::Run(RunJob { run_id, known }) => {
                reads.spawn(async move {
                    let result = read_run(&state, projector, &run_id, known).await;
                    Done::Run { run_id, result }
                });
            }
            Job::Session(job) => {
                let coordinators = self.coordinators.clone();
                reads.spawn(async move {
                    let session = Arc::clone(&job.session);
                    Done::Session {
                        session,
                        result: read_session(&state, projector, &coordinators, job).await,
                    }
                });
            }
            Job::List(job) => {
                let server = Arc::clone(&self.server);
                reads.spawn(async move {
                    let filter = Arc::clone(&job.filter);
                    Done::List {
                        filter,
                        build: read_list(&state, job, &server).await,
                    }
                });
            }
        }
    }
}

fn touch(board: &mut Board, changes: &Changes) {
    for change in changes.runs.values() {
        board.touch(&change.run_id, change.status);
    }
    for session in &changes.sessions {
        board.touch_session(session);
    }
}

async fn read_run(
    state: &State,
    projector: Projector,
    run_id: &Arc<str>,
    known: Option<u64>,
) -> Result<RunBuild, ViewError> {
    let now = state.clock().wall_ms();
    let id = Arc::clone(run_id);
    let projected = state
        .read(move |reader| {
            if let Some(known) = known
                && runs::view_revision(reader, &id)? == Some(known)
            {
                return Ok(Ok(None));
            }
            Ok(projector.run_view(reader, &id, now).map(Some))
        })
        .await??;
    let Some(projected) = projected else {
        return Ok(RunBuild::Unchanged);
    };
    projected.content.store(state).await?;
    let view = EncodedView {
        event: EventKind::RunSnapshot,
        run_id: Some(Arc::clone(run_id)),
        revision: Some(projected.view.revision),
        payload: projected.json.into(),
    };
    Ok(RunBuild::Built {
        view,
        valid_until: instant(projected.valid_until, now),
    })
}

/// Makes the view of every look at a session, from one consistent read.
async fn read_session(
    state: &State,
    projector: Projector,
    coordinators: &Coordinators,
    job: SessionJob,
) -> Result<Vec<SessionBuilt>, ViewError> {
    let SessionJob { session, looks } = job;
    let now = state.clock().wall_ms();
    let standing = coordinators.standing(&session);
    let name = Arc::clone(&session);
    let projected = state
        .read(move |reader| {
            let project = |look: Look| {
                let looking = Looking {
                    epoch: look.epoch,
                    standing,
                    window: look.window,
                };
                projector
                    .session_view(reader, &name, looking, now)
                    .map(|projected| (look, projected))
            };
            Ok(looks.into_iter().map(project).collect::<Result<Vec<_>, ViewError>>())
        })
        .await??;
    let mut built = Vec::with_capacity(projected.len());
    for (look, projected) in projected {
        for content in projected.content {
            content.store(state).await?;
        }
        let view = projected.view;
        built.push(SessionBuilt {
            look,
            view: EncodedView {
                event: EventKind::SessionSnapshot,
                run_id: None,
                revision: None,
                payload: Arc::clone(&view.json),
            },
            run: view
                .run
                .zip(view.run_id.as_deref())
                .map(|(run, run_id)| (run, Arc::from(run_id))),
            valid_until: instant(view.valid_until, now),
        });
    }
    Ok(built)
}

/// A wall-clock time as an instant of the clock that timers use.
fn instant(at: Option<i64>, now: i64) -> Option<Instant> {
    let ahead = u64::try_from(at?.saturating_sub(now)).unwrap_or(0);
    Instant::now().checked_add(Duration::from_millis(ahead))
}

async fn read_list(state: &State, job: ListJob, server: &str) -> ListBuild {
    let now = state.clock().wall_ms();
    let spare = job.feed.fresh(server);
    let read = state.read(move |reader| Ok(read_list_now(reader, job, now))).await;
    read.unwrap_or_else(|error| ListBuild {
        feed: Box::new(spare),
        change: ListChange::Items,
        windows: Err(error.into()),
        valid_until: None,
    })
}

fn read_list_now(reader: &Reader, job: ListJob, now: i64) -> ListBuild {
    let ListJob {
        mut feed,
        changes,
        windows,
        send_all,
        pages,
        ..
    } = job;
    let change = match feed.refresh(reader, &changes, now) {
        Ok(change) => change,
        Err(error) => {
            let error = ViewError::from(error);
            for page in pages {
                // The other end may have gone away; then nobody needs the answer.
                let _ = page.reply.send(Err(error.clone()));
            }
            return ListBuild {
                feed,
                change: ListChange::None,
                windows: Err(error),
                valid_until: None,
            };
        }
    };
    for page in pages {
        let answer = match &page.revision {
            None => feed
                .page(reader, page.window, now)
                .map(|(page, _)| page)
                .map_err(ViewError::from),
            Some(revision) => feed.page_at(reader, revision, page.window, now),
        };
        // The other end may have gone away; then nobody needs the answer.
        let _ = page.reply.send(answer);
    }
    let mut made = Vec::new();
    let mut valid_until: Option<i64> = None;
    for (window, wanted) in windows {
        if !wanted && !send_all && change != ListChange::Items {
            continue;
        }
        let encoded = feed
            .page(reader, window, now)
            .map_err(ViewError::from)
            .and_then(|(page, until)| Ok((encode_list(&page)?, until)));
        match encoded {
            Ok((view, until)) => {
                valid_until = [valid_until, until].into_iter().flatten().min();
                made.push((window, view));
            }
            Err(error) => {
                return ListBuild {
                    feed,
                    change,
                    windows: Err(error),
                    valid_until: None,
                };
            }
        }
    }
    ListBuild {
        feed,
        change,
        windows: Ok(made),
        valid_until: instant(valid_until, now),
    }
}

fn encode_list(page: &RunListPage) -> Result<EncodedView, ViewError> {
    let payload = canonical::to_vec(page).map_err(|error| ViewError::Encode {
        message: error.to_string(),
    })?;
    Ok(EncodedView {
        event: EventKind::Runs,
        run_id: None,
        revision: None,
        payload: payload.into(),
    })
}
