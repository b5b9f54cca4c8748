// Layered layout of a plan, left to right. Pure: the same graph gives the same picture.
//
//   layoutGraph({ ids, heights, edges, previous? }) → Layout
//
// 1. The rank of a task is the longest path to it; each rank is a column.
// 2. A need that spans several ranks gets a bend in every column between, so no line runs through a box.
//    All needs of one task share one chain of bends.
// 3. Barycentre sweeps order each column; the order with the fewest crossings wins.
// 4. Isotonic regression places each column as near to its neighbours as order and spacing allow.
//
// With `previous`, tasks that kept their rank keep their place exactly, and new ones go to the nearest free
// slot of their column. Once a plan has grown by half, it is laid out afresh.

export const NODE_WIDTH = 184;

/** Where a view of this width begins that shows the column at `focus`, and the one before it if both fit: no box is cut on the left. */
export function viewStart(columns: Iterable<number>, focus: number, room: number, width: number): number {
  const fromRight = width - room;
  let [start, full] = [focus, Number.POSITIVE_INFINITY];
  for (const x of columns) {
    const isNear = focus - x <= 1.6 * NODE_WIDTH && focus + NODE_WIDTH - x <= room;
    if (x < start && isNear) start = x;
    // The last columns fill the view instead of leaving it empty on the right.
    if (x >= fromRight && x < full) full = x;
  }
  return Math.min(start, full);
}
export const COLUMN_GAP = 64;
export const ROW_GAP = 12;
export const BEND_HEIGHT = 8;
const COLUMN = NODE_WIDTH + COLUMN_GAP;
const COMPONENT_GAP = 28;
const SWEEPS = 10;
/** Tasks without any edge are set in rows, if there are more than these. */
const LOOSE_IN_COLUMN = 6;

export interface LayoutInput {
  ids: string[];
  /** Even whole numbers keep boxes on whole pixels. */
  heights: ArrayLike<number>;
  /** Pairs of indexes into `ids`: a needed task, the task that needs it. Cycles and loops are tolerated. */
  edges: ArrayLike<number>;
  previous?: Layout | undefined;
}

export interface Layout {
  ids: string[];
  heights: Float64Array;
  /** Left edges and centres, of all nodes and then of all bends. */
  x: Float64Array;
  y: Float64Array;
  rank: Int32Array;
  /** Per node: its first bend, in the column after it; the others follow, one per column. -1: none. */
  chain: Int32Array;
  /** Per node: how many bends. */
  chainLength: Int32Array;
  /** Pairs of indexes: every line to draw, between nodes and bends of neighbouring columns. */
  segments: Int32Array;
  /** Pairs of nodes: the edges as given, without doubles and loops. */
  edges: Int32Array;
  width: number;
  height: number;
  /** Nodes when the graph was last laid out afresh. */
  freshSize: number;
}

/** Neighbour lists in two flat arrays: those of vertex v are list[start[v]..start[v + 1]]. */
interface Adjacency {
  start: Int32Array;
  list: Int32Array;
}

interface Bent {
  chain: Int32Array;
  chainLength: Int32Array;
  rank: Int32Array;
  segments: Int32Array;
}

export function layoutGraph(input: LayoutInput): Layout {
  const count = input.ids.length;
  const edges = uniqueEdges(input.edges, count);
  const nodeRank = ranksOf(count, edges);
  const bent = withBends(count, edges, nodeRank);
  const total = bent.rank.length;
  const heights = new Float64Array(total).fill(BEND_HEIGHT);
  for (let v = 0; v < count; v++) heights[v] = input.heights[v] as number;
  const x = new Float64Array(total);
  for (let v = 0; v < total; v++) x[v] = bent.rank[v]! * COLUMN;
  const y = new Float64Array(total);
  const layout: Layout = {
    ids: input.ids,
    heights,
    x,
    y,
    ...bent,
    edges,
    width: 0,
    height: 0,
    freshSize: count,
  };
  const previous = input.previous;
  if (previous && canKeep(layout, previous)) placeBeside(layout, count, previous);
  else placeAfresh(layout, count);
  measure(layout);
  return layout;
}

/** The nodes and bends that the line of one edge passes, from its first node to its last. */
export function routeOf(layout: Layout, from: number, to: number): number[] {
  const route = [from];
  const first = layout.chain[from]!;
  const bends = Math.min(layout.chainLength[from]!, layout.rank[to]! - layout.rank[from]! - 1);
  for (let at = 0; at < bends; at++) route.push(first + at);
  route.push(to);
  return route;
}

function uniqueEdges(given: ArrayLike<number>, count: number): Int32Array {
  const seen = new Set<number>();
  const kept: number[] = [];
  for (let at = 0; at + 1 < given.length; at += 2) {
    const from = given[at] as number;
    const to = given[at + 1] as number;
    const key = from * count + to;
    if (from === to || seen.has(key)) continue;
    seen.add(key);
    kept.push(from, to);
  }
  return Int32Array.from(kept);
}

function adjacency(total: number, pairs: Int32Array, side: 0 | 1): Adjacency {
  const start = new Int32Array(total + 1);
  for (let at = side; at < pairs.length; at += 2) start[pairs[at]! + 1]!++;
  for (let v = 0; v < total; v++) start[v + 1]! += start[v]!;
  const fill = start.slice();
  const list = new Int32Array(pairs.length / 2);
  for (let at = 0; at < pairs.length; at += 2) list[fill[pairs[at + side]!]!++] = pairs[at + 1 - side]!;
  return { start, list };
}

/** Longest-path ranks. In a cycle, the task that comes first in the plan is taken to start it. */
function ranksOf(count: number, edges: Int32Array): Int32Array {
  const next = adjacency(count, edges, 0);
  const open = new Int32Array(count);
  for (let at = 1; at < edges.length; at += 2) open[edges[at]!]!++;
  const rank = new Int32Array(count);
  const isDone = new Uint8Array(count);
  const queue: number[] = [];
  for (let v = 0; v < count; v++) if (!open[v]) queue.push(v);
  let head = 0;
  let oldest = 0;
  while (head < count) {
    if (head === queue.length) {
      while (isDone[oldest] || !open[oldest]) oldest++;
      open[oldest] = 0;
      queue.push(oldest);
    }
    const v = queue[head++]!;
    isDone[v] = 1;
    for (let at = next.start[v]!; at < next.start[v + 1]!; at++) {
      const w = next.list[at]!;
      if (isDone[w] || !open[w]) continue;
      rank[w] = Math.max(rank[w]!, rank[v]! + 1);
      if (!--open[w]!) queue.push(w);
    }
  }
  return rank;
}

/** Bends for needs that span several ranks. Beyond the cap, the longest lines go straight. */
function withBends(count: number, edges: Int32Array, nodeRank: Int32Array): Bent {
  const chainLength = new Int32Array(count);
  for (let at = 0; at < edges.length; at += 2) {
    const span = nodeRank[edges[at + 1]!]! - nodeRank[edges[at]!]! - 1;
    if (span > chainLength[edges[at]!]!) chainLength[edges[at]!] = span;
  }
  const cap = 2 * count + 200;
  const byLength = Array.from({ length: count }, (_, v) => v).filter((v) => chainLength[v]! > 0);
  byLength.sort((a, b) => chainLength[a]! - chainLength[b]! || a - b);
  const chain = new Int32Array(count).fill(-1);
  let total = count;
  for (const v of byLength) {
    if (total - count + chainLength[v]! > cap) chainLength[v] = 0;
    else {
      chain[v] = total;
      total += chainLength[v]!;
    }
  }
  const rank = new Int32Array(total);
  rank.set(nodeRank);
  const segments: number[] = [];
  for (let v = 0; v < count; v++) {
    for (let at = 0; at < chainLength[v]!; at++) {
      rank[chain[v]! + at] = nodeRank[v]! + at + 1;
      segments.push(at ? chain[v]! + at - 1 : v, chain[v]! + at);
    }
  }
  for (let at = 0; at < edges.length; at += 2) {
    const from = edges[at]!;
    const span = nodeRank[edges[at + 1]!]! - nodeRank[from]! - 1;
    segments.push(span > 0 && chain[from]! >= 0 ? chain[from]! + span - 1 : from, edges[at + 1]!);
  }
  return { chain, chainLength, rank, segments: Int32Array.from(segments) };
}

function placeAfresh(layout: Layout, count: number): void {
  const total = layout.rank.length;
  const before = adjacency(total, layout.segments, 1);
  const after = adjacency(total, layout.segments, 0);
  const { parts, loose } = components(total, count, before, after);
  let top = 0;
  let ranks = 1;
  for (const part of parts) {
    const columns = columnsOf(part, layout.rank);
    ranks = Math.max(ranks, columns.length);
    order(columns, before, after, total);
    top = place(columns, layout, before, after, top) + COMPONENT_GAP;
  }
  placeLoose(layout, loose, top, ranks);
}

/** Connected parts with an edge, in plan order, and the nodes without any. */
function components(
  total: number,
  count: number,
  before: Adjacency,
  after: Adjacency,
): { parts: number[][]; loose: number[] } {
  const isSeen = new Uint8Array(total);
  const parts: number[][] = [];
  const loose: number[] = [];
  for (let root = 0; root < count; root++) {
    if (isSeen[root]) continue;
    isSeen[root] = 1;
    const part = [root];
    for (let head = 0; head < part.length; head++) {
      for (const side of [before, after]) {
        const v = part[head]!;
        for (let at = side.start[v]!; at < side.start[v + 1]!; at++) {
          const w = side.list[at]!;
          if (!isSeen[w]) {
            isSeen[w] = 1;
            part.push(w);
          }
        }
      }
    }
    if (part.length === 1) loose.push(root);
    else parts.push(part.sort((a, b) => a - b));
  }
  return { parts, loose };
}

function columnsOf(part: number[], rank: Int32Array): number[][] {
  const columns: number[][] = [];
  for (const v of part) {
    const at = rank[v]!;
    while (columns.length <= at) columns.push([]);
    columns[at]!.push(v);
  }
  return columns;
}

/** Sort each column to cross few lines. Leaves the best order found in `columns`. */
function order(columns: number[][], before: Adjacency, after: Adjacency, total: number): void {
  const at = new Float64Array(total);
  const number = (column: number[]) => {
    for (let i = 0; i < column.length; i++) at[column[i]!] = i;
  };
  columns.forEach(number);
  const key = new Float64Array(total);
  const sort = (column: number[], side: Adjacency) => {
    for (const v of column) {
      const from = side.start[v]!;
      const to = side.start[v + 1]!;
      let sum = 0;
      for (let e = from; e < to; e++) sum += at[side.list[e]!]!;
      key[v] = to > from ? sum / (to - from) : at[v]!;
    }
    column.sort((a, b) => key[a]! - key[b]! || at[a]! - at[b]!);
    number(column);
  };
  let best = columns.map((column) => column.slice());
  let fewest = Number.POSITIVE_INFINITY;
  let unchanged = 0;
  for (let sweep = 0; sweep < SWEEPS && fewest > 0 && unchanged < 3; sweep++) {
    if (sweep % 2 === 0) for (let c = 1; c < columns.length; c++) sort(columns[c]!, before);
    else for (let c = columns.length - 2; c >= 0; c--) sort(columns[c]!, after);
    const crossed = crossings(columns, after, at);
    unchanged++;
    if (crossed < fewest) {
      fewest = crossed;
      unchanged = 0;
      best = columns.map((column) => column.slice());
    }
  }
  for (let c = 0; c < columns.length; c++) columns[c] = best[c]!;
}

/** How many pairs of lines cross between neighbouring columns, counted with a Fenwick tree. */
function crossings(columns: number[][], after: Adjacency, at: Float64Array): number {
  let crossed = 0;
  for (let c = 0; c + 1 < columns.length; c++) {
    const size = columns[c + 1]!.length;
    const tree = new Int32Array(size + 1);
    let inTree = 0;
    for (const v of columns[c]!) {
      const from = after.start[v]!;
      const to = after.start[v + 1]!;
      for (let e = from; e < to; e++) {
        let upTo = 0;
        for (let i = at[after.list[e]!]! + 1; i > 0; i -= i & -i) upTo += tree[i]!;
        crossed += inTree - upTo;
      }
      for (let e = from; e < to; e++) {
        for (let i = at[after.list[e]!]! + 1; i <= size; i += i & -i) tree[i]!++;
        inTree++;
      }
    }
  }
  return crossed;
}

/** Give every vertex of one part its y. Returns the lowest edge. */
function place(
  columns: number[][],
  layout: Layout,
  before: Adjacency,
  after: Adjacency,
  top: number,
): number {
  const { y, heights } = layout;
  for (const column of columns) {
    let at = 0;
    for (const v of column) {
      y[v] = at + heights[v]! / 2;
      at += heights[v]! + ROW_GAP;
    }
    for (const v of column) y[v]! -= at / 2;
  }
  const forth = () => {
    for (let c = 1; c < columns.length; c++) settle(columns[c]!, layout, [before]);
  };
  const back = () => {
    for (let c = columns.length - 2; c >= 0; c--) settle(columns[c]!, layout, [after]);
  };
  forth();
  back();
  forth();
  back();
  for (const column of columns) settle(column, layout, [before, after]);
  let highest = Number.POSITIVE_INFINITY;
  for (const column of columns) for (const v of column) highest = Math.min(highest, y[v]! - heights[v]! / 2);
  const shift = top - Math.floor(highest);
  let lowest = top;
  for (const column of columns) {
    for (const v of column) {
      y[v] = Math.round(y[v]!) + shift;
      lowest = Math.max(lowest, y[v]! + heights[v]! / 2);
    }
  }
  return lowest;
}

/** Isotonic regression: as near to the neighbours' mean as the order and the spacing of a column allow. */
function settle(column: number[], layout: Layout, sides: Adjacency[]): void {
  const { y, heights, ids } = layout;
  const count = ids.length;
  const size = column.length;
  const value = new Float64Array(size);
  const weight = new Float64Array(size);
  const length = new Int32Array(size);
  const offset = new Float64Array(size);
  let blocks = 0;
  for (let i = 0; i < size; i++) {
    const v = column[i]!;
    if (i) offset[i] = offset[i - 1]! + (heights[column[i - 1]!]! + heights[v]!) / 2 + ROW_GAP;
    let sum = 0;
    let heavy = 0;
    for (const side of sides) {
      for (let e = side.start[v]!; e < side.start[v + 1]!; e++) {
        const w = side.list[e]!;
        // Lines through several columns are the ones whose bends are seen: pull them straight first.
        const pull = v >= count ? (w >= count ? 8 : 2) : 1;
        sum += pull * y[w]!;
        heavy += pull;
      }
    }
    value[blocks] = (heavy ? sum / heavy : y[v]!) - offset[i]!;
    weight[blocks] = heavy || 0.01;
    length[blocks++] = 1;
    while (blocks > 1 && value[blocks - 2]! > value[blocks - 1]!) {
      const both = weight[blocks - 2]! + weight[blocks - 1]!;
      value[blocks - 2] =
        (value[blocks - 2]! * weight[blocks - 2]! + value[blocks - 1]! * weight[blocks - 1]!) / both;
      weight[blocks - 2] = both;
      length[blocks - 2]! += length[blocks - 1]!;
      blocks--;
    }
  }
  let i = 0;
  for (let b = 0; b < blocks; b++) {
    for (let n = 0; n < length[b]!; n++, i++) y[column[i]!] = value[b]! + offset[i]!;
  }
}

function placeLoose(layout: Layout, loose: number[], top: number, ranks: number): void {
  const inRow = loose.length <= LOOSE_IN_COLUMN ? 1 : Math.max(ranks, Math.ceil(Math.sqrt(loose.length / 4)));
  let y = top;
  for (let i = 0; i < loose.length; i += inRow) {
    const row = loose.slice(i, i + inRow);
    const height = Math.max(...row.map((v) => layout.heights[v]!));
    row.forEach((v, column) => {
      layout.x[v] = column * COLUMN;
      layout.y[v] = y + height / 2;
    });
    y += height + ROW_GAP;
  }
}

/** Whether the picture stays good if what was there before is left where it was. */
function canKeep(layout: Layout, previous: Layout): boolean {
  const count = layout.ids.length;
  return previous.ids.length > 0 && count <= previous.freshSize * 1.5 && count * 2 >= previous.freshSize;
}

function placeBeside(layout: Layout, count: number, previous: Layout): void {
  layout.freshSize = previous.freshSize;
  const { x, y, heights, rank } = layout;
  const columns = new Map<number, FreeSlots>();
  const slots = (left: number): FreeSlots => {
    let column = columns.get(left);
    if (!column) {
      column = new FreeSlots();
      columns.set(left, column);
    }
    return column;
  };
  const isPlaced = new Uint8Array(rank.length);
  const index = new Map(previous.ids.map((id, v) => [id, v]));
  const before = adjacency(rank.length, layout.segments, 1);
  const after = adjacency(rank.length, layout.segments, 0);
  const isLoose = (v: number) =>
    before.start[v] === before.start[v + 1] && after.start[v] === after.start[v + 1];
  for (let v = 0; v < count; v++) {
    const old = index.get(layout.ids[v]!);
    if (old === undefined || previous.rank[old] !== rank[v] || previous.heights[old] !== heights[v]) continue;
    if (previous.x[old] !== x[v] && !isLoose(v)) continue;
    x[v] = previous.x[old]!;
    y[v] = previous.y[old]!;
    isPlaced[v] = 1;
    slots(x[v]!).take(y[v]!, heights[v]!);
  }
  const inOrder = Array.from({ length: rank.length }, (_, v) => v).sort(
    (a, b) => rank[a]! - rank[b]! || a - b,
  );
  for (const v of inOrder) {
    if (isPlaced[v]) continue;
    let sum = 0;
    let near = 0;
    for (const side of [before, after]) {
      for (let e = side.start[v]!; e < side.start[v + 1]!; e++) {
        const w = side.list[e]!;
        if (!isPlaced[w]) continue;
        sum += y[w]!;
        near++;
      }
    }
    y[v] = slots(x[v]!).nearest(near ? Math.round(sum / near) : previous.height, heights[v]!);
    isPlaced[v] = 1;
    slots(x[v]!).take(y[v]!, heights[v]!);
  }
}

/** What is taken of one column. */
class FreeSlots {
  private readonly taken: { top: number; bottom: number }[] = [];

  take(centre: number, height: number): void {
    const top = centre - height / 2;
    let low = 0;
    let high = this.taken.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.taken[middle]!.top < top) low = middle + 1;
      else high = middle;
    }
    this.taken.splice(low, 0, { top, bottom: centre + height / 2 });
  }

  /** The centre nearest to `wanted` at which a box of this height fits. */
  nearest(wanted: number, height: number): number {
    const half = height / 2;
    let best = Number.POSITIVE_INFINITY;
    let above = Number.NEGATIVE_INFINITY;
    for (let i = 0; i <= this.taken.length; i++) {
      const below = i < this.taken.length ? this.taken[i]!.top : Number.POSITIVE_INFINITY;
      const from = above + ROW_GAP + half;
      const to = below - ROW_GAP - half;
      if (from <= to) {
        const at = Math.min(Math.max(wanted, from), to);
        if (Math.abs(at - wanted) < Math.abs(best - wanted)) best = at;
      }
      if (i < this.taken.length) above = Math.max(above, this.taken[i]!.bottom);
    }
    return best;
  }
}

function measure(layout: Layout): void {
  let right = 0;
  let bottom = 0;
  for (let v = 0; v < layout.rank.length; v++) {
    right = Math.max(right, layout.x[v]! + NODE_WIDTH);
    bottom = Math.max(bottom, layout.y[v]! + layout.heights[v]! / 2);
  }
  layout.width = right;
  layout.height = bottom;
}
