/**
 * The glue between a Pi that works on one step of a headless workflow run and the runner that started it.
 *
 * It adds the tool "workflow" (submit, update) and holds the model to the tools that the step allows. What a call means is decided
 * by the runner: a call travels to it as an input dialog of Pi's RPC mode, and the answer to the dialog is the tool's result. So
 * there is no connection of its own that could outlive Pi or be reached by another process.
 *
 * Types are imported only, so that the file loads in Pi 0.73 and 1.x, whatever their packages are called.
 */
import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

/** Marks dialogs and status texts as ours. */
const MARK = "piw.step";
/** The runner refuses more, and Pi need not carry it there. */
const MOST_CHARS = 4_000_000;
const TOOL = "workflow";

/** Tools that the step allows besides ours; null for all. */
function allowedTools(): string[] | null {
  const declared = process.env.PIW_STEP_TOOLS;
  return declared === undefined ? null : JSON.parse(declared);
}

export default function (pi: ExtensionAPI) {
  const allowed = allowedTools();

  pi.registerTool({
    name: TOOL,
    label: "Workflow",
    description:
      "Talks to the workflow whose step you carry out. submit hands in the step's output: the step is complete only when the " +
      "submission is accepted. A rejected one says why; correct it and submit again. update reports progress and is optional.",
    promptSnippet: "Submit the output of the workflow step that you carry out",
    // One call after the other: a correction must not overtake what it corrects.
    executionMode: "sequential",
    parameters: {
      type: "object",
      properties: {
        action: { type: "string", enum: ["submit", "update"] },
        requestId: { type: "string", description: "The request id that the step names." },
        output: { description: "submit: the JSON value that the step's expected output describes." },
        type: { type: "string", description: 'update: the kind of fact, such as "progress".' },
        key: { type: "string", description: "update: what the fact is about; a later one with the same type and key replaces it." },
        data: { type: "object", description: 'update: the fact; of "progress" {status, label?, completed?, total?, …}.' },
      },
      required: ["action", "requestId"],
    } as any,
    async execute(_id: string, params: unknown, signal: AbortSignal | undefined, _onUpdate: unknown, ctx: any) {
      const call = JSON.stringify(params);
      if (call.length > MOST_CHARS) {
        throw new Error(`The call has ${call.length} characters of JSON; at most ${MOST_CHARS} are allowed. Write large data to a file and submit its path.`);
      }
      const answer = await ctx.ui.input(MARK, call, { signal });
      if (answer === undefined) throw new Error("The workflow does not wait for this step any more.");
      const { ok, text, done } = JSON.parse(answer);
      if (!ok) throw new Error(text);
      return { content: [{ type: "text", text }], details: undefined, terminate: done };
    },
  } as any);

  pi.on("session_start", (_event: unknown, ctx: any) => {
    const known = pi.getAllTools().map((tool) => tool.name);
    const active = allowed ?? pi.getActiveTools();
    pi.setActiveTools([...new Set([...active, TOOL])]);
    // Pi 0.73 has no mode, and no event that says when it is idle.
    ctx.ui.setStatus(MARK, JSON.stringify({ known, settles: ctx.mode !== undefined }));
  });

  pi.on("tool_call", (event: { toolName: string }) => {
    if (allowed === null || event.toolName === TOOL || allowed.includes(event.toolName)) return undefined;
    const rest = allowed.length === 0 ? "no tool besides it" : allowed.join(", ");
    return { block: true, reason: `This workflow step does not allow the tool "${event.toolName}". It allows ${rest}, and "${TOOL}" to submit.` };
  });
}
