// The SDK for `*.resource-manager.ts` files: "piw/resource-managers" or "@osolmaz/pi-workflows/resource-managers".
"use strict";

const check = require("piw:sdk/shapes");

/** Defines a manager that brings one kind of resource to its wanted state. */
function defineResourceManager(options) {
  check.options("defineResourceManager(...)", options);
  check.text("defineResourceManager(...).name", options.name);
  const where = `defineResourceManager("${options.name}")`;
  check.func(`${where}: reconcile`, options.reconcile);
  return Object.freeze({ ...options, [Symbol.for("piw.resourceManager")]: true, [Symbol.for("piw.module")]: host.caller() });
}

module.exports = { defineResourceManager };
