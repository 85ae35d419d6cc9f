// The SDK that workflow files import as "piw" or "@osolmaz/pi-workflows": builders that check shapes at once. The rules of graphs
// (unknown targets, unreachable nodes, cycles, …) are checked after loading, by the engine.
"use strict";

const check = require("piw:sdk/shapes");
const human = require("piw:sdk/human");
const { runCommandBatch, publishProgress, progress } = require("piw:sdk/batch");
const brand = require("piw:sdk/describe").brands;

// ---- nodes ------------------------------------------------------------------------------------------------------------------

function node(kind, type, given, check_) {
  const where = `${kind}(...)`;
  const options = check.options(where, given);
  check.optional(check.textOrFunction, `${where}.statusDetail`, options.statusDetail);
  check.optional(check.timeout, `${where}.timeoutMs`, options.timeoutMs);
  const extra = check_?.(options, where) ?? {};
  return Object.freeze({ ...options, ...extra, [brand.node]: type, kind });
}

/** A step that a model does. */
function agent(options) {
  return node("agent", "agent", options, (options, where) => {
    check.textOrFunction(`${where}.prompt`, options.prompt);
    const expected = options.expectedOutput;
    if (expected === undefined || expected === "") check.fail(`${where}.expectedOutput`, "must describe the JSON to submit, or be assistantMessage(...)", expected);
    if (typeof expected === "function") check.fail(`${where}.expectedOutput`, "must be a text, a JSON value or assistantMessage(...)", expected);
    check.optional(check.func, `${where}.validate`, options.validate);
    if (options.allowedTools !== undefined) {
      for (const [index, tool] of check.list(`${where}.allowedTools`, options.allowedTools).entries()) check.text(`${where}.allowedTools[${index}]`, tool);
    }
  });
}

/** An agent's expected output: one visible reply instead of submitted JSON. */
function assistantMessage(options = {}) {
  check.options("assistantMessage(...)", options);
  check.optional(check.positive, "assistantMessage(...).maxChars", options.maxChars);
  return Object.freeze({ type: "assistantMessage", ...(options.maxChars === undefined ? {} : { maxChars: options.maxChars }) });
}

function choiceLabels(where, choices) {
  const labels = Array.isArray(choices) ? choices : check.isObject(choices) ? Object.keys(choices) : undefined;
  if (labels === undefined || labels.length === 0) check.fail(where, "must be a non-empty array of texts or an object keyed by choice", choices);
  for (const [index, label] of labels.entries()) check.text(`${where}[${index}]`, label);
  if (new Set(labels).size !== labels.length) check.fail(where, "must not name a choice twice", choices);
  return labels;
}

/** An agent that picks one of several choices. */
function decision(options) {
  const where = "decision(...)";
  check.options(where, options);
  const { choices, question, field = "route", expectedOutput, validate, prompt, ...rest } = options;
  const labels = choiceLabels(`${where}.choices`, choices);
  check.text(`${where}.field`, field);
  const asked = question ?? prompt;
  check.textOrFunction(`${where}.question`, asked);
  const explained = Array.isArray(choices) ? labels.map((label) => `- ${label}`) : labels.map((label) => (typeof choices[label] === "string" ? `- ${label}: ${choices[label]}` : `- ${label}`));
  const compose = (text) => `${text}\n\nChoose exactly one:\n${explained.join("\n")}`;
  const made = agent({
    ...rest,
    prompt: typeof asked === "function" ? async (context) => compose(await asked(context)) : compose(asked),
    expectedOutput: expectedOutput ?? `A JSON object {${JSON.stringify(field)}: ${labels.map((label) => JSON.stringify(label)).join(" | ")}, "reason": "why, in one sentence"}`,
    validate: async (output, context) => {
      const chosen = output?.[field];
      if (!labels.includes(chosen)) throw new Error(`"${field}" must be one of ${labels.join(", ")}, not ${check.show(chosen)}`);
      return validate === undefined ? output : await validate(output, context);
    },
  });
  return Object.freeze({ ...made, choices: labels, field });
}

/** The edge that follows a decision. */
function decisionEdge(options) {
  const where = "decisionEdge(...)";
  const { from, choices, cases, field = "route" } = check.options(where, options);
  check.text(`${where}.from`, from);
  check.options(`${where}.cases`, cases);
  if (choices !== undefined) {
    const labels = choiceLabels(`${where}.choices`, choices);
    for (const label of labels) if (!Object.hasOwn(cases, label)) check.fail(`${where}.cases`, `lacks the choice "${label}"`);
    for (const label of Object.keys(cases)) if (!labels.includes(label)) check.fail(`${where}.cases`, `has "${label}", which is no choice of ${labels.join(", ")}`);
  }
  return { from, switch: { on: `$.${field}`, cases: { ...cases } } };
}

/** Pure code. */
function compute(options) {
  if (typeof options === "function") options = { run: options };
  return node("compute", "compute", options, (options, where) => {
    check.func(`${where}.run`, options.run);
  });
}

function effectOf(where, effect) {
  if (!check.isObject(effect) || effect[brand.effect] !== true) {
    check.fail(where, "must be idempotentEffect(type), observedEffect(type, {observe}) or manualEffect(type)", effect);
  }
  return effect;
}

/** Code with a declared side effect. */
function action(options) {
  return node("action", "action", options, (options, where) => {
    check.func(`${where}.run`, options.run);
    return { effect: effectOf(`${where}.effect`, options.effect), execution: "function" };
  });
}

/** A process. */
function shell(options) {
  return node("shell", "action", options, (options, where) => {
    if (typeof options.exec !== "function" && !check.isObject(options.exec)) check.fail(`${where}.exec`, "must be a function (or an object) that gives {command, args, ...}", options.exec);
    if (check.isObject(options.exec)) check.text(`${where}.exec.command`, options.exec.command);
    check.optional(check.func, `${where}.parse`, options.parse);
    if (options.updates !== undefined) {
      check.options(`${where}.updates`, options.updates);
      check.func(`${where}.updates.parseLine`, options.updates.parseLine);
      const streams = options.updates.streams;
      if (streams !== undefined) {
        for (const [index, stream] of (Array.isArray(streams) ? streams : [streams]).entries()) {
          if (stream !== "stdout" && stream !== "stderr") check.fail(`${where}.updates.streams[${index}]`, 'must be "stdout" or "stderr"', stream);
        }
      }
    }
    return { effect: effectOf(`${where}.effect`, options.effect), execution: "shell" };
  });
}

/** A durable message to the session that started the run. */
function notify(options) {
  return node("notify", "notify", options, (options, where) => {
    check.textOrFunction(`${where}.message`, options.message);
    const kind = options.kind ?? "progress";
    if (kind !== "progress" && kind !== "final") check.fail(`${where}.kind`, 'must be "progress" or "final"', kind);
    return { notifyKind: kind };
  });
}

/** Waits for an answer. */
function checkpoint(options = {}) {
  return node("checkpoint", "checkpoint", options, (options, where) => {
    check.optional(check.textOrFunction, `${where}.summary`, options.summary);
    check.optional(check.func, `${where}.run`, options.run);
  });
}

// ---- effects ----------------------------------------------------------------------------------------------------------------

function effect(kind, builder, type, rest = {}) {
  check.text(`${builder}(type)`, type);
  return Object.freeze({ ...rest, kind, type, [brand.effect]: true });
}

/** A repeat with the same key is harmless. */
function idempotentEffect(type) {
  return effect("idempotent", "idempotentEffect", type);
}

/** `observe` can tell whether the effect was applied. */
function observedEffect(type, options) {
  const given = typeof options === "function" ? { observe: options } : check.options("observedEffect(type, options)", options);
  check.func("observedEffect(type, options).observe", given.observe);
  return effect("observed", "observedEffect", type, { observe: given.observe });
}

/** Nothing can tell whether the effect was applied. */
function manualEffect(type) {
  return effect("manual", "manualEffect", type);
}

// ---- composition ------------------------------------------------------------------------------------------------------------

/** Mounts another workflow: a definition, or `{workflow: name | path | "builtin:id"}`. */
function includeWorkflow(child, options = {}) {
  const where = "includeWorkflow(...)";
  if (typeof options === "function") options = { input: options };
  check.options(`${where} options`, options);
  if (child?.[brand.workflow] === true) return include({ definition: child, input: options.input });
  if (check.isObject(child) && child.default?.[brand.workflow] === true) return include({ definition: child.default, input: options.input });
  const reference = typeof child === "string" ? child : child?.workflow;
  if (reference?.[brand.workflow] === true) return include({ definition: reference, input: options.input ?? child.input });
  if (typeof reference !== "string" || reference === "") check.fail(`${where}`, 'takes a workflow or {workflow: "name"}', child);
  return include({ reference, input: options.input ?? (check.isObject(child) ? child.input : undefined), from: host.caller() });
}

function include(made) {
  return { ...made, [brand.include]: true };
}

/** The exit by which a mount was left and its value, typed by the mounted workflow. */
function includedResult(given, mount) {
  let result = given;
  if (check.isObject(given) && check.isObject(given.results) && typeof mount === "string") result = given.results[mount];
  else if (check.isObject(given) && typeof mount === "string") result = given[mount];
  else if (given?.[brand.workflow] === true || given?.[brand.include] === true) result = mount;
  if (!check.isObject(result)) throw new Error(`includedResult: the mount ${check.show(mount)} was not left yet`);
  if (typeof result.exit !== "string") throw new Error(`includedResult: ${check.show(mount ?? "the value")} is not the result of a mount: it has no exit`);
  return { exit: result.exit, output: result.output };
}

/** The edges of a loop: decide, act, return to the decision. */
function controlLoop(options) {
  const where = "controlLoop(...)";
  check.options(where, options);
  const decide = check.text(`${where}.decide`, options.decide ?? options.decision ?? options.from);
  const on = check.text(`${where}.on`, options.on ?? (options.field === undefined ? "$.route" : `$.${options.field}`));
  const back = check.text(`${where}.returnTo`, options.returnTo ?? options.back ?? decide);
  const actions = check.options(`${where}.actions`, options.actions ?? options.act ?? {});
  const exits = check.options(`${where}.exits`, options.exits ?? options.exit ?? options.done ?? {});
  const cases = {};
  const returns = new Set();
  for (const [label, target] of Object.entries(actions)) {
    if (typeof target === "string") {
      cases[label] = check.text(`${where}.actions.${label}`, target);
      returns.add(target);
    } else {
      check.options(`${where}.actions.${label}`, target);
      cases[label] = check.text(`${where}.actions.${label}.to`, target.to ?? target.node);
      for (const from of [target.from ?? target.returns ?? cases[label]].flat()) returns.add(check.text(`${where}.actions.${label}.from`, from));
    }
  }
  for (const [label, target] of Object.entries(exits)) {
    if (Object.hasOwn(cases, label)) check.fail(`${where}.exits`, `must not repeat the action "${label}"`);
    cases[label] = check.text(`${where}.exits.${label}`, target);
  }
  if (Object.keys(cases).length === 0) check.fail(`${where}.actions`, "must name at least one action", options.actions);
  return [{ from: decide, switch: { on, cases } }, ...[...returns].map((from) => ({ from, to: back }))];
}

/** Groups workflows that are shipped together. */
function defineWorkflowRegistry(workflows) {
  const where = "defineWorkflowRegistry(...)";
  const given = Array.isArray(workflows) ? workflows.map((workflow) => [workflow?.name, workflow]) : Object.entries(check.options(where, workflows?.workflows ?? workflows));
  const out = {};
  for (const [name, workflow] of given) {
    if (workflow?.[brand.workflow] !== true) check.fail(`${where}.${name}`, "must be a workflow", workflow);
    if (Object.hasOwn(out, name)) check.fail(where, `names "${name}" twice`);
    out[name] = workflow;
  }
  return Object.freeze(out);
}

// ---- settings ---------------------------------------------------------------------------------------------------------------

/** Typed JSON values that can change while a run goes on. */
function workflowSettings(options) {
  check.options("workflowSettings(...)", options);
  return Object.freeze({ ...options, [brand.settings]: true });
}

/** A pure route that is computed again when newer settings arrive first. */
function settingsRoute(options) {
  if (typeof options === "function") options = { run: options };
  const given = check.options("settingsRoute(...)", options);
  return node("settingsRoute", "compute", { ...given, run: given.run ?? given.route }, (options, where) => {
    check.func(`${where}.run`, options.run);
    return { settingsRoute: true };
  });
}

// ---- the workflow -----------------------------------------------------------------------------------------------------------

function checkedNodes(where, nodes) {
  const out = {};
  const includes = {};
  for (const [id, value] of Object.entries(check.options(`${where}: nodes`, nodes))) {
    check.id(`${where}: the node id "${id}"`, id);
    if (check.isObject(value) && typeof value[brand.node] === "string") out[id] = value;
    else if (check.isObject(value) && value[brand.include] === true) includes[id] = value;
    else check.fail(`${where}: nodes.${id}`, "must be made by agent, decision, compute, action, shell, notify, checkpoint or humanDecision", value);
  }
  return { nodes: out, includes };
}

function checkedEdges(where, edges) {
  const out = [];
  const add = (edge, place) => {
    if (Array.isArray(edge)) {
      if (edge.length === 2 && edge.every((end) => typeof end === "string")) out.push({ from: edge[0], to: edge[1] });
      else for (const [index, inner] of edge.entries()) add(inner, `${place}[${index}]`);
      return;
    }
    check.options(place, edge);
    check.text(`${place}.from`, edge.from);
    if (edge.to !== undefined && edge.switch !== undefined) check.fail(place, "must have either `to` or `switch`", edge);
    if (edge.switch === undefined) {
      out.push({ from: edge.from, to: check.text(`${place}.to`, edge.to) });
      return;
    }
    check.options(`${place}.switch`, edge.switch);
    check.text(`${place}.switch.on`, edge.switch.on);
    const cases = Object.entries(check.options(`${place}.switch.cases`, edge.switch.cases));
    if (cases.length === 0) check.fail(`${place}.switch.cases`, "must have at least one case", edge.switch.cases);
    for (const [label, target] of cases) check.text(`${place}.switch.cases.${label}`, target);
    out.push({ from: edge.from, switch: { on: edge.switch.on, cases } });
  };
  for (const [index, edge] of check.list(`${where}: edges`, edges).entries()) add(edge, `${where}: edges[${index}]`);
  return out;
}

function checkedIncludes(where, includes) {
  const out = {};
  for (const [mount, value] of Object.entries(check.options(`${where}: includes`, includes))) {
    check.id(`${where}: the mount name "${mount}"`, mount);
    if (check.isObject(value) && value[brand.include] === true) out[mount] = { ...value };
    else if (value?.[brand.workflow] === true) out[mount] = include({ definition: value });
    else check.fail(`${where}: includes.${mount}`, "must be includeWorkflow(...)", value);
  }
  return out;
}

function checkedExits(where, exits) {
  const out = {};
  const entries = Array.isArray(exits) ? exits.map((node) => [node, node]) : Object.entries(check.options(`${where}: exits`, exits));
  for (const [name, value] of entries) {
    check.id(`${where}: the exit name ${check.show(name)}`, name);
    const exit = typeof value === "string" ? { node: value } : check.options(`${where}: exits.${name}`, value);
    check.text(`${where}: exits.${name}.node`, exit.node);
    check.optional(check.func, `${where}: exits.${name}.validate`, exit.validate);
    out[name] = { node: exit.node, validate: exit.validate };
  }
  return out;
}

/** Defines a workflow. */
function defineWorkflow(options) {
  check.options("defineWorkflow(...)", options);
  check.text("defineWorkflow(...).name", options.name);
  const where = `defineWorkflow("${options.name}")`;
  check.optional(check.text, `${where}: source`, options.source);
  check.optional(check.text, `${where}: contractId`, options.contractId);
  check.optional(check.func, `${where}: input`, options.input);
  check.optional(check.textOrFunction, `${where}: title`, options.title);
  check.text(`${where}: startAt`, options.startAt);
  if (options.maxSteps !== undefined && (!Number.isInteger(options.maxSteps) || options.maxSteps < 1)) {
    check.fail(`${where}: maxSteps`, "must be a whole number above 0", options.maxSteps);
  }
  if (options.settings !== undefined && options.settings?.[brand.settings] !== true) check.fail(`${where}: settings`, "must be made by workflowSettings(...)", options.settings);
  const { nodes, includes } = checkedNodes(where, options.nodes ?? {});
  const mounted = { ...includes, ...checkedIncludes(where, options.includes ?? {}) };
  for (const mount of Object.keys(mounted)) if (Object.hasOwn(nodes, mount)) check.fail(`${where}: includes.${mount}`, "must not have the name of a node");
  if (Object.keys(nodes).length === 0 && Object.keys(mounted).length === 0) check.fail(`${where}: nodes`, "must have at least one node", options.nodes);
  return Object.freeze({
    ...options,
    nodes,
    edges: checkedEdges(where, options.edges ?? []),
    includes: mounted,
    exits: checkedExits(where, options.exits ?? {}),
    [brand.workflow]: true,
    [brand.module]: host.caller(),
  });
}

module.exports = {
  defineWorkflow,
  agent,
  assistantMessage,
  decision,
  decisionEdge,
  compute,
  action,
  shell,
  notify,
  checkpoint,
  ...human,
  idempotentEffect,
  observedEffect,
  manualEffect,
  includeWorkflow,
  includedResult,
  controlLoop,
  defineWorkflowRegistry,
  workflowSettings,
  settingsRoute,
  runCommandBatch,
  publishProgress,
  progress,
};
