// The plan as a graph on a canvas, left to right.
//
//   const graph = new Graph(canvas, { onSelect, onHover, onOpen, onFollow });
//   graph.setData({ tasks, criticalPath, estimates, items });   // a snapshot, or another plan
//   graph.update(changedTasks, { criticalPath?, estimates?, items? });   // live: costs what changed
//   graph.select(taskId | null);  graph.follow(on);  graph.setFold(on | null);  graph.showCritical(on);
//   graph.setFilter(predicate | null);  graph.setTheme();  graph.fit();  graph.zoomBy(1.2);  graph.destroy();
//
// Keys of the page: j k h l → move("next" | "previous" | "needs" | "unblocks"), ] [ → openStack() foldStack(),
// c → showCritical, f → follow, 0 → fit, Enter → openSelected(), Esc → select(null). Arrow keys work while the
// canvas has the focus. Ids are always those of tasks: a click on a stack selects its most urgent task.
// `describe(id)` is a sentence for the live region. `ready` resolves once there is a layout. The performance entries
// `graph-layout` and `graph-shown` are for measuring.
import {
  boxStyle,
  drawIcon,
  isLive,
  nameOf,
  type Palette,
  plainText,
  prefersStill,
  readPalette,
  STATE_WORDS,
  STATES,
  Surface,
  shownSeconds,
  stateColour,
  TextFit,
} from "./drawing";
import { FOLD_ABOVE, type Folded, type FoldNode, foldTasks } from "./fold";
import { duration } from "./format";
import { type Layout, type LayoutInput, layoutGraph, NODE_WIDTH, routeOf, viewStart } from "./layout";
import type { ItemCounts, TaskRow, TaskState } from "./types";

export interface GraphFacts {
  criticalPath: string[];
  /** Expected seconds by task. */
  estimates: Record<string, number>;
  items: Record<string, ItemCounts>;
}

export interface GraphData extends GraphFacts {
  tasks: TaskRow[];
}

export interface GraphOptions {
  onSelect?: (task: string | null) => void;
  /** With the place of the pointer, relative to the canvas. */
  onHover?: (task: string | null, x: number, y: number) => void;
  /** Double click or Enter on a single task. */
  onOpen?: (task: string) => void;
  /** Panning by hand ends following. */
  onFollow?: (on: boolean) => void;
  /** Milliseconds; replay hands in its own. */
  now?: () => number;
}

const NODE_HEIGHT = 44;
const STACK_HEIGHT = 56;
const RADIUS = 6;
/** From these zooms on: names; names and facts. */
const NAMES_FROM = 0.4;
const FACTS_FROM = 0.88;
const READABLE = 0.9;
const LARGEST = 2.5;
const MARGIN = 32;
const IN_WORKER_ABOVE = 3000;
const MINIMAP = { width: 168, height: 96, margin: 12 };

/** What a box shows, kept up to date task by task. */
interface Box {
  node: FoldNode;
  /** The only task of it, or the first of its stack; of a box that is about to go, as it was last. */
  first: TaskRow;
  title: string;
  state: TaskState;
  /** Tasks of a stack, or items of a mapped task, by state; null: a single task. */
  counts: Partial<Record<TaskState, number>> | null;
  total: number;
  isCritical: boolean;
  isDim: boolean;
}

/** What is drawn: the boxes and their edges; the layout says where. */
interface Picture {
  folded: Folded;
  boxes: Box[];
  input: LayoutInput;
  /** Nothing of the last picture is worth keeping in place or in view. */
  isAnother: boolean;
}

export class Graph {
  readonly ready: Promise<void>;
  private readonly surface: Surface;
  private readonly text: TextFit;
  private palette: Palette;
  private tasks = new Map<string, TaskRow>();
  private facts: GraphFacts = { criticalPath: [], estimates: {}, items: {} };
  private critical = new Set<string>();
  private folded: Folded = { nodes: [], edges: [], nodeOf: new Map() };
  private boxes: Box[] = [];
  private layout: Layout | null = null;
  private readonly openStacks = new Set<string>();
  private foldChoice: boolean | null = null;
  private filter: ((task: TaskRow) => boolean) | null = null;
  private selected: string | null = null;
  private hovered = -1;
  private isFollowing = false;
  private isCriticalShown = true;
  private view = { x: 0, y: 0, zoom: 1 };
  private isPlaced = false;
  private isShown = false;
  private worker: Worker | null = null;
  /** The picture that the worker lays out now, and the newest one that waits for it. */
  private inWork: Picture | null = null;
  private job = 0;
  private next: Picture | null = null;
  private glide = 0;
  private minimap: HTMLCanvasElement | null = null;
  private isMinimapStale = true;
  private clock = 0;
  private markReady: () => void = () => {};
  private readonly off = new AbortController();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly options: GraphOptions = {},
  ) {
    this.ready = new Promise((resolve) => {
      this.markReady = resolve;
    });
    this.surface = new Surface(
      canvas,
      () => this.draw(),
      () => this.showFirst(),
    );
    this.text = new TextFit(this.surface.context);
    this.palette = readPalette(canvas);
    if (canvas.tabIndex < 0) canvas.tabIndex = 0;
    this.listen();
    // Running times grow: once a second, and only while something runs.
    this.clock = window.setInterval(() => {
      if (this.boxes.some((box) => box.state === "running")) this.surface.invalidate();
    }, 1000);
  }

  setData(data: GraphData): void {
    this.tasks = new Map(data.tasks.filter((task) => !task.system).map((task) => [task.id, task]));
    this.takeFacts(data);
    this.rebuild();
  }

  update(changed: readonly TaskRow[], facts: Partial<GraphFacts> = {}): void {
    const stale = new Set<number>();
    let isReshaped = false;
    // While a newer picture is laid out, the one before is drawn: what is new is new to neither twice.
    const newest = (this.next ?? this.inWork)?.folded.nodeOf;
    for (const task of changed) {
      if (task.system) continue;
      const before = this.tasks.get(task.id);
      this.tasks.set(task.id, task);
      const at = this.folded.nodeOf.get(task.id);
      const isKnown = newest ? newest.has(task.id) : at !== undefined;
      if (!before || !isKnown || !isSameShape(before, task)) isReshaped = true;
      else if (at !== undefined) stale.add(at);
    }
    if (facts.items) for (const id of Object.keys(facts.items)) stale.add(this.folded.nodeOf.get(id) ?? -1);
    const isPathNew = this.takeFacts(facts);
    if (isReshaped) this.rebuild();
    else {
      if (isPathNew) for (let at = 0; at < this.boxes.length; at++) stale.add(at);
      for (const at of stale) if (at >= 0) this.refresh(at);
      this.isMinimapStale = true;
      if (this.isFollowing) this.glideToFrontier();
      this.surface.invalidate();
    }
  }

  select(task: string | null): void {
    if (task === this.selected) return;
    this.selected = task;
    this.surface.invalidate();
    if (task !== null) this.reveal(task);
  }

  /** Keep the work in view as it moves on. */
  follow(on: boolean): void {
    this.isFollowing = on;
    if (on) this.glideToFrontier();
  }

  /** null: fold plans of more than 80 tasks. */
  setFold(on: boolean | null): void {
    const before = this.isFolding;
    this.foldChoice = on;
    if (this.isFolding === before && !this.openStacks.size) return;
    this.openStacks.clear();
    this.rebuild(true);
    if (this.selected !== null) this.reveal(this.selected);
  }

  get isFolding(): boolean {
    return this.foldChoice ?? this.tasks.size > FOLD_ABOVE;
  }

  showCritical(on: boolean): void {
    this.isCriticalShown = on;
    this.surface.invalidate();
  }

  /** Tasks that do not fit the filter fade. Returns how many fit. */
  setFilter(filter: ((task: TaskRow) => boolean) | null): number {
    this.filter = filter;
    this.boxes.forEach((_, at) => {
      this.refresh(at);
    });
    this.surface.invalidate();
    return filter ? [...this.tasks.values()].filter(filter).length : this.tasks.size;
  }

  setTheme(): void {
    this.palette = readPalette(this.canvas);
    this.isMinimapStale = true;
    this.surface.invalidate();
  }

  fit(): void {
    this.leaveFollowing();
    this.moveTo(this.viewOfAll());
  }

  zoomBy(factor: number): void {
    this.leaveFollowing();
    this.zoomAt(this.surface.width / 2, this.surface.height / 2, factor);
  }

  move(where: "next" | "previous" | "needs" | "unblocks"): void {
    if (!this.boxes.length || !this.layout) return;
    const at = this.selected === null ? undefined : this.folded.nodeOf.get(this.selected);
    if (at === undefined) this.choose(this.frontier()[0] ?? 0);
    else if (where === "needs" || where === "unblocks") this.moveAlong(at, where);
    else {
      const order = this.readingOrder();
      const place = order.indexOf(at) + (where === "next" ? 1 : -1);
      this.choose(order[Math.min(Math.max(place, 0), order.length - 1)]!);
    }
  }

  openSelected(): void {
    if (this.selected === null) return;
    const at = this.folded.nodeOf.get(this.selected);
    if (at === undefined) return;
    if (this.boxes[at]!.node.members.length > 1) this.openStack();
    else this.options.onOpen?.(this.selected);
  }

  openStack(): void {
    const box = this.selectedBox();
    if (!box || box.node.members.length < 2) return;
    this.openStacks.add(box.node.id);
    this.rebuild();
    if (this.selected) this.reveal(this.selected);
  }

  foldStack(): void {
    if (this.selected === null || !this.openStacks.size) return;
    const whole = foldTasks([...this.tasks.values()], { on: this.isFolding });
    const at = whole.nodeOf.get(this.selected);
    if (at === undefined || !this.openStacks.delete(whole.nodes[at]!.id)) return;
    this.rebuild();
    this.reveal(this.selected);
  }

  /** One sentence about a task, for the live region. */
  describe(id: string): string {
    const task = this.tasks.get(id);
    if (!task) return "";
    const unblocks = [...this.tasks.values()].filter((each) => each.needs.includes(id)).length;
    const seconds = this.secondsOf(task);
    const took = seconds === null ? "" : `, ${duration(seconds)}`;
    return `${plainText(task.id)}, ${STATE_WORDS[task.state]}${took}, worker ${plainText(task.worker)}, needs ${task.needs.length}, unblocks ${unblocks}`;
  }

  get frameTime(): number {
    return this.surface.lastFrame;
  }

  destroy(): void {
    this.off.abort();
    this.surface.destroy();
    this.worker?.terminate();
    window.clearInterval(this.clock);
    cancelAnimationFrame(this.glide);
  }

  // Data

  private takeFacts(facts: Partial<GraphFacts>): boolean {
    if (facts.estimates) this.facts.estimates = facts.estimates;
    if (facts.items) this.facts.items = facts.items;
    if (!facts.criticalPath || facts.criticalPath.join("\n") === this.facts.criticalPath.join("\n"))
      return false;
    this.facts.criticalPath = facts.criticalPath;
    this.critical = new Set(facts.criticalPath);
    return true;
  }

  private rebuild(isAnother = false): void {
    const folded = foldTasks([...this.tasks.values()], { on: this.isFolding, open: this.openStacks });
    const boxes = folded.nodes.map((node): Box => {
      const first = this.tasks.get(node.members[0]!)!;
      const title = titleOf(node, this.tasks);
      return {
        node,
        first,
        title,
        state: "waiting",
        counts: null,
        total: 0,
        isCritical: false,
        isDim: false,
      };
    });
    const heights = boxes.map(({ node, first }) =>
      node.members.length > 1 || first.for_each ? STACK_HEIGHT : NODE_HEIGHT,
    );
    const isSmall = boxes.length <= IN_WORKER_ABOVE;
    const isApart = isAnother || !!this.next?.isAnother || (isSmall && !!this.inWork?.isAnother);
    const previous = isApart ? undefined : (this.layout ?? undefined);
    const input = { ids: boxes.map((box) => box.node.id), heights, edges: folded.edges, previous };
    const picture = { folded, boxes, input, isAnother: isApart };
    this.next = null;
    if (isSmall) {
      this.inWork = null;
      const began = performance.now();
      this.adopt(picture, layoutGraph(input), began);
    } else this.layoutBeside(picture);
  }

  /** Lay a large picture out in the worker. The one before is drawn until then; of several, only the newest waits. */
  private layoutBeside(picture: Picture): void {
    if (this.inWork) {
      this.next = picture;
      return;
    }
    const began = performance.now();
    const job = ++this.job;
    this.inWork = picture;
    const done = (layout: Layout) => {
      if (this.inWork !== picture) return; // a small picture was laid out at once, meanwhile
      const next = this.next;
      this.inWork = this.next = null;
      this.adopt(picture, layout, began);
      const previous = next?.isAnother ? undefined : layout;
      if (next) this.layoutBeside({ ...next, input: { ...next.input, previous } });
    };
    this.worker ??= new Worker(new URL("./layout_worker.ts", import.meta.url), { type: "module" });
    this.worker.onmessage = (message: MessageEvent<{ job: number; layout: Layout }>) => {
      if (message.data.job === job) done(message.data.layout);
    };
    this.worker.onerror = () => done(layoutGraph(picture.input));
    this.worker.postMessage({ job, input: picture.input });
  }

  private adopt(picture: Picture, layout: Layout, began: number): void {
    performance.clearMeasures("graph-layout");
    performance.measure("graph-layout", { start: began });
    this.folded = picture.folded;
    this.boxes = picture.boxes;
    this.layout = layout;
    this.boxes.forEach((_, at) => {
      this.refresh(at);
    });
    this.hovered = -1;
    this.isMinimapStale = true;
    if (picture.isAnother) this.isPlaced = false;
    this.showFirst();
    if (this.isFollowing) this.glideToFrontier();
    this.surface.invalidate();
  }

  private refresh(at: number): void {
    const box = this.boxes[at]!;
    const members = box.node.members;
    // A task that was removed from the plan is drawn as it was until the new layout is there.
    if (members.some((id) => !this.tasks.has(id))) return;
    const first = this.tasks.get(members[0]!)!;
    box.first = first;
    const items = members.length === 1 ? this.facts.items[first.id] : undefined;
    box.isCritical = members.some((id) => this.critical.has(id));
    box.isDim = !!this.filter && !members.some((id) => this.filter?.(this.tasks.get(id)!));
    if (members.length > 1) {
      const counts: Partial<Record<TaskState, number>> = {};
      for (const id of members) {
        const state = this.tasks.get(id)!.state;
        counts[state] = (counts[state] ?? 0) + 1;
      }
      box.counts = counts;
      box.total = members.length;
      box.state = mostUrgent(counts);
    } else if (first.for_each) {
      const { total = 0, done = 0, failed = 0, running = 0 } = items ?? {};
      box.counts = { done, failed, running, waiting: Math.max(0, total - done - failed - running) };
      box.total = total;
      box.state = first.state;
    } else {
      box.counts = null;
      box.total = 1;
      box.state = first.state;
    }
  }

  private secondsOf(task: TaskRow): number | null {
    return shownSeconds(task, this.options.now?.() ?? Date.now());
  }

  // Selection

  private selectedBox(): Box | undefined {
    if (this.selected === null) return undefined;
    const at = this.folded.nodeOf.get(this.selected);
    return at === undefined ? undefined : this.boxes[at];
  }

  private choose(at: number): void {
    const box = this.boxes[at]!;
    const isIn = this.selected !== null && box.node.members.includes(this.selected);
    const id = isIn ? this.selected : urgentMember(box.node, this.tasks);
    if (id !== this.selected) {
      this.selected = id;
      this.options.onSelect?.(id);
    }
    if (id) this.reveal(id);
    this.surface.invalidate();
  }

  private moveAlong(at: number, where: "needs" | "unblocks"): void {
    const { edges } = this.layout!;
    const side = where === "needs" ? 1 : 0;
    let best = -1;
    for (let e = 0; e < edges.length; e += 2) {
      if (edges[e + side] !== at) continue;
      const other = edges[e + 1 - side]!;
      if (best < 0 || this.rankForMove(other, at) < this.rankForMove(best, at)) best = other;
    }
    if (best >= 0) this.choose(best);
  }

  /** The critical path first, then the nearest in height. */
  private rankForMove(at: number, from: number): number {
    const { y } = this.layout!;
    return Math.abs(y[at]! - y[from]!) + (this.boxes[at]!.isCritical ? -1e6 : 0);
  }

  private readingOrder(): number[] {
    const { x, y } = this.layout!;
    return this.boxes.map((_, at) => at).sort((a, b) => x[a]! - x[b]! || y[a]! - y[b]!);
  }

  // View

  private showFirst(): void {
    if (this.isPlaced || !this.layout || !this.surface.width) return;
    this.isPlaced = this.boxes.length > 0;
    this.view = this.viewOfFrontier();
    this.surface.invalidate();
    this.markReady();
  }

  /** Boxes of live work; without any, of what comes next. */
  private frontier(): number[] {
    const inState = (...states: TaskState[]) => {
      const found: number[] = [];
      this.boxes.forEach((box, at) => {
        if (states.includes(box.state)) found.push(at);
      });
      return found;
    };
    for (const states of [
      ["needs", "running", "retrying"],
      ["ready"],
      ["failed"],
      ["waiting"],
    ] as TaskState[][]) {
      const found = inState(...states);
      if (found.length) return found;
    }
    return [];
  }

  private viewOfAll() {
    const { width, height } = this.surface;
    const layout = this.layout;
    if (!layout?.width || !width) return { x: -MARGIN, y: -MARGIN, zoom: 1 };
    const zoom = Math.min(1, (width - 2 * MARGIN) / layout.width, (height - 2 * MARGIN) / layout.height);
    return {
      zoom,
      x: layout.width / 2 - width / 2 / zoom,
      y: layout.height / 2 - height / 2 / zoom,
    };
  }

  /** All of it, if that can be read; else the frontier at a zoom that can. */
  private viewOfFrontier() {
    const all = this.viewOfAll();
    const { width, height } = this.surface;
    const layout = this.layout;
    if (!layout || all.zoom >= READABLE) return all;
    const live = this.frontier();
    if (!live.length && all.zoom >= NAMES_FROM) return all;
    const zoom = READABLE;
    // What needs a person comes first.
    const asking = live.filter((at) => this.boxes[at]!.state === "needs");
    const focus = this.crowdedSpot(
      asking.length ? asking : live.length ? live : [0],
      width / zoom,
      height / zoom,
    );
    // A column of what is done stays in sight on the left, most of the room is for what comes.
    const pad = MARGIN / 2 / zoom;
    const columns = layout.x.subarray(0, this.boxes.length);
    const x = viewStart(columns, layout.x[focus]!, width / zoom - 2 * pad, layout.width) - pad;
    let y = layout.y[focus]! - height / 2 / zoom;
    y = centredOr(y, layout.height, height / zoom, MARGIN / zoom);
    return { x, y, zoom };
  }

  /** The box around which most of the others fit into a view. Looks at two hundred of them at most. */
  private crowdedSpot(boxes: number[], width: number, height: number): number {
    const { x, y } = this.layout!;
    const some = boxes.filter((_, at) => at % Math.ceil(boxes.length / 200) === 0);
    let best = some[0]!;
    let most = -1;
    for (const at of some) {
      let near = 0;
      for (const other of some) {
        const right = x[other]! - x[at]!;
        if (right >= 0 && right < width * 0.6 && Math.abs(y[other]! - y[at]!) < height * 0.45) near++;
      }
      if (near > most) {
        most = near;
        best = at;
      }
    }
    return best;
  }

  private glideToFrontier(): void {
    if (!this.layout || !this.surface.width) return;
    const { width, height } = this.surface;
    const live = this.frontier();
    const asks = (at: number) => this.boxes[at]!.state === "needs";
    const inView = live.filter((at) => {
      const [x, y] = this.toScreen(this.layout!.x[at]!, this.layout!.y[at]!);
      return x > 0 && x + NODE_WIDTH * this.view.zoom < width && y > MARGIN && y < height - MARGIN;
    });
    const isAskingSeen = inView.some(asks) || !live.some(asks);
    if (live.length && inView.length * 2 >= live.length && isAskingSeen && this.view.zoom >= NAMES_FROM)
      return;
    this.moveTo(this.viewOfFrontier());
  }

  private moveTo(target: { x: number; y: number; zoom: number }): void {
    cancelAnimationFrame(this.glide);
    if (prefersStill() || document.hidden) {
      this.view = target;
      this.surface.invalidate();
      return;
    }
    const from = { ...this.view };
    const began = performance.now();
    const step = () => {
      const t = Math.min(1, (performance.now() - began) / 220);
      const ease = 1 - (1 - t) ** 3;
      this.view = {
        x: from.x + (target.x - from.x) * ease,
        y: from.y + (target.y - from.y) * ease,
        zoom: from.zoom + (target.zoom - from.zoom) * ease,
      };
      this.surface.invalidate();
      if (t < 1) this.glide = requestAnimationFrame(step);
    };
    step();
  }

  private reveal(id: string): void {
    const at = this.folded.nodeOf.get(id);
    if (at === undefined || !this.layout || !this.surface.width) return;
    const { width, height } = this.surface;
    const zoom = this.view.zoom < NAMES_FROM ? READABLE : this.view.zoom;
    const [x, y] = this.toScreen(this.layout.x[at]!, this.layout.y[at]!);
    const boxWidth = NODE_WIDTH * this.view.zoom;
    const isIn = x > 8 && x + boxWidth < width - 8 && y > MARGIN && y < height - MARGIN;
    if (isIn && zoom === this.view.zoom) return;
    this.moveTo({
      zoom,
      x: this.layout.x[at]! + NODE_WIDTH / 2 - width / 2 / zoom,
      y: this.layout.y[at]! - height / 2 / zoom,
    });
  }

  private toScreen(x: number, y: number): [number, number] {
    return [(x - this.view.x) * this.view.zoom, (y - this.view.y) * this.view.zoom];
  }

  private zoomAt(x: number, y: number, factor: number): void {
    cancelAnimationFrame(this.glide);
    const smallest = Math.min(0.3, this.viewOfAll().zoom * 0.8);
    const zoom = clamp(this.view.zoom * factor, smallest, LARGEST);
    this.view.x += x / this.view.zoom - x / zoom;
    this.view.y += y / this.view.zoom - y / zoom;
    this.view.zoom = zoom;
    this.surface.invalidate();
  }

  private panBy(dx: number, dy: number): void {
    cancelAnimationFrame(this.glide);
    this.view.x += dx / this.view.zoom;
    this.view.y += dy / this.view.zoom;
    const layout = this.layout;
    if (layout) {
      const [w, h] = [this.surface.width / this.view.zoom, this.surface.height / this.view.zoom];
      this.view.x = clamp(
        this.view.x,
        Math.min(0, layout.width - w) - w * 0.6,
        Math.max(0, layout.width - w) + w * 0.6,
      );
      this.view.y = clamp(
        this.view.y,
        Math.min(0, layout.height - h) - h * 0.6,
        Math.max(0, layout.height - h) + h * 0.6,
      );
    }
    this.surface.invalidate();
  }

  private leaveFollowing(): void {
    if (!this.isFollowing) return;
    this.isFollowing = false;
    this.options.onFollow?.(false);
  }

  // Pointer and keys

  private listen(): void {
    const { canvas } = this;
    const signal = this.off.signal;
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false, signal });
    canvas.addEventListener("keydown", (event) => this.onKey(event), { signal });
    canvas.addEventListener("focus", () => this.surface.invalidate(), { signal });
    canvas.addEventListener("blur", () => this.surface.invalidate(), { signal });
    canvas.addEventListener("dblclick", (event) => this.onDouble(event), { signal });
    canvas.addEventListener("pointerleave", () => this.hover(-1, 0, 0), { signal });
    this.listenToPointers(signal);
  }

  private listenToPointers(signal: AbortSignal): void {
    const { canvas } = this;
    const pointers = new Map<number, { x: number; y: number }>();
    let moved = 0;
    let isOnMap = false;
    const at = (event: PointerEvent) => {
      const rectangle = canvas.getBoundingClientRect();
      return { x: event.clientX - rectangle.left, y: event.clientY - rectangle.top };
    };
    canvas.addEventListener(
      "pointerdown",
      (event) => {
        if (event.button > 1) return;
        canvas.setPointerCapture(event.pointerId);
        const here = at(event);
        pointers.set(event.pointerId, here);
        moved = 0;
        isOnMap = this.panOnMinimap(here.x, here.y, false);
      },
      { signal },
    );
    canvas.addEventListener(
      "pointermove",
      (event) => {
        const here = at(event);
        const before = pointers.get(event.pointerId);
        if (!before) return this.hover(this.hit(here.x, here.y), here.x, here.y);
        pointers.set(event.pointerId, here);
        if (isOnMap) return void this.panOnMinimap(here.x, here.y, true);
        if (pointers.size === 2) {
          const other = [...pointers].find(([id]) => id !== event.pointerId)![1];
          const factor = distance(here, other) / Math.max(1, distance(before, other));
          moved = 100;
          this.leaveFollowing();
          this.zoomAt((here.x + other.x) / 2, (here.y + other.y) / 2, factor);
          return this.panBy((before.x - here.x) / 2, (before.y - here.y) / 2);
        }
        moved += Math.abs(here.x - before.x) + Math.abs(here.y - before.y);
        if (moved > 4) {
          this.leaveFollowing();
          this.panBy(before.x - here.x, before.y - here.y);
          canvas.style.cursor = "grabbing";
        }
      },
      { signal },
    );
    const up = (event: PointerEvent) => {
      if (!pointers.delete(event.pointerId)) return;
      canvas.style.cursor = "";
      if (event.type === "pointerup" && moved <= 4 && !isOnMap) {
        const here = at(event);
        this.click(this.hit(here.x, here.y));
      }
    };
    canvas.addEventListener("pointerup", up, { signal });
    canvas.addEventListener("pointercancel", up, { signal });
  }

  private click(at: number): void {
    if (at >= 0) this.choose(at);
    else if (this.selected !== null) {
      this.selected = null;
      this.options.onSelect?.(null);
      this.surface.invalidate();
    }
  }

  private onDouble(event: MouseEvent): void {
    if (this.hit(event.offsetX, event.offsetY) >= 0) this.openSelected();
  }

  private onWheel(event: WheelEvent): void {
    event.preventDefault();
    this.leaveFollowing();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? this.surface.height : 1;
    if (event.ctrlKey || event.metaKey) {
      const delta = clamp(event.deltaY * unit, -60, 60);
      this.zoomAt(event.offsetX, event.offsetY, Math.exp(-delta * 0.008));
      return;
    }
    const sideways = event.shiftKey && !event.deltaX;
    this.panBy((sideways ? event.deltaY : event.deltaX) * unit, (sideways ? 0 : event.deltaY) * unit);
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {
      ArrowDown: "next",
      ArrowUp: "previous",
      ArrowLeft: "needs",
      ArrowRight: "unblocks",
    } as const;
    const where = moves[event.key as keyof typeof moves];
    if (where) this.move(where);
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.25);
    else if (event.key === "-") this.zoomBy(0.8);
    else return;
    event.preventDefault();
  }

  private hover(at: number, x: number, y: number): void {
    const id = at < 0 ? null : urgentMember(this.boxes[at]!.node, this.tasks);
    if (at >= 0 || this.hovered >= 0) this.options.onHover?.(id, x, y);
    if (at === this.hovered) return;
    this.hovered = at;
    this.canvas.style.cursor = at >= 0 ? "pointer" : "";
    this.surface.invalidate();
  }

  private hit(x: number, y: number): number {
    const layout = this.layout;
    if (!layout) return -1;
    const worldX = x / this.view.zoom + this.view.x;
    const worldY = y / this.view.zoom + this.view.y;
    for (let at = 0; at < this.boxes.length; at++) {
      if (Math.abs(layout.y[at]! - worldY) > layout.heights[at]! / 2) continue;
      if (worldX >= layout.x[at]! && worldX <= layout.x[at]! + NODE_WIDTH) return at;
    }
    return -1;
  }

  // Drawing

  private draw(): void {
    const layout = this.layout;
    const c = this.surface.context;
    if (layout) {
      this.drawEdges(c, layout);
      this.drawBoxes(c, layout);
      this.drawMinimap(c, layout);
      if (!this.isShown) performance.mark("graph-shown");
      this.isShown = true;
    }
    if (document.activeElement === this.canvas && this.canvas.matches(":focus-visible")) {
      c.strokeStyle = this.palette.selection;
      c.lineWidth = 2;
      roundRect(c, 2, 2, this.surface.width - 4, this.surface.height - 4, RADIUS);
      c.stroke();
    }
  }

  private drawEdges(c: CanvasRenderingContext2D, layout: Layout): void {
    const p = this.palette;
    const { zoom } = this.view;
    c.lineCap = "round";
    c.setLineDash([]);
    c.strokeStyle = p.ink3;
    c.globalAlpha = zoom < 0.2 ? 0.22 : this.selected === null ? 0.42 : 0.25;
    c.lineWidth = clamp(zoom * 1.25, 0.5, 1.5);
    c.beginPath();
    const { segments } = layout;
    for (let e = 0; e < segments.length; e += 2) this.line(c, layout, segments[e]!, segments[e + 1]!);
    c.stroke();
    c.globalAlpha = 1;
    if (this.isCriticalShown && this.facts.criticalPath.length > 1) {
      c.strokeStyle = p.ink;
      c.lineWidth = clamp(zoom * 2.25, 1.25, 2.5);
      c.beginPath();
      const path = this.facts.criticalPath;
      for (let at = 1; at < path.length; at++) this.route(c, layout, path[at - 1]!, path[at]!);
      c.stroke();
    }
    this.drawEdgesOf(c, layout);
  }

  private drawEdgesOf(c: CanvasRenderingContext2D, layout: Layout): void {
    const chosen = this.selected === null ? undefined : this.folded.nodeOf.get(this.selected);
    const at = chosen ?? this.hovered;
    if (at < 0) return;
    c.strokeStyle = this.palette.selection;
    c.lineWidth = clamp(this.view.zoom * 1.75, 1, 2);
    c.beginPath();
    const { edges } = layout;
    for (let e = 0; e < edges.length; e += 2) {
      if (edges[e] !== at && edges[e + 1] !== at) continue;
      const route = routeOf(layout, edges[e]!, edges[e + 1]!);
      for (let i = 1; i < route.length; i++) this.line(c, layout, route[i - 1]!, route[i]!);
    }
    c.stroke();
  }

  private route(c: CanvasRenderingContext2D, layout: Layout, from: string, to: string): void {
    const [a, b] = [this.folded.nodeOf.get(from), this.folded.nodeOf.get(to)];
    if (a === undefined || b === undefined || a === b || layout.rank[a]! >= layout.rank[b]!) return;
    const route = routeOf(layout, a, b);
    for (let i = 1; i < route.length; i++) this.line(c, layout, route[i - 1]!, route[i]!);
  }

  /** One line from the right of a node or bend to the left of one in a later column. */
  private line(c: CanvasRenderingContext2D, layout: Layout, from: number, to: number): void {
    const { zoom, x: left, y: top } = this.view;
    const isBend = from >= this.boxes.length;
    const x0 = (layout.x[from]! + (isBend ? 0 : NODE_WIDTH) - left) * zoom;
    const x1 = (layout.x[to]! - left) * zoom;
    if (x1 < 0 || x0 > this.surface.width) return;
    const y0 = (layout.y[from]! - top) * zoom;
    const y1 = (layout.y[to]! - top) * zoom;
    if ((y0 < 0 && y1 < 0) || (y0 > this.surface.height && y1 > this.surface.height)) return;
    c.moveTo(x0, y0);
    const start = isBend ? x0 + NODE_WIDTH * zoom : x0;
    if (isBend) c.lineTo(start, y0);
    if (zoom < 0.2 || Math.abs(y1 - y0) < 0.5) c.lineTo(x1, y1);
    else {
      const middle = (start + x1) / 2;
      c.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    }
  }

  private drawBoxes(c: CanvasRenderingContext2D, layout: Layout): void {
    const { zoom } = this.view;
    const { width, height } = this.surface;
    const chosen = this.selected === null ? -1 : (this.folded.nodeOf.get(this.selected) ?? -1);
    const w = NODE_WIDTH * zoom;
    for (let at = 0; at < this.boxes.length; at++) {
      const h = layout.heights[at]! * zoom;
      const x = (layout.x[at]! - this.view.x) * zoom;
      const y = (layout.y[at]! - this.view.y) * zoom - h / 2;
      if (x > width || x + w < 0 || y > height || y + h < 0) continue;
      const box = this.boxes[at]!;
      c.globalAlpha = box.isDim ? 0.22 : 1;
      if (zoom < NAMES_FROM) this.drawSmall(c, box, x, y, w, h);
      else this.drawBox(c, box, x, y, w, h);
      c.globalAlpha = 1;
      if (at === chosen || at === this.hovered) this.drawRing(c, x, y, w, h, at === chosen);
    }
  }

  private drawRing(
    c: CanvasRenderingContext2D,
    x: number,
    y: number,
    w: number,
    h: number,
    isChosen: boolean,
  ): void {
    c.strokeStyle = this.palette.selection;
    c.lineWidth = isChosen ? 2 : 1;
    c.setLineDash([]);
    roundRect(c, x - 3.5, y - 3.5, w + 7, h + 7, RADIUS * Math.min(1, this.view.zoom) + 3);
    c.stroke();
  }

  /** Far out: a block in the colour of the state. */
  private drawSmall(c: CanvasRenderingContext2D, box: Box, x: number, y: number, w: number, h: number): void {
    const p = this.palette;
    c.setLineDash([]);
    const isFuture = box.state === "waiting" || box.state === "ready";
    c.fillStyle = box.state === "done" ? p.doneSoft : isFuture ? p.panel : stateColour(box.state, p);
    if (w < 24) {
      c.fillStyle = isFuture ? p.waiting : c.fillStyle;
      c.fillRect(x, y, Math.max(w, 1.5), Math.max(h, 1.5));
    } else {
      roundRect(c, x, y, w, h, RADIUS * this.view.zoom);
      c.fill();
      if (isFuture) {
        c.strokeStyle = p.waiting;
        c.lineWidth = 1;
        c.stroke();
      }
      if (box.counts && box.total)
        this.drawBar(c, box, x + w * 0.06, y + h * 0.62, w * 0.88, Math.max(2, h * 0.16));
    }
    if (box.isCritical && this.isCriticalShown) {
      c.strokeStyle = p.ink;
      c.lineWidth = w < 24 ? 1 : 1.5;
      c.strokeRect(x, y, w, h);
    }
  }

  private drawBox(c: CanvasRenderingContext2D, box: Box, x: number, y: number, w: number, h: number): void {
    const p = this.palette;
    const { zoom } = this.view;
    // A stack has many states: its bar and its border say them, not its fill.
    const isMixed = box.counts !== null && (isLive(box.state) || box.state === "failed");
    const style = boxStyle(isMixed ? "ready" : box.state, p);
    const radius = RADIUS * Math.min(1, zoom);
    let front = h;
    if (box.counts) {
      front = h - 6 * zoom;
      for (const back of [2, 1]) {
        roundRect(
          c,
          x + 3 * back * zoom,
          y + front - h * 0.5 + 3 * back * zoom,
          w - 6 * back * zoom,
          h * 0.5,
          radius,
        );
        c.fillStyle = box.state === "done" ? p.doneSoft : p.panel;
        c.strokeStyle = box.state === "done" ? p.panel : p.waiting;
        c.lineWidth = 1;
        c.setLineDash([]);
        c.fill();
        c.stroke();
      }
    }
    roundRect(c, x, y, w, front, radius);
    c.fillStyle = style.fill;
    c.fill();
    const border = isMixed ? stateColour(box.state, p) : style.border;
    if (box.isCritical && this.isCriticalShown) {
      c.strokeStyle = p.ink;
      c.lineWidth = clamp(2.25 * zoom, 1.5, 2.5);
      c.setLineDash(style.isDashed ? [5, 3] : []);
      c.stroke();
    } else if (border) {
      c.strokeStyle = border;
      c.lineWidth = 1.25;
      c.setLineDash(style.isDashed ? [4, 3] : []);
      c.stroke();
    }
    c.setLineDash([]);
    if (box.counts) this.drawStack(c, box, x, y, w, front, style.text, style.soft);
    else this.drawTask(c, box, x, y, w, front, style.text, style.soft);
  }

  private drawTask(
    c: CanvasRenderingContext2D,
    box: Box,
    x: number,
    y: number,
    w: number,
    h: number,
    ink: string,
    soft: string,
  ): void {
    const { zoom } = this.view;
    const task = box.first;
    const r = clamp(5.5 * zoom, 4, 8);
    const pad = 10 * zoom;
    const left = x + pad + 2 * r + 6;
    const seconds = this.secondsOf(task);
    const estimate = this.facts.estimates[task.id];
    const share = estimate && seconds !== null ? seconds / estimate : undefined;
    const hasFacts = zoom >= FACTS_FROM;
    const titleFont = `${box.isCritical && this.isCriticalShown ? 600 : 500} ${Math.max(11, 12.5 * zoom)}px ${this.palette.font}`;
    const titleY = hasFacts ? y + h * 0.36 : y + h / 2;
    drawIcon(c, box.state, x + pad + r, titleY, r, ink, share);
    c.textBaseline = "middle";
    c.fillStyle = ink;
    c.font = titleFont;
    const title = this.text.fit(box.title, titleFont, x + w - left - pad * 0.6);
    c.font = titleFont;
    c.fillText(title, left, titleY + 0.5);
    if (!hasFacts) return;
    const font = `${Math.max(11, 11 * zoom)}px ${this.palette.font}`;
    const words = this.factsOf(task, seconds);
    const room = x + w - left - pad * 0.6;
    const wordsWidth = this.text.width(words, font);
    const workerRoom = room - wordsWidth - 12;
    const worker = workerRoom < 48 ? "" : this.text.fit(plainText(task.worker), font, workerRoom);
    c.font = font;
    c.fillStyle = soft;
    c.fillText(words, left, y + h * 0.7);
    if (!worker) return;
    c.globalAlpha *= 0.86;
    c.textAlign = "right";
    c.fillText(worker, x + w - pad * 0.8, y + h * 0.7);
    c.textAlign = "left";
    c.globalAlpha = box.isDim ? 0.22 : 1;
  }

  private factsOf(task: TaskRow, seconds: number | null): string {
    const estimate = this.facts.estimates[task.id];
    const isFuture = task.state === "waiting" || task.state === "ready";
    const took =
      isFuture && estimate
        ? ` ~${duration(estimate)}`
        : seconds === null || isFuture
          ? ""
          : ` ${duration(seconds)}`;
    return STATE_WORDS[task.state] + took;
  }

  private drawStack(
    c: CanvasRenderingContext2D,
    box: Box,
    x: number,
    y: number,
    w: number,
    h: number,
    ink: string,
    soft: string,
  ): void {
    const { zoom } = this.view;
    const p = this.palette;
    const r = clamp(5.5 * zoom, 4, 8);
    const pad = 10 * zoom;
    const left = x + pad + 2 * r + 6;
    const hasFacts = zoom >= FACTS_FROM;
    const font = `${box.isCritical && this.isCriticalShown ? 600 : 500} ${Math.max(11, 12.5 * zoom)}px ${p.font}`;
    const count = box.total ? `×${box.total}` : "×…";
    const countWidth = this.text.width(count, font);
    const titleY = hasFacts ? y + h * 0.28 : y + h * 0.4;
    const isLiveStack = isLive(box.state) || box.state === "failed";
    drawIcon(
      c,
      box.state,
      x + pad + r,
      titleY,
      r,
      isLiveStack && ink === p.ink ? stateColour(box.state, p) : ink,
    );
    const title = this.text.fit(box.title, font, x + w - left - pad - countWidth - 6);
    c.textBaseline = "middle";
    c.font = font;
    c.fillStyle = ink;
    c.fillText(title, left, titleY + 0.5);
    c.textAlign = "right";
    c.fillStyle = soft;
    c.fillText(count, x + w - pad * 0.8, titleY + 0.5);
    c.textAlign = "left";
    if (hasFacts) {
      const small = `${Math.max(11, 11 * zoom)}px ${p.font}`;
      const words = this.text.fit(countWords(box), small, x + w - left - pad * 0.6);
      c.font = small;
      c.fillStyle = soft;
      c.fillText(words, left, y + h * 0.57);
    }
    if (box.total) this.drawBar(c, box, x + pad, y + h - 11 * zoom, w - 2 * pad, Math.max(2.5, 5 * zoom));
  }

  /** Shares of the states, most finished first. */
  private drawBar(c: CanvasRenderingContext2D, box: Box, x: number, y: number, w: number, h: number): void {
    const p = this.palette;
    c.fillStyle = p.line;
    roundRect(c, x, y, w, h, h / 2);
    c.fill();
    let at = x;
    for (const state of ["done", "failed", "running", "retrying", "needs", "ready"] as TaskState[]) {
      const share = Math.max(((box.counts?.[state] ?? 0) / box.total) * w, 0);
      if (!share) continue;
      c.fillStyle = stateColour(state, p);
      const [left, right] = [at === x ? h / 2 : 0, at + share > x + w - 0.5 ? h / 2 : 0];
      c.beginPath();
      c.roundRect(at, y, Math.max(share, 1), h, [left, right, right, left]);
      c.fill();
      at += share;
    }
  }

  // Minimap

  private minimapFrame() {
    const layout = this.layout!;
    const { width, height } = this.surface;
    const isAllSeen = layout.width * this.view.zoom <= width && layout.height * this.view.zoom <= height;
    if (isAllSeen || width < 480 || height < 220 || this.boxes.length < 12) return null;
    const scale = Math.min(MINIMAP.width / layout.width, MINIMAP.height / layout.height);
    const w = Math.max(24, layout.width * scale);
    const h = Math.max(12, layout.height * scale);
    return { x: width - MINIMAP.margin - w, y: height - MINIMAP.margin - h, w, h, scale };
  }

  private drawMinimap(c: CanvasRenderingContext2D, layout: Layout): void {
    const frame = this.minimapFrame();
    if (!frame) return;
    if (this.isMinimapStale || !this.minimap) this.paintMinimap(layout, frame.scale);
    const p = this.palette;
    c.fillStyle = p.panel;
    c.strokeStyle = p.line;
    c.lineWidth = 1;
    roundRect(c, frame.x - 6, frame.y - 6, frame.w + 12, frame.h + 12, RADIUS);
    c.globalAlpha = 0.94;
    c.fill();
    c.globalAlpha = 1;
    c.stroke();
    c.drawImage(this.minimap!, frame.x, frame.y, this.minimap!.width / 2, this.minimap!.height / 2);
    const { zoom, x, y } = this.view;
    const left = clamp(x * frame.scale, 0, frame.w);
    const top = clamp(y * frame.scale, 0, frame.h);
    const right = clamp((x + this.surface.width / zoom) * frame.scale, 0, frame.w);
    const bottom = clamp((y + this.surface.height / zoom) * frame.scale, 0, frame.h);
    c.strokeStyle = p.selection;
    c.lineWidth = 1.5;
    roundRect(c, frame.x + left, frame.y + top, Math.max(4, right - left), Math.max(4, bottom - top), 2);
    c.stroke();
  }

  private paintMinimap(layout: Layout, scale: number): void {
    this.minimap ??= document.createElement("canvas");
    this.minimap.width = 2 * Math.max(24, Math.ceil(layout.width * scale));
    this.minimap.height = 2 * Math.max(12, Math.ceil(layout.height * scale));
    const c = this.minimap.getContext("2d")!;
    const p = this.palette;
    const k = 2 * scale;
    // Live work last, so that nothing covers it.
    for (const state of [...STATES].reverse()) {
      c.fillStyle = state === "done" ? p.doneSoft : stateColour(state, p);
      for (let at = 0; at < this.boxes.length; at++) {
        if (this.boxes[at]!.state !== state) continue;
        const h = Math.max(2, layout.heights[at]! * k);
        c.fillRect(layout.x[at]! * k, layout.y[at]! * k - h / 2, Math.max(2, NODE_WIDTH * k), h);
      }
    }
    this.isMinimapStale = false;
  }

  private panOnMinimap(x: number, y: number, isDragged: boolean): boolean {
    const frame = this.layout && this.minimapFrame();
    if (!frame) return false;
    const isInside =
      x > frame.x - 6 && y > frame.y - 6 && x < frame.x + frame.w + 6 && y < frame.y + frame.h + 6;
    if (!isInside && !isDragged) return false;
    this.leaveFollowing();
    cancelAnimationFrame(this.glide);
    const { width, height } = this.surface;
    this.view.x = (x - frame.x) / frame.scale - width / 2 / this.view.zoom;
    this.view.y = (y - frame.y) / frame.scale - height / 2 / this.view.zoom;
    this.panBy(0, 0);
    return true;
  }
}

function isSameShape(before: TaskRow, after: TaskRow): boolean {
  if (before.needs === after.needs) return before.worker === after.worker;
  return (
    before.worker === after.worker &&
    before.for_each === after.for_each &&
    before.needs.length === after.needs.length &&
    before.needs.every((need, at) => need === after.needs[at])
  );
}

function mostUrgent(counts: Partial<Record<TaskState, number>>): TaskState {
  for (const state of STATES) if (counts[state]) return state;
  return "waiting";
}

function urgentMember(node: FoldNode, tasks: Map<string, TaskRow>): string {
  const urgency = (id: string) => STATES.indexOf(tasks.get(id)?.state ?? "waiting");
  let best = node.members[0]!;
  for (const id of node.members) if (urgency(id) < urgency(best)) best = id;
  return best;
}

/** What the names of a stack's tasks begin with, if that says something; else their worker. */
function titleOf(node: FoldNode, tasks: ReadonlyMap<string, TaskRow>): string {
  const first = node.members[0]!;
  if (node.members.length === 1) return nameOf(first, tasks.get(first)?.description);
  let common = first;
  for (const id of node.members) {
    let at = 0;
    while (at < common.length && common[at] === id[at]) at++;
    common = common.slice(0, at);
  }
  const name = common.replace(/[\d\s._:\-[(]+$/, "");
  return plainText(name.length >= 3 ? name : tasks.get(first)!.worker || first);
}

function countWords(box: Box): string {
  const counts = box.counts!;
  if (!box.total) return STATE_WORDS[box.state];
  const words: string[] = [];
  for (const state of ["needs", "failed", "running", "retrying", "ready"] as TaskState[]) {
    if (counts[state]) words.push(`${counts[state]} ${STATE_WORDS[state]}`);
  }
  const done = counts.done ?? 0;
  if (done === box.total) words.push(`all ${done} done`);
  else if (done) words.push(`${done} done`);
  else if (!words.length) words.push(STATE_WORDS[box.state]);
  return words.join(" · ");
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}

/** In the middle if all fits, else no further than the margin. */
function centredOr(wanted: number, size: number, room: number, margin: number): number {
  return size + 2 * margin <= room ? (size - room) / 2 : clamp(wanted, -margin, size + margin - room);
}

function distance(a: { x: number; y: number }, b: { x: number; y: number }): number {
  return Math.hypot(a.x - b.x, a.y - b.y);
}

function roundRect(c: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, r: number): void {
  c.beginPath();
  c.roundRect(x, y, w, h, Math.max(0, Math.min(r, w / 2, h / 2)));
}
