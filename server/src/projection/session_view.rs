//! The session view: what a Pi session needs to know now, small whatever the history.
//!
//! The chosen message is held per session until something it depends on changes or the clock ends it; so is the finished view. Both are
//! checked by one indexed read.

use std::sync::{Arc, Mutex, PoisonError};

use piw_engine::update::PROGRESS_TYPE;
use piw_protocol::canonical;
use piw_protocol::interaction::{
    FIELD_BYTES, InteractionKind, InteractionReceipt, MessageKind, MessageStatus, NODE_ROWS, PROGRESS_KEYS,
    SESSION_VIEW_LIMIT, SESSION_VIEW_SCHEMA, SessionInteraction, SessionMessage, SessionNode, SessionRun, SessionView,
};
use piw_protocol::run::{DisplayStatus, ErrorInfo, NodeOutcome, StoredUpdate};
use piw_protocol::view::Display;
use piw_state::message::turn_of;
use piw_state::query::graph::{self as graphs, NodeRow};
use piw_state::query::message::{self as messages, MessageRow, Rule, Selection, SessionKey};
use piw_state::query::run::{self as runs, RunFacts, RunValue};
use piw_state::query::{QueryError, Reader, StoredValue, content as stored, rfc3339, updates};
use serde_json::{Value, json};

use super::bounds::{Window, cut, size};
use super::content::{Contents, NamedContent};
use super::nodes::Nodes;
use super::run::{Position, Projector};
use super::{ViewError, display, update};
use crate::coordinator::Standing;

/// Sessions whose chosen message and views are held.
const HELD: usize = 64;
/// Views that are held of one session: one a watcher, and the window it looks at.
const HELD_VIEWS: usize = 4;
/// Rows of the node window before the working node.
const LEAD: u64 = 3;
/// Bytes of all node rows.
const NODE_BYTES: usize = 64 * 1024;
/// Bytes of all progress.
const PROGRESS_BYTES: usize = 48 * 1024;
/// Longest identity that is carried; a longer one is left out, never cut.
const IDENTITY: usize = 32 * 1024;
/// Longest detail of a node row.
const DETAIL: usize = 512;
/// Largest contract that is opened to find the tools it allows.
const CONTRACT_BYTES: u64 = 1024 * 1024;

/// Who looks at a session, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looking {
    /// Epoch of the watching connection.
    pub(crate) epoch: u64,
    /// How the session's coordination stands.
    pub(crate) standing: Standing,
    /// First row of the node window and the run that it was chosen in, once that is known; `None` follows the working node.
    pub(crate) window: Option<(u64, Option<i64>)>,
}

/// A view with what must happen before it is sent.
#[derive(Debug)]
pub(crate) struct ProjectedSession {
    /// The finished view.
    pub(crate) view: Arc<Finished>,
    /// Content that it names; nothing for a held view, whose content is stored.
    pub(crate) content: Vec<NamedContent>,
}

/// A finished session view.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its canonical JSON.
    pub(crate) json: Arc<[u8]>,
    /// `runs.id` of the run that it shows.
    pub(crate) run: Option<i64>,
    /// Public id of that run.
    pub(crate) run_id: Option<String>,
    /// Wall-clock milliseconds at which the clock alone ends it.
    pub(crate) valid_until: Option<i64>,
}

/// What is held of the sessions that were looked at last, newest last. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionCache {
    held: Arc<Mutex<Vec<Held>>>,
}

#[derive(Debug)]
struct Held {
    session: String,
    /// Session revision and coordinator epoch.
    chosen_for: (u64, u64),
    selection: Arc<Selection>,
    views: Vec<(ViewKey, Arc<Finished>)>,
}

/// What a finished view depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ViewKey {
    session: SessionKey,
    /// The shown run, which may be another than the one that holds the session, and its presentation cursor.
    shown: Option<(i64, u64)>,
    looking: Looking,
}

impl SessionCache {
    fn selection(&self, session: &str, chosen_for: (u64, u64), now: i64) -> Option<Arc<Selection>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|held| held.session == session)?;
        let entry = held.remove(at);
        let current = entry.chosen_for == chosen_for && entry.selection.valid_until().is_none_or(|until| now < until);
        let selection = current.then(|| Arc::clone(&entry.selection));
        if current {
            held.push(entry);
        }
        selection
    }

    fn hold(&self, session: &str, chosen_for: (u64, u64), selection: &Arc<Selection>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|held| held.session != session);
        if held.len() >= HELD {
            held.remove(0);
        }
        held.push(Held {
            session: session.to_owned(),
            chosen_for,
            selection: Arc::clone(selection),
            views: Vec::new(),
        });
    }

    fn view(&self, session: &str, key: &ViewKey, now: i64) -> Option<Arc<Finished>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = held.iter().rev().find(|held| held.session == session)?;
        entry
            .views
            .iter()
            .find(|(known, view)| known == key && view.valid_until.is_none_or(|until| now < until))
            .map(|(_, view)| Arc::clone(view))
    }

    /// Keeps a view whose content is stored.
    fn keep(&self, session: &str, key: ViewKey, view: &Arc<Finished>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = held.iter_mut().rev().find(|held| held.session == session) {
            entry.views.retain(|(known, _)| known.looking != key.looking);
            if entry.views.len() >= HELD_VIEWS {
                entry.views.remove(0);
            }
            entry.views.push((key, Arc::clone(view)));
        }
    }

    /// The sessions that are held, the one looked at last at the end.
    #[cfg(test)]
    fn sessions(&self) -> Vec<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|held| held.session.clone()).collect()
    }
}

impl Projector {
    /// The view of a session. `now` is wall-clock milliseconds.
    ///
    /// # Errors
    /// When it cannot be read, would be larger than [`SESSION_VIEW_LIMIT`], or the session has more than one open turn.
    pub(crate) fn session_view(
        &self,
        reader: &Reader,
        session: &str,
        looking: Looking,
        now: i64,
    ) -> Result<ProjectedSession, ViewError> {
        let key = messages::session_key(reader, session)?;
        let chosen_for = (key.revision, looking.standing.epoch);
        let selection = match self.sessions.selection(session, chosen_for, now) {
            Some(selection) => selection,
            None => {
                let selection = Arc::new(messages::select(reader, session, looking.standing.epoch, now)?);
                self.sessions.hold(session, chosen_for, &selection);
                selection
            }
        };
        let shown = match (key.run, selection.retained) {
            (Some(run), _) => Some((run, key.run_revision)),
            (None, Some(retained)) => {
                runs::view_revision_by_id(reader, retained.run)?.map(|revision| (retained.run, revision))
            }
            (None, None) => None,
        };
        let view_key = ViewKey {
            session: key,
            shown,
            looking,
        };
        if let Some(view) = self.sessions.view(session, &view_key, now) {
            return Ok(ProjectedSession {
                view,
                content: Vec::new(),
            });
        }
        let projected = self.build_session(reader, session, &selection, shown.map(|(run, _)| run), looking, now)?;
        // A view is repeated as it is; content that is missing must be stored first, by whoever sends it the first time.
        if projected.content.iter().all(NamedContent::is_stored) {
            self.sessions.keep(session, view_key, &projected.view);
        }
        Ok(projected)
    }

    fn build_session(
        &self,
        reader: &Reader,
        session: &str,
        selection: &Selection,
        shown: Option<i64>,
        looking: Looking,
        now: i64,
    ) -> Result<ProjectedSession, ViewError> {
        let is_coordinator = looking.epoch == looking.standing.epoch && looking.epoch != 0;
        let active = is_coordinator && looking.standing.reported;
        let (mut contents, mut of_message) = (Contents::default(), Contents::default());
        let facts = match shown {
            Some(run) => runs::facts_by_id(reader, run)?,
            None => None,
        };
        let mut valid_until = selection.valid_until();
        let (mut run, mut interaction) = (None, None);
        if let Some(facts) = &facts {
            let (of_run, until) = self.session_run(reader, session, facts, looking, now, &mut contents)?;
            interaction = self.interaction(reader, facts, &mut contents)?;
            valid_until = [valid_until, until].into_iter().flatten().min();
            run = Some(of_run);
        }
        let chosen = match selection.message {
            Some((id, rule)) => messages::message(reader, id)?.map(|row| (row, rule)),
            None => None,
        };
        let branch_report_required = is_coordinator
            && match &chosen {
                Some((_, Rule::Unreported)) => true,
                Some((row, Rule::OpenTurn)) => row.branch_epoch != looking.epoch,
                Some(_) => false,
                None => !looking.standing.reported,
            };
        let message_run = chosen.as_ref().map(|(row, _)| row.run);
        let view = SessionView {
            schema: SESSION_VIEW_SCHEMA.to_owned(),
            session_id: session.to_owned(),
            coordinator_epoch: looking.epoch,
            coordinator_active: active,
            branch_report_required,
            run,
            interaction,
            workflow_message: chosen.map(|(row, rule)| message(row, active && rule == Rule::Deliver, &mut of_message)),
            open_workflow_turn: selection.turn.as_ref().map(turn_of),
        };
        let json = canonical::to_vec(&view).map_err(|error| ViewError::Encode {
            message: error.to_string(),
        })?;
        if json.len() > SESSION_VIEW_LIMIT {
            return Err(ViewError::TooLarge {
                bytes: json.len(),
                limit: SESSION_VIEW_LIMIT,
            });
        }
        // The message may be of another run than the one that is shown; content is stored under the run that owns it.
        let mut content = Vec::new();
        if let Some(run) = shown {
            content.push(contents.finish(reader, run)?);
        }
        if let Some(run) = message_run {
            content.push(of_message.finish(reader, run)?);
        }
        let finished = Finished {
            json: json.into(),
            run: shown,
            run_id: facts.map(|facts| facts.run_id),
            valid_until,
        };
        Ok(ProjectedSession {
            view: Arc::new(finished),
            content,
        })
    }

    fn session_run(
        &self,
        reader: &Reader,
        session: &str,
        facts: &RunFacts,
        looking: Looking,
        now: i64,
        contents: &mut Contents,
    ) -> Result<(SessionRun, Option<i64>), ViewError> {
        let nodes = self.nodes.get(reader, facts.definition)?;
        let at = Position::read(reader, facts, &nodes)?;
        let error = failure(reader, facts)?;
        let derived = display::derive(facts, now, at.waiting_on(), error.as_deref());
        let window = looking
            .window
            .filter(|(_, run)| run.is_none_or(|run| run == facts.id))
            .map(|(start, _)| start);
        let (node_start, rows) = window_of(reader, facts, &nodes, &at, window)?;
        let run = SessionRun {
            run_id: facts.run_id.clone(),
            run_revision: facts.revision,
            origin_session_id: facts.session_id.clone().unwrap_or_else(|| session.to_owned()),
            workflow_name: cut(&facts.workflow_name, FIELD_BYTES),
            run_title: facts.title.as_deref().map(|title| cut(title, FIELD_BYTES)),
            display: Display {
                reason: derived.display.reason.map(|reason| cut(&reason, FIELD_BYTES)),
                reason_content: None,
                ..derived.display
            },
            current_node: at
                .current_node()
                .filter(|node| node.len() <= IDENTITY)
                .map(str::to_owned),
            waiting_on: at.waiting_on().filter(|node| node.len() <= IDENTITY).map(str::to_owned),
            paused: facts.paused,
            started_at: rfc3339(facts.started_at.unwrap_or(facts.created_at)),
            finished_at: facts.finished_at.map(rfc3339),
            updated_at: rfc3339(facts.updated_at),
            nodes: rows,
            node_start,
            node_total: nodes.len(),
            progress: progress(reader, facts, &nodes, now, contents)?,
        };
        Ok((run, derived.valid_until))
    }

    /// What the shown run asks of its session.
    fn interaction(
        &self,
        reader: &Reader,
        facts: &RunFacts,
        contents: &mut Contents,
    ) -> Result<Option<SessionInteraction>, ViewError> {
        if facts.pending_request.is_none() {
            return Ok(None);
        }
        let nodes = self.nodes.get(reader, facts.definition)?;
        let fits = |node: String| (node.len() <= IDENTITY).then_some(node);
        if let Some(request) = messages::request(reader, facts.id)? {
            let Some(node_id) = fits(nodes.id(request.node)?) else {
                return Ok(None);
            };
            let rejection = request
                .rejection
                .as_deref()
                .and_then(|receipt| serde_json::from_str::<InteractionReceipt>(receipt).ok())
                .and_then(|receipt| receipt.error)
                .map(|error| cut(&error.message, FIELD_BYTES));
            return Ok(Some(SessionInteraction {
                request_id: request.request_id,
                run_id: facts.run_id.clone(),
                node_id,
                attempt_id: request.attempt_id,
                kind: request.kind,
                revision: request.revision,
                status: if request.validating { "validating" } else { "pending" }.to_owned(),
                paused: facts.paused,
                allowed_tools: allowed_tools(reader, &request.contract)?,
                contract: contents.stored(Some(request.contract)).to_wire(),
                rejection,
                unproductive_turn_ends: request.unproductive_turn_ends,
                deadline_at: None,
            }));
        }
        let Some(decision) = messages::decision(reader, facts.id)? else {
            return Ok(None);
        };
        let Some(node_id) = fits(nodes.id(decision.node)?) else {
            return Ok(None);
        };
        let subject = contents.stored(Some(decision.subject)).to_wire();
        let contract = json!({ "digest": decision.digest, "subject": subject, "policy": decision.policy });
        Ok(Some(SessionInteraction {
            request_id: decision.decision_id,
            run_id: facts.run_id.clone(),
            node_id,
            attempt_id: decision.attempt_id,
            kind: InteractionKind::Decision,
            revision: 0,
            status: "pending".to_owned(),
            paused: facts.paused,
            contract: contents.value(contract).to_wire(),
            rejection: None,
            unproductive_turn_ends: 0,
            allowed_tools: None,
            deadline_at: decision.deadline_at.map(rfc3339),
        }))
    }
}

/// The message as the session sees it: a delivered step whose request is over reads as cancelled, and has an entry.
fn message(row: MessageRow, deliver: bool, contents: &mut Contents) -> SessionMessage {
    let stopped = row.stopped && row.kind == MessageKind::Step;
    SessionMessage {
        workflow_message_id: row.message_id,
        run_id: row.run_id,
        kind: row.kind,
        source_id: row.source_id,
        reason: row.reason,
        order: row.order,
        status: if stopped { MessageStatus::Cancelled } else { row.status },
        pi_session_entry_id: row.pi_entry_id,
        deliver,
        starts_turn: row.starts_turn,
        content_digest: row.content_digest,
        content: contents.stored(Some(row.content)).to_wire(),
        created_at: rfc3339(row.created_at),
        updated_at: rfc3339(row.updated_at),
    }
}

/// A message for a page of its run.
pub(super) fn page_message(row: MessageRow, contents: &mut Contents) -> SessionMessage {
    message(row, false, contents)
}

/// The tools that a contract allows, wherever it is stored.
fn allowed_tools(reader: &Reader, contract: &StoredValue) -> Result<Option<Vec<String>>, ViewError> {
    let value = match contract {
        StoredValue::Inline(value) => value.clone(),
        StoredValue::Content { blob, reference } if reference.bytes <= CONTRACT_BYTES => {
            stored::json(reader, *blob, reference)?
        }
        StoredValue::Content { reference, .. } => {
            return Err(ViewError::TooLarge {
                bytes: usize::try_from(reference.bytes).unwrap_or(usize::MAX),
                limit: usize::try_from(CONTRACT_BYTES).unwrap_or(usize::MAX),
            });
        }
    };
    let tools = match value {
        Value::Object(mut contract) => contract.remove("allowedTools"),
        _ => None,
    };
    let tools = serde_json::from_value(tools.unwrap_or_default()).map_err(|error| QueryError::Corrupt {
        what: "contract",
        message: error.to_string(),
    })?;
    Ok(tools)
}

/// Why a run did not complete.
fn failure(reader: &Reader, facts: &RunFacts) -> Result<Option<String>, ViewError> {
    if facts.finished_at.is_none() {
        return Ok(None);
    }
    match runs::value(reader, facts.id, RunValue::Error)? {
        Some(StoredValue::Inline(value)) => Ok(serde_json::from_value::<ErrorInfo>(value)
            .ok()
            .map(|error| error.message)),
        Some(StoredValue::Content { .. }) => Ok(Some("the error is in the run's view".to_owned())),
        None => Ok(None),
    }
}

/// The node window: where it starts and its rows, in definition order. A row that alone is too large is left out, and the window starts
/// after it, or ends before it.
fn window_of(
    reader: &Reader,
    facts: &RunFacts,
    nodes: &Nodes,
    at: &Position,
    start: Option<u64>,
) -> Result<(u64, Vec<SessionNode>), ViewError> {
    let total = nodes.len();
    let last = total.saturating_sub(1);
    let start = match start {
        Some(start) => start.min(last),
        None => {
            let anchor = match at.working_node() {
                Some(node) => Some(node),
                None => messages::latest_failed_node(reader, facts.id)?,
            };
            let anchor = anchor.and_then(|node| u64::try_from(node).ok()).unwrap_or(last);
            anchor.saturating_sub(LEAD).min(total.saturating_sub(NODE_ROWS as u64))
        }
    };
    let end = start.saturating_add(NODE_ROWS as u64).min(total);
    let mut known = graphs::live_nodes_in(reader, facts.id, start..end)?
        .into_iter()
        .peekable();
    let mut window = Window::new(NODE_ROWS, NODE_BYTES);
    let (mut first, mut left) = (start, NODE_BYTES);
    for node in start..end {
        let index = i64::try_from(node).unwrap_or(i64::MAX);
        let row = known.next_if(|row| row.attempt.node == index);
        let row = session_node(index, row.as_ref(), facts, nodes)?;
        let cost = size(&row) + 1;
        if cost > left {
            if first == node && cost > NODE_BYTES {
                first = node + 1;
                continue;
            }
            break;
        }
        left -= cost;
        window.push(row);
    }
    Ok((first, window.into_items()))
}

fn session_node(node: i64, row: Option<&NodeRow>, facts: &RunFacts, nodes: &Nodes) -> Result<SessionNode, ViewError> {
    let (node_id, node_type) = nodes.get(node)?;
    Ok(SessionNode {
        node_id: node_id.to_owned(),
        node_type,
        status: row.map(|row| node_status(row, facts)),
        attempts: row.map_or(0, |row| u32::try_from(row.attempts).unwrap_or(u32::MAX)),
        started_at: row.map(|row| rfc3339(row.attempt.started_at)),
        finished_at: row.and_then(|row| row.attempt.finished_at).map(rfc3339),
        status_detail: row
            .and_then(|row| row.attempt.status_detail.as_deref())
            .map(|detail| cut(detail, DETAIL)),
    })
}

/// Status of a node's newest attempt. One that neither finished nor runs is executed again, unless its run is paused or over.
fn node_status(row: &NodeRow, facts: &RunFacts) -> DisplayStatus {
    match (row.attempt.outcome, row.attempt.status.as_str()) {
        (Some(NodeOutcome::Ok), _) => DisplayStatus::Completed,
        (Some(NodeOutcome::Failed), _) => DisplayStatus::Failed,
        (Some(NodeOutcome::TimedOut), _) => DisplayStatus::TimedOut,
        (Some(NodeOutcome::Cancelled), _) => DisplayStatus::Cancelled,
        (None, _) if facts.finished_at.is_some() => DisplayStatus::Cancelled,
        (None, _) if facts.paused => DisplayStatus::Paused,
        (None, "active") => DisplayStatus::Running,
        (None, "waiting") if facts.open_turn => DisplayStatus::Running,
        (None, "waiting") => DisplayStatus::Waiting,
        (None, _) => DisplayStatus::Queued,
    }
}

/// The newest progress, newest first.
fn progress(
    reader: &Reader,
    facts: &RunFacts,
    nodes: &Nodes,
    now: i64,
    contents: &mut Contents,
) -> Result<Vec<StoredUpdate>, ViewError> {
    let mut found: Vec<StoredUpdate> = Vec::new();
    let mut left = PROGRESS_BYTES;
    updates::scan_back(reader, facts.id, |row| {
        if row.update_type != PROGRESS_TYPE {
            return Ok(std::ops::ControlFlow::Continue(()));
        }
        let update = update::update(row, nodes, now, contents)?;
        let cost = size(&update) + 1;
        if found.len() == PROGRESS_KEYS || cost > left {
            return Ok(std::ops::ControlFlow::Break(()));
        }
        left -= cost;
        found.push(update);
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_of_64_sessions_is_held_and_the_one_unused_longest_goes() {
        let cache = SessionCache::default();
        let selection = Arc::new(Selection::default());
        for number in 0..HELD {
            cache.hold(&format!("s{number}"), (1, 1), &selection);
        }
        assert!(cache.selection("s0", (1, 1), 0).is_some(), "looking at it keeps it");
        cache.hold("one more", (1, 1), &selection);
        assert_eq!(cache.sessions().len(), HELD);
        assert!(cache.selection("s1", (1, 1), 0).is_none());
        assert!(cache.selection("s0", (1, 1), 0).is_some());
    }

    #[test]
    fn a_change_another_epoch_and_the_clock_end_a_held_choice() {
        let cache = SessionCache::default();
        let selection = Arc::new(Selection {
            retained: Some(messages::Retained {
                run: 1,
                until: Some(100),
            }),
            ..Selection::default()
        });
        cache.hold("s", (1, 1), &selection);
        assert!(cache.selection("s", (1, 1), 99).is_some());
        for (chosen_for, now) in [((2, 1), 0), ((1, 2), 0), ((1, 1), 100)] {
            cache.hold("s", (1, 1), &selection);
            assert!(
                cache.selection("s", chosen_for, now).is_none(),
                "{chosen_for:?} at {now}"
            );
        }
    }
}
