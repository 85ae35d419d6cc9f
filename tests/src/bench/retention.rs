//! How long work waits for the retention sweep.

use std::path::Path;

use super::table::{Bar, Row};

/// Longest wait that the design allows.
const YIELD_MS: f64 = 50.0;

/// Purges a tree of `steps` steps beside writes that arrive every few milliseconds.
///
/// # Errors
/// When the database cannot be written.
pub fn rows(dir: &Path, steps: u64) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(piw_state::bench::purging(&dir.join("retention"), steps))?;
    let longest = measured.waits.iter().max().copied().unwrap_or_default();
    let alone = measured.quiet.iter().max().copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "a count of rows is far below 2^52")]
    let rate = measured.rows as f64 / measured.elapsed.as_secs_f64();
    Ok(vec![
        Row::millis(
            format!("a tree of {steps} steps disappears in"),
            Bar::AtMost(YIELD_MS),
            &[measured.marked_in],
        ),
        Row::millis("wait of a write while it is purged", Bar::Info, &measured.waits),
        Row::millis(
            "longest wait of a write while it is purged",
            Bar::AtMost(YIELD_MS),
            &[longest],
        ),
        Row::millis("wait of a write with nothing beside it", Bar::Info, &measured.quiet),
        Row::millis("longest such wait with nothing beside it", Bar::Info, &[alone]),
        Row::new("rows purged", "/s", Bar::Info, &[rate]),
    ])
}
