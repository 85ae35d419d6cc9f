// node:util: inspect, format, promisify and the rest that scripts use.
"use strict";

const custom = Symbol.for("nodejs.util.inspect.custom");

const MAX_ITEMS = 100;
const MAX_STRING = 10_000;
const LINE = 72;

function quote(text) {
  const cut = text.length > MAX_STRING ? `${JSON.stringify(text.slice(0, MAX_STRING)).slice(1, -1)}... ${text.length - MAX_STRING} more characters` : JSON.stringify(text).slice(1, -1);
  const plain = cut.replaceAll('\\"', '"');
  if (!plain.includes("'")) return `'${plain}'`;
  if (!plain.includes('"')) return `"${plain}"`;
  return `'${plain.replaceAll("'", "\\'")}'`;
}

function keyText(key) {
  if (typeof key === "symbol") return `[${String(key)}]`;
  return /^[A-Za-z_$][A-Za-z0-9_$]*$/.test(key) ? key : quote(key);
}

function className(value) {
  const prototype = Object.getPrototypeOf(value);
  if (prototype === null) return "[Object: null prototype]";
  const name = prototype.constructor?.name;
  return typeof name === "string" ? name : "";
}

function inspectValue(value, state, depth) {
  switch (typeof value) {
    case "string":
      return depth === 0 && state.top ? value : quote(value);
    case "number":
      return Object.is(value, -0) ? "-0" : String(value);
    case "bigint":
      return `${value}n`;
    case "function":
      return /^class\b/.test(Function.prototype.toString.call(value)) ? `[class ${value.name || "(anonymous)"}]` : `[${className(value) || "Function"}${value.name ? `: ${value.name}` : " (anonymous)"}]`;
    case "object":
      return value === null ? "null" : inspectObject(value, state, depth);
    default:
      return String(value);
  }
}

function inspectObject(value, state, depth) {
  if (state.seen.includes(value)) return "[Circular *1]";
  const own = value[custom];
  if (typeof own === "function" && own !== inspect) {
    const shown = own.call(value, state.depth - depth, state.options, inspect);
    return typeof shown === "string" ? shown : inspectValue(shown, { ...state, top: false }, depth);
  }
  if (value instanceof Error) return inspectError(value, state, depth);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  if (value instanceof RegExp) return String(value);
  if (value instanceof Promise) return "Promise {}";
  const name = className(value);
  if (depth > state.depth) return Array.isArray(value) ? "[Array]" : `[${name || "Object"}]`;
  state.seen.push(value);
  try {
    return inspectMembers(value, name, state, depth);
  } finally {
    state.seen.pop();
  }
}

function inspectError(error, state, depth) {
  const head = error.message === "" ? error.name : `${error.name}: ${error.message}`;
  const stack = typeof error.stack === "string" && error.stack !== "" ? `\n${error.stack.trimEnd()}` : "";
  const extra = Object.keys(error).filter((key) => key !== "stack" && key !== "message" && key !== "name");
  let text = head + stack;
  if (extra.length > 0 && depth <= state.depth) {
    const members = extra.map((key) => `${keyText(key)}: ${inspectValue(error[key], { ...state, top: false }, depth + 1)}`);
    text += ` {\n  ${members.join(",\n  ")}\n}`;
  }
  if (error.cause !== undefined && depth <= state.depth) text += `\n  [cause]: ${inspectValue(error.cause, { ...state, top: false }, depth + 1)}`;
  return text;
}

function inspectMembers(value, name, state, depth) {
  const inner = { ...state, top: false };
  const show = (member) => inspectValue(member, inner, depth + 1);
  const parts = [];
  let open = "{";
  let close = "}";
  let prefix = name === "Object" ? "" : `${name} `;
  let keys = Object.keys(value);
  const limit = state.maxItems;
  const rest = (count) => {
    if (count > 0) parts.push(`... ${count} more item${count === 1 ? "" : "s"}`);
  };
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    if (value instanceof DataView) return `DataView { byteLength: ${value.byteLength} }`;
    [open, close] = ["[", "]"];
    prefix = name === "Array" ? "" : `${name}(${value.length}) `;
    const count = Math.min(value.length, limit);
    let holes = 0;
    for (let index = 0; index < count; index++) {
      if (Array.isArray(value) && !Object.hasOwn(value, index)) holes += 1;
      else parts.push(show(value[index]));
    }
    if (holes > 0) parts.push(`<${holes} empty item${holes === 1 ? "" : "s"}>`);
    rest(value.length - count);
    keys = keys.filter((key) => !/^\d+$/.test(key)).slice(0, limit);
  } else if (value instanceof Map) {
    prefix = `${name}(${value.size}) `;
    for (const [key, member] of [...value].slice(0, limit)) parts.push(`${show(key)} => ${show(member)}`);
    rest(value.size - limit);
  } else if (value instanceof Set) {
    prefix = `${name}(${value.size}) `;
    for (const member of [...value].slice(0, limit)) parts.push(show(member));
    rest(value.size - limit);
  } else if (value instanceof ArrayBuffer) {
    return `ArrayBuffer { byteLength: ${value.byteLength} }`;
  } else if (value instanceof String || value instanceof Number || value instanceof Boolean) {
    return `[${name}: ${inspectValue(value.valueOf(), inner, depth + 1)}]`;
  }
  const symbols = Object.getOwnPropertySymbols(value).filter((key) => Object.getOwnPropertyDescriptor(value, key).enumerable);
  for (const key of [...keys.slice(0, limit * 10), ...symbols]) {
    const property = Object.getOwnPropertyDescriptor(value, key);
    const getter = property !== undefined && property.get !== undefined;
    parts.push(`${keyText(key)}: ${getter ? (property.set === undefined ? "[Getter]" : "[Getter/Setter]") : show(value[key])}`);
  }
  if (parts.length === 0) return `${prefix}${open}${close}`;
  const line = open === "[" ? `${prefix}${open} ${parts.join(", ")} ${close}` : `${prefix}${open} ${parts.join(", ")} ${close}`;
  if (line.length <= LINE && !line.includes("\n")) return line;
  const indent = "  ".repeat(1);
  return `${prefix}${open}\n${parts.map((part) => indent + part.replaceAll("\n", `\n${indent}`)).join(",\n")}\n${close}`;
}

function inspect(value, options) {
  const given = typeof options === "object" && options !== null ? options : {};
  const depth = given.depth === null ? Infinity : (given.depth ?? 2);
  // Whatever is asked for, deeper than this would exhaust the stack.
  return inspectValue(value, { depth: Math.min(depth, 100), maxItems: given.maxArrayLength ?? MAX_ITEMS, seen: [], options: given, top: false }, 0);
}
inspect.custom = custom;
inspect.defaultOptions = {};

function format(first, ...rest) {
  return formatWithOptions({}, first, ...rest);
}

function formatWithOptions(options, ...args) {
  const parts = [];
  let at = 0;
  if (typeof args[0] === "string") {
    at = 1;
    parts.push(
      args[0].replace(/%[sdifjoOc%]/g, (code) => {
        if (code === "%%") return "%";
        if (at >= args.length) return code;
        const value = args[at++];
        switch (code) {
          case "%s":
            return typeof value === "string" ? value : typeof value === "object" && value !== null ? inspect(value, { ...options, depth: 0 }) : typeof value === "bigint" ? `${value}n` : String(value);
          case "%d":
            return typeof value === "bigint" ? `${value}n` : typeof value === "object" ? "NaN" : String(Number(value));
          case "%i":
            return typeof value === "bigint" ? `${value}n` : String(Number.parseInt(value, 10));
          case "%f":
            return String(Number.parseFloat(value));
          case "%j":
            try {
              return JSON.stringify(value);
            } catch {
              return "[Circular]";
            }
          case "%c":
            return "";
          default:
            return inspect(value, options);
        }
      }),
    );
  }
  for (; at < args.length; at++) parts.push(typeof args[at] === "string" ? args[at] : inspect(args[at], options));
  return parts.join(" ");
}

const promisified = Symbol.for("nodejs.util.promisify.custom");

function promisify(original) {
  if (typeof original !== "function") throw new TypeError('The "original" argument must be of type function');
  if (typeof original[promisified] === "function") return original[promisified];
  const made = function (...args) {
    return new Promise((resolve, reject) => {
      original.call(this, ...args, (error, value) => (error ? reject(error) : resolve(value)));
    });
  };
  Object.defineProperty(made, "name", { value: original.name });
  return made;
}
promisify.custom = promisified;

function callbackify(original) {
  return function (...args) {
    const callback = args.pop();
    Promise.resolve(original.apply(this, args)).then(
      (value) => queueMicrotask(() => callback(null, value)),
      (error) => queueMicrotask(() => callback(error ?? new Error("rejected without a reason"))),
    );
  };
}

function inherits(constructor, parent) {
  Object.defineProperty(constructor, "super_", { value: parent, writable: true, configurable: true });
  Object.setPrototypeOf(constructor.prototype, parent.prototype);
}

function deprecate(target) {
  return target;
}

function debuglog() {
  const log = () => {};
  log.enabled = false;
  return log;
}

function isDeepStrictEqual(left, right) {
  return equal(left, right, true, []);
}

function equal(left, right, strict, seen) {
  if (strict ? Object.is(left, right) : left == right || (left !== left && right !== right)) return true;
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false;
  if (seen.some(([a, b]) => a === left && b === right)) return true;
  seen = [...seen, [left, right]];
  if (strict && Object.getPrototypeOf(left) !== Object.getPrototypeOf(right)) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  if (left instanceof Date && right instanceof Date) return left.getTime() === right.getTime();
  if (left instanceof RegExp && right instanceof RegExp) return String(left) === String(right);
  if (left instanceof Error && right instanceof Error && (left.message !== right.message || left.name !== right.name)) return false;
  if (left instanceof Map && right instanceof Map) {
    return left.size === right.size && [...left].every(([key, value]) => right.has(key) && equal(value, right.get(key), strict, seen));
  }
  if (left instanceof Set && right instanceof Set) {
    return left.size === right.size && [...left].every((value) => right.has(value) || [...right].some((other) => equal(value, other, strict, seen)));
  }
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => Object.hasOwn(right, key) && equal(left[key], right[key], strict, seen));
}

function stripVTControlCharacters(text) {
  return text.replace(/[\u001B\u009B][[\]()#;?]*(?:(?:(?:[a-zA-Z\d]*(?:;[-a-zA-Z\d/#&.:=?%@~_]*)*)?\u0007)|(?:(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-ntqry=><~]))/g, "");
}

function toUSVString(text) {
  return String(text).toWellFormed();
}

module.exports = {
  inspect,
  format,
  formatWithOptions,
  promisify,
  callbackify,
  inherits,
  deprecate,
  debuglog,
  debug: debuglog,
  isDeepStrictEqual,
  stripVTControlCharacters,
  toUSVString,
  types: require("node:util/types"),
  isArray: Array.isArray,
  get TextEncoder() {
    return globalThis.TextEncoder;
  },
  get TextDecoder() {
    return globalThis.TextDecoder;
  },
};
Object.defineProperty(module.exports, "equal", { value: equal, enumerable: false });
