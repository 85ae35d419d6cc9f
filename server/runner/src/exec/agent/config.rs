//! Which agent executes headless steps: an environment variable, else the user's configuration file.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Value};

/// Names the agent command: a JSON array of texts, or words separated by spaces.
const COMMAND: &str = "PIW_AGENT_COMMAND";
/// Most words of a command.
const WORDS: usize = 256;

/// Where the user's configuration file is: `PIW_CONFIG_PATH`, else `piw/config.toml` in `XDG_CONFIG_HOME` or `~/.config`.
#[must_use]
pub fn path(var: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("PIW_CONFIG_PATH").or_else(|| {
        let base = set("XDG_CONFIG_HOME").filter(|base| base.is_absolute());
        base.or_else(|| set("HOME").map(|home| home.join(".config")))
            .map(|base| base.join("piw/config.toml"))
    })
}

/// The command of this process's user, program first, found and executable.
///
/// # Errors
/// A sentence for that user: none is configured, it is configured wrongly, or it is not there.
pub(crate) fn command() -> Result<Vec<String>, String> {
    let var = |name: &str| std::env::var(name).ok();
    let file = path(var);
    let (from, command) = match var(COMMAND).filter(|text| !text.trim().is_empty()) {
        Some(text) => (COMMAND.to_owned(), of_variable(&text)?),
        None => match file.as_deref().map(of_file).transpose()?.flatten() {
            Some((from, command)) => (from, command),
            None => return Err(none(file.as_deref())),
        },
    };
    checked(&from, &command)?;
    look_up(&command[0], std::env::var_os("PATH")).map_err(|why| format!("{from}: {why}"))?;
    Ok(command)
}

fn none(file: Option<&Path>) -> String {
    let place = file.map_or_else(
        || "the configuration file".to_owned(),
        |file| file.display().to_string(),
    );
    format!(
        "no agent is configured; write `[agent]` and `command = [\"claude\", \"-p\"]` (any command that reads a prompt and prints \
         JSON) into {place}, or set {COMMAND} where the server is started"
    )
}

fn of_variable(text: &str) -> Result<Vec<String>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("{COMMAND} is no JSON array of texts: {error}"));
    }
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The command and the name of its place; `None` when the file does not exist or says nothing of an agent.
fn of_file(path: &Path) -> Result<Option<(String, Vec<String>)>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => of_text(&text, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn of_text(text: &str, path: &Path) -> Result<Option<(String, Vec<String>)>, String> {
    let wrong = |why: &str| Err(format!("{}: {why}", path.display()));
    let document = match text.parse::<DocumentMut>() {
        Ok(document) => document,
        Err(error) => return wrong(error.to_string().lines().next().unwrap_or_default()),
    };
    let Some(agent) = document.get("agent") else {
        return Ok(None);
    };
    let Some(table) = agent.as_table_like() else {
        return wrong("agent must be a table");
    };
    if let Some((other, _)) = table.iter().find(|(name, _)| *name != "command") {
        return wrong(&format!("agent.{other} is unknown; an agent has command"));
    }
    let words = table.get("command").and_then(Item::as_array).and_then(|words| {
        let texts = words.iter().map(|word| Value::as_str(word).map(str::to_owned));
        texts.collect::<Option<Vec<_>>>()
    });
    match words {
        Some(words) => Ok(Some((format!("agent.command in {}", path.display()), words))),
        None => wrong("agent.command must be a list of texts: the program and its arguments"),
    }
}

fn checked(from: &str, command: &[String]) -> Result<(), String> {
    match command {
        [] => Err(format!("{from} is empty; it must name a program")),
        [program, ..] if program.is_empty() => Err(format!("{from} names an empty program")),
        words if words.len() > WORDS => Err(format!("{from} has {} words; at most {WORDS} are allowed", words.len())),
        words if words.iter().any(|word| word.contains('\0')) => Err(format!("{from} holds a NUL character")),
        _ => Ok(()),
    }
}

/// Whether the program is there: an absolute path, or a name on `PATH`.
fn look_up(program: &str, search: Option<OsString>) -> Result<(), String> {
    let executable = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return match Path::new(program) {
            path if !path.is_absolute() => Err(format!(
                "the agent \"{program}\" must be a name that is on PATH or an absolute path"
            )),
            path if executable(path) => Ok(()),
            _ => Err(format!("the agent {program} does not exist or cannot be executed")),
        };
    }
    let found = search.is_some_and(|search| std::env::split_paths(&search).any(|dir| executable(&dir.join(program))));
    if found {
        Ok(())
    } else {
        Err(format!("the agent \"{program}\" is not on the server's PATH"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn a_variable_is_words_or_json() {
        assert_eq!(of_variable(" claude  -p ").unwrap(), words(&["claude", "-p"]));
        assert_eq!(of_variable("[\"a b\", \"\"]").unwrap(), words(&["a b", ""]));
        assert!(of_variable("[1]").unwrap_err().contains("no JSON array of texts"));
    }

    #[test]
    fn the_file_is_read_and_its_faults_are_named() {
        let read = |text: &str| of_text(text, Path::new("/c.toml"));
        let (from, command) = read("[theme]\nname = 'x'\n[agent]\ncommand = ['claude', '-p']\n")
            .unwrap()
            .unwrap();
        assert_eq!(
            (from.as_str(), command),
            ("agent.command in /c.toml", words(&["claude", "-p"]))
        );
        assert_eq!(read("[theme]\nname = 'x'\n").unwrap(), None);
        for (text, said) in [
            ("agent = 3", "agent must be a table"),
            ("[agent]\ncmd = 'x'", "agent.cmd is unknown"),
            ("[agent]\ncommand = 'claude -p'", "must be a list of texts"),
            ("[agent]\ncommand = ['a', 1]", "must be a list of texts"),
            ("[agent]", "must be a list of texts"),
            ("[agent", "/c.toml: "),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn commands_without_a_program_are_refused() {
        for (command, said) in [
            (words(&[]), "is empty"),
            (words(&["", "x"]), "empty program"),
            (words(&["a", "b\0"]), "NUL"),
            (words(&["x"; WORDS + 1]), "at most 256"),
        ] {
            assert!(checked("here", &command).unwrap_err().contains(said), "{command:?}");
        }
        assert_eq!(checked("here", &words(&["a", ""])), Ok(()));
    }

    #[test]
    fn a_program_is_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let search = || Some(OsString::from(dir.path()));
        let program = dir.path().join("agent");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        assert!(
            look_up("agent", search())
                .unwrap_err()
                .contains("not on the server's PATH")
        );
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(look_up("agent", search()), Ok(()));
        assert_eq!(look_up(program.to_str().unwrap(), None), Ok(()));
        assert!(look_up("./agent", search()).unwrap_err().contains("absolute path"));
        assert!(look_up("/no/such", search()).unwrap_err().contains("does not exist"));
    }

    #[test]
    fn the_files_place_follows_the_environment() {
        let place = |pairs: &[(&str, &str)]| {
            path(|name| {
                pairs
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(place(&[("HOME", "/h")]), Some("/h/.config/piw/config.toml".into()));
        assert_eq!(
            place(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]),
            Some("/x/piw/config.toml".into())
        );
        assert_eq!(
            place(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "")]),
            Some("/h/.config/piw/config.toml".into())
        );
        assert_eq!(place(&[("PIW_CONFIG_PATH", "/f"), ("HOME", "/h")]), Some("/f".into()));
        assert_eq!(place(&[]), None);
    }
}
