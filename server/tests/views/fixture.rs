//! A state directory filled by SQL: histories of any length in a moment, states that take many commands to reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use piw_protocol::canonical;
use piw_protocol::definition::{
    DEFINITION_SCHEMA, DefinitionSnapshot, EdgeRoute, EdgeSnapshot, NodeSnapshot, NodeType,
};
use piw_server::coordinator::Coordinators;
use piw_server::publish::Publisher;
use piw_state::{Clock, ServerIdentity, State, StateOptions, SystemClock};
use rusqlite::{Connection, params};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A moment that every fixture starts from: 2026-01-01T00:00:00Z.
pub const EPOCH: i64 = 1_767_225_600_000;

pub struct Fixture {
    pub state: State,
    pub publisher: Publisher,
    pub sql: Connection,
    _dir: tempfile::TempDir,
}

/// A run as the fixture writes it; the rest has defaults.
pub struct Run<'a> {
    pub run_id: &'a str,
    pub status: &'a str,
    pub queue: &'a str,
    pub title: Option<&'a str>,
    pub name: &'a str,
    pub parent: Option<(i64, &'a str)>,
    pub carried: i64,
    pub created_at: i64,
}

impl<'a> Run<'a> {
    pub fn new(run_id: &'a str, status: &'a str) -> Self {
        let queue = match status {
            "completed" => "done",
            "failed" | "timed_out" => "failed",
            "cancelled" => "cancelled",
            "queued" => "queued",
            _ => "parked",
        };
        Self {
            run_id,
            status,
            queue,
            title: None,
            name: "flow",
            parent: None,
            carried: 0,
            created_at: EPOCH,
        }
    }
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new())).await
    }

    pub async fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(StateOptions {
            clock,
            ..StateOptions::new(dir.path())
        })
        .unwrap();
        let identity = ServerIdentity {
            server_id: "test".into(),
            pid: std::process::id(),
            start_identity: "test".into(),
            package_version: "0".into(),
        };
        state.take_server_epoch(identity, None).await.unwrap();
        let sql = Connection::open(dir.path().join("state.sqlite")).unwrap();
        sql.execute_batch("PRAGMA synchronous=OFF; PRAGMA foreign_keys=ON; PRAGMA busy_timeout=5000;")
            .unwrap();
        sql.execute(
            "INSERT INTO projects (id, path, created_at) VALUES (1, '/project', 0)",
            [],
        )
        .unwrap();
        let publisher = Publisher::start(state.clone(), "test", Coordinators::new(1));
        Self {
            state,
            publisher,
            sql,
            _dir: dir,
        }
    }

    /// Stores the graph of [`circle`].
    pub fn circle(&self, count: usize) -> i64 {
        let snapshot = circle(count);
        let json = canonical::to_string(&snapshot).unwrap();
        let digest = canonical::digest_bytes(json.as_bytes());
        let (inline, blob) = self.value(&json);
        self.sql
            .execute(
                "INSERT INTO workflow_definitions (digest, name, start_at, node_total, snapshot_json, snapshot_blob, created_at)
                 VALUES (?1, 'flow', 'n0', ?2, ?3, ?4, 0)",
                params![digest, count as i64, inline, blob],
            )
            .unwrap();
        let id = self.sql.last_insert_rowid();
        for (n, node_id) in snapshot.node_order.iter().enumerate() {
            self.sql
                .execute(
                    "INSERT INTO definition_nodes (definition, node, node_id, node_type) VALUES (?1, ?2, ?3, 'compute')",
                    params![id, n as i64, node_id],
                )
                .unwrap();
        }
        id
    }

    /// The two columns of a stored value.
    fn value(&self, json: &str) -> (Option<String>, Option<i64>) {
        if json.len() <= 16 * 1024 {
            return (Some(json.to_owned()), None);
        }
        (None, Some(self.blob(json.as_bytes(), "application/json")))
    }

    /// Stores content in chunks.
    pub fn blob(&self, bytes: &[u8], media_type: &str) -> i64 {
        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let known = self
            .sql
            .query_row("SELECT id FROM blobs WHERE sha256 = ?1", [digest], |row| row.get(0));
        if let Ok(blob) = known {
            return blob;
        }
        self.sql
            .execute(
                "INSERT INTO blobs (sha256, bytes, media_type, complete, created_at) VALUES (?1, ?2, ?3, 1, 0)",
                params![digest, bytes.len() as i64, media_type],
            )
            .unwrap();
        let blob = self.sql.last_insert_rowid();
        for (n, chunk) in bytes.chunks(512 * 1024).enumerate() {
            self.sql
                .execute(
                    "INSERT INTO blob_chunks (blob, offset, data) VALUES (?1, ?2, ?3)",
                    params![blob, (n * 512 * 1024) as i64, chunk],
                )
                .unwrap();
        }
        blob
    }

    pub fn run(&self, definition: i64, run: &Run<'_>) -> i64 {
        let sql = &self.sql;
        sql.execute(
            "INSERT INTO resources (kind, revision, view_revision) VALUES ('run', 1, 1)",
            [],
        )
        .unwrap();
        let id = sql.last_insert_rowid();
        let terminal = matches!(run.status, "completed" | "failed" | "timed_out" | "cancelled");
        let root = match run.parent {
            Some((parent, _)) => sql
                .query_row("SELECT root FROM runs WHERE id = ?1", [parent], |row| {
                    row.get::<_, i64>(0)
                })
                .unwrap(),
            None => id,
        };
        sql.execute(
            "INSERT INTO runs (id, run_id, project, definition, workflow_name, title, status, parent, parent_kind, root,
                               carried_step_count, step_count, created_at, started_at, finished_at, updated_at)
             VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11, ?11, ?12, ?11)",
            params![
                id,
                run.run_id,
                definition,
                run.name,
                run.title,
                run.status,
                run.parent.map(|(parent, _)| parent),
                run.parent.map(|(_, kind)| kind),
                root,
                run.carried,
                run.created_at,
                terminal.then_some(run.created_at + 1000),
            ],
        )
        .unwrap();
        if let Some((parent, "continuation")) = run.parent {
            sql.execute("UPDATE runs SET continued_by = ?1 WHERE id = ?2", [id, parent])
                .unwrap();
        }
        sql.execute(
            "INSERT INTO run_queue (run, status, action, claimable, ready_seq, queued_at, updated_at)
             VALUES (?1, ?2, 'start', ?3, ?1, ?4, ?4)",
            params![id, run.queue, run.queue == "queued", run.created_at],
        )
        .unwrap();
        sql.execute(
            "INSERT INTO run_sources (run, ordinal, role, kind, location, hash) VALUES (?1, 0, 'root', 'file', '/project/f.ts', 'aa')",
            [id],
        )
        .unwrap();
        sql.execute(
            "INSERT INTO run_bindings (run, execution_mode, reserved) VALUES (?1, 'headless', 0)",
            [id],
        )
        .unwrap();
        sql.execute(
            "INSERT INTO run_values (run, kind, json, hash) VALUES (?1, 'input', '{\"a\":1}', 'sha256:x')",
            [id],
        )
        .unwrap();
        id
    }

    /// `count` finished steps in a circle of `nodes` nodes after those that the run has, with two trace events each.
    pub fn steps(&self, run: i64, nodes: i64, count: i64) {
        let sql = &self.sql;
        let (start, seq): (i64, i64) = sql
            .query_row("SELECT step_count, trace_seq FROM runs WHERE id = ?1", [run], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        let base: i64 = sql
            .query_row("SELECT coalesce(max(id), 0) + 1 FROM node_attempts", [], |row| {
                row.get(0)
            })
            .unwrap();
        let bind = params![run, start, count, nodes, base, EPOCH, seq];
        sql.execute_batch("BEGIN").unwrap();
        for statement in [
            "WITH RECURSIVE c(i) AS (SELECT ?2 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < ?2 + ?3)
             INSERT INTO node_attempts (id, run, attempt_id, node, visit, generation, status, outcome, started_at, finished_at,
                                        active_ms, output_json)
             SELECT ?5 + i - ?2, ?1, 'attempt-' || ?1 || '-' || i, i % ?4, i / ?4 + 1, 1, 'finished', 'ok', ?6 + i * 10,
                    ?6 + i * 10 + 5, 5, '{\"step\":' || i || '}' FROM c WHERE ?7 IS NOT NULL",
            "WITH RECURSIVE c(i) AS (SELECT ?2 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < ?2 + ?3)
             INSERT INTO run_steps (run, step_index, node, attempt)
             SELECT ?1, i, i % ?4, ?5 + i - ?2 FROM c WHERE ?6 IS NOT NULL AND ?7 IS NOT NULL",
            "WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < ?3 * 2)
             INSERT INTO events (resource, seq, at, scope, type, node, attempt)
             SELECT ?1, ?7 + i + 1, ?6 + (?2 + i / 2) * 10 + (i % 2) * 5, 'node',
                    CASE i % 2 WHEN 0 THEN 'node.started' ELSE 'node.finished' END, (?2 + i / 2) % ?4, ?5 + i / 2 FROM c",
            "INSERT OR REPLACE INTO run_nodes (run, node, visits, attempts, latest_attempt, latest_step, result_step)
             SELECT ?1, node, max(step_index) / ?4 + 1, max(step_index) / ?4 + 1, max(attempt), max(step_index), max(step_index)
               FROM run_steps WHERE run = ?1 AND ?2 + ?3 + ?5 + ?6 + ?7 IS NOT NULL GROUP BY node",
            "INSERT OR REPLACE INTO run_transitions (run, from_node, to_node, count, first_step)
             SELECT ?1, (node + ?4 - 1) % ?4, node, count(*), min(step_index)
               FROM run_steps WHERE run = ?1 AND step_index > 0 AND ?2 + ?3 + ?5 + ?6 + ?7 IS NOT NULL GROUP BY node",
            "UPDATE runs SET step_count = ?2 + ?3, trace_seq = ?7 + ?3 * 2, last_attempt = ?5 + ?3 - 1
              WHERE id = ?1 AND ?4 IS NOT NULL AND ?6 IS NOT NULL",
        ] {
            sql.execute(statement, bind).unwrap();
        }
        sql.execute(
            "UPDATE resources SET view_revision = view_revision + 1 WHERE id = ?1",
            [run],
        )
        .unwrap();
        sql.execute_batch("COMMIT").unwrap();
    }

    /// Gives a step another output.
    pub fn set_output(&self, run: i64, step: i64, json: &str) {
        let (inline, blob) = self.value(json);
        self.sql
            .execute(
                "UPDATE node_attempts SET output_json = ?3, output_blob = ?4
                  WHERE id = (SELECT attempt FROM run_steps WHERE run = ?1 AND step_index = ?2)",
                params![run, step, inline, blob],
            )
            .unwrap();
    }

    /// Gives a step another result (`{error?, action?}`).
    pub fn set_result(&self, run: i64, step: i64, result: &Value) {
        let (inline, blob) = self.value(&canonical::to_string(result).unwrap());
        self.sql
            .execute(
                "UPDATE node_attempts SET result_json = ?3, result_blob = ?4
                  WHERE id = (SELECT attempt FROM run_steps WHERE run = ?1 AND step_index = ?2)",
                params![run, step, inline, blob],
            )
            .unwrap();
    }

    pub fn set_value(&self, run: i64, kind: &str, json: &str) {
        let (inline, blob) = self.value(json);
        self.sql
            .execute(
                "INSERT OR REPLACE INTO run_values (run, kind, json, blob, hash) VALUES (?1, ?2, ?3, ?4, 'sha256:x')",
                params![run, kind, inline, blob],
            )
            .unwrap();
    }
}

/// A graph whose nodes `n0 … n<count-1>` follow each other in a circle.
pub fn circle(count: usize) -> DefinitionSnapshot {
    let ids: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
    let node = || NodeSnapshot {
        node_type: NodeType::Compute,
        action_execution: None,
        effect: None,
        status_detail: None,
        timeout_ms: None,
        summary: None,
        human_decision: None,
        expected_output: None,
        allowed_tools: None,
        notify_kind: None,
        callbacks: vec!["run".into()],
    };
    DefinitionSnapshot {
        schema: DEFINITION_SCHEMA.into(),
        name: "flow".into(),
        start_at: "n0".into(),
        max_steps: Some(1_000_000),
        settings: false,
        node_order: ids.clone(),
        nodes: ids.iter().map(|id| (id.clone(), node())).collect::<BTreeMap<_, _>>(),
        edges: (0..count)
            .map(|n| EdgeSnapshot {
                from: ids[n].clone(),
                route: EdgeRoute::To {
                    to: ids[(n + 1) % count].clone(),
                },
            })
            .collect(),
        includes: Vec::new(),
        exits: BTreeMap::new(),
    }
}
