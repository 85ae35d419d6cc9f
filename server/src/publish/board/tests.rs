//! The board's decisions, with time and reads played by the test.

use piw_protocol::envelope::EventKind;
use tokio::sync::oneshot;

use super::*;
use crate::projection::ListFilter;
use crate::publish::sink::ConnectionSink;

struct Play {
    board: Board,
    now: Instant,
}

fn view(revision: u64) -> EncodedView {
    EncodedView {
        event: EventKind::RunSnapshot,
        run_id: Some("r".into()),
        revision: Some(revision),
        payload: format!("{{\"revision\":{revision}}}").into_bytes().into(),
    }
}

fn built(revision: u64) -> Result<RunBuild, ViewError> {
    Ok(RunBuild::Built {
        view: view(revision),
        valid_until: None,
    })
}

impl Play {
    fn new() -> Self {
        Self {
            board: Board::default(),
            now: Instant::now(),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// The run reads that are due now, by their known revision.
    fn due(&mut self) -> Vec<Option<u64>> {
        self.board
            .due(self.now)
            .into_iter()
            .map(|job| match job {
                Job::Run(job) => job.known,
                Job::List(_) => panic!("no list is watched"),
                Job::Session(_) => panic!("no session is watched"),
            })
            .collect()
    }

    fn done(&mut self, result: Result<RunBuild, ViewError>) {
        self.board.run_done(&"r".into(), result, self.now);
    }

    /// A run watched through `sink`, its first view delivered.
    fn watch(&mut self, sink: &ConnectionSink, subscription: &str) {
        let (join, mut joined) = oneshot::channel();
        self.board.join_run(&"r".into(), join, self.now);
        if joined.try_recv().is_err() {
            assert_eq!(self.due().len(), 1);
            self.done(built(1));
        }
        self.board.watch_run(&"r".into(), sink.open(subscription).unwrap());
        if self.due().len() == 1 {
            self.done(built(1));
        }
    }

    fn touch(&mut self) {
        self.board.touch(&"r".into(), false);
    }
}

fn revision(sink: &ConnectionSink) -> Option<u64> {
    let text = String::from_utf8(sink.try_next()?.to_vec()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["revision"].as_u64()
}

#[test]
fn the_first_change_goes_out_at_once_and_then_one_per_interval() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    play.watch(&sink, "s");
    assert_eq!(revision(&sink), Some(1));
    play.pass(1_000);
    play.touch();
    assert_eq!(play.due(), [Some(1)]);
    play.touch();
    assert_eq!(play.due(), [], "one read at a time");
    play.done(built(2));
    assert_eq!(revision(&sink), Some(2));
    assert_eq!(play.due(), [], "the interval has not passed");
    assert_eq!(play.board.next_due(play.now), Some(play.now + INTERVAL));
    play.pass(15);
    assert_eq!(play.due(), []);
    play.pass(1);
    assert_eq!(play.due(), [Some(2)]);
    play.done(built(3));
    assert_eq!(revision(&sink), Some(3));
    play.pass(1_000);
    assert_eq!(
        (play.due(), play.board.next_due(play.now)),
        (vec![], None),
        "nothing changed, nothing is read"
    );
}

#[test]
fn an_unchanged_run_is_not_sent_again() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    play.watch(&sink, "s");
    assert_eq!(revision(&sink), Some(1));
    play.pass(100);
    play.touch();
    play.due();
    play.done(Ok(RunBuild::Unchanged));
    assert_eq!(revision(&sink), None);
    play.touch();
    assert_eq!(play.due(), [Some(1)], "a change that was no change delays nothing");
}

#[test]
fn a_second_watcher_shares_the_view_and_a_slow_one_gets_the_newest() {
    let (mut play, fast, slow) = (Play::new(), ConnectionSink::new(), ConnectionSink::new());
    play.watch(&fast, "s");
    play.watch(&slow, "other");
    for next in 2..10 {
        play.pass(20);
        play.touch();
        assert_eq!(play.due().len(), 1);
        play.done(built(next));
        assert_eq!(revision(&fast), Some(next));
    }
    assert_eq!((revision(&slow), revision(&slow)), (Some(9), None));
}

#[test]
fn a_missing_run_installs_nothing() {
    let mut play = Play::new();
    let (join, mut joined) = oneshot::channel();
    play.board.join_run(&"r".into(), join, play.now);
    assert_eq!(play.due().len(), 1);
    play.done(Err(ViewError::RunNotFound { run_id: "r".into() }));
    assert!(matches!(joined.try_recv(), Ok(Err(ViewError::RunNotFound { .. }))));
    assert_eq!(play.board.topics(), (0, 0));
}

#[test]
fn a_failed_view_ends_its_subscriptions_and_a_new_one_can_be_made() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    play.watch(&sink, "s");
    revision(&sink);
    play.pass(100);
    play.touch();
    play.due();
    play.done(Err(ViewError::TooLarge {
        bytes: 2_000_000,
        limit: 1_048_576,
    }));
    let text = String::from_utf8(sink.try_next().unwrap().to_vec()).unwrap();
    assert!(
        text.contains("\"unavailable\"") && text.contains("projection_failed"),
        "{text}"
    );
    assert_eq!((sink.subscriptions(), play.board.topics()), (0, (0, 0)));
    play.watch(&sink, "s");
    assert_eq!(revision(&sink), Some(1));
}

#[test]
fn an_event_above_a_frame_ends_only_its_own_subscription() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    play.watch(&sink, "s");
    let long = "x".repeat(200);
    play.watch(&sink, &long);
    while sink.try_next().is_some() {}
    play.pass(100);
    play.touch();
    play.due();
    // Fits with the short subscription id and not with the long one.
    let payload = format!("\"{}\"", "y".repeat(1_048_576 - 200));
    let large = EncodedView {
        payload: payload.into_bytes().into(),
        ..view(2)
    };
    play.done(Ok(RunBuild::Built {
        view: large,
        valid_until: None,
    }));
    let events: Vec<String> = std::iter::from_fn(|| sink.try_next())
        .map(|event| String::from_utf8(event.to_vec()).unwrap())
        .collect();
    assert_eq!(events.len(), 2);
    assert!(events[0].starts_with("{\"event\":\"run_snapshot\""));
    assert!(events[1].starts_with("{\"event\":\"unavailable\""));
    assert_eq!(sink.subscriptions(), 1);
}

#[test]
fn a_view_whose_time_ran_out_is_made_again() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    play.watch(&sink, "s");
    play.pass(100);
    play.touch();
    play.due();
    let until = play.now + Duration::from_secs(30);
    play.done(Ok(RunBuild::Built {
        view: view(2),
        valid_until: Some(until),
    }));
    // A check in between does not move the time.
    play.pass(100);
    play.touch();
    assert_eq!(play.due(), [Some(2)]);
    play.done(Ok(RunBuild::Unchanged));
    assert_eq!(play.board.next_due(play.now), Some(until));
    play.pass(30_000);
    assert_eq!(play.due(), [None], "made whatever the revision says");
}

#[test]
fn a_view_is_made_once_for_the_answer_and_the_watch() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    let (join, mut joined) = oneshot::channel();
    play.board.join_run(&"r".into(), join, play.now);
    play.due();
    play.done(built(1));
    assert!(matches!(joined.try_recv(), Ok(Ok(()))));
    assert_eq!(play.due(), [], "nobody watches yet");
    play.touch();
    play.pass(1_000);
    assert_eq!(play.due(), [], "nobody watches yet");
    play.board.watch_run(&"r".into(), sink.open("s").unwrap());
    assert_eq!(revision(&sink), Some(1));
    assert_eq!(play.due(), [Some(1)], "what changed meanwhile follows");
    play.done(built(2));
    assert_eq!(revision(&sink), Some(2));
}

#[test]
fn a_view_that_nobody_fetched_is_forgotten() {
    let mut play = Play::new();
    let (join, _joined) = oneshot::channel();
    play.board.join_run(&"r".into(), join, play.now);
    play.due();
    play.done(built(1));
    assert_eq!(play.board.topics(), (1, 0));
    play.pass(2_000);
    assert_eq!((play.due(), play.board.topics()), (vec![], (0, 0)));
}

#[test]
fn a_run_without_watchers_is_forgotten() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    play.watch(&sink, "s");
    sink.remove("s");
    play.pass(2_000);
    play.board.prune(play.now);
    assert_eq!(play.board.topics(), (0, 0));
    play.watch(&sink, "s");
    sink.close();
    play.pass(2_000);
    play.board.prune(play.now);
    assert_eq!(play.board.topics(), (0, 0));
}

/// Plays one job of a list that holds nothing.
fn list_done(play: &mut Play, change: ListChange) -> Option<usize> {
    let mut jobs = play.board.due(play.now);
    let Job::List(job) = jobs.pop()? else {
        panic!("no run is watched")
    };
    assert!(jobs.is_empty());
    let windows: Vec<_> = job
        .windows
        .iter()
        .filter(|(_, wanted)| *wanted || job.send_all || change == ListChange::Items)
        .map(|(window, _)| {
            (
                *window,
                EncodedView {
                    event: EventKind::Runs,
                    run_id: None,
                    revision: None,
                    ..view(1)
                },
            )
        })
        .collect();
    let made = windows.len();
    let build = ListBuild {
        feed: job.feed,
        change,
        windows: Ok(windows),
        valid_until: None,
    };
    play.board.list_done(&job.filter, build, play.now);
    Some(made)
}

#[test]
fn changes_of_times_alone_wait_a_second() {
    let (mut play, sink) = (Play::new(), ConnectionSink::new());
    let window = Window { start: 0, limit: 10 };
    let filter: Arc<str> = "{}".into();
    let now = play.now;
    let feed = || RunListFeed::new(ListFilter::default(), "test");
    let (join, mut joined) = oneshot::channel();
    play.board.list(&filter, now, feed).join(window, join);
    assert_eq!(list_done(&mut play, ListChange::Items), Some(1));
    assert!(matches!(joined.try_recv(), Ok(Ok(()))));
    play.board
        .list(&filter, now, feed)
        .watch(window, sink.open("s").unwrap());
    assert!(sink.try_next().is_some());

    play.pass(100);
    play.touch();
    assert_eq!(list_done(&mut play, ListChange::Times), Some(0));
    assert!(sink.try_next().is_none());
    play.pass(500);
    play.touch();
    assert_eq!(list_done(&mut play, ListChange::Items), Some(1), "an item changed");
    assert!(sink.try_next().is_some());
    play.touch();
    play.pass(100);
    assert_eq!(list_done(&mut play, ListChange::Times), Some(0));
    play.pass(899);
    assert_eq!(list_done(&mut play, ListChange::None), None);
    play.pass(1);
    assert_eq!(
        list_done(&mut play, ListChange::None),
        Some(1),
        "a second after the last event"
    );
    assert!(sink.try_next().is_some());
    assert_eq!(list_done(&mut play, ListChange::None), None);
    sink.close();
    play.board.prune(play.now);
    assert_eq!(play.board.topics(), (0, 1), "the order is kept for clients that page");
    play.pass(120_000);
    play.board.due(play.now);
    assert_eq!(play.board.topics(), (0, 0));
}
