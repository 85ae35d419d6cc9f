//! Recorded sessions: batches are stored once, in order and whole, whatever is sent again and wherever the power goes; and what
//! is read at any position is what a replay from the start gives.

mod common;

use std::ops::ControlFlow;

use common::{Flow, Place, Runner, accepted, command, run_id};
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::Operation;
use piw_protocol::session::{
    CHECKPOINT_EVERY, CaptureState, Conversation, RecordedEntry, RecordedEvent, SegmentEnd, SessionEvent, SessionRecord,
};
use piw_protocol::view::ViewValue;
use piw_state::query::session::{self as sessions, EntryRow, EventRow, Recording};
use piw_state::query::steps::Order;
use piw_state::vfs::{self, Fault, On, Survives};
use piw_state::{NewRun, RecordRefused, Recorded, RunKey, State};
use proptest::prelude::*;
use serde_json::{Value, json};

/// 2026-01-01T00:00:00Z, where the clock of the tests stands.
const BEGIN: i64 = 1_767_225_600_000;

fn flow() -> Flow {
    Flow::new("a").compute("a").compute("b").edge("a", "b").edge("b", "a")
}

/// Starts a run that is bound to a session.
async fn bound(state: &State, session: &str, key: &str) -> String {
    let new = NewRun {
        session_id: Some(session.to_owned()),
        ..flow().new_run(json!(1))
    };
    run_id(
        &state
            .start_run(command(Operation::RunStart, key), new)
            .await
            .expect("start"),
    )
}

fn at(ms: i64) -> String {
    piw_state::query::rfc3339(BEGIN + ms)
}

fn event(ms: i64, kind: &str, payload: &Value) -> RecordedEvent {
    serde_json::from_value(json!({"at": at(ms), "type": kind, "payload": payload})).expect("an event")
}

fn text(ms: i64, delta: &str) -> RecordedEvent {
    event(ms, "text", &json!({"delta": delta}))
}

fn settle(ms: i64, id: &str) -> RecordedEvent {
    event(ms, "entry", &json!({"entryId": id}))
}

fn entry(id: &str, content: Value) -> RecordedEntry {
    RecordedEntry {
        entry_id: id.to_owned(),
        at: at(0),
        kind: "message".to_owned(),
        content,
        uploaded: None,
    }
}

fn batch(run: &str, sequence: u64, events: Vec<RecordedEvent>) -> SessionRecord {
    SessionRecord {
        session_id: "s".to_owned(),
        segment_id: "g".to_owned(),
        run_id: run.to_owned(),
        sequence,
        events,
        entries: Vec::new(),
        end: None,
    }
}

fn ended(failed: bool, reason: Option<&str>) -> Option<SegmentEnd> {
    let reason = reason.map(str::to_owned);
    Some(SegmentEnd { failed, reason })
}

async fn record(state: &State, record: SessionRecord) -> Result<Recorded, RecordRefused> {
    state.record_session(record).await.expect("the database works")
}

async fn stored(state: &State, record: SessionRecord) -> Recorded {
    let recorded = state.record_session(record).await.expect("the database works");
    recorded.unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// Everything that is recorded of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    recording: Recording,
    events: Vec<EventRow>,
    entries: Vec<EntryRow>,
    revision: i64,
}

async fn seen(state: &State, run: &str) -> Seen {
    let run = run.to_owned();
    state
        .read(move |db| {
            let (key, revision): (i64, i64) = db.query_row(
                "SELECT r.id, i.view_revision FROM runs r JOIN resources i ON i.id = r.id WHERE r.run_id = ?1",
                [run],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            let (mut events, mut entries) = (Vec::new(), Vec::new());
            sessions::events(db, key, 0..u64::MAX, Order::Forward, |row| {
                events.push(row);
                Ok(ControlFlow::Continue(()))
            })?;
            sessions::entries(db, key, 0..u64::MAX, Order::Forward, |row| {
                entries.push(row);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(Seen {
                recording: sessions::recording(db, key)?,
                events,
                entries,
                revision,
            })
        })
        .await
        .expect("read")
}

async fn conversation(state: &State, run: &str, position: u64) -> Conversation {
    let run = run.to_owned();
    state
        .read(move |db| {
            let key: RunKey = db.query_row("SELECT id FROM runs WHERE run_id = ?1", [run], |row| row.get(0))?;
            Ok(sessions::conversation(db, key.0, position)?)
        })
        .await
        .expect("read")
}

async fn sound(state: &State) {
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_batch_is_stored_once_and_adopted_when_it_comes_again() {
    let mut place = Place::new();
    let state = place.serve().await;
    let run = bound(&state, "s", "k").await;
    let before = seen(&state, &run).await;
    assert_eq!(before.recording.capture.state, CaptureState::None);

    let long = "x".repeat(20_000);
    let mut first = batch(
        &run,
        0,
        vec![
            event(0, "turn_start", &json!({"turn": 0})),
            event(1, "message_start", &json!({"role": "assistant"})),
            text(2, "hello"),
            event(3, "message_end", &json!({"entryId": "e-1"})),
            settle(4, "e-1"),
            event(
                5,
                "tool_start",
                &json!({"callId": "c", "tool": "write", "args": {"content": long}}),
            ),
            event(
                6,
                "tool_start",
                &json!({"callId": "d", "tool": "read", "args": {"$artifact": 1}}),
            ),
        ],
    );
    first.entries = vec![entry("e-1", json!({"text": "hello"}))];
    let recorded = stored(&state, first.clone()).await;
    assert_eq!(
        (recorded.new, recorded.receipt.next_sequence, recorded.receipt.adopted),
        (true, 7, 0)
    );
    let now = seen(&state, &run).await;
    assert!(now.revision > before.revision, "watchers hear of it");
    assert_eq!(
        (now.recording.segments, now.recording.events, now.recording.entries),
        (1, 7, 1)
    );
    assert_eq!(now.recording.capture.state, CaptureState::Recording);
    assert_eq!(
        now.events.iter().map(|row| row.entries).collect::<Vec<_>>(),
        [0, 0, 0, 0, 1, 1, 1]
    );
    assert_eq!(
        (
            now.entries[0].entry_id.as_str(),
            now.entries[0].position,
            now.entries[0].at
        ),
        ("e-1", 4, BEGIN)
    );
    for (row, sent) in now.events.iter().zip(&first.events).take(5) {
        assert_eq!(row.event, *sent);
    }
    let args = |row: &EventRow| match &row.event.what {
        SessionEvent::ToolStart { args, .. } => ViewValue::from_wire(args),
        other => panic!("{other:?}"),
    };
    let ViewValue::Artifact(reference) = args(&now.events[5]) else {
        panic!("large arguments are content")
    };
    assert_eq!(reference.bytes, 20_014);
    assert_eq!(
        args(&now.events[6]),
        ViewValue::Inline(json!({"$artifact": 1})),
        "a lookalike is escaped"
    );

    let again = stored(&state, first.clone()).await;
    assert_eq!(
        (again.new, again.receipt.next_sequence, again.receipt.adopted),
        (false, 7, 7)
    );
    assert_eq!(seen(&state, &run).await, now, "nothing changed, the revision included");

    // The tail is known, the rest is new; an entry that is known settles again without being counted again.
    let mut more = batch(&run, 5, first.events[5..].to_vec());
    more.events.extend([settle(7, "e-1"), settle(8, "e-2")]);
    more.entries = vec![
        entry("e-1", json!({"text": "hello"})),
        entry("e-2", json!({"text": long})),
    ];
    more.end = ended(false, None);
    let recorded = stored(&state, more.clone()).await;
    assert_eq!(
        (recorded.new, recorded.receipt.next_sequence, recorded.receipt.adopted),
        (true, 9, 2)
    );
    assert!(!stored(&state, more).await.new);
    let now = seen(&state, &run).await;
    assert_eq!(now.recording.capture.state, CaptureState::Complete);
    assert_eq!(
        now.events[7..].iter().map(|row| row.entries).collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(now.entries.len(), 2);
    sound(&state).await;
}

#[tokio::test]
async fn what_contradicts_is_refused_and_changes_nothing() {
    let mut place = Place::new();
    let state = place.serve().await;
    let run = bound(&state, "s", "k").await;
    let headless = common::start(&state, &flow(), "headless").await;
    let other = bound(&state, "other", "other").await;
    let mut first = batch(&run, 0, vec![text(0, "a"), settle(1, "e-1")]);
    first.entries = vec![entry("e-1", json!("one"))];
    stored(&state, first.clone()).await;
    let before = seen(&state, &run).await;

    let change = |of: &dyn Fn(&mut SessionRecord)| {
        let mut changed = first.clone();
        of(&mut changed);
        changed
    };
    let fresh = |of: &dyn Fn(&mut SessionRecord)| {
        let mut next = batch(&run, 2, vec![text(2, "b")]);
        of(&mut next);
        next
    };
    let missing = piw_protocol::child::ContentRef {
        sha256: "0".repeat(64),
        bytes: 100_000,
        media_type: "application/json".to_owned(),
    };
    let refused = [
        ("run_not_found", change(&|b| b.run_id = "no".into())),
        ("session_not_bound", change(&|b| b.run_id = headless.clone())),
        ("session_not_bound", change(&|b| b.session_id = "other".into())),
        (
            "segment_reused",
            change(&|b| (b.run_id, b.session_id) = (other.clone(), "other".into())),
        ),
        ("sequence_gap", fresh(&|b| b.sequence = 3)),
        ("sequence_gap", fresh(&|b| b.segment_id = "new".into())),
        ("sequence_reused", change(&|b| b.events[0] = text(0, "b"))),
        ("sequence_reused", change(&|b| b.events[0] = text(1, "a"))),
        ("sequence_reused", change(&|b| b.events.swap(0, 1))),
        ("entry_reused", change(&|b| b.entries[0].content = json!("two"))),
        ("entry_reused", change(&|b| b.entries[0].kind = "custom".into())),
        ("unknown_entry", fresh(&|b| b.events.push(settle(3, "e-2")))),
        ("invalid_request", fresh(&|b| b.entries.push(entry("e-2", json!(1))))),
        (
            "invalid_request",
            fresh(&|b| b.events[0] = text(2, &"x".repeat(17_000))),
        ),
        ("invalid_request", fresh(&|b| b.events[0].at = "yesterday".into())),
        ("invalid_request", fresh(&|b| b.segment_id = "x".repeat(257))),
        (
            "invalid_request",
            fresh(&|b| b.end = ended(true, Some(&"x".repeat(1025)))),
        ),
        (
            "invalid_request",
            fresh(&|b| {
                b.events.push(settle(3, "e-2"));
                let uploaded = Some(piw_protocol::child::ContentRef {
                    bytes: 5,
                    ..missing.clone()
                });
                b.entries = vec![RecordedEntry {
                    uploaded,
                    ..entry("e-2", Value::Null)
                }];
            }),
        ),
    ];
    for (reason, bad) in refused {
        let error = record(&state, bad.clone()).await.expect_err(reason).error;
        assert_eq!(error.reason, reason, "{bad:?}: {}", error.message);
        assert_eq!(seen(&state, &run).await, before, "{reason}");
    }
    let gap = record(&state, fresh(&|b| b.sequence = 9)).await.expect_err("a gap");
    assert_eq!(gap.outcome, Outcome::Conflict);
    assert_eq!(gap.error.message, "the segment \"g\" goes on at sequence 2, not at 9");

    // Content that was never uploaded fails the transaction after its first writes: nothing of them stays.
    let mut unknown = fresh(&|b| b.events.push(settle(3, "e-2")));
    unknown.entries = vec![RecordedEntry {
        uploaded: Some(missing),
        ..entry("e-2", Value::Null)
    }];
    let error = state.record_session(unknown).await.expect_err("no content").to_string();
    assert!(error.contains("is not stored; upload it first"), "{error}");
    assert_eq!(seen(&state, &run).await, before);

    let end = fresh(&|b| b.end = ended(true, Some("no room")));
    assert!(stored(&state, end.clone()).await.new);
    assert!(!stored(&state, end).await.new, "the same end is adopted");
    for late in [fresh(&|b| b.sequence = 3), fresh(&|b| b.end = ended(false, None))] {
        let error = record(&state, late).await.expect_err("it ended").error;
        assert_eq!(error.message, "the segment \"g\" was cut off: no room");
    }
    sound(&state).await;
}

#[tokio::test]
async fn a_new_recorder_cuts_the_old_one_off_and_positions_go_on() {
    let mut place = Place::new();
    let state = place.serve().await;
    let run = bound(&state, "s", "k").await;
    stored(&state, batch(&run, 0, vec![text(0, "a"), text(1, "b")])).await;
    let mut second = batch(&run, 0, vec![text(2, "c")]);
    second.segment_id = "h".to_owned();
    stored(&state, second.clone()).await;
    let now = seen(&state, &run).await;
    assert_eq!(now.events.iter().map(|row| row.position).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(
        now.recording.cut_off,
        [(2, Some("another recorder took over".to_owned()))]
    );
    assert_eq!(now.recording.capture.state, CaptureState::Recording);
    // The old recorder, should it live, may still hear what it sent, and add nothing.
    assert!(
        !stored(&state, batch(&run, 0, vec![text(0, "a"), text(1, "b")]))
            .await
            .new
    );
    let error = record(&state, batch(&run, 2, vec![text(3, "d")]))
        .await
        .expect_err("cut off")
        .error;
    assert_eq!(error.reason, "segment_ended");
    second.sequence = 1;
    second.end = ended(false, None);
    stored(&state, second).await;
    assert_eq!(seen(&state, &run).await.recording.capture.state, CaptureState::Complete);
    sound(&state).await;
}

#[tokio::test]
async fn events_know_the_steps_that_had_finished() {
    let mut place = Place::new();
    let state = place.serve().await;
    let run = bound(&state, "s", "k").await;
    stored(&state, batch(&run, 0, vec![text(0, "before")])).await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    for (node, next, visit) in [("a", "b", 1), ("b", "a", 2), ("a", "b", 2)] {
        // Steps finish at 1, 2 and 3 seconds.
        place.clock.advance(1_000);
        accepted(&runner.step(node, json!(1), next, visit).await);
    }
    // A late batch: events are aligned by their own time, and never count fewer than the one before.
    let times = [500, 1_000, 1_500, 900, 2_500, 9_000];
    stored(&state, batch(&run, 1, times.map(|ms| text(ms, "x")).to_vec())).await;
    let steps = |seen: Seen| seen.events.iter().map(|row| row.steps).collect::<Vec<_>>();
    assert_eq!(steps(seen(&state, &run).await), [0, 0, 1, 1, 1, 2, 3]);
    place.clock.advance(10_000);
    accepted(&runner.step("b", json!(1), "a", 3).await);
    let cancel = command(Operation::RunCancel, "cancel");
    state.cancel_run(cancel, run.clone(), None).await.expect("cancel");
    // The turn's end comes after the end of the run.
    let mut last = batch(
        &run,
        7,
        vec![text(9_500, "y"), event(20_000, "turn_end", &json!({"turn": 0}))],
    );
    last.end = ended(false, None);
    stored(&state, last).await;
    assert_eq!(steps(seen(&state, &run).await)[7..], [3, 4]);
    sound(&state).await;
}

#[tokio::test]
async fn the_conversation_before_any_event_is_that_of_a_replay() {
    let mut place = Place::new();
    let state = place.serve().await;
    let run = bound(&state, "s", "k").await;
    let mut sent = Vec::new();
    for number in 0..1_700_i64 {
        sent.push(match number % 11 {
            0 if number % 44 == 0 => event(number, "turn_start", &json!({"turn": number})),
            1 => event(number, "message_start", &json!({"role": "assistant"})),
            2 => event(
                number,
                "tool_start",
                &json!({"callId": format!("c-{}", number % 30), "tool": "t",
                "args": "y".repeat(usize::try_from(number).expect("small") * 12)}),
            ),
            3 => event(number, "tool_end", &json!({"callId": format!("c-{}", number % 7)})),
            // Long text: the checkpoints are content, too.
            4 => event(number, "thinking", &json!({"delta": "z".repeat(3_000)})),
            _ => text(number, &format!("part {number} ")),
        });
    }
    let mut sequence = 0;
    for size in [1, 400, 512, 111, 512, 164] {
        let events = sent[sequence..sequence + size].to_vec();
        stored(&state, batch(&run, sequence as u64, events)).await;
        sequence += size;
    }
    let now = seen(&state, &run).await;
    assert_eq!(now.events.len(), 1_700);
    let mut replayed = Conversation::default();
    let mut content = 0;
    for row in &now.events {
        content += usize::from(row.content.is_some());
        let near = row.position % CHECKPOINT_EVERY;
        if near <= 1 || near == CHECKPOINT_EVERY - 1 || row.position % 97 == 0 {
            assert_eq!(
                conversation(&state, &run, row.position).await,
                replayed,
                "before {}",
                row.position
            );
        }
        replayed.apply(&row.event);
    }
    assert!(content > 10, "{content} events have large arguments");
    assert_eq!(conversation(&state, &run, 1_700).await, replayed);
    sound(&state).await;
    state.close();

    // Damage is found: by its own rule, and by name of the run.
    for (rule, damage) in [
        (
            "replay checkpoints are what the events before them give",
            "UPDATE viewer_session_checkpoints SET state_json = '{}', state_blob = NULL WHERE position = 1024",
        ),
        (
            "recorded events count steps and entries upwards",
            "UPDATE session_events SET steps = 9 WHERE position = 3",
        ),
        (
            "an event settles an entry that is recorded",
            "UPDATE session_events SET kind = 'entry', payload_json = '{\"entryId\":\"none\"}' WHERE position = 3",
        ),
        (
            "a recorded entry was settled by its event",
            "INSERT INTO session_entries (run, entry_index, pi_entry_id, position, kind, content_json, at)
               SELECT id, 0, 'e', 3, 'message', '1', 1 FROM runs",
        ),
        (
            "every 512th recorded event has its checkpoint",
            "DELETE FROM viewer_session_checkpoints WHERE position = 512",
        ),
        (
            "recorded events are numbered without gaps",
            "DELETE FROM session_events WHERE position = 700",
        ),
        (
            "recorded segments follow each other and belong to the run's session",
            "UPDATE session_segments SET first_position = 1",
        ),
        (
            "only the newest segment of a run records",
            "INSERT INTO session_segments (segment_id, run, session_id, status, first_position, started_at, ended_at)
               SELECT 'later', id, 's', 'complete', 1701, 1, 1 FROM runs",
        ),
    ] {
        let db = rusqlite::Connection::open(place.dir.path().join("state.sqlite")).expect("closed otherwise");
        // The log stays in its place when this connection closes.
        let keep_log = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        db.set_db_config(keep_log, true).expect("set");
        db.execute_batch(damage).expect(damage);
        drop(db);
        let state = place.serve().await;
        let found = state.verify().await.expect("verify");
        let is = |found: &piw_state::Violation| found.invariant == rule && found.run_id.as_deref() == Some(&run);
        assert!(found.iter().any(is), "{rule}: {found:?}");
        state.close();
    }
}

/// What may be sent.
#[derive(Debug, Clone)]
enum Op {
    /// The next events, so many, with an entry when it settles one.
    Next(usize, bool),
    /// Some of the last ones again, and so many new ones.
    Again(usize, usize),
    /// A new recorder.
    NewSegment,
    End(bool),
    RestartServer,
    /// The power goes at so many operations from now, while this many events are recorded.
    LosePowerAt(On, u64, usize, Survives),
}

fn op() -> impl Strategy<Value = Op> {
    let survives = prop_oneof![Just(Survives::Nothing), any::<u64>().prop_map(Survives::Some)];
    prop_oneof![
        8 => (0..200usize, any::<bool>()).prop_map(|(count, settles)| Op::Next(count, settles)),
        3 => (1..60usize, 0..100usize).prop_map(|(back, more)| Op::Again(back, more)),
        1 => Just(Op::NewSegment),
        1 => any::<bool>().prop_map(Op::End),
        1 => Just(Op::RestartServer),
        6 => (prop_oneof![Just(On::Write), Just(On::Sync)], 1..30u64, 1..200usize, survives)
            .prop_map(|(on, at, count, survives)| Op::LosePowerAt(on, at, count, survives)),
    ]
}

/// What the recorder has made, and how much of it was answered.
struct Recorder {
    run: String,
    segment: u32,
    /// Events of the segment, all that were ever made.
    made: Vec<RecordedEvent>,
    /// Events of earlier segments.
    earlier: Vec<RecordedEvent>,
    entries: usize,
    open: bool,
}

impl Recorder {
    fn more(&mut self, count: usize, settles: bool) -> Vec<RecordedEntry> {
        let from = (self.earlier.len() + self.made.len()) as i64;
        self.made
            .extend((from..).take(count).map(|number| text(number, &format!("{number} "))));
        if !settles {
            return Vec::new();
        }
        let id = format!("e-{}", self.entries);
        self.entries += 1;
        self.made.push(settle(from, &id));
        vec![entry(&id, json!("y".repeat(self.entries * 3_000)))]
    }

    fn batch(&self, from: usize) -> SessionRecord {
        SessionRecord {
            segment_id: format!("g-{}", self.segment),
            ..batch(&self.run, from as u64, self.made[from..].to_vec())
        }
    }

    /// Everything of the recording is there, once and in order.
    async fn check(&self, state: &State) {
        let now = seen(state, &self.run).await;
        let events: Vec<_> = now.events.into_iter().map(|row| row.event).collect();
        let made: Vec<_> = self.earlier.iter().chain(&self.made).cloned().collect();
        assert_eq!(events.len(), made.len());
        assert!(events == made, "other events than were made");
        assert_eq!(now.entries.len(), self.entries);
        let ids = |row: &EntryRow| row.entry_id.clone();
        let expected: Vec<_> = (0..self.entries).map(|number| format!("e-{number}")).collect();
        assert_eq!(now.entries.iter().map(ids).collect::<Vec<_>>(), expected);
    }
}

async fn model(ops: Vec<Op>) {
    let mut place = Place::new();
    let disk = vfs::lay_under(place.dir.path());
    disk.set_volatile(true);
    disk.checkpoint_after(60);
    let mut state = place.serve().await;
    let mut recorder = Recorder {
        run: bound(&state, "s", "k").await,
        segment: 0,
        made: Vec::new(),
        earlier: Vec::new(),
        entries: 0,
        open: false,
    };
    for op in ops {
        if !recorder.open {
            recorder.segment += 1;
            recorder.earlier.append(&mut recorder.made);
            recorder.open = true;
        }
        match op {
            Op::Next(count, settles) => {
                let from = recorder.made.len();
                let entries = recorder.more(count, settles);
                let recorded = stored(
                    &state,
                    SessionRecord {
                        entries,
                        ..recorder.batch(from)
                    },
                )
                .await;
                assert_eq!(recorded.receipt.next_sequence, recorder.made.len() as u64);
            }
            Op::Again(back, more) => {
                let known = recorder.made.len();
                let from = known.saturating_sub(back);
                recorder.more(more, false);
                let recorded = stored(&state, recorder.batch(from)).await;
                assert_eq!(recorded.receipt.adopted, (known - from) as u64);
            }
            Op::NewSegment => recorder.open = false,
            Op::End(failed) => {
                let end = ended(failed, failed.then_some("the disk is full"));
                stored(
                    &state,
                    SessionRecord {
                        end,
                        ..recorder.batch(recorder.made.len())
                    },
                )
                .await;
                recorder.open = false;
            }
            Op::RestartServer => {
                state.close();
                state = place.serve().await;
            }
            Op::LosePowerAt(on, at, count, survives) => {
                let from = recorder.made.len();
                let entries = recorder.more(count, count % 2 == 0);
                let batch = SessionRecord {
                    entries,
                    ..recorder.batch(from)
                };
                disk.inject(Fault::power_loss(on).at(at).survives(survives));
                let before = disk.counts().faults;
                let answered = state.record_session(batch.clone()).await.is_ok();
                if disk.counts().faults == before {
                    disk.lose_power(survives);
                }
                disk.heal();
                state.close();
                place.clock.reboot();
                state = place.serve().await;
                sound(&state).await;
                // What was answered is there; the rest is there as a whole or not at all, and is sent again.
                let again = stored(&state, batch).await;
                let adopted = usize::try_from(again.receipt.adopted).expect("small");
                let all = recorder.made.len() - from;
                assert!(
                    adopted == all || (adopted == 0 && !answered),
                    "{adopted} of {all}, answered: {answered}"
                );
            }
        }
    }
    recorder.check(&state).await;
    sound(&state).await;
    state.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn recordings_survive_repeats_restarts_and_losses_of_power(ops in proptest::collection::vec(op(), 1..30)) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(model(ops));
    }
}
