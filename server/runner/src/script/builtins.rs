//! The modules that the host provides itself: their names, and their JavaScript source.

/// One provided module.
struct Internal {
    /// Canonical name.
    name: &'static str,
    /// Other specifiers for it.
    aliases: &'static [&'static str],
    source: &'static str,
}

macro_rules! node {
    ($name:literal, $file:literal) => {
        Internal {
            name: concat!("node:", $name),
            aliases: &[$name],
            source: include_str!(concat!("js/", $file)),
        }
    };
}

const INTERNALS: &[Internal] = &[
    Internal {
        name: "piw:sdk",
        aliases: &["piw", "@osolmaz/pi-workflows"],
        source: include_str!("../sdk/workflow.js"),
    },
    Internal {
        name: "piw:sdk/resource-managers",
        aliases: &["piw/resource-managers", "@osolmaz/pi-workflows/resource-managers"],
        source: include_str!("../sdk/resource-managers.js"),
    },
    Internal {
        name: "piw:sdk/shapes",
        aliases: &[],
        source: include_str!("../sdk/shapes.js"),
    },
    Internal {
        name: "piw:sdk/human",
        aliases: &[],
        source: include_str!("../sdk/human.js"),
    },
    Internal {
        name: "piw:sdk/batch",
        aliases: &[],
        source: include_str!("../sdk/batch.js"),
    },
    Internal {
        name: "piw:sdk/describe",
        aliases: &[],
        source: include_str!("../sdk/describe.js"),
    },
    Internal {
        name: "piw:web/abort",
        aliases: &[],
        source: include_str!("js/abort.js"),
    },
    Internal {
        name: "piw:web/encoding",
        aliases: &[],
        source: include_str!("js/encoding.js"),
    },
    Internal {
        name: "piw:web/clone",
        aliases: &[],
        source: include_str!("js/clone.js"),
    },
    node!("assert", "assert.js"),
    node!("assert/strict", "assert_strict.js"),
    node!("buffer", "buffer.js"),
    node!("child_process", "child_process.js"),
    node!("console", "console.js"),
    node!("constants", "constants.js"),
    node!("crypto", "crypto.js"),
    node!("events", "events.js"),
    node!("fs", "fs.js"),
    node!("fs/promises", "fs_promises.js"),
    node!("module", "module.js"),
    node!("os", "os.js"),
    node!("path", "path.js"),
    node!("path/posix", "path.js"),
    node!("perf_hooks", "perf_hooks.js"),
    node!("process", "process.js"),
    node!("querystring", "querystring.js"),
    node!("string_decoder", "string_decoder.js"),
    node!("timers", "timers.js"),
    node!("timers/promises", "timers_promises.js"),
    node!("tty", "tty.js"),
    node!("url", "url.js"),
    node!("util", "util.js"),
    node!("util/types", "util_types.js"),
];

/// Names of Node's own modules that the host does not provide; a package of the same name wins over them.
const OTHER_NODE: &[&str] = &[
    "async_hooks",
    "cluster",
    "dgram",
    "diagnostics_channel",
    "dns",
    "dns/promises",
    "domain",
    "http",
    "http2",
    "https",
    "inspector",
    "net",
    "punycode",
    "readline",
    "readline/promises",
    "repl",
    "sea",
    "sqlite",
    "stream",
    "stream/consumers",
    "stream/promises",
    "stream/web",
    "sys",
    "test",
    "tls",
    "trace_events",
    "v8",
    "vm",
    "wasi",
    "worker_threads",
    "zlib",
];

/// The canonical name of a provided module, by any specifier for it that users may write.
pub(super) fn internal_name(specifier: &str) -> Option<&'static str> {
    INTERNALS
        .iter()
        .filter(|internal| !internal.aliases.is_empty())
        .find(|internal| internal.name == specifier || internal.aliases.contains(&specifier))
        .map(|internal| internal.name)
}

/// Whether `name` is a canonical name of a provided module.
pub(super) fn is_internal(name: &str) -> bool {
    INTERNALS.iter().any(|internal| internal.name == name)
}

/// The source of a provided module: the body of a function of `(exports, module, require, host)`.
pub(super) fn source(name: &str) -> Option<&'static str> {
    INTERNALS
        .iter()
        .find(|internal| internal.name == name)
        .map(|internal| internal.source)
}

/// Whether Node has a module of this bare name that the host does not provide.
pub(super) fn is_node_builtin(specifier: &str) -> bool {
    OTHER_NODE.contains(&specifier)
}

/// Names of the provided Node modules, sorted, without `node:`.
pub(super) fn node_names() -> Vec<&'static str> {
    INTERNALS
        .iter()
        .filter_map(|internal| internal.name.strip_prefix("node:"))
        .collect()
}
