//! Follows a run to its end, or to where it waits, printing progress.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Arc;
use std::time::Duration;

use piw_protocol::client::{Client, ClientError, Freshness, RunWatch};
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::RunView;
use tokio::time::{MissedTickBehavior, interval};

use super::lines::{self, Line};
use super::live::Live;
use super::plain::Plain;
use super::{between, elapsed};
use crate::command::{output, session};
use crate::failure::Failure;
use crate::text;

/// How much is printed while a run is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Progress: live on a terminal, plain lines elsewhere.
    Progress,
    /// Nothing.
    Nothing,
}

/// Why following ended.
#[derive(Debug)]
pub enum Followed {
    /// The run ended, or stopped where only a person can help.
    Settled(Arc<RunView>),
    /// Ctrl-C.
    Interrupted,
}

/// Whether a run goes no further by itself.
#[must_use]
pub fn is_settled(view: &RunView) -> bool {
    match view.display.status {
        DisplayStatus::Queued | DisplayStatus::Running => {
            view.queue.status == "parked" && view.display.controls.iter().any(|control| control == "resume")
        }
        _ => true,
    }
}

/// Follows `run_id`.
///
/// # Errors
/// When the run cannot be watched or the output cannot be written.
pub async fn follow(client: &Client, run_id: &str, show: Show) -> Result<Followed, Failure> {
    let mut watch = client.watch_run(run_id);
    let mut screen = Screen::new(show);
    let mut definition: Option<(Option<String>, DefinitionSnapshot)> = None;
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupt = Box::pin(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            changed = watch.changed() => changed.map_err(|error| session::failure(&error))?,
            _ = tick.tick(), if screen.ticks() => {}
            _ = &mut interrupt => {
                screen.finish()?;
                return Ok(Followed::Interrupted);
            }
        }
        stop_if_hopeless(&watch)?;
        let Some(view) = watch.view().cloned() else { continue };
        if screen.wants_definition() {
            let digest = view.state.definition_digest.clone();
            if definition.as_ref().is_none_or(|(known, _)| *known != digest) {
                let snapshot = session::definition(client, &view)
                    .await
                    .map_err(|error| session::failure(&error))?;
                definition = Some((digest, snapshot));
            }
        }
        let graph = definition.as_ref().map(|(_, snapshot)| snapshot);
        screen.show(&view, graph, watch.freshness())?;
        if watch.live().is_some() && is_settled(&view) {
            screen.finish()?;
            return Ok(Followed::Settled(view));
        }
    }
}

fn stop_if_hopeless(watch: &RunWatch) -> Result<(), Failure> {
    match watch.freshness() {
        Freshness::Refused(error) => Err(session::failure(&ClientError::WatchRefused(error.clone()))),
        Freshness::Stopped(error) => Err(session::failure(error)),
        Freshness::Blocked(retry) => Err(session::failure(&ClientError::Blocked {
            attempts: retry.attempt,
            reason: retry.reason.clone(),
        })),
        Freshness::Opening | Freshness::Live | Freshness::Stale(_) => Ok(()),
    }
}

enum Screen {
    Live(Live<Stdout>),
    Plain(Plain),
    Silent,
}

impl Screen {
    fn new(show: Show) -> Self {
        match show {
            Show::Nothing => Self::Silent,
            Show::Progress if io::stdout().is_terminal() => Self::Live(Live::new(io::stdout(), output::colour())),
            Show::Progress => Self::Plain(Plain::default()),
        }
    }

    fn ticks(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    fn wants_definition(&self) -> bool {
        !matches!(self, Self::Silent)
    }

    fn show(&mut self, view: &RunView, graph: Option<&DefinitionSnapshot>, fresh: &Freshness) -> Result<(), Failure> {
        let Some(graph) = graph else { return Ok(()) };
        match self {
            Self::Live(live) => {
                let now = jiff::Timestamp::now().to_string();
                let lines = lines::of_view(view, graph, &now);
                let (width, height) = crossterm::terminal::size().unwrap_or((80, 24));
                live.paint(&heading(view, &now, fresh), &lines, width, height)
                    .map_err(|error| unwritable(&error))
            }
            Self::Plain(plain) => output::text(&plain.news(view, graph)),
            Self::Silent => Ok(()),
        }
    }

    /// Leaves the last lines on the screen; what is printed next stands below them.
    fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::Live(live) => live.keep().map_err(|error| unwritable(&error)),
            Self::Plain(_) | Self::Silent => Ok(()),
        }
    }
}

fn unwritable(error: &io::Error) -> Failure {
    Failure::new(
        crate::failure::Exit::Failed,
        format!("cannot write to the terminal: {error}"),
    )
}

fn heading(view: &RunView, now: &str, fresh: &Freshness) -> String {
    let (glyph, _) = lines::status_mark(view.display.status);
    let title = view
        .manifest
        .run_title
        .as_deref()
        .unwrap_or(&view.manifest.workflow_name);
    let end = view.manifest.finished_at.as_deref().unwrap_or(now);
    let time = elapsed(between(&view.manifest.started_at, end));
    let mut heading = format!(
        "{glyph} {}  {}  {time}",
        text::clean(title),
        lines::status_name(view.display.status)
    );
    if let Freshness::Stale(retry) = fresh {
        heading.push_str(&format!("  (stale: reconnecting, attempt {})", retry.attempt));
    }
    heading
}

/// The lines of a view without a terminal, for `piw show`.
#[must_use]
pub fn table(lines: &[Line]) -> String {
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            let name = format!("{} {} {}", line.glyph, line.kind, line.name);
            vec![name, line.time.clone(), line.attempts.clone(), line.detail.clone()]
        })
        .collect();
    output::table(&rows)
}
