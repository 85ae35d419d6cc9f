//! Which agent executes headless steps: an environment variable, else the user's configuration file.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use piw_engine::{Definition, Node};
use piw_protocol::definition::NodeType;
use toml_edit::{DocumentMut, Item, Value};

/// Names the agent command: a JSON array of texts, or words separated by spaces.
const COMMAND: &str = "PIW_AGENT_COMMAND";
/// Names Pi, and arguments for it, in the same form.
const PI_COMMAND: &str = "PIW_PI_COMMAND";
/// The agent when none is configured, if it is on `PATH`.
const PI: &str = "pi";
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

/// An agent, program first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Agent {
    /// Any command that reads a prompt and prints JSON.
    Command(Vec<String>),
    /// The Pi coding agent.
    Pi(Vec<String>),
}

impl Agent {
    fn words(&self) -> &[String] {
        match self {
            Self::Command(words) | Self::Pi(words) => words,
        }
    }
}

/// The agent of this process's user, found and executable.
///
/// # Errors
/// A sentence for that user: none is configured, it is configured wrongly, or it is not there.
pub(crate) fn agent() -> Result<Agent, String> {
    let var = |name: &str| std::env::var(name).ok();
    let search = std::env::var_os("PATH");
    let file = path(var);
    let set = |name: &str| var(name).filter(|text| !text.trim().is_empty());
    let configured = match (set(COMMAND), set(PI_COMMAND)) {
        (Some(text), _) => Some((COMMAND.to_owned(), Agent::Command(of_variable(COMMAND, &text)?))),
        (None, Some(text)) => Some((PI_COMMAND.to_owned(), Agent::Pi(of_variable(PI_COMMAND, &text)?))),
        (None, None) => file.as_deref().map(of_file).transpose()?.flatten(),
    };
    let Some((from, agent)) = configured else {
        return match look_up(PI, search) {
            Ok(()) => Ok(Agent::Pi(vec![PI.to_owned()])),
            Err(_) => Err(none(file.as_deref())),
        };
    };
    checked(&from, agent.words())?;
    look_up(&agent.words()[0], search).map_err(|why| format!("{from}: {why}"))?;
    Ok(agent)
}

/// Why the agent steps of a graph cannot be executed here; `None` when they can, or when there are none.
pub(crate) fn problem(definition: &Definition) -> Option<String> {
    let mut steps = definition
        .nodes()
        .iter()
        .filter(|node| node.spec.node_type == NodeType::Agent)
        .peekable();
    steps.peek()?;
    match agent() {
        Ok(agent) => steps.find_map(|node| refusal(&agent, node)),
        Err(why) => Some(why),
    }
}

/// Why an agent must not be asked for this step.
pub(crate) fn refusal(agent: &Agent, node: &Node) -> Option<String> {
    let limited = node.spec.allowed_tools.is_some() && matches!(agent, Agent::Command(_));
    limited.then(|| {
        format!(
            "node \"{}\" limits the agent's tools (allowedTools), which cannot be enforced on an agent command; use Pi as \
             the agent, or limit them in the command itself and leave allowedTools out",
            node.id
        )
    })
}

fn none(file: Option<&Path>) -> String {
    let place = file.map_or_else(
        || "the configuration file".to_owned(),
        |file| file.display().to_string(),
    );
    format!(
        "no agent is configured and the Pi coding agent (\"pi\") is not on the server's PATH; install Pi, or write `[agent]` with \
         `pi = \"/path/to/pi\"` or `command = [\"claude\", \"-p\"]` (any command that reads a prompt and prints JSON) into {place}, or \
         set {PI_COMMAND} or {COMMAND} where the server is started"
    )
}

fn of_variable(name: &str, text: &str) -> Result<Vec<String>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("{name} is no JSON array of texts: {error}"));
    }
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The agent and the name of its place; `None` when the file does not exist or says nothing of an agent.
fn of_file(path: &Path) -> Result<Option<(String, Agent)>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => of_text(&text, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn of_text(text: &str, path: &Path) -> Result<Option<(String, Agent)>, String> {
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
    if let Some((other, _)) = table.iter().find(|(name, _)| !matches!(*name, "command" | "pi")) {
        return wrong(&format!("agent.{other} is unknown; an agent has command or pi"));
    }
    let from = |name: &str| format!("agent.{name} in {}", path.display());
    match (table.get("command"), table.get("pi")) {
        (Some(_), Some(_)) => wrong("agent has both command and pi; leave one of them out"),
        (Some(command), None) => match texts(command) {
            Some(words) => Ok(Some((from("command"), Agent::Command(words)))),
            None => wrong("agent.command must be a list of texts: the program and its arguments"),
        },
        (None, Some(pi)) => match pi
            .as_str()
            .map(|program| vec![program.to_owned()])
            .or_else(|| texts(pi))
        {
            Some(words) => Ok(Some((from("pi"), Agent::Pi(words)))),
            None => wrong("agent.pi must be the path or name of Pi, or a list of texts: that and arguments for it"),
        },
        (None, None) => wrong("agent must have command or pi"),
    }
}

fn texts(item: &Item) -> Option<Vec<String>> {
    let texts = item
        .as_array()?
        .iter()
        .map(|word| Value::as_str(word).map(str::to_owned));
    texts.collect()
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
        assert_eq!(of_variable("V", " claude  -p ").unwrap(), words(&["claude", "-p"]));
        assert_eq!(of_variable("V", "[\"a b\", \"\"]").unwrap(), words(&["a b", ""]));
        assert!(
            of_variable("V", "[1]")
                .unwrap_err()
                .contains("V is no JSON array of texts")
        );
    }

    #[test]
    fn the_file_is_read_and_its_faults_are_named() {
        let read = |text: &str| of_text(text, Path::new("/c.toml"));
        let (from, command) = read("[theme]\nname = 'x'\n[agent]\ncommand = ['claude', '-p']\n")
            .unwrap()
            .unwrap();
        assert_eq!(
            (from.as_str(), command),
            ("agent.command in /c.toml", Agent::Command(words(&["claude", "-p"])))
        );
        for (text, pi) in [
            ("[agent]\npi = '/opt/pi'", words(&["/opt/pi"])),
            (
                "agent = { pi = ['pi', '--model', 'm'] }",
                words(&["pi", "--model", "m"]),
            ),
        ] {
            assert_eq!(
                read(text).unwrap().unwrap(),
                ("agent.pi in /c.toml".to_owned(), Agent::Pi(pi))
            );
        }
        assert_eq!(read("[theme]\nname = 'x'\n").unwrap(), None);
        for (text, said) in [
            ("agent = 3", "agent must be a table"),
            ("[agent]\ncmd = 'x'", "agent.cmd is unknown"),
            ("[agent]\ncommand = 'claude -p'", "must be a list of texts"),
            ("[agent]\ncommand = ['a', 1]", "must be a list of texts"),
            ("[agent]", "must have command or pi"),
            ("[agent]\npi = 3", "must be the path or name of Pi"),
            ("[agent]\npi = 'pi'\ncommand = ['a']", "both command and pi"),
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
