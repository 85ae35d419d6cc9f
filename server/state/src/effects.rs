//! Side effects: reserved before they are applied, settled afterwards, and never repeated in silence when nobody can tell
//! whether they happened.

use piw_engine::effect::{self, EffectState, Interruption, Reservation, Settlement, StoredEffect};
use piw_protocol::canonical;
use piw_protocol::child::{EffectReservation, EffectSettlement};
use piw_protocol::definition::EffectKind;
use rusqlite::named_params;

use crate::cache::Live;
use crate::error::StateError;
use crate::ids::AttemptKey;
use crate::live::About;
use crate::names;
use crate::value::{Prepared, Stored, maybe};
use crate::writer::Tx;

/// Largest result that travels inside a reservation.
const INLINE_RESULT: u64 = 64 * 1024;

/// A request to reserve.
pub(crate) struct Request<'a> {
    pub(crate) key: &'a str,
    pub(crate) effect_type: &'a str,
    pub(crate) kind: EffectKind,
    pub(crate) fingerprint: &'a str,
}

/// Why an effect message is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) resource: i64,
    pub(crate) state: EffectState,
    kind: EffectKind,
    fingerprint: String,
    pub(crate) attempts: u32,
    result: Stored,
}

/// Reserves an effect for the unfinished attempt.
pub(crate) fn reserve(
    tx: &Tx<'_>,
    live: &mut Live,
    request: &Request<'_>,
    generation: u64,
) -> Result<Result<EffectReservation, Refused>, StateError> {
    let Some(current) = live.current.clone() else {
        return Ok(Err(refused("no_attempt", "no attempt is running".to_owned())));
    };
    let node_id = live.graph.node_id(current.node)?;
    let expected = effect::key(&live.run_id, request.effect_type, node_id, current.visit);
    if expected != request.key {
        let message = format!(
            "the key {} is not the one of node {node_id:?}, visit {}",
            request.key, current.visit
        );
        return Ok(Err(refused("effect_key", message)));
    }
    let declared = live
        .graph
        .definition
        .node(node_id)
        .and_then(|node| node.spec.effect.as_ref());
    if !declared.is_some_and(|effect| effect.kind == request.kind && effect.effect_type == request.effect_type) {
        let message = format!(
            "node {node_id:?} declares no {:?} effect {:?}",
            request.kind, request.effect_type
        );
        return Ok(Err(refused("effect_undeclared", message)));
    }
    if piw_fault::switch!("no-reserve") {
        return Ok(Ok(EffectReservation::Apply { attempt: 1 }));
    }
    let row = find(tx, request.key)?;
    if row.as_ref().is_some_and(|row| row.resource != live.key.0) {
        return Ok(Err(refused(
            "effect_key",
            format!("the key {} belongs to another run", request.key),
        )));
    }
    if let Some(row) = &row
        && row.state == EffectState::Applying
        && applying_attempt(tx, row.id)? == Some(current.key)
    {
        let message = format!("the effect {} is being applied by this very attempt", request.key);
        return Ok(Err(refused("effect_applying", message)));
    }
    let stored = row.as_ref().map(|row| StoredEffect {
        state: row.state,
        kind: row.kind,
        fingerprint: &row.fingerprint,
        attempts: row.attempts,
    });
    match effect::reserve(stored.as_ref(), request.kind, request.fingerprint) {
        Err(error) => Ok(Err(refused("effect_refused", error.to_string()))),
        Ok(Reservation::Adopt) => {
            let result = row
                .map(|row| row.result)
                .unwrap_or_default()
                .to_ref(tx.db, INLINE_RESULT)?;
            Ok(Ok(EffectReservation::Adopt { result }))
        }
        Ok(Reservation::Ambiguous) => Ok(Ok(EffectReservation::Ambiguous)),
        Ok(Reservation::Observe { attempt }) => {
            if let Some(row) = &row {
                adopt_attempt(tx, row.id, attempt, current.key, generation)?;
            }
            Ok(Ok(EffectReservation::Observe { attempt }))
        }
        Ok(Reservation::Apply { attempt }) => {
            let id = match row {
                Some(row) => begin_again(tx, row.id, attempt)?,
                None => {
                    live.open_effects += 1;
                    insert(tx, live, request)?
                }
            };
            insert_attempt(tx, id, attempt, current.key, generation)?;
            let about = About {
                node: Some(current.node),
                attempt: Some(current.key),
                payload: None,
            };
            live.event(tx, "effect", "effect.reserved", about)?;
            Ok(Ok(EffectReservation::Apply { attempt }))
        }
    }
}

/// Settles an effect that the unfinished attempt applies or observed.
pub(crate) fn settle(
    tx: &Tx<'_>,
    live: &mut Live,
    key: &str,
    outcome: EffectSettlement,
    result: Option<Prepared>,
) -> Result<Result<(), Refused>, StateError> {
    let Some(current) = live.current.clone() else {
        return Ok(Err(refused("no_attempt", "no attempt is running".to_owned())));
    };
    let row = match find(tx, key)? {
        Some(row) if row.resource == live.key.0 => row,
        None if piw_fault::switch!("no-reserve") => return Ok(Ok(())),
        _ => {
            return Ok(Err(refused(
                "effect_unknown",
                format!("no effect {key} was reserved by this run"),
            )));
        }
    };
    if row.state != EffectState::Applying || applying_attempt(tx, row.id)? != Some(current.key) {
        let message = format!("the effect {key} is not being applied by this attempt");
        return Ok(Err(refused("effect_not_applying", message)));
    }
    if result.is_some() && outcome != EffectSettlement::Applied {
        return Ok(Err(refused(
            "effect_result",
            "only an applied effect has a result".to_owned(),
        )));
    }
    if outcome == EffectSettlement::Pending && row.kind == EffectKind::Manual {
        let message = format!("the manual effect {key} cannot be tried again by itself");
        return Ok(Err(refused("effect_manual", message)));
    }
    let stored = result
        .map(|result| result.store(tx.db, tx.now))
        .transpose()?
        .unwrap_or_default();
    let detail = match outcome {
        EffectSettlement::Ambiguous => "its node ended while it was being applied",
        _ => "settled by its node",
    };
    set_state(tx, live, row.id, EffectState::from(outcome), &stored, detail)?;
    Ok(Ok(()))
}

/// Settles every effect that an interrupted runner was applying. Returns how many became ambiguous.
pub(crate) fn interrupt(tx: &Tx<'_>, live: &mut Live, how: Interruption) -> Result<u32, StateError> {
    if live.open_effects == 0 {
        return Ok(0);
    }
    let mut statement = tx.db.prepare_cached(
        "SELECT id, kind, status FROM effects WHERE resource = ?1 AND status IN ('applying', 'pending') ORDER BY id",
    )?;
    let rows: Vec<(i64, String, String)> = statement
        .query_map([live.key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let mut ambiguous = 0;
    for (id, kind, status) in rows {
        let next = match (status.as_str(), how) {
            ("pending", Interruption::Cancelled) => EffectState::Cancelled,
            ("pending", _) => continue,
            _ => match effect::interrupted(names::effect_kind(&kind)?, how) {
                Settlement::Settle(outcome) => EffectState::from(outcome),
                // It stays `applying`, its try interrupted: the next reservation reads it back first.
                Settlement::Observe => {
                    end_attempt(tx, id, "interrupted", words(how))?;
                    continue;
                }
            },
        };
        ambiguous += u32::from(next == EffectState::Ambiguous);
        set_state(tx, live, id, next, &Stored::default(), words(how))?;
    }
    Ok(ambiguous)
}

/// The key of an effect, other than `except`, that the unfinished attempt applies or observes and has not settled.
pub(crate) fn unsettled(tx: &Tx<'_>, live: &Live, except: Option<&str>) -> Result<Option<String>, StateError> {
    let Some(current) = live.current.as_ref().filter(|_| live.open_effects > 0) else {
        return Ok(None);
    };
    let mut statement = tx.db.prepare_cached(
        "SELECT e.key FROM effects e JOIN effect_attempts t ON t.effect = e.id AND t.status = 'applying'
          WHERE e.resource = ?1 AND e.status = 'applying' AND t.attempt = ?2 AND e.key IS NOT ?3",
    )?;
    maybe(statement.query_row((live.key, current.key, except), |row| row.get(0)))
}

/// Settles what earlier tries of the finishing visit left open and the last attempt did not reserve again: a try that may have
/// happened is ambiguous, one that will never be tried again is cancelled.
pub(crate) fn close_visit(tx: &Tx<'_>, live: &mut Live) -> Result<(), StateError> {
    let Some(current) = live.current.clone().filter(|_| live.open_effects > 0) else {
        return Ok(());
    };
    let mut statement = tx.db.prepare_cached(
        "SELECT id, status FROM effects WHERE resource = ?1 AND node = ?2 AND visit = ?3 AND status IN ('applying', 'pending')",
    )?;
    let rows: Vec<(i64, String)> = statement
        .query_map((live.key, current.node, current.visit), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<Result<_, _>>()?;
    for (id, status) in rows {
        let next = if status == "pending" {
            EffectState::Cancelled
        } else {
            EffectState::Ambiguous
        };
        set_state(
            tx,
            live,
            id,
            next,
            &Stored::default(),
            "its node ended without trying it again",
        )?;
    }
    Ok(())
}

/// Moves an ambiguous effect to where a person says it stands. Its uncertain try stays recorded as what it was.
pub(crate) fn resolve(
    tx: &Tx<'_>,
    live: &mut Live,
    row: &Row,
    state: EffectState,
    result: Option<Prepared>,
    source: &str,
) -> Result<(), StateError> {
    let stored = result
        .map(|result| result.store(tx.db, tx.now))
        .transpose()?
        .unwrap_or_default();
    let node = tx
        .db
        .prepare_cached(
            "UPDATE effects SET status = ?2, result_json = ?3, result_blob = ?4, updated_at = ?5 WHERE id = ?1 RETURNING node",
        )?
        .query_row((row.id, state.name(), &stored.json, stored.blob, tx.now), |found| found.get(0))?;
    let (kind, word) = match state {
        EffectState::Applied => ("effect.confirmed", "confirmed"),
        EffectState::Pending => ("effect.retried", "retried"),
        _ => ("effect.given_up", "given up"),
    };
    let detail = format!("{word} by {source}");
    tx.db
        .prepare_cached("UPDATE effect_attempts SET detail = ?3 WHERE effect = ?1 AND number = ?2")?
        .execute((row.id, row.attempts, crate::live::bounded(&detail)))?;
    // A person's word on the effect decides its visit, not the budget that ran out before.
    tx.db
        .prepare_cached(
            "UPDATE node_attempts SET status = 'interrupted' WHERE status = 'overran' AND id = (
               SELECT n.latest_attempt FROM run_nodes n JOIN effects e ON e.node = n.node AND e.visit = n.visits
                WHERE n.run = ?1 AND e.id = ?2)",
        )?
        .execute((live.key, row.id))?;
    live.ambiguous_effects = live.ambiguous_effects.saturating_sub(1);
    live.open_effects += u32::from(!state.is_settled());
    let payload = canonical::write_value(&serde_json::json!({ "attempt": row.attempts, "by": source }));
    let about = About {
        node,
        attempt: None,
        payload: std::str::from_utf8(&payload).ok(),
    };
    live.event(tx, "effect", kind, about)
}

/// An interruption as the review shows it.
const fn words(how: Interruption) -> &'static str {
    match how {
        Interruption::CaughtError => "its code failed",
        Interruption::Killed => "its process ended while it was being applied",
        Interruption::TimedOut => "its time ran out while it was being applied",
        Interruption::Paused => "the run was paused while it was being applied",
        Interruption::Cancelled => "the run was cancelled while it was being applied",
    }
}

fn refused(reason: &'static str, message: String) -> Refused {
    Refused { reason, message }
}

/// The effect of a key.
pub(crate) fn find(tx: &Tx<'_>, key: &str) -> Result<Option<Row>, StateError> {
    let mut statement = tx.db.prepare_cached(
        "SELECT id, resource, status, kind, fingerprint, attempts, result_json, result_blob FROM effects WHERE key = ?1",
    )?;
    let row = maybe(statement.query_row([key], |row| {
        let texts: [String; 2] = [row.get(2)?, row.get(3)?];
        Ok((
            row.get(0)?,
            row.get(1)?,
            texts,
            row.get(4)?,
            row.get(5)?,
            Stored::columns(row, 6)?,
        ))
    }))?;
    let Some((id, resource, [state, kind], fingerprint, attempts, result)) = row else {
        return Ok(None);
    };
    let (state, kind) = (crate::query::word("effect state", &state)?, names::effect_kind(&kind)?);
    Ok(Some(Row {
        id,
        resource,
        state,
        kind,
        fingerprint,
        attempts,
        result,
    }))
}

/// The node attempt whose try is being applied or observed.
fn applying_attempt(tx: &Tx<'_>, effect: i64) -> Result<Option<AttemptKey>, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT attempt FROM effect_attempts WHERE effect = ?1 AND status = 'applying'")?;
    maybe(statement.query_row([effect], |row| row.get(0)))
}

fn insert(tx: &Tx<'_>, live: &Live, request: &Request<'_>) -> Result<i64, StateError> {
    let current = live.current.as_ref();
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO effects (resource, key, node, visit, effect_type, kind, fingerprint, status, attempts, created_at, updated_at)
         VALUES (:run, :key, :node, :visit, :type, :kind, :fingerprint, 'applying', 1, :now, :now)",
    )?;
    statement.execute(named_params! {
        ":run": live.key, ":key": request.key, ":node": current.map(|current| current.node),
        ":visit": current.map(|current| current.visit), ":type": request.effect_type,
        ":kind": names::of_effect_kind(request.kind), ":fingerprint": request.fingerprint, ":now": tx.now,
    })?;
    Ok(tx.db.last_insert_rowid())
}

fn begin_again(tx: &Tx<'_>, id: i64, attempt: u32) -> Result<i64, StateError> {
    end_attempt(tx, id, "interrupted", "tried again")?;
    tx.db
        .prepare_cached("UPDATE effects SET status = 'applying', attempts = ?2, updated_at = ?3 WHERE id = ?1")?
        .execute((id, attempt, tx.now))?;
    Ok(id)
}

fn insert_attempt(tx: &Tx<'_>, id: i64, number: u32, attempt: AttemptKey, generation: u64) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "INSERT INTO effect_attempts (effect, number, attempt, generation, status, started_at)
             VALUES (?1, ?2, ?3, ?4, 'applying', ?5)",
        )?
        .execute((id, number, attempt, generation, tx.now))?;
    Ok(())
}

/// An interrupted try is read back by the attempt that re-executes its visit.
fn adopt_attempt(tx: &Tx<'_>, id: i64, number: u32, attempt: AttemptKey, generation: u64) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE effect_attempts SET status = 'applying', attempt = ?3, generation = ?4, finished_at = NULL
              WHERE effect = ?1 AND number = ?2",
        )?
        .execute((id, number, attempt, generation))?;
    Ok(())
}

fn end_attempt(tx: &Tx<'_>, id: i64, status: &str, detail: &str) -> Result<(), StateError> {
    tx.db
        .prepare_cached(
            "UPDATE effect_attempts SET status = ?2, finished_at = ?3, detail = ?4 WHERE effect = ?1 AND status = 'applying'",
        )?
        .execute((id, status, tx.now, detail))?;
    Ok(())
}

/// Moves an effect out of `applying` or `pending`, with its open try and the run's counters.
fn set_state(
    tx: &Tx<'_>,
    live: &mut Live,
    id: i64,
    state: EffectState,
    result: &Stored,
    detail: &str,
) -> Result<(), StateError> {
    let name = state.name();
    let mut statement = tx.db.prepare_cached(
        "UPDATE effects SET status = ?2, result_json = ?3, result_blob = ?4, updated_at = ?5 WHERE id = ?1
         RETURNING node",
    )?;
    let node = statement.query_row((id, name, &result.json, result.blob, tx.now), |row| row.get(0))?;
    drop(statement);
    end_attempt(
        tx,
        id,
        if state == EffectState::Pending {
            "interrupted"
        } else {
            name
        },
        detail,
    )?;
    if state.is_settled() {
        live.open_effects = live.open_effects.saturating_sub(1);
    }
    live.ambiguous_effects += u32::from(state == EffectState::Ambiguous);
    let attempt = live.current.as_ref().map(|current| current.key);
    live.event(
        tx,
        "effect",
        &format!("effect.{name}"),
        About {
            node,
            attempt,
            payload: None,
        },
    )
}
