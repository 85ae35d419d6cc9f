// TextEncoder and TextDecoder (UTF-8, and UTF-16 little endian for decoding).
"use strict";

class TextEncoder {
  get encoding() {
    return "utf-8";
  }
  encode(text = "") {
    return host.utf8Encode(String(text).toWellFormed());
  }
  encodeInto(text, target) {
    let read = 0;
    let written = 0;
    for (const char of String(text).toWellFormed()) {
      const bytes = host.utf8Encode(char);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += char.length;
    }
    return { read, written };
  }
}

/** Bytes at the end of `bytes` that begin a character and do not finish it. */
function unfinished(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back];
    if ((byte & 0xc0) === 0x80) continue;
    const need = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return need > back ? back : 0;
  }
  return 0;
}

function bytesOf(input) {
  if (input === undefined) return new Uint8Array(0);
  if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  return new Uint8Array(input);
}

class TextDecoder {
  #fatal;
  #ignoreBom;
  #encoding;
  #left = new Uint8Array(0);
  #begun = false;

  constructor(label = "utf-8", options = {}) {
    const name = String(label).trim().toLowerCase();
    this.#encoding = { "utf-8": "utf-8", utf8: "utf-8", "utf-16le": "utf-16le", "utf-16": "utf-16le", "latin1": "windows-1252", "iso-8859-1": "windows-1252", ascii: "windows-1252", "us-ascii": "windows-1252" }[name];
    if (this.#encoding === undefined) throw new RangeError(`The "${label}" encoding is not supported`);
    this.#fatal = Boolean(options.fatal);
    this.#ignoreBom = Boolean(options.ignoreBOM);
  }
  get encoding() {
    return this.#encoding;
  }
  get fatal() {
    return this.#fatal;
  }
  get ignoreBOM() {
    return this.#ignoreBom;
  }
  decode(input, { stream = false } = {}) {
    let bytes = bytesOf(input);
    if (this.#left.length > 0) {
      const joined = new Uint8Array(this.#left.length + bytes.length);
      joined.set(this.#left);
      joined.set(bytes, this.#left.length);
      bytes = joined;
    }
    const keep = stream ? (this.#encoding === "utf-8" ? unfinished(bytes) : this.#encoding === "utf-16le" ? bytes.length % 2 : 0) : 0;
    this.#left = bytes.slice(bytes.length - keep);
    bytes = bytes.subarray(0, bytes.length - keep);
    let text;
    if (this.#encoding === "utf-8") text = host.utf8Decode(bytes, this.#fatal);
    else if (this.#encoding === "utf-16le") text = require("node:buffer").Buffer.from(bytes).toString("utf16le");
    else text = require("node:buffer").Buffer.from(bytes).toString("latin1");
    if (!this.#begun && !this.#ignoreBom && text.startsWith("\ufeff")) text = text.slice(1);
    this.#begun = stream && (this.#begun || text !== "");
    return text;
  }
}

module.exports = { TextEncoder, TextDecoder };
