//! Current updates as they travel, with the estimate of progress updates.

use piw_engine::progress::{EtaTracker, ProgressData};
use piw_engine::update::PROGRESS_TYPE;
use piw_protocol::run::{ProgressEstimate, StoredUpdate, Update};
use piw_state::query::updates::UpdateRow;
use piw_state::query::{QueryError, rfc3339};

use super::content::Contents;
use super::nodes::Nodes;

/// One current update. `now` is wall-clock milliseconds.
pub(crate) fn update(
    row: UpdateRow,
    nodes: &Nodes,
    now: i64,
    contents: &mut Contents,
) -> Result<StoredUpdate, QueryError> {
    Ok(StoredUpdate {
        node_id: nodes.id(row.node)?,
        estimate: estimate(&row, now),
        attempt_id: row.attempt_id,
        seq: row.seq,
        at: rfc3339(row.at),
        update: Update {
            update_type: row.update_type,
            key: row.key,
            data: contents.value(row.data).to_wire(),
        },
    })
}

/// The estimate of a progress update; data that was checked when it was published reads back, anything else has none.
fn estimate(row: &UpdateRow, now: i64) -> Option<ProgressEstimate> {
    if row.update_type != PROGRESS_TYPE {
        return None;
    }
    let data = ProgressData::parse(&row.data).ok()?;
    let tracker = row
        .estimator
        .as_deref()
        .and_then(|text| serde_json::from_str::<EtaTracker>(text).ok());
    Some(tracker.unwrap_or_default().estimate(&data, row.at, now))
}
