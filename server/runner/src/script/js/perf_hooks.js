// node:perf_hooks: the clock only.
"use strict";

const timeOrigin = Date.now() - host.now();
const performance = {
  timeOrigin,
  now: () => host.now(),
  mark: () => undefined,
  measure: () => undefined,
  toJSON: () => ({ timeOrigin }),
};
module.exports = { performance };
