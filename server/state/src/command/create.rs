//! `run.start`: a run is committed as queued, with its final id, before the command is answered.

use std::sync::Arc;

use piw_engine::Definition;
use piw_protocol::child::ValueRef;
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::envelope::Outcome;
use piw_protocol::ops::RunReceipt;
use piw_protocol::run::{RunStatus, SourceMap, SourceRef};
use rusqlite::named_params;
use uuid::Uuid;

use crate::cache::Graph;
use crate::command::RunReceipted;
use crate::error::StateError;
use crate::ids::RunKey;
use crate::live::{next_ready_seq, write_value};
use crate::message;
use crate::receipts::{CommandIdentity, Decision, receipted};
use crate::state::State;
use crate::value::{Prepared, maybe};
use crate::writer::{Authority, Tx};

/// What a resolver found, to be frozen in a new run.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedRun {
    /// The resolved graph.
    pub definition: DefinitionSnapshot,
    /// Its digest; checked against the graph.
    pub definition_digest: String,
    /// Frozen sources.
    pub sources: SourceMap,
    /// Title for this input.
    pub title: Option<String>,
    /// Normalised input.
    pub input: ValueRef,
}

/// A run to start.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Canonical absolute project directory.
    pub project_path: String,
    /// Pi session to bind; `None` for a headless run.
    pub session_id: Option<String>,
    /// What the resolver found.
    pub resolved: ResolvedRun,
}

/// A new run, encoded and checked on the caller's side.
pub(super) struct Draft {
    pub(super) graph: Graph,
    pub(super) snapshot: Prepared,
    pub(super) sources: SourceMap,
    pub(super) title: Option<String>,
    pub(super) input: Prepared,
}

/// Where a new run comes from.
pub(super) struct Lineage {
    pub(super) parent: Option<(RunKey, &'static str)>,
    pub(super) root: Option<i64>,
    pub(super) restart_count: u32,
    pub(super) action: &'static str,
}

/// Where a new run belongs.
pub(super) struct Place<'a> {
    pub(super) project: i64,
    pub(super) session_id: Option<&'a str>,
}

impl State {
    /// Commits a new run as queued.
    ///
    /// # Errors
    /// [`StateError::Invalid`] when the definition does not check out or a value cannot be stored; otherwise when the write
    /// fails.
    pub async fn start_run(&self, identity: CommandIdentity, new: NewRun) -> Result<RunReceipted, StateError> {
        let draft = Draft::new(new.resolved)?;
        let (project_path, session_id) = (new.project_path, new.session_id);
        self.write("start_run", Authority::Server, move |tx| {
            receipted(tx, &identity, |tx| {
                if let Some(holder) = session_holder(tx, session_id.as_deref())? {
                    let message = format!("the session is held by run {holder} until it ends");
                    let error = crate::receipts::error("session_busy", message);
                    return Ok(Decision::Refuse {
                        run: None,
                        outcome: Outcome::Rejected,
                        error,
                    });
                }
                let project = project(tx, &project_path)?;
                let place = Place {
                    project,
                    session_id: session_id.as_deref(),
                };
                let lineage = Lineage {
                    parent: None,
                    root: None,
                    restart_count: 0,
                    action: "start",
                };
                let (key, run_id) = draft.insert(tx, &place, &lineage)?;
                let receipt = RunReceipt {
                    run_id,
                    status: RunStatus::Queued,
                    paused: false,
                    run_revision: 1,
                    new_run_id: None,
                    message: None,
                };
                Ok(Decision::Accept {
                    run: Some(key),
                    revision: Some(1),
                    receipt,
                })
            })
        })
        .await
    }
}

impl Draft {
    pub(super) fn new(resolved: ResolvedRun) -> Result<Self, StateError> {
        let snapshot = Prepared::json(&resolved.definition)?;
        let definition = Definition::from_snapshot(resolved.definition)
            .map_err(|error| StateError::Invalid(format!("the definition is refused: {error}")))?;
        if definition.digest() != resolved.definition_digest {
            let text = format!(
                "the definition's digest is {}, not {}",
                definition.digest(),
                resolved.definition_digest
            );
            return Err(StateError::Invalid(text));
        }
        if let Some(problem) = definition.unsupported().into_iter().next() {
            return Err(StateError::Invalid(problem));
        }
        Ok(Self {
            graph: Graph::new(definition),
            snapshot,
            sources: resolved.sources,
            title: resolved.title,
            input: Prepared::value(&resolved.input)?,
        })
    }

    /// Writes every row of a new run and makes it claimable.
    pub(super) fn insert(
        self,
        tx: &mut Tx<'_>,
        place: &Place<'_>,
        lineage: &Lineage,
    ) -> Result<(RunKey, String), StateError> {
        let name = self.graph.definition.name().to_owned();
        let definition = store_definition(tx, self.graph, self.snapshot)?;
        let row = RunRow {
            definition,
            workflow_name: &name,
            title: self.title.as_deref(),
            carried_step_count: 0,
        };
        let (key, run_id) = insert_run(tx, place, lineage, &row)?;
        write_value(tx, key.0, "input", self.input)?;
        insert_sources(tx, key, &self.sources)?;
        Ok((key, run_id))
    }
}

/// Columns of a new run beyond its place and lineage.
pub(super) struct RunRow<'a> {
    pub(super) definition: i64,
    pub(super) workflow_name: &'a str,
    pub(super) title: Option<&'a str>,
    pub(super) carried_step_count: u64,
}

/// Writes the rows that every new run has: identity, run, queue, binding, first event.
pub(super) fn insert_run(
    tx: &mut Tx<'_>,
    place: &Place<'_>,
    lineage: &Lineage,
    row: &RunRow<'_>,
) -> Result<(RunKey, String), StateError> {
    let run_id = Uuid::now_v7().to_string();
    tx.db
        .prepare_cached("INSERT INTO resources (kind, revision, view_revision) VALUES ('run', 1, 1)")?
        .execute([])?;
    let key = RunKey(tx.db.last_insert_rowid());
    let parent = lineage.parent.map(|(parent, _)| parent);
    tx.db
        .prepare_cached(
            "INSERT INTO runs (id, run_id, project, definition, workflow_name, title, status, parent, parent_kind, root,
               restart_count, carried_step_count, step_count, trace_seq, created_at, updated_at)
             VALUES (:run, :run_id, :project, :definition, :name, :title, 'queued', :parent, :parent_kind, :root, :restarts,
               :carried, :carried, 1, :now, :now)",
        )?
        .execute(named_params! {
            ":run": key, ":run_id": run_id, ":project": place.project, ":definition": row.definition,
            ":name": row.workflow_name, ":title": row.title, ":parent": parent,
            ":parent_kind": lineage.parent.map(|(_, kind)| kind), ":root": lineage.root.unwrap_or(key.0),
            ":restarts": lineage.restart_count, ":carried": row.carried_step_count, ":now": tx.now,
        })?;
    let seq = next_ready_seq(tx)?;
    tx.db
        .prepare_cached(
            "INSERT INTO run_queue (run, status, action, claimable, ready_seq, queued_at, updated_at)
             VALUES (?1, 'queued', ?2, 1, ?3, ?4, ?4)",
        )?
        .execute((key, lineage.action, seq, tx.now))?;
    let mode = if place.session_id.is_some() {
        "interactive"
    } else {
        "headless"
    };
    tx.db
        .prepare_cached("INSERT INTO run_bindings (run, execution_mode, session_id, reserved) VALUES (?1, ?2, ?3, ?4)")?
        .execute((key, mode, place.session_id, place.session_id.is_some()))?;
    tx.db
        .prepare_cached("INSERT INTO events (resource, seq, at, scope, type) VALUES (?1, 1, ?2, 'run', 'run.queued')")?
        .execute((key, tx.now))?;
    if let Some(session) = place.session_id {
        message::touch(tx, session)?;
    }
    tx.changes.claimable = true;
    tx.changes.run(key, &Arc::from(run_id.as_str()), true);
    Ok((key, run_id))
}

/// The row of a project directory.
pub(super) fn project(tx: &Tx<'_>, path: &str) -> Result<i64, StateError> {
    tx.db
        .prepare_cached("INSERT INTO projects (path, created_at) VALUES (?1, ?2) ON CONFLICT (path) DO NOTHING")?
        .execute((path, tx.now))?;
    Ok(tx
        .db
        .prepare_cached("SELECT id FROM projects WHERE path = ?1")?
        .query_row([path], |row| row.get(0))?)
}

/// The unfinished run that holds a session, if any.
pub(super) fn session_holder(tx: &Tx<'_>, session_id: Option<&str>) -> Result<Option<String>, StateError> {
    let Some(session_id) = session_id else { return Ok(None) };
    let mut statement = tx.db.prepare_cached(
        "SELECT r.run_id FROM run_bindings b JOIN runs r ON r.id = b.run WHERE b.session_id = ?1 AND b.reserved = 1",
    )?;
    maybe(statement.query_row([session_id], |row| row.get(0)))
}

fn store_definition(tx: &mut Tx<'_>, graph: Graph, snapshot: Prepared) -> Result<i64, StateError> {
    let mut statement = tx
        .db
        .prepare_cached("SELECT id FROM workflow_definitions WHERE digest = ?1")?;
    let known: Option<i64> = maybe(statement.query_row([graph.definition.digest()], |row| row.get(0)))?;
    if let Some(id) = known {
        return Ok(id);
    }
    let stored = snapshot.store(tx.db, tx.now)?;
    let definition = &graph.definition;
    tx.db
        .prepare_cached(
            "INSERT INTO workflow_definitions (digest, name, start_at, node_total, snapshot_json, snapshot_blob, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            definition.digest(),
            definition.name(),
            &definition.snapshot().start_at,
            definition.nodes().len() as u64,
            stored.json,
            stored.blob,
            tx.now,
        ))?;
    let id = tx.db.last_insert_rowid();
    let mut insert = tx.db.prepare_cached(
        "INSERT INTO definition_nodes (definition, node, node_id, node_type) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (at, node) in (0u32..).zip(definition.nodes()) {
        let kind = serde_json::to_value(node.spec.node_type)?;
        insert.execute((id, at, &node.id, kind.as_str()))?;
    }
    tx.cache.keep_graph(id, Arc::new(graph));
    Ok(id)
}

fn insert_sources(tx: &Tx<'_>, run: RunKey, sources: &SourceMap) -> Result<(), StateError> {
    let root = std::iter::once(("root", None, &sources.root));
    let mounted = sources
        .mounted
        .iter()
        .map(|mounted| ("mounted", Some(&mounted.mount), &mounted.source));
    let modules = sources.modules.iter().map(|source| ("module", None, source));
    let mut statement = tx.db.prepare_cached(
        "INSERT INTO run_sources (run, ordinal, role, mount, kind, location, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (ordinal, (role, mount, source)) in (0u32..).zip(root.chain(mounted).chain(modules)) {
        let (kind, location, hash) = match source {
            SourceRef::File { path, hash } => ("file", path, hash),
            SourceRef::Builtin { id, revision } => ("builtin", id, revision),
        };
        statement.execute((run, ordinal, role, mount, kind, location, hash))?;
    }
    Ok(())
}

/// The frozen sources of a run.
pub(crate) fn read_sources(db: &rusqlite::Connection, run: RunKey) -> Result<SourceMap, StateError> {
    let mut statement =
        db.prepare_cached("SELECT role, mount, kind, location, hash FROM run_sources WHERE run = ?1 ORDER BY ordinal")?;
    let mut rows = statement.query([run])?;
    let mut root = None;
    let (mut mounted, mut modules) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let (role, mount, kind): (String, Option<String>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let source = match kind.as_str() {
            "builtin" => SourceRef::Builtin {
                id: row.get(3)?,
                revision: row.get(4)?,
            },
            _ => SourceRef::File {
                path: row.get(3)?,
                hash: row.get(4)?,
            },
        };
        match (role.as_str(), mount) {
            ("root", _) => root = Some(source),
            ("mounted", Some(mount)) => mounted.push(piw_protocol::run::MountedSource { mount, source }),
            _ => modules.push(source),
        }
    }
    let root = root.ok_or_else(|| StateError::Inconsistent(format!("run key {} has no root source", run.0)))?;
    Ok(SourceMap { root, mounted, modules })
}
