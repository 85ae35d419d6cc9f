//! What the benchmarks time inside the server: the making of a session's view, without threads and sockets around it.

use piw_state::query::Reader;

use crate::coordinator::Standing;
use crate::projection::{Looking, Projector, ViewError};

/// Makes views of sessions as the server does, remembering what it remembers. Clones share that.
#[derive(Debug, Clone, Default)]
pub struct SessionViewer {
    projector: Projector,
}

impl SessionViewer {
    /// Makes the view of a session for its coordinator of an epoch, and returns its length in bytes. `now` is wall-clock milliseconds.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn view(&self, reader: &Reader, session: &str, epoch: u64, now: i64) -> Result<usize, ViewError> {
        let standing = Standing { epoch, reported: true };
        let looking = Looking {
            epoch,
            standing,
            window: None,
        };
        let projected = self.projector.session_view(reader, session, looking, now)?;
        Ok(projected.view.json.len())
    }
}
