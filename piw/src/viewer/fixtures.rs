//! Workflows and runs for tests.

use std::collections::BTreeMap;

use piw_protocol::definition::{
    ActionExecution, DEFINITION_SCHEMA, DefinitionSnapshot, EdgeRoute, EdgeSnapshot, IncludeSnapshot, NodeSnapshot,
    NodeType, SwitchSnapshot,
};
use piw_protocol::session::{Conversation, SessionEntryView, SessionEventView, SessionRunView};
use piw_protocol::view::RunView;
use serde_json::{Value, json};

use super::hosts::{HostId, RunId};

/// A node of the given kind: `c` compute, `s` shell, `f` function, `n` notify, `k` checkpoint, `a` agent.
pub fn node(kind: char) -> NodeSnapshot {
    let (node_type, action_execution) = match kind {
        's' => (NodeType::Action, Some(ActionExecution::Shell)),
        'f' => (NodeType::Action, Some(ActionExecution::Function)),
        'n' => (NodeType::Notify, None),
        'k' => (NodeType::Checkpoint, None),
        'a' => (NodeType::Agent, None),
        _ => (NodeType::Compute, None),
    };
    NodeSnapshot {
        node_type,
        action_execution,
        effect: None,
        status_detail: None,
        timeout_ms: None,
        summary: None,
        human_decision: None,
        expected_output: None,
        allowed_tools: None,
        notify_kind: None,
        callbacks: Vec::new(),
    }
}

/// A definition from `kind:id` words and `from>to` or `from>label=to,label=to` words; the first node is the start.
pub fn definition(name: &str, nodes: &str, edges: &str) -> DefinitionSnapshot {
    let parsed: Vec<(char, &str)> = nodes
        .split_whitespace()
        .map(|word| (word.chars().next().unwrap(), &word[2..]))
        .collect();
    DefinitionSnapshot {
        schema: DEFINITION_SCHEMA.into(),
        name: name.into(),
        start_at: parsed[0].1.into(),
        max_steps: Some(100),
        node_order: parsed.iter().map(|(_, id)| (*id).to_owned()).collect(),
        nodes: parsed
            .iter()
            .map(|(kind, id)| ((*id).to_owned(), node(*kind)))
            .collect(),
        edges: edges.split_whitespace().map(edge).collect(),
        includes: Vec::new(),
        exits: BTreeMap::new(),
        settings: false,
    }
}

fn edge(word: &str) -> EdgeSnapshot {
    let (from, rest) = word.split_once('>').unwrap();
    let route = if rest.contains('=') {
        let cases: Vec<(String, String)> = rest
            .split(',')
            .map(|case| case.split_once('=').unwrap())
            .map(|(label, to)| (label.to_owned(), to.to_owned()))
            .collect();
        EdgeRoute::Switch {
            switch: SwitchSnapshot {
                on: "$.route".into(),
                case_order: cases.iter().map(|case| case.0.clone()).collect(),
                cases: cases.into_iter().collect(),
            },
        }
    } else {
        EdgeRoute::To { to: rest.into() }
    };
    EdgeSnapshot {
        from: from.into(),
        route,
    }
}

/// Ten nodes with a branch and a loop.
pub fn release() -> DefinitionSnapshot {
    definition(
        "release-check",
        "s:inspect c:classify f:fix s:test c:judge n:announce s:publish k:approve n:report c:abandon",
        "inspect>classify classify>clean=test,dirty=fix,broken=abandon fix>test test>judge \
         judge>again=inspect,good=approve,hopeless=abandon approve>yes=publish,no=report publish>announce announce>report",
    )
}

/// A workflow that mounts another one twice, once nested.
pub fn composed() -> DefinitionSnapshot {
    let mut definition = definition(
        "composed",
        "c:prepare s:lint/collect c:lint/decide f:lint/repair s:lint/deep/scan c:lint/deep/rate n:lint/done n:finish c:failed",
        "prepare>lint/collect lint/collect>lint/decide lint/decide>clean=lint/done,dirty=lint/repair,odd=lint/deep/scan \
         lint/repair>lint/collect lint/deep/scan>lint/deep/rate lint/deep/rate>lint/repair lint/done>ok=finish,bad=failed",
    );
    definition.includes = vec![
        include("lint", "lint-project", "lint/collect"),
        include("lint/deep", "scan", "lint/deep/scan"),
    ];
    definition
}

pub fn include(mount: &str, workflow: &str, start: &str) -> IncludeSnapshot {
    IncludeSnapshot {
        mount: mount.into(),
        workflow_name: workflow.into(),
        start_at: start.into(),
        max_steps: None,
        exits: BTreeMap::new(),
        settings: false,
    }
}

/// A run of the only host.
pub fn here(id: &str) -> RunId {
    RunId {
        host: HostId::default(),
        id: id.to_owned(),
    }
}

/// Time of the first step of every run here: 2026-03-01T10:00:00Z.
pub const START: i64 = 1_772_359_200_000;

/// A wire time some milliseconds after [`START`].
pub fn at(millis: i64) -> String {
    let seconds = millis / 1000;
    let (minutes, rest) = (seconds / 60, seconds % 60);
    format!(
        "2026-03-01T{:02}:{:02}:{rest:02}.{:03}Z",
        10 + minutes / 60,
        minutes % 60,
        millis % 1000
    )
}

/// A run through a definition.
pub struct RunFixture {
    /// The definition.
    pub definition: DefinitionSnapshot,
    /// Visited nodes with outcomes, oldest first: `inspect fix:failed test`.
    pub visits: &'static str,
    /// Unfinished node.
    pub current: Option<&'static str>,
    /// Display status.
    pub status: &'static str,
    /// Controls on offer.
    pub controls: &'static [&'static str],
}

impl RunFixture {
    /// The view that a server would send.
    pub fn view(&self) -> RunView {
        let mut steps: Vec<Value> = Vec::new();
        let mut graph: BTreeMap<&str, Value> = BTreeMap::new();
        let mut transitions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut before: Option<&str> = None;
        let mut attempts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut time = 0;
        for (index, word) in self.visits.split_whitespace().enumerate() {
            let (node, outcome) = word.split_once(':').unwrap_or((word, "ok"));
            let (from, to) = (time, time + 400 + 1_300 * (index as i64 % 4));
            time = to + 50;
            let visit = attempts.entry(node).or_default();
            *visit += 1;
            let node_type = serde_json::to_value(self.definition.nodes[node].node_type).unwrap();
            let mut step = json!({
                "attemptId": format!("attempt-{index}"), "nodeId": node, "nodeType": node_type, "outcome": outcome,
                "startedAt": at(from), "finishedAt": at(to), "index": index, "visit": visit,
                "prompt": null, "output": {"route": "dirty", "files": ["src/main.rs", "README.md"], "count": 2},
            });
            if outcome != "ok" {
                step["output"] = Value::Null;
                step["error"] = json!({"code": "nodeFailed", "message": "exit code 101\nsee the captured output"});
                step["action"] = json!({
                    "actionType": "shell", "command": "cargo", "args": ["test", "--workspace"], "cwd": "/home/me/project",
                    "exitCode": 101, "durationMs": to - from, "stdout": "running 12 tests\n",
                    "stderr": "thread 'main' panicked at src/lib.rs:12\nassertion failed: left == right\n",
                });
            }
            steps.push(step);
            graph.insert(
                node,
                json!({
                    "nodeId": node, "attemptId": format!("attempt-{index}"), "outcome": outcome, "attempts": visit,
                    "stepIndex": index, "startedAt": at(from), "finishedAt": at(to),
                }),
            );
            if let Some(before) = before {
                *transitions.entry((before, node)).or_default() += 1;
            }
            before = Some(node);
        }
        if let Some(node) = self.current {
            let visit = attempts.get(node).copied().unwrap_or(0) + 1;
            graph.insert(
                node,
                json!({
                    "nodeId": node, "attemptId": "attempt-now", "attempts": visit, "startedAt": at(time),
                    "statusDetail": "12 of 40 checks",
                }),
            );
            if let Some(before) = before {
                *transitions.entry((before, node)).or_default() += 1;
            }
        }
        let graph: Vec<Value> = graph.into_values().collect();
        self.assemble(&steps, &graph, transitions, time)
    }

    fn assemble(
        &self,
        steps: &[Value],
        graph: &[Value],
        transitions: BTreeMap<(&str, &str), u64>,
        time: i64,
    ) -> RunView {
        let name = &self.definition.name;
        let ended = ["completed", "failed", "timed_out", "cancelled"].contains(&self.status);
        let durable = match self.status {
            "paused" | "ambiguous" => "running",
            other => other,
        };
        let source = json!({"kind": "file", "path": format!("/home/me/project/.pi/workflows/{name}.workflow.ts"), "hash": "5f".repeat(32)});
        let taken: Vec<Value> = transitions
            .into_iter()
            .map(|((from, to), count)| json!({"from": from, "to": to, "count": count}))
            .collect();
        let total = steps.len();
        let mut view = json!({
            "schema": "pi-workflows.run-view.v1", "runId": "01JNE8-release-0001", "revision": 41, "runRevision": 23,
            "display": {"status": self.status, "activity": null, "controls": self.controls, "reason": null},
            "manifest": {
                "schema": "pi-workflows.run-manifest.v1", "runId": "01JNE8-release-0001", "workflowName": name,
                "workflowSource": source, "startedAt": at(0), "finishedAt": null, "status": durable,
                "traceSchema": "pi-workflows.trace-event.v1", "paths": {},
            },
            "state": {
                "schema": "pi-workflows.run-state.v1", "traceSeq": 90, "runId": "01JNE8-release-0001",
                "workflowName": name, "runTitle": "Release 1.4.0 of piw", "workflowSource": source,
                "definitionDigest": format!("sha256:{}", "ab".repeat(32)), "startedAt": at(0), "updatedAt": at(time),
                "status": durable, "input": {"version": "1.4.0", "dryRun": false}, "steps": steps,
            },
            "workflow": serde_json::to_value(&self.definition).unwrap(),
            "queue": {
                "runId": "01JNE8-release-0001", "workflowName": name, "status": "running", "executionMode": "headless",
                "originSessionId": null, "queuedAt": at(0), "updatedAt": at(time),
            },
            "graphSteps": graph, "graphStepStart": 0, "graphStepTotal": graph.len(),
            "takenTransitions": taken, "takenTransitionStart": 0, "takenTransitionTotal": taken.len(),
            "graphCursor": total, "stepStart": 0, "stepTotal": total,
            "tracePage": {"start": 0, "total": 2, "items": [
                {"seq": 1, "at": at(0), "scope": "run", "type": "run.started", "runId": "r", "payload": {"generation": 1}},
                {"seq": 2, "at": at(10), "scope": "node", "type": "node.started", "runId": "r", "nodeId": "inspect", "attemptId": "a", "payload": {}},
            ]},
            "updates": [{
                "type": "progress", "key": "checks", "nodeId": "test", "attemptId": "attempt-now", "seq": 4, "at": at(time),
                "data": {"status": "running", "label": "checks", "completed": 12, "total": 40, "unit": "checks"},
                "estimate": {"kind": "unavailable", "reason": "fewer than two intervals"},
            }],
            "updateStart": 0, "updateTotal": 1, "live": self.current.is_some(), "possiblyInterrupted": false,
        });
        if let Some(node) = self.current {
            view["state"]["currentNode"] = json!(node);
            view["state"]["currentAttemptId"] = json!("attempt-now");
            view["state"]["currentNodeStartedAt"] = json!(at(time));
            view["state"]["statusDetail"] = json!("12 of 40 checks");
        }
        if ended {
            view["state"]["finishedAt"] = json!(at(time));
            view["manifest"]["finishedAt"] = json!(at(time));
        }
        match self.status {
            "completed" => view["state"]["finalOutput"] = json!({"published": true, "version": "1.4.0"}),
            "failed" => {
                view["state"]["error"] = json!({"code": "nodeFailed", "message": "test: exit code 101"});
                view["display"]["reason"] = json!("test: exit code 101");
            }
            "waiting" => {
                view["state"]["waitingOn"] = json!("approve");
                view["display"]["reason"] = json!("\"approve\" waits for an answer");
                view["state"]["humanDecision"] = json!({
                    "kind": "checkpoint", "nodeId": "approve", "attemptId": "attempt-9",
                    "request": {
                        "summary": "Publish 1.4.0 with these notes?",
                        "request": {"version": "1.4.0", "notes": ["faster start", "fewer surprises"]},
                    },
                });
            }
            _ => {}
        }
        serde_json::from_value(view).unwrap()
    }
}

/// The release run in the middle of its second round of tests.
pub fn running() -> RunFixture {
    RunFixture {
        definition: release(),
        visits: "inspect classify fix test judge inspect classify",
        current: Some("test"),
        status: "running",
        controls: &["pause", "cancel"],
    }
}

/// The release run before its first step.
pub fn queued() -> RunFixture {
    RunFixture {
        definition: release(),
        visits: "",
        current: None,
        status: "queued",
        controls: &["pause", "cancel"],
    }
}

/// The release run stopped by a failing test.
pub fn failed() -> RunFixture {
    RunFixture {
        definition: release(),
        visits: "inspect classify fix test:failed",
        current: None,
        status: "failed",
        controls: &["restart"],
    }
}

/// The release run that waits for approval.
pub fn waiting() -> RunFixture {
    RunFixture {
        definition: release(),
        visits: "inspect classify fix test judge inspect classify test judge approve",
        current: None,
        status: "waiting",
        controls: &["answer", "cancel"],
    }
}

/// The release run whose publication may have happened: two effects, the second of a node that has ended.
pub fn ambiguous() -> RunView {
    let fixture = RunFixture {
        definition: release(),
        visits: "inspect classify fix test:timed_out",
        current: None,
        status: "ambiguous",
        controls: &["review", "cancel"],
    };
    let mut view = fixture.view();
    let effect = |key: &str, node: &str, unfinished: bool| {
        json!({
            "effectId": format!("piw-{}", key.repeat(32)), "runId": view.run_id, "workflowName": "release",
            "runStatus": "running", "revision": view.run_revision, "node": node, "visit": 1, "effectType": "publish",
            "kind": "manual", "state": "ambiguous", "attempt": 1, "reservedAt": at(2_000), "attemptedAt": at(2_000),
            "detail": "its process ended while it was being applied", "unfinished": unfinished,
        })
    };
    let review = json!({"total": 2, "effects": [effect("3f", "fix", true), effect("a0", "test", false)]});
    view.review = serde_json::from_value(review).unwrap();
    view.display.reason = Some("2 effects may or may not have happened; review them".to_owned());
    view
}

/// A recorded session of the running release run: three turns with thinking, tools and text; the last is being written.
pub struct SessionFixture {
    /// All events with how many steps had ended and entries had settled by then.
    pub events: Vec<SessionEventView>,
    /// All settled entries.
    pub entries: Vec<SessionEntryView>,
}

impl SessionFixture {
    /// Records `turns` turns; with each the next step ends, until the run's seven have.
    pub fn new(turns: u64) -> Self {
        let mut fixture = Self {
            events: Vec::new(),
            entries: Vec::new(),
        };
        for turn in 0..turns {
            fixture.turn(turn, turn.min(7));
        }
        fixture
    }

    fn turn(&mut self, turn: u64, steps: u64) {
        let answer = "## Result\n\nThe change in `src/main.rs` is **safe**:\n\n```rust\nfn main() {}\n```\n\n1. it compiles\n2. it is tested\n";
        let (user, assistant, result, last) = (
            format!("u{turn}"),
            format!("a{turn}"),
            format!("r{turn}"),
            format!("b{turn}"),
        );
        self.event(steps, "turn_start", json!({"turn": turn}));
        self.entry(
            steps,
            &user,
            json!({"role": "user", "content": format!("Review change number {turn}.")}),
        );
        self.event(steps, "message_start", json!({"role": "assistant"}));
        self.event(
            steps,
            "thinking",
            json!({"delta": "The file has to be read first.\nThen the tests."}),
        );
        self.event(steps, "message_end", json!({"entryId": assistant}));
        self.entry(
            steps,
            &assistant,
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "The file has to be read first.\nThen the tests."},
                {"type": "text", "text": "I read the file first."},
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "src/main.rs", "limit": 40}},
            ]}),
        );
        let call = format!("call-{turn}");
        self.event(
            steps,
            "tool_start",
            json!({"callId": call, "tool": "read", "args": {"path": "src/main.rs", "limit": 40}}),
        );
        self.event(steps, "tool_end", json!({"callId": call, "isError": turn % 3 == 1}));
        self.entry(
            steps,
            &result,
            json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": turn % 3 == 1,
            "content": [{"type": "text", "text": "fn main() {\n    println!(\"hello\");\n}"}]}),
        );
        self.event(steps, "message_start", json!({"role": "assistant"}));
        self.event(
            steps,
            "text",
            json!({"delta": "## Result\n\nThe change in `src/main.rs` "}),
        );
        self.event(steps, "text", json!({"delta": "is **safe**"}));
        self.event(steps, "message_end", json!({"entryId": last}));
        self.entry(
            steps,
            &last,
            json!({"role": "assistant", "content": [{"type": "text", "text": answer}]}),
        );
        self.event(
            (steps + 1).min(7),
            "turn_end",
            json!({"turn": turn, "stopReason": "completed"}),
        );
    }

    /// Adds an event.
    pub fn event(&mut self, steps: u64, kind: &str, payload: impl Into<Value>) {
        let (position, payload) = (self.events.len() as u64, payload.into());
        let event = json!({"position": position, "steps": steps, "entries": self.entries.len(),
            "at": at(200 * position as i64 % 30_000), "type": kind, "payload": payload});
        self.events.push(serde_json::from_value(event).unwrap());
    }

    fn entry(&mut self, steps: u64, id: &str, message: impl Into<Value>) {
        let (event, message) = (self.events.len() as u64, message.into());
        let entry = json!({"index": self.entries.len(), "event": event, "entryId": id, "at": at(200 * event as i64 % 30_000),
            "kind": "message", "content": {"type": "message", "id": id, "message": message}});
        self.entries.push(serde_json::from_value(entry).unwrap());
        self.event(steps, "entry", json!({"entryId": id}));
    }

    /// The conversation just before an event.
    pub fn before(&self, position: u64) -> Conversation {
        let mut conversation = Conversation::default();
        for event in &self.events[..position as usize] {
            conversation.apply(&event.event);
        }
        conversation
    }

    /// The session part of a view with the newest `events` events and `entries` entries.
    pub fn view(&self, events: usize, entries: usize, state: &str) -> SessionRunView {
        let start = self.events.len().saturating_sub(events);
        let first = self.entries.len().saturating_sub(entries);
        let reason = (state == "failed").then_some("the recorder lost its connection");
        let value = json!({
            "binding": {"sessionId": "pi-session-7", "segments": 1},
            "entryPage": {"start": first, "total": self.entries.len(), "items": self.entries[first..]},
            "eventPage": {"start": start, "total": self.events.len(), "items": self.events[start..]},
            "capture": {"state": state, "reason": reason},
            "integrity": reason.map(|reason| format!("the recording was cut off after {start} events: {reason}")).into_iter().collect::<Vec<_>>(),
            "replayCheckpoint": {"position": start, "state": self.before(start as u64)},
        });
        serde_json::from_value(value).unwrap()
    }
}
