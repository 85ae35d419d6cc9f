//! Canonical JSON: equality with an ECMAScript engine, round trips, and what the strict reader refuses.

use std::collections::BTreeMap;

use piw_protocol::canonical::{self, CanonicalError, CanonicalJson, MAX_DEPTH};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const NUMBERS: &str = include_str!("../../fixtures/ecmascript-numbers.txt");
const VALUES: &str = include_str!("../../fixtures/ecmascript-values.txt");

#[test]
fn numbers_are_written_and_read_as_ecmascript_does() {
    for line in NUMBERS.lines() {
        let (bits, expected) = line.split_once(' ').unwrap();
        let number = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        assert_eq!(canonical::to_string(&number).unwrap(), expected, "bits {bits}");
        let read = canonical::parse(expected.as_bytes()).unwrap();
        assert_eq!(read.as_f64(), Some(number), "{expected}");
        assert_eq!(canonical::write_value(&read), expected.as_bytes());
    }
}

#[test]
fn values_are_ordered_and_escaped_as_ecmascript_does() {
    for line in VALUES.lines() {
        let (plain, expected) = line.split_once('\t').unwrap();
        let value: Value = serde_json::from_str(plain).unwrap();
        assert_eq!(canonical::to_string(&value).unwrap(), expected);
        assert_eq!(canonical::parse(expected.as_bytes()).unwrap(), canonical_numbers(value));
        assert_eq!(canonical::check(plain.as_bytes()).is_ok(), plain == expected, "{plain}");
    }
}

/// A tree whose numbers have the type that the reader gives them.
fn canonical_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => canonical::parse(&canonical::write_value(&Value::Number(number))).unwrap(),
        Value::Array(items) => items.into_iter().map(canonical_numbers).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, canonical_numbers(value)))
            .collect(),
        other => other,
    }
}

#[test]
fn integers_beyond_two_to_the_53_are_doubles() {
    for (written, expected) in [
        (canonical::to_string(&u64::MAX), "18446744073709552000"),
        (canonical::to_string(&i64::MIN), "-9223372036854776000"),
        (canonical::to_string(&9_007_199_254_740_993_u64), "9007199254740992"),
        (canonical::to_string(&-9_007_199_254_740_993_i64), "-9007199254740992"),
        (canonical::to_string(&1e20), "100000000000000000000"),
        (canonical::to_string(&u128::MAX), "3.402823669209385e+38"),
        (canonical::to_string(&0.5_f32), "0.5"),
        (canonical::to_string(&-0.0), "0"),
    ] {
        assert_eq!(written.unwrap(), expected);
    }
    for spelled in [
        "9007199254740993",
        "18446744073709551615",
        "1e20",
        "1E21",
        "1.0",
        "-0",
        "01",
        "0.10",
        "1e+20",
    ] {
        let error = canonical::parse(spelled.as_bytes()).unwrap_err();
        assert!(
            matches!(error, CanonicalError::NotCanonical { at: 0, .. }),
            "{spelled}: {error}"
        );
    }
    assert_eq!(canonical::parse(b"1e999"), Err(CanonicalError::NumberRange { at: 0 }));
}

#[test]
fn what_has_no_canonical_form_is_an_error() {
    #[derive(Serialize)]
    struct Twice {
        key: u8,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, u8>,
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = canonical::to_vec(&json!([1]))
            .and(canonical::to_vec(&[number]))
            .unwrap_err();
        assert_eq!(
            error,
            CanonicalError::NotFinite {
                value: number.to_string()
            }
        );
    }
    let twice = Twice {
        key: 1,
        rest: BTreeMap::from([("a", 2), ("key", 3)]),
    };
    assert_eq!(
        canonical::to_vec(&twice),
        Err(CanonicalError::DuplicateKey { key: "key".into() })
    );
    assert_eq!(
        canonical::to_vec(&BTreeMap::from([(vec![1], 2)])),
        Err(CanonicalError::KeyNotString)
    );
}

#[test]
fn every_kind_of_data_has_the_form_that_serde_json_gives_it() {
    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    enum Kind {
        Unit,
        New(u8),
        Tuple(u8, String),
        Struct { z: Option<u8>, a: char },
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct All {
        kinds: Vec<Kind>,
        by_kind: BTreeMap<i32, (u8, f64)>,
        unit: (),
        bytes: Box<[u8]>,
        embedded: CanonicalJson,
    }
    let all = All {
        kinds: vec![
            Kind::Unit,
            Kind::New(1),
            Kind::Tuple(2, "x\u{1}".into()),
            Kind::Struct { z: None, a: 'é' },
        ],
        by_kind: BTreeMap::from([(-1, (1, 0.5)), (10, (2, 1e300)), (9, (3, 0.0))]),
        unit: (),
        bytes: Box::from([0, 255]),
        embedded: CanonicalJson::new(&json!({"b": [1, {"y": 2, "x": 3}], "a": null})).unwrap(),
    };
    let tree = serde_json::to_value(&all).unwrap();
    let bytes = canonical::to_vec(&all).unwrap();
    assert_eq!(bytes, canonical::write_value(&tree));
    assert_eq!(canonical::from_slice::<All>(&bytes).unwrap(), all);
}

#[test]
fn embedded_text_is_checked_and_counts_as_depth() {
    let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
    assert_eq!(canonical::to_string(&[raw("[1,2]")]).unwrap(), "[[1,2]]");
    assert!(matches!(
        canonical::to_vec(&[raw("[1, 2]")]),
        Err(CanonicalError::NotCanonical { .. })
    ));
    let deep = nested(MAX_DEPTH);
    assert!(canonical::to_vec(&raw(&deep)).is_ok());
    assert_eq!(
        canonical::to_vec(&[raw(&deep)]),
        Err(CanonicalError::TooDeep { limit: MAX_DEPTH })
    );
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn nesting_is_bounded_when_reading_and_writing() {
    let deepest = nested(MAX_DEPTH);
    let value = canonical::parse(deepest.as_bytes()).unwrap();
    assert_eq!(canonical::depth(&value), MAX_DEPTH);
    assert_eq!(canonical::to_string(&value).unwrap(), deepest);
    assert_eq!(canonical::from_slice::<Value>(deepest.as_bytes()).unwrap(), value);
    assert_eq!(
        CanonicalJson::parse(deepest.as_bytes())
            .unwrap()
            .decode::<Value>()
            .unwrap(),
        value
    );
    let over = CanonicalError::TooDeep { limit: MAX_DEPTH };
    assert_eq!(canonical::parse(nested(MAX_DEPTH + 1).as_bytes()), Err(over.clone()));
    assert_eq!(canonical::to_vec(&[value]), Err(over.clone()));
    // A hostile document of megabytes of brackets ends at the limit, not at the end of the stack.
    assert_eq!(canonical::parse("{\"a\":".repeat(500_000).as_bytes()), Err(over));
}

#[test]
fn the_reader_says_what_is_wrong_and_where() {
    for (text, message) in [
        ("", "expected a value at byte 0, found the end"),
        ("[1,]", "expected a value at byte 3, found ']'"),
        ("[1 ,2]", "not canonical JSON at byte 2: space outside a string"),
        ("{}\n", "not canonical JSON at byte 2: space outside a string"),
        ("{} {}", "not canonical JSON at byte 2: space outside a string"),
        ("nullx", "expected the end of the document at byte 4, found 'x'"),
        ("NaN", "expected a value at byte 0, found 'N'"),
        (
            "-Infinity",
            "not canonical JSON at byte 0: a number must be in ECMAScript's shortest form",
        ),
        (
            "{\"b\":1,\"a\":2}",
            "not canonical JSON at byte 7: key \"a\" must come before \"b\"",
        ),
        ("{\"a\":1,\"a\":2}", "duplicate key \"a\""),
        ("{a:1}", "expected an object key at byte 1, found 'a'"),
        ("\"\\ud800\"", "lone surrogate escape at byte 1"),
        ("\"\\udc00\\ud800\"", "lone surrogate escape at byte 1"),
        (
            "\"\\ud83d\\ude00\"",
            "not canonical JSON at byte 1: only control characters are escaped, in their shortest form",
        ),
        (
            "\"\\u0061\"",
            "not canonical JSON at byte 1: only control characters are escaped, in their shortest form",
        ),
        (
            "\"\\u001F\"",
            "not canonical JSON at byte 1: only control characters are escaped, in their shortest form",
        ),
        (
            "\"\\u000a\"",
            "not canonical JSON at byte 1: only control characters are escaped, in their shortest form",
        ),
        ("\"\\/\"", "not canonical JSON at byte 1: '/' must not be escaped"),
        ("\"\\x\"", "expected an escape at byte 1, found '\\\\'"),
        (
            "\"a\nb\"",
            "expected an escape, as control characters need one at byte 2, found '\\n'",
        ),
        ("\"a", "expected the end of a string at byte 2, found the end"),
        (
            "\u{feff}{}",
            "not canonical JSON at byte 0: a byte order mark is not allowed",
        ),
    ] {
        assert_eq!(
            canonical::parse(text.as_bytes()).unwrap_err().to_string(),
            message,
            "{text:?}"
        );
    }
    assert_eq!(canonical::parse(b"\"\xff\""), Err(CanonicalError::NotUtf8 { at: 1 }));
    assert_eq!(
        canonical::parse(b"\"\xed\xa0\x80\""),
        Err(CanonicalError::NotUtf8 { at: 1 })
    );
}

#[test]
fn a_wrong_shape_names_the_field() {
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Point {
        #[expect(dead_code, reason = "only its absence matters")]
        x: u8,
    }
    let error = canonical::from_slice::<Point>(br#"{"x":1,"y":2}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `y`"), "{error}");
}

#[test]
fn digests_are_those_of_the_canonical_bytes() {
    assert_eq!(
        canonical::digest(&json!({})),
        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    );
    assert_eq!(
        canonical::digest(&json!({"b": 1.0, "a": []})),
        canonical::digest_bytes(br#"{"a":[],"b":1}"#)
    );
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_round_trips(value in any_value()) {
        let bytes = canonical::to_vec(&value).unwrap();
        prop_assert_eq!(canonical::write_value(&value), bytes.clone());
        let read = canonical::parse(&bytes).unwrap();
        prop_assert_eq!(canonical::write_value(&read), bytes.clone());
        prop_assert_eq!(&read, &canonical_numbers(value));
        // Another reader sees the same value.
        let other: Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(canonical::write_value(&other), bytes.clone());
        prop_assert_eq!(CanonicalJson::parse(&bytes).unwrap().to_value(), read);
    }

    #[test]
    fn only_the_canonical_bytes_are_accepted(value in any_value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let bytes = canonical::to_vec(&value).unwrap();
        let mut changed = bytes.clone();
        let at = at.index(changed.len());
        changed[at] = byte;
        // Whatever a changed byte makes of it: accepted bytes are the canonical form of what was read.
        if let Ok(read) = canonical::parse(&changed) {
            prop_assert_eq!(canonical::write_value(&read), changed.clone());
        }
        prop_assert_eq!(canonical::check(&changed).is_ok(), canonical::parse(&changed).is_ok());
        for end in [at, bytes.len() - 1] {
            if let Ok(read) = canonical::parse(&bytes[..end]) {
                prop_assert_eq!(canonical::write_value(&read), &bytes[..end]);
            }
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(read) = canonical::parse(&bytes) {
            prop_assert_eq!(canonical::write_value(&read), bytes);
        }
    }

    #[test]
    fn keys_are_ordered_by_utf16_units(mut keys in prop::collection::hash_set(any::<String>(), 2..6)) {
        keys.insert("\u{ffff}".into());
        keys.insert("\u{10000}".into());
        let map: BTreeMap<&String, u8> = keys.iter().map(|key| (key, 0)).collect();
        let mut expected: Vec<&String> = keys.iter().collect();
        expected.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
        let expected: Vec<String> = expected.iter().map(|key| format!("{}:0", canonical::to_string(key).unwrap())).collect();
        prop_assert_eq!(canonical::to_string(&map).unwrap(), format!("{{{}}}", expected.join(",")));
    }
}
