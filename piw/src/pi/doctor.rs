//! Why the extension does not work: one check for each thing that has to be there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use piw_protocol::client::{Client, ClientError, ClientOptions, UnixConnector};
use piw_protocol::envelope::PACKAGE_VERSION;
use piw_server::paths::{PathError, Places};
use serde::Serialize;

use super::install::{self, Installed};
use crate::command::session;

/// The oldest Node under which Pi works.
const NODE: (u64, u64) = (22, 19);
/// The oldest Pi that the extension was tried with.
const PI: (u64, u64) = (0, 73);
/// Longest wait for a program that says its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Verdict {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// It keeps the extension from working.
    Bad,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// What was looked at.
    pub(crate) name: &'static str,
    /// How it is.
    pub(crate) verdict: Verdict,
    /// What was found.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

fn check(name: &'static str, verdict: Verdict, message: impl Into<String>) -> Check {
    Check {
        name,
        verdict,
        message: message.into(),
        hint: None,
    }
}

impl Check {
    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The program that the extension starts: this one, under the name that stays when it is replaced by a newer one.
///
/// # Errors
/// When it cannot be found.
pub(crate) fn program() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find piw itself: {error}"))
}

/// Every check, in the order in which things depend on each other.
pub(crate) fn checks() -> Vec<Check> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| {
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|file| is_program(file))
    };
    vec![node(find("node")), pi(find("pi")), extension(), socket(), server()]
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn node(found: Option<PathBuf>) -> Check {
    let wanted = format!("Pi needs Node {}.{} or newer first on PATH", NODE.0, NODE.1);
    let Some(path) = found else {
        return check("node", Verdict::Bad, "there is no node on PATH").hint(wanted);
    };
    judge_node(&path, says(&path, &["--version"]).as_deref())
}

fn judge_node(path: &Path, said: Option<&str>) -> Check {
    let wanted = format!("Pi needs Node {}.{} or newer first on PATH", NODE.0, NODE.1);
    let place = path.display();
    match said.and_then(version) {
        Some(found) if found >= NODE => check("node", Verdict::Good, format!("{} ({place})", said.unwrap_or_default())),
        Some(_) => check(
            "node",
            Verdict::Bad,
            format!("{} is too old ({place})", said.unwrap_or_default()),
        )
        .hint(wanted),
        None => check("node", Verdict::Bad, format!("{place} does not say its version")).hint(wanted),
    }
}

fn pi(found: Option<PathBuf>) -> Check {
    let Some(path) = found else {
        return check("pi", Verdict::Bad, "there is no pi on PATH")
            .hint("npm install -g @earendil-works/pi-coding-agent");
    };
    let said = package_version(&path).or_else(|| says(&path, &["--version"]));
    judge_pi(&path, said.as_deref())
}

fn judge_pi(path: &Path, said: Option<&str>) -> Check {
    let place = path.display();
    match said.and_then(version) {
        Some(found) if found >= PI => check("pi", Verdict::Good, format!("{} ({place})", said.unwrap_or_default())),
        Some(_) => check(
            "pi",
            Verdict::Note,
            format!(
                "{} is older than any the extension was tried with ({place})",
                said.unwrap_or_default()
            ),
        )
        .hint("npm install -g @earendil-works/pi-coding-agent"),
        None => check("pi", Verdict::Bad, format!("{place} does not say its version"))
            .hint("a Node that is too old keeps pi from starting; try: pi --version"),
    }
}

/// The version in the package of a program that npm installed: starting Pi takes seconds.
fn package_version(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    let package = real
        .ancestors()
        .skip(1)
        .take(4)
        .map(|dir| dir.join("package.json"))
        .find(|file| file.exists())?;
    let package: serde_json::Value = serde_json::from_slice(&std::fs::read(package).ok()?).ok()?;
    let is_pi = package.get("name")?.as_str()?.ends_with("/pi-coding-agent");
    package.get("version")?.as_str().filter(|_| is_pi).map(str::to_owned)
}

/// What a program prints, if it does so in time.
fn says(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("PI_OFFLINE", "1")
        .env("PI_SKIP_VERSION_CHECK", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                drop(child.kill());
                drop(child.wait());
                return None;
            }
        }
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take()?, &mut said).ok()?;
    let line = said.lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Major and minor of `v22.19.0` or `1.6.0`.
fn version(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.trim().trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

fn extension() -> Check {
    let wanted = program().and_then(|program| install::extension(&program));
    let found = install::agent_dir().and_then(|agent| {
        let wanted = wanted?;
        let found = install::installed(&agent, &wanted);
        let path = install::file(&agent);
        found
            .map(|found| (path.clone(), found))
            .map_err(|error| format!("cannot read {}: {error}", path.display()))
    });
    match found {
        Ok((path, found)) => judge_extension(&path, found),
        Err(why) => check("extension", Verdict::Bad, why),
    }
}

fn judge_extension(path: &Path, found: Installed) -> Check {
    let place = path.display();
    match found {
        Installed::Current => check("extension", Verdict::Good, format!("{place}")),
        Installed::Missing => check(
            "extension",
            Verdict::Bad,
            format!("it is not installed: {place} does not exist"),
        )
        .hint("piw pi install"),
        Installed::Other => check(
            "extension",
            Verdict::Bad,
            format!("{place} is of another version of piw, or starts another piw than this one"),
        )
        .hint("piw pi install"),
        Installed::Foreign => check("extension", Verdict::Bad, format!("{place} was not written by piw"))
            .hint("move it away, then: piw pi install"),
    }
}

fn socket() -> Check {
    judge_socket(Places::from_env())
}

fn judge_socket(places: Result<Places, PathError>) -> Check {
    match places {
        Ok(places) => check("socket", Verdict::Good, places.socket.display().to_string()),
        Err(error @ PathError::SocketTooLong { .. }) => check("socket", Verdict::Bad, error.to_string())
            .hint("set PIW_SOCKET to a short absolute path, in the shell that starts pi too"),
        Err(error) => check("socket", Verdict::Bad, error.to_string()),
    }
}

fn server() -> Check {
    let Ok(places) = Places::from_env() else {
        return check("server", Verdict::Note, "it has no place; see socket");
    };
    if !piw_server::start::accepts(&places) {
        return check("server", Verdict::Note, "it does not run; the first workflow starts it");
    }
    let runtime = match session::runtime() {
        Ok(runtime) => runtime,
        Err(failure) => return check("server", Verdict::Bad, failure.message),
    };
    let connected = runtime.block_on(Client::connect(
        UnixConnector::new(&places.socket),
        ClientOptions::impatient(),
    ));
    judge_server(connected.map(drop))
}

fn judge_server(connected: Result<(), ClientError>) -> Check {
    match connected {
        Ok(()) => check("server", Verdict::Good, format!("version {PACKAGE_VERSION} runs")),
        Err(error @ ClientError::VersionMismatch { .. }) => {
            check("server", Verdict::Bad, error.to_string()).hint("piw server restart; runs go on afterwards")
        }
        Err(error) => check("server", Verdict::Bad, error.to_string()).hint("piw server logs shows what it wrote"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_has_its_own_words_and_says_what_to_do() {
        let path = Path::new("/x/bin/it");
        let told = |check: Check| (check.verdict, check.message, check.hint.unwrap_or_default());
        let (verdict, said, hint) = told(node(None));
        assert_eq!((verdict, said.as_str()), (Verdict::Bad, "there is no node on PATH"));
        assert!(hint.contains("22.19"));
        let (verdict, said, hint) = told(judge_node(path, Some("v20.11.1")));
        assert!(verdict == Verdict::Bad && said.contains("v20.11.1 is too old") && hint.contains("22.19"));
        assert_eq!(judge_node(path, Some("v22.19.0")).verdict, Verdict::Good);
        assert_eq!(judge_node(path, Some("v24.1.0")).verdict, Verdict::Good);
        let (verdict, said, hint) = told(pi(None));
        assert!(verdict == Verdict::Bad && said.contains("no pi") && hint.starts_with("npm install"));
        assert_eq!(judge_pi(path, Some("1.6.0")).verdict, Verdict::Good);
        assert_eq!(judge_pi(path, Some("0.60.0")).verdict, Verdict::Note);
        assert_eq!(judge_pi(path, None).verdict, Verdict::Bad);
        assert_eq!(judge_extension(path, Installed::Current).verdict, Verdict::Good);
        for found in [Installed::Missing, Installed::Other, Installed::Foreign] {
            let (verdict, said, hint) = told(judge_extension(path, found));
            assert!(
                verdict == Verdict::Bad && said.contains("/x/bin/it") && hint.contains("piw pi install"),
                "{said}"
            );
        }
        let long = PathBuf::from(format!("/{}", "s".repeat(200)));
        let (verdict, said, hint) = told(judge_socket(Places::new("/s".into(), Some(long))));
        assert!(
            verdict == Verdict::Bad && said.contains("has 201 bytes") && hint.contains("PIW_SOCKET"),
            "{said}"
        );
        let (verdict, said, hint) = told(judge_server(Err(ClientError::VersionMismatch {
            client: "2.0.0".into(),
            server: "1.0.0".into(),
        })));
        assert!(
            verdict == Verdict::Bad && said.contains("1.0.0") && hint.contains("piw server restart"),
            "{said}"
        );
    }

    #[test]
    fn the_version_of_an_installed_pi_is_read_from_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("lib/pi");
        std::fs::create_dir_all(package.join("dist/bundle")).unwrap();
        std::fs::write(
            package.join("package.json"),
            r#"{"name": "@x/pi-coding-agent", "version": "1.6.0"}"#,
        )
        .unwrap();
        std::fs::write(package.join("dist/bundle/cli.js"), "").unwrap();
        let link = dir.path().join("pi");
        std::os::unix::fs::symlink(package.join("dist/bundle/cli.js"), &link).unwrap();
        assert_eq!(package_version(&link).as_deref(), Some("1.6.0"));
        std::fs::write(package.join("package.json"), r#"{"name": "other", "version": "1.6.0"}"#).unwrap();
        assert_eq!(package_version(&link), None);
    }
}
