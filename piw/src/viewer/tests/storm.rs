//! A hundred thousand random events through the real update and draw: keys, the mouse, sizes, pastes, the clock, and whatever a
//! server can say, in any order and too late. Invariants are checked after every event, the screen after every
//! [`EVENTS_PER_FRAME`]; each frame also goes through the real backend into an emulated terminal, which must show the same.
//!
//! A failure prints the seed and the newest events; `PIW_STORM_SEED` runs that seed again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZero;
use std::rc::Rc;
use std::time::Duration;

use piw_protocol::client::ClientError;
use piw_protocol::ops::OperationError;
use ratatui::backend::CrosstermBackend;
use ratatui::style::Color;
use ratatui::{Terminal, TerminalOptions, Viewport};
use serde_json::Value;
use unicode_segmentation::UnicodeSegmentation as _;

use super::*;
use crate::text::{REPLACEMENT, width};
use crate::viewer::message::{Command, Content};
use crate::viewer::run::Run;
use crate::viewer::screen::Screen;
use crate::viewer::theme::color::Depth;
use crate::viewer::update::{inspector_columns, inspector_rows};

/// Events of one storm; there are five.
const EVENTS: u64 = 20_000;
/// Drawing costs a hundred times as much as an update in a build without optimisation.
const EVENTS_PER_FRAME: u64 = 100;
/// Counting the rows of the inspector is the dearest check of the model.
const EVENTS_PER_COUNT: u64 = 20;
/// Requests that wait for an answer; older ones are never answered.
const WAITING: usize = 48;
/// Newest events that a failure prints.
const REMEMBERED: usize = 40;

/// Text that nobody would want on a terminal as it is.
const HOSTILE: &str = "日本\u{1b}[2J\u{202e}e\u{301}\u{301}\u{301}\u{200b}👩\u{200d}👩\u{fe0f}\t\r\n\u{9b}31m界";

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

struct Storm {
    seed: u64,
    random: Random,
    model: Model,
    /// Asked for and not answered.
    waiting: Vec<Effect>,
    /// The newest events.
    events: VecDeque<String>,
    views: Vec<RunView>,
    /// The newest watch of every host's list.
    generations: Vec<u64>,
    emulated: Emulated,
}

impl Drop for Storm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let events: Vec<&str> = self.events.iter().map(String::as_str).collect();
            eprintln!("PIW_STORM_SEED={} after\n{}", self.seed, events.join("\n"));
        }
    }
}

impl Storm {
    fn over(hosts: &[&str], fixed: bool, views: Vec<RunView>) -> Self {
        let given = std::env::var("PIW_STORM_SEED").ok();
        let seed = given.map_or(4_711, |seed| seed.parse().unwrap());
        let hosts = Hosts::new(&hosts.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let fixed = fixed.then(|| views[0].run_id.clone());
        let theme = Theme::load(super::super::theme::DEFAULT, Depth::True).unwrap();
        let generations = vec![0; hosts.count()];
        let (model, effects) = Model::new(hosts, fixed, theme, (120, 40), fixtures::START + 31_000);
        let mut storm = Self {
            seed,
            random: Random(seed),
            model,
            waiting: Vec::new(),
            events: VecDeque::new(),
            views,
            generations,
            emulated: Emulated::new((120, 40)),
        };
        storm.keep(effects);
        storm
    }

    fn keep(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::WatchRuns { host, generation, .. } = &effect {
                self.generations[host.0] = *generation;
            }
            if self.waiting.len() == WAITING {
                self.waiting.remove(0);
            }
            self.waiting.push(effect);
        }
    }

    fn rage(mut self) {
        for event in 0..EVENTS {
            let message = self.message();
            if self.events.len() == REMEMBERED {
                self.events.pop_front();
            }
            self.events.push_back(short(&message));
            let live = self.model.run.as_ref().is_some_and(Run::is_live);
            let effects = update(&mut self.model, message);
            self.check_effects(&effects, live);
            self.check_model(event % EVENTS_PER_COUNT == 0);
            self.keep(effects);
            if event % EVENTS_PER_FRAME == 0 {
                self.frame();
            }
        }
    }

    fn message(&mut self) -> Message {
        match self.random.below(40) {
            0..16 => self.key(),
            16..24 => self.mouse(),
            24 => self.resize(),
            25 => {
                let text = self
                    .random
                    .one(&["{\"a\": 1}", "line\nline\n\tend", HOSTILE, "", "status:failed"]);
                Message::Terminal(Event::Paste((*text).to_owned()))
            }
            26 => Message::Terminal(self.random.one(&[Event::FocusGained, Event::FocusLost]).clone()),
            27 => {
                // Clocks are also set back.
                let step = *self.random.one(&[16, 300, 1_000, 86_400_000, -5_000]);
                Message::Tick(self.model.now + step)
            }
            28..31 => self.run(),
            31 => self.runs(),
            32 => self.connection(),
            33 => self.spoken(),
            _ => self.answer(),
        }
    }

    fn key(&mut self) -> Message {
        const NAMED: [KeyCode; 18] = [
            KeyCode::Tab,
            KeyCode::BackTab,
            KeyCode::Enter,
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Esc,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::Backspace,
            KeyCode::Delete,
            KeyCode::F(1),
            KeyCode::Null,
        ];
        let code = match self.random.below(10) {
            0..4 => *self.random.one(&NAMED),
            4 => KeyCode::Char(
                *self
                    .random
                    .one(&['é', '日', '\u{301}', '\u{1f469}', '\u{202e}', '\u{7f}']),
            ),
            _ => KeyCode::Char(char::from(b' ' + self.random.below(95) as u8)),
        };
        let modifiers = match self.random.below(12) {
            0 => KeyModifiers::CONTROL,
            1 => KeyModifiers::ALT,
            2 => KeyModifiers::SHIFT,
            _ => KeyModifiers::NONE,
        };
        Message::Terminal(Event::Key(KeyEvent::new(code, modifiers)))
    }

    fn mouse(&mut self) -> Message {
        const KINDS: [MouseEventKind; 9] = [
            MouseEventKind::Down(MouseButton::Left),
            MouseEventKind::Up(MouseButton::Left),
            MouseEventKind::Drag(MouseButton::Left),
            MouseEventKind::Down(MouseButton::Right),
            MouseEventKind::ScrollUp,
            MouseEventKind::ScrollDown,
            MouseEventKind::ScrollLeft,
            MouseEventKind::ScrollRight,
            MouseEventKind::Moved,
        ];
        let (width, height) = self.model.size;
        // Terminals report places outside of the window while it is resized.
        let (column, row) = (
            self.random.below(u64::from(width) + 3),
            self.random.below(u64::from(height) + 3),
        );
        Message::Terminal(Event::Mouse(MouseEvent {
            kind: *self.random.one(&KINDS),
            column: column as u16,
            row: row as u16,
            modifiers: KeyModifiers::NONE,
        }))
    }

    fn resize(&mut self) -> Message {
        const SIZES: [(u16, u16); 11] = [
            (60, 20),
            (80, 24),
            (120, 40),
            (120, 40),
            (250, 80),
            (61, 23),
            (99, 30),
            (100, 21),
            (1, 1),
            (0, 0),
            (0, 30),
        ];
        let (width, height) = match self.random.below(60) {
            // Rare: as dear to draw as thirty others.
            0 => (700, 200),
            1..20 => (40 + self.random.below(160) as u16, 15 + self.random.below(50) as u16),
            _ => *self.random.one(&SIZES),
        };
        Message::Terminal(Event::Resize(width, height))
    }

    /// A view of the run on screen or of another one, or news of its freshness.
    fn run(&mut self) -> Message {
        let mut view = self.random.one(&self.views).clone();
        view.revision += self.random.below(3);
        view.run_revision += self.random.below(2);
        let mut run_id = here(&view.run_id);
        if let Some(run) = self.model.run.as_ref().filter(|_| self.random.below(8) > 0) {
            run_id = run.run_id.clone();
            view.run_id.clone_from(&run_id.id);
        }
        let view = (self.random.below(5) > 0).then(|| Arc::new(view));
        let freshness = self.freshness();
        Message::Run {
            run_id,
            view,
            freshness,
        }
    }

    fn runs(&mut self) -> Message {
        let host = HostId(self.random.below(self.model.hosts.count() as u64) as usize);
        let known = self.generations[host.0];
        let total = *self.random.one(&[0, 1, 7, 40, 300, 10_000]);
        let mut page = run_list(total);
        page.start = self.random.below(total.saturating_sub(page.items.len() as u64) + 1);
        Message::Runs {
            host,
            generation: known.saturating_sub(u64::from(self.random.below(4) == 0)),
            page: (self.random.below(5) > 0).then(|| Arc::new(page)),
            freshness: self.freshness(),
        }
    }

    fn connection(&mut self) -> Message {
        let host = HostId(self.random.below(self.model.hosts.count() as u64 + 1) as usize);
        let state = match self.random.below(6) {
            0 => ConnectionState::Connecting,
            1 => ConnectionState::Reconnecting(self.retry()),
            2 => ConnectionState::Blocked(self.retry()),
            3 => ConnectionState::Stopped(ClientError::Closed),
            _ => connected(),
        };
        Message::Connection { host, state }
    }

    fn retry(&mut self) -> Retry {
        Retry {
            attempt: self.random.below(9) as u32,
            delay: Duration::from_millis(self.random.below(15_000)),
            reason: HOSTILE.repeat(1 + self.random.below(4) as usize),
        }
    }

    fn freshness(&mut self) -> Freshness {
        match self.random.below(12) {
            0 => Freshness::Stale(self.retry()),
            1 => Freshness::Blocked(self.retry()),
            2 => Freshness::Refused(OperationError::new("not_found", HOSTILE.to_owned())),
            3 => Freshness::Opening,
            _ => Freshness::Live,
        }
    }

    /// Something that nobody asked for.
    fn spoken(&mut self) -> Message {
        match self.random.below(4) {
            0 => Message::BadView(format!("run list: {HOSTILE}")),
            1 => Message::NotSaved(HOSTILE.to_owned()),
            2 => Message::Content {
                sha256: "ab".repeat(32),
                result: Err(HOSTILE.to_owned()),
            },
            _ => Message::Decided {
                command: Command::Restart,
                run_id: here("another"),
                result: Err(HOSTILE.to_owned()),
            },
        }
    }

    /// Answers one of the requests, perhaps long after anybody waits for it, perhaps not for the last time.
    fn answer(&mut self) -> Message {
        if self.waiting.is_empty() {
            return self.run();
        }
        let at = self.random.below(self.waiting.len() as u64) as usize;
        let effect = if self.random.below(6) == 0 {
            self.waiting[at].clone()
        } else {
            self.waiting.remove(at)
        };
        let fails = self.random.below(4) == 0;
        let lost = || HOSTILE.to_owned();
        match effect {
            Effect::LayOut { key, graph } => {
                let drawing = Arc::new(super::super::graph::lay_out(&graph.0, key.density, &key.folded));
                Message::Layout { key, drawing }
            }
            Effect::FetchDefinition { run_id, reference } => Message::Definition {
                run_id,
                sha256: reference.sha256,
                result: if fails {
                    Err(lost())
                } else {
                    Ok(Arc::new(fixtures::composed()))
                },
            },
            Effect::FetchPage { run_id, request, .. } => {
                let page = self.page(&run_id.id, &request);
                Message::Page {
                    run_id,
                    request,
                    result: if fails { Err(lost()) } else { Ok(Arc::new(page)) },
                }
            }
            Effect::FetchContent { reference, .. } if self.random.below(3) == 0 => Message::ContentProgress {
                sha256: reference.sha256,
                received: self.random.below(reference.bytes * 2),
            },
            Effect::FetchContent { reference, .. } => Message::Content {
                sha256: reference.sha256,
                result: match self.random.below(3) {
                    0 => Err(lost()),
                    1 => Ok(Content::Text(HOSTILE.repeat(50).into())),
                    _ => Ok(Content::Json(Arc::new(
                        json!({ HOSTILE: [HOSTILE, { "deep": [[[[1]]]] }] }),
                    ))),
                },
            },
            Effect::Command { run_id, command, .. } => {
                let receipt = json!({
                    "runId": run_id.id, "status": "running", "paused": false, "runRevision": 1, "newRunId": "run-0003",
                });
                Message::Decided {
                    command,
                    run_id,
                    result: if fails {
                        Err(lost())
                    } else {
                        Ok(serde_json::from_value(receipt).unwrap())
                    },
                }
            }
            _ => self.runs(),
        }
    }

    /// A page of steps, honest about nothing but its kind.
    fn page(&mut self, run_id: &str, request: &piw_protocol::ops::PageRequest) -> piw_protocol::view::RunPage {
        let view = self.random.one(&self.views).clone();
        let (kind, items) = match request.kind {
            piw_protocol::view::PageKind::Steps => ("steps", serde_json::to_value(&view.state.steps).unwrap()),
            piw_protocol::view::PageKind::NodeTimes => {
                ("node_times", json!([{"nodeId": "test", "runs": 2, "medianMs": 900}]))
            }
            piw_protocol::view::PageKind::Pauses => {
                let times = [json!(view.state.started_at), json!(view.state.updated_at)];
                let (from, to) = (self.random.one(&times).clone(), self.random.one(&times).clone());
                (
                    "pauses",
                    json!([{"kind": "paused", "from": from, "to": to}, {"kind": "waiting", "from": to}]),
                )
            }
            piw_protocol::view::PageKind::TraceAtStep => {
                ("trace_at_step", serde_json::to_value(&view.trace_page.items).unwrap())
            }
            _ => ("trace", serde_json::to_value(&view.trace_page.items).unwrap()),
        };
        let page = json!({
            "schema": "pi-workflows.run-page.v1", "runId": run_id, "kind": kind, "cursor": request.cursor,
            "revision": view.revision, "start": self.random.below(3), "total": view.step_total + self.random.below(3),
            "items": items, "graphSteps": serde_json::to_value(&view.graph_steps).unwrap(),
            "graphCursor": self.random.below(view.step_total + 2),
            "takenTransitions": serde_json::to_value(&view.taken_transitions).unwrap(),
        });
        serde_json::from_value(page).unwrap()
    }

    /// What is asked of the outside is bounded, and nothing stale is acted on.
    fn check_effects(&self, effects: &[Effect], live: bool) {
        let most = 8 + 2 * self.model.hosts.count();
        assert!(effects.len() <= most, "one event caused {effects:?}");
        for effect in effects {
            if let Effect::Command { run_id, .. } = effect {
                let run = self.model.run.as_ref().expect("a command needs a run on screen");
                assert!(
                    live && run.is_live() && run.run_id == *run_id,
                    "{effect:?} of a stale view"
                );
            }
        }
    }

    fn check_model(&self, count: bool) {
        let model = &self.model;
        let browser = &model.browser;
        assert!(
            browser.selected < browser.total().max(1),
            "selected run {}",
            browser.selected
        );
        // The wheel moves the window without the selection.
        assert!(
            browser.top < browser.total().max(1),
            "the window begins after the last run"
        );
        assert!(model.toasts.len() <= 4);
        if let Some(run) = &model.run {
            let nodes = run.graph.as_ref().map_or(0, |graph| graph.nodes.len());
            assert!(model.graph.selected.is_none_or(|node| node < nodes), "selected node");
            assert!(run.cursor.is_none_or(|at| at < run.positions()), "replay position");
        }
        if count {
            let rows = inspector_rows(model);
            if !model.run.as_ref().is_some_and(Run::has_clock) {
                let mut inspector = model.inspector.clone();
                inspector.forget();
                let (columns, run) = (inspector_columns(model), model.run.as_ref());
                let anew = columns.zip(run).map(|(columns, run)| {
                    let built = inspector.build(run, &model.theme, columns, model.now, None);
                    built.rows
                });
                assert!(anew.is_none_or(|anew| anew[..] == rows[..]), "the kept rows are old");
            }
            let rows = rows.len();
            // Nothing is laid out while there is no room for anything.
            if model.screen().is_some() && model.dirty {
                assert!(model.inspector.selected() < rows.max(1), "selected row of {rows}");
            }
        }
    }

    fn frame(&mut self) {
        let Some(buffer) = self.emulated.show(&self.model) else {
            return;
        };
        self.check_cells(&buffer);
        if let Some(screen) = self.model.screen() {
            self.check_borders(&screen, &buffer);
        }
    }

    /// Every cell is one printable grapheme, and nothing lies on the second half of a wide one.
    fn check_cells(&self, buffer: &Buffer) {
        let area = buffer.area;
        for y in 0..area.height {
            let mut x = 0;
            while x < area.width {
                let symbol = buffer[(x, y)].symbol();
                let columns = width(symbol);
                let whole = symbol.graphemes(true).count() == 1 && (1..=2).contains(&columns);
                assert!(
                    whole && !symbol.chars().any(char::is_control),
                    "{symbol:?} at {x},{y} of {}×{}",
                    area.width,
                    area.height
                );
                for hidden in 1..columns as u16 {
                    assert!(x + hidden < area.width, "{symbol:?} at {x},{y} sticks out");
                    let behind = buffer[(x + hidden, y)].symbol();
                    assert_eq!(behind, " ", "{symbol:?} at {x},{y} is torn");
                }
                x += columns as u16;
            }
        }
    }

    /// The corners of whatever lies on top are whole.
    fn check_borders(&self, screen: &Screen, buffer: &Buffer) {
        let area = buffer.area;
        let boxes: Vec<Rect> = match &self.model.popup {
            Some(popup) => vec![popup.area(area)],
            None if self.model.toasts.is_empty() => {
                [screen.browser.unwrap_or_default(), screen.graph, screen.inspector].to_vec()
            }
            None => Vec::new(),
        };
        for place in boxes.into_iter().filter(|place| place.area() > 0) {
            assert_eq!(place.intersection(area), place, "a box is larger than the screen");
            let corner = |x, y, glyphs: &str| {
                let found = buffer[(x, y)].symbol();
                assert!(glyphs.contains(found), "{found:?} in the corner {x},{y} of {place:?}");
            };
            corner(place.x, place.y, "╭");
            corner(place.right() - 1, place.y, "╮");
            corner(place.x, place.bottom() - 1, "╰");
            corner(place.right() - 1, place.bottom() - 1, "╯");
        }
    }
}

/// A message in a line.
fn short(message: &Message) -> String {
    let text = match message {
        Message::Run {
            run_id,
            view,
            freshness,
        } => {
            let status = view.as_ref().map(|view| view.display.status);
            format!("Run {} {status:?} {freshness:?}", run_id.id)
        }
        Message::Runs { page, generation, .. } => {
            let page = page.as_ref().map(|page| (page.start, page.items.len(), page.total));
            format!("Runs {generation} {page:?}")
        }
        Message::Page { request, result, .. } => format!("Page {request:?} {}", result.is_ok()),
        Message::Definition { result, .. } => format!("Definition {}", result.is_ok()),
        Message::Layout { key, .. } => format!("Layout {key:?}"),
        other => format!("{other:?}"),
    };
    text.chars().take(200).collect()
}

/// What the emulated terminal shows for [`REPLACEMENT`].
const STAND_IN: &str = "¿";

/// Takes the bytes of the real backend.
#[derive(Clone)]
struct Wire(Rc<RefCell<vt100::Parser>>);

impl std::io::Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The emulator leaves out replacement characters, which terminals show.
        let text = String::from_utf8_lossy(bytes).replace(REPLACEMENT, STAND_IN);
        self.0.borrow_mut().process(text.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The real backend and the terminal at its end.
struct Emulated {
    terminal: Terminal<CrosstermBackend<Wire>>,
    wire: Wire,
}

impl Emulated {
    fn new((width, height): (u16, u16)) -> Self {
        let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
        let cells = |count: u16| NonZero::new(count.max(1)).unwrap();
        let parser = vt100::Parser::new(cells(height), cells(width), 0);
        let wire = Wire(Rc::new(RefCell::new(parser)));
        let backend = CrosstermBackend::new(wire.clone());
        let terminal = Terminal::with_options(backend, TerminalOptions { viewport }).unwrap();
        Self { terminal, wire }
    }

    /// Draws what changed, compares every cell and returns them; there may be none.
    fn show(&mut self, model: &Model) -> Option<Buffer> {
        let (width, height) = model.size;
        let area = Rect::new(0, 0, width, height);
        if area.area() == 0 {
            return None;
        }
        if self.terminal.get_frame().area() != area {
            *self = Self::new(model.size);
        }
        let frame = self
            .terminal
            .draw(|frame| draw(model, frame.area(), frame.buffer_mut()))
            .unwrap();
        let buffer = frame.buffer.clone();
        let parser = self.wire.0.borrow();
        let screen = parser.screen();
        for y in 0..height {
            let mut x = 0;
            while x < width {
                let cell = &buffer[(x, y)];
                let shown = screen.cell(y, x).unwrap();
                let text = if shown.has_contents() { shown.contents() } else { " " };
                assert_eq!(
                    text,
                    cell.symbol().replace(REPLACEMENT, STAND_IN),
                    "at {x},{y} of {width}×{height}"
                );
                let colors = (shown.fgcolor(), shown.bgcolor());
                assert_eq!(colors, (color(cell.fg), color(cell.bg)), "{text:?} at {x},{y}");
                x += (crate::text::width(cell.symbol()) as u16).max(1);
            }
        }
        Some(buffer)
    }
}

fn color(color: Color) -> vt100::Color {
    match color {
        Color::Reset => vt100::Color::Default,
        Color::Rgb(r, g, b) => vt100::Color::Rgb(r, g, b),
        Color::Indexed(index) => vt100::Color::Idx(index),
        Color::Black => vt100::Color::Idx(0),
        Color::Red => vt100::Color::Idx(1),
        Color::Green => vt100::Color::Idx(2),
        Color::Yellow => vt100::Color::Idx(3),
        Color::Blue => vt100::Color::Idx(4),
        Color::Magenta => vt100::Color::Idx(5),
        Color::Cyan => vt100::Color::Idx(6),
        Color::Gray => vt100::Color::Idx(7),
        Color::DarkGray => vt100::Color::Idx(8),
        Color::LightRed => vt100::Color::Idx(9),
        Color::LightGreen => vt100::Color::Idx(10),
        Color::LightYellow => vt100::Color::Idx(11),
        Color::LightBlue => vt100::Color::Idx(12),
        Color::LightMagenta => vt100::Color::Idx(13),
        Color::LightCyan => vt100::Color::Idx(14),
        Color::White => vt100::Color::Idx(15),
    }
}

/// A run whose texts are all hostile and whose values are content.
fn hostile(fixture: &RunFixture) -> RunView {
    let mut view = fixture.view();
    view.state.run_title = Some(HOSTILE.repeat(9));
    view.display.reason = Some(HOSTILE.repeat(9));
    let mut value = serde_json::to_value(&view).unwrap();
    for step in value["state"]["steps"].as_array_mut().unwrap() {
        let sha256 = "cd".repeat(32);
        step["output"] = json!({"$artifact": {
            "path": format!("artifacts/sha256/{sha256}.json"), "mediaType": "application/json", "bytes": 20_000,
            "sha256": sha256,
        }});
        step["statusDetail"] = json!(HOSTILE);
        step["prompt"] = json!(HOSTILE.repeat(30));
    }
    serde_json::from_value(value).unwrap()
}

/// A run through many nodes with loops and branches.
fn big() -> RunView {
    let count = 90;
    let nodes: Vec<String> = (0..count)
        .map(|at| format!("{}:node-{at}", ["c", "s", "f", "k"][at % 4]))
        .collect();
    let edges: Vec<String> = (0..count - 1)
        .map(|at| match at % 7 {
            3 => format!("node-{at}>on=node-{},skip=node-{}", at + 1, (at + 5).min(count - 1)),
            5 => format!("node-{at}>on=node-{},back=node-{}", at + 1, at.saturating_sub(4)),
            _ => format!("node-{at}>node-{}", at + 1),
        })
        .collect();
    let mut view = RunFixture {
        definition: fixtures::definition("big", &nodes.join(" "), &edges.join(" ")),
        visits: "node-0 node-1 node-2 node-3:failed",
        current: Some("node-4"),
        status: "running",
        controls: &["pause", "cancel"],
    }
    .view();
    view.state.definition_digest = Some(format!("sha256:{}", "be".repeat(32)));
    view
}

/// A run whose definition is content.
fn referring() -> RunView {
    let mut value: Value = serde_json::to_value(fixtures::failed().view()).unwrap();
    let sha256 = "ef".repeat(32);
    let reference = json!({"$artifact": {
        "path": format!("artifacts/sha256/{sha256}.json"), "mediaType": "application/json", "bytes": 40_000, "sha256": sha256,
    }});
    value["workflow"] = json!({"name": "release-check", "startAt": "inspect", "nodeTotal": 10, "content": reference});
    value["state"]["definitionDigest"] = json!(format!("sha256:{sha256}"));
    serde_json::from_value(value).unwrap()
}

#[test]
fn over_no_and_many_runs() {
    Storm::over(
        &[],
        false,
        vec![fixtures::running().view(), referring(), fixtures::failed().view()],
    )
    .rage();
}

#[test]
fn over_a_waiting_and_an_ambiguous_run() {
    Storm::over(&[], true, vec![fixtures::waiting().view(), fixtures::ambiguous()]).rage();
}

#[test]
fn over_a_big_graph() {
    Storm::over(&[], true, vec![big(), fixtures::failed().view()]).rage();
}

#[test]
fn over_hostile_texts() {
    let views = [fixtures::running(), fixtures::failed(), fixtures::waiting()];
    Storm::over(&[HOSTILE], false, views.iter().map(hostile).collect()).rage();
}

#[test]
fn over_several_hosts() {
    let views = vec![
        fixtures::running().view(),
        fixtures::ambiguous(),
        hostile(&fixtures::failed()),
    ];
    Storm::over(&["build", "gpu-large-west", HOSTILE], false, views).rage();
}
