use serde_json::json;

use super::*;

#[test]
fn sorts_keys_by_utf16_units_and_keeps_nested_objects_together() {
    #[derive(Serialize)]
    struct Inner {
        z: u8,
        a: [u8; 2],
    }
    #[derive(Serialize)]
    struct Outer {
        second: Inner,
        first: &'static str,
    }
    let value = Outer {
        second: Inner { z: 1, a: [2, 3] },
        first: "x",
    };
    assert_eq!(
        to_string(&value).unwrap(),
        r#"{"first":"x","second":{"a":[2,3],"z":1}}"#
    );
    // U+FB33 comes after U+1F600 in UTF-16 although its bytes come before.
    let value =
        json!({"\u{fb33}": 1, "\u{1f600}": 2, "\u{80}": 3, "1": 4, "\r": 5, "</script>": 6, "\u{f6}": 7, "€": 8});
    assert_eq!(
        to_string(&value).unwrap(),
        "{\"\\r\":5,\"1\":4,\"</script>\":6,\"\u{80}\":3,\"\u{f6}\":7,\"€\":8,\"\u{1f600}\":2,\"\u{fb33}\":1}"
    );
}
