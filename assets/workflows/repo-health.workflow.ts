// Inspect a git repository: is it clean, how large are its files, where did recent work go.
//
// Input: { "path"?: directory, "days"?: number of days of history, "largeKiB"?: size from which a file counts as large }
import { action, compute, defineWorkflow, idempotentEffect, shell } from "piw";

type Input = { path: string; days: number; largeKiB: number };
type Batch = { route: "measure" | "measured"; files: string[]; first: number; total: number };
type Measured = { next: number; bytes: number; large: { file: string; kib: number }[]; missing: number };

const BATCHES = 12;

function positive(value: unknown, name: string, fallback: number): number {
  if (value === undefined) return fallback;
  if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
    throw new Error(`input.${name} must be a positive number, not ${JSON.stringify(value)}`);
  }
  return value;
}

export default defineWorkflow({
  name: "repo-health",
  source: import.meta.url,
  input(value: unknown): Input {
    const given = (value ?? {}) as Record<string, unknown>;
    if (typeof given !== "object" || Array.isArray(given)) throw new Error("input must be an object");
    const path = given.path ?? ".";
    if (typeof path !== "string") throw new Error(`input.path must be text, not ${JSON.stringify(path)}`);
    return { path, days: positive(given.days, "days", 90), largeKiB: positive(given.largeKiB, "largeKiB", 256) };
  },
  title: ({ input }) => {
    const path = (input as Input).path;
    return `Health of ${path === "." ? "this directory" : path}`;
  },
  startAt: "status",
  nodes: {
    status: shell({
      statusDetail: "git status",
      effect: idempotentEffect("git.status"),
      exec: ({ input }) => ({
        command: "git",
        args: ["-C", (input as Input).path, "status", "--porcelain=v1", "--branch"],
      }),
      parse: ({ stdout }) => {
        const lines = stdout.split("\n").filter((line) => line !== "");
        const head = lines.find((line) => line.startsWith("## "))?.slice(3) ?? "unknown";
        // The porcelain text of a branch without a commit; git never translates it.
        const unborn = /^(?:No commits yet|Initial commit) on (.+)$/.exec(head);
        return { branch: unborn?.[1] ?? head, unborn: unborn !== null, changes: lines.filter((line) => !line.startsWith("## ")) };
      },
    }),
    not_a_repository: compute({
      statusDetail: "no git repository here",
      run: ({ input, results }) => ({
        verdict: "not a git repository",
        path: (input as Input).path,
        reason: results.status?.error?.message ?? "git status failed",
      }),
    }),
    classify: compute({
      statusDetail: "clean or dirty?",
      run: ({ outputs }) => ({ route: outputs.status.changes.length === 0 ? "clean" : "dirty" }),
    }),
    summarise_changes: compute({
      statusDetail: "uncommitted changes by kind",
      run: ({ outputs }) => {
        const kinds: Record<string, number> = {};
        for (const line of outputs.status.changes as string[]) {
          const code = line.slice(0, 2).trim();
          const kind = code === "??" ? "untracked" : code.includes("D") ? "deleted" : code.includes("A") ? "added" : "modified";
          kinds[kind] = (kinds[kind] ?? 0) + 1;
        }
        return kinds;
      },
    }),
    list_files: shell({
      statusDetail: "git ls-files",
      effect: idempotentEffect("git.ls-files"),
      exec: ({ input }) => ({
        command: "git",
        args: ["-C", (input as Input).path, "ls-files", "-z"],
        maxOutputChars: 20_000_000,
      }),
      parse: ({ stdout }) => stdout.split("\0").filter((file) => file !== ""),
    }),
    next_batch: compute({
      statusDetail: "next batch of files",
      run: ({ outputs }): Batch => {
        const files = outputs.list_files as string[];
        const first = (outputs.measure as Measured | undefined)?.next ?? 0;
        const size = Math.max(1, Math.ceil(files.length / BATCHES));
        const batch = files.slice(first, first + size);
        return { route: batch.length > 0 ? "measure" : "measured", files: batch, first, total: files.length };
      },
    }),
    measure: action({
      statusDetail: "sizes of tracked files",
      effect: idempotentEffect("files.measure"),
      run: async ({ input, outputs, publishUpdate }): Promise<Measured> => {
        const { lstat } = await import("node:fs/promises");
        const { join } = await import("node:path");
        const { path, largeKiB } = input as Input;
        const { files, first, total } = outputs.next_batch as Batch;
        const before = outputs.measure as Measured | undefined;
        const large = [...(before?.large ?? [])];
        let bytes = before?.bytes ?? 0;
        let missing = before?.missing ?? 0;
        for (const file of files) {
          try {
            const { size } = await lstat(join(path, file));
            bytes += size;
            if (size >= largeKiB * 1024) large.push({ file, kib: Math.round(size / 1024) });
          } catch {
            missing += 1;
          }
        }
        await publishUpdate({
          type: "progress",
          key: "files",
          data: { status: "running", label: "files measured", completed: first + files.length, total, unit: "files" },
        });
        return { next: first + files.length, bytes, large, missing };
      },
    }),
    history: shell({
      statusDetail: "files changed most",
      effect: idempotentEffect("git.log"),
      exec: ({ input }) => ({
        command: "git",
        args: ["-C", (input as Input).path, "log", `--since=${(input as Input).days}.days`, "--name-only", "--format=%x00%h"],
        // A repository without a commit has no history; that is no failure of the inspection.
        allowNonZeroExit: true,
        maxOutputChars: 20_000_000,
      }),
      parse: ({ stdout }) => {
        const counts = new Map<string, number>();
        let commits = 0;
        for (const line of stdout.split("\n")) {
          if (line.startsWith("\0")) commits += 1;
          else if (line !== "") counts.set(line, (counts.get(line) ?? 0) + 1);
        }
        const hot = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 10);
        return { commits, hot: hot.map(([file, changes]) => ({ file, changes })) };
      },
    }),
    report: compute({
      statusDetail: "verdict",
      run: ({ input, outputs }) => {
        const measured = outputs.measure as Measured | undefined;
        const large = [...(measured?.large ?? [])].sort((a, b) => b.kib - a.kib).slice(0, 20);
        const clean = outputs.classify.route === "clean";
        return {
          verdict: outputs.status.unborn ? "no commits yet" : clean && large.length === 0 ? "healthy" : clean ? "clean, with large files" : "uncommitted changes",
          path: (input as Input).path,
          branch: outputs.status.branch,
          changes: clean ? {} : outputs.summarise_changes,
          files: outputs.list_files.length,
          mebibytes: Math.round(((measured?.bytes ?? 0) / 1024 / 1024) * 100) / 100,
          large,
          missing: measured?.missing ?? 0,
          recent: outputs.history,
        };
      },
    }),
  },
  edges: [
    { from: "status", switch: { on: "$result.outcome", cases: { ok: "classify", failed: "not_a_repository" } } },
    { from: "classify", switch: { on: "$output.route", cases: { clean: "list_files", dirty: "summarise_changes" } } },
    { from: "summarise_changes", to: "list_files" },
    { from: "list_files", to: "next_batch" },
    { from: "next_batch", switch: { on: "$output.route", cases: { measure: "measure", measured: "history" } } },
    { from: "measure", to: "next_batch" },
    { from: "history", to: "report" },
  ],
  exits: { inspected: { node: "report" }, no_repository: { node: "not_a_repository" } },
});
