//! Whole screens through the real update and draw.

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use piw_protocol::client::{ConnectionState, Freshness, Retry};
use piw_protocol::view::{RunListPage, RunView};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::json;

use super::draw::draw;
use super::fixtures::{self, RunFixture};
use super::message::{Effect, Message};
use super::model::Model;
use super::theme::Theme;
use super::update::update;

/// A viewer whose effects are carried out at once where they need no server.
struct Stage {
    model: Model,
    /// Effects that need a server, in order.
    effects: Vec<Effect>,
}

impl Stage {
    fn new(size: (u16, u16), fixed: Option<&str>) -> Self {
        let (model, effects) = Model::new(fixed.map(str::to_owned), Theme::plain(), size, fixtures::START + 31_000);
        let mut stage = Self { model, effects };
        stage.send(Message::Connection(ConnectionState::Connected {
            connection_id: "c".into(),
            package_version: "0.1.0".into(),
        }));
        stage
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
            generation: generation.expect("the browser asked for a window"),
            page: Some(Arc::new(run_list(count))),
            freshness: Freshness::Live,
        });
    }

    fn view(&mut self, view: RunView) {
        self.send(Message::Run {
            run_id: view.run_id.clone(),
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
fn show() {
    for size in [(60, 20), (80, 24), (120, 40), (250, 60)] {
        println!("{}", opened(size, &fixtures::running()).frame());
    }
    let mut stage = opened((120, 40), &fixtures::failed());
    stage.press("tab enter");
    println!("{}", stage.frame());
    stage.press("?");
    println!("{}", stage.frame());
}
