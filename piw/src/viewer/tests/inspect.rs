//! The trace in its three scopes, the times beside those of earlier runs, and the rate of progress, through pages as a server gives
//! them.

use piw_protocol::ops::PageRequest;
use piw_protocol::view::{PageKind, RUN_PAGE_SCHEMA, RunPage};
use serde_json::Value;

use super::*;

const RUN: &str = "01JNE8-release-0001";
/// Events of the unfinished attempt.
const LATE: u64 = 600;

/// The running fixture with the trace that belongs to it: an event of the run, two of each step, many of what runs.
struct Served {
    view: RunView,
    trace: Vec<Value>,
    /// How many requests were answered.
    answered: usize,
}

impl Served {
    fn new() -> Self {
        let mut view = fixtures::running().view();
        let mut trace = Vec::new();
        let mut event = |kind: &str, node: Option<&str>, attempt: Option<&str>| {
            trace.push(json!({"seq": trace.len() + 1, "at": fixtures::at(trace.len() as i64 * 10), "scope": "node", "type": kind,
                "runId": RUN, "nodeId": node, "attemptId": attempt, "payload": {}}));
        };
        event("run.claimed", None, None);
        for step in &view.state.steps {
            for kind in ["node.started", "node.finished"] {
                event(kind, Some(&step.step.node_id), Some(&step.step.attempt_id));
            }
        }
        for number in 0..LATE {
            let kind = if number == 0 { "node.started" } else { "effect.applied" };
            event(kind, Some("test"), Some("attempt-now"));
        }
        for event in &mut trace {
            event.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        }
        let total = trace.len();
        view.trace_page =
            serde_json::from_value(json!({"start": total - 16, "total": total, "items": trace[total - 16..]})).unwrap();
        Self {
            view,
            trace,
            answered: 0,
        }
    }

    fn stage(&self) -> Stage {
        let mut stage = Stage::new((120, 40), Some(RUN));
        stage.view(self.view.clone());
        stage.effects.clear();
        stage
    }

    /// Answers every request that was made and returns them.
    fn answer(&mut self, stage: &mut Stage) -> Vec<PageRequest> {
        let mut requests = Vec::new();
        loop {
            let mut asked = stage.effects.iter().filter_map(|effect| match effect {
                Effect::FetchPage { request, .. } => Some(request.clone()),
                _ => None,
            });
            let Some(request) = asked.nth(self.answered) else {
                return requests;
            };
            self.answered += 1;
            assert!(self.answered < 100, "the viewer asks without end");
            let page = self.page(&request);
            requests.push(request.clone());
            stage.send(Message::Page {
                run_id: here(RUN),
                request,
                result: Ok(Arc::new(page)),
            });
        }
    }

    fn page(&self, request: &PageRequest) -> RunPage {
        let limit = request.limit.unwrap_or(256) as usize;
        let attempt_of = |event: &Value| event["attemptId"].as_str().map(str::to_owned);
        let (start, total, items) = match request.kind {
            PageKind::Trace => {
                let start = request.cursor.as_u64().unwrap() as usize;
                let end = (start + limit).min(self.trace.len());
                (start, self.trace.len(), self.trace[start..end].to_vec())
            }
            PageKind::TraceAtStep => {
                let attempt = match request.cursor["attemptId"].as_str() {
                    Some(id) => id.to_owned(),
                    None => {
                        let step = request.cursor["step"].as_u64().unwrap() as usize;
                        self.view.state.steps[step].step.attempt_id.clone()
                    }
                };
                let of = |event: &&Value| attempt_of(event).as_deref() == Some(&attempt);
                let first = self.trace.iter().position(|event| of(&event)).unwrap();
                let events = self.trace[first..].iter().take_while(of).take(limit).cloned();
                (first, self.trace.len(), events.collect())
            }
            PageKind::NodeTimes => {
                let items: Vec<Value> = self.nodes();
                let start = request.cursor.as_u64().unwrap() as usize;
                // A byte budget may cut it anywhere.
                (start, items.len(), items[start..(start + 4).min(items.len())].to_vec())
            }
            PageKind::Pauses => {
                let pauses = [
                    json!({"kind": "queued", "from": "2026-03-01T09:59:56.000Z", "to": fixtures::at(0)}),
                    json!({"kind": "paused", "from": fixtures::at(9_000), "to": fixtures::at(12_000)}),
                    json!({"kind": "waiting", "from": fixtures::at(12_000), "to": fixtures::at(13_000), "nodeId": "approve"}),
                ];
                (0, pauses.len(), pauses.to_vec())
            }
            PageKind::Steps => {
                let steps = json!(self.view.state.steps);
                (0, 7, steps.as_array().unwrap().clone())
            }
            other => panic!("{other:?}"),
        };
        let mut page = json!({"schema": RUN_PAGE_SCHEMA, "runId": RUN, "kind": request.kind, "cursor": request.cursor, "revision": 41,
            "start": start, "total": total, "items": items});
        if request.kind == PageKind::Steps {
            page["graphSteps"] = json!(self.view.graph_steps);
            page["takenTransitions"] = json!(self.view.taken_transitions);
        }
        serde_json::from_value(page).unwrap()
    }

    fn nodes(&self) -> Vec<Value> {
        let order = fixtures::release().node_order;
        let times = order.into_iter().enumerate().map(|(at, node)| match node.as_str() {
            "abandon" => json!({"nodeId": node, "runs": 0}),
            "inspect" => json!({"nodeId": node, "runs": 20, "medianMs": 100}),
            _ => json!({"nodeId": node, "runs": 20, "medianMs": 1_000 * at + 250}),
        });
        times.collect()
    }
}

fn line<'a>(frame: &'a str, words: &str) -> &'a str {
    let found = frame.lines().find(|line| line.contains(words));
    found.unwrap_or_else(|| panic!("{words} is not there: {frame}"))
}

#[test]
fn the_trace_shows_the_run_then_what_led_here_then_one_attempt() {
    let mut served = Served::new();
    let mut stage = served.stage();
    stage.press("3");
    let total = served.trace.len();
    assert_eq!(served.answer(&mut stage), [], "the newest events came with the view");
    line(&stage.frame(), &format!("events {} – {total} of {total}", total - 15));
    line(&stage.frame(), "v ● whole run    up to here    attempt");

    // Live, everything has led here.
    stage.press("v");
    assert_eq!(served.answer(&mut stage), []);
    line(&stage.frame(), "v   whole run  ● up to here    attempt");
    line(&stage.frame(), &format!("of {total}"));

    // After the second step: run.claimed and two events of each.
    stage.press("[ [ [ [ [ [");
    let kinds: Vec<_> = served.answer(&mut stage).iter().map(|request| request.kind).collect();
    assert!(kinds.contains(&PageKind::TraceAtStep), "{kinds:?}");
    let frame = stage.frame();
    line(&frame, "up to step 2: events 1 – 5 of 5");
    assert_eq!(frame.matches("node.finished").count(), 2, "{frame}");

    stage.press("v");
    served.answer(&mut stage);
    let frame = stage.frame();
    line(&frame, "step 2, classify: events 4 – 5");
    assert_eq!(frame.matches("node.finished").count(), 1, "{frame}");
    stage.press("[");
    served.answer(&mut stage);
    line(&stage.frame(), "step 1, inspect: events 2 – 3");
    stage.press("v");
    line(&stage.frame(), "v ● whole run");
}

#[test]
fn a_long_attempt_is_paged_within_its_bounds() {
    let mut served = Served::new();
    let mut stage = served.stage();
    stage.press("3 v v");
    served.answer(&mut stage);
    let total = served.trace.len() as u64;
    let first = total - LATE + 1;
    line(
        &stage.frame(),
        &format!("test, unfinished: events {first} – {}", first + 255),
    );
    stage.press("<");
    assert_eq!(served.answer(&mut stage), [], "nothing of it is older");
    stage.press("> >");
    served.answer(&mut stage);
    line(&stage.frame(), &format!("events {} – {}", first + 256, first + 511));
    stage.press(">");
    served.answer(&mut stage);
    line(&stage.frame(), &format!("events {} – {total}", first + 512));
    stage.press(">");
    assert_eq!(served.answer(&mut stage), [], "nothing is newer");
    stage.press("<");
    served.answer(&mut stage);
    line(&stage.frame(), &format!("events {} – {}", first + 256, first + 511));

    // It goes on, then the next attempt starts.
    stage.press("> >");
    served.answer(&mut stage);
    let mut view = served.view.clone();
    let event = |seq: u64, attempt: &str| {
        json!({"seq": seq, "at": fixtures::at(31_000), "scope": "node", "type": "node.news", "runId": RUN, "nodeId": "test",
            "attemptId": attempt, "payload": {}})
    };
    view.trace_page
        .items
        .push(serde_json::from_value(event(total + 1, "attempt-now")).unwrap());
    view.trace_page
        .items
        .push(serde_json::from_value(event(total + 2, "attempt-next")).unwrap());
    view.trace_page.total = total + 2;
    stage.view(view);
    line(
        &stage.frame(),
        &format!("events {} – {} of {}", first + 512, total + 1, total + 1),
    );
}

#[test]
fn the_scope_is_of_the_attempt_whose_row_was_chosen() {
    let mut served = Served::new();
    let mut stage = served.stage();
    // The first of two attempts of `inspect`; then the trace of it.
    stage.press("1 g");
    stage.press("3 v v");
    served.answer(&mut stage);
    line(&stage.frame(), "step 1, inspect: events 2 – 3");
    // A node of the graph: its newest attempt.
    let graph = stage.model.run.as_ref().unwrap().graph.clone().unwrap();
    stage.model.graph.selected = graph.node("classify");
    stage.send(Message::Tick(stage.model.now + 1_000));
    served.answer(&mut stage);
    line(&stage.frame(), "step 7, classify: events 14 – 15");
    stage.model.graph.selected = graph.node("abandon");
    stage.send(Message::Tick(stage.model.now + 1_000));
    line(&stage.frame(), "No attempt is selected.");
}

#[test]
fn the_scope_is_chosen_with_the_mouse() {
    let served = Served::new();
    let mut stage = served.stage();
    stage.press("3");
    let frame = stage.frame();
    let (row, text) = frame
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains("v ● whole run"))
        .unwrap();
    let column = crate::text::width(&text[..text.find("up to here").unwrap()]);
    stage.click(column as u16, row as u16);
    line(&stage.frame(), "● up to here");
}

#[test]
fn a_trace_that_cannot_be_had_is_said_once_and_asked_for_again_by_hand() {
    let served = Served::new();
    let mut stage = served.stage();
    stage.press("3 v v");
    let Some(Effect::FetchPage { request, .. }) = stage.effects.last().cloned() else {
        panic!("{:?}", stage.effects)
    };
    stage.effects.clear();
    stage.send(Message::Page {
        run_id: here(RUN),
        request,
        result: Err("the state cannot be read".into()),
    });
    stage.send(Message::Tick(stage.model.now + 1_000));
    assert!(stage.frame().contains("the state cannot be read"), "{}", stage.frame());
    assert_eq!(stage.effects, [], "it is not asked for by itself");
    stage.press("v v v");
    assert!(!stage.effects.is_empty(), "another look asks again");
}

#[test]
fn times_stand_beside_those_of_earlier_runs_with_what_was_not_work_apart() {
    let mut served = Served::new();
    served.view.state.steps[3].step.active_ms = Some(1_000);
    let mut stage = served.stage();
    stage.press("2");
    let kinds: Vec<_> = served.answer(&mut stage).iter().map(|request| request.kind).collect();
    let (times, pauses) = (PageKind::NodeTimes, PageKind::Pauses);
    assert_eq!(kinds, [times, times, times, pauses], "pages until all nodes are known");
    stage.press("Z");
    insta::assert_snapshot!("times", stage.frame());
    let frame = stage.frame();
    // Waiting: one second for the answer and 3.3 within the fourth step, which worked for a second.
    for (name, time) in [("waiting", "4.3s"), ("paused", "3.0s"), ("queued", "4.0s")] {
        let row = frame.lines().rfind(|line| line.contains(name)).unwrap();
        assert!(row.contains(time), "{row}");
    }
    let test = line(&frame, "✓ test");
    assert!(
        test.trim_end_matches(['│', ' ']).ends_with("3.2s"),
        "the median: {test}"
    );
    // Seen again: nothing is asked for. After a change of the status only the pauses are.
    stage.press("1 2");
    assert_eq!(served.answer(&mut stage), []);
    let mut view = served.view.clone();
    view.display.status = piw_protocol::run::DisplayStatus::Paused;
    stage.view(view);
    let again = served.answer(&mut stage);
    assert_eq!(again.iter().map(|request| request.kind).collect::<Vec<_>>(), [pauses]);
}

#[test]
fn nodes_without_earlier_runs_show_a_dash() {
    let mut served = Served::new();
    let mut stage = served.stage();
    stage.press("2");
    let before = stage.frame();
    assert!(
        line(&before, "✓ classify").trim_end_matches(['│', ' ']).ends_with('–'),
        "nothing is known yet: {before}"
    );
    served.answer(&mut stage);
    assert!(
        !line(&stage.frame(), "✓ classify")
            .trim_end_matches(['│', ' '])
            .ends_with('–')
    );
}

#[test]
fn a_step_tells_its_reply_and_how_long_it_worked() {
    let mut view = fixtures::running().view();
    let step = &mut view.state.steps[3].step;
    (step.active_ms, step.assistant_message) = (Some(1_000), Some(json!("All **tests** pass.")));
    step.conversation = Some(json!({"firstEntryId": "e-1", "lastEntryId": "e-9"}));
    let mut stage = Stage::new((120, 60), Some(RUN));
    stage.view(view);
    stage.press("1 g down down down enter Z");
    let frame = stage.frame();
    line(&frame, "· worked 1.0s of 4.3s");
    line(&frame, "All tests pass.");
    line(&frame, "lastEntryId e-9");
}

#[test]
fn the_facts_say_how_the_recording_of_the_session_stands() {
    let mut view = fixtures::running().view();
    view.session = Some(fixtures::SessionFixture::new(2).view(4, 4, "failed"));
    let mut stage = Stage::new((120, 60), Some(RUN));
    stage.view(view);
    stage.press("5 Z");
    let frame = stage.frame();
    line(&frame, "✗ capture failed  session pi-session-7");
    line(&frame, "the recorder lost its connection");
    line(&frame, "the recording was cut off");
}

#[test]
fn progress_has_a_rate_an_end_and_a_confidence() {
    let mut view = fixtures::running().view();
    view.updates[0].rate = Some(2.5);
    let estimate = json!({"kind": "available", "finishAt": fixtures::at(42_000), "earliestAt": fixtures::at(40_000),
        "latestAt": fixtures::at(46_000), "source": "measured", "confidence": "medium", "intervals": 5});
    view.updates[0].estimate = serde_json::from_value(estimate).unwrap();
    view.state.status_detail = None;
    let mut stage = Stage::new((120, 60), Some(RUN));
    stage.view(view.clone());
    stage.press("5 Z");
    line(
        &stage.frame(),
        "2.5 checks/s · ends in 11s (9.0s – 15s) · medium confidence, 5 intervals",
    );
    view.updates[0].estimate =
        serde_json::from_value(json!({"kind": "unavailable", "reason": "no total is reported"})).unwrap();
    stage.view(view);
    line(&stage.frame(), "2.5 checks/s · ETA unavailable: no total is reported");
    stage.press("Z");
    let card = stage.frame();
    assert!(card.contains("12/40"), "the card of what runs tells it, too: {card}");
}
