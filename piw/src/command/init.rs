//! `piw init` and `piw types`: a first workflow, examples, and the editor's types.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use piw_runner::{builtin, sdk};

use super::output;
use crate::cli::{InitArgs, TypesArgs};
use crate::failure::{Exit, Failure, Outcome};

/// The first workflow that `piw init` writes.
const FIRST: &str = include_str!("../../../assets/init/hello.workflow.ts");
/// Compiler options under which editors check workflows.
const TSCONFIG: &str = include_str!("../../../assets/init/tsconfig.json");
const DIR: &str = ".pi/workflows";

/// Writes a first workflow, the asked examples and the types into `.pi/workflows/`.
///
/// # Errors
/// An unknown example, or a directory that cannot be written.
pub fn run(args: &InitArgs) -> Outcome {
    let mut files = vec![("hello.workflow.ts".to_owned(), FIRST.as_bytes().to_vec())];
    for name in &args.example {
        let found = builtin::find(name).ok_or_else(|| {
            let known: Vec<_> = builtin::all().iter().map(|example| example.id).collect();
            Failure::new(Exit::NotFound, format!("no example is called {name:?}"))
                .hint(format!("examples: {}", known.join(", ")))
        })?;
        files.push((format!("{}.workflow.ts", found.id), found.bytes.to_vec()));
    }
    let dir = PathBuf::from(DIR);
    let mut said = Vec::new();
    for (name, bytes) in files {
        said.push(write(&dir.join(name), &bytes, args.force)?);
    }
    said.extend(write_types(&dir)?);
    let next = args.example.first().map_or("hello", String::as_str);
    output::text(&format!("{}\n\nnext: piw run {next}\n", said.join("\n")))?;
    Ok(Exit::Done)
}

/// Writes the declarations of the SDK and a `tsconfig.json` for the workflows beside them.
///
/// # Errors
/// When the directory cannot be written.
pub fn types(args: &TypesArgs) -> Outcome {
    let said = write_types(&args.dir)?;
    output::text(&format!("{}\n", said.join("\n")))?;
    Ok(Exit::Done)
}

/// Types are generated: they are replaced whenever they differ. A `tsconfig.json` belongs to the user once it exists.
fn write_types(dir: &Path) -> Result<Vec<String>, Failure> {
    let mut said = Vec::new();
    for (name, text) in sdk::DECLARATIONS {
        said.push(write(&dir.join("types").join(name), text.as_bytes(), true)?);
    }
    said.push(write(&dir.join("tsconfig.json"), TSCONFIG.as_bytes(), false)?);
    Ok(said)
}

/// Writes a file unless it exists with the same or, without `replace`, with any content. Says what it did.
fn write(path: &Path, bytes: &[u8], replace: bool) -> Result<String, Failure> {
    let failed =
        |error: &std::io::Error| Failure::new(Exit::Failed, format!("cannot write {}: {error}", path.display()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| failed(&error))?;
    }
    match fs::read(path) {
        Ok(known) if known == bytes => return Ok(format!("  unchanged  {}", path.display())),
        Ok(_) if !replace => return Ok(format!("  kept       {} (--force replaces it)", path.display())),
        _ => {}
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(|error| failed(&error))?;
    file.write_all(bytes).map_err(|error| failed(&error))?;
    file.persist(path).map_err(|error| failed(&error.error))?;
    Ok(format!("  wrote      {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_are_kept_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.txt");
        assert!(write(&path, b"one", false).unwrap().contains("wrote"));
        assert!(write(&path, b"one", false).unwrap().contains("unchanged"));
        assert!(write(&path, b"two", false).unwrap().contains("kept"));
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert!(write(&path, b"two", true).unwrap().contains("wrote"));
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }
}
