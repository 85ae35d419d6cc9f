// structuredClone.
"use strict";

function failed(what) {
  return new DOMException(`${what} could not be cloned.`, "DataCloneError");
}

function clone(value, seen) {
  if (typeof value === "function" || typeof value === "symbol") throw failed(String(value));
  if (value === null || typeof value !== "object") return value;
  const known = seen.get(value);
  if (known !== undefined) return known;
  const keep = (made) => {
    seen.set(value, made);
    return made;
  };
  if (value instanceof Date) return keep(new Date(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof String || value instanceof Number || value instanceof Boolean) return keep(Object(value.valueOf()));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (ArrayBuffer.isView(value)) {
    const buffer = clone(value.buffer, seen);
    const type = globalThis[Object.prototype.toString.call(value).slice(8, -1)] ?? Uint8Array;
    return keep(new type(buffer, value.byteOffset, value.length ?? value.byteLength));
  }
  if (value instanceof Map) {
    const made = keep(new Map());
    for (const [key, member] of value) made.set(clone(key, seen), clone(member, seen));
    return made;
  }
  if (value instanceof Set) {
    const made = keep(new Set());
    for (const member of value) made.add(clone(member, seen));
    return made;
  }
  if (value instanceof Error) {
    const types = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
    const made = keep(new (types[value.name] ?? Error)(value.message));
    if (value.cause !== undefined) made.cause = clone(value.cause, seen);
    made.stack = value.stack;
    return made;
  }
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) throw failed(Object.prototype.toString.call(value));
  const made = keep(Array.isArray(value) ? new Array(value.length) : {});
  for (const key of Object.keys(value)) made[key] = clone(value[key], seen);
  return made;
}

module.exports = { structuredClone: (value) => clone(value, new Map()) };
