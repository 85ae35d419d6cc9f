//! Other programs that show a value: the pager and the editor. Says which one that is, writes the value into a private file
//! that is gone afterwards, and starts the program. Who gives the terminal away and takes it back is not here.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempPath;

use super::message::Content;
use crate::text::{clean_document, looks_like_markdown};

/// A pager that ends well within this time has shown everything at once and left nothing on the screen to read: `cat`, or
/// `less -F` with a short text. The viewer then waits for a key before it covers the text.
pub const AT_ONCE: Duration = Duration::from_millis(500);

/// Exit code of a shell for a command that it does not find.
const NOT_FOUND: i32 = 127;

/// Which program shows a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `$PAGER`, else `less`, else `more`.
    Pager,
    /// `$VISUAL`, else `$EDITOR`, else `vi`.
    Editor,
}

impl Program {
    /// The command line, for a shell.
    #[must_use]
    pub fn command(self, var: impl Fn(&str) -> Option<String>) -> String {
        let set = |name: &str| var(name).filter(|command| !command.trim().is_empty());
        match self {
            Self::Pager => set("PAGER").unwrap_or_else(|| {
                let less = var("PATH")
                    .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join("less").is_file()));
                if less { "less" } else { "more" }.to_owned()
            }),
            Self::Editor => set("VISUAL")
                .or_else(|| set("EDITOR"))
                .unwrap_or_else(|| "vi".to_owned()),
        }
    }
}

/// A value in a file, ready to be shown. The file goes with the last copy of this.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The file, readable by its owner only.
    pub file: Arc<TempPath>,
    /// What shows it.
    pub program: Program,
}

impl PartialEq for Prepared {
    fn eq(&self, other: &Self) -> bool {
        self.program == other.program && Arc::ptr_eq(&self.file, &other.file)
    }
}

/// Writes a value into a private file. A pager gets text that is safe on a terminal; an editor, which shows control
/// characters by itself, gets exactly what the value is.
///
/// # Errors
///
/// When the file cannot be written.
pub fn prepare(name: &str, content: &Content, program: Program) -> io::Result<Prepared> {
    let (text, ending) = match content {
        Content::Json(value) => (serde_json::to_string_pretty(value)? + "\n", ".json"),
        Content::Text(text) if looks_like_markdown(text) => (text.to_string(), ".md"),
        Content::Text(text) => (text.to_string(), ".txt"),
    };
    // `tempfile` makes files with mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(&prefix(name))
        .suffix(ending)
        .tempfile()?;
    match program {
        Program::Pager => file.write_all(clean_document(&text).as_bytes())?,
        Program::Editor => file.write_all(text.as_bytes())?,
    }
    file.flush()?;
    Ok(Prepared {
        file: Arc::new(file.into_temp_path()),
        program,
    })
}

/// The beginning of the file's name, which pagers and editors show.
fn prefix(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().take(40).map(plain).collect();
    format!("piw-{}-", name.trim_matches('-'))
}

/// Starts the program on the terminal. The command line goes through the shell, as `git` and `man` do it, so that it may have
/// arguments, quotes and variables of its own.
///
/// # Errors
///
/// When there is no shell.
pub fn start(command: &str, file: &Path) -> io::Result<tokio::process::Child> {
    tokio::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{command} \"$1\""))
        .arg("piw")
        .arg(file)
        .spawn()
}

/// What was wrong with the program, for people; nothing when it ended well.
#[must_use]
pub fn complaint(command: &str, status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(NOT_FOUND), _) => Some(format!(
            "there is no program {command:?} (PAGER, VISUAL and EDITOR name one)"
        )),
        (Some(code), _) => Some(format!("{command:?} ended with exit code {code}")),
        (None, Some(signal)) => Some(format!("signal {signal} ended {command:?}")),
        (None, None) => Some(format!("{command:?} ended for an unknown reason")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn environment<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn the_environment_names_the_program() {
        let command = |program: Program, pairs: &[(&str, &str)]| program.command(environment(pairs));
        assert_eq!(command(Program::Pager, &[("PAGER", "bat -p")]), "bat -p");
        assert_eq!(command(Program::Pager, &[("PAGER", " "), ("PATH", "/nowhere")]), "more");
        assert_eq!(
            command(Program::Editor, &[("EDITOR", "nano"), ("VISUAL", "code --wait")]),
            "code --wait"
        );
        assert_eq!(command(Program::Editor, &[("EDITOR", "nano")]), "nano");
        assert_eq!(command(Program::Editor, &[]), "vi");
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("less"), "").unwrap();
        let path = place.path().to_str().unwrap();
        assert_eq!(command(Program::Pager, &[("PATH", path)]), "less");
    }

    #[test]
    fn the_file_is_private_neutral_for_pagers_exact_for_editors_and_goes() {
        let hostile = Content::Text("\u{1b}]0;title\u{7}one\n\ttwo\u{202e}\n".into());
        let pager = prepare("Step 3: stderr/../x", &hostile, Program::Pager).unwrap();
        let path = pager.file.to_path_buf();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name.starts_with("piw-Step-3--stderr----x-") && name.ends_with(".txt"),
            "{name}"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "␛]0;title␇one\n\ttwo\u{fffd}\n"
        );
        drop(pager);
        assert!(!path.exists());
        let editor = prepare("x", &hostile, Program::Editor).unwrap();
        assert_eq!(
            std::fs::read_to_string(&*editor.file).unwrap(),
            "\u{1b}]0;title\u{7}one\n\ttwo\u{202e}\n"
        );
        let value = Content::Json(Arc::new(json!({"a": [1]})));
        let json = prepare("x", &value, Program::Pager).unwrap();
        assert_eq!(
            std::fs::read_to_string(&*json.file).unwrap(),
            "{\n  \"a\": [\n    1\n  ]\n}\n"
        );
        assert!(json.file.to_str().unwrap().ends_with(".json"));
    }

    #[tokio::test]
    async fn the_shell_reads_the_command_line_and_failures_are_told() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("it's a file");
        std::fs::write(&file, "text").unwrap();
        let run = async |command: &str| {
            let status = start(command, &file).unwrap().wait().await.unwrap();
            complaint(command, status)
        };
        assert_eq!(run("WORD=text; grep -q \"$WORD\"").await, None);
        let said = run("grep -q other").await.unwrap();
        assert!(said.contains("exit code 1"), "{said}");
        let said = run("surely-no-such-program --flag 2>/dev/null").await.unwrap();
        assert!(
            said.contains("there is no program") && said.contains("surely-no-such-program"),
            "{said}"
        );
        let said = run("kill -9 $$; :").await.unwrap();
        assert!(said.contains("signal 9"), "{said}");
    }
}
