// Event, EventTarget, AbortController and AbortSignal.
"use strict";

class Event {
  constructor(type, init = {}) {
    this.type = String(type);
    this.bubbles = Boolean(init.bubbles);
    this.cancelable = Boolean(init.cancelable);
    this.defaultPrevented = false;
    this.target = null;
    this.currentTarget = null;
    this.timeStamp = host.now();
    this.stopped = false;
  }
  preventDefault() {
    if (this.cancelable) this.defaultPrevented = true;
  }
  stopPropagation() {}
  stopImmediatePropagation() {
    this.stopped = true;
  }
}

class EventTarget {
  #listeners = new Map();

  addEventListener(type, listener, options = {}) {
    if (listener === null || listener === undefined) return;
    const once = typeof options === "object" && options !== null && Boolean(options.once);
    const signal = typeof options === "object" && options !== null ? options.signal : undefined;
    if (signal?.aborted) return;
    const list = this.#listeners.get(type) ?? [];
    if (list.some((entry) => entry.listener === listener)) return;
    this.#listeners.set(type, [...list, { listener, once }]);
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener), { once: true });
  }

  removeEventListener(type, listener) {
    const list = this.#listeners.get(type) ?? [];
    this.#listeners.set(
      type,
      list.filter((entry) => entry.listener !== listener),
    );
  }

  dispatchEvent(event) {
    event.target = this;
    event.currentTarget = this;
    const handler = this[`on${event.type}`];
    const list = [...(this.#listeners.get(event.type) ?? [])];
    if (typeof handler === "function") list.unshift({ listener: handler, once: false });
    for (const { listener, once } of list) {
      if (once) this.removeEventListener(event.type, listener);
      try {
        if (typeof listener === "function") listener.call(this, event);
        else listener.handleEvent(event);
      } catch (error) {
        // As in Node, a listener's error does not reach the dispatcher; it ends up as an unhandled rejection.
        Promise.reject(error);
      }
      if (event.stopped) break;
    }
    return !event.defaultPrevented;
  }
}

const secret = Symbol("abort");

class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  onabort = null;

  constructor(key) {
    super();
    if (key !== secret) throw new TypeError("Illegal constructor");
  }
  get aborted() {
    return this.#aborted;
  }
  get reason() {
    return this.#reason;
  }
  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }
  [secret](reason) {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason ?? new DOMException("This operation was aborted", "AbortError");
    this.dispatchEvent(new Event("abort"));
  }
  static abort(reason) {
    const signal = new AbortSignal(secret);
    signal[secret](reason);
    return signal;
  }
  static timeout(delay) {
    const signal = new AbortSignal(secret);
    setTimeout(() => signal[secret](new DOMException("The operation was aborted due to timeout", "TimeoutError")), delay);
    return signal;
  }
  static any(signals) {
    const signal = new AbortSignal(secret);
    for (const source of signals) {
      if (source.aborted) {
        signal[secret](source.reason);
        break;
      }
      source.addEventListener("abort", () => signal[secret](source.reason), { once: true });
    }
    return signal;
  }
}

class AbortController {
  #signal = new AbortSignal(secret);
  get signal() {
    return this.#signal;
  }
  abort(reason) {
    this.#signal[secret](reason);
  }
}

module.exports = { Event, EventTarget, AbortSignal, AbortController };
