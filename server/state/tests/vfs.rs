//! The file layer itself: it loses exactly what was not synced, and fails where it was told to.

use std::path::Path;

use piw_state::vfs::{self, Disk, Fault, On, Survives, Which};
use rusqlite::{Connection, ErrorCode, OpenFlags};

struct Place {
    dir: tempfile::TempDir,
    disk: Disk,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let disk = vfs::lay_under(dir.path());
        disk.set_volatile(true);
        Self { dir, disk }
    }

    fn try_open(&self, synchronous: &str) -> rusqlite::Result<Connection> {
        let file = self.dir.path().join("some.sqlite");
        let connection = Connection::open_with_flags_and_vfs(file, OpenFlags::default(), vfs::NAME)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, text TEXT)")?;
        Ok(connection)
    }

    fn open(&self, synchronous: &str) -> Connection {
        self.try_open(synchronous).expect("opens")
    }
}

fn insert(db: &Connection, n: u64) -> rusqlite::Result<usize> {
    db.execute("INSERT INTO t VALUES (?1, ?2)", (n, "x".repeat(700)))
}

/// The number of rows, or a number that no test expects when the file is not whole.
fn rows(db: &Connection) -> u64 {
    let check: rusqlite::Result<String> = db.query_row("PRAGMA integrity_check", [], |row| row.get(0));
    if check.as_deref() != Ok("ok") {
        eprintln!("{check:?}");
        return u64::MAX;
    }
    db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .expect("count")
}

#[test]
fn a_loss_of_power_takes_what_was_not_synced_and_nothing_else() {
    for survives in [Survives::Nothing, Survives::Some(1), Survives::Some(2)] {
        let place = Place::new();
        let db = place.open("FULL");
        db.pragma_update(None, "wal_autocheckpoint", 20).expect("pragma");
        for n in 0..100 {
            insert(&db, n).expect("inserted");
        }
        db.execute_batch("BEGIN").expect("begin");
        for n in 100..200 {
            insert(&db, n).expect("inserted");
        }
        place.disk.lose_power(survives);
        assert!(db.execute_batch("COMMIT").is_err(), "an open file is dead");
        drop(db);
        assert_eq!(rows(&place.open("FULL")), 100, "{survives:?}");
    }
}

#[test]
fn without_syncs_a_loss_of_power_loses_commits() {
    let place = Place::new();
    let db = place.open("OFF");
    for n in 0..100 {
        insert(&db, n).expect("inserted");
    }
    let other = place.open("OFF");
    assert_eq!(rows(&other), 100, "another connection sees what is not synced");
    place.disk.lose_power(Survives::Nothing);
    drop((db, other));
    assert_eq!(rows(&place.open("FULL")), 0);
}

#[test]
fn a_closed_database_is_whole_with_and_without_the_layer() {
    let place = Place::new();
    let db = place.open("FULL");
    for n in 0..100 {
        insert(&db, n).expect("inserted");
    }
    db.close().expect("closes");
    let file = place.dir.path().join("some.sqlite");
    let plain = Connection::open(&file).expect("opens without the layer");
    assert_eq!(rows(&plain), 100);
    plain.close().expect("closes");
    assert_eq!(rows(&place.open("FULL")), 100);
}

#[test]
fn every_commit_is_whole_or_absent_wherever_the_power_goes() {
    let places = [On::Write, On::Sync, On::Truncate, On::Delete].map(|on| broken_places("FULL", on));
    for (places, broken) in &places {
        assert!(*places > 0, "the workload has no such operation");
        assert_eq!(*broken, Vec::<String>::new());
    }
    let (_, broken) = broken_places("OFF", On::Write);
    assert!(!broken.is_empty(), "the same check does not notice synchronous=OFF");
}

/// Lets every operation of a kind in turn be the last before the power goes. Returns the number of operations, and what was
/// not as acknowledged.
fn broken_places(synchronous: &str, on: On) -> (u64, Vec<String>) {
    let mut broken = Vec::new();
    for at in 1.. {
        let place = Place::new();
        let db = place.open(synchronous);
        place
            .disk
            .inject(Fault::power_loss(on).at(at).survives(Survives::Some(at)));
        let acknowledged = workload(&db);
        // Closing makes the last checkpoint and deletes the log.
        drop(db);
        let lost = place.disk.counts().faults > 0;
        place.disk.heal();
        let found = place.try_open("FULL").map_or(u64::MAX, |db| rows(&db));
        if !lost {
            assert_eq!((acknowledged, found), (60, 60));
            return (at - 1, broken);
        }
        if found != acknowledged && found != acknowledged + 10 {
            broken.push(format!("{on:?} {at}: {acknowledged} rows acknowledged, {found} there"));
        }
    }
    unreachable!("the workload ends")
}

/// Six transactions of ten rows and a checkpoint after each; returns the rows that were acknowledged.
fn workload(db: &Connection) -> u64 {
    db.pragma_update(None, "journal_size_limit", 0).ok();
    let mut acknowledged = 0;
    for group in 0..6 {
        let transaction = || -> rusqlite::Result<()> {
            db.execute_batch("BEGIN")?;
            for n in 0..10 {
                insert(db, group * 10 + n)?;
            }
            db.execute_batch("COMMIT")
        };
        if transaction().is_err() {
            return acknowledged;
        }
        acknowledged += 10;
        // A checkpoint that fails is tried again by the next one.
        let _ = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    acknowledged
}

#[test]
fn a_full_disk_fails_with_its_own_code_and_passes() {
    let place = Place::new();
    let db = place.open("FULL");
    place.disk.inject(Fault::full(10_000));
    let mut written = 0;
    let error = loop {
        match insert(&db, written) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull));
    assert!(written > 0, "the disk took what fitted");
    assert_eq!(rows(&db), written);
    place.disk.heal();
    insert(&db, written).expect("room again");
    place.disk.lose_power(Survives::Nothing);
    drop(db);
    assert_eq!(rows(&place.open("FULL")), written + 1);
}

#[test]
fn input_and_output_errors_hit_the_operation_and_file_they_name() {
    for (fault, code) in [
        (Fault::io(On::Write).of(Which::Wal), rusqlite::ffi::SQLITE_IOERR_WRITE),
        (Fault::io(On::Sync).of(Which::Wal), rusqlite::ffi::SQLITE_IOERR_FSYNC),
    ] {
        let place = Place::new();
        let db = place.open("FULL");
        insert(&db, 1).expect("inserted");
        place.disk.inject(fault.times(2));
        for _ in 0..2 {
            let error = insert(&db, 2).expect_err("fails");
            assert_eq!(error.sqlite_error().map(|error| error.extended_code), Some(code));
        }
        insert(&db, 2).expect("it has passed");
        assert_eq!(rows(&db), 2);
    }
}

/// What the operating system forgot at a failed sync is written again by the next commit, not taken for stored.
#[test]
fn a_sync_that_forgets_loses_no_commit() {
    for survives in [Survives::Nothing, Survives::Some(3)] {
        let place = Place::new();
        let db = place.open("FULL");
        insert(&db, 1).expect("inserted");
        place.disk.inject(Fault::io(On::Sync).times(1).forget());
        insert(&db, 2).expect_err("fails");
        insert(&db, 3).expect("inserted");
        place.disk.lose_power(survives);
        drop(db);
        let db = place.open("FULL");
        assert_eq!(rows(&db), 2);
        let newest: u64 = db.query_row("SELECT max(n) FROM t", [], |row| row.get(0)).expect("max");
        assert_eq!(newest, 3);
    }
}

#[test]
fn a_read_only_disk_opens_for_reading() {
    let place = Place::new();
    let db = place.open("FULL");
    insert(&db, 1).expect("inserted");
    db.close().expect("closes");
    place.disk.inject(Fault::read_only());
    let file = place.dir.path().join("some.sqlite");
    let db = Connection::open_with_flags_and_vfs(file, OpenFlags::SQLITE_OPEN_READ_WRITE, vfs::NAME).expect("opens");
    assert!(db.is_readonly("main").expect("known"));
    assert!(insert(&db, 2).is_err());
}

#[test]
fn a_directory_has_one_disk_and_others_none() {
    let place = Place::new();
    let again = vfs::lay_under(place.dir.path());
    place.open("FULL");
    assert!(again.counts().syncs > 0);
    let other = tempfile::tempdir().expect("temp dir");
    let db = plain(other.path());
    insert(&db, 1).expect("inserted");
    assert_eq!(rows(&db), 1);
}

/// A database opened by the layer's VFS in a directory without a disk.
fn plain(dir: &Path) -> Connection {
    let db =
        Connection::open_with_flags_and_vfs(dir.join("other.sqlite"), OpenFlags::default(), vfs::NAME).expect("opens");
    db.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        .expect("table");
    db
}
