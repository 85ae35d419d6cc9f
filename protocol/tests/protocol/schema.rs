//! The JSON Schema documents: current, and of one mind with the corpus.

use std::path::Path;

use serde_json::Value;

use crate::corpus::{Sender, manifest};

/// Set to write the documents instead of comparing them.
const UPDATE: &str = "UPDATE_SCHEMA";

#[test]
fn the_checked_in_documents_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let mut names = Vec::new();
    for (name, document) in piw_protocol::schema::documents() {
        let path = folder.join(name);
        if std::env::var_os(UPDATE).is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, serde_json::to_string_pretty(&document).unwrap() + "\n").unwrap();
        }
        // Values, not texts: another crate of the same build can make serde_json keep the order of insertion.
        let found = std::fs::read(&path).unwrap_or_default();
        let found: Value = serde_json::from_slice(&found).unwrap_or_default();
        assert!(
            found == document,
            "schema/{name} is not current: run the tests with {UPDATE}=1 and commit it"
        );
        names.push(name.to_owned());
    }
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, names);
}

#[test]
fn the_schema_and_the_corpus_agree() {
    // What a schema cannot say: lengths in bytes instead of characters, what is true of a whole batch.
    const BEYOND: &[&str] = &[
        "invalid/id-258-bytes-of-129-characters.json",
        "invalid/payload-session-entry-not-settled.json",
        "invalid/payload-session-entry-twice.json",
    ];
    let documents = piw_protocol::schema::documents();
    let validator = |name: &str| {
        let (_, document) = documents.iter().find(|(found, _)| *found == name).unwrap();
        jsonschema::validator_for(document).unwrap()
    };
    let (requests, messages) = (validator("request.json"), validator("server-message.json"));
    let mut judged = 0;
    for (entry, frame) in manifest() {
        let Ok(value) = piw_protocol::canonical::parse(&frame) else {
            continue;
        };
        let validator = if entry.from == Sender::Client {
            &requests
        } else {
            &messages
        };
        let valid = entry.error.is_none() && entry.payload_error.is_none();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        if valid || !BEYOND.contains(&entry.file.as_str()) {
            assert_eq!(errors.is_empty(), valid, "{}: {errors:?}", entry.file);
        }
        judged += 1;
    }
    assert!(judged > 100, "{judged}");
    let other: Value = serde_json::json!({"schema": "pi-workflows.client.v1", "type": "request"});
    assert!(!messages.is_valid(&other));
}
