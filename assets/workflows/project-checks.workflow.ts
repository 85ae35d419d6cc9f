// Find out how a project is checked, run its checks as a bounded batch and report what failed.
//
// Input: { "path"?: directory, "checks"?: [{ "name", "command", "args"? }], "concurrency"?: number }
import { action, compute, defineWorkflow, idempotentEffect, runCommandBatch } from "piw";

type Check = { name: string; command: string; args: string[] };
type Input = { path: string; checks: Check[]; concurrency: number };

function checksOf(value: unknown): Check[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw new Error("input.checks must be an array");
  return value.map((check, index) => {
    if (typeof check?.name !== "string" || typeof check?.command !== "string") {
      throw new Error(`input.checks[${index}] needs a text "name" and a text "command"`);
    }
    return { name: check.name, command: check.command, args: check.args ?? [] };
  });
}

export default defineWorkflow({
  name: "project-checks",
  source: import.meta.url,
  input(value: unknown): Input {
    const given = (value ?? {}) as Record<string, unknown>;
    const path = given.path ?? ".";
    if (typeof path !== "string") throw new Error(`input.path must be text, not ${JSON.stringify(path)}`);
    const concurrency = given.concurrency ?? 2;
    if (!Number.isInteger(concurrency) || (concurrency as number) < 1 || (concurrency as number) > 16) {
      throw new Error(`input.concurrency must be a whole number from 1 to 16, not ${JSON.stringify(concurrency)}`);
    }
    return { path, checks: checksOf(given.checks), concurrency: concurrency as number };
  },
  title: ({ input }) => {
    const path = (input as Input).path;
    return `Checks of ${path === "." ? "this directory" : path}`;
  },
  startAt: "detect",
  nodes: {
    detect: action({
      statusDetail: "which checks does it have?",
      effect: idempotentEffect("project.detect"),
      run: async ({ input }) => {
        const { access } = await import("node:fs/promises");
        const { join } = await import("node:path");
        const { path, checks } = input as Input;
        const exists = (file: string) => access(join(path, file)).then(() => true, () => false);
        const found = [...checks];
        if (found.length === 0) {
          if (await exists(".git")) found.push({ name: "whitespace", command: "git", args: ["diff", "--check"] });
          if (await exists("Cargo.toml")) {
            found.push({ name: "manifest", command: "cargo", args: ["metadata", "--offline", "--no-deps", "--format-version", "1"] });
            found.push({ name: "format", command: "cargo", args: ["fmt", "--all", "--check"] });
          }
          if (await exists("package.json")) found.push({ name: "npm test", command: "npm", args: ["test", "--silent"] });
          if (await exists("go.mod")) found.push({ name: "go vet", command: "go", args: ["vet", "./..."] });
          if (await exists("pyproject.toml")) found.push({ name: "compile", command: "python3", args: ["-m", "compileall", "-q", "."] });
        }
        return { route: found.length > 0 ? "some" : "none", checks: found };
      },
    }),
    nothing_to_check: compute({
      statusDetail: "no known checks",
      run: ({ input }) => ({ verdict: "nothing to check", path: (input as Input).path }),
    }),
    run_checks: action({
      statusDetail: "checks side by side",
      timeoutMs: 20 * 60 * 1000,
      effect: idempotentEffect("project.checks"),
      run: async ({ input, outputs, publishUpdate, signal }) => {
        const { path, concurrency } = input as Input;
        const checks = outputs.detect.checks as Check[];
        let completed = 0;
        const results = await runCommandBatch({
          commands: checks.map(({ name, command, args }) => ({ id: name, command, args, cwd: path, allowNonZeroExit: true })),
          concurrency,
          signal,
          onResult: async () => {
            completed += 1;
            await publishUpdate({
              type: "progress",
              key: "checks",
              data: { status: "running", label: "checks finished", completed, total: checks.length, unit: "checks" },
            });
          },
        });
        return results.map(({ id, exitCode, signal: killedBy, durationMs, stdout, stderr, error }) => ({
          name: id,
          passed: exitCode === 0,
          exitCode: exitCode ?? null,
          signal: killedBy ?? null,
          seconds: Math.round((durationMs ?? 0) / 100) / 10,
          said: (error?.message ?? (stderr || stdout) ?? "").slice(-4000),
        }));
      },
    }),
    judge: compute({
      statusDetail: "passed or failed?",
      run: ({ outputs }) => ({
        route: outputs.run_checks.every((check: { passed: boolean }) => check.passed) ? "passed" : "failed",
      }),
    }),
    all_passed: compute({
      statusDetail: "every check passed",
      run: ({ outputs }) => ({
        verdict: "passed",
        checks: outputs.run_checks.map(({ name, seconds }: { name: string; seconds: number }) => ({ name, seconds })),
      }),
    }),
    some_failed: compute({
      statusDetail: "what failed and what it said",
      run: ({ outputs }) => ({
        verdict: "failed",
        passed: outputs.run_checks.filter((check: { passed: boolean }) => check.passed).length,
        failed: outputs.run_checks.filter((check: { passed: boolean }) => !check.passed),
      }),
    }),
  },
  edges: [
    { from: "detect", switch: { on: "$output.route", cases: { some: "run_checks", none: "nothing_to_check" } } },
    { from: "run_checks", to: "judge" },
    { from: "judge", switch: { on: "$output.route", cases: { passed: "all_passed", failed: "some_failed" } } },
  ],
  exits: { passed: { node: "all_passed" }, failed: { node: "some_failed" }, nothing: { node: "nothing_to_check" } },
});
