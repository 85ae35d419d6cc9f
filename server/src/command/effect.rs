//! `effect.list` and `effect.resolve`: the review of effects whose outcome only a person can say.

use piw_protocol::child::ValueRef;
use piw_protocol::effect::{EffectDecision, EffectList, EffectResolve};
use piw_protocol::envelope::Request;
use piw_state::Resolution;
use serde_json::{Value, json};

use super::{decided, identity, payload, run_id};
use crate::answer::Answer;
use crate::projection::effects;
use crate::server::Server;

impl Server {
    /// Ambiguous effects, of one run when the envelope names one.
    pub(super) async fn effect_list(&self, request: &Request) -> Answer {
        let list: EffectList = match payload(request) {
            Ok(list) => list,
            Err(answer) => return answer,
        };
        let run_id = request.run_id.clone();
        if list.all && run_id.is_none() && list.effect_id.is_none() {
            return Answer::invalid(&"effect.list needs the field `runId` or `effectId` when `all` is set");
        }
        let read = self
            .state
            .read(move |reader| Ok(effects(reader, run_id.as_deref(), &list)))
            .await;
        match read {
            Ok(Ok(report)) => Answer::accepted(&report),
            Ok(Err(error)) => Answer::error(error.outcome(), error.operation_error()),
            Err(error) => crate::answer::unavailable(&error),
        }
    }

    /// Settles an ambiguous effect. The revision is required: a person decides on what they saw.
    pub(super) async fn effect_resolve(&self, request: &Request) -> Answer {
        let asked = run_id(request).and_then(|run_id| Ok((run_id, payload::<EffectResolve>(request)?)));
        let (run_id, resolve) = match asked {
            Ok(asked) => asked,
            Err(answer) => return answer,
        };
        let Some(revision) = request.expected_revision else {
            return Answer::invalid(&"effect.resolve needs the field `expectedRevision`");
        };
        if resolve.decision == EffectDecision::Retry && resolve.result != Value::Null {
            return Answer::invalid(&"only a confirmed effect has a result");
        }
        let resolution = Resolution {
            effect_id: resolve.effect_id,
            decision: resolve.decision,
            result: ValueRef::Inline(json!({ "output": resolve.result })),
            source: format!("client {}", request.client_id),
        };
        decided(
            self.state
                .resolve_effect(identity(request), run_id, revision, resolution)
                .await,
        )
    }
}
