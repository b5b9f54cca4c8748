// The geometry of the timeline, without drawing. Pure; times are milliseconds.
//
//   bars(data) → Bar[]                    attempts, and the expected ones of tasks that have not begun
//   lanes(bars, mode, …) → Lane[]         groups by worker, phase or task, each with as many rows as it needs
//   parallelism(bars) → { at, count }     how many attempts were at work
//   new TimeScale(from, to, bars)         time ↔ pixels, with long idle gaps collapsed
import { FINAL } from "./store";
import type { AttemptOutcome, AttemptRow, TaskRow, TaskState } from "./types";

export type TimelineMode = "worker" | "phase" | "task";

/** One attempt, or the one that is expected. */
export interface Bar {
  task: string;
  /** The task of the plan: of an item of `for_each`, the mapped task; else `task`. */
  owner: string;
  attempt: number;
  worker: string;
  phase: number;
  outcome: AttemptOutcome | "expected";
  /** How it is drawn. */
  state: TaskState;
  start: number;
  /** Now, of one that runs. */
  end: number;
  isOpen: boolean;
  /** When its needs were met: the line before the bar. */
  readyAt: number;
  /** When it should end; null: unknown, or over. */
  expectedEnd: number | null;
  /** Of one that asked a person: when the next attempt began, or now. Nobody worked meanwhile. */
  asksUntil: number | null;
  /** A later attempt took its place. */
  isSuperseded: boolean;
  /** Attempts at the same task before this one. */
  earlier: number;
  isSystem: boolean;
}

export interface TimelineFacts {
  tasks: ReadonlyMap<string, TaskRow>;
  attempts: readonly AttemptRow[];
  estimates: Readonly<Record<string, number>>;
  now: number;
  /** Most tasks at once; null: any number. */
  cap: number | null;
  /** Most tasks at once by worker; one that is not named may do any number. */
  capacities?: Readonly<Record<string, number>> | undefined;
  isEnded: boolean;
}

const OUTCOME_STATES: Partial<Record<string, TaskState>> = {
  done: "done",
  failed: "failed",
  cancelled: "cancelled",
  lost: "failed",
  preempted: "cancelled",
  parked: "cancelled",
  running: "running",
};

/** All attempts in order of their start, then what is expected of the tasks that have not begun. */
export function barsOf(facts: TimelineFacts): Bar[] {
  const bars = new AttemptBars().of(facts);
  return facts.isEnded ? bars : [...bars, ...forecastOf(facts).bars].sort(byStart);
}

export function byStart(a: Bar, b: Bar): number {
  return a.start - b.start || a.end - b.end || (a.task < b.task ? -1 : 1);
}

/** Bars of attempts. Those of ended attempts whose rows did not change are not made again. */
export class AttemptBars {
  private readonly made = new Map<AttemptRow, { bar: Bar; task: TaskRow | undefined }>();

  of(facts: TimelineFacts): Bar[] {
    const last = new Map<string, number>();
    for (const each of facts.attempts) {
      if (each.attempt > (last.get(each.task) ?? 0)) last.set(each.task, each.attempt);
    }
    const bars: Bar[] = [];
    for (const each of facts.attempts) {
      const known = this.made.get(each);
      const lastAttempt = last.get(each.task)!;
      const isSame =
        known &&
        !known.bar.isOpen &&
        known.bar.asksUntil === null &&
        known.task === facts.tasks.get(each.task) &&
        known.bar.isSuperseded === each.attempt < lastAttempt;
      const bar = isSame ? known.bar : barOf(each, facts, lastAttempt);
      if (!isSame) this.made.set(each, { bar, task: facts.tasks.get(each.task) });
      bars.push(bar);
    }
    // Rows that were replaced would pile up.
    if (this.made.size > 2 * bars.length + 1000) {
      const current = new Set(facts.attempts);
      for (const row of this.made.keys()) if (!current.has(row)) this.made.delete(row);
    }
    endAsking(bars);
    return bars.sort(byStart);
  }
}

/** Whoever asked a person waited until its next attempt began. */
function endAsking(bars: Bar[]): void {
  const asking = bars.filter((bar) => bar.asksUntil !== null && bar.isSuperseded);
  if (!asking.length) return;
  const starts = new Map(bars.map((bar) => [`${bar.attempt}\n${bar.task}`, bar.start]));
  for (const bar of asking) bar.asksUntil = starts.get(`${bar.attempt + 1}\n${bar.task}`) ?? bar.asksUntil;
}

/** When a question was settled that no attempt followed; now, if it is open. */
function askedUntil(task: TaskRow | undefined, end: number, now: number): number {
  const settled = task?.ended_at && FINAL.has(task.state) ? Date.parse(task.ended_at) : now;
  return Math.max(settled, end);
}

/** How an attempt is drawn that has asked a person: one is needed only while its task still asks. */
function stateOfAsking(task: TaskRow | undefined, isEnded: boolean): TaskState {
  if (task?.state === "failed") return "failed";
  return task?.state === "needs" && !isEnded ? "needs" : "done";
}

export function barOf(each: AttemptRow, facts: TimelineFacts, lastAttempt: number): Bar {
  const owner = facts.tasks.has(each.task) ? each.task : each.task.replace(/\[\d+\]$/, "");
  const task = facts.tasks.get(owner);
  const start = Date.parse(each.started_at);
  const end = each.ended_at === null ? Math.max(facts.now, start) : Date.parse(each.ended_at);
  const isLast = each.attempt >= lastAttempt;
  const isOpen = each.ended_at === null;
  const estimate = facts.estimates[each.task];
  const waited = isLast && owner === each.task ? (task?.wait_seconds ?? 0) : 0;
  let state = OUTCOME_STATES[each.outcome] ?? "cancelled";
  if (each.outcome === "needs") state = isLast ? stateOfAsking(task, facts.isEnded) : "done";
  if (isLast && task && (task.state === "needs" || task.state === "retrying") && isOpen) state = task.state;
  return {
    task: each.task,
    owner,
    attempt: each.attempt,
    worker: each.worker,
    phase: task?.phase ?? 0,
    outcome: each.outcome,
    state,
    start,
    end,
    isOpen,
    readyAt: start - waited * 1000,
    expectedEnd: isOpen && estimate && !facts.isEnded ? Math.max(start + estimate * 1000, end) : null,
    asksUntil: each.outcome === "needs" ? askedUntil(task, end, facts.now) : null,
    isSuperseded: !isLast,
    earlier: each.attempt - 1,
    // Putting the results of items together is the supervisor's own work, too.
    isSystem: each.worker.startsWith("@") || (task?.system ?? each.task.startsWith("@")),
  };
}

/** What is to come, by estimates. */
export interface Forecast {
  /** Of tasks that have not begun or begin anew; none begins before now. */
  bars: Bar[];
  /** When the last task should end; null: of some task it is not known how long it takes. */
  end: number | null;
  /** Milliseconds by which the task that is latest should have ended already. */
  overrun: number;
}

/** Seconds that are left by a forecast, or that it has proved wrong: late by more than was left. Null: not known. */
export function leftIn({ end, overrun }: Forecast, now: number): number | "late" | null {
  if (end === null) return null;
  return overrun > 0 && overrun >= end - now ? "late" : (end - now) / 1000;
}

/** With fewer tasks, what is expected is worked out anew as soon as one has ended. */
export const FEW_TASKS = 1000;

/** When tasks should run that have not begun: in the order of their phases, no more at once than there is room for. */
export function forecastOf(facts: TimelineFacts): Forecast {
  const { now } = facts;
  const typical = typicalSeconds(facts);
  const known = (task: TaskRow) => facts.estimates[task.id] ?? typical.get(task.worker);
  // What other workers took is enough to draw a bar, and too little to tell when the run ends.
  const secondsOf = (task: TaskRow) => known(task) ?? typical.get("");
  const slots = new Slots(facts.cap);
  const slotsOf = new Map<string, Slots>();
  const workerSlots = (worker: string): Slots => {
    const found = slotsOf.get(worker) ?? new Slots(facts.capacities?.[worker] ?? null);
    slotsOf.set(worker, found);
    return found;
  };
  const ends = new Map<string, number>();
  let end: number | null = now;
  const settle = (task: TaskRow, at: number) => {
    ends.set(task.id, at);
    end = known(task) === undefined || end === null ? null : Math.max(end, at);
  };
  let overrun = 0;
  const bars: Bar[] = [];
  const ordered = readyOrder(facts.tasks);
  const open = facts.attempts.filter((each) => each.ended_at === null && !each.worker.startsWith("@"));
  const begun = new Map(open.map((each) => [each.task, Date.parse(each.started_at)]));
  for (const task of ordered) {
    if (task.system || !UNDER_WAY.has(task.state)) continue;
    const seconds = secondsOf(task);
    const ofItems = task.for_each && task.started_at ? Date.parse(task.started_at) : now;
    // One that asks or is tried again begins anew.
    const since = begun.get(task.id) ?? (task.state === "running" ? ofItems : now);
    const due = since + (seconds ?? 0) * 1000;
    const till = Math.max(now, due);
    settle(task, till);
    if (known(task) !== undefined) overrun = Math.max(overrun, now - due);
    // Without a bar, its next attempt would look like idle time.
    if (task.state !== "running" && !begun.has(task.id) && seconds !== undefined)
      bars.push(expectedBar(task, now, till));
  }
  for (const each of open) {
    const till = ends.get(each.task) ?? ends.get(each.task.replace(/\[\d+\]$/, "")) ?? now;
    slots.take(till);
    workerSlots(each.worker).take(till);
  }
  for (const task of ordered) {
    if (task.system || (task.state !== "waiting" && task.state !== "ready")) continue;
    const seconds = secondsOf(task);
    const ofWorker = workerSlots(task.worker);
    let start = Math.max(now, slots.nextFree(), ofWorker.nextFree());
    for (const need of task.needs) start = Math.max(start, ends.get(need) ?? 0);
    const till = start + (seconds ?? 0) * 1000;
    slots.take(till);
    ofWorker.take(till);
    settle(task, till);
    if (seconds !== undefined) bars.push(expectedBar(task, start, till));
  }
  return { bars, end, overrun };
}

function expectedBar(task: TaskRow, start: number, end: number): Bar {
  return {
    task: task.id,
    owner: task.id,
    attempt: task.attempts + 1,
    worker: task.worker,
    phase: task.phase,
    outcome: "expected",
    state: task.state,
    start,
    end,
    isOpen: true,
    readyAt: start,
    expectedEnd: end,
    asksUntil: null,
    isSuperseded: false,
    earlier: 0,
    isSystem: false,
  };
}

const UNDER_WAY: ReadonlySet<TaskState> = new Set(["running", "retrying", "needs"]);

/** Places for tasks that run at once: as many as given, or any number. */
class Slots {
  private readonly ends: number[] = [];
  private readonly most: number;

  constructor(most: number | null) {
    this.most = most && most > 0 ? most : Number.POSITIVE_INFINITY;
  }

  /** When the next place is free. */
  nextFree(): number {
    return this.ends.length < this.most ? 0 : this.ends[0]!;
  }

  /** Fill the place that is free first. */
  take(until: number): void {
    if (this.ends.length >= this.most) pop(this.ends);
    push(this.ends, until);
  }
}

/** Mean seconds of finished tasks by worker, and of all under "". */
function typicalSeconds(facts: TimelineFacts): Map<string, number> {
  const sums = new Map<string, [number, number]>();
  for (const task of facts.tasks.values()) {
    if (task.state !== "done" || task.seconds === null || task.system) continue;
    for (const key of [task.worker, ""]) {
      const sum = sums.get(key) ?? [0, 0];
      sum[0] += task.seconds;
      sum[1]++;
      sums.set(key, sum);
    }
  }
  return new Map([...sums].map(([key, [sum, count]]) => [key, sum / count]));
}

function readyOrder(tasks: ReadonlyMap<string, TaskRow>): TaskRow[] {
  return [...tasks.values()].sort((a, b) => a.phase - b.phase);
}

/** A heap of times, least first. */
function push(heap: number[], value: number): void {
  heap.push(value);
  let at = heap.length - 1;
  while (at > 0 && heap[(at - 1) >> 1]! > heap[at]!) {
    const up = (at - 1) >> 1;
    [heap[up], heap[at]] = [heap[at]!, heap[up]!];
    at = up;
  }
}

function pop(heap: number[]): number {
  const least = heap[0]!;
  const last = heap.pop()!;
  if (!heap.length) return least;
  heap[0] = last;
  for (let at = 0; ; ) {
    let small = at;
    for (const down of [2 * at + 1, 2 * at + 2]) {
      if (down < heap.length && heap[down]! < heap[small]!) small = down;
    }
    if (small === at) return least;
    [heap[small], heap[at]] = [heap[at]!, heap[small]!];
    at = small;
  }
}

/** A group of the timeline. */
export interface Lane {
  key: string;
  label: string;
  /** Bars in each row; those of one row do not overlap. */
  rows: Bar[][];
}

/** With `fold`, attempts that a later one replaced are left out, except those of `shown`. */
export function lanesOf(
  bars: readonly Bar[],
  mode: TimelineMode,
  options: { fold: boolean; shown?: string | null },
): Lane[] {
  const groups = new Map<string, Bar[]>();
  for (const bar of bars) {
    if (options.fold && bar.isSuperseded && bar.owner !== options.shown) continue;
    const key = groupOf(bar, mode);
    const group = groups.get(key);
    if (group) group.push(bar);
    else groups.set(key, [bar]);
  }
  const lanes = [...groups].map(([key, group]) => ({
    key,
    label: labelOf(key, group[0]!, mode),
    rows: rowsOf(group),
  }));
  // Groups come in the order of their first attempt; the supervisor's own work goes first.
  if (mode === "worker") return lanes.sort((a, b) => Number(a.key !== "") - Number(b.key !== ""));
  return mode === "phase" ? lanes.sort((a, b) => Number(a.key) - Number(b.key)) : lanes;
}

function groupOf(bar: Bar, mode: TimelineMode): string {
  if (mode === "task") return bar.owner;
  if (mode === "worker") return bar.isSystem ? "" : bar.worker;
  return bar.isSystem ? (bar.task.startsWith("@answer") ? "1e9" : "-1") : String(bar.phase);
}

function labelOf(key: string, first: Bar, mode: TimelineMode): string {
  if (mode === "task") return first.owner;
  if (mode === "worker") return key || "supervisor";
  return first.isSystem ? (key === "-1" ? "planning" : "answer") : `phase ${Number(key) + 1}`;
}

/** Bars, ordered by start, in as few rows as keep them apart. */
export function rowsOf(bars: readonly Bar[]): Bar[][] {
  const rows: Bar[][] = [];
  const inUse: { end: number; row: number }[] = [];
  for (const bar of bars) {
    let found = -1;
    for (const use of inUse) {
      if (use.end <= bar.start && (found < 0 || use.row < found)) found = use.row;
      if (found === 0) break;
    }
    if (found < 0) {
      found = rows.length;
      rows.push([]);
      inUse.push({ end: 0, row: found });
    }
    rows[found]!.push(bar);
    inUse[found]!.end = Math.max(bar.end, bar.expectedEnd ?? 0, bar.asksUntil ?? 0);
  }
  return rows;
}

/** Steps: from at[i] on, count[i] attempts are at work. System tasks and what is only expected do not count. */
export function parallelism(bars: readonly Bar[]): { at: number[]; count: number[] } {
  const starts: number[] = []; // in order, as bars are
  const ends = new Float64Array(bars.length).fill(Number.POSITIVE_INFINITY);
  for (const bar of bars) {
    if (bar.outcome === "expected" || bar.isSystem || bar.end <= bar.start) continue;
    ends[starts.length] = bar.end;
    starts.push(bar.start);
  }
  ends.sort();
  const at: number[] = [];
  const count: number[] = [];
  for (let begun = 0, over = 0; over < starts.length; ) {
    const time = Math.min(starts[begun] ?? Number.POSITIVE_INFINITY, ends[over]!);
    while (ends[over]! <= time) over++;
    while (begun < starts.length && starts[begun]! <= time) begun++;
    at.push(time);
    count.push(begun - over);
  }
  return { at, count };
}

export interface Gap {
  from: number;
  to: number;
  /** It lies after now: by the estimates, nothing will be at work. */
  isExpected: boolean;
}

/**
 * Stretches longer than `share` of the whole in which nothing was at work, or will be. Bars are ordered by start.
 * None holds both: what has happened ends at `now`, what is only expected begins there.
 */
export function idleGaps(bars: readonly Bar[], from: number, to: number, now = to, share = 0.1): Gap[] {
  const gaps: Gap[] = [];
  let reached = from;
  const add = (begin: number, end: number, isExpected: boolean) => {
    if (end - begin > (to - from) * share) gaps.push({ from: begin, to: end, isExpected });
  };
  const reach = (start: number) => {
    add(reached, Math.min(start, to, now), false);
    add(Math.max(reached, now), Math.min(start, to), true);
  };
  for (const bar of bars) {
    reach(bar.start);
    reached = Math.max(reached, bar.end, bar.expectedEnd ?? 0);
  }
  reach(to);
  return gaps;
}

/** A collapsed gap takes this share of the width. */
const GAP_SHARE = 0.03;
/** Together they take no more than this. */
const ALL_GAPS = 0.5;

/** Time with its idle gaps collapsed: `place` gives 0…1 over the whole, `time` the way back. */
export class TimeScale {
  /** Pairs of time and place, ascending; between them it is linear. */
  private readonly times: number[] = [];
  private readonly places: number[] = [];
  readonly gaps: Gap[];

  constructor(
    readonly from: number,
    readonly to: number,
    gaps: Gap[],
    gapShare = GAP_SHARE,
  ) {
    this.gaps = gaps;
    const share = Math.min(gapShare, ALL_GAPS / Math.max(1, gaps.length));
    const idle = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
    const worked = Math.max(1, to - from - idle);
    const room = 1 - gaps.length * share;
    let place = 0;
    let reached = from;
    const add = (time: number, more: number) => {
      place += more;
      this.times.push(time);
      this.places.push(place);
      reached = time;
    };
    add(from, 0);
    for (const gap of gaps) {
      add(gap.from, ((gap.from - reached) / worked) * room);
      add(gap.to, share);
    }
    add(Math.max(to, from + 1), ((to - reached) / worked) * room);
    this.places[this.places.length - 1] = 1;
  }

  place(time: number): number {
    return between(this.times, this.places, time);
  }

  time(place: number): number {
    return between(this.places, this.times, place);
  }
}

function between(from: number[], to: number[], value: number): number {
  let at = 1;
  while (at < from.length - 1 && from[at]! < value) at++;
  const span = from[at]! - from[at - 1]!;
  const share = span > 0 ? (value - from[at - 1]!) / span : 0;
  return to[at - 1]! + share * (to[at]! - to[at - 1]!);
}

const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10_800, 21_600, 43_200, 86_400,
];

/** A round number of seconds between two ticks that are at least `least` seconds apart. */
export function tickStep(least: number): number {
  return STEPS.find((step) => step >= least) ?? Math.ceil(least / 86_400) * 86_400;
}

/**
 * A moment on an axis of this length with ticks `step` apart, in seconds. All labels of an axis have the same form, and
 * no two neighbours the same words: in a long run whose idle time is shortened, or that is zoomed, ticks may be close.
 */
export function axisLabel(seconds: number, length: number, step = Number.POSITIVE_INFINITY): string {
  const two = (value: number) => String(value).padStart(2, "0");
  if (seconds === 0) return "0";
  if (length < 1) return `${Math.round(seconds * 1000)} ms`;
  const digits = step >= 1 ? 0 : Math.min(3, Math.ceil(-Math.log10(step) - 1e-9));
  if (length < 120) return `${+seconds.toFixed(Math.max(2, digits))} s`;
  const rounded = Number(seconds.toFixed(digits));
  const second = (rounded % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  const whole = Math.floor(rounded);
  if (length < 3600) return `${Math.floor(whole / 60)}:${second} min`;
  const minutes = Math.floor(whole / 60);
  const hour = `${Math.floor(minutes / 60)}:${two(minutes % 60)}`;
  if (step < 60) return `${hour}:${second}`;
  if (length < 48 * 3600 || step < 3600) return `${hour} h`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
