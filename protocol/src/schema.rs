//! The protocol as JSON Schema, made from the types. `schema/` holds the result for readers that are not written in Rust; a test
//! keeps it current.
//!
//! A schema cannot say everything: that the bytes are canonical, that an id's length is counted in bytes, what an operation
//! needs in the envelope. The golden corpus in `fixtures/` is the judge.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::canonical::MAX_SAFE_INTEGER;
use crate::effect;
use crate::envelope::{CLIENT_SCHEMA, EventKind, MAX_ID, Outcome};
use crate::interaction;
use crate::maintenance;
use crate::ops::{self, Operation, OperationError};
use crate::{session, view};

/// Payload and receipt of an operation, where this package has types for them.
struct Shape {
    operation: Operation,
    payload: Option<Schema>,
    receipt: Option<Schema>,
}

/// Every schema document: file name and content.
#[must_use]
pub fn documents() -> Vec<(&'static str, Value)> {
    vec![("request.json", request()), ("server-message.json", server_message())]
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

/// What a client sends.
fn request() -> Value {
    let mut types = generator();
    let rules: Vec<Value> = shapes(&mut types)
        .into_iter()
        .filter_map(|shape| {
            let payload = shape.payload?;
            Some(json!({
                "if": {"properties": {"operation": {"const": shape.operation.name()}}, "required": ["operation"]},
                "then": {"properties": {"payload": payload}},
            }))
        })
        .collect();
    let operation = types.subschema_for::<Operation>();
    let mut schema = envelope(
        "request",
        &["requestId", "clientId", "operation", "idempotencyKey", "payload"],
        &json!({
            "requestId": id("New for every sending."),
            "clientId": id("With the idempotency key the identity of a command."),
            "operation": operation,
            "idempotencyKey": id("The same for every sending of one command."),
            "runId": id("The run it is about."),
            "expectedRevision": revision("Revision that must still be current."),
            "payload": {"description": "The operation's payload."},
        }),
    );
    schema["allOf"] = rules.into();
    document(schema, "A request of pi-workflows.client.v1", &mut types)
}

/// What a server sends.
fn server_message() -> Value {
    let mut types = generator();
    let hello = envelope(
        "hello",
        &["connectionId", "packageVersion"],
        &json!({
            "connectionId": id("Names the connection in logs."),
            "packageVersion": id("Must be the client's."),
        }),
    );
    // Items of pages that no view holds.
    types.subschema_for::<view::NodeTime>();
    types.subschema_for::<view::Pause>();
    let receipts: Map<String, Value> = shapes(&mut types)
        .into_iter()
        .filter_map(|shape| Some((shape.operation.name().to_owned(), shape.receipt?.to_value())))
        .collect();
    let response = envelope(
        "response",
        &["requestId", "outcome"],
        &json!({
            "requestId": id("The answered request."),
            "outcome": types.subschema_for::<Outcome>(),
            "revision": revision("Revision after the request."),
            // Which one it is depends on the request, which a schema of the response cannot know.
            "receipt": {"description": "What was done or read.", "x-receiptByOperation": receipts},
            "error": types.subschema_for::<OperationError>(),
        }),
    );
    let event = event(&mut types);
    let schema = json!({"oneOf": [hello, response, event]});
    document(schema, "A message of a server of pi-workflows.client.v1", &mut types)
}

fn event(types: &mut SchemaGenerator) -> Value {
    let payloads = [
        (EventKind::Runs, types.subschema_for::<view::RunListPage>()),
        (EventKind::RunSnapshot, types.subschema_for::<view::RunView>()),
        (EventKind::RunPage, types.subschema_for::<view::RunPage>()),
        (
            EventKind::SessionSnapshot,
            types.subschema_for::<interaction::SessionView>(),
        ),
        (EventKind::Unavailable, types.subschema_for::<OperationError>()),
    ];
    let rules = payloads.map(|(kind, payload)| {
        json!({
            "if": {"properties": {"event": {"const": kind.name()}}, "required": ["event"]},
            "then": {"properties": {"payload": payload}},
        })
    });
    let mut event = envelope(
        "event",
        &["subscriptionId", "event", "payload"],
        &json!({
            "subscriptionId": id("Chosen by the client."),
            "event": types.subschema_for::<EventKind>(),
            "revision": revision("Presentation revision of the payload."),
            "runId": id("The run it is about."),
            "payload": {"description": "The view."},
        }),
    );
    event["allOf"] = rules.to_vec().into();
    event
}

fn shapes(types: &mut SchemaGenerator) -> Vec<Shape> {
    fn of<T: JsonSchema>(types: &mut SchemaGenerator) -> Option<Schema> {
        Some(types.subschema_for::<T>())
    }
    let mut shapes = Vec::new();
    for operation in Operation::ALL.iter().copied() {
        let (payload, receipt) = match operation {
            Operation::RunStart => (of::<ops::RunStart>(types), of::<ops::RunReceipt>(types)),
            Operation::RunPause | Operation::RunResume | Operation::RunCancel | Operation::RunRestart => {
                (None, of::<ops::RunReceipt>(types))
            }
            Operation::RunStatus => (None, of::<ops::RunStatusReport>(types)),
            Operation::RunList => (of::<ops::RunList>(types), of::<view::RunListPage>(types)),
            Operation::CheckpointAnswer => (of::<ops::CheckpointAnswer>(types), of::<ops::RunReceipt>(types)),
            Operation::ViewRunsWatch => (of::<ops::RunsWatch>(types), None),
            Operation::ViewRunsPage => (of::<ops::RunsPage>(types), of::<view::RunListPage>(types)),
            Operation::ViewRunGet => (None, of::<view::RunView>(types)),
            Operation::ViewRunsUnwatch
            | Operation::ViewRunWatch
            | Operation::ViewRunUnwatch
            | Operation::ViewSessionUnwatch => (of::<ops::SubscriptionRef>(types), None),
            Operation::ViewPage => (of::<ops::PageRequest>(types), of::<view::RunPage>(types)),
            Operation::ViewContent => (of::<ops::ContentRequest>(types), of::<view::ContentChunk>(types)),
            Operation::SessionRecord => (
                of::<session::SessionRecord>(types),
                of::<session::SessionRecordReceipt>(types),
            ),
            Operation::ViewSessionWatch => (of::<interaction::SessionWatch>(types), None),
            Operation::ViewSessionWindow => (of::<interaction::SessionWindow>(types), None),
            Operation::WorkflowMessageReportBranch => (
                of::<interaction::BranchReport>(types),
                of::<interaction::BranchReceipt>(types),
            ),
            Operation::WorkflowTurnReport => (
                of::<interaction::TurnReport>(types),
                of::<interaction::TurnReceipt>(types),
            ),
            Operation::SessionViewClearTerminal => (
                of::<interaction::ClearTerminal>(types),
                of::<interaction::ClearedTerminal>(types),
            ),
            Operation::InteractionSubmit => (
                of::<interaction::InteractionSubmit>(types),
                of::<interaction::InteractionReceipt>(types),
            ),
            Operation::InteractionAssistant => (
                of::<interaction::InteractionAssistant>(types),
                of::<interaction::InteractionReceipt>(types),
            ),
            Operation::InteractionUpdate => (of::<interaction::InteractionUpdate>(types), None),
            Operation::DecisionAnswer => (of::<interaction::DecisionAnswer>(types), of::<ops::RunReceipt>(types)),
            Operation::EffectList => (of::<effect::EffectList>(types), of::<effect::EffectListReport>(types)),
            Operation::EffectResolve => (of::<effect::EffectResolve>(types), of::<effect::EffectReceipt>(types)),
            Operation::ServerStatus => (None, of::<ops::ServerStatusReport>(types)),
            Operation::ServerStop => (of::<ops::ServerStop>(types), of::<ops::ServerStopReport>(types)),
            Operation::StateStatus => (None, of::<maintenance::StateStatusReport>(types)),
            Operation::StateVerify => (None, of::<maintenance::StateVerifyReport>(types)),
            Operation::StateBackup => (
                of::<maintenance::StateBackup>(types),
                of::<maintenance::StateBackupReport>(types),
            ),
            Operation::StatePrune => (
                of::<maintenance::StatePrune>(types),
                of::<maintenance::StatePruneReport>(types),
            ),
            Operation::ContentPut => (of::<ops::ContentPut>(types), of::<ops::ContentPutReport>(types)),
            Operation::WorkflowList => (of::<ops::WorkflowList>(types), of::<ops::WorkflowListReport>(types)),
            Operation::WorkflowCheck => (of::<ops::WorkflowCheck>(types), of::<ops::WorkflowCheckReport>(types)),
            _ => (None, None),
        };
        shapes.push(Shape {
            operation,
            payload,
            receipt,
        });
    }
    shapes
}

fn envelope(kind: &str, required: &[&str], properties: &Value) -> Value {
    let mut properties = properties.clone();
    properties["schema"] = json!({"const": CLIENT_SCHEMA});
    properties["type"] = json!({"const": kind});
    let mut required = required.to_vec();
    required.extend(["schema", "type"]);
    json!({"title": kind, "type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

fn id(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": MAX_ID, "description": format!("{description} 1 to 256 bytes.")})
}

fn revision(description: &str) -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MAX_SAFE_INTEGER, "description": description})
}

fn document(mut schema: Value, title: &str, types: &mut SchemaGenerator) -> Value {
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = title.into();
    schema["$defs"] = types.take_definitions(true).into();
    schema
}
