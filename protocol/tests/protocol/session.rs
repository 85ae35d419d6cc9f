//! The conversation that recorded events add up to: bounded, the same from any checkpoint, right for a whole turn.

use piw_protocol::canonical;
use piw_protocol::session::{Conversation, LIVE_TEXT, LIVE_TOOLS, RecordedEvent, SessionEvent};
use proptest::prelude::*;
use serde_json::{Value, json};

fn event(kind: &str, payload: &Value) -> RecordedEvent {
    let event = json!({"at": "2026-03-01T12:00:00.000Z", "type": kind, "payload": payload});
    serde_json::from_value(event).unwrap()
}

fn replay<'a>(mut from: Conversation, events: impl IntoIterator<Item = &'a RecordedEvent>) -> Conversation {
    events.into_iter().for_each(|event| from.apply(event));
    from
}

/// Every kind of event, with few distinct ids so that they meet.
fn any_event() -> impl Strategy<Value = RecordedEvent> {
    let id = || (0..90_u8).prop_map(|n| format!("id-{n}"));
    // Long deltas come as often as short ones, so that bounds are reached.
    let delta = || {
        prop_oneof![
            "\\PC{0,8}",
            (1..40_000_usize, prop_oneof![Just("x"), Just("é"), Just("😀")]).prop_map(|(n, text)| text.repeat(n))
        ]
    };
    let what = prop_oneof![
        1 => (0..5_u64).prop_map(|turn| SessionEvent::TurnStart { turn }),
        1 => (0..5_u64, proptest::option::of(id()))
            .prop_map(|(turn, stop_reason)| SessionEvent::TurnEnd { turn, stop_reason }),
        4 => prop_oneof!["user", "assistant"].prop_map(|role| SessionEvent::MessageStart { role }),
        8 => delta().prop_map(|delta| SessionEvent::Text { delta }),
        8 => delta().prop_map(|delta| SessionEvent::Thinking { delta }),
        2 => proptest::option::of(id()).prop_map(|entry_id| SessionEvent::MessageEnd { entry_id }),
        90 => (id(), "\\PC{1,4}").prop_map(|(call_id, tool)| SessionEvent::ToolStart { call_id, tool, args: json!({}) }),
        4 => id().prop_map(|call_id| SessionEvent::ToolUpdate { call_id }),
        4 => (id(), any::<bool>()).prop_map(|(call_id, is_error)| SessionEvent::ToolEnd { call_id, is_error }),
        2 => id().prop_map(|entry_id| SessionEvent::Entry { entry_id }),
    ];
    let at = "2026-03-01T12:00:00.000Z";
    what.prop_map(move |what| RecordedEvent { at: at.into(), what })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_conversation_is_bounded_and_the_same_from_any_checkpoint(
        events in proptest::collection::vec(any_event(), 1..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut whole = Conversation::default();
        for event in &events {
            whole.apply(event);
            prop_assert!(whole.tools.len() <= LIVE_TOOLS);
            if let Some(message) = &whole.message {
                prop_assert!(message.text.len() <= LIVE_TEXT && message.thinking.len() <= LIVE_TEXT);
            }
        }
        let (before, after) = events.split_at(cut.index(events.len()));
        let checkpoint = replay(Conversation::default(), before);
        // A checkpoint travels and is stored as canonical JSON.
        let read: Conversation = canonical::from_slice(&canonical::to_vec(&checkpoint).unwrap()).unwrap();
        prop_assert_eq!(&read, &checkpoint);
        prop_assert_eq!(replay(read, after), whole);
    }
}

#[test]
fn a_turn_streams_settles_and_ends() {
    let mut now = replay(
        Conversation::default(),
        &[
            event("turn_start", &json!({"turn": 3})),
            event("message_start", &json!({"role": "assistant"})),
            event("thinking", &json!({"delta": "hm"})),
            event("text", &json!({"delta": "I look "})),
            event("text", &json!({"delta": "first."})),
        ],
    );
    let message = now.message.clone().unwrap();
    assert_eq!(
        (message.text.as_str(), message.thinking.as_str()),
        ("I look first.", "hm")
    );
    assert_eq!((now.turn, message.complete), (Some(3), false));

    now.apply(&event("message_end", &json!({"entryId": "e-1"})));
    now.apply(&event("text", &json!({"delta": "late"})));
    let message = now.message.clone().unwrap();
    assert!(message.complete, "it stays until it settles");
    assert_eq!(message.text, "I look first.");
    now.apply(&event("entry", &json!({"entryId": "another"})));
    assert!(now.message.is_some(), "another entry settles another message");
    now.apply(&event("entry", &json!({"entryId": "e-1"})));
    assert_eq!(now.message, None);

    now.apply(&event(
        "tool_start",
        &json!({"callId": "c", "tool": "bash", "args": {"command": "false"}}),
    ));
    now.apply(&event("tool_start", &json!({"callId": "d", "tool": "read"})));
    now.apply(&event("tool_end", &json!({"callId": "c", "isError": true})));
    assert_eq!(
        now.tools.iter().map(|tool| tool.failed).collect::<Vec<_>>(),
        [Some(true), None]
    );
    now.apply(&event("entry", &json!({"entryId": "result-of-c"})));
    assert_eq!(
        now.tools.iter().map(|tool| tool.call_id.as_str()).collect::<Vec<_>>(),
        ["d"]
    );

    now.apply(&event("turn_end", &json!({"turn": 3, "stopReason": "aborted"})));
    assert_eq!(now.stop_reason.as_deref(), Some("aborted"));
    assert!(now.tools.is_empty() && now.turn.is_none());
    now.apply(&event("turn_start", &json!({"turn": 4})));
    assert_eq!((now.turn, now.stop_reason), (Some(4), None));
}

#[test]
fn a_long_message_keeps_its_end_whole() {
    let mut now = replay(
        Conversation::default(),
        &[event("message_start", &json!({"role": "assistant"}))],
    );
    for part in 0..400 {
        now.apply(&event(
            "text",
            &json!({"delta": format!("{}{part:05}", "é".repeat(150))}),
        ));
    }
    let text = now.message.unwrap().text;
    assert!(text.ends_with("00399") && text.len() > LIVE_TEXT / 2 && text.len() <= LIVE_TEXT);
}

#[test]
fn ends_without_a_start_change_nothing() {
    let mut now = Conversation::default();
    for (kind, payload) in [
        ("text", json!({"delta": "x"})),
        ("thinking", json!({"delta": "x"})),
        ("message_end", json!({})),
        ("tool_update", json!({"callId": "c"})),
        ("tool_end", json!({"callId": "c"})),
        ("entry", json!({"entryId": "e"})),
    ] {
        now.apply(&event(kind, &payload));
    }
    assert_eq!(now, Conversation::default());
}

#[test]
fn kinds_are_the_names_on_the_wire() {
    for (kind, payload) in [
        ("turn_start", json!({"turn": 1})),
        ("turn_end", json!({"turn": 1})),
        ("message_start", json!({"role": "user"})),
        ("text", json!({"delta": ""})),
        ("thinking", json!({"delta": ""})),
        ("message_end", json!({})),
        ("tool_start", json!({"callId": "c", "tool": "t"})),
        ("tool_update", json!({"callId": "c"})),
        ("tool_end", json!({"callId": "c"})),
        ("entry", json!({"entryId": "e"})),
    ] {
        assert_eq!(event(kind, &payload).what.kind(), kind);
    }
}
