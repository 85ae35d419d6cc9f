// node:crypto: digests, HMAC and random values. No ciphers, signatures or certificates.
"use strict";

const { Buffer } = require("node:buffer");

const BLOCK = { md5: 64, sha1: 64, sha256: 64, sha384: 128, sha512: 128 };

function algorithmOf(name) {
  const plain = String(name).toLowerCase().replace(/^sha-/, "sha");
  if (BLOCK[plain] === undefined) {
    const error = new Error(`Digest method not supported: ${name} (available are ${Object.keys(BLOCK).join(", ")})`);
    error.code = "ERR_CRYPTO_INVALID_DIGEST";
    throw error;
  }
  return plain;
}

function bytesOf(data, encoding) {
  if (typeof data === "string") return Buffer.from(data, encoding);
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return Buffer.from(data);
  const error = new TypeError('The "data" argument must be of type string or an instance of Buffer, TypedArray, or DataView');
  error.code = "ERR_INVALID_ARG_TYPE";
  throw error;
}

class Hash {
  #algorithm;
  #parts = [];
  #done = false;
  constructor(algorithm) {
    this.#algorithm = algorithmOf(algorithm);
  }
  update(data, encoding) {
    if (this.#done) throw new Error("Digest already called");
    // A copy: the caller may change its buffer before the digest is asked for.
    this.#parts.push(Buffer.from(bytesOf(data, encoding)));
    return this;
  }
  digest(encoding) {
    if (this.#done) throw new Error("Digest already called");
    this.#done = true;
    const digest = Buffer.from(host.hash(this.#algorithm, Buffer.concat(this.#parts)));
    return encoding === undefined || encoding === "buffer" ? digest : digest.toString(encoding);
  }
  copy() {
    const made = new Hash(this.#algorithm);
    made.#parts = [...this.#parts];
    return made;
  }
}

class Hmac {
  #algorithm;
  #outer;
  #inner;
  constructor(algorithm, key) {
    this.#algorithm = algorithmOf(algorithm);
    const size = BLOCK[this.#algorithm];
    let bytes = bytesOf(key);
    if (bytes.length > size) bytes = Buffer.from(host.hash(this.#algorithm, bytes));
    const padded = Buffer.concat([bytes], size);
    this.#outer = padded.map((byte) => byte ^ 0x5c);
    this.#inner = new Hash(this.#algorithm).update(padded.map((byte) => byte ^ 0x36));
  }
  update(data, encoding) {
    this.#inner.update(data, encoding);
    return this;
  }
  digest(encoding) {
    return new Hash(this.#algorithm).update(this.#outer).update(this.#inner.digest()).digest(encoding);
  }
}

function randomBytes(size, callback) {
  const bytes = Buffer.from(host.randomBytes(size));
  if (callback === undefined) return bytes;
  queueMicrotask(() => callback(null, bytes));
  return undefined;
}

function randomInt(min, max, callback) {
  if (max === undefined || typeof max === "function") [min, max, callback] = [0, min, max];
  const range = max - min;
  if (!Number.isSafeInteger(min) || !Number.isSafeInteger(max) || range <= 0 || range > 2 ** 48) throw new RangeError("randomInt needs whole numbers with min < max and a range of at most 2^48");
  const limit = 2 ** 48 - (2 ** 48 % range);
  let number;
  do number = Buffer.from(host.randomBytes(6)).readUIntBE(0, 6);
  while (number >= limit);
  const value = min + (number % range);
  if (callback === undefined) return value;
  queueMicrotask(() => callback(null, value));
  return undefined;
}

function getRandomValues(target) {
  if (!ArrayBuffer.isView(target)) throw new TypeError("getRandomValues takes a typed array");
  const view = new Uint8Array(target.buffer, target.byteOffset, target.byteLength);
  for (let at = 0; at < view.length; at += 65_536) view.set(host.randomBytes(Math.min(65_536, view.length - at)), at);
  return target;
}

function timingSafeEqual(left, right) {
  if (left.byteLength !== right.byteLength) throw new RangeError("Input buffers must have the same byte length");
  const [a, b] = [bytesOf(left), bytesOf(right)];
  let difference = 0;
  for (let index = 0; index < a.length; index++) difference |= a[index] ^ b[index];
  return difference === 0;
}

const randomUUID = () => host.uuid();
const subtle = {
  async digest(algorithm, data) {
    const bytes = new Hash(typeof algorithm === "string" ? algorithm : algorithm.name).update(data).digest();
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  },
};

module.exports = {
  createHash: (algorithm) => new Hash(algorithm),
  createHmac: (algorithm, key) => new Hmac(algorithm, key),
  hash: (algorithm, data, encoding = "hex") => new Hash(algorithm).update(data).digest(encoding),
  getHashes: () => Object.keys(BLOCK),
  randomBytes,
  randomInt,
  randomUUID,
  randomFillSync: (target) => getRandomValues(target),
  getRandomValues,
  timingSafeEqual,
  webcrypto: { getRandomValues, randomUUID, subtle },
  subtle,
  Hash,
  Hmac,
};
