use serde_json::json;

use super::*;

fn record(output: &Value) -> Record<'_> {
    Record {
        node_id: "n",
        outcome: NodeOutcome::Ok,
        output: Output::Known(output),
        error: None,
        action: None,
        exit: None,
    }
}

/// The chosen case, or the message.
fn route(on: &str, output: &Value, labels: &[&str]) -> Result<String, String> {
    route_record(on, &record(output), labels)
}

fn route_record(on: &str, record: &Record<'_>, labels: &[&str]) -> Result<String, String> {
    let path = PathExpr::parse(on).map_err(|error| error.to_string())?;
    let order: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let cases: BTreeMap<String, String> = order.iter().map(|label| (label.clone(), label.clone())).collect();
    choose(&path, &cases, &order, record)
        .cloned()
        .map_err(|error| error.to_string())
}

#[test]
fn paths_follow_the_grammar() {
    for good in [
        "$",
        "$.a",
        "$.a-b.$x.0",
        "$output",
        "$output.a.b",
        "$result.outcome",
        "$result.error.message",
    ] {
        assert!(PathExpr::parse(good).is_ok(), "{good}");
    }
    let message = |text: &str| PathExpr::parse(text).unwrap_err().to_string();
    for bad in ["", "a", "$a", "output.a", "$input.a", ".a"] {
        assert!(message(bad).contains("must start with $, $output or $result"), "{bad}");
    }
    assert_eq!(
        message("$.a..b"),
        "path \"$.a..b\" has the bad part \"\"; parts are [A-Za-z0-9_$-]+ separated by single dots"
    );
    assert!(message("$.a[0]").contains("bad part \"a[0]\""));
    for bad in ["$result", "$result.outcom"] {
        assert!(
            message(bad)
                .ends_with("must name a field of the result record (action, error, exit, nodeId, outcome, output)")
        );
    }
    assert_eq!(
        message(&format!("$.{}", "a".repeat(5000))),
        "the path has 5002 bytes; at most 4096 are allowed"
    );
}

#[test]
fn texts_numbers_and_booleans_choose() {
    let labels = ["yes", "true", "false", "3", "0.5", "1e+21", "-1"];
    for (value, label) in [
        (json!("yes"), "yes"),
        (json!(true), "true"),
        (json!(false), "false"),
        (json!(3), "3"),
        (json!(3.0), "3"),
        (json!(0.5), "0.5"),
        (json!(1e21), "1e+21"),
        (json!(-1), "-1"),
        (json!("3"), "3"),
    ] {
        assert_eq!(
            route("$.r", &json!({ "r": value }), &labels),
            Ok(label.to_owned()),
            "{value}"
        );
    }
    assert_eq!(route("$", &json!("yes"), &labels), Ok("yes".to_owned()));
    assert_eq!(
        route("$output.a.1.b", &json!({ "a": [0, { "b": "yes" }] }), &labels),
        Ok("yes".to_owned())
    );
}

#[test]
fn an_unmatched_value_shows_path_value_and_cases() {
    assert_eq!(
        route("$.r", &json!({ "r": "maybe" }), &["yes", "no"]),
        Err("routing from \"n\": $.r is \"maybe\", which is none of the cases \"yes\", \"no\"".to_owned())
    );
    let labels: Vec<String> = (0..40).map(|index| format!("c{index}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let text = route("$.r", &json!({ "r": "x".repeat(5000) }), &labels).unwrap_err();
    assert!(text.ends_with("\"c11\" and 28 more") && text.len() < 500, "{text}");
    for (value, shown) in [
        (json!(null), "null"),
        (json!([1, 2]), "an array of 2"),
        (json!({ "a": 1 }), "an object with 1 keys"),
    ] {
        assert_eq!(
            route("$.r", &json!({ "r": value }), &["a"]),
            Err(format!(
                "routing from \"n\": $.r is {shown}, which is no text, number or boolean (cases: \"a\")"
            ))
        );
    }
}

#[test]
fn a_missing_path_shows_how_far_it_went() {
    assert_eq!(
        route("$.a.b.c", &json!({ "a": { "x": 1 } }), &["1"]),
        Err("routing from \"n\": $.a.b.c is missing: $output.a (an object) has no \"b\"".to_owned())
    );
    assert_eq!(
        route("$.a", &json!("text"), &["1"]),
        Err("routing from \"n\": $.a is missing: $output (a string) has no \"a\"".to_owned())
    );
    assert!(
        route("$.a.01", &json!({ "a": [1, 2] }), &["2"]).is_err(),
        "indices are canonical"
    );
    assert!(
        route("$.a.2", &json!({ "a": [1, 2] }), &["2"])
            .unwrap_err()
            .contains("$output.a (an array) has no \"2\"")
    );
    assert_eq!(
        route("$result.error.message", &json!(null), &["1"]),
        Err("routing from \"n\": $result.error.message is missing: the result record has no \"error\"".to_owned())
    );
}

#[test]
fn the_result_record_can_be_read() {
    let error = ErrorInfo {
        code: Some("nodeFailed".into()),
        message: "broken".into(),
        stack: None,
    };
    let output = json!(null);
    let mut failed = record(&output);
    failed.outcome = NodeOutcome::TimedOut;
    failed.error = Some(&error);
    let ask = |on: &str, label: &str| route_record(on, &failed, &[label]);
    assert_eq!(ask("$result.outcome", "timed_out"), Ok("timed_out".into()));
    assert_eq!(ask("$result.error.code", "nodeFailed"), Ok("nodeFailed".into()));
    assert_eq!(ask("$result.error.message", "broken"), Ok("broken".into()));
    assert_eq!(ask("$result.nodeId", "n"), Ok("n".into()));
    assert_eq!(
        ask("$result.error.lost", "x"),
        Err("routing from \"n\": $result.error.lost is missing: $result.error (an object) has no \"lost\"".into())
    );
    let action = ActionReceipt {
        action_type: "shell".into(),
        command: None,
        args: None,
        cwd: None,
        exit_code: Some(2),
        signal: None,
        duration_ms: None,
        stdout: None,
        stderr: None,
        stdout_truncated: false,
        stderr_truncated: false,
    };
    failed.action = Some(&action);
    assert_eq!(route_record("$result.action.exitCode", &failed, &["2"]), Ok("2".into()));
}

#[test]
fn an_output_that_was_not_loaded_is_asked_for() {
    let output = json!(null);
    let mut stored = record(&output);
    stored.output = Output::NotLoaded;
    let text = route_record("$.r", &stored, &["a"]).unwrap_err();
    assert_eq!(text, "routing from \"n\": $.r reads the output, which was not loaded");
    assert_eq!(route_record("$result.outcome", &stored, &["ok"]), Ok("ok".into()));
    assert!(PathExpr::parse("$result.output.r").unwrap().reads_output());
    assert!(!PathExpr::parse("$result.outcome").unwrap().reads_output());
}

proptest::proptest! {
    /// Routing answers for any path and value, and a chosen case is always one of the cases.
    #[test]
    fn routing_is_total(path in "(\\$|\\$output|\\$result)?(\\.[a-c0-2]{1,2}|\\.outcome|\\.output|\\..)*", seed in 0u64..1000) {
        let leaf = [json!(null), json!(true), json!(1), json!("a"), json!(["a", 2]), json!({ "a": "b" })];
        let pick = |shift: u32| leaf[(seed >> shift) as usize % leaf.len()].clone();
        let output = json!({ "a": pick(0), "b": { "a": pick(2), "c": pick(4) }, "1": [pick(1), pick(3)] });
        let labels = ["a", "b", "1", "true", "ok"];
        if let Ok(case) = route(&path, &output, &labels) {
            proptest::prop_assert!(labels.contains(&case.as_str()));
        }
    }

    /// Any text is judged, and an accepted one is kept as written.
    #[test]
    fn any_path_is_judged(path in ".{0,40}") {
        if let Ok(parsed) = PathExpr::parse(&path) {
            proptest::prop_assert_eq!(parsed.as_str(), path);
        }
    }
}
