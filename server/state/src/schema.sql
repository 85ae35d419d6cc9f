-- The whole schema of `state.sqlite`, version 1. One DDL: its SHA-256 is stored in `schema_meta` and checked at every open.
--
-- Conventions
--   *_at         wall-clock milliseconds since the Unix epoch
--   *_ms         a duration in milliseconds
--   *_json       canonical JSON, at most 16 KiB; a larger value is in the *_blob column beside it, never in both
--   *_blob       blobs.id
--   run, node    runs.id; the index of a node in the definition's document order (definition_nodes.node)
--   attempt      node_attempts.id (the public attempt id is node_attempts.attempt_id)
-- Rows that a step touches are narrow and keyed by integers: a trivial step must grow the file by less than 2 KiB and write
-- less than 64 KiB of WAL. A row never holds a JSON copy of facts that have columns.

-- ---------------------------------------------------------------------------------------------------------- shared records

-- One row. A difference to what the program expects refuses the file before anything is written.
CREATE TABLE schema_meta (
  id          INTEGER PRIMARY KEY CHECK (id = 1),
  name        TEXT NOT NULL,                 -- pi-workflows-state
  version     INTEGER NOT NULL,
  ddl_sha256  TEXT NOT NULL,                 -- lower-case hex
  created_at  INTEGER NOT NULL
) STRICT;

-- Identity and revisions of everything that can be claimed or named with an expected revision.
-- Ids are never used again: what was remembered of a deleted run cannot name a new one.
CREATE TABLE resources (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  kind           TEXT NOT NULL CHECK (kind IN ('server', 'run', 'managed_resource', 'channel')),
  revision       INTEGER NOT NULL DEFAULT 0, -- execution revision: what commands name in expectedRevision
  view_revision  INTEGER NOT NULL DEFAULT 0  -- presentation cursor: grows with every change a view can show
) STRICT;

-- The claim on a resource. The row stays when the claim is released, so that generations never repeat.
CREATE TABLE leases (
  resource         INTEGER PRIMARY KEY REFERENCES resources(id),
  generation       INTEGER NOT NULL,         -- grows by one with every new claim: the fence
  owner_type       TEXT CHECK (owner_type IN ('server', 'control')),  -- NULL: released
  owner_id         TEXT,                     -- id of the server instance that holds it
  server_epoch     INTEGER,                  -- that server's epoch
  token_hash       BLOB,                     -- SHA-256 of the secret token; never logged
  acquired_at      INTEGER,
  heartbeat_at     INTEGER,
  boot_id          TEXT,                     -- boot on which the two clock readings below were taken
  expires_clock_ms INTEGER,                  -- reading of the clock that stops in suspend at which the claim ends
  expires_at       INTEGER,                  -- the same instant by the wall clock, for display only
  CHECK ((owner_type IS NULL) = (owner_id IS NULL)),
  CHECK ((owner_type IS NULL) = (token_hash IS NULL)),
  CHECK ((owner_type IS NULL) = (expires_clock_ms IS NULL)),
  CHECK (token_hash IS NULL OR length(token_hash) = 32)
) STRICT;

-- Immutable audit, and the trace of a run: one row per fact, numbered per resource from 1.
-- node.* events carry no payload: the facts are columns of node_attempts.
CREATE TABLE events (
  resource  INTEGER NOT NULL REFERENCES resources(id),
  seq       INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  scope     TEXT NOT NULL,                   -- run node effect command runner server content update notification
  type      TEXT NOT NULL,                   -- node.finished, run.paused, …
  node      INTEGER,                         -- node index within the run's definition
  attempt   INTEGER,                         -- node_attempts.id
  payload   TEXT,                            -- canonical JSON of facts that no column holds
  PRIMARY KEY (resource, seq)
) STRICT, WITHOUT ROWID;
-- When a run was paused. No step writes such an event.
CREATE INDEX events_pauses ON events(resource, seq) WHERE type IN ('run.paused', 'run.resumed');

-- Content by SHA-256, in chunks so that no transaction is large. A row is complete when its digest was verified.
CREATE TABLE blobs (
  id          INTEGER PRIMARY KEY,
  sha256      BLOB NOT NULL CHECK (length(sha256) = 32),
  bytes       INTEGER NOT NULL,
  media_type  TEXT NOT NULL,
  complete    INTEGER NOT NULL CHECK (complete IN (0, 1)),
  created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX blobs_by_digest ON blobs(sha256) WHERE complete = 1;

CREATE TABLE blob_chunks (
  blob    INTEGER NOT NULL REFERENCES blobs(id) ON DELETE CASCADE,
  offset  INTEGER NOT NULL,                  -- of the first byte; chunks are consecutive, each at most 512 KiB
  data    BLOB NOT NULL,
  PRIMARY KEY (blob, offset)
) STRICT;

-- Side effects. One row per engine-made key.
CREATE TABLE effects (
  id           INTEGER PRIMARY KEY,
  resource     INTEGER NOT NULL REFERENCES resources(id),  -- the run (or channel, managed resource) that owns it
  key          TEXT NOT NULL UNIQUE,
  node         INTEGER,
  visit        INTEGER,
  effect_type  TEXT NOT NULL,
  kind         TEXT NOT NULL CHECK (kind IN ('idempotent', 'observed', 'manual')),
  fingerprint  TEXT NOT NULL,                -- sha256:<hex> of the request: one key never names two payloads
  status       TEXT NOT NULL CHECK (status IN ('pending', 'applying', 'applied', 'rejected', 'cancelled', 'ambiguous')),
  attempts     INTEGER NOT NULL DEFAULT 0,
  result_json  TEXT,
  result_blob  INTEGER REFERENCES blobs(id),
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  CHECK (result_json IS NULL OR result_blob IS NULL)
) STRICT;
CREATE INDEX effects_by_resource ON effects(resource);
CREATE INDEX effects_unsettled ON effects(status, resource) WHERE status IN ('pending', 'applying', 'ambiguous');
CREATE INDEX effects_result_blob ON effects(result_blob) WHERE result_blob IS NOT NULL;

-- Numbered tries of an effect.
CREATE TABLE effect_attempts (
  effect       INTEGER NOT NULL REFERENCES effects(id) ON DELETE CASCADE,
  number       INTEGER NOT NULL,             -- from 1
  attempt      INTEGER,                      -- the node attempt that applied it
  generation   INTEGER,
  status       TEXT NOT NULL CHECK (status IN ('applying', 'applied', 'rejected', 'cancelled', 'ambiguous', 'interrupted')),
  started_at   INTEGER NOT NULL,
  finished_at  INTEGER,
  detail       TEXT,                         -- who or what settled it, for the review
  PRIMARY KEY (effect, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX effect_attempts_applying ON effect_attempts(effect) WHERE status = 'applying';

-- ------------------------------------------------------------------------------------------------------------------ server

-- One row: which server owns the database. The claim is the lease of the resource.
CREATE TABLE workflow_server_state (
  id               INTEGER PRIMARY KEY CHECK (id = 1),
  resource         INTEGER NOT NULL REFERENCES resources(id),
  epoch            INTEGER NOT NULL,         -- equals the lease's generation
  server_id        TEXT NOT NULL,
  pid              INTEGER NOT NULL,
  start_identity   TEXT NOT NULL,
  package_version  TEXT NOT NULL,
  state            TEXT NOT NULL CHECK (state IN ('running', 'stopped')),
  started_at       INTEGER NOT NULL,
  stopped_at       INTEGER,
  sweep_due_at     INTEGER,                  -- a retention sweep was asked for
  last_sweep_at    INTEGER,
  last_sweep_error TEXT
) STRICT;

-- Receipts of state-changing client commands, kept seven days.
CREATE TABLE server_commands (
  id                 INTEGER PRIMARY KEY,
  client_id          TEXT NOT NULL,
  idempotency_key    TEXT NOT NULL,
  request_id         TEXT NOT NULL,          -- transport identity of the first delivery
  operation          TEXT NOT NULL,
  fingerprint        BLOB NOT NULL CHECK (length(fingerprint) = 32),
  run                INTEGER,                -- runs.id; may outlive the run
  outcome            TEXT NOT NULL CHECK (outcome IN ('accepted', 'rejected', 'conflict', 'notFound', 'claimLost', 'unavailable')),
  revision           INTEGER,
  receipt_json       TEXT,
  error_json         TEXT,
  created_at         INTEGER NOT NULL,
  UNIQUE (client_id, idempotency_key)
) STRICT;
CREATE UNIQUE INDEX server_commands_request ON server_commands(client_id, request_id);

-- -------------------------------------------------------------------------------------------------------------- definitions

CREATE TABLE projects (
  id          INTEGER PRIMARY KEY,
  path        TEXT NOT NULL UNIQUE,          -- canonical absolute path
  created_at  INTEGER NOT NULL
) STRICT;

-- Resolved graphs, shared by every run of the same digest.
CREATE TABLE workflow_definitions (
  id             INTEGER PRIMARY KEY,
  digest         TEXT NOT NULL UNIQUE,       -- sha256:<hex> of the snapshot's canonical JSON
  name           TEXT NOT NULL,
  start_at       TEXT NOT NULL,
  node_total     INTEGER NOT NULL,
  snapshot_json  TEXT,
  snapshot_blob  INTEGER REFERENCES blobs(id),
  created_at     INTEGER NOT NULL,
  CHECK ((snapshot_json IS NULL) <> (snapshot_blob IS NULL))
) STRICT;
CREATE INDEX workflow_definitions_blob ON workflow_definitions(snapshot_blob) WHERE snapshot_blob IS NOT NULL;

-- Node names of a definition by document order.
CREATE TABLE definition_nodes (
  definition  INTEGER NOT NULL REFERENCES workflow_definitions(id) ON DELETE CASCADE,
  node        INTEGER NOT NULL,              -- index in document order, from 0
  node_id     TEXT NOT NULL,                 -- qualified id
  node_type   TEXT NOT NULL,                 -- agent compute action notify checkpoint
  PRIMARY KEY (definition, node)
) STRICT, WITHOUT ROWID;

-- --------------------------------------------------------------------------------------------------------------------- runs

-- A run. Large or rarely read values are in run_values, so that the row a step updates stays small.
-- runs.id grows with creation: newest first is id descending.
CREATE TABLE runs (
  id                  INTEGER PRIMARY KEY REFERENCES resources(id),
  run_id              TEXT NOT NULL UNIQUE,  -- public id
  project             INTEGER NOT NULL REFERENCES projects(id),
  definition          INTEGER NOT NULL REFERENCES workflow_definitions(id),
  workflow_name       TEXT NOT NULL,
  title               TEXT,
  status              TEXT NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'completed', 'failed', 'timed_out', 'cancelled')),
  paused_at           INTEGER,               -- NOT NULL: paused
  parent              INTEGER REFERENCES runs(id),
  parent_kind         TEXT CHECK (parent_kind IN ('continuation', 'restart')),
  root                INTEGER NOT NULL,      -- first run of the tree; its own id for a root
  restart_count       INTEGER NOT NULL DEFAULT 0 CHECK (restart_count BETWEEN 0 AND 3),
  continued_by        INTEGER REFERENCES runs(id),  -- continuation that took over; such a run leads no list row
  carried_step_count  INTEGER NOT NULL DEFAULT 0,   -- steps taken over from the parent chain; own steps are numbered from here
  step_count          INTEGER NOT NULL DEFAULT 0,   -- finished steps, carried ones included
  attempt_count       INTEGER NOT NULL DEFAULT 0,   -- started attempts of this run
  trace_seq           INTEGER NOT NULL DEFAULT 0,   -- newest event
  update_seq          INTEGER NOT NULL DEFAULT 0,   -- newest published update
  crash_streak        INTEGER NOT NULL DEFAULT 0,   -- attempts that crashed in a row, nothing finished in between
  ambiguous_effects   INTEGER NOT NULL DEFAULT 0,   -- effects of status ambiguous
  current_attempt     INTEGER,               -- the unfinished attempt (active or waiting), node_attempts.id
  waiting_attempt     INTEGER,               -- the finished checkpoint attempt whose answer is awaited
  last_attempt        INTEGER,               -- attempt of the newest step, own or carried: where execution goes on
  failure_class       TEXT,                  -- claimLost runnerCrashed runnerNoProgress … nodeFailed
  created_at          INTEGER NOT NULL,
  started_at          INTEGER,               -- first claim
  finished_at         INTEGER,
  updated_at          INTEGER NOT NULL,
  deleted_at          INTEGER,               -- marked by retention: shown nowhere, being purged
  CHECK ((parent IS NULL) = (parent_kind IS NULL)),
  CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'failed', 'timed_out', 'cancelled'))),
  CHECK (paused_at IS NULL OR status IN ('queued', 'running', 'waiting')),
  CHECK ((waiting_attempt IS NOT NULL AND status = 'waiting') OR waiting_attempt IS NULL)
) STRICT;
CREATE INDEX runs_leading ON runs(id) WHERE continued_by IS NULL AND deleted_at IS NULL;
-- What filters of the list narrow by. Most runs end well, so only the other ends are indexed by status.
CREATE INDEX runs_words ON runs(id, run_id, workflow_name, title, continued_by, deleted_at) -- all that a text filter looks at
  WHERE continued_by IS NULL AND deleted_at IS NULL;
CREATE INDEX runs_by_creation ON runs(created_at) WHERE continued_by IS NULL AND deleted_at IS NULL;
CREATE INDEX runs_by_workflow ON runs(workflow_name, created_at) WHERE continued_by IS NULL AND deleted_at IS NULL;
CREATE INDEX runs_ended_badly ON runs(status, created_at) WHERE status IN ('failed', 'timed_out', 'cancelled');
CREATE INDEX runs_unfinished ON runs(status, id) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX runs_by_root ON runs(root);
CREATE INDEX runs_by_parent ON runs(parent) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX runs_one_continuation ON runs(parent) WHERE parent_kind = 'continuation';
CREATE INDEX runs_by_continuation ON runs(continued_by) WHERE continued_by IS NOT NULL;
CREATE INDEX runs_by_definition ON runs(definition);
CREATE INDEX runs_deleted ON runs(id) WHERE deleted_at IS NOT NULL;

-- Input, final output and error of a run.
CREATE TABLE run_values (
  run    INTEGER NOT NULL REFERENCES runs(id),
  kind   TEXT NOT NULL CHECK (kind IN ('input', 'final_output', 'error')),  -- error: protocol ErrorInfo
  json   TEXT,
  blob   INTEGER REFERENCES blobs(id),
  hash   TEXT NOT NULL,                      -- sha256:<hex> of the canonical JSON
  PRIMARY KEY (run, kind),
  CHECK ((json IS NULL) <> (blob IS NULL))
) STRICT;
CREATE INDEX run_values_blob ON run_values(blob) WHERE blob IS NOT NULL;

-- Frozen sources, verified before each generation.
CREATE TABLE run_sources (
  run       INTEGER NOT NULL REFERENCES runs(id),
  ordinal   INTEGER NOT NULL,                -- 0: the root
  role      TEXT NOT NULL CHECK (role IN ('root', 'mounted', 'module')),
  mount     TEXT,                            -- qualified mount path of a mounted source
  kind      TEXT NOT NULL CHECK (kind IN ('file', 'builtin')),
  location  TEXT NOT NULL,                   -- absolute path, or the built-in's id
  hash      TEXT NOT NULL,                   -- hash of the bytes, or the built-in's revision
  PRIMARY KEY (run, ordinal)
) STRICT, WITHOUT ROWID;

-- Where a run's agent steps execute. An interactive run holds its session from start to terminal.
CREATE TABLE run_bindings (
  run             INTEGER PRIMARY KEY REFERENCES runs(id),
  execution_mode  TEXT NOT NULL CHECK (execution_mode IN ('headless', 'interactive')),
  session_id      TEXT,                      -- origin Pi session of an interactive run
  reserved        INTEGER NOT NULL CHECK (reserved IN (0, 1)),
  CHECK ((execution_mode = 'interactive') = (session_id IS NOT NULL)),
  CHECK (reserved = 0 OR session_id IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX run_bindings_reservation ON run_bindings(session_id) WHERE reserved = 1;
CREATE INDEX run_bindings_session ON run_bindings(session_id) WHERE session_id IS NOT NULL;

-- Scheduling state. claimable = 1: the scheduler may claim it now, in order of ready_seq.
CREATE TABLE run_queue (
  run          INTEGER PRIMARY KEY REFERENCES runs(id),
  status       TEXT NOT NULL CHECK (status IN ('queued', 'starting', 'running', 'parked', 'done', 'failed', 'cancelled')),
  action       TEXT NOT NULL CHECK (action IN ('start', 'resume', 'continue', 'restart')),  -- command of the next generation
  claimable    INTEGER NOT NULL CHECK (claimable IN (0, 1)),
  ready_seq    INTEGER NOT NULL,             -- order of admission
  park_reason  TEXT,                         -- runnerNoProgress, workflowSourceChanged, effectAmbiguous, …
  park_detail  TEXT,                         -- one bounded sentence for people
  queued_at    INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  CHECK (claimable = 0 OR status IN ('queued', 'parked'))
) STRICT;
CREATE UNIQUE INDEX run_queue_ready ON run_queue(ready_seq) WHERE claimable = 1;

-- One launch of a runner process. Several may follow each other in a generation, one is active.
CREATE TABLE run_runners (
  id              INTEGER PRIMARY KEY,
  run             INTEGER NOT NULL REFERENCES runs(id),
  generation      INTEGER NOT NULL,
  runner_epoch    TEXT NOT NULL UNIQUE,      -- opaque id of the launch
  launch_hash     TEXT NOT NULL,             -- sha256:<hex> of the launch envelope
  server_epoch    INTEGER NOT NULL,
  pid             INTEGER,                   -- also the process group; NULL until it was spawned
  start_identity  TEXT,
  status          TEXT NOT NULL CHECK (status IN ('starting', 'ready', 'ended')),
  ready_revision  INTEGER,                   -- run revision when it became ready
  outcome         TEXT CHECK (outcome IN ('exited', 'cancelled', 'timedOut', 'crashed', 'claimLost', 'orphaned')),
  exit_code       INTEGER,
  signal          TEXT,
  diagnostic      TEXT,                      -- bounded
  started_at      INTEGER NOT NULL,
  ready_at        INTEGER,
  finished_at     INTEGER,
  CHECK ((status = 'ended') = (outcome IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX run_runners_active ON run_runners(run) WHERE status <> 'ended';
CREATE INDEX run_runners_by_run ON run_runners(run, generation);

-- Process groups that runners registered before they ran (decision 1). The row goes when the group is proved gone.
CREATE TABLE run_processes (
  pid             INTEGER NOT NULL,
  start_identity  TEXT NOT NULL,
  run             INTEGER NOT NULL REFERENCES runs(id),
  generation      INTEGER NOT NULL,
  boot_id         TEXT NOT NULL,
  label           TEXT NOT NULL,
  registered_at   INTEGER NOT NULL,
  PRIMARY KEY (pid, start_identity)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_processes_by_run ON run_processes(run);

-- Replies to the last messages of the current runner, so that a repeated message is answered with the stored reply.
-- A ring of slots per run; cleared when the runner's exit is recorded.
CREATE TABLE runner_messages (
  run         INTEGER NOT NULL REFERENCES runs(id),
  slot        INTEGER NOT NULL,
  message_id  TEXT NOT NULL,
  generation  INTEGER NOT NULL,
  reply_json  TEXT NOT NULL,                 -- the reply without the parts that the columns give
  PRIMARY KEY (run, slot)
) STRICT, WITHOUT ROWID;

-- ---------------------------------------------------------------------------------------------------------------- execution

-- One execution of a node. A finished attempt is a step (run_steps); a crashed or interrupted one is not. One that overran was
-- ended by the server after its budget: the next generation settles its visit as timed out without executing it.
CREATE TABLE node_attempts (
  id             INTEGER PRIMARY KEY,
  run            INTEGER NOT NULL REFERENCES runs(id),
  attempt_id     ANY NOT NULL,               -- public id: a UUID as 16 bytes, anything else as text
  node           INTEGER NOT NULL,
  visit          INTEGER NOT NULL,           -- ordinal of the visit of the node in the whole chain, from 1
  generation     INTEGER NOT NULL,
  status         TEXT NOT NULL CHECK (status IN ('active', 'waiting', 'finished', 'crashed', 'interrupted', 'overran', 'cancelled')),
  outcome        TEXT CHECK (outcome IN ('ok', 'timed_out', 'failed', 'cancelled')),
  started_at     INTEGER NOT NULL,
  finished_at    INTEGER,
  timeout_ms     INTEGER,                    -- active-time budget; NULL: none
  active_ms      INTEGER,                    -- consumed active time, final when finished
  deadline_at    INTEGER,                    -- wall-clock deadline of a human decision
  status_detail  TEXT,
  output_json    TEXT,
  output_blob    INTEGER REFERENCES blobs(id),
  prompt_json    TEXT,                       -- agent steps
  prompt_blob    INTEGER REFERENCES blobs(id),
  result_json    TEXT,                       -- {error?, action?, assistantMessage?, conversation?} as protocol types; NULL: none
  result_blob    INTEGER REFERENCES blobs(id),
  CHECK ((status = 'finished') = (outcome IS NOT NULL)),
  CHECK ((status IN ('active', 'waiting')) = (finished_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX node_attempts_open ON node_attempts(run) WHERE status IN ('active', 'waiting');
CREATE UNIQUE INDEX node_attempts_by_public_id ON node_attempts(run, attempt_id);
CREATE INDEX node_attempts_output_blob ON node_attempts(output_blob) WHERE output_blob IS NOT NULL;
CREATE INDEX node_attempts_prompt_blob ON node_attempts(prompt_blob) WHERE prompt_blob IS NOT NULL;
CREATE INDEX node_attempts_result_blob ON node_attempts(result_blob) WHERE result_blob IS NOT NULL;

-- Active time of attempts that was sampled before they ended (parked, crashed, interrupted or long-running ones).
CREATE TABLE attempt_active_intervals (
  attempt         INTEGER NOT NULL REFERENCES node_attempts(id) ON DELETE CASCADE,
  ordinal         INTEGER NOT NULL,
  boot_id         TEXT NOT NULL,
  start_clock_ms  INTEGER NOT NULL,          -- clock that stops in suspend
  end_clock_ms    INTEGER,                   -- last sample; NULL before the first
  closed          INTEGER NOT NULL CHECK (closed IN (0, 1)),
  PRIMARY KEY (attempt, ordinal)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX attempt_active_intervals_open ON attempt_active_intervals(attempt) WHERE closed = 0;

-- Finished attempts in order. Steps of a continuation start at its carried_step_count; earlier ones are its parent's rows.
CREATE TABLE run_steps (
  run         INTEGER NOT NULL REFERENCES runs(id),
  step_index  INTEGER NOT NULL,              -- from 0, over the whole continuation chain
  node        INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,              -- node_attempts.id; no foreign key, whose check would need an index that every step pays
  PRIMARY KEY (run, step_index)
) STRICT, WITHOUT ROWID;

-- Newest facts of each node of a run (decision 8), kept up to date by every step; a continuation starts with its parent's.
CREATE TABLE run_nodes (
  run             INTEGER NOT NULL REFERENCES runs(id),
  node            INTEGER NOT NULL,
  visits          INTEGER NOT NULL,          -- started visits
  attempts        INTEGER NOT NULL,          -- started attempts
  latest_attempt  INTEGER NOT NULL,          -- newest attempt, finished or not (node_attempts.id)
  latest_step     INTEGER,                   -- step_index of the newest finished attempt
  result_step     INTEGER,                   -- as latest_step, but NULL when the node's scope was entered anew since
  result_attempt  INTEGER,                   -- the attempt of result_step (node_attempts.id)
  PRIMARY KEY (run, node)
) STRICT, WITHOUT ROWID;

-- Distinct transitions taken, with counts. from_node -1: the start of the run.
CREATE TABLE run_transitions (
  run        INTEGER NOT NULL REFERENCES runs(id),
  from_node  INTEGER NOT NULL,
  to_node    INTEGER NOT NULL,
  count      INTEGER NOT NULL,
  first_step INTEGER NOT NULL,               -- step_index of the step that followed it first (steps before it: not yet taken)
  PRIMARY KEY (run, from_node, to_node)
) STRICT, WITHOUT ROWID;

-- The graph after some steps, so that a page of the past reads no more than the steps since the checkpoint before it. Derived
-- from run_steps, never changed.
CREATE TABLE run_graph_checkpoints (
  run         INTEGER NOT NULL REFERENCES runs(id),
  steps       INTEGER NOT NULL,              -- steps that it covers, over the whole continuation chain
  graph_json  TEXT NOT NULL,                 -- {nodes:[[node,latest step,attempts]…],transitions:[[from,to,count]…],last}
  PRIMARY KEY (run, steps)
) STRICT, WITHOUT ROWID;

-- Newest invocation of each mount of a run.
CREATE TABLE run_scopes (
  run          INTEGER NOT NULL REFERENCES runs(id),
  mount        TEXT NOT NULL,                -- qualified mount path
  state        TEXT NOT NULL CHECK (state IN ('entered', 'left')),
  step_count   INTEGER NOT NULL,             -- steps of this invocation
  exit         TEXT,                         -- exit by which it was left
  left_step    INTEGER,                      -- step_index of the step that left it
  input_json   TEXT,
  input_blob   INTEGER REFERENCES blobs(id),
  output_json  TEXT,
  output_blob  INTEGER REFERENCES blobs(id),
  PRIMARY KEY (run, mount),
  CHECK ((state = 'left') = (exit IS NOT NULL))
) STRICT;
CREATE INDEX run_scopes_input_blob ON run_scopes(input_blob) WHERE input_blob IS NOT NULL;
CREATE INDEX run_scopes_output_blob ON run_scopes(output_blob) WHERE output_blob IS NOT NULL;

-- Current updates: the newest per type and key.
CREATE TABLE workflow_updates (
  id           INTEGER PRIMARY KEY,
  run          INTEGER NOT NULL REFERENCES runs(id),
  update_type  TEXT NOT NULL,
  key          TEXT NOT NULL,
  seq          INTEGER NOT NULL,             -- ordinal of the publication in the run
  node         INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  data_json    TEXT NOT NULL,                -- at most 64 KiB
  estimate     TEXT,                         -- state of the progress estimator
  UNIQUE (run, update_type, key)
) STRICT;

-- Passive messages of notify nodes and actions. A repeated execution of the visit creates none twice.
CREATE TABLE run_notifications (
  run      INTEGER NOT NULL REFERENCES runs(id),
  node     INTEGER NOT NULL,
  visit    INTEGER NOT NULL,
  number   INTEGER NOT NULL,                 -- index within the visit
  attempt  INTEGER NOT NULL,
  kind     TEXT NOT NULL CHECK (kind IN ('progress', 'final')),
  message  TEXT NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (run, node, visit, number)
) STRICT;

-- A continuation: the parent is settled, the child goes on after the checkpoint with the answer as its output.
CREATE TABLE continuations (
  child        INTEGER PRIMARY KEY REFERENCES runs(id),
  parent       INTEGER NOT NULL UNIQUE REFERENCES runs(id),
  node         INTEGER NOT NULL,             -- the checkpoint
  attempt      INTEGER NOT NULL,             -- its attempt in the parent
  step_index   INTEGER NOT NULL,             -- its step: last of the carried ones
  answer_json  TEXT,
  answer_blob  INTEGER REFERENCES blobs(id),
  source       TEXT NOT NULL,                -- where the answer came from
  answered_at  INTEGER NOT NULL,
  CHECK ((answer_json IS NULL) <> (answer_blob IS NULL))
) STRICT;
CREATE INDEX continuations_blob ON continuations(answer_blob) WHERE answer_blob IS NOT NULL;

-- Bytes that views name by reference. Served only for the same run, digest and media type.
CREATE TABLE run_view_content (
  id          INTEGER PRIMARY KEY,
  run         INTEGER NOT NULL REFERENCES runs(id),
  sha256      BLOB NOT NULL CHECK (length(sha256) = 32),
  media_type  TEXT NOT NULL,
  bytes       INTEGER NOT NULL,
  data        BLOB,                          -- generated by a view
  blob        INTEGER REFERENCES blobs(id),  -- or a stored value
  created_at  INTEGER NOT NULL,
  UNIQUE (run, sha256, media_type),
  CHECK ((data IS NULL) <> (blob IS NULL))
) STRICT;
CREATE INDEX run_view_content_blob ON run_view_content(blob) WHERE blob IS NOT NULL;

-- ------------------------------------------------------------------------------------------------- settings and follow-ups

CREATE TABLE workflow_settings (
  run         INTEGER NOT NULL REFERENCES runs(id),
  scope       TEXT NOT NULL,                 -- qualified mount path, '' for the root
  revision    INTEGER NOT NULL,
  value_json  TEXT NOT NULL,
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (run, scope)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_setting_changes (
  run         INTEGER NOT NULL REFERENCES runs(id),
  number      INTEGER NOT NULL,
  scope       TEXT NOT NULL,
  revision    INTEGER NOT NULL,              -- revision that the change produced
  change_json TEXT NOT NULL,
  source      TEXT NOT NULL,
  at          INTEGER NOT NULL,
  PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_follow_ups (
  id           INTEGER PRIMARY KEY,
  follow_up_id TEXT NOT NULL UNIQUE,
  run          INTEGER NOT NULL REFERENCES runs(id),
  number       INTEGER NOT NULL,             -- order within the run
  status       TEXT NOT NULL CHECK (status IN ('queued', 'eligible', 'delivered', 'removed', 'cancelled')),
  content_json TEXT,
  content_blob INTEGER REFERENCES blobs(id),
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  UNIQUE (run, number)
) STRICT;
CREATE INDEX workflow_follow_ups_blob ON workflow_follow_ups(content_blob) WHERE content_blob IS NOT NULL;

-- ------------------------------------------------------------------------------------------------------- session recording

-- Events of all segments of a run are numbered in one row (position, from 0): a page is one range of an index. A run is bound
-- to one session, which one segment at a time records.

CREATE TABLE session_segments (
  id              INTEGER PRIMARY KEY,
  segment_id      TEXT NOT NULL UNIQUE,      -- made by the recorder
  run             INTEGER NOT NULL REFERENCES runs(id),
  session_id      TEXT NOT NULL,             -- the one that the run is bound to
  status          TEXT NOT NULL CHECK (status IN ('recording', 'complete', 'failed')),
  first_position  INTEGER NOT NULL,          -- position of the event of sequence 0
  next_sequence   INTEGER NOT NULL DEFAULT 0,
  reason          TEXT,                      -- why it failed
  started_at      INTEGER NOT NULL,
  ended_at        INTEGER,
  CHECK ((status = 'recording') = (ended_at IS NULL))
) STRICT;
CREATE UNIQUE INDEX session_segments_recording ON session_segments(session_id) WHERE status = 'recording';
CREATE INDEX session_segments_by_run ON session_segments(run, id);

CREATE TABLE session_entries (
  id            INTEGER PRIMARY KEY,
  run           INTEGER NOT NULL REFERENCES runs(id),
  entry_index   INTEGER NOT NULL,            -- from 0, in the order in which they settled
  pi_entry_id   TEXT NOT NULL,
  position      INTEGER NOT NULL,            -- of the event that settled it
  kind          TEXT NOT NULL,               -- Pi's type
  content_json  TEXT,
  content_blob  INTEGER REFERENCES blobs(id),
  at            INTEGER NOT NULL,
  UNIQUE (run, entry_index),
  UNIQUE (run, pi_entry_id),
  CHECK ((content_json IS NULL) <> (content_blob IS NULL))
) STRICT;
CREATE INDEX session_entries_blob ON session_entries(content_blob) WHERE content_blob IS NOT NULL;

CREATE TABLE attempt_entries (
  attempt  INTEGER NOT NULL REFERENCES node_attempts(id) ON DELETE CASCADE,
  ordinal  INTEGER NOT NULL,
  entry    INTEGER NOT NULL REFERENCES session_entries(id),
  PRIMARY KEY (attempt, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempt_entries_by_entry ON attempt_entries(entry);

CREATE TABLE session_events (
  run           INTEGER NOT NULL REFERENCES runs(id),
  position      INTEGER NOT NULL,
  at            INTEGER NOT NULL,            -- the recorder's clock
  kind          TEXT NOT NULL,
  payload_json  TEXT NOT NULL,               -- without args when they are content
  args_blob     INTEGER REFERENCES blobs(id),  -- large or deep arguments of a tool
  steps         INTEGER NOT NULL,            -- steps of the run finished by then; never fewer than before
  entries       INTEGER NOT NULL,            -- entries of the run settled by then, by this event too
  PRIMARY KEY (run, position)
) STRICT;
CREATE INDEX session_events_blob ON session_events(args_blob) WHERE args_blob IS NOT NULL;

-- The conversation just before every 512th event: replaying to any position costs at most that many events.
CREATE TABLE viewer_session_checkpoints (
  run         INTEGER NOT NULL REFERENCES runs(id),
  position    INTEGER NOT NULL,
  state_json  TEXT,
  state_blob  INTEGER REFERENCES blobs(id),
  PRIMARY KEY (run, position),
  CHECK ((state_json IS NULL) <> (state_blob IS NULL))
) STRICT;
CREATE INDEX viewer_session_checkpoints_blob ON viewer_session_checkpoints(state_blob) WHERE state_blob IS NOT NULL;

-- -------------------------------------------------------------------------------------------------- requests and decisions

-- What an agent step of a run that is bound to a session asks. Its attempt stays open, with status waiting, from the request until
-- a later generation settles it as the request was decided.
CREATE TABLE interactive_requests (
  id                     INTEGER PRIMARY KEY,
  request_id             TEXT NOT NULL UNIQUE,
  run                    INTEGER NOT NULL REFERENCES runs(id),
  attempt                INTEGER NOT NULL UNIQUE REFERENCES node_attempts(id),
  target_session         TEXT NOT NULL,
  kind                   TEXT NOT NULL CHECK (kind IN ('submit', 'assistant')),
  contract_hash          TEXT NOT NULL,      -- sha256:<hex> of the contract
  contract_json          TEXT,               -- a StepContract; the prompt is in the attempt
  contract_blob          INTEGER REFERENCES blobs(id),
  status                 TEXT NOT NULL CHECK (status IN ('pending', 'accepted', 'failed', 'timed_out', 'cancelled')),
  revision               INTEGER NOT NULL DEFAULT 0,  -- grows when an aborted step is presented again
  accepted_submission    INTEGER,
  error_json             TEXT,               -- protocol ErrorInfo of a failed or timed out request
  unproductive_turn_ends INTEGER NOT NULL DEFAULT 0,
  created_at             INTEGER NOT NULL,
  settled_at             INTEGER,
  CHECK ((status = 'pending') = (settled_at IS NULL)),
  CHECK ((status = 'accepted') = (accepted_submission IS NOT NULL)),
  CHECK ((status IN ('failed', 'timed_out')) = (error_json IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX interactive_requests_pending ON interactive_requests(run) WHERE status = 'pending';
CREATE INDEX interactive_requests_by_run ON interactive_requests(run);
CREATE INDEX interactive_requests_blob ON interactive_requests(contract_blob) WHERE contract_blob IS NOT NULL;

CREATE TABLE interactive_submissions (
  id               INTEGER PRIMARY KEY,
  submission_id    TEXT NOT NULL UNIQUE,
  request          INTEGER NOT NULL REFERENCES interactive_requests(id) ON DELETE CASCADE,
  idempotency_key  TEXT NOT NULL,
  payload_hash     TEXT NOT NULL,
  payload_json     TEXT,
  payload_blob     INTEGER REFERENCES blobs(id),
  response_entry_id TEXT,                    -- Pi entry of a visible reply
  outcome          TEXT NOT NULL CHECK (outcome IN ('validating', 'accepted', 'rejected')),
  output_json      TEXT,                     -- the normalised value of an accepted one
  output_blob      INTEGER REFERENCES blobs(id),
  receipt_json     TEXT,                     -- protocol InteractionReceipt
  submitted_at     INTEGER NOT NULL,
  settled_at       INTEGER,
  UNIQUE (request, idempotency_key)
) STRICT;
CREATE UNIQUE INDEX interactive_submissions_accepted ON interactive_submissions(request) WHERE outcome = 'accepted';
CREATE UNIQUE INDEX interactive_submissions_validating ON interactive_submissions(request) WHERE outcome = 'validating';
CREATE INDEX interactive_submissions_blob ON interactive_submissions(payload_blob) WHERE payload_blob IS NOT NULL;
CREATE INDEX interactive_submissions_output_blob ON interactive_submissions(output_blob) WHERE output_blob IS NOT NULL;
CREATE INDEX interactive_submissions_provisional ON interactive_submissions(id) WHERE outcome = 'validating';

CREATE TABLE human_decisions (
  id            INTEGER PRIMARY KEY,
  decision_id   TEXT NOT NULL UNIQUE,
  run           INTEGER NOT NULL REFERENCES runs(id),
  attempt       INTEGER NOT NULL UNIQUE REFERENCES node_attempts(id),
  digest        TEXT NOT NULL,               -- of subject, choices and policy
  subject_json  TEXT,
  subject_blob  INTEGER REFERENCES blobs(id),
  policy_json   TEXT NOT NULL,               -- audience, choices, timeout policy
  status        TEXT NOT NULL CHECK (status IN ('pending', 'resolved', 'cancelled')),
  deadline_at   INTEGER,                     -- wall clock
  held_ms       INTEGER NOT NULL DEFAULT 0,  -- time the deadline was held while paused
  created_at    INTEGER NOT NULL,
  settled_at    INTEGER
) STRICT;
CREATE UNIQUE INDEX human_decisions_pending ON human_decisions(run) WHERE status = 'pending';
CREATE INDEX human_decisions_by_run ON human_decisions(run);
CREATE INDEX human_decisions_blob ON human_decisions(subject_blob) WHERE subject_blob IS NOT NULL;

CREATE TABLE human_decision_submissions (
  id            INTEGER PRIMARY KEY,
  decision      INTEGER NOT NULL REFERENCES human_decisions(id) ON DELETE CASCADE,
  choice        TEXT NOT NULL,
  input_json    TEXT,
  source        TEXT NOT NULL,               -- session, terminal or channel the person used
  outcome       TEXT NOT NULL CHECK (outcome IN ('accepted', 'late', 'rejected')),
  submitted_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX human_decision_submissions_by_decision ON human_decision_submissions(decision);

-- At most one winner per decision: the primary key.
CREATE TABLE human_decision_resolutions (
  decision     INTEGER PRIMARY KEY REFERENCES human_decisions(id) ON DELETE CASCADE,
  submission   INTEGER REFERENCES human_decision_submissions(id),  -- NULL: the timeout's default
  choice       TEXT NOT NULL,
  input_json   TEXT,
  resolved_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX human_decision_resolutions_submission ON human_decision_resolutions(submission) WHERE submission IS NOT NULL;

-- ------------------------------------------------------------------------------------------------------ messages and turns

-- What is counted per Pi session. One small row a session, kept when its runs go, so that no number repeats.
CREATE TABLE pi_sessions (
  session_id     TEXT PRIMARY KEY,
  revision       INTEGER NOT NULL,           -- grows with every change of what decides the session's current message
  last_order     INTEGER NOT NULL,           -- session_order of the newest message
  cleared_order  INTEGER NOT NULL DEFAULT 0  -- terminal messages up to here show no run any more
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_messages (
  id              INTEGER PRIMARY KEY,
  message_id      TEXT NOT NULL UNIQUE,
  run             INTEGER NOT NULL REFERENCES runs(id),
  target_session  TEXT NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('step', 'decision', 'notification', 'terminal', 'followUp')),
  reason          TEXT CHECK (reason IN ('initial', 'reminder', 'resumed')),
  source_id       TEXT NOT NULL,             -- request, decision, notification, run or follow-up
  request         INTEGER REFERENCES interactive_requests(id),
  content_digest  TEXT NOT NULL,
  content_json    TEXT,
  content_blob    INTEGER REFERENCES blobs(id),
  session_order   INTEGER NOT NULL,
  state           TEXT NOT NULL CHECK (state IN ('pending', 'sent', 'cancelled')),
  open            INTEGER NOT NULL DEFAULT 1 CHECK (open IN (0, 1)),  -- 0: nothing can make it the session's current message again
  branch_epoch    INTEGER NOT NULL DEFAULT 0,  -- coordinator epoch whose branch report spoke for it last; 0: none did
  pi_entry_id     TEXT,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  UNIQUE (target_session, session_order),
  CHECK (state <> 'pending' OR (open = 1 AND pi_entry_id IS NULL)),
  CHECK ((kind = 'step') = (reason IS NOT NULL)),
  CHECK ((kind = 'step') = (request IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX workflow_messages_pending_step ON workflow_messages(request) WHERE kind = 'step' AND state = 'pending';
CREATE UNIQUE INDEX workflow_messages_terminal ON workflow_messages(run) WHERE kind = 'terminal';
-- What the selection walks: bounded by the work in progress, not by the session's history.
CREATE INDEX workflow_messages_open ON workflow_messages(target_session, session_order, branch_epoch) WHERE open = 1;
CREATE INDEX workflow_messages_open_run ON workflow_messages(run) WHERE open = 1;
CREATE INDEX workflow_messages_terminals ON workflow_messages(target_session, session_order) WHERE kind = 'terminal';
CREATE INDEX workflow_messages_by_run ON workflow_messages(run);
CREATE INDEX workflow_messages_pending ON workflow_messages(run) WHERE state = 'pending';
CREATE INDEX workflow_messages_request ON workflow_messages(request) WHERE request IS NOT NULL;
CREATE INDEX workflow_messages_blob ON workflow_messages(content_blob) WHERE content_blob IS NOT NULL;

CREATE TABLE workflow_turns (
  id                 INTEGER PRIMARY KEY,
  turn_id            TEXT NOT NULL UNIQUE,
  message            INTEGER NOT NULL REFERENCES workflow_messages(id),
  run                INTEGER NOT NULL REFERENCES runs(id),
  session_id         TEXT NOT NULL,
  coordinator_epoch  INTEGER NOT NULL,
  status             TEXT NOT NULL CHECK (status IN ('open', 'ended')),
  stop_reason        TEXT CHECK (stop_reason IN ('completed', 'aborted', 'error', 'lost')),
  response_entry_id  TEXT,
  started_at         INTEGER NOT NULL,
  ended_at           INTEGER,
  CHECK ((status = 'ended') = (stop_reason IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX workflow_turns_open_message ON workflow_turns(message) WHERE status = 'open';
CREATE UNIQUE INDEX workflow_turns_open_session ON workflow_turns(session_id) WHERE status = 'open';
CREATE INDEX workflow_turns_by_run ON workflow_turns(run);
CREATE INDEX workflow_turns_by_message ON workflow_turns(message);
CREATE INDEX workflow_turns_open_run ON workflow_turns(run) WHERE status = 'open';

-- ------------------------------------------------------------------------------------------------------- managed resources

CREATE TABLE managed_resources (
  id               INTEGER PRIMARY KEY REFERENCES resources(id),
  project          INTEGER NOT NULL REFERENCES projects(id),
  resource_manager_name TEXT NOT NULL,
  name             TEXT NOT NULL,
  spec_json        TEXT,
  spec_blob        INTEGER REFERENCES blobs(id),
  spec_generation  INTEGER NOT NULL,
  observed_generation INTEGER NOT NULL DEFAULT 0,
  status_json      TEXT,
  status_blob      INTEGER REFERENCES blobs(id),
  phase            TEXT NOT NULL,
  deleting_at      INTEGER,
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  UNIQUE (project, resource_manager_name, name)
) STRICT;
CREATE INDEX managed_resources_spec_blob ON managed_resources(spec_blob) WHERE spec_blob IS NOT NULL;
CREATE INDEX managed_resources_status_blob ON managed_resources(status_blob) WHERE status_blob IS NOT NULL;

CREATE TABLE managed_resource_finalizers (
  resource  INTEGER NOT NULL REFERENCES managed_resources(id) ON DELETE CASCADE,
  name      TEXT NOT NULL,
  PRIMARY KEY (resource, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE managed_resource_queue (
  resource    INTEGER PRIMARY KEY REFERENCES managed_resources(id) ON DELETE CASCADE,
  status      TEXT NOT NULL CHECK (status IN ('idle', 'ready', 'delayed', 'running')),
  ready_seq   INTEGER NOT NULL,
  due_at      INTEGER,
  failures    INTEGER NOT NULL DEFAULT 0,
  last_error  TEXT,
  updated_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX managed_resource_queue_due ON managed_resource_queue(status, ready_seq) WHERE status <> 'idle';

CREATE TABLE managed_resource_workflows (
  resource  INTEGER NOT NULL REFERENCES managed_resources(id) ON DELETE CASCADE,
  run       INTEGER NOT NULL REFERENCES runs(id),
  role      TEXT NOT NULL,
  PRIMARY KEY (resource, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX managed_resource_workflows_by_run ON managed_resource_workflows(run);

-- ---------------------------------------------------------------------------------------------------------------- channels

CREATE TABLE channels (
  id             INTEGER PRIMARY KEY REFERENCES resources(id),
  profile        TEXT NOT NULL UNIQUE,
  adapter        TEXT NOT NULL,
  adapter_epoch  INTEGER NOT NULL DEFAULT 0,
  status         TEXT NOT NULL,
  error          TEXT,
  updated_at     INTEGER NOT NULL
) STRICT;

CREATE TABLE channel_cursors (
  channel   INTEGER NOT NULL REFERENCES channels(id) ON DELETE CASCADE,
  stream    TEXT NOT NULL,
  position  TEXT NOT NULL,
  PRIMARY KEY (channel, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE channel_messages (
  id           INTEGER PRIMARY KEY,
  channel      INTEGER NOT NULL REFERENCES channels(id),
  decision     INTEGER NOT NULL REFERENCES human_decisions(id),
  effect       INTEGER REFERENCES effects(id),  -- owns whether and where it was sent
  status       TEXT NOT NULL CHECK (status IN ('pending', 'delivered', 'settled', 'cancelled')),
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  UNIQUE (channel, decision)
) STRICT;
CREATE INDEX channel_messages_by_decision ON channel_messages(decision);
CREATE INDEX channel_messages_effect ON channel_messages(effect) WHERE effect IS NOT NULL;
