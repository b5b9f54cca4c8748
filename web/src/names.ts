// Names of what the supervisor does itself. Their ids begin with `@`, as `decisions/system_tasks.py` has them; people read words.

import { clean } from "./format";

export const isSystem = (task: string): boolean => task.startsWith("@");

/** By kind: the name of the task, and what it does. */
const SYSTEM_TASKS: Record<string, (of: string) => [name: string, what: string]> = {
  "@plan": (again) => (again ? ["plan again", "Plan again"] : ["plan", "Write the plan"]),
  "@items": (of) => [`items of ${of}`, `List the items of ${of}`],
  "@refine": (of) => [`rewrite of ${task(of)}`, `Rewrite ${task(of)}, which failed`],
  "@hedge": (of) => [`second attempt at ${task(of)}`, `Try ${task(of)} a second time, in parallel`],
  "@draft": () => ["draft", "Draft the answer"],
  "@answer": () => ["answer", "Compose the answer"],
  "@budget": () => ["budget", "Ask whether more may be spent"],
};

/** The task in "task:2". */
const task = (of: string): string => of.replace(/:\d+$/, "");

function systemWords(id: string): [name: string, what: string] {
  const [, kind = "", of = ""] = /^([^:]*):?(.*)$/s.exec(id) ?? [];
  const plain = id.replace(/^@/, "");
  return SYSTEM_TASKS[kind]?.(of) ?? [plain, plain];
}

/** A task as it is called in lists. */
export function taskName(id: string): string {
  return clean(isSystem(id) ? systemWords(id)[0] : id);
}

/** What a task of the supervisor does. */
export const systemDescription = (id: string): string => systemWords(id)[1];

/** Who works on a task: all roles of the supervisor, such as `@lister`, are the supervisor. */
export function workerName(worker: string): string {
  return isSystem(worker) ? "supervisor" : clean(worker);
}
