// Is this checkout ready to release? Composes repo-health and project-checks and weighs their results.
//
// Input: { "path"?: directory, "checks"?: as for project-checks }
import { compute, defineWorkflow, includeWorkflow } from "piw";
import projectChecks from "./project-checks.workflow.ts";
import repoHealth from "./repo-health.workflow.ts";

export default defineWorkflow({
  name: "release-readiness",
  source: import.meta.url,
  input(value: unknown) {
    const given = (value ?? {}) as Record<string, unknown>;
    return { path: String(given.path ?? "."), checks: given.checks };
  },
  title: ({ input }) => {
    const path = (input as { path: string }).path;
    return `Release readiness of ${path === "." ? "this directory" : path}`;
  },
  startAt: "health",
  includes: {
    health: includeWorkflow(repoHealth, { input: ({ input }) => ({ path: (input as { path: string }).path }) }),
    checks: includeWorkflow(projectChecks, { input: ({ input }) => input }),
  },
  nodes: {
    ready: compute({
      statusDetail: "weigh both",
      run: ({ outputs }) => {
        const reasons: string[] = [];
        if (Object.keys(outputs.health.changes).length > 0) reasons.push("there are uncommitted changes");
        if (outputs.health.missing > 0) reasons.push(`${outputs.health.missing} tracked files are missing`);
        if (outputs.health.verdict === "no commits yet") reasons.push("nothing was committed yet");
        else if (outputs.health.recent.commits === 0) reasons.push("nothing was committed recently");
        return { ready: reasons.length === 0, reasons, health: outputs.health, checks: outputs.checks };
      },
    }),
    not_ready: compute({
      statusDetail: "checks failed",
      run: ({ outputs }) => ({ ready: false, reasons: ["checks failed"], checks: outputs.checks }),
    }),
    no_repository: compute({
      statusDetail: "nothing to release",
      run: ({ outputs }) => ({ ready: false, reasons: [outputs.health.reason] }),
    }),
  },
  edges: [
    { from: "health.inspected", to: "checks" },
    { from: "health.no_repository", to: "no_repository" },
    { from: "checks.passed", to: "ready" },
    { from: "checks.nothing", to: "ready" },
    { from: "checks.failed", to: "not_ready" },
  ],
});
