//! Which server owns the database: the epoch, its claim, and the fence every write passes.

use rusqlite::{Connection, OptionalExtension, named_params};

use crate::error::{ClaimLost, StateError};
use crate::lease::{self, Moment, Token};
use crate::state::State;
use crate::unclosed;
use crate::writer::{Authority, Tx};

/// A write renews the server's claim when its heartbeat is older than this part of its length.
const RENEW_AFTER: i64 = 6;

/// Who a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Random id of this server instance.
    pub server_id: String,
    /// Process id.
    pub pid: u32,
    /// Start identity of the process as the operating system reports it.
    pub start_identity: String,
    /// Version of the package.
    pub package_version: String,
}

/// The recorded owner of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedServer {
    /// Who it is.
    pub identity: ServerIdentity,
    /// Its epoch.
    pub epoch: u64,
    /// Boot on which it renewed last; `None` when it released its claim.
    pub boot_id: Option<String>,
    /// Whether its claim holds now.
    pub live: bool,
    /// Wall-clock milliseconds at which it took the epoch.
    pub started_at: i64,
}

/// Why an epoch was not taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeEpochError {
    /// Another server's claim still holds.
    #[error("server {} (pid {}) holds the state database", .0.identity.server_id, .0.identity.pid)]
    Held(Box<RecordedServer>),
    /// The write failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The epoch this process owns.
#[derive(Debug, Clone)]
pub(crate) struct OwnEpoch {
    pub(crate) resource: i64,
    pub(crate) server_id: String,
    pub(crate) epoch: u64,
    token: Token,
    committed: bool,
}

impl OwnEpoch {
    pub(crate) fn is_committed(&self) -> bool {
        self.committed
    }

    pub(crate) fn mark_committed(&mut self) {
        self.committed = true;
    }
}

impl State {
    /// The server that the database names, if any.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn recorded_server(&self) -> Result<Option<RecordedServer>, StateError> {
        let (steady, boot) = (self.clock().steady_ms(), self.clock().boot_id());
        self.read(move |db| recorded(db, steady, &boot)).await
    }

    /// Takes the database over with a new, higher epoch. A live claim of another server is respected unless `gone` names
    /// that server's id: pass it only when its process is proved to be gone on this boot. From then on every write of this
    /// handle is fenced by the epoch.
    ///
    /// # Errors
    /// [`TakeEpochError::Held`] when another server's claim holds; otherwise when the write fails.
    pub async fn take_server_epoch(
        &self,
        identity: ServerIdentity,
        gone: Option<String>,
    ) -> Result<u64, TakeEpochError> {
        let taken = self
            .write("take_server_epoch", Authority::None, move |tx| {
                take(tx, &identity, gone.as_deref())
            })
            .await?;
        let epoch = taken.map_err(|held| TakeEpochError::Held(Box::new(held)))?;
        // From here on a lost log shows itself. A disk that refuses this refuses the next checkpoint or commit as well.
        let carried = self.between(|db| Ok(unclosed::checkpoint(db)?)).await;
        if let Err(error) = carried {
            tracing::warn!(%error, "the database file does not yet say that a server runs");
        }
        Ok(epoch)
    }

    /// Renews the server's own claim; a timer calls this when nothing is written.
    ///
    /// # Errors
    /// [`StateError::Fenced`] when the claim is lost: the server must stop its runners and end.
    pub async fn renew_server(&self) -> Result<(), StateError> {
        self.write("renew_server", Authority::None, |tx| {
            let own = tx.own.clone().ok_or(StateError::NoEpoch)?;
            renew(tx.db, &own, &tx.moment())
        })
        .await
    }

    /// The epoch that this handle owns, for measuring without the writer thread.
    #[cfg(feature = "bench")]
    pub(crate) async fn own_epoch(&self) -> Result<OwnEpoch, StateError> {
        self.write("own_epoch", Authority::None, |tx| {
            tx.own.clone().ok_or(StateError::NoEpoch)
        })
        .await
    }

    /// Ends the claim at a clean stop; the next server need not wait.
    ///
    /// # Errors
    /// When the claim was lost before, or the write fails.
    pub async fn release_server(&self) -> Result<(), StateError> {
        self.write("release_server", Authority::Server, |tx| {
            let own = tx.own.take().ok_or(StateError::NoEpoch)?;
            release(tx.db, &own, tx.now)
        })
        .await
    }
}

fn release(db: &Connection, own: &OwnEpoch, now: i64) -> Result<(), StateError> {
    lease::clear(db, own.resource)?;
    db.execute(
        "UPDATE workflow_server_state SET state = 'stopped', stopped_at = ?1 WHERE id = 1",
        [now],
    )?;
    Ok(())
}

/// Releases the claim, if it still holds, of a connection whose log nobody finds again: it is about to be closed, and takes
/// everything into the database file then.
pub(crate) fn release_at_close(db: &Connection, own: &OwnEpoch, at: &Moment<'_>) -> Result<(), StateError> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    let released = check_and_renew(db, own, at).and_then(|()| release(db, own, at.now));
    db.execute_batch(if released.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    released
}

fn recorded(db: &Connection, steady: i64, boot: &str) -> Result<Option<RecordedServer>, StateError> {
    let mut statement = db.prepare_cached(
        "SELECT s.server_id, s.pid, s.start_identity, s.package_version, s.epoch, s.started_at, l.boot_id, l.expires_clock_ms
           FROM workflow_server_state s JOIN leases l ON l.resource = s.resource WHERE s.id = 1",
    )?;
    let row = statement.query_row([], |row| {
        let lease_boot: Option<String> = row.get(6)?;
        let expires: Option<i64> = row.get(7)?;
        let live = lease_boot.as_deref() == Some(boot) && expires.is_some_and(|at| at > steady);
        Ok(RecordedServer {
            identity: ServerIdentity {
                server_id: row.get(0)?,
                pid: row.get(1)?,
                start_identity: row.get(2)?,
                package_version: row.get(3)?,
            },
            epoch: row.get(4)?,
            started_at: row.get(5)?,
            boot_id: lease_boot,
            live,
        })
    });
    Ok(row.optional()?)
}

fn take(
    tx: &mut Tx<'_>,
    identity: &ServerIdentity,
    gone: Option<&str>,
) -> Result<Result<u64, RecordedServer>, StateError> {
    if let Some(held) = recorded(tx.db, tx.steady, tx.boot)?
        && held.live
        && held.identity.server_id != identity.server_id
        && gone != Some(held.identity.server_id.as_str())
    {
        return Ok(Err(held));
    }
    let known: Option<i64> = tx
        .db
        .query_row("SELECT resource FROM workflow_server_state WHERE id = 1", [], |row| {
            row.get(0)
        })
        .optional()?;
    let resource = match known {
        Some(resource) => resource,
        None => {
            tx.db.execute("INSERT INTO resources (kind) VALUES ('server')", [])?;
            tx.db.last_insert_rowid()
        }
    };
    let token = Token::random()?;
    let owner = lease::Owner {
        kind: "server",
        server_id: &identity.server_id,
        epoch: None,
    };
    let epoch = lease::seize(tx, resource, &owner, &token)?;
    tx.db.execute(
        "INSERT INTO workflow_server_state (id, resource, epoch, server_id, pid, start_identity, package_version, state, started_at)
         VALUES (1, :resource, :epoch, :server, :pid, :start, :version, 'running', :now)
         ON CONFLICT (id) DO UPDATE SET epoch = :epoch, server_id = :server, pid = :pid, start_identity = :start,
           package_version = :version, state = 'running', started_at = :now, stopped_at = NULL",
        named_params! {
            ":resource": resource, ":epoch": epoch, ":server": identity.server_id, ":pid": identity.pid,
            ":start": identity.start_identity, ":version": identity.package_version, ":now": tx.now,
        },
    )?;
    tx.cache.clear();
    *tx.own = Some(OwnEpoch {
        resource,
        server_id: identity.server_id.clone(),
        epoch,
        token,
        committed: false,
    });
    Ok(Ok(epoch))
}

/// The fence of every write: the database must name this server by a claim that has not expired. Renews an old heartbeat.
pub(crate) fn check_and_renew(db: &Connection, own: &OwnEpoch, at: &Moment<'_>) -> Result<(), StateError> {
    let mut statement = db.prepare_cached(
        "SELECT expires_clock_ms FROM leases WHERE resource = ?1 AND generation = ?2 AND token_hash = ?3 AND owner_id = ?4
           AND boot_id = ?5 AND expires_clock_ms > ?6",
    )?;
    let expires: Option<i64> = statement
        .query_row(
            (
                own.resource,
                own.epoch,
                own.token.hash(),
                &own.server_id,
                at.boot,
                at.steady,
            ),
            |row| row.get(0),
        )
        .optional()?;
    match expires {
        Some(expires) if expires - at.steady > at.lease - at.lease / RENEW_AFTER => Ok(()),
        _ => renew(db, own, at),
    }
}

fn renew(db: &Connection, own: &OwnEpoch, at: &Moment<'_>) -> Result<(), StateError> {
    let held = lease::Held {
        kind: "server",
        resource: own.resource,
        generation: own.epoch,
        owner_id: &own.server_id,
        token: &own.token,
        epoch: None,
    };
    match lease::renew(db, &held, at)? {
        Ok(()) => Ok(()),
        Err(lost) => Err(StateError::Fenced(lost)),
    }
}

/// Writes without changing anything, to see whether the disk takes it.
pub(crate) fn touch(tx: &mut Tx<'_>) -> Result<(), StateError> {
    // A row that is stored as it was would not be written at all; the header is.
    Ok(tx.db.pragma_update(None, "user_version", crate::schema::VERSION)?)
}

/// The epoch of a job that is fenced by it.
pub(crate) fn own<'a>(tx: &'a Tx<'_>) -> Result<&'a OwnEpoch, StateError> {
    tx.own.as_ref().ok_or(StateError::Fenced(ClaimLost::MissingAuthority))
}
