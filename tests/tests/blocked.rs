//! Clients that ask for everything and read nothing, while a run floods its watchers: what they cost the server and the relay is
//! bounded, the run goes on, and whoever reads sees the newest state.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use piw_protocol::canonical;
use piw_protocol::client::{Client, ClientOptions, RunWatch, UnixConnector};
use piw_protocol::view::RunView;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::Message;
use piw_tests::home::Home;
use piw_tests::relay::{RawClient, Served, request, resident_kib};
use piw_tests::terminal::Terminal;
use piw_tests::wait;
use serde_json::json;

/// A loop through nodes whose outputs are just small enough to travel in every snapshot. It pauses after each half until it is let
/// go on.
const FLOOD: &str = r#"
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";
const bulk = (at) => compute({ run: ({ outputs }) => ({ visit: (outputs[`bulk${at}`]?.visit ?? 0) + 1, text: String(at).repeat(15_000) }) });
const names = Array.from({ length: 20 }, (_, at) => `bulk${at}`);
export default defineWorkflow({
  name: "flood",
  title: "A flood",
  startAt: "bulk0",
  maxSteps: 2000,
  nodes: {
    ...Object.fromEntries(names.map((name, at) => [name, bulk(at)])),
    more: compute({ run: ({ outputs }) => ({ route: outputs.bulk0.visit % ROUNDS === 0 ? "hold" : "again" }) }),
    hold: shell({
      effect: idempotentEffect("hold"),
      exec: ({ outputs }) => ({
        command: "sh",
        args: ["-c", "while [ ! -e $1 ]; do sleep 0.02; done; echo '{}'", "sh", `go${outputs.bulk0.visit}`],
      }),
    }),
    last: compute({ run: ({ outputs }) => ({ route: outputs.bulk0.visit < 2 * ROUNDS ? "again" : "done" }) }),
    done: compute({ run: () => "THE END" }),
  },
  edges: [
    ...names.slice(1).map((name, at) => ({ from: names[at], to: name })),
    { from: names[names.length - 1], to: "more" },
    { from: "more", switch: { on: "$output.route", cases: { again: "bulk0", hold: "hold" } } },
    { from: "hold", to: "last" },
    { from: "last", switch: { on: "$output.route", cases: { again: "bulk0", done: "done" } } },
  ],
});
"#;

/// Visits of every node in each half of the flood.
const ROUNDS: u64 = 10;
/// What a process may grow by, in KiB. Its caches are within it, the snapshots of a flood are not.
const GROWTH: u64 = 16 * 1024;
/// What the snapshots of a flood have to come to before not growing says anything, in KiB.
const SNAPSHOTS: u64 = 200 * 1024;

fn start(home: &Home) -> String {
    home.workflow("flood", &FLOOD.replace("ROUNDS", &ROUNDS.to_string()));
    let started = home.piw(&["run", "flood", "--detach", "--json"]).exits(0).json();
    started["runId"].as_str().unwrap().to_owned()
}

/// Ends the halves that end after so many visits.
fn let_go(home: &Home, half: u64) {
    fs::write(home.project().join(format!("go{}", half * ROUNDS)), "").unwrap();
}

/// What a client subscribes to that wants everything.
fn subscriptions(run_id: &str) -> [String; 2] {
    [
        request("1", "view.run.watch", Some(run_id), &json!({"subscriptionId": "run"})),
        request("2", "view.runs.watch", None, &json!({"subscriptionId": "runs"})),
    ]
}

/// Subscribes to everything and never reads.
fn blocked(home: &Home, run_id: &str) -> UnixStream {
    let mut stream = UnixStream::connect(home.state().join("server/server.sock")).unwrap();
    for asked in subscriptions(run_id) {
        stream.write_all(format!("{asked}\n").as_bytes()).unwrap();
    }
    stream
}

fn connect(home: &Home) -> Client {
    let options = ClientOptions {
        client_id: "watching".to_owned(),
        ..ClientOptions::default()
    };
    Client::start(UnixConnector::new(home.state().join("server/server.sock")), options)
}

/// What a watcher saw of a flood.
#[derive(Default)]
struct Seen {
    snapshots: u64,
    /// Revisions that the newest snapshot is ahead of the first.
    revisions: u64,
    /// Bytes of the largest snapshot.
    bytes: u64,
    first: Option<u64>,
}

impl Seen {
    /// Follows the run until `end` holds of its newest state, and keeps the largest resident size of the server.
    async fn follow(&mut self, watch: &mut RunWatch, end: impl Fn(&RunView) -> bool) {
        loop {
            if let Some(view) = watch.live() {
                let first = *self.first.get_or_insert(view.revision);
                assert!(
                    view.revision >= first + self.revisions,
                    "a snapshot is never older than the one before"
                );
                self.revisions = view.revision - first;
                self.snapshots += 1;
                self.bytes = self.bytes.max(canonical::to_vec(&**view).unwrap().len() as u64);
                if end(view) {
                    return;
                }
            }
            tokio::time::timeout(wait::DEADLINE, watch.changed())
                .await
                .expect("a watcher hears of the run")
                .unwrap();
        }
    }

    /// What it would be if every state were kept for a client that does not read.
    const fn kib(&self) -> u64 {
        self.revisions * self.bytes / 1024
    }
}

/// Notes the largest resident size of a process until it is stopped.
fn largest_while<T>(pid: i32, work: impl FnOnce() -> T) -> (T, u64) {
    let (done, largest) = (AtomicBool::new(false), AtomicU64::new(0));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                largest.fetch_max(resident_kib(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result
    });
    match result {
        Ok(result) => (result, largest.into_inner()),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Steps that are done when a half holds at its end.
const fn done_at(half: u64) -> u64 {
    half * ROUNDS * 21 + (half - 1) * 2
}

fn holds(view: &RunView, half: u64) -> bool {
    view.state.current_node.as_deref() == Some("hold") && view.step_total == done_at(half)
}

#[test]
fn clients_that_do_not_read_cost_the_server_a_bounded_amount_and_delay_nobody() {
    let home = Home::new();
    // One flood without them first: what the server takes by itself, its caches included.
    let_go(&home, 1);
    let_go(&home, 2);
    let warm = start(&home);
    home.wait_for_end(&warm);
    for half in [1, 2] {
        fs::remove_file(home.project().join(format!("go{}", half * ROUNDS))).unwrap();
    }
    let server = home.server_pid().unwrap();
    let before = resident_kib(server);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let run_id = start(&home);
    let silent: Vec<UnixStream> = (0..8).map(|_| blocked(&home, &run_id)).collect();
    let mut seen = Seen::default();
    let ((), largest) = largest_while(server, || {
        runtime.block_on(async {
            let client = connect(&home);
            let mut watch = client.watch_run(&run_id);
            // Both halves are seen to their very end, where nothing new pushes the last state out.
            seen.follow(&mut watch, |view| holds(view, 1)).await;
            let_go(&home, 1);
            seen.follow(&mut watch, |view| holds(view, 2)).await;
            let_go(&home, 2);
            seen.follow(&mut watch, |view| view.state.final_output.is_some()).await;
        });
    });
    assert_eq!(home.server_pid(), Some(server));
    assert_eq!(home.show(&run_id)["state"]["finalOutput"], "THE END");
    let asked_for = seen.kib() * silent.len() as u64;
    assert!(
        asked_for > SNAPSHOTS && seen.snapshots > 20,
        "{asked_for} KiB in {} snapshots of up to {} bytes over {} revisions are no flood",
        seen.snapshots,
        seen.bytes,
        seen.revisions
    );
    let grown = largest.saturating_sub(before);
    assert!(
        grown < GROWTH,
        "{asked_for} KiB of snapshots that nobody reads cost the server {grown} KiB ({before} KiB before)"
    );
    drop(silent);
}

/// Ends the attack with the test, however that ends.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Floods the relay until it is thrown out, again and again.
fn hostile(served: &Served, done: &AtomicBool) -> u64 {
    let junk = "x".repeat(20_000);
    let mut thrown_out = 0;
    while !done.load(Ordering::Relaxed) {
        let mut client = RawClient::connect(served);
        while !done.load(Ordering::Relaxed) {
            if !client.send(Message::Text(junk.clone().into())) {
                thrown_out += 1;
                break;
            }
        }
    }
    thrown_out
}

#[test]
fn over_the_relay_a_viewer_stays_live_beside_a_blocked_client_and_a_hostile_one() {
    let home = Home::new();
    let run_id = start(&home);
    let served = Served::start(&home);
    let mut watching = Terminal::start(&home, &[&run_id, "--connect", &served.url], 40, 120);
    watching.wait("the run is shown", |screen| {
        screen.contains("A flood") && screen.contains("live")
    });
    let relay = served.pid();
    let mut silent: Vec<RawClient> = (0..3).map(|_| RawClient::connect(&served)).collect();
    for client in &mut silent {
        for asked in subscriptions(&run_id) {
            assert!(client.send(Message::Text(asked.into())));
        }
    }
    let before = resident_kib(relay);
    let done = AtomicBool::new(false);
    let (thrown_out, largest) = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| hostile(&served, &done));
        let _ended = Ended(&done);
        let ((), largest) = largest_while(relay, || {
            for half in [1, 2] {
                let steps = format!("{} steps", done_at(half));
                watching.wait(&format!("half {half} is seen to its end"), |screen| {
                    screen.contains("hold") && screen.contains(&steps)
                });
                watching.send(b"?");
                watching.wait("a key is answered", |screen| {
                    screen.contains("help for the focused part")
                });
                watching.send(b"\x1b");
                let_go(&home, half);
            }
            watching.wait("the end is seen", |screen| screen.contains("completed"));
        });
        done.store(true, Ordering::Relaxed);
        (attacker.join().unwrap(), largest)
    });
    assert!(thrown_out > 0, "the attack was one");
    let grown = largest.saturating_sub(before);
    assert!(grown < GROWTH, "the relay grew by {grown} KiB from {before} KiB");
    assert_eq!(home.show(&run_id)["state"]["finalOutput"], "THE END");
    // The blocked ones lost nothing but what was replaced: they get a newest state when they read.
    let mut slow = silent.pop().unwrap();
    assert!(slow.text().contains("hello"));
    wait::until("the newest state arrives", || {
        slow.text().contains("THE END").then_some(())
    });
    watching.send(b"q");
    assert_eq!(watching.wait_for_exit(), 0);
}
