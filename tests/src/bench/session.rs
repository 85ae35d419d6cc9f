//! A recorded session of a million events: what a batch costs at its begin and at its end, and what a page anywhere in it costs,
//! through the socket of a real server.

use std::time::{Duration, Instant};

use piw_protocol::client::{Client, ClientOptions, UnixConnector};
use piw_protocol::ops::PageRequest;
use piw_protocol::session::{RECORD_ITEMS, RecordedEvent, SessionEvent, SessionRecord};
use piw_protocol::view::PageKind;
use serde_json::json;

use super::table::{Bar, Row};
use super::workloads;
use crate::home::Home;

/// Longest time for a page that the design allows.
const PAGE_MS: f64 = 20.0;
/// Pages that are timed.
const PAGES: u64 = 50;

/// Records `events` events and reads pages of them.
///
/// # Errors
/// When the server refuses something.
pub fn rows(events: u64) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let home = Home::new();
    home.workflow("one-node", workloads::ONE_NODE);
    let run = home
        .piw(&["run", "one-node", "--session", "bench", "--json"])
        .exits(0)
        .json();
    let run = run["runId"].as_str().ok_or("a run id")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = home.state().join("server/server.sock");
        let client = Client::connect(UnixConnector::new(socket), ClientOptions::default()).await?;
        let batches = record(&client, run, events).await?;
        let tenth = (batches.len() / 10).max(1);
        let view = client.run_view(run).await?;
        let mut pages = Vec::new();
        for number in 0..PAGES {
            let request = PageRequest {
                kind: PageKind::SessionEvents,
                // All over the session, just before a checkpoint more often than not: the longest replay.
                cursor: json!(events * number / PAGES / 512 * 512 + 511),
                limit: None,
            };
            let asked = Instant::now();
            let page = client.page(run, view.revision, &request).await?;
            pages.push(asked.elapsed());
            if page.replay_checkpoint.is_none() {
                return Err(format!("a page of {events} events has no checkpoint").into());
            }
        }
        Ok(vec![
            Row::millis(
                format!("a batch of {RECORD_ITEMS} recorded events, first tenth of {events}"),
                Bar::Info,
                &batches[..tenth],
            ),
            Row::millis("the same, last tenth", Bar::Info, &batches[batches.len() - tenth..]),
            Row::millis(
                format!("a page anywhere in {events} recorded events"),
                Bar::AtMost(PAGE_MS),
                &pages,
            ),
        ])
    })
}

/// How long each batch took to be answered.
async fn record(client: &Client, run: &str, events: u64) -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let mut times = Vec::new();
    let mut sequence = 0;
    while sequence < events {
        let end = (sequence + RECORD_ITEMS as u64).min(events);
        let record = SessionRecord {
            session_id: "bench".to_owned(),
            segment_id: "bench".to_owned(),
            run_id: run.to_owned(),
            sequence,
            events: (sequence..end).map(event).collect(),
            entries: Vec::new(),
            end: None,
        };
        let asked = Instant::now();
        client.session_record(&record).await?;
        times.push(asked.elapsed());
        sequence = end;
    }
    Ok(times)
}

/// Messages of 49 parts of text each.
fn event(number: u64) -> RecordedEvent {
    let what = match number % 50 {
        0 => SessionEvent::MessageStart {
            role: "assistant".to_owned(),
        },
        _ => SessionEvent::Text {
            delta: format!("some words of the part {number} of what a model says "),
        },
    };
    RecordedEvent {
        at: "2026-01-01T00:00:00.000Z".to_owned(),
        what,
    }
}
