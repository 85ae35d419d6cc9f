//! `piw ps`: lists runs.

use piw_protocol::ops::{RunFilter, RunList};
use piw_protocol::run::DisplayStatus;
use piw_protocol::view::{PAGE_ITEMS, RunListItem};

use super::output;
use super::session::{self, Autostart, Session};
use crate::cli::PsArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::filter::Filter;
use crate::follow::lines::{status_mark, status_name};
use crate::follow::{between, elapsed};
use crate::text;

/// Prints the list.
///
/// # Errors
/// A filter that cannot be meant, or no server.
pub fn run(args: &PsArgs) -> Outcome {
    let filter = filter(args)?;
    let is_filtered = filter != Filter::default();
    let session = session::connect(Autostart::Allowed)?;
    let now = jiff::Timestamp::now();
    let most = if args.all { u64::MAX } else { args.limit };
    let (items, total) = fetch(&session, filter.request(now.as_millisecond()).as_ref(), most)?;
    if args.json {
        output::json(&items)?;
        return Ok(Exit::Done);
    }
    if items.is_empty() {
        output::text(if is_filtered {
            "no run matches; piw ps lists the newest of all\n"
        } else {
            "no runs yet; start one with: piw run <workflow>  (piw workflows lists them)\n"
        })?;
        return Ok(Exit::Done);
    }
    let now = now.to_string();
    let mut rows = vec![
        ["RUN", "STATUS", "WORKFLOW", "AGE", "TIME", "TITLE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(items.iter().map(|item| row(item, &now)));
    output::text(&output::table(&rows))?;
    let hidden = total.saturating_sub(items.len() as u64);
    if hidden > 0 {
        let how = if is_filtered {
            "the same with --all"
        } else {
            "piw ps --all"
        };
        output::text(&format!("{hidden} more: {how}\n"))?;
    }
    Ok(Exit::Done)
}

/// What the words and the flags ask for together.
fn filter(args: &PsArgs) -> Result<Filter, Failure> {
    let wrong = |message: String| {
        Failure::new(Exit::Usage, text::clean(&message).into_owned()).hint("piw ps --help shows what can be asked for")
    };
    let mut filter =
        Filter::parse(&format!("{} ", args.filter.join(" "))).map_err(|problem| wrong(problem.to_string()))?;
    if !filter.hosts.is_empty() {
        return Err(wrong(
            "host: is for the viewer; piw ps lists the runs of this machine".into(),
        ));
    }
    if args.workflow.is_some() && filter.workflow.is_some() {
        return Err(wrong("the workflow is given twice".into()));
    }
    filter.status.extend_from_slice(&args.status);
    filter.workflow = args.workflow.clone().or(filter.workflow);
    filter.younger = args.since.or(filter.younger);
    filter.older = args.until.or(filter.older);
    filter.check().map_err(|problem| wrong(problem.to_string()))?;
    Ok(filter)
}

fn fetch(session: &Session, filter: Option<&RunFilter>, most: u64) -> Result<(Vec<RunListItem>, u64), Failure> {
    let mut items: Vec<RunListItem> = Vec::new();
    loop {
        let wanted = (most - items.len() as u64).min(PAGE_ITEMS as u64);
        let request = RunList {
            filter: filter.cloned(),
            start: Some(items.len() as u64),
            limit: u32::try_from(wanted).ok(),
        };
        let page = session.call(session.client().run_list(&request))?;
        let got = page.items.len();
        items.extend(page.items);
        if got == 0 || items.len() as u64 >= page.total.min(most) {
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
