//! The whole state of the viewer as plain data. [`super::update`] is the only writer, [`super::draw`] the only reader.

use super::action::Action;
use super::background::Answers;
use super::browser::Browser;
use super::clock::Millis;
use super::config::Config;
use super::external::Program;
use super::graph_panel::GraphPanel;
use super::hosts::{HostId, Hosts, RunId};
use super::inspector::Inspector;
use super::inspector::rows::Hints;
use super::keymap::KeyMap;
use super::message::Effect;
use super::popup::Popup;
use super::run::Run;
use super::screen::{self, BrowserSize, Part, Screen, Wishes};
use super::theme::Theme;
use super::theme::choice::Choice;
use super::timeline::Playback;

/// How long a toast stays.
pub const TOAST: Millis = 6_000;

/// The same with a column for the host.
const WIDE_SIDEBAR: u16 = 44;

/// A short notice in a corner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toast {
    /// Text, neutralised.
    pub text: String,
    /// Whether it reports a failure.
    pub bad: bool,
    /// When it disappears.
    pub until: Millis,
}

/// A value that another program will show once it was fetched and verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Digest of the content.
    pub sha256: String,
    /// Which part of it; none is all.
    pub part: Option<&'static str>,
    /// What it is called.
    pub name: String,
    /// What shows it.
    pub program: Program,
}

/// What helps now: a key, and a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The key, or several with spaces between.
    pub keys: String,
    /// What it does, in a word.
    pub text: &'static str,
    /// What a click does.
    pub action: Action,
}

/// What is being dragged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drag {
    /// The graph, from this cell.
    Graph(u16, u16),
    /// The playhead.
    Playhead,
    /// The browser's right border.
    Sidebar,
    /// The border between graph and inspector.
    Split,
}

/// The viewer's state.
#[derive(Debug)]
pub struct Model {
    /// Terminal size.
    pub size: (u16, u16),
    /// The present, as far as the model knows.
    pub now: Millis,
    /// Colours and glyphs.
    pub theme: Theme,
    /// Which theme is chosen, and what that depends on.
    pub choice: Choice,
    /// Whether the terminal is asked for its ground.
    pub asks_ground: bool,
    /// Picks the terminal's answers out of the keys.
    pub answers: Answers,
    /// Which key does what.
    pub keys: KeyMap,
    /// What the configuration file says that cannot be used.
    pub problems: Vec<String>,
    /// The run that the viewer is fixed on.
    pub fixed: Option<RunId>,
    /// The watched servers.
    pub hosts: Hosts,
    /// How the screen is divided.
    pub wishes: Wishes,
    /// The focused part.
    pub focus: Part,
    /// The run list.
    pub browser: Browser,
    /// The run on screen.
    pub run: Option<Run>,
    /// The graph panel.
    pub graph: GraphPanel,
    /// The inspector.
    pub inspector: Inspector,
    /// Playback.
    pub playback: Playback,
    /// When playback moves next.
    pub play_at: Millis,
    /// What another program shows as soon as its content is here.
    pub opening: Option<Opening>,
    /// What lies over the screen.
    pub popup: Option<Popup>,
    /// Notices, newest last.
    pub toasts: Vec<Toast>,
    /// What is being dragged.
    pub drag: Option<Drag>,
    /// Whether the next frame differs from the last one.
    pub dirty: bool,
}

impl Model {
    /// The state before anything is known, and what to do first.
    #[must_use]
    pub fn new(
        hosts: Hosts,
        fixed: Option<String>,
        theme: Theme,
        size: (u16, u16),
        now: Millis,
    ) -> (Self, Vec<Effect>) {
        // A run is fixed only where there is one host.
        let fixed = fixed.map(|id| RunId {
            host: HostId::default(),
            id,
        });
        let browser = if fixed.is_some() {
            BrowserSize::Hidden
        } else {
            BrowserSize::Auto
        };
        let mut model = Self {
            size,
            now,
            choice: Choice::of(&theme),
            asks_ground: false,
            answers: Answers::default(),
            theme,
            keys: KeyMap::default(),
            problems: Vec::new(),
            wishes: Wishes {
                browser,
                sidebar: if hosts.several() { WIDE_SIDEBAR } else { 0 },
                inspector: 0,
                zoom: None,
            },
            focus: if fixed.is_some() { Part::Graph } else { Part::Browser },
            browser: Browser::new(hosts.count(), u64::from(size.1)),
            hosts,
            run: fixed.clone().map(Run::new),
            graph: GraphPanel::default(),
            inspector: Inspector::default(),
            playback: Playback::default(),
            play_at: 0,
            opening: None,
            popup: None,
            toasts: Vec::new(),
            drag: None,
            dirty: true,
            fixed,
        };
        let effects = match &model.fixed {
            Some(run_id) => vec![Effect::WatchRun(Some(run_id.clone()))],
            None => model.browser.watch(&model.hosts, now),
        };
        (model, effects)
    }

    /// Takes over sizes from the configuration file and shows what is wrong with it.
    pub fn configure(&mut self, config: &Config, problems: &[String]) {
        if let Some(width) = config.sidebar_width {
            self.wishes.sidebar = width;
        }
        if let Some(size) = config.inspector_height {
            self.wishes.inspector = size;
        }
        let (keys, unusable) = KeyMap::configured(&config.keys);
        self.inspector.hints = Hints::of(&keys);
        self.keys = keys;
        self.problems = problems.iter().cloned().chain(unusable).collect();
        match self.problems.clone().as_slice() {
            [] => {}
            [problem] => self.toast(&format!("configuration: {problem}"), true),
            [first, ..] => {
                let count = self.problems.len();
                let more = match self.keys.shown(Action::Help) {
                    Some(key) => format!("{key} shows all {count}"),
                    None => format!("{count} in all"),
                };
                self.toast(&format!("configuration: {first} ({more})"), true);
            }
        }
    }

    /// Where everything is; `None` when the terminal is too small.
    #[must_use]
    pub fn screen(&self) -> Option<Screen> {
        screen::divide(self.size.0, self.size.1, self.wishes)
    }

    /// Visible rows of the browser.
    #[must_use]
    pub fn browser_rows(&self) -> u64 {
        let area = self.screen().and_then(|screen| screen.browser);
        area.map_or(1, |area| u64::from(self.browser.rows_area(area).height).max(1))
    }

    /// Shows a notice.
    pub fn toast(&mut self, text: &str, bad: bool) {
        self.toasts.retain(|toast| toast.text != text);
        if self.toasts.len() == 4 {
            self.toasts.remove(0);
        }
        let text = crate::text::clean(text).into_owned();
        self.toasts.push(Toast {
            text,
            bad,
            until: self.now + TOAST,
        });
        self.dirty = true;
    }

    /// When the screen changes next by itself, in milliseconds from now; `None` while nothing does.
    #[must_use]
    pub fn next_tick(&self) -> Option<Millis> {
        let toast = self.toasts.iter().map(|toast| (toast.until - self.now).max(1)).min();
        let play = self.playback.playing.then(|| (self.play_at - self.now).max(1));
        let in_browser = self
            .screen()
            .is_some_and(|screen| screen.browser.is_some() && !screen.rail)
            && self.browser.has_clock(self.browser_rows());
        let clock =
            (in_browser || self.run.as_ref().is_some_and(Run::has_clock)).then(|| 1000 - self.now.rem_euclid(1000));
        let ages = self.browser.refresh_at().map(|at| (at - self.now).max(1));
        [toast, play, clock, ages].into_iter().flatten().min()
    }

    /// What the keys do now, most useful first.
    #[must_use]
    pub fn hints(&self) -> Vec<Hint> {
        let mut helpful: Vec<(Action, &'static str)> = Vec::new();
        if let Some(run) = &self.run {
            // The way back comes first: what a control does is done to the run as it is now.
            if run.cursor.is_some() {
                helpful.push((Action::Live, "live"));
            }
            let controls = [
                (Action::Answer, "answer"),
                (Action::Review, "review"),
                (Action::Pause, "pause"),
                (Action::Resume, "resume"),
                (Action::Cancel, "cancel"),
                (Action::Restart, "restart"),
            ];
            helpful.extend(controls.into_iter().filter(|(_, control)| run.offers(control)));
        }
        match self.focus {
            Part::Browser => helpful.extend([(Action::Search, "filter"), (Action::Open, "open")]),
            Part::Graph => helpful.extend([
                (Action::NextDensity, "density"),
                (Action::Follow, "follow"),
                (Action::Open, "inspect"),
            ]),
            Part::Inspector => helpful.extend([
                (Action::Open, "open"),
                (Action::Page, "pager"),
                (Action::Search, "search"),
                (Action::NextTab, "tab"),
            ]),
        }
        helpful.extend([
            (Action::StepBack, "step"),
            (Action::NextPart, "focus"),
            (Action::Help, "help"),
            (Action::Quit, "quit"),
        ]);
        let hint = |(action, text)| {
            let mut keys = self.keys.shown(action)?.to_owned();
            // Back and forward are one hint; a click goes back.
            if action == Action::StepBack
                && let Some(forward) = self.keys.shown(Action::StepForward)
            {
                keys = format!("{keys} {forward}");
            }
            Some(Hint { keys, text, action })
        };
        helpful.into_iter().filter_map(hint).collect()
    }
}
