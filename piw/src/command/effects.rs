//! `piw effects`: lists side effects whose outcome nobody can prove, and settles them by a person's word.

use std::fmt::Write as _;

use piw_protocol::client::RunRef;
use piw_protocol::definition::EffectKind;
use piw_protocol::effect::{EffectDecision, EffectList, EffectReceipt, EffectResolve, EffectState, EffectView};
use serde_json::Value;

use super::session::{self, Autostart, Session};
use super::{input, output};
use crate::cli::{EffectsCommand, EffectsListArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::follow::{between, elapsed};
use crate::text;

/// Carries out one of the commands.
///
/// # Errors
/// No such run or effect, or an effect that is not ambiguous.
pub fn run(command: &EffectsCommand) -> Outcome {
    match command {
        EffectsCommand::List(args) => list(args),
        EffectsCommand::Confirm(args) => {
            let result = args.result.as_deref().map(|text| input::json("--result", text));
            let result = result.transpose()?.unwrap_or(Value::Null);
            resolve(&args.effect_id, EffectDecision::Confirm, result, args.json)
        }
        EffectsCommand::Retry(args) => resolve(&args.effect_id, EffectDecision::Retry, Value::Null, args.json),
    }
}

fn list(args: &EffectsListArgs) -> Outcome {
    if args.all && args.run_id.is_none() {
        return Err(Failure::usage("--all needs a run: piw effects list <RUN> --all"));
    }
    let session = session::connect(Autostart::Allowed)?;
    let run_id = args.run_id.as_deref().map(|given| session.run_id(given)).transpose()?;
    let wanted = EffectList {
        all: args.all,
        ..EffectList::default()
    };
    let effects = fetch(&session, run_id.as_deref(), &wanted)?;
    if args.json {
        output::json(&effects)?;
    } else if effects.is_empty() {
        let what = if args.all {
            "no effects"
        } else {
            "no effect waits for a review"
        };
        output::text(&format!("{what}\n"))?;
    } else {
        output::text(&table(&effects, &jiff::Timestamp::now().to_string()))?;
        if effects.iter().any(|effect| effect.state == EffectState::Ambiguous) {
            output::text(
                "\nlook at the outside world, then say what is true:\n  \
                 it happened:           piw effects confirm <EFFECT> [--result JSON]\n  \
                 apply it (once more):  piw effects retry <EFFECT>\n",
            )?;
        }
    }
    Ok(Exit::Done)
}

fn fetch(session: &Session, run_id: Option<&str>, wanted: &EffectList) -> Result<Vec<EffectView>, Failure> {
    let mut effects: Vec<EffectView> = Vec::new();
    loop {
        let list = EffectList {
            start: Some(effects.len() as u64),
            ..wanted.clone()
        };
        let page = session.call(session.client().effect_list(run_id, &list))?;
        let done = page.effects.is_empty() || (effects.len() + page.effects.len()) as u64 >= page.total;
        effects.extend(page.effects);
        if done {
            return Ok(effects);
        }
    }
}

/// The effects of a run that a person has to settle, as `piw show` prints them; empty when there are none.
#[must_use]
pub fn of_review(view: &piw_protocol::view::RunView, now: &str) -> String {
    let Some(review) = &view.review else {
        return String::new();
    };
    let mut out = table(&review.effects, now);
    let more = review.total.saturating_sub(review.effects.len() as u64);
    if more > 0 {
        let _ = writeln!(out, "{more} more: piw effects list {}", view.run_id);
    }
    out
}

/// Beginning of an id that is long enough to tell effects of one machine apart.
const SHORT: usize = 16;

fn table(effects: &[EffectView], now: &str) -> String {
    let mut rows = vec![
        ["EFFECT", "STATE", "RUN", "NODE", "TYPE", "KIND", "TRY", "AGE", "WHY"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(effects.iter().map(|effect| {
        let visit = if effect.visit > 1 {
            format!(" visit {}", effect.visit)
        } else {
            String::new()
        };
        vec![
            effect.effect_id.get(..SHORT).unwrap_or(&effect.effect_id).to_owned(),
            effect.state.name().to_owned(),
            effect.run_id.clone(),
            format!("{}{visit}", text::clean(&effect.node)),
            text::clean(&effect.effect_type).into_owned(),
            kind(effect.kind).to_owned(),
            effect.attempt.to_string(),
            elapsed(between(&effect.attempted_at, now)),
            text::clean(effect.detail.as_deref().unwrap_or_default()).into_owned(),
        ]
    }));
    output::table(&rows)
}

/// The word for a kind of effect.
#[must_use]
pub const fn kind(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Idempotent => "idempotent",
        EffectKind::Observed => "observed",
        EffectKind::Manual => "manual",
    }
}

fn resolve(given: &str, decision: EffectDecision, result: Value, json: bool) -> Outcome {
    let session = session::connect(Autostart::Allowed)?;
    let effect = find(&session, given)?;
    let resolve = EffectResolve {
        effect_id: effect.effect_id.clone(),
        decision,
        result,
    };
    let target = RunRef::at(&effect.run_id, effect.revision);
    let receipt = session
        .block_on(session.client().effect_resolve(&target, &resolve))
        .map_err(|error| session::failure_of(&error, &effect.run_id))?
        .receipt;
    if json {
        output::json(&receipt)?;
    } else {
        output::text(&said(&effect, &receipt))?;
    }
    Ok(Exit::Done)
}

fn said(effect: &EffectView, receipt: &EffectReceipt) -> String {
    let (node, kind) = (text::clean(&effect.node), text::clean(&effect.effect_type));
    let message = receipt.run.message.as_deref().unwrap_or(receipt.state.name());
    let run = &receipt.run.run_id;
    format!("effect {kind:?} of node {node:?}: {message}\nwatch it with: piw {run}\n")
}

/// The effect that an id, or a unique beginning of one, names.
fn find(session: &Session, given: &str) -> Result<EffectView, Failure> {
    let wanted = EffectList {
        all: true,
        effect_id: Some(given.to_owned()),
        limit: Some(2),
        ..EffectList::default()
    };
    let page = session.call(session.client().effect_list(None, &wanted))?;
    match page.effects.as_slice() {
        [effect] if !given.is_empty() => Ok(effect.clone()),
        [one, two, ..] if !given.is_empty() => Err(Failure::new(
            Exit::Conflict,
            format!(
                "several effects begin with {}: {}, {}, …",
                text::clean(given),
                one.effect_id,
                two.effect_id
            ),
        )
        .hint("give more of the id")),
        _ => Err(
            Failure::new(Exit::NotFound, format!("no effect {:?}", text::clean(given)))
                .hint("piw effects list shows what waits for a review"),
        ),
    }
}
