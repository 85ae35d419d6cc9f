// Checks of shapes, shared by the SDK: every message names the field, the rule and the value found.
"use strict";

const ID = /^[A-Za-z_][A-Za-z0-9_-]*$/;

/** A short text for any value. */
function show(value) {
  if (value === undefined) return "undefined";
  if (typeof value === "function") return value.name ? `the function ${value.name}` : "a function";
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "symbol") return String(value);
  if (typeof value === "number") return String(value);
  let text;
  try {
    text = JSON.stringify(value) ?? typeof value;
  } catch {
    text = Array.isArray(value) ? "an array" : "an object";
  }
  return text.length > 120 ? `${text.slice(0, 117)}...` : text;
}

function fail(where, rule, ...value) {
  const error = new TypeError(`${where} ${rule}${value.length > 0 ? `, not ${show(value[0])}` : ""}`);
  error.code = "ERR_WORKFLOW_SHAPE";
  throw error;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function options(where, value) {
  if (!isObject(value)) fail(where, "takes an object", value);
  return value;
}

function text(where, value) {
  if (typeof value !== "string" || value === "") fail(where, "must be a non-empty text", value);
  return value;
}

function textOrFunction(where, value) {
  if (typeof value !== "function" && (typeof value !== "string" || value === "")) fail(where, "must be a non-empty text or a function", value);
  return value;
}

function func(where, value) {
  if (typeof value !== "function") fail(where, "must be a function", value);
  return value;
}

function optional(check, where, value) {
  return value === undefined ? undefined : check(where, value);
}

function positive(where, value) {
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) fail(where, "must be a positive number", value);
  return value;
}

function timeout(where, value) {
  if (value === null || typeof value === "function") return value;
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) fail(where, "must be a positive number of milliseconds, null or a function", value);
  return value;
}

function id(where, value) {
  if (typeof value !== "string" || !ID.test(value)) fail(where, "must be a name of letters, digits, _ and - that begins with a letter or _", value);
  return value;
}

function list(where, value) {
  if (!Array.isArray(value)) fail(where, "must be an array", value);
  return value;
}

module.exports = { show, fail, isObject, options, text, textOrFunction, func, optional, positive, timeout, id, list };
