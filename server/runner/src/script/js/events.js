// node:events.
"use strict";

// Plain functions, not private methods: old packages make emitters without running the constructor.
function listOf(emitter, name) {
  if (!(emitter._events instanceof Map)) emitter._events = new Map();
  return emitter._events.get(name) ?? [];
}

function add(emitter, name, listener, once, first) {
  if (typeof listener !== "function") {
    const error = new TypeError('The "listener" argument must be of type function');
    error.code = "ERR_INVALID_ARG_TYPE";
    throw error;
  }
  const list = listOf(emitter, name);
  if (emitter._events.has("newListener") && name !== "newListener") emitter.emit("newListener", name, listener);
  const entry = { listener, once };
  emitter._events.set(name, first ? [entry, ...list] : [...list, entry]);
  return emitter;
}

class EventEmitter {
  constructor() {
    this._events = new Map();
  }
  on(name, listener) {
    return add(this, name, listener, false, false);
  }
  addListener(name, listener) {
    return this.on(name, listener);
  }
  once(name, listener) {
    return add(this, name, listener, true, false);
  }
  prependListener(name, listener) {
    return add(this, name, listener, false, true);
  }
  prependOnceListener(name, listener) {
    return add(this, name, listener, true, true);
  }
  off(name, listener) {
    const list = listOf(this, name);
    const at = list.findLastIndex((entry) => entry.listener === listener);
    if (at >= 0) {
      const left = list.toSpliced(at, 1);
      if (left.length === 0) this._events.delete(name);
      else this._events.set(name, left);
      if (this._events.has("removeListener")) this.emit("removeListener", name, listener);
    }
    return this;
  }
  removeListener(name, listener) {
    return this.off(name, listener);
  }
  removeAllListeners(name) {
    this._events ??= new Map();
    if (name === undefined) this._events.clear();
    else this._events.delete(name);
    return this;
  }
  emit(name, ...args) {
    const list = listOf(this, name);
    if (list.length === 0) {
      if (name !== "error") return false;
      if (args[0] instanceof Error) throw args[0];
      const error = new Error(`Unhandled error. (${String(args[0])})`);
      error.code = "ERR_UNHANDLED_ERROR";
      error.context = args[0];
      throw error;
    }
    for (const entry of list) {
      if (entry.once) this.off(name, entry.listener);
      entry.listener.apply(this, args);
    }
    return true;
  }
  listenerCount(name, listener) {
    return listOf(this, name).filter((entry) => listener === undefined || entry.listener === listener).length;
  }
  listeners(name) {
    return listOf(this, name).map((entry) => entry.listener);
  }
  rawListeners(name) {
    return this.listeners(name);
  }
  eventNames() {
    return [...(this._events ?? new Map()).keys()];
  }
  setMaxListeners() {
    return this;
  }
  getMaxListeners() {
    return Infinity;
  }
}

function once(emitter, name, { signal } = {}) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    if (typeof emitter.addEventListener === "function" && typeof emitter.once !== "function") {
      emitter.addEventListener(name, (event) => resolve([event]), { once: true });
      return;
    }
    const done = (...args) => {
      emitter.off("error", failed);
      resolve(args);
    };
    const failed = (error) => {
      emitter.off(name, done);
      reject(error);
    };
    emitter.once(name, done);
    if (name !== "error") emitter.once("error", failed);
    signal?.addEventListener("abort", () => {
      emitter.off(name, done);
      emitter.off("error", failed);
      reject(signal.reason);
    });
  });
}

async function* on(emitter, name, { signal } = {}) {
  const queue = [];
  let wake;
  let failure;
  const push = (...args) => {
    queue.push(args);
    wake?.();
  };
  const fail = (error) => {
    failure = { error };
    wake?.();
  };
  emitter.on(name, push);
  emitter.on("error", fail);
  signal?.addEventListener("abort", () => fail(signal.reason));
  try {
    for (;;) {
      while (queue.length > 0) yield queue.shift();
      if (failure !== undefined) throw failure.error;
      await new Promise((resolve) => (wake = resolve));
    }
  } finally {
    emitter.off(name, push);
    emitter.off("error", fail);
  }
}

// Old packages call the constructor as a function on their own objects.
const Callable = new Proxy(EventEmitter, {
  apply(target, self) {
    if (self !== undefined && self !== null) self._events ??= new Map();
    return undefined;
  },
});
EventEmitter.prototype.constructor = Callable;
Object.assign(EventEmitter, { EventEmitter: Callable, once, on, defaultMaxListeners: 10, errorMonitor: Symbol("events.errorMonitor"), captureRejectionSymbol: Symbol.for("nodejs.rejection") });
EventEmitter.listenerCount = (emitter, name) => emitter.listenerCount(name);
EventEmitter.getEventListeners = (emitter, name) => emitter.listeners(name);
EventEmitter.setMaxListeners = () => {};
module.exports = Callable;
