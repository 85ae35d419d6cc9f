// node:path, POSIX only: the systems the product runs on.
"use strict";

function checked(name, value) {
  if (typeof value === "string") return value;
  const error = new TypeError(`The "${name}" argument must be of type string. Received ${value === null ? "null" : typeof value}`);
  error.code = "ERR_INVALID_ARG_TYPE";
  throw error;
}

function normalizeParts(path, absolute) {
  const out = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part === ".." && out.length > 0 && out.at(-1) !== "..") out.pop();
    else if (part !== ".." || !absolute) out.push(part);
  }
  return out.join("/");
}

function isAbsolute(path) {
  return checked("path", path).startsWith("/");
}

function normalize(path) {
  if (checked("path", path) === "") return ".";
  const absolute = path.startsWith("/");
  const body = normalizeParts(path, absolute);
  if (body === "") return absolute ? "/" : path.endsWith("/") ? "./" : ".";
  return `${absolute ? "/" : ""}${body}${path.endsWith("/") ? "/" : ""}`;
}

function join(...parts) {
  const joined = parts.filter((part) => checked("path", part) !== "").join("/");
  return joined === "" ? "." : normalize(joined);
}

function resolve(...parts) {
  let path = "";
  for (let index = parts.length - 1; index >= 0 && !path.startsWith("/"); index--) {
    if (checked("path", parts[index]) !== "") path = path === "" ? parts[index] : `${parts[index]}/${path}`;
  }
  if (!path.startsWith("/")) path = `${require("node:process").cwd()}/${path}`;
  return `/${normalizeParts(path, true)}`;
}

function dirname(path) {
  checked("path", path);
  const trimmed = path.replace(/\/+$/, "");
  if (trimmed === "") return path.startsWith("/") ? "/" : ".";
  const at = trimmed.lastIndexOf("/");
  if (at === -1) return ".";
  return trimmed.slice(0, at).replace(/\/+$/, "") || "/";
}

function basename(path, suffix) {
  checked("path", path);
  const trimmed = path.replace(/\/+$/, "");
  const name = trimmed.slice(trimmed.lastIndexOf("/") + 1);
  if (suffix !== undefined && checked("suffix", suffix) !== "" && name !== suffix && name.endsWith(suffix)) return name.slice(0, -suffix.length);
  return name;
}

function extname(path) {
  const name = basename(path);
  const at = name.lastIndexOf(".");
  return at <= 0 || name === ".." ? "" : name.slice(at);
}

function relative(from, to) {
  checked("from", from);
  checked("to", to);
  const source = resolve(from).split("/").filter(Boolean);
  const target = resolve(to).split("/").filter(Boolean);
  let same = 0;
  while (same < source.length && same < target.length && source[same] === target[same]) same += 1;
  return [...source.slice(same).map(() => ".."), ...target.slice(same)].join("/");
}

function parse(path) {
  checked("path", path);
  const base = basename(path);
  const ext = extname(path);
  const root = path.startsWith("/") ? "/" : "";
  const dir = path.includes("/") ? dirname(path) : "";
  return { root, dir: base === "" && root !== "" ? root : dir, base, ext, name: ext === "" ? base : base.slice(0, -ext.length) };
}

function format(parts) {
  const dir = parts.dir ?? parts.root;
  const ext = parts.ext === undefined || parts.ext === "" || parts.ext.startsWith(".") ? (parts.ext ?? "") : `.${parts.ext}`;
  const base = parts.base ?? `${parts.name ?? ""}${ext}`;
  if (!dir) return base;
  return dir === parts.root ? `${dir}${base}` : `${dir}/${base}`;
}

function matchesGlob(path, pattern) {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("**", "\u0000").replaceAll("*", "[^/]*").replaceAll("?", "[^/]").replaceAll("\u0000", ".*");
  return new RegExp(`^${source}$`).test(path);
}

const path = { sep: "/", delimiter: ":", isAbsolute, normalize, join, resolve, dirname, basename, extname, relative, parse, format, matchesGlob, toNamespacedPath: (path) => path };
path.posix = path;
module.exports = path;
