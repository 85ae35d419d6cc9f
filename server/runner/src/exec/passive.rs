//! Nodes that tell or ask: notifications and checkpoints.

use piw_protocol::child::ChildBody;
use serde_json::{Value, json};

use super::node::{Abort, Context, NodeEnd, Running, error};
use crate::script::{CallbackField, ScriptHost};
use piw_engine::decision;
use piw_engine::value::kind;

/// Longest notification, in bytes.
const MESSAGE_LIMIT: usize = 64 * 1024;

impl<H: ScriptHost + Send + Sync + 'static> Context<'_, H> {
    /// Records a durable message. Its place within the visit makes a repetition after a crash harmless.
    pub(crate) async fn notify(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let node = running.attempt.node;
        let message = match self.call(running, CallbackField::Message, self.args(running)).await {
            Ok(Value::String(message)) => message,
            Ok(other) => {
                let why = format!("message of node \"{}\" must be a string, not {}", node.id, kind(&other));
                return Ok(NodeEnd::failed(error("badValue", why)));
            }
            Err(failed) => return self.call_failed(failed),
        };
        if message.len() > MESSAGE_LIMIT {
            let why = format!(
                "message of node \"{}\" has {} bytes; a notification has at most {MESSAGE_LIMIT}",
                node.id,
                message.len()
            );
            return Ok(NodeEnd::failed(error("badValue", why)));
        }
        let notify_kind = node.spec.notify_kind.clone().unwrap_or_else(|| "progress".to_owned());
        let body = ChildBody::Notification {
            kind: notify_kind.clone(),
            message: message.clone(),
            index: 0,
        };
        piw_fault::point!("runner::before_notify");
        self.client.request(Some(&running.attempt.id), body).await?;
        piw_fault::point!("runner::after_notify");
        Ok(NodeEnd::ok(json!({ "kind": notify_kind, "message": message })))
    }

    /// Makes the request of a protected decision: everything that a person is shown, and what counts when nobody answers.
    pub(crate) async fn human_decision(&self, running: &Running<'_, '_>, declared: &Value) -> Result<NodeEnd, Abort> {
        let node = running.attempt.node;
        let made = match self.call(running, CallbackField::Request, self.args(running)).await {
            Ok(made) => made,
            Err(failed) => return self.call_failed(failed),
        };
        let mut policy = declared.get("onTimeout").cloned();
        if node.has_callback(CallbackField::OnTimeout.name()) {
            let computed = match self.call(running, CallbackField::OnTimeout, self.args(running)).await {
                Ok(computed) => computed,
                Err(failed) => return self.call_failed(failed),
            };
            policy = Some(
                match declared.get("onTimeout").and_then(|policy| policy.get("afterMs")) {
                    Some(after) => json!({ "afterMs": after, "response": computed }),
                    None => computed,
                },
            );
        }
        Ok(match decision::request(declared, &made, policy.as_ref()) {
            Ok(request) => NodeEnd::ok(request),
            Err(why) => NodeEnd::failed(error("badValue", format!("decision of node \"{}\": {why}", node.id))),
        })
    }

    /// Makes a checkpoint's request: what the person who answers gets to see.
    pub(crate) async fn checkpoint(&self, running: &Running<'_, '_>) -> Result<NodeEnd, Abort> {
        let node = running.attempt.node;
        let summary = if node.has_callback(CallbackField::Summary.name()) {
            match self.call(running, CallbackField::Summary, self.args(running)).await {
                Ok(summary) => summary,
                Err(failed) => return self.call_failed(failed),
            }
        } else {
            node.spec.summary.clone().map_or(Value::Null, Value::String)
        };
        if !matches!(summary, Value::String(_) | Value::Null) {
            let why = format!(
                "summary of node \"{}\" must be a string, not {}",
                node.id,
                kind(&summary)
            );
            return Ok(NodeEnd::failed(error("badValue", why)));
        }
        if !node.has_callback(CallbackField::Run.name()) {
            return Ok(NodeEnd::ok(json!({ "summary": summary })));
        }
        match self.call(running, CallbackField::Run, self.args(running)).await {
            Ok(request) => Ok(NodeEnd::ok(json!({ "summary": summary, "request": request }))),
            Err(failed) => self.call_failed(failed),
        }
    }
}
