//! Content: verified chunks of large values.

use std::sync::Arc;

use base64::Engine as _;
use piw_protocol::canonical::sha256_hex;
use piw_protocol::child::ContentRef;
use piw_protocol::ops::ContentRequest;
use piw_protocol::view::{CONTENT_CHUNK, ViewValue};
use piw_server::projection::ViewError;
use piw_state::{ManualClock, RunKey, ViewContent, ViewContentSource};

use crate::fixture::{Fixture, Run};

/// Fetches and verifies the whole of an artifact, as a client does.
pub async fn fetch(f: &Fixture, run_id: &str, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let request = ContentRequest {
            path: path.to_owned(),
            offset: bytes.len() as u64,
        };
        let chunk = f.publisher.content(run_id, request).await.unwrap();
        let data = base64::engine::general_purpose::STANDARD.decode(&chunk.data).unwrap();
        assert!(data.len() <= CONTENT_CHUNK);
        assert_eq!(chunk.offset, bytes.len() as u64);
        bytes.extend_from_slice(&data);
        assert_eq!(chunk.next_offset, bytes.len() as u64);
        if chunk.complete {
            assert_eq!((chunk.bytes, chunk.sha256), (bytes.len() as u64, sha256_hex(&bytes)));
            return bytes;
        }
        assert!(!data.is_empty(), "every chunk makes progress");
    }
}

#[tokio::test]
async fn a_large_output_is_fetched_in_verified_chunks() {
    let f = Fixture::new().await;
    let run = f.run(f.circle(2), &Run::new("r", "completed"));
    f.steps(run, 2, 2);
    let text: String = (0..7_000_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let json = format!("\"{}\"", text.repeat(7));
    assert!(json.len() > 48_000_000);
    f.set_output(run, 1, &json);
    let view = f.publisher.run_view("r").await.unwrap();
    let ViewValue::Artifact(reference) = view.state.steps[1].output() else {
        panic!("it is large")
    };
    assert_eq!(reference.bytes, json.len() as u64);
    let bytes = fetch(&f, "r", &reference.path).await;
    assert!(bytes == json.as_bytes());
}

#[tokio::test]
async fn content_is_served_only_under_its_run_and_name() {
    let f = Fixture::new().await;
    let definition = f.circle(2);
    let run = f.run(definition, &Run::new("r", "completed"));
    f.run(definition, &Run::new("other", "completed"));
    f.steps(run, 2, 1);
    f.set_output(run, 0, &format!("\"{}\"", "x".repeat(20_000)));
    let view = f.publisher.run_view("r").await.unwrap();
    let ViewValue::Artifact(reference) = view.state.steps[0].output() else {
        panic!("it is large")
    };

    let get = |run_id: &'static str, path: String, offset| f.publisher.content(run_id, ContentRequest { path, offset });
    let missing = |result: Result<_, ViewError>| matches!(result, Err(ViewError::ContentNotFound { .. }));
    assert!(missing(get("other", reference.path.clone(), 0).await.map(|_| ())));
    assert!(missing(
        get("r", reference.path.replace(".json", ".txt"), 0).await.map(|_| ())
    ));
    assert!(missing(get("r", "../../etc/passwd".into(), 0).await.map(|_| ())));
    assert!(matches!(
        get("nobody", reference.path.clone(), 0).await,
        Err(ViewError::RunNotFound { .. })
    ));
    assert!(matches!(
        get("r", reference.path.clone(), reference.bytes + 1).await,
        Err(ViewError::BadRequest { field: "offset", .. })
    ));
    let end = get("r", reference.path.clone(), reference.bytes).await.unwrap();
    assert!(end.complete && end.data.is_empty());
}

#[tokio::test]
async fn generated_content_goes_when_no_view_names_it() {
    let clock = Arc::new(ManualClock::new());
    let f = Fixture::with_clock(clock.clone()).await;
    let run = f.run(f.circle(2), &Run::new("r", "queued"));
    let content = |n: u32| {
        let bytes = format!("text {n}").into_bytes();
        let media_type = "text/plain; charset=utf-8".to_owned();
        let reference = ContentRef {
            sha256: sha256_hex(&bytes),
            bytes: bytes.len() as u64,
            media_type,
        };
        ViewContent {
            reference,
            source: ViewContentSource::Generated(bytes),
        }
    };
    let store = async |contents: Vec<ViewContent>, named: &[ViewContent]| {
        let named = named.iter().map(|content| content.reference.clone()).collect();
        f.state.store_view_content(RunKey(run), contents, named).await.unwrap();
    };
    let stored = || -> u32 {
        f.sql
            .query_row("SELECT count(*) FROM run_view_content", [], |row| row.get(0))
            .unwrap()
    };
    for n in 0..200 {
        store(vec![content(n)], &[content(n)]).await;
        store(vec![content(n)], &[content(n)]).await;
    }
    assert_eq!(stored(), 200, "a client may still fetch what it was shown a moment ago");
    for _ in 0..31 {
        clock.advance(10_000);
        f.state.renew_server().await.unwrap();
    }
    store(vec![content(200)], &[content(0), content(200)]).await;
    assert_eq!(
        stored(),
        201 - (201 - 64) + 1,
        "the newest stay, and what the view names"
    );
    let get = |n: u32| {
        let path = format!("artifacts/sha256/{}.txt", content(n).reference.sha256);
        f.publisher.content("r", ContentRequest { path, offset: 0 })
    };
    assert!(get(0).await.is_ok() && get(200).await.is_ok() && get(1).await.is_err());
}
