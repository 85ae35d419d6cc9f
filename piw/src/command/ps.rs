//! `piw ps`: lists runs.

use piw_protocol::ops::RunList;
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::RunListItem;

use super::output;
use super::session::{self, Autostart, Session};
use crate::cli::PsArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::follow::lines::{status_mark, status_name};
use crate::follow::{between, elapsed};
use crate::text;

/// Runs shown without `--all`.
const NEWEST: u32 = 20;

/// Prints the list.
///
/// # Errors
/// No server.
pub fn run(args: &PsArgs) -> Outcome {
    let session = session::connect(Autostart::Allowed)?;
    let (items, total) = fetch(&session, args.all)?;
    if args.json {
        output::json(&items)?;
        return Ok(Exit::Done);
    }
    if items.is_empty() {
        output::text("no runs yet; start one with: piw run <workflow>  (piw workflows lists them)\n")?;
        return Ok(Exit::Done);
    }
    let now = jiff::Timestamp::now().to_string();
    let mut rows = vec![
        ["RUN", "STATUS", "WORKFLOW", "AGE", "TIME", "TITLE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(items.iter().map(|item| row(item, &now)));
    output::text(&output::table(&rows))?;
    let hidden = total.saturating_sub(items.len() as u64);
    if hidden > 0 {
        output::text(&format!("{hidden} more: piw ps --all\n"))?;
    }
    Ok(Exit::Done)
}

fn fetch(session: &Session, all: bool) -> Result<(Vec<RunListItem>, u64), Failure> {
    let mut items: Vec<RunListItem> = Vec::new();
    loop {
        let request = RunList {
            start: Some(items.len() as u64),
            limit: if all { None } else { Some(NEWEST) },
            ..RunList::default()
        };
        let page = session.call(session.client().run_list(&request))?;
        let got = page.items.len();
        items.extend(page.items);
        if !all || got == 0 || items.len() as u64 >= page.total {
            // A run that started between two pages shifts the rest by one; the same run is listed once.
            let mut seen = std::collections::HashSet::new();
            items.retain(|item| seen.insert(item.run_id.clone()));
            return Ok((items, page.total));
        }
    }
}

fn row(item: &RunListItem, now: &str) -> Vec<String> {
    let (glyph, _) = status_mark(item.display.status);
    let uncertain = if item.possibly_interrupted { "?" } else { "" };
    // Of a run that has ended the status does not tell.
    let unsettled = item.display.status != DisplayStatus::Ambiguous
        && item.display.controls.iter().any(|control| control == "review");
    let review = if unsettled { " (review)" } else { "" };
    let end = item.manifest.finished_at.as_deref().unwrap_or(now);
    vec![
        item.run_id.clone(),
        format!("{glyph} {}{uncertain}{review}", status_name(item.display.status)),
        text::clean(&item.workflow_name).into_owned(),
        elapsed(between(&item.created_at, now)),
        elapsed(between(&item.manifest.started_at, end)),
        text::clean(item.manifest.run_title.as_deref().unwrap_or_default()).into_owned(),
    ]
}
