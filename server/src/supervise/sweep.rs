//! Orphans of runners that died badly.
//!
//! The server is a subreaper (Linux), so whatever a dead runner leaves behind, in whatever session, becomes a child of the
//! server. Elsewhere only registered groups are found.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use piw_process::tree::ProcessInfo;
use piw_process::{ProcessIdentity, group, tree};

use super::registry::Registry;
use super::spawn::Spawner;

/// Ends every child of this process that is no registered resolver or runner, with all that is below it. Returns how many
/// were found.
pub(crate) async fn end_orphans(registry: &Registry, spawner: &Spawner, grace: Duration) -> io::Result<usize> {
    if !cfg!(target_os = "linux") {
        return Ok(0);
    }
    let orphans = {
        // While this is held, no child can exist that is not registered yet.
        let _pause = spawner.pause().await;
        let keep: HashSet<u32> = registry.own_children().into_iter().collect();
        tokio::task::spawn_blocking(move || unknown_children(&keep)).await??
    };
    for orphan in &orphans {
        // It may have changed its group: the process and its descendants are what is known.
        group::end_descendants(orphan.pid, grace, &[]).await?;
        group::end_each(std::slice::from_ref(orphan), grace).await?;
    }
    Ok(orphans.len())
}

fn unknown_children(keep: &HashSet<u32>) -> io::Result<Vec<ProcessIdentity>> {
    let own = std::process::id();
    tree::collect_orphans(keep)?;
    let children = tree::descendants(own)?;
    Ok(children
        .iter()
        .filter(|info| info.parent == own && !keep.contains(&info.pid) && !info.zombie)
        .map(ProcessInfo::identity)
        .collect())
}
