//! The binary with fail points.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The binary under torture: `PIW_TORTURE_BIN`, else the debug build of `piw-failpoints`, which has a name of its own, so that
/// no other build is replaced.
///
/// # Errors
/// When the build fails, or the given file does not exist.
pub fn with_failpoints() -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os("PIW_TORTURE_BIN") {
        let path = PathBuf::from(given);
        return path
            .canonicalize()
            .map_err(|error| format!("PIW_TORTURE_BIN: {}: {error}", path.display()));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("the tests crate lies in the workspace")?;
    let build = [
        "build",
        "--quiet",
        "--package",
        "piw",
        "--features",
        "failpoints",
        "--bin",
        "piw-failpoints",
    ];
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(build)
        .status()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !status.success() {
        return Err(format!("cargo {} failed", build.join(" ")));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("debug/piw-failpoints"))
}
