// node:timers/promises.
"use strict";

const { setTimeout: start, clearTimeout: stop } = require("piw:timers");

function wait(delay, value, { signal } = {}) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const timer = start(() => {
      signal?.removeEventListener("abort", abort);
      resolve(value);
    }, delay);
    const abort = () => {
      stop(timer);
      reject(signal.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
  });
}

async function* interval(delay, value, options) {
  for (;;) {
    await wait(delay, undefined, options);
    yield value;
  }
}

module.exports = {
  setTimeout: (delay, value, options) => wait(delay, value, options),
  setImmediate: (value, options) => wait(0, value, options),
  setInterval: (delay, value, options) => interval(delay, value, options),
  scheduler: { wait: (delay, options) => wait(delay, undefined, options), yield: () => wait(0) },
};
