//! The module store: what a specifier means, where a module's text comes from, and what was loaded.
//!
//! Both runtimes share one store, so both evaluate the same bytes. It holds text only; evaluating is the realm's part.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use oxc_resolver::{ModuleType, ResolveOptions, Resolver};
use oxc_sourcemap::SourceMap;
use piw_protocol::canonical::sha256_hex;
use piw_protocol::run::SourceRef;

use super::api::{Entry, WorkflowLookup};
use super::builtins;
use super::stack::{self, Maps};
use super::transpile;
use crate::regular;

/// Largest source file that is read as a module.
pub(super) const MAX_SOURCE: u64 = 16 << 20;

/// How a module is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As an ES module.
    Esm,
    /// By the CommonJS loader.
    CommonJs,
    /// Parsed as JSON.
    Json,
}

/// A module's text, ready to evaluate.
pub(super) struct Source {
    /// How it is evaluated.
    pub kind: Kind,
    /// JavaScript or JSON.
    pub code: String,
    map: Option<SourceMap<'static>>,
}

/// Why an import failed; `code` is Node's.
#[derive(Debug, Clone)]
pub(super) struct ImportError {
    /// `ERR_MODULE_NOT_FOUND`, `ERR_UNKNOWN_BUILTIN_MODULE`, `ERR_UNSUPPORTED`, `ERR_SYNTAX`.
    pub code: &'static str,
    /// Complete text, import chain included.
    pub message: String,
}

/// The store.
pub(super) struct Modules {
    import: Resolver,
    require: Resolver,
    workflows: Arc<dyn WorkflowLookup>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    sources: HashMap<String, Rc<Source>>,
    bytes: BTreeMap<PathBuf, Arc<[u8]>>,
    /// Canonical path → the name under which an entry is known.
    aliases: HashMap<PathBuf, String>,
    /// What the resolver said of a file's format.
    types: HashMap<String, ModuleType>,
    /// Importer that first asked for a module.
    parents: HashMap<String, String>,
    loaded: Vec<SourceRef>,
    builtin_bytes: HashMap<String, Arc<[u8]>>,
    refs: HashMap<String, SourceRef>,
}

impl Modules {
    /// A store that prefers `verified` bytes to what is on disk.
    pub(super) fn new(verified: BTreeMap<PathBuf, Arc<[u8]>>, workflows: Arc<dyn WorkflowLookup>) -> Self {
        let options = |condition: &str| ResolveOptions {
            condition_names: vec!["node".into(), condition.into(), "default".into()],
            extensions: [".ts", ".mts", ".js", ".mjs", ".cjs", ".cts", ".json", ".node"]
                .map(String::from)
                .to_vec(),
            extension_alias: vec![
                (".js".into(), vec![".js".into(), ".ts".into()]),
                (".mjs".into(), vec![".mjs".into(), ".mts".into()]),
                (".cjs".into(), vec![".cjs".into(), ".cts".into()]),
            ],
            module_type: true,
            node_path: false,
            ..ResolveOptions::default()
        };
        Self {
            import: Resolver::new(options("import")),
            require: Resolver::new(options("require")),
            workflows,
            state: RefCell::new(State {
                bytes: verified,
                ..State::default()
            }),
        }
    }

    /// Makes `entry` loadable and returns its module name.
    pub(super) fn add_entry(&self, entry: &Entry) -> String {
        let mut state = self.state.borrow_mut();
        match entry {
            Entry::File { path, bytes } => {
                let name = path.to_string_lossy().into_owned();
                if let Ok(canonical) = path.canonicalize()
                    && canonical != *path
                {
                    state.bytes.insert(canonical.clone(), Arc::clone(bytes));
                    state.aliases.insert(canonical, name.clone());
                }
                state.bytes.insert(path.clone(), Arc::clone(bytes));
                name
            }
            Entry::Builtin { id, revision, bytes } => {
                let name = format!("builtin:{id}");
                state.builtin_bytes.insert(name.clone(), Arc::clone(bytes));
                state.refs.insert(
                    name.clone(),
                    SourceRef::Builtin {
                        id: id.clone(),
                        revision: revision.clone(),
                    },
                );
                name
            }
        }
    }

    /// The project modules loaded so far, in order.
    pub(super) fn loaded(&self) -> Vec<SourceRef> {
        self.state.borrow().loaded.clone()
    }

    /// The identity of a loaded module.
    pub(super) fn source_ref(&self, name: &str) -> Option<SourceRef> {
        self.state.borrow().refs.get(name).cloned()
    }

    /// Resolves `specifier` as written in `base`; `require` chooses the CommonJS conditions.
    pub(super) fn resolve(&self, base: &str, specifier: &str, require: bool) -> Result<String, ImportError> {
        let name = self.find(base, specifier, require)?;
        // The host itself, which asks for the entry, has no name and is in no chain.
        if name != base && !base.is_empty() {
            self.state
                .borrow_mut()
                .parents
                .entry(name.clone())
                .or_insert_with(|| base.to_owned());
        }
        Ok(name)
    }

    fn find(&self, base: &str, specifier: &str, require: bool) -> Result<String, ImportError> {
        if let Some(internal) = builtins::internal_name(specifier) {
            return Ok(internal.to_owned());
        }
        if let Some(bare) = specifier.strip_prefix("node:") {
            return Err(self.unsupported_builtin(base, bare));
        }
        if specifier.starts_with('/') {
            return Ok(specifier.to_owned());
        }
        if specifier.starts_with("file:") {
            return url::Url::parse(specifier)
                .ok()
                .and_then(|url| url.to_file_path().ok())
                .map(|path| path.to_string_lossy().into_owned())
                .ok_or_else(|| {
                    self.failed(
                        "ERR_MODULE_NOT_FOUND",
                        base,
                        specifier,
                        "it is not a file URL with an absolute path",
                    )
                });
        }
        if specifier.starts_with("builtin:") {
            if self.state.borrow().builtin_bytes.contains_key(specifier) {
                return Ok(specifier.to_owned());
            }
            return self.find_from_builtin(base, specifier);
        }
        if specifier.contains("://") || specifier.starts_with("data:") {
            return Err(self.failed(
                "ERR_UNSUPPORTED",
                base,
                specifier,
                "only files and packages can be imported, not URLs",
            ));
        }
        if base.starts_with("builtin:") {
            return self.find_from_builtin(base, specifier);
        }
        let directory = Path::new(base).parent().unwrap_or(Path::new("/"));
        let resolver = if require { &self.require } else { &self.import };
        match resolver.resolve(directory, specifier) {
            Ok(found) => {
                let path = found.path();
                let mut state = self.state.borrow_mut();
                let name = state
                    .aliases
                    .get(path)
                    .cloned()
                    .unwrap_or_else(|| path.to_string_lossy().into_owned());
                if let Some(module_type) = found.module_type() {
                    state.types.insert(name.clone(), module_type);
                }
                Ok(name)
            }
            Err(_) if builtins::is_node_builtin(specifier) => Err(self.unsupported_builtin(base, specifier)),
            Err(error) => Err(self.failed(
                "ERR_MODULE_NOT_FOUND",
                base,
                specifier,
                &reason(&error, directory, specifier),
            )),
        }
    }

    /// Built-in workflows import each other by relative path or `builtin:` id.
    fn find_from_builtin(&self, base: &str, specifier: &str) -> Result<String, ImportError> {
        let id = specifier
            .strip_prefix("./")
            .or_else(|| specifier.strip_prefix("builtin:"))
            .unwrap_or(specifier);
        let id = id.split_once('.').map_or(id, |(stem, _)| stem);
        let from = self.source_ref(base).unwrap_or(SourceRef::Builtin {
            id: base.to_owned(),
            revision: String::new(),
        });
        let entry = self
            .workflows
            .find(&format!("builtin:{id}"), &from)
            .map_err(|why| self.failed("ERR_MODULE_NOT_FOUND", base, specifier, &why))?;
        Ok(self.add_entry(&entry))
    }

    fn unsupported_builtin(&self, base: &str, bare: &str) -> ImportError {
        let known = builtins::node_names().join(", ");
        self.failed(
            "ERR_UNKNOWN_BUILTIN_MODULE",
            base,
            &format!("node:{bare}"),
            &format!("this Node.js module is not available in workflow code; available are {known}"),
        )
    }

    fn failed(&self, code: &'static str, base: &str, specifier: &str, why: &str) -> ImportError {
        if base.is_empty() {
            let message = format!("cannot load {specifier}: {why}");
            return ImportError { code, message };
        }
        let mut message = format!("cannot import \"{specifier}\" in {base}: {why}");
        let mut chain = vec![specifier.to_owned(), base.to_owned()];
        let state = self.state.borrow();
        let mut seen = HashSet::from([base.to_owned()]);
        let mut at = base;
        while let Some(parent) = state.parents.get(at) {
            if !seen.insert(parent.clone()) {
                break;
            }
            chain.push(parent.clone());
            at = parent;
        }
        chain.reverse();
        if chain.len() > 2 {
            message.push_str("\n  import chain: ");
            message.push_str(&chain.join(" → "));
        }
        ImportError { code, message }
    }

    fn importer_chain_error(&self, code: &'static str, name: &str, why: &str) -> ImportError {
        let parent = self.state.borrow().parents.get(name).cloned();
        match parent {
            Some(parent) => self.failed(code, &parent, name, why),
            None => ImportError {
                code,
                message: format!("cannot load {name}: {why}"),
            },
        }
    }

    /// The text of the module `name`, read and transpiled at most once.
    pub(super) fn source(&self, name: &str) -> Result<Rc<Source>, ImportError> {
        if let Some(source) = self.state.borrow().sources.get(name) {
            return Ok(Rc::clone(source));
        }
        let bytes = self.read(name)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| {
                let why = format!("it is not UTF-8 text: invalid byte at offset {}", error.valid_up_to());
                self.importer_chain_error("ERR_SYNTAX", name, &why)
            })?
            .trim_start_matches('\u{feff}');
        let source = Rc::new(self.prepare(name, text)?);
        let mut state = self.state.borrow_mut();
        if !name.contains("/node_modules/") {
            let identity = match state.refs.get(name) {
                Some(identity) => identity.clone(),
                None => SourceRef::File {
                    path: name.to_owned(),
                    hash: sha256_hex(&bytes),
                },
            };
            state.refs.insert(name.to_owned(), identity.clone());
            state.loaded.push(identity);
        }
        state.sources.insert(name.to_owned(), Rc::clone(&source));
        Ok(source)
    }

    fn read(&self, name: &str) -> Result<Arc<[u8]>, ImportError> {
        let state = self.state.borrow();
        if let Some(bytes) = state
            .builtin_bytes
            .get(name)
            .or_else(|| state.bytes.get(Path::new(name)))
        {
            return Ok(Arc::clone(bytes));
        }
        drop(state);
        let path = Path::new(name);
        regular::read(path, MAX_SOURCE).map(Arc::from).map_err(|error| {
            let (code, why) = match error {
                regular::ReadError::TooLarge => {
                    let limit = regular::in_bytes(MAX_SOURCE);
                    (
                        "ERR_UNSUPPORTED",
                        format!("it has more than {limit}, the limit of a module"),
                    )
                }
                regular::ReadError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    ("ERR_MODULE_NOT_FOUND", "no such file".to_owned())
                }
                regular::ReadError::Io(error) => ("ERR_MODULE_NOT_FOUND", error.to_string()),
            };
            self.importer_chain_error(code, name, &why)
        })
    }

    fn prepare(&self, name: &str, text: &str) -> Result<Source, ImportError> {
        let extension = if name.starts_with("builtin:") {
            "ts"
        } else {
            Path::new(name)
                .extension()
                .and_then(|extension| extension.to_str())
                .unwrap_or("")
        };
        let plain = |kind| {
            Ok(Source {
                kind,
                code: text.to_owned(),
                map: None,
            })
        };
        match extension {
            "ts" | "mts" | "cts" => {
                let done = transpile::typescript(name, text).map_err(|error| self.syntax(error))?;
                let kind = if extension == "cts" { Kind::CommonJs } else { Kind::Esm };
                Ok(Source {
                    kind,
                    code: done.code,
                    map: done.map,
                })
            }
            "json" => plain(Kind::Json),
            "mjs" => plain(Kind::Esm),
            "cjs" => plain(Kind::CommonJs),
            "node" => Err(self.importer_chain_error("ERR_UNSUPPORTED", name, "native addons are not supported")),
            "wasm" => Err(self.importer_chain_error("ERR_UNSUPPORTED", name, "WebAssembly is not supported")),
            "tsx" | "jsx" => Err(self.importer_chain_error("ERR_UNSUPPORTED", name, "JSX is not supported")),
            _ => {
                let declared = self.state.borrow().types.get(name).copied();
                plain(match declared {
                    Some(ModuleType::Module) => Kind::Esm,
                    _ if may_be_module(text) && transpile::inspect_javascript(name, text).is_module => Kind::Esm,
                    _ => Kind::CommonJs,
                })
            }
        }
    }

    fn syntax(&self, error: transpile::SyntaxError) -> ImportError {
        ImportError {
            code: "ERR_SYNTAX",
            message: error.0,
        }
    }

    /// A better text for a syntax error that the engine reported in plain JavaScript.
    pub(super) fn explain_syntax(&self, name: &str) -> Option<String> {
        let source = self.state.borrow().sources.get(name).cloned()?;
        transpile::inspect_javascript(name, &source.code)
            .error
            .map(|error| error.0)
    }
}

impl Maps for Modules {
    fn position(&self, module: &str, line: u32, column: u32) -> Option<(u32, u32)> {
        let state = self.state.borrow();
        stack::original(state.sources.get(module)?.map.as_ref()?, line, column)
    }

    fn is_internal(&self, module: &str) -> bool {
        module.starts_with("piw:") || module.starts_with("node:")
    }
}

/// A cheap test that spares most CommonJS files a full parse.
fn may_be_module(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("import") || line.starts_with("export") || line.contains("import.meta")
    }) || text.contains(";import")
        || text.contains(";export")
        || text.contains("}export")
        || text.contains("}from")
}

fn reason(error: &oxc_resolver::ResolveError, directory: &Path, specifier: &str) -> String {
    use oxc_resolver::ResolveError;
    let there = directory.join(specifier).metadata();
    match error {
        ResolveError::NotFound(_) if specifier.starts_with('.') && there.is_ok() => match there {
            Ok(there) if there.is_dir() => "it is a directory without an index file".to_owned(),
            Ok(there) => regular::not_regular(there.file_type()),
            Err(_) => "no such file".to_owned(),
        },
        ResolveError::NotFound(_) if specifier.starts_with('.') => "no such file".to_owned(),
        ResolveError::NotFound(_) => "no such package in any node_modules above it".to_owned(),
        other => other.to_string(),
    }
}
