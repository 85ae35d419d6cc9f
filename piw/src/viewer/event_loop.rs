//! The loop: waits for something to happen, lets all that has happened change the model, then draws, at the pace of [`Pace`] and
//! not before the terminal has taken the frame before. While nothing happens it waits; it polls nothing.

use std::io;
use std::task::Poll;
use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures_util::{FutureExt, StreamExt};
use nix::sys::signal as unix;
use nix::unistd::Pid;
use piw_protocol::client::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::clock;
use super::config;
use super::external::{self, Prepared, Program};
use super::hosts::Hosts;
use super::message::{Effect, Message};
use super::model::Model;
use super::outside::Outside;
use super::pace::Pace;
use super::terminal::{Screen, can_stop};
use super::theme::choice::{self, Choice};
use super::theme::{self, Appearance, color::Depth};
use super::update::update;

/// How the viewer is opened.
#[derive(Debug, Clone)]
pub struct ViewerOptions {
    /// The servers with their names, at least one; of one alone the name is not shown.
    pub hosts: Vec<(String, Client)>,
    /// The run to stay on, when there is one server; none shows all runs.
    pub run_id: Option<String>,
    /// Key of a theme; none takes `PIW_THEME`, else the default.
    pub theme: Option<String>,
    /// Draws ASCII characters only.
    pub ascii: bool,
}

/// How the viewer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The user left it.
    Quit,
    /// A signal ended it.
    Signal(i32),
}

/// Why there is no viewer any more although nobody ended it.
#[derive(Debug, thiserror::Error)]
pub enum ViewerError {
    /// There is no terminal to draw on.
    #[error("the viewer needs a terminal: standard {0} is not one (for plain text use --once)")]
    NotATerminal(&'static str),
    /// The terminal says of itself that it cannot place its cursor.
    #[error(
        "the viewer needs a terminal that can place its cursor, and TERM says that this one is dumb (for plain text use piw ps, or --once with a run)"
    )]
    Dumb,
    /// The terminal failed.
    #[error("the terminal failed: {0}")]
    Terminal(#[from] io::Error),
    /// The theme is not usable.
    #[error("{0}")]
    Theme(String),
}

/// Shows the viewer until the user quits or a signal ends it. The terminal is restored on every way out.
///
/// # Errors
///
/// When there is no usable terminal or no such theme.
pub async fn run(options: ViewerOptions) -> Result<Ended, ViewerError> {
    use std::io::IsTerminal;
    if !io::stdout().is_terminal() {
        return Err(ViewerError::NotATerminal("output"));
    }
    if !io::stdin().is_terminal() {
        return Err(ViewerError::NotATerminal("input"));
    }
    let var = |name: &str| std::env::var(name).ok();
    if var("TERM").is_some_and(|term| term == "dumb") {
        return Err(ViewerError::Dumb);
    }
    let config = config::path(var).map(|path| config::load(&path)).unwrap_or_default();
    let mut problems = config.problems.clone();
    let depth = Depth::detect(var);
    let (ground, settled) = choice::ground(var).unwrap_or_else(|problem| {
        problems.push(problem);
        (Appearance::Dark, false)
    });
    let pinned = options.theme.or_else(|| var("PIW_THEME").filter(|key| !key.is_empty()));
    let is_pinned = pinned.is_some();
    let choice = Choice::new(pinned, config.theme.clone(), ground, depth, options.ascii);
    let theme = match choice.theme() {
        Ok(theme) => theme,
        Err(error) if is_pinned => return Err(ViewerError::Theme(error)),
        Err(error) => {
            problems.push(error);
            choice.load(theme::DEFAULT).map_err(ViewerError::Theme)?
        }
    };
    let (names, clients): (Vec<String>, Vec<Client>) = options.hosts.into_iter().unzip();
    // From here on no signal ends the process before the terminal is given back.
    let signals = Signals::new()?;
    let screen = Screen::open()?;
    let size = screen.size()?;
    let (mut model, effects) = Model::new(Hosts::new(&names), options.run_id, theme, size, clock::now());
    model.configure(&config, &problems);
    model.asks_ground = choice.follows_ground() && !settled;
    model.choice = choice;
    let (outside, inbox) = Outside::new(clients);
    let mut viewer = Viewer {
        model,
        screen,
        outside,
        pace: Pace::default(),
    };
    for effect in effects {
        viewer.outside.start(effect);
    }
    if viewer.model.asks_ground {
        viewer.screen.ask_ground();
    }
    Ok(viewer.turn(inbox, signals).await?)
}

/// Whether the loop goes on.
#[derive(PartialEq)]
enum Next {
    Continue,
    End,
    /// After another program has shown a file.
    Show(Prepared),
}

/// The signals that concern a viewer.
struct Signals {
    ending: [(i32, Signal); 4],
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let listen = |number| Ok::<_, io::Error>((number, signal(SignalKind::from_raw(number))?));
        Ok(Self {
            ending: [
                listen(libc::SIGTERM)?,
                listen(libc::SIGHUP)?,
                listen(libc::SIGINT)?,
                listen(libc::SIGQUIT)?,
            ],
            stop: listen(libc::SIGTSTP)?.1,
            go_on: listen(libc::SIGCONT)?.1,
        })
    }

    /// Drops what keys have sent until now.
    async fn forget_keys(&mut self) {
        tokio::task::yield_now().await;
        let [_, _, interrupt, quit] = &mut self.ending;
        while interrupt.1.recv().now_or_never().is_some() || quit.1.recv().now_or_never().is_some() {}
    }

    /// The number of the next one.
    async fn next(&mut self) -> i32 {
        let [terminate, hangup, interrupt, quit] = &mut self.ending;
        tokio::select! {
            biased;
            _ = terminate.1.recv() => terminate.0,
            _ = hangup.1.recv() => hangup.0,
            _ = interrupt.1.recv() => interrupt.0,
            _ = quit.1.recv() => quit.0,
            _ = self.stop.recv() => libc::SIGTSTP,
            _ = self.go_on.recv() => libc::SIGCONT,
        }
    }
}

struct Viewer {
    model: Model,
    screen: Screen,
    outside: Outside,
    pace: Pace,
}

impl Viewer {
    async fn turn(&mut self, mut inbox: mpsc::Receiver<Message>, mut signals: Signals) -> io::Result<Ended> {
        let mut events = EventStream::new();
        loop {
            self.draw_when_due()?;
            let free = self.screen.is_free();
            let wake = self.wake(free);
            let blocked = self.model.dirty && !free;
            let mut next = tokio::select! {
                biased;
                signal = signals.next() => match signal {
                    libc::SIGTSTP => {
                        self.suspend()?;
                        Next::Continue
                    }
                    libc::SIGCONT => {
                        self.screen.resume()?;
                        self.measure()?;
                        self.take(Message::Terminal(Event::FocusGained))?
                    }
                    signal => return Ok(Ended::Signal(signal)),
                },
                event = events.next() => match event {
                    Some(Ok(event)) => self.take(Message::Terminal(event))?,
                    Some(Err(error)) => return Err(error),
                    None => Next::End,
                },
                message = inbox.recv() => match message {
                    Some(message) => self.take(message)?,
                    None => Next::End,
                },
                () = self.screen.freed(), if blocked => Next::Continue,
                () = wait(wake) => Next::Continue,
            };
            // All that has happened meanwhile belongs to the same frame.
            while next == Next::Continue {
                if let Some(Ok(event)) = ready(&mut events).await {
                    next = self.take(Message::Terminal(event))?;
                } else if let Ok(message) = inbox.try_recv() {
                    next = self.take(message)?;
                } else {
                    break;
                }
            }
            match next {
                Next::Continue => {}
                Next::End => return Ok(Ended::Quit),
                Next::Show(prepared) => {
                    // Two readers of one terminal would share the keys between them.
                    drop(events);
                    if let Some(ended) = self.show(&prepared, &mut signals, &mut inbox).await? {
                        return Ok(ended);
                    }
                    events = EventStream::new();
                }
            }
        }
    }

    /// When to wake up without anything happening: for a frame that was put off, or for a clock on screen. A frame that the
    /// terminal has no room for is drawn when it has.
    fn wake(&self, free: bool) -> Option<Instant> {
        if self.model.dirty {
            return free.then(|| self.pace.due().unwrap_or_else(Instant::now));
        }
        self.model
            .next_tick()
            .map(|millis| Instant::now() + Duration::from_millis(millis.unsigned_abs()))
    }

    fn draw_when_due(&mut self) -> io::Result<()> {
        let now = clock::now();
        if self.model.next_tick().is_some() || self.model.dirty {
            for effect in update(&mut self.model, Message::Tick(now)) {
                self.outside.start(effect);
            }
        }
        let due = self.pace.due().is_none_or(|due| due <= Instant::now());
        if self.model.dirty && due && self.screen.is_free() {
            self.screen.draw(&self.model)?;
            self.model.dirty = false;
            self.pace.drawn(Instant::now());
        }
        Ok(())
    }

    /// Gives the terminal to the program that shows a file, and takes it back when that ends. The model goes on taking what
    /// the servers send. Returns how the viewer ended, when a signal did that meanwhile.
    async fn show(
        &mut self,
        prepared: &Prepared,
        signals: &mut Signals,
        inbox: &mut mpsc::Receiver<Message>,
    ) -> io::Result<Option<Ended>> {
        let command = prepared.program.command(|name| std::env::var(name).ok());
        let before = self.screen.lend()?;
        let started = Instant::now();
        let complaint = match external::start(&command, &prepared.file) {
            Err(error) => Some(format!("{command:?} cannot be started: {error}")),
            Ok(mut child) => loop {
                tokio::select! {
                    status = child.wait() => break external::complaint(&command, status?),
                    signal = signals.next() => match signal {
                        // The keys that send these belong to the program, which has received them too.
                        libc::SIGINT | libc::SIGQUIT | libc::SIGCONT => {}
                        // The whole job stops, so that the shell gets its turn.
                        libc::SIGTSTP if !can_stop() => {}
                        libc::SIGTSTP => unix::raise(unix::Signal::SIGSTOP)?,
                        signal => {
                            end(&mut child).await;
                            drop(self.screen.take_back(&before));
                            return Ok(Some(Ended::Signal(signal)));
                        }
                    },
                    Some(message) = inbox.recv() => drop(self.take(message)?),
                }
            },
        };
        signals.forget_keys().await;
        if complaint.is_none() && prepared.program == Program::Pager && started.elapsed() < external::AT_ONCE {
            self.screen.ask_for_key()?;
            let mut events = EventStream::new();
            loop {
                tokio::select! {
                    signal = signals.next() => if !matches!(signal, libc::SIGTSTP | libc::SIGCONT) {
                        self.screen.take_back(&before)?;
                        return Ok(Some(Ended::Signal(signal)));
                    },
                    event = events.next() => match event {
                        Some(Ok(Event::Key(_))) | None => break,
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(error),
                    },
                }
            }
        }
        self.screen.take_back(&before)?;
        self.measure()?;
        if let Some(complaint) = complaint {
            self.model.toast(&complaint, true);
        }
        Ok(None)
    }

    /// Takes the terminal's size: who is stopped or has lent the terminal hears nothing of its changes.
    fn measure(&mut self) -> io::Result<()> {
        let (width, height) = self.screen.size()?;
        self.take(Message::Terminal(Event::Resize(width, height))).map(drop)
    }

    /// Stops the job, when somebody can continue it.
    fn suspend(&mut self) -> io::Result<()> {
        if can_stop() {
            self.screen.suspend()?;
            self.measure()?;
        } else {
            self.model.toast("there is no shell that could continue piw", true);
        }
        self.model.dirty = true;
        Ok(())
    }

    fn take(&mut self, message: Message) -> io::Result<Next> {
        let mut next = Next::Continue;
        self.model.now = clock::now();
        for effect in update(&mut self.model, message) {
            match effect {
                Effect::Quit => return Ok(Next::End),
                Effect::AskGround => {
                    self.screen.ask_ground();
                    self.model.dirty = true;
                }
                Effect::Suspend => self.suspend()?,
                Effect::Copy(text) => {
                    if !self.screen.copy(text) {
                        self.model.toast("too long for the clipboard", true);
                    }
                    self.model.dirty = true;
                }
                Effect::Show(prepared) => next = Next::Show(prepared),
                effect => self.outside.start(effect),
            }
        }
        Ok(next)
    }
}

/// Ends the program that has the terminal, as the viewer itself was ended; it has a moment to leave the terminal tidy.
async fn end(child: &mut tokio::process::Child) {
    const MOMENT: Duration = Duration::from_secs(1);
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid {
        let _ = unix::kill(Pid::from_raw(pid), unix::Signal::SIGTERM);
        if tokio::time::timeout(MOMENT, child.wait()).await.is_err() {
            drop(child.kill().await);
        }
    }
}

/// An event that is there already. The stream is polled as part of this task: its reader remembers the first waker it is
/// given until an event comes, so a poll with any other waker would lose the next event.
async fn ready(events: &mut EventStream) -> Option<io::Result<Event>> {
    std::future::poll_fn(|context| {
        Poll::Ready(match events.poll_next_unpin(context) {
            Poll::Ready(event) => event,
            Poll::Pending => None,
        })
    })
    .await
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
