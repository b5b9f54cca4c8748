import { describe, expect, test } from "vitest";
import { type FoldTask, foldTasks } from "../src/fold";
import { type Layout, layoutGraph, NODE_WIDTH, ROW_GAP, routeOf, viewStart } from "../src/layout";
import { randomTasks, tangledTasks, wideTasks } from "./random_graphs";

const SEEDS = Array.from({ length: 100 }, (_, seed) => seed);

function laidOut(tasks: FoldTask[], previous?: Layout): Layout {
  const folded = foldTasks(tasks, { on: false });
  const heights = folded.nodes.map((node) => (node.id.length % 3 === 0 ? 56 : 44));
  return layoutGraph({ ids: folded.nodes.map((node) => node.id), heights, edges: folded.edges, previous });
}

function overlaps(layout: Layout): string[] {
  const columns = new Map<number, number[]>();
  for (let v = 0; v < layout.x.length; v++) {
    const column = columns.get(layout.x[v]!) ?? [];
    column.push(v);
    columns.set(layout.x[v]!, column);
  }
  const found: string[] = [];
  for (const column of columns.values()) {
    column.sort((a, b) => layout.y[a]! - layout.y[b]!);
    for (let i = 1; i < column.length; i++) {
      const [a, b] = [column[i - 1]!, column[i]!];
      const gap = layout.y[b]! - layout.heights[b]! / 2 - (layout.y[a]! + layout.heights[a]! / 2);
      if (gap < ROW_GAP - 1e-6) found.push(`${layout.ids[a]} and ${layout.ids[b]}: ${gap}`);
    }
  }
  return found;
}

describe("on 100 random plans", () => {
  test("every task stands right of all that it needs", () => {
    for (const seed of SEEDS) {
      const layout = laidOut(randomTasks(seed));
      for (let e = 0; e < layout.edges.length; e += 2) {
        const [from, to] = [layout.edges[e]!, layout.edges[e + 1]!];
        expect(layout.rank[from]!).toBeLessThan(layout.rank[to]!);
        expect(layout.x[from]! + NODE_WIDTH).toBeLessThan(layout.x[to]!);
      }
    }
  });

  test("a rank is the longest path: each task but the first ones has a need one column before it", () => {
    for (const seed of SEEDS) {
      const layout = laidOut(randomTasks(seed));
      const longest = new Int32Array(layout.ids.length);
      for (let e = 0; e < layout.edges.length; e += 2) {
        const [from, to] = [layout.edges[e]!, layout.edges[e + 1]!];
        longest[to] = Math.max(longest[to]!, layout.rank[from]! + 1);
      }
      expect([...layout.rank.slice(0, layout.ids.length)]).toEqual([...longest]);
    }
  });

  test("no two boxes overlap, and no line runs through a box", () => {
    for (const seed of SEEDS) expect(overlaps(laidOut(randomTasks(seed)))).toEqual([]);
  });

  test("the same plan gives the same picture", () => {
    for (const seed of SEEDS.slice(0, 20)) {
      const [one, two] = [laidOut(randomTasks(seed)), laidOut(randomTasks(seed))];
      expect([...one.x, ...one.y]).toEqual([...two.x, ...two.y]);
    }
  });

  test("lines join neighbouring columns only, unless the bends would be too many", () => {
    for (const seed of SEEDS) {
      const layout = laidOut(randomTasks(seed, 60));
      for (let e = 0; e < layout.edges.length; e += 2) {
        const route = routeOf(layout, layout.edges[e]!, layout.edges[e + 1]!);
        if (route.length === 2) continue;
        for (let i = 1; i < route.length; i++) {
          expect(layout.rank[route[i]!]! - layout.rank[route[i - 1]!]!).toBe(1);
        }
      }
    }
  });

  test("tasks that keep their rank keep their place when a plan changes", () => {
    for (const seed of SEEDS) {
      const tasks = randomTasks(seed, 60);
      const before = laidOut(tasks);
      const changed = tasks
        .filter((_, at) => at % 17 !== 5)
        .map((task) => ({ ...task, needs: task.needs.filter((need) => Number(need.slice(1)) % 17 !== 5) }));
      for (let n = 0; n < 6; n++) changed.push({ id: `new${n}`, worker: "w", needs: [`t${n * 7}`] });
      const after = laidOut(changed, before);
      const at = new Map(before.ids.map((id, v) => [id, v]));
      let kept = 0;
      after.ids.forEach((id, v) => {
        const old = at.get(id);
        if (old === undefined || before.rank[old] !== after.rank[v]) return;
        if (!before.edges.includes(old) && after.edges.includes(v)) return; // it stood in the rows of loose tasks
        kept++;
        expect([id, after.x[v], after.y[v]]).toEqual([id, before.x[old], before.y[old]]);
      });
      expect(kept).toBeGreaterThan(0);
      expect(overlaps(after)).toEqual([]);
    }
  });
});

test("a plan that has grown by half is laid out afresh", () => {
  const tasks = randomTasks(3, 40);
  const grown = [...tasks, ...randomTasks(4, 40).map((task) => ({ ...task, id: `u${task.id}`, needs: [] }))];
  const layout = laidOut(grown, laidOut(tasks));
  expect(layout.freshSize).toBe(80);
  expect([...layout.y]).toEqual([...laidOut(grown).y]);
});

test("a chain is a straight line", () => {
  const layout = laidOut(
    Array.from({ length: 9 }, (_, n) => ({ id: `t${n}`, worker: "w", needs: n ? [`t${n - 1}`] : [] })),
  );
  expect(new Set(layout.y).size).toBe(1);
});

test("a fan-out is centred on what it comes from and what joins it", () => {
  const middle = ["b", "c", "d"].map((id) => ({ id, worker: "w", needs: ["a"] }));
  const layout = layoutGraph({
    ids: ["a", "b", "c", "d", "e"],
    heights: [44, 44, 44, 44, 44],
    edges: [0, 1, 0, 2, 0, 3, 1, 4, 2, 4, 3, 4],
  });
  expect(middle.length).toBe(3);
  expect(layout.y[0]).toBe(layout.y[2]);
  expect(layout.y[4]).toBe(layout.y[2]);
});

test("lines that need not cross do not", () => {
  const layout = layoutGraph({ ids: ["a", "b", "c", "d"], heights: [44, 44, 44, 44], edges: [0, 3, 1, 2] });
  expect(layout.y[0]! < layout.y[1]!).toBe(layout.y[3]! < layout.y[2]!);
});

test("unconnected requests stand one below the other", () => {
  const layout = layoutGraph({ ids: ["a", "b", "c", "d"], heights: [44, 44, 44, 44], edges: [0, 1, 2, 3] });
  expect(Math.min(layout.y[2]!, layout.y[3]!)).toBeGreaterThan(Math.max(layout.y[0]!, layout.y[1]!) + 44);
});

test("a cycle and an empty plan are drawn, not looped over", () => {
  expect(layoutGraph({ ids: ["a", "b"], heights: [44, 44], edges: [0, 1, 1, 0, 1, 1] }).ids).toHaveLength(2);
  expect(layoutGraph({ ids: [], heights: [], edges: [] }).height).toBe(0);
});

test("a line past very many columns goes straight rather than fill memory", () => {
  const size = 1500;
  const edges: number[] = [];
  for (let n = 1; n < size; n++) edges.push(n - 1, n, n - 1, size);
  const ids = Array.from({ length: size + 1 }, (_, n) => `t${n}`);
  const layout = layoutGraph({ ids, heights: new Float64Array(size + 1).fill(44), edges });
  expect(layout.x.length).toBeLessThan(4 * size);
});

/** Generous, since other work may share the machine: `benchmarks/dashboard.py` measures. */
test.each([
  ["wide", wideTasks(2000)],
  ["tangled", tangledTasks(2000)],
])("2,000 tasks (%s) take well under a second", (_, tasks) => {
  const began = performance.now();
  laidOut(tasks);
  expect(performance.now() - began).toBeLessThan(800);
});

describe("where a view begins", () => {
  const columns = [0, 250, 500, 750, 1000];
  const width = 1000 + NODE_WIDTH;

  test("is at a whole column: the one before what is looked at, if both fit", () => {
    expect(viewStart(columns, 500, 600, width)).toBe(250);
    expect(viewStart(columns, 500, 300, width)).toBe(500);
    expect(viewStart(columns, 0, 600, width)).toBe(0);
  });

  test("is further left if the view would be empty on the right", () => {
    expect(viewStart(columns, 1000, 700, width)).toBe(500);
    expect(viewStart(columns, 1000, 5000, width)).toBe(0);
  });
});
