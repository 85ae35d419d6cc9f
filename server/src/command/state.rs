//! `state.status`, `state.verify`, `state.backup` and `state.prune`.

use std::sync::Arc;

use piw_protocol::envelope::{Outcome, Request};
use piw_protocol::maintenance::{
    StateBackup, StateBackupReport, StatePrune, StateStatusReport, StateVerifyReport, StatusCount,
};
use piw_state::query::rfc3339;
use piw_state::{BackupError, BackupMade, CommandIdentity, verify};

use super::{decided, payload};
use crate::answer::{Answer, unavailable};
use crate::maintenance::violations;
use crate::server::Server;

impl Server {
    /// Counts, sizes and violated invariants.
    pub(super) async fn state_status(&self) -> Answer {
        let facts = match self.state.facts().await {
            Ok(facts) => facts,
            Err(error) => return unavailable(&error),
        };
        let now = self.state.clock().wall_ms();
        Answer::accepted(&StateStatusReport {
            database_bytes: facts.database_bytes,
            wal_bytes: facts.wal_bytes,
            page_bytes: facts.page_bytes,
            pages: facts.pages,
            free_pages: facts.free_pages,
            runs: facts
                .runs
                .into_iter()
                .map(|(status, runs)| StatusCount { status, runs })
                .collect(),
            trees: facts.trees,
            deleted_runs: facts.deleted_runs,
            steps: facts.steps,
            contents: facts.contents,
            content_bytes: facts.content_bytes,
            receipts: facts.receipts,
            oldest_run: facts.oldest_run,
            last_sweep: facts.sweep.last_at.map(rfc3339),
            next_sweep: rfc3339(facts.sweep.next_at(now)),
            sweep_error: facts.sweep.error,
            violations: violations(&facts.violations),
        })
    }

    /// Everything that can be checked.
    pub(super) async fn state_verify(&self) -> Answer {
        match self.state.verify().await {
            Ok(found) => Answer::accepted(&StateVerifyReport {
                sound: found.is_empty(),
                checks: verify::checks() as u64,
                violation_total: found.len() as u64,
                violations: violations(&found),
            }),
            Err(error) => unavailable(&error),
        }
    }

    pub(super) async fn state_backup(self: &Arc<Self>, request: Request) -> Answer {
        let server = Arc::clone(self);
        self.once(request, |identity, request| async move {
            let StateBackup { path } = payload(&request)?;
            let _one = server.maintenance.one.lock().await;
            let report = server.back_up(path).await?;
            piw_fault::point!("server::backup_made");
            Ok(decided(server.state.record_receipt(identity, report).await))
        })
        .await
    }

    pub(super) async fn state_prune(self: &Arc<Self>, request: Request) -> Answer {
        let prune: StatePrune = match payload(&request) {
            Ok(prune) => prune,
            Err(answer) => return answer,
        };
        if !prune.apply {
            return match self.count_prunable(&prune).await {
                Ok(answer) | Err(answer) => answer,
            };
        }
        let server = Arc::clone(self);
        self.once(request, |identity, _| async move {
            let _one = server.maintenance.one.lock().await;
            server.apply_prune(identity, prune).await
        })
        .await
    }

    async fn count_prunable(&self, prune: &StatePrune) -> Result<Answer, Answer> {
        let before = self.prune_before(prune)?;
        let report = self.prune(before, None).await.map_err(|error| unavailable(&error))?;
        Ok(Answer::accepted(&report))
    }

    async fn apply_prune(&self, identity: CommandIdentity, prune: StatePrune) -> Result<Answer, Answer> {
        let before = self.prune_before(&prune)?;
        let backup = self.back_up(prune.backup.unwrap_or_default()).await?;
        if !backup.violations.is_empty() {
            return Err(Answer::refuse(
                Outcome::Rejected,
                "state_violated",
                &format!(
                    "the state violates {} invariants; nothing was deleted (the backup {} was made)",
                    backup.violations.len(),
                    backup.path
                ),
            ));
        }
        let report = self
            .prune(before, Some(backup))
            .await
            .map_err(|error| unavailable(&error))?;
        Ok(decided(self.state.record_receipt(identity, report).await))
    }

    /// The instant of a prune in wall-clock milliseconds, once its payload is found consistent.
    fn prune_before(&self, prune: &StatePrune) -> Result<i64, Answer> {
        if prune.apply != prune.backup.is_some() {
            return Err(Answer::invalid(
                &"`apply` needs `backup`, the path of the backup that is made first, and only then",
            ));
        }
        let before: jiff::Timestamp = prune
            .before
            .parse()
            .map_err(|error| Answer::invalid(&format!("`before` is no RFC 3339 instant: {error}")))?;
        let (before, now) = (before.as_millisecond(), self.state.clock().wall_ms());
        if before > now {
            return Err(Answer::invalid(&format!(
                "`before` must not lie in the future: {} is after {}",
                rfc3339(before),
                rfc3339(now)
            )));
        }
        Ok(before)
    }

    async fn back_up(&self, path: String) -> Result<StateBackupReport, Answer> {
        let made = self
            .state
            .backup(path.clone().into())
            .await
            .map_err(|error| refused(&error))?;
        let BackupMade {
            bytes,
            sha256,
            taken_at,
            violations: found,
            ..
        } = made;
        Ok(StateBackupReport {
            path,
            bytes,
            sha256,
            taken_at: rfc3339(taken_at),
            violations: violations(&found),
        })
    }
}

/// What a backup that was not made means to a client. Only what a retry cannot change is refused for good.
fn refused(error: &BackupError) -> Answer {
    let (outcome, reason) = match error {
        BackupError::NotAbsolute(_) | BackupError::Reserved(_) => (Outcome::Rejected, "invalid_request"),
        BackupError::Exists(_) => (Outcome::Conflict, "backup_exists"),
        BackupError::DiskFull { .. } => (Outcome::Unavailable, "disk_full"),
        BackupError::Write { .. } => (Outcome::Unavailable, "backup_failed"),
        BackupError::Damaged(_) => (Outcome::Unavailable, "corrupt"),
        BackupError::State(error) => return unavailable(error),
    };
    Answer::refuse(outcome, reason, error)
}
