//! The Conversation tab, and replay by the events of a recorded session.

use piw_protocol::ops::PageRequest;
use piw_protocol::view::{PageKind, RUN_PAGE_SCHEMA, RunPage};

use super::*;
use crate::viewer::fixtures::SessionFixture;
use crate::viewer::message::Content;

const RUN: &str = "01JNE8-release-0001";

pub(super) fn with(session: piw_protocol::session::SessionRunView) -> RunView {
    let mut view = fixtures::running().view();
    view.session = Some(session);
    view
}

pub(super) fn stage(size: (u16, u16), view: RunView) -> Stage {
    let mut stage = Stage::new(size, Some(RUN));
    stage.view(view);
    stage
}

/// A session whose last message is being written.
pub(super) fn writing() -> SessionFixture {
    let mut session = SessionFixture::new(2);
    for (kind, payload) in [
        ("turn_start", json!({"turn": 2})),
        ("message_start", json!({"role": "assistant"})),
        ("thinking", json!({"delta": "What is left?"})),
        ("text", json!({"delta": "There is *one* more thing"})),
        (
            "tool_start",
            json!({"callId": "c", "tool": "bash", "args": {"command": "cargo test"}}),
        ),
    ] {
        session.event(2, kind, payload);
    }
    session
}

impl Stage {
    fn page_request(&self) -> PageRequest {
        match self.effects.last() {
            Some(Effect::FetchPage { request, .. }) => request.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Answers the last request as a server would, with at most `most` items.
    fn serve(&mut self, session: &SessionFixture, most: usize) {
        let request = self.page_request();
        let start = request.cursor.as_u64().unwrap();
        let end = |total: usize| (start as usize + most.min(request.limit.unwrap_or(256) as usize)).min(total);
        let steps = fixtures::running().view();
        let (total, items) = match request.kind {
            PageKind::SessionEvents => {
                let total = session.events.len();
                (total, json!(session.events[start as usize..end(total)]))
            }
            PageKind::SessionEntries => {
                let total = session.entries.len();
                (total, json!(session.entries[start as usize..end(total)]))
            }
            PageKind::Steps => (steps.state.steps.len(), json!(steps.state.steps[start as usize..])),
            other => panic!("{other:?}"),
        };
        let mut page = json!({"schema": RUN_PAGE_SCHEMA, "runId": RUN, "kind": request.kind, "cursor": request.cursor, "revision": 41,
            "start": start, "total": total, "items": items});
        match request.kind {
            PageKind::SessionEvents => {
                page["replayCheckpoint"] = json!({"position": start, "state": session.before(start)});
            }
            PageKind::Steps => {
                page["graphSteps"] = json!(steps.graph_steps);
                page["takenTransitions"] = json!(steps.taken_transitions);
            }
            _ => {}
        }
        let page: RunPage = serde_json::from_value(page).unwrap();
        self.send(Message::Page {
            run_id: here(RUN),
            request,
            result: Ok(Arc::new(page)),
        });
    }

    /// Answers until nothing more is asked for.
    pub(super) fn serve_all(&mut self, session: &SessionFixture, most: usize) {
        let mut answered = 0;
        loop {
            let asked = self
                .effects
                .iter()
                .filter(|effect| matches!(effect, Effect::FetchPage { .. }))
                .count();
            if asked == answered {
                return;
            }
            assert!(asked < 200, "the viewer asks without end");
            answered = asked;
            self.serve(session, most);
        }
    }

    fn seek(&mut self, column: u16) {
        let y = self.model.screen().unwrap().timeline.y;
        self.click(column, y);
    }
}

#[test]
fn a_live_conversation_at_every_size() {
    for (width, height) in [(60, 20), (80, 24), (120, 40), (250, 80)] {
        let mut stage = stage((width, height), with(writing().view(256, 64, "recording")));
        stage.press("4");
        let frame = stage.frame();
        assert!(
            frame.contains("one* more thing") || height < 24,
            "streamed text is plain: {frame}"
        );
        insta::assert_snapshot!(format!("conversation_{width}x{height}"), frame);
        stage.press("Z");
        insta::assert_snapshot!(format!("conversation_zoomed_{width}x{height}"), stage.frame());
    }
}

#[test]
fn the_settled_entry_replaces_what_was_streamed() {
    let mut session = writing();
    let mut stage = stage((120, 60), with(session.view(256, 64, "recording")));
    stage.press("4 Z");
    assert!(stage.frame().contains("◉ writing"), "{}", stage.frame());
    session.event(2, "message_end", json!({"entryId": "x"}));
    stage.view(with(session.view(256, 64, "recording")));
    assert!(stage.frame().contains("complete, not settled yet"), "{}", stage.frame());
    // The last event of this session settles the last of its entries.
    let whole = SessionFixture::new(3);
    stage.view(with(whole.view(256, 64, "complete")));
    let frame = stage.frame();
    assert!(!frame.contains("writing") && !frame.contains("not settled"), "{frame}");
    assert!(
        frame.contains("1. it compiles") && !frame.contains("**safe**"),
        "{frame}"
    );
    assert!(frame.contains("▸ thinking · 2 lines"), "{frame}");
}

#[test]
fn what_was_not_recorded_is_said() {
    let mut without = opened((120, 40), &fixtures::running());
    without.press("4");
    assert!(without.frame().contains("bound to no session"), "{}", without.frame());
    let mut failed = stage((120, 40), with(SessionFixture::new(1).view(256, 64, "failed")));
    failed.press("4 Z g");
    insta::assert_snapshot!("capture_failed", failed.frame());
    let empty = SessionFixture::new(0);
    let mut none = stage((120, 40), with(empty.view(256, 64, "none")));
    none.press("4");
    assert!(none.frame().contains("○ nothing is recorded yet"), "{}", none.frame());
}

#[test]
fn parts_fold_and_the_raw_record_is_there_on_demand() {
    let mut stage = stage((120, 60), with(SessionFixture::new(1).view(256, 64, "complete")));
    stage.press("4 Z g");
    stage.down_to("▸ thinking");
    stage.press("enter");
    assert!(stage.frame().contains("Then the tests."), "{}", stage.frame());
    stage.down_to("▸ called read");
    stage.press("enter");
    assert!(stage.frame().contains("limit 40"), "{}", stage.frame());
    stage.press("g");
    stage.down_to("▌ result read");
    stage.press("enter");
    let frame = stage.frame();
    assert!(
        frame.contains("▌ result read") && frame.contains("raw {3}") && frame.contains("id r0"),
        "{frame}"
    );
    stage.press("o");
    assert!(
        matches!(stage.effects.last(), Some(Effect::Prepare { name, content: Content::Json(_), .. }) if name == "entry 3"),
        "{:?}",
        stage.effects.last()
    );
}

#[test]
fn a_large_entry_is_fetched_on_demand() {
    let mut session = SessionFixture::new(1);
    let sha256 = "cd".repeat(32);
    let whole = session.entries[3].content.clone();
    session.entries[3].content = json!({"$artifact": {"path": format!("artifacts/sha256/{sha256}.json"),
        "mediaType": "application/json", "bytes": 30_000, "sha256": sha256}});
    let mut stage = stage((120, 60), with(session.view(256, 64, "complete")));
    stage.press("4 Z g");
    stage.down_to("entry 29.3 KiB: Enter loads it");
    stage.press("enter");
    assert!(matches!(stage.effects.last(), Some(Effect::FetchContent { .. })));
    stage.send(Message::Content {
        sha256,
        result: Ok(Content::Json(Arc::new(whole))),
    });
    assert!(
        stage.frame().contains("✓ verified") && stage.frame().contains("1. it compiles"),
        "{}",
        stage.frame()
    );
}

#[test]
fn it_stays_at_the_end_until_it_is_scrolled() {
    let mut session = SessionFixture::new(6);
    let mut stage = stage((100, 30), with(session.view(256, 64, "recording")));
    stage.press("4");
    session.event(6, "turn_start", json!({"turn": 6}));
    stage.view(with(session.view(256, 64, "recording")));
    assert!(stage.frame().contains("a turn is open"), "{}", stage.frame());
    stage.press("up up up");
    let before = stage.model.inspector.top();
    for _ in 0..40 {
        session.event(6, "message_start", json!({"role": "assistant"}));
        session.event(6, "text", json!({"delta": "more\n\nmore\n\nmore"}));
    }
    stage.view(with(session.view(256, 64, "recording")));
    assert_eq!(stage.model.inspector.top(), before, "{}", stage.frame());
}

#[test]
fn older_entries_are_paged() {
    let session = SessionFixture::new(60);
    let mut stage = stage((120, 40), with(session.view(64, 16, "complete")));
    stage.press("4 Z <");
    let request = stage.page_request();
    assert_eq!((request.kind, request.cursor), (PageKind::SessionEntries, json!(160)));
    stage.serve(&session, 256);
    stage.press("g");
    assert!(stage.frame().contains("entries 161 – 224 of 240"), "{}", stage.frame());
    stage.press(">");
    assert!(
        !stage.frame().contains("entries 161"),
        "the newest are of the view: {}",
        stage.frame()
    );
}

#[test]
fn replay_goes_by_events_and_everything_goes_along() {
    let session = writing();
    let mut stage = stage((120, 40), with(session.view(256, 64, "recording")));
    stage.press("4");
    let place = |stage: &Stage| {
        let run = stage.model.run.as_ref().unwrap();
        (run.cursor, run.shown_step(), run.focus_node(), run.entries().1)
    };
    let live = stage.frame();
    stage.press("[ [");
    assert_eq!(place(&stage).0, Some(session.events.len() as u64 - 2));
    stage.serve_all(&session, 256);
    assert!(
        stage.frame().contains("event 34 of 35 · 2 of 7 steps"),
        "{}",
        stage.frame()
    );
    // Into the first turn: no step has ended, the first node is at work, one entry has settled.
    for _ in 0..200 {
        if stage.model.run.as_ref().unwrap().cursor == Some(3) {
            break;
        }
        stage.press("[");
        stage.serve_all(&session, 256);
    }
    let (_, step, node, entries) = place(&stage);
    let graph = stage.model.run.as_ref().unwrap().graph.clone().unwrap();
    assert_eq!((step, node, entries), (None, graph.node("inspect"), 1));
    let frame = stage.frame();
    assert!(
        frame.contains("◈ was being written") && frame.contains("The file has to be read first"),
        "{frame}"
    );
    assert!(
        !frame.contains("I read the file"),
        "what settled later is not there: {frame}"
    );
    insta::assert_snapshot!("replay_by_events", frame);
    // Geometry: every card stands where it stood live.
    for name in ["inspect", "classify", "approve"] {
        let at = |frame: &str| frame.lines().position(|line| line.contains(name));
        assert_eq!(at(&live), at(&frame), "{name}");
    }
    stage.press("L");
    assert_eq!(place(&stage).0, None);
    assert_eq!(stage.frame(), live);
}

#[test]
fn a_position_in_a_long_session_needs_the_pages_that_hold_it() {
    let session = SessionFixture::new(600);
    let total = session.events.len() as u64;
    let mut stage = stage((120, 40), with(session.view(64, 16, "complete")));
    stage.press("4");
    stage.seek(70);
    let first = stage.page_request();
    assert_eq!(first.kind, PageKind::SessionEvents);
    let cursor = stage.model.run.as_ref().unwrap().cursor.unwrap();
    assert!(first.cursor.as_u64().unwrap() <= cursor && cursor < total - 64);
    // A newer position replaces the older one: the page of the older one is not taken.
    stage.seek(40);
    let second = stage.page_request();
    assert_ne!(first, second);
    let wanted = stage.model.run.as_ref().unwrap().cursor;
    let stale = json!({"schema": RUN_PAGE_SCHEMA, "runId": RUN, "kind": "session_events", "cursor": first.cursor, "revision": 41,
        "start": first.cursor, "total": total, "items": session.events[first.cursor.as_u64().unwrap() as usize..][..100]});
    let before = stage.frame();
    stage.send(Message::Page {
        run_id: here(RUN),
        request: first,
        result: Ok(Arc::new(serde_json::from_value(stale).unwrap())),
    });
    assert_eq!(stage.frame(), before, "nothing of the older position shows");
    // Pages that a byte budget cuts short are followed by the next ones.
    stage.serve_all(&session, 50);
    let run = stage.model.run.as_ref().unwrap();
    let position = wanted.unwrap();
    assert_eq!(run.cursor, wanted);
    assert_eq!(run.replay.event(position).unwrap().position, position);
    assert_eq!(
        run.replay.conversation(),
        Some(&session.before(position + 1)),
        "the same as from the beginning"
    );
    let settled = session.events[position as usize].entries;
    let (start, shown, entries) = run.entries();
    assert_eq!(
        (shown, start + entries.len() as u64),
        (settled, settled),
        "entries up to the position"
    );
    assert_eq!(run.shown_step(), Some(6));
    insta::assert_snapshot!("replay_in_a_long_session", stage.frame());
    // New events do not move a viewer that is elsewhere.
    let mut longer = SessionFixture::new(601);
    longer.event(7, "turn_start", json!({"turn": 601}));
    stage.view(with(longer.view(64, 16, "recording")));
    assert_eq!(stage.model.run.as_ref().unwrap().cursor, wanted);
    assert_eq!(
        stage.model.run.as_ref().unwrap().replay.conversation(),
        Some(&session.before(position + 1))
    );
    stage.press("G");
    assert_eq!(stage.model.run.as_ref().unwrap().cursor, None);
}

#[test]
fn playback_goes_through_events_and_ends_live() {
    let session = SessionFixture::new(1);
    let total = session.events.len() as u64;
    let mut stage = stage((120, 40), with(session.view(256, 64, "complete")));
    stage.press("} } } space");
    stage.serve_all(&session, 256);
    let mut seen = Vec::new();
    let mut now = stage.model.now;
    while stage.model.playback.playing {
        seen.push(stage.model.run.as_ref().unwrap().cursor.unwrap());
        now += 250;
        stage.send(Message::Tick(now));
    }
    assert_eq!(seen, (0..total).collect::<Vec<_>>());
    assert_eq!(stage.model.run.as_ref().unwrap().cursor, None);
}

#[test]
fn a_large_beginning_of_the_conversation_is_fetched_and_verified() {
    let session = writing();
    let mut view = session.view(3, 64, "recording");
    let sha256 = "ef".repeat(32);
    view.replay_checkpoint.as_mut().unwrap().state = json!({"$artifact": {"path": format!("artifacts/sha256/{sha256}.json"),
        "mediaType": "application/json", "bytes": 30_000, "sha256": sha256}});
    let mut stage = stage((120, 40), with(view));
    assert!(
        matches!(stage.effects.last(), Some(Effect::FetchContent { reference, .. }) if reference.sha256 == sha256),
        "{:?}",
        stage.effects.last()
    );
    let start = session.events.len() as u64 - 3;
    stage.send(Message::Content {
        sha256,
        result: Ok(Content::Json(Arc::new(json!(session.before(start))))),
    });
    let run = stage.model.run.as_ref().unwrap();
    assert_eq!(run.replay.conversation(), Some(&session.before(start + 3)));
}
