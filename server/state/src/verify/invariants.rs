//! The invariants, one query each. A query returns the public id of the run (or `NULL`) and what was found, without content.
//!
//! Rows of runs that were removed from sight go table by table: queries that compare tables leave such runs out.

/// Name and query of each invariant; a query returns run id and detail of each violation.
pub(super) const INVARIANTS: &[(&str, &str)] = &[
    (
        "run and queue states fit",
        "SELECT r.run_id, r.status || ' with queue ' || coalesce(q.status, 'missing')
           FROM runs r LEFT JOIN run_queue q ON q.run = r.id
          WHERE r.deleted_at IS NULL AND NOT coalesce(CASE r.status
            WHEN 'queued' THEN q.status = 'queued' OR (q.status = 'parked' AND r.paused_at IS NOT NULL)
            WHEN 'running' THEN q.status IN ('starting', 'running', 'parked')
            WHEN 'waiting' THEN q.status = 'parked'
            WHEN 'completed' THEN q.status = 'done'
            WHEN 'cancelled' THEN q.status = 'cancelled'
            ELSE q.status = 'failed' END, 0)",
    ),
    (
        "only ready runs are claimable",
        "SELECT r.run_id, 'claimable while ' || r.status || coalesce(', paused', '') FROM run_queue q JOIN runs r ON r.id = q.run
          WHERE q.claimable = 1 AND (r.status NOT IN ('queued', 'running') OR r.paused_at IS NOT NULL
            OR r.ambiguous_effects > 0 OR r.deleted_at IS NOT NULL)",
    ),
    (
        "queued runs are claimable unless paused",
        "SELECT r.run_id, 'queued and not claimable' FROM run_queue q JOIN runs r ON r.id = q.run
          WHERE r.status = 'queued' AND q.claimable = 0 AND r.paused_at IS NULL",
    ),
    (
        "a claim exists exactly while a runner may execute",
        "SELECT r.run_id, 'queue ' || q.status || CASE WHEN l.owner_id IS NULL THEN ' without a claim' ELSE ' with a claim' END
           FROM runs r JOIN run_queue q ON q.run = r.id LEFT JOIN leases l ON l.resource = r.id
          WHERE (q.status IN ('starting', 'running')) <> (l.owner_id IS NOT NULL)",
    ),
    (
        "a claim belongs to the server's epoch",
        "SELECT r.run_id, 'claim of epoch ' || coalesce(l.server_epoch, 'none') FROM leases l JOIN runs r ON r.id = l.resource
           JOIN workflow_server_state s ON s.id = 1
          WHERE l.owner_id IS NOT NULL AND (l.server_epoch IS NULL OR l.server_epoch > s.epoch)",
    ),
    (
        "a paused run holds no claim and waits in no queue",
        "SELECT r.run_id, 'paused with queue ' || coalesce(q.status, 'missing') || CASE WHEN l.owner_id IS NULL THEN '' ELSE ' and a claim' END
           FROM runs r LEFT JOIN run_queue q ON q.run = r.id LEFT JOIN leases l ON l.resource = r.id
          WHERE r.paused_at IS NOT NULL AND (l.owner_id IS NOT NULL OR q.status IS NOT 'parked' OR q.claimable <> 0)",
    ),
    (
        "a waiting run waits for something",
        "SELECT r.run_id, 'waiting for nothing' FROM runs r WHERE r.status = 'waiting' AND r.waiting_attempt IS NULL
            AND NOT EXISTS (SELECT 1 FROM interactive_requests q WHERE q.run = r.id AND q.status = 'pending')
            AND NOT EXISTS (SELECT 1 FROM human_decisions d WHERE d.run = r.id AND d.status = 'pending')",
    ),
    (
        "the awaited checkpoint is the newest step",
        "SELECT r.run_id, 'waits at attempt ' || r.waiting_attempt FROM runs r WHERE r.waiting_attempt IS NOT NULL
            AND r.waiting_attempt IS NOT (SELECT s.attempt FROM run_steps s WHERE s.run = r.id AND s.step_index = r.step_count - 1)",
    ),
    (
        "generations come from claims",
        "SELECT r.run_id, 'launch of generation ' || a.generation || ', claim of ' || coalesce(l.generation, 'none')
           FROM run_runners a JOIN runs r ON r.id = a.run LEFT JOIN leases l ON l.resource = a.run
          WHERE r.deleted_at IS NULL AND (l.generation IS NULL OR a.generation > l.generation)
         UNION ALL
         SELECT r.run_id, 'attempt of generation ' || max(a.generation) || ', claim of ' || coalesce(l.generation, 'none')
           FROM node_attempts a JOIN runs r ON r.id = a.run LEFT JOIN leases l ON l.resource = a.run
          WHERE r.deleted_at IS NULL GROUP BY a.run HAVING l.generation IS NULL OR max(a.generation) > l.generation",
    ),
    (
        "registered processes and replies belong to an active launch",
        "SELECT r.run_id, 'process group ' || p.pid || ' without an active launch' FROM run_processes p JOIN runs r ON r.id = p.run
          WHERE NOT EXISTS (SELECT 1 FROM run_runners a WHERE a.run = p.run AND a.status <> 'ended')
         UNION ALL
         SELECT r.run_id, 'reply ' || m.slot || ' without an active launch' FROM runner_messages m JOIN runs r ON r.id = m.run
          WHERE NOT EXISTS (SELECT 1 FROM run_runners a WHERE a.run = m.run AND a.status <> 'ended')",
    ),
    (
        "the server holds its claim while it runs",
        "SELECT NULL, 'server ' || s.state || CASE WHEN l.owner_id IS NULL THEN ' without a claim' ELSE ' with a claim' END
           FROM workflow_server_state s LEFT JOIN leases l ON l.resource = s.resource
          WHERE (s.state = 'running') <> (l.owner_id IS NOT NULL) OR l.owner_id NOT IN (s.server_id)",
    ),
    (
        "resources are what they say",
        "SELECT r.run_id, 'resource ' || i.id || ' of kind ' || i.kind FROM resources i LEFT JOIN runs r ON r.id = i.id
          WHERE i.kind <> CASE
            WHEN r.id IS NOT NULL THEN 'run'
            WHEN EXISTS (SELECT 1 FROM workflow_server_state s WHERE s.resource = i.id) THEN 'server'
            WHEN EXISTS (SELECT 1 FROM managed_resources m WHERE m.id = i.id) THEN 'managed_resource'
            WHEN EXISTS (SELECT 1 FROM channels c WHERE c.id = i.id) THEN 'channel'
            ELSE 'nothing' END",
    ),
    (
        "the server's epoch is its claim's generation",
        "SELECT NULL, 'epoch ' || s.epoch || ', generation ' || l.generation
           FROM workflow_server_state s JOIN leases l ON l.resource = s.resource WHERE s.epoch <> l.generation",
    ),
    (
        "an executing run has an active launch of its generation",
        "SELECT r.run_id, 'queue ' || q.status || ' without an active launch' FROM run_queue q JOIN runs r ON r.id = q.run
           JOIN leases l ON l.resource = r.id
          WHERE q.status IN ('starting', 'running') AND NOT EXISTS (
            SELECT 1 FROM run_runners a WHERE a.run = r.id AND a.generation = l.generation AND a.status <> 'ended')",
    ),
    (
        "the unfinished attempt is the run's current one",
        "SELECT r.run_id, 'current attempt ' || coalesce(r.current_attempt, 'none') || ', open attempt ' || coalesce(a.id, 'none')
           FROM runs r LEFT JOIN node_attempts a ON a.run = r.id AND a.status IN ('active', 'waiting')
          WHERE r.current_attempt IS NOT a.id",
    ),
    (
        "an active attempt has a claim",
        "SELECT r.run_id, 'attempt ' || a.id || ' is active without a claim' FROM node_attempts a JOIN runs r ON r.id = a.run
           LEFT JOIN leases l ON l.resource = r.id WHERE a.status = 'active' AND l.owner_id IS NULL",
    ),
    (
        "ended runs have no open attempt",
        "SELECT r.run_id, 'attempt ' || a.id || ' is ' || a.status FROM node_attempts a JOIN runs r ON r.id = a.run
          WHERE a.status IN ('active', 'waiting') AND r.finished_at IS NOT NULL",
    ),
    (
        "attempts are counted",
        "SELECT r.run_id, r.attempt_count || ' attempts counted, ' || count(a.id) || ' stored' FROM runs r
           LEFT JOIN node_attempts a ON a.run = r.id WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.attempt_count <> count(a.id)",
    ),
    (
        "attempts are of nodes of the definition",
        "SELECT r.run_id, 'attempt of node ' || max(a.node) || ' of ' || d.node_total FROM node_attempts a JOIN runs r ON r.id = a.run
           JOIN workflow_definitions d ON d.id = r.definition GROUP BY a.run HAVING max(a.node) >= d.node_total OR min(a.node) < 0",
    ),
    (
        "a definition has all its nodes",
        "SELECT NULL, 'definition ' || d.id || ' has ' || count(n.node) || ' of ' || d.node_total || ' nodes'
           FROM workflow_definitions d LEFT JOIN definition_nodes n ON n.definition = d.id GROUP BY d.id
          HAVING d.node_total <> count(n.node) OR max(n.node) <> d.node_total - 1",
    ),
    (
        "active time is counted only while an attempt is open",
        "SELECT r.run_id, 'attempt ' || a.id || ' is ' || a.status || ' with an open interval' FROM attempt_active_intervals i
           JOIN node_attempts a ON a.id = i.attempt JOIN runs r ON r.id = a.run
          WHERE i.closed = 0 AND a.status NOT IN ('active', 'waiting')
         UNION ALL
         SELECT r.run_id, 'attempt ' || a.id || ' was active for a negative time' FROM attempt_active_intervals i
           JOIN node_attempts a ON a.id = i.attempt JOIN runs r ON r.id = a.run
          WHERE i.end_clock_ms < i.start_clock_ms",
    ),
    (
        "execution goes on from the newest step",
        "SELECT r.run_id, 'last attempt ' || coalesce(r.last_attempt, 'none') || ', newest step ' || s.attempt
           FROM runs r JOIN run_steps s ON s.run = r.id AND s.step_index = r.step_count - 1
          WHERE r.deleted_at IS NULL AND r.last_attempt IS NOT s.attempt",
    ),
    (
        "steps are numbered without gaps",
        "SELECT r.run_id, r.step_count || ' steps counted, ' || r.carried_step_count || ' carried, ' || count(s.step_index) || ' stored'
           FROM runs r LEFT JOIN run_steps s ON s.run = r.id WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.step_count <> r.carried_step_count + count(s.step_index)
              OR coalesce(min(s.step_index), r.carried_step_count) <> r.carried_step_count
              OR coalesce(max(s.step_index), r.step_count - 1) <> r.step_count - 1",
    ),
    (
        "a step is a finished attempt of its run",
        "SELECT r.run_id, 'step ' || s.step_index || ' is attempt ' || s.attempt || ', ' || coalesce(a.status, 'missing')
           FROM run_steps s JOIN runs r ON r.id = s.run LEFT JOIN node_attempts a ON a.id = s.attempt
          WHERE a.run IS NOT s.run OR a.status <> 'finished' OR a.node <> s.node",
    ),
    (
        "a finished attempt is one step",
        "SELECT r.run_id, 'attempt ' || a.id || ' is finished and ' || count(s.step_index) || ' steps'
           FROM node_attempts a JOIN runs r ON r.id = a.run
           LEFT JOIN run_steps s ON s.run = a.run AND s.attempt = a.id
          WHERE a.status = 'finished' AND r.deleted_at IS NULL GROUP BY a.id HAVING count(s.step_index) <> 1",
    ),
    (
        "no visit finishes twice",
        "SELECT r.run_id, 'node ' || a.node || ' visit ' || a.visit || ' finished ' || count(*) || ' times'
           FROM node_attempts a JOIN runs r ON r.id = a.run WHERE a.status = 'finished'
          GROUP BY a.run, a.node, a.visit HAVING count(*) > 1",
    ),
    (
        "node aggregates match the attempts",
        "WITH totals AS MATERIALIZED (
             SELECT run, node, count(*) AS attempts, max(id) AS newest, max(visit) AS visits FROM node_attempts GROUP BY run, node),
           steps AS MATERIALIZED (SELECT run, node, max(step_index) AS newest FROM run_steps GROUP BY run, node)
         SELECT r.run_id, 'node ' || n.node || ': ' || n.attempts || ' attempts counted' FROM run_nodes n JOIN runs r ON r.id = n.run
          WHERE r.carried_step_count = 0 AND r.deleted_at IS NULL AND (
            (n.attempts, n.latest_attempt, n.visits) IS NOT (
              SELECT t.attempts, t.newest, t.visits FROM totals t WHERE t.run = n.run AND t.node = n.node)
            OR n.latest_step IS NOT (SELECT s.newest FROM steps s WHERE s.run = n.run AND s.node = n.node))",
    ),
    (
        "the past of the graph ends before its present",
        "SELECT r.run_id, 'a graph after ' || max(g.steps) || ' of ' || r.step_count || ' steps' FROM run_graph_checkpoints g
           JOIN runs r ON r.id = g.run GROUP BY g.run HAVING max(g.steps) > r.step_count",
    ),
    (
        "updates are numbered below their counter",
        "SELECT r.run_id, 'update ' || max(u.seq) || ' of ' || r.update_seq FROM workflow_updates u JOIN runs r ON r.id = u.run
          GROUP BY u.run HAVING max(u.seq) > r.update_seq",
    ),
    (
        "events are numbered without gaps",
        "SELECT r.run_id, r.trace_seq || ' events counted, ' || count(e.seq) || ' stored' FROM runs r
           LEFT JOIN events e ON e.resource = r.id WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.trace_seq <> count(e.seq) OR coalesce(max(e.seq), 0) <> r.trace_seq",
    ),
    (
        "open effects belong to runs that can settle them",
        "SELECT r.run_id, 'effect ' || e.id || ' is ' || e.status FROM effects e JOIN runs r ON r.id = e.resource
          WHERE e.status IN ('pending', 'applying') AND r.finished_at IS NOT NULL",
    ),
    (
        "ambiguous effects are counted",
        "SELECT r.run_id, r.ambiguous_effects || ' ambiguous effects counted, ' || count(e.id) || ' stored' FROM runs r
           LEFT JOIN effects e ON e.resource = r.id AND e.status = 'ambiguous' WHERE r.deleted_at IS NULL GROUP BY r.id
          HAVING r.ambiguous_effects <> count(e.id)",
    ),
    (
        "an effect has as many tries as it counts",
        "SELECT r.run_id, 'effect ' || e.id || ' counts ' || e.attempts || ' tries, ' || count(t.number) || ' stored'
           FROM effects e LEFT JOIN runs r ON r.id = e.resource LEFT JOIN effect_attempts t ON t.effect = e.id
          GROUP BY e.id HAVING e.attempts <> count(t.number) OR e.attempts <> coalesce(max(t.number), 0)",
    ),
    (
        "only an applying effect has an open try",
        "SELECT r.run_id, 'effect ' || e.id || ' is ' || e.status || ' with an open try' FROM effect_attempts t
           JOIN effects e ON e.id = t.effect LEFT JOIN runs r ON r.id = e.resource
          WHERE t.status = 'applying' AND e.status <> 'applying'",
    ),
    (
        "a continuation follows its settled parent",
        "SELECT r.run_id, 'continuation ' || c.child FROM continuations c JOIN runs r ON r.id = c.parent
           JOIN runs k ON k.id = c.child
          WHERE r.status <> 'completed' OR r.continued_by IS NOT c.child OR k.parent IS NOT r.id OR k.parent_kind <> 'continuation'
             OR k.carried_step_count <> r.step_count OR k.definition <> r.definition OR k.restart_count <> r.restart_count",
    ),
    (
        "a continued run names its continuation",
        "SELECT r.run_id, 'continued by ' || r.continued_by FROM runs r
          WHERE r.continued_by IS NOT NULL AND r.deleted_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM continuations c WHERE c.parent = r.id AND c.child = r.continued_by)",
    ),
    (
        "an interactive run holds its session until it ends",
        "SELECT r.run_id, 'no reservation while ' || r.status FROM run_bindings b JOIN runs r ON r.id = b.run
          WHERE b.execution_mode = 'interactive' AND b.reserved = 0 AND r.finished_at IS NULL",
    ),
    (
        "a reservation is held by an unfinished run",
        "SELECT r.run_id, 'reservation of an ended run' FROM run_bindings b JOIN runs r ON r.id = b.run
          WHERE b.reserved = 1 AND r.finished_at IS NOT NULL",
    ),
    (
        "a restart follows an ended run",
        "SELECT r.run_id, 'restart count ' || r.restart_count || ' of a run that is ' || p.status
           FROM runs r JOIN runs p ON p.id = r.parent
          WHERE r.parent_kind = 'restart' AND (r.restart_count <> p.restart_count + 1 OR p.finished_at IS NULL)",
    ),
    (
        "restarts stay within their limit",
        "SELECT (SELECT o.run_id FROM runs o WHERE o.id = r.root), count(*) || ' restarts in one tree' FROM runs r
          WHERE r.parent_kind = 'restart' GROUP BY r.root HAVING count(*) > 3",
    ),
    (
        "a tree has one root",
        "SELECT r.run_id, 'root ' || r.root || ', parent ' || coalesce(r.parent, 'none') FROM runs r
           LEFT JOIN runs p ON p.id = r.parent
          WHERE (r.parent IS NULL AND r.root <> r.id) OR (r.parent IS NOT NULL AND r.root IS NOT p.root)",
    ),
    (
        "a tree is deleted as a whole",
        "SELECT r.run_id, 'shown, although run ' || d.id || ' of its tree is deleted' FROM runs d INDEXED BY runs_deleted
           JOIN runs r ON r.root = d.root WHERE d.deleted_at IS NOT NULL AND r.deleted_at IS NULL",
    ),
    (
        "only ended runs are deleted",
        "SELECT r.run_id, 'deleted while ' || r.status FROM runs r INDEXED BY runs_deleted
          WHERE r.deleted_at IS NOT NULL AND r.finished_at IS NULL",
    ),
    (
        "every run has its frozen facts",
        "SELECT r.run_id, 'input, root source or binding is missing' FROM runs r
          WHERE r.deleted_at IS NULL AND (
            NOT EXISTS (SELECT 1 FROM run_values v WHERE v.run = r.id AND v.kind = 'input')
            OR NOT EXISTS (SELECT 1 FROM run_sources s WHERE s.run = r.id AND s.role = 'root')
            OR NOT EXISTS (SELECT 1 FROM run_bindings b WHERE b.run = r.id))",
    ),
    (
        "a completed run has its output",
        "SELECT r.run_id, 'completed without an output' FROM runs r WHERE r.status = 'completed' AND r.deleted_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM run_values v WHERE v.run = r.id AND v.kind = 'final_output')",
    ),
    (
        "failures have a class of the closed list",
        "SELECT r.run_id, 'failure class ' || r.failure_class FROM runs r WHERE r.failure_class NOT IN ('claimLost', 'runnerCrashed',
            'runnerNoProgress', 'runnerTimedOut', 'serverUnavailable', 'sourceChanged', 'effectAmbiguous', 'nodeFailed',
            'protocolRejected')",
    ),
    (
        "values are in their row or in content, never in both, and small in their row",
        "SELECT r.run_id, 'attempt ' || a.id || ' holds a value twice or a large one' FROM node_attempts a JOIN runs r ON r.id = a.run
          WHERE (a.output_json IS NOT NULL AND (a.output_blob IS NOT NULL OR octet_length(a.output_json) > 16384))
             OR (a.prompt_json IS NOT NULL AND (a.prompt_blob IS NOT NULL OR octet_length(a.prompt_json) > 16384))
             OR (a.result_json IS NOT NULL AND (a.result_blob IS NOT NULL OR octet_length(a.result_json) > 16384))
         UNION ALL
         SELECT r.run_id, 'mount ' || s.rowid || ' holds a value twice or a large one' FROM run_scopes s JOIN runs r ON r.id = s.run
          WHERE (s.input_json IS NOT NULL AND (s.input_blob IS NOT NULL OR octet_length(s.input_json) > 16384))
             OR (s.output_json IS NOT NULL AND (s.output_blob IS NOT NULL OR octet_length(s.output_json) > 16384))
         UNION ALL
         SELECT r.run_id, v.kind || ' is a large value in its row' FROM run_values v JOIN runs r ON r.id = v.run
          WHERE octet_length(v.json) > 16384",
    ),
    (
        "values name whole content",
        "SELECT r.run_id, v.kind || ' is content ' || b.id || ' of another digest or in part' FROM run_values v
           JOIN blobs b ON b.id = v.blob JOIN runs r ON r.id = v.run
          WHERE b.complete = 0 OR v.hash <> 'sha256:' || lower(hex(b.sha256))
         UNION ALL
         SELECT r.run_id, 'attempt ' || a.id || ' names content ' || b.id || ' in part' FROM blobs b
           JOIN node_attempts a ON a.output_blob = b.id OR a.prompt_blob = b.id OR a.result_blob = b.id
           JOIN runs r ON r.id = a.run WHERE b.complete = 0
         UNION ALL
         SELECT r.run_id, 'a view names content ' || c.id || ' of another digest, length or in part' FROM run_view_content c
           JOIN runs r ON r.id = c.run LEFT JOIN blobs b ON b.id = c.blob
          WHERE c.bytes <> coalesce(b.bytes, length(c.data)) OR (b.id IS NOT NULL AND (b.complete = 0 OR b.sha256 <> c.sha256))",
    ),
    (
        "content is consecutive",
        "SELECT NULL, 'chunk at ' || c.offset || ' of content ' || c.blob || ' does not follow' FROM (
             SELECT blob, offset, lag(offset + length(data), 1, 0) OVER (PARTITION BY blob ORDER BY offset) AS expected
               FROM blob_chunks) c
          WHERE c.offset <> c.expected",
    ),
    (
        "content is whole",
        "SELECT NULL, 'blob ' || b.id || ' has ' || coalesce(sum(length(c.data)), 0) || ' of ' || b.bytes || ' bytes'
           FROM blobs b LEFT JOIN blob_chunks c ON c.blob = b.id WHERE b.complete = 1 GROUP BY b.id
          HAVING coalesce(sum(length(c.data)), 0) <> b.bytes",
    ),
    (
        "open requests belong to waiting runs",
        "SELECT r.run_id, 'request ' || q.id || ' is pending' FROM interactive_requests q JOIN runs r ON r.id = q.run
          WHERE q.status = 'pending' AND r.status <> 'waiting'",
    ),
    (
        "an attempt that waits has a request",
        "SELECT r.run_id, 'attempt ' || a.id || ' waits for nothing' FROM node_attempts a JOIN runs r ON r.id = a.run
          WHERE a.status = 'waiting' AND NOT EXISTS (SELECT 1 FROM interactive_requests q WHERE q.attempt = a.id
            AND q.run = a.run AND q.status <> 'cancelled')",
    ),
    (
        "a pending request's attempt waits",
        "SELECT r.run_id, 'request ' || q.id || ' is pending, its attempt ' || coalesce(a.status, 'missing')
           FROM interactive_requests q JOIN runs r ON r.id = q.run LEFT JOIN node_attempts a ON a.id = q.attempt
          WHERE q.status = 'pending' AND a.status IS NOT 'waiting'",
    ),
    (
        "an attempt ends as its request was decided",
        "SELECT r.run_id, 'request ' || q.id || ' is ' || q.status || ', its attempt ended as ' || a.outcome
           FROM interactive_requests q JOIN runs r ON r.id = q.run JOIN node_attempts a ON a.id = q.attempt
          WHERE a.status = 'finished' AND r.deleted_at IS NULL AND CASE q.status
            WHEN 'accepted' THEN a.outcome NOT IN ('ok', 'failed')
            WHEN 'failed' THEN a.outcome <> 'failed'
            WHEN 'timed_out' THEN a.outcome <> 'timed_out'
            ELSE 1 END",
    ),
    (
        "requests are asked in the session of their run",
        "SELECT r.run_id, 'request ' || q.id || ' asks another session' FROM interactive_requests q JOIN runs r ON r.id = q.run
           LEFT JOIN run_bindings b ON b.run = q.run
          WHERE r.deleted_at IS NULL AND b.session_id IS NOT q.target_session",
    ),
    (
        "provisional submissions belong to pending requests",
        "SELECT r.run_id, 'submission ' || s.id || ' is provisional, its request ' || q.status
           FROM interactive_submissions s JOIN interactive_requests q ON q.id = s.request JOIN runs r ON r.id = q.run
          WHERE s.outcome = 'validating' AND q.status <> 'pending'",
    ),
    (
        "decided submissions have a receipt",
        "SELECT r.run_id, 'submission ' || s.id || ' is ' || s.outcome FROM interactive_submissions s
           JOIN interactive_requests q ON q.id = s.request JOIN runs r ON r.id = q.run
          WHERE (s.outcome = 'validating') <> (s.receipt_json IS NULL)",
    ),
    (
        "a pending decision is of the awaited checkpoint",
        "SELECT r.run_id, 'decision ' || d.id || ' is pending, the run waits at ' || coalesce(r.waiting_attempt, 'nothing')
           FROM human_decisions d JOIN runs r ON r.id = d.run
          WHERE d.status = 'pending' AND r.waiting_attempt IS NOT d.attempt",
    ),
    (
        "an accepted request has its submission",
        "SELECT r.run_id, 'request ' || q.id || ' is accepted without a submission' FROM interactive_requests q JOIN runs r ON r.id = q.run
          WHERE q.status = 'accepted' AND r.deleted_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM interactive_submissions s
              WHERE s.request = q.id AND s.outcome = 'accepted' AND s.id = q.accepted_submission)",
    ),
    (
        "a resolved decision has one resolution",
        "SELECT r.run_id, 'decision ' || d.id || ' is ' || d.status FROM human_decisions d JOIN runs r ON r.id = d.run
           LEFT JOIN human_decision_resolutions w ON w.decision = d.id
          WHERE r.deleted_at IS NULL AND ((d.status = 'resolved') <> (w.decision IS NOT NULL)
             OR (d.status = 'pending') <> (d.settled_at IS NULL))",
    ),
    (
        "open decisions belong to waiting runs",
        "SELECT r.run_id, 'decision ' || d.id || ' is pending' FROM human_decisions d JOIN runs r ON r.id = d.run
          WHERE d.status = 'pending' AND r.status <> 'waiting'",
    ),
    (
        "pending step messages belong to pending requests of runs that are not paused",
        "SELECT r.run_id, 'message ' || m.id || ' is pending' FROM workflow_messages m JOIN runs r ON r.id = m.run
           JOIN interactive_requests q ON q.id = m.request
          WHERE m.kind = 'step' AND m.state = 'pending' AND (q.status <> 'pending' OR r.paused_at IS NOT NULL)",
    ),
    (
        "terminal messages follow the end",
        "SELECT r.run_id, 'terminal message while ' || r.status FROM workflow_messages m JOIN runs r ON r.id = m.run
          WHERE m.kind = 'terminal' AND r.finished_at IS NULL",
    ),
    (
        "turns follow the sending of their message",
        "SELECT r.run_id, 'turn ' || t.id || ' of a message that is ' || m.state FROM workflow_turns t JOIN runs r ON r.id = t.run
           JOIN workflow_messages m ON m.id = t.message WHERE t.status = 'open' AND m.state = 'pending'",
    ),
    (
        "a session has one open turn",
        "SELECT NULL, count(*) || ' turns are open in one session' FROM workflow_turns WHERE status = 'open'
          GROUP BY session_id HAVING count(*) > 1",
    ),
    (
        "a turn belongs to its message's run and session",
        "SELECT r.run_id, 'turn ' || t.id || ' of message ' || m.id FROM workflow_turns t JOIN workflow_messages m ON m.id = t.message
           JOIN runs r ON r.id = t.run WHERE t.run <> m.run OR t.session_id <> m.target_session",
    ),
    (
        "messages are counted by their session",
        "SELECT r.run_id, 'message ' || m.id || ' at ' || m.session_order || ' of ' || coalesce(s.last_order, 'none')
           FROM workflow_messages m JOIN runs r ON r.id = m.run LEFT JOIN pi_sessions s ON s.session_id = m.target_session
          WHERE s.last_order IS NULL OR m.session_order > s.last_order",
    ),
    (
        "only what may be current again is open",
        "SELECT r.run_id, m.kind || ' message ' || m.id || ' is open and ' || m.state FROM workflow_messages m
           JOIN runs r ON r.id = m.run WHERE m.open = 1 AND (m.state = 'cancelled' OR (m.kind = 'notification' AND m.state = 'sent'))",
    ),
    (
        "a run that was continued leaves its end to its continuation",
        "SELECT r.run_id, 'terminal message ' || m.id FROM workflow_messages m JOIN runs r ON r.id = m.run
          WHERE m.kind = 'terminal' AND r.continued_by IS NOT NULL",
    ),
    (
        "recorded segments follow each other and belong to the run's session",
        "SELECT r.run_id, 'segment ' || s.id || ' begins at ' || s.first_position || ' and not at ' || s.expected
           FROM (SELECT *, coalesce(sum(next_sequence) OVER (PARTITION BY run ORDER BY id
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS expected FROM session_segments) s
           JOIN runs r ON r.id = s.run LEFT JOIN run_bindings b ON b.run = r.id
          WHERE r.deleted_at IS NULL AND (s.first_position <> s.expected OR b.session_id IS NOT s.session_id)",
    ),
    (
        "only the newest segment of a run records",
        "SELECT r.run_id, 'segment ' || s.id || ' records' FROM session_segments s JOIN runs r ON r.id = s.run
          WHERE s.status = 'recording' AND r.deleted_at IS NULL
            AND EXISTS (SELECT 1 FROM session_segments n WHERE n.run = s.run AND n.id > s.id)",
    ),
    (
        "recorded events are numbered without gaps",
        "SELECT r.run_id, n.events || ' events up to ' || n.last || ', ' || n.recorded || ' recorded'
           FROM (SELECT s.run, sum(s.next_sequence) AS recorded,
                   (SELECT count(*) FROM session_events e WHERE e.run = s.run) AS events,
                   (SELECT max(e.position) FROM session_events e WHERE e.run = s.run) AS last
                   FROM session_segments s GROUP BY s.run) n JOIN runs r ON r.id = n.run
          WHERE r.deleted_at IS NULL AND (n.events <> n.recorded OR n.events <> coalesce(n.last + 1, 0))
         UNION ALL SELECT r.run_id, 'events without a segment' FROM runs r WHERE r.deleted_at IS NULL
            AND EXISTS (SELECT 1 FROM session_events e WHERE e.run = r.id)
            AND NOT EXISTS (SELECT 1 FROM session_segments s WHERE s.run = r.id)",
    ),
    (
        "recorded events count steps and entries upwards",
        "SELECT r.run_id, 'event ' || e.position || ' counts ' || e.steps || ' steps and ' || e.entries || ' entries'
           FROM (SELECT *, coalesce(lag(steps) OVER w, 0) AS steps_before, coalesce(lag(entries) OVER w, 0) AS entries_before
                   FROM session_events WINDOW w AS (PARTITION BY run ORDER BY position)) e JOIN runs r ON r.id = e.run
          WHERE r.deleted_at IS NULL AND (e.steps < e.steps_before OR e.steps > r.step_count
            OR e.entries NOT BETWEEN e.entries_before AND e.entries_before + (e.kind = 'entry'))",
    ),
    (
        "a recorded entry was settled by its event",
        "SELECT r.run_id, 'entry ' || x.entry_index || ' at event ' || x.position FROM session_entries x JOIN runs r ON r.id = x.run
           LEFT JOIN session_events e ON e.run = x.run AND e.position = x.position
          WHERE r.deleted_at IS NULL AND (e.kind IS NOT 'entry' OR e.entries IS NOT x.entry_index + 1
            OR e.payload_json ->> 'entryId' IS NOT x.pi_entry_id)",
    ),
    (
        "an event settles an entry that is recorded",
        "SELECT r.run_id, 'event ' || e.position || ' settles nothing' FROM session_events e JOIN runs r ON r.id = e.run
          WHERE e.kind = 'entry' AND r.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM session_entries x
            WHERE x.run = e.run AND x.pi_entry_id = e.payload_json ->> 'entryId')",
    ),
    (
        "every 512th recorded event has its checkpoint",
        "SELECT r.run_id, 'no checkpoint before event ' || e.position FROM session_events e JOIN runs r ON r.id = e.run
          WHERE e.position % 512 = 0 AND e.position > 0 AND r.deleted_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM viewer_session_checkpoints c WHERE c.run = e.run AND c.position = e.position)
         UNION ALL SELECT r.run_id, 'a checkpoint before event ' || c.position FROM viewer_session_checkpoints c
           JOIN runs r ON r.id = c.run WHERE r.deleted_at IS NULL
            AND (c.position % 512 <> 0 OR NOT EXISTS (SELECT 1 FROM session_events e WHERE e.run = c.run AND e.position = c.position))",
    ),
    (
        "open turns belong to unfinished runs or their last message",
        "SELECT r.run_id, 'turn ' || t.id || ' is open' FROM workflow_turns t JOIN runs r ON r.id = t.run
           JOIN workflow_messages m ON m.id = t.message
          WHERE t.status = 'open' AND m.kind = 'step' AND r.finished_at IS NOT NULL",
    ),
];
