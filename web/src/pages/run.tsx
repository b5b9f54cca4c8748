// A run while it works: its plan as a graph, its attempts on a timeline, and a panel about one task.

import { effect, signal, untracked } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, runPath } from "../api";
import { duration, oneLine, plural } from "../format";
import { Graph } from "../graph";
import { Glyph, TaskStateLabel } from "../icons";
import { useKeys } from "../keys";
import { pulse } from "../live";
import { taskName, workerName } from "../names";
import { go, href, route, setQuery } from "../router";
import { announcement, capacities, keep, recall, shownTheme } from "../session";
import type { RunModel } from "../store";
import { type Mark, Timeline, type TimelineMode } from "../timeline";
import type { AttemptRow, Call, TaskRow } from "../types";
import { Button, Chips, Empty, ONE_COLUMN } from "../ui";
import { Panel } from "./panel";
import { capOf, FailureCauses, nowOf } from "./run_shell";

/** Tasks that were at work in the stretch that is brushed on the timeline; null: nothing is brushed. */
const brushed = signal<ReadonlySet<string> | null>(null);
/** The timeline of runs with more calls shows no tool time of before the page was opened. */
const MOST_PAST_CALLS = 5000;

export const selectTask = (task: string | null): void => {
  setQuery({ task });
};

interface Tip {
  task: TaskRow;
  x: number;
  y: number;
}

function TipCard({ tip }: { tip: Tip }) {
  const { task } = tip;
  return (
    <div class="tip" style={{ left: `${tip.x + 14}px`, top: `${tip.y + 14}px` }} aria-hidden="true">
      <header>
        <strong>{taskName(task.id)}</strong> <TaskStateLabel state={task.state} />
      </header>
      <p>{oneLine(task.description, 160)}</p>
      <p class="hint">
        {workerName(task.worker)}
        {task.seconds ? ` · ${duration(task.seconds)}` : ""}
        {task.error ? ` · ${oneLine(task.error.message, 100)}` : ""}
      </p>
    </div>
  );
}

/** Rows that are not what they were at the last call, by identity; null: some went away. */
function changedRows<T>(before: Map<string, T>, rows: Iterable<[string, T]>, size: number): T[] | null {
  const changed: T[] = [];
  for (const [id, row] of rows) {
    if (before.get(id) !== row) {
      before.set(id, row);
      changed.push(row);
    }
  }
  if (before.size === size) return changed;
  before.clear();
  return null;
}

/** The same of rows in an array, which only grows and in which rows are replaced. */
function changedInPlace<T>(before: T[], rows: readonly T[]): T[] {
  const changed: T[] = [];
  for (let at = 0; at < rows.length; at++) {
    const row = rows[at] as T;
    if (before[at] === row) continue;
    before[at] = row;
    changed.push(row);
  }
  return changed;
}

function matches(text: string): ((task: TaskRow) => boolean) | null {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  return (task) => {
    const whole =
      `${task.id} ${task.description} ${task.worker} ${task.state === "needs" ? "needs you" : task.state}`.toLowerCase();
    return words.every((word) => whole.includes(word));
  };
}

/** Call `take` whenever the model has changed, more often than the text of the page does. */
function useModelChanges(
  model: RunModel,
  take: (model: RunModel) => void,
  more: readonly unknown[] = [],
): void {
  const taken = useRef<unknown[]>([]);
  const follow = useRef(() => {});
  follow.current = () => {
    const state = [model.generation, model.seq, model.criticalPath, ...more];
    if (state.every((each, at) => each === taken.current[at])) return;
    taken.current = state;
    take(model);
  };
  useEffect(() => follow.current());
  useEffect(
    () =>
      effect(() => {
        pulse.value;
        untracked(follow.current);
      }),
    [],
  );
}

const taskRows = (model: RunModel): TaskRow[] => [...model.tasks.values()].filter((row) => !row.system);

function useGraph(model: RunModel, onTip: (tip: Tip | null) => void, onFollow: (on: boolean) => void) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const graph = useRef<Graph | null>(null);
  const known = useRef(new Map<string, TaskRow>());
  const latest = useRef(model);
  latest.current = model;
  useEffect(() => {
    if (!canvas.current) return;
    const made = new Graph(canvas.current, {
      onSelect: selectTask,
      onOpen: (task) => go("trace", latest.current.run.id, { task }),
      onHover: (id, x, y) => {
        const task = id === null ? undefined : latest.current.tasks.get(id);
        onTip(task ? { task, x, y } : null);
      },
      onFollow,
      now: () => nowOf(latest.current),
    });
    graph.current = made;
    known.current.clear();
    return () => made.destroy();
  }, []);
  useModelChanges(model, (model) => {
    const { criticalPath, estimates, items } = model;
    const facts = { criticalPath, estimates, items };
    const isFirst = known.current.size === 0;
    const changed = changedRows(known.current, model.tasks, model.tasks.size);
    if (isFirst || changed === null) {
      graph.current?.setData({ tasks: taskRows(model), ...facts });
      for (const [id, row] of model.tasks) known.current.set(id, row);
    } else graph.current?.update(changed, facts);
  });
  return { canvas, graph };
}

function GraphPane({ model, task }: { model: RunModel; task: string | null }) {
  const { query } = route.value;
  const [tip, setTip] = useState<Tip | null>(null);
  const [isFollowing, setFollowing] = useState(recall("follow") === "on");
  const [isCritical, setCritical] = useState(true);
  const { canvas, graph } = useGraph(model, setTip, setFollowing);
  const text = query.filter ?? "";
  const [hits, setHits] = useState<number | null>(null);
  const fold = query.fold === undefined ? null : query.fold === "1";
  const isFolding = fold ?? model.run.tasks.total > 80;

  useEffect(() => graph.current?.select(task), [task]);
  useEffect(() => graph.current?.setTheme(), [shownTheme.value]);
  useEffect(() => graph.current?.setFold(fold), [fold]);
  useEffect(() => graph.current?.follow(isFollowing), [isFollowing]);
  useEffect(() => graph.current?.showCritical(isCritical), [isCritical]);
  useEffect(() => {
    const named = matches(text);
    const chosen = brushed.value;
    const filter =
      named || chosen ? (row: TaskRow) => (named?.(row) ?? true) && (chosen?.has(row.id) ?? true) : null;
    const found = graph.current?.setFilter(filter) ?? null;
    setHits(named ? found : null);
  }, [text, brushed.value, model.run.tasks.total]);
  useEffect(() => {
    if (task) announcement.value = graph.current?.describe(task) ?? "";
  }, [task]);
  const setFollow = (on: boolean) => {
    setFollowing(on);
    keep("follow", on ? "on" : null);
  };
  useKeys({
    j: () => graph.current?.move("next"),
    k: () => graph.current?.move("previous"),
    h: () => graph.current?.move("needs"),
    l: () => graph.current?.move("unblocks"),
    Enter: () => graph.current?.openSelected(),
    c: () => setCritical(!isCritical),
    f: () => setFollow(!isFollowing),
    "0": () => graph.current?.fit(),
    "[": () => graph.current?.foldStack(),
    "]": () => graph.current?.openStack(),
    "+": () => graph.current?.zoomBy(1.25),
    "-": () => graph.current?.zoomBy(0.8),
    "/": () => document.getElementById("graph-filter")?.focus(),
  });
  // It does not change with the run, and updates come ten times a second.
  const head = useMemo(
    () => (
      <header class="pane-head">
        <h2 id="graph-title">Graph</h2>
        <Button
          kind="quiet"
          aria-pressed={isFolding}
          aria-label="Fold fan-outs"
          title="Show tasks that are alike as one stack"
          onClick={() => setQuery({ fold: isFolding ? "0" : "1" })}
        >
          <span>
            Fold<span class="wide-only"> fan-outs</span>
          </span>
        </Button>
        <Button
          kind="quiet"
          aria-pressed={isFollowing}
          aria-label="Follow the work"
          title="Keep the work in view (f)"
          onClick={() => setFollow(!isFollowing)}
        >
          <span>
            Follow<span class="wide-only"> the work</span>
          </span>
        </Button>
        <Button
          kind="quiet"
          aria-pressed={isCritical}
          aria-label="Critical path"
          title="The longest chain of needs (c)"
          onClick={() => setCritical(!isCritical)}
        >
          <span>
            Critical<span class="wide-only"> path</span>
          </span>
        </Button>
        <input
          id="graph-filter"
          type="search"
          placeholder="Filter  /"
          aria-label="Filter tasks"
          value={text}
          onInput={(event) => setQuery({ filter: event.currentTarget.value || null })}
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              setQuery({ filter: null });
              event.currentTarget.blur();
            }
          }}
        />
        {hits === null ? null : (
          <output class="hint">
            {hits === 0 ? `nothing fits “${text}”: Esc clears` : plural(hits, "task")}
          </output>
        )}
        <span class="spacer" />
        <Button kind="quiet" aria-label="Zoom out" onClick={() => graph.current?.zoomBy(0.8)}>
          <Glyph name="minus" />
        </Button>
        <Button kind="quiet" aria-label="Fit all" title="Fit all (0)" onClick={() => graph.current?.fit()}>
          <Glyph name="fit" />
        </Button>
        <Button kind="quiet" aria-label="Zoom in" onClick={() => graph.current?.zoomBy(1.25)}>
          <Glyph name="plus" />
        </Button>
      </header>
    ),
    [isFolding, isFollowing, isCritical, text, hits],
  );
  return (
    <section class="pane graph-pane" aria-labelledby="graph-title">
      {head}
      <div class="canvas-box">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label={`Plan as a graph, ${plural(model.run.tasks.total, "task")}. The Plan page shows the same as a table. j and k move, h and l follow needs.`}
        />
        {tip ? <TipCard tip={tip} /> : null}
        {model.run.tasks.total === 0 ? <NoPlan model={model} /> : null}
      </div>
    </section>
  );
}

function NoPlan({ model }: { model: RunModel }) {
  const planner = model.tasks.get("@plan");
  const call = model.openCalls.get("@plan");
  if (model.openQuestions.some((question) => question.kind === "plan"))
    return (
      <Empty title="The plan waits for your approval">
        <p>Nothing runs before that.</p>
        <a class="button needs" href={href("plan", model.run.id)}>
          Review the plan
        </a>
      </Empty>
    );
  if (model.isOver) {
    const isRefused = [...model.questions.values()].some((question) => question.kind === "plan");
    return (
      <Empty title={isRefused ? "The plan was not approved" : "This run had no plan"}>
        <p>{oneLine(model.run.reason, 300)}</p>
        {isRefused ? (
          <a class="button plain" href={href("plan", model.run.id)}>
            Look at the plan
          </a>
        ) : null}
      </Empty>
    );
  }
  return (
    <Empty
      title={
        model.run.state === "submitted" ? "Waiting for a process to lead it" : "The plan is being written"
      }
    >
      <p>
        {planner?.state === "running"
          ? `The supervisor is at ${call ? `“${call.name}”` : "work"}, since ${duration((nowOf(model) - Date.parse(planner.started_at ?? model.at)) / 1000)}.`
          : planner?.state === "needs"
            ? "The supervisor asks a person first."
            : "It begins as soon as a supervisor has a free place."}
      </p>
    </Empty>
  );
}

function TimelinePane({ model, task }: { model: RunModel; task: string | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const timeline = useRef<Timeline | null>(null);
  const [mode, setMode] = useState<TimelineMode>((recall("timeline") as TimelineMode) ?? "worker");
  const [tip, setTip] = useState<Tip | null>(null);
  const [marks, setMarks] = useState<Mark[]>([]);
  const latest = useRef(model);
  latest.current = model;
  const known = useRef<{
    tasks: Map<string, TaskRow>;
    attempts: AttemptRow[];
    generation: number;
  }>({
    tasks: new Map(),
    attempts: [],
    generation: 0,
  });
  useEffect(() => {
    if (!canvas.current) return;
    const made = new Timeline(canvas.current, {
      mode,
      onSelect: selectTask,
      onHover: (id, x, y) => {
        const row = id === null ? undefined : latest.current.tasks.get(id);
        setTip(row ? { task: row, x, y } : null);
      },
      onBrush: (brush) => {
        brushed.value = brush && new Set(brush.tasks);
        announcement.value = brush
          ? `${plural(brush.tasks.length, "task")} at work in ${duration((brush.to - brush.from) / 1000)}`
          : "";
      },
      onMarks: setMarks,
    });
    timeline.current = made;
    known.current.generation = 0;
    return () => {
      brushed.value = null;
      made.destroy();
    };
  }, []);
  const { id } = model.run;
  useEffect(() => {
    const past = latest.current.attempts.reduce((sum, each) => sum + each.calls, 0);
    if (!past || past > MOST_PAST_CALLS) return;
    // Notches are a nicety: without them the timeline says all the same.
    get<{ calls: Call[] }>(runPath(id, `calls?limit=${MOST_PAST_CALLS}`)).then(
      (page) => timeline.current?.setPastCalls(page.calls),
      () => undefined,
    );
  }, [id]);
  const replaying = route.value.query.at !== undefined;
  const moment = replaying ? nowOf(model) : undefined;
  const take = (model: RunModel) => {
    const facts = {
      estimates: model.estimates,
      criticalPath: model.criticalPath,
      cap: capOf(model),
      capacities: capacities.value,
      endedAt: replaying ? null : model.run.ended_at,
      now: moment,
    };
    const { tasks, attempts } = known.current;
    const changedTasks = changedRows(tasks, model.tasks, model.tasks.size);
    const changedAttempts = changedInPlace(attempts, model.attempts);
    if (known.current.generation === model.generation && changedTasks)
      timeline.current?.update(changedTasks, changedAttempts, facts);
    else {
      timeline.current?.setData({
        ...facts,
        tasks: [...model.tasks.values()],
        attempts: model.attempts,
        beganAt: model.run.began_at ?? model.at,
      });
      for (const [id, row] of model.tasks) tasks.set(id, row);
      known.current.attempts = [...model.attempts];
      known.current.generation = model.generation;
    }
    timeline.current?.setCalls(model.calls);
  };
  useModelChanges(model, take, [moment, capacities.value]);
  useEffect(() => timeline.current?.select(task), [task]);
  useEffect(() => {
    if (!brushed.value) timeline.current?.clearBrush();
  }, [brushed.value]);
  useEffect(() => timeline.current?.setTheme(), [shownTheme.value]);
  useKeys({
    w: () => timeline.current?.zoomBy(1.3),
    s: () => timeline.current?.zoomBy(1 / 1.3),
    a: () => timeline.current?.panBy(-0.2),
    d: () => timeline.current?.panBy(0.2),
  });
  const head = useMemo(
    () => (
      <header class="pane-head">
        <h2 id="timeline-title">Timeline</h2>
        <Chips
          label="Lanes"
          value={mode}
          options={[
            { value: "worker", label: "by worker" },
            { value: "phase", label: "by phase" },
            { value: "task", label: "by task" },
          ]}
          onChange={(value) => {
            setMode(value);
            keep("timeline", value);
            timeline.current?.setMode(value);
          }}
        />
        <span class="spacer" />
        <Button kind="quiet" aria-label="Whole run" title="Whole run" onClick={() => timeline.current?.fit()}>
          <Glyph name="fit" />
        </Button>
      </header>
    ),
    [mode],
  );
  return (
    <section class="pane timeline-pane" aria-labelledby="timeline-title">
      {head}
      <div class="canvas-box">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label="Timeline of all attempts. The Trace page shows the same as a table. w and s zoom, a and d move."
        />
        {tip ? <TipCard tip={tip} /> : null}
      </div>
      <Marks marks={marks} />
    </section>
  );
}

const MARK_WORDS: Record<Mark, string> = {
  done: "done",
  running: "running",
  failed: "failed",
  earlier: "earlier attempt",
  asks: "a person is asked",
  asked: "a person was asked",
  critical: "critical path",
  expected: "expected, by estimates",
  waited: "waited for a worker",
  idle: "idle, shortened",
  "expected-idle": "idle expected, shortened",
};

/** The legend of the timeline: only what it shows now. */
function Marks({ marks }: { marks: Mark[] }) {
  if (!marks.length) return null;
  return (
    <ul class="marks" aria-label="Legend of the timeline">
      {marks.map((mark) => (
        <li key={mark}>
          <i class={`mark-${mark}`} aria-hidden="true" /> {MARK_WORDS[mark]}
        </li>
      ))}
    </ul>
  );
}

export function RunPage({ model }: { model: RunModel }) {
  const { query } = route.value;
  const task = query.task && model.tasks.has(query.task) ? query.task : null;
  useKeys({
    Escape: () => {
      if (brushed.value) brushed.value = null;
      else if (query.filter) setQuery({ filter: null });
      else selectTask(null);
    },
    e: () => {
      const failed = [...model.tasks.values()].filter((row) => row.state === "failed" || row.error);
      const next = failed[(failed.findIndex((row) => row.id === task) + 1) % Math.max(1, failed.length)];
      if (next) selectTask(next.id);
      else announcement.value = "No task has failed.";
    },
  });
  const side = useRef<HTMLElement>(null);
  // In one column, what was chosen in the graph may be shown far above it.
  useEffect(() => {
    if (task && matchMedia(ONE_COLUMN).matches) side.current?.scrollIntoView({ block: "start" });
  }, [task]);
  return (
    <div class="workspace">
      <div class="canvases">
        <GraphPane model={model} task={task} />
        <TimelinePane model={model} task={task} />
      </div>
      <aside
        class="pane side"
        ref={side}
        aria-label={task ? `Task ${taskName(task)}` : model.isOver ? "How it ended" : "Right now"}
      >
        {task ? null : <FailureCauses model={model} />}
        <Panel model={model} task={task} />
      </aside>
    </div>
  );
}
