//! Current updates as they travel, with the estimate of progress updates.

use piw_protocol::run::{StoredUpdate, Update};
use piw_state::query::updates::UpdateRow;
use piw_state::query::{QueryError, rfc3339};

use super::content::Contents;
use super::nodes::Nodes;

/// One current update. `now` is wall-clock milliseconds.
pub(crate) fn update(row: UpdateRow, nodes: &Nodes, contents: &mut Contents) -> Result<StoredUpdate, QueryError> {
    Ok(StoredUpdate {
        node_id: nodes.id(row.node)?,
        attempt_id: row.attempt_id,
        seq: row.seq,
        at: rfc3339(row.at),
        estimate: None,
        update: Update {
            update_type: row.update_type,
            key: row.key,
            data: contents.value(row.data).to_wire(),
        },
    })
}
