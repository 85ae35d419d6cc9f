//! Pages of a run view at any position, and chunks of content.

use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use piw_protocol::ops::{ContentRequest, PageRequest};
use piw_protocol::session::ReplayCheckpoint;
use piw_protocol::view::{
    CONTENT_CHUNK, CONTENT_CHUNK_SCHEMA, ContentChunk, GraphStep, PAGE_BYTES, PAGE_ITEMS, PageKind, RUN_PAGE_SCHEMA,
    RunPage, TakenTransition,
};
use piw_state::query::run::{self as runs, RunFacts};
use piw_state::query::steps::{self, Chain, Order};
use piw_state::query::{Reader, content as stored, graph as graphs, message as messages, trace, updates};
use serde::Serialize;
use serde_json::Value;

use super::bounds::Window;
use super::content::{Contents, NamedContent, parse_path};
use super::run::Projector;
use super::step::StepMaker;
use super::{ViewError, graph, session, session_view, times, update};

/// Bytes of graph steps beside a page of steps.
const GRAPH_BYTES: usize = 256 * 1024;
/// Bytes of transitions beside a page of steps.
const TRANSITION_BYTES: usize = 128 * 1024;

/// The part of a page that its kind decides.
#[derive(Default)]
struct Found {
    start: u64,
    total: u64,
    items: Vec<Value>,
    graph: Option<(Vec<GraphStep>, u64, Vec<TakenTransition>)>,
    replay_checkpoint: Option<ReplayCheckpoint>,
}

impl Projector {
    /// One page. Steps, trace and recorded sessions only grow and times of earlier runs stay, so a page of them belongs to every revision up to
    /// the present one and carries the revision that was asked for; other kinds need the present one. `now` is wall-clock milliseconds.
    pub(crate) fn page(
        &self,
        reader: &Reader,
        run_id: &str,
        expected: Option<u64>,
        request: &PageRequest,
        now: i64,
    ) -> Result<(RunPage, NamedContent), ViewError> {
        let facts = runs::facts(reader, run_id)?.ok_or_else(|| ViewError::RunNotFound {
            run_id: run_id.to_owned(),
        })?;
        let revision = expected.unwrap_or(facts.view_revision);
        let grows = matches!(
            request.kind,
            PageKind::Steps
                | PageKind::Trace
                | PageKind::TraceAtStep
                | PageKind::SessionEntries
                | PageKind::SessionEvents
                | PageKind::NodeTimes
                | PageKind::Pauses
        );
        if revision > facts.view_revision || (!grows && revision != facts.view_revision) {
            return Err(ViewError::StaleRevision {
                run_id: run_id.to_owned(),
                expected: revision,
                actual: facts.view_revision,
            });
        }
        let limit = item_limit(request.limit)?;
        let mut contents = Contents::default();
        let nodes = self.nodes.get(reader, facts.definition)?;
        let maker = StepMaker {
            reader,
            run_id: &facts.run_id,
            nodes: &nodes,
            results: &self.results,
        };
        let found = match request.kind {
            PageKind::Steps => steps_page(&maker, &facts, position(&request.cursor)?, limit, &mut contents)?,
            PageKind::Trace => trace_page(&maker, &facts, position(&request.cursor)?, limit, &mut contents)?,
            PageKind::TraceAtStep => trace_at_step(&maker, &facts, &request.cursor, limit, &mut contents)?,
            PageKind::Updates => updates_page(&maker, &facts, position(&request.cursor)?, limit, now, &mut contents)?,
            PageKind::SessionEntries => entries_page(reader, &facts, position(&request.cursor)?, limit, &mut contents)?,
            PageKind::SessionEvents => events_page(reader, &facts, position(&request.cursor)?, limit, &mut contents)?,
            PageKind::NodeTimes => {
                let start = position(&request.cursor)?;
                let at = usize::try_from(start).unwrap_or(usize::MAX);
                Found {
                    start,
                    total: nodes.ids().count() as u64,
                    items: list(&times::nodes(reader, &facts, &self.nodes, at, limit)?)?,
                    ..Found::default()
                }
            }
            PageKind::Pauses => {
                let start = position(&request.cursor)?;
                let at = usize::try_from(start).unwrap_or(usize::MAX);
                let pauses = times::pauses(reader, &Chain::of(reader, &facts)?, &nodes)?;
                let end = at.saturating_add(limit).min(pauses.len());
                Found {
                    start,
                    total: pauses.len() as u64,
                    items: list(pauses.get(at..end).unwrap_or_default())?,
                    ..Found::default()
                }
            }
            PageKind::WorkflowMessages => {
                messages_page(reader, &facts, position(&request.cursor)?, limit, &mut contents)?
            }
            PageKind::Settings | PageKind::FollowUps => Found {
                start: position(&request.cursor)?,
                ..Found::default()
            },
        };
        let (graph_steps, graph_cursor, taken_transitions) = match found.graph {
            Some((steps, cursor, transitions)) => (Some(steps), Some(cursor), Some(transitions)),
            None => (None, None, None),
        };
        let page = RunPage {
            schema: RUN_PAGE_SCHEMA.to_owned(),
            run_id: facts.run_id.clone(),
            kind: request.kind,
            cursor: request.cursor.clone(),
            revision,
            start: found.start,
            total: found.total,
            items: found.items,
            graph_steps,
            graph_cursor,
            taken_transitions,
            replay_checkpoint: found.replay_checkpoint,
        };
        Ok((page, contents.finish(reader, facts.id)?))
    }
}

fn item_limit(limit: Option<u32>) -> Result<usize, ViewError> {
    match limit {
        None => Ok(PAGE_ITEMS),
        Some(limit) if limit >= 1 && limit as usize <= PAGE_ITEMS => Ok(limit as usize),
        Some(limit) => Err(ViewError::BadRequest {
            field: "limit",
            rule: format!("an integer of 1 to {PAGE_ITEMS}"),
            value: limit.to_string(),
        }),
    }
}

fn position(cursor: &Value) -> Result<u64, ViewError> {
    cursor.as_u64().ok_or_else(|| ViewError::BadRequest {
        field: "cursor",
        rule: "the index of the first item, an integer from 0".to_owned(),
        value: shown(cursor),
    })
}

fn shown(value: &Value) -> String {
    super::bounds::cut(&value.to_string(), 200)
}

fn item<T: Serialize>(value: &T) -> Result<Value, ViewError> {
    serde_json::to_value(value).map_err(|error| {
        piw_state::query::QueryError::Corrupt {
            what: "page item",
            message: error.to_string(),
        }
        .into()
    })
}

fn go_on(taken: bool) -> ControlFlow<()> {
    if taken {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

fn items<T: Serialize>(window: Window<T>) -> Result<Vec<Value>, ViewError> {
    list(&window.into_items())
}

fn list<T: Serialize>(items: &[T]) -> Result<Vec<Value>, ViewError> {
    items.iter().map(item).collect()
}

fn steps_page(
    maker: &StepMaker<'_>,
    facts: &RunFacts,
    start: u64,
    limit: usize,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let chain = Chain::of(maker.reader, facts)?;
    let end = start.saturating_add(limit as u64).min(facts.step_count);
    let mut window = Window::new(limit, PAGE_BYTES);
    steps::scan(maker.reader, &chain, start..end, Order::Forward, |row| {
        Ok(go_on(window.push(maker.step(row, contents)?)))
    })?;
    let items = items(window)?;
    let cursor = start.saturating_add(items.len() as u64).min(facts.step_count);
    let at = graphs::at(maker.reader, &chain, cursor)?;
    let graph_steps = graph::steps(at.nodes(maker.reader, &chain)?, maker.nodes, GRAPH_BYTES)?;
    let transitions = graph::transitions(at.transitions(), maker.nodes, TRANSITION_BYTES)?;
    Ok(Found {
        start,
        total: facts.step_count,
        items,
        graph: Some((graph_steps, cursor, transitions)),
        replay_checkpoint: None,
    })
}

fn trace_page(
    maker: &StepMaker<'_>,
    facts: &RunFacts,
    start: u64,
    limit: usize,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let mut window = Window::new(limit, PAGE_BYTES);
    // Positions count from 0, ordinals from 1.
    let end = start.saturating_add(limit as u64).min(facts.trace_seq);
    trace::scan(
        maker.reader,
        facts.id,
        start.saturating_add(1)..end + 1,
        Order::Forward,
        |row| Ok(go_on(window.push(maker.event(row, contents)?))),
    )?;
    Ok(Found {
        start,
        total: facts.trace_seq,
        items: items(window)?,
        ..Found::default()
    })
}

/// The events of the step's exact attempt; when the trace has none of it, from the first event of its node on.
fn trace_at_step(
    maker: &StepMaker<'_>,
    facts: &RunFacts,
    cursor: &Value,
    limit: usize,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let reader = maker.reader;
    let chain = Chain::of(reader, facts)?;
    let attempt = match (
        cursor.get("attemptId").and_then(Value::as_str),
        cursor.get("step").unwrap_or(cursor).as_u64(),
    ) {
        (Some(public), _) => steps::attempt_by_public_id(reader, &chain, public)?,
        (None, Some(index)) => match steps::at(reader, &chain, index)? {
            Some((_, attempt)) => steps::attempt(reader, attempt)?,
            None => None,
        },
        (None, None) => {
            return Err(ViewError::BadRequest {
                field: "cursor",
                rule: "{attemptId} or {step}".to_owned(),
                value: shown(cursor),
            });
        }
    };
    let Some(attempt) = attempt else {
        return Err(ViewError::BadRequest {
            field: "cursor",
            rule: "an attempt or a step of the run".to_owned(),
            value: shown(cursor),
        });
    };
    let exact = trace::first_of_attempt(reader, facts.id, facts.trace_seq, attempt.attempt)?;
    let first = match exact {
        Some(seq) => Some(seq),
        None => trace::first_of_node(reader, facts.id, attempt.node)?,
    };
    let Some(first) = first else {
        return Ok(Found {
            start: facts.trace_seq,
            total: facts.trace_seq,
            ..Found::default()
        });
    };
    let mut window = Window::new(limit, PAGE_BYTES);
    trace::scan(reader, facts.id, first..facts.trace_seq + 1, Order::Forward, |row| {
        let is_other = row
            .attempt
            .as_ref()
            .is_some_and(|other| other.attempt_id != attempt.attempt_id);
        if exact.is_some() && is_other {
            return Ok(ControlFlow::Break(()));
        }
        Ok(go_on(window.push(maker.event(row, contents)?)))
    })?;
    Ok(Found {
        start: first - 1,
        total: facts.trace_seq,
        items: items(window)?,
        ..Found::default()
    })
}

fn updates_page(
    maker: &StepMaker<'_>,
    facts: &RunFacts,
    start: u64,
    limit: usize,
    now: i64,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let mut window = Window::new(limit, PAGE_BYTES);
    updates::scan(maker.reader, facts.id, start, |row| {
        Ok(go_on(window.push(update::update(row, maker.nodes, now, contents)?)))
    })?;
    Ok(Found {
        start,
        total: updates::count(maker.reader, facts.id)?,
        items: items(window)?,
        ..Found::default()
    })
}

fn messages_page(
    reader: &Reader,
    facts: &RunFacts,
    start: u64,
    limit: usize,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let mut window = Window::new(limit, PAGE_BYTES);
    messages::scan(reader, facts.id, start, |row| {
        Ok(window.push(session_view::page_message(row, contents)))
    })?;
    Ok(Found {
        start,
        total: messages::count(reader, facts.id)?,
        items: items(window)?,
        ..Found::default()
    })
}

fn entries_page(
    reader: &Reader,
    facts: &RunFacts,
    start: u64,
    limit: usize,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let window = Window::new(limit, PAGE_BYTES);
    let (total, entries) = session::entries(reader, facts.id, start, window, contents)?;
    Ok(Found {
        start,
        total,
        items: list(&entries)?,
        ..Found::default()
    })
}

fn events_page(
    reader: &Reader,
    facts: &RunFacts,
    start: u64,
    limit: usize,
    contents: &mut Contents,
) -> Result<Found, ViewError> {
    let window = Window::new(limit, PAGE_BYTES);
    let (total, events, replay_checkpoint) = session::events(reader, facts.id, start, window, contents)?;
    Ok(Found {
        start,
        total,
        items: list(&events)?,
        replay_checkpoint,
        ..Found::default()
    })
}

/// One chunk of content of a run.
pub(crate) fn content_chunk(
    reader: &Reader,
    run_id: &str,
    request: &ContentRequest,
) -> Result<ContentChunk, ViewError> {
    let id = runs::key(reader, run_id)?.ok_or_else(|| ViewError::RunNotFound {
        run_id: run_id.to_owned(),
    })?;
    let missing = || ViewError::ContentNotFound {
        run_id: run_id.to_owned(),
        path: super::bounds::cut(&request.path, 200),
    };
    let (sha256, media_type) = parse_path(&request.path).ok_or_else(missing)?;
    let entry = stored::find(reader, id, sha256, media_type)?.ok_or_else(missing)?;
    let total = entry.reference.bytes;
    if request.offset > total {
        return Err(ViewError::BadRequest {
            field: "offset",
            rule: format!("at most the content's {total} bytes"),
            value: request.offset.to_string(),
        });
    }
    let bytes = stored::read(reader, &entry, request.offset, CONTENT_CHUNK)?;
    let next_offset = request.offset + bytes.len() as u64;
    if bytes.is_empty() && next_offset < total {
        return Err(piw_state::query::QueryError::Corrupt {
            what: "content",
            message: format!("bytes from {next_offset} to {total} are missing"),
        }
        .into());
    }
    Ok(ContentChunk {
        schema: CONTENT_CHUNK_SCHEMA.to_owned(),
        run_id: run_id.to_owned(),
        path: request.path.clone(),
        offset: request.offset,
        next_offset,
        bytes: total,
        sha256: entry.reference.sha256,
        media_type: entry.reference.media_type,
        complete: next_offset == total,
        data: STANDARD.encode(bytes),
    })
}
