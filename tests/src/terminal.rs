//! `piw` in a pseudo-terminal: what a user would see, and pictures of it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};

use crate::home::{Home, piw_binary};

/// `piw` in a pseudo-terminal.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    /// Kept open: the system forgets the modes of a terminal that nobody has open.
    _slave: Box<dyn SlavePty + Send>,
    before: String,
    input: Box<dyn std::io::Write + Send>,
    output: Receiver<(Instant, Vec<u8>)>,
    reading: Arc<Reading>,
    parser: vt100::Parser,
    written: Vec<u8>,
}

/// Whether anybody reads what the program writes.
#[derive(Default)]
struct Reading {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Reading {
    fn set(&self, stopped: bool) {
        *self.stopped.lock().expect("nobody panics with the lock") = stopped;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let stopped = self.stopped.lock().expect("nobody panics with the lock");
        drop(
            self.changed
                .wait_while(stopped, |stopped| *stopped)
                .expect("nobody panics with the lock"),
        );
    }
}

impl Terminal {
    /// Starts `piw` with `arguments` in a terminal of the given size.
    ///
    /// # Panics
    /// When no pseudo-terminal can be made.
    #[must_use]
    pub fn start(home: &Home, arguments: &[&str], rows: u16, cols: u16) -> Self {
        Self::run(Self::command(home, arguments), rows, cols)
    }

    /// `piw` with these arguments in a terminal as people have it, not yet started.
    #[must_use]
    pub fn command(home: &Home, arguments: &[&str]) -> CommandBuilder {
        let mut command = CommandBuilder::new(piw_binary());
        command.args(arguments);
        Self::surround(home, &mut command);
        command
    }

    /// A shell script in such a terminal, not yet started; `$PIW` is the program.
    #[must_use]
    pub fn script(home: &Home, script: &str) -> CommandBuilder {
        let mut command = CommandBuilder::new("/bin/sh");
        command.args(["-c", script]);
        command.env("PIW", piw_binary());
        Self::surround(home, &mut command);
        command
    }

    fn surround(home: &Home, command: &mut CommandBuilder) {
        command.cwd(home.project());
        command.env("HOME", home.project());
        command.env("PIW_STATE_DIR", home.state());
        command.env("TERM", "xterm-256color");
        command.env("COLORTERM", "truecolor");
        for (name, value) in home.environment() {
            command.env(name, value);
        }
    }

    /// Starts a command in a terminal of the given size.
    ///
    /// # Panics
    /// When no pseudo-terminal can be made.
    #[must_use]
    pub fn run(command: CommandBuilder, rows: u16, cols: u16) -> Self {
        let pair = native_pty_system()
            .openpty(PtySize {
                rows,
                cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .expect("a pseudo-terminal");
        let before = discipline(&*pair.master);
        let child = pair.slave.spawn_command(command).expect("the program starts");
        let mut reader = pair.master.try_clone_reader().expect("a reader of the pseudo-terminal");
        let input = pair.master.take_writer().expect("a writer of the pseudo-terminal");
        let (send, output) = channel();
        let reading = Arc::new(Reading::default());
        let may_read = Arc::clone(&reading);
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(count) = reader.read(&mut buffer) {
                if count == 0 || send.send((Instant::now(), buffer[..count].to_vec())).is_err() {
                    break;
                }
                may_read.wait();
            }
        });
        Self {
            child,
            master: pair.master,
            _slave: pair.slave,
            before,
            input,
            output,
            reading,
            parser: vt100::Parser::new(cells(rows), cells(cols), 0),
            written: Vec::new(),
        }
    }

    /// Process id of the viewer.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.child.process_id().and_then(|pid| i32::try_from(pid).ok())
    }

    /// Types bytes.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn send(&mut self, keys: &[u8]) {
        self.input.write_all(keys).expect("the terminal takes input");
    }

    /// Sends a signal to the program.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = self.pid().expect("the program runs");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("the program runs");
    }

    /// Stops reading what the program writes, as a terminal does that is stopped itself. Something that is on its way may
    /// still be read.
    pub fn stop_reading(&self) {
        self.reading.set(true);
    }

    /// Reads again.
    pub fn read_again(&self) {
        self.reading.set(false);
    }

    /// Whether the terminal has no room for what the program writes, and had none for a while.
    ///
    /// # Panics
    /// When the terminal is gone.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let room = PollTimeout::from(150_u8);
        let end = self.open_end();
        let mut watched = [PollFd::new(end.as_fd(), PollFlags::POLLOUT)];
        poll(&mut watched, room).expect("a terminal can be polled") == 0
    }

    /// The program's end of the terminal.
    fn open_end(&self) -> File {
        let name = self.master.tty_name().expect("a pseudo-terminal has a name");
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOCTTY);
        options.open(name).expect("the terminal opens")
    }

    /// Resizes the terminal.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn resize(&mut self, rows: u16, cols: u16) {
        self.master
            .resize(PtySize {
                rows,
                cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .expect("the terminal resizes");
        self.parser.screen_mut().set_size(cells(rows), cells(cols));
    }

    /// The emulated screen with its colours.
    #[must_use]
    pub fn emulated(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Waits until the program has ended and its last output was read; returns its exit code.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub fn wait_for_exit(&mut self) -> u32 {
        let status = crate::wait::until("the program in the terminal ends", || {
            self.child.try_wait().expect("the program can be awaited")
        });
        while let Ok((_, bytes)) = self.output.recv_timeout(Duration::from_millis(200)) {
            self.take(&bytes);
        }
        status.exit_code()
    }

    /// Whether the terminal's line discipline is as it was before anything ran in it.
    #[must_use]
    pub fn is_as_before(&self) -> bool {
        self.discipline() == self.before
    }

    /// The line discipline now, for people.
    #[must_use]
    pub fn discipline(&self) -> String {
        discipline(&*self.master)
    }

    fn take(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
        self.written.extend_from_slice(bytes);
    }

    /// Every byte that the program wrote and that was read so far.
    #[must_use]
    pub fn written(&self) -> &[u8] {
        &self.written
    }

    /// Clicks on the first place that shows `text`.
    ///
    /// # Panics
    /// When the screen does not show it.
    pub fn click(&mut self, text: &str) {
        self.click_at(self.place(text));
    }

    /// Clicks on a cell: column and row, from 1.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn click_at(&mut self, (column, row): (usize, usize)) {
        self.send(format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m").as_bytes());
    }

    /// Turns the wheel over the first place that shows `text`.
    ///
    /// # Panics
    /// When the screen does not show it.
    pub fn wheel(&mut self, text: &str, down: bool) {
        let (column, row) = self.place(text);
        let button = if down { 65 } else { 64 };
        self.send(format!("\x1b[<{button};{column};{row}M").as_bytes());
    }

    /// Column and row, from 1, of the first place that shows `text`.
    ///
    /// # Panics
    /// When the screen does not show it.
    #[must_use]
    pub fn place(&self, text: &str) -> (usize, usize) {
        let screen = self.screen();
        let found = screen.lines().enumerate().find_map(|(row, line)| {
            let (before, _) = line.split_once(text)?;
            Some((before.chars().count() + 1, row + 1))
        });
        found.unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{screen}"))
    }

    /// The text on the screen.
    #[must_use]
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Reads output until `seen` holds of the screen; returns when the bytes that made it so arrived.
    ///
    /// # Panics
    /// When it does not happen within a minute; the message shows the screen.
    pub fn wait(&mut self, what: &str, mut seen: impl FnMut(&str) -> bool) -> Instant {
        let deadline = Instant::now() + crate::wait::DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok((at, bytes)) => {
                    self.take(&bytes);
                    if seen(&self.screen()) {
                        return at;
                    }
                }
                Err(_) => panic!("gave up waiting until {what}; the screen:\n{}", self.screen()),
            }
        }
    }

    /// Waits until a text is on the screen.
    ///
    /// # Panics
    /// When it does not come within a minute.
    pub fn wait_for(&mut self, text: &str) {
        if !self.screen().contains(text) {
            self.wait(&format!("{text:?} is shown"), |screen| screen.contains(text));
        }
    }

    /// Types bytes once the program is at rest; returns the time until the end of the frame that they led to.
    ///
    /// # Panics
    /// When no frame comes within a minute.
    pub fn frame_after(&mut self, keys: &[u8]) -> Duration {
        const END: &[u8] = b"\x1b[?2026l";
        self.settle();
        let begun = Instant::now();
        self.send(keys);
        let mut seen = Vec::new();
        loop {
            let left = (begun + crate::wait::DEADLINE).saturating_duration_since(Instant::now());
            let Ok((at, bytes)) = self.output.recv_timeout(left) else {
                panic!(
                    "no frame after {:?}; the screen:\n{}",
                    String::from_utf8_lossy(keys),
                    self.screen()
                );
            };
            self.take(&bytes);
            seen.extend_from_slice(&bytes);
            if seen.windows(END.len()).any(|window| window == END) {
                return at - begun;
            }
        }
    }

    /// Reads output until none comes for longer than two frames.
    pub fn settle(&mut self) {
        while let Ok((_, bytes)) = self.output.recv_timeout(Duration::from_millis(40)) {
            self.take(&bytes);
        }
    }

    /// Bytes that arrive within `window`.
    #[must_use]
    pub fn bytes_within(&mut self, window: Duration) -> usize {
        let end = Instant::now() + window;
        let mut total = 0;
        while let Ok((_, bytes)) = self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.take(&bytes);
            total += bytes.len();
        }
        total
    }
}

fn cells(count: u16) -> std::num::NonZeroU16 {
    std::num::NonZeroU16::new(count).expect("a terminal has at least one row and column")
}

fn discipline(master: &dyn MasterPty) -> String {
    let modes = master.get_termios().expect("a pseudo-terminal has modes");
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        modes.input_flags, modes.output_flags, modes.control_flags, modes.local_flags, modes.control_chars
    )
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What in the bytes of a program may change a terminal in ways that text must not: control characters beside line ends, invisible
/// and reordering characters, bytes that are no text, and escape sequences. With `screen` the sequences that this program draws
/// with are allowed, and no others.
#[must_use]
pub fn strange(bytes: &[u8], screen: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let length = match first {
            0x1b if screen => match sequence(rest) {
                Some(length) => length,
                None => {
                    let shown = String::from_utf8_lossy(&rest[..rest.len().min(12)])
                        .escape_debug()
                        .to_string();
                    found.push(shown);
                    1
                }
            },
            b'\n' => 1,
            b'\r' if screen => 1,
            0..=0x7f => {
                if first.is_ascii_control() {
                    found.push(format!("{first:#x}"));
                }
                1
            }
            _ => {
                let length = rest.iter().skip(1).take_while(|byte| **byte & 0xc0 == 0x80).count() + 1;
                match std::str::from_utf8(&rest[..length]) {
                    Ok(text) if text.chars().any(is_strange) => found.push(text.escape_unicode().to_string()),
                    Ok(_) => {}
                    Err(_) => found.push(format!("{:x?}", &rest[..length])),
                }
                length
            }
        };
        rest = &rest[length..];
    }
    found.truncate(20);
    found
}

const fn is_strange(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Length of a sequence that moves the cursor, colours, clears, or sets a mode that the viewer uses.
fn sequence(bytes: &[u8]) -> Option<usize> {
    // Ordinary keypad keys, sent on leaving for a pager that was killed.
    if bytes.starts_with(b"\x1b>") {
        return Some(2);
    }
    let body = bytes.strip_prefix(b"\x1b[")?;
    let end = body.iter().position(|byte| (0x40..0x7f).contains(byte))?;
    let (parameters, last) = (std::str::from_utf8(&body[..end]).ok()?, body[end]);
    let numbers = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == ';' || c == ':');
    let known = match (parameters.strip_prefix('?'), last) {
        (Some(modes), b'h' | b'l') => modes.split(';').all(|mode| {
            [
                "1", "7", "25", "1000", "1002", "1003", "1004", "1006", "1015", "1049", "2004", "2026",
            ]
            .contains(&mode)
        }),
        (None, b'm' | b'A'..=b'H' | b'J' | b'K') => numbers(parameters),
        _ => false,
    };
    known.then_some(2 + end + 1)
}
