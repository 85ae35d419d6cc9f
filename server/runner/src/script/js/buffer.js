// node:buffer: Buffer over Uint8Array, with Node's encodings and number accessors.
"use strict";

const MAX_LENGTH = 2 ** 31 - 1;

function coded(Type, code, message) {
  const error = new Type(message);
  error.code = code;
  return error;
}

function checkedSize(size) {
  if (typeof size !== "number") throw coded(TypeError, "ERR_INVALID_ARG_TYPE", `The "size" argument must be of type number. Received ${typeof size}`);
  if (!(size >= 0 && size <= MAX_LENGTH)) throw coded(RangeError, "ERR_OUT_OF_RANGE", `The value of "size" is out of range. It must be >= 0 && <= ${MAX_LENGTH}. Received ${size}`);
  return Math.floor(size);
}

function make(size) {
  try {
    return new Buffer(size);
  } catch (error) {
    if (error instanceof RangeError) throw error;
    throw coded(RangeError, "ERR_MEMORY_ALLOCATION_FAILED", `Array buffer allocation failed: ${size} bytes are more than scripts may use`);
  }
}

function encodingOf(encoding) {
  const name = encoding === undefined || encoding === null || encoding === "" ? "utf8" : String(encoding).toLowerCase();
  const known = { utf8: "utf8", "utf-8": "utf8", hex: "hex", base64: "base64", base64url: "base64url", latin1: "latin1", binary: "latin1", ascii: "ascii", utf16le: "utf16le", "utf-16le": "utf16le", ucs2: "utf16le", "ucs-2": "utf16le" }[name];
  if (known === undefined) throw coded(TypeError, "ERR_UNKNOWN_ENCODING", `Unknown encoding: ${encoding}`);
  return known;
}

function encode(text, encoding) {
  switch (encodingOf(encoding)) {
    case "utf8":
      return host.utf8Encode(text.toWellFormed());
    case "hex": {
      const length = text.length >> 1;
      const bytes = [];
      for (let at = 0; at < length; at++) {
        const byte = /^[0-9a-fA-F]{2}$/.test(text.slice(at * 2, at * 2 + 2)) ? Number.parseInt(text.slice(at * 2, at * 2 + 2), 16) : -1;
        if (byte < 0) break;
        bytes.push(byte);
      }
      return new Uint8Array(bytes);
    }
    case "base64":
    case "base64url":
      return host.base64Decode(text.replace(/[^A-Za-z0-9+/_=-]/g, "").replace(/=.*$/, "")) ?? new Uint8Array(0);
    case "utf16le": {
      const bytes = new Uint8Array(text.length * 2);
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        bytes[at * 2] = unit & 0xff;
        bytes[at * 2 + 1] = unit >> 8;
      }
      return bytes;
    }
    default: {
      const bytes = new Uint8Array(text.length);
      for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
      return bytes;
    }
  }
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

function fromUnits(length, unit) {
  let text = "";
  for (let at = 0; at < length; at += 4096) {
    const units = [];
    for (let index = at; index < Math.min(length, at + 4096); index++) units.push(unit(index));
    text += String.fromCharCode(...units);
  }
  return text;
}

function decode(bytes, encoding) {
  switch (encodingOf(encoding)) {
    case "utf8":
      return host.utf8Decode(bytes, false);
    case "hex": {
      let text = "";
      for (const byte of bytes) text += HEX[byte];
      return text;
    }
    case "base64":
      return host.base64Encode(bytes, false);
    case "base64url":
      return host.base64Encode(bytes, true);
    case "ascii":
      return fromUnits(bytes.length, (at) => bytes[at] & 0x7f);
    case "utf16le":
      return fromUnits(bytes.length >> 1, (at) => bytes[at * 2] | (bytes[at * 2 + 1] << 8));
    default:
      return fromUnits(bytes.length, (at) => bytes[at]);
  }
}

function plain(bytes) {
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

class Buffer extends Uint8Array {
  static poolSize = 8192;

  static from(value, encodingOrOffset, length) {
    if (typeof value === "string") return Buffer.#copy(encode(value, encodingOrOffset));
    if (value instanceof ArrayBuffer || (typeof SharedArrayBuffer !== "undefined" && value instanceof SharedArrayBuffer)) return new Buffer(value, encodingOrOffset, length);
    if (ArrayBuffer.isView(value)) {
      if (value instanceof DataView || value.BYTES_PER_ELEMENT !== 1) {
        const made = make(value.length ?? value.byteLength);
        if (value instanceof DataView) made.set(plain(value));
        else made.set(Array.from(value, (item) => Number(item) & 255));
        return made;
      }
      return Buffer.#copy(plain(value));
    }
    if (value !== null && typeof value === "object") {
      if (value.type === "Buffer" && Array.isArray(value.data)) return Buffer.#copy(value.data);
      if (Array.isArray(value) || typeof value.length === "number") {
        const made = make(checkedSize(value.length));
        for (let at = 0; at < made.length; at++) made[at] = value[at];
        return made;
      }
      const primitive = value.valueOf();
      if (primitive !== value && (typeof primitive === "string" || typeof primitive === "object")) return Buffer.from(primitive, encodingOrOffset, length);
    }
    throw coded(TypeError, "ERR_INVALID_ARG_TYPE", `The first argument must be of type string or an instance of Buffer, ArrayBuffer, or Array. Received ${value === null ? "null" : typeof value}`);
  }
  static #copy(bytes) {
    const made = make(bytes.length);
    made.set(bytes);
    return made;
  }
  static alloc(size, fill, encoding) {
    const made = make(checkedSize(size));
    if (fill !== undefined && fill !== 0) made.fill(fill, encoding);
    return made;
  }
  static allocUnsafe(size) {
    return make(checkedSize(size));
  }
  static allocUnsafeSlow(size) {
    return make(checkedSize(size));
  }
  static isBuffer(value) {
    return value instanceof Buffer;
  }
  static isEncoding(encoding) {
    try {
      return typeof encoding === "string" && encoding !== "" && encodingOf(encoding) !== undefined;
    } catch {
      return false;
    }
  }
  static byteLength(value, encoding) {
    if (typeof value !== "string") return value.byteLength;
    return encode(value, encoding).length;
  }
  static concat(list, total) {
    if (!Array.isArray(list)) throw coded(TypeError, "ERR_INVALID_ARG_TYPE", 'The "list" argument must be an instance of Array');
    const size = total ?? list.reduce((sum, part) => sum + part.length, 0);
    const made = make(checkedSize(size));
    let at = 0;
    for (const part of list) {
      if (at >= size) break;
      const bytes = part.length > size - at ? part.subarray(0, size - at) : part;
      made.set(bytes, at);
      at += bytes.length;
    }
    return made;
  }
  static compare(left, right) {
    const length = Math.min(left.length, right.length);
    for (let at = 0; at < length; at++) if (left[at] !== right[at]) return left[at] < right[at] ? -1 : 1;
    return left.length < right.length ? -1 : left.length > right.length ? 1 : 0;
  }

  get parent() {
    return this.buffer;
  }
  toString(encoding, start = 0, end = this.length) {
    return decode(start === 0 && end >= this.length ? plain(this) : plain(this).subarray(Math.max(0, start), Math.max(0, end)), encoding);
  }
  toLocaleString(encoding, start, end) {
    return this.toString(encoding, start, end);
  }
  toJSON() {
    return { type: "Buffer", data: Array.from(this) };
  }
  equals(other) {
    return Buffer.compare(this, other) === 0;
  }
  compare(target, targetStart = 0, targetEnd = target.length, start = 0, end = this.length) {
    return Buffer.compare(this.subarray(start, end), target.subarray(targetStart, targetEnd));
  }
  slice(start, end) {
    return this.subarray(start, end);
  }
  subarray(start, end) {
    const view = plain(this).subarray(start, end);
    return new Buffer(view.buffer, view.byteOffset, view.length);
  }
  write(text, offset = 0, length = this.length - offset, encoding = "utf8") {
    if (typeof offset === "string") [encoding, offset, length] = [offset, 0, this.length];
    else if (typeof length === "string") [encoding, length] = [length, this.length - offset];
    const bytes = encode(text, encoding);
    const count = Math.min(bytes.length, length, this.length - offset);
    this.set(bytes.subarray(0, count), offset);
    return count;
  }
  copy(target, targetStart = 0, start = 0, end = this.length) {
    const bytes = plain(this).subarray(start, Math.min(end, start + target.length - targetStart));
    target.set(bytes, targetStart);
    return bytes.length;
  }
  fill(value, offset = 0, end = this.length, encoding = "utf8") {
    if (typeof offset === "string") [encoding, offset, end] = [offset, 0, this.length];
    else if (typeof end === "string") [encoding, end] = [end, this.length];
    if (typeof value === "number" || typeof value === "boolean") {
      super.fill(Number(value) & 255, offset, end);
      return this;
    }
    const bytes = typeof value === "string" ? encode(value, encoding) : value;
    if (bytes.length === 0) super.fill(0, offset, end);
    else for (let at = offset; at < end; at++) this[at] = bytes[(at - offset) % bytes.length];
    return this;
  }
  #find(value, from, encoding, backwards) {
    if (typeof value === "number") return backwards ? plain(this).lastIndexOf(value & 255, from) : plain(this).indexOf(value & 255, from);
    const bytes = typeof value === "string" ? encode(value, encoding) : value;
    const last = this.length - bytes.length;
    const matches = (at) => {
      for (let index = 0; index < bytes.length; index++) if (this[at + index] !== bytes[index]) return false;
      return true;
    };
    if (backwards) {
      for (let at = Math.min(from, last); at >= 0; at--) if (matches(at)) return at;
    } else {
      for (let at = Math.max(0, from < 0 ? this.length + from : from); at <= last; at++) if (matches(at)) return at;
    }
    return -1;
  }
  indexOf(value, from = 0, encoding = "utf8") {
    if (typeof from === "string") [encoding, from] = [from, 0];
    return this.#find(value, from, encoding, false);
  }
  lastIndexOf(value, from = this.length, encoding = "utf8") {
    if (typeof from === "string") [encoding, from] = [from, this.length];
    return this.#find(value, from, encoding, true);
  }
  includes(value, from, encoding) {
    return this.indexOf(value, from, encoding) !== -1;
  }
  swap16() {
    for (let at = 0; at + 1 < this.length; at += 2) [this[at], this[at + 1]] = [this[at + 1], this[at]];
    return this;
  }
  #view() {
    return new DataView(this.buffer, this.byteOffset, this.byteLength);
  }
  #checkRange(offset, size) {
    if (!Number.isInteger(offset) || offset < 0 || offset + size > this.length) {
      throw coded(RangeError, "ERR_OUT_OF_RANGE", `The value of "offset" is out of range. It must be >= 0 and <= ${this.length - size}. Received ${offset}`);
    }
  }
  readUIntBE(offset, size) {
    this.#checkRange(offset, size);
    let value = 0;
    for (let at = 0; at < size; at++) value = value * 256 + this[offset + at];
    return value;
  }
  readUIntLE(offset, size) {
    this.#checkRange(offset, size);
    let value = 0;
    for (let at = size - 1; at >= 0; at--) value = value * 256 + this[offset + at];
    return value;
  }
  readIntBE(offset, size) {
    const value = this.readUIntBE(offset, size);
    return value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value;
  }
  readIntLE(offset, size) {
    const value = this.readUIntLE(offset, size);
    return value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value;
  }
  writeUIntBE(value, offset, size) {
    this.#checkRange(offset, size);
    for (let at = size - 1; at >= 0; at--) {
      this[offset + at] = value % 256;
      value = Math.floor(value / 256);
    }
    return offset + size;
  }
  writeUIntLE(value, offset, size) {
    this.#checkRange(offset, size);
    for (let at = 0; at < size; at++) {
      this[offset + at] = value % 256;
      value = Math.floor(value / 256);
    }
    return offset + size;
  }
  static accessor(name, size, littleEndian) {
    const suffix = size === 1 ? "" : littleEndian ? "LE" : "BE";
    const short = name.replace("Uint", "UInt");
    const getter = `get${name}`;
    const setter = `set${name}`;
    const read = function (offset = 0) {
      this.#checkRange(offset, size);
      return this.#view()[getter](offset, littleEndian);
    };
    const write = function (value, offset = 0) {
      this.#checkRange(offset, size);
      this.#view()[setter](offset, value, littleEndian);
      return offset + size;
    };
    for (const spelling of new Set([short, short.replace("UInt", "Uint")])) {
      Buffer.prototype[`read${spelling}${suffix}`] = read;
      Buffer.prototype[`write${spelling}${suffix}`] = write;
    }
  }
}
// Node's names: readInt32LE, readDoubleBE, readBigUInt64LE, …
for (const [name, size] of [["Uint8", 1], ["Int8", 1], ["Uint16", 2], ["Int16", 2], ["Uint32", 4], ["Int32", 4], ["BigInt64", 8], ["BigUint64", 8]]) {
  Buffer.accessor(name, size, true);
  if (size > 1) Buffer.accessor(name, size, false);
}
for (const [name, size, spelled] of [["Float32", 4, "Float"], ["Float64", 8, "Double"]]) {
  for (const little of [true, false]) {
    Buffer.accessor(name, size, little);
    const suffix = little ? "LE" : "BE";
    for (const verb of ["read", "write"]) {
      Buffer.prototype[`${verb}${spelled}${suffix}`] = Buffer.prototype[`${verb}${name}${suffix}`];
      delete Buffer.prototype[`${verb}${name}${suffix}`];
    }
  }
}
delete Buffer.accessor;
for (const name of Object.getOwnPropertyNames(Buffer.prototype)) {
  if (/^(read|write|swap|get)/.test(name)) Object.defineProperty(Buffer.prototype, name, { enumerable: false });
}
Buffer.prototype[Symbol.for("nodejs.util.inspect.custom")] = function () {
  const bytes = Array.from(this.subarray(0, 50), (byte) => HEX[byte]).join(" ");
  const rest = this.length > 50 ? ` ... ${this.length - 50} more byte${this.length === 51 ? "" : "s"}` : "";
  return `<Buffer${bytes === "" ? "" : ` ${bytes}`}${rest}>`;
};

/** Buffer as old code calls it: with or without `new`. */
const Callable = new Proxy(Buffer, {
  apply: (_target, _self, [value, ...rest]) => (typeof value === "number" ? Buffer.alloc(value) : Buffer.from(value, ...rest)),
  construct(_target, [value, ...rest], newTarget) {
    if (newTarget !== Callable) return Reflect.construct(Buffer, [value, ...rest], newTarget);
    return typeof value === "number" ? Buffer.alloc(value) : Buffer.from(value, ...rest);
  },
});

function latin1(name, text) {
  if (/[^\u0000-\u00ff]/.test(text)) throw new DOMException(`${name}: the text has characters outside Latin-1`, "InvalidCharacterError");
}

module.exports = {
  Buffer: Callable,
  kMaxLength: MAX_LENGTH,
  kStringMaxLength: 2 ** 29 - 24,
  constants: { MAX_LENGTH, MAX_STRING_LENGTH: 2 ** 29 - 24 },
  INSPECT_MAX_BYTES: 50,
  atob(text) {
    const clean = String(text).replace(/[\t\n\f\r ]/g, "");
    if (/[^A-Za-z0-9+/=]/.test(clean) || clean.replace(/=+$/, "").length % 4 === 1) throw new DOMException("The string to be decoded is not correctly encoded.", "InvalidCharacterError");
    return Buffer.from(clean, "base64").toString("latin1");
  },
  btoa(text) {
    latin1("btoa", String(text));
    return Buffer.from(String(text), "latin1").toString("base64");
  },
  isUtf8(bytes) {
    try {
      host.utf8Decode(plain(bytes), true);
      return true;
    } catch {
      return false;
    }
  },
  isAscii: (bytes) => plain(bytes).every((byte) => byte < 128),
};
