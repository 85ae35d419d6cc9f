//! Agent steps of a run that is bound to a Pi session, through the real binary: a scripted coordinator watches the session, reports
//! the branch and its turns, and submits.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use piw_tests::home::Home;
use serde_json::{Value, json};

const SESSION: &str = "pi-session";
const ASK: &str = r#"
import { agent, compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "ask",
  startAt: "count",
  nodes: {
    count: agent({
      prompt: ({ input }) => `Count the ${input.what}.`,
      expectedOutput: '{"n": number}',
      validate: (output, { input }) => {
        if (output.die) process.kill(process.pid, "SIGKILL");
        if (typeof output?.n !== "number") throw new Error(`n must be the number of ${input.what}`);
        return { n: output.n, of: input.what };
      },
    }),
    after: compute({ run: ({ outputs }) => `${outputs.count.n} ${outputs.count.of}` }),
  },
  edges: [{ from: "count", to: "after" }],
});
"#;

/// A coordinator of a session: what a Pi bridge is to the server.
struct Coordinator {
    write: UnixStream,
    read: BufReader<UnixStream>,
    view: Value,
}

/// Numbers what is sent, over all coordinators of this process.
static SENT: AtomicU32 = AtomicU32::new(0);

impl Coordinator {
    fn connect(home: &Home) -> Self {
        let write = UnixStream::connect(home.state().join("server/server.sock")).unwrap();
        let read = BufReader::new(write.try_clone().unwrap());
        let mut coordinator = Self {
            write,
            read,
            view: Value::Null,
        };
        assert_eq!(coordinator.line()["type"], "hello");
        let watch = json!({ "subscriptionId": "s", "sessionId": SESSION });
        coordinator.call("view.session.watch", "watch", &watch);
        coordinator
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(
            self.read.read_line(&mut line).unwrap() > 0,
            "the server closed the connection"
        );
        serde_json::from_str(&line).unwrap()
    }

    fn send(&mut self, operation: &str, key: &str, payload: &Value) -> String {
        let id = format!("request-{}", SENT.fetch_add(1, Ordering::Relaxed));
        let request = json!({
            "schema": "pi-workflows.client.v1", "type": "request", "requestId": id, "clientId": "bridge",
            "operation": operation, "idempotencyKey": key, "payload": payload,
        });
        let mut line = piw_protocol::canonical::write_value(&request);
        line.push(b'\n');
        self.write.write_all(&line).unwrap();
        id
    }

    /// Sends a request and gives its response; views that come meanwhile are kept.
    fn call(&mut self, operation: &str, key: &str, payload: &Value) -> Value {
        let id = self.send(operation, key, payload);
        loop {
            let message = self.line();
            if message["type"] == "response" && message["requestId"] == id.as_str() {
                return message;
            }
            self.keep(&message);
        }
    }

    fn keep(&mut self, message: &Value) {
        if message["event"] == "session_snapshot" {
            self.view = message["payload"].clone();
        }
    }

    /// Reads views until one is as wanted.
    fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        while !wanted(&self.view) {
            let message = self.line();
            assert_ne!(message["event"], "unavailable", "{what}: {message}");
            self.keep(&message);
        }
        self.view.clone()
    }

    /// Reports the branch for the current message: with the entry that holds it, or absent.
    fn report(&mut self, entry: Option<&str>) {
        let message = self.view["workflowMessage"]["workflowMessageId"].clone();
        let report = json!({
            "targetSessionId": SESSION, "coordinatorEpoch": self.view["coordinatorEpoch"], "workflowMessageId": message,
            "piSessionEntryId": entry, "isIdle": entry.is_none(), "hasPendingMessages": false,
        });
        let key = format!("report-{}", SENT.load(Ordering::Relaxed));
        let answer = self.call("workflowMessage.reportBranch", &key, &report);
        assert_eq!(answer["outcome"], "accepted", "{answer}");
    }

    fn turn(&mut self, state: &str, turn: &str, message: &Value, run: &str) {
        let mut report = json!({
            "state": state, "workflowMessageId": message, "workflowTurnId": turn, "runId": run, "targetSessionId": SESSION,
            "coordinatorEpoch": self.view["coordinatorEpoch"],
        });
        if state == "ended" {
            report["stopReason"] = json!("completed");
        }
        let answer = self.call("workflowTurn.report", &format!("{turn}-{state}"), &report);
        assert!(
            matches!(answer["outcome"].as_str(), Some("accepted" | "adopted")),
            "{answer}"
        );
    }

    /// Gets the current step message to its session and begins its turn. Returns the message.
    fn deliver(&mut self, entry: &str, turn: &str, run: &str, reason: &str) -> Value {
        self.until("a message that may be sent", |view| {
            view["workflowMessage"]["reason"] == reason
                && (view["branchReportRequired"] == true || view["workflowMessage"]["deliver"] == true)
        });
        if self.view["branchReportRequired"] == true {
            self.report(None);
        }
        let message =
            self.until("delivery", |view| view["workflowMessage"]["deliver"] == true)["workflowMessage"].clone();
        self.report(Some(entry));
        self.turn("started", turn, &message["workflowMessageId"], run);
        message
    }

    fn submit(&mut self, key: &str, request: &str, output: &Value) -> Value {
        let payload = json!({ "authority": self.authority(), "requestId": request, "output": output });
        self.call("interaction.submit", key, &payload)
    }

    fn authority(&self) -> Value {
        json!({ "targetSessionId": SESSION, "coordinatorEpoch": self.view["coordinatorEpoch"] })
    }
}

fn start(home: &Home) -> String {
    home.workflow("ask", ASK);
    let input = r#"{"what":"files"}"#;
    let arguments = [
        "run",
        "ask",
        "--session",
        SESSION,
        "--input",
        input,
        "--detach",
        "--json",
    ];
    let run = home.piw(&arguments).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    let view = home.wait_for_status(&run, &["waiting"]);
    assert_eq!(
        view["display"]["controls"],
        json!(["submit", "update", "pause", "cancel"])
    );
    assert_eq!(view["state"]["currentNode"], "count");
    run
}

#[test]
fn a_submission_is_validated_and_the_run_goes_on() {
    let home = Home::new();
    let run = start(&home);
    let mut pi = Coordinator::connect(&home);
    let message = pi.deliver("entry-1", "turn-1", &run, "initial");
    let content = &message["content"];
    let request = content["details"]["contract"]["requestId"].as_str().unwrap().to_owned();
    let text = content["content"].as_str().unwrap();
    assert!(text.contains("Count the files.") && text.contains(&request), "{text}");
    assert!(!text.contains(message["workflowMessageId"].as_str().unwrap()), "{text}");

    let rejected = pi.submit("call-1", &request, &json!({ "n": "three" }));
    assert_eq!(rejected["outcome"], "accepted", "{rejected}");
    assert_eq!(rejected["receipt"]["decision"], "rejected");
    assert_eq!(rejected["receipt"]["error"]["message"], "n must be the number of files");
    let update = json!({ "authority": pi.authority(), "requestId": request, "update": { "type": "progress", "key": "files", "data": { "status": "running", "completed": 1, "total": 3 } } });
    assert_eq!(
        pi.call("interaction.update", "update-1", &update)["outcome"],
        "accepted"
    );

    let accepted = pi.submit("call-2", &request, &json!({ "n": 3 }));
    assert_eq!(accepted["receipt"]["decision"], "accepted", "{accepted}");
    let again = pi.submit("call-2", &request, &json!({ "n": 3 }));
    assert_eq!(
        (again["outcome"].as_str(), &again["receipt"]),
        (Some("adopted"), &accepted["receipt"])
    );
    pi.turn("ended", "turn-1", &message["workflowMessageId"], &run);
    let view = home.wait_for_end(&run);
    assert_eq!(view["display"]["status"], "completed");
    assert_eq!(view["state"]["finalOutput"], "3 files");
    let step = &view["state"]["steps"][0];
    assert_eq!(
        (&step["attemptId"], &step["output"]),
        (&json!(request), &json!({ "n": 3, "of": "files" }))
    );
    let _ = home.piw(&["state", "verify"]).exits(0);
}

#[test]
fn turns_without_a_submission_are_reminded_of_twice_and_then_fail() {
    let home = Home::new();
    let run = start(&home);
    let mut pi = Coordinator::connect(&home);
    for (number, reason) in [(1, "initial"), (2, "reminder"), (3, "reminder")] {
        let (entry, turn) = (format!("entry-{number}"), format!("turn-{number}"));
        let message = pi.deliver(&entry, &turn, &run, reason);
        let text = message["content"]["content"].as_str().unwrap();
        assert_eq!(text.contains("submitted nothing"), reason == "reminder", "{text}");
        pi.turn("ended", &turn, &message["workflowMessageId"], &run);
    }
    let view = home.wait_for_end(&run);
    assert_eq!(view["display"]["status"], "failed");
    let reason = view["display"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("no submission of node \"count\" accepted in 3 turns") || reason.contains("had no submission"),
        "{reason}"
    );
    let _ = home.piw(&["state", "verify"]).exits(0);
}

#[test]
fn a_validator_that_dies_and_a_server_that_is_killed_lose_nothing() {
    let home = Home::new();
    let run = start(&home);
    let mut pi = Coordinator::connect(&home);
    let message = pi.deliver("entry-1", "turn-1", &run, "initial");
    let request = message["content"]["details"]["contract"]["requestId"]
        .as_str()
        .unwrap()
        .to_owned();
    let died = pi.submit("call-1", &request, &json!({ "die": true }));
    assert_eq!(died["receipt"]["decision"], "rejected", "{died}");
    assert_eq!(died["receipt"]["error"]["code"], "validatorDied");
    assert_eq!(home.show(&run)["display"]["status"], "running", "its turn is open");

    // The server dies somewhere between the submission and its answer, or right after it.
    let submission = json!({ "authority": pi.authority(), "requestId": request, "output": { "n": 4 } });
    pi.send("interaction.submit", "call-2", &submission);
    home.kill_server();
    let _ = home.piw(&["server", "start"]).exits(0);
    let mut pi = Coordinator::connect(&home);
    pi.until("a view", |view| view["coordinatorEpoch"].is_number());
    if pi.view["workflowMessage"].is_object() {
        pi.report(Some("entry-1"));
    } else if pi.view["branchReportRequired"] == true {
        pi.report(None);
    }
    let again = pi.submit("call-2", &request, &json!({ "n": 4 }));
    assert_eq!(again["receipt"]["decision"], "accepted", "{again}");
    let view = home.wait_for_end(&run);
    assert_eq!(view["state"]["finalOutput"], "4 files");
    assert_eq!(view["state"]["steps"].as_array().unwrap().len(), 2);
    let _ = home.piw(&["state", "verify"]).exits(0);
}

#[test]
fn who_does_not_coordinate_the_session_submits_nothing() {
    let home = Home::new();
    let run = start(&home);
    let mut pi = Coordinator::connect(&home);
    pi.until("a message", |view| view["workflowMessage"].is_object());
    let request = pi.view["interaction"]["requestId"].as_str().unwrap().to_owned();
    let early = pi.submit("call-1", &request, &json!({ "n": 1 }));
    assert_eq!(early["error"]["reason"], "branch_report_required", "{early}");
    let mut other = Coordinator::connect(&home);
    other.until("a newer epoch", |view| {
        view["coordinatorEpoch"].as_u64() > pi.view["coordinatorEpoch"].as_u64()
    });
    let stale = pi.submit("call-1", &request, &json!({ "n": 1 }));
    assert_eq!(stale["error"]["reason"], "stale_coordinator", "{stale}");
    let _ = home.piw(&["cancel", &run]).exits(0);
    let _ = home.piw(&["state", "verify"]).exits(0);
}
