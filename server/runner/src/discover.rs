//! Which workflows can be started from a project, and which file a reference means. File work only; nothing is evaluated.
//!
//! A reference is `builtin:<id>`, a path (it holds a `/`, or ends like a workflow file), or a name. Names are looked up in the
//! project's `.pi/workflows/`, then in the global directory, then among the built-in ones; the name of a file is its stem.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::builtin;
use crate::regular;
use crate::script::Entry;

/// Endings of workflow files.
pub const ENDINGS: [&str; 4] = [".workflow.ts", ".workflow.mts", ".workflow.js", ".workflow.mjs"];
/// Project directory that holds workflows, relative to the project.
pub const PROJECT_DIR: &str = ".pi/workflows";
/// Names that commands give another meaning; a workflow called so could not be started by name everywhere.
pub const RESERVED: [&str; 15] = [
    "list",
    "start",
    "status",
    "pause",
    "resume",
    "cancel",
    "answer",
    "update",
    "submit",
    "clear",
    "restart",
    "run",
    "help",
    "change-settings",
    "follow-up",
];
/// Largest workflow source, in bytes.
pub const SOURCE_LIMIT: u64 = 16 << 20;
/// Prefix of references to shipped workflows.
const BUILTIN: &str = "builtin:";

/// Where workflows are looked up.
#[derive(Debug, Clone)]
pub struct Places {
    /// Absolute project directory.
    pub project: PathBuf,
    /// Global workflow directory.
    pub global: Option<PathBuf>,
}

/// Where a workflow comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The project's `.pi/workflows/`.
    Project,
    /// The global directory.
    Global,
    /// Shipped in the binary.
    Builtin,
}

/// A workflow that can be started by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its file; `None` for a shipped one.
    pub path: Option<PathBuf>,
    /// First line of the comment at the top of the file.
    pub description: Option<String>,
    /// Why it cannot be started by its name: the name is reserved, taken by an earlier place, or used twice in one place.
    pub problem: Option<String>,
}

/// Where a reference leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A file, by absolute path.
    File(PathBuf),
    /// A shipped workflow, by id.
    Builtin(String),
}

/// Why a reference leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// No such name.
    #[error("no workflow is called \"{name}\"; looked in {}", places.join(", "))]
    NoSuchName {
        /// The name.
        name: String,
        /// Where it was looked up.
        places: Vec<String>,
    },
    /// No such file.
    #[error("there is no workflow file {}", path.display())]
    NoSuchFile {
        /// The path.
        path: PathBuf,
    },
    /// No such shipped workflow.
    #[error("no built-in workflow has the id \"{id}\"; there are: {known}")]
    NoSuchBuiltin {
        /// The id.
        id: String,
        /// Known ids.
        known: String,
    },
    /// The path names something else.
    #[error("{} is no workflow file: its name must end in {}", path.display(), ENDINGS.join(", "))]
    NotAWorkflowFile {
        /// The path.
        path: PathBuf,
    },
    /// The name has another meaning.
    #[error("the workflow name \"{name}\" is reserved for a command; rename the file, or start it by its path")]
    Reserved {
        /// The name.
        name: String,
    },
    /// Two files of one place have the same name.
    #[error("the workflow name \"{name}\" is ambiguous: {} and {} both have it", first.display(), second.display())]
    Ambiguous {
        /// The name.
        name: String,
        /// One file.
        first: PathBuf,
        /// Another.
        second: PathBuf,
    },
    /// The text is no reference.
    #[error("\"{reference}\" is no workflow name: {rule}")]
    BadReference {
        /// The text.
        reference: String,
        /// The rule.
        rule: &'static str,
    },
    /// A directory or file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Finds what `reference` means in `places`. Relative paths start at `base`.
///
/// # Errors
/// When it means nothing, or several things.
pub fn find(reference: &str, places: &Places, base: &Path) -> Result<Found, DiscoverError> {
    let bad = |rule| {
        Err(DiscoverError::BadReference {
            reference: reference.to_owned(),
            rule,
        })
    };
    if reference.is_empty() || reference.contains('\0') {
        return bad("it must be a name, a path, or builtin:<id>");
    }
    if let Some(id) = reference.strip_prefix(BUILTIN) {
        return find_builtin(id);
    }
    if is_path(reference) {
        return find_path(&base.join(reference));
    }
    if reference.len() > 255 || reference.chars().any(char::is_control) {
        return bad("a name has at most 255 bytes and no control characters");
    }
    if RESERVED.contains(&reference) {
        return Err(DiscoverError::Reserved {
            name: reference.to_owned(),
        });
    }
    for dir in directories(places) {
        let mut files = named_files(&dir.1)?.into_iter().filter(|(name, _)| name == reference);
        match (files.next(), files.next()) {
            (Some((name, first)), Some((_, second))) => {
                return Err(DiscoverError::Ambiguous { name, first, second });
            }
            (Some((_, path)), None) => return Ok(Found::File(path)),
            (None, _) => {}
        }
    }
    if builtin::find(reference).is_some() {
        return Ok(Found::Builtin(reference.to_owned()));
    }
    let mut looked: Vec<String> = directories(places).map(|(_, dir)| dir.display().to_string()).collect();
    looked.push("the built-in workflows".to_owned());
    Err(DiscoverError::NoSuchName {
        name: reference.to_owned(),
        places: looked,
    })
}

/// Reads what was found, ready to be loaded.
///
/// # Errors
/// When the file cannot be read or is too large, or the built-in workflow is not shipped.
pub fn read(found: &Found) -> Result<Entry, DiscoverError> {
    match found {
        Found::File(path) => Ok(Entry::File {
            path: path.clone(),
            bytes: read_source(path)?,
        }),
        Found::Builtin(id) => {
            let Some(builtin) = builtin::find(id) else {
                return Err(no_builtin(id));
            };
            Ok(Entry::Builtin {
                id: builtin.id.to_owned(),
                revision: builtin.revision.clone(),
                bytes: builtin.bytes.clone(),
            })
        }
    }
}

/// Bytes of a source file.
pub(crate) fn read_source(path: &Path) -> Result<Arc<[u8]>, DiscoverError> {
    let unreadable = |error| match io::Error::kind(&error) {
        io::ErrorKind::NotFound => DiscoverError::NoSuchFile { path: path.to_owned() },
        _ => DiscoverError::Unreadable {
            path: path.to_owned(),
            error,
        },
    };
    match regular::read(path, SOURCE_LIMIT) {
        Ok(bytes) => Ok(bytes.into()),
        Err(regular::ReadError::Io(error)) => Err(unreadable(error)),
        Err(regular::ReadError::TooLarge) => {
            let limit = regular::in_bytes(SOURCE_LIMIT);
            let why = format!("it has more than {limit}, the limit of a workflow source");
            Err(unreadable(io::Error::other(why)))
        }
    }
}

/// Every workflow that can be started by name from a project, project first, each place by name.
///
/// # Errors
/// When a directory exists and cannot be read.
pub fn list(places: &Places) -> Result<Vec<Listed>, DiscoverError> {
    let mut listed: Vec<Listed> = Vec::new();
    for (origin, dir) in directories(places) {
        for (name, path) in named_files(&dir)? {
            let description = describe(&path);
            listed.push(Listed {
                name,
                origin,
                path: Some(path),
                description,
                problem: None,
            });
        }
    }
    for builtin in builtin::all() {
        let description = first_comment(&String::from_utf8_lossy(&builtin.bytes));
        let name = builtin.id.to_owned();
        listed.push(Listed {
            name,
            origin: Origin::Builtin,
            path: None,
            description,
            problem: None,
        });
    }
    for at in 0..listed.len() {
        listed[at].problem = problem(&listed, at);
    }
    Ok(listed)
}

/// Why the entry at `at` cannot be started by its name.
fn problem(listed: &[Listed], at: usize) -> Option<String> {
    let own = &listed[at];
    if RESERVED.contains(&own.name.as_str()) {
        return Some("the name is reserved for a command".to_owned());
    }
    let taken = listed
        .iter()
        .enumerate()
        .find(|(other, entry)| *other != at && entry.name == own.name && entry.origin <= own.origin);
    taken.map(|(_, entry)| match &entry.path {
        Some(path) if entry.origin == own.origin => format!("{} has the same name", path.display()),
        Some(path) => format!("hidden by {}", path.display()),
        None => "hidden by a built-in workflow".to_owned(),
    })
}

fn directories(places: &Places) -> impl Iterator<Item = (Origin, PathBuf)> {
    let project = (Origin::Project, places.project.join(PROJECT_DIR));
    let global = places.global.clone().map(|dir| (Origin::Global, dir));
    std::iter::once(project).chain(global)
}

/// Names and files of a directory, by name; empty when there is no such directory.
fn named_files(dir: &Path) -> Result<Vec<(String, PathBuf)>, DiscoverError> {
    let unreadable = |error| DiscoverError::Unreadable {
        path: dir.to_owned(),
        error,
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(unreadable(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if let Some(name) = name_of(&path)
            && path.is_file()
        {
            files.push((name, path));
        }
    }
    files.sort();
    Ok(files)
}

/// The workflow name of a file: its file name without the ending; `None` when it does not end like a workflow file.
#[must_use]
pub fn name_of(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = ENDINGS.iter().find_map(|ending| file.strip_suffix(ending))?;
    (!stem.is_empty()).then(|| stem.to_owned())
}

fn is_path(reference: &str) -> bool {
    reference.contains('/') || ENDINGS.iter().any(|ending| reference.ends_with(ending))
}

fn find_path(path: &Path) -> Result<Found, DiscoverError> {
    if name_of(path).is_none() {
        return Err(DiscoverError::NotAWorkflowFile { path: path.to_owned() });
    }
    match fs::canonicalize(path) {
        Ok(path) => Ok(Found::File(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DiscoverError::NoSuchFile { path: path.to_owned() })
        }
        Err(error) => Err(DiscoverError::Unreadable {
            path: path.to_owned(),
            error,
        }),
    }
}

fn find_builtin(id: &str) -> Result<Found, DiscoverError> {
    builtin::find(id)
        .map(|builtin| Found::Builtin(builtin.id.to_owned()))
        .ok_or_else(|| no_builtin(id))
}

fn no_builtin(id: &str) -> DiscoverError {
    let known: Vec<&str> = builtin::all().iter().map(|builtin| builtin.id).collect();
    DiscoverError::NoSuchBuiltin {
        id: id.to_owned(),
        known: known.join(", "),
    }
}

fn describe(path: &Path) -> Option<String> {
    let mut head = String::new();
    // A file that is no text has no description; loading it will say why.
    regular::open(path).ok()?.take(4096).read_to_string(&mut head).ok()?;
    first_comment(&head)
}

/// First line of text in the comment that a source begins with.
fn first_comment(text: &str) -> Option<String> {
    let text = text.trim_start_matches('\u{feff}');
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("#!") || line.is_empty() {
            continue;
        }
        let content = if inside {
            line.trim_start_matches('*')
        } else if let Some(rest) = line.strip_prefix("/*") {
            inside = true;
            rest.trim_start_matches('*')
        } else {
            line.strip_prefix("//")?.trim_start_matches('/')
        };
        let (content, ends) = content
            .split_once("*/")
            .map_or((content, false), |(before, _)| (before, inside));
        let content = content.trim();
        if !content.is_empty() {
            return Some(content.to_owned());
        }
        inside &= !ends;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        let project = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(project.join(PROJECT_DIR)).unwrap();
        fs::create_dir_all(project.join("global")).unwrap();
        let places = Places {
            global: Some(project.join("global")),
            project,
        };
        (dir, places)
    }

    fn write(places: &Places, path: &str, text: &str) {
        fs::write(places.project.join(path), text).unwrap();
    }

    #[test]
    fn the_project_comes_before_the_global_directory() {
        let (_dir, places) = project();
        write(&places, ".pi/workflows/a.workflow.ts", "// Project one.\n");
        write(&places, "global/a.workflow.ts", "/**\n * Global one.\n */\n");
        write(&places, "global/b.workflow.mjs", "export default 1");
        let found = |name| find(name, &places, &places.project).unwrap();
        assert_eq!(
            found("a"),
            Found::File(places.project.join(".pi/workflows/a.workflow.ts"))
        );
        assert_eq!(found("b"), Found::File(places.project.join("global/b.workflow.mjs")));
        let listed: Vec<_> = list(&places)
            .unwrap()
            .into_iter()
            .filter(|entry| entry.origin != Origin::Builtin)
            .collect();
        let told: Vec<_> = listed
            .iter()
            .map(|entry| (entry.name.as_str(), entry.description.as_deref()))
            .collect();
        assert_eq!(
            told,
            [("a", Some("Project one.")), ("a", Some("Global one.")), ("b", None)]
        );
        assert!(listed[0].problem.is_none());
        assert!(listed[1].problem.as_ref().unwrap().contains("hidden by"));
    }

    #[test]
    fn every_refusal_names_what_was_asked_for() {
        let (_dir, places) = project();
        write(&places, ".pi/workflows/x.workflow.ts", "");
        write(&places, ".pi/workflows/x.workflow.js", "");
        write(&places, "notes.md", "");
        let refused = |reference: &str| find(reference, &places, &places.project).unwrap_err().to_string();
        assert!(refused("nope").contains("no workflow is called \"nope\""));
        assert!(refused("nope").contains(".pi/workflows"));
        assert!(refused("x").contains("ambiguous"));
        assert!(refused("status").contains("reserved"));
        assert!(refused("./notes.md").contains("must end in .workflow.ts"));
        assert!(refused("./y.workflow.ts").contains("y.workflow.ts"));
        assert!(refused("builtin:zzz").contains("\"zzz\""));
        assert!(refused("").contains("builtin:<id>"));
    }

    #[test]
    fn a_relative_path_starts_at_the_base() {
        let (_dir, places) = project();
        fs::create_dir(places.project.join("sub")).unwrap();
        write(&places, "sub/z.workflow.ts", "");
        let found = find("./z.workflow.ts", &places, &places.project.join("sub")).unwrap();
        assert_eq!(found, Found::File(places.project.join("sub/z.workflow.ts")));
        assert_eq!(find("sub/z.workflow.ts", &places, &places.project).unwrap(), found);
    }

    #[test]
    fn a_directory_or_an_oversized_file_is_no_source() {
        let (_dir, places) = project();
        fs::create_dir(places.project.join("d.workflow.ts")).unwrap();
        let found = find("./d.workflow.ts", &places, &places.project).unwrap();
        assert!(read(&found).unwrap_err().to_string().contains("no regular file"));
        let pipe = places.project.join("p.workflow.ts");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let found = find("./p.workflow.ts", &places, &places.project).unwrap();
        assert!(
            read(&found)
                .unwrap_err()
                .to_string()
                .contains("a named pipe, no regular file")
        );
        let big = places.project.join("big.workflow.ts");
        fs::File::create(&big).unwrap().set_len(SOURCE_LIMIT + 1).unwrap();
        assert!(
            read(&Found::File(big))
                .unwrap_err()
                .to_string()
                .contains("16777216 bytes (16 MiB)")
        );
    }

    #[test]
    fn the_description_is_the_first_line_of_the_first_comment() {
        assert_eq!(
            first_comment("#!/usr/bin/env piw\n\n// Hello.\n// More."),
            Some("Hello.".into())
        );
        assert_eq!(first_comment("/* One line. */ import x"), Some("One line.".into()));
        assert_eq!(first_comment("/**\n *\n * Second.\n */"), Some("Second.".into()));
        assert_eq!(first_comment("import x from 'y' // no"), None);
        assert_eq!(first_comment("/* */\nimport x"), None);
    }
}
