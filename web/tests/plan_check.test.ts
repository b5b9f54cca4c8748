import { describe, expect, it } from "vitest";
import { checkPlan, diffLines, diffPlans, findCycle, planTotals, proposedPlan } from "../src/plan_check";
import type { Plan, PlanTask } from "../src/types";

const task = (id: string, needs: PlanTask["needs"] = [], more: Partial<PlanTask> = {}): PlanTask => ({
  id,
  description: `do ${id}`,
  worker: "reader",
  needs: needs ?? [],
  ...more,
});
const planOf = (...tasks: PlanTask[]): Plan => ({ goal: "g", tasks });
const messages = (plan: Plan, workers = ["reader"], limits = {}) =>
  checkPlan(plan, workers, limits).map((fault) => `${fault.task} ${fault.field}: ${fault.message}`);

describe("a plan that is edited", () => {
  it("has no faults if all is well", () => {
    expect(messages(planOf(task("a"), task("b", ["a"])))).toEqual([]);
  });

  it("says which tasks need each other", () => {
    const plan = planOf(task("a", ["c"]), task("b", ["a"]), task("c", ["b"]), task("d"));
    expect(findCycle(plan)).toEqual(["a", "c", "b", "a"]);
    expect(messages(plan).join()).toContain("tasks need each other: a → c → b → a");
  });

  it("names unknown workers and tasks, doubles and gaps", () => {
    const found = messages(
      planOf(
        task("a", ["x"], { worker: "ghost" }),
        task("a"),
        task("b c"),
        task("d", ["d"]),
        task("e", [], { description: " ", worker: "" }),
      ),
    );
    expect(found).toEqual([
      "a worker: there is no worker ghost; there are reader",
      "a needs: there is no task x",
      "a id: another task is called a; rename one",
      "b c id: an id has letters, digits, _ . : - and begins with a letter or digit",
      "d needs: a task cannot need itself",
      "e description: say what is to be done",
      "e worker: choose a worker",
    ]);
  });

  it("warns of results that no task uses, and of budgets that are too small", () => {
    const plan = planOf(
      task("a", [], { limits: { money: 3 } }),
      task("b"),
      task("c"),
      task("end", ["a", "b"]),
    );
    const faults = checkPlan(plan, [], { money: 2 });
    expect(faults.map((fault) => [fault.task, fault.isWarning])).toEqual([
      ["c", true],
      ["", true],
    ]);
    expect(faults[1]?.message).toBe("the tasks may take 3 money together, the run has 2");
  });

  it("has a size", () => {
    expect(planTotals(planOf(task("a"), task("b"), task("c", ["a", "b"]), task("d", ["c"])))).toEqual({
      tasks: 4,
      depth: 3,
      width: 2,
    });
    expect(planTotals(planOf(task("a", ["b"]), task("b", ["a"])))).toMatchObject({ tasks: 2 });
  });

  it("finds circles in large plans without running out of stack", () => {
    const chain = Array.from({ length: 20_000 }, (_, n) => task(`t${n}`, n ? [`t${n - 1}`] : []));
    expect(findCycle(planOf(...chain))).toBeNull();
  });
});

describe("two plans", () => {
  it("differ task by task and field by field", () => {
    const before = planOf(task("a"), task("b", ["a"]), task("gone"));
    const after = planOf(task("a"), task("b", [{ task: "a" }, "n"], { accept: "two pages" }), task("n"));
    expect(diffPlans(before, after)).toEqual([
      { id: "a", how: "same", fields: [] },
      {
        id: "b",
        how: "changed",
        fields: [
          { field: "needs", before: "a", after: "a, n" },
          { field: "accept", before: "", after: "two pages" },
        ],
      },
      { id: "n", how: "added", fields: [] },
      { id: "gone", how: "removed", fields: [] },
    ]);
  });
});

describe("a change that waits for approval", () => {
  it("asks about the tasks that changed, and no others", () => {
    const plan = planOf(task("a"), task("b", ["a"]), task("c", ["b"]));
    const review = { is_change: true, removed: ["b"], plan: planOf(task("b2", ["a"]), task("c", ["b2"])) };
    const proposed = proposedPlan(plan, review);
    expect(proposed?.tasks.map((each) => each.id)).toEqual(["a", "b2", "c"]);
    const asked = diffPlans(plan, proposed as Plan).filter((change) => change.how !== "same");
    expect(asked.map((change) => `${change.how} ${change.id}`)).toEqual([
      "added b2",
      "changed c",
      "removed b",
    ]);
  });

  it("is not there while a whole plan is reviewed", () => {
    const plan = planOf(task("a"));
    expect(proposedPlan(plan, { is_change: false, removed: ["a"], plan: planOf() })).toBe(plan);
    expect(proposedPlan(plan, null)).toBe(plan);
  });
});

describe("two texts", () => {
  it("differ line by line", () => {
    expect(diffLines("a\nb\nc", "a\nx\nc").map((line) => `${line.how} ${line.text}`)).toEqual([
      "same a",
      "removed b",
      "added x",
      "same c",
    ]);
  });
});
