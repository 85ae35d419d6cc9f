//! Frozen sources: made by the resolver, verified by every runner before it evaluates anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piw_engine::raw::RawDefinition;
use piw_protocol::canonical;
use piw_protocol::run::{MountedSource, SourceMap, SourceRef};

use crate::builtin;
use crate::discover::{self, DiscoverError, Places};
use crate::script::{Entry, Loaded, WorkflowLookup};

/// A source is not what it was when the run started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub(crate) struct SourceChanged {
    /// Which source.
    what: String,
    /// How it differs.
    why: String,
}

/// Verified bytes, ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The started workflow.
    pub(crate) root: Entry,
    /// Content of every frozen file.
    pub(crate) files: BTreeMap<PathBuf, Arc<[u8]>>,
}

/// The sources of a loaded definition.
pub(crate) fn source_map(loaded: &Loaded) -> SourceMap {
    let mut mounted = Vec::new();
    collect_mounted(&loaded.raw, "", &mut mounted);
    let root = loaded.raw.source.clone();
    let known = |source: &SourceRef| *source == root || mounted.iter().any(|mount| mount.source == *source);
    let modules = loaded.modules.iter().filter(|source| !known(source)).cloned().collect();
    SourceMap { root, mounted, modules }
}

fn collect_mounted(raw: &RawDefinition, scope: &str, into: &mut Vec<MountedSource>) {
    for include in &raw.includes {
        let mount = if scope.is_empty() {
            include.mount.clone()
        } else {
            format!("{scope}/{}", include.mount)
        };
        into.push(MountedSource {
            mount: mount.clone(),
            source: include.definition.source.clone(),
        });
        collect_mounted(&include.definition, &mount, into);
    }
}

/// Reads every frozen source and compares its digest. Nothing is evaluated before this has passed, and what is evaluated are
/// the bytes that were compared.
pub(crate) fn verify(frozen: &SourceMap) -> Result<Verified, SourceChanged> {
    let mut files = BTreeMap::new();
    let all = std::iter::once(&frozen.root)
        .chain(frozen.mounted.iter().map(|mount| &mount.source))
        .chain(&frozen.modules);
    for source in all {
        match source {
            SourceRef::File { path, hash } => {
                let path = PathBuf::from(path);
                if let std::collections::btree_map::Entry::Vacant(place) = files.entry(path) {
                    let bytes = verify_file(place.key(), hash)?;
                    place.insert(bytes);
                }
            }
            SourceRef::Builtin { id, revision } => verify_builtin(id, revision)?,
        }
    }
    let root = match &frozen.root {
        SourceRef::File { path, .. } => {
            let path = PathBuf::from(path);
            let bytes = files
                .get(&path)
                .cloned()
                .ok_or_else(|| changed(&frozen.root, "it was not read"))?;
            Entry::File { path, bytes }
        }
        SourceRef::Builtin { id, .. } => discover::read(&discover::Found::Builtin(id.clone()))
            .map_err(|error| changed(&frozen.root, &error.to_string()))?,
    };
    Ok(Verified { root, files })
}

/// Compares the sources of the loaded definition with the frozen ones, completely.
pub(crate) fn compare(frozen: &SourceMap, loaded: &SourceMap) -> Result<(), SourceChanged> {
    if frozen.root != loaded.root {
        return Err(changed(
            &loaded.root,
            "it is another source than the run was started from",
        ));
    }
    for mount in &loaded.mounted {
        match frozen.mounted.iter().find(|known| known.mount == mount.mount) {
            Some(known) if known.source == mount.source => {}
            Some(_) => {
                return Err(changed(
                    &mount.source,
                    &format!("mount \"{}\" has another source now", mount.mount),
                ));
            }
            None => return Err(changed(&mount.source, &format!("mount \"{}\" is new", mount.mount))),
        }
    }
    if let Some(gone) = frozen
        .mounted
        .iter()
        .find(|known| !loaded.mounted.iter().any(|mount| mount.mount == known.mount))
    {
        return Err(changed(&gone.source, &format!("mount \"{}\" is gone", gone.mount)));
    }
    if let Some(new) = loaded.modules.iter().find(|module| !frozen.modules.contains(module)) {
        return Err(changed(new, "it is imported now and was not at the start"));
    }
    if let Some(gone) = frozen.modules.iter().find(|module| !loaded.modules.contains(module)) {
        return Err(changed(gone, "it is not imported any more"));
    }
    Ok(())
}

fn verify_file(path: &Path, hash: &str) -> Result<Arc<[u8]>, SourceChanged> {
    let what = || path.display().to_string();
    let bytes = discover::read_source(path).map_err(|error| SourceChanged {
        what: what(),
        why: format!("it cannot be read any more: {error}"),
    })?;
    let now = canonical::sha256_hex(&bytes);
    if now == hash {
        return Ok(bytes);
    }
    let why = format!(
        "its content changed since the run started (SHA-256 {}… then, {}… now)",
        short(hash),
        short(&now)
    );
    Err(SourceChanged { what: what(), why })
}

fn verify_builtin(id: &str, revision: &str) -> Result<(), SourceChanged> {
    let what = format!("builtin:{id}");
    match builtin::find(id) {
        Some(builtin) if builtin.revision == revision => Ok(()),
        Some(_) => Err(SourceChanged {
            what,
            why: "this version of piw ships another revision of it".to_owned(),
        }),
        None => Err(SourceChanged {
            what,
            why: "this version of piw does not ship it".to_owned(),
        }),
    }
}

fn changed(source: &SourceRef, why: &str) -> SourceChanged {
    let what = match source {
        SourceRef::File { path, .. } => path.clone(),
        SourceRef::Builtin { id, .. } => format!("builtin:{id}"),
    };
    SourceChanged {
        what,
        why: why.to_owned(),
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Finds dynamically included workflows; frozen files are served from their verified bytes.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// Where names are looked up.
    pub(crate) places: Places,
    /// Verified content.
    pub(crate) files: BTreeMap<PathBuf, Arc<[u8]>>,
}

impl WorkflowLookup for Lookup {
    fn find(&self, reference: &str, from: &SourceRef) -> Result<Entry, String> {
        let base = match from {
            SourceRef::File { path, .. } => Path::new(path).parent().unwrap_or(&self.places.project),
            SourceRef::Builtin { .. } => &self.places.project,
        };
        let found = discover::find(reference, &self.places, base).map_err(|error: DiscoverError| error.to_string())?;
        if let discover::Found::File(path) = &found
            && let Some(bytes) = self.files.get(path)
        {
            return Ok(Entry::File {
                path: path.clone(),
                bytes: bytes.clone(),
            });
        }
        discover::read(&found).map_err(|error| error.to_string())
    }
}
