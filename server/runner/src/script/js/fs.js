// node:fs: the synchronous functions, and callback forms of them. Streams, watchers and descriptors are not provided.
"use strict";

const { Buffer } = require("node:buffer");

function coded(Type, code, message) {
  const error = new Type(message);
  error.code = code;
  return error;
}

function pathOf(path, name = "path") {
  if (typeof path === "string") return path;
  if (path !== null && typeof path === "object") {
    if (typeof path.href === "string") return require("node:url").fileURLToPath(path);
    if (ArrayBuffer.isView(path)) return Buffer.from(path).toString();
  }
  throw coded(TypeError, "ERR_INVALID_ARG_TYPE", `The "${name}" argument must be of type string or an instance of Buffer or URL. Received ${path === null ? "null" : typeof path}`);
}

const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding);

function modeOf(mode, fallback) {
  if (mode === undefined || mode === null) return fallback;
  return typeof mode === "string" ? Number.parseInt(mode, 8) : Number(mode);
}

class Stats {
  #kind;
  constructor(raw) {
    const { kind, ...numbers } = raw;
    this.#kind = kind;
    Object.assign(this, numbers);
    for (const name of ["atime", "mtime", "ctime", "birthtime"]) this[name] = new Date(numbers[`${name}Ms`]);
  }
  isFile() {
    return this.#kind === "f";
  }
  isDirectory() {
    return this.#kind === "d";
  }
  isSymbolicLink() {
    return this.#kind === "l";
  }
  isFIFO() {
    return this.#kind === "p";
  }
  isSocket() {
    return this.#kind === "s";
  }
  isCharacterDevice() {
    return this.#kind === "c";
  }
  isBlockDevice() {
    return this.#kind === "b";
  }
}

class Dirent {
  #kind;
  constructor(name, parentPath, kind) {
    this.name = name;
    this.parentPath = parentPath;
    this.path = parentPath;
    this.#kind = kind;
  }
  isFile() {
    return this.#kind === "f";
  }
  isDirectory() {
    return this.#kind === "d";
  }
  isSymbolicLink() {
    return this.#kind === "l";
  }
  isFIFO() {
    return this.#kind === "p";
  }
  isSocket() {
    return this.#kind === "s";
  }
  isCharacterDevice() {
    return this.#kind === "c";
  }
  isBlockDevice() {
    return this.#kind === "b";
  }
}

function bytesOf(data, encoding) {
  if (typeof data === "string") return Buffer.from(data, encoding);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw coded(TypeError, "ERR_INVALID_ARG_TYPE", 'The "data" argument must be of type string or an instance of Buffer, TypedArray, or DataView');
}

function readFileSync(path, options) {
  const bytes = host.fsRead(pathOf(path));
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const encoding = encodingOf(options);
  return encoding === undefined || encoding === null ? buffer : buffer.toString(encoding);
}

function write(path, data, options, flag) {
  const given = typeof options === "object" && options !== null ? options : {};
  host.fsWrite(pathOf(path), bytesOf(data, encodingOf(options)), given.flag ?? flag, modeOf(given.mode, 0o666));
}

function statSync(path, options) {
  return stat(path, true, options);
}

function stat(path, follow, options) {
  try {
    return new Stats(host.fsStat(pathOf(path), follow));
  } catch (error) {
    if (options?.throwIfNoEntry === false && (error.code === "ENOENT" || error.code === "ENOTDIR")) return undefined;
    throw error;
  }
}

function readdirSync(path, options) {
  const root = pathOf(path);
  const given = typeof options === "object" && options !== null ? options : {};
  const out = [];
  const walk = (directory, prefix) => {
    for (const [name, kind] of host.fsReaddir(directory)) {
      out.push(given.withFileTypes ? new Dirent(name, directory, kind) : prefix + name);
      if (given.recursive && kind === "d") walk(`${directory.replace(/\/$/, "")}/${name}`, `${prefix}${name}/`);
    }
  };
  walk(root, "");
  return out;
}

function mkdirSync(path, options) {
  const given = typeof options === "object" && options !== null ? options : { mode: options };
  return host.fsMkdir(pathOf(path), Boolean(given.recursive), modeOf(given.mode, 0o777)) ?? undefined;
}

function rmSync(path, options = {}) {
  const file = pathOf(path);
  try {
    host.fsRm(file, Boolean(options.recursive), Boolean(options.force));
  } catch (error) {
    if (error.code === "EISDIR") throw Object.assign(coded(Error, "ERR_FS_EISDIR", `Path is a directory: rm returned EISDIR (is a directory) ${file}`), { path: file, syscall: "rm" });
    throw error;
  }
}

function existsSync(path) {
  let file;
  try {
    file = pathOf(path);
  } catch {
    return false;
  }
  try {
    host.fsAccess(file, 0);
    return true;
  } catch (error) {
    if (error.code === undefined) throw error;
    return false;
  }
}

function copyFileSync(from, to, mode = 0) {
  host.fsCopy(pathOf(from, "src"), pathOf(to, "dest"), (mode & 1) === 1);
}

function cpSync(from, to, options = {}) {
  const [source, target] = [pathOf(from, "src"), pathOf(to, "dest")];
  if (options.filter !== undefined && !options.filter(source, target)) return;
  const kind = stat(source, options.dereference === true);
  if (kind.isDirectory()) {
    if (!options.recursive) throw Object.assign(coded(Error, "ERR_FS_EISDIR", `Recursive option not enabled, cannot copy a directory: ${source}`), { path: source });
    host.fsMkdir(target, true, 0o777);
    for (const [name] of host.fsReaddir(source)) cpSync(`${source.replace(/\/$/, "")}/${name}`, `${target.replace(/\/$/, "")}/${name}`, options);
  } else if (options.force === false && existsSync(target)) {
    if (options.errorOnExist) throw Object.assign(coded(Error, "ERR_FS_CP_EEXIST", `Target already exists: ${target}`), { path: target });
  } else if (kind.isSymbolicLink()) {
    host.fsRm(target, false, true);
    host.fsSymlink(host.fsReadlink(source), target);
  } else {
    const parent = target.slice(0, target.lastIndexOf("/"));
    if (parent !== "") host.fsMkdir(parent, true, 0o777);
    host.fsCopy(source, target, false);
  }
}

const seconds = (time) => (time instanceof Date ? time.getTime() / 1e3 : Number(time));
const constants = require("node:constants").fs;

const sync = {
  readFileSync,
  writeFileSync: (path, data, options) => write(path, data, options, "w"),
  appendFileSync: (path, data, options) => write(path, data, options, "a"),
  statSync,
  lstatSync: (path, options) => stat(path, false, options),
  readdirSync,
  mkdirSync,
  mkdtempSync: (prefix) => host.fsMkdtemp(pathOf(prefix, "prefix")),
  rmSync,
  rmdirSync: (path, options) => (options?.recursive ? rmSync(path, { recursive: true }) : host.fsRmdir(pathOf(path))),
  unlinkSync: (path) => host.fsUnlink(pathOf(path)),
  renameSync: (from, to) => host.fsRename(pathOf(from, "oldPath"), pathOf(to, "newPath")),
  copyFileSync,
  cpSync,
  realpathSync: (path) => host.fsRealpath(pathOf(path)),
  readlinkSync: (path) => host.fsReadlink(pathOf(path)),
  symlinkSync: (target, path) => host.fsSymlink(pathOf(target, "target"), pathOf(path)),
  linkSync: (from, to) => host.fsLink(pathOf(from, "existingPath"), pathOf(to, "newPath")),
  accessSync: (path, mode = 0) => host.fsAccess(pathOf(path), mode),
  chmodSync: (path, mode) => host.fsChmod(pathOf(path), modeOf(mode)),
  utimesSync: (path, atime, mtime) => host.fsUtimes(pathOf(path), seconds(atime), seconds(mtime)),
  truncateSync: (path, length = 0) => host.fsTruncate(pathOf(path), length),
};
sync.realpathSync.native = sync.realpathSync;

/** The callback form: the last argument receives the outcome. */
function callbackForm(run) {
  return (...args) => {
    const callback = args.pop();
    if (typeof callback !== "function") throw coded(TypeError, "ERR_INVALID_ARG_TYPE", 'The "cb" argument must be of type function');
    let outcome;
    try {
      outcome = [null, run(...args)];
    } catch (error) {
      outcome = [error];
    }
    queueMicrotask(() => callback(...outcome));
  };
}

const callbacks = {};
for (const [name, run] of Object.entries(sync)) callbacks[name.slice(0, -4)] = callbackForm(run);
callbacks.exists = (path, callback) => queueMicrotask(() => callback(existsSync(path)));

function missing(name) {
  return () => {
    throw coded(Error, "ERR_UNSUPPORTED", `fs.${name} is not available in workflow code`);
  };
}
const unavailable = {};
for (const name of ["createReadStream", "createWriteStream", "watch", "watchFile", "unwatchFile", "open", "openSync", "read", "readSync", "write", "writeSync", "close", "closeSync", "fstat", "fstatSync", "opendir", "opendirSync"]) {
  unavailable[name] = missing(name);
}

module.exports = { ...unavailable, ...callbacks, ...sync, existsSync, Stats, Dirent, constants, ...{ F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4 } };
Object.defineProperty(module.exports, "promises", { enumerable: true, get: () => require("node:fs/promises") });
