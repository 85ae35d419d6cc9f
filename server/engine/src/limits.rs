//! Every bound of the engine, in one place, with where it comes from. Violations name the limit, the value and the place.

/// Longest node, mount or qualified id, in bytes (authoring.md, "Top level").
pub const ID_BYTES: usize = 4 * 1024;
/// Longest declared workflow name, in bytes.
pub const WORKFLOW_NAME_BYTES: usize = 256;
/// Most nodes of a resolved definition, mounted ones included (authoring.md, "Limits").
pub const NODES: usize = 4096;
/// Deepest nesting of mounts (authoring.md, "Limits").
pub const INCLUDE_DEPTH: usize = 32;
/// Loop bound of a workflow that declares none (authoring.md, "Top level").
pub const DEFAULT_MAX_STEPS: u32 = 100;
/// Active-time budget of a node that declares none, in milliseconds: 15 minutes (authoring.md, "Nodes").
pub const DEFAULT_TIMEOUT_MS: u64 = 15 * 60 * 1000;
/// Longest declared timeout in milliseconds: the largest integer that a double holds exactly.
pub const MAX_TIMEOUT_MS: u64 = (1 << 53) - 1;
/// Bound of `title`, `statusDetail`, `timeoutMs` and mapping callbacks, in milliseconds (authoring.md).
pub const CALLBACK_MS: u64 = 30_000;
/// Longest path expression of a switch, in bytes.
pub const PATH_BYTES: usize = 4 * 1024;
/// Longest effect type, in characters.
pub const EFFECT_TYPE_CHARS: usize = 256;
/// Problems that one compilation reports at most.
pub const PROBLEMS: usize = 100;
/// Deepest nesting of arrays and objects of a value (decision 10).
pub const VALUE_DEPTH: usize = 128;
/// Largest value inline in a transition, in bytes of canonical JSON (authoring.md, "Limits"); larger ones go through content.
pub const INLINE_BYTES: usize = 1024 * 1024;
/// Largest `data` of an update, in bytes of canonical JSON (authoring.md, "Updates and progress").
pub const UPDATE_BYTES: usize = 64 * 1024;
/// Most current (type, key) pairs of a run (authoring.md, "Updates and progress").
pub const UPDATE_PAIRS: usize = 1024;
/// Updates a second that a run may publish on average.
pub const UPDATE_RATE: u32 = 20;
/// Updates that a run may publish at once.
pub const UPDATE_BURST: u32 = 100;
/// Longest run title, in characters; longer ones are cut.
pub const TITLE_CHARS: usize = 200;
/// Restarts of one run and its descendants at most (state.md, "Run lifecycle").
pub const RESTARTS: u32 = 3;
/// Crashed attempts of one node in a row after which the run parks (decision 3).
pub const CRASHES_IN_A_ROW: u32 = 3;
/// Longest error message, in bytes of JSON; longer ones are cut. Leaves room for everything else of a 1 MiB message.
pub const ERROR_MESSAGE_BYTES: usize = 16 * 1024;
/// Longest stack of an error, in bytes of JSON; longer ones are cut.
pub const ERROR_STACK_BYTES: usize = 32 * 1024;
