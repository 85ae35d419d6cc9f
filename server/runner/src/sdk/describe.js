// The definition tree behind the SDK: recognising workflows, resolving dynamic includes, finding callbacks, and the data that the
// engine checks.
"use strict";

const brands = {
  workflow: Symbol.for("piw.workflow"),
  node: Symbol.for("piw.node"),
  effect: Symbol.for("piw.effect"),
  include: Symbol.for("piw.include"),
  settings: Symbol.for("piw.settings"),
  choice: Symbol.for("piw.choice"),
  module: Symbol.for("piw.module"),
};
const { show } = require("piw:sdk/shapes");

const MAX_DEPTH = host.includeDepth;
/** Modules of workflows that were mounted by reference. */
const homes = new Map();

function isWorkflow(value) {
  return value !== null && typeof value === "object" && value[brands.workflow] === true;
}

/** The workflow that a default export is, or wraps. */
function unwrap(value) {
  if (isWorkflow(value)) return value;
  if (value !== null && typeof value === "object" && isWorkflow(value.default)) return value.default;
  return undefined;
}

function includeError(message) {
  const error = new Error(message);
  error.code = "ERR_INCLUDE";
  return error;
}

const pending = new Map();

/** The next dynamic include without a workflow, in document order; refuses includes that contain themselves. */
function nextReference(root) {
  const walk = (definition, chain) => {
    for (const [mount, include] of Object.entries(definition.includes)) {
      const path = [...chain, { mount, definition }];
      if (include.definition === undefined) {
        const number = pending.size;
        pending.set(number, include);
        return [number, include.reference, include.from ?? homeOf(definition) ?? ""];
      }
      const again = path.findIndex((step) => step.definition === include.definition);
      if (again >= 0 || path.length > MAX_DEPTH) {
        const names = path.map((step) => `${step.definition.name} (mounts "${step.mount}")`);
        const chainText = [...names, include.definition.name].join(" → ");
        throw includeError(again >= 0 ? `a workflow includes itself: ${chainText}` : `includes are nested deeper than ${MAX_DEPTH}: ${chainText}`);
      }
      const found = walk(include.definition, path);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  return walk(root, []);
}

function attach(number, definition, module) {
  pending.get(number).definition = definition;
  homes.set(definition, module);
}

function homeOf(definition) {
  return homes.get(definition) ?? definition[brands.module];
}

/** The definition that is mounted at `scope`. */
function at(root, scope) {
  let definition = root;
  if (scope !== "") for (const mount of scope.split("/")) definition = own(definition?.includes, mount)?.definition;
  return definition;
}

function own(object, key) {
  return object !== undefined && object !== null && Object.hasOwn(object, key) ? object[key] : undefined;
}

/** A callback and the object it belongs to; `undefined` when there is none. */
function callback(root, scope, node, field) {
  const definition = at(root, scope);
  if (definition === undefined) return undefined;
  const given = (self, key) => (self === undefined || self === null || self[key] === undefined ? undefined : { value: self[key], self });
  if (node === undefined || node === null) return field === "input" || field === "title" ? given(definition, field) : undefined;
  if (field === "include.input") return given(own(definition.includes, node), "input");
  if (field === "exit.validate") return given(own(definition.exits, node), "validate");
  const target = own(definition.nodes, node);
  if (target === undefined) return undefined;
  if (field === "observe") return given(target.effect, "observe");
  if (field === "updates.parseLine") return lineParser(target.updates);
  if (field === "onTimeout") return typeof target.onTimeout === "function" ? given(target, "onTimeout") : given(target.onTimeout, "response");
  return given(target, field);
}

/** The line parser of a shell node, for the streams it wants; both unless it says otherwise. */
function lineParser(updates) {
  if (updates?.parseLine === undefined) return undefined;
  const streams = [updates.streams ?? ["stdout", "stderr"]].flat();
  return { value: (line, context) => (streams.includes(context.stream) ? updates.parseLine(line, context) : null), self: updates };
}

const CALLBACKS = ["exec", "message", "parse", "prompt", "request", "run", "statusDetail", "summary", "timeoutMs", "validate"];

function callbackNames(node) {
  const names = CALLBACKS.filter((name) => typeof node[name] === "function" || ((name === "message" || name === "prompt" || name === "exec" || name === "request") && node[name] !== undefined));
  if (typeof node.updates?.parseLine === "function") names.push("updates.parseLine");
  if (typeof node.effect?.observe === "function") names.push("observe");
  if (typeof node.onTimeout === "function" || typeof node.onTimeout?.response === "function") names.push("onTimeout");
  return names.sort();
}

/** A value without its functions, as data. */
function plain(value) {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value, (_key, member) => (typeof member === "function" ? undefined : member)) ?? "null");
}

function describeNode(id, node) {
  const out = { id, nodeType: node[brands.node], callbacks: callbackNames(node) };
  if (node.execution !== undefined) out.actionExecution = node.execution;
  if (node.effect !== undefined) out.effect = { kind: node.effect.kind, type: node.effect.type };
  if (typeof node.statusDetail === "string") out.statusDetail = node.statusDetail;
  if (node.timeoutMs !== undefined && typeof node.timeoutMs !== "function") out.timeoutMs = node.timeoutMs;
  if (typeof node.summary === "string") out.summary = node.summary;
  if (node.notifyKind !== undefined) out.notifyKind = node.notifyKind;
  if (node.allowedTools !== undefined) out.allowedTools = [...node.allowedTools];
  if (node.expectedOutput !== undefined) out.expectedOutput = plain(node.expectedOutput);
  if (node.updates !== undefined) out.updates = plain(node.updates);
  if (node.kind === "humanDecision") {
    out.humanDecision = plain({
      audience: node.audience,
      choices: Object.entries(node.choices).map(([name, choice]) => ({ name, ...choice })),
      onTimeout: typeof node.onTimeout === "function" ? {} : node.onTimeout,
    });
  }
  return out;
}

function describeEdge(edge) {
  if (edge.switch === undefined) return { from: edge.from, to: edge.to };
  return { from: edge.from, switch: { on: edge.switch.on, cases: edge.switch.cases } };
}

function sourceOf(definition, host, fallback) {
  const declared = typeof definition.source === "string" ? definition.source : undefined;
  const path = declared?.startsWith("file:") ? require("node:url").fileURLToPath(declared) : declared;
  for (const name of [homes.get(definition), path, definition[brands.module]]) {
    const source = name === undefined ? undefined : host.sourceRef(name);
    if (source !== undefined && source !== null) return JSON.parse(source);
  }
  return fallback;
}

/** The tree as data; `source` identifies the root's module. */
function describe(definition, source, host) {
  const out = {
    name: definition.name,
    source,
    startAt: definition.startAt,
    hasInput: typeof definition.input === "function",
    hasTitle: typeof definition.title === "function",
    hasSettings: definition.settings !== undefined,
    nodes: Object.entries(definition.nodes).map(([id, node]) => describeNode(id, node)),
    edges: definition.edges.map(describeEdge),
    includes: Object.entries(definition.includes).map(([mount, include]) => ({
      mount,
      hasInput: include.input !== undefined,
      definition: describe(include.definition, sourceOf(include.definition, host, source), host),
    })),
    exits: Object.entries(definition.exits).map(([name, exit]) => ({ name, node: exit.node, hasValidate: exit.validate !== undefined })),
  };
  if (definition.contractId !== undefined) out.contractId = definition.contractId;
  if (definition.maxSteps !== undefined) out.maxSteps = definition.maxSteps;
  if (typeof definition.title === "string") out.title = definition.title;
  return out;
}

module.exports = { brands, show, unwrap, nextReference, attach, callback, describe };
