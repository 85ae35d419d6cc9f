//! The recorded session of a run in its view and pages.

use std::ops::ControlFlow;

use piw_protocol::session::{
    ReplayCheckpoint, SessionBinding, SessionEntryView, SessionEventView, SessionPage, SessionRunView,
};
use piw_state::query::run::RunFacts;
use piw_state::query::session::{self as sessions, EntryRow, EventRow, Recording};
use piw_state::query::steps::Order;
use piw_state::query::{QueryError, Reader, rfc3339};
use serde_json::Value;

use super::bounds::Window;
use super::content::Contents;

/// The event window of a view begins at a multiple of this, so that its checkpoint, which may be content, is not another one
/// after every batch.
const ALIGNED: u64 = 16;

/// How much of a session a view shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) entries: usize,
    pub(super) entry_bytes: usize,
    pub(super) events: usize,
    pub(super) event_bytes: usize,
}

impl Budget {
    /// Half of it.
    pub(super) const fn half(self) -> Self {
        Self {
            entries: self.entries.div_ceil(2),
            entry_bytes: self.entry_bytes / 2,
            events: self.events.div_ceil(2),
            event_bytes: self.event_bytes / 2,
        }
    }
}

/// The session part of a run view: the newest entries and events. `None` for a run that is bound to no session.
pub(super) fn view(
    reader: &Reader,
    facts: &RunFacts,
    budget: Budget,
    contents: &mut Contents,
) -> Result<Option<SessionRunView>, QueryError> {
    let Some(session_id) = &facts.session_id else {
        return Ok(None);
    };
    let recording = sessions::recording(reader, facts.id)?;
    let event_page = newest_events(reader, facts.id, &recording, budget, contents)?;
    Ok(Some(SessionRunView {
        binding: SessionBinding {
            session_id: session_id.clone(),
            segments: recording.segments,
        },
        entry_page: newest_entries(reader, facts.id, &recording, budget, contents)?,
        replay_checkpoint: checkpoint(reader, facts.id, event_page.start, recording.events, contents)?,
        event_page,
        integrity: integrity(&recording),
        capture: recording.capture,
    }))
}

fn newest_events(
    reader: &Reader,
    run: i64,
    recording: &Recording,
    budget: Budget,
    contents: &mut Contents,
) -> Result<SessionPage<SessionEventView>, QueryError> {
    let total = recording.events;
    let mut window = Window::new(budget.events, budget.event_bytes);
    sessions::events(reader, run, 0..total, Order::Backward, |row| {
        Ok(go_on(window.push(event(row, contents))))
    })?;
    let mut items = window.into_reversed();
    let start = total - items.len() as u64;
    let aligned = start.next_multiple_of(ALIGNED);
    if aligned < total {
        items.drain(..usize::try_from(aligned - start).unwrap_or_default());
    }
    Ok(SessionPage {
        start: total - items.len() as u64,
        total,
        items,
    })
}

fn newest_entries(
    reader: &Reader,
    run: i64,
    recording: &Recording,
    budget: Budget,
    contents: &mut Contents,
) -> Result<SessionPage<SessionEntryView>, QueryError> {
    let mut window = Window::new(budget.entries, budget.entry_bytes);
    sessions::entries(reader, run, 0..recording.entries, Order::Backward, |row| {
        Ok(go_on(window.push(entry(row, contents))))
    })?;
    let items = window.into_reversed();
    Ok(SessionPage {
        start: recording.entries - items.len() as u64,
        total: recording.entries,
        items,
    })
}

/// Sentences about what is missing.
fn integrity(recording: &Recording) -> Vec<String> {
    recording
        .cut_off
        .iter()
        .map(|(events, reason)| {
            let why = reason.as_deref().unwrap_or("no reason was given");
            format!("the recording was cut off after {events} events: {why}")
        })
        .collect()
}

/// A page of events from a position on, and the conversation before it.
pub(super) fn events(
    reader: &Reader,
    run: i64,
    start: u64,
    mut window: Window<SessionEventView>,
    contents: &mut Contents,
) -> Result<(u64, Vec<SessionEventView>, Option<ReplayCheckpoint>), QueryError> {
    let total = sessions::recording(reader, run)?.events;
    sessions::events(reader, run, start..total, Order::Forward, |row| {
        Ok(go_on(window.push(event(row, contents))))
    })?;
    Ok((
        total,
        window.into_items(),
        checkpoint(reader, run, start, total, contents)?,
    ))
}

/// A page of entries from an index on.
pub(super) fn entries(
    reader: &Reader,
    run: i64,
    start: u64,
    mut window: Window<SessionEntryView>,
    contents: &mut Contents,
) -> Result<(u64, Vec<SessionEntryView>), QueryError> {
    let total = sessions::recording(reader, run)?.entries;
    sessions::entries(reader, run, start..total, Order::Forward, |row| {
        Ok(go_on(window.push(entry(row, contents))))
    })?;
    Ok((total, window.into_items()))
}

fn go_on(taken: bool) -> ControlFlow<()> {
    if taken {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

fn checkpoint(
    reader: &Reader,
    run: i64,
    position: u64,
    total: u64,
    contents: &mut Contents,
) -> Result<Option<ReplayCheckpoint>, QueryError> {
    if position >= total {
        return Ok(None);
    }
    let state = serde_json::to_value(sessions::conversation(reader, run, position)?);
    let state = state.map_err(|error| QueryError::Corrupt {
        what: "conversation",
        message: error.to_string(),
    })?;
    Ok(Some(ReplayCheckpoint {
        position,
        state: contents.value(state).to_wire(),
    }))
}

fn event(row: EventRow, contents: &mut Contents) -> SessionEventView {
    if let Some((blob, reference)) = row.content {
        contents.blob(blob, reference);
    }
    SessionEventView {
        position: row.position,
        steps: row.steps,
        entries: row.entries,
        event: row.event,
    }
}

fn entry(row: EntryRow, contents: &mut Contents) -> SessionEntryView {
    let content: Value = contents.stored(Some(row.content)).to_wire();
    SessionEntryView {
        index: row.index,
        event: row.position,
        entry_id: row.entry_id,
        at: rfc3339(row.at),
        kind: row.kind,
        content,
    }
}
