// node:module: createRequire and the list of provided modules.
"use strict";

const { requireFor } = require("piw:require");

function createRequire(from) {
  const path = String(from).startsWith("file:") ? require("node:url").fileURLToPath(from) : String(from);
  return requireFor(path);
}

const builtinModules = ["assert", "assert/strict", "buffer", "child_process", "console", "constants", "crypto", "events", "fs", "fs/promises", "module", "os", "path", "path/posix", "perf_hooks", "process", "querystring", "string_decoder", "timers", "timers/promises", "tty", "url", "util", "util/types"];
const isBuiltin = (name) => host.internalName(name) !== undefined;
module.exports = { createRequire, builtinModules, isBuiltin };
