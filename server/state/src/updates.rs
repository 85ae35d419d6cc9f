//! Updates and passive messages of running attempts.

use piw_protocol::canonical;
use piw_protocol::run::Update;
use rusqlite::named_params;
use serde_json::json;

use crate::cache::Live;
use crate::child::{Decided, accept, refuse};
use crate::error::StateError;
use crate::live::{About, Bump};
use crate::writer::Tx;

/// Most updates of one message.
const MAX_UPDATES: usize = 256;
/// Largest update data in bytes of canonical JSON.
const DATA_LIMIT: usize = 64 * 1024;
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
    let mut encoded = Vec::with_capacity(updates.len());
    for update in updates {
        let data = canonical::write_value(&update.data);
        if data.len() > DATA_LIMIT {
            let text = format!(
                "update {} {} has {} bytes; at most {DATA_LIMIT} are allowed",
                update.update_type,
                update.key,
                data.len()
            );
            return Ok(refuse(tx, live, "updates", text));
        }
        encoded.push(String::from_utf8(data).map_err(|error| StateError::Invalid(error.to_string()))?);
    }
    let mut published = Vec::with_capacity(updates.len());
    for (update, data) in updates.iter().zip(encoded) {
        live.update_seq += 1;
        tx.db
            .prepare_cached(
                "INSERT INTO workflow_updates (run, update_type, key, seq, node, attempt, at, data_json)
                 VALUES (:run, :type, :key, :seq, :node, :attempt, :now, :data)
                 ON CONFLICT (run, update_type, key) DO UPDATE SET seq = :seq, node = :node, attempt = :attempt, at = :now,
                   data_json = :data",
            )?
            .execute(named_params! {
                ":run": live.key, ":type": update.update_type, ":key": update.key, ":seq": live.update_seq,
                ":node": current.node, ":attempt": current.key, ":now": tx.now, ":data": data,
            })?;
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
    }
    accept(tx, live, Bump::View)
}
