// node:process: what of a process a script may see. Environment, directory and identity are effects.
"use strict";

let facts;
let env;

function read(what, key) {
  if (host.closed()) host.touch(what);
  facts ??= host.facts();
  return facts[key];
}

function environment() {
  return (env ??= host.env());
}

const guardedEnv = new Proxy(Object.create(null), {
  get(_target, key) {
    if (typeof key === "symbol") return undefined;
    if (host.closed()) host.touch(`process.env.${key}`);
    return Object.hasOwn(environment(), key) ? environment()[key] : undefined;
  },
  has(_target, key) {
    if (host.closed()) host.touch(`process.env.${String(key)}`);
    return Object.hasOwn(environment(), key);
  },
  set(_target, key, value) {
    if (host.closed()) host.touch(`process.env.${String(key)}`);
    environment()[key] = String(value);
    return true;
  },
  deleteProperty(_target, key) {
    if (host.closed()) host.touch(`process.env.${String(key)}`);
    return delete environment()[key];
  },
  ownKeys() {
    if (host.closed()) host.touch("process.env");
    return Object.keys(environment());
  },
  getOwnPropertyDescriptor(_target, key) {
    if (host.closed()) host.touch(`process.env.${String(key)}`);
    const value = Object.hasOwn(environment(), key) ? environment()[key] : undefined;
    return value === undefined ? undefined : { value, writable: true, enumerable: true, configurable: true };
  },
});

const EventEmitter = require("node:events");
const process = new EventEmitter();

function output(level) {
  const stream = new EventEmitter();
  return Object.assign(stream, {
    isTTY: false,
    writable: true,
    columns: undefined,
    write(chunk, encoding, callback) {
      host.log(level, String(chunk).replace(/\n$/, "").toWellFormed());
      const done = typeof encoding === "function" ? encoding : callback;
      if (typeof done === "function") queueMicrotask(done);
      return true;
    },
    end() {},
  });
}

function hrtime(previous) {
  const now = host.now();
  let [seconds, nanos] = [Math.floor(now / 1e3), Math.floor((now % 1e3) * 1e6)];
  if (previous !== undefined) {
    seconds -= previous[0];
    nanos -= previous[1];
    if (nanos < 0) {
      seconds -= 1;
      nanos += 1e9;
    }
  }
  return [seconds, nanos];
}
hrtime.bigint = () => BigInt(Math.round(host.now() * 1e6));

const SIGNALS = require("node:constants").signals;

Object.assign(process, {
  platform: host.platform,
  arch: host.arch,
  version: "v22.0.0",
  versions: { node: "22.0.0", piw: host.version },
  release: { name: "node" },
  title: "piw",
  exitCode: undefined,
  execArgv: [],
  features: {},
  config: {},
  stdout: output(1),
  stderr: output(3),
  stdin: Object.assign(new EventEmitter(), { isTTY: false, fd: 0 }),
  cwd: () => read("process.cwd", "cwd"),
  chdir() {
    throw new Error("process.chdir is not available: pass `cwd` to what needs another directory");
  },
  exit: (code = 0) => host.exit(Number(code) | 0),
  reallyExit: (code = 0) => host.exit(Number(code) | 0),
  abort: () => host.exit(134),
  kill(pid, signal = "SIGTERM") {
    if (host.closed()) host.touch("process.kill");
    const number = typeof signal === "number" ? signal : SIGNALS[signal];
    if (number === undefined) throw new TypeError(`Unknown signal: ${signal}`);
    return host.kill(pid, number);
  },
  nextTick: (callback, ...args) => queueMicrotask(() => callback(...args)),
  uptime: () => host.now() / 1e3,
  hrtime,
  umask: () => 0o22,
  memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
  cpuUsage: () => ({ user: Math.round(host.now() * 1e3), system: 0 }),
  getuid: () => read("process.getuid", "uid"),
  geteuid: () => read("process.geteuid", "uid"),
  getgid: () => read("process.getgid", "gid"),
  getegid: () => read("process.getegid", "gid"),
  emitWarning: (warning) => host.log(2, `warning: ${warning?.message ?? warning}`.toWellFormed()),
  binding(name) {
    throw new Error(`process.binding("${name}") is not available`);
  },
});
Object.defineProperty(process, "env", { enumerable: true, configurable: true, get: () => guardedEnv });
for (const key of ["pid", "ppid"]) Object.defineProperty(process, key, { enumerable: true, configurable: true, get: () => read(`process.${key}`, key) });
Object.defineProperty(process, "argv", {
  enumerable: true,
  configurable: true,
  get() {
    if (host.closed()) host.touch("process.argv");
    return ["piw", "workflow"];
  },
});
Object.defineProperty(process, "argv0", { enumerable: true, value: "piw" });
Object.defineProperty(process, "execPath", { enumerable: true, get: () => (host.closed() ? host.touch("process.execPath") : "/usr/bin/env") });

module.exports = process;
