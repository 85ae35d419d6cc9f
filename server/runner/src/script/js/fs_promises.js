// node:fs/promises, over the synchronous functions: the script thread is the run's own, so nothing else waits for it.
"use strict";

const fs = require("node:fs");

const names = ["readFile", "writeFile", "appendFile", "stat", "lstat", "readdir", "mkdir", "mkdtemp", "rm", "rmdir", "unlink", "rename", "copyFile", "cp", "realpath", "readlink", "symlink", "link", "access", "chmod", "utimes", "truncate"];
for (const name of names) {
  const run = fs[`${name}Sync`];
  exports[name] = async (...args) => {
    const signal = args.at(-1)?.signal;
    signal?.throwIfAborted?.();
    return run(...args);
  };
}
exports.constants = fs.constants;
for (const name of ["open", "opendir", "watch"]) {
  exports[name] = async () => {
    throw Object.assign(new Error(`fs.promises.${name} is not available in workflow code`), { code: "ERR_UNSUPPORTED" });
  };
}
