//! Content: fetched in chunks, verified as a whole, uploaded in chunks.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use piw_protocol::client::{ClientError, ClientOptions};
use piw_protocol::content::{MEDIA_JSON, MEDIA_TEXT, Verified};
use piw_protocol::ops::{ContentPut, ContentRequest, Operation};
use piw_protocol::view::{ArtifactRef, CONTENT_CHUNK, ContentChunk};
use serde_json::{Value, json};

use super::start;

/// What a server that may lie answers to one request for a chunk.
fn chunk(content: &[u8], reference: &ArtifactRef, request: &ContentRequest, size: usize) -> ContentChunk {
    let start = usize::try_from(request.offset).unwrap();
    let end = content.len().min(start + size);
    ContentChunk {
        schema: "pi-workflows.content-chunk.v1".into(),
        run_id: "run-1".into(),
        path: reference.path.clone(),
        offset: request.offset,
        next_offset: end as u64,
        bytes: reference.bytes,
        sha256: reference.sha256.clone(),
        media_type: reference.media_type.clone(),
        complete: end == content.len(),
        data: BASE64_STANDARD.encode(&content[start..end]),
    }
}

/// Fetches `reference` from a server that answers every request with `answer`; also the progress that was reported.
async fn fetch(
    reference: &ArtifactRef,
    answer: impl Fn(&ContentRequest) -> ContentChunk,
) -> (Result<Verified<Vec<u8>>, ClientError>, Vec<u64>) {
    let (client, mut server) = start(ClientOptions::default());
    let mut peer = server.greet().await;
    let asked = reference.clone();
    let mut call = tokio::spawn(async move {
        let mut progress = Vec::new();
        let result = client.content("run-1", &asked, |bytes| progress.push(bytes)).await;
        (result, progress)
    });
    loop {
        tokio::select! {
            result = &mut call => return result.unwrap(),
            request = peer.next() => {
                let Some(request) = request else { return call.await.unwrap() };
                assert_eq!((request.operation, request.run_id.as_deref()), (Operation::ViewContent, Some("run-1")));
                let chunk = answer(&request.payload.decode().unwrap());
                peer.accept(&request, serde_json::to_value(chunk).unwrap()).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn honest_content_arrives_verified_with_progress() {
    let text = "ä".repeat(5000);
    let reference = ArtifactRef::of(text.as_bytes(), MEDIA_TEXT);
    let (result, progress) = fetch(&reference, |request| chunk(text.as_bytes(), &reference, request, 4096)).await;
    assert_eq!(progress, [4096, 8192, 10000]);
    let verified = result.unwrap();
    assert_eq!(verified.reference(), &reference);
    assert_eq!(*verified.text().unwrap().get(), text);

    let value = br#"{"a":[1,2]}"#;
    let reference = ArtifactRef::of(value, MEDIA_JSON);
    let (result, _) = fetch(&reference, |request| chunk(value, &reference, request, 4096)).await;
    assert_eq!(
        result.unwrap().json::<Value>().unwrap().into_inner(),
        json!({"a": [1, 2]})
    );

    let empty = ArtifactRef::of(b"", MEDIA_TEXT);
    let (result, progress) = fetch(&empty, |_| unreachable!("nothing is asked for")).await;
    assert_eq!((result.unwrap().into_inner(), progress), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn every_lie_of_a_server_is_found() {
    let text = b"the whole truth".as_slice();
    let other = b"the whole trash".as_slice();
    let reference = ArtifactRef::of(text, MEDIA_TEXT);
    let lie = |change: fn(&mut ContentChunk)| {
        let reference = reference.clone();
        move |request: &ContentRequest| {
            let mut chunk = chunk(text, &reference, request, 8);
            change(&mut chunk);
            chunk
        }
    };
    let expect = |result: Result<Verified<Vec<u8>>, ClientError>, part: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, ClientError::Content(_)), "{error}");
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    };
    let (result, _) = fetch(&reference, |request| chunk(other, &reference, request, 8)).await;
    expect(result, "the content's SHA-256 is");
    expect(
        fetch(&reference, lie(|chunk| chunk.schema = "v2".into())).await.0,
        "schema is v2",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.run_id = "run-2".into())).await.0,
        "runId is run-2, expected run-1",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.path = "x".into())).await.0,
        "path is x",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.sha256 = "00".into())).await.0,
        "sha256 is 00",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.media_type = MEDIA_JSON.into()))
            .await
            .0,
        "mediaType is application/json",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.bytes = 14)).await.0,
        "bytes is 14, expected 15",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.offset = 8)).await.0,
        "offset is 8, expected 0",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.next_offset += 1)).await.0,
        "nextOffset is 9, expected 8",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.complete = true)).await.0,
        "complete is true, expected false",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.data = "%%".into())).await.0,
        "not base64",
    );
    expect(
        fetch(&reference, lie(|chunk| chunk.data = String::new())).await.0,
        "data is 0 bytes",
    );
    let more = fetch(&reference, |request| {
        let mut chunk = chunk(text, &reference, request, 8);
        chunk.data = BASE64_STANDARD.encode([b'x'; 16]);
        chunk.next_offset = 16;
        chunk
    });
    expect(more.await.0, "data is 16, expected at most 15 bytes in all");
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_contradicts_itself_is_never_fetched() {
    let good = ArtifactRef::of(b"x", MEDIA_TEXT);
    let bad = |change: fn(&mut ArtifactRef)| {
        let mut reference = good.clone();
        change(&mut reference);
        reference
    };
    for (reference, part) in [
        (
            bad(|reference| reference.sha256.make_ascii_uppercase()),
            "not 64 lower-case hex digits",
        ),
        (
            bad(|reference| reference.sha256.truncate(63)),
            "not 64 lower-case hex digits",
        ),
        (
            bad(|reference| reference.path = "artifacts/sha256/../../etc/passwd".into()),
            "path",
        ),
        (bad(|reference| reference.media_type = MEDIA_JSON.into()), "path"),
        (
            bad(|reference| reference.media_type = "text/html".into()),
            "unknown media type \"text/html\"",
        ),
        (bad(|reference| reference.bytes = 1 << 40), "the limit is 268435456"),
    ] {
        let (result, _) = fetch(&reference, |_| unreachable!("it is refused before")).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn verified_bytes_are_read_only_as_what_they_are() {
    let verified = |bytes: &'static [u8], media_type: &str| {
        let reference = ArtifactRef::of(bytes, media_type);
        async move {
            fetch(&reference.clone(), |request| chunk(bytes, &reference, request, 100))
                .await
                .0
                .unwrap()
        }
    };
    for error in [
        verified(b"{}", MEDIA_TEXT).await.json::<Value>().unwrap_err(),
        verified(b"{ }", MEDIA_JSON).await.json::<Value>().unwrap_err(),
        verified(b"{}", MEDIA_JSON).await.text().unwrap_err(),
        verified(b"\xff", MEDIA_TEXT).await.text().unwrap_err(),
    ] {
        assert!(error.to_string().contains("cannot be read as"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_are_cut_into_chunks() {
    for length in [0, 1, CONTENT_CHUNK, CONTENT_CHUNK + 1] {
        let bytes = vec![7; length];
        let (client, mut server) = start(ClientOptions::default());
        let mut peer = server.greet().await;
        let upload = tokio::spawn({
            let bytes = bytes.clone();
            async move { client.put_content(&bytes, MEDIA_JSON).await }
        });
        let mut received = Vec::new();
        loop {
            let request = peer.request().await;
            assert_eq!(request.operation, Operation::ContentPut);
            let put: ContentPut = request.payload.decode().unwrap();
            assert_eq!((put.offset, put.content.bytes), (received.len() as u64, length as u64));
            received.extend(BASE64_STANDARD.decode(&put.data).unwrap());
            let report = json!({"sha256": put.content.sha256, "received": received.len(), "complete": put.complete});
            peer.accept(&request, report).await;
            if put.complete {
                break;
            }
        }
        assert_eq!(received, bytes);
        assert_eq!(upload.await.unwrap().unwrap().bytes, length as u64);
    }
}
