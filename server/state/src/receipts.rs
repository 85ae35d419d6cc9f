//! Receipts of client commands: a repeated command finds its stored outcome, and one identity never names two payloads.

use piw_protocol::envelope::Outcome;
use piw_protocol::ops::{Operation, OperationError};
use rusqlite::{Connection, OptionalExtension, named_params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StateError;
use crate::ids::RunKey;
use crate::state::State;
use crate::writer::{Authority, Tx};

/// How long receipts live (decision 6).
pub const RECEIPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Identity of a state-changing command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandIdentity {
    /// Client.
    pub client_id: String,
    /// Transport identity; not part of the fingerprint.
    pub request_id: String,
    /// Stable over retries.
    pub idempotency_key: String,
    /// Operation.
    pub operation: Operation,
    /// SHA-256 of operation, run, expected revision and payload.
    pub fingerprint: [u8; 32],
}

/// How a command was decided, now or earlier.
#[derive(Debug, Clone, PartialEq)]
pub struct Receipted<R> {
    /// The outcome; a repeated command that was accepted is `Adopted`, one that was refused is refused again.
    pub outcome: Outcome,
    /// Execution revision after the command.
    pub revision: Option<u64>,
    /// Receipt of a success.
    pub receipt: Option<R>,
    /// Error of anything else.
    pub error: Option<OperationError>,
    /// Whether it was decided by an earlier delivery: there is nothing further to do.
    pub repeated: bool,
}

impl<R> Receipted<R> {
    /// A refusal that no receipt remembers.
    pub(crate) const fn refused(outcome: Outcome, error: OperationError) -> Self {
        Self {
            outcome,
            revision: None,
            receipt: None,
            error: Some(error),
            repeated: false,
        }
    }
}

/// A decision that is about to be stored.
pub(crate) enum Decision<R> {
    Accept {
        run: Option<RunKey>,
        revision: Option<u64>,
        receipt: R,
    },
    /// What is asked for was there already.
    Adopt { run: Option<RunKey>, receipt: R },
    Refuse {
        run: Option<RunKey>,
        outcome: Outcome,
        error: OperationError,
    },
}

impl<R> Decision<R> {
    /// The same decision with another receipt.
    pub(crate) fn map<S>(self, make: impl FnOnce(R) -> S) -> Decision<S> {
        match self {
            Self::Accept { run, revision, receipt } => Decision::Accept {
                run,
                revision,
                receipt: make(receipt),
            },
            Self::Adopt { run, receipt } => Decision::Adopt {
                run,
                receipt: make(receipt),
            },
            Self::Refuse { run, outcome, error } => Decision::Refuse { run, outcome, error },
        }
    }

    pub(crate) fn refuse(run: RunKey, outcome: Outcome, reason: &str, message: String) -> Self {
        Self::Refuse {
            run: Some(run),
            outcome,
            error: error(reason, message),
        }
    }
}

/// An error with a reason.
pub(crate) fn error(reason: &str, message: String) -> OperationError {
    OperationError {
        reason: reason.to_owned(),
        message,
        cause: None,
    }
}

impl State {
    /// The stored outcome of a command, before any work is done for it. `None`: it is new.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn stored_receipt<R>(&self, identity: CommandIdentity) -> Result<Option<Receipted<R>>, StateError>
    where
        R: DeserializeOwned + Send + 'static,
    {
        self.read(move |db| lookup(db, &identity)).await
    }

    /// Removes receipts older than seven days; a daily timer calls this. Returns how many went.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn purge_receipts(&self) -> Result<usize, StateError> {
        self.write("purge_receipts", Authority::Server, |tx| purge(tx)).await
    }

    /// Stores the receipt of a command that was carried out outside of a transaction.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn record_receipt<R>(&self, identity: CommandIdentity, receipt: R) -> Result<Receipted<R>, StateError>
    where
        R: Serialize + DeserializeOwned + Send + 'static,
    {
        self.write("record_receipt", Authority::Server, move |tx| {
            receipted(tx, &identity, |_| {
                Ok(Decision::Accept {
                    run: None,
                    revision: None,
                    receipt,
                })
            })
        })
        .await
    }

    /// Stores that a command was refused before it reached a run: a retry gets the same answer.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn record_refusal<R>(
        &self,
        identity: CommandIdentity,
        outcome: Outcome,
        error: OperationError,
    ) -> Result<Receipted<R>, StateError>
    where
        R: Serialize + DeserializeOwned + Send + 'static,
    {
        self.write("record_refusal", Authority::Server, move |tx| {
            receipted(tx, &identity, |_| {
                Ok(Decision::Refuse {
                    run: None,
                    outcome,
                    error,
                })
            })
        })
        .await
    }
}

/// Decides a command once: adopts a stored decision, or takes one and stores it in the same transaction.
pub(crate) fn receipted<R, F>(
    tx: &mut Tx<'_>,
    identity: &CommandIdentity,
    decide: F,
) -> Result<Receipted<R>, StateError>
where
    R: Serialize + DeserializeOwned,
    F: FnOnce(&mut Tx<'_>) -> Result<Decision<R>, StateError>,
{
    if let Some(stored) = lookup(tx.db, identity)? {
        return Ok(stored);
    }
    let decision = decide(tx)?;
    let (run, outcome, revision, receipt, error) = match decision {
        Decision::Accept { run, revision, receipt } => (run, Outcome::Accepted, revision, Some(receipt), None),
        Decision::Adopt { run, receipt } => (run, Outcome::Adopted, None, Some(receipt), None),
        Decision::Refuse { run, outcome, error } => (run, outcome, None, None, Some(error)),
    };
    let stored = match outcome {
        Outcome::Adopted => Outcome::Accepted,
        other => other,
    };
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO server_commands (client_id, idempotency_key, request_id, operation, fingerprint, run, outcome, revision,
           receipt_json, error_json, created_at)
         VALUES (:client, :key, :request, :operation, :fingerprint, :run, :outcome, :revision, :receipt, :error, :now)",
    )?;
    statement.execute(named_params! {
        ":client": identity.client_id, ":key": identity.idempotency_key, ":request": identity.request_id,
        ":operation": identity.operation.name(), ":fingerprint": identity.fingerprint, ":run": run,
        ":outcome": stored.name(), ":revision": revision,
        ":receipt": receipt.as_ref().map(serde_json::to_string).transpose()?,
        ":error": error.as_ref().map(serde_json::to_string).transpose()?, ":now": tx.now,
    })?;
    Ok(Receipted {
        outcome,
        revision,
        receipt,
        error,
        repeated: false,
    })
}

fn lookup<R: DeserializeOwned>(
    db: &Connection,
    identity: &CommandIdentity,
) -> Result<Option<Receipted<R>>, StateError> {
    type Row = ([u8; 32], String, Option<u64>, Option<String>, Option<String>);
    let mut statement = db.prepare_cached(
        "SELECT fingerprint, outcome, revision, receipt_json, error_json FROM server_commands
          WHERE client_id = ?1 AND idempotency_key = ?2",
    )?;
    let row: Option<Row> = statement
        .query_row((&identity.client_id, &identity.idempotency_key), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    let Some((fingerprint, outcome, revision, receipt, error_text)) = row else {
        return same_request(db, identity);
    };
    if fingerprint != identity.fingerprint {
        return Ok(Some(conflict("the idempotency key", &identity.idempotency_key)));
    }
    let outcome = match outcome.as_str() {
        "accepted" => Outcome::Adopted,
        other => Outcome::ALL
            .iter()
            .copied()
            .find(|known| known.name() == other)
            .ok_or_else(|| StateError::Inconsistent(format!("unknown outcome {other:?}")))?,
    };
    Ok(Some(Receipted {
        outcome,
        revision,
        receipt: receipt.as_deref().map(serde_json::from_str).transpose()?,
        error: error_text.as_deref().map(serde_json::from_str).transpose()?,
        repeated: true,
    }))
}

/// A request id that was used under another key names two payloads.
fn same_request<R>(db: &Connection, identity: &CommandIdentity) -> Result<Option<Receipted<R>>, StateError> {
    let mut statement = db.prepare_cached("SELECT 1 FROM server_commands WHERE client_id = ?1 AND request_id = ?2")?;
    let used = statement.exists((&identity.client_id, &identity.request_id))?;
    Ok(used.then(|| conflict("the request id", &identity.request_id)))
}

fn conflict<R>(what: &str, id: &str) -> Receipted<R> {
    let message = format!("{what} {id:?} was used for another command");
    let error = Some(error("identity_reused", message));
    Receipted {
        outcome: Outcome::Conflict,
        revision: None,
        receipt: None,
        error,
        repeated: true,
    }
}

/// Removes receipts that are too old.
pub(crate) fn purge(tx: &Tx<'_>) -> Result<usize, StateError> {
    // Rows are in order of time, so the newest old one bounds the range.
    let removed = tx.db.execute(
        "DELETE FROM server_commands WHERE id IN (
           SELECT id FROM server_commands WHERE created_at < ?1 ORDER BY id LIMIT 10000)",
        [tx.now - RECEIPT_MS],
    )?;
    Ok(removed)
}
