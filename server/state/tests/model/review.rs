//! The manual effect of a run in the model: applied by its runner, or resolved by a person.

use super::*;

/// One message about the effect of the node that the runner executes; what it is then.
pub(super) async fn apply(runner: &mut Runner, effect: Effect) -> Effect {
    if effect == Effect::Applying {
        let body = piw_protocol::child::ChildBody::EffectSettle {
            key: runner.effect_key("a", 1),
            outcome: EffectSettlement::Applied,
            result: Some(ValueRef::Inline(json!(1))),
        };
        common::accepted(&runner.send(body).await);
        return Effect::Applied;
    }
    runner.reserve("a", 1, EffectKind::Manual).await;
    Effect::Applying
}

impl World {
    pub(super) async fn resolve(&mut self, pick: usize, decision: EffectDecision) {
        let effects: Vec<usize> = (0..self.runs.len())
            .filter(|&run| self.runs[run].effect != Effect::None)
            .collect();
        if effects.is_empty() {
            return;
        }
        let run = effects[pick % effects.len()];
        let id = self.runs[run].id.clone();
        let revision = self
            .state
            .original(id.clone())
            .await
            .expect("read")
            .expect("run")
            .revision;
        let identity = self.identity(Operation::EffectResolve);
        let resolution = piw_state::Resolution {
            effect_id: piw_engine::effect::key(&id, "deploy", "a", 1),
            decision,
            result: ValueRef::Inline(json!(2)),
            source: "test".to_owned(),
        };
        let decided = self
            .state
            .resolve_effect(identity, id, revision, resolution)
            .await
            .expect("resolve");
        let model = &mut self.runs[run];
        let allowed = model.effect == Effect::Ambiguous;
        assert_eq!(decided.outcome == Outcome::Accepted, allowed, "{decided:?}");
        if !allowed {
            return;
        }
        model.effect = match decision {
            EffectDecision::Confirm => Effect::Applied,
            EffectDecision::Retry => Effect::Pending,
        };
        if model.status == "running" && !model.paused {
            model.streak = 0;
            self.make_ready(run);
        }
    }
}
