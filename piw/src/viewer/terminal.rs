//! The terminal: entering and leaving the full screen, and making sure that it is always left — on exit, panic, signals and
//! suspension.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use base64::Engine;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::draw::draw;
use super::model::Model;

/// Longest text that is put on the clipboard, in bytes: terminals ignore longer OSC 52 sequences.
const CLIPBOARD: usize = 74_000;

/// Whether the terminal is ours at the moment.
static ENTERED: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    execute!(
        io::stdout(),
        EnterAlternateScreen,
        cursor::Hide,
        EnableMouseCapture,
        EnableBracketedPaste,
        EnableFocusChange
    )
}

/// Gives the terminal back. Does nothing when it is not ours; errors cannot be helped any more.
fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        drop(execute!(
            io::stdout(),
            EndSynchronizedUpdate,
            DisableFocusChange,
            DisableBracketedPaste,
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show
        ));
        drop(disable_raw_mode());
    }
}

/// Restores the terminal before a panic of this thread is printed. A panic elsewhere is not printed over the screen; whoever
/// waits for that thread reports it.
fn install_panic_hook() {
    let ours: ThreadId = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == ours {
            leave();
            before(info);
        } else if ENTERED.load(Ordering::SeqCst) {
            tracing::error!(panic = %info, "a background task panicked");
        } else {
            before(info);
        }
    }));
}

fn backend() -> CrosstermBackend<BufWriter<Stdout>> {
    CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout()))
}

/// The screen that we draw on. Dropping it gives the terminal back.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be put into raw mode or written to; it is given back then.
    pub fn open() -> io::Result<Self> {
        install_panic_hook();
        let opened = enter().and_then(|()| Terminal::new(backend()));
        match opened {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    /// Columns and rows.
    ///
    /// # Errors
    ///
    /// When the terminal does not say.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        crossterm::terminal::size()
    }

    /// Writes the cells that differ from the last frame, as one update.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal
            .draw(|frame| draw(model, frame.area(), frame.buffer_mut()))?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        self.terminal.backend_mut().flush()
    }

    /// Draws everything anew next time. (`Terminal::clear` would ask the terminal for the cursor's position and wait for an
    /// answer that the event reader takes.)
    fn refresh(&mut self) -> io::Result<()> {
        execute!(self.terminal.backend_mut(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(backend())?;
        Ok(())
    }

    /// Puts text on the clipboard of whoever shows the terminal; returns whether it was short enough.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn copy(&mut self, text: &str) -> io::Result<bool> {
        if text.len() > CLIPBOARD {
            return Ok(false);
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let backend = self.terminal.backend_mut();
        write!(backend, "\x1b]52;c;{encoded}\x07")?;
        backend.flush()?;
        Ok(true)
    }

    /// Gives the terminal back, stops the job, and takes the terminal again when the shell continues it.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be taken again.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        // SIGSTOP instead of SIGTSTP: the latter has a handler while the viewer runs. Group 0 is the whole job, as the shell
        // expects from Ctrl-Z.
        kill(Pid::from_raw(0), Signal::SIGSTOP)?;
        self.resume()
    }

    /// Takes the terminal again after the process was stopped.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be taken again.
    pub fn resume(&mut self) -> io::Result<()> {
        enter()?;
        self.refresh()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}
