// Helpers for actions: bounded batches of commands, and progress updates.
"use strict";

const check = require("piw:sdk/shapes");
const { operation } = require("piw:operations");
const { publishUpdate, canPublish } = require("piw:publish");

const MAX_CONCURRENCY = 64;

function commandOf(where, command) {
  if (Array.isArray(command)) command = { command: command[0], args: command.slice(1) };
  if (typeof command === "string") command = { command };
  check.options(where, command);
  check.text(`${where}.command`, command.command);
  const args = command.args ?? [];
  for (const [index, argument] of check.list(`${where}.args`, args).entries()) {
    if (typeof argument !== "string" && typeof argument !== "number") check.fail(`${where}.args[${index}]`, "must be a text", argument);
  }
  check.optional(check.positive, `${where}.timeoutMs`, command.timeoutMs === null ? undefined : command.timeoutMs);
  check.optional(check.positive, `${where}.maxOutputChars`, command.maxOutputChars);
  return { ...command, args: args.map(String) };
}

function request(command) {
  const env = {};
  for (const [name, value] of Object.entries(command.env ?? {})) if (value !== undefined) env[name] = String(value);
  return JSON.stringify({
    command: command.command,
    args: command.args,
    cwd: command.cwd === undefined ? undefined : String(command.cwd),
    env,
    stdin: command.stdin,
    timeoutMs: command.timeoutMs ?? undefined,
    maxOutputChars: command.maxOutputChars,
  });
}

/**
 * Runs independent commands, at most `concurrency` at a time, and resolves to one result a command, in the order given.
 * A command that fails does not end the others unless `stopOnFailure` is set.
 */
async function runCommandBatch(first, second) {
  const where = "runCommandBatch(...)";
  if (host.closed()) host.touch("runCommandBatch");
  // Accepted: (options), (commands, options), (context, options).
  let given;
  if (Array.isArray(first)) given = { ...second, commands: first };
  else if (check.isObject(first) && first.commands === undefined && check.isObject(second)) given = { signal: first.signal, ...second };
  else given = check.options(where, first);
  const commands = check.list(`${where}.commands`, given.commands).map((command, index) => commandOf(`${where}.commands[${index}]`, command));
  const concurrency = given.concurrency ?? given.maxConcurrency ?? 4;
  if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > MAX_CONCURRENCY) {
    check.fail(`${where}.concurrency`, `must be a whole number from 1 to ${MAX_CONCURRENCY}`, concurrency);
  }
  check.optional(check.func, `${where}.onResult`, given.onResult);
  const report = progressOf(where, given, commands.length);
  const results = new Array(commands.length);
  let next = 0;
  let finished = 0;
  let stopped = false;

  const one = async () => {
    while (next < commands.length) {
      const index = next++;
      const command = commands[index];
      const id = command.id ?? command.key ?? command.name ?? String(index);
      const base = { id, index, command: command.command, args: command.args };
      if (stopped || given.signal?.aborted) {
        results[index] = { ...base, ok: false, skipped: true, error: { message: "not started" } };
        continue;
      }
      let result;
      try {
        const receipt = await operation((number) => host.runCommand(number, request(command)));
        result = { ...base, ...receipt, id, ok: receipt.exitCode === 0 || (command.allowNonZeroExit === true && typeof receipt.exitCode === "number") };
      } catch (error) {
        result = { ...base, ok: false, error: { message: error.message, ...(error.code === undefined ? {} : { code: error.code }) } };
      }
      results[index] = result;
      finished += 1;
      if (!result.ok && given.stopOnFailure === true) stopped = true;
      await report?.(finished);
      await given.onResult?.(result, index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, commands.length) }, one));
  return results;
}

function progressOf(where, given, total) {
  const asked = given.progress;
  if (asked === undefined || asked === false) return undefined;
  if (asked !== true && typeof asked !== "string") check.options(`${where}.progress`, asked);
  const options = check.isObject(asked) ? asked : typeof asked === "string" ? { label: asked } : {};
  const { key = "batch", ...data } = options;
  return (completed) => publishProgress(key, { label: "commands", unit: "commands", ...data, status: completed === total ? "completed" : "running", completed, total });
}

/** A progress update as data: `await publishUpdate(progress("build", {status: "running", completed: 3, total: 8}))`. */
function progress(key, data) {
  if (check.isObject(key)) {
    const { key: name = "progress", ...rest } = key;
    return { type: "progress", key: name, data: rest };
  }
  check.text("progress(key, data): key", key);
  return { type: "progress", key, data: { ...check.options("progress(key, data): data", data) } };
}

/** Publishes a progress update from the running action. */
function publishProgress(key, data) {
  if (!canPublish()) throw new Error("progress can be published only while an action or shell node runs");
  return publishUpdate(progress(key, data));
}

module.exports = { runCommandBatch, progress, publishProgress };
