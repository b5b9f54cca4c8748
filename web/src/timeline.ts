// A run over time on a canvas: how much went on in parallel, and lanes by worker, phase or task.
//
//   const timeline = new Timeline(canvas, { onSelect, onHover, onBrush });
//   timeline.setData({ tasks, attempts, estimates, criticalPath, cap, beganAt, endedAt, now? });
//   timeline.update(changedTasks, changedAttempts, { now?, endedAt?, … });   // live
//   timeline.setCalls(calls);   // tool time as notches: the growing array of what the stream told
//   timeline.setPastCalls(calls);   // the same of what came before
//   timeline.setMode("worker" | "phase" | "task");  timeline.setFold(on);  timeline.select(taskId | null);
//   timeline.follow(on);  timeline.fit();  timeline.setTheme();  timeline.destroy();
//
// Keys of the page: w s → zoomBy(1.3) zoomBy(1 / 1.3), a d → panBy(-0.2) panBy(0.2), shares of the width.
// A drag over the axis or the strip brushes a stretch: onBrush gets it with the tasks that were at work in it.
// Without `now` the clock runs while `endedAt` is null. Replay hands in the moment it shows.
import {
  type BoxStyle,
  boxStyle,
  drawIcon,
  nameOf,
  type Palette,
  readPalette,
  STATE_WORDS,
  Surface,
  TextFit,
} from "./drawing";
import { duration } from "./format";
import { taskName, workerName } from "./names";
import {
  AttemptBars,
  axisLabel,
  type Bar,
  byStart,
  FEW_TASKS,
  forecastOf,
  type Gap,
  idleGaps,
  type Lane,
  lanesOf,
  parallelism,
  type TimelineFacts,
  type TimelineMode,
  TimeScale,
  tickStep,
} from "./timeline_geometry";
import type { AttemptRow, Call, TaskRow } from "./types";

export type { TimelineMode } from "./timeline_geometry";

export interface TimelineData {
  tasks: readonly TaskRow[];
  attempts: readonly AttemptRow[];
  estimates: Record<string, number>;
  criticalPath: readonly string[];
  /** Most attempts at once; null: unknown. */
  cap: number | null;
  /** The same by worker. */
  capacities?: Readonly<Record<string, number>> | undefined;
  beganAt: string;
  endedAt: string | null;
  /** Milliseconds; without it, the clock. */
  now?: number | undefined;
  /** Milliseconds that the width stands for, with nothing folded; without it, the whole run. */
  span?: number | undefined;
}

export interface TimelineOptions {
  mode?: TimelineMode;
  onSelect?: (task: string | null) => void;
  onHover?: (task: string | null, x: number, y: number) => void;
  /** Milliseconds; null: the brush was taken away. */
  onBrush?: (brush: { from: number; to: number; tasks: string[] } | null) => void;
  onFollow?: (on: boolean) => void;
  /** What is drawn by now, for a legend; called when it changes. */
  onMarks?: (marks: Mark[]) => void;
}

/** What the timeline draws that needs a word, in the order of its legend. */
const MARKS = [
  "done",
  "running",
  "failed",
  "earlier",
  "asks",
  "asked",
  "critical",
  "expected",
  "waited",
  "idle",
  "expected-idle",
] as const;
export type Mark = (typeof MARKS)[number];

/** Room for the names of lanes, and less of it in a narrow window. */
const GUTTER = 132;
const NARROW = 480;
const NARROW_GUTTER = 84;
const AXIS = 22;
const STRIP = 36;
const TOP = AXIS + STRIP + 6;
const ROW = 22;
const BAR = 17;
/** Of an attempt that a later one replaced. */
const SLIM = 7;
/** A gap is at least this wide, so that its words fit across it. */
const LEAST_GAP = 20;
const LANE_GAP = 7;
const RIGHT = 16;
const EXPECT_EVERY = 1000;
const REFRESH_EVERY = 250;
/** The share of the time that drawing live changes may take, and the longest pause for it. */
const MOST_SHARE = 0.01;
const REFRESH_AT_LEAST = 1000;

/** By attempt: when tools began and ended, in pairs. */
type ToolTimes = Map<string, number[]>;

interface HeardCalls {
  calls: readonly Call[];
  /** How many of them were looked at. */
  seen: number;
  /** Tool calls whose end is not known yet. */
  open: number[];
  tools: ToolTimes;
}

interface PlacedLane {
  lane: Lane;
  top: number;
}

export class Timeline {
  private readonly surface: Surface;
  private readonly text: TextFit;
  private palette: Palette;
  private tasks = new Map<string, TaskRow>();
  private attempts = new Map<string, AttemptRow>();
  private data: TimelineData = {
    tasks: [],
    attempts: [],
    estimates: {},
    criticalPath: [],
    cap: null,
    beganAt: "",
    endedAt: null,
  };
  private critical = new Set<string>();
  private heard: HeardCalls = { calls: [], seen: 0, open: [], tools: new Map() };
  private pastTools: ToolTimes = new Map();
  private bars: Bar[] = [];
  private attemptBars = new AttemptBars();
  private ahead: Bar[] = [];
  private expectedAt = Number.NEGATIVE_INFINITY;
  private expectedSize = 0;
  private lanes: PlacedLane[] = [];
  private lanesHeight = 0;
  private strip: { at: number[]; count: number[] } = { at: [], count: [] };
  private highest = 1;
  private scale = new TimeScale(0, 1, []);
  private view = { from: 0, to: 1 };
  /** A person has scrolled the lanes: they stay there until the whole run is asked for. */
  private isScrolled = false;
  /** The moment that geometry was made for: all that is drawn agrees on it. */
  private shownNow = 0;
  private scroll = 0;
  private mode: TimelineMode;
  private isFolding = false;
  private isFollowing = true;
  private selected: string | null = null;
  private hovered: Bar | null = null;
  private brush: { from: number; to: number } | null = null;
  private marks = "";
  private isStale = true;
  private clock = 0;
  private soon = 0;
  private refreshedAt = 0;
  private readonly off = new AbortController();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly options: TimelineOptions = {},
  ) {
    this.mode = options.mode ?? "worker";
    this.surface = new Surface(
      canvas,
      () => this.draw(),
      () => {},
    );
    this.text = new TextFit(this.surface.context);
    this.palette = readPalette(canvas);
    if (canvas.tabIndex < 0) canvas.tabIndex = 0;
    this.listen();
    this.clock = window.setInterval(() => {
      if (this.data.beganAt && !this.data.endedAt && this.data.now === undefined && !document.hidden)
        this.changedSoon();
    }, 1000);
  }

  setData(data: TimelineData): void {
    this.data = data;
    this.tasks = new Map(data.tasks.map((task) => [task.id, task]));
    this.attempts = new Map(data.attempts.map((each) => [keyOf(each), each]));
    this.critical = new Set(data.criticalPath);
    this.attemptBars = new AttemptBars();
    this.expectedAt = Number.NEGATIVE_INFINITY;
    this.changed();
  }

  /** Costs a map entry per change; geometry follows within a quarter of a second. */
  update(
    tasks: readonly TaskRow[],
    attempts: readonly AttemptRow[],
    facts: Partial<Omit<TimelineData, "tasks" | "attempts">> = {},
  ): void {
    for (const task of tasks) this.tasks.set(task.id, task);
    for (const each of attempts) this.attempts.set(keyOf(each), each);
    this.data = { ...this.data, ...facts };
    if (facts.criticalPath) this.critical = new Set(facts.criticalPath);
    if (this.tasks.size < FEW_TASKS && tasks.some((task) => task.state === "done"))
      this.expectedAt = Number.NEGATIVE_INFINITY;
    this.changedSoon();
  }

  /** Hand in the same array as it grows: what was seen before is not looked at again. */
  setCalls(calls: readonly Call[]): void {
    this.heard = calls === this.heard.calls ? this.heard : { calls, seen: 0, open: [], tools: new Map() };
    const { heard } = this;
    for (; heard.seen < calls.length; heard.seen++) {
      if (calls[heard.seen]!.kind === "tool") heard.open.push(heard.seen);
    }
    const before = heard.open.length;
    heard.open = heard.open.filter((at) => !addTool(heard.tools, calls[at]!));
    if (heard.open.length !== before) this.changedSoon();
  }

  /** Calls from before the page was opened. */
  setPastCalls(calls: readonly Call[]): void {
    this.pastTools = new Map();
    for (const call of calls) if (call.kind === "tool") addTool(this.pastTools, call);
    this.surface.invalidate();
  }

  /** Take the brush away. */
  clearBrush(): void {
    if (!this.brush) return;
    this.brush = null;
    this.options.onBrush?.(null);
    this.surface.invalidate();
  }

  setMode(mode: TimelineMode): void {
    this.mode = mode;
    this.scroll = 0;
    this.changed();
    if (this.selected) this.reveal(this.selected);
  }

  /** Whether attempts that a later one replaced are left out. */
  setFold(on: boolean): void {
    this.isFolding = on;
    this.changed();
  }

  select(task: string | null): void {
    if (task === this.selected) return;
    this.selected = task;
    this.changed();
    if (task !== null) this.reveal(task);
  }

  /** Keep the present in view. */
  follow(on: boolean): void {
    this.isFollowing = on;
    if (on) this.fit();
  }

  fit(): void {
    this.view = { from: 0, to: 1 };
    this.isScrolled = false;
    this.isStale = true;
    this.surface.invalidate();
  }

  zoomBy(factor: number): void {
    this.zoomAt(0.5, factor);
  }

  /** By a share of the visible stretch. */
  panBy(share: number): void {
    this.leaveFollowing();
    const span = this.view.to - this.view.from;
    this.setView(this.view.from + share * span, this.view.to + share * span);
  }

  setTheme(): void {
    this.palette = readPalette(this.canvas);
    this.surface.invalidate();
  }

  get frameTime(): number {
    return this.surface.lastFrame;
  }

  destroy(): void {
    this.off.abort();
    this.surface.destroy();
    window.clearInterval(this.clock);
    window.clearTimeout(this.soon);
  }

  // Geometry

  private changed(): void {
    this.isStale = true;
    this.surface.invalidate();
  }

  /** Four times a second is as live as lanes need to be; thousands of bars are drawn less often. */
  private changedSoon(): void {
    if (this.soon) return;
    const pause = clamp(this.surface.lastFrame / MOST_SHARE, REFRESH_EVERY, REFRESH_AT_LEAST);
    const wait = Math.max(0, this.refreshedAt + pause - performance.now());
    this.soon = window.setTimeout(() => {
      this.soon = 0;
      this.changed();
    }, wait);
  }

  private get now(): number {
    if (this.data.endedAt) return Date.parse(this.data.endedAt);
    return this.data.now ?? Date.now();
  }

  private refresh(): void {
    if (!this.isStale) return;
    this.isStale = false;
    this.refreshedAt = performance.now();
    const { estimates, cap, capacities, endedAt, beganAt } = this.data;
    const now = this.now;
    this.shownNow = now;
    const attempts = [...this.attempts.values()];
    const facts = {
      tasks: this.tasks,
      attempts,
      estimates,
      now,
      cap,
      capacities,
      isEnded: endedAt !== null,
    };
    this.bars = this.attemptBars.of(facts);
    if (!facts.isEnded) this.bars = [...this.bars, ...this.expected(facts)].sort(byStart);
    this.strip = parallelism(this.bars);
    this.highest = Math.max(1, ...this.strip.count.slice(0, 50_000));
    const from = Math.min(Date.parse(beganAt) || now, this.bars[0]?.start ?? now);
    let end = now;
    for (const bar of this.bars) end = Math.max(end, bar.end, bar.expectedEnd ?? 0);
    // What lies after the end of a short run is not idle time.
    const { span } = this.data;
    this.scale = span
      ? new TimeScale(from, from + span, [])
      : new TimeScale(
          from,
          // While a run begins, its first bars would leap.
          Math.max(end, from + (endedAt === null ? 1000 : 10)),
          idleGaps(this.bars, from, end, now),
          Math.max(0.03, LEAST_GAP / this.plotWidth),
        );
    this.tellMarks();
    this.lanes = [];
    let top = 0;
    for (const lane of lanesOf(this.bars, this.mode, { fold: this.isFolding, shown: this.selected })) {
      this.lanes.push({ lane, top });
      top += lane.rows.length * ROW + (this.mode === "task" ? 0 : LANE_GAP);
    }
    this.lanesHeight = top;
    this.scroll = clamp(this.scroll, 0, this.mostScroll());
    if (this.isFollowing && !this.isScrolled && !this.selected && this.mostScroll()) this.showWork();
    // Where all lanes are in view, a swipe up or down is for the page.
    this.canvas.style.touchAction = this.mostScroll() ? "none" : "pan-y";
  }

  /** Scroll to what is at work or asks a person, if none of it is in view. */
  private showWork(): void {
    const room = this.surface.height - TOP;
    let first: number | null = null;
    for (const { lane, top } of this.lanes) {
      for (let row = 0; row < lane.rows.length; row++) {
        const bar = lane.rows[row]!.findLast((each) => each.outcome !== "expected");
        const isOpen = bar?.outcome === "running" || (bar?.asksUntil != null && !bar.isSuperseded);
        if (!isOpen) continue;
        const y = top + row * ROW;
        if (y >= this.scroll && y + ROW <= this.scroll + room) return;
        first ??= y;
      }
    }
    if (first !== null) this.scroll = clamp(first - 2, 0, this.mostScroll());
  }

  private tellMarks(): void {
    const found = new Set<Mark>();
    for (const bar of this.bars) {
      if (bar.expectedEnd !== null && (bar.outcome === "expected" || bar.expectedEnd > bar.end))
        found.add("expected");
      if (bar.readyAt < bar.start - 1) found.add("waited");
      if (bar.asksUntil !== null) found.add(bar.state === "needs" ? "asks" : "asked");
      if (bar.isSuperseded) found.add("earlier");
      else if (bar.outcome !== "expected") {
        if (bar.state === "done" || bar.state === "running" || bar.state === "failed") found.add(bar.state);
        if (this.critical.has(bar.owner)) found.add("critical");
      }
    }
    for (const gap of this.scale.gaps) found.add(gap.isExpected ? "expected-idle" : "idle");
    const marks = MARKS.filter((mark) => found.has(mark));
    if (marks.join() === this.marks) return;
    this.marks = marks.join();
    this.options.onMarks?.(marks);
  }

  /** The future changes slowly: it is worked out once a second at most, and what has begun is left out. */
  private expected(facts: TimelineFacts): Bar[] {
    const late = facts.now - this.expectedAt;
    if (late < 0 || late > EXPECT_EVERY || this.tasks.size !== this.expectedSize) {
      this.ahead = forecastOf(facts).bars;
      this.expectedAt = facts.now;
      this.expectedSize = this.tasks.size;
    }
    // It may be a moment old, but never begins in the past.
    const by = facts.now - this.expectedAt;
    return this.ahead
      .filter((bar) => {
        const state = this.tasks.get(bar.task)?.state;
        return state === bar.state || state === "waiting" || state === "ready";
      })
      .map((bar) => ({
        ...bar,
        start: bar.start + by,
        readyAt: bar.start + by,
        end: bar.end + by,
        expectedEnd: bar.end + by,
      }));
  }

  private get gutter(): number {
    return this.surface.width < NARROW ? NARROW_GUTTER : GUTTER;
  }

  private get plotWidth(): number {
    return Math.max(40, this.surface.width - this.gutter - RIGHT);
  }

  private mostScroll(): number {
    return Math.max(0, this.lanesHeight + 8 - (this.surface.height - TOP));
  }

  private toX(time: number): number {
    const share = (this.scale.place(time) - this.view.from) / (this.view.to - this.view.from);
    return this.gutter + share * this.plotWidth;
  }

  private toTime(x: number): number {
    const share = (x - this.gutter) / this.plotWidth;
    return this.scale.time(this.view.from + share * (this.view.to - this.view.from));
  }

  private setView(from: number, to: number): void {
    const span = clamp(to - from, 1e-5, 1);
    const start = clamp(from, 0, 1 - span);
    this.view = { from: start, to: start + span };
    this.surface.invalidate();
  }

  private zoomAt(share: number, factor: number): void {
    this.leaveFollowing();
    const span = this.view.to - this.view.from;
    const centre = this.view.from + share * span;
    const wanted = clamp(span / factor, 1e-5, 1);
    this.setView(centre - share * wanted, centre - share * wanted + wanted);
  }

  private leaveFollowing(): void {
    if (!this.isFollowing) return;
    this.isFollowing = false;
    this.options.onFollow?.(false);
  }

  private reveal(task: string): void {
    if (!this.surface.height) return;
    this.refresh();
    for (const { lane, top } of this.lanes) {
      for (let row = 0; row < lane.rows.length; row++) {
        const bar = lane.rows[row]!.find((each) => each.owner === task && !each.isSuperseded);
        if (!bar) continue;
        const y = top + row * ROW;
        const room = this.surface.height - TOP;
        if (y < this.scroll || y + ROW > this.scroll + room) {
          this.scroll = clamp(y - room / 2, 0, this.mostScroll());
        }
        const [from, to] = [this.scale.place(bar.start), this.scale.place(bar.end)];
        const span = this.view.to - this.view.from;
        if (to < this.view.from || from > this.view.to)
          this.setView((from + to - span) / 2, (from + to + span) / 2);
        this.surface.invalidate();
        return;
      }
    }
  }

  private hit(x: number, y: number): Bar | null {
    if (y < TOP || x < this.gutter) return null;
    const at = y - TOP + this.scroll;
    for (const { lane, top } of this.lanes) {
      const row = lane.rows[Math.floor((at - top) / ROW)];
      if (at < top || !row) continue;
      let best: Bar | null = null;
      for (const bar of row) {
        const [from, to] = [
          this.toX(bar.start) - 2,
          Math.max(this.toX(bar.start) + 4, this.toX(Math.max(bar.end, bar.asksUntil ?? 0)) + 2),
        ];
        if (x >= from && x <= to) best = bar;
      }
      return best;
    }
    return null;
  }

  // Pointer

  private listen(): void {
    const { canvas } = this;
    const signal = this.off.signal;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false, signal });
    canvas.addEventListener("keydown", (event) => this.onKey(event), { signal });
    canvas.addEventListener("focus", () => this.surface.invalidate(), { signal });
    canvas.addEventListener("blur", () => this.surface.invalidate(), { signal });
    canvas.addEventListener("pointerleave", () => this.hover(null, 0, 0), { signal });
    let start: { x: number; y: number; isBrush: boolean } | null = null;
    let last = { x: 0, y: 0 };
    let moved = 0;
    const at = (event: PointerEvent) => {
      const rectangle = canvas.getBoundingClientRect();
      return { x: event.clientX - rectangle.left, y: event.clientY - rectangle.top };
    };
    canvas.addEventListener(
      "pointerdown",
      (event) => {
        if (event.button > 1) return;
        canvas.setPointerCapture(event.pointerId);
        last = at(event);
        moved = 0;
        start = { ...last, isBrush: last.y < TOP && last.x >= this.gutter };
      },
      { signal },
    );
    canvas.addEventListener(
      "pointermove",
      (event) => {
        const here = at(event);
        if (!start) {
          this.hover(this.hit(here.x, here.y), here.x, here.y);
          return;
        }
        moved += Math.abs(here.x - last.x) + Math.abs(here.y - last.y);
        if (moved > 4) {
          if (start.isBrush) this.brushTo(start.x, here.x);
          else this.drag(here.x - last.x, here.y - last.y);
        }
        last = here;
      },
      { signal },
    );
    const up = (event: PointerEvent) => {
      if (!start) return;
      if (event.type === "pointerup") {
        if (moved > 4 && start.isBrush) this.endBrush();
        else if (moved <= 4) this.click(last.x, last.y);
      }
      start = null;
    };
    canvas.addEventListener("pointerup", up, { signal });
    canvas.addEventListener("pointercancel", up, { signal });
  }

  private drag(dx: number, dy: number): void {
    this.scroll = clamp(this.scroll - dy, 0, this.mostScroll());
    if (dy) this.isScrolled = true;
    if (dx) this.panBy(-dx / this.plotWidth);
    this.surface.invalidate();
  }

  private brushTo(x0: number, x1: number): void {
    const [left, right] = [Math.min(x0, x1), Math.max(x0, x1)];
    this.brush = { from: this.toTime(Math.max(left, this.gutter)), to: this.toTime(right) };
    this.surface.invalidate();
  }

  private endBrush(): void {
    const brush = this.brush;
    if (!brush) return;
    const tasks = new Set<string>();
    for (const bar of this.bars) {
      if (bar.outcome !== "expected" && bar.start < brush.to && bar.end > brush.from) tasks.add(bar.owner);
    }
    this.options.onBrush?.({ ...brush, tasks: [...tasks] });
  }

  private click(x: number, y: number): void {
    this.clearBrush();
    const bar = this.hit(x, y);
    const id = bar?.owner ?? (this.mode === "task" && x < this.gutter ? this.laneAt(y) : null);
    if (id !== this.selected) {
      this.selected = id;
      this.options.onSelect?.(id);
      this.isStale = true;
    }
    this.surface.invalidate();
  }

  private laneAt(y: number): string | null {
    if (y < TOP) return null;
    const at = y - TOP + this.scroll;
    const found = this.lanes.find(({ lane, top }) => at >= top && at < top + lane.rows.length * ROW);
    return found?.lane.key ?? null;
  }

  private hover(bar: Bar | null, x: number, y: number): void {
    if (bar || this.hovered) this.options.onHover?.(bar?.owner ?? null, x, y);
    if (bar === this.hovered) return;
    this.hovered = bar;
    this.canvas.style.cursor = bar ? "pointer" : "";
    this.surface.invalidate();
  }

  private onWheel(event: WheelEvent): void {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? this.surface.height : 1;
    if (event.ctrlKey || event.metaKey) {
      const share = clamp((event.offsetX - this.gutter) / this.plotWidth, 0, 1);
      this.zoomAt(share, Math.exp(-clamp(event.deltaY * unit, -60, 60) * 0.008));
      return;
    }
    const sideways = event.shiftKey && !event.deltaX;
    const dx = (sideways ? event.deltaY : event.deltaX) * unit;
    if (dx) this.panBy(dx / this.plotWidth);
    if (!sideways && event.deltaY) {
      this.isScrolled = true;
      this.scroll = clamp(this.scroll + event.deltaY * unit, 0, this.mostScroll());
    }
    this.surface.invalidate();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowLeft") this.panBy(-0.2);
    else if (event.key === "ArrowRight") this.panBy(0.2);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      this.isScrolled = true;
      this.scroll = clamp(this.scroll + (event.key === "ArrowUp" ? -ROW : ROW), 0, this.mostScroll());
      this.surface.invalidate();
    } else if (event.key === "+" || event.key === "=") this.zoomBy(1.3);
    else if (event.key === "-") this.zoomBy(1 / 1.3);
    else return;
    event.preventDefault();
  }

  // Drawing

  private draw(): void {
    this.refresh();
    const c = this.surface.context;
    const { width, height } = this.surface;
    if (!this.data.beganAt) return;
    this.drawFuture(c);
    this.drawGaps(c);
    c.save();
    c.beginPath();
    c.rect(0, TOP, width, height - TOP);
    c.clip();
    this.drawLanes(c);
    c.restore();
    this.drawAxis(c);
    this.drawStrip(c);
    this.drawGapWords(c);
    this.drawNow(c);
    this.drawBrush(c);
    this.drawScrollbar(c);
    if (document.activeElement === this.canvas && this.canvas.matches(":focus-visible")) {
      c.strokeStyle = this.palette.selection;
      c.lineWidth = 2;
      c.strokeRect(2, 2, width - 4, height - 4);
    }
  }

  private drawAxis(c: CanvasRenderingContext2D): void {
    const p = this.palette;
    const font = `11px ${p.font}`;
    const begin = Math.max(this.scale.from, this.toTime(this.gutter));
    const end = Math.min(this.scale.to, this.toTime(this.gutter + this.plotWidth));
    const visible = this.scale.gaps.reduce(
      (sum, gap) => sum - Math.max(0, Math.min(gap.to, end) - Math.max(gap.from, begin)),
      end - begin,
    );
    const step = tickStep((visible / 1000) * (84 / this.plotWidth)) * 1000;
    c.font = font;
    c.textBaseline = "middle";
    c.strokeStyle = p.line;
    c.lineWidth = 1;
    c.beginPath();
    let reached = this.gutter - 40;
    const nowX = this.toX(this.shownNow);
    const first = Math.ceil((begin - this.scale.from) / step) * step;
    for (
      let passed = first, drawn = 0;
      this.scale.from + passed <= end && drawn < 400;
      passed += step, drawn++
    ) {
      const time = this.scale.from + passed;
      const gap = this.scale.gaps.find((each) => time > each.from && time < each.to);
      if (gap) {
        passed = Math.max(passed, Math.floor((gap.to - this.scale.from) / step) * step);
        if (this.scale.from + passed < gap.to) continue;
      }
      const x = Math.round(this.toX(this.scale.from + passed)) + 0.5;
      if (x - reached < 56) continue;
      reached = x;
      c.moveTo(x, AXIS - 5);
      c.lineTo(x, this.surface.height);
      if (!this.data.endedAt && Math.abs(x + 18 - nowX) < 46) continue; // the word "now" stands there
      const label = axisLabel(passed / 1000, (this.scale.to - this.scale.from) / 1000, step / 1000);
      if (x + 4 + this.text.width(label, font) > this.surface.width) continue;
      c.font = font;
      c.fillStyle = p.ink3;
      c.fillText(label, x + 4, AXIS / 2);
    }
    c.globalAlpha = 0.75;
    c.globalCompositeOperation = "destination-over";
    c.stroke();
    c.globalCompositeOperation = "source-over";
    c.globalAlpha = 1;
  }

  private drawStrip(c: CanvasRenderingContext2D): void {
    const p = this.palette;
    const { cap } = this.data;
    // A limit that is far away would press the steps flat; then only the words name it.
    const isNear = cap !== null && cap <= 2 * this.highest;
    const top = isNear ? Math.max(this.highest, cap) : this.highest;
    const bottom = AXIS + STRIP;
    const toY = (count: number) => bottom - (count / top) * (STRIP - 6);
    const right = this.gutter + this.plotWidth;
    c.save();
    c.beginPath();
    c.rect(this.gutter, AXIS, this.plotWidth, STRIP + 1);
    c.clip();
    c.beginPath();
    c.moveTo(this.gutter, bottom);
    const { at, count } = this.strip;
    let y = bottom;
    let lastX = Number.NEGATIVE_INFINITY;
    for (let i = 0; i < at.length; i++) {
      const x = this.toX(at[i]!);
      if (x > right) break;
      // Steps narrower than half a pixel are not seen; the last of them counts.
      if (x - lastX > 0.5 || i + 1 === at.length) {
        c.lineTo(x, y);
        lastX = x;
      }
      y = toY(count[i]!);
      c.lineTo(Math.max(x, lastX), y);
    }
    c.lineTo(Math.min(right, this.toX(this.shownNow)), y);
    c.lineTo(Math.min(right, this.toX(this.shownNow)), bottom);
    c.closePath();
    c.fillStyle = p.running;
    c.globalAlpha = 0.22;
    c.fill();
    c.globalAlpha = 0.8;
    c.strokeStyle = p.running;
    c.lineWidth = 1;
    c.stroke();
    c.globalAlpha = 1;
    if (isNear) {
      c.setLineDash([3, 3]);
      c.strokeStyle = p.ink3;
      c.beginPath();
      c.moveTo(this.gutter, Math.round(toY(cap)) + 0.5);
      c.lineTo(right, Math.round(toY(cap)) + 0.5);
      c.stroke();
      c.setLineDash([]);
    }
    c.restore();
    c.strokeStyle = p.line;
    c.beginPath();
    c.moveTo(0, bottom + 0.5);
    c.lineTo(this.surface.width, bottom + 0.5);
    c.stroke();
    c.font = `11px ${p.font}`;
    c.fillStyle = p.ink2;
    c.textBaseline = "middle";
    c.fillText("in parallel", 12, AXIS + 10);
    c.fillStyle = p.ink3;
    const words = !this.strip.at.length
      ? ""
      : cap
        ? `peak ${this.highest}, limit ${cap}`
        : `peak ${this.highest}`;
    const font = `11px ${p.font}`;
    const fitting = this.text.fit(words, font, this.gutter - 14);
    c.font = font;
    c.fillText(fitting, 12, AXIS + 25);
  }

  private drawLanes(c: CanvasRenderingContext2D): void {
    const p = this.palette;
    const { height, width } = this.surface;
    const labelFont = `12px ${p.font}`;
    this.lanes.forEach(({ lane, top }, number) => {
      const y = TOP + top - this.scroll;
      const tall = lane.rows.length * ROW;
      if (y > height || y + tall + LANE_GAP < TOP) return;
      if (this.mode !== "task" && number) {
        c.strokeStyle = p.line;
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(0, Math.round(y - LANE_GAP / 2) + 0.5);
        c.lineTo(width, Math.round(y - LANE_GAP / 2) + 0.5);
        c.stroke();
      }
      const isSelected = this.mode === "task" && lane.key === this.selected;
      if (isSelected) {
        c.fillStyle = p.line;
        c.globalAlpha = 0.5;
        c.fillRect(0, y, width, tall);
        c.globalAlpha = 1;
      }
      c.font = labelFont;
      c.textBaseline = "middle";
      c.fillStyle = lane.key === "" || lane.rows[0]?.[0]?.isSystem ? p.ink3 : p.ink2;
      const about = this.mode === "task" ? this.tasks.get(lane.key)?.description : undefined;
      const label = this.text.fit(nameOf(taskName(lane.label), about), labelFont, this.gutter - 22);
      c.font = labelFont;
      // Of a tall lane the label stays in sight.
      c.fillText(label, 12, clamp(TOP + ROW / 2, y + ROW / 2, y + tall - ROW / 2));
      c.save();
      c.beginPath();
      c.rect(this.gutter - 1, Math.max(TOP, y), width - this.gutter + 1, tall);
      c.clip();
      lane.rows.forEach((row, at) => {
        const rowY = y + at * ROW;
        if (rowY < height && rowY + ROW > TOP) this.drawRow(c, row, rowY);
      });
      c.restore();
    });
  }

  private drawRow(c: CanvasRenderingContext2D, row: Bar[], y: number): void {
    const right = this.gutter + this.plotWidth + RIGHT;
    let lastX = Number.NEGATIVE_INFINITY;
    for (let i = this.firstVisible(row); i < row.length; i++) {
      const bar = row[i]!;
      const x = this.toX(bar.start);
      if (x > right) break;
      const end = Math.max(x + 1, this.toX(bar.end));
      // Bars that fall on one pixel are one bar, unless one of them matters more.
      if (end - lastX < 0.8 && bar.state === "done" && bar.asksUntil === null && bar.owner !== this.selected)
        continue;
      lastX = end;
      this.drawBar(c, bar, x, end, y);
    }
  }

  /** Bars of a row do not overlap, so their ends are ordered too. */
  private firstVisible(row: Bar[]): number {
    const begin = this.toTime(this.gutter);
    let low = 0;
    let high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const bar = row[middle]!;
      if (Math.max(bar.end, bar.expectedEnd ?? 0, bar.asksUntil ?? 0) < begin) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private drawBar(c: CanvasRenderingContext2D, bar: Bar, x: number, end: number, y: number): void {
    const p = this.palette;
    const style = boxStyle(bar.state, p);
    const isExpected = bar.outcome === "expected";
    const top = y + (ROW - BAR) / 2 - 1;
    const isDim = this.selected !== null && bar.owner !== this.selected;
    c.globalAlpha = isDim ? 0.55 : 1;
    if (bar.asksUntil !== null) this.drawAsking(c, bar, end, this.toX(bar.asksUntil), top);
    if (bar.isSuperseded && bar.owner !== this.selected && bar !== this.hovered) {
      // The supervisor's own finished work is grey, and as slim as this it needs a darker one to be seen.
      c.fillStyle = bar.isSystem && bar.state === "done" ? p.waiting : style.border || style.fill;
      const left = Math.round(x);
      c.fillRect(left, Math.round(top + (BAR - SLIM) / 2), Math.max(2, Math.round(end) - left - 1), SLIM);
      c.globalAlpha = 1;
      return;
    }
    if (end - x < 5 && bar.owner !== this.selected && bar !== this.hovered) {
      // Thousands of them may be in view: no corners, no dashes, no lines.
      const w = Math.max(1, end - x - 0.5);
      if (isExpected) {
        // Hollow: what has not happened is never solid.
        c.fillStyle = p.ready;
        c.fillRect(x, top, w, 1);
        c.fillRect(x, top + BAR - 1, w, 1);
      } else {
        c.fillStyle = style.fill;
        c.fillRect(x, top, w, BAR);
      }
      c.globalAlpha = 1;
      return;
    }
    const bottom = Math.round(top + BAR + 1.5) + 0.5;
    if (bar.readyAt < bar.start - 1 && this.toX(bar.readyAt) < x - 2) {
      c.strokeStyle = p.ready;
      c.lineWidth = 1;
      c.beginPath();
      c.moveTo(this.toX(bar.readyAt), bottom - 3);
      c.lineTo(this.toX(bar.readyAt), bottom);
      c.lineTo(x, bottom);
      c.lineTo(x, bottom - 3);
      c.stroke();
    }
    if (bar.expectedEnd !== null && !isExpected)
      this.drawExpected(c, end, this.toX(bar.expectedEnd), top, stroke(style));
    if (isExpected) this.drawExpected(c, x, end, top, p.ready);
    else {
      const w = Math.max(1.5, end - x - (end - x > 6 ? 1 : 0));
      c.beginPath();
      c.roundRect(x, top, w, BAR, Math.min(3, w / 2));
      c.fillStyle = bar.isSystem && bar.state === "done" ? p.line : style.fill;
      c.fill();
      if (style.border) {
        c.strokeStyle = style.border;
        c.lineWidth = 1;
        c.stroke();
      }
      if (w > 24) this.drawTools(c, bar, x, w, top, style);
      this.outline(c, bar, x, top, w);
    }
    this.drawName(
      c,
      bar,
      x,
      end,
      top,
      isExpected ? p.ink3 : bar.isSystem && bar.state === "done" ? p.ink2 : style.text,
    );
    c.globalAlpha = 1;
  }

  /** The time in which a person was asked: a pale box to the moment of the next attempt, orange while it goes on. */
  private drawAsking(c: CanvasRenderingContext2D, bar: Bar, x: number, end: number, top: number): void {
    const w = end - x - 1;
    if (w < 1) return;
    const p = this.palette;
    const isOpen = bar.state === "needs";
    const colour = isOpen ? p.needs : p.ready;
    const alpha = c.globalAlpha;
    c.beginPath();
    c.roundRect(x + 0.5, top + 0.5, w, BAR - 1, Math.min(3, w / 2));
    c.fillStyle = p.panel;
    c.fill();
    c.globalAlpha = alpha * 0.16;
    c.fillStyle = colour;
    c.fill();
    c.globalAlpha = alpha;
    c.strokeStyle = colour;
    c.lineWidth = 1;
    c.stroke();
    const font = `11px ${p.font}`;
    const words = `${taskName(bar.task)} ${isOpen ? "asks" : "asked"} a person`;
    if (w < 60) return;
    const fitting = this.text.fit(words, font, w - 10);
    c.font = font;
    c.fillStyle = p.ink;
    c.textBaseline = "middle";
    c.fillText(fitting, x + 6, top + BAR / 2 + 0.5);
  }

  private outline(c: CanvasRenderingContext2D, bar: Bar, x: number, top: number, w: number): void {
    const p = this.palette;
    const isChosen = bar.owner === this.selected || bar === this.hovered;
    if (!isChosen && !(this.critical.has(bar.owner) && !bar.isSuperseded)) return;
    if (w < 5 && !isChosen) return;
    c.strokeStyle = isChosen ? p.selection : p.ink;
    c.lineWidth = 2;
    c.beginPath();
    c.roundRect(x + 0.5, top, Math.max(2, w - 1), BAR, 3);
    c.stroke();
  }

  private drawExpected(
    c: CanvasRenderingContext2D,
    x: number,
    end: number,
    top: number,
    colour: string,
  ): void {
    if (end - x < 2) return;
    c.strokeStyle = colour;
    c.lineWidth = 1;
    c.setLineDash([4, 3]);
    c.beginPath();
    c.roundRect(x + 0.5, top + 0.5, end - x - 2, BAR - 1, 3);
    c.stroke();
    c.setLineDash([]);
  }

  /** Notches along the lower edge: the time that tools took. */
  private drawTools(
    c: CanvasRenderingContext2D,
    bar: Bar,
    x: number,
    w: number,
    top: number,
    style: BoxStyle,
  ): void {
    const [past, heard] = [this.pastTools.get(keyOf(bar)) ?? [], this.heard.tools.get(keyOf(bar)) ?? []];
    const spans = heard.length > past.length ? heard : past;
    if (!spans.length) return;
    c.fillStyle = style.text;
    const alpha = c.globalAlpha;
    c.globalAlpha = alpha * 0.5;
    for (let at = 0; at < spans.length; at += 2) {
      const from = Math.max(x, this.toX(spans[at]!));
      const to = Math.min(x + w, this.toX(spans[at + 1]!));
      if (to > from) c.fillRect(from, top + BAR - 4, Math.max(1, to - from), 4);
    }
    c.globalAlpha = alpha;
  }

  private drawName(
    c: CanvasRenderingContext2D,
    bar: Bar,
    x: number,
    end: number,
    top: number,
    ink: string,
  ): void {
    const from = Math.max(x, this.gutter) + 5;
    let room = end - from - 5;
    if (room < 14) return;
    const font = `11px ${this.palette.font}`;
    let left = from;
    if (bar.state !== "done" && bar.outcome !== "expected") {
      drawIcon(c, bar.state, from + 4, top + BAR / 2, 4, ink);
      left += 13;
      room -= 13;
    }
    const again = bar.earlier && room > 60 ? `  try ${bar.attempt}` : "";
    const name =
      this.mode === "task"
        ? duration((bar.end - bar.start) / 1000)
        : bar.isSystem
          ? taskName(bar.task)
          : nameOf(bar.task, this.tasks.get(bar.owner)?.description);
    const words = this.text.fit(name + again, font, room);
    c.font = font;
    c.fillStyle = ink;
    c.textBaseline = "middle";
    c.fillText(words, left, top + BAR / 2 + 0.5);
  }

  private drawGaps(c: CanvasRenderingContext2D): void {
    const p = this.palette;
    for (const gap of this.scale.gaps) {
      const [from, to] = [this.toX(gap.from), this.toX(gap.to)];
      if (to < this.gutter || from > this.gutter + this.plotWidth) continue;
      const left = Math.max(from, this.gutter) + 1;
      c.fillStyle = p.bg;
      c.fillRect(left, AXIS, to - left - 1, this.surface.height - AXIS);
      c.save();
      c.beginPath();
      c.rect(left, AXIS, to - left - 1, this.surface.height - AXIS);
      c.clip();
      c.lineWidth = 1;
      c.beginPath();
      if (gap.isExpected) {
        // Dashed like all that is to come, where the past is hatched.
        c.strokeStyle = p.ready;
        c.setLineDash([4, 3]);
        for (const x of [left + 0.5, to - 1.5]) {
          c.moveTo(x, AXIS);
          c.lineTo(x, this.surface.height);
        }
      } else {
        c.strokeStyle = p.line;
        for (let y = AXIS - (to - left); y < this.surface.height; y += 7) {
          c.moveTo(left, y + (to - left));
          c.lineTo(to, y);
        }
      }
      c.stroke();
      c.setLineDash([]);
      c.restore();
    }
  }

  /** What the gaps are, over what is drawn in them: a person may have been asked meanwhile. */
  private drawGapWords(c: CanvasRenderingContext2D): void {
    const p = this.palette;
    const font = `11px ${p.font}`;
    for (const gap of this.scale.gaps) {
      const [left, to] = [Math.max(this.toX(gap.from), this.gutter) + 1, this.toX(gap.to)];
      if (to - left < LEAST_GAP / 2 || left > this.gutter + this.plotWidth) continue;
      const words = idleWords(gap);
      c.save();
      c.translate((left + to) / 2, TOP + 8);
      c.rotate(Math.PI / 2);
      c.font = font;
      c.fillStyle = p.bg;
      c.fillRect(-3, -8, this.text.width(words, font) + 6, 16);
      c.font = font;
      c.fillStyle = p.ink3;
      c.textBaseline = "middle";
      c.fillText(words, 0, 0.5);
      c.restore();
    }
  }

  /** A tint over all that has not happened yet. */
  private drawFuture(c: CanvasRenderingContext2D): void {
    if (this.data.endedAt) return;
    const left = Math.max(this.gutter, this.toX(this.shownNow));
    const right = this.gutter + this.plotWidth + RIGHT;
    if (left >= right) return;
    c.fillStyle = this.palette.line;
    c.globalAlpha = 0.35;
    c.fillRect(left, AXIS, right - left, this.surface.height - AXIS);
    c.globalAlpha = 1;
  }

  private drawNow(c: CanvasRenderingContext2D): void {
    if (this.data.endedAt) return;
    const x = Math.round(this.toX(this.shownNow)) + 0.5;
    if (x < this.gutter || x > this.gutter + this.plotWidth + RIGHT) return;
    const p = this.palette;
    c.strokeStyle = p.ink;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, AXIS - 4);
    c.lineTo(x, this.surface.height);
    c.stroke();
    const font = `600 11px ${p.font}`;
    const w = this.text.width("now", font) + 10;
    const left = clamp(x - w / 2, this.gutter, this.surface.width - w - 2);
    c.fillStyle = p.ink;
    c.beginPath();
    c.roundRect(left, 3, w, 16, 4);
    c.fill();
    c.font = font;
    c.fillStyle = p.panel;
    c.textBaseline = "middle";
    c.fillText("now", left + 5, 11.5);
  }

  private drawBrush(c: CanvasRenderingContext2D): void {
    if (!this.brush) return;
    const p = this.palette;
    const left = Math.max(this.gutter, this.toX(this.brush.from));
    const right = Math.min(this.gutter + this.plotWidth, this.toX(this.brush.to));
    if (right <= left) return;
    c.fillStyle = p.selection;
    c.globalAlpha = 0.1;
    c.fillRect(left, AXIS, right - left, this.surface.height - AXIS);
    c.globalAlpha = 1;
    c.strokeStyle = p.selection;
    c.lineWidth = 1;
    c.strokeRect(left + 0.5, AXIS + 0.5, right - left - 1, this.surface.height - AXIS - 1);
    const font = `600 11px ${p.font}`;
    const words = duration((this.brush.to - this.brush.from) / 1000);
    const w = this.text.width(words, font) + 10;
    const x = clamp((left + right - w) / 2, this.gutter, this.surface.width - w);
    c.fillStyle = p.selection;
    c.beginPath();
    c.roundRect(x, 3, w, 16, 4);
    c.fill();
    c.font = font;
    c.fillStyle = p.onSolid;
    c.textBaseline = "middle";
    c.fillText(words, x + 5, 11.5);
  }

  private drawScrollbar(c: CanvasRenderingContext2D): void {
    const most = this.mostScroll();
    if (!most) return;
    const room = this.surface.height - TOP - 4;
    const size = Math.max(24, (room / (this.lanesHeight + 8)) * room);
    c.fillStyle = this.palette.waiting;
    c.globalAlpha = 0.7;
    c.beginPath();
    c.roundRect(this.surface.width - 7, TOP + 2 + (this.scroll / most) * (room - size), 5, size, 2.5);
    c.fill();
    c.globalAlpha = 1;
  }

  /** One sentence about a task's last attempt, for a live region. */
  describe(task: string): string {
    const bar = this.bars.findLast((each) => each.owner === task && each.outcome !== "expected");
    if (!bar) return "";
    const waited =
      bar.start - bar.readyAt > 1 ? `, waited ${duration((bar.start - bar.readyAt) / 1000)}` : "";
    return `${taskName(task)}: ${STATE_WORDS[bar.state]}, ${duration((bar.end - bar.start) / 1000)} on ${workerName(bar.worker)}${waited}`;
  }
}

/** What a collapsed gap says. */
function idleWords(gap: Gap): string {
  const long = duration((gap.to - gap.from) / 1000);
  return gap.isExpected ? `about ${long} idle, expected` : `${long} idle`;
}

/** Whether the call has ended, and so was added. */
function addTool(tools: ToolTimes, call: Call): boolean {
  if (call.seconds === null) return false;
  const start = Date.parse(call.started_at);
  const list = tools.get(keyOf(call));
  if (list) list.push(start, start + call.seconds * 1000);
  else tools.set(keyOf(call), [start, start + call.seconds * 1000]);
  return true;
}

function keyOf(each: { task: string; attempt: number }): string {
  return `${each.attempt}\n${each.task}`;
}

function stroke(style: BoxStyle): string {
  return style.border || style.fill;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}

/** Ticks are round numbers, so no rounding here: 1 h 5 min, 90 s, 250 ms. */
