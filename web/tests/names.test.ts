import { describe, expect, it } from "vitest";
import { systemDescription, taskName, workerName } from "../src/names";
import { failedAttempts } from "../src/pages/trace";
import type { AttemptRow, Call } from "../src/types";

describe("what the supervisor does itself", () => {
  it("has a name in words, whatever its id", () => {
    const ids = [
      "@plan",
      "@plan:2",
      "@items:count",
      "@refine:read:2",
      "@hedge:read:1",
      "@budget:1",
      "@answer",
    ];
    expect(ids.map(taskName)).toEqual([
      "plan",
      "plan again",
      "items of count",
      "rewrite of read",
      "second attempt at read",
      "budget",
      "answer",
    ]);
    expect(taskName("@new:kind")).toBe("new:kind");
    expect(taskName("read")).toBe("read");
    expect(systemDescription("@items:count")).toBe("List the items of count");
  });

  it("is done by the supervisor, in whichever role", () => {
    expect(["@lister", "@collector", "@planner", "reader"].map(workerName)).toEqual([
      "supervisor",
      "supervisor",
      "supervisor",
      "reader",
    ]);
  });
});

describe("the trace", () => {
  const attempt = (task: string, outcome: AttemptRow["outcome"], error = ""): AttemptRow => ({
    task,
    attempt: 1,
    worker: "reader",
    started_at: "2026-01-01T12:00:00Z",
    ended_at: "2026-01-01T12:00:02Z",
    outcome,
    why: "",
    calls: 0,
    error,
  });

  it("has an error for each attempt that failed, once", () => {
    const call = { task: "told", attempt: 1, error: "network: down" } as Call;
    const attempts = [
      attempt("told", "failed", "network: down"),
      attempt("silent", "failed", "denied: gone"),
      attempt("dead", "lost"),
      attempt("fine", "done"),
      attempt("stopped", "cancelled"),
    ];
    expect(failedAttempts(attempts, [call]).map((each) => [each.task, each.error, each.seconds])).toEqual([
      ["silent", "denied: gone", 2],
      ["dead", "lost", 2],
    ]);
  });
});
