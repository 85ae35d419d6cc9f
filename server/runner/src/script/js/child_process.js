// node:child_process: spawn, exec, execFile and their blocking forms. `fork` and extra descriptors are not provided.
"use strict";

const EventEmitter = require("node:events");
const { Buffer } = require("node:buffer");
const { StringDecoder } = require("node:string_decoder");
const { promisify } = require("node:util");
const { signals: SIGNALS } = require("node:constants");
const operations = require("piw:operations");

const NAMES = Object.fromEntries(Object.entries(SIGNALS).map(([name, number]) => [number, name]));
const MAX_BUFFER = 1024 * 1024;

function coded(Type, code, message) {
  const error = new Type(message);
  error.code = code;
  return error;
}

function signalNumber(signal) {
  const number = typeof signal === "number" ? signal : SIGNALS[signal ?? "SIGTERM"];
  if (number === undefined) throw coded(TypeError, "ERR_UNKNOWN_SIGNAL", `Unknown signal: ${signal}`);
  return number;
}

function stdioOf(stdio, allowInput) {
  const list = typeof stdio === "string" ? [stdio, stdio, stdio] : (stdio ?? []);
  return [0, 1, 2].map((index) => {
    const how = list[index] ?? "pipe";
    if (how === "inherit" || how === index || (typeof how === "object" && how !== null)) return index === 0 ? "ignore" : "inherit";
    if (how === "pipe" || how === "overlapped") return "pipe";
    if (how === "ignore" || (index === 0 && !allowInput)) return "ignore";
    throw coded(TypeError, "ERR_INVALID_ARG_VALUE", `stdio[${index}] must be "pipe", "ignore" or "inherit", not ${String(how)}`);
  });
}

function specOf(command, args, options) {
  if (typeof command !== "string" || command === "") throw coded(TypeError, "ERR_INVALID_ARG_TYPE", 'The "file" argument must be a non-empty string');
  if (!Array.isArray(args)) throw coded(TypeError, "ERR_INVALID_ARG_TYPE", 'The "args" argument must be an instance of Array');
  const shell = options.shell === true ? "/bin/sh" : options.shell;
  const line = [command, ...args].join(" ");
  const cwd = options.cwd === undefined || options.cwd === null ? undefined : typeof options.cwd === "object" ? require("node:url").fileURLToPath(options.cwd) : String(options.cwd);
  let env;
  if (options.env !== undefined && options.env !== null) {
    env = {};
    for (const name of Object.keys(options.env)) if (options.env[name] !== undefined) env[name] = String(options.env[name]);
  }
  return {
    command: shell ? shell : command,
    args: shell ? ["-c", line] : args.map(String),
    argv0: options.argv0,
    cwd,
    env,
    detached: Boolean(options.detached),
    timeout: options.timeout,
    maxBuffer: options.maxBuffer === undefined ? undefined : Math.min(options.maxBuffer, 2 ** 40),
    killSignal: signalNumber(options.killSignal),
  };
}

class Readable extends EventEmitter {
  #decoder;
  #chunks = [];
  #ended = false;
  readable = true;

  setEncoding(encoding) {
    this.#decoder = new StringDecoder(encoding ?? "utf8");
    return this;
  }
  #deliver(chunk) {
    if (this.listenerCount("data") > 0) this.emit("data", chunk);
    else this.#chunks.push(chunk);
  }
  push(bytes) {
    if (bytes.length === 0) {
      const rest = this.#decoder?.end() ?? "";
      if (rest !== "") this.#deliver(rest);
      this.#ended = true;
      this.readable = false;
      if (this.#chunks.length === 0) this.#finish();
    } else {
      const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      this.#deliver(this.#decoder === undefined ? buffer : this.#decoder.write(buffer));
    }
  }
  #finish() {
    this.emit("end");
    this.emit("close");
  }
  on(name, listener) {
    super.on(name, listener);
    if (name === "data" && this.#chunks.length > 0) {
      queueMicrotask(() => {
        for (const chunk of this.#chunks.splice(0)) this.emit("data", chunk);
        if (this.#ended) this.#finish();
      });
    }
    return this;
  }
  resume() {
    return this.on("data", () => {});
  }
  pause() {
    return this;
  }
  pipe(target) {
    this.on("data", (chunk) => target.write(chunk));
    return target;
  }
  destroy() {
    return this;
  }
  unref() {
    return this;
  }
  ref() {
    return this;
  }
  async *[Symbol.asyncIterator]() {
    const queue = [];
    let done = this.#ended && this.#chunks.length === 0;
    let wake;
    this.on("data", (chunk) => {
      queue.push(chunk);
      wake?.();
    });
    this.on("end", () => {
      done = true;
      wake?.();
    });
    for (;;) {
      while (queue.length > 0) yield queue.shift();
      if (done) return;
      await new Promise((resolve) => (wake = resolve));
    }
  }
}

class ChildProcess extends EventEmitter {
  pid = undefined;
  exitCode = null;
  signalCode = null;
  killed = false;
  connected = false;
  stdin = null;
  stdout = null;
  stderr = null;
  #id;

  begin(spec, options) {
    const stdio = stdioOf(options.stdio, true);
    this.spawnfile = spec.command;
    this.spawnargs = [spec.command, ...spec.args];
    const listener = {
      output: (stream, bytes) => {
        if (stdio[stream] === "inherit") {
          if (bytes.length > 0) host.log(stream === 1 ? 1 : 3, Buffer.from(bytes).toString().replace(/\n$/, ""));
        } else (stream === 1 ? this.stdout : this.stderr)?.push(bytes);
      },
      exit: ({ code, signal }) => this.#exited(code, signal),
    };
    try {
      this.#id = operations.child(listener, (id) => {
        this.pid = host.spawn(id, JSON.stringify({ ...spec, stdio }));
      });
    } catch (error) {
      if (error.code === undefined) throw error;
      const failed = Object.assign(new Error(`spawn ${spec.command} ${error.code}`), { code: error.code, errno: error.errno, syscall: `spawn ${spec.command}`, path: spec.command, spawnargs: spec.args });
      queueMicrotask(() => {
        this.emit("error", failed);
        this.emit("close", -2, null);
      });
    }
    if (stdio[0] === "pipe") this.stdin = this.#input();
    if (stdio[1] === "pipe") this.stdout = new Readable();
    if (stdio[2] === "pipe") this.stderr = new Readable();
    if (this.pid !== undefined) queueMicrotask(() => this.emit("spawn"));
    this.stdio = [this.stdin, this.stdout, this.stderr];
  }
  #input() {
    const child = this;
    return Object.assign(new EventEmitter(), {
      writable: true,
      write(chunk, encoding, callback) {
        const done = typeof encoding === "function" ? encoding : callback;
        if (child.#id !== undefined) host.childWrite(child.#id, typeof chunk === "string" ? Buffer.from(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk);
        if (typeof done === "function") queueMicrotask(done);
        return true;
      },
      end(chunk, encoding, callback) {
        if (typeof chunk === "function") [callback, chunk] = [chunk, undefined];
        if (chunk !== undefined && chunk !== null) this.write(chunk, encoding);
        if (child.#id !== undefined) host.childEnd(child.#id);
        this.writable = false;
        const done = typeof encoding === "function" ? encoding : callback;
        queueMicrotask(() => {
          if (typeof done === "function") done();
          this.emit("finish");
          this.emit("close");
        });
        return this;
      },
      destroy() {
        return this.end();
      },
    });
  }
  #exited(code, signal) {
    this.exitCode = code;
    this.signalCode = signal === null ? null : (NAMES[signal] ?? `SIG${signal}`);
    this.emit("exit", this.exitCode, this.signalCode);
    this.emit("close", this.exitCode, this.signalCode);
  }
  kill(signal = "SIGTERM") {
    if (this.#id === undefined || this.exitCode !== null || this.signalCode !== null) return false;
    const sent = host.childKill(this.#id, signalNumber(signal));
    this.killed ||= sent;
    return sent;
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
  disconnect() {}
}

function argumentsOf(args, options) {
  return Array.isArray(args) || args === undefined || args === null ? [args ?? [], options ?? {}] : [[], args];
}

function spawn(command, args, options) {
  [args, options] = argumentsOf(args, options);
  const child = new ChildProcess();
  child.begin(specOf(command, args, options), options);
  const stop = (error) => {
    if (child.kill(options.killSignal) && error !== undefined) queueMicrotask(() => child.emit("error", error));
  };
  if (options.timeout > 0) {
    const timer = setTimeout(() => stop(), options.timeout);
    child.once("close", () => clearTimeout(timer));
  }
  if (options.signal !== undefined) {
    const abort = () => stop(Object.assign(new Error("The operation was aborted"), { name: "AbortError", code: "ABORT_ERR", cause: options.signal.reason }));
    if (options.signal.aborted) abort();
    else options.signal.addEventListener("abort", abort, { once: true });
  }
  return child;
}

function execFile(file, args, options, callback) {
  if (typeof args === "function") [args, options, callback] = [[], {}, args];
  else if (typeof options === "function") {
    callback = options;
    [args, options] = argumentsOf(args, undefined);
  } else [args, options] = argumentsOf(args, options);
  const encoding = options.encoding === undefined ? "utf8" : options.encoding;
  const limit = options.maxBuffer ?? MAX_BUFFER;
  const child = spawn(file, args, { ...options, stdio: "pipe" });
  const kept = { stdout: [], stderr: [] };
  const sizes = { stdout: 0, stderr: 0 };
  let failure;
  for (const name of ["stdout", "stderr"]) {
    child[name].on("data", (chunk) => {
      const room = Math.max(0, limit - sizes[name]);
      // A copy of a cut chunk: a view would keep the whole of it.
      if (room > 0) kept[name].push(chunk.length > room ? Buffer.from(chunk.subarray(0, room)) : chunk);
      sizes[name] += chunk.length;
      if (chunk.length > room && failure === undefined) {
        failure = coded(RangeError, "ERR_CHILD_PROCESS_STDIO_MAXBUFFER", `${name} maxBuffer length exceeded`);
        child.kill(options.killSignal);
      }
    });
  }
  const text = (name) => {
    const bytes = Buffer.concat(kept[name]);
    return encoding === "buffer" || encoding === null ? bytes : bytes.toString(encoding);
  };
  child.on("error", (error) => (failure ??= error));
  child.on("close", (code, signal) => {
    const [stdout, stderr] = [text("stdout"), text("stderr")];
    let error = null;
    if (failure !== undefined || code !== 0 || signal !== null) {
      const line = [file, ...args].join(" ");
      error = failure ?? new Error(`Command failed: ${line}\n${stderr}`);
      if (failure === undefined) Object.assign(error, { code: code ?? null, killed: child.killed, signal });
      Object.assign(error, { cmd: line, stdout, stderr });
    }
    callback?.(error, stdout, stderr);
  });
  return child;
}

function exec(command, options, callback) {
  if (typeof options === "function") [options, callback] = [{}, options];
  return execFile(command, [], { ...options, shell: options?.shell ?? "/bin/sh" }, callback);
}

function promised(run) {
  return (...args) => {
    let child;
    const promise = new Promise((resolve, reject) => {
      child = run(...args, (error, stdout, stderr) => (error === null ? resolve({ stdout, stderr }) : reject(error)));
    });
    promise.child = child;
    return promise;
  };
}
exec[promisify.custom] = promised(exec);
execFile[promisify.custom] = promised(execFile);

function spawnSync(command, args, options) {
  [args, options] = argumentsOf(args, options);
  const input = options.input === undefined || options.input === null ? undefined : typeof options.input === "string" ? Buffer.from(options.input) : new Uint8Array(options.input.buffer, options.input.byteOffset, options.input.byteLength);
  const stdio = stdioOf(options.stdio, input !== undefined);
  if (input === undefined) stdio[0] = "ignore";
  const spec = specOf(command, args, options);
  const raw = host.spawnSync(JSON.stringify({ ...spec, stdio }), input);
  if (raw.errorCode !== undefined) {
    const error = Object.assign(new Error(`spawnSync ${command} ${raw.errorCode}`), { code: raw.errorCode, errno: -raw.errno, syscall: `spawnSync ${command}`, path: command, spawnargs: args });
    return { pid: 0, output: null, stdout: null, stderr: null, status: null, signal: null, error };
  }
  const { code, signal } = JSON.parse(raw.status);
  const convert = (bytes, index) => {
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (stdio[index] === "inherit") {
      if (buffer.length > 0) host.log(index === 1 ? 1 : 3, buffer.toString().replace(/\n$/, ""));
      return null;
    }
    if (stdio[index] === "ignore") return null;
    return options.encoding === undefined || options.encoding === null || options.encoding === "buffer" ? buffer : buffer.toString(options.encoding);
  };
  const [stdout, stderr] = [convert(raw.stdout, 1), convert(raw.stderr, 2)];
  const result = { pid: raw.pid, output: [null, stdout, stderr], stdout, stderr, status: code ?? null, signal: signal === null || signal === undefined ? null : (NAMES[signal] ?? `SIG${signal}`) };
  if (raw.ended !== "") result.error = Object.assign(new Error(`spawnSync ${command} ${raw.ended}`), { code: raw.ended, syscall: `spawnSync ${command}`, path: command, spawnargs: args });
  return result;
}

function finished(result, line) {
  if (result.error !== undefined) throw Object.assign(result.error, result);
  if (result.status !== 0) {
    const said = result.stderr === null ? "" : String(result.stderr);
    throw Object.assign(new Error(`Command failed: ${line}${said === "" ? "" : `\n${said}`}`), result);
  }
  return result.stdout;
}

function execFileSync(file, args, options) {
  [args, options] = argumentsOf(args, options);
  return finished(spawnSync(file, args, options), [file, ...args].join(" "));
}

function execSync(command, options = {}) {
  return finished(spawnSync(command, [], { ...options, shell: options.shell ?? "/bin/sh" }), command);
}

function fork() {
  throw coded(Error, "ERR_UNSUPPORTED", "child_process.fork is not available in workflow code: it needs Node.js; use spawn");
}

module.exports = { spawn, exec, execFile, spawnSync, execSync, execFileSync, fork, ChildProcess };
