use proptest::prelude::*;

use super::*;

fn data(completed: f64, total: f64) -> ProgressData {
    ProgressData {
        status: ProgressStatus::Running,
        label: None,
        phase: None,
        completed: Some(completed),
        total: Some(total),
        unit: None,
        source_updated_at: None,
        source_estimated_finish_at: None,
    }
}

/// Publishes `(seconds, completed)` pairs and estimates at the last one.
fn run(total: f64, points: &[(i64, f64)]) -> ProgressEstimate {
    let mut tracker = EtaTracker::default();
    for &(at, completed) in points {
        tracker.publish(&data(completed, total), at * 1000);
    }
    let &(at, completed) = points.last().unwrap();
    tracker.estimate(&data(completed, total), at * 1000, at * 1000)
}

fn reason(estimate: &ProgressEstimate) -> &str {
    match estimate {
        ProgressEstimate::Unavailable { reason } => reason,
        ProgressEstimate::Available { .. } => panic!("an estimate: {estimate:?}"),
    }
}

fn steady(count: i64) -> Vec<(i64, f64)> {
    (0..=count).map(|second| (second, second as f64)).collect()
}

#[test]
fn a_steady_rate_gives_a_sharp_estimate() {
    let ProgressEstimate::Available {
        finish_at,
        earliest_at,
        latest_at,
        source,
        confidence,
        intervals,
    } = run(100.0, &steady(20))
    else {
        panic!("no estimate");
    };
    assert_eq!(finish_at, "1970-01-01T00:01:40.000Z");
    assert_eq!(earliest_at.as_deref(), Some("1970-01-01T00:01:40.000Z"));
    assert_eq!(latest_at.as_deref(), Some("1970-01-01T00:01:40.000Z"));
    assert_eq!(
        (source, confidence, intervals),
        (EstimateSource::Measured, EstimateConfidence::High, 8)
    );
}

#[test]
fn the_rate_needs_intervals_and_running_work_but_no_total() {
    let mut tracker = EtaTracker::default();
    let mut counted = ProgressData {
        total: None,
        ..data(0.0, 0.0)
    };
    for second in 0..4 {
        counted.completed = Some(second as f64 * 2.5);
        tracker.publish(&counted, second * 1000);
        let rate = tracker.rate_per_second(&counted);
        assert_eq!(rate, (second >= 2).then_some(2.5), "after {second} s");
    }
    counted.status = ProgressStatus::Waiting;
    assert_eq!(tracker.rate_per_second(&counted), None);
}

#[test]
fn few_intervals_give_low_confidence_or_none() {
    assert_eq!(
        reason(&run(10.0, &steady(1))),
        "1 of 2 intervals are measured since the phase, unit or total changed"
    );
    let ProgressEstimate::Available {
        confidence, intervals, ..
    } = run(10.0, &steady(2))
    else {
        panic!("no estimate");
    };
    assert_eq!((confidence, intervals), (EstimateConfidence::Low, 2));
    let ProgressEstimate::Available { confidence, .. } = run(10.0, &steady(4)) else {
        panic!("no estimate")
    };
    assert_eq!(confidence, EstimateConfidence::Medium);
}

#[test]
fn the_median_ignores_one_stall_and_the_quartiles_show_it() {
    let points = [(0, 0.0), (1, 10.0), (2, 20.0), (3, 30.0), (63, 40.0), (64, 50.0)];
    let ProgressEstimate::Available {
        finish_at, latest_at, ..
    } = run(100.0, &points)
    else {
        panic!("no estimate")
    };
    assert_eq!(finish_at, "1970-01-01T00:01:09.000Z");
    assert!(latest_at.unwrap() >= finish_at);
}

#[test]
fn a_new_epoch_starts_over() {
    let mut tracker = EtaTracker::default();
    for second in 0..5 {
        tracker.publish(&data(second as f64, 10.0), second * 1000);
    }
    let mut changed = data(5.0, 20.0);
    tracker.publish(&changed, 5000);
    assert!(
        reason(&tracker.estimate(&changed, 5000, 5000)).starts_with("0 of 2"),
        "another total"
    );
    tracker.publish(&data(6.0, 20.0), 6000);
    tracker.publish(&data(7.0, 20.0), 7000);
    assert!(matches!(
        tracker.estimate(&data(7.0, 20.0), 7000, 7000),
        ProgressEstimate::Available { .. }
    ));
    tracker.publish(&data(3.0, 20.0), 8000);
    assert!(
        reason(&tracker.estimate(&data(3.0, 20.0), 8000, 8000)).starts_with("0 of 2"),
        "the count fell"
    );
    changed.phase = Some("next".to_owned());
    tracker.publish(&changed, 9000);
    assert_eq!(tracker.samples.len(), 1, "another phase");
    changed.unit = Some("files".to_owned());
    tracker.publish(&changed, 10_000);
    assert_eq!(tracker.samples.len(), 1, "another unit");
}

#[test]
fn every_missing_estimate_says_why() {
    assert_eq!(
        reason(&run(10.0, &[(0, 1.0), (1, 1.0), (2, 1.0)])),
        "nothing was completed in most of the last 2 intervals"
    );
    assert_eq!(reason(&run(2.0, &steady(2))), "the reported total is reached");
    let tracker = EtaTracker::default();
    let mut bare = data(1.0, 2.0);
    bare.total = None;
    assert_eq!(reason(&tracker.estimate(&bare, 0, 0)), "no total is reported");
    bare.total = Some(2.0);
    bare.completed = None;
    assert_eq!(reason(&tracker.estimate(&bare, 0, 0)), "no completed count is reported");
    bare.status = ProgressStatus::Waiting;
    assert_eq!(reason(&tracker.estimate(&bare, 0, 0)), "the work is waiting");
}

#[test]
fn a_fresh_source_estimate_wins_and_a_stale_one_does_not() {
    let mut tracker = EtaTracker::default();
    let mut reporting = data(1.0, 10.0);
    reporting.source_estimated_finish_at = Some(600_000);
    reporting.source_updated_at = Some(0);
    tracker.publish(&reporting, 0);
    let at = |now: i64| tracker.estimate(&reporting, 0, now);
    let ProgressEstimate::Available { finish_at, source, .. } = at(300_000) else {
        panic!("no estimate")
    };
    assert_eq!(
        (finish_at.as_str(), source),
        ("1970-01-01T00:10:00.000Z", EstimateSource::Reported)
    );
    assert!(reason(&at(300_001)).starts_with("0 of 2"), "stale");
    reporting.source_estimated_finish_at = Some(1000);
    assert!(
        reason(&tracker.estimate(&reporting, 0, 1001)).starts_with("0 of 2"),
        "in the past"
    );
}

proptest! {
    /// Whatever is published: an estimate lies after the last publication, its range is ordered, and it depends on the
    /// publications alone.
    #[test]
    fn estimates_are_ordered_and_deterministic(
        points in proptest::collection::vec((0i64..100_000, 0.0f64..1e6), 1..40),
        total in 0.0f64..1e6,
    ) {
        let mut tracker = EtaTracker::default();
        let mut at = 0;
        for (step, completed) in points {
            at += step;
            let data = data(completed, total);
            tracker.publish(&data, at);
            prop_assert!(tracker.samples.len() <= INTERVALS + 1);
            let estimate = tracker.estimate(&data, at, at);
            prop_assert_eq!(&estimate, &tracker.clone().estimate(&data, at, at + 1_000_000));
            if let ProgressEstimate::Available { finish_at, earliest_at, latest_at, intervals, .. } = estimate {
                prop_assert!((2..=8).contains(&intervals));
                prop_assert!(finish_at >= timestamp(at).unwrap());
                prop_assert!(earliest_at.is_none_or(|earliest| earliest <= finish_at));
                prop_assert!(latest_at.is_none_or(|latest| latest >= finish_at));
            }
        }
    }

    /// The stored form is the whole state.
    #[test]
    fn the_tracker_survives_storage(points in proptest::collection::vec((1i64..1000, 0u32..50), 0..20)) {
        let mut tracker = EtaTracker::default();
        let mut at = 0;
        for (step, completed) in points {
            at += step;
            tracker.publish(&data(f64::from(completed), 50.0), at);
            let stored = serde_json::to_string(&tracker).unwrap();
            tracker = serde_json::from_str(&stored).unwrap();
        }
        let stored: EtaTracker = serde_json::from_str(&serde_json::to_string(&tracker).unwrap()).unwrap();
        prop_assert_eq!(stored, tracker);
    }
}
