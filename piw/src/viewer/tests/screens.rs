//! A picture of every screen at four sizes, and of one busy screen in every family of themes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use piw_protocol::client::ClientError;
use piw_protocol::ops::OperationError;
use ratatui::style::{Color, Modifier};

use super::conversation;
use super::hosts::three;
use super::*;
use crate::viewer::fixtures::SessionFixture;
use crate::viewer::graph::Density;
use crate::viewer::theme::color::Depth;

const SIZES: [(u16, u16); 4] = [(60, 20), (80, 24), (120, 40), (250, 80)];

type Make = fn((u16, u16)) -> Stage;

/// Every screen with how one gets there.
const SCREENS: &[(&str, Make)] = &[
    ("loading", |size| Stage::new(size, None)),
    ("no_runs", |size| {
        let mut stage = Stage::new(size, None);
        stage.runs(0);
        stage
    }),
    ("browser", running),
    ("browser_zoomed", |size| after(running(size), "Z")),
    ("filter", |size| after(running(size), "/ s t a t u s : f a i l e d")),
    ("graph_boxed", |size| dense(size, Density::Boxed)),
    ("graph_compact", |size| dense(size, Density::Compact)),
    ("graph_dots", |size| dense(size, Density::Dots)),
    ("steps", |size| after(running(size), "tab tab 1")),
    ("steps_opened", |size| after(failed(size), "tab tab 1 enter")),
    ("time", |size| after(failed(size), "tab tab 2")),
    ("trace", |size| after(failed(size), "tab tab 3")),
    ("info", |size| after(failed(size), "tab tab 5")),
    ("inspector_zoomed", |size| after(failed(size), "tab tab 1 enter Z")),
    ("search", |size| after(failed(size), "tab tab 1 enter / p a n i c")),
    ("failed", failed),
    ("waiting", waiting),
    ("ambiguous", |size| after(ambiguous(size), "5")),
    ("paused", |size| with_status(size, "paused", &["resume", "cancel"])),
    ("completed", |size| with_status(size, "completed", &["restart"])),
    ("queued", |size| opened(size, &fixtures::queued())),
    ("parked", parked),
    ("timed_out", |size| with_status(size, "timed_out", &["restart"])),
    ("cancelled", |size| with_status(size, "cancelled", &["restart"])),
    ("talk_live", |size| talk(size, &conversation::writing(), "recording")),
    ("talk_settled", |size| talk(size, &SessionFixture::new(3), "complete")),
    ("talk_opened", |size| {
        let mut stage = after(talk(size, &SessionFixture::new(1), "complete"), "Z g");
        for part in ["▸ thinking", "▸ called read"] {
            stage.down_to(part);
            stage.press("enter");
        }
        stage
    }),
    ("talk_raw", |size| {
        let mut stage = after(talk(size, &SessionFixture::new(1), "complete"), "Z g");
        stage.down_to("▌ result read");
        stage.press("enter");
        stage
    }),
    ("talk_historic", |size| {
        let session = conversation::writing();
        let mut stage = talk(size, &conversation::writing(), "recording");
        // Into the first message.
        for _ in 0..200 {
            if stage.model.run.as_ref().unwrap().cursor == Some(3) {
                break;
            }
            stage.press("[");
            stage.serve_all(&session, 256);
        }
        stage
    }),
    ("talk_none", |size| after(running(size), "tab tab 4")),
    ("talk_not_yet", |size| talk(size, &SessionFixture::new(0), "none")),
    ("capture_failed", |size| {
        after(talk(size, &SessionFixture::new(1), "failed"), "g")
    }),
    ("replay", |size| {
        let mut stage = running(size);
        stage.press("[");
        page(&mut stage);
        stage.press("[ [ [ [");
        stage
    }),
    ("help", |size| after(running(size), "?")),
    ("palette", |size| after(running(size), ": r e")),
    ("themes", |size| after(running(size), ", down down")),
    ("confirm", |size| after(running(size), "c")),
    ("answer", |size| after(waiting(size), "a { \" a")),
    ("review", |size| after(ambiguous(size), "e")),
    ("hosts", |size| quiet(three(size))),
    ("hosts_zoomed", |size| after(quiet(three(size)), "Z")),
    ("toasts", |size| {
        let mut stage = running(size);
        stage.model.toast("copied", false);
        stage.model.toast("cancel is not on offer for this run", true);
        let long = "run.cancel: stale_revision: revision 23 was expected, 24 is current; look again and decide anew";
        stage.model.toast(long, true);
        stage
    }),
    ("connecting", |size| {
        lost(size, ConnectionState::Connecting, Freshness::Opening)
    }),
    ("stale", |size| {
        lost(size, ConnectionState::Reconnecting(retry()), Freshness::Stale(retry()))
    }),
    ("blocked", |size| {
        lost(size, ConnectionState::Blocked(retry()), Freshness::Blocked(retry()))
    }),
    ("disconnected", |size| {
        let error = ClientError::VersionMismatch {
            client: "0.1.0".into(),
            server: "0.2.0".into(),
        };
        lost(size, ConnectionState::Stopped(error.clone()), Freshness::Stopped(error))
    }),
    ("no_such_run", |size| {
        let mut stage = Stage::new(size, Some("01JNE8-release-0001"));
        stage.send(Message::Run {
            run_id: here("01JNE8-release-0001"),
            view: None,
            freshness: Freshness::Refused(OperationError::new(
                "not_found",
                "there is no run 01JNE8-release-0001".to_owned(),
            )),
        });
        stage
    }),
    ("server_never_there", |size| {
        let mut stage = Stage::new(size, None);
        stage.connection(HostId::default(), ConnectionState::Blocked(retry()));
        stage
    }),
];

fn running(size: (u16, u16)) -> Stage {
    opened(size, &fixtures::running())
}

fn failed(size: (u16, u16)) -> Stage {
    opened(size, &fixtures::failed())
}

fn waiting(size: (u16, u16)) -> Stage {
    opened(size, &fixtures::waiting())
}

/// A run whose source changed while nothing executed it.
fn parked(size: (u16, u16)) -> Stage {
    let fixture = RunFixture {
        current: None,
        status: "queued",
        controls: &["resume", "cancel"],
        ..fixtures::running()
    };
    let mut view = fixture.view();
    view.queue.status = "parked".into();
    view.display.reason = Some("sourceChanged: the workflow's source is not what the run was started with".into());
    let mut stage = Stage::new(size, None);
    stage.runs(40);
    stage.view(view);
    stage
}

/// A recorded session in the Conversation tab.
fn talk(size: (u16, u16), session: &SessionFixture, capture: &str) -> Stage {
    let view = conversation::with(session.view(256, 64, capture));
    let mut stage = Stage::new(size, None);
    stage.runs(40);
    stage.view(view);
    after(stage, "tab tab 4")
}

fn ambiguous(size: (u16, u16)) -> Stage {
    let mut stage = Stage::new(size, None);
    stage.runs(40);
    stage.view(fixtures::ambiguous());
    stage
}

fn with_status(size: (u16, u16), status: &'static str, controls: &'static [&'static str]) -> Stage {
    let fixture = RunFixture {
        current: None,
        status,
        controls,
        ..fixtures::running()
    };
    opened(size, &fixture)
}

fn dense(size: (u16, u16), density: Density) -> Stage {
    let mut stage = after(running(size), "tab Z z");
    for _ in 0..4 {
        if stage.model.graph.density != density {
            stage.press("z");
        }
    }
    assert_eq!(stage.model.graph.density, density);
    quiet(stage)
}

fn after(mut stage: Stage, keys: &str) -> Stage {
    stage.press(keys);
    stage
}

fn quiet(mut stage: Stage) -> Stage {
    stage.model.toasts.clear();
    stage
}

fn retry() -> Retry {
    Retry {
        attempt: 3,
        delay: Duration::from_secs(2),
        reason: "cannot connect to /home/me/.pi/agent/workflows/server/server.sock: Connection refused".into(),
    }
}

fn lost(size: (u16, u16), state: ConnectionState, freshness: Freshness) -> Stage {
    let mut stage = running(size);
    stage.connection(HostId::default(), state);
    let run_id = stage.model.run.as_ref().unwrap().run_id.clone();
    stage.send(Message::Run {
        run_id,
        view: None,
        freshness,
    });
    stage
}

#[test]
fn every_screen_at_every_size() {
    for (name, make) in SCREENS {
        let mut pictures = String::new();
        for size in SIZES {
            let frame = make(size).frame();
            assert_eq!(frame.lines().count(), usize::from(size.1), "{name}");
            let _ = write!(pictures, "{} × {}\n{frame}", size.0, size.1);
        }
        insta::assert_snapshot!(*name, pictures);
    }
    insta::assert_snapshot!("too_small", Stage::new((59, 19), None).frame());
}

/// The states that have to be told apart: the screen that shows each, and what nothing but it says there.
const STATES: [(&str, &str); 21] = [
    ("queued", "◌ queued"),
    ("running", "◉ running"),
    ("talk_historic", "◈ was being written"),
    ("completed", "✓ completed"),
    ("failed", "✗ failed"),
    ("timed_out", "◔ timed out"),
    ("waiting", "◇ waiting"),
    ("paused", "‖ paused"),
    ("cancelled", "⊘ cancelled"),
    ("ambiguous", "≈ ambiguous"),
    ("parked", "sourceChanged"),
    ("connecting", "connecting"),
    ("running", " live "),
    ("completed", " latest "),
    ("replay", " replay "),
    ("stale", "stale · reconnecting: attempt 3 in 2.0s"),
    ("server_never_there", "disconnected"),
    ("blocked", "disconnected"),
    ("disconnected", "this client is version 0.1.0"),
    ("capture_failed", "✗ capture failed"),
    ("talk_live", "◉ writing"),
];

#[test]
fn every_state_has_a_screen_that_says_which_it_is() {
    let make = |name: &str| {
        let known = SCREENS.iter().find(|(known, _)| *known == name);
        known.map_or(running as Make, |(_, make)| *make)
    };
    for (name, said) in STATES {
        for size in &SIZES[1..] {
            let frame = make(name)(*size).frame();
            let told: Vec<&str> = frame.lines().rev().take(2).collect();
            // What stands in the inspector is looked for in all of the frame.
            let inside = ["capture_failed", "talk_live", "talk_historic"].contains(&name);
            let there = told.iter().any(|line| format!("{line} ").contains(said)) || inside && frame.contains(said);
            assert!(there, "{name} at {size:?} does not say {said:?}:\n{frame}");
        }
    }
    // A run that waits for its turn, one that waits for a person and one that a person holds.
    let status = |name: &str, size: (u16, u16)| {
        let frame = make(name)(size).frame();
        frame.lines().rev().take(2).collect::<Vec<_>>().join("\n")
    };
    for size in SIZES {
        let all: std::collections::BTreeSet<String> = ["queued", "parked", "waiting", "paused"]
            .map(|name| status(name, size))
            .into();
        assert_eq!(all.len(), 4, "{size:?}: {all:#?}");
    }
}

/// Nothing is cut without a mark: a row of the inspector that is wider than it ends with an ellipsis.
#[test]
fn rows_that_do_not_fit_end_with_an_ellipsis() {
    for size in SIZES {
        let stage = after(failed(size), "tab tab 1 enter");
        let inner = crate::viewer::screen::inside(stage.model.screen().unwrap().inspector);
        let model = &stage.model;
        let run = model.run.as_ref().unwrap();
        let room = usize::from(inner.width.saturating_sub(1));
        let rows = model.inspector.rows(run, &model.theme, room, model.now);
        let frame = stage.frame();
        let lines: Vec<&str> = frame.lines().collect();
        for (row, y) in rows.iter().skip(model.inspector.top()).zip(inner.y..inner.bottom()) {
            let shown = lines[usize::from(y)];
            let fits = row.line.width() <= room;
            assert!(fits || shown.contains('…'), "{size:?}: {shown}");
        }
    }
}

#[test]
fn rows_speak_of_the_keys_that_are_configured() {
    let mut config = crate::viewer::config::Config::default();
    let bind = |action: &str, keys: &[&str]| crate::viewer::keymap::Binding {
        action: action.into(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    };
    config.keys = vec![
        bind("open", &["x"]),
        bind("older-page", &["("]),
        bind("newer-page", &[]),
    ];
    let mut session = SessionFixture::new(60);
    let sha256 = "cd".repeat(32);
    let total = session.entries.len();
    session.entries[total - 1].content = json!({"$artifact": {"path": format!("artifacts/sha256/{sha256}.json"),
        "mediaType": "application/json", "bytes": 30_000, "sha256": sha256}});
    let mut stage = Stage::new((120, 40), Some("01JNE8-release-0001"));
    stage.model.configure(&config, &[]);
    stage.view(conversation::with(session.view(256, 64, "complete")));
    stage.press("4 Z");
    let frame = stage.frame();
    assert!(frame.contains("29.3 KiB: x loads it"), "{frame}");
    stage.press("g");
    let frame = stage.frame();
    assert!(frame.contains("( older") && !frame.contains("newer"), "{frame}");
}

/// With `--ascii` nothing but what workflows and files say is outside of ASCII.
#[test]
fn ascii_is_ascii() {
    let mut others: BTreeMap<char, String> = BTreeMap::new();
    for (name, make) in SCREENS {
        for size in SIZES {
            let mut stage = make(size);
            stage.model.theme.ascii = true;
            for line in stage.frame().lines() {
                let said = "日本語のタイトル␛\u{fffd}";
                for c in line.chars().filter(|c| !c.is_ascii() && !said.contains(*c)) {
                    others.entry(c).or_insert_with(|| format!("{name} {size:?}: {line}"));
                }
            }
        }
    }
    assert!(others.is_empty(), "{others:#?}");
}

/// Two families may look alike; each has to be legible for itself.
#[test]
fn a_busy_screen_in_every_family() {
    let families: [(&str, &str, Depth, bool); 9] = [
        ("dark", "catppuccin-mocha", Depth::True, false),
        ("light", "catppuccin-latte", Depth::True, false),
        ("high_contrast", "high-contrast", Depth::True, false),
        ("terminal", "terminal", Depth::True, false),
        ("indexed", "catppuccin-mocha", Depth::Indexed, false),
        ("named", "catppuccin-mocha", Depth::Named, false),
        ("named_light", "catppuccin-latte", Depth::Named, false),
        ("no_color", "catppuccin-mocha", Depth::None, false),
        ("ascii", "catppuccin-mocha", Depth::None, true),
    ];
    for (name, key, depth, ascii) in families {
        let mut stage = after(failed((100, 24)), "tab enter");
        stage.model.toast("restart is not on offer for this run", true);
        stage.model.theme = Theme::load(key, depth).unwrap();
        stage.model.theme.ascii = ascii;
        insta::assert_snapshot!(format!("theme_{name}"), styled(&stage));
    }
}

/// The frame, and under every line a letter for the style of each cell.
fn styled(stage: &Stage) -> String {
    let (width, height) = stage.model.size;
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(&stage.model, area, &mut buffer);
    let mut letters: BTreeMap<String, char> = BTreeMap::new();
    let mut names = Vec::new();
    let mut out = String::new();
    for (y, line) in stage.frame().lines().enumerate() {
        let mut marks = String::new();
        for x in 0..width {
            let cell = &buffer[(x, y as u16)];
            let style = describe(cell.fg, cell.bg, cell.modifier);
            let next = char::from_u32(u32::from('a') + letters.len() as u32).unwrap();
            marks.push(*letters.entry(style.clone()).or_insert_with(|| {
                names.push(format!("{next}  {style}"));
                next
            }));
        }
        let _ = writeln!(out, "{line}\n{marks}");
    }
    out + "\n" + &names.join("\n") + "\n"
}

fn describe(fg: Color, bg: Color, modifier: Modifier) -> String {
    let mut text = format!("{fg} on {bg}");
    for (name, _) in modifier.iter_names() {
        let _ = write!(text, " {}", name.to_lowercase());
    }
    text
}
