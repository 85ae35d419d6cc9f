//! `piw state …`: looking after the stored state.

use std::path::{Path, PathBuf};

use piw_protocol::maintenance::{
    StateBackupReport, StatePrune, StatePruneReport, StateStatusReport, StateVerifyReport, ViolationReport,
};
use piw_server::{BackupRefused, Violation};

use super::output;
use super::session::{self, Autostart};
use crate::cli::{BackupArgs, JsonFlag, PruneArgs, StateCommand, VerifyArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::text::{self, bytes};

/// Carries out a command.
///
/// # Errors
/// As the command.
pub fn run(command: &StateCommand) -> Outcome {
    match command {
        StateCommand::Status(args) => status(args),
        StateCommand::Verify(args) => match &args.backup {
            Some(path) => verify_backup(path, args.json),
            None => verify(args),
        },
        StateCommand::Backup(args) => backup(args),
        StateCommand::Prune(args) => prune(args),
    }
}

fn status(args: &JsonFlag) -> Outcome {
    let session = session::connect(Autostart::Allowed)?;
    let report = session.call(session.client().state_status())?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&status_table(&report))?;
    }
    Ok(Exit::Done)
}

fn status_table(report: &StateStatusReport) -> String {
    let free = report.free_pages * 100 / report.pages.max(1);
    let mut runs: Vec<String> = report
        .runs
        .iter()
        .map(|count| format!("{} {}", count.runs, count.status.replace('_', " ")))
        .collect();
    if runs.is_empty() {
        runs.push("none".to_owned());
    }
    let mut rows = vec![
        (
            "database",
            format!(
                "{}, {free}% free; write-ahead log {}",
                bytes(report.database_bytes),
                bytes(report.wal_bytes)
            ),
        ),
        ("runs", format!("{} (in {} trees)", runs.join(", "), report.trees)),
        ("being purged", format!("{} runs", report.deleted_runs)),
        ("steps", report.steps.to_string()),
        (
            "large values",
            format!("{}, {}", report.contents, bytes(report.content_bytes)),
        ),
        ("receipts", report.receipts.to_string()),
        (
            "oldest run",
            report.oldest_run.clone().unwrap_or_else(|| "–".to_owned()),
        ),
        (
            "last sweep",
            report.last_sweep.clone().unwrap_or_else(|| "never".to_owned()),
        ),
        ("next sweep", format!("{}, when idle", report.next_sweep)),
    ];
    if let Some(error) = &report.sweep_error {
        rows.push(("sweep failed", text::clean(error).into_owned()));
    }
    rows.push((
        "invariants",
        if report.violations.is_empty() {
            "all hold".to_owned()
        } else {
            "violated".to_owned()
        },
    ));
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    output::table(&rows) + &violation_lines(&report.violations)
}

fn verify(args: &VerifyArgs) -> Outcome {
    let session = session::connect(Autostart::Allowed)?;
    let report = session.call(session.client().state_verify())?;
    verified("the state", &report, args.json)
}

/// Checks a backup in this process: a backup must be checkable where no server can run.
fn verify_backup(path: &Path, json: bool) -> Outcome {
    let places = session::places()?;
    let found = piw_server::verify_backup(path, &places.state_dir).map_err(|error| {
        let exit = match &error {
            BackupRefused::Unreadable { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Exit::NotFound,
            BackupRefused::Active { .. } | BackupRefused::InUse { .. } => Exit::Conflict,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })?;
    let report = StateVerifyReport {
        sound: found.is_empty(),
        checks: piw_server::verify_checks() as u64,
        violation_total: found.len() as u64,
        violations: found.into_iter().map(reported).collect(),
    };
    verified("the backup", &report, json)
}

fn reported(violation: Violation) -> ViolationReport {
    ViolationReport {
        invariant: violation.invariant.to_owned(),
        run_id: violation.run_id,
        detail: violation.detail,
    }
}

fn verified(what: &str, report: &StateVerifyReport, json: bool) -> Outcome {
    if json {
        output::json(report)?;
    } else if report.sound {
        output::text(&format!("{what} is sound: {} checks, no violation\n", report.checks))?;
    } else {
        let more = report.violation_total - report.violations.len() as u64;
        let more = if more > 0 {
            format!("and {more} more\n")
        } else {
            String::new()
        };
        output::text(&format!(
            "{what} violates its rules:\n{}{more}",
            violation_lines(&report.violations)
        ))?;
    }
    Ok(if report.sound { Exit::Done } else { Exit::Failed })
}

fn backup(args: &BackupArgs) -> Outcome {
    let path = utf8(&args.path)?;
    let session = session::connect(Autostart::Allowed)?;
    let report = session.call(session.client().state_backup(path))?.receipt;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&made(&report))?;
    }
    Ok(if report.violations.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn made(report: &StateBackupReport) -> String {
    let mut said = format!(
        "backed up to {} ({}, state of {}, sha256 {})\n",
        text::clean(&report.path),
        bytes(report.bytes),
        report.taken_at,
        report.sha256
    );
    if !report.violations.is_empty() {
        said.push_str("the file is whole, but the state in it violates its rules:\n");
        said.push_str(&violation_lines(&report.violations));
    }
    said
}

fn prune(args: &PruneArgs) -> Outcome {
    let request = StatePrune {
        before: instant(&args.before, jiff::Timestamp::now())?.to_string(),
        apply: args.apply,
        backup: args.backup.as_deref().map(utf8).transpose()?.map(str::to_owned),
    };
    let session = session::connect(Autostart::Allowed)?;
    let report = session.call(session.client().state_prune(&request))?.receipt;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&pruned(&report))?;
    }
    Ok(Exit::Done)
}

fn pruned(report: &StatePruneReport) -> String {
    let mut said = report.backup.as_ref().map(made).unwrap_or_default();
    let verb = if report.applied { "deleted" } else { "would delete" };
    said.push_str(&format!(
        "{verb} {} in {} that ended before {} ({})\n",
        text::counted(report.runs, "run"),
        text::counted(report.trees, "tree"),
        report.before,
        text::counted(report.steps, "step")
    ));
    for tree in &report.first {
        said.push_str(&format!("  {}  ended {}\n", tree.run_id, tree.finished_at));
    }
    let more = report.trees.saturating_sub(report.first.len() as u64);
    if more > 0 {
        said.push_str(&format!("  and {more} more\n"));
    }
    for kept in &report.kept {
        let trees = text::counted(kept.trees, "tree");
        said.push_str(&format!("kept {trees}: {}\n", text::clean(&kept.reason)));
    }
    if report.applied && report.runs > 0 {
        said.push_str("their space is given back while the server is idle\n");
    }
    said
}

fn violation_lines(violations: &[ViolationReport]) -> String {
    violations
        .iter()
        .map(|violation| {
            let run = violation
                .run_id
                .as_deref()
                .map_or_else(String::new, |run| format!("run {run}: "));
            format!("  {}: {run}{}\n", violation.invariant, text::clean(&violation.detail))
        })
        .collect()
}

/// A time in the past: an instant, a date at its start (UTC), or an age in days or hours.
fn instant(given: &str, now: jiff::Timestamp) -> Result<jiff::Timestamp, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "{:?} is no RFC 3339 instant, no date and no age",
            text::clean(given)
        ))
        .hint("for example 2026-01-31T12:00:00Z, 2026-01-31, 30d or 12h")
    };
    if let Ok(instant) = given.parse() {
        return Ok(instant);
    }
    if let Ok(date) = given.parse::<jiff::civil::Date>() {
        return format!("{date}T00:00:00Z").parse().map_err(|_| wrong());
    }
    let hours = match given.split_at_checked(given.len().saturating_sub(1)) {
        Some((days, "d")) => days.parse::<i64>().ok().and_then(|days| days.checked_mul(24)),
        Some((hours, "h")) => hours.parse().ok(),
        _ => None,
    };
    let age = hours
        .filter(|hours| *hours >= 0)
        .and_then(|hours| jiff::Span::new().try_hours(hours).ok());
    age.and_then(|age| now.checked_sub(age).ok()).ok_or_else(wrong)
}

fn utf8(path: &Path) -> Result<&str, Failure> {
    if !path.is_absolute() {
        let full = std::env::current_dir().map_or_else(|_| PathBuf::from("/…"), |dir| dir.join(path));
        return Err(Failure::usage(format!(
            "a backup needs an absolute path, not {:?}",
            text::clean(&path.to_string_lossy())
        ))
        .hint(format!("for example {}", text::clean(&full.to_string_lossy()))));
    }
    path.to_str()
        .ok_or_else(|| Failure::usage(format!("the path {} is no UTF-8 text", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_instants_dates_or_ages() {
        let now: jiff::Timestamp = "2026-03-31T12:00:00Z".parse().unwrap();
        for (given, expected) in [
            ("2026-03-01T01:02:03Z", "2026-03-01T01:02:03Z"),
            ("2026-03-01T01:02:03+02:00", "2026-02-28T23:02:03Z"),
            ("2026-03-01", "2026-03-01T00:00:00Z"),
            ("30d", "2026-03-01T12:00:00Z"),
            ("0d", "2026-03-31T12:00:00Z"),
            ("36h", "2026-03-30T00:00:00Z"),
        ] {
            assert_eq!(instant(given, now).unwrap().to_string(), expected, "{given}");
        }
        for wrong in [
            "",
            "d",
            "-1d",
            "30",
            "30 days",
            "yesterday",
            "2026-13-01",
            "99999999999999999d",
            "é",
        ] {
            assert_eq!(instant(wrong, now).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
