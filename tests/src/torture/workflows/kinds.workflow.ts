// One node of every kind that has effects, each of the three effect kinds as code and as a process.
import { action, compute, defineWorkflow, idempotentEffect, manualEffect, notify, observedEffect, shell } from "piw";
import { appendFileSync, existsSync, readFileSync } from "node:fs";

const LOG = "effects.log";
const line = (kind: string, node: string, key: string, nonce: string) => appendFileSync(LOG, `${kind} ${key} ${node} ${nonce}\n`);
const logged = (key: string) => existsSync(LOG) && readFileSync(LOG, "utf8").split("\n").some((text) => text.split(" ")[1] === key);
const observe = ({ effect }: any) => (logged(effect.key) ? "applied" : "notApplied");
const nonce = (context: any) => context.outputs.nonce.value;
const process = (kind: string, node: string) => ({
  exec: (context: any) => ({
    command: "sh",
    args: ["-c", `sleep 0.0${context.input.pace}; echo "${kind} $PIW_EFFECT_KEY ${node} $0" >> ${LOG}; echo done`, nonce(context)],
  }),
});
const code = (kind: string, node: string) => ({
  run: (context: any) => {
    line(kind, node, context.effect.key, nonce(context));
    return { node, nonce: nonce(context) };
  },
});

export default defineWorkflow({
  name: "kinds",
  input: (value: any) => ({ pace: Number(value?.pace ?? 1) }),
  startAt: "nonce",
  nodes: {
    nonce: compute({ run: () => ({ value: String(Math.random()) }) }),
    again: action({ effect: idempotentEffect("again"), ...code("idempotent", "again") }),
    seen: action({ effect: observedEffect("seen", { observe }), ...code("observed", "seen") }),
    tell: notify({ kind: "progress", message: (context: any) => `nonce ${nonce(context)}` }),
    run_again: shell({ effect: idempotentEffect("run-again"), ...process("idempotent", "run_again") }),
    run_seen: shell({
      effect: observedEffect("run-seen", { observe }),
      ...process("observed", "run_seen"),
      parse: ({ stdout }: any) => stdout.trim(),
    }),
    by_hand: action({ effect: manualEffect("by-hand"), ...code("manual", "by_hand") }),
    run_by_hand: shell({ effect: manualEffect("run-by-hand"), ...process("manual", "run_by_hand") }),
    last: compute({ run: (context: any) => ({ value: nonce(context) }) }),
  },
  edges: [
    { from: "nonce", to: "again" },
    { from: "again", to: "seen" },
    { from: "seen", to: "tell" },
    { from: "tell", to: "run_again" },
    { from: "run_again", to: "run_seen" },
    { from: "run_seen", to: "by_hand" },
    { from: "by_hand", to: "run_by_hand" },
    { from: "run_by_hand", to: "last" },
  ],
});
