// node:os.
"use strict";

let cached;
const facts = () => (cached ??= host.facts());
const process = require("node:process");
const env = () => process.env;

module.exports = {
  EOL: "\n",
  devNull: "/dev/null",
  constants: { signals: require("node:constants").signals },
  platform: () => host.platform,
  arch: () => host.arch,
  type: () => facts().sysname,
  release: () => facts().release,
  version: () => facts().release,
  machine: () => (host.arch === "x64" ? "x86_64" : host.arch),
  hostname: () => facts().hostname,
  homedir: () => env().HOME ?? facts().homedir,
  tmpdir: () => (env().TMPDIR ?? env().TMP ?? env().TEMP ?? "/tmp").replace(/(.)\/$/, "$1"),
  userInfo: () => ({ username: facts().username, uid: facts().uid, gid: facts().gid, homedir: facts().homedir, shell: env().SHELL ?? null }),
  availableParallelism: () => facts().cpus,
  cpus: () => Array.from({ length: facts().cpus }, () => ({ model: "", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } })),
  endianness: () => "LE",
  loadavg: () => [0, 0, 0],
  uptime: () => host.now() / 1e3,
  networkInterfaces: () => ({}),
};
