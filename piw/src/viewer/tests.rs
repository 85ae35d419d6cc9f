//! Whole screens through the real update and draw.

mod conversation;
mod filter;
mod hostile;
mod hosts;
mod inspect;
mod keys;
mod markdown;
mod mouse;
mod open;
mod review;
mod screens;
mod storm;

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use piw_protocol::client::{ConnectionState, Freshness, Retry};
use piw_protocol::view::{RunListPage, RunView};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::json;

use super::draw::draw;
use super::fixtures::{self, RunFixture, here};
use super::hosts::{HostId, Hosts};
use super::message::{Effect, Message};
use super::model::Model;
use super::popup::Popup;
use super::theme::Theme;
use super::update::update;

/// A viewer whose effects are carried out at once where they need no server.
struct Stage {
    model: Model,
    /// Effects that need a server, in order.
    effects: Vec<Effect>,
    /// Documents that were laid out.
    rendered: u64,
}

impl Stage {
    fn new(size: (u16, u16), fixed: Option<&str>) -> Self {
        Self::with(Hosts::new(&[]), size, fixed)
    }

    /// A viewer of these hosts, all of them connected.
    fn with(hosts: Hosts, size: (u16, u16), fixed: Option<&str>) -> Self {
        let count = hosts.count();
        let fixed = fixed.map(str::to_owned);
        let (model, effects) = Model::new(hosts, fixed, Theme::plain(), size, fixtures::START + 31_000);
        let mut stage = Self {
            model,
            effects,
            rendered: 0,
        };
        for host in 0..count {
            stage.connection(HostId(host), connected());
        }
        stage
    }

    fn connection(&mut self, host: HostId, state: ConnectionState) {
        self.send(Message::Connection { host, state });
    }

    fn send(&mut self, message: Message) {
        let mut queue = vec![message];
        while let Some(message) = queue.pop() {
            for effect in update(&mut self.model, message) {
                match effect {
                    Effect::LayOut { key, graph } => {
                        let drawing = Arc::new(super::graph::lay_out(&graph.0, key.density, &key.folded));
                        queue.push(Message::Layout { key, drawing });
                    }
                    Effect::Render { run_id, key, text } => {
                        self.rendered += 1;
                        let document = Arc::new(super::markdown::render(&text, key.columns, key.ascii));
                        queue.push(Message::Rendered { run_id, key, document });
                    }
                    other => self.effects.push(other),
                }
            }
        }
    }

    fn press(&mut self, keys: &str) {
        for word in keys.split(' ') {
            let (code, modifiers) = match word {
                "tab" => (KeyCode::Tab, KeyModifiers::NONE),
                "enter" => (KeyCode::Enter, KeyModifiers::NONE),
                "esc" => (KeyCode::Esc, KeyModifiers::NONE),
                "up" => (KeyCode::Up, KeyModifiers::NONE),
                "down" => (KeyCode::Down, KeyModifiers::NONE),
                "left" => (KeyCode::Left, KeyModifiers::NONE),
                "right" => (KeyCode::Right, KeyModifiers::NONE),
                "space" => (KeyCode::Char(' '), KeyModifiers::NONE),
                word => (KeyCode::Char(word.chars().next().unwrap()), KeyModifiers::NONE),
            };
            self.send(Message::Terminal(Event::Key(KeyEvent::new(code, modifiers))));
        }
    }

    fn click(&mut self, column: u16, row: u16) {
        for kind in [
            MouseEventKind::Down(MouseButton::Left),
            MouseEventKind::Up(MouseButton::Left),
        ] {
            self.send(Message::Terminal(Event::Mouse(MouseEvent {
                kind,
                column,
                row,
                modifiers: KeyModifiers::NONE,
            })));
        }
    }

    fn runs(&mut self, count: u64) {
        let generation = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::WatchRuns { generation, .. } => Some(*generation),
            _ => None,
        });
        self.send(Message::Runs {
            host: HostId::default(),
            generation: generation.expect("the browser asked for a window"),
            page: Some(Arc::new(run_list(count))),
            freshness: Freshness::Live,
        });
    }

    fn view(&mut self, view: RunView) {
        self.send(Message::Run {
            run_id: here(&view.run_id),
            view: Some(Arc::new(view)),
            freshness: Freshness::Live,
        });
    }

    fn frame(&self) -> String {
        let (width, height) = self.model.size;
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(&self.model, area, &mut buffer);
        let mut out = String::new();
        for y in 0..height {
            let mut line = String::new();
            let mut x = 0;
            while x < width {
                let symbol = buffer[(x, y)].symbol();
                line.push_str(symbol);
                x += (crate::text::width(symbol) as u16).max(1);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn connected() -> ConnectionState {
    ConnectionState::Connected {
        connection_id: "c".into(),
        package_version: "0.1.0".into(),
    }
}

fn run_list(count: u64) -> RunListPage {
    let statuses = [
        "running",
        "failed",
        "waiting",
        "completed",
        "paused",
        "queued",
        "cancelled",
        "timed_out",
        "ambiguous",
    ];
    let items: Vec<_> = (0..count.min(256))
        .map(|index| {
            let status = statuses[index as usize % statuses.len()];
            let durable = if ["paused", "ambiguous"].contains(&status) {
                "running"
            } else {
                status
            };
            let ended = ["failed", "completed", "cancelled", "timed_out"].contains(&status);
            let run_id = if index == 0 {
                "01JNE8-release-0001".to_owned()
            } else {
                format!("run-{index:04}")
            };
            let title = match index {
                0 => "Release 1.4.0 of piw".to_owned(),
                3 => "日本語のタイトル \u{1b}[31m\u{202e}evil".to_owned(),
                _ => format!("Check number {index} of the project"),
            };
            json!({
                "runId": run_id, "workflowName": "release-check", "originSessionId": null,
                "createdAt": fixtures::at(0), "updatedAt": fixtures::at(0),
                "display": {"status": status, "activity": null, "controls": [], "reason": null},
                "manifest": {
                    "schema": "pi-workflows.run-manifest.v1", "runId": run_id, "workflowName": "release-check",
                    "runTitle": title, "workflowSource": {"kind": "builtin", "id": "x", "revision": "y"},
                    "startedAt": fixtures::at(0), "finishedAt": ended.then(|| fixtures::at(4_200 * index as i64)),
                    "status": durable, "traceSchema": "pi-workflows.trace-event.v1", "paths": {},
                },
                "live": status == "running", "possiblyInterrupted": index == 5,
            })
        })
        .collect();
    let page = json!({"schema": "pi-workflows.run-list-page.v1", "revision": "r1", "start": 0, "total": count, "items": items});
    serde_json::from_value(page).unwrap()
}

fn opened(size: (u16, u16), fixture: &RunFixture) -> Stage {
    let mut stage = Stage::new(size, None);
    stage.runs(40);
    stage.view(fixture.view());
    stage
}

#[test]
fn a_running_run_at_every_size() {
    for (width, height) in [(60, 20), (80, 24), (120, 40), (250, 80)] {
        let stage = opened((width, height), &fixtures::running());
        insta::assert_snapshot!(format!("running_{width}x{height}"), stage.frame());
    }
}

#[test]
fn every_state_of_a_run() {
    insta::assert_snapshot!("waiting", opened((120, 40), &fixtures::waiting()).frame());
    let mut stage = opened((120, 40), &fixtures::failed());
    stage.press("tab enter");
    insta::assert_snapshot!("failed_step_opened", stage.frame());
    stage.press("5");
    insta::assert_snapshot!("failed_info", stage.frame());
    stage.press("2");
    insta::assert_snapshot!("failed_time", stage.frame());
    stage.press("3");
    insta::assert_snapshot!("failed_trace", stage.frame());
    stage.press("?");
    insta::assert_snapshot!("help", stage.frame());
    stage.press("esc :");
    stage.press("r e s t");
    insta::assert_snapshot!("palette", stage.frame());
}

#[test]
fn nothing_to_show() {
    let mut stage = Stage::new((80, 24), None);
    insta::assert_snapshot!("loading", stage.frame());
    stage.runs(0);
    insta::assert_snapshot!("no_runs", stage.frame());
    let stage = Stage::new((59, 19), None);
    assert!(stage.frame().contains("piw needs 60 × 20"), "{}", stage.frame());
}

#[test]
fn includes_fold() {
    let fixture = RunFixture {
        definition: fixtures::composed(),
        visits: "prepare lint/collect lint/decide lint/deep/scan lint/deep/rate",
        current: Some("lint/repair"),
        status: "running",
        controls: &[],
    };
    let mut stage = Stage::new((120, 50), Some("01JNE8-release-0001"));
    stage.view(fixture.view());
    insta::assert_snapshot!("include_open", stage.frame());
    stage.press("x");
    insta::assert_snapshot!("include_folded", stage.frame());
    stage.press("x");
    assert!(stage.frame().contains("decide"));
}

/// Answers the request for a page of the running run's steps.
fn page(stage: &mut Stage) {
    let request = stage.effects.iter().rev().find_map(|effect| match effect {
        Effect::FetchPage { request, .. } => Some(request.clone()),
        _ => None,
    });
    let request = request.expect("a page was asked for");
    // A page knows finished steps only.
    let view = RunFixture {
        current: None,
        ..fixtures::running()
    }
    .view();
    let page = json!({
        "schema": "pi-workflows.run-page.v1", "runId": view.run_id, "kind": "steps", "cursor": request.cursor,
        "revision": view.revision, "start": 0, "total": 7,
        "items": serde_json::to_value(&view.state.steps).unwrap(),
        "graphSteps": serde_json::to_value(&view.graph_steps).unwrap(), "graphCursor": 7,
        "takenTransitions": serde_json::to_value(&view.taken_transitions).unwrap(),
    });
    stage.send(Message::Page {
        run_id: here(&view.run_id),
        request,
        result: Ok(Arc::new(serde_json::from_value(page).unwrap())),
    });
}

#[test]
fn replay_goes_back_and_returns() {
    let mut stage = opened((120, 40), &fixtures::running());
    let live = stage.frame();
    stage.press("[");
    // The position is shown at once; the graph follows when its page arrives.
    assert!(stage.frame().contains("step 7 of 7"), "{}", stage.frame());
    page(&mut stage);
    stage.press("[ [ [ [");
    insta::assert_snapshot!("replay", stage.frame());
    stage.press("L esc");
    stage.press("0");
    assert_eq!(stage.frame(), live, "returning to live restores the screen");
}

#[test]
fn a_lost_connection_is_shown_and_offers_nothing() {
    let mut stage = opened((120, 40), &fixtures::running());
    let retry = Retry {
        attempt: 3,
        delay: std::time::Duration::from_secs(2),
        reason: "connection refused".into(),
    };
    stage.connection(HostId::default(), ConnectionState::Reconnecting(retry.clone()));
    let view = fixtures::running().view();
    stage.send(Message::Run {
        run_id: here(&view.run_id),
        view: None,
        freshness: Freshness::Stale(retry),
    });
    insta::assert_snapshot!("stale", stage.frame());
    stage.press("p c");
    assert!(
        stage
            .effects
            .iter()
            .all(|effect| !matches!(effect, Effect::Command { .. }))
    );
    assert!(stage.model.popup.is_none());
    assert!(stage.frame().contains("stale"), "{}", stage.frame());
}

#[test]
fn commands_confirm_and_show_their_receipt() {
    let mut stage = opened((120, 40), &fixtures::running());
    stage.press("c");
    insta::assert_snapshot!("confirm_cancel", stage.frame());
    stage.press("n");
    assert!(
        stage
            .effects
            .iter()
            .all(|effect| !matches!(effect, Effect::Command { .. }))
    );
    stage.press("c y");
    let sent = stage.effects.iter().any(|effect| {
        matches!(
            effect,
            Effect::Command {
                revision: 23,
                command: super::message::Command::Cancel,
                ..
            }
        )
    });
    assert!(sent, "the command names the execution revision that was on screen");
    stage.send(Message::Decided {
        command: super::message::Command::Cancel,
        run_id: here("01JNE8-release-0001"),
        result: Err("run.cancel: stale_revision: revision 23 was expected, 24 is current".into()),
    });
    assert!(stage.frame().contains("stale_revision"), "{}", stage.frame());
}

#[test]
fn a_checkpoint_is_answered_with_checked_json() {
    let mut stage = opened((120, 40), &fixtures::waiting());
    stage.press("a");
    stage.press("{ x");
    insta::assert_snapshot!("answer_invalid", stage.frame());
    stage.press("enter");
    assert!(
        stage
            .effects
            .iter()
            .all(|effect| !matches!(effect, Effect::Command { .. }))
    );
    stage.send(Message::Terminal(Event::Key(KeyEvent::new(
        KeyCode::Char('u'),
        KeyModifiers::CONTROL,
    ))));
    stage.send(Message::Terminal(Event::Paste("{\"approved\": true}".into())));
    stage.press("enter");
    let answered = stage.effects.iter().any(|effect| match effect {
        Effect::Command {
            command: super::message::Command::Answer(value),
            ..
        } => *value == json!({"approved": true}),
        _ => false,
    });
    assert!(answered);
}

#[test]
fn whoever_answers_sees_what_is_asked() {
    // A request that is longer than the dialog scrolls; the editor keeps its room.
    let mut view = fixtures::waiting().view();
    let lines: Vec<String> = (0..60).map(|line| format!("note number {line}")).collect();
    view.state.human_decision.as_mut().unwrap()["request"]["request"] = json!({ "notes": lines });
    let mut stage = Stage::new((100, 30), Some("01JNE8-release-0001"));
    stage.view(view);
    stage.press("a");
    let frame = stage.frame();
    assert!(frame.contains("Publish 1.4.0 with these notes?"), "{frame}");
    assert!(
        frame.contains("note number 0\"") && frame.contains("not JSON yet"),
        "{frame}"
    );
    for _ in 0..20 {
        stage.send(Message::Terminal(Event::Key(KeyEvent::new(
            KeyCode::PageDown,
            KeyModifiers::NONE,
        ))));
    }
    insta::assert_snapshot!("answer_scrolled", stage.frame());
    stage.press("t r u e enter");
    assert!(
        stage.model.popup.is_none(),
        "scrolling does not get in the way of answering"
    );

    // One that is not in the view is fetched and then shown.
    let mut view = fixtures::waiting().view();
    let sha256 = "ab".repeat(32);
    view.state.human_decision.as_mut().unwrap()["request"] = json!({"$artifact": {
        "path": format!("artifacts/sha256/{sha256}.json"), "mediaType": "application/json", "bytes": 20_000, "sha256": sha256,
    }});
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(view);
    stage.press("a");
    assert!(
        stage.frame().contains("loading the request, 19.5 KiB"),
        "{}",
        stage.frame()
    );
    let fetched =
        |effect: &Effect| matches!(effect, Effect::FetchContent { reference, .. } if reference.sha256 == sha256);
    assert!(stage.effects.iter().any(fetched));
    let content = json!({"summary": "Publish the large one?", "request": {"size": 20_000}});
    stage.send(Message::Content {
        sha256,
        result: Ok(super::message::Content::Json(Arc::new(content))),
    });
    let frame = stage.frame();
    assert!(
        frame.contains("Publish the large one?") && frame.contains("\"size\": 20000"),
        "{frame}"
    );
    stage.press("esc 5");
    assert!(stage.frame().contains("Publish the large one?"), "{}", stage.frame());
}

#[test]
fn what_a_checkpoint_asks_is_among_the_facts() {
    let mut stage = opened((120, 40), &fixtures::waiting());
    stage.press("5");
    insta::assert_snapshot!("waiting_info", stage.frame());
}

#[test]
fn node_names_are_readable_whatever_the_size() {
    for size in [(110, 34), (80, 24), (60, 20), (100, 30), (160, 50)] {
        let stage = opened(size, &fixtures::running());
        let density = stage.model.graph.density;
        assert_ne!(density, super::graph::Density::Dots, "{size:?}");
        assert!(stage.frame().contains("test"), "{size:?}\n{}", stage.frame());
    }
    insta::assert_snapshot!("running_110x34", opened((110, 34), &fixtures::running()).frame());
}

#[test]
fn an_ended_run_shows_its_last_counts_without_an_estimate() {
    let fixture = RunFixture {
        visits: "inspect classify test judge approve report",
        current: None,
        status: "completed",
        controls: &[],
        ..fixtures::running()
    };
    let mut stage = opened((120, 70), &fixture);
    stage.press("5");
    let frame = stage.frame();
    assert!(frame.contains("12/40 checks"), "{frame}");
    let facts = frame.lines().skip(1).filter(|line| line.contains("checks"));
    assert!(
        facts.clone().count() > 0 && facts.clone().all(|line| !line.contains("running")),
        "{frame}"
    );
    assert!(!frame.contains("ETA"), "{frame}");
}

#[test]
fn the_way_out_is_always_named() {
    let retry = Retry {
        attempt: 1,
        delay: std::time::Duration::from_secs(2),
        reason: "connection refused: /home/me/.pi/agent/workflows/server/server.sock does not exist any more at all"
            .into(),
    };
    for status in [
        ConnectionState::Reconnecting(retry.clone()),
        ConnectionState::Blocked(retry),
    ] {
        for width in [80, 100, 120] {
            let mut stage = opened((width, 40), &fixtures::running());
            stage.connection(HostId::default(), status.clone());
            let frame = stage.frame();
            let last = frame.lines().last().unwrap();
            assert!(last.ends_with("? help  q quit"), "{width}: {last}");
            assert!(last.contains("7 steps"), "{width}: {last}");
        }
    }
}

#[test]
fn page_keys_scroll_the_help_and_others_close_it() {
    let mut stage = Stage::new((120, 40), None);
    stage.runs(3);
    let top = |stage: &Stage| match stage.model.popup {
        Some(Popup::Help { top, .. }) => Some(top),
        _ => None,
    };
    let press =
        |stage: &mut Stage, code| stage.send(Message::Terminal(Event::Key(KeyEvent::new(code, KeyModifiers::NONE))));
    stage.press("?");
    assert_eq!(top(&stage), Some(0));
    press(&mut stage, KeyCode::PageDown);
    stage.press("down");
    assert_eq!(top(&stage), Some(11));
    press(&mut stage, KeyCode::PageUp);
    assert_eq!(top(&stage), Some(1));
    stage.press("x");
    assert_eq!(top(&stage), None);
}

#[test]
fn help_shows_every_text_whole() {
    for width in [60, 80, 120] {
        let mut stage = opened((width, 72), &fixtures::running());
        stage.press("?");
        let top = stage.frame();
        stage.press("j j j j j j j j j j j j j j j j j j j j j j j j");
        let frames = top + &stage.frame();
        // A text that continues below has the popup's border in between.
        let words = frames.split_whitespace().filter(|word| *word != "│" && *word != "┃");
        let words: String = words.collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("search the inspector") || words.contains("the inspector"),
            "{words}"
        );
        assert!(words.contains("selected node"), "{words}");
    }
}

#[test]
fn the_mouse_reaches_everything() {
    let mut stage = opened((120, 40), &fixtures::failed());
    // A tab, a run of the list, a tick of the timeline, a hint.
    let inspector = stage.model.screen().unwrap().inspector;
    stage.click(inspector.x + 30, inspector.y);
    assert_eq!(stage.model.inspector.tab, super::inspector::Tab::Conversation);
    stage.click(10, 3);
    assert_eq!(stage.model.browser.selected_id, Some(here("run-0002")));
    let mut stage = opened((120, 40), &fixtures::failed());
    stage.click(29, 38);
    assert_eq!(stage.model.run.as_ref().unwrap().cursor, Some(1));
    let mut stage = opened((120, 40), &fixtures::failed());
    let column = stage
        .frame()
        .lines()
        .nth(39)
        .unwrap()
        .chars()
        .position(|c| c == '?')
        .unwrap();
    stage.click(column as u16, 39);
    assert!(stage.model.popup.is_some());
    stage.click(0, 0);
    assert!(stage.model.popup.is_none(), "a click beside a popup closes it");
}

#[test]
fn hostile_text_never_reaches_the_screen_raw() {
    let mut view = fixtures::failed().view();
    let evil = "\u{1b}]0;owned\u{7}\u{202e}\u{200b}\u{9b}2J";
    view.state.run_title = Some(evil.into());
    view.display.reason = Some(evil.into());
    view.state.error.as_mut().unwrap().message = format!("{evil}{}", "x".repeat(1 << 20));
    for step in &mut view.state.steps {
        step.step.output = json!({ evil: [evil, "long ".repeat(100_000)] });
        step.step.status_detail = Some(evil.into());
    }
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(view);
    for keys in ["tab enter", "1 g enter", "2", "3", "4", "5", "Z"] {
        stage.press(keys);
        for c in stage.frame().chars().filter(|c| *c != '\n') {
            assert!(
                !c.is_control() && !"\u{202e}\u{200b}".contains(c),
                "{c:?} reached the screen"
            );
        }
    }
}

#[test]
fn sizes_from_tiny_to_huge_are_drawn() {
    let mut stage = opened((120, 40), &fixtures::running());
    for (width, height) in [
        (1, 1),
        (2, 300),
        (1000, 1),
        (59, 20),
        (60, 20),
        (61, 23),
        (99, 24),
        (100, 25),
        (700, 200),
        (1000, 300),
    ] {
        stage.send(Message::Terminal(Event::Resize(width, height)));
        let frame = stage.frame();
        assert_eq!(frame.lines().count(), usize::from(height));
        if width >= 60 && height >= 20 {
            assert!(frame.contains("running"), "{width}x{height}\n{frame}");
        }
    }
}

#[test]
fn an_idle_viewer_has_nothing_to_do() {
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(fixtures::failed().view());
    assert_eq!(stage.model.next_tick(), None, "a finished run has no clock");
    stage.model.dirty = false;
    stage.send(Message::Tick(fixtures::START + 99_000));
    assert!(!stage.model.dirty, "a tick without a clock draws nothing");
    stage.view(fixtures::running().view());
    assert!(stage.model.next_tick().is_some());
}

#[test]
fn a_theme_is_previewed_kept_or_restored() {
    let mut stage = opened((120, 40), &fixtures::failed());
    let before = stage.model.theme.clone();
    stage.press(", down");
    assert_ne!(stage.model.theme.name, before.name, "moving shows the theme at once");
    insta::assert_snapshot!("themes", stage.frame());
    stage.press("esc");
    assert_eq!(stage.model.theme, before);
    stage.press(", down enter");
    let saved = stage.effects.iter().any(|effect| {
        *effect
            == Effect::Save(super::config::Setting::Theme {
                field: "name",
                name: "catppuccin-macchiato".into(),
            })
    });
    assert!(saved && stage.model.popup.is_none());
}

#[test]
fn the_inspector_is_searched() {
    let mut stage = opened((120, 40), &fixtures::failed());
    stage.press("tab enter");
    stage.press("/ s t d e");
    assert!(stage.frame().contains("/stde"), "{}", stage.frame());
    stage.press("enter n");
    let row = stage.model.inspector.selected();
    stage.press("n N");
    assert_eq!(
        stage.model.inspector.selected(),
        row,
        "next and previous undo each other"
    );
    stage.press("esc");
    assert!(!stage.frame().contains("/stde"));
}

#[test]
fn attempts_of_a_node_are_compared() {
    let fixture = RunFixture {
        definition: fixtures::release(),
        visits: "inspect test:failed test",
        current: None,
        status: "completed",
        controls: &[],
    };
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.view(fixture.view());
    stage.press("enter");
    let column = stage
        .frame()
        .lines()
        .position(|line| line.contains("compare with step 2"))
        .expect("it is offered");
    let inspector = stage.model.screen().unwrap().inspector;
    stage.click(inspector.x + 10, column as u16);
    let frame = stage.frame();
    assert!(
        frame.contains("- outcome: failed") && frame.contains("+ outcome: ok"),
        "{frame}"
    );
}
