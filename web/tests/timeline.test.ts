import { describe, expect, test } from "vitest";
import {
  axisLabel,
  type Bar,
  barsOf,
  forecastOf,
  idleGaps,
  lanesOf,
  leftIn,
  parallelism,
  rowsOf,
  TimeScale,
  tickStep,
} from "../src/timeline_geometry";
import type { AttemptRow, TaskRow, TaskState } from "../src/types";
import { randomOf } from "./random_graphs";

const T0 = Date.parse("2026-01-05T09:00:00Z");
const at = (seconds: number) => T0 + seconds * 1000;
const iso = (seconds: number) => new Date(at(seconds)).toISOString();

function task(id: string, state: TaskState, more: Partial<TaskRow> = {}): TaskRow {
  return {
    id,
    description: id,
    worker: "reader",
    needs: [],
    required: true,
    accept: "",
    state,
    attempt: 1,
    attempts: 1,
    started_at: null,
    ended_at: null,
    seconds: null,
    wait_seconds: 0,
    tokens: 0,
    cost: null,
    why: "",
    error: null,
    for_each: false,
    phase: 0,
    budget: null,
    ...more,
  };
}

function attempt(id: string, from: number, to: number | null, more: Partial<AttemptRow> = {}): AttemptRow {
  return {
    task: id,
    attempt: 1,
    worker: "reader",
    started_at: iso(from),
    ended_at: to === null ? null : iso(to),
    outcome: to === null ? "running" : "done",
    why: "",
    calls: 0,
    ...more,
  };
}

function bars(
  tasks: TaskRow[],
  attempts: AttemptRow[],
  now = 100,
  more: { cap?: number; isEnded?: boolean; estimates?: Record<string, number> } = {},
): Bar[] {
  return barsOf({
    tasks: new Map(tasks.map((each) => [each.id, each])),
    attempts,
    estimates: more.estimates ?? {},
    now: at(now),
    cap: more.cap ?? 8,
    isEnded: more.isEnded ?? false,
  });
}

const names = (row: readonly Bar[]) => row.map((bar) => bar.task).join(" ");

describe("lanes", () => {
  test("attempts of one worker that overlap stand in rows, others follow each other", () => {
    const found = bars([], [attempt("a", 0, 10), attempt("b", 5, 15), attempt("c", 10, 20)], 20, {
      isEnded: true,
    });
    expect(lanesOf(found, "worker", { fold: true })[0]!.rows.map(names)).toEqual(["a c", "b"]);
  });

  test("no two bars of a row overlap, however many there are", () => {
    for (let seed = 0; seed < 100; seed++) {
      const random = randomOf(seed);
      const attempts = Array.from({ length: 80 }, (_, n) => {
        const from = random() * 100;
        return attempt(`t${n}`, from, from + random() * 20);
      });
      const found = bars([], attempts, 200, { isEnded: true });
      const rows = rowsOf(found);
      for (const row of rows) {
        for (let i = 1; i < row.length; i++) expect(row[i]!.start).toBeGreaterThanOrEqual(row[i - 1]!.end);
      }
      expect(rows.flat()).toHaveLength(80);
      const most = Math.max(...parallelism(found).count);
      expect(rows.length).toBe(most);
    }
  });

  test("the supervisor's own work goes first, workers in the order of their first attempt", () => {
    const found = bars(
      [task("@plan", "done", { system: true })],
      [attempt("x", 1, 2, { worker: "zed" }), attempt("y", 2, 3, { worker: "amy" }), attempt("@plan", 0, 1)],
    );
    expect(lanesOf(found, "worker", { fold: true }).map((lane) => lane.label)).toEqual([
      "supervisor",
      "zed",
      "amy",
    ]);
  });

  test("phases come in order, between planning and answer", () => {
    const tasks = [task("a", "done", { phase: 1 }), task("b", "done", { phase: 0 })];
    const found = bars(tasks, [
      attempt("a", 2, 3),
      attempt("b", 1, 2),
      attempt("@answer", 3, 4),
      attempt("@plan", 0, 1),
    ]);
    expect(lanesOf(found, "phase", { fold: true }).map((lane) => lane.label)).toEqual([
      "planning",
      "phase 1",
      "phase 2",
      "answer",
    ]);
  });

  test("attempts that were replaced fold, unless their task is chosen", () => {
    const attempts = [attempt("a", 0, 1, { outcome: "failed" }), attempt("a", 2, 3, { attempt: 2 })];
    const found = bars([task("a", "done")], attempts, 3, { isEnded: true });
    expect(lanesOf(found, "worker", { fold: true })[0]!.rows[0]!.map((bar) => bar.attempt)).toEqual([2]);
    expect(lanesOf(found, "worker", { fold: true, shown: "a" })[0]!.rows[0]).toHaveLength(2);
    expect(lanesOf(found, "worker", { fold: false })[0]!.rows[0]).toHaveLength(2);
  });

  test("items of a mapped task are its lane", () => {
    const found = bars(
      [task("map", "running", { for_each: true })],
      [attempt("map[0]", 0, 1), attempt("map[1]", 0, 2)],
    );
    expect(lanesOf(found, "task", { fold: true }).map((lane) => [lane.label, lane.rows.length])).toEqual([
      ["map", 2],
    ]);
  });

  test("putting the results of items together is the supervisor's own work", () => {
    const found = bars(
      [task("map", "done", { for_each: true })],
      [attempt("map[0]", 0, 1), attempt("map", 1, 2, { worker: "@collector" })],
    );
    expect(lanesOf(found, "worker", { fold: true }).map((lane) => lane.label)).toEqual([
      "supervisor",
      "reader",
    ]);
  });
});

describe("what is expected", () => {
  test("a task that has not begun follows what it needs, on as many slots as there are", () => {
    const tasks = [
      task("a", "running"),
      task("b", "waiting", { needs: ["a"], phase: 1, attempts: 0 }),
      task("c", "ready", { attempts: 0 }),
    ];
    const estimates = { a: 20, b: 5, c: 7 };
    const found = bars(tasks, [attempt("a", 0, null)], 10, { cap: 1, estimates });
    const ahead = found
      .filter((bar) => bar.outcome === "expected")
      .map((bar) => [bar.task, bar.start - T0, bar.end - T0]);
    expect(ahead).toEqual([
      ["c", 20_000, 27_000],
      ["b", 27_000, 32_000],
    ]);
    expect(found.find((bar) => bar.task === "a")!.expectedEnd).toBe(at(20));
  });

  test("begins at now at the earliest, no more at once than a worker does, and ends when the header says", () => {
    const names = Array.from({ length: 5 }, (_, n) => `w${n}`);
    const tasks = [
      task("a", "running", { started_at: iso(0) }),
      task("asks", "needs", { started_at: iso(0), worker: "asker" }),
      ...names.map((id) => task(id, "ready", { attempts: 0 })),
      task("last", "waiting", { needs: [...names, "asks"], worker: "writer", phase: 1, attempts: 0 }),
    ];
    const facts = {
      tasks: new Map(tasks.map((each) => [each.id, each])),
      attempts: [attempt("a", 0, null)],
      estimates: { a: 5, asks: 3, last: 10, ...Object.fromEntries(names.map((id) => [id, 4])) },
      now: at(30), // long after "a" should have ended
      cap: null,
      capacities: { reader: 2 },
      isEnded: false,
    };
    const { bars: ahead, end } = forecastOf(facts);
    expect(Math.min(...ahead.map((bar) => bar.start))).toBe(at(30));
    const ofReader = ahead.filter((bar) => bar.worker === "reader");
    expect(rowsOf(ofReader.sort((x, y) => x.start - y.start))).toHaveLength(2);
    // Five of four seconds each on two places, then the last.
    expect(end).toBe(at(30 + 12 + 10));
    expect(end).toBe(Math.max(...ahead.map((bar) => bar.end)));
  });

  test("has no end while it is not known how long a task takes", () => {
    const tasks = new Map([["a", task("a", "ready", { attempts: 0 })]]);
    const facts = { tasks, attempts: [], estimates: {}, now: at(0), cap: null, isEnded: false };
    expect(forecastOf(facts)).toEqual({ bars: [], end: null, overrun: 0 });
  });

  test("has no end where only other workers have done something, though a bar is drawn", () => {
    const tasks = [
      task("a", "done", { seconds: 0.2, worker: "quick" }),
      task("b", "running", { worker: "walker" }),
      task("c", "ready", { attempts: 0, worker: "walker" }),
    ];
    const attempts = [attempt("a", 0, 1), attempt("b", 1, null, { worker: "walker" })];
    const facts = {
      tasks: new Map(tasks.map((each) => [each.id, each])),
      attempts,
      estimates: {},
      now: at(3),
      cap: null,
      isEnded: false,
    };
    const ahead = forecastOf(facts);
    expect(ahead.bars.map((bar) => bar.task)).toEqual(["c"]);
    expect(leftIn(ahead, at(3))).toBeNull();
  });

  test("is wrong once a task is late by more than was left", () => {
    const tasks = new Map([["a", task("a", "running")]]);
    const facts = {
      tasks,
      attempts: [attempt("a", 0, null)],
      estimates: { a: 10 },
      cap: null,
      isEnded: false,
    };
    const leftAt = (seconds: number) => leftIn(forecastOf({ ...facts, now: at(seconds) }), at(seconds));
    expect([leftAt(4), leftAt(10), leftAt(11)]).toEqual([6, 0, "late"]);
    tasks.set("b", task("b", "waiting", { needs: ["a"], attempts: 0, phase: 1 }));
    const longer = { ...facts, estimates: { a: 10, b: 60 }, now: at(11) };
    expect(leftIn(forecastOf(longer), at(11))).toBe(60);
  });

  test("without an estimate the mean of its worker counts, and an ended run expects nothing", () => {
    const tasks = [task("a", "done", { seconds: 4 }), task("b", "ready", { attempts: 0 })];
    expect(bars(tasks, [attempt("a", 0, 4)], 10).find((bar) => bar.task === "b")!.end).toBe(at(14));
    expect(bars(tasks, [attempt("a", 0, 4)], 10, { isEnded: true })).toHaveLength(1);
  });
});

describe("time", () => {
  test("on one axis has labels of one form", () => {
    expect([0, 70, 154].map((each) => axisLabel(each, 200))).toEqual(["0", "1:10 min", "2:34 min"]);
    expect([0.5, 70].map((each) => axisLabel(each, 90))).toEqual(["0.5 s", "70 s"]);
    expect([600, 5400].map((each) => axisLabel(each, 7200))).toEqual(["0:10 h", "1:30 h"]);
  });

  test("has labels that differ from tick to tick, also where a long run has ticks close together", () => {
    const lengths = [0.5, 1.5, 30, 119, 150, 3000, 5000, 100_000, 900_000];
    for (const length of lengths)
      for (const least of [0.0007, 0.004, 0.07, 0.4, 0.9, 3, 12, 50, 700, 5000]) {
        const step = tickStep(least);
        if (step > length || length / step > 1e5) continue;
        const ticks = Array.from({ length: 9 }, (_, n) => Math.floor(length / 2 / step) * step + n * step);
        const labels = ticks.map((each) => axisLabel(each, length, step));
        expect(new Set(labels).size, `${labels} on ${length} s`).toBe(labels.length);
      }
    expect(axisLabel(449.5, 452, 0.5)).toBe("7:29.5 min");
    expect(axisLabel(3725, 7200, 5)).toBe("1:02:05");
  });

  test("of a question passes until the next attempt began, or until now, and is nobody's work", () => {
    const asked = attempt("a", 0, 10, { outcome: "needs" });
    const open = bars([task("a", "needs")], [asked], 50);
    expect(open[0]).toMatchObject({ end: at(10), asksUntil: at(50) });
    expect(idleGaps(open, at(0), at(50))).toEqual([{ from: at(10), to: at(50), isExpected: false }]);
    expect(parallelism(open).count.at(-1)).toBe(0);
    const again = bars([task("a", "done")], [asked, attempt("a", 40, 45, { attempt: 2 })], 50);
    expect(again.map((bar) => bar.asksUntil)).toEqual([at(40), null]);
    const given_up = bars([task("a", "failed", { ended_at: iso(30) })], [asked], 50, { isEnded: true });
    expect(given_up[0]!.asksUntil).toBe(at(30));
  });

  test("that asked a person is orange only while its task still asks", () => {
    const asked = attempt("a", 0, 10, { outcome: "needs" });
    const stateOf = (state: TaskState, more = {}, rest: AttemptRow[] = []) =>
      bars([task("a", state)], [asked, ...rest], 50, more)[0]!.state;
    expect(stateOf("needs")).toBe("needs");
    expect(stateOf("ready")).toBe("done");
    expect(stateOf("running", {}, [attempt("a", 40, 45, { attempt: 2 })])).toBe("done");
    expect(stateOf("needs", {}, [attempt("a", 40, 45, { attempt: 2, outcome: "needs" })])).toBe("done");
    expect(stateOf("needs", { isEnded: true })).toBe("done");
    expect(stateOf("failed", { isEnded: true })).toBe("failed");
  });

  test("an attempt waited from when its needs were met", () => {
    expect(bars([task("a", "done", { wait_seconds: 3 })], [attempt("a", 5, 6)])[0]!.readyAt).toBe(at(2));
  });

  test("the strip counts attempts at work, neither the supervisor's nor expected ones", () => {
    const found = bars(
      [task("z", "ready", { attempts: 0 })],
      [attempt("a", 0, 10), attempt("b", 5, 10), attempt("@plan", 0, 10)],
      20,
      { estimates: { z: 5 } },
    );
    const { at: times, count } = parallelism(found);
    expect(times.map((time) => (time - T0) / 1000)).toEqual([0, 5, 10]);
    expect(count).toEqual([1, 2, 0]);
  });

  test("idle gaps over a tenth of the run collapse, shorter ones do not", () => {
    const found = bars([], [attempt("a", 0, 10), attempt("b", 15, 20), attempt("c", 80, 100)], 100, {
      isEnded: true,
    });
    expect(idleGaps(found, at(0), at(100))).toEqual([{ from: at(20), to: at(80), isExpected: false }]);
  });

  test("idle time that was and idle time that is expected are two gaps, apart at now", () => {
    const tasks = [task("z", "ready", { attempts: 0 })];
    const late = bars(tasks, [attempt("a", 0, 10)], 50, { estimates: { z: 10 } }).map((bar) =>
      bar.task === "z" ? { ...bar, start: at(90), end: at(100), expectedEnd: at(100) } : bar,
    );
    expect(idleGaps(late, at(0), at(100), at(50))).toEqual([
      { from: at(10), to: at(50), isExpected: false },
      { from: at(50), to: at(90), isExpected: true },
    ]);
    // Each of them must be long enough by itself.
    expect(idleGaps(late, at(0), at(100), at(85))).toEqual([{ from: at(10), to: at(85), isExpected: false }]);
  });

  test("what a task will do that asks a person is expected work, not idle time", () => {
    const tasks = [
      task("asks", "needs", { started_at: iso(0) }),
      task("last", "waiting", { needs: ["asks"], phase: 1, attempts: 0 }),
    ];
    const found = bars(tasks, [attempt("asks", 0, 10, { outcome: "needs" })], 50, {
      estimates: { asks: 30, last: 20 },
    });
    const ahead = found.filter((bar) => bar.outcome === "expected");
    expect(ahead.map((bar) => [bar.task, bar.start, bar.end])).toEqual([
      ["asks", at(50), at(80)],
      ["last", at(80), at(100)],
    ]);
    expect(idleGaps(found, at(0), at(100), at(50))).toEqual([
      { from: at(10), to: at(50), isExpected: false },
    ]);
  });

  test("collapsed time runs on, and there is a way back from every place", () => {
    const scale = new TimeScale(at(0), at(100), [{ from: at(20), to: at(80), isExpected: false }]);
    expect(scale.place(at(0))).toBe(0);
    expect(scale.place(at(100))).toBe(1);
    expect(scale.place(at(80)) - scale.place(at(20))).toBeCloseTo(0.03);
    let before = -1;
    for (let second = 0; second <= 100; second++) {
      const place = scale.place(at(second));
      expect(place).toBeGreaterThan(before);
      before = place;
      expect(scale.time(place)).toBeCloseTo(at(second), -1);
    }
  });

  test("collapsed time has room for its words in a narrow window, and leaves half of it to the work", () => {
    const gaps = [10, 30, 50, 70].map((each) => ({ from: at(each), to: at(each + 15), isExpected: false }));
    const scale = new TimeScale(at(0), at(100), gaps, 0.2);
    const widths = gaps.map((gap) => scale.place(gap.to) - scale.place(gap.from));
    for (const width of widths) expect(width).toBeCloseTo(0.125);
  });

  test("ticks are round numbers", () => {
    expect([0.7, 3, 70, 4000, 200_000].map(tickStep)).toEqual([1, 5, 120, 7200, 259_200]);
  });
});
