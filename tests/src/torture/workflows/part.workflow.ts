// What `talk` mounts: an effect inside a mount.
import { action, compute, defineWorkflow, manualEffect } from "piw";
import { appendFileSync } from "node:fs";

export default defineWorkflow({
  name: "part",
  source: import.meta.url,
  input: (value: any): { word: string } => ({ word: String(value.word) }),
  startAt: "value",
  nodes: {
    value: compute({ run: () => String(Math.random()) }),
    write: action({
      effect: manualEffect("write"),
      run: ({ effect, input, outputs }: any) => {
        appendFileSync("effects.log", `manual ${effect.key} write ${outputs.value}\n`);
        return { word: input.word };
      },
    }),
  },
  edges: [{ from: "value", to: "write" }],
  exits: { done: { node: "write" } },
});
