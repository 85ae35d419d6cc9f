import { agent, action, assistantMessage, checkpoint, choice, compute, controlLoop, decision, decisionEdge, defineHumanChoices, defineWorkflow, defineWorkflowRegistry, humanDecision, humanDecisionEdge, idempotentEffect, includeWorkflow, includedResult, manualEffect, notify, observedEffect, progress, publishProgress, runCommandBatch, settingsRoute, shell, textInput, workflowSettings } from "@osolmaz/pi-workflows";
import { defineResourceManager } from "@osolmaz/pi-workflows/resource-managers";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import * as fs from "fs";
import path from "path";

export const child = defineWorkflow({
  name: "child", source: import.meta.url, input: (v: any): { n: number } => ({ n: Number(v.n) }),
  title: ({ input }) => `n = ${input.n.toFixed(1)}`,
  startAt: "a", nodes: { a: compute({ run: ({ input }) => ({ m: input.n + 1 }) }) }, edges: [],
  exits: { done: { node: "a", validate: (output): { m: number } => ({ m: output.m as number }) }, other: "a" },
});
const routes = ["go", "stop"] as const;
const choices = defineHumanChoices({ approve: choice({ label: "Yes" }), reject: choice({ label: "No", input: textInput("why?") }) });
const run = promisify(execFile);
export default defineWorkflow({
  name: "parent", startAt: "sub", maxSteps: 5,
  includes: { sub: includeWorkflow(child, { input: ({ input }) => ({ n: input.n }) }), dyn: includeWorkflow({ workflow: "builtin:x" }) },
  settings: workflowSettings({ initial: { a: 1 } }),
  nodes: {
    after: compute({ run: (ctx) => { const r = includedResult<typeof child>(ctx, "sub"); if (r.exit === "done") return r.output.m.toFixed(1); return r.output; } }),
    pick: decision({ choices: routes, question: ({ outputs }) => `which? ${outputs.after}` }),
    ask: humanDecision({ audience: "ops", choices, request: () => ({ title: "t", subject: { a: 1 }, presentation: { summary: "s" } }), onTimeout: { afterMs: 5, response: { choice: "reject" } } }),
    talk: agent({ prompt: "p", expectedOutput: assistantMessage({ maxChars: 5 }) }),
    json: agent({ prompt: () => "p", expectedOutput: '{"a": 1}', validate: (o): { a: number } => o, allowedTools: ["read"] }),
    say: notify({ kind: "final", message: ({ outputs }) => String(outputs.x) }),
    wait: checkpoint({ summary: "go?", run: async () => ({ a: 1 }) }),
    route: settingsRoute({ run: ({ settings }) => ({ route: settings.a }) }),
    build: shell({ effect: manualEffect("b"), timeoutMs: null, exec: ({ effect }) => ({ command: "make", env: { KEY: effect.key } }), updates: { streams: ["stdout"], parseLine: (line, { stream }) => line.startsWith("%") ? progress("b", { status: "running", label: stream }) : undefined } }),
    act: action({ effect: observedEffect("o", { observe: async ({ effect }) => (effect.key ? { status: "applied", output: 1 } : "unknown") }), timeoutMs: ({ input }) => input.ms, run: async ({ signal, publishUpdate, effect }) => {
      await publishUpdate({ type: "x", key: effect.key, data: {} }); await publishProgress("k", { status: "running", completed: 1 });
      const { stdout } = await run("git", ["status"], { signal, encoding: "utf8" });
      const text: string = fs.readFileSync(path.join("a", "b"), "utf8"); const buf = fs.readFileSync("x"); buf.readUInt32LE(0);
      const results = await runCommandBatch([["true"], { command: "ls", id: "x" }], { concurrency: 2, signal, progress: true });
      setTimeout(() => console.log(process.env.HOME, new URL("http://x").host), 5);
      return { n: results.filter((r) => r.ok).length, stdout: stdout.trim(), text, b: Buffer.from("x").toString("hex") };
    } }),
  },
  edges: [
    { from: "sub.done", to: "after" }, decisionEdge({ from: "pick", choices: routes, cases: { go: "act", stop: "say" } }),
    humanDecisionEdge({ from: "ask", choices, cases: { approve: "act", reject: "say" } }),
    controlLoop({ decide: "route", actions: { a: "build", b: { to: "sub", from: ["sub.done"] } }, exits: { end: "say" } }),
    { from: "act", switch: { on: "$result.outcome", cases: { ok: "say" } } },
  ],
});
export const registry = defineWorkflowRegistry({ child });
export const manager = defineResourceManager({ name: "m", reconcile: async (ctx) => ctx.settled({ status: { ok: true } }) });
// @ts-expect-error a case is missing
decisionEdge({ from: "pick", choices: routes, cases: { go: "act" } });
// @ts-expect-error an action needs an effect
action({ run: () => 1 });
