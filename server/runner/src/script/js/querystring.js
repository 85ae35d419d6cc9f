// node:querystring.
"use strict";

const escape = (text) => encodeURIComponent(text);

function unescape(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function parse(text, separator = "&", equals = "=") {
  const out = Object.create(null);
  if (typeof text !== "string" || text === "") return out;
  for (const pair of text.split(separator)) {
    if (pair === "") continue;
    const at = pair.indexOf(equals);
    const key = unescape((at < 0 ? pair : pair.slice(0, at)).replaceAll("+", " "));
    const value = at < 0 ? "" : unescape(pair.slice(at + equals.length).replaceAll("+", " "));
    if (!(key in out)) out[key] = value;
    else if (Array.isArray(out[key])) out[key].push(value);
    else out[key] = [out[key], value];
  }
  return out;
}

function stringify(value, separator = "&", equals = "=") {
  const text = (member) => (typeof member === "string" ? member : typeof member === "number" || typeof member === "boolean" || typeof member === "bigint" ? String(member) : "");
  return Object.keys(value ?? {})
    .flatMap((key) => [value[key]].flat().map((member) => `${escape(key)}${equals}${escape(text(member))}`))
    .join(separator);
}

module.exports = { parse, stringify, escape, unescape, decode: parse, encode: stringify };
