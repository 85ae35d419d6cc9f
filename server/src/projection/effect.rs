//! Effects as clients see them.

use piw_protocol::effect::{EFFECT_PAGE, EffectList, EffectListReport, EffectView, REVIEW_ITEMS, Review};
use piw_state::query::effects::{self, EffectFilter, EffectRow, EffectScope};
use piw_state::query::run::{self as runs, RunFacts};
use piw_state::query::{QueryError, Reader, rfc3339};

use super::ViewError;
use super::bounds::cut;

/// Longest type and detail, in bytes.
const TEXT: usize = 1024;

/// The effects of a run that a person has to settle; `None` when there are none.
pub(crate) fn review(reader: &Reader, facts: &RunFacts) -> Result<Option<Review>, QueryError> {
    if facts.ambiguous_effects == 0 {
        return Ok(None);
    }
    let filter = EffectFilter {
        run: Some(facts.id),
        ..EffectFilter::default()
    };
    let (effects, total) = effects::page(reader, &filter, 0, REVIEW_ITEMS)?;
    Ok(Some(Review {
        total,
        effects: effects.into_iter().map(view).collect(),
    }))
}

/// A window of effects for `effect.list`.
pub(crate) fn list(reader: &Reader, run_id: Option<&str>, request: &EffectList) -> Result<EffectListReport, ViewError> {
    let run = match run_id {
        Some(run_id) => Some(runs::key(reader, run_id)?.ok_or_else(|| ViewError::RunNotFound {
            run_id: run_id.to_owned(),
        })?),
        None => None,
    };
    let filter = EffectFilter {
        run,
        scope: if request.all {
            EffectScope::Every
        } else {
            EffectScope::Ambiguous
        },
        key: request.effect_id.clone(),
    };
    let start = request.start.unwrap_or(0);
    let limit = request.limit.unwrap_or(EFFECT_PAGE).min(EFFECT_PAGE);
    let (effects, total) = effects::page(reader, &filter, start, limit)?;
    Ok(EffectListReport {
        start,
        total,
        effects: effects.into_iter().map(view).collect(),
    })
}

/// The manual effects that are being applied now, the oldest [`REVIEW_ITEMS`] and how many there are: what an
/// interruption would make ambiguous.
pub(crate) fn uncertain(reader: &Reader) -> Result<Review, QueryError> {
    let filter = EffectFilter {
        scope: EffectScope::Uncertain,
        ..EffectFilter::default()
    };
    let (effects, total) = effects::page(reader, &filter, 0, REVIEW_ITEMS)?;
    Ok(Review {
        total,
        effects: effects.into_iter().map(view).collect(),
    })
}

fn view(row: EffectRow) -> EffectView {
    EffectView {
        effect_id: row.key,
        run_id: row.run_id,
        workflow_name: row.workflow_name,
        run_status: row.run_status,
        revision: row.revision,
        node: row.node_id,
        visit: row.visit,
        effect_type: cut(&row.effect_type, TEXT),
        kind: row.kind,
        state: row.state,
        attempt: row.attempt,
        reserved_at: rfc3339(row.reserved_at),
        attempted_at: rfc3339(row.attempted_at),
        detail: row.detail.as_deref().map(|detail| cut(detail, TEXT)),
        unfinished: row.unfinished,
    }
}
