//! Side effects of a node: reserved before they are applied, read back after an interruption, adopted when they were applied
//! before, settled with the node's end.

use std::time::{Duration, Instant};

use piw_engine::effect::{self, Interruption, Observation, Settlement};
use piw_protocol::child::{ChildBody, EffectReservation, EffectSettlement, FinishSettlement, ReplyPayload, ValueRef};
use piw_protocol::definition::EffectKind;
use piw_protocol::run::NodeOutcome;
use serde_json::{Map, Value, json};

use super::action::publish_update;
use super::node::{Abort, Context, NodeEnd, Running, error};
use crate::child::client::RequestError;
use crate::script::{CallArgs, CallError, CallbackField, ScriptHost};
use piw_engine::value::kind as kind_of;

/// Time for the read-back of an effect whose node just ran out of time: the server waits for the node's end only a little
/// longer than its budget.
const LATE_OBSERVE: Duration = Duration::from_secs(3);

/// A node's declared effect for one visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Engine-made key.
    pub(crate) key: String,
    /// The author's type.
    pub(crate) effect_type: String,
    /// How uncertainty is resolved.
    pub(crate) kind: EffectKind,
}

/// What a reservation allows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reserved {
    /// Apply it.
    Apply,
    /// It was applied before.
    Adopt(Adopted),
    /// The reservation decided the node's end.
    End(Box<NodeEnd>),
}

/// What is known of an effect that was applied before.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Adopted {
    /// The result of its process, which is still to be parsed.
    Process(Value),
    /// The node's output.
    Output(Value),
}

impl Adopted {
    /// The stored form.
    pub(crate) fn to_stored(&self) -> Value {
        match self {
            Self::Process(result) => json!({ "process": result }),
            Self::Output(output) => json!({ "output": output }),
        }
    }

    /// Reads the stored form; what somebody else stored is an output.
    fn from_stored(stored: Value) -> Self {
        match stored {
            Value::Object(mut members) if members.len() == 1 => {
                if let Some(result) = members.remove("process") {
                    Self::Process(result)
                } else if let Some(output) = members.remove("output") {
                    Self::Output(output)
                } else {
                    Self::Output(Value::Object(members))
                }
            }
            other => Self::Output(other),
        }
    }
}

/// What a read-back says.
struct ReadBack {
    found: Observation,
    output: Value,
}

impl Effect {
    /// The effect of a running node, when it declares one.
    pub(crate) fn of(running: &Running<'_, '_>, run_id: &str) -> Option<Self> {
        let attempt = running.attempt;
        let declared = attempt.node.spec.effect.as_ref()?;
        Some(Self {
            key: effect::key(run_id, &declared.effect_type, &attempt.node.id, attempt.visit),
            effect_type: declared.effect_type.clone(),
            kind: declared.kind,
        })
    }

    /// What callbacks see as `effect`.
    pub(crate) fn as_context(&self) -> Map<String, Value> {
        let mut extras = Map::new();
        extras.insert(
            "effect".to_owned(),
            json!({ "key": self.key, "type": self.effect_type }),
        );
        extras
    }

    fn settle(&self, outcome: EffectSettlement) -> FinishSettlement {
        FinishSettlement {
            key: self.key.clone(),
            outcome,
        }
    }
}

impl<H: ScriptHost + Send + Sync + 'static> Context<'_, H> {
    /// Reserves a node's effect; `request` is what makes up its payload.
    pub(crate) async fn reserve(
        &self,
        running: &Running<'_, '_>,
        effect: &Effect,
        request: &Value,
    ) -> Result<Reserved, Abort> {
        match self.ask_reservation(running, effect, request).await? {
            Ok(EffectReservation::Apply { .. }) => Ok(Reserved::Apply),
            Ok(EffectReservation::Adopt { result }) => {
                let stored = self.client.value(result).await?;
                Ok(Reserved::Adopt(Adopted::from_stored(stored)))
            }
            Ok(EffectReservation::Ambiguous) => Err(self.ambiguous(running, effect)),
            Ok(EffectReservation::Observe { .. }) => self.read_back(running, effect, request).await,
            Err(refused) => Ok(Reserved::End(Box::new(refused))),
        }
    }

    /// An earlier try was interrupted: asks `observe` what it did.
    async fn read_back(&self, running: &Running<'_, '_>, effect: &Effect, request: &Value) -> Result<Reserved, Abort> {
        let limit = Duration::from_millis(piw_engine::limits::CALLBACK_MS);
        let found = match self.observe(running, effect, limit).await {
            Ok(found) => found,
            Err(failed) => {
                // Nothing is known, and nothing was applied now: the effect stays as it is for the next try.
                return Ok(Reserved::End(Box::new(self.call_failed(failed)?)));
            }
        };
        let settlement = effect::observed(found.found);
        let result = match settlement {
            EffectSettlement::Applied => {
                let mut inline = crate::child::content::Inline::of_message();
                let stored = Adopted::Output(found.output.clone()).to_stored();
                Some(self.client.value_ref(&stored, &mut inline).await?)
            }
            _ => None,
        };
        self.settle_now(running, effect, settlement, result).await?;
        match found.found {
            Observation::Applied => Ok(Reserved::Adopt(Adopted::Output(found.output))),
            Observation::Unknown => Err(self.ambiguous(running, effect)),
            Observation::NotApplied => match self.ask_reservation(running, effect, request).await? {
                Ok(EffectReservation::Apply { .. }) => Ok(Reserved::Apply),
                Ok(other) => Err(Abort::Engine(format!(
                    "effect {} was read back, then answered {other:?}",
                    effect.key
                ))),
                Err(refused) => Ok(Reserved::End(Box::new(refused))),
            },
        }
    }

    /// The inner error is a refusal that fails the node.
    async fn ask_reservation(
        &self,
        running: &Running<'_, '_>,
        effect: &Effect,
        request: &Value,
    ) -> Result<Result<EffectReservation, NodeEnd>, Abort> {
        let body = ChildBody::EffectReserve {
            key: effect.key.clone(),
            effect_type: effect.effect_type.clone(),
            kind: effect.kind,
            fingerprint: effect::fingerprint(request),
        };
        piw_fault::point!("runner::before_reserve");
        let answer = self.client.request(Some(&running.attempt.id), body).await;
        piw_fault::point!("runner::after_reserve");
        match answer {
            Ok(accepted) => match accepted.payload {
                Some(ReplyPayload::Effect(reservation)) => Ok(Ok(reservation)),
                other => Err(Abort::Engine(format!("a reservation was answered with {other:?}"))),
            },
            Err(RequestError::Rejected { error: refused, .. }) => {
                Ok(Err(NodeEnd::failed(error("effectRefused", refused.message))))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Settles an effect in a message of its own, before the node's end.
    pub(crate) async fn settle_now(
        &self,
        running: &Running<'_, '_>,
        effect: &Effect,
        outcome: EffectSettlement,
        result: Option<ValueRef>,
    ) -> Result<(), Abort> {
        let body = ChildBody::EffectSettle {
            key: effect.key.clone(),
            outcome,
            result,
        };
        piw_fault::point!("runner::before_settle");
        self.client.request(Some(&running.attempt.id), body).await?;
        piw_fault::point!("runner::after_settle");
        Ok(())
    }

    /// How an effect is settled by an end of its node that came while it was being applied.
    pub(crate) async fn settle_by_end(
        &self,
        running: &Running<'_, '_>,
        effect: &Effect,
        mut end: NodeEnd,
    ) -> Result<NodeEnd, Abort> {
        let how = match end.outcome {
            NodeOutcome::Ok => {
                end.settle = Some(effect.settle(EffectSettlement::Applied));
                return Ok(end);
            }
            NodeOutcome::Failed if end.stuck => Interruption::Killed,
            NodeOutcome::Failed => Interruption::CaughtError,
            NodeOutcome::TimedOut => Interruption::TimedOut,
            NodeOutcome::Cancelled => Interruption::Killed,
        };
        let outcome = match effect::interrupted(effect.kind, how) {
            Settlement::Settle(outcome) => outcome,
            // A script thread that does not answer cannot read back.
            Settlement::Observe if end.stuck => EffectSettlement::Ambiguous,
            Settlement::Observe => match self.observe(running, effect, LATE_OBSERVE).await {
                Ok(found) => effect::observed(found.found),
                Err(_) => EffectSettlement::Ambiguous,
            },
        };
        end.settle = Some(effect.settle(outcome));
        Ok(end)
    }

    /// Has a budget of its own: after a timeout the node has none left.
    async fn observe(
        &self,
        running: &Running<'_, '_>,
        effect: &Effect,
        limit: Duration,
    ) -> Result<ReadBack, CallError> {
        let deadline = Some(Instant::now() + limit);
        let args = CallArgs {
            extras: effect.as_context(),
            publish: Some(publish_update(&self.publisher, &running.attempt.id)),
            deadline,
            ..self.args(running)
        };
        piw_fault::point!("runner::before_observe");
        let answer = self.call(running, CallbackField::Observe, args).await?;
        piw_fault::point!("runner::after_observe");
        parse_observation(answer).map_err(|message| CallError {
            kind: crate::script::CallErrorKind::Thrown,
            message,
            stack: None,
        })
    }

    fn ambiguous(&self, running: &Running<'_, '_>, effect: &Effect) -> Abort {
        let node = &running.attempt.node.id;
        let message = format!(
            "whether the effect \"{}\" of node \"{node}\" was applied is unknown; confirm that it happened or retry it",
            effect.effect_type
        );
        Abort::Park {
            reason: "effectAmbiguous",
            message,
        }
    }
}

/// Reads `"applied" | "notApplied" | "unknown"`, alone or as `{status, output?}`.
fn parse_observation(answer: Value) -> Result<ReadBack, String> {
    let (word, output) = match answer {
        Value::String(word) => (word, Value::Null),
        Value::Object(mut members) => {
            let output = members.remove("output").unwrap_or(Value::Null);
            match members.remove("status") {
                Some(Value::String(word)) => (word, output),
                _ => {
                    return Err(
                        "observe must answer a status: {status: \"applied\" | \"notApplied\" | \"unknown\"}".into(),
                    );
                }
            }
        }
        other => {
            return Err(format!(
                "observe must answer \"applied\", \"notApplied\" or \"unknown\", not {}",
                kind_of(&other)
            ));
        }
    };
    let found = match word.as_str() {
        "applied" => Observation::Applied,
        "notApplied" => Observation::NotApplied,
        "unknown" => Observation::Unknown,
        other => {
            return Err(format!(
                "observe must answer \"applied\", \"notApplied\" or \"unknown\", not \"{other}\""
            ));
        }
    };
    Ok(ReadBack { found, output })
}
