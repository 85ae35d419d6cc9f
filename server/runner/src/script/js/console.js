// node:console: text goes to the run's captured output.
"use strict";

const util = require("node:util");

const MAX_LINE = 65_536;

class Console {
  #groups = 0;
  #counts = new Map();
  #timers = new Map();

  #write(level, args) {
    let text = util.format(...args);
    if (text.length > MAX_LINE) text = `${text.slice(0, MAX_LINE)}... ${text.length - MAX_LINE} more characters`;
    if (this.#groups > 0) {
      const indent = "  ".repeat(Math.min(this.#groups, 20));
      text = indent + text.replaceAll("\n", `\n${indent}`);
    }
    host.log(level, text.toWellFormed());
  }

  debug = (...args) => this.#write(0, args);
  log = (...args) => this.#write(1, args);
  info = (...args) => this.#write(1, args);
  warn = (...args) => this.#write(2, args);
  error = (...args) => this.#write(3, args);
  dir = (value, options) => this.#write(1, [util.inspect(value, options)]);
  dirxml = (...args) => this.#write(1, args);
  table = (value) => this.#write(1, [util.inspect(value, { depth: 4 })]);
  trace = (...args) => this.#write(3, [`Trace: ${util.format(...args)}\n${new Error().stack}`]);
  assert = (condition, ...args) => {
    if (!condition) this.#write(3, args.length === 0 ? ["Assertion failed"] : [`Assertion failed: ${util.format(...args)}`]);
  };
  group = (...args) => {
    if (args.length > 0) this.#write(1, args);
    this.#groups += 1;
  };
  groupCollapsed = (...args) => this.group(...args);
  groupEnd = () => {
    this.#groups = Math.max(0, this.#groups - 1);
  };
  count = (label = "default") => {
    const count = (this.#counts.get(label) ?? 0) + 1;
    this.#counts.set(label, count);
    this.#write(1, [`${label}: ${count}`]);
  };
  countReset = (label = "default") => {
    this.#counts.delete(label);
  };
  time = (label = "default") => {
    this.#timers.set(label, host.now());
  };
  timeLog = (label = "default", ...args) => {
    if (this.#timers.has(label)) this.#write(1, [`${label}: ${(host.now() - this.#timers.get(label)).toFixed(3)}ms`, ...args]);
  };
  timeEnd = (label = "default") => {
    this.timeLog(label);
    this.#timers.delete(label);
  };
}

const console = new Console();
module.exports = Object.assign({}, console, { Console, console });
