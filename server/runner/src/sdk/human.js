// Protected decisions: checkpoints that only a verified person, or the declared timeout policy, can answer.
"use strict";

const check = require("piw:sdk/shapes");
const brand = require("piw:sdk/describe").brands;

/** One choice of a protected decision. */
function choice(options = {}) {
  if (typeof options === "string") options = { label: options };
  check.options("choice(...)", options);
  check.optional(check.text, "choice(...).label", options.label);
  check.optional(check.text, "choice(...).description", options.description);
  if (options.input !== undefined) check.options("choice(...).input", options.input);
  return Object.freeze({ ...options, [brand.choice]: true });
}

/** Text that a person types with a choice. */
function textInput(options = {}) {
  if (typeof options === "string") options = { prompt: options };
  check.options("textInput(...)", options);
  check.optional(check.text, "textInput(...).prompt", options.prompt);
  check.optional(check.positive, "textInput(...).maxLength", options.maxLength);
  return Object.freeze({ type: "text", ...options });
}

/** Names the choices of a protected decision once, for the node and its edge. */
function defineHumanChoices(choices) {
  const where = "defineHumanChoices(...)";
  const entries = Array.isArray(choices) ? choices.map((name) => [name, {}]) : Object.entries(check.options(where, choices));
  if (entries.length === 0) check.fail(where, "must name at least one choice", choices);
  const out = {};
  for (const [name, value] of entries) {
    check.id(`${where}: the choice ${check.show(name)}`, name);
    out[name] = value?.[brand.choice] === true ? value : choice(value);
  }
  return Object.freeze(out);
}

/** A protected checkpoint. */
function humanDecision(options) {
  const where = "humanDecision(...)";
  check.options(where, options);
  check.optional(check.textOrFunction, `${where}.statusDetail`, options.statusDetail);
  check.optional(check.timeout, `${where}.timeoutMs`, options.timeoutMs);
  if (typeof options.audience !== "string" && !check.isObject(options.audience) && !Array.isArray(options.audience)) check.fail(`${where}.audience`, "must name who may answer", options.audience);
  const choices = defineHumanChoices(options.choices);
  if (typeof options.request !== "function" && !check.isObject(options.request)) check.fail(`${where}.request`, "must be a function (or an object) that gives {title, subject, presentation}", options.request);
  const onTimeout = options.onTimeout;
  if (onTimeout !== undefined && typeof onTimeout !== "function") {
    check.options(`${where}.onTimeout`, onTimeout);
    check.positive(`${where}.onTimeout.afterMs`, onTimeout.afterMs);
    if (onTimeout.response === undefined) check.fail(`${where}.onTimeout.response`, "must be the answer to take", undefined);
  }
  return Object.freeze({ ...options, choices, [brand.node]: "checkpoint", kind: "humanDecision" });
}

/** The edge that follows a protected decision; every choice needs a case. */
function humanDecisionEdge(options) {
  const where = "humanDecisionEdge(...)";
  const { from, choices, cases } = check.options(where, options);
  check.text(`${where}.from`, from);
  check.options(`${where}.cases`, cases);
  if (choices !== undefined) {
    const labels = Array.isArray(choices) ? choices : Object.keys(check.options(`${where}.choices`, choices));
    for (const label of labels) if (!Object.hasOwn(cases, label)) check.fail(`${where}.cases`, `lacks the choice "${label}"`);
    for (const label of Object.keys(cases)) if (!labels.includes(label)) check.fail(`${where}.cases`, `has "${label}", which is no choice of ${labels.join(", ")}`);
  }
  return { from, switch: { on: "$.choice", cases: { ...cases } } };
}

module.exports = { choice, textInput, defineHumanChoices, humanDecision, humanDecisionEdge };
