import { describe, expect, test } from "vitest";
import { type FoldTask, foldTasks, stackId } from "../src/fold";
import { randomTasks, wideTasks } from "./random_graphs";

const on = { on: true };
const task = (id: string, worker: string, ...needs: string[]): FoldTask => ({ id, worker, needs });
const shape = (tasks: FoldTask[], options = on) =>
  foldTasks(tasks, options).nodes.map((node) => node.members.join(" "));

test("siblings with the same worker and the same needs become one stack", () => {
  const tasks = [
    task("plan", "p"),
    ...["a", "b", "c"].map((id) => task(id, "read", "plan")),
    task("end", "w", "a", "b", "c"),
  ];
  expect(shape(tasks)).toEqual(["plan", "a b c", "end"]);
});

test("one-to-one followers fold with them", () => {
  const reads = ["a", "b", "c"].map((id) => task(id, "read"));
  const checks = ["a", "b", "c"].map((id) => task(`check-${id}`, "check", id));
  expect(shape([...reads, ...checks])).toEqual(["a b c", "check-a check-b check-c"]);
});

test("tasks that each join two of a stack fold too, but not with one that joins all", () => {
  const reads = ["a", "b", "c", "d"].map((id) => task(id, "read"));
  const pairs = [task("ab", "join", "a", "b"), task("bc", "join", "b", "c"), task("cd", "join", "c", "d")];
  expect(shape([...reads, ...pairs, task("all", "join", "a", "b", "c", "d")])).toEqual([
    "a b c d",
    "ab bc cd",
    "all",
  ]);
});

test("other workers, other map keys, other needs and pairs stay apart", () => {
  expect(shape([task("a", "x"), task("b", "y"), task("c", "z")])).toHaveLength(3);
  expect(shape([task("a", "x"), task("b", "x")])).toHaveLength(2);
  const keyed = ["k1", "k2", "k3"].map((map_key) => ({ ...task(map_key, "x"), map_key }));
  expect(shape(keyed)).toHaveLength(3);
  const after = [
    task("r", "x"),
    task("s", "y"),
    task("a", "z", "r"),
    task("b", "z", "s"),
    task("c", "z", "r", "s"),
  ];
  expect(shape(after)).toHaveLength(5);
});

test("an opened stack stands apart, and the others stay folded", () => {
  const tasks = [
    ...["a", "b", "c"].map((id) => task(id, "read")),
    ...["d", "e", "f"].map((id) => task(id, "write")),
  ];
  const folded = foldTasks(tasks, { on: true, open: new Set([stackId("a")]) });
  expect(folded.nodes.map((node) => node.members.join(" "))).toEqual(["a", "b", "c", "d e f"]);
});

test("2,000 tasks in fan-outs of 100 become a picture of some thirty boxes", () => {
  expect(shape(wideTasks(2000)).length).toBeLessThan(40);
});

describe("on 100 random plans", () => {
  const seeds = Array.from({ length: 100 }, (_, seed) => seed);

  test("every task is in exactly one box, and edges are those of the tasks", () => {
    for (const seed of seeds) {
      const tasks = randomTasks(seed);
      const folded = foldTasks(tasks, on);
      expect(folded.nodes.flatMap((node) => node.members).sort()).toEqual(
        tasks.map((each) => each.id).sort(),
      );
      const expected = new Set<string>();
      for (const each of tasks) {
        for (const need of each.needs)
          expected.add(`${folded.nodeOf.get(need)}>${folded.nodeOf.get(each.id)}`);
      }
      const edges = new Set<string>();
      for (let e = 0; e < folded.edges.length; e += 2) edges.add(`${folded.edges[e]}>${folded.edges[e + 1]}`);
      expect(edges).toEqual(expected);
    }
  });

  test("folding makes no cycle, and is the same each time", () => {
    for (const seed of seeds) {
      const folded = foldTasks(randomTasks(seed), on);
      const open = new Int32Array(folded.nodes.length);
      for (let e = 1; e < folded.edges.length; e += 2) open[folded.edges[e]!]!++;
      const ready = [...open.keys()].filter((v) => !open[v]);
      for (const v of ready) {
        for (let e = 0; e < folded.edges.length; e += 2) {
          if (folded.edges[e] === v && !--open[folded.edges[e + 1]!]!) ready.push(folded.edges[e + 1]!);
        }
      }
      expect(ready).toHaveLength(folded.nodes.length);
      expect(foldTasks(randomTasks(seed), on).nodes).toEqual(folded.nodes);
    }
  });
});

test("without folding every task is a box", () => {
  const tasks = wideTasks(50);
  expect(foldTasks(tasks, { on: false }).nodes.map((node) => node.id)).toEqual(tasks.map((each) => each.id));
});
