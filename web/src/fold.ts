// Folding of fan-outs. Pure.
//
//   foldTasks(tasks, { on, open? }) → Folded
//
// Tasks of one rank with the same map key (their worker, if they have none) and the same needs become one stack.
// Followers fold with them: tasks that each need equally many of a stack's tasks, one to one above all.
// A stack named in `open` stays apart. Tasks of one rank never need each other, so folding makes no cycle.

/** Plans with more tasks are folded unless the person says otherwise. */
export const FOLD_ABOVE = 80;
/** Fewer siblings are quicker to read side by side. */
const SMALLEST_STACK = 3;

export interface FoldTask {
  id: string;
  worker: string;
  needs: string[];
  /** What the planner mapped over; tasks of different keys do not fold. */
  map_key?: string;
  system?: boolean;
}

/** A box of the graph: one task, or a stack of them. */
export interface FoldNode {
  /** The id of the task, or of the stack: that of its first task with a `×` before it. */
  id: string;
  /** In plan order; one, if it is no stack. */
  members: string[];
}

export interface Folded {
  nodes: FoldNode[];
  /** Pairs of indexes into `nodes`: needed, needing. */
  edges: number[];
  /** The index in `nodes` of the box that shows a task. */
  nodeOf: Map<string, number>;
}

export interface FoldOptions {
  on: boolean;
  /** Ids of stacks that stay apart. */
  open?: ReadonlySet<string>;
}

export function stackId(first: string): string {
  return `×${first}`;
}

export function foldTasks(tasks: readonly FoldTask[], options: FoldOptions): Folded {
  const stacks = options.on ? findStacks(tasks) : [];
  const stackOf = new Map<string, string[]>();
  for (const members of stacks) {
    if (options.open?.has(stackId(members[0]!))) continue;
    for (const id of members) stackOf.set(id, members);
  }
  const nodes: FoldNode[] = [];
  const nodeOf = new Map<string, number>();
  for (const task of tasks) {
    if (nodeOf.has(task.id)) continue;
    const members = stackOf.get(task.id);
    for (const id of members ?? [task.id]) nodeOf.set(id, nodes.length);
    nodes.push(members ? { id: stackId(members[0]!), members } : { id: task.id, members: [task.id] });
  }
  return { nodes, edges: edgesBetween(tasks, nodeOf, nodes.length), nodeOf };
}

function edgesBetween(tasks: readonly FoldTask[], nodeOf: Map<string, number>, size: number): number[] {
  const seen = new Set<number>();
  const edges: number[] = [];
  for (const task of tasks) {
    const to = nodeOf.get(task.id)!;
    for (const need of task.needs) {
      const from = nodeOf.get(need);
      if (from === undefined || from === to || seen.has(from * size + to)) continue;
      seen.add(from * size + to);
      edges.push(from, to);
    }
  }
  return edges;
}

/** Stacks, each in plan order. Column by column, because a follower's stack depends on those before it. */
function findStacks(tasks: readonly FoldTask[]): string[][] {
  const stackNumber = new Map<string, number>();
  const stacks: string[][] = [];
  for (const column of byRank(tasks)) {
    const groups = new Map<string, string[]>();
    for (const task of column) {
      const key = signature(task, stackNumber, stacks);
      const group = groups.get(key);
      if (group) group.push(task.id);
      else groups.set(key, [task.id]);
    }
    for (const members of groups.values()) {
      if (members.length < SMALLEST_STACK) continue;
      for (const id of members) stackNumber.set(id, stacks.length);
      stacks.push(members);
    }
  }
  return stacks;
}

/** Equal for tasks that fold together. */
function signature(task: FoldTask, stackNumber: Map<string, number>, stacks: string[][]): string {
  const single: string[] = [];
  const inStack = new Map<number, number>();
  for (const need of new Set(task.needs)) {
    const stack = stackNumber.get(need);
    if (stack === undefined) single.push(need);
    else inStack.set(stack, (inStack.get(stack) ?? 0) + 1);
  }
  const shares = [...inStack].map(
    ([stack, count]) => `${stack}:${count === stacks[stack]!.length ? "all" : count}`,
  );
  return JSON.stringify([!!task.system, task.map_key ?? task.worker, single.sort(), shares.sort()]);
}

/** Tasks in columns by longest path. Tasks in a cycle are left out: they do not fold. */
function byRank<T extends FoldTask>(tasks: readonly T[]): T[][] {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const open = new Map<string, number>();
  const followers = new Map<string, T[]>();
  for (const task of tasks) {
    let count = 0;
    for (const need of new Set(task.needs)) {
      if (!byId.has(need)) continue;
      count++;
      const list = followers.get(need);
      if (list) list.push(task);
      else followers.set(need, [task]);
    }
    open.set(task.id, count);
  }
  const place = new Map(tasks.map((task, at) => [task.id, at]));
  const columns: T[][] = [];
  let column = tasks.filter((task) => !open.get(task.id));
  while (column.length) {
    columns.push(column);
    const next: T[] = [];
    for (const task of column) {
      for (const follower of followers.get(task.id) ?? []) {
        const left = open.get(follower.id)! - 1;
        open.set(follower.id, left);
        if (!left) next.push(follower);
      }
    }
    column = next.sort((a, b) => place.get(a.id)! - place.get(b.id)!);
  }
  return columns;
}
