// What the graph and the timeline share: colours from the style sheet, icons of states, text that fits, a sharp canvas.
import type { TaskState } from "./types";

export interface Palette {
  bg: string;
  panel: string;
  line: string;
  ink: string;
  ink2: string;
  ink3: string;
  running: string;
  retrying: string;
  failed: string;
  done: string;
  doneSoft: string;
  doneInk: string;
  needs: string;
  needsButton: string;
  onNeeds: string;
  ready: string;
  waiting: string;
  onSolid: string;
  selection: string;
  font: string;
  mono: string;
}

const VARIABLES: Record<keyof Palette, string> = {
  bg: "--bg",
  panel: "--panel",
  line: "--line",
  ink: "--ink",
  ink2: "--ink2",
  ink3: "--ink3",
  running: "--running",
  retrying: "--retrying",
  failed: "--failed",
  done: "--done",
  doneSoft: "--done-soft",
  doneInk: "--done-ink",
  needs: "--needs",
  needsButton: "--needs-button",
  onNeeds: "--on-needs",
  ready: "--ready",
  waiting: "--waiting",
  onSolid: "--on-solid",
  selection: "--selection",
  font: "--font",
  mono: "--mono",
};

/** The colours and fonts as the style sheet has them now. Slow: call it when the theme changes. */
export function readPalette(element: Element): Palette {
  const style = getComputedStyle(element);
  const palette = {} as Palette;
  for (const name of Object.keys(VARIABLES) as (keyof Palette)[]) {
    palette[name] =
      style.getPropertyValue(VARIABLES[name]).trim() || (name === "font" ? "sans-serif" : "#888");
  }
  return palette;
}

export const STATES: TaskState[] = [
  "needs",
  "failed",
  "retrying",
  "running",
  "ready",
  "waiting",
  "done",
  "skipped",
  "cancelled",
];

export const STATE_WORDS: Record<TaskState, string> = {
  waiting: "waiting",
  ready: "ready",
  running: "running",
  retrying: "retrying",
  needs: "needs you",
  done: "done",
  failed: "failed",
  skipped: "skipped",
  cancelled: "cancelled",
};

export function isLive(state: TaskState): boolean {
  return state === "running" || state === "retrying" || state === "needs";
}

/** How a box of a state looks: finished work is pale, live work solid, future work dashed. */
export interface BoxStyle {
  fill: string;
  border: string;
  text: string;
  soft: string;
  isDashed: boolean;
}

export function boxStyle(state: TaskState, p: Palette): BoxStyle {
  switch (state) {
    case "done":
      return { fill: p.doneSoft, border: "", text: p.doneInk, soft: p.doneInk, isDashed: false };
    case "running":
      return { fill: p.running, border: "", text: p.onSolid, soft: p.onSolid, isDashed: false };
    case "retrying":
      return { fill: p.retrying, border: "", text: p.onSolid, soft: p.onSolid, isDashed: false };
    case "failed":
      return { fill: p.failed, border: "", text: p.onSolid, soft: p.onSolid, isDashed: false };
    case "needs":
      return { fill: p.needsButton, border: "", text: p.onNeeds, soft: p.onNeeds, isDashed: false };
    case "ready":
      return { fill: p.panel, border: p.ready, text: p.ink, soft: p.ink2, isDashed: false };
    case "waiting":
      return { fill: p.panel, border: p.waiting, text: p.ink2, soft: p.ink3, isDashed: true };
    default:
      return { fill: p.bg, border: p.line, text: p.ink3, soft: p.ink3, isDashed: false };
  }
}

/** The one colour of a state, for bars, dots and the minimap. */
export function stateColour(state: TaskState, p: Palette): string {
  switch (state) {
    case "done":
      return p.done;
    case "skipped":
    case "cancelled":
      return p.waiting;
    default:
      return p[state];
  }
}

/** The icon of a state inside a circle of radius `r`. `share`: how much of a running task is over, if known. */
export function drawIcon(
  c: CanvasRenderingContext2D,
  state: TaskState,
  x: number,
  y: number,
  r: number,
  colour: string,
  share?: number,
): void {
  c.strokeStyle = colour;
  c.fillStyle = colour;
  c.lineWidth = Math.max(1.25, r / 3.6);
  c.lineCap = "round";
  c.lineJoin = "round";
  c.beginPath();
  switch (state) {
    case "waiting":
      c.setLineDash([0.1, r * 0.785]);
      c.arc(x, y, r * 0.85, 0, 2 * Math.PI);
      c.stroke();
      c.setLineDash([]);
      return;
    case "ready":
      c.arc(x, y, r * 0.8, 0, 2 * Math.PI);
      break;
    case "running": {
      c.globalAlpha *= 0.35;
      c.arc(x, y, r * 0.85, 0, 2 * Math.PI);
      c.stroke();
      c.globalAlpha /= 0.35;
      c.beginPath();
      const part = share === undefined ? 0.3 : Math.min(0.97, Math.max(0.06, share));
      c.arc(x, y, r * 0.85, -Math.PI / 2, (part * 2 - 0.5) * Math.PI);
      break;
    }
    case "retrying":
      c.arc(x, y, r * 0.78, -0.1 * Math.PI, 1.45 * Math.PI);
      c.stroke();
      c.beginPath();
      c.moveTo(x - r * 0.1, y - r * 1.25);
      c.lineTo(x + r * 0.42, y - r * 0.76);
      c.lineTo(x - r * 0.2, y - r * 0.36);
      break;
    case "needs":
      c.moveTo(x, y - r * 0.9);
      c.lineTo(x + r, y + r * 0.8);
      c.lineTo(x - r, y + r * 0.8);
      c.closePath();
      c.stroke();
      c.fill();
      return;
    case "done":
      c.moveTo(x - r * 0.75, y + r * 0.05);
      c.lineTo(x - r * 0.2, y + r * 0.6);
      c.lineTo(x + r * 0.8, y - r * 0.6);
      break;
    case "failed":
      c.moveTo(x - r * 0.62, y - r * 0.62);
      c.lineTo(x + r * 0.62, y + r * 0.62);
      c.moveTo(x + r * 0.62, y - r * 0.62);
      c.lineTo(x - r * 0.62, y + r * 0.62);
      break;
    case "skipped":
      c.moveTo(x - r * 0.7, y);
      c.lineTo(x + r * 0.7, y);
      break;
    case "cancelled":
      c.arc(x, y, r * 0.85, 0, 2 * Math.PI);
      c.moveTo(x - r * 0.55, y + r * 0.55);
      c.lineTo(x + r * 0.55, y - r * 0.55);
      break;
  }
  c.stroke();
}

/** Texts are cut to rooms of these steps: a bar that grows measures its name once a step. */
const FIT_STEP = 8;

/** Lays text into a width, with an ellipsis. Measured once per text and font. */
export class TextFit {
  private readonly widths = new Map<string, Map<string, number>>();
  private readonly fitted = new Map<string, string>();

  constructor(private readonly context: CanvasRenderingContext2D) {}

  width(text: string, font: string): number {
    let ofFont = this.widths.get(font);
    if (!ofFont) {
      if (this.widths.size > 40) this.widths.clear();
      ofFont = new Map();
      this.widths.set(font, ofFont);
    }
    let width = ofFont.get(text);
    if (width === undefined) {
      if (ofFont.size > 20_000) ofFont.clear();
      this.context.font = font;
      width = this.context.measureText(text).width;
      ofFont.set(text, width);
    }
    return width;
  }

  fit(text: string, font: string, room: number): string {
    if (room < 8) return "";
    if (this.width(text, font) <= room) return text;
    const step = Math.floor(room / FIT_STEP);
    const key = `${step}\n${font}\n${text}`;
    let cut = this.fitted.get(key);
    if (cut === undefined) {
      if (this.fitted.size > 20_000) this.fitted.clear();
      this.context.font = font;
      let low = 0;
      let high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.context.measureText(`${text.slice(0, middle)}…`).width <= step * FIT_STEP) low = middle;
        else high = middle - 1;
      }
      cut = low ? `${text.slice(0, low).trimEnd()}…` : "";
      this.fitted.set(key, cut);
    }
    return cut;
  }
}

/** Control characters and bidirectional overrides come from models; none may rearrange a label. */
export function plainText(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+/g, " ");
}

/** An id of more characters leaves no room for other words in a box. */
const LONG_ID = 16;

/** What a task is called in little room: its id, and what it is about where there is room for that. */
export function nameOf(id: string, description: string | undefined): string {
  const hasMore = description && description !== id && id.length <= LONG_ID;
  return plainText(hasMore ? `${id}  ${description}` : id);
}

/** Seconds that a task shows: those of its work, up to now if it runs; of one that needs a person, since it asked. */
export function shownSeconds(
  task: { state: TaskState; started_at: string | null; seconds: number | null },
  now: number,
): number | null {
  if (!task.started_at || (task.state !== "running" && task.state !== "needs")) return task.seconds;
  const since = Math.max(0, (now - Date.parse(task.started_at)) / 1000);
  return task.state === "needs" ? Math.max(0, since - (task.seconds ?? 0)) : since;
}

export function prefersStill(): boolean {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/** A canvas as sharp as its screen, drawn at most once per frame and only when something changed. */
export class Surface {
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;
  /** Milliseconds that the last frame took to draw. */
  lastFrame = 0;
  private ratio = 1;
  private frame = 0;
  private isGone = false;
  private readonly observer: ResizeObserver;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly draw: () => void,
    private readonly resized: (isFirst: boolean) => void,
  ) {
    const context = canvas.getContext("2d");
    if (!context) throw new Error("this browser has no 2d canvas");
    this.context = context;
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(canvas); // its first report comes at once, and measures
  }

  /** Ask for a frame. Cheap to call often. */
  invalidate(): void {
    if (!this.frame && !this.isGone) this.frame = requestAnimationFrame(() => this.paint());
  }

  destroy(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.isGone = true;
  }

  private paint(): void {
    this.frame = 0;
    if (!this.width || !this.height) return;
    if (this.ratio !== devicePixelRatio) this.measure();
    const began = performance.now();
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw();
    this.lastFrame = performance.now() - began;
  }

  private measure(): void {
    const { clientWidth, clientHeight } = this.canvas;
    const isFirst = !this.width && clientWidth > 0;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = devicePixelRatio;
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    this.resized(isFirst);
    if (this.isGone) return;
    if (isFirst) this.invalidate();
    else {
      // A resized canvas is blank until it is drawn: not one frame of that.
      cancelAnimationFrame(this.frame);
      this.paint();
    }
  }
}
