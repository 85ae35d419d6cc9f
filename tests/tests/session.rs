//! A Pi session recorded over the real socket: what views and pages give is what was recorded, also when the server is killed
//! between batches and they are sent again.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::time::Duration;

use piw_protocol::client::{Client, ClientError, ClientOptions, UnixConnector};
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::PageRequest;
use piw_protocol::session::{
    CaptureState, Conversation, RecordedEvent, SessionEntryView, SessionEvent, SessionEventView, SessionRecord,
};
use piw_protocol::view::{PageKind, RunPage, RunView, ViewValue};
use piw_tests::home::Home;
use piw_tests::session::{self, Fixture, Target};
use piw_tests::wait;
use serde_json::{Value, json};

const SESSION: &str = "pi-session";
/// A node that runs until it is let go, and one after it.
const HELD: &str = r#"
import { defineWorkflow, idempotentEffect, shell, compute } from "piw";
export default defineWorkflow({
  name: "held",
  startAt: "hold",
  nodes: {
    hold: shell({
      effect: idempotentEffect("hold"),
      exec: () => ({ command: "sh", args: ["-c", "while [ ! -e go ]; do sleep 0.02; done"] }),
    }),
    end: compute({ run: () => "done" }),
  },
  edges: [{ from: "hold", to: "end" }],
});
"#;

fn start(home: &Home) -> String {
    home.workflow("held", HELD);
    let arguments = ["run", "held", "--session", SESSION, "--detach", "--json"];
    let started = home.piw(&arguments).exits(0).json();
    started["runId"].as_str().unwrap().to_owned()
}

fn connect(home: &Home) -> Client {
    let socket = home.state().join("server/server.sock");
    let options = ClientOptions {
        client_id: "recorder".to_owned(),
        first_delay: Duration::from_millis(10),
        longest_delay: Duration::from_millis(80),
        ..ClientOptions::default()
    };
    Client::start(UnixConnector::new(socket), options)
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

async fn page(client: &Client, view: &RunView, kind: PageKind, start: u64) -> RunPage {
    let request = PageRequest {
        kind,
        cursor: json!(start),
        limit: None,
    };
    client.page(&view.run_id, view.revision, &request).await.unwrap()
}

fn items<T: serde::de::DeserializeOwned>(page: &RunPage) -> Vec<T> {
    let read = |item: &Value| serde_json::from_value(item.clone()).unwrap();
    page.items.iter().map(read).collect()
}

/// A value of a view, fetched and verified when it is content.
async fn opened(client: &Client, run: &str, wire: &Value) -> Value {
    match ViewValue::from_wire(wire) {
        ViewValue::Inline(value) => value,
        ViewValue::Artifact(reference) => {
            let content = client.content(run, &reference, |_| {}).await.unwrap();
            content.json().unwrap().into_inner()
        }
    }
}

/// The event as it was recorded.
async fn as_recorded(client: &Client, run: &str, event: &RecordedEvent) -> RecordedEvent {
    let mut event = event.clone();
    if let SessionEvent::ToolStart { args, .. } = &mut event.what {
        *args = opened(client, run, args).await;
    }
    event
}

async fn everything_is_there(client: &Client, run: &str, fixture: &Fixture) {
    let view = client.run_view(run).await.unwrap();
    let session = view.session.clone().unwrap();
    assert_eq!(
        (session.binding.session_id.as_str(), session.binding.segments),
        (SESSION, 1)
    );
    assert_eq!(session.capture.state, CaptureState::Complete);
    assert_eq!(session.integrity, Vec::<String>::new());
    let (events, entries) = (fixture.events.len() as u64, fixture.entries.len() as u64);
    assert_eq!((session.event_page.total, session.entry_page.total), (events, entries));

    let all: Vec<SessionEventView> = items(&page(client, &view, PageKind::SessionEvents, 0).await);
    assert_eq!(all.len(), fixture.events.len());
    let mut replayed = vec![Conversation::default()];
    for (event, recorded) in all.iter().zip(&fixture.events) {
        assert_eq!(as_recorded(client, run, &event.event).await, *recorded);
        let mut next = replayed[replayed.len() - 1].clone();
        next.apply(&event.event);
        replayed.push(next);
    }
    assert!(
        all.windows(2)
            .all(|pair| pair[0].steps <= pair[1].steps && pair[0].entries <= pair[1].entries)
    );
    assert_eq!(all.last().map(|last| (last.steps, last.entries)), Some((2, entries)));
    // From wherever a page begins, a replay gives the same.
    for start in [0, 1, 17, events / 2, events - 1] {
        let page = page(client, &view, PageKind::SessionEvents, start).await;
        let checkpoint = page.replay_checkpoint.clone().unwrap();
        let mut state: Conversation = serde_json::from_value(opened(client, run, &checkpoint.state).await).unwrap();
        assert_eq!(state, replayed[usize::try_from(start).unwrap()], "before {start}");
        for event in items::<SessionEventView>(&page) {
            state.apply(&event.event);
        }
        assert_eq!(Some(&state), replayed.last());
    }
    let window = &session.event_page;
    assert_eq!(window.items[..], all[usize::try_from(window.start).unwrap()..]);
    assert_eq!(session.replay_checkpoint.unwrap().position, window.start);

    let entries: Vec<SessionEntryView> = items(&page(client, &view, PageKind::SessionEntries, 0).await);
    let mut large = 0;
    for (entry, recorded) in entries.iter().zip(&fixture.entries) {
        assert_eq!(
            (&entry.entry_id, &entry.kind, &entry.at),
            (&recorded.entry_id, &recorded.kind, &recorded.at)
        );
        assert_eq!(
            opened(client, run, &entry.content).await,
            recorded.content,
            "{}",
            entry.entry_id
        );
        large += u32::from(matches!(ViewValue::from_wire(&entry.content), ViewValue::Artifact(_)));
        let settled = &all[usize::try_from(entry.event).unwrap()];
        assert_eq!(settled.event.what.settles(), Some(entry.entry_id.as_str()));
        assert_eq!(settled.entries, entry.index + 1);
    }
    assert!(large >= 2, "{large} entries are large");
}

#[tokio::test]
async fn a_recorded_session_is_read_back_whole_although_the_server_is_killed() {
    let home = Home::new();
    let run = start(&home);
    let client = connect(&home);
    let mut watch = client.watch_run(&run);
    let fixture = Fixture::read("flaky-test", now());
    // Small batches, so that there is something in between.
    let batches: Vec<SessionRecord> = fixture.batches(&Target::new(&run, SESSION), 9);
    let half = batches.len() / 2;
    assert!(half >= 3);
    for (number, batch) in batches[..half].iter().enumerate() {
        let receipt = session::send(&client, batch.clone()).await.unwrap();
        assert_eq!((receipt.adopted, receipt.next_sequence), (0, (number as u64 + 1) * 9));
    }
    // Whoever watches is told.
    let seen = half as u64 * 9;
    while !watch.live().is_some_and(|view| {
        let session = view.session.as_ref().unwrap();
        session.event_page.total == seen && session.capture.state == CaptureState::Recording
    }) {
        watch.changed().await.unwrap();
    }

    home.kill_server();
    let _ = home.piw(&["server", "start"]).exits(0);
    // As if the last answers had been lost: what was stored is adopted, the rest is new.
    let client = connect(&home);
    for batch in &batches[half - 2..half] {
        let receipt = session::send(&client, batch.clone()).await.unwrap();
        assert_eq!(receipt.adopted, 9, "nothing that was answered is lost");
    }
    let gap = session::send(&client, batches[half + 1].clone()).await.unwrap_err();
    let ClientError::Refused { outcome, error, .. } = gap else {
        panic!("{gap}")
    };
    assert_eq!((outcome, error.reason.as_str()), (Outcome::Conflict, "sequence_gap"));

    // The conversation goes on after the run's end.
    fs::write(home.project().join("go"), "").unwrap();
    home.wait_for_end(&run);
    let ended = now();
    let mut fixture = fixture;
    for event in &mut fixture.events[usize::try_from(seen).unwrap()..] {
        event.at = piw_state::query::rfc3339(ended + 1_000);
    }
    let rest = fixture.batches(&Target::new(&run, SESSION), 9);
    for batch in &rest[half..] {
        session::send(&client, batch.clone()).await.unwrap();
        home.kill_server();
        let _ = home.piw(&["server", "start"]).exits(0);
    }
    let last = rest[rest.len() - 1].clone();
    let adopted = session::send(&client, last).await.unwrap();
    assert_eq!(adopted.next_sequence, fixture.events.len() as u64);
    everything_is_there(&client, &run, &fixture).await;
    let _ = home.piw(&["state", "verify"]).exits(0);
}

#[tokio::test]
async fn a_session_is_recorded_only_into_its_own_run() {
    let home = Home::new();
    let run = start(&home);
    let client = connect(&home);
    let fixture = Fixture::read("flaky-test", now());
    let other = fixture.batches(&Target::new(&run, "another-session"), 9).remove(0);
    let refused = client.session_record(&other).await.unwrap_err();
    let ClientError::Refused { outcome, error, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (outcome, error.reason.as_str()),
        (Outcome::Rejected, "session_not_bound")
    );
    assert!(error.message.contains("another-session"), "{}", error.message);
    let view = client.run_view(&run).await.unwrap();
    assert_eq!(view.session.unwrap().capture.state, CaptureState::None);
    fs::write(home.project().join("go"), "").unwrap();
    home.wait_for_end(&run);

    let target = Target::new(&run, SESSION);
    session::record(&client, &fixture, &target).await.unwrap();
    wait::until("the whole recording is shown", || {
        let view = home.show(&run);
        let total = view["session"]["eventPage"]["total"].as_u64()?;
        (total == fixture.events.len() as u64).then_some(())
    });
}
