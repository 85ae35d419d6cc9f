//! Embeds the workflows of `assets/workflows/`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Ending of the file names that are embedded; the rest is the workflow's id.
const ENDING: &str = ".workflow.ts";

fn main() -> Result<(), Box<dyn Error>> {
    let assets = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../assets/workflows");
    println!("cargo::rerun-if-changed={}", assets.display());
    let mut files: Vec<PathBuf> = match fs::read_dir(&assets) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    files.sort();
    let mut table = String::from("&[\n");
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(id) = name.strip_suffix(ENDING) {
            writeln!(table, "    ({id:?}, include_bytes!({:?})),", fs::canonicalize(&path)?)?;
        }
    }
    table.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("builtin.rs"), table)?;
    Ok(())
}
