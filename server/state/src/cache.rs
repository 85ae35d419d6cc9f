//! What the writer remembers of runs between commands.

use crate::changes::Changes;

/// Definitions and progress of the runs that execute now.
#[derive(Default)]
pub(crate) struct RunCache {}

impl RunCache {
    /// Drops the runs that a rolled-back job may have advanced in memory.
    pub(crate) fn forget(&mut self, _changes: &Changes) {}

    /// Drops everything.
    pub(crate) fn clear(&mut self) {}
}
