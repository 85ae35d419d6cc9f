//! Pinned versions of Node and Pi, installed once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::fcntl::{Flock, FlockArg};

/// The Node that Pi runs under.
pub const NODE_VERSION: &str = "22.23.3";
/// The Pi that tests drive.
pub const PI_VERSION: &str = "1.6.0";

/// An installed Node with an installed Pi.
#[derive(Debug)]
pub struct Installation {
    dir: PathBuf,
}

impl Installation {
    /// The directory that holds `node` and `pi`.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.dir.join("node_modules/.bin")
    }

    /// The package of Pi, with its documentation and types.
    #[must_use]
    pub fn package(&self) -> PathBuf {
        self.dir.join("node_modules/@earendil-works/pi-coding-agent")
    }

    pub(super) fn compile_cache(&self) -> PathBuf {
        self.dir.join("compile-cache")
    }

    /// Runs one of the two programs for its version.
    fn version(&self, program: &str) -> String {
        let output = Command::new(self.bin().join(program))
            .arg("--version")
            .env("PATH", self.search_path())
            .env("HOME", &self.dir)
            .env("PI_OFFLINE", "1")
            .output();
        match output {
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                String::from_utf8_lossy(&text).trim().to_owned()
            }
            Err(error) => error.to_string(),
        }
    }
}

/// The installation that all tests share. The first caller installs it, which needs `npm` and its registry; the others wait.
///
/// # Panics
/// When it cannot be installed, with what `npm` said: a test that needs Pi must not pass without it.
pub fn installed() -> &'static Installation {
    static INSTALLED: OnceLock<Installation> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(workspace_target, PathBuf::from);
        install(&target)
    })
}

fn workspace_target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the tests crate lies in the workspace").join("target")
}

fn install(target: &Path) -> Installation {
    let name = format!("pi-{PI_VERSION}-node-{NODE_VERSION}");
    let dir = target.join(&name);
    fs::create_dir_all(target).expect("a target directory");
    let lock = File::create(target.join(format!("{name}.lock"))).expect("a lock file");
    // Held until this function returns; the system releases it when the process dies.
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, error)| error)
        .expect("a lock");
    let finished = Installation { dir };
    if finished.dir.is_dir() {
        return finished;
    }
    let partial = Installation {
        dir: target.join(format!("{name}.partial")),
    };
    let _ = fs::remove_dir_all(&partial.dir);
    fs::create_dir(&partial.dir).expect("a new directory");
    let npm = Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--loglevel=error",
            "--prefix",
        ])
        .arg(&partial.dir)
        .arg(format!("node@{NODE_VERSION}"))
        .arg(format!("@earendil-works/pi-coding-agent@{PI_VERSION}"))
        .output()
        .expect("npm is needed to install Pi for this test, and cannot be started");
    let said = [npm.stdout, npm.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        npm.status.success(),
        "npm cannot install Node {NODE_VERSION} and Pi {PI_VERSION}:\n{said}"
    );
    for (program, version) in [("node", format!("v{NODE_VERSION}")), ("pi", PI_VERSION.to_owned())] {
        let found = partial.version(program);
        assert!(
            found.contains(&version),
            "{program} --version says {found:?} instead of {version}; npm said:\n{said}"
        );
    }
    // What is there under its final name is complete.
    fs::rename(&partial.dir, &finished.dir).expect("the installation is moved to its place");
    finished
}
