//! Updates: checked, rationed, committed before the publisher hears of it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use piw_engine::update::{self, TokenBucket, UpdateError};
use piw_engine::value::kind;
use piw_protocol::child::ChildBody;
use piw_protocol::run::Update;
use serde_json::Value;

use crate::child::client::{Client, RequestError};

/// Why an update was not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    /// It breaks a rule; the text names it.
    #[error("{0}")]
    Refused(String),
    /// The channel or the claim is gone, which ends the node.
    #[error(transparent)]
    Request(RequestError),
}

/// Publishes the updates of one run.
#[derive(Debug)]
pub(crate) struct Publisher {
    client: Client,
    bucket: Mutex<TokenBucket>,
    epoch: Instant,
}

impl Publisher {
    /// A publisher with a full allowance.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            bucket: Mutex::new(TokenBucket::new(std::time::Duration::ZERO)),
            epoch: Instant::now(),
        }
    }

    /// Publishes one update; over the allowance is an error.
    pub(crate) async fn publish(&self, attempt: &str, update: Value) -> Result<(), PublishError> {
        let update = parse(update)?;
        self.take().map_err(|error| PublishError::Refused(error.to_string()))?;
        self.send(attempt, update).await
    }

    /// Publishes one update; over the allowance it waits, which holds back whoever produces them.
    pub(crate) async fn publish_paced(&self, attempt: &str, update: Value) -> Result<(), PublishError> {
        let update = parse(update)?;
        while let Err(error) = self.take() {
            match error {
                UpdateError::TooFast { wait } => tokio::time::sleep(wait).await,
                other => return Err(PublishError::Refused(other.to_string())),
            }
        }
        self.send(attempt, update).await
    }

    fn take(&self) -> Result<(), UpdateError> {
        self.bucket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(self.epoch.elapsed())
    }

    async fn send(&self, attempt: &str, update: Update) -> Result<(), PublishError> {
        let body = ChildBody::NodeUpdate { updates: vec![update] };
        match self.client.request(Some(attempt), body).await {
            Ok(_) => Ok(()),
            Err(RequestError::Rejected { error, .. }) => Err(PublishError::Refused(error.message)),
            Err(error) => Err(PublishError::Request(error)),
        }
    }
}

/// Checks shape and rules.
fn parse(value: Value) -> Result<Update, PublishError> {
    const SHAPE: &str = "an update is {type, key, data}";
    let refused = |why: String| Err(PublishError::Refused(why));
    let Value::Object(members) = &value else {
        return refused(format!("{SHAPE}, not {}", kind(&value)));
    };
    if let Some(other) = members
        .keys()
        .find(|name| !matches!(name.as_str(), "type" | "key" | "data"))
    {
        return refused(format!("{SHAPE}; \"{other}\" is unknown"));
    }
    for name in ["type", "key"] {
        match members.get(name) {
            Some(Value::String(_)) => {}
            Some(other) => return refused(format!("{SHAPE}; {name} must be a string, not {}", kind(other))),
            None => return refused(format!("{SHAPE}; {name} is missing")),
        }
    }
    let update: Update =
        serde_json::from_value(value).map_err(|error| PublishError::Refused(format!("{SHAPE}: {error}")))?;
    update::check(&update).map_err(|error| PublishError::Refused(error.to_string()))?;
    Ok(update)
}
