// Seeded random plans for property tests.
import type { FoldTask } from "../src/fold";

/** Mulberry32: small, seeded, good enough for tests. */
export function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A plan of `count` tasks whose needs are earlier tasks, mostly near ones. */
export function randomTasks(seed: number, count?: number): FoldTask[] {
  const random = randomOf(seed);
  const size = count ?? 1 + Math.floor(random() * 120);
  const density = random() * 2.5;
  const workers = 1 + Math.floor(random() * 6);
  return Array.from({ length: size }, (_, at) => {
    const needs = new Set<string>();
    const wanted = Math.floor(random() * density * 2);
    for (let n = 0; n < wanted && at > 0; n++) {
      const back =
        random() < 0.8 ? 1 + Math.floor(random() * Math.min(at, 12)) : 1 + Math.floor(random() * at);
      needs.add(`t${at - back}`);
    }
    return { id: `t${at}`, worker: `w${Math.floor(random() * workers)}`, needs: [...needs] };
  });
}

/** Fan-outs of `width` with two steps each, joined, again and again: the shape of large plans. */
export function wideTasks(count: number, width = 100): FoldTask[] {
  const tasks: FoldTask[] = [];
  let join: string[] = [];
  while (tasks.length < count) {
    const ends: string[] = [];
    for (let at = 0; at < width && tasks.length < count; at++) {
      const first = `fetch-${tasks.length}`;
      tasks.push({ id: first, worker: "fetch", needs: join });
      const second = `read-${tasks.length}`;
      tasks.push({ id: second, worker: "read", needs: [first] });
      ends.push(second);
    }
    const id = `join-${tasks.length}`;
    tasks.push({ id, worker: "write", needs: ends });
    join = [id];
  }
  return tasks.slice(0, count);
}

/** Columns of unlike tasks with two needs each, some of them far back. Nothing in it folds. */
export function tangledTasks(count: number, seed = 7): FoldTask[] {
  const random = randomOf(seed);
  const width = Math.max(4, Math.round(Math.sqrt(count)));
  return Array.from({ length: count }, (_, at) => {
    const needs = new Set<string>();
    if (at >= width) {
      const column = Math.floor(at / width) - 1;
      needs.add(`t${column * width + Math.floor(random() * width)}`);
      const back = random() < 0.9 ? column : Math.max(0, column - 1 - Math.floor(random() * 3));
      needs.add(`t${back * width + Math.floor(random() * width)}`);
    }
    return { id: `t${at}`, worker: `w${at}`, needs: [...needs] };
  });
}
