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
    let (estimate, rate) = progress(&row, now).unzip();
    Ok(StoredUpdate {
        node_id: nodes.id(row.node)?,
        estimate,
        rate: rate.flatten(),
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

/// Estimate and rate of a progress update; data that was checked when it was published reads back, anything else has none.
fn progress(row: &UpdateRow, now: i64) -> Option<(ProgressEstimate, Option<f64>)> {
    if row.update_type != PROGRESS_TYPE {
        return None;
    }
    let data = ProgressData::parse(&row.data).ok()?;
    let tracker = row
        .estimator
        .as_deref()
        .and_then(|text| serde_json::from_str::<EtaTracker>(text).ok())
        .unwrap_or_default();
    Some((tracker.estimate(&data, row.at, now), tracker.rate_per_second(&data)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_measured_rate_travels_with_or_without_an_end() {
        let mut tracker = EtaTracker::default();
        let mut row = UpdateRow {
            update_type: PROGRESS_TYPE.to_owned(),
            key: "k".to_owned(),
            seq: 3,
            node: 0,
            attempt_id: "a".to_owned(),
            at: 4_000,
            data: json!({}),
            estimator: None,
        };
        for at in [0, 2_000, 4_000] {
            row.data = json!({"status": "running", "completed": at / 500, "unit": "files"});
            tracker.publish(&ProgressData::parse(&row.data).unwrap(), at);
        }
        row.estimator = Some(serde_json::to_string(&tracker).unwrap());
        let (estimate, rate) = progress(&row, 4_000).unwrap();
        assert!(matches!(estimate, ProgressEstimate::Unavailable { .. }), "{estimate:?}");
        assert_eq!(rate, Some(2.0), "files a second");
        row.update_type = "note".to_owned();
        assert_eq!(progress(&row, 4_000), None);
    }
}
