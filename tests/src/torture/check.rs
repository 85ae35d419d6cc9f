//! What must hold after everything that was done to a home, seen from outside.
//!
//! | promise | check |
//! | --- | --- |
//! | what was answered is there, once | every answered command, sent again under its key, is adopted with the same receipt; the runs are exactly those that accepted commands made |
//! | an effect is reserved before it is applied | every line in the log outside has a reserved key, and there are at most as many lines as tries |
//! | an effect happens once, or its uncertainty shows | `observed` and `manual`: at most one line, and one more for each time that somebody accepted a repeat; one when applied. `idempotent`: repeats carry the same key and the same request |
//! | a finished node never runs again | no visit finishes twice, no effect has more lines than tries, and every line carries the value that the computing node before it finished with |
//! | what is shown is what is stored | list, run view, status, what was watched all the time, and the database agree |
//! | a recorded event is there once, in its place | what pages of the recorded session give is what its recorder was answered |
//! | nothing is left behind | no process of the home lives after the server's end |
//! | the state is whole | every invariant of `State::verify` |

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use piw_protocol::client::Call;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::{Operation, PageRequest, RunList, RunStatusReport};
use piw_protocol::session::{SessionEntryView, SessionEvent, SessionEventView};
use piw_protocol::view::{PageKind, RunListPage, RunPage, RunView};
use piw_state::{State, StateOptions};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::facts::{Effect, Facts, Run};
use super::scenario::Played;
use super::world::{Stuck, World};

/// How long processes may take to leave after their server is gone.
const LEAVE: Duration = Duration::from_secs(15);

/// Everything found wrong; empty when the promises were kept.
#[derive(Debug, Default)]
pub struct Findings(pub Vec<String>);

impl Findings {
    fn add(&mut self, rule: &str, what: impl std::fmt::Display) {
        self.0.push(format!("{rule}: {what}"));
    }

    fn expect(&mut self, holds: bool, rule: &str, what: impl FnOnce() -> String) {
        if !holds {
            self.add(rule, what());
        }
    }
}

/// What clients see of a run, all of it asked of one server that changes nothing meanwhile.
#[derive(Debug)]
pub struct Shown {
    views: BTreeMap<String, (RunView, RunStatusReport)>,
    list: RunListPage,
}

/// Sends every answered command again. An answer that was given is given again.
///
/// # Errors
/// When a command gets no answer.
pub async fn receipts(world: &mut World, findings: &mut Findings) -> Result<(), Stuck> {
    for first in world.answered.clone() {
        let again = world.deliver(&first.call).await?;
        let same_error = |error: &piw_protocol::ops::OperationError| (error.reason.clone(), error.message.clone());
        let expected = match first.response.outcome {
            Outcome::Accepted => Outcome::Adopted,
            other => other,
        };
        let same = again.outcome == expected
            && again.revision == first.response.revision
            && again.receipt == first.response.receipt
            && again.error.as_ref().map(same_error) == first.response.error.as_ref().map(same_error);
        findings.expect(same, "an answered command is answered the same again", || {
            format!(
                "{} was answered {:?}, and then {:?}",
                first.call.idempotency_key, first.response, again
            )
        });
    }
    Ok(())
}

/// Asks a server for everything that it shows.
///
/// # Errors
/// When it does not answer.
pub async fn shown(world: &mut World, played: &Played) -> Result<Shown, Stuck> {
    let mut views = BTreeMap::new();
    for run in &played.runs {
        let view = ask(world, Operation::ViewRunGet, Some(run)).await?;
        let status = ask(world, Operation::RunStatus, Some(run)).await?;
        views.insert(run.clone(), (view, status));
    }
    let list = Call::new(Operation::RunList, &RunList::default()).map_err(|error| Stuck(error.to_string()))?;
    Ok(Shown {
        views,
        list: read(world, list).await?,
    })
}

/// Compares the recorded session with what its recorder made, all of which was answered.
///
/// # Errors
/// When a page is not answered.
pub async fn recorded(world: &mut World, played: &Played, findings: &mut Findings) -> Result<(), Stuck> {
    const RULE: &str = "a recorded event is there once, in its place";
    let Some(recorder) = &played.recorder else {
        return Ok(());
    };
    let events: Vec<SessionEventView> = pages(world, &recorder.run, PageKind::SessionEvents).await?;
    let same = events.len() == recorder.events.len()
        && events.iter().zip(&recorder.events).all(|(seen, made)| {
            // Large arguments are content, whose bytes `state verify` compares with their digest.
            let is_content = |event: &SessionEvent| match event {
                SessionEvent::ToolStart { args, .. } => args.get("$artifact").is_some(),
                _ => false,
            };
            seen.event == *made || (seen.event.what.kind() == made.what.kind() && is_content(&seen.event.what))
        });
    findings.expect(same, RULE, || {
        format!(
            "{} events were recorded, {} are shown",
            recorder.events.len(),
            events.len()
        )
    });
    let entries: Vec<SessionEntryView> = pages(world, &recorder.run, PageKind::SessionEntries).await?;
    let ids = |entries: &[String]| entries.join(" ");
    let seen: Vec<String> = entries.into_iter().map(|entry| entry.entry_id).collect();
    let made: Vec<String> = recorder.entries.iter().map(|entry| entry.entry_id.clone()).collect();
    findings.expect(seen == made, RULE, || {
        format!("entries {} were recorded, {} are shown", ids(&made), ids(&seen))
    });
    Ok(())
}

/// All items of one kind.
async fn pages<T: DeserializeOwned>(world: &mut World, run: &str, kind: PageKind) -> Result<Vec<T>, Stuck> {
    let mut items = Vec::new();
    loop {
        let request = PageRequest {
            kind,
            cursor: json!(items.len()),
            limit: None,
        };
        let mut call = Call::new(Operation::ViewPage, &request).map_err(|error| Stuck(error.to_string()))?;
        call.run_id = Some(run.to_owned());
        let page: RunPage = read(world, call).await?;
        if page.items.is_empty() {
            return Ok(items);
        }
        for item in page.items {
            items.push(serde_json::from_value(item).map_err(|error| Stuck(error.to_string()))?);
        }
    }
}

async fn ask<T: DeserializeOwned>(world: &mut World, operation: Operation, run: Option<&str>) -> Result<T, Stuck> {
    let mut call = Call::new(operation, &json!({})).map_err(|error| Stuck(error.to_string()))?;
    call.run_id = run.map(str::to_owned);
    read(world, call).await
}

async fn read<T: DeserializeOwned>(world: &mut World, call: Call) -> Result<T, Stuck> {
    let response = world.deliver(&call).await?;
    let receipt = response.receipt.as_ref().and_then(|receipt| receipt.decode().ok());
    receipt.ok_or_else(|| {
        Stuck(format!(
            "{} of {:?} is answered {:?} {:?}",
            call.operation.name(),
            call.run_id,
            response.outcome,
            response.error
        ))
    })
}

/// After the last server's end nothing of the home runs.
pub fn nothing_runs(world: &World, findings: &mut Findings) {
    let deadline = Instant::now() + LEAVE;
    loop {
        let left = world.processes();
        if left.is_empty() {
            return;
        }
        if Instant::now() > deadline {
            return findings.add("nothing is left behind", format!("{left:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every invariant of the stopped server's database.
///
/// # Errors
/// When it cannot be opened.
pub async fn verified(world: &World, findings: &mut Findings) -> Result<(), Stuck> {
    let failed = |error: &dyn std::fmt::Display| Stuck(format!("the database cannot be verified: {error}"));
    let state = State::open(StateOptions::new(world.state_dir())).map_err(|error| failed(&error))?;
    let violations = state.verify().await.map_err(|error| failed(&error))?;
    for violation in violations {
        let run = violation.run_id.unwrap_or_default();
        findings.add(
            "state verify",
            format!("{}: {run} {}", violation.invariant, violation.detail),
        );
    }
    Ok(())
}

/// The runs are exactly those that accepted commands made, and ended as they were told.
pub fn runs(facts: &Facts, played: &Played, findings: &mut Findings) {
    let made: BTreeSet<&String> = played.runs.iter().collect();
    let stored: BTreeSet<&String> = facts.runs.keys().collect();
    findings.expect(made.len() == played.runs.len(), "no run is made twice", || {
        format!("{:?}", played.runs)
    });
    findings.expect(made == stored, "the runs are those that accepted commands made", || {
        format!("made {made:?}, stored {stored:?}")
    });
    for (run_id, run) in &facts.runs {
        let expected = match run.status.as_str() {
            "completed" => !played.cancelled.contains(run_id),
            "cancelled" => played.cancelled.contains(run_id),
            "failed" => played.struck_command && !played.cancelled.contains(run_id),
            _ => false,
        };
        findings.expect(expected, "a run ends as it was told", || {
            format!("run {run_id} is {} after {:?}", run.status, run.nodes)
        });
    }
    findings.expect(facts.processes == 0, "no process stays registered", || {
        format!("{} are", facts.processes)
    });
}

/// List, run view, status and database agree.
pub fn projections(facts: &Facts, shown: &Shown, findings: &mut Findings) {
    const RULE: &str = "what is shown is what is stored";
    for (run_id, (view, status)) in &shown.views {
        let Some(run) = facts.runs.get(run_id) else {
            findings.add(RULE, format!("run {run_id} is shown and not stored"));
            continue;
        };
        let stored = (run.status.as_str(), run.revision, run.steps);
        let seen = (name(&view.state.status), view.run_revision, view.step_total);
        findings.expect(stored == (seen.0.as_str(), seen.1, seen.2), RULE, || {
            format!("run {run_id} is stored as {stored:?} and viewed as {seen:?}")
        });
        let said = (name(&status.status), status.run_revision);
        findings.expect(
            (run.status.as_str(), run.revision) == (said.0.as_str(), said.1),
            RULE,
            || format!("run {run_id} is stored as {stored:?} and its status is {said:?}"),
        );
        findings.expect(view.display == status.display, RULE, || {
            format!(
                "run {run_id} is viewed as {:?}, its status is {:?}",
                view.display, status.display
            )
        });
        steps(run_id, run, view, findings);
    }
    let leading: BTreeSet<&String> = facts
        .runs
        .iter()
        .filter(|(_, run)| !run.continued)
        .map(|(id, _)| id)
        .collect();
    let listed: BTreeSet<&String> = shown.list.items.iter().map(|item| &item.run_id).collect();
    findings.expect(leading == listed, RULE, || {
        format!("leading runs {leading:?}, listed {listed:?}")
    });
    for item in &shown.list.items {
        let Some((view, _)) = shown.views.get(&item.run_id) else {
            continue;
        };
        findings.expect(
            item.display == view.display && item.manifest == view.manifest,
            RULE,
            || {
                format!(
                    "run {} is listed as {:?} {:?} and viewed as {:?} {:?}",
                    item.run_id, item.display, item.manifest, view.display, view.manifest
                )
            },
        );
    }
}

/// The steps in a view are the stored ones, in order; of a continuation, its own are the last.
fn steps(run_id: &str, run: &Run, view: &RunView, findings: &mut Findings) {
    let viewed: Vec<&String> = view.state.steps.iter().map(|step| &step.step.node_id).collect();
    let own = usize::try_from(run.steps - run.carried).unwrap_or(usize::MAX);
    let tail: Vec<&String> = viewed.iter().rev().take(own).rev().copied().collect();
    let stored: Vec<&String> = run.nodes.iter().collect();
    findings.expect(tail == stored, "what is shown is what is stored", || {
        format!("run {run_id} has steps {stored:?} and shows {viewed:?}")
    });
}

/// The name of a status on the wire.
fn name(status: &piw_protocol::run::RunStatus) -> String {
    serde_json::to_value(status)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// A line of the log outside.
struct Line<'a> {
    kind: &'a str,
    part: &'a str,
    value: &'a str,
}

/// Compares what happened outside with what is stored.
pub fn effects(facts: &Facts, log: &str, played: &Played, findings: &mut Findings) {
    let mut lines: BTreeMap<&str, Vec<Line<'_>>> = BTreeMap::new();
    for text in log.lines() {
        match text.split(' ').collect::<Vec<_>>()[..] {
            [kind, key, part, value] => lines.entry(key).or_default().push(Line { kind, part, value }),
            _ => findings.add("the log is whole", format!("{text:?}")),
        }
    }
    for (key, found) in &lines {
        match facts.effects.get(*key) {
            Some(effect) => applied(key, effect, found, facts, played, findings),
            None => findings.add(
                "an effect is reserved before it is applied",
                format!(
                    "{} line(s) of {} have the key {key}, which is not stored",
                    found.len(),
                    found[0].part
                ),
            ),
        }
    }
    for (key, effect) in &facts.effects {
        let open = matches!(effect.status.as_str(), "pending" | "applying");
        findings.expect(!open, "an ended run has no open effect", || format!("{effect:?}"));
        // A batch struck in the middle is the only effect that counts as applied without its lines.
        let silent = effect.status == "applied" && !lines.contains_key(key.as_str()) && !played.struck_command;
        findings.expect(!silent, "an applied effect happened", || {
            format!("{effect:?} left no line")
        });
    }
}

/// The lines of one effect.
fn applied(key: &str, effect: &Effect, lines: &[Line<'_>], facts: &Facts, played: &Played, findings: &mut Findings) {
    let allowed = 1 + played.careless.get(key).copied().unwrap_or_default();
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines {
        *parts.entry(line.part).or_default() += 1;
        findings.expect(
            line.kind == effect.kind || (line.kind == "batch" && effect.kind == "idempotent"),
            "a key names one effect",
            || format!("{effect:?} has a line of kind {}", line.kind),
        );
        let known = facts
            .runs
            .get(&effect.run_id)
            .is_some_and(|run| run.outputs.iter().any(|output| output.contains(line.value)));
        findings.expect(known, "a finished node never runs again", || {
            format!(
                "{effect:?} was applied with {}, which no finished node of its run returned",
                line.value
            )
        });
    }
    for (part, count) in &parts {
        findings.expect(*count <= effect.tries, "a try applies an effect once", || {
            format!("{effect:?} has {count} lines of {part}")
        });
        findings.expect(
            *count <= allowed || effect.kind == "idempotent",
            "an effect that must not repeat happens once",
            || format!("{effect:?} has {count} lines of {part}; {allowed} were accepted"),
        );
    }
    let values: BTreeSet<&str> = lines.iter().map(|line| line.value).collect();
    findings.expect(values.len() == 1, "repeats of an effect are the same request", || {
        format!("{effect:?} was applied with {values:?}")
    });
    let whole = lines[0].kind != "batch" || parts.len() == 3 || effect.status != "applied" || played.struck_command;
    findings.expect(whole, "an applied effect happened", || {
        format!("{effect:?} has only {parts:?}")
    });
}

#[cfg(test)]
mod tests;
