//! The declarations against the real TypeScript compiler: the example workflows, those of the authoring
//! guide, and one file that uses the whole SDK type-check.
//!
//! Needs `tsc`: from `PIW_TSC`, from `target/typescript/node_modules/.bin/tsc` (`npm install --prefix target/typescript
//! typescript@5`), or from `PATH`. Without one the test says so and passes.

use std::path::{Path, PathBuf};
use std::process::Command;

fn compiler(root: &Path) -> Option<PathBuf> {
    let given = std::env::var_os("PIW_TSC").map(PathBuf::from);
    let installed = root.join("target/typescript/node_modules/.bin/tsc");
    let candidates = [given, Some(installed), Some(PathBuf::from("tsc"))];
    candidates.into_iter().flatten().find(|tsc| {
        Command::new(tsc)
            .arg("--version")
            .output()
            .is_ok_and(|done| done.status.success())
    })
}

#[test]
fn examples_type_check() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Some(tsc) = compiler(&root) else {
        eprintln!("skipped: no TypeScript compiler (npm install --prefix target/typescript typescript@5)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("types")).unwrap();
    for (name, text) in piw_runner::sdk::DECLARATIONS {
        std::fs::write(dir.path().join("types").join(name), text).unwrap();
    }
    for place in ["assets/init", "assets/workflows", "server/runner/tests/types"] {
        for file in std::fs::read_dir(root.join(place)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
    }
    let guide = ["docs/authoring.md", "docs/agents.md"].map(|name| std::fs::read_to_string(root.join(name)).unwrap());
    for block in guide.iter().flat_map(|text| text.split("```ts\n").skip(1)) {
        let text = block.split("```").next().unwrap();
        let name = text.lines().next().unwrap().trim_start_matches("// ");
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let done = Command::new(tsc)
        .args(["-p", "."])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
