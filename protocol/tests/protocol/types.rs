//! The types on the wire: what is written is read back, escapes included, and bent frames never pass.

use piw_protocol::canonical::{self, CanonicalJson};
use piw_protocol::child::{self, ChildMessage, ToRunner};
use piw_protocol::content::MEDIA_JSON;
use piw_protocol::definition::{DefinitionSnapshot, EdgeRoute};
use piw_protocol::envelope::{parse_request, parse_server_message};
use piw_protocol::view::{ArtifactRef, DefinitionView, ViewValue};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::corpus::{Sender, manifest};

fn wire<T: serde::Serialize + serde::de::DeserializeOwned>(value: &Value) -> Value {
    let typed: T = canonical::from_slice(&canonical::write_value(value)).unwrap();
    serde_json::to_value(&typed).unwrap()
}

#[test]
fn user_values_that_look_like_references_survive() {
    let reference = ArtifactRef::of(b"x", MEDIA_JSON);
    let lookalike = json!({ "$artifact": reference });
    assert_eq!(ViewValue::from_wire(&lookalike), ViewValue::Artifact(reference.clone()));
    for user in [
        lookalike.clone(),
        json!({"$artifact": 1}),
        json!({"$escaped": lookalike}),
        json!({"$escaped": {"$escaped": null}}),
        json!({"$artifact": 1, "other": 2}),
        json!({"inner": lookalike}),
        json!([lookalike]),
        json!({}),
        Value::Null,
    ] {
        let value = ViewValue::Inline(user.clone());
        let sent = value.to_wire();
        assert_eq!(ViewValue::from_wire(&sent), value, "{user}");
        assert_eq!(
            canonical::from_slice::<ViewValue>(&canonical::to_vec(&value).unwrap()).unwrap(),
            value
        );
    }
    let artifact = ViewValue::Artifact(reference);
    assert_eq!(ViewValue::from_wire(&artifact.to_wire()), artifact);
}

#[test]
fn every_message_of_a_runner_is_read_back() {
    let attempt = json!({"attemptId": "a-2", "nodeId": "n", "visit": 1, "timeoutMs": null});
    let finish = json!({"attemptId": "a-1", "nodeId": "m", "outcome": "ok", "output": {"inline": {"$artifact": 1e20}},
        "activeMs": 5, "next": {"start": attempt}});
    let content = json!({"sha256": "00", "bytes": 1, "mediaType": MEDIA_JSON});
    for (kind, payload) in [
        ("runner.ready", json!({"definitionDigest": "sha256:00"})),
        ("node.started", attempt.clone()),
        ("node.finished", finish.clone()),
        ("node.failed", finish),
        (
            "node.update",
            json!({"updates": [{"type": "progress", "key": "k", "data": {"done": 1}}]}),
        ),
        ("run.parked", json!({"reason": "workflowSourceChanged", "message": "m"})),
        (
            "notification.requested",
            json!({"kind": "progress", "message": "m", "index": 0}),
        ),
        (
            "effect.reserve",
            json!({"key": "k", "effectType": "t", "kind": "manual", "fingerprint": "sha256:00"}),
        ),
        (
            "effect.settle",
            json!({"key": "k", "outcome": "applied", "result": {"content": content}}),
        ),
        ("runner.progress", json!({"stream": "stdout", "text": "\u{1b}[0m"})),
        (
            "process.register",
            json!({"pid": 7, "startIdentity": "s", "label": "sh"}),
        ),
        ("process.unregister", json!({"pid": 7, "startIdentity": "s"})),
        (
            "content.put",
            json!({"content": content, "offset": 0, "data": "eA==", "complete": true}),
        ),
        ("content.get", json!({"sha256": "00", "offset": 0})),
        ("runner.exiting", json!({"reason": "done"})),
    ] {
        let message = json!({"schema": child::CHILD_SCHEMA, "runId": "r", "generation": 1, "runnerEpoch": "e",
            "messageId": kind, "expectedRevision": 4, "type": kind, "payload": payload});
        let read = wire::<ChildMessage>(&message);
        assert_eq!(
            canonical::write_value(&read),
            canonical::write_value(&message),
            "{kind}"
        );
    }
    let unknown = json!({"schema": "s", "runId": "r", "generation": 1, "runnerEpoch": "e", "messageId": "m", "type": "node.begun",
        "payload": {}});
    let error = canonical::from_slice::<ChildMessage>(&canonical::write_value(&unknown)).unwrap_err();
    assert!(error.to_string().contains("unknown variant `node.begun`"), "{error}");
}

#[test]
fn replies_and_orders_to_a_runner_are_told_apart() {
    let reply = json!({"schema": child::REPLY_SCHEMA, "messageId": "m", "outcome": "claimLost"});
    let push = json!({"schema": child::REPLY_SCHEMA, "push": "stop"});
    let read = |value: &Value| canonical::from_slice::<ToRunner>(&canonical::write_value(value)).unwrap();
    assert!(matches!(read(&reply), ToRunner::Reply(_)));
    assert!(matches!(read(&push), ToRunner::Push(_)));
    for message in [reply, push] {
        assert_eq!(wire::<ToRunner>(&message), message);
    }
}

#[test]
fn a_definition_keeps_what_canonical_key_order_would_lose() {
    let definition = json!({"schema": "pi-workflows.definition-snapshot.v1", "name": "w", "startAt": "b",
        "nodeOrder": ["b", "a"], "nodes": {"a": {"nodeType": "compute"}, "b": {"nodeType": "compute", "timeoutMs": null}},
        "edges": [{"from": "b", "switch": {"on": "$output", "cases": {"x": "a", "y": "b"}, "caseOrder": ["y", "x"]}},
            {"from": "a", "to": "b"}]});
    let read: DefinitionSnapshot = canonical::from_slice(&canonical::write_value(&definition)).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), definition);
    assert_eq!(
        (read.nodes["a"].timeout_ms, read.nodes["b"].timeout_ms),
        (None, Some(None)),
        "null is not absence"
    );
    assert!(matches!(&read.edges[0].route, EdgeRoute::Switch { switch } if switch.case_order == ["y", "x"]));

    let reference = ArtifactRef::of(b"{}", MEDIA_JSON);
    let bounded = json!({"name": "w", "startAt": "b", "nodeTotal": 2, "content": {"$artifact": reference}});
    for (document, whole) in [(definition, true), (bounded, false)] {
        let view: DefinitionView = canonical::from_slice(&canonical::write_value(&document)).unwrap();
        assert_eq!(matches!(view, DefinitionView::Inline(_)), whole);
        assert_eq!(serde_json::to_value(&view).unwrap(), document);
    }
}

proptest! {
    #[test]
    fn bent_frames_are_refused_or_read_exactly(
        frame in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..4),
    ) {
        let frames = frames();
        let (from, mut bytes) = frames[frame.index(frames.len())].clone();
        for (at, byte, edit) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        let written = match from {
            Sender::Client => parse_request(&bytes).map(|request| request.encode()),
            Sender::Server => parse_server_message(&bytes).map(|message| message.encode()),
        };
        if let Ok(written) = written {
            bytes.push(b'\n');
            prop_assert_eq!(written.unwrap(), bytes);
        }
    }
}

/// The valid frames of the corpus, read once.
fn frames() -> &'static [(Sender, Vec<u8>)] {
    static FRAMES: std::sync::OnceLock<Vec<(Sender, Vec<u8>)>> = std::sync::OnceLock::new();
    FRAMES.get_or_init(|| {
        let valid = manifest()
            .into_iter()
            .filter(|(entry, _)| entry.error.is_none() && entry.payload_error.is_none());
        valid.map(|(entry, frame)| (entry.from, frame)).collect()
    })
}

#[test]
fn canonical_text_is_part_of_what_holds_it() {
    let inner = CanonicalJson::new(&json!({"b": 1, "a": [null]})).unwrap();
    assert_eq!(inner.as_str(), "{\"a\":[null],\"b\":1}");
    assert_eq!(serde_json::to_value(&inner).unwrap(), json!({"a": [null], "b": 1}));
    assert_eq!(
        canonical::to_string(&[&inner, &CanonicalJson::null()]).unwrap(),
        "[{\"a\":[null],\"b\":1},null]"
    );
    let read: Vec<CanonicalJson> = serde_json::from_str("[ {\"b\":1.0, \"a\":[null]} ]").unwrap();
    assert_eq!(read, [inner], "other spellings are brought into canonical form");
    assert!(CanonicalJson::parse(b"{ }").is_err());
}
