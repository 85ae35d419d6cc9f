//! Which trees go and which stay, how their rows go, and that a crash in between loses nothing that should stay.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::{Flow, Place, Runner, accepted, command, start};
use piw_protocol::child::ContentRef;
use piw_protocol::definition::EffectKind;
use piw_protocol::ops::Operation;
use piw_protocol::session::SessionRecord;
use piw_state::retention::{KEEP_MS, protections};
use piw_state::{Answer, Purged, PutChunk, RunKey, RunnerOutcome, State, StateError};
use rusqlite::Connection;
use serde_json::json;

const HOUR: i64 = 60 * 60 * 1000;
const DAY: i64 = 24 * HOUR;

/// Goes round between `a` and `b` until `a` leads to the end.
fn flow() -> Flow {
    Flow::new("a")
        .compute("a")
        .compute("b")
        .compute("end")
        .switch("a", "$output.to", &[("b", "b"), ("end", "end")])
        .edge("b", "a")
}

/// Starts a run and completes it after `rounds` rounds: two steps each, and two more.
async fn completed(state: &State, key: &str, rounds: u32) -> String {
    let id = start(state, &flow(), key).await;
    let mut runner = Runner::launch(state).await;
    accepted(&runner.begin("a", 1).await);
    for visit in 1..=rounds {
        accepted(&runner.step("a", json!({"to": "b"}), "b", visit).await);
        accepted(&runner.step("b", json!("x".repeat(2000)), "a", visit + 1).await);
    }
    accepted(&runner.step("a", json!({"to": "end"}), "end", 1).await);
    accepted(&runner.complete("end", json!("y".repeat(40_000))).await);
    runner.exit(RunnerOutcome::Exited).await;
    id
}

/// Everything that a sweep does to rows; how many trees were removed from sight.
async fn sweep(state: &State, before: i64) -> u64 {
    let mut trees = 0;
    let mut after = None;
    loop {
        let page = state.select_trees(before, after).await.expect("select");
        let mut roots: Vec<RunKey> = page.trees.iter().map(|tree| tree.root).collect();
        while !roots.is_empty() {
            let marked = state.mark_trees(before, roots.clone()).await.expect("mark");
            roots.drain(..marked.looked_at);
            trees += marked.trees;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    while let Purged::Some(_) = state.purge_rows().await.expect("purge") {}
    while let Purged::Some(_) = state.purge_definition().await.expect("purge") {}
    let mut after = 0;
    loop {
        let (unnamed, next) = state.unnamed_content(after).await.expect("search");
        for blob in unnamed {
            if state.retire_content(blob).await.expect("retire") != Purged::Done {
                while let Purged::Some(_) = state.purge_content(blob).await.expect("purge") {}
            }
        }
        match next {
            Some(next) => after = next,
            None => return trees,
        }
    }
}

async fn kept(state: &State, before: i64) -> BTreeMap<&'static str, u64> {
    let mut kept = BTreeMap::new();
    let mut after = None;
    loop {
        let page = state.select_trees(before, after).await.expect("select");
        for (reason, trees) in page.kept {
            *kept.entry(reason).or_insert(0) += trees;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return kept,
        }
    }
}

async fn count(state: &State, sql: &'static str) -> u64 {
    state
        .read(move |db| Ok(db.query_row(sql, [], |row| row.get(0))?))
        .await
        .expect("a count")
}

/// The database, which no server has open: its log stays in its place when this connection closes.
fn database(place: &Place) -> Connection {
    let db = Connection::open(place.dir.path().join("state.sqlite")).expect("the database is closed otherwise");
    let keep_log = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    db.set_db_config(keep_log, true).expect("set");
    db
}

/// Copies of a completed run of one step: run `template` under the ids `from..from + number`, ended at `at`. Every third is a
/// tree of two: the next id is its restart.
fn clone_trees(db: &Connection, template: i64, from: i64, number: i64, at: i64) {
    let sql = format!(
        "BEGIN;
         CREATE TEMP TABLE n AS WITH RECURSIVE s(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM s WHERE i + 1 < {from} + {number})
           SELECT i, CASE WHEN i % 3 = 1 THEN i - 1 ELSE i END AS root FROM s;
         INSERT INTO resources (id, kind, revision, view_revision)
           SELECT i, 'run', 9, 9 FROM n ORDER BY i;
         INSERT INTO runs (id, run_id, project, definition, workflow_name, status, parent, parent_kind, root, restart_count,
             step_count, attempt_count, trace_seq, last_attempt, created_at, finished_at, updated_at)
           SELECT i, 'run-' || i, project, definition, workflow_name, status, CASE WHEN n.root <> i THEN n.root END,
             CASE WHEN n.root <> i THEN 'restart' END, n.root, n.root <> i, step_count, attempt_count, trace_seq,
             last_attempt + i * 10, {at}, {at}, {at} FROM n JOIN runs r ON r.id = {template} ORDER BY i;
         INSERT INTO run_values SELECT i, kind, json, blob, hash FROM n, run_values WHERE run = {template};
         INSERT INTO run_sources SELECT i, ordinal, role, mount, kind, location, hash FROM n, run_sources WHERE run = {template};
         INSERT INTO run_bindings SELECT i, execution_mode, session_id, reserved FROM n, run_bindings WHERE run = {template};
         INSERT INTO run_queue SELECT i, status, action, claimable, ready_seq, park_reason, park_detail, queued_at, updated_at
           FROM n, run_queue WHERE run = {template};
         INSERT INTO leases (resource, generation) SELECT i, 1 FROM n;
         INSERT INTO run_runners (run, generation, runner_epoch, launch_hash, server_epoch, status, outcome, started_at, finished_at)
           SELECT i, 1, 'epoch-' || i, launch_hash, server_epoch, status, outcome, started_at, finished_at
             FROM n, run_runners WHERE run = {template};
         INSERT INTO node_attempts (id, run, attempt_id, node, visit, generation, status, outcome, started_at, finished_at, output_json)
           SELECT a.id + i * 10, i, 'a' || a.id, node, visit, 1, status, outcome, started_at, finished_at, output_json
             FROM n, node_attempts a WHERE a.run = {template};
         INSERT INTO run_steps SELECT i, step_index, node, attempt + i * 10 FROM n, run_steps WHERE run = {template};
         INSERT INTO run_nodes SELECT i, node, visits, attempts, latest_attempt + i * 10, latest_step, result_step,
             result_attempt + i * 10 FROM n, run_nodes WHERE run = {template};
         INSERT INTO run_transitions SELECT i, from_node, to_node, count, first_step FROM n, run_transitions WHERE run = {template};
         INSERT INTO events SELECT i, seq, at, scope, type, node, attempt, payload FROM n, events WHERE resource = {template};
         DROP TABLE n;
         COMMIT;"
    );
    db.execute_batch(&sql).expect("clones");
}

/// Makes one run protected. `{r}` is its id, `{a}` an attempt of it, `{t}` a time, `{o}` an id that nothing has.
const PROTECT: &[(&str, &str)] = &[
    ("not ended", "UPDATE runs SET status = 'running', finished_at = NULL WHERE id = {r}"),
    ("ended later", "UPDATE runs SET finished_at = {t} WHERE id = {r}"),
    ("queued or parked work", "UPDATE run_queue SET status = 'parked' WHERE run = {r}"),
    ("resumable checkpoint", "UPDATE runs SET current_attempt = {a} WHERE id = {r}"),
    (
        "live claim",
        "UPDATE leases SET owner_type = 'server', owner_id = 's', token_hash = zeroblob(32), expires_clock_ms = 1 WHERE resource = {r}",
    ),
    ("active runner", "UPDATE run_runners SET status = 'ready', outcome = NULL WHERE run = {r}"),
    (
        "unsettled effect",
        "INSERT INTO effects (resource, key, effect_type, kind, fingerprint, status, created_at, updated_at)
           VALUES ({r}, 'key-{r}', 't', 'manual', 'f', 'ambiguous', 1, 1)",
    ),
    (
        "pending request",
        "INSERT INTO interactive_requests (request_id, run, attempt, target_session, kind, contract_hash, status, created_at)
           VALUES ('request-{r}', {r}, {a}, 's', 'submit', 'h', 'pending', 1)",
    ),
    (
        "pending decision",
        "INSERT INTO human_decisions (decision_id, run, attempt, digest, policy_json, status, created_at)
           VALUES ('decision-{r}', {r}, {a}, 'd', '{}', 'pending', 1)",
    ),
    (
        "pending message",
        "INSERT INTO workflow_messages (message_id, run, target_session, kind, source_id, content_digest, session_order, state,
           created_at, updated_at) VALUES ('message-{r}', {r}, 's', 'notification', 'x', 'd', {r}, 'pending', 1, 1)",
    ),
    (
        "open turn",
        "INSERT INTO workflow_messages (id, message_id, run, target_session, kind, source_id, content_digest, session_order, state,
           created_at, updated_at) VALUES ({r}, 'message-{r}', {r}, 's', 'notification', 'x', 'd', {r}, 'sent', 1, 1);
         INSERT INTO workflow_turns (turn_id, message, run, session_id, coordinator_epoch, status, started_at)
           VALUES ('turn-{r}', {r}, {r}, 's-{r}', 1, 'open', 1)",
    ),
    (
        "queued follow-up",
        "INSERT INTO workflow_follow_ups (follow_up_id, run, number, status, created_at, updated_at)
           VALUES ('follow-{r}', {r}, 1, 'queued', 1, 1)",
    ),
    (
        "session reservation",
        "UPDATE run_bindings SET execution_mode = 'interactive', session_id = 's-{r}', reserved = 1 WHERE run = {r}",
    ),
    (
        "undelivered result",
        "UPDATE run_bindings SET execution_mode = 'interactive', session_id = 's-{r}' WHERE run = {r}",
    ),
    (
        "recording",
        "INSERT INTO session_segments (segment_id, session_id, run, status, first_position, started_at)
           VALUES ('segment-{r}', 's-{r}', {r}, 'recording', 0, 1)",
    ),
    (
        "managed resource",
        "INSERT INTO resources (id, kind) VALUES ({o}, 'managed_resource');
         INSERT INTO managed_resources (id, project, resource_manager_name, name, spec_generation, phase, created_at, updated_at)
           SELECT {o}, project, 'm', 'n-{r}', 1, 'ready', 1, 1 FROM runs WHERE id = {r};
         INSERT INTO managed_resource_workflows (resource, run, role) VALUES ({o}, {r}, 'x')",
    ),
    (
        "outside reference",
        "INSERT INTO resources (id, kind) VALUES ({o}, 'run');
         INSERT INTO runs (id, run_id, project, definition, workflow_name, status, parent, parent_kind, root, created_at, updated_at)
           SELECT {o}, 'other-{r}', project, definition, workflow_name, 'queued', {r}, 'restart', {o}, 1, 1 FROM runs WHERE id = {r}",
    ),
];
/// Trees whose whole kind is protected, for each kind.
const EACH: i64 = 60;

fn protect(db: &Connection, sql: &str, run: i64, at: i64) {
    let attempt: i64 = db
        .query_row("SELECT id FROM node_attempts WHERE run = ?1", [run], |row| row.get(0))
        .expect("an attempt");
    let sql = sql
        .replace("{r}", &run.to_string())
        .replace("{a}", &attempt.to_string())
        .replace("{t}", &at.to_string())
        .replace("{o}", &(1_000_000 + run).to_string());
    db.execute_batch(&sql).expect("protected");
}

fn runs(db: &Connection) -> BTreeSet<i64> {
    let mut statement = db.prepare("SELECT id FROM runs").expect("a query");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

#[tokio::test]
async fn of_ten_thousand_trees_exactly_those_go_that_nothing_protects() {
    let mut place = Place::new();
    let state = place.serve().await;
    completed(&state, "template", 0).await;
    let template = count(&state, "SELECT id FROM runs").await.cast_signed();
    let now = 1_767_225_600_000;
    state.close();
    // Ids from a multiple of three: run 3k is the root of run 3k + 1, run 3k + 2 stands alone. 15,000 runs in 10,000 trees.
    let (from, number) = (3000_i64, 15_000_i64);
    let db = database(&place);
    clone_trees(&db, template, from, number, now - 40 * DAY);
    let mut stays = BTreeSet::from([template]);
    db.execute_batch("BEGIN").expect("begin");
    for (kind, (reason, sql)) in (0..).zip(PROTECT) {
        for nth in 0..EACH {
            let root = from + 3 * (kind * EACH + nth);
            // The root itself, or its restart, or the run that stands alone.
            let run = root + nth % 3;
            // The run itself ends "later", or the tree would not be looked at: its root has to be old.
            if *reason == "not ended" || *reason == "ended later" {
                protect(&db, sql, root + 1, now - 10 * DAY);
                stays.extend([root, root + 1]);
                continue;
            }
            protect(&db, sql, run, now - 10 * DAY);
            stays.extend(if nth % 3 == 2 { vec![run] } else { vec![root, root + 1] });
            if *reason == "outside reference" {
                stays.insert(1_000_000 + run);
            }
        }
    }
    db.execute_batch("COMMIT").expect("commit");
    // A tree whose root is not there is not known to be over.
    let orphan = from + number - 1;
    db.execute("UPDATE runs SET root = 999999999 WHERE id = ?1", [orphan])
        .expect("update");
    stays.insert(orphan);
    drop(db);

    let state = place.serve().await;
    let found = kept(&state, now - KEEP_MS).await;
    let expected: BTreeMap<&str, u64> = protections().map(|reason| (reason, EACH.cast_unsigned())).collect();
    assert_eq!(found, expected, "every kind of protection is told by its name");
    let all_trees = (number / 3 * 2).cast_unsigned();
    let gone = all_trees - EACH.cast_unsigned() * PROTECT.len() as u64 - 1;
    assert_eq!(sweep(&state, now - KEEP_MS).await, gone);
    assert_eq!(runs(&database(&place)), stays);
    for table in [
        "node_attempts",
        "run_steps",
        "events",
        "run_values",
        "run_queue",
        "leases",
        "run_runners",
    ] {
        let column = if matches!(table, "events" | "leases") {
            "resource"
        } else {
            "run"
        };
        let left: u64 = database(&place)
            .query_row(
                &format!("SELECT count(*) FROM {table} t WHERE NOT EXISTS (SELECT 1 FROM resources r WHERE r.id = t.{column})"),
                [],
                |row| row.get(0),
            )
            .expect("a count");
        assert_eq!(left, 0, "{table}");
    }
    // Again and again: nothing changes.
    let before = count(&state, "SELECT sum(id) FROM node_attempts").await;
    assert_eq!(sweep(&state, now - KEEP_MS).await, 0);
    assert_eq!(sweep(&state, now - KEEP_MS).await, 0);
    assert_eq!(runs(&database(&place)), stays);
    assert_eq!(count(&state, "SELECT sum(id) FROM node_attempts").await, before);
    let damaged: Vec<_> = state.verify().await.expect("verify");
    assert!(
        damaged.iter().all(
            |found| !["file integrity", "foreign keys", "a tree is deleted as a whole"].contains(&found.invariant)
        ),
        "{damaged:?}"
    );
}

#[tokio::test]
async fn a_tree_goes_with_its_continuations_and_keeps_every_rule_on_the_way() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = Flow::new("a")
        .compute("a")
        .checkpoint("ask")
        .compute("b")
        .edge("a", "ask")
        .edge("ask", "b");
    let root = start(&state, &flow, "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.step("a", json!("z".repeat(50_000)), "ask", 1).await);
    accepted(&runner.wait("ask", json!({"summary": "may it go on?"})).await);
    runner.exit(RunnerOutcome::Exited).await;
    let answer = Answer {
        value: piw_protocol::child::ValueRef::Inline(json!(true)),
        source: "test".to_owned(),
    };
    let answered = state
        .answer_checkpoint(
            command(Operation::CheckpointAnswer, "answer"),
            root.clone(),
            None,
            answer,
        )
        .await
        .expect("answer");
    let child = answered.receipt.expect("a receipt").new_run_id.expect("a continuation");
    place.clock.advance(40 * DAY);
    let state = reopen(&mut place, state).await;
    assert_eq!(
        sweep(&state, place_now(&place) - KEEP_MS).await,
        0,
        "its continuation has not ended"
    );

    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("b", 1).await);
    accepted(&runner.complete("b", json!("end")).await);
    runner.exit(RunnerOutcome::Exited).await;
    assert_eq!(
        sweep(&state, place_now(&place) - KEEP_MS).await,
        0,
        "its continuation ended just now"
    );
    place.clock.advance(31 * DAY);
    let state = reopen(&mut place, state).await;
    let kept_run = completed(&state, "kept", 1).await;
    let before = place_now(&place) - KEEP_MS;
    let page = state.select_trees(before, None).await.expect("select");
    assert_eq!((page.trees.len(), page.trees[0].runs, page.trees[0].steps), (1, 2, 3));
    let mut feed = state.changes(piw_state::Interest::Everything);
    let marked = state.mark_trees(before, vec![page.trees[0].root]).await.expect("mark");
    assert_eq!((marked.trees, marked.runs), (1, 2));
    let told: BTreeSet<String> = feed.take().runs.values().map(|run| run.run_id.to_string()).collect();
    assert_eq!(
        told,
        BTreeSet::from([root.clone(), child.clone()]),
        "both disappear at once"
    );
    assert_eq!(state.original(root.clone()).await.expect("read"), None);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    while let Purged::Some(_) = state.purge_rows().await.expect("purge") {
        assert_eq!(state.verify().await.expect("verify"), vec![]);
    }
    assert_eq!(sweep(&state, before).await, 0);
    assert_eq!(count(&state, "SELECT count(*) FROM runs").await, 1);
    assert_eq!(
        count(&state, "SELECT count(*) FROM blobs").await,
        1,
        "the large value of the kept run, not the one of the tree"
    );
    assert!(state.original(kept_run).await.expect("read").is_some());
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

/// What is recorded of a run's session, large values among it.
fn recorded(run: &str, sequence: u64) -> SessionRecord {
    let batch = json!({
        "sessionId": "s", "segmentId": "g", "runId": run, "sequence": sequence,
        "events": (0..400).map(|number| json!({
            "at": "2026-01-01T00:00:00.000Z", "type": "tool_start",
            "payload": {"callId": format!("c-{}", number % 60), "tool": "t", "args": "y".repeat(number * 50)},
        })).chain([json!({"at": "2026-01-01T00:00:00.000Z", "type": "entry", "payload": {"entryId": format!("e-{sequence}")}})])
          .collect::<Vec<_>>(),
        "entries": [{"entryId": format!("e-{sequence}"), "at": "2026-01-01T00:00:00.000Z", "kind": "message",
            "content": "z".repeat(100_000)}],
    });
    serde_json::from_value(batch).expect("a batch")
}

#[tokio::test]
async fn a_recording_goes_with_its_run_and_keeps_every_rule_on_the_way() {
    let mut place = Place::new();
    let state = place.serve().await;
    let new = piw_state::NewRun {
        session_id: Some("s".to_owned()),
        ..Flow::new("a").compute("a").new_run(json!(1))
    };
    let started = state
        .start_run(command(Operation::RunStart, "k"), new)
        .await
        .expect("start");
    let run = common::run_id(&started);
    for sequence in [0, 401, 802] {
        let stored = state.record_session(recorded(&run, sequence)).await.expect("record");
        assert!(stored.expect("stored").new);
    }
    let cancel = command(Operation::RunCancel, "cancel");
    state.cancel_run(cancel, run.clone(), None).await.expect("cancel");
    state.close();
    // Its result reached the session.
    database(&place)
        .execute_batch(
            "UPDATE workflow_messages SET state = 'sent', open = 0, pi_entry_id = 'e' WHERE kind = 'terminal'",
        )
        .expect("a message");
    place.clock.advance(31 * DAY);
    let state = place.serve().await;
    let before = place_now(&place) - KEEP_MS;
    assert_eq!(kept(&state, before).await, BTreeMap::from([("recording", 1)]));
    let end = SessionRecord {
        events: Vec::new(),
        entries: Vec::new(),
        end: Some(piw_protocol::session::SegmentEnd {
            failed: true,
            reason: None,
        }),
        ..recorded(&run, 1203)
    };
    assert!(
        state
            .record_session(end.clone())
            .await
            .expect("record")
            .expect("stored")
            .new
    );
    assert_eq!(kept(&state, before).await, BTreeMap::new());
    let page = state.select_trees(before, None).await.expect("select");
    state.mark_trees(before, vec![page.trees[0].root]).await.expect("mark");
    let refused = state
        .record_session(end)
        .await
        .expect("record")
        .expect_err("it is gone");
    assert_eq!(refused.error.reason, "run_not_found");
    while let Purged::Some(_) = state.purge_rows().await.expect("purge") {
        assert_eq!(state.verify().await.expect("verify"), vec![]);
    }
    assert_eq!(sweep(&state, before).await, 0);
    for left in [
        "SELECT count(*) FROM session_segments",
        "SELECT count(*) FROM session_events",
        "SELECT count(*) FROM session_entries",
        "SELECT count(*) FROM viewer_session_checkpoints",
        "SELECT count(*) FROM blobs",
    ] {
        assert_eq!(count(&state, left).await, 0, "{left}");
    }
}

fn place_now(place: &Place) -> i64 {
    use piw_state::Clock;
    place.clock.wall_ms()
}

/// The claim of a server does not survive days without a renewal.
async fn reopen(place: &mut Place, state: State) -> State {
    state.close();
    let state = place.serve().await;
    state.recover().await.expect("recover");
    state
}

#[tokio::test]
async fn work_that_waits_comes_before_any_purging() {
    let mut place = Place::new();
    let state = place.serve().await;
    completed(&state, "old", 200).await;
    place.clock.advance(31 * DAY);
    let state = reopen(&mut place, state).await;
    let before = place_now(&place) - KEEP_MS;
    let page = state.select_trees(before, None).await.expect("select");
    state.mark_trees(before, vec![page.trees[0].root]).await.expect("mark");
    assert!(matches!(state.purge_rows().await.expect("purge"), Purged::Some(rows) if rows <= 256 + 256));
    let attempts = count(&state, "SELECT count(*) FROM node_attempts").await;
    let id = start(&state, &flow(), "new").await;
    for _ in 0..3 {
        assert_eq!(state.purge_rows().await.expect("purge"), Purged::Busy);
        assert_eq!(state.compact_some().await.expect("compact"), Purged::Busy);
        assert_eq!(state.retire_content(1).await.expect("retire"), Purged::Busy);
    }
    assert_eq!(count(&state, "SELECT count(*) FROM node_attempts").await, attempts);
    // The run goes through as if nothing were being purged.
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    accepted(&runner.step("a", json!({"to": "end"}), "end", 1).await);
    accepted(&runner.complete("end", json!(1)).await);
    runner.exit(RunnerOutcome::Exited).await;
    while let Purged::Some(_) = state.purge_rows().await.expect("purge") {}
    assert_eq!(common::facts(&state, &id).await.0, "completed");
    assert_eq!(count(&state, "SELECT count(*) FROM runs").await, 1);
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn an_effect_that_waits_for_a_review_keeps_its_run_until_it_is_settled() {
    let mut place = Place::new();
    let state = place.serve().await;
    let flow = Flow::new("a").action("a", EffectKind::Manual);
    let id = start(&state, &flow, "k").await;
    let mut runner = Runner::launch(&state).await;
    accepted(&runner.begin("a", 1).await);
    runner.reserve("a", 1, EffectKind::Manual).await;
    let cancelled = state
        .cancel_run(command(Operation::RunCancel, "c"), id, None)
        .await
        .expect("cancel");
    assert!(cancelled.receipted.error.is_none());
    runner.exit(RunnerOutcome::Cancelled).await;
    place.clock.advance(400 * DAY);
    let state = reopen(&mut place, state).await;
    let before = place_now(&place) - KEEP_MS;
    assert_eq!(kept(&state, before).await, BTreeMap::from([("unsettled effect", 1)]));
    assert_eq!(sweep(&state, before).await, 0);
}

#[tokio::test]
async fn uploads_stay_until_they_are_named_or_forgotten() {
    let mut place = Place::new();
    let state = place.serve().await;
    let bytes = vec![b'u'; 100_000];
    let content = ContentRef::of(&bytes, "application/json");
    let put = || PutChunk {
        owner: "client".to_owned(),
        content: content.clone(),
        offset: 0,
        data: bytes.clone(),
        complete: true,
    };
    assert!(state.put_content(put()).await.expect("put").expect("stored").complete);
    assert_eq!(sweep(&state, 0).await, 0);
    assert_eq!(
        count(&state, "SELECT count(*) FROM blobs").await,
        1,
        "it may be about to be named"
    );
    place.clock.advance(2 * HOUR);
    let state = reopen(&mut place, state).await;
    // Uploaded again, it is as young as a new upload.
    assert!(state.put_content(put()).await.expect("put").expect("stored").complete);
    assert_eq!(sweep(&state, 0).await, 0);
    assert_eq!(count(&state, "SELECT count(*) FROM blobs WHERE complete = 1").await, 1);
    place.clock.advance(2 * HOUR);
    let state = reopen(&mut place, state).await;
    assert_eq!(sweep(&state, 0).await, 0);
    assert_eq!(count(&state, "SELECT count(*) FROM blobs").await, 0);
    assert_eq!(count(&state, "SELECT count(*) FROM blob_chunks").await, 0);
    // Gone means that the next upload stores it anew.
    assert!(state.put_content(put()).await.expect("put").expect("stored").complete);
    assert_eq!(count(&state, "SELECT count(*) FROM blob_chunks").await, 1);
}

#[tokio::test]
async fn free_pages_are_given_back_a_few_at_a_time() {
    let mut place = Place::new();
    let state = place.serve().await;
    completed(&state, "old", 300).await;
    place.clock.advance(31 * DAY);
    let state = reopen(&mut place, state).await;
    assert!(
        !state.wants_compaction().await.expect("read"),
        "a small file keeps its free pages"
    );
    assert_eq!(sweep(&state, place_now(&place) - KEEP_MS).await, 1);
    assert!(state.truncate_wal().await.expect("checkpoint"));
    let file = place.dir.path().join("state.sqlite");
    let (wal, full) = (
        std::fs::metadata(file.with_extension("sqlite-wal")).map_or(0, |meta| meta.len()),
        std::fs::metadata(&file).expect("the file").len(),
    );
    assert_eq!(wal, 0, "the log is empty");
    while let Purged::Some(pages) = state.compact_some().await.expect("compact") {
        assert!(pages <= 64);
    }
    assert!(state.truncate_wal().await.expect("checkpoint"));
    let small = std::fs::metadata(&file).expect("the file").len();
    assert!(small < full / 2, "{small} of {full} bytes are left");
    assert_eq!(state.verify().await.expect("verify"), vec![]);
}

#[tokio::test]
async fn a_reader_of_an_old_state_makes_nobody_wait_for_the_log() {
    let mut place = Place::new();
    let state = place.serve().await;
    completed(&state, "k", 3).await;
    let reader = database(&place);
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM runs")
        .expect("a snapshot");
    completed(&state, "l", 3).await;
    let begun = std::time::Instant::now();
    assert!(!state.truncate_wal().await.expect("checkpoint"));
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(4),
        "it did not wait for the reader"
    );
    drop(reader);
    assert!(state.truncate_wal().await.expect("checkpoint"));
}

#[tokio::test]
async fn a_sweep_is_due_a_day_after_the_last_and_five_minutes_after_a_failure() {
    let mut place = Place::new();
    let state = place.serve().await;
    state.recover().await.expect("recover");
    let now = place_now(&place);
    let record = state.sweep_record().await.expect("read");
    assert_eq!(record.next_at(now), now, "recovery asks for one");
    state.sweep_failed(&"é".repeat(600)).await.expect("record");
    let record = state.sweep_record().await.expect("read");
    assert_eq!(record.next_at(now), now + 5 * 60 * 1000);
    assert_eq!(
        record.error.map(|text| text.len()),
        Some(512),
        "the diagnostic is bounded"
    );
    state.sweep_finished().await.expect("record");
    let record = state.sweep_record().await.expect("read");
    assert_eq!((record.next_at(now), record.error.clone()), (now + DAY, None));
    assert_eq!(
        record.next_at(now - 90 * DAY),
        now - 90 * DAY,
        "a clock that was set back delays nothing"
    );
}

const DIR: &str = "PIW_STATE_TEST_PURGE_DIR";

fn open(dir: &Path) -> State {
    State::open(piw_state::StateOptions::new(dir)).expect("opens")
}

/// Not a test of its own: the process that is killed while it purges. It prints after each transaction.
#[tokio::test]
async fn killed_purger() {
    use std::io::Write;
    let Some(dir) = std::env::var_os(DIR) else { return };
    let state = open(Path::new(&dir));
    state
        .take_server_epoch(common::identity_of(7), Some("server-1".to_owned()))
        .await
        .expect("epoch");
    let mut out = std::io::stdout();
    while let Purged::Some(rows) = state.purge_rows().await.expect("purge") {
        writeln!(out, "\npurged {rows}").expect("print");
        out.flush().expect("print");
    }
    writeln!(out, "\ndone").expect("print");
}

#[tokio::test]
async fn a_purge_that_is_killed_goes_on_at_the_next_start() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().expect("temp dir");
    let state = open(dir.path());
    state
        .take_server_epoch(common::identity_of(1), None)
        .await
        .expect("epoch");
    let old = completed(&state, "old", 1000).await;
    let kept = completed(&state, "kept", 2).await;
    let (now, root) = (state.clock().wall_ms() + 1, key_of(&state, &old).await);
    assert_eq!(state.mark_trees(now, vec![root]).await.expect("mark").trees, 1);
    state.close();
    for kill_after in [1, 2, 3] {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "killed_purger", "--nocapture"])
            .env(DIR, dir.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("spawn");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut purged = 0;
        for line in lines.map_while(Result::ok) {
            assert_ne!(line, "done", "there is more than that to purge");
            purged += u32::from(line.starts_with("purged"));
            if purged == kill_after {
                break;
            }
        }
        child.kill().expect("kill");
        child.wait().expect("reap");
        let state = open(dir.path());
        assert!(state.sweep_record().await.expect("read").purging);
        assert_eq!(state.verify().await.expect("verify"), vec![]);
        state
            .take_server_epoch(common::identity_of(1), Some("server-7".to_owned()))
            .await
            .expect("the killed one is gone");
        state.close();
    }
    let state = open(dir.path());
    state
        .take_server_epoch(common::identity_of(2), Some("server-1".to_owned()))
        .await
        .expect("epoch");
    state.recover().await.expect("recover");
    while let Purged::Some(_) = state.purge_rows().await.expect("purge") {}
    assert_eq!(count(&state, "SELECT count(*) FROM runs").await, 1);
    assert_eq!(
        count(&state, "SELECT count(*) FROM resources WHERE kind = 'run'").await,
        1
    );
    assert_eq!(state.verify().await.expect("verify"), vec![]);
    assert_eq!(common::facts(&state, &kept).await.3, 6);
    // The id of the deleted run is not given to a new one.
    let new = key_of(&state, &start(&state, &flow(), "new").await).await;
    assert!(new > key_of(&state, &kept).await);
}

async fn key_of(state: &State, run_id: &str) -> RunKey {
    let run_id = run_id.to_owned();
    state
        .read(move |db| -> Result<RunKey, StateError> {
            Ok(db.query_row("SELECT id FROM runs WHERE run_id = ?1", [run_id], |row| row.get(0))?)
        })
        .await
        .expect("the run exists")
}
