//! Push on commit: who gets what, and when.

use std::time::Duration;

use piw_protocol::envelope::{EventKind, ServerMessage, parse_server_message};
use piw_protocol::ops::{Operation, RunFilter, RunList, RunsPage, RunsWatch};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{RunListPage, RunView};
use piw_server::projection::ViewError;
use piw_server::publish::ConnectionSink;
use serde_json::json;

use crate::driver::{Driver, identity, start};
use crate::fixture::{Fixture, circle};

/// Longer than anything here takes; a test that meets it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

async fn next(sink: &ConnectionSink) -> piw_protocol::envelope::Event {
    let frame = tokio::time::timeout(PATIENCE, sink.next())
        .await
        .expect("an event comes")
        .unwrap();
    let bytes = frame.to_vec();
    match parse_server_message(&bytes[..bytes.len() - 1]).unwrap() {
        ServerMessage::Event(event) => event,
        other => panic!("no event: {other:?}"),
    }
}

async fn next_view(sink: &ConnectionSink) -> RunView {
    let event = next(sink).await;
    assert_eq!(event.event, EventKind::RunSnapshot);
    let view: RunView = event.payload.decode().unwrap();
    assert_eq!(
        (event.revision, event.run_id.as_deref()),
        (Some(view.revision), Some(view.run_id.as_str()))
    );
    view
}

async fn next_list(sink: &ConnectionSink) -> RunListPage {
    let event = next(sink).await;
    assert_eq!(event.event, EventKind::Runs);
    event.payload.decode().unwrap()
}

fn runs_watch(subscription: &str) -> RunsWatch {
    RunsWatch {
        subscription_id: subscription.into(),
        filter: None,
        start: None,
        limit: None,
    }
}

/// Waits until the view shows so many steps; every view on the way is newer than the one before it.
async fn until_steps(sink: &ConnectionSink, steps: u64) -> RunView {
    let mut revision = None;
    loop {
        let view = next_view(sink).await;
        assert!(Some(view.revision) > revision, "revisions only grow");
        revision = Some(view.revision);
        if view.step_total == steps {
            return view;
        }
    }
}

#[tokio::test]
async fn watchers_see_a_run_from_its_start_to_its_end() {
    let f = Fixture::new().await;
    let run_id = start(&f.state, &circle(3)).await;
    let sinks: Vec<_> = (0..100).map(|_| ConnectionSink::new()).collect();
    for sink in &sinks {
        f.publisher.watch_run(sink, "s", &run_id).await.unwrap().start();
        assert_eq!(next_view(sink).await.display.status, DisplayStatus::Queued);
    }
    let mut driver = Driver::claim(&f.state, 3).await;
    for n in 0..50 {
        driver.step(json!({ "n": n })).await;
    }
    for sink in &sinks {
        let view = until_steps(sink, 50).await;
        assert_eq!(view.display.status, DisplayStatus::Running);
        assert_eq!(view.state.current_node.as_deref(), Some("n2"));
        assert_eq!(view.state.steps.last().unwrap().step.output, json!({"n": 49}));
    }
    driver.end().await;
    for sink in &sinks {
        let view = until_steps(sink, 51).await;
        assert_eq!(view.display.status, DisplayStatus::Failed);
        assert_eq!(view.display.reason.as_deref(), Some("node \"n2\" failed: it broke"));
        assert_eq!(view.state.current_node, None);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_one_event_and_it_is_the_newest() {
    let f = Fixture::new().await;
    let run_id = start(&f.state, &circle(3)).await;
    let (reading, idle) = (ConnectionSink::new(), ConnectionSink::new());
    for sink in [&reading, &idle] {
        f.publisher.watch_run(sink, "s", &run_id).await.unwrap().start();
    }
    let mut driver = Driver::claim(&f.state, 3).await;
    for n in 0..200 {
        driver.step(json!(n)).await;
    }
    until_steps(&reading, 200).await;
    assert_eq!(next_view(&idle).await.step_total, 200);
    assert!(idle.try_next().is_none());
}

#[tokio::test]
async fn only_what_changed_is_sent() {
    let f = Fixture::new().await;
    let quiet = start(&f.state, &circle(2)).await;
    let mut quiet_driver = Driver::claim(&f.state, 2).await;
    let busy = start(&f.state, &circle(3)).await;
    let mut busy_driver = Driver::claim(&f.state, 3).await;
    let (quiet_sink, busy_sink) = (ConnectionSink::new(), ConnectionSink::new());
    f.publisher.watch_run(&quiet_sink, "q", &quiet).await.unwrap().start();
    f.publisher.watch_run(&busy_sink, "b", &busy).await.unwrap().start();
    next_view(&quiet_sink).await;
    next_view(&busy_sink).await;
    busy_driver.step(json!(1)).await;
    until_steps(&busy_sink, 1).await;
    assert!(quiet_sink.try_next().is_none());
    quiet_driver.step(json!(1)).await;
    assert_eq!(next_view(&quiet_sink).await.step_total, 1);
    assert!(f.publisher.unwatch(&quiet_sink, "q"));
    assert!(!f.publisher.unwatch(&quiet_sink, "q"));
    quiet_driver.step(json!(2)).await;
    busy_driver.step(json!(2)).await;
    until_steps(&busy_sink, 2).await;
    assert!(quiet_sink.try_next().is_none());
}

#[tokio::test]
async fn watching_a_missing_run_installs_nothing() {
    let f = Fixture::new().await;
    let sink = ConnectionSink::new();
    let error = f.publisher.watch_run(&sink, "s", "nobody").await.unwrap_err();
    assert!(matches!(error, ViewError::RunNotFound { .. }));
    assert_eq!(sink.subscriptions(), 0);
}

#[tokio::test]
async fn a_list_shows_new_runs_and_their_statuses() {
    let f = Fixture::new().await;
    let sink = ConnectionSink::new();
    f.publisher.watch_runs(&sink, &runs_watch("l")).await.unwrap().start();
    assert_eq!(next_list(&sink).await.total, 0);
    let first = start(&f.state, &circle(2)).await;
    let page = next_list(&sink).await;
    assert_eq!((page.total, page.items[0].run_id.as_str()), (1, first.as_str()));
    assert_eq!(page.items[0].display.status, DisplayStatus::Queued);
    let mut driver = Driver::claim(&f.state, 2).await;
    while next_list(&sink).await.items[0].display.status != DisplayStatus::Running {}
    driver.end().await;
    let failed = RunsWatch {
        filter: Some(RunFilter {
            status: Some(vec![DisplayStatus::Failed]),
            ..RunFilter::default()
        }),
        ..runs_watch("failed")
    };
    while next_list(&sink).await.items[0].display.status != DisplayStatus::Failed {}
    let filtered = ConnectionSink::new();
    f.publisher.watch_runs(&filtered, &failed).await.unwrap().start();
    assert_eq!(next_list(&filtered).await.total, 1);
    // A run enters a filtered list when it matches.
    let second = start(&f.state, &circle(2)).await;
    Driver::claim(&f.state, 2).await.end().await;
    let mut page = next_list(&filtered).await;
    while page.total == 1 {
        page = next_list(&filtered).await;
    }
    assert_eq!((page.total, page.items[0].run_id.as_str()), (2, second.as_str()));
    // One that does not match is counted.
    start(&f.state, &circle(2)).await;
    while page.unfiltered != Some(3) {
        page = next_list(&filtered).await;
    }
    assert_eq!(page.total, 2);
}

#[tokio::test]
async fn paging_finishes_while_runs_are_added_and_cancelled() {
    let f = Fixture::new().await;
    let mut ids = Vec::new();
    for _ in 0..30 {
        ids.push(start(&f.state, &circle(2)).await);
    }
    ids.reverse();
    let live = RunFilter {
        status: Some(vec![DisplayStatus::Queued]),
        ..RunFilter::default()
    };
    let list = RunList {
        filter: Some(live.clone()),
        limit: Some(10),
        ..RunList::default()
    };
    let first = f.publisher.run_list(list).await.unwrap();
    let mut seen: Vec<String> = first.items.iter().map(|item| item.run_id.clone()).collect();
    for cursor in [10, 20] {
        // Between two pages a run appears at the front, and one that was not shown yet leaves the list.
        start(&f.state, &circle(2)).await;
        let leaving = ids[cursor as usize + 5].clone();
        f.state
            .cancel_run(identity(Operation::RunCancel), leaving, None)
            .await
            .unwrap();
        let request = RunsPage {
            revision: first.revision.clone(),
            cursor,
            filter: Some(live.clone()),
            limit: Some(10),
        };
        let page = f.publisher.runs_page(request).await.unwrap();
        assert_eq!((page.start, page.total, &page.revision), (cursor, 30, &first.revision));
        seen.extend(page.items.iter().map(|item| item.run_id.clone()));
    }
    assert_eq!(seen, ids, "every run of the first list once, in its order");
    let now = f.publisher.run_list(RunList::default()).await.unwrap();
    assert_eq!(now.total, 32, "what was committed is listed");
    let other_filter = RunsPage {
        revision: first.revision,
        cursor: 0,
        filter: None,
        limit: None,
    };
    assert!(matches!(
        f.publisher.runs_page(other_filter).await,
        Err(ViewError::StaleList { .. })
    ));
}
