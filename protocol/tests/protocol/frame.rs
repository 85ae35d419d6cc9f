//! The frame codec: limits to the byte, any splitting of the stream, bounded buffers.

use piw_protocol::canonical::CanonicalError;
use piw_protocol::frame::{self, Decoder, FrameError, MAX_FRAME};
use proptest::prelude::*;

/// A JSON string whose frame has exactly `bytes` bytes.
fn text_of_frame(bytes: usize) -> String {
    "x".repeat(bytes - 3)
}

#[test]
fn a_frame_of_the_exact_limit_passes_and_one_byte_more_does_not() {
    let exact = frame::encode(&text_of_frame(MAX_FRAME)).unwrap();
    assert_eq!(exact.len(), MAX_FRAME);
    assert_eq!(
        frame::encode(&text_of_frame(MAX_FRAME + 1)),
        Err(FrameError::TooLarge {
            bytes: MAX_FRAME + 1,
            limit: MAX_FRAME
        })
    );
    let mut decoder = Decoder::new();
    decoder.push(&exact);
    assert_eq!(decoder.next_frame().unwrap().unwrap().len(), MAX_FRAME - 1);
    assert_eq!(decoder.next_frame(), Ok(None));

    let mut over = exact;
    over.insert(1, b'x');
    let mut decoder = Decoder::new();
    decoder.push(&over);
    assert_eq!(
        decoder.next_frame(),
        Err(FrameError::ReceivedTooLarge { limit: MAX_FRAME })
    );
    decoder.push(b"{}\n");
    assert!(
        decoder.next_frame().is_err(),
        "a decoder that failed takes nothing more"
    );
}

#[test]
fn a_line_without_end_is_refused_as_soon_as_it_is_too_long() {
    let mut decoder = Decoder::new();
    let chunk = [b'x'; 4096];
    for _ in 0..MAX_FRAME / chunk.len() - 1 {
        decoder.push(&chunk);
        assert_eq!(decoder.next_frame(), Ok(None));
    }
    decoder.push(&chunk[1..]);
    assert_eq!(
        decoder.next_frame(),
        Ok(None),
        "{} bytes can still become a frame",
        MAX_FRAME - 1
    );
    decoder.push(b"x");
    assert_eq!(
        decoder.next_frame(),
        Err(FrameError::ReceivedTooLarge { limit: MAX_FRAME })
    );
    for _ in 0..1000 {
        decoder.push(&chunk);
    }
    assert_eq!(decoder.pending(), 0, "a flood after the error is not kept");
}

#[test]
fn an_unfinished_frame_is_reported_at_the_end() {
    let mut decoder = Decoder::new();
    decoder.push(b"{}\n{\"a\"");
    assert_eq!(decoder.next_frame().unwrap().unwrap(), b"{}");
    assert_eq!(decoder.next_frame(), Ok(None));
    assert_eq!(decoder.finish(), Err(FrameError::Unfinished { bytes: 4 }));
    decoder.push(b":1}\n");
    assert_eq!(decoder.next_frame().unwrap().unwrap(), b"{\"a\":1}");
    assert_eq!(decoder.finish(), Ok(()));
}

#[test]
fn what_cannot_be_encoded_is_named() {
    assert_eq!(
        frame::encode(&f64::NAN),
        Err(FrameError::Encode(CanonicalError::NotFinite { value: "NaN".into() }))
    );
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same_frames(
        frames in prop::collection::vec("[a-z]{0,40}", 0..12),
        cuts in prop::collection::vec(1_usize..50, 1..40),
    ) {
        let stream: Vec<u8> = frames.iter().flat_map(|frame| format!("{frame}\n").into_bytes()).collect();
        let mut decoder = Decoder::new();
        let mut found = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            rest = later;
            decoder.push(now);
            while let Some(frame) = decoder.next_frame().unwrap() {
                found.push(String::from_utf8(frame).unwrap());
            }
        }
        prop_assert_eq!(found, frames);
        prop_assert_eq!(decoder.finish(), Ok(()));
    }
}
