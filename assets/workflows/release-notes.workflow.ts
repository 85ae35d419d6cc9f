// Draft release notes from the commits since the last tag, stop for a decision, and write the file when approved.
//
// Input: { "path"?: directory, "file"?: where to write, "limit"?: most commits }
// Answer of the checkpoint: { "approve": true, "title"?: text } or { "approve": false, "reason"?: text }
import { action, checkpoint, compute, defineWorkflow, idempotentEffect, shell } from "piw";

type Input = { path: string; file: string; limit: number };

export default defineWorkflow({
  name: "release-notes",
  source: import.meta.url,
  input(value: unknown): Input {
    const given = (value ?? {}) as Record<string, unknown>;
    const limit = given.limit ?? 200;
    if (!Number.isInteger(limit) || (limit as number) < 1) {
      throw new Error(`input.limit must be a whole number from 1, not ${JSON.stringify(limit)}`);
    }
    return { path: String(given.path ?? "."), file: String(given.file ?? "RELEASE_NOTES.md"), limit: limit as number };
  },
  title: ({ input }) => {
    const path = (input as Input).path;
    return `Release notes of ${path === "." ? "this directory" : path}`;
  },
  startAt: "last_tag",
  nodes: {
    last_tag: shell({
      statusDetail: "git describe",
      effect: idempotentEffect("git.describe"),
      exec: ({ input }) => ({
        command: "git",
        args: ["-C", (input as Input).path, "describe", "--tags", "--abbrev=0"],
        allowNonZeroExit: true,
      }),
      parse: ({ stdout, exitCode }) => ({ tag: exitCode === 0 ? stdout.trim() : null }),
    }),
    commits: shell({
      statusDetail: "commits since then",
      effect: idempotentEffect("git.log"),
      exec: ({ input, outputs }) => ({
        command: "git",
        args: [
          "-C", (input as Input).path, "log", "--no-merges", `--max-count=${(input as Input).limit}`, "--format=%h%x09%s",
          // A repository without a commit has no HEAD; it has no notes either, which is no failure.
          "--ignore-missing", outputs.last_tag.tag === null ? "HEAD" : `${outputs.last_tag.tag}..HEAD`,
        ],
      }),
      parse: ({ stdout }) =>
        stdout.split("\n").filter((line) => line !== "").map((line) => {
          const [hash, ...subject] = line.split("\t");
          return { hash, subject: subject.join("\t") };
        }),
    }),
    draft: compute({
      statusDetail: "group by kind of change",
      run: ({ outputs }) => {
        const groups: Record<string, string[]> = { Added: [], Fixed: [], Changed: [] };
        for (const { hash, subject } of outputs.commits as { hash: string; subject: string }[]) {
          const kind = /^(feat|add|build|lay|write)/i.test(subject) ? "Added" : /^(fix|repair|correct)/i.test(subject) ? "Fixed" : "Changed";
          groups[kind].push(`- ${subject} (${hash})`);
        }
        const sections = Object.entries(groups).filter(([, lines]) => lines.length > 0);
        const route = sections.length > 0 ? "some" : "none";
        return { route, since: outputs.last_tag.tag, text: sections.map(([kind, lines]) => `## ${kind}\n\n${lines.join("\n")}\n`).join("\n") };
      },
    }),
    nothing_new: compute({
      statusDetail: "no commits to write about",
      run: ({ outputs }) => ({
        written: null,
        reason: outputs.last_tag.tag === null ? "no commits yet" : `no commits since ${outputs.last_tag.tag}`,
      }),
    }),
    approve: checkpoint({
      summary: "Publish these release notes?",
      run: ({ input, outputs }) => ({
        file: (input as Input).file,
        draft: outputs.draft.text,
        answerWith: { approve: true, title: "Release notes" },
      }),
    }),
    write: action({
      statusDetail: "write the file",
      effect: idempotentEffect("notes.write"),
      run: async ({ input, outputs }) => {
        const { writeFile } = await import("node:fs/promises");
        const { join } = await import("node:path");
        const file = join((input as Input).path, (input as Input).file);
        const text = `# ${outputs.approve.title ?? "Release notes"}\n\n${outputs.draft.text}`;
        await writeFile(file, text);
        return { written: file, bytes: text.length };
      },
    }),
    dropped: compute({
      statusDetail: "nothing written",
      run: ({ outputs }) => ({ written: null, reason: outputs.approve.reason ?? "not approved" }),
    }),
  },
  edges: [
    { from: "last_tag", to: "commits" },
    { from: "commits", to: "draft" },
    { from: "draft", switch: { on: "$output.route", cases: { some: "approve", none: "nothing_new" } } },
    { from: "approve", switch: { on: "$output.approve", cases: { true: "write", false: "dropped" } } },
  ],
});
