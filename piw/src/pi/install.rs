//! Putting the extension where Pi finds it, and taking it away.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The extension, with the place of this program left open.
const EXTENSION: &str = include_str!("../../../assets/pi-extension/index.ts");
const PROGRAM: &str = "@PIW_PROGRAM@";
/// Names Pi's agent directory, instead of `~/.pi/agent`.
const AGENT_DIR_VAR: &str = "PI_CODING_AGENT_DIR";

/// What is where the extension belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Installed {
    /// Nothing.
    Missing,
    /// This version's extension, and it starts this program.
    Current,
    /// An extension of piw of another version, or one that starts another program.
    Other,
    /// Something that piw did not write.
    Foreign,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was written.
    Written,
    /// It was there already.
    Unchanged,
    /// It was removed.
    Removed,
    /// There was nothing to remove.
    Absent,
}

/// Pi's agent directory.
///
/// # Errors
/// A sentence when the environment names none.
pub(crate) fn agent_dir() -> Result<PathBuf, String> {
    place(std::env::var_os(AGENT_DIR_VAR), std::env::var_os("HOME"))
}

fn place(agent: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, String> {
    let set = |value: Option<OsString>| value.filter(|text| !text.is_empty()).map(PathBuf::from);
    match (set(agent), set(home)) {
        (Some(dir), Some(home)) => Ok(match dir.strip_prefix("~") {
            Ok(rest) => home.join(rest),
            Err(_) => dir,
        }),
        (Some(dir), None) => Ok(dir),
        (None, Some(home)) => Ok(home.join(".pi/agent")),
        (None, None) => Err(format!(
            "no agent directory of Pi: neither {AGENT_DIR_VAR} nor HOME is set"
        )),
    }
}

/// The file of the extension in an agent directory.
pub(crate) fn file(agent: &Path) -> PathBuf {
    agent.join("extensions/piw/index.ts")
}

/// The extension that starts `program`.
///
/// # Errors
/// A sentence when the path of the program cannot stand in a text.
pub(crate) fn extension(program: &Path) -> Result<String, String> {
    let path = program
        .to_str()
        .ok_or_else(|| format!("the path of this program is not UTF-8: {}", program.display()))?;
    let quoted = serde_json::to_string(path).map_err(|error| error.to_string())?;
    Ok(EXTENSION.replace(&format!("\"{PROGRAM}\""), &quoted))
}

/// What is installed, compared with the extension that starts `program`.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn installed(agent: &Path, wanted: &str) -> io::Result<Installed> {
    match fs::read_to_string(file(agent)) {
        Ok(found) if found == wanted => Ok(Installed::Current),
        Ok(found) if is_ours(&found) => Ok(Installed::Other),
        Ok(_) => Ok(Installed::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Installed::Missing),
        Err(error) => Err(error),
    }
}

fn is_ours(text: &str) -> bool {
    EXTENSION.lines().next().is_some_and(|first| text.starts_with(first))
}

/// Writes the extension, whole or not at all.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn install(agent: &Path, wanted: &str) -> Result<Change, String> {
    let path = file(agent);
    let failed = |error: &io::Error| format!("cannot write {}: {error}", path.display());
    match installed(agent, wanted).map_err(|error| failed(&error))? {
        Installed::Current => return Ok(Change::Unchanged),
        Installed::Foreign => {
            return Err(format!("{} was not written by piw: move it away first", path.display()));
        }
        Installed::Missing | Installed::Other => {}
    }
    let dir = agent.join("extensions/piw");
    fs::create_dir_all(&dir).map_err(|error| failed(&error))?;
    let mut written = tempfile::NamedTempFile::new_in(&dir).map_err(|error| failed(&error))?;
    written.write_all(wanted.as_bytes()).map_err(|error| failed(&error))?;
    written.persist(&path).map_err(|error| failed(&error.error))?;
    Ok(Change::Written)
}

/// Removes the extension and its directory when that is empty then.
///
/// # Errors
/// A sentence that names the file.
pub(crate) fn uninstall(agent: &Path) -> Result<Change, String> {
    let path = file(agent);
    let failed = |error: &io::Error| format!("cannot remove {}: {error}", path.display());
    match installed(agent, "").map_err(|error| failed(&error))? {
        Installed::Missing => return Ok(Change::Absent),
        Installed::Foreign => {
            return Err(format!("{} was not written by piw: it is left alone", path.display()));
        }
        Installed::Current | Installed::Other => {}
    }
    fs::remove_file(&path).map_err(|error| failed(&error))?;
    // Whatever else somebody put there stays.
    drop(fs::remove_dir(agent.join("extensions/piw")));
    Ok(Change::Removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_written_once_replaced_when_it_differs_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path();
        let wanted = extension(Path::new("/opt/piw \"x\"")).unwrap();
        assert!(
            wanted.contains(r#"const INSTALLED = "/opt/piw \"x\"";"#),
            "the path is a JavaScript text"
        );
        assert_eq!(installed(agent, &wanted).unwrap(), Installed::Missing);
        assert_eq!(install(agent, &wanted), Ok(Change::Written));
        assert_eq!(install(agent, &wanted), Ok(Change::Unchanged));
        let other = extension(Path::new("/usr/bin/piw")).unwrap();
        assert_eq!(installed(agent, &other).unwrap(), Installed::Other);
        assert_eq!(install(agent, &other), Ok(Change::Written));
        assert_eq!(uninstall(agent), Ok(Change::Removed));
        assert!(!agent.join("extensions/piw").exists());
        assert_eq!(uninstall(agent), Ok(Change::Absent));
    }

    #[test]
    fn what_piw_did_not_write_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "export default function () {}").unwrap();
        assert!(install(dir.path(), "x").unwrap_err().contains("was not written by piw"));
        assert!(uninstall(dir.path()).unwrap_err().contains("left alone"));
        assert!(path.exists());
    }

    #[test]
    fn the_agent_directory_is_found_as_pi_finds_it() {
        let os = |text: &str| Some(OsString::from(text));
        assert_eq!(place(None, os("/h")).unwrap(), Path::new("/h/.pi/agent"));
        assert_eq!(place(os("/a"), os("/h")).unwrap(), Path::new("/a"));
        assert_eq!(place(os("~/a"), os("/h")).unwrap(), Path::new("/h/a"));
        assert!(place(None, None).is_err());
    }
}
