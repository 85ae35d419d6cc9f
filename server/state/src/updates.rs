//! Updates and passive messages of running attempts.

use std::collections::HashSet;

use piw_engine::progress::{EtaTracker, ProgressData};
use piw_engine::update::{self, UpdateError};
use piw_protocol::canonical;
use piw_protocol::run::Update;
use rusqlite::named_params;
use serde_json::json;

use crate::cache::{Current, Live};
use crate::child::{Decided, accept, refuse};
use crate::error::StateError;
use crate::live::{About, Bump};
use crate::message;
use crate::value::maybe;
use crate::writer::Tx;

/// Most updates of one message.
const MAX_UPDATES: usize = 256;
/// Longest passive message in bytes.
const MESSAGE_LIMIT: usize = 64 * 1024;

/// A passive message.
pub(crate) struct Notification<'a> {
    pub(crate) kind: &'a str,
    pub(crate) text: &'a str,
    pub(crate) index: u32,
}

/// `node.update`: the newest update per type and key is current.
pub(crate) fn publish(
    tx: &mut Tx<'_>,
    mut live: Live,
    attempt_id: Option<&str>,
    updates: &[Update],
) -> Result<Decided, StateError> {
    let current = live
        .current
        .clone()
        .filter(|current| Some(current.id.as_str()) == attempt_id);
    let Some(current) = current else {
        return Ok(refuse(
            tx,
            live,
            "attempt",
            "updates must name the unfinished attempt".to_owned(),
        ));
    };
    if updates.len() > MAX_UPDATES {
        let text = format!(
            "{} updates in one message are above the limit of {MAX_UPDATES}",
            updates.len()
        );
        return Ok(refuse(tx, live, "updates", text));
    }
    for update in updates {
        if let Err(error) = update::check(update) {
            return Ok(refuse(tx, live, "updates", error.to_string()));
        }
    }
    if let Err(error) = check_pairs(tx, &live, updates)? {
        return Ok(refuse(tx, live, "updates", error.to_string()));
    }
    let mut published = Vec::with_capacity(updates.len());
    for update in updates {
        live.update_seq += 1;
        write(tx, &live, &current, update)?;
        published.push(json!({ "type": update.update_type, "key": update.key, "seq": live.update_seq }));
    }
    let payload = canonical::write_value(&json!({ "updates": published }));
    let about = About {
        node: Some(current.node),
        attempt: Some(current.key),
        payload: std::str::from_utf8(&payload).ok(),
    };
    live.event(tx, "update", "node.update", about)?;
    accept(tx, live, Bump::View)
}

/// The run must keep within its number of current pairs.
fn check_pairs(tx: &Tx<'_>, live: &Live, updates: &[Update]) -> Result<Result<(), UpdateError>, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT count(*) FROM workflow_updates WHERE run = ?1")?;
    let mut current: usize = statement.query_row([live.key], |row| row.get(0))?;
    let mut statement = tx
        .db
        .prepare_cached("SELECT 1 FROM workflow_updates WHERE run = ?1 AND update_type = ?2 AND key = ?3")?;
    let mut new = HashSet::new();
    for update in updates {
        let pair = (&update.update_type, &update.key);
        let exists = new.contains(&pair) || statement.exists((live.key, pair.0, pair.1))?;
        if let Err(error) = update::check_pairs(update, current, exists) {
            return Ok(Err(error));
        }
        if !exists {
            current += 1;
            new.insert(pair);
        }
    }
    Ok(Ok(()))
}

/// Writes one update as the current one of its pair; progress also feeds the estimator.
fn write(tx: &Tx<'_>, live: &Live, current: &Current, update: &Update) -> Result<(), StateError> {
    let data = String::from_utf8(canonical::write_value(&update.data))
        .map_err(|error| StateError::Invalid(format!("update {} {}: {error}", update.update_type, update.key)))?;
    let estimate = match ProgressData::parse(&update.data) {
        Ok(progress) if update.update_type == update::PROGRESS_TYPE => {
            let mut statement = tx.db.prepare_cached(
                "SELECT estimate FROM workflow_updates WHERE run = ?1 AND update_type = ?2 AND key = ?3",
            )?;
            let stored: Option<Option<String>> =
                maybe(statement.query_row((live.key, &update.update_type, &update.key), |row| row.get(0)))?;
            // An estimator of another shape starts over: it holds no fact.
            let mut tracker: EtaTracker = stored
                .flatten()
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default();
            tracker.publish(&progress, tx.now);
            Some(serde_json::to_string(&tracker)?)
        }
        _ => None,
    };
    tx.db
        .prepare_cached(
            "INSERT INTO workflow_updates (run, update_type, key, seq, node, attempt, at, data_json, estimate)
             VALUES (:run, :type, :key, :seq, :node, :attempt, :now, :data, :estimate)
             ON CONFLICT (run, update_type, key) DO UPDATE SET seq = :seq, node = :node, attempt = :attempt, at = :now,
               data_json = :data, estimate = :estimate",
        )?
        .execute(named_params! {
            ":run": live.key, ":type": update.update_type, ":key": update.key, ":seq": live.update_seq,
            ":node": current.node, ":attempt": current.key, ":now": tx.now, ":data": data, ":estimate": estimate,
        })?;
    Ok(())
}

/// `notification.requested`: a repeated execution of the visit creates none twice.
pub(crate) fn notify(tx: &mut Tx<'_>, mut live: Live, wanted: &Notification<'_>) -> Result<Decided, StateError> {
    let Some(current) = live.current.clone() else {
        return Ok(refuse(tx, live, "no_attempt", "no attempt is running".to_owned()));
    };
    if wanted.text.len() > MESSAGE_LIMIT || !matches!(wanted.kind, "progress" | "final") {
        let text = format!(
            "a notification is progress or final, not {:?}, and has at most {MESSAGE_LIMIT} bytes, not {}",
            wanted.kind,
            wanted.text.len()
        );
        return Ok(refuse(tx, live, "notification", text));
    }
    let created = tx
        .db
        .prepare_cached(
            "INSERT INTO run_notifications (run, node, visit, number, attempt, kind, message, at)
             VALUES (:run, :node, :visit, :number, :attempt, :kind, :message, :now) ON CONFLICT DO NOTHING",
        )?
        .execute(named_params! {
            ":run": live.key, ":node": current.node, ":visit": current.visit, ":number": wanted.index,
            ":attempt": current.key, ":kind": wanted.kind, ":message": wanted.text, ":now": tx.now,
        })?;
    if created == 1 {
        let payload = canonical::write_value(&json!({ "kind": wanted.kind, "index": wanted.index }));
        let about = About {
            node: Some(current.node),
            attempt: Some(current.key),
            payload: std::str::from_utf8(&payload).ok(),
        };
        live.event(tx, "notification", "notification.created", about)?;
        let notice = message::Notice {
            run_id: &live.run_id,
            node_id: live.graph.node_id(current.node)?,
            visit: current.visit,
            index: wanted.index,
            kind: wanted.kind,
            text: wanted.text,
        };
        message::notify(tx, live.key, &notice)?;
    }
    accept(tx, live, Bump::View)
}
