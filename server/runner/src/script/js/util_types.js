// node:util/types: tests for kinds of values.
"use strict";

const tag = (value) => Object.prototype.toString.call(value).slice(8, -1);

module.exports = {
  isAnyArrayBuffer: (value) => value instanceof ArrayBuffer || (typeof SharedArrayBuffer !== "undefined" && value instanceof SharedArrayBuffer),
  isArrayBuffer: (value) => value instanceof ArrayBuffer,
  isArrayBufferView: (value) => ArrayBuffer.isView(value),
  isAsyncFunction: (value) => tag(value) === "AsyncFunction",
  isBoxedPrimitive: (value) => value instanceof String || value instanceof Number || value instanceof Boolean,
  isDataView: (value) => value instanceof DataView,
  isDate: (value) => value instanceof Date,
  isGeneratorFunction: (value) => tag(value) === "GeneratorFunction" || tag(value) === "AsyncGeneratorFunction",
  isMap: (value) => value instanceof Map,
  isNativeError: (value) => value instanceof Error,
  isPromise: (value) => value instanceof Promise,
  isProxy: () => false,
  isRegExp: (value) => value instanceof RegExp,
  isSet: (value) => value instanceof Set,
  isTypedArray: (value) => ArrayBuffer.isView(value) && !(value instanceof DataView),
  isUint8Array: (value) => value instanceof Uint8Array,
  isWeakMap: (value) => value instanceof WeakMap,
  isWeakSet: (value) => value instanceof WeakSet,
};
