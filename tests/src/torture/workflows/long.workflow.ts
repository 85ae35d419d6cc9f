// Nodes that take a while, to be stopped in the middle: a process with a child, one that leaves a daemon, and code.
import { action, compute, defineWorkflow, idempotentEffect, manualEffect, shell } from "piw";
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export default defineWorkflow({
  name: "long",
  startAt: "value",
  nodes: {
    value: compute({ run: () => String(Math.random()) }),
    family: shell({
      effect: idempotentEffect("family"),
      exec: ({ outputs }: any) => ({
        command: "sh",
        args: ["-c", `echo "idempotent $PIW_EFFECT_KEY family $0" >> effects.log; sh -c 'sleep 0.3; :' & wait`, outputs.value],
      }),
    }),
    // Leaves a process in a session of its own, which only whoever looks below the runner, or for its mark, finds.
    stray: shell({
      effect: idempotentEffect("stray"),
      exec: ({ outputs }: any) => ({
        command: "sh",
        args: ["-c", `echo "idempotent $PIW_EFFECT_KEY stray $0" >> effects.log; setsid sleep 300 > /dev/null 2>&1 &`, outputs.value],
      }),
    }),
    slowly: action({
      effect: manualEffect("slowly"),
      run: async ({ effect, outputs }: any) => {
        await sleep(40);
        appendFileSync("effects.log", `manual ${effect.key} slowly ${outputs.value}\n`);
        await sleep(40);
        return "written";
      },
    }),
  },
  edges: [
    { from: "value", to: "family" },
    { from: "family", to: "stray" },
    { from: "stray", to: "slowly" },
  ],
});
