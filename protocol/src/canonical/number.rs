//! Numbers as ECMAScript prints them. Every number is an IEEE double, also the integers beyond 2^53.

use serde_json::Number;

use super::MAX_SAFE_INTEGER;

/// 2^53 as a double: up to here every integer is exact.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a token is no canonical number.
pub(super) enum NumberProblem {
    /// Not the form that ECMAScript prints.
    Form,
    /// Larger than the largest double.
    Range,
}

/// Writes a finite double; NaN and infinities are the caller's error.
pub(super) fn write_f64(out: &mut Vec<u8>, value: f64) {
    if value.trunc() == value && value.abs() <= EXACT {
        // Exact in an i64; this also turns -0 into 0.
        write_i64(out, value as i64);
    } else {
        out.extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes());
    }
}

/// Writes a signed integer as the double that it is.
pub(super) fn write_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 && value.unsigned_abs() <= MAX_SAFE_INTEGER + 1 {
        out.push(b'-');
    }
    if value.unsigned_abs() <= MAX_SAFE_INTEGER + 1 {
        write_digits(out, value.unsigned_abs());
    } else {
        out.extend_from_slice(ryu_js::Buffer::new().format_finite(value as f64).as_bytes());
    }
}

/// Writes an unsigned integer as the double that it is.
pub(super) fn write_u64(out: &mut Vec<u8>, value: u64) {
    if value <= MAX_SAFE_INTEGER + 1 {
        write_digits(out, value);
    } else {
        out.extend_from_slice(ryu_js::Buffer::new().format_finite(value as f64).as_bytes());
    }
}

fn write_digits(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Reads a token of number characters.
pub(super) fn read(token: &str) -> Result<Number, NumberProblem> {
    let digits = token.strip_prefix('-').unwrap_or(token);
    if !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let canonical = if digits.starts_with('0') { token == "0" } else { true };
        let value: i64 = token.parse().map_err(|_| NumberProblem::Form)?;
        return if canonical {
            Ok(value.into())
        } else {
            Err(NumberProblem::Form)
        };
    }
    let value: f64 = token.parse().map_err(|_| NumberProblem::Form)?;
    if !value.is_finite() {
        return Err(NumberProblem::Range);
    }
    let mut form = Vec::with_capacity(32);
    write_f64(&mut form, value);
    if form != token.as_bytes() {
        return Err(NumberProblem::Form);
    }
    if value.trunc() == value && value.abs() <= EXACT {
        return Ok((value as i64).into());
    }
    Number::from_f64(value).ok_or(NumberProblem::Range)
}
