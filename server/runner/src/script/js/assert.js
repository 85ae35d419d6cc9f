// node:assert.
"use strict";

const util = require("node:util");

class AssertionError extends Error {
  constructor({ message, actual, expected, operator }) {
    super(message ?? `${util.inspect(actual)} ${operator} ${util.inspect(expected)}`);
    this.name = "AssertionError";
    this.code = "ERR_ASSERTION";
    this.actual = actual;
    this.expected = expected;
    this.operator = operator;
    this.generatedMessage = message === undefined;
  }
}

function check(passed, message, actual, expected, operator) {
  if (passed) return;
  if (message instanceof Error) throw message;
  throw new AssertionError({ message, actual, expected, operator });
}

function assert(value, message) {
  check(Boolean(value), message ?? "The expression evaluated to a falsy value", value, true, "==");
}

function matches(error, expected) {
  if (expected === undefined) return true;
  if (expected instanceof RegExp) return expected.test(String(error));
  if (typeof expected === "function") {
    if (expected.prototype !== undefined && error instanceof expected) return true;
    if (Object.prototype.isPrototypeOf.call(Error, expected)) return false;
    return expected(error) === true;
  }
  return Object.keys(expected).every((key) => (expected[key] instanceof RegExp && typeof error[key] === "string" ? expected[key].test(error[key]) : util.isDeepStrictEqual(error[key], expected[key])));
}

function judgeThrown(caught, expected, message) {
  if (typeof expected === "string") [expected, message] = [undefined, expected];
  if (caught === undefined) throw new AssertionError({ message: message ?? "Missing expected exception.", operator: "throws" });
  if (!matches(caught.error, expected)) {
    if (expected instanceof RegExp || typeof expected === "object") throw new AssertionError({ message: message ?? `The error did not match: ${util.inspect(caught.error)}`, actual: caught.error, expected, operator: "throws" });
    throw caught.error;
  }
}

function caughtBy(run) {
  try {
    run();
  } catch (error) {
    return { error };
  }
  return undefined;
}

async function rejectedBy(run) {
  try {
    await (typeof run === "function" ? run() : run);
  } catch (error) {
    return { error };
  }
  return undefined;
}

const common = {
  AssertionError,
  ok: (value, message) => assert(value, message),
  fail(message = "Failed") {
    if (message instanceof Error) throw message;
    throw new AssertionError({ message, operator: "fail" });
  },
  strictEqual: (actual, expected, message) => check(Object.is(actual, expected), message, actual, expected, "strictEqual"),
  notStrictEqual: (actual, expected, message) => check(!Object.is(actual, expected), message, actual, expected, "notStrictEqual"),
  deepStrictEqual: (actual, expected, message) => check(util.equal(actual, expected, true, []), message, actual, expected, "deepStrictEqual"),
  notDeepStrictEqual: (actual, expected, message) => check(!util.equal(actual, expected, true, []), message, actual, expected, "notDeepStrictEqual"),
  match: (text, pattern, message) => check(pattern.test(text), message, text, pattern, "match"),
  doesNotMatch: (text, pattern, message) => check(!pattern.test(text), message, text, pattern, "doesNotMatch"),
  ifError(value) {
    if (value !== null && value !== undefined) throw value;
  },
  throws: (run, expected, message) => judgeThrown(caughtBy(run), expected, message),
  rejects: async (run, expected, message) => judgeThrown(await rejectedBy(run), expected, message),
  doesNotThrow(run, message) {
    const caught = caughtBy(run);
    if (caught !== undefined) throw new AssertionError({ message: typeof message === "string" ? message : `Got unwanted exception: ${caught.error}`, operator: "doesNotThrow" });
  },
  async doesNotReject(run, message) {
    const caught = await rejectedBy(run);
    if (caught !== undefined) throw new AssertionError({ message: typeof message === "string" ? message : `Got unwanted rejection: ${caught.error}`, operator: "doesNotReject" });
  },
};

Object.assign(assert, common, {
  equal: (actual, expected, message) => check(actual == expected || (actual !== actual && expected !== expected), message, actual, expected, "=="),
  notEqual: (actual, expected, message) => check(actual != expected, message, actual, expected, "!="),
  deepEqual: (actual, expected, message) => check(util.equal(actual, expected, false, []), message, actual, expected, "deepEqual"),
  notDeepEqual: (actual, expected, message) => check(!util.equal(actual, expected, false, []), message, actual, expected, "notDeepEqual"),
});

const strict = Object.assign((value, message) => assert(value, message), common, {
  equal: common.strictEqual,
  notEqual: common.notStrictEqual,
  deepEqual: common.deepStrictEqual,
  notDeepEqual: common.notDeepStrictEqual,
});
strict.strict = strict;
assert.strict = strict;
module.exports = assert;
