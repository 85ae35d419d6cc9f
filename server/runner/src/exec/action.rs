//! Action nodes: code with a declared side effect.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::effect::{Adopted, Effect, Reserved};
use super::node::{Abort, Context, NodeEnd, Running};
use super::publish::{PublishError, Publisher};
use super::receipt;
use crate::script::{CallArgs, CallbackField, PublishUpdate, ScriptHost};

impl<H: ScriptHost + Send + Sync + 'static> Context<'_, H> {
    /// Runs an action.
    pub(crate) async fn action(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let effect = Effect::of(running, &self.run_id);
        if let Some(effect) = &effect {
            let request = json!({ "node": running.attempt.node.id, "type": effect.effect_type });
            match self.reserve(running, effect, &request).await? {
                Reserved::Apply => {}
                Reserved::Adopt(Adopted::Output(output) | Adopted::Process(output)) => return Ok(NodeEnd::ok(output)),
                Reserved::End(end) => return Ok(*end),
            }
        }
        let started = Instant::now();
        let args = CallArgs {
            extras: effect.as_ref().map(Effect::as_context).unwrap_or_default(),
            publish: Some(publish_update(&self.publisher, &running.attempt.id)),
            ..self.args(running)
        };
        piw_fault::point!("runner::before_apply");
        let end = self.end_of(self.call(running, CallbackField::Run, args).await)?;
        piw_fault::point!("runner::after_apply");
        let end = end.with_receipt(receipt::of_function(receipt::millis(started.elapsed())));
        match &effect {
            Some(effect) => self.settle_by_end(running, effect, end).await,
            None => Ok(end),
        }
    }
}

/// What `publishUpdate` does for an attempt. It runs on the runner's own runtime, wherever the script thread awaits it.
pub(crate) fn publish_update(publisher: &Arc<Publisher>, attempt: &str) -> PublishUpdate {
    let runtime = tokio::runtime::Handle::current();
    let (publisher, attempt) = (Arc::clone(publisher), attempt.to_owned());
    Arc::new(move |update| {
        let (publisher, attempt) = (Arc::clone(&publisher), attempt.clone());
        let published = runtime.spawn(async move { publisher.publish(&attempt, update).await });
        Box::pin(async move {
            match published.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(PublishError::Refused(why))) => Err(why),
                Ok(Err(PublishError::Request(error))) => Err(error.to_string()),
                Err(_) => Err("the runner is leaving".to_owned()),
            }
        })
    })
}
