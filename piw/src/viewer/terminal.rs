//! The terminal: entering and leaving the full screen, and making sure that it is always left — on exit, panic, signals and
//! suspension.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use base64::Engine;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture,
};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, queue};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getppid, getsid};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use super::background::QUESTION;
use super::draw::draw;
use super::model::Model;
use super::output;

/// Longest text that is put on the clipboard, in bytes: terminals ignore longer OSC 52 sequences.
const CLIPBOARD: usize = 74_000;

/// Whether the terminal is ours at the moment.
static ENTERED: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    output::open()?;
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    let mut bytes = Vec::new();
    queue!(
        bytes,
        EnterAlternateScreen,
        // A terminal without an alternate screen would show what was there wherever the first frame is blank.
        Clear(ClearType::All),
        cursor::Hide,
        EnableMouseCapture,
        EnableBracketedPaste,
        EnableFocusChange
    )?;
    output::put(&bytes)
}

/// Gives the terminal back. Does nothing when it is not ours; errors cannot be helped any more. A terminal that does not read
/// delays it by little more than a second.
fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut bytes = Vec::new();
        drop(queue!(
            bytes,
            EndSynchronizedUpdate,
            SetAttribute(Attribute::Reset),
            // For terminals without an alternate screen; the others take what is on it away.
            Clear(ClearType::All),
            cursor::MoveTo(0, 0),
            // A pager that was killed may leave the cursor keys and the keypad in their application modes.
            Print("\x1b[?1l\x1b>"),
            DisableFocusChange,
            DisableBracketedPaste,
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show
        ));
        output::finish(&bytes);
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

/// A frame while it is drawn. It goes to the terminal as a whole, so nothing follows of one that a panic cuts off.
#[derive(Clone, Default)]
struct Unsent(Rc<RefCell<Vec<u8>>>);

impl Write for Unsent {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether there is a shell that notices when this job stops, and can continue it. The group of the session's first process
/// has none: `xterm -e piw`, `docker run -it … piw`.
#[must_use]
pub fn can_stop() -> bool {
    let session = getsid(None);
    session.is_ok_and(|session| session != getpgrp() && getsid(Some(getppid())) == Ok(session))
}

/// The screen that we draw on. Dropping it gives the terminal back.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Unsent>>,
    unsent: Unsent,
    /// What goes to the clipboard with the next frame.
    clipboard: Option<String>,
    /// Whether the next frame asks for the background colour.
    asks_ground: bool,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be put into raw mode or opened; it is given back then.
    pub fn open() -> io::Result<Self> {
        install_panic_hook();
        let unsent = Unsent::default();
        let opened = enter().and_then(|()| Terminal::new(CrosstermBackend::new(unsent.clone())));
        match opened {
            Ok(terminal) => Ok(Self {
                terminal,
                unsent,
                clipboard: None,
                asks_ground: false,
            }),
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

    /// Whether the terminal has taken the last frame. While it has not, drawing more would only pile up behind it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        output::is_free()
    }

    /// Waits until the terminal has taken the last frame, or is gone. May return early, once.
    pub async fn freed(&self) {
        output::freed().await;
    }

    /// Sends the cells that differ from the last frame, as one update. Does not wait for the terminal.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn draw(&mut self, model: &Model) -> io::Result<()> {
        self.frame(|frame| draw(model, frame.area(), frame.buffer_mut()))
    }

    fn frame(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let backend = self.terminal.backend_mut();
        if let Some(text) = self.clipboard.take() {
            let encoded = base64::engine::general_purpose::STANDARD.encode(text);
            write!(backend, "\x1b]52;c;{encoded}\x07")?;
        }
        if std::mem::take(&mut self.asks_ground) {
            write!(backend, "{QUESTION}")?;
        }
        queue!(backend, BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        output::put(&self.unsent.0.take())
    }

    /// Asks for the background colour with the next frame; the answer comes among the keys, or never.
    pub const fn ask_ground(&mut self) {
        self.asks_ground = true;
    }

    /// Puts text on the clipboard of whoever shows the terminal, with the next frame; returns whether it was short enough.
    pub fn copy(&mut self, text: String) -> bool {
        let fits = text.len() <= CLIPBOARD;
        if fits {
            self.clipboard = Some(text);
        }
        fits
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

    /// Gives the terminal to another program; the answer is how it was then.
    ///
    /// # Errors
    ///
    /// When the terminal does not say how it is.
    pub fn lend(&mut self) -> io::Result<Termios> {
        leave();
        Ok(tcgetattr(io::stdin())?)
    }

    /// Takes the terminal back from another program, which may have left it in any state.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be taken again.
    pub fn take_back(&mut self, before: &Termios) -> io::Result<()> {
        // At once: waiting until the terminal has read what the program wrote may take for ever.
        tcsetattr(io::stdin(), SetArg::TCSANOW, before)?;
        self.resume()
    }

    /// While the terminal is lent and its program has ended: asks for a key, which comes unbuffered from now on.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn ask_for_key(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        output::put("\r\n— any key goes back to piw —".as_bytes())
    }

    /// Takes the terminal again after the process was stopped, and draws everything anew next time. (`Terminal::clear` would
    /// ask the terminal for the cursor's position and wait for an answer that the event reader takes.)
    ///
    /// # Errors
    ///
    /// When the terminal cannot be taken again.
    pub fn resume(&mut self) -> io::Result<()> {
        enter()?;
        self.terminal = Terminal::new(CrosstermBackend::new(self.unsent.clone()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::num::NonZero;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    /// Set in the process that panics on purpose.
    const PANICS: &str = "PIW_PANICS_ON_THE_SCREEN";

    /// Runs itself in a pseudo-terminal; the copy takes the terminal over and panics.
    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        if std::env::var_os(PANICS).is_some() {
            let mut screen = Screen::open().unwrap();
            screen
                .frame(|frame| {
                    frame.render_widget("half a frame", frame.area());
                    panic!("on purpose");
                })
                .unwrap();
        }
        let size = PtySize {
            rows: 24,
            cols: 80,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        let name = "viewer::terminal::tests::a_panic_gives_the_terminal_back_before_its_message";
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
        command.env(PANICS, "1");
        // A backtrace would push the message off the screen.
        command.env("RUST_BACKTRACE", "0");
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        // The read fails when the program has ended and everything was read.
        while let Ok(count @ 1..) = reader.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..count]);
        }
        assert!(!child.wait().unwrap().success());
        let text = String::from_utf8_lossy(&bytes);
        let entered = text.find("\x1b[?1049h").expect("the screen was taken over");
        let left = text.find("\x1b[?1049l").expect("the screen was given back");
        let message = text.find("on purpose").expect("the message was printed");
        assert!(entered < left && left < message, "{text:?}");
        assert!(
            !text[left..].contains("\x1b[?2026h"),
            "nothing of the frame follows: {text:?}"
        );
        let mut parser = vt100::Parser::new(NonZero::new(24).unwrap(), NonZero::new(80).unwrap(), 0);
        parser.process(&bytes);
        assert!(!parser.screen().alternate_screen() && !parser.screen().hide_cursor());
        assert!(
            parser.screen().contents().contains("on purpose"),
            "the message is readable"
        );
        let flags = pair.master.get_termios().unwrap().local_flags.bits();
        assert_eq!(
            flags & (libc::ICANON | libc::ECHO),
            libc::ICANON | libc::ECHO,
            "the terminal is cooked again"
        );
    }
}
