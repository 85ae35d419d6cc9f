// node:url: the WHATWG classes, file URLs, and the old parser in terms of them.
"use strict";

const secret = Symbol("url");

function encode(text) {
  return encodeURIComponent(text)
    .replaceAll("%20", "+")
    .replace(/[!'()~]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

function decode(text) {
  const spaced = text.replaceAll("+", " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced.replace(/(%[0-9a-fA-F]{2})+/g, (run) => {
      const bytes = new Uint8Array(run.split("%").slice(1).map((hex) => Number.parseInt(hex, 16)));
      return host.utf8Decode(bytes, false);
    });
  }
}

class URLSearchParams {
  #pairs = [];
  #changed;

  constructor(init = "", key, changed) {
    if (key === secret) this.#changed = changed;
    if (init instanceof URLSearchParams) this.#pairs = [...init].map(([name, value]) => [name, value]);
    else if (init !== null && typeof init === "object" && typeof init[Symbol.iterator] === "function") {
      for (const pair of init) {
        const [name, value, ...rest] = [...pair];
        if (value === undefined || rest.length > 0) throw new TypeError("Each query pair must be an iterable [name, value] tuple");
        this.#pairs.push([String(name), String(value)]);
      }
    } else if (init !== null && typeof init === "object") {
      for (const name of Object.keys(init)) this.#pairs.push([name, String(init[name])]);
    } else this.#parse(String(init));
  }
  #parse(text) {
    this.#pairs = text
      .replace(/^\?/, "")
      .split("&")
      .filter((pair) => pair !== "")
      .map((pair) => {
        const at = pair.indexOf("=");
        return at < 0 ? [decode(pair), ""] : [decode(pair.slice(0, at)), decode(pair.slice(at + 1))];
      });
  }
  #update() {
    this.#changed?.(this.toString());
  }
  [secret](text) {
    this.#parse(text);
  }
  get size() {
    return this.#pairs.length;
  }
  append(name, value) {
    this.#pairs.push([String(name), String(value)]);
    this.#update();
  }
  delete(name, value) {
    this.#pairs = this.#pairs.filter((pair) => pair[0] !== String(name) || (value !== undefined && pair[1] !== String(value)));
    this.#update();
  }
  get(name) {
    return this.#pairs.find((pair) => pair[0] === String(name))?.[1] ?? null;
  }
  getAll(name) {
    return this.#pairs.filter((pair) => pair[0] === String(name)).map((pair) => pair[1]);
  }
  has(name, value) {
    return this.#pairs.some((pair) => pair[0] === String(name) && (value === undefined || pair[1] === String(value)));
  }
  set(name, value) {
    const at = this.#pairs.findIndex((pair) => pair[0] === String(name));
    if (at < 0) this.#pairs.push([String(name), String(value)]);
    else {
      this.#pairs[at][1] = String(value);
      this.#pairs = this.#pairs.filter((pair, index) => index <= at || pair[0] !== String(name));
    }
    this.#update();
  }
  sort() {
    this.#pairs.sort((left, right) => (left[0] < right[0] ? -1 : left[0] > right[0] ? 1 : 0));
    this.#update();
  }
  forEach(callback, self) {
    for (const [name, value] of this.#pairs) callback.call(self, value, name, this);
  }
  *entries() {
    for (const [name, value] of this.#pairs) yield [name, value];
  }
  *keys() {
    for (const [name] of this.#pairs) yield name;
  }
  *values() {
    for (const [, value] of this.#pairs) yield value;
  }
  [Symbol.iterator]() {
    return this.entries();
  }
  toString() {
    return this.#pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
  }
}

function invalid(input) {
  const error = new TypeError("Invalid URL");
  error.code = "ERR_INVALID_URL";
  error.input = String(input);
  return error;
}

class URL {
  #parts;
  #params;

  constructor(input, base) {
    this.#parts = host.urlParse(String(input), base === undefined ? undefined : String(base));
    if (this.#parts === undefined || this.#parts === null) throw invalid(input);
  }
  #set(part, value) {
    const parts = host.urlSet(this.#parts.href, part, String(value));
    if (parts !== undefined && parts !== null) this.#parts = parts;
    if (part === "search" && this.#params !== undefined) this.#params[secret](this.#parts.search);
  }
  get href() {
    return this.#parts.href;
  }
  set href(value) {
    const parts = host.urlParse(String(value));
    if (parts === undefined || parts === null) throw invalid(value);
    this.#parts = parts;
    this.#params?.[secret](parts.search);
  }
  get origin() {
    return this.#parts.origin;
  }
  get searchParams() {
    return (this.#params ??= new URLSearchParams(this.#parts.search, secret, (text) => {
      const parts = host.urlSet(this.#parts.href, "search", text);
      if (parts !== undefined && parts !== null) this.#parts = parts;
    }));
  }
  toString() {
    return this.href;
  }
  toJSON() {
    return this.href;
  }
  static canParse(input, base) {
    const parts = host.urlParse(String(input), base === undefined ? undefined : String(base));
    return parts !== undefined && parts !== null;
  }
  static parse(input, base) {
    return URL.canParse(input, base) ? new URL(input, base) : null;
  }
  static part(name) {
    Object.defineProperty(URL.prototype, name, {
      configurable: true,
      enumerable: true,
      get() {
        return this.#parts[name];
      },
      set(value) {
        this.#set(name, value);
      },
    });
  }
}
for (const name of ["protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"]) URL.part(name);
delete URL.part;
URL.prototype[Symbol.for("nodejs.util.inspect.custom")] = function (_depth, _options, inspect) {
  const members = Object.fromEntries(["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"].map((name) => [name, this[name]]));
  return `URL ${inspect(members)}`;
};

function fileURLToPath(input) {
  const url = typeof input === "string" ? new URL(input) : input;
  if (url?.protocol !== "file:") {
    const error = new TypeError("The URL must be of scheme file");
    error.code = "ERR_INVALID_URL_SCHEME";
    throw error;
  }
  if (/%2f/i.test(url.pathname)) {
    const error = new TypeError("File URL path must not include encoded / characters");
    error.code = "ERR_INVALID_FILE_URL_PATH";
    throw error;
  }
  return decodeURIComponent(url.pathname);
}

function pathToFileURL(path) {
  const full = require("node:path").resolve(path);
  const kept = path.endsWith("/") && full !== "/" ? `${full}/` : full;
  return new URL(`file://${kept.split("/").map((part) => encodeURIComponent(part).replace(/%(3A|40|26|3D|2B|24|2C)/g, (code) => decodeURIComponent(code))).join("/")}`);
}

function urlToHttpOptions(url) {
  const { protocol, hostname, hash, search, pathname, href, port } = url;
  return { protocol, hostname, hash, search, pathname, path: `${pathname}${search}`, href, ...(port === "" ? {} : { port: Number(port) }), ...(url.username === "" ? {} : { auth: `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}` }) };
}

function parse(text, queryAsObject = false) {
  const match = /^([a-z][a-z0-9+.-]*:)?(?:\/\/(?:([^/?#@]*)@)?([^/?#:]*)(?::(\d+))?)?([^?#]*)(\?[^#]*)?(#.*)?$/i.exec(String(text).trim());
  const [, protocol = null, auth = null, hostname = null, port = null, pathname = "", search = null, hash = null] = match ?? [];
  const query = search === null ? null : search.slice(1);
  return {
    protocol, slashes: hostname === null ? null : true, auth, host: hostname === null ? null : hostname + (port === null ? "" : `:${port}`), port, hostname, hash, search,
    query: queryAsObject ? require("node:querystring").parse(query ?? "") : query, pathname: pathname === "" ? (hostname === null ? null : "/") : pathname,
    path: (pathname === "" ? "/" : pathname) + (search ?? ""), href: String(text),
  };
}

function format(url) {
  if (url instanceof URL) return url.href;
  if (typeof url === "string") return url;
  const protocol = url.protocol === undefined || url.protocol === null ? "" : url.protocol.endsWith(":") ? url.protocol : `${url.protocol}:`;
  const place = url.host ?? (url.hostname === undefined || url.hostname === null ? undefined : `${url.hostname}${url.port ? `:${url.port}` : ""}`);
  const query = url.search ?? (url.query !== null && typeof url.query === "object" ? `?${require("node:querystring").stringify(url.query)}` : url.query ? `?${url.query}` : "");
  return `${protocol}${place === undefined ? "" : `//${url.auth ? `${url.auth}@` : ""}${place}`}${url.pathname ?? ""}${query ?? ""}${url.hash ?? ""}`;
}

module.exports = {
  URL,
  URLSearchParams,
  fileURLToPath,
  pathToFileURL,
  urlToHttpOptions,
  parse,
  format,
  resolve: (from, to) => {
    const base = new URL(from, "resolve://");
    const made = new URL(to, base);
    return made.protocol === "resolve:" ? `${made.pathname}${made.search}${made.hash}` : made.href;
  },
  domainToASCII: (domain) => host.urlParse(`http://${domain}`)?.hostname ?? "",
  domainToUnicode: (domain) => String(domain),
};
