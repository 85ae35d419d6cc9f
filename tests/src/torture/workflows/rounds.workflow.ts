// A loop with a switch, values above the size that travels in messages, and a batch of commands.
import { action, compute, defineWorkflow, idempotentEffect, observedEffect, runCommandBatch, shell } from "piw";
import { existsSync, readFileSync } from "node:fs";

const LOG = "effects.log";
const logged = (key: string) => existsSync(LOG) && readFileSync(LOG, "utf8").split("\n").some((text) => text.split(" ")[1] === key);

export default defineWorkflow({
  name: "rounds",
  input: (value: any) => ({ rounds: Number(value?.rounds ?? 2), size: Number(value?.size ?? 1) }),
  startAt: "round",
  nodes: {
    round: compute({
      run: ({ input, outputs }: any) => {
        const number = (outputs.round?.number ?? 0) + 1;
        return { number, value: String(Math.random()), filler: "x".repeat(input.size), route: number < input.rounds ? "more" : "enough" };
      },
    }),
    work: shell({
      effect: observedEffect("work", { observe: ({ effect }: any) => (logged(effect.key) ? "applied" : "notApplied") }),
      exec: ({ outputs }: any) => ({
        command: "sh",
        args: ["-c", `echo "observed $PIW_EFFECT_KEY work $0" >> ${LOG}`, outputs.round.value],
      }),
    }),
    batch: action({
      effect: idempotentEffect("batch"),
      run: async ({ effect, outputs, signal }: any) => {
        const line = (part: string) => `echo "batch ${effect.key} ${part} $0" >> ${LOG}`;
        const results = await runCommandBatch({
          commands: ["one", "two", "three"].map((part) => ({ id: part, command: "sh", args: ["-c", line(part), outputs.round.value] })),
          concurrency: 2,
          signal,
        });
        return { failed: results.filter((result: any) => !result.ok).length };
      },
    }),
  },
  edges: [
    { from: "round", switch: { on: "$.route", cases: { more: "work", enough: "batch" } } },
    { from: "work", to: "round" },
  ],
});
