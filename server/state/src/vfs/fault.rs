//! What goes wrong, when, and for how long; and its text form for the environment.

use std::fmt;
use std::str::FromStr;

use rusqlite::ffi;

use super::backing::Code;

/// An operation on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum On {
    /// Opening.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Cutting.
    Truncate,
    /// Syncing.
    Sync,
    /// Deleting.
    Delete,
    /// Taking the lock that writing needs.
    Lock,
}

impl On {
    const ALL: [(&'static str, Self); 7] = [
        ("open", Self::Open),
        ("read", Self::Read),
        ("write", Self::Write),
        ("truncate", Self::Truncate),
        ("sync", Self::Sync),
        ("delete", Self::Delete),
        ("lock", Self::Lock),
    ];

    /// How SQLite calls an I/O error of this operation.
    const fn io_error(self) -> Code {
        match self {
            Self::Open => ffi::SQLITE_CANTOPEN,
            Self::Read => ffi::SQLITE_IOERR_READ,
            Self::Write => ffi::SQLITE_IOERR_WRITE,
            Self::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Delete => ffi::SQLITE_IOERR_DELETE,
            Self::Lock => ffi::SQLITE_IOERR_LOCK,
        }
    }

    /// Whether it changes the file.
    const fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Lock)
    }
}

/// Which of a database's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Which {
    /// The database itself.
    Database,
    /// Its write-ahead log.
    Wal,
    /// Its rollback journal.
    Journal,
}

impl Which {
    const ALL: [(&'static str, Self); 3] = [("db", Self::Database), ("wal", Self::Wal), ("journal", Self::Journal)];
}

/// Which unsynced sectors reach the disk when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    /// None: the disk stays as it was at the last sync.
    Nothing,
    /// About half of them, picked by this seed; a disk stores unsynced writes in any order, or never.
    Some(u64),
}

/// What a fault does to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// The operation fails with this code.
    Fail(Code),
    /// It fails with this code, and what was unsynced is forgotten.
    Forget(Code),
    /// This many bytes are written, then the disk is full.
    Full(usize),
    /// The file can only be opened for reading.
    OpenReadOnly,
    /// The power goes: every open file of the directory is dead.
    PowerLoss(Survives),
    /// The power goes, and takes this process with it.
    Die(Survives),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Io,
    Full,
    ReadOnly,
    Busy,
    PowerLoss,
    Die,
}

/// Something that goes wrong. See the [module](super) for the text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    on: Vec<On>,
    file: Option<Which>,
    /// Number of the first matching operation that is hit, from 1.
    at: u64,
    /// Operations that are hit.
    times: u64,
    /// Bytes that a disk still takes before it is full.
    room: u64,
    survives: Survives,
    forget: bool,
    seen: u64,
}

impl Fault {
    fn new(kind: Kind, on: Vec<On>) -> Self {
        Self {
            kind,
            on,
            file: None,
            at: 1,
            times: u64::MAX,
            room: 0,
            survives: Survives::Nothing,
            forget: false,
            seen: 0,
        }
    }

    /// The operation fails with an input/output error.
    #[must_use]
    pub fn io(on: On) -> Self {
        Self::new(Kind::Io, vec![on])
    }

    /// The disk takes `room` more bytes, then it is full.
    #[must_use]
    pub fn full(room: u64) -> Self {
        Self {
            room,
            ..Self::new(Kind::Full, vec![On::Write])
        }
    }

    /// Files can be opened for reading only, and nothing can be changed.
    #[must_use]
    pub fn read_only() -> Self {
        Self::new(Kind::ReadOnly, vec![On::Open, On::Write, On::Truncate, On::Delete])
    }

    /// Another program holds the lock that writing needs.
    #[must_use]
    pub fn busy() -> Self {
        Self::new(Kind::Busy, vec![On::Lock])
    }

    /// The power goes at the operation, and what was not synced goes with it; the process lives and sees input/output errors.
    #[must_use]
    pub fn power_loss(on: On) -> Self {
        Self {
            times: 1,
            ..Self::new(Kind::PowerLoss, vec![on])
        }
    }

    /// The power goes at the operation, and the process dies by SIGKILL.
    #[must_use]
    pub fn die(on: On) -> Self {
        Self::new(Kind::Die, vec![on])
    }

    /// Also hits this operation.
    #[must_use]
    pub fn or(mut self, on: On) -> Self {
        self.on.push(on);
        self
    }

    /// Hits only this file.
    #[must_use]
    pub fn of(mut self, file: Which) -> Self {
        self.file = Some(file);
        self
    }

    /// Hits from the `number`-th matching operation on, counted from 1.
    #[must_use]
    pub fn at(mut self, number: u64) -> Self {
        self.at = number.max(1);
        self
    }

    /// Hits so many operations, then it has passed.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Which unsynced sectors survive, for a loss of power.
    #[must_use]
    pub fn survives(mut self, survives: Survives) -> Self {
        self.survives = survives;
        self
    }

    /// A failed sync loses what it should have stored: later syncs succeed without it.
    #[must_use]
    pub fn forget(mut self) -> Self {
        self.forget = true;
        self
    }

    /// Notes an operation; what happens to it.
    pub(super) fn meets(&mut self, on: On, file: Which, bytes: usize) -> Option<Effect> {
        if !self.on.contains(&on) || self.file.is_some_and(|only| only != file) {
            return None;
        }
        if self.kind == Kind::Full && self.room >= bytes as u64 {
            self.room -= bytes as u64;
            return None;
        }
        self.seen += 1;
        if self.seen < self.at || self.seen - self.at >= self.times {
            return None;
        }
        Some(match self.kind {
            Kind::Io if self.forget && on == On::Sync => Effect::Forget(on.io_error()),
            Kind::Io => Effect::Fail(on.io_error()),
            Kind::Full => Effect::Full(usize::try_from(std::mem::take(&mut self.room)).unwrap_or(usize::MAX)),
            Kind::ReadOnly if on.changes() => Effect::Fail(on.io_error()),
            Kind::ReadOnly => Effect::OpenReadOnly,
            Kind::Busy => Effect::Fail(ffi::SQLITE_BUSY),
            Kind::PowerLoss => Effect::PowerLoss(self.survives),
            Kind::Die => Effect::Die(self.survives),
        })
    }
}

/// A fault's text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFault {
    fault: String,
    why: String,
}

impl BadFault {
    pub(super) fn new(fault: &str, why: String) -> Self {
        Self {
            fault: fault.to_owned(),
            why,
        }
    }
}

impl fmt::Display for BadFault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "the fault {:?} cannot be read: {}", self.fault, self.why)
    }
}

impl std::error::Error for BadFault {}

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let bad = |why: String| BadFault::new(text, why);
        let mut words = text.split_whitespace();
        let mut fault = match words.next() {
            Some("io") => Self::new(Kind::Io, vec![]),
            Some("full") => Self::full(0),
            Some("readonly") => Self::read_only(),
            Some("busy") => Self::busy(),
            Some("die") => Self::die(On::Write),
            other => return Err(bad(format!("{other:?} is none of io, full, readonly, busy, die"))),
        };
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u64>().map_err(|error| bad(format!("{word}: {error}")));
            match name {
                "on" => fault.on = named(&On::ALL, value).map_err(&bad)?,
                "file" => fault.file = named(&Which::ALL, value).map_err(&bad)?.first().copied(),
                "at" => fault.at = number()?.max(1),
                "times" => fault.times = number()?,
                "room" => fault.room = number()?,
                "survives" => fault.survives = Survives::Some(number()?),
                "forget" => fault.forget = true,
                _ => return Err(bad(format!("{name:?} is no property of a fault"))),
            }
        }
        if fault.on.is_empty() {
            return Err(bad("on=… is missing".to_owned()));
        }
        Ok(fault)
    }
}

/// Reads names joined by `+`.
fn named<T: Copy>(all: &[(&str, T)], text: &str) -> Result<Vec<T>, String> {
    text.split('+')
        .map(|name| {
            let found = all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            found.ok_or_else(|| format!("{name:?} is not known"))
        })
        .collect()
}

/// Reads faults separated by `;` or line ends.
pub(super) fn parse(text: &str) -> Result<Vec<Fault>, BadFault> {
    text.split([';', '\n'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_methods_name_the_same_faults() {
        let read = parse(
            "io on=sync+write file=wal at=3 times=2 forget; full room=4096\nreadonly; die on=sync survives=7; busy",
        )
        .expect("readable");
        let made = vec![
            Fault::io(On::Sync).or(On::Write).of(Which::Wal).at(3).times(2).forget(),
            Fault::full(4096),
            Fault::read_only(),
            Fault::die(On::Sync).survives(Survives::Some(7)),
            Fault::busy(),
        ];
        assert_eq!(read, made);
        for bad in ["io", "io on=seek", "fire", "full room=much", "io on=read when=now"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_fault_hits_the_operations_it_names() {
        let mut fault = Fault::io(On::Sync).of(Which::Wal).at(2).times(2);
        let mut hit = |on, file| fault.meets(on, file, 0).is_some();
        assert!(!hit(On::Sync, Which::Wal));
        assert!(!hit(On::Write, Which::Wal));
        assert!(!hit(On::Sync, Which::Database));
        assert!(hit(On::Sync, Which::Wal));
        assert!(hit(On::Sync, Which::Wal));
        assert!(!hit(On::Sync, Which::Wal));
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let mut fault = Fault::full(10);
        assert_eq!(fault.meets(On::Write, Which::Wal, 8), None);
        assert_eq!(fault.meets(On::Write, Which::Wal, 8), Some(Effect::Full(2)));
        assert_eq!(fault.meets(On::Write, Which::Wal, 1), Some(Effect::Full(0)));
    }
}
