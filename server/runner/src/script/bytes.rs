//! Bytes shared with the script heap, and the two old digests that scripts still use for cache keys and git objects.
#![expect(unsafe_code, reason = "the engine hands out raw views of its buffers; see `of`")]

use rquickjs::TypedArray;

/// The bytes that `array` shows; `None` when it is detached.
///
/// The slice borrows the array, which keeps the buffer alive. It is valid only until JavaScript runs again, which could
/// detach or resize it: callers copy or finish with it before they return to the engine.
pub(super) fn of<'a>(array: &'a TypedArray<'_, u8>) -> Option<&'a [u8]> {
    let raw = array.as_raw()?;
    // SAFETY: `as_raw` gives pointer and length of the live, attached buffer of `array`, initialised by the engine; the runtime is
    // single-threaded and no JavaScript runs while the slice is in use.
    Some(unsafe { raw.as_ref() })
}

/// SHA-1, for git object names and the like; not for security.
pub(super) fn sha1(data: &[u8]) -> [u8; 20] {
    let mut h: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(data, (data.len() as u64).wrapping_mul(8).to_be_bytes()).chunks_exact(64) {
        let mut w = [0u32; 80];
        for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..80 {
            w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = h;
        for (i, word) in w.iter().enumerate() {
            let (f, k) = match i / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(f)
                .wrapping_add(e)
                .wrapping_add(k)
                .wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (sum, add) in h.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(add);
        }
    }
    let mut out = [0; 20];
    for (bytes, word) in out.chunks_exact_mut(4).zip(h) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// MD5, for cache keys; not for security.
pub(super) fn md5(data: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut h: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(data, (data.len() as u64).wrapping_mul(8).to_le_bytes()).chunks_exact(64) {
        let mut m = [0u32; 16];
        for (word, bytes) in m.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [mut a, mut b, mut c, mut d] = h;
        for i in 0..64 {
            let (f, g) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the constant is below 2^32 by definition"
            )]
            let k = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = f.wrapping_add(a).wrapping_add(k).wrapping_add(m[g]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4])));
        }
        for (sum, add) in h.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(add);
        }
    }
    let mut out = [0; 16];
    for (bytes, word) in out.chunks_exact_mut(4).zip(h) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    out
}

fn padded(data: &[u8], length: [u8; 8]) -> Vec<u8> {
    let mut message = data.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend(length);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_known_texts() {
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(hex::encode(sha1(text)), "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12");
        assert_eq!(hex::encode(md5(text)), "9e107d9d372bb6826bd81d3542a419d6");
        assert_eq!(hex::encode(sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex::encode(md5(&[b'a'; 200])), "887f30b43b2867f4a9accceee7d16e6c");
    }
}
