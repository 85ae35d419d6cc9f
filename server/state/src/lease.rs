//! Claims: a time-limited right to change one resource, fenced by a generation and a secret token.

use rusqlite::{Connection, OptionalExtension, named_params};

use crate::error::{ClaimLost, StateError};
use crate::hash::sha256;
use crate::writer::Tx;

/// How long a claim holds without renewal (decision 2), by the clock that stops in suspend. Tests of takeovers shorten it with
/// [`crate::State::set_lease`].
pub const LEASE_MS: i64 = 30_000;

/// One reading of the clocks, and how long a claim that is renewed now holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// Wall clock.
    pub(crate) now: i64,
    /// Clock that stops in suspend.
    pub(crate) steady: i64,
    /// This boot.
    pub(crate) boot: &'a str,
    /// Length of a claim in milliseconds.
    pub(crate) lease: i64,
}

/// The secret of a claim. It is never logged and only its hash is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: [u8; 32],
    hash: [u8; 32],
}

impl Token {
    pub(crate) fn random() -> Result<Self, StateError> {
        let mut secret = [0u8; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| StateError::Io(format!("no randomness for a claim token: {error}")))?;
        Ok(Self {
            hash: sha256(&secret),
            secret,
        })
    }

    pub(crate) fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// A token that differs from this one: for tests of the fence.
    #[doc(hidden)]
    #[must_use]
    pub fn altered(&self) -> Self {
        let mut secret = self.secret;
        secret[0] ^= 1;
        Self {
            hash: sha256(&secret),
            secret,
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Token(…)")
    }
}

/// Who takes a claim.
pub(crate) struct Owner<'a> {
    pub(crate) kind: &'static str,
    pub(crate) server_id: &'a str,
    pub(crate) epoch: Option<u64>,
}

/// A claim as its holder knows it.
pub(crate) struct Held<'a> {
    /// What holds it: `server`, or `control` for a command that took over an expired claim.
    pub(crate) kind: &'static str,
    pub(crate) resource: i64,
    pub(crate) generation: u64,
    pub(crate) owner_id: &'a str,
    pub(crate) token: &'a Token,
    /// Epoch of the server that took a run's claim; `None` for a server's own claim.
    pub(crate) epoch: Option<u64>,
}

/// Takes the claim on a resource with the next generation, whoever held it. The caller has proved that it may.
pub(crate) fn seize(tx: &Tx<'_>, resource: i64, owner: &Owner<'_>, token: &Token) -> Result<u64, StateError> {
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO leases (resource, generation, owner_type, owner_id, server_epoch, token_hash, acquired_at, heartbeat_at,
           boot_id, expires_clock_ms, expires_at)
         VALUES (:resource, 1, :kind, :owner, :epoch, :hash, :now, :now, :boot, :expires, :wall)
         ON CONFLICT (resource) DO UPDATE SET generation = generation + 1, owner_type = :kind, owner_id = :owner,
           server_epoch = :epoch, token_hash = :hash, acquired_at = :now, heartbeat_at = :now, boot_id = :boot,
           expires_clock_ms = :expires, expires_at = :wall
         RETURNING generation",
    )?;
    let generation = statement.query_row(
        named_params! {
            ":resource": resource, ":kind": owner.kind, ":owner": owner.server_id, ":epoch": owner.epoch,
            ":hash": token.hash(), ":now": tx.now, ":boot": tx.boot, ":expires": tx.steady + tx.lease,
            ":wall": tx.now + tx.lease,
        },
        |row| row.get(0),
    )?;
    Ok(generation)
}

/// Renews exactly this claim, or says why it is lost. An expired claim cannot renew itself.
pub(crate) fn renew(db: &Connection, held: &Held<'_>, at: &Moment<'_>) -> Result<Result<(), ClaimLost>, StateError> {
    let mut statement = db.prepare_cached(
        "UPDATE leases SET heartbeat_at = :now, expires_clock_ms = :expires, expires_at = :wall
          WHERE resource = :resource AND generation = :generation AND owner_type = :kind AND owner_id = :owner
            AND token_hash = :hash AND boot_id = :boot AND expires_clock_ms > :steady AND server_epoch IS :epoch",
    )?;
    // Without the fence, what is stored stands for what the holder shows.
    let unfenced = if piw_fault::switch!("no-fence") {
        stored(db, held.resource)?
    } else {
        None
    };
    let (generation, hash) = match &unfenced {
        Some((generation, hash)) => (*generation, hash),
        None => (held.generation, held.token.hash()),
    };
    let renewed = statement.execute(named_params! {
        ":now": at.now, ":expires": at.steady + at.lease, ":wall": at.now + at.lease, ":resource": held.resource,
        ":generation": generation, ":kind": held.kind, ":owner": held.owner_id, ":hash": hash, ":boot": at.boot,
        ":steady": at.steady, ":epoch": held.epoch,
    })?;
    if renewed == 1 {
        return Ok(Ok(()));
    }
    why_lost(db, held).map(Err)
}

/// Generation and token hash of whoever holds the claim now.
fn stored(db: &Connection, resource: i64) -> Result<Option<(u64, [u8; 32])>, StateError> {
    let mut statement =
        db.prepare_cached("SELECT generation, token_hash FROM leases WHERE resource = ?1 AND token_hash IS NOT NULL")?;
    Ok(statement
        .query_row([resource], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// The first reason in the order of the checks.
fn why_lost(db: &Connection, held: &Held<'_>) -> Result<ClaimLost, StateError> {
    type Row = (u64, Option<String>, Option<Vec<u8>>, Option<u64>, Option<String>);
    let mut statement = db.prepare_cached(
        "SELECT generation, owner_id, token_hash, server_epoch, owner_type FROM leases WHERE resource = ?1",
    )?;
    let row: Option<Row> = statement
        .query_row([held.resource], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    let Some((generation, owner, hash, epoch, kind)) = row else {
        return Ok(ClaimLost::MissingAuthority);
    };
    let (Some(owner), Some(hash)) = (owner, hash) else {
        // Released; whoever claims it next has another generation.
        let current = generation == held.generation;
        return Ok(if current {
            ClaimLost::MissingAuthority
        } else {
            ClaimLost::GenerationChanged
        });
    };
    Ok(if generation != held.generation {
        ClaimLost::GenerationChanged
    } else if owner != held.owner_id || epoch != held.epoch || kind.as_deref() != Some(held.kind) {
        // An older epoch of the same server is another owner.
        ClaimLost::OwnerChanged
    } else if hash != held.token.hash() {
        ClaimLost::TokenChanged
    } else {
        ClaimLost::Expired
    })
}

/// How the claim on a run stands for a command of the server of `epoch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody holds it.
    Free,
    /// This server's runner holds it.
    Own,
    /// It expired, or belongs to a server that was replaced: whoever held it must not come back to it.
    Lapsed,
}

/// Reads how the claim on a run stands.
pub(crate) fn standing(tx: &Tx<'_>, resource: i64, epoch: u64) -> Result<Standing, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT owner_id IS NULL, server_epoch IS ?2 AND boot_id IS ?3 AND expires_clock_ms > ?4 FROM leases WHERE resource = ?1",
    )?;
    let row: Option<(bool, Option<bool>)> = statement
        .query_row((resource, epoch, tx.boot, tx.steady), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    Ok(match row {
        None | Some((true, _)) => Standing::Free,
        Some((false, Some(true))) => Standing::Own,
        Some((false, _)) => Standing::Lapsed,
    })
}

/// Releases the claim; the generation stays.
pub(crate) fn clear(db: &Connection, resource: i64) -> Result<(), StateError> {
    let mut statement = db.prepare_cached(
        "UPDATE leases SET owner_type = NULL, owner_id = NULL, server_epoch = NULL, token_hash = NULL, acquired_at = NULL,
           heartbeat_at = NULL, boot_id = NULL, expires_clock_ms = NULL, expires_at = NULL WHERE resource = ?1",
    )?;
    statement.execute([resource])?;
    Ok(())
}
