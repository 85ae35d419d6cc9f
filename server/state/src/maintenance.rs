//! Sizes and counts of the state, the record of the sweep, and giving space back.

use rusqlite::Connection;

use crate::error::StateError;
use crate::purge::Purged;
use crate::query::rfc3339;
use crate::state::State;
use crate::verify::{self, Violation};
use crate::writer::Authority;

/// Least time between two complete sweeps.
pub const SWEEP_EVERY_MS: i64 = 24 * 60 * 60 * 1000;
/// Pause after a sweep that failed.
pub const SWEEP_RETRY_MS: i64 = 5 * 60 * 1000;
/// Longest stored diagnostic of a sweep, in bytes.
const DIAGNOSTIC: usize = 512;
/// Free pages that one transaction gives back.
const PAGES: usize = 64;
/// Files below this many bytes keep their free pages.
const COMPACT_FROM: u64 = 64 * 1024 * 1024;
/// Free pages stay while they are less than one in this many.
const COMPACT_SHARE: u64 = 5;

/// When retention sweeps run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepRecord {
    /// A sweep was asked for and is due from then on, wall-clock milliseconds.
    pub due_at: Option<i64>,
    /// The last complete sweep.
    pub last_at: Option<i64>,
    /// Why the last try failed.
    pub error: Option<String>,
    /// Whether rows of deleted runs wait to be purged.
    pub purging: bool,
}

impl SweepRecord {
    /// When the next sweep may begin, wall-clock milliseconds: what was asked for, but a day after the last complete one.
    #[must_use]
    pub fn next_at(&self, now: i64) -> i64 {
        let asked = self.due_at.unwrap_or(now);
        // A sweep in the future was recorded before the clock was set back: it proves nothing.
        let rested = self
            .last_at
            .filter(|last| *last <= now)
            .map_or(now, |last| last + SWEEP_EVERY_MS);
        asked.max(rested)
    }
}

/// Counts and sizes of the database: nothing of what it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateFacts {
    /// Bytes of the database file.
    pub database_bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages of the database.
    pub pages: u64,
    /// Pages of it that hold nothing.
    pub free_pages: u64,
    /// Runs by durable status, in the order of the statuses.
    pub runs: Vec<(String, u64)>,
    /// Trees of runs.
    pub trees: u64,
    /// Runs that are being purged.
    pub deleted_runs: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Stored values and uploads, and their bytes.
    pub contents: u64,
    /// Bytes of all content.
    pub content_bytes: u64,
    /// Receipts.
    pub receipts: u64,
    /// When the oldest run was created, RFC 3339.
    pub oldest_run: Option<String>,
    /// Sweeps.
    pub sweep: SweepRecord,
    /// Violated invariants.
    pub violations: Vec<Violation>,
}

impl State {
    /// Counts, sizes and violated invariants, read with a connection of its own.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn facts(&self) -> Result<StateFacts, StateError> {
        let dir = self.dir().to_path_buf();
        self.aside("state-status", move |db, stop| {
            let mut facts = facts(db)?;
            facts.database_bytes = file_bytes(&dir.join(crate::open::FILE_NAME));
            facts.wal_bytes = file_bytes(&dir.join(format!("{}-wal", crate::open::FILE_NAME)));
            facts.violations = verify::invariants(db, stop)?;
            Ok(facts)
        })
        .await
    }

    /// What is known of sweeps.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sweep_record(&self) -> Result<SweepRecord, StateError> {
        self.read(sweep_record).await
    }

    /// Records a complete sweep.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn sweep_finished(&self) -> Result<(), StateError> {
        self.write("sweep_finished", Authority::Server, |tx| {
            tx.db.execute(
                "UPDATE workflow_server_state SET sweep_due_at = NULL, last_sweep_at = ?1, last_sweep_error = NULL WHERE id = 1",
                [tx.now],
            )?;
            Ok(())
        })
        .await
    }

    /// Records why a sweep failed; the next try is due five minutes later.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn sweep_failed(&self, diagnostic: &str) -> Result<(), StateError> {
        let text = diagnostic[..diagnostic.floor_char_boundary(DIAGNOSTIC)].to_owned();
        self.write("sweep_failed", Authority::Server, move |tx| {
            tx.db.execute(
                "UPDATE workflow_server_state SET sweep_due_at = ?1, last_sweep_error = ?2 WHERE id = 1",
                (tx.now + SWEEP_RETRY_MS, text),
            )?;
            Ok(())
        })
        .await
    }

    /// Whether so much of the file is free that it should shrink: at least 64 MiB in all, a fifth of it free.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn wants_compaction(&self) -> Result<bool, StateError> {
        self.read(|db| {
            let (page, pages, free) = pages(db)?;
            Ok(pages * page >= COMPACT_FROM && free * COMPACT_SHARE >= pages && is_incremental(db)?)
        })
        .await
    }

    /// Gives some free pages back to the file system, unless work waits. The file shrinks with the next checkpoint.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn compact_some(&self) -> Result<Purged, StateError> {
        self.yielding("compact", |tx| {
            let mut statement = tx.db.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
            let mut rows = statement.query([])?;
            let mut freed = 0;
            // Each row is a page that went.
            while rows.next()?.is_some() {
                freed += 1;
            }
            Ok(if freed == 0 { Purged::Done } else { Purged::Some(freed) })
        })
        .await
    }

    /// Moves the write-ahead log into the database and empties it. `false`: somebody reads an old state; it is left for later.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn truncate_wal(&self) -> Result<bool, StateError> {
        self.between(|db| {
            // Nobody waits here for a reader that takes its time, least of all everybody who writes.
            let busy: i64 = db.query_row("PRAGMA busy_timeout", [], |row| row.get(0))?;
            db.pragma_update(None, "busy_timeout", 0)?;
            let refused: Result<bool, _> = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            db.pragma_update(None, "busy_timeout", busy)?;
            Ok(!refused?)
        })
        .await
    }
}

fn is_incremental(db: &Connection) -> Result<bool, StateError> {
    let mode: i64 = db.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    Ok(mode == 2)
}

/// Bytes of a page, pages, free pages.
fn pages(db: &Connection) -> Result<(u64, u64, u64), StateError> {
    let pragma = |name: &str| db.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    Ok((pragma("page_size")?, pragma("page_count")?, pragma("freelist_count")?))
}

fn sweep_record(db: &Connection) -> Result<SweepRecord, StateError> {
    let purging = db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs INDEXED BY runs_deleted WHERE deleted_at IS NOT NULL)")?
        .query_row([], |row| row.get(0))?;
    let mut statement = db.prepare_cached(
        "SELECT sweep_due_at, last_sweep_at, last_sweep_error FROM workflow_server_state WHERE id = 1",
    )?;
    let record = crate::value::maybe(statement.query_row([], |row| {
        Ok(SweepRecord {
            due_at: row.get(0)?,
            last_at: row.get(1)?,
            error: row.get(2)?,
            purging,
        })
    }))?;
    Ok(record.unwrap_or_default())
}

fn facts(db: &Connection) -> Result<StateFacts, StateError> {
    let (page_bytes, pages, free_pages) = pages(db)?;
    let count = |sql: &str| -> Result<u64, StateError> { Ok(db.query_row(sql, [], |row| row.get(0))?) };
    let mut by_status = db.prepare("SELECT status, count(*) FROM runs WHERE deleted_at IS NULL GROUP BY status")?;
    let runs = by_status.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let runs: Vec<(String, u64)> = runs.collect::<Result<_, _>>()?;
    let (contents, content_bytes) = db.query_row("SELECT count(*), coalesce(sum(bytes), 0) FROM blobs", [], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    let oldest: Option<i64> = db.query_row("SELECT min(created_at) FROM runs WHERE deleted_at IS NULL", [], |row| {
        row.get(0)
    })?;
    Ok(StateFacts {
        page_bytes,
        pages,
        free_pages,
        runs,
        trees: count("SELECT count(*) FROM runs WHERE id = root AND deleted_at IS NULL")?,
        deleted_runs: count("SELECT count(*) FROM runs WHERE deleted_at IS NOT NULL")?,
        steps: count("SELECT coalesce(sum(step_count - carried_step_count), 0) FROM runs WHERE deleted_at IS NULL")?,
        contents,
        content_bytes,
        receipts: count("SELECT count(*) FROM server_commands")?,
        oldest_run: oldest.map(rfc3339),
        sweep: sweep_record(db)?,
        ..StateFacts::default()
    })
}

fn file_bytes(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}
