//! Recorded Pi sessions: what `session.record` stores, one transaction a batch.
//!
//! - The first batch of a segment opens it. A session has one open segment: a new recorder's takes over from the open one, which
//!   is then cut off (`failed`), since the recorder that opened it may be gone and would block the session for ever.
//! - Sequences make repeats harmless without receipts (decision 6): what is stored already is compared and adopted; other
//!   content under the same sequence or entry id, and a gap, are conflicts that change nothing.
//! - Events of all segments are numbered in one row, their *position*. Each carries how many steps of the run had finished and
//!   how many entries had settled by then, so that no reader has to count.
//! - A batch costs the same however long the recording is.

mod append;
mod batch;
mod check;

use std::sync::Arc;

use piw_protocol::envelope::Outcome;
use piw_protocol::ops::OperationError;
use piw_protocol::session::{SessionRecord, SessionRecordReceipt};

use crate::error::StateError;
use crate::ids::RunKey;
use crate::query::QueryError;
use crate::receipts::error;
use crate::state::State;
use crate::writer::{Authority, Tx};
use batch::Batch;

/// A batch that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Whether it brought anything new.
    pub new: bool,
    /// What its recorder is told.
    pub receipt: SessionRecordReceipt,
}

/// Why a batch was refused. Nothing of it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordRefused {
    /// `rejected`, `conflict` or `notFound`.
    pub outcome: Outcome,
    /// What the recorder is told.
    pub error: OperationError,
}

/// A refusal, or a failure of the database.
#[derive(Debug)]
enum Stop {
    Refused(Box<RecordRefused>),
    Failed(StateError),
}

impl From<StateError> for Stop {
    fn from(error: StateError) -> Self {
        Self::Failed(error)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<QueryError> for Stop {
    fn from(error: QueryError) -> Self {
        Self::Failed(error.into())
    }
}

fn refuse<T>(outcome: Outcome, reason: &str, message: String) -> Result<T, Stop> {
    let error = error(reason, message);
    Err(Stop::Refused(Box::new(RecordRefused { outcome, error })))
}

/// The run that a batch is recorded for.
struct Run {
    key: RunKey,
    run_id: Arc<str>,
    /// Steps taken over from the parent chain, all finished before this run began.
    carried_steps: u64,
}

/// A segment as stored.
struct Segment {
    id: i64,
    recording: bool,
    failed: bool,
    reason: Option<String>,
    first_position: u64,
    next_sequence: u64,
}

impl State {
    /// Stores a batch of a recorded session. Resolves after the commit.
    ///
    /// # Errors
    /// The outer error is a failure of the database, after which the same batch may be sent again; the inner one says why the
    /// batch was refused.
    pub async fn record_session(&self, record: SessionRecord) -> Result<Result<Recorded, RecordRefused>, StateError> {
        let batch = match Batch::prepare(record) {
            Ok(batch) => batch,
            Err(message) => {
                return Ok(Err(RecordRefused {
                    outcome: Outcome::Rejected,
                    error: error("invalid_request", message),
                }));
            }
        };
        self.write("record_session", Authority::Server, move |tx| match store(tx, batch) {
            Ok(recorded) => Ok(Ok(recorded)),
            Err(Stop::Refused(refused)) => Ok(Err(*refused)),
            Err(Stop::Failed(error)) => Err(error),
        })
        .await
    }
}

/// Decides on the whole batch before it writes anything.
fn store(tx: &mut Tx<'_>, batch: Batch) -> Result<Recorded, Stop> {
    let run = check::run(tx, &batch)?;
    let segment = check::segment(tx, &run, &batch)?;
    let adopted = check::events(tx, &run, segment.as_ref(), &batch)?;
    check::entries(tx, &run, &batch, adopted)?;
    check::end(segment.as_ref(), &batch, adopted)?;
    let recorded = append::batch(tx, &run, segment, batch, adopted)?;
    if recorded.new {
        tx.db
            .prepare_cached("UPDATE resources SET view_revision = view_revision + 1 WHERE id = ?1")?
            .execute([run.key])?;
        tx.changes.run(run.key, &run.run_id, false);
    }
    Ok(recorded)
}
