use std::io;
use std::sync::Mutex;

use piw_protocol::canonical::CanonicalJson;
use piw_protocol::envelope::{Event, EventKind, Hello as Greeting, Outcome, Response, parse_request};
use piw_protocol::interaction::{
    InteractionKind, MessageKind, MessageStatus, SessionInteraction, SessionMessage, StepReason, TURN_RECEIPT_SCHEMA,
};
use piw_protocol::ops::{Operation, OperationError};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

use super::*;
use crate::pi::glue::Observation;

/// A server that plays its part of one step.
struct Scripted {
    view: Mutex<SessionView>,
    /// What it was asked, in order.
    asked: Mutex<Vec<(Operation, Value)>>,
    /// Submissions that it rejects first.
    rejects: Mutex<u32>,
}

#[derive(Clone)]
struct Wire(Arc<Scripted>);

impl Connector for Wire {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<Self::Stream> {
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(serve_one(Arc::clone(&self.0), theirs));
        Ok(ours)
    }

    fn target(&self) -> String {
        "a script".into()
    }
}

async fn serve_one(script: Arc<Scripted>, stream: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(stream);
    let hello = Greeting {
        connection_id: "c".into(),
        package_version: PACKAGE_VERSION.into(),
    };
    writer.write_all(&hello.encode().unwrap()).await.unwrap();
    let mut lines = BufReader::new(reader).lines();
    let mut subscription = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let request = parse_request(line.as_bytes()).unwrap();
        let payload: Value = request.payload.decode().unwrap();
        if request.operation == Operation::ViewSessionWatch {
            subscription = payload["subscriptionId"].as_str().unwrap().to_owned();
        }
        let answer = script.answer(request.operation, &payload);
        let (outcome, receipt, error) = match answer {
            Ok(receipt) => (Outcome::Accepted, Some(CanonicalJson::new(&receipt).unwrap()), None),
            Err(error) => (Outcome::Rejected, None, Some(error)),
        };
        let response = Response {
            request_id: request.request_id.clone(),
            outcome,
            revision: None,
            receipt,
            error,
        };
        writer.write_all(&response.encode().unwrap()).await.unwrap();
        let view = script.view.lock().unwrap().clone();
        let event = Event {
            subscription_id: subscription.clone(),
            event: EventKind::SessionSnapshot,
            revision: None,
            run_id: None,
            payload: CanonicalJson::new(&view).unwrap(),
        };
        writer.write_all(&event.encode().unwrap()).await.unwrap();
    }
}

impl Scripted {
    fn answer(&self, operation: Operation, payload: &Value) -> Result<Value, OperationError> {
        self.asked.lock().unwrap().push((operation, payload.clone()));
        let mut view = self.view.lock().unwrap();
        match operation {
            Operation::WorkflowMessageReportBranch => {
                view.branch_report_required = false;
                view.coordinator_active = true;
                if let Some(entry) = payload["piSessionEntryId"].as_str() {
                    let message = view.workflow_message.as_mut().unwrap();
                    message.status = MessageStatus::Sent;
                    message.deliver = false;
                    message.pi_session_entry_id = Some(entry.into());
                }
                Ok(json!({}))
            }
            Operation::WorkflowTurnReport => {
                let active = payload["state"] == "started";
                Ok(json!({"schema": TURN_RECEIPT_SCHEMA, "turn": null,
                    "ownership": if active { "active" } else { "settled" }}))
            }
            Operation::InteractionSubmit => {
                let mut rejects = self.rejects.lock().unwrap();
                let decision = if *rejects > 0 { "rejected" } else { "accepted" };
                *rejects = rejects.saturating_sub(1);
                if decision == "accepted" {
                    view.interaction = None;
                }
                let error = (decision == "rejected").then(|| json!({"message": "ok must be true"}));
                let mut receipt = json!({"requestId": "q", "runId": "r", "decision": decision, "runRevision": 3});
                if let Some(error) = error {
                    receipt["error"] = error;
                }
                Ok(receipt)
            }
            Operation::SessionRecord => {
                let next = payload["sequence"].as_u64().unwrap() + payload["events"].as_array().unwrap().len() as u64;
                Ok(json!({"segmentId": payload["segmentId"], "nextSequence": next, "adopted": 0}))
            }
            Operation::CheckpointAnswer => Err(OperationError::new("not_waiting", "nothing waits")),
            _ => Ok(json!({})),
        }
    }

    fn operations(&self) -> Vec<Operation> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .map(|(operation, _)| *operation)
            .collect()
    }

    fn last(&self, operation: Operation) -> Value {
        let asked = self.asked.lock().unwrap();
        let found = asked.iter().rev().find(|(asked, _)| *asked == operation);
        found.map(|(_, payload)| payload.clone()).unwrap_or_default()
    }
}

fn step() -> Scripted {
    let content = json!({"customType": MessageKind::Step.custom_type(), "content": "Do it.", "display": true,
        "details": {"workflowMessageId": "m", "contract": {"workflow": "fix", "nodeId": "write"}}});
    let digest = canonical::sha256_hex(&canonical::to_vec(&content).unwrap());
    Scripted {
        view: Mutex::new(SessionView {
            schema: piw_protocol::interaction::SESSION_VIEW_SCHEMA.into(),
            session_id: "s".into(),
            coordinator_epoch: 4,
            coordinator_active: false,
            branch_report_required: true,
            run: None,
            interaction: Some(SessionInteraction {
                request_id: "q".into(),
                run_id: "r".into(),
                node_id: "write".into(),
                attempt_id: "q".into(),
                kind: InteractionKind::Submit,
                revision: 1,
                status: "pending".into(),
                paused: false,
                contract: Value::Null,
                rejection: None,
                unproductive_turn_ends: 0,
                allowed_tools: None,
                deadline_at: None,
            }),
            workflow_message: Some(SessionMessage {
                workflow_message_id: "m".into(),
                run_id: "r".into(),
                kind: MessageKind::Step,
                source_id: "q".into(),
                reason: Some(StepReason::Initial),
                order: 1,
                status: MessageStatus::Pending,
                pi_session_entry_id: None,
                deliver: true,
                starts_turn: true,
                content_digest: format!("sha256:{digest}"),
                content,
                created_at: "2026-01-01T00:00:00.000Z".into(),
                updated_at: "2026-01-01T00:00:00.000Z".into(),
            }),
            open_workflow_turn: None,
        }),
        asked: Mutex::default(),
        rejects: Mutex::default(),
    }
}

/// An extension that plays its part.
struct Played {
    lines: mpsc::Sender<Line>,
    told: mpsc::UnboundedReceiver<ToGlue>,
    script: Arc<Scripted>,
    bridge: tokio::task::JoinHandle<Result<(), String>>,
    entry: Option<String>,
    idle: bool,
}

impl Played {
    async fn new(script: Scripted) -> Self {
        let script = Arc::new(script);
        let (lines, incoming) = mpsc::channel(64);
        let (out, told) = mpsc::unbounded_channel();
        let starter: Starter = Arc::new(|| Err("no server may be started here".into()));
        let bridge = tokio::spawn(serve(incoming, out, Wire(Arc::clone(&script)), starter));
        let mut played = Self {
            lines,
            told,
            script,
            bridge,
            entry: None,
            idle: true,
        };
        played
            .say(FromGlue::Hello {
                glue: GLUE_VERSION,
                session_id: "s".into(),
                cwd: "/p".into(),
                columns: 80,
                queued: vec![],
                turn: None,
            })
            .await;
        played.until(|told| matches!(told, ToGlue::Ready { .. })).await;
        played
    }

    async fn say(&self, line: FromGlue) {
        self.lines.send(Ok(line)).await.unwrap();
    }

    /// Answers observations until an instruction of the wanted kind comes.
    async fn until(&mut self, wanted: impl Fn(&ToGlue) -> bool) -> ToGlue {
        let wait = async {
            loop {
                let told = self.told.recv().await.expect("the bridge goes on");
                if let ToGlue::Observe { seq, message_id, .. } = &told {
                    let observed = Observation {
                        seq: *seq,
                        entry_id: self.entry.clone().filter(|_| message_id.is_some()),
                        message_id: message_id.clone(),
                        idle: self.idle,
                        pending: false,
                        queued: false,
                        reply: None,
                    };
                    self.lines.send(Ok(FromGlue::Observed(observed))).await.unwrap();
                }
                if wanted(&told) {
                    return told;
                }
            }
        };
        timeout(Duration::from_secs(20), wait)
            .await
            .expect("the instruction comes")
    }

    async fn tool(&mut self, input: Value) -> (String, bool) {
        self.say(FromGlue::Tool {
            call_id: "call-1".into(),
            input,
        })
        .await;
        match self.until(|told| matches!(told, ToGlue::ToolResult { .. })).await {
            ToGlue::ToolResult { text, is_error, .. } => (text, is_error),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_step_goes_into_the_session_its_turn_is_told_and_its_output_submitted() {
    let script = step();
    *script.rejects.lock().unwrap() = 1;
    let mut played = Played::new(script).await;
    let told = played.until(|told| matches!(told, ToGlue::Send { .. })).await;
    let ToGlue::Send {
        epoch: 4,
        message_id,
        starts_turn: true,
        message,
    } = told
    else {
        panic!("{told:?}")
    };
    assert_eq!((message_id.as_str(), message.content.as_str()), ("m", "Do it."));
    assert_eq!(message.details["card"]["compact"], json!(["▶ fix › write"]));
    assert_eq!(
        played.script.operations(),
        [Operation::ViewSessionWatch, Operation::WorkflowMessageReportBranch]
    );

    played.say(FromGlue::Sent { message_id, sent: true }).await;
    played.idle = false;
    played.entry = Some("e1".into());
    played.say(FromGlue::TurnStart { turn_id: "t".into() }).await;
    let told = played.until(|told| matches!(told, ToGlue::Record { .. })).await;
    assert_eq!(
        told,
        ToGlue::Record {
            on: true,
            from: Some("e1".into())
        }
    );
    let turn = played.script.last(Operation::WorkflowTurnReport);
    assert_eq!(
        (&turn["workflowTurnId"], &turn["workflowMessageId"]),
        (&json!("t"), &json!("m"))
    );

    let (text, is_error) = played.tool(json!({"action": "submit", "output": 1})).await;
    assert!(is_error && text.contains("\"request\":\"q\""), "{text}");
    let submit = json!({"action": "submit", "request": "q", "output": {"ok": false}});
    let (text, is_error) = played.tool(submit.clone()).await;
    assert!(
        is_error && text.contains("ok must be true") && text.contains("request q"),
        "{text}"
    );
    let (text, is_error) = played.tool(submit).await;
    assert!(!is_error && text.starts_with("accepted"), "{text}");
    let submitted = played.script.last(Operation::InteractionSubmit);
    assert_eq!(
        submitted["authority"],
        json!({"targetSessionId": "s", "coordinatorEpoch": 4})
    );

    played
        .say(FromGlue::Record {
            at: 0,
            event: piw_protocol::session::SessionEvent::Text { delta: "hi".into() },
        })
        .await;
    played.idle = true;
    played
        .say(FromGlue::TurnEnd {
            turn_id: "t".into(),
            stop: piw_protocol::interaction::StopReason::Completed,
            entry_id: Some("e2".into()),
        })
        .await;
    played
        .until(|told| matches!(told, ToGlue::Record { on: false, .. }))
        .await;
    let (lines, script, bridge) = (played.lines, played.script, played.bridge);
    drop(lines);
    assert_eq!(
        bridge.await.unwrap(),
        Ok(()),
        "it ends when the extension says nothing more"
    );
    let recorded = script.last(Operation::SessionRecord);
    assert_eq!(recorded["runId"], "r");
    assert_eq!(recorded["end"], json!({"failed": false}), "the segment is closed");
}

#[tokio::test]
async fn a_model_cannot_answer_a_protected_decision() {
    let script = step();
    {
        let mut view = script.view.lock().unwrap();
        view.interaction.as_mut().unwrap().kind = InteractionKind::Decision;
        view.workflow_message = None;
    }
    let mut played = Played::new(script).await;
    played
        .until(|told| matches!(told, ToGlue::Epoch { epoch: Some(4) }))
        .await;
    let (text, is_error) = played
        .tool(json!({"action": "answer", "run": "r", "answer": "yes"}))
        .await;
    assert!(is_error && text.contains("only a person"), "{text}");
    let asked = played.script.operations();
    assert!(!asked.contains(&Operation::CheckpointAnswer) && !asked.contains(&Operation::DecisionAnswer));
}

#[tokio::test]
async fn an_extension_of_another_version_is_told_what_to_do() {
    let (lines, incoming) = mpsc::channel(1);
    let (out, _told) = mpsc::unbounded_channel();
    let hello = FromGlue::Hello {
        glue: GLUE_VERSION + 1,
        session_id: "s".into(),
        cwd: "/p".into(),
        columns: 80,
        queued: vec![],
        turn: None,
    };
    lines.send(Ok(hello)).await.unwrap();
    let starter: Starter = Arc::new(|| Ok(()));
    let ended = serve(incoming, out, Wire(Arc::new(step())), starter).await;
    assert!(ended.unwrap_err().contains("piw pi install"));
}

#[test]
fn lines_are_bounded_and_must_mean_something() {
    let (sender, mut receiver) = mpsc::channel(4);
    let mut input: &[u8] = b"{\"type\":\"changed\"}\nnonsense\n{\"type\":\"changed\"}\n";
    read(&mut input, &sender);
    drop(sender);
    assert_eq!(receiver.blocking_recv(), Some(Ok(FromGlue::Changed)));
    assert!(receiver.blocking_recv().unwrap().unwrap_err().contains("means nothing"));
    assert_eq!(receiver.blocking_recv(), None, "nothing is guessed after that");
}
