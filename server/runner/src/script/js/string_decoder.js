// node:string_decoder.
"use strict";

const { Buffer } = require("node:buffer");
const { TextDecoder } = require("piw:web/encoding");

class StringDecoder {
  #decoder;
  #left = Buffer.alloc(0);

  constructor(encoding = "utf8") {
    this.encoding = encoding.toLowerCase().replace("-", "");
    if (this.encoding === "utf8") this.#decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }
  write(chunk) {
    if (typeof chunk === "string") return chunk;
    if (this.#decoder !== undefined) return this.#decoder.decode(chunk, { stream: true });
    const unit = this.encoding === "base64" ? 3 : this.encoding === "utf16le" || this.encoding === "ucs2" ? 2 : 1;
    const bytes = Buffer.concat([this.#left, chunk]);
    const whole = bytes.length - (bytes.length % unit);
    this.#left = bytes.subarray(whole);
    return bytes.subarray(0, whole).toString(this.encoding);
  }
  end(chunk) {
    const text = chunk === undefined ? "" : this.write(chunk);
    if (this.#decoder !== undefined) return text + this.#decoder.decode();
    const rest = this.#left.toString(this.encoding);
    this.#left = Buffer.alloc(0);
    return text + rest;
  }
}

module.exports = { StringDecoder };
