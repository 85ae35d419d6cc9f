//! `state.prune`: what a sweep does, for another time and with a backup before it.

use std::collections::BTreeMap;

use piw_protocol::maintenance::{KeptTrees, PrunedTree, StateBackupReport, StatePruneReport};
use piw_state::query::rfc3339;
use piw_state::{RunKey, StateError, Tree};

use crate::server::Server;

/// Trees that a report names.
const MAX_NAMED: usize = 100;

/// What is found on the way.
#[derive(Debug, Default)]
struct Found {
    trees: u64,
    runs: u64,
    steps: u64,
    first: Vec<PrunedTree>,
    kept: BTreeMap<&'static str, u64>,
}

impl Found {
    fn add(&mut self, tree: &Tree) {
        self.trees += 1;
        self.runs += tree.runs;
        self.steps += tree.steps;
        if self.first.len() < MAX_NAMED {
            self.first.push(PrunedTree {
                run_id: tree.run_id.clone(),
                runs: tree.runs,
                finished_at: rfc3339(tree.finished_at),
            });
        }
    }

    fn report(self, before: i64, backup: Option<StateBackupReport>) -> StatePruneReport {
        StatePruneReport {
            before: rfc3339(before),
            applied: backup.is_some(),
            trees: self.trees,
            runs: self.runs,
            steps: self.steps,
            first: self.first,
            kept: self
                .kept
                .into_iter()
                .map(|(reason, trees)| KeptTrees {
                    reason: reason.to_owned(),
                    trees,
                })
                .collect(),
            backup,
        }
    }
}

impl Server {
    /// Counts what may go; with a backup, also removes it from sight. The rows are purged by the next sweep, which is asked for.
    pub(crate) async fn prune(
        &self,
        before: i64,
        backup: Option<StateBackupReport>,
    ) -> Result<StatePruneReport, StateError> {
        let mut found = Found::default();
        let mut after = None;
        loop {
            let page = self.state.select_trees(before, after).await?;
            for (reason, trees) in page.kept {
                *found.kept.entry(reason).or_default() += trees;
            }
            for tree in &page.trees {
                found.add(tree);
            }
            if backup.is_some() {
                let mut roots: Vec<RunKey> = page.trees.iter().map(|tree| tree.root).collect();
                while !roots.is_empty() {
                    let marked = self.state.mark_trees(before, roots.clone()).await?;
                    roots.drain(..marked.looked_at);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        if backup.is_some() {
            self.maintenance.ask();
        }
        Ok(found.report(before, backup))
    }
}
