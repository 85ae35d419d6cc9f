//! The relay as a process: whom it lets in, what it carries, how it ends; and viewers over it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use piw_protocol::websocket::MESSAGES_PER_SECOND;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::Message;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::protocol::frame::Frame;
use piw_protocol::websocket::tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use piw_tests::home::Home;
use piw_tests::relay::{RawClient, Served, request, resident_kib};
use piw_tests::terminal::Terminal;
use piw_tests::{wait, workflows};
use serde_json::{Value, json};

fn chain(home: &Home) -> String {
    // A dozen steps, so that there is something to step back through.
    home.workflow("chain", &workflows::chain("chain", "A chain", 12));
    finished(home, "chain")
}

/// Runs a workflow and waits until nothing of the run changes any more, its runner's exit included.
fn finished(home: &Home, name: &str) -> String {
    let done = home.piw(&["run", name, "--json"]).exits(0).json();
    let run_id = done["runId"].as_str().unwrap().to_owned();
    wait::until("the runner's exit is recorded", || {
        let view = home.show(&run_id);
        let last = view["tracePage"]["items"].as_array()?.last()?["type"].clone();
        (last == "runner.exited").then_some(())
    });
    run_id
}

#[test]
fn only_a_local_client_with_the_token_is_let_in() {
    let home = Home::new();
    let served = Served::start(&home);
    let good = format!("/ws?token={}", served.token());
    let wrong = format!("/ws?token={}", "0".repeat(64));
    let host = ("Host", served.address());
    assert_eq!(served.knock(&good, &[host]).0, 101);
    assert_eq!(served.knock(&good, &[("Host", "localhost:1")]).0, 101);
    for (path, headers, status, said) in [
        (
            &good,
            vec![host, ("Origin", "https://evil.example")],
            403,
            "https://evil.example",
        ),
        (&good, vec![host, ("Origin", "null")], 403, "null"),
        (&good, vec![("Host", "evil.example")], 403, "evil.example"),
        (&good, vec![], 403, "host"),
        (&wrong, vec![host], 401, "token"),
        (&"/ws".to_owned(), vec![host], 401, "token"),
        (&"/".to_owned(), vec![host], 404, "/ws"),
    ] {
        let (got, answer) = served.knock(path, &headers);
        assert_eq!(got, status, "{path} {headers:?}: {answer}");
        assert!(
            answer.contains(said) && !answer.contains(served.token()),
            "{path} {headers:?}: {answer}"
        );
    }
}

#[test]
fn a_viewer_is_told_what_is_wrong_with_its_token() {
    let home = Home::new();
    let run_id = chain(&home);
    let served = Served::start(&home);
    let bare = format!("ws://{}", served.address());
    let wrong = format!("{bare}/ws?token={}", "0".repeat(64));
    let refused = home.piw(&[&run_id, "--once", "--connect", &wrong]).exits(3);
    assert!(
        refused.stderr.contains("refused the token") && refused.stderr.contains("the URL that piw serve prints"),
        "{}",
        refused.stderr
    );
    assert!(
        !refused.stderr.contains("0000"),
        "the token is a secret: {}",
        refused.stderr
    );
    let refused = home.piw(&[&run_id, "--once", "--connect", &bare]).exits(2);
    assert!(refused.stderr.contains("PIW_RELAY_TOKEN"), "{}", refused.stderr);
    let mut command = home.command(&[&run_id, "--once", "--connect", &bare]);
    let shown = command.env("PIW_RELAY_TOKEN", served.token()).output().unwrap();
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains("A chain"),
        "the token beside the URL"
    );
}

#[test]
fn a_new_token_is_told_to_a_viewer_that_has_the_old_one() {
    let home = Home::new();
    let run_id = chain(&home);
    let served = Served::start(&home);
    let (address, url) = (served.address().to_owned(), served.url.clone());
    let mut viewer = Terminal::start(&home, &[&run_id, "--connect", &url], 40, 180);
    viewer.wait_for("latest");
    drop(served);
    fs::remove_file(home.state().join("server/relay.token")).unwrap();
    let _served = Served::start_on(&home, &address);
    viewer.wait_for("the relay refused the token: connect with the URL that piw serve prints now");
    assert!(viewer.screen().contains("A chain"), "what was shown stays");
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
}

#[test]
fn it_listens_on_loopback_only_and_keeps_its_token_private() {
    let home = Home::new();
    for address in ["0.0.0.0:0", "192.0.2.1:9377", "[::]:0", "example.org:9377"] {
        let refused = home.piw(&["serve", "--bind", address]).exits(2);
        let name = address.rsplit_once(':').unwrap().0.trim_matches(['[', ']']);
        assert!(refused.stderr.contains(name), "{address}: {}", refused.stderr);
    }
    let mut first = Served::start(&home);
    assert!(first.url.starts_with("ws://127.0.0.1:"), "{}", first.url);
    let file = home.state().join("server/relay.token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&file).unwrap(), first.token());
    let taken = home.piw(&["serve", "--bind", first.address()]).exits(3);
    assert!(
        taken.stderr.contains(first.address()) && taken.stderr.contains("--bind"),
        "{}",
        taken.stderr
    );
    first.terminate();
    assert_eq!(first.wait(), Some(0));
    let again = Served::start_on(&home, first.address());
    assert_eq!(again.url, first.url, "the address is free at once and the token stays");
}

#[test]
fn frames_arrive_byte_for_byte() {
    let home = Home::new();
    let run_id = chain(&home);
    let served = Served::start(&home);
    let mut remote = RawClient::connect(&served);
    let mut local = BufReader::new(UnixStream::connect(home.state().join("server/server.sock")).unwrap());
    let mut line = String::new();
    local.read_line(&mut line).unwrap();
    let hello: Value = serde_json::from_str(&remote.text()).unwrap();
    let local_hello: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(hello["type"], "hello");
    assert_ne!(
        hello["connectionId"], local_hello["connectionId"],
        "a server connection of its own"
    );
    for (operation, run) in [
        ("view.run.get", Some(run_id.as_str())),
        ("run.list", None),
        ("run.status", Some("nothing")),
    ] {
        let asked = request("same", operation, run, &json!({}));
        assert!(remote.send(Message::Text(asked.clone().into())));
        local.get_mut().write_all(format!("{asked}\n").as_bytes()).unwrap();
        line.clear();
        local.read_line(&mut line).unwrap();
        assert_eq!(remote.text(), line.trim_end_matches('\n'), "{operation}");
    }
}

#[test]
fn what_is_no_frame_is_refused_with_a_reason() {
    let home = Home::new();
    let served = Served::start(&home);
    let mut bystander = RawClient::connect(&served);
    bystander.text();
    let cases = [
        ("binary", Message::Binary(vec![1, 2, 3].into()), 1003, "text only"),
        (
            "oversized",
            Message::Text("x".repeat(1_048_576).into()),
            1009,
            "1048575",
        ),
        (
            "not UTF-8",
            Message::Frame(Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true)),
            1007,
            "UTF-8",
        ),
        ("two frames", Message::Text("{}\n{}".into()), 1008, "line feed"),
    ];
    for (name, message, code, said) in cases {
        let mut client = RawClient::connect(&served);
        client.text();
        // The relay may close before it has read all of it.
        client.send(message);
        let (got, reason) = client.closed();
        assert_eq!(got, code, "{name}: {reason}");
        assert!(reason.contains(said), "{name}: {reason}");
    }
    let mut flooding = RawClient::connect(&served);
    flooding.text();
    for _ in 0..MESSAGES_PER_SECOND * 20 {
        if !flooding.send(Message::Ping(Vec::new().into())) {
            break;
        }
    }
    let (code, reason) = flooding.closed();
    assert!(code == 1008 && reason.contains("1000 messages"), "{code} {reason}");
    assert!(bystander.send(Message::Text(request("1", "server.status", None, &json!({})).into())));
    assert!(bystander.text().contains("\"accepted\""), "the others go on");
}

/// Its view is as large as views get: values just small enough to travel in place.
const BULKY: &str = r#"
import { compute, defineWorkflow } from "piw";
const names = Array.from({ length: 6 }, (_, at) => `step${at + 1}`);
export default defineWorkflow({
  name: "bulky",
  startAt: "step1",
  nodes: Object.fromEntries(names.map((name) => [name, compute({ run: () => "x".repeat(15_000) })])),
  edges: names.slice(1).map((name, at) => ({ from: names[at], to: name })),
});
"#;

/// Requests of a client that does not read, fewer than a flood.
const ASKED: usize = 100;

#[test]
fn a_client_that_does_not_read_costs_little_and_delays_nobody() {
    let home = Home::new();
    home.workflow("bulky", BULKY);
    let run_id = finished(&home, "bulky");
    let served = Served::start(&home);
    let mut reading = RawClient::connect(&served);
    reading.text();
    let mut blocked: Vec<RawClient> = (0..3).map(|_| RawClient::connect(&served)).collect();
    let before = resident_kib(served.pid());
    let view =
        |id: usize| Message::Text(request(&format!("{id:04}"), "view.run.get", Some(&run_id), &json!({})).into());
    for client in &mut blocked {
        for id in 0..ASKED {
            assert!(client.send(view(id)));
        }
    }
    assert!(reading.send(view(0)));
    let bytes = reading.text().len();
    assert!(bytes > 100_000, "an answer has {bytes} bytes");
    let grown = resident_kib(served.pid()).saturating_sub(before);
    let waiting = bytes * ASKED * blocked.len() / 1024;
    assert!(
        grown < 16 * 1024,
        "{waiting} KiB of answers that nobody reads cost the relay {grown} KiB"
    );
    let mut slow = blocked.pop().unwrap();
    assert!(slow.text().contains("hello"));
    for _ in 0..ASKED {
        assert_eq!(slow.text().len(), bytes, "a client that reads late misses nothing");
    }
}

#[test]
fn ending_the_relay_tells_its_clients_and_leaves_the_server() {
    let home = Home::new();
    let mut served = Served::start(&home);
    let mut client = RawClient::connect(&served);
    client.text();
    served.terminate();
    let (code, reason) = client.closed();
    assert!(code == 1001 && reason.contains("relay"), "{code} {reason}");
    assert_eq!(served.wait(), Some(0));
    let _ = home.piw(&["server", "status"]).exits(0);
}

#[test]
fn a_client_is_told_when_the_server_goes_and_that_none_is_there() {
    let home = Home::new();
    let served = Served::start(&home);
    let mut client = RawClient::connect(&served);
    client.text();
    home.kill_server();
    let (code, reason) = client.closed();
    assert!(code == 1001 && reason.contains("server"), "{code} {reason}");
    // The system may still take a connection for the dead server and close it then.
    let reason = wait::until("there is no server to connect to", || {
        let (code, reason) = RawClient::connect(&served).closed();
        assert!(code == 1013 || code == 1001, "{code} {reason}");
        (code == 1013).then_some(reason)
    });
    assert!(reason.contains("piw server start"), "{reason}");
    let _ = home.piw(&["server", "start"]).exits(0);
    assert!(RawClient::connect(&served).text().contains("hello"));
}

#[test]
fn two_viewers_stand_at_different_steps_of_one_run() {
    let home = Home::new();
    let run_id = chain(&home);
    let served = Served::start(&home);
    let open = || Terminal::start(&home, &[&run_id, "--connect", &served.url], 40, 120);
    let (mut one, mut other) = (open(), open());
    for viewer in [&mut one, &mut other] {
        viewer.wait("the run is shown", |screen| {
            screen.contains("latest") && screen.contains("12 steps")
        });
    }
    one.send(b"[[[");
    one.wait("one went back", |screen| screen.contains("step 10 of 12"));
    other.send(b"[[[[[[");
    other.wait("the other went back further", |screen| screen.contains("step 7 of 12"));
    one.send(b"[");
    one.wait("one went on from where it was", |screen| {
        screen.contains("step 9 of 12")
    });
    other.send(b"]");
    other.wait("so did the other", |screen| screen.contains("step 8 of 12"));
    one.send(b"L");
    one.wait("one is back at the end", |screen| screen.contains("latest"));
    assert!(other.screen().contains("step 8 of 12"));
    for viewer in [&mut one, &mut other] {
        viewer.send(b"q");
        assert_eq!(viewer.wait_for_exit(), 0);
    }
}

/// Waits at a checkpoint, so that its view offers something.
const ASKING: &str = r#"
import { checkpoint, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "asking",
  title: "A question",
  startAt: "ask",
  nodes: { ask: checkpoint({ summary: "Go on?" }) },
  edges: [],
});
"#;

#[test]
fn a_view_over_the_relay_is_stale_without_a_server_and_live_again_by_itself() {
    let home = Home::new();
    home.workflow("asking", ASKING);
    let started = home.piw(&["run", "asking", "--detach", "--json"]).exits(0).json();
    let run_id = started["runId"].as_str().unwrap().to_owned();
    home.wait_for_status(&run_id, &["waiting"]);
    let served = Served::start(&home);
    let mut viewer = Terminal::start(&home, &["--connect", &served.url], 40, 120);
    viewer.wait("the run is live and can be answered", |screen| {
        screen.contains("a answer") && screen.contains("live")
    });
    home.kill_server();
    viewer.wait("the view is stale, with attempt and delay", |screen| {
        screen.contains("stale · reconnecting: attempt ") && screen.contains(" in ")
    });
    assert!(viewer.screen().contains("A question"), "the view stays");
    assert!(!viewer.screen().contains("a answer"), "nothing is offered");
    viewer.send(b"c");
    viewer.wait("the key is refused", |screen| {
        screen.contains("the view is stale: nothing can be done")
    });
    let _ = home.piw(&["server", "start"]).exits(0);
    viewer.wait("it is live again without a key", |screen| {
        screen.contains("a answer") && !screen.contains("reconnecting")
    });
    assert_eq!(home.show(&run_id)["display"]["status"], "waiting", "nothing was done");
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
}
