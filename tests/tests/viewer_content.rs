//! Content that is not what the view says it is: an error on that value alone, and never a byte of it on the screen.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use piw_protocol::canonical::sha256_hex;
use piw_tests::home::Home;
use piw_tests::liar::{Liar, references};
use piw_tests::terminal::Terminal;
use serde_json::{Value, json};

/// Two large values: one that is lied about, of more than one chunk, and one that is not.
const LARGE: &str = r#"
import { compute, defineWorkflow } from "piw";
export default defineWorkflow({
  name: "large",
  title: "Large values",
  startAt: "doubtful",
  nodes: {
    doubtful: compute({ run: () => ({ text: "DOUBTFUL ".repeat(80_000) }) }),
    honest: compute({ run: () => ({ mark: "HONEST", parts: Array(9_000).fill(0) }) }),
  },
  edges: [{ from: "doubtful", to: "honest" }],
});
"#;

/// The reference of a node's output in a run view.
fn output(view: &Value, node: &str) -> Value {
    let steps = view["state"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["nodeId"] == node).unwrap();
    step["output"]["$artifact"].clone()
}

/// Opens a run of [`LARGE`] with both steps unfolded.
fn opened(home: &Home, run_id: &str) -> Terminal {
    let mut viewer = Terminal::start(home, &[run_id], 50, 200);
    viewer.wait("the run is shown", |screen| {
        screen.contains("Large values") && screen.contains("2 steps")
    });
    // From the newest step to the first, so that opening moves nothing that is clicked later.
    viewer.send(b"\t");
    viewer.send(b"\r");
    viewer.wait("one step is open", |screen| {
        screen.matches("Enter loads it").count() == 1
    });
    viewer.send(b"g\r");
    viewer.wait("both are", |screen| screen.matches("Enter loads it").count() == 2);
    viewer
}

fn replaced(chunk: &mut Value, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let data = BASE64_STANDARD.decode(chunk["data"].as_str().unwrap()).unwrap();
    chunk["data"] = json!(BASE64_STANDARD.encode(change(data)));
}

/// Changes a content chunk of the doubtful value.
type ChunkLie = fn(&mut Value);

#[test]
fn a_lie_about_content_is_an_error_on_that_value_alone() {
    let mut home = Home::new();
    home.workflow("large", LARGE);
    let run_id = home.piw(&["run", "large", "--json"]).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    let reference = output(&home.show(&run_id), "doubtful");
    let sha256 = reference["sha256"].as_str().unwrap().to_owned();
    assert!(reference["bytes"].as_u64().unwrap() > 512 * 1024, "more than one chunk");
    let liar = Liar::new(&home);
    home.set("PIW_SOCKET", Some(liar.socket().to_str().unwrap()));
    let lies: [(&str, ChunkLie, &str); 13] = [
        (
            "another byte",
            |chunk| {
                replaced(chunk, |mut data| {
                    data[20] ^= 1;
                    data
                });
            },
            "SHA-256",
        ),
        (
            "another digest",
            |chunk| chunk["sha256"] = json!("0".repeat(64)),
            "sha256 is",
        ),
        ("another length", |chunk| chunk["bytes"] = json!(7), "bytes is 7"),
        (
            "another media type",
            |chunk| chunk["mediaType"] = json!("text/plain; charset=utf-8"),
            "mediaType is",
        ),
        (
            "another path",
            |chunk| chunk["path"] = json!("artifacts/sha256/x.json"),
            "path is",
        ),
        (
            "another run",
            |chunk| chunk["runId"] = json!("another-run"),
            "runId is another-run",
        ),
        ("another schema", |chunk| chunk["schema"] = json!("x"), "schema is x"),
        (
            "an early end",
            |chunk| chunk["complete"] = json!(true),
            "complete is true",
        ),
        (
            "less than it says",
            |chunk| replaced(chunk, |data| data[..data.len() / 2].to_vec()),
            "nextOffset is",
        ),
        (
            "no end",
            |chunk| {
                let next = chunk["offset"].as_u64().unwrap() + 512 * 1024;
                chunk["data"] = json!(BASE64_STANDARD.encode(vec![b'D'; 512 * 1024]));
                chunk["nextOffset"] = json!(next);
                chunk["complete"] = json!(false);
            },
            "at most",
        ),
        (
            "the second part first",
            |chunk| chunk["offset"] = json!(512 * 1024),
            "offset is",
        ),
        ("nothing", |chunk| chunk["data"] = json!(""), "0 bytes"),
        (
            "no base64",
            |chunk| chunk["data"] = json!("\u{1b}[31mDOUBTFUL"),
            "base64",
        ),
    ];
    for (name, lie, said) in lies {
        let doubtful = reference["path"].clone();
        liar.tell(move |message, content| {
            if content && message["receipt"]["path"] == doubtful {
                lie(&mut message["receipt"]);
            }
        });
        judge(&home, &run_id, name, said);
    }
    // Bytes whose digest is right and that are not what their media type says.
    for (name, bytes) in [
        ("no JSON", b"DOUBTFUL \x1b[31m{".as_slice()),
        ("no UTF-8", b"\"DOUBTFUL \xff\""),
    ] {
        let digest = sha256_hex(bytes);
        let path = format!("artifacts/sha256/{digest}.json");
        let honest = json!({"path": path, "mediaType": "application/json", "bytes": bytes.len(), "sha256": digest});
        let (data, sha256, doubtful, asked) = (
            BASE64_STANDARD.encode(bytes),
            sha256.clone(),
            reference["path"].clone(),
            honest.clone(),
        );
        let run = run_id.clone();
        liar.tell(move |message, content| {
            if content && message["receipt"].get("path").is_none_or(|path| *path == doubtful) {
                let mut chunk = asked.clone();
                for (field, value) in [
                    ("schema", json!("pi-workflows.content-chunk.v1")),
                    ("runId", json!(run)),
                    ("offset", json!(0)),
                    ("nextOffset", asked["bytes"].clone()),
                    ("complete", json!(true)),
                    ("data", json!(data)),
                ] {
                    chunk[field] = value;
                }
                message["outcome"] = json!("accepted");
                message["receipt"] = chunk;
                message.as_object_mut().unwrap().remove("error");
            } else if !content {
                references(message, &sha256, &|reference| *reference = asked.clone());
            }
        });
        judge(&home, &run_id, name, "not JSON");
    }
}

/// Loads the value that is lied about, then the other one.
fn judge(home: &Home, run_id: &str, name: &str, said: &str) {
    let mut viewer = opened(home, run_id);
    viewer.click("Enter loads it");
    viewer.wait(&format!("{name}: the error is on the value"), |screen| {
        screen.contains(said)
    });
    viewer.click("Enter loads it");
    viewer.wait(&format!("{name}: the other value is shown"), |screen| {
        screen.contains("verified") && screen.contains("HONEST")
    });
    let screen = viewer.screen();
    assert!(screen.contains(said), "{name}: the error stays\n{screen}");
    assert!(
        screen.contains("latest") && !screen.contains("stale"),
        "{name}: the view is live\n{screen}"
    );
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0, "{name}");
    let written = String::from_utf8_lossy(viewer.written()).into_owned();
    assert!(!written.contains("DOUBTFUL"), "{name}: unverified bytes were drawn");
}

#[test]
fn a_definition_that_is_not_the_one_asked_for_is_not_drawn() {
    let mut home = Home::new();
    let names: Vec<String> = (0..400).map(|at| format!("node-with-a-long-name-{at}")).collect();
    let nodes: String = names
        .iter()
        .map(|name| format!("\"{name}\": compute({{ run: () => 1 }}),\n"))
        .collect();
    let edges: String = names
        .windows(2)
        .map(|pair| format!("{{ from: \"{}\", to: \"{}\" }},\n", pair[0], pair[1]))
        .collect();
    home.workflow(
        "long",
        &format!(
            "import {{ compute, defineWorkflow }} from 'piw';\nexport default defineWorkflow({{ name: 'long', title: 'A long one', \
             startAt: '{}', maxSteps: 1000, nodes: {{ {nodes} }}, edges: [{edges}] }});",
            names[0]
        ),
    );
    let run_id = home.piw(&["run", "long", "--json"]).exits(0).json()["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    let view = home.show(&run_id);
    let reference = view["workflow"]["content"]["$artifact"].clone();
    assert!(reference.is_object(), "the definition is content: {}", view["workflow"]);
    let liar = Liar::new(&home);
    home.set("PIW_SOCKET", Some(liar.socket().to_str().unwrap()));
    liar.tell(|message, content| {
        if content {
            let data = BASE64_STANDARD
                .decode(message["receipt"]["data"].as_str().unwrap())
                .unwrap();
            let lied = String::from_utf8(data).unwrap().replace("node-with-a", "evil-with-a");
            message["receipt"]["data"] = json!(BASE64_STANDARD.encode(lied));
        }
    });
    let mut viewer = Terminal::start(&home, &[&run_id], 50, 200);
    viewer.wait("the definition is refused", |screen| screen.contains("SHA-256"));
    viewer.send(b"4");
    viewer.wait("the rest is shown", |screen| {
        screen.contains("A long one") && screen.contains("latest")
    });
    viewer.send(b"q");
    assert_eq!(viewer.wait_for_exit(), 0);
    assert!(!String::from_utf8_lossy(viewer.written()).contains("evil-with"));
    let refused = home.piw(&[run_id.as_str(), "--once"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("SHA-256"), "{}", refused.stderr);
    assert!(!refused.stdout.contains("evil-with"));
}
