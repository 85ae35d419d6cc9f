// A first workflow: looks at this directory and says what it found.
import { compute, defineWorkflow, idempotentEffect, shell } from "piw";

export default defineWorkflow({
  name: "hello",
  startAt: "look",
  nodes: {
    look: shell({
      statusDetail: "list this directory",
      effect: idempotentEffect("look"),
      exec: () => ({ command: "ls", args: ["-A"] }),
      parse: ({ stdout }) => stdout.split("\n").filter((name) => name !== ""),
    }),
    empty: compute({ run: () => ({ message: "Nothing here yet." }) }),
    greet: compute({
      run: ({ input, outputs }) => ({
        message: `Hello, ${(input as { name?: string })?.name ?? "you"}! There are ${outputs.look.length} entries here.`,
        first: outputs.look.slice(0, 5),
      }),
    }),
    count: compute({ run: ({ outputs }) => ({ route: outputs.look.length === 0 ? "none" : "some" }) }),
  },
  edges: [
    { from: "look", to: "count" },
    { from: "count", switch: { on: "$output.route", cases: { none: "empty", some: "greet" } } },
  ],
});
