// Sets up the globals of a runtime and returns the functions that the host drives it with. Runs once, before any other code.
(function (host) {
  "use strict";

  // ---- provided modules -------------------------------------------------------------------------------------------------

  const effectful = new Set(["node:fs", "node:fs/promises", "node:child_process", "node:os", "node:timers", "node:timers/promises"]);
  const raw = new Map();
  const shown = new Map();

  /** A provided module as other provided modules use it. */
  function require(name) {
    const id = host.internalName(name) ?? name;
    let module = raw.get(id);
    if (module === undefined) {
      module = { exports: {} };
      raw.set(id, module);
      host.internalSource(id)(module.exports, module, require, host);
    }
    return module.exports;
  }

  /** A provided module as workflow code sees it: functions with effects ask the gate and are named in its refusal. */
  function internal(id) {
    let exports = shown.get(id);
    if (exports === undefined) {
      exports = effectful.has(id) ? guardAll(id, require(id)) : require(id);
      shown.set(id, exports);
    }
    return exports;
  }

  function guardAll(name, exports) {
    const out = {};
    for (const key of Object.keys(exports)) {
      const value = exports[key];
      if (typeof value === "function" && !/^[A-Z]/.test(key)) out[key] = guard(value, `${name}.${key}`);
      else if (key === "promises") out[key] = internal("node:fs/promises");
      else out[key] = value;
    }
    return out;
  }

  function guard(target, what) {
    function guarded(...args) {
      if (host.closed()) host.touch(what);
      return Reflect.apply(target, this, args);
    }
    for (const key of Reflect.ownKeys(target)) {
      if (key === "prototype" || key === "arguments" || key === "caller") continue;
      const property = Object.getOwnPropertyDescriptor(target, key);
      if (property.value === target) property.value = guarded;
      else if (typeof property.value === "function") property.value = guard(property.value, what);
      Object.defineProperty(guarded, key, property);
    }
    return guarded;
  }

  // ---- CommonJS -----------------------------------------------------------------------------------------------------------

  const cache = Object.create(null);

  function commonJs(id) {
    const cached = cache[id];
    if (cached !== undefined) return cached.exports;
    const module = { id, filename: id, path: directory(id), exports: {}, loaded: false, children: [], paths: [], parent: null };
    cache[id] = module;
    try {
      const run = host.compile(id);
      if (host.kind(id) === "json") {
        module.exports = run;
      } else {
        const require = requireFor(id);
        module.require = require;
        run.call(module.exports, module.exports, require, module, id, module.path);
      }
      module.loaded = true;
    } catch (error) {
      delete cache[id];
      throw error;
    }
    return module.exports;
  }

  function directory(path) {
    return path.slice(0, path.lastIndexOf("/")) || "/";
  }

  function requireFor(parent) {
    const require = (specifier) => {
      if (typeof specifier !== "string") throw new TypeError(`require() takes a module name, not ${typeof specifier}`);
      const name = host.resolve(parent, specifier);
      if (host.internalName(name) !== undefined) return internal(name);
      if (host.kind(name) !== "module") return commonJs(name);
      const error = new Error(`cannot require("${specifier}") in ${parent}: it is an ES module; use import`);
      error.code = "ERR_REQUIRE_ESM";
      throw error;
    };
    require.resolve = (specifier) => host.resolve(parent, String(specifier));
    require.cache = cache;
    require.extensions = Object.create(null);
    require.main = undefined;
    return require;
  }

  raw.set("piw:require", { exports: { requireFor } });

  // ---- timers -------------------------------------------------------------------------------------------------------------

  const timers = new Map();
  let nextTimer = 1;

  class Timeout {
    #id;
    constructor(id) {
      this.#id = id;
    }
    ref() {
      return this;
    }
    unref() {
      return this;
    }
    hasRef() {
      return true;
    }
    refresh() {
      const timer = timers.get(this.#id);
      if (timer !== undefined) host.setTimer(this.#id, timer.delay);
      return this;
    }
    close() {
      clear(this.#id);
      return this;
    }
    [Symbol.toPrimitive]() {
      return this.#id;
    }
    [Symbol.dispose ?? Symbol.for("dispose")]() {
      clear(this.#id);
    }
  }

  function start(what, callback, delay, args, repeat) {
    if (typeof callback !== "function") {
      const error = new TypeError(`The "callback" argument must be of type function. Received ${typeof callback}`);
      error.code = "ERR_INVALID_ARG_TYPE";
      throw error;
    }
    if (host.closed()) host.touch(what);
    const id = nextTimer++;
    delay = Number(delay);
    timers.set(id, { callback, args, delay, repeat });
    host.setTimer(id, delay);
    return new Timeout(id);
  }

  function clear(timer) {
    const id = Number(timer);
    if (timers.delete(id)) host.clearTimer(id);
  }

  const timerFunctions = {
    setTimeout: (callback, delay, ...args) => start("setTimeout", callback, delay, args, false),
    setInterval: (callback, delay, ...args) => start("setInterval", callback, delay, args, true),
    setImmediate: (callback, ...args) => start("setImmediate", callback, 0, args, false),
    clearTimeout: (timer) => clear(timer),
    clearInterval: (timer) => clear(timer),
    clearImmediate: (timer) => clear(timer),
  };
  raw.set("piw:timers", { exports: timerFunctions });

  // ---- operations outside the runtime -------------------------------------------------------------------------------------

  const operations = new Map();
  const children = new Map();
  let nextOperation = 1;

  /** Starts a native operation and returns a promise of what it reports. */
  function operation(begin) {
    const id = nextOperation++;
    return new Promise((resolve, reject) => {
      operations.set(id, { resolve, reject });
      try {
        begin(id);
      } catch (error) {
        operations.delete(id);
        reject(error);
      }
    });
  }

  /** Starts a child process whose events go to `listener`. */
  function child(listener, begin) {
    const id = nextOperation++;
    children.set(id, listener);
    try {
      begin(id);
    } catch (error) {
      children.delete(id);
      throw error;
    }
    return id;
  }
  raw.set("piw:operations", { exports: { operation, child } });

  // ---- globals ------------------------------------------------------------------------------------------------------------

  const global = globalThis;

  function define(name, value) {
    Object.defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });
  }

  /** A global that is made on first use. */
  function lazy(name, make) {
    Object.defineProperty(global, name, {
      configurable: true,
      enumerable: false,
      get() {
        const value = make();
        define(name, value);
        return value;
      },
      set(value) {
        define(name, value);
      },
    });
  }

  define("global", global);
  for (const [name, value] of Object.entries(timerFunctions)) define(name, value);
  define("queueMicrotask", (callback) => {
    if (typeof callback !== "function") throw new TypeError("queueMicrotask() takes a function");
    Promise.resolve().then(callback);
  });
  lazy("console", () => require("node:console").console);
  lazy("process", () => require("node:process"));
  lazy("Buffer", () => require("node:buffer").Buffer);
  lazy("URL", () => require("node:url").URL);
  lazy("URLSearchParams", () => require("node:url").URLSearchParams);
  for (const name of ["TextEncoder", "TextDecoder"]) lazy(name, () => require("piw:web/encoding")[name]);
  for (const name of ["atob", "btoa"]) lazy(name, () => require("node:buffer")[name]);
  for (const name of ["AbortController", "AbortSignal", "Event", "EventTarget"]) lazy(name, () => require("piw:web/abort")[name]);
  lazy("structuredClone", () => require("piw:web/clone").structuredClone);
  lazy("crypto", () => require("node:crypto").webcrypto);
  lazy("performance", () => require("node:perf_hooks").performance);
  define("fetch", function fetch() {
    if (host.closed()) host.touch("fetch");
    throw new Error("fetch is not available in workflow code: call an HTTP client such as curl from a shell node or with node:child_process");
  });
  // What runs when the collector finds garbage belongs to no node.
  delete global.FinalizationRegistry;

  // ---- contexts of callbacks ----------------------------------------------------------------------------------------------

  /** An object whose members are parsed when they are first read. Every call gets its own copies, so changes do not leak. */
  function parsed(keys, has, read) {
    const target = {};
    const gone = new Set();
    const present = (key) => typeof key === "string" && !gone.has(key) && has(key);
    const fetch = (key) => {
      if (!Object.hasOwn(target, key) && present(key)) target[key] = read(key);
    };
    return new Proxy(target, {
      get(target, key, receiver) {
        fetch(key);
        return Reflect.get(target, key, receiver);
      },
      has: (target, key) => present(key) || Reflect.has(target, key),
      ownKeys(target) {
        const own = Reflect.ownKeys(target);
        return [...new Set([...keys().filter((key) => !gone.has(key)), ...own])];
      },
      getOwnPropertyDescriptor(target, key) {
        fetch(key);
        return Reflect.getOwnPropertyDescriptor(target, key);
      },
      deleteProperty(target, key) {
        gone.add(key);
        return Reflect.deleteProperty(target, key);
      },
      set(target, key, value) {
        target[key] = value;
        return true;
      },
    });
  }

  function once(object, key, make) {
    Object.defineProperty(object, key, {
      configurable: true,
      enumerable: true,
      get() {
        const value = make();
        Object.defineProperty(object, key, { value, writable: true, configurable: true, enumerable: true });
        return value;
      },
      set(value) {
        Object.defineProperty(object, key, { value, writable: true, configurable: true, enumerable: true });
      },
    });
  }

  let current = null;

  function makeContext(name, extras, publishes) {
    const context = {};
    once(context, "input", () => host.scopeInput(name));
    once(context, "outputs", () =>
      parsed(
        () => host.scopeIds(name, true),
        (id) => host.scopeHas(name, id, true),
        (id) => host.scopeOutput(name, id),
      ),
    );
    once(context, "results", () =>
      parsed(
        () => host.scopeIds(name, false),
        (id) => host.scopeHas(name, id, false),
        (id) => ({ ...host.scopeMeta(name, id), output: host.scopeOutput(name, id) }),
      ),
    );
    const { state, ...others } = extras;
    once(context, "state", () => {
      const view = { ...state };
      for (const key of ["input", "outputs", "results"]) once(view, key, () => context[key]);
      return view;
    });
    once(context, "signal", () => {
      const { AbortController } = require("piw:web/abort");
      const controller = new AbortController();
      current.controller = controller;
      if (current.aborted !== undefined) controller.abort(current.aborted);
      return controller.signal;
    });
    for (const key of Object.keys(others)) context[key] = others[key];
    if (publishes) context.publishUpdate = publishUpdate;
    return context;
  }

  function publishUpdate(update, ...rest) {
    if (host.closed()) host.touch("publishUpdate");
    // Also accepted: publishUpdate(type, key, data).
    const value = typeof update === "string" ? { type: update, key: rest[0], data: rest[1] } : update;
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      return Promise.reject(new TypeError("publishUpdate takes an object {type, key, data}"));
    }
    return operation((id) => host.publish(id, JSON.stringify(value) ?? "null")).then(() => undefined);
  }
  raw.set("piw:publish", { exports: { publishUpdate: (update) => publishUpdate(update), canPublish: () => current?.publishes === true } });

  // ---- the definition tree ------------------------------------------------------------------------------------------------

  let root;

  function tree() {
    return require("piw:sdk/describe");
  }

  function coded(code, message) {
    const error = new TypeError(message);
    error.code = code;
    return error;
  }

  function find(scope, node, field) {
    const found = root === undefined ? undefined : tree().callback(root, scope, node, field);
    if (found === undefined) {
      throw coded("ERR_MISSING_CALLBACK", `there is no callback ${field} of ${node === undefined || node === null ? "the workflow" : `"${node}"`} in scope "${scope}"`);
    }
    return found;
  }

  function isPromise(value) {
    return value !== null && typeof value === "object" && typeof value.then === "function";
  }

  /** Calls a callback with the arguments that its field takes. */
  function call(scope, node, field, argument, extras, publishes) {
    current = { controller: undefined, aborted: undefined, publishes };
    const { value, self } = find(scope, node, field);
    if (typeof value !== "function") return value;
    const context = makeContext(scope, JSON.parse(extras), publishes);
    const positional = argument === undefined || argument === null ? undefined : JSON.parse(argument);
    let result;
    if (field === "updates.parseLine") {
      const streams = self.streams === undefined ? undefined : [self.streams].flat();
      if (streams !== undefined && !streams.includes(positional?.stream)) return undefined;
      context.stream = positional?.stream;
      result = value.call(self, positional?.line, context);
    } else if (field === "title") {
      context.workflowName = self.name;
      result = value.call(self, context);
    } else if (field === "input" || field === "parse" || field === "validate" || field === "exit.validate") {
      result = value.call(self, positional, context);
    } else {
      result = value.call(self, context, positional);
    }
    if (!isPromise(result)) return result;
    result = Promise.resolve(result);
    // The host looks at the promise itself: not an unhandled rejection.
    result.catch(() => {});
    return result;
  }

  return {
    internal,
    commonJs,
    call,

    adopt(namespace, module, reference) {
      const value = "default" in namespace ? namespace.default : undefined;
      const definition = tree().unwrap(value);
      if (definition === undefined) {
        const has = "default" in namespace ? `is ${tree().show(value)}` : "does not exist";
        throw coded("ERR_NOT_A_WORKFLOW", `${module}: the default export must be a workflow made by defineWorkflow(...), but it ${has}`);
      }
      if (reference === undefined || reference === null) root = definition;
      else tree().attach(reference, definition, module);
    },
    nextReference() {
      const next = tree().nextReference(root);
      return next === undefined ? undefined : JSON.stringify(next);
    },
    describe: (source) => JSON.stringify(tree().describe(root, JSON.parse(source), host)),

    fireTimer(id) {
      const timer = timers.get(id);
      if (timer === undefined) return;
      if (timer.repeat) host.setTimer(id, timer.delay);
      else timers.delete(id);
      timer.callback.apply(undefined, timer.args);
    },
    finishOperation(id, error, value) {
      const waiting = operations.get(id);
      operations.delete(id);
      if (waiting === undefined) return;
      if (error === undefined || error === null) {
        waiting.resolve(JSON.parse(value));
      } else {
        const { message, ...members } = JSON.parse(error);
        waiting.reject(Object.assign(new Error(message), members));
      }
    },
    childOutput(id, stream, bytes) {
      children.get(id)?.output(stream, bytes);
    },
    childExit(id, status) {
      const listener = children.get(id);
      children.delete(id);
      listener?.exit(JSON.parse(status));
    },

    listensForAbort: () => (current?.controller !== undefined ? "yes" : undefined),
    abort(name) {
      if (current === null) return;
      const text = name === "TimeoutError" ? "the node's time is up" : "the node was cancelled";
      const reason = new DOMException(text, name);
      current.aborted = reason;
      current.controller?.abort(reason);
    },
    endCall() {
      current = null;
      timers.clear();
      operations.clear();
      children.clear();
    },
  };
})
