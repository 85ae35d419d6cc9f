//! The real binary in a pseudo-terminal: whatever ends the viewer, the terminal is as it was.

#![expect(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longest wait for anything; a test that needs it has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const PIW: &str = env!("CARGO_BIN_EXE_piw");

/// A state directory whose server is stopped at the end.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let stop = Command::new(PIW)
            .args(["server", "stop", "--now"])
            .env("PIW_STATE_DIR", self.path())
            .output();
        drop(stop);
    }
}

struct Viewer {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    bytes: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Viewer {
    fn open(place: &Place) -> Self {
        let size = PtySize {
            rows: 40,
            cols: 120,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(PIW);
        command.env("PIW_STATE_DIR", place.path());
        command.env("HOME", place.path());
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (send, bytes) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(count @ 1..) = reader.read(&mut chunk) {
                if send.send(chunk[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pair.master.take_writer().unwrap();
        let (rows, columns) = (NonZero::new(40).unwrap(), NonZero::new(120).unwrap());
        Self {
            master: pair.master,
            child,
            keys,
            bytes,
            screen: vt100::Parser::new(rows, columns, 0),
        }
    }

    /// Reads until the screen satisfies a condition.
    fn until(&mut self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self.screen.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(_) => panic!("never: {what}\n{}", self.screen.screen().contents()),
            }
        }
    }

    fn shown(&mut self) {
        self.until("the run list", |screen| {
            screen.alternate_screen() && screen.contents().contains("no runs yet")
        });
        assert!(!self.is_cooked(), "keys come unbuffered");
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
        self.keys.flush().unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.process_id().unwrap();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    fn is_cooked(&self) -> bool {
        let flags = self.master.get_termios().unwrap().local_flags.bits();
        flags & libc::ICANON != 0 && flags & libc::ECHO != 0
    }

    fn left(&mut self) {
        self.until("the terminal is given back", |screen| {
            !screen.alternate_screen()
                && !screen.hide_cursor()
                && !screen.bracketed_paste()
                && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None
        });
        let deadline = Instant::now() + PATIENCE;
        while !self.is_cooked() {
            assert!(Instant::now() < deadline, "the terminal stays raw");
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_terminal_is_given_back_however_the_viewer_ends() {
    let place = Place::new();
    type End = fn(&mut Viewer);
    let ends: [(&str, End, u32); 4] = [
        ("q", |viewer| viewer.press(b"q"), 0),
        ("ctrl-c", |viewer| viewer.press(b"\x03"), 0),
        ("SIGTERM", |viewer| viewer.signal(Signal::SIGTERM), 143),
        ("SIGHUP", |viewer| viewer.signal(Signal::SIGHUP), 129),
    ];
    for (name, end, code) in ends {
        let mut viewer = Viewer::open(&place);
        viewer.shown();
        end(&mut viewer);
        viewer.left();
        assert_eq!(viewer.child.wait().unwrap().exit_code(), code, "{name}");
    }
}
