//! The common list against servers that hold whole lists.

use std::collections::VecDeque;

use piw_protocol::client::Retry;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::viewer::fixtures;

const HEIGHT: u64 = 30;

/// Servers: of each host the start times of its runs, newest first.
struct World {
    hosts: Hosts,
    runs: Vec<Vec<i64>>,
    browser: Browser,
    queue: VecDeque<Effect>,
    asked: usize,
}

impl World {
    fn new(mut runs: Vec<Vec<i64>>) -> Self {
        for times in &mut runs {
            times.sort_unstable_by(|one, other| other.cmp(one));
        }
        let names: Vec<String> = (0..runs.len()).map(|at| format!("host{at}")).collect();
        let hosts = Hosts::new(&names);
        let mut browser = Browser::new(runs.len(), HEIGHT);
        let queue = browser.watch(&hosts, fixtures::START).into();
        let mut world = Self {
            hosts,
            runs,
            browser,
            queue,
            asked: 0,
        };
        world.settle();
        world
    }

    fn page(&self, host: HostId, start: u64, limit: u64) -> RunListPage {
        let runs = &self.runs[host.0];
        let from = usize::try_from(start).unwrap().min(runs.len());
        let end = runs.len().min(from + usize::try_from(limit).unwrap());
        let items: Vec<_> = runs[from..end]
            .iter()
            .enumerate()
            .map(|(at, time)| item(&format!("{}-{}", host.0, from + at), *time))
            .collect();
        let page = json!({
            "schema": "pi-workflows.run-list-page.v1", "revision": "r", "start": start, "total": runs.len(), "items": items,
        });
        serde_json::from_value(page).unwrap()
    }

    /// Answers every request, and the ones that follow.
    fn settle(&mut self) {
        while let Some(effect) = self.queue.pop_front() {
            let Effect::WatchRuns {
                host,
                generation,
                start,
                limit,
                ..
            } = effect
            else {
                panic!("the browser asks for runs only")
            };
            self.asked += 1;
            assert!(self.asked < 5_000, "the browser asks without end");
            let page = Arc::new(self.page(host, start, limit));
            self.browser.take(host, generation, Some(page), Freshness::Live, HEIGHT);
            let more = self.browser.follow_window(HEIGHT);
            self.queue.extend(more);
        }
    }

    fn select(&mut self, index: u64) {
        self.browser.select(index, HEIGHT);
        let more = self.browser.follow_window(HEIGHT);
        self.queue.extend(more);
        self.settle();
    }

    /// Ids of all runs, newest first.
    fn truth(&self) -> Vec<String> {
        let mut all: Vec<(i64, usize, usize)> = Vec::new();
        for (host, times) in self.runs.iter().enumerate() {
            all.extend(times.iter().enumerate().map(|(at, time)| (-time, host, at)));
        }
        all.sort_unstable();
        all.into_iter().map(|(_, host, at)| format!("{host}-{at}")).collect()
    }

    fn check(&self) {
        let truth = self.truth();
        assert_eq!(self.browser.total(), truth.len() as u64);
        for index in self.browser.top..(self.browser.top + HEIGHT).min(truth.len() as u64) {
            let (_, shown) = self
                .browser
                .item(index)
                .unwrap_or_else(|| panic!("run {index} is not there"));
            assert_eq!(shown.run_id, truth[usize::try_from(index).unwrap()], "at {index}");
        }
    }
}

fn item(id: &str, seconds: i64) -> serde_json::Value {
    let created = jiff::Timestamp::from_millisecond(fixtures::START + seconds * 1000).unwrap();
    json!({
        "runId": id, "workflowName": "w", "originSessionId": null, "createdAt": format!("{created:.3}"),
        "updatedAt": fixtures::at(0),
        "display": {"status": "completed", "activity": null, "controls": [], "reason": null},
        "manifest": {
            "schema": "pi-workflows.run-manifest.v1", "runId": id, "workflowName": "w",
            "workflowSource": {"kind": "builtin", "id": "x", "revision": "y"}, "startedAt": fixtures::at(0),
            "finishedAt": fixtures::at(1), "status": "completed", "traceSchema": "pi-workflows.trace-event.v1", "paths": {},
        },
        "live": false, "possiblyInterrupted": false,
    })
}

#[test]
fn far_places_of_long_lists_are_reached_with_few_requests() {
    let dense: Vec<i64> = (0..6_000).collect();
    let sparse: Vec<i64> = (0..400).map(|at| at * 15).collect();
    let mut world = World::new(vec![dense, sparse, vec![5, 5_900]]);
    world.check();
    world.asked = 0;
    world.select(u64::MAX);
    world.check();
    assert!(world.asked < 12, "the end took {} requests", world.asked);
    world.select(0);
    world.check();
    assert!(world.asked < 24, "the way back took {} requests", world.asked);
    for page in 1..30 {
        world.select(page * HEIGHT);
        world.check();
    }
    for page in (10..30).rev() {
        world.select(page * HEIGHT);
        world.check();
    }
}

#[test]
fn the_window_moves_before_its_end_is_on_screen() {
    let mut world = World::new(vec![(0..10_000).collect()]);
    let first = |world: &World| world.browser.lists[0].wanted;
    assert_eq!((first(&world), world.browser.lists[0].limit), (0, 3 * HEIGHT));
    world.asked = 0;
    let mut place = 0;
    while first(&world) == 0 {
        place += 1;
        world.browser.select(place, HEIGHT);
        let all = (world.browser.top..world.browser.top + HEIGHT).all(|index| world.browser.item(index).is_some());
        assert!(all, "a row is missing while {place} is selected");
        let more = world.browser.follow_window(HEIGHT);
        assert!(more.len() <= 1 && (more.is_empty() || world.queue.is_empty()));
        world.queue.extend(more);
    }
    assert!(place < 3 * HEIGHT, "it moved when {place} was selected");
    // Until the next window is there, the one that is held goes on being shown, and nothing more is asked for.
    world.browser.select(place + 1, HEIGHT);
    assert_eq!(world.browser.follow_window(HEIGHT), []);
    world.settle();
    world.check();
    assert_eq!(world.asked, 1);
}

#[test]
fn a_terminal_that_grows_gets_a_larger_window_and_a_huge_one_the_largest() {
    let mut world = World::new(vec![(0..10_000).collect()]);
    for (height, limit) in [(80, 240), (250, 256), (400, 256)] {
        let more = world.browser.follow_window(height);
        world.queue.extend(more);
        world.settle();
        let list = &world.browser.lists[0];
        assert_eq!((list.wanted, list.limit), (0, limit), "at {height}");
        assert_eq!(world.browser.follow_window(height), [], "at {height}");
    }
}

#[test]
fn the_selected_run_stays_selected_when_others_arrive() {
    let mut world = World::new(vec![vec![10, 20, 30], vec![15, 25]]);
    assert_eq!(
        world.browser.selected_id.as_ref().map(|run| run.id.as_str()),
        Some("0-0")
    );
    world.select(2);
    let chosen = world.browser.selected_id.clone();
    world.runs[1].insert(0, 40);
    let generation = world.browser.lists[1].generation;
    // The ids here are places, so the new run takes over a name; another host's selection is not touched by that.
    let page = Arc::new(world.page(HostId(1), 0, 256));
    world
        .browser
        .take(HostId(1), generation, Some(page), Freshness::Live, HEIGHT);
    assert_eq!((world.browser.selected_id.clone(), world.browser.selected), (chosen, 3));
}

#[test]
fn the_newest_of_all_hosts_is_selected_until_somebody_chooses() {
    let names = ["slow".to_owned(), "fast".to_owned()];
    let hosts = Hosts::new(&names);
    let mut world = World::new(vec![(0..200).map(|at| 1_000 + at).collect(), vec![5]]);
    world.browser = Browser::new(2, HEIGHT);
    let effects = world.browser.watch(&hosts, fixtures::START);
    world.queue = effects.into_iter().rev().collect();
    world.settle();
    assert_eq!((world.browser.selected, world.browser.top), (0, 0));
    assert_eq!(world.browser.selected_id.as_ref().map(|run| run.host), Some(HostId(0)));
}

#[test]
fn a_lost_host_keeps_its_window_and_holds_nobody_up() {
    let mut world = World::new(vec![(0..1_000).collect(), (0..1_000).collect()]);
    let retry = Retry {
        attempt: 1,
        delay: std::time::Duration::from_secs(1),
        reason: "gone".into(),
    };
    let generation = world.browser.lists[1].generation;
    world
        .browser
        .take(HostId(1), generation, None, Freshness::Stale(retry), HEIGHT);
    assert_eq!(world.browser.total(), 1_256, "what can be scrolled to");
    assert!((0..HEIGHT).any(|index| world.browser.item(index).is_some_and(|(host, _)| host == HostId(1))));
    for index in (0..1_256).step_by(20) {
        world.select(index);
        assert!(world.browser.item(world.browser.selected).is_some(), "{index}");
    }
    world.select(u64::MAX);
    assert!(world.browser.item(1_255).is_some());
}

#[test]
fn a_filter_names_hosts() {
    let mut world = World::new(vec![vec![1, 2], vec![3, 4, 5]]);
    let hosts = world.hosts.clone();
    let text = "host:host1 status:failed".to_owned();
    let effects = world.browser.filter(text, &hosts, fixtures::START);
    let [Effect::WatchRuns { host, filter, .. }] = &effects[..] else {
        panic!("one host is asked, not {effects:?}")
    };
    assert_eq!(*host, HostId(1));
    let filter = filter.as_ref().unwrap();
    assert!(filter.status.is_some() && filter.text.is_none());
    assert_eq!(world.browser.total(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_visible_row_is_the_right_one(
        runs in prop::collection::vec(prop::collection::vec(0i64..5_000, 0..700), 1..4),
        places in prop::collection::vec((0u64..2_100, prop::bool::ANY), 1..8),
    ) {
        let mut world = World::new(runs);
        world.check();
        for (place, by_pages) in places {
            let last = world.browser.total().saturating_sub(1);
            let target = place.min(last);
            if by_pages {
                // As a held-down key goes there.
                while world.browser.selected.abs_diff(target) > HEIGHT {
                    let here = world.browser.selected;
                    let next = if target > here { here + HEIGHT } else { here - HEIGHT };
                    world.select(next);
                    world.check();
                }
            }
            world.select(target);
            world.check();
        }
    }
}
