//! The golden corpus: every frame of `fixtures/` is judged as its manifest says, and the corpus covers the closed lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use piw_protocol::canonical::{CanonicalError, CanonicalJson};
use piw_protocol::envelope::{
    self, CLIENT_SCHEMA, EnvelopeError, EventKind, Outcome, Request, ServerMessage, parse_request, parse_server_message,
};
use piw_protocol::frame::{Decoder, MAX_FRAME};
use piw_protocol::interaction::{self, SessionView, TurnReceipt};
use piw_protocol::maintenance;
use piw_protocol::ops::{self, Operation};
use piw_protocol::session::{SessionEntryView, SessionEventView, SessionRecord};
use piw_protocol::view::{ContentChunk, RunListPage, RunPage, RunView};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) file: String,
    pub(crate) from: Sender,
    /// Error of the envelope; absent for a valid one.
    pub(crate) error: Option<String>,
    /// Part of the error of the payload.
    pub(crate) payload_error: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Sender {
    Client,
    Server,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

pub(crate) fn manifest() -> Vec<(Entry, Vec<u8>)> {
    let entries: Vec<Entry> =
        serde_json::from_slice(&std::fs::read(fixtures().join("manifest.json")).unwrap()).unwrap();
    entries
        .into_iter()
        .map(|entry| {
            let bytes = std::fs::read(fixtures().join(&entry.file)).unwrap();
            (entry, bytes)
        })
        .collect()
}

/// Parses and writes again; a valid frame comes back byte for byte.
fn judge(from: Sender, frame: &[u8]) -> Result<Vec<u8>, EnvelopeError> {
    Ok(match from {
        Sender::Client => parse_request(frame)?.encode().unwrap(),
        Sender::Server => parse_server_message(frame)?.encode().unwrap(),
    })
}

#[test]
fn every_frame_is_judged_as_the_manifest_says() {
    let mut judged = BTreeSet::new();
    let mut wrong = Vec::new();
    for (entry, frame) in manifest() {
        let judgement = judge(entry.from, &frame);
        let expected = match &entry.error {
            Some(error) => Err(error.clone()),
            None => Ok(String::from_utf8_lossy(&frame).into_owned() + "\n"),
        };
        let found = judgement
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .map_err(|error| error.to_string());
        if found != expected {
            wrong.push(format!("{}: expected {expected:?}, found {found:?}", entry.file));
        }
        assert!(judged.insert(entry.file));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for folder in ["valid", "invalid"] {
        for file in std::fs::read_dir(fixtures().join(folder)).unwrap() {
            let name = format!("{folder}/{}", file.unwrap().file_name().to_str().unwrap());
            assert!(judged.contains(&name), "{name} is missing in the manifest");
        }
    }
}

#[test]
fn the_corpus_covers_every_operation_outcome_and_event() {
    let (mut operations, mut outcomes, mut events, mut hello) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), false);
    for (entry, frame) in manifest() {
        if entry.from == Sender::Client {
            operations.extend(parse_request(&frame).map(|request| request.operation.name()));
            continue;
        }
        match parse_server_message(&frame) {
            Ok(ServerMessage::Hello(_)) => hello = true,
            Ok(ServerMessage::Response(response)) => drop(outcomes.insert(response.outcome.name())),
            Ok(ServerMessage::Event(event)) => drop(events.insert(event.event.name())),
            Err(_) => {}
        }
    }
    assert!(hello);
    assert_eq!(
        operations,
        Operation::ALL.iter().map(|operation| operation.name()).collect()
    );
    assert_eq!(outcomes, Outcome::ALL.iter().map(|outcome| outcome.name()).collect());
    assert_eq!(events, EventKind::ALL.iter().map(|event| event.name()).collect());
}

#[test]
fn names_on_the_wire_are_those_of_serde() {
    for operation in Operation::ALL {
        assert_eq!(json!(operation), json!(operation.name()));
        assert_eq!(Operation::from_name(operation.name()), Some(*operation));
    }
    for outcome in Outcome::ALL {
        assert_eq!(json!(outcome), json!(outcome.name()));
    }
    for event in EventKind::ALL {
        assert_eq!(json!(event), json!(event.name()));
    }
}

/// Reads a payload as the type of its operation.
fn typed(request: &Request) -> Result<(), String> {
    if request.operation == Operation::SessionRecord {
        let record = request.payload.decode::<SessionRecord>();
        return record.map_err(|error| error.to_string())?.check();
    }
    plain(request).map_err(|error| error.to_string())
}

fn plain(request: &Request) -> Result<(), CanonicalError> {
    let payload = &request.payload;
    match request.operation {
        Operation::RunStart => payload.decode::<ops::RunStart>().map(drop),
        Operation::RunList => payload.decode::<ops::RunList>().map(drop),
        Operation::CheckpointAnswer => payload.decode::<ops::CheckpointAnswer>().map(drop),
        Operation::ViewRunsWatch => payload.decode::<ops::RunsWatch>().map(drop),
        Operation::ViewRunsPage => payload.decode::<ops::RunsPage>().map(drop),
        Operation::ViewRunWatch
        | Operation::ViewRunUnwatch
        | Operation::ViewRunsUnwatch
        | Operation::ViewSessionUnwatch => payload.decode::<ops::SubscriptionRef>().map(drop),
        Operation::ViewPage => payload.decode::<ops::PageRequest>().map(drop),
        Operation::ViewContent => payload.decode::<ops::ContentRequest>().map(drop),
        Operation::ViewSessionWatch => payload.decode::<interaction::SessionWatch>().map(drop),
        Operation::ViewSessionWindow => payload.decode::<interaction::SessionWindow>().map(drop),
        Operation::WorkflowMessageReportBranch => payload.decode::<interaction::BranchReport>().map(drop),
        Operation::WorkflowTurnReport => payload.decode::<interaction::TurnReport>().map(drop),
        Operation::SessionViewClearTerminal => payload.decode::<interaction::ClearTerminal>().map(drop),
        Operation::InteractionSubmit => payload.decode::<interaction::InteractionSubmit>().map(drop),
        Operation::InteractionAssistant => payload.decode::<interaction::InteractionAssistant>().map(drop),
        Operation::InteractionUpdate => payload.decode::<interaction::InteractionUpdate>().map(drop),
        Operation::DecisionAnswer => payload.decode::<interaction::DecisionAnswer>().map(drop),
        Operation::ContentPut => payload.decode::<ops::ContentPut>().map(drop),
        Operation::ServerStop => payload.decode::<ops::ServerStop>().map(drop),
        Operation::StateBackup => payload.decode::<maintenance::StateBackup>().map(drop),
        Operation::StatePrune => payload.decode::<maintenance::StatePrune>().map(drop),
        Operation::WorkflowCheck => payload.decode::<ops::WorkflowCheck>().map(drop),
        Operation::WorkflowList => payload.decode::<ops::WorkflowList>().map(drop),
        _ => Ok(()),
    }
}

#[test]
fn payloads_are_read_as_the_types_of_their_operations() {
    for (entry, frame) in manifest().into_iter().filter(|(entry, _)| entry.from == Sender::Client) {
        let Ok(request) = parse_request(&frame) else { continue };
        match &entry.payload_error {
            Some(part) => {
                let error = typed(&request).unwrap_err();
                assert!(error.contains(part), "{}: {error}", entry.file);
            }
            None => typed(&request).unwrap(),
        }
    }
}

#[test]
fn views_survive_their_types_unchanged() {
    fn same<T: serde::de::DeserializeOwned + serde::Serialize>(payload: &CanonicalJson) {
        let typed: T = payload.decode().unwrap();
        assert_eq!(CanonicalJson::new(&typed).unwrap(), *payload);
    }
    fn items<T: serde::de::DeserializeOwned + serde::Serialize>(payload: &CanonicalJson) {
        same::<RunPage>(payload);
        let page: RunPage = payload.decode().unwrap();
        assert!(!page.items.is_empty());
        page.items
            .iter()
            .for_each(|item| same::<T>(&CanonicalJson::new(item).unwrap()));
    }
    let mut seen = 0;
    for (entry, frame) in manifest() {
        match (entry.file.as_str(), parse_server_message(&frame)) {
            ("valid/event-runs.json", Ok(ServerMessage::Event(event))) => same::<RunListPage>(&event.payload),
            ("valid/event-run_snapshot.json", Ok(ServerMessage::Event(event))) => same::<RunView>(&event.payload),
            ("valid/event-run_page.json", Ok(ServerMessage::Event(event))) => same::<RunPage>(&event.payload),
            ("valid/event-unavailable.json", Ok(ServerMessage::Event(event))) => {
                same::<ops::OperationError>(&event.payload);
            }
            (
                "valid/event-session_snapshot.json" | "valid/event-session_snapshot-step.json",
                Ok(ServerMessage::Event(event)),
            ) => same::<SessionView>(&event.payload),
            ("valid/response-turn-report.json", Ok(ServerMessage::Response(response))) => {
                same::<TurnReceipt>(&response.receipt.unwrap());
            }
            ("valid/response-content-chunk.json", Ok(ServerMessage::Response(response))) => {
                same::<ContentChunk>(&response.receipt.unwrap());
            }
            ("valid/response-page-session_events.json", Ok(ServerMessage::Response(response))) => {
                items::<SessionEventView>(&response.receipt.unwrap());
            }
            ("valid/response-page-session_entries.json", Ok(ServerMessage::Response(response))) => {
                items::<SessionEntryView>(&response.receipt.unwrap());
            }
            _ => continue,
        }
        seen += 1;
    }
    assert_eq!(seen, 10);
}

#[test]
fn a_request_of_exactly_one_mebibyte_is_read_and_one_byte_more_is_refused() {
    let mut request = Request {
        request_id: "r".into(),
        client_id: "c".into(),
        operation: Operation::ServerStatus,
        idempotency_key: "k".into(),
        run_id: None,
        expected_revision: None,
        payload: CanonicalJson::new("").unwrap(),
    };
    let room = MAX_FRAME - request.encode().unwrap().len();
    request.payload = CanonicalJson::new(&"x".repeat(room)).unwrap();
    let frame = request.encode().unwrap();
    assert_eq!(frame.len(), MAX_FRAME);
    let mut decoder = Decoder::new();
    decoder.push(&frame);
    assert_eq!(
        parse_request(&decoder.next_frame().unwrap().unwrap()),
        Ok(request.clone())
    );

    request.payload = CanonicalJson::new(&"x".repeat(room + 1)).unwrap();
    let error = request.encode().unwrap_err().to_string();
    assert_eq!(
        error,
        "the message needs a frame of 1048577 bytes, the limit is 1048576"
    );
}

#[test]
fn the_fingerprint_is_that_of_what_is_asked() {
    let base = Request {
        request_id: "r".into(),
        client_id: "c".into(),
        operation: Operation::RunPause,
        idempotency_key: "k".into(),
        run_id: Some("run".into()),
        expected_revision: Some(1),
        payload: CanonicalJson::new(&json!({"coordinatorEpoch": 1, "a": 1})).unwrap(),
    };
    let with = |change: fn(&mut Request)| {
        let mut request = base.clone();
        change(&mut request);
        request.fingerprint()
    };
    assert!(base.fingerprint().starts_with("sha256:"));
    assert_eq!(base.fingerprint(), with(|request| request.request_id = "other".into()));
    let epoch = with(|request| request.payload = CanonicalJson::new(&json!({"coordinatorEpoch": 2, "a": 1})).unwrap());
    assert_eq!(base.fingerprint(), epoch, "the coordinator epoch does not count");
    for changed in [
        with(|request| request.operation = Operation::RunResume),
        with(|request| request.run_id = None),
        with(|request| request.expected_revision = None),
        with(|request| request.payload = CanonicalJson::new(&json!({"coordinatorEpoch": 1, "a": 2})).unwrap()),
    ] {
        assert_ne!(base.fingerprint(), changed);
    }
    assert_eq!(CLIENT_SCHEMA, "pi-workflows.client.v1");
    assert!(envelope::is_id("x") && !envelope::is_id("") && !envelope::is_revision(1 << 53));
}
