// Checkpoints, continuations, an agent and two visits of a mounted workflow.
import { agent, checkpoint, compute, defineWorkflow, idempotentEffect, includeWorkflow, shell } from "piw";
import part from "./part.workflow.ts";

export default defineWorkflow({
  name: "talk",
  startAt: "first",
  includes: {
    first: includeWorkflow(part, { input: () => ({ word: "first" }) }),
    second: includeWorkflow({ workflow: "./part.workflow.ts" }, { input: ({ outputs }: any) => ({ word: outputs.ask.word }) }),
  },
  nodes: {
    think: agent({
      prompt: ({ outputs }: any) => `Say yes to ${outputs.ask.word}.`,
      expectedOutput: `{"said": "yes"}`,
      validate: (output: any): { said: string } => {
        if (output?.said !== "yes") throw new Error("said must be yes");
        return { said: output.said };
      },
    }),
    ask: checkpoint({ summary: "a word?" }),
    value: compute({ run: () => String(Math.random()) }),
    say: shell({
      effect: idempotentEffect("say"),
      exec: ({ outputs }: any) => ({
        command: "sh",
        args: ["-c", `echo "idempotent $PIW_EFFECT_KEY say $0" >> effects.log`, outputs.value],
      }),
    }),
    confirm: checkpoint({ summary: ({ outputs }: any) => `${outputs.ask.word} it is?` }),
    last: compute({ run: ({ outputs }: any) => ({ word: outputs.ask.word, sure: outputs.confirm.sure }) }),
  },
  edges: [
    { from: "first.done", to: "ask" },
    { from: "ask", to: "second" },
    { from: "second.done", to: "think" },
    { from: "think", to: "value" },
    { from: "value", to: "say" },
    { from: "say", to: "confirm" },
    { from: "confirm", to: "last" },
  ],
});
