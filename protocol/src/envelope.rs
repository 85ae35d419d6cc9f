//! Envelopes of `pi-workflows.client.v1`: hello, request, response, event.
//!
//! ```text
//! hello     schema type connectionId packageVersion
//! request   schema type requestId clientId operation idempotencyKey [runId] [expectedRevision] payload
//! response  schema type requestId outcome [revision] [receipt] [error]
//! event     schema type subscriptionId event [revision] [runId] payload
//! ```
//!
//! Reading is strict: bytes that are not canonical, an unknown or missing field, type, operation, outcome or event, an id
//! that is not 1–256 bytes, a revision that is no integer of 0…2^53−1 are each refused with an error that names them. What a
//! payload means is the business of [`crate::ops`] and [`crate::view`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::{self, CanonicalError, CanonicalJson, MAX_SAFE_INTEGER};
use crate::frame::{self, FrameError};
use crate::ops::{Operation, OperationError};

mod fields;

use fields::Fields;

/// Schema of every envelope.
pub const CLIENT_SCHEMA: &str = "pi-workflows.client.v1";
/// Version that client and server compare: both must be of the same package.
pub const PACKAGE_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Subscription id of an `unavailable` event that is about the connection itself: the server says why it closes it. It may come
/// instead of the hello.
pub const CONNECTION_SUBSCRIPTION: &str = "connection";
/// Longest id in bytes; the shortest has one.
pub const MAX_ID: usize = 256;

/// How a request was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Done, and durable if it changes state.
    Accepted,
    /// Done earlier under the same identity; the stored receipt is returned.
    Adopted,
    /// Refused; nothing changed.
    Rejected,
    /// The identity was used for something else, or the expected revision is no longer the current one.
    Conflict,
    /// What it names does not exist.
    NotFound,
    /// The sender no longer holds its claim.
    ClaimLost,
    /// Cannot be decided now, or is not built.
    Unavailable,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: &'static [Self] = &[
        Self::Accepted,
        Self::Adopted,
        Self::Rejected,
        Self::Conflict,
        Self::NotFound,
        Self::ClaimLost,
        Self::Unavailable,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Adopted => "adopted",
            Self::Rejected => "rejected",
            Self::Conflict => "conflict",
            Self::NotFound => "notFound",
            Self::ClaimLost => "claimLost",
            Self::Unavailable => "unavailable",
        }
    }

    /// Whether the request is done (now or earlier).
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Accepted | Self::Adopted)
    }
}

/// What an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The first page of a run list ([`crate::view::RunListPage`]).
    Runs,
    /// A run view ([`crate::view::RunView`]).
    RunSnapshot,
    /// A page of a run view ([`crate::view::RunPage`]).
    RunPage,
    /// A session view.
    SessionSnapshot,
    /// The subscription failed and is gone; its payload is an [`OperationError`].
    Unavailable,
}

impl EventKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Runs,
        Self::RunSnapshot,
        Self::RunPage,
        Self::SessionSnapshot,
        Self::Unavailable,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::RunSnapshot => "run_snapshot",
            Self::RunPage => "run_page",
            Self::SessionSnapshot => "session_snapshot",
            Self::Unavailable => "unavailable",
        }
    }
}

/// First message of a server on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Names the connection in logs.
    pub connection_id: String,
    /// Package version of the server.
    pub package_version: String,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// New for every sending.
    pub request_id: String,
    /// With `idempotency_key` the identity of a command.
    pub client_id: String,
    /// What to do.
    pub operation: Operation,
    /// The same for every sending of one command.
    pub idempotency_key: String,
    /// The run it is about.
    pub run_id: Option<String>,
    /// Execution revision (commands) or presentation revision (pages) that the client last saw.
    pub expected_revision: Option<u64>,
    /// The operation's payload, see [`crate::ops`].
    pub payload: CanonicalJson,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The answered request.
    pub request_id: String,
    /// How it was decided.
    pub outcome: Outcome,
    /// Execution revision (commands) or presentation revision (views) after it.
    pub revision: Option<u64>,
    /// What was done or read.
    pub receipt: Option<CanonicalJson>,
    /// Why it was not done.
    pub error: Option<OperationError>,
}

/// Something that a subscription delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Chosen by the client.
    pub subscription_id: String,
    /// What the payload is.
    pub event: EventKind,
    /// Presentation revision of the payload.
    pub revision: Option<u64>,
    /// The run it is about.
    pub run_id: Option<String>,
    /// The view, see [`crate::view`].
    pub payload: CanonicalJson,
}

/// Anything a server sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerMessage {
    /// Once, first.
    Hello(Hello),
    /// An answer.
    Response(Response),
    /// A delivery.
    Event(Event),
}

/// Why a frame is no valid envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The bytes are not canonical JSON.
    #[error("{0}")]
    Canonical(#[from] CanonicalError),
    /// The document is no object.
    #[error("an envelope must be a JSON object")]
    NotAnObject,
    /// A field is absent.
    #[error("{envelope} lacks the field `{field}`")]
    Missing {
        /// Kind of envelope.
        envelope: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field that the envelope does not have.
    #[error("{envelope} has the unknown field `{field}`")]
    UnknownField {
        /// Kind of envelope.
        envelope: &'static str,
        /// The field.
        field: String,
    },
    /// A field of the wrong type or out of range.
    #[error("field `{field}` must be {expected}, found {found}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is, shortened.
        found: String,
    },
    /// Another schema.
    #[error("schema {found} is not {CLIENT_SCHEMA:?}")]
    Schema {
        /// What the envelope names.
        found: String,
    },
    /// A name outside a closed list.
    #[error("unknown {list} {found}")]
    Unknown {
        /// `type`, `operation`, `outcome` or `event`.
        list: &'static str,
        /// The name.
        found: String,
    },
}

/// Reads a request of a client.
///
/// # Errors
/// When the frame is not exactly a valid request.
pub fn parse_request(frame: &[u8]) -> Result<Request, EnvelopeError> {
    let mut fields = Fields::read(frame)?;
    match fields.envelope_type()?.as_str() {
        "request" => {}
        found => {
            return Err(EnvelopeError::Unknown {
                list: "type",
                found: format!("{found:?}, expected \"request\""),
            });
        }
    }
    fields.kind = "request";
    let request = Request {
        request_id: fields.id("requestId")?,
        client_id: fields.id("clientId")?,
        operation: fields.name("operation", "operation", Operation::from_name)?,
        idempotency_key: fields.id("idempotencyKey")?,
        run_id: fields.optional("runId", Fields::id)?,
        expected_revision: fields.optional("expectedRevision", Fields::revision)?,
        payload: fields.json("payload")?,
    };
    fields.end()?;
    Ok(request)
}

/// Reads a message of a server.
///
/// # Errors
/// When the frame is not exactly a valid hello, response or event.
pub fn parse_server_message(frame: &[u8]) -> Result<ServerMessage, EnvelopeError> {
    let mut fields = Fields::read(frame)?;
    match fields.envelope_type()?.as_str() {
        "hello" => hello(fields).map(ServerMessage::Hello),
        "response" => response(fields).map(ServerMessage::Response),
        "event" => event(fields).map(ServerMessage::Event),
        found => Err(EnvelopeError::Unknown {
            list: "type",
            found: format!("{found:?}, expected \"hello\", \"response\" or \"event\""),
        }),
    }
}

fn hello(mut fields: Fields<'_>) -> Result<Hello, EnvelopeError> {
    fields.kind = "hello";
    let hello = Hello {
        connection_id: fields.id("connectionId")?,
        package_version: fields.id("packageVersion")?,
    };
    fields.end()?;
    Ok(hello)
}

fn response(mut fields: Fields<'_>) -> Result<Response, EnvelopeError> {
    fields.kind = "response";
    let response = Response {
        request_id: fields.id("requestId")?,
        outcome: fields.name("outcome", "outcome", |name| {
            Outcome::ALL.iter().copied().find(|outcome| outcome.name() == name)
        })?,
        revision: fields.optional("revision", Fields::revision)?,
        receipt: fields.optional("receipt", Fields::json)?,
        error: fields.optional("error", Fields::error)?,
    };
    fields.end()?;
    Ok(response)
}

fn event(mut fields: Fields<'_>) -> Result<Event, EnvelopeError> {
    fields.kind = "event";
    let event = Event {
        subscription_id: fields.id("subscriptionId")?,
        event: fields.name("event", "event", |name| {
            EventKind::ALL.iter().copied().find(|kind| kind.name() == name)
        })?,
        revision: fields.optional("revision", Fields::revision)?,
        run_id: fields.optional("runId", Fields::id)?,
        payload: fields.json("payload")?,
    };
    fields.end()?;
    Ok(event)
}

/// The wire form shared by all four; absent fields are left out, the writer sorts the rest.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    schema: &'static str,
    #[serde(rename = "type")]
    envelope_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    package_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<&'a CanonicalJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a OperationError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a CanonicalJson>,
}

impl Wire<'_> {
    fn new(envelope_type: &'static str) -> Self {
        Wire {
            schema: CLIENT_SCHEMA,
            envelope_type,
            ..Wire::default()
        }
    }
}

impl Hello {
    /// The frame, line feed included.
    ///
    /// # Errors
    /// When it would exceed the frame limit.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        frame::encode(&Wire {
            connection_id: Some(&self.connection_id),
            package_version: Some(&self.package_version),
            ..Wire::new("hello")
        })
    }
}

impl Request {
    /// The frame, line feed included.
    ///
    /// # Errors
    /// When it would exceed the frame limit.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        frame::encode(&Wire {
            request_id: Some(&self.request_id),
            client_id: Some(&self.client_id),
            operation: Some(self.operation.name()),
            idempotency_key: Some(&self.idempotency_key),
            run_id: self.run_id.as_deref(),
            expected_revision: self.expected_revision,
            payload: Some(&self.payload),
            ..Wire::new("request")
        })
    }

    /// `sha256:<hex>` of what the request asks for: operation, run, expected revision and payload, without the request id and
    /// without a coordinator epoch. Two requests under one identity with different fingerprints conflict.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut payload = std::borrow::Cow::Borrowed(self.payload.as_bytes());
        if self.payload.as_str().contains("\"coordinatorEpoch\"") {
            let mut value = self.payload.to_value();
            if let Some(map) = value.as_object_mut() {
                map.remove("coordinatorEpoch");
                if let Some(authority) = map.get_mut("authority").and_then(serde_json::Value::as_object_mut) {
                    authority.remove("coordinatorEpoch");
                }
            }
            payload = canonical::write_value(&value).into();
        }
        let head = serde_json::json!([self.operation.name(), self.run_id, self.expected_revision]);
        let mut bytes = canonical::write_value(&head);
        bytes.extend_from_slice(&payload);
        canonical::digest_bytes(&bytes)
    }
}

impl Response {
    /// The frame, line feed included.
    ///
    /// # Errors
    /// When it would exceed the frame limit.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        frame::encode(&Wire {
            request_id: Some(&self.request_id),
            outcome: Some(self.outcome.name()),
            revision: self.revision,
            receipt: self.receipt.as_ref(),
            error: self.error.as_ref(),
            ..Wire::new("response")
        })
    }
}

impl Event {
    /// The frame, line feed included.
    ///
    /// # Errors
    /// When it would exceed the frame limit.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        frame::encode(&Wire {
            subscription_id: Some(&self.subscription_id),
            event: Some(self.event.name()),
            revision: self.revision,
            run_id: self.run_id.as_deref(),
            payload: Some(&self.payload),
            ..Wire::new("event")
        })
    }
}

impl ServerMessage {
    /// The frame, line feed included.
    ///
    /// # Errors
    /// When it would exceed the frame limit.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        match self {
            Self::Hello(hello) => hello.encode(),
            Self::Response(response) => response.encode(),
            Self::Event(event) => event.encode(),
        }
    }
}

/// Whether a revision can be sent: 0…2^53−1.
#[must_use]
pub const fn is_revision(value: u64) -> bool {
    value <= MAX_SAFE_INTEGER
}

/// Whether text can be an id: 1–256 bytes.
#[must_use]
pub const fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ID
}
