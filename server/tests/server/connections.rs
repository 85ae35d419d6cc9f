//! Connections of friendly, clumsy and hostile clients to a server without runs.
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::support::{RawClient, TestServer, wait_until};
use piw_protocol::envelope::{Outcome, PACKAGE_VERSION, ServerMessage};
use piw_protocol::frame::MAX_FRAME;
use piw_protocol::ops::{Operation, ServerStatusReport};
use serde_json::json;

fn server() -> TestServer {
    TestServer::start("/nonexistent")
}

fn farewell(client: &mut RawClient) -> String {
    let Some(ServerMessage::Event(event)) = client.next() else {
        panic!("no farewell")
    };
    assert!(client.next().is_none(), "the connection is closed");
    event.payload.to_value()["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_client_is_greeted_and_told_the_servers_state() {
    let server = server();
    let mut client = server.client();
    assert_eq!(client.hello.package_version, PACKAGE_VERSION);
    let response = client.request(Operation::ServerStatus, None, &json!({}));
    assert_eq!(response.outcome, Outcome::Accepted);
    let status: ServerStatusReport = response.receipt.unwrap().decode().unwrap();
    assert_eq!(
        (status.state.as_str(), status.epoch, status.pid),
        ("running", 1, std::process::id())
    );
    assert_eq!(
        (status.queued, status.active_runners, status.runner_capacity),
        (0, 0, 4)
    );
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&server.places.socket), 0o600);
    assert_eq!(mode(&server.places.log()), 0o600);
}

#[test]
fn an_operation_that_is_not_built_says_so() {
    let server = server();
    let response = server.client().request(Operation::ChannelReload, None, &json!({}));
    assert_eq!(response.outcome, Outcome::Unavailable);
    assert_eq!(response.error.unwrap().reason, "not_built");
}

#[test]
fn a_bad_frame_closes_only_its_connection_and_says_why() {
    let server = server();
    let mut good = server.client();
    for (bytes, why) in [
        (&b"garbage\n"[..], "garbage"),
        (b"{}\n", "schema"),
        (b"{ \"a\":1}\n", "canonical"),
        (b"\xff\xfe\n", ""),
        (b"\n", ""),
    ] {
        let mut bad = server.client();
        bad.stream.write_all(bytes).unwrap();
        let message = farewell(&mut bad);
        assert!(!message.is_empty(), "{why}");
    }
    let mut unknown = server.client();
    let request = br#"{"clientId":"c","idempotencyKey":"k","operation":"run.explode","payload":{},"requestId":"r","schema":"pi-workflows.client.v1","type":"request"}"#;
    unknown.stream.write_all(&[request, &b"\n"[..]].concat()).unwrap();
    assert!(farewell(&mut unknown).contains("run.explode"));
    assert_eq!(
        good.request(Operation::ServerStatus, None, &json!({})).outcome,
        Outcome::Accepted
    );
}

#[test]
fn a_flood_without_a_newline_is_cut_at_the_frame_limit() {
    let server = server();
    let mut flood = server.client();
    let mut sent = 0;
    // The server stops reading and closes; the write then fails.
    while sent < 64 * MAX_FRAME && flood.stream.write_all(&[b'x'; 65_536]).is_ok() {
        sent += 65_536;
    }
    assert!(sent < 64 * MAX_FRAME, "the flood was taken");
    assert_eq!(
        server
            .client()
            .request(Operation::ServerStatus, None, &json!({}))
            .outcome,
        Outcome::Accepted
    );
}

#[test]
fn a_half_frame_and_an_abrupt_end_disturb_nobody() {
    let server = server();
    let mut half = server.client();
    half.stream.write_all(b"{\"clientId\":").unwrap();
    let mut other = server.client();
    assert_eq!(
        other.request(Operation::ServerStatus, None, &json!({})).outcome,
        Outcome::Accepted
    );
    half.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(farewell(&mut half).contains("12 bytes"));
}

#[test]
fn a_client_that_pipelines_and_closes_its_side_gets_every_answer() {
    let server = server();
    let mut client = server.client();
    let sent: Vec<String> = (0..100)
        .map(|n| client.send(Operation::ServerStatus, None, &json!({}), &format!("k{n}")))
        .collect();
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answered = Vec::new();
    while let Some(ServerMessage::Response(response)) = client.next() {
        answered.push(response.request_id);
    }
    answered.sort();
    let mut sent = sent;
    sent.sort();
    assert_eq!(answered, sent);
}

#[test]
fn too_many_connections_are_refused_with_a_message_until_one_leaves() {
    let server = server();
    let mut clients: Vec<RawClient> = (0..256).map(|_| server.client()).collect();
    for client in &mut clients {
        let _ = client.request(Operation::ServerStatus, None, &json!({}));
    }
    let refused = |places| {
        let stream = std::os::unix::net::UnixStream::connect(places).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut line).unwrap();
        line.contains("too_many_connections")
    };
    assert!(refused(&server.places.socket));
    clients.pop();
    wait_until("a place is free", || !refused(&server.places.socket));
    // The rest leave before the server is stopped through a connection of its own.
    drop(clients);
    let others = || (0..8).all(|_| !refused(&server.places.socket));
    wait_until("the others have left", others);
}

#[test]
fn silent_connections_make_room_for_one_that_asks() {
    let server = server();
    let mut asking = server.client();
    let _ = asking.request(Operation::ServerStatus, None, &json!({}));
    let mut silent: Vec<RawClient> = (0..256).map(|_| server.client()).collect();
    let mut late = server.client();
    for client in [&mut late, &mut asking] {
        assert_eq!(
            client.request(Operation::ServerStatus, None, &json!({})).outcome,
            Outcome::Accepted
        );
    }
    assert!(farewell(&mut silent[0]).contains("never sent a request"));
    let (ended, _dir) = server.stop();
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn an_operation_without_a_payload_refuses_fields() {
    let server = server();
    let mut client = server.client();
    for operation in [
        Operation::ServerStatus,
        Operation::RunPause,
        Operation::RunStatus,
        Operation::ViewRunGet,
    ] {
        let response = client.request(operation, Some("r"), &json!({"extra": 1}));
        assert!(!response.outcome.is_success(), "{response:?}");
        assert!(response.error.unwrap().message.contains("extra"), "{operation:?}");
    }
}

#[test]
fn a_second_server_is_refused_and_the_first_stays() {
    let server = server();
    let options = piw_server::ServerOptions {
        places: server.places.clone(),
        max_runners: 1,
        idle_exit: None,
        internal_exe: "/nonexistent".into(),
        detached: false,
        workflows: None,
        signals: false,
        lease: None,
        overrun: None,
    };
    let error = piw_server::run(&options).unwrap_err();
    assert_eq!(error.class(), "alreadyRunning");
    assert!(
        error.to_string().contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
    assert_eq!(
        server
            .client()
            .request(Operation::ServerStatus, None, &json!({}))
            .outcome,
        Outcome::Accepted
    );
}

#[test]
fn a_stopped_server_leaves_nothing_and_the_next_has_a_higher_epoch() {
    let first = server();
    let places = first.places.clone();
    let (ended, dir) = first.stop();
    ended.unwrap();
    assert!(!places.socket.exists());
    assert!(!places.lock_record().exists());
    let next = TestServer::start_in(dir, "/nonexistent");
    let response = next.client().request(Operation::ServerStatus, None, &json!({}));
    let status: ServerStatusReport = response.receipt.unwrap().decode().unwrap();
    assert_eq!(status.epoch, 2);
}
