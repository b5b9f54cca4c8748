// Checks of a plan while it is edited, and what changed between two plans. The server checks again.

import { needId } from "./store";
import type { Limits, Plan, PlanTask } from "./types";

export interface PlanFault {
  task: string;
  field: "id" | "description" | "worker" | "needs" | "accept" | "budget" | "plan";
  message: string;
  isWarning: boolean;
}

export interface PlanTotals {
  tasks: number;
  depth: number;
  width: number;
}

const ID = /^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}$/;

const needsOf = (task: PlanTask): string[] => (task.needs ?? []).map(needId);

/** All faults of a plan. An empty list of `workers` means that they are not known. */
export function checkPlan(plan: Plan, workers: readonly string[], limits: Limits = {}): PlanFault[] {
  const faults: PlanFault[] = [];
  const fault = (task: string, field: PlanFault["field"], message: string, isWarning = false) =>
    faults.push({ task, field, message, isWarning });
  if (plan.tasks.length === 0) fault("", "plan", "the plan has no tasks; add one");
  const ids = new Set(plan.tasks.map((task) => task.id));
  const seen = new Set<string>();
  for (const task of plan.tasks) {
    if (!ID.test(task.id))
      fault(task.id, "id", "an id has letters, digits, _ . : - and begins with a letter or digit");
    if (seen.has(task.id)) fault(task.id, "id", `another task is called ${task.id}; rename one`);
    seen.add(task.id);
    if (!task.description.trim()) fault(task.id, "description", "say what is to be done");
    if (!task.worker && !task.skill) fault(task.id, "worker", "choose a worker");
    else if (task.worker && workers.length > 0 && !workers.includes(task.worker))
      fault(task.id, "worker", `there is no worker ${task.worker}; there are ${workers.join(", ")}`);
    const needs = needsOf(task);
    for (const need of needs) {
      if (need === task.id) fault(task.id, "needs", "a task cannot need itself");
      else if (!ids.has(need)) fault(task.id, "needs", `there is no task ${need}`);
    }
    if (new Set(needs).size < needs.length) fault(task.id, "needs", "a need is written twice");
  }
  const cycle = findCycle(plan);
  if (cycle)
    fault(
      cycle[0] as string,
      "needs",
      `tasks need each other: ${cycle.join(" → ")}; drop one of these needs`,
    );
  for (const id of unusedTasks(plan))
    fault(id, "needs", "no task uses its result; it goes straight into the answer", true);
  overBudget(plan, limits).forEach((message) => {
    fault("", "budget", message, true);
  });
  return faults;
}

function overBudget(plan: Plan, limits: Limits): string[] {
  return (["money", "tokens", "calls"] as const).flatMap((name) => {
    const cap = limits[name];
    const sum = plan.tasks.reduce((total, task) => total + Number(task.limits?.[name] ?? 0), 0);
    if (typeof cap !== "number" || sum <= cap) return [];
    return [`the tasks may take ${sum} ${name} together, the run has ${cap}`];
  });
}

/** Tasks beside the last one that no other task needs, in a plan that ends in one joining task. */
function unusedTasks(plan: Plan): string[] {
  const needed = new Set(plan.tasks.flatMap(needsOf));
  const last = plan.tasks.filter((task) => !needed.has(task.id));
  const joins = last.filter((task) => needsOf(task).length > 1);
  return joins.length === 1 && last.length > 1
    ? last.filter((task) => task !== joins[0]).map((task) => task.id)
    : [];
}

/** A circle of needs, first task repeated at its end; null if there is none. */
export function findCycle(plan: Plan): string[] | null {
  const needs = new Map(plan.tasks.map((task) => [task.id, needsOf(task)]));
  const state = new Map<string, "open" | "closed">();
  for (const root of needs.keys()) {
    const stack: { id: string; next: number }[] = [{ id: root, next: 0 }];
    if (state.has(root)) continue;
    state.set(root, "open");
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const need = (needs.get(top.id) ?? [])[top.next];
      top.next += 1;
      if (need === undefined) {
        state.set(top.id, "closed");
        stack.pop();
      } else if (state.get(need) === "open" && need !== top.id) {
        const ids = stack.map((each) => each.id);
        return [...ids.slice(ids.indexOf(need)), need];
      } else if (!state.has(need) && needs.has(need)) {
        state.set(need, "open");
        stack.push({ id: need, next: 0 });
      }
    }
  }
  return null;
}

/** How many tasks, how many one after another, how many side by side. */
export function planTotals(plan: Plan): PlanTotals {
  const phase = new Map<string, number>();
  const byId = new Map(plan.tasks.map((task) => [task.id, task]));
  const phaseOf = (id: string, path: Set<string>): number => {
    const known = phase.get(id);
    const task = byId.get(id);
    if (known !== undefined) return known;
    if (!task || path.has(id)) return -1;
    path.add(id);
    const found = 1 + Math.max(-1, ...needsOf(task).map((need) => phaseOf(need, path)));
    path.delete(id);
    phase.set(id, found);
    return found;
  };
  const widths = new Map<number, number>();
  let depth = 0;
  for (const task of plan.tasks) {
    const at = phaseOf(task.id, new Set());
    depth = Math.max(depth, at + 1);
    widths.set(at, (widths.get(at) ?? 0) + 1);
  }
  return { tasks: plan.tasks.length, depth, width: Math.max(0, ...widths.values()) };
}

/** What a person is to approve: a whole plan, or a change of one that is under way. */
export interface PlanReview {
  question: string;
  /** Of a change: its new tasks. */
  plan: Plan;
  is_change: boolean;
  removed: string[];
  replaced: string[];
  reason: string;
  draft: Plan | null;
  text: string;
}

/** The plan as it will be once the change under review is approved; the plan itself if none is. */
export function proposedPlan(
  plan: Plan | null,
  review: Pick<PlanReview, "is_change" | "removed" | "plan"> | null,
): Plan | null {
  if (!plan || !review?.is_change) return plan;
  const gone = new Set([...review.removed, ...review.plan.tasks.map((task) => task.id)]);
  return { ...plan, tasks: [...plan.tasks.filter((task) => !gone.has(task.id)), ...review.plan.tasks] };
}

export interface TaskChange {
  id: string;
  how: "added" | "removed" | "changed" | "same";
  /** Field by field, of a changed task. */
  fields: { field: string; before: string; after: string }[];
}

const COMPARED = [
  "description",
  "worker",
  "skill",
  "needs",
  "accept",
  "optional",
  "limits",
  "for_each",
] as const;

function shown(task: PlanTask, field: string): string {
  const value = field === "needs" ? needsOf(task) : task[field];
  if (value === undefined || value === null || value === "" || value === false) return "";
  if (Array.isArray(value))
    return value.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(", ");
  if (typeof value === "object") return Object.keys(value).length ? JSON.stringify(value) : "";
  return String(value);
}

/** What changed from one plan to another, task by task: in the order of the new plan, removed ones last. */
export function diffPlans(before: Plan | null, after: Plan): TaskChange[] {
  const old = new Map((before?.tasks ?? []).map((task) => [task.id, task]));
  const changes: TaskChange[] = after.tasks.map((task) => {
    const was = old.get(task.id);
    if (!was) return { id: task.id, how: "added", fields: [] };
    const fields = COMPARED.map((field) => ({
      field,
      before: shown(was, field),
      after: shown(task, field),
    })).filter((each) => each.before !== each.after);
    return { id: task.id, how: fields.length ? "changed" : "same", fields };
  });
  const kept = new Set(after.tasks.map((task) => task.id));
  for (const id of old.keys()) if (!kept.has(id)) changes.push({ id, how: "removed", fields: [] });
  return changes;
}

/** A line-by-line difference of two texts: the longest common lines stay. */
export function diffLines(
  before: string,
  after: string,
): { how: "same" | "added" | "removed"; text: string }[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  if (a.length * b.length > 4_000_000)
    return [
      ...a.map((text) => ({ how: "removed" as const, text })),
      ...b.map((text) => ({ how: "added" as const, text })),
    ];
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      common[i * width + j] =
        a[i] === b[j]
          ? (common[(i + 1) * width + j + 1] as number) + 1
          : Math.max(common[(i + 1) * width + j] as number, common[i * width + j + 1] as number);
  const lines: { how: "same" | "added" | "removed"; text: string }[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ how: "same", text: a[i] as string });
      i += 1;
      j += 1;
    } else if (
      i < a.length &&
      (j >= b.length || (common[(i + 1) * width + j] as number) >= (common[i * width + j + 1] as number))
    ) {
      lines.push({ how: "removed", text: a[i] as string });
      i += 1;
    } else {
      lines.push({ how: "added", text: b[j] as string });
      j += 1;
    }
  }
  return lines;
}
