// The state of a run, folded from its events. Plain TypeScript: no framework, no clock, no network.
//
// A model starts from a snapshot or from nothing, and takes events in order. Rows are replaced, never
// changed, so a reader can tell by identity what is new.

import { isSystem, systemDescription } from "./names";
import type {
  AttemptOutcome,
  AttemptRow,
  Call,
  CallKind,
  ItemCounts,
  Plan,
  PlanNeed,
  PlanTask,
  Question,
  QuestionKind,
  RunDetails,
  RunEvent,
  RunState,
  Snapshot,
  TaskCounts,
  TaskRow,
  TaskState,
  Usage,
} from "./types";

export const TASK_STATES: readonly TaskState[] = [
  "running",
  "retrying",
  "needs",
  "ready",
  "waiting",
  "done",
  "failed",
  "skipped",
  "cancelled",
];
export const FINAL: ReadonlySet<TaskState> = new Set(["done", "failed", "skipped", "cancelled"]);
export const RUN_ENDED: ReadonlySet<RunState> = new Set([
  "succeeded",
  "partial",
  "failed",
  "cancelled",
  "unreadable",
]);
const ITEM = /^(.*)\[(\d+)\]$/;

interface OutcomeFields {
  is: "done" | "failed" | "cancelled" | "needs_input";
  usage?: Usage;
  kind?: string;
  message?: string;
  reason?: string;
  question?: QuestionFields;
  value?: { preview?: string };
  gaps?: string[];
}

interface QuestionFields {
  id: string;
  text: string;
  about?: string;
  choices?: string[];
  telling?: string;
  default?: string | null;
  patience?: number | string | null;
  evidence?: unknown;
}

function noCounts(): TaskCounts {
  return {
    total: 0,
    waiting: 0,
    ready: 0,
    running: 0,
    retrying: 0,
    needs: 0,
    done: 0,
    failed: 0,
    skipped: 0,
    cancelled: 0,
  };
}

function noRun(id: string): RunDetails {
  return {
    id,
    title: "",
    request: "",
    state: "submitted",
    reason: "",
    began_at: null,
    ended_at: null,
    wall: null,
    idle: 0,
    tasks: noCounts(),
    speedup: null,
    tokens: 0,
    cost: 0,
    questions: 0,
    priority: 0,
    leader: null,
    parent: "",
    approach: "",
    limits: {},
    usage: {},
    deadline_at: null,
    after: "",
    taint: [],
    answer_size: 0,
    status_reason: "",
  };
}

export function needId(need: PlanNeed | string): string {
  return typeof need === "string" ? need : need.task;
}

/** The name of a step inside its run, by which its end is told from others. */
function stepKey(event: RunEvent): string {
  return `${event.task}:${event.attempt}:${event.name}:${event.ordinal}`;
}

export function questionKind(about: string): QuestionKind {
  if (about === "approval" || about === "budget" || about === "plan") return about;
  return about === "plain" || about === "question" || !about ? "question" : "review";
}

/** Whether something failed that can be done again: a task, or an item of one. */
export function hasFailures(model: RunModel): boolean {
  return model.run.tasks.failed > 0 || Object.values(model.items).some((each) => each.failed > 0);
}

/** What the results of a run lack: tasks that failed, and, without a kind, what is missing in tasks that were done. */
export function lackingIn(model: RunModel): { task: string; kind: string | null; text: string }[] {
  return [...model.tasks.values()].flatMap((row): { task: string; kind: string | null; text: string }[] => {
    if (row.state === "failed") return [causeOf(model, row)];
    return (row.gaps ?? []).map((gap) => ({ task: row.id, kind: null, text: gap }));
  });
}

/** Why a task failed. A plan that a person rejected is no fault of the planner: it says by whom instead. */
function causeOf(model: RunModel, row: TaskRow): { task: string; kind: string | null; text: string } {
  const rejected = [...model.questions.values()].findLast((question) => question.kind === "plan")?.answered;
  if (row.system && row.error?.kind === "denied" && rejected?.text === "reject")
    return { task: row.id, kind: null, text: `rejected by ${rejected.by || "a person"}` };
  const message = (row.error?.message ?? "").replace(/^no plan: /, "");
  return { task: row.id, kind: row.error?.kind ?? "", text: message };
}

let generations = 0;

/** The workers that a run has given something to do, or will; items of `for_each` are told only by their attempts. */
export function workersIn(model: RunModel): Set<string> {
  const found = new Set<string>();
  for (const row of model.tasks.values()) if (!row.system) found.add(row.worker);
  for (const row of model.attempts) found.add(row.worker);
  for (const name of found) if (!name || isSystem(name)) found.delete(name);
  return found;
}

/** Seconds that an attempt took. */
function lengthOf(row: AttemptRow): number {
  return row.ended_at ? (Date.parse(row.ended_at) - Date.parse(row.started_at)) / 1000 : 0;
}

/** Dollars with these added, as facts/outcome.py says: null once calls were made of which no price is known. */
function costWith(before: number | null, usage: Usage): number | null {
  const sum = (before ?? 0) + (usage.money ?? 0);
  return sum === 0 && (before === null || usage.calls) ? null : sum;
}

/** The row of a task that has not begun. */
export function waitingRow(task: PlanTask, needs: string[], phase = 0): TaskRow {
  return {
    id: task.id,
    description: task.description,
    worker: task.worker || task.skill || "",
    needs,
    required: !task.optional,
    accept: task.accept ?? "",
    state: "waiting",
    attempt: 0,
    attempts: 0,
    started_at: null,
    ended_at: null,
    seconds: null,
    wait_seconds: null,
    tokens: 0,
    cost: 0,
    why: "",
    error: null,
    for_each: task.for_each !== undefined && task.for_each !== null,
    phase,
    budget: task.limits ?? null,
  };
}

export class RunModel {
  /** Tells a model that was made anew from one that went on. */
  readonly generation = ++generations;
  seq = 0;
  run: RunDetails;
  plan: Plan | null = null;
  planVersion = 0;
  /** In the order of the plan; tasks of the supervisor itself last. */
  tasks = new Map<string, TaskRow>();
  attempts: AttemptRow[] = [];
  questions = new Map<string, Question>();
  items: Record<string, ItemCounts> = {};
  criticalPath: string[] = [];
  estimates: Record<string, number> = {};
  waits: Snapshot["waits"] = [];
  children: Snapshot["children"] = [];
  /** Calls heard of since the model began, oldest first. */
  calls: Call[] = [];
  /** The newest call of each task that is under way. */
  openCalls = new Map<string, Call>();
  /** The last word of a worker about its progress, by task. */
  progress = new Map<string, { text: string; fraction: number | null }>();
  /** The answer while it is being written. */
  answer = "";
  /** Seconds of work in attempts that were done. */
  busy = 0;
  /** Seconds up to `idleAt` in which nothing ran and only a person could move the run. */
  private idle = 0;
  private idleAt = Number.NaN;
  private running = 0;
  /** Tasks of the plan that were done, in the order of their end. */
  finished: string[] = [];
  /** The time of the last event: "now" of a replay. */
  at = "";
  /** Set by events that change what only the server computes: critical path, estimates, waits. */
  isStale = false;

  private readonly dependents = new Map<string, string[]>();
  private readonly callIndex = new Map<string, number>();
  private readonly attemptIndex = new Map<string, number>();
  private readonly readyAt = new Map<string, string>();
  private readonly optionalNeeds = new Set<string>();
  private isPaused = false;

  constructor(id: string) {
    this.run = noRun(id);
  }

  static from(snapshot: Snapshot): RunModel {
    const model = new RunModel(snapshot.run.id);
    model.seq = snapshot.seq;
    model.run = { ...snapshot.run, tasks: { ...snapshot.run.tasks } };
    model.plan = snapshot.plan;
    model.planVersion = snapshot.plan_version;
    for (const row of snapshot.tasks) if (row.membership !== "removed") model.tasks.set(row.id, row);
    for (const task of snapshot.plan?.tasks ?? []) model.noteOptional(task);
    for (const row of model.tasks.values()) model.link(row);
    model.attempts = [...snapshot.attempts];
    model.attempts.forEach((row, index) => {
      model.attemptIndex.set(`${row.task}:${row.attempt}`, index);
      if (row.outcome === "done") model.busy += lengthOf(row);
      if (row.outcome === "running") model.running += 1;
    });
    model.idle = snapshot.run.idle;
    model.idleAt = Date.parse(snapshot.run.began_at ?? "") + (snapshot.run.wall ?? 0) * 1000;
    model.finished = [...model.tasks.values()]
      .filter((row) => row.state === "done" && row.ended_at && !row.system)
      .map((row) => ({ id: row.id, at: Date.parse(row.ended_at ?? "") }))
      .sort((a, b) => a.at - b.at)
      .map((row) => row.id);
    for (const question of snapshot.questions) model.questions.set(question.id, question);
    model.items = { ...snapshot.items };
    model.criticalPath = snapshot.critical_path;
    model.estimates = snapshot.estimates;
    model.waits = snapshot.waits;
    model.children = snapshot.children;
    model.isPaused = snapshot.run.state === "paused";
    model.at = snapshot.run.ended_at ?? snapshot.run.began_at ?? "";
    return model;
  }

  get isOver(): boolean {
    return RUN_ENDED.has(this.run.state);
  }

  /** Questions that a person can answer now. Once the run is over, none can be. */
  get openQuestions(): Question[] {
    if (this.isOver) return [];
    return [...this.questions.values()].filter((question) => !question.answered && !question.is_closed);
  }

  /** The tasks that need this one. */
  unblocks(id: string): string[] {
    return this.dependents.get(id) ?? [];
  }

  /** How many unfinished tasks wait, directly or not, for one of these; each counts once. */
  waitsBehind(...ids: string[]): number {
    const seen = new Set<string>();
    const open = ids.flatMap((id) => this.unblocks(id));
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      if (seen.has(next) || FINAL.has(this.tasks.get(next)?.state ?? "done")) continue;
      seen.add(next);
      open.push(...this.unblocks(next));
    }
    return seen.size;
  }

  /** Take the next event. One that was taken before changes nothing. */
  apply(event: RunEvent): void {
    if (event.seq <= this.seq) return;
    this.seq = event.seq;
    this.at = event.at;
    this.idle = this.idleUntil(Date.parse(event.at));
    this.idleAt = Date.parse(event.at);
    const take = HANDLERS[event.kind];
    if (take) take(this, event);
  }

  /** Seconds of work in attempts that were done, and in those under way as far as they are. */
  busyUntil(now: number): number {
    let busy = this.busy;
    for (const row of this.attempts)
      if (row.outcome === "running") busy += Math.max(0, now - Date.parse(row.started_at)) / 1000;
    return busy;
  }

  /** Seconds in which nothing ran while a question was open, the run was paused, or no process led it. */
  idleUntil(now: number): number {
    const isReleased = !this.run.leader && this.attempts.length > 0;
    const waits = this.run.questions > 0 || this.isPaused || isReleased;
    const since = this.running === 0 && waits ? (now - this.idleAt) / 1000 : 0;
    return this.idle + Math.max(0, since || 0);
  }

  // What the handlers below use.

  link(row: TaskRow): void {
    for (const need of row.needs) {
      const known = this.dependents.get(need);
      if (!known) this.dependents.set(need, [row.id]);
      else if (!known.includes(row.id)) known.push(row.id);
    }
  }

  noteOptional(task: PlanTask): void {
    for (const need of task.needs ?? [])
      if (typeof need !== "string" && need.optional) this.optionalNeeds.add(`${task.id}<${need.task}`);
  }

  change(id: string, changes: Partial<TaskRow>): void {
    const row = this.tasks.get(id);
    if (!row) return;
    if (changes.state && changes.state !== row.state && !row.system) {
      const counts = { ...this.run.tasks };
      counts[row.state] -= 1;
      counts[changes.state] += 1;
      this.run = { ...this.run, tasks: counts };
    }
    this.tasks.set(id, { ...row, ...changes });
  }

  add(task: PlanTask, at: string): void {
    const needs = (task.needs ?? []).map(needId);
    const phase = 1 + Math.max(-1, ...needs.map((need) => this.tasks.get(need)?.phase ?? -1));
    const row = waitingRow(task, needs, phase);
    this.tasks.set(row.id, row);
    const counts = { ...this.run.tasks };
    counts.total += 1;
    counts.waiting += 1;
    this.run = { ...this.run, tasks: counts };
    this.noteOptional(task);
    this.link(row);
    this.makeReady(row.id, at);
  }

  remove(id: string): void {
    const row = this.tasks.get(id);
    if (!row || row.attempts > 0) {
      this.change(id, { state: "cancelled", why: "removed from the plan" });
      return;
    }
    const counts = { ...this.run.tasks };
    counts.total -= 1;
    counts[row.state] -= 1;
    this.run = { ...this.run, tasks: counts };
    this.tasks.delete(id);
  }

  makeReady(id: string, at: string): void {
    const row = this.tasks.get(id);
    if (row?.state !== "waiting") return;
    const met = (need: string): boolean => {
      const state = this.tasks.get(need)?.state;
      return state === "done" || (FINAL.has(state ?? "waiting") && this.optionalNeeds.has(`${id}<${need}`));
    };
    if (!row.needs.every(met)) return;
    this.readyAt.set(id, at);
    this.change(id, { state: "ready" });
  }

  settle(id: string, changes: Partial<TaskRow>, at: string): void {
    this.change(id, { ended_at: at, ...changes });
    this.progress.delete(id);
    // What waited for it waits for something else now, or for nothing.
    if (this.waits.some((wait) => wait.why.includes(id))) this.isStale = true;
    if (changes.state === "done" && !isSystem(id)) this.finished.push(id);
    for (const dependent of this.unblocks(id)) this.makeReady(dependent, at);
  }

  begin(task: string, attempt: number, worker: string, why: string, at: string): void {
    if (!this.tasks.has(task) && isSystem(task)) this.tasks.set(task, systemRow(task, worker));
    const item = ITEM.exec(task);
    if (item) this.countItem(item[1] as string, { running: 1 }, at);
    const row = this.tasks.get(task);
    if (row) {
      const ready = this.readyAt.get(task);
      const waited = ready ? (Date.parse(at) - Date.parse(ready)) / 1000 : row.wait_seconds;
      this.change(task, {
        state: "running",
        attempt,
        attempts: row.attempts + 1,
        // The supervisor puts the results of items together; the task stays that of its worker.
        worker: worker && (row.system || !isSystem(worker)) ? worker : row.worker,
        started_at: row.started_at ?? at,
        ended_at: null,
        wait_seconds: waited,
        why,
        error: null,
      });
    }
    this.running += 1;
    this.attemptIndex.set(`${task}:${attempt}`, this.attempts.length);
    this.attempts.push({
      task,
      attempt,
      worker,
      started_at: at,
      ended_at: null,
      outcome: "running",
      why,
      calls: 0,
    });
  }

  end(task: string, attempt: number, outcome: AttemptOutcome, at: string, error = ""): void {
    this.openCalls.delete(task);
    const index = this.attemptIndex.get(`${task}:${attempt}`);
    const row = index === undefined ? undefined : this.attempts[index];
    if (!row || index === undefined) return;
    const ended = { ...row, ended_at: at, outcome, ...(error ? { error } : {}) };
    this.attempts[index] = ended;
    if (row.outcome === "running") this.running -= 1;
    if (outcome === "done") this.busy += lengthOf(ended);
  }

  /** Seconds that the attempts of a task took that have ended; waits between them do not count. */
  worked(task: string): number | null {
    const row = this.tasks.get(task);
    if (!row) return null;
    let seconds = 0;
    for (let attempt = 1; attempt <= row.attempt; attempt++) {
      const index = this.attemptIndex.get(`${task}:${attempt}`);
      const known = index === undefined ? undefined : this.attempts[index];
      if (known) seconds += lengthOf(known);
    }
    return seconds;
  }

  /** When the attempt began that is under way. */
  attemptBegan(row: TaskRow): string | null {
    const index = this.attemptIndex.get(`${row.id}:${row.attempt}`);
    return (index === undefined ? undefined : this.attempts[index]?.started_at) ?? row.started_at;
  }

  countItem(task: string, changes: Partial<ItemCounts>, at: string): void {
    const counts = { ...(this.items[task] ?? { total: 0, done: 0, failed: 0, running: 0 }) };
    for (const [name, by] of Object.entries(changes)) counts[name as keyof ItemCounts] += by ?? 0;
    this.items = { ...this.items, [task]: counts };
    const row = this.tasks.get(task);
    if (!row) return;
    if (counts.running > 0 && (row.state === "waiting" || row.state === "ready" || row.state === "retrying"))
      this.change(task, { state: "running", started_at: row.started_at ?? at });
    const settled = counts.done + counts.failed;
    if (counts.total > 0 && settled >= counts.total && counts.done > 0) {
      const seconds = row.started_at ? (Date.parse(at) - Date.parse(row.started_at)) / 1000 : null;
      this.settle(task, { state: "done", seconds }, at);
    }
  }

  /** A task is not worked on any more, and waits. One that waits for its items does, once none of these is at work. */
  waitsNow(task: string, state: TaskState, why: string, at: string): void {
    const mapped = ITEM.exec(task)?.[1];
    if (mapped === undefined) {
      this.change(task, { state, why });
      return;
    }
    this.countItem(mapped, { running: -1 }, at);
    const counts = this.items[mapped];
    if (counts && counts.running <= 0 && counts.done + counts.failed < counts.total && this.isRunning(mapped))
      this.change(mapped, { state, why });
  }

  private isRunning(task: string): boolean {
    return this.tasks.get(task)?.state === "running";
  }

  spend(task: string, usage: Usage | undefined): void {
    if (!usage) return;
    const tokens = (usage.tokens_in ?? 0) + (usage.tokens_out ?? 0);
    if (!tokens && !usage.money && !usage.calls) return;
    const { run } = this;
    const used = { ...run.usage };
    for (const [name, amount] of Object.entries(usage) as [keyof Usage, number | null][])
      used[name] = (used[name] ?? 0) + (amount ?? 0);
    this.run = { ...run, tokens: run.tokens + tokens, cost: costWith(run.cost, usage), usage: used };
    const row = this.tasks.get(task);
    if (row)
      this.change(task, {
        tokens: row.tokens + tokens,
        cost: costWith(row.cost, usage),
      });
  }

  ask(task: string, asked: QuestionFields, at: string): void {
    const patience = typeof asked.patience === "number" ? asked.patience : null;
    const deadline = patience === null ? null : new Date(Date.parse(at) + patience * 1000).toISOString();
    this.questions.set(asked.id, {
      id: asked.id,
      run: this.run.id,
      title: this.run.title,
      task,
      asked_at: at,
      text: asked.text,
      kind: questionKind(asked.about ?? "plain"),
      choices: asked.choices ?? [],
      default: asked.default ?? null,
      deadline_at: deadline,
      evidence: asked.evidence ?? null,
      waits_behind: this.waitsBehind(task),
      answered: null,
    });
    this.run = { ...this.run, questions: this.openQuestions.length };
    this.isStale = true;
  }

  answered(id: string, by: string, text: string, at: string): void {
    const question = this.questions.get(id);
    if (question) this.questions.set(id, { ...question, answered: { by, text, at } });
    this.run = { ...this.run, questions: this.openQuestions.length };
    this.isStale = true;
  }

  startCall(key: string, call: Call): void {
    if (this.callIndex.has(key)) return; // known from before the last snapshot
    this.callIndex.set(key, this.calls.length);
    this.calls.push(call);
    this.openCalls.set(call.task, call);
    const index = this.attemptIndex.get(`${call.task}:${call.attempt}`);
    const row = index === undefined ? undefined : this.attempts[index];
    if (row && index !== undefined) this.attempts[index] = { ...row, calls: row.calls + 1 };
  }

  endCall(key: string, at: string, error: string, usage: Usage): void {
    const index = this.callIndex.get(key);
    const call = index === undefined ? undefined : this.calls[index];
    if (!call || index === undefined) return;
    const ended: Call = {
      ...call,
      seconds: (Date.parse(at) - Date.parse(call.started_at)) / 1000,
      tokens_in: usage.tokens_in ?? 0,
      tokens_out: usage.tokens_out ?? 0,
      cost: costWith(0, usage),
      error,
    };
    this.calls[index] = ended;
    if (this.openCalls.get(call.task)?.id === call.id) this.openCalls.delete(call.task);
  }

  /** Hand what a snapshot does not hold to the model that replaces this one. */
  adoptCallsInto(next: RunModel): void {
    for (const [key, index] of this.callIndex) next.callIndex.set(key, index);
    for (const [task, call] of this.openCalls)
      if (next.tasks.get(task)?.state === "running") next.openCalls.set(task, call);
    for (const [task, said] of this.progress) next.progress.set(task, said);
  }

  pause(paused: boolean): void {
    this.isPaused = paused;
    this.refreshState();
  }

  /** The state of the run, from what is known of its tasks. */
  refreshState(): void {
    if (this.isOver) return;
    const { tasks } = this.run;
    let state: RunState = this.run.state;
    if (this.isPaused) state = "paused";
    else if (!this.run.leader) return;
    else if (
      tasks.needs > 0 &&
      tasks.running + tasks.retrying + tasks.ready === 0 &&
      !this.hasOpenSystemTask()
    )
      state = "waiting";
    else if (tasks.total === 0 && this.run.questions > 0) state = "waiting";
    else state = tasks.total === 0 ? "planning" : "running";
    if (state !== this.run.state) this.run = { ...this.run, state };
  }

  private hasOpenSystemTask(): boolean {
    for (const row of this.tasks.values()) if (row.system && row.state === "running") return true;
    return false;
  }
}

function systemRow(id: string, worker: string): TaskRow {
  const description = systemDescription(id);
  const phase = id === "@plan" ? -1 : 1_000_000;
  return { ...waitingRow({ id, description, worker }, [], phase), state: "ready", system: true };
}

type Handler = (model: RunModel, event: RunEvent) => void;

const text = (value: unknown): string => (typeof value === "string" ? value : "");

function finishAttempt(model: RunModel, event: RunEvent): void {
  const task = text(event.task);
  const attempt = Number(event.attempt);
  const outcome = event.outcome as OutcomeFields;
  const item = ITEM.exec(task);
  model.spend(item?.[1] ?? task, outcome.usage);
  if (outcome.is === "done") {
    model.end(task, attempt, "done", event.at);
    const seconds = model.worked(task);
    if (item) model.countItem(item[1] as string, { running: -1, done: 1 }, event.at);
    else model.settle(task, { state: "done", seconds, error: null, gaps: outcome.gaps ?? [] }, event.at);
  } else if (outcome.is === "needs_input") {
    model.end(task, attempt, "needs", event.at);
    model.change(task, { seconds: model.worked(task) });
    model.waitsNow(task, "needs", outcome.question?.text ?? "", event.at);
    if (outcome.question) model.ask(task, outcome.question, event.at);
  } else {
    const error = { kind: outcome.kind ?? "cancelled", message: outcome.message ?? outcome.reason ?? "" };
    const ending = outcome.is === "cancelled" ? "cancelled" : "failed";
    model.end(task, attempt, ending, event.at, `${error.kind}: ${error.message}`);
    if (item) model.waitsNow(task, "retrying", `${error.kind}: ${error.message}`, event.at);
    // What becomes of it is said by a later event: RetryPlanned, PersonAsked or TaskFailed.
    model.change(task, {
      state: outcome.is === "cancelled" ? "cancelled" : "retrying",
      error,
      ended_at: event.at,
    });
  }
  model.refreshState();
}

const HANDLERS: Record<string, Handler> = {
  RunRequested(model, event) {
    const request = text(event.request);
    model.run = {
      ...model.run,
      request,
      title: request.split("\n")[0] ?? "",
      began_at: event.at,
      priority: Number(event.priority ?? 0),
      limits: (event.limits as RunDetails["limits"]) ?? {},
      deadline_at: (event.deadline_at as string) ?? null,
      parent: text(event.parent),
      after: text(event.after),
      approach: text(event.approach) || "given",
    };
  },
  RunLed(model, event) {
    model.run = { ...model.run, leader: { node: text(event.node), pid: 0, host: "", here: false } };
    for (const row of model.attempts)
      if (row.outcome === "running") model.end(row.task, row.attempt, "lost", event.at);
    model.refreshState();
  },
  PlanAdopted(model, event) {
    const plan = event.plan as Plan;
    model.plan = plan;
    model.planVersion = plan.version ?? 1;
    for (const task of plan.tasks) model.add(task, event.at);
    model.isStale = true;
    model.refreshState();
  },
  PlanOpened(model, event) {
    model.plan = { goal: text(event.goal), instruction: text(event.instruction), tasks: [], version: 1 };
    model.planVersion = 1;
  },
  TaskAdded(model, event) {
    const task = event.task as PlanTask;
    if (model.plan) model.plan = { ...model.plan, tasks: [...model.plan.tasks, task] };
    model.add(task, event.at);
    model.isStale = true;
    model.refreshState();
  },
  PlanSealed(model) {
    model.isStale = true;
  },
  PlanAmended(model, event) {
    const added = (event.added as PlanTask[] | undefined) ?? [];
    const removed = new Set((event.removed as string[] | undefined) ?? []);
    model.planVersion = Number(event.version);
    for (const id of removed) model.remove(id);
    if (model.plan) {
      const kept = model.plan.tasks.filter((task) => !removed.has(task.id));
      model.plan = { ...model.plan, version: model.planVersion, tasks: [...kept, ...added] };
    }
    for (const task of added) model.add(task, event.at);
    model.isStale = true;
    model.refreshState();
  },
  ItemsListed(model, event) {
    const items = (event.items as unknown[]) ?? [];
    model.countItem(text(event.task), { total: items.length }, event.at);
  },
  TaskRewritten(model, event) {
    model.change(text(event.task), { description: text(event.description) });
  },
  AttemptStarted(model, event) {
    model.begin(text(event.task), Number(event.attempt), text(event.worker), text(event.why), event.at);
    model.refreshState();
  },
  AttemptFinished: finishAttempt,
  AttemptLost(model, event) {
    model.end(text(event.task), Number(event.attempt), "lost", event.at, text(event.reason));
    model.waitsNow(text(event.task), "retrying", text(event.reason), event.at);
  },
  AttemptPreempted(model, event) {
    model.end(text(event.task), Number(event.attempt), "preempted", event.at);
    model.waitsNow(text(event.task), "ready", "preempted by a more urgent task", event.at);
  },
  AttemptParked(model, event) {
    model.end(text(event.task), Number(event.attempt), "parked", event.at);
    model.waitsNow(text(event.task), "retrying", text(event.why), event.at);
  },
  RetryPlanned(model, event) {
    const worker = text(event.worker);
    model.change(text(event.task), { state: "retrying", ...(worker ? { worker } : {}) });
  },
  RetryDue(model, event) {
    model.change(text(event.task), { state: "ready" });
  },
  PersonAsked(model, event) {
    model.change(text(event.task), { state: "needs" });
    model.ask(text(event.task), event.question as QuestionFields, event.at);
    model.refreshState();
  },
  TaskFailed(model, event) {
    const cause = event.cause as { kind?: string; message?: string };
    const task = text(event.task);
    const item = ITEM.exec(task);
    if (item) model.countItem(item[1] as string, { failed: 1 }, event.at);
    const error = { kind: cause.kind ?? "", message: cause.message ?? "" };
    model.settle(task, { state: "failed", error, seconds: model.worked(task) }, event.at);
    model.isStale = true;
    model.refreshState();
  },
  TaskSkipped(model, event) {
    model.settle(text(event.task), { state: "skipped", why: text(event.why) }, event.at);
  },
  QuestionAnswered(model, event) {
    model.answered(text(event.question), text(event.by), text(event.text), event.at);
    model.change(text(event.task), { state: "ready" });
    model.refreshState();
  },
  QuestionExpired(model, event) {
    model.answered(text(event.question), "", text(event.why) || "no answer in time", event.at);
    model.refreshState();
  },
  StepStarted(model, event) {
    const name = text(event.name);
    const step = event.step as { kind?: CallKind; model?: string } | undefined;
    model.startCall(stepKey(event), {
      id: String(event.seq),
      task: text(event.task),
      attempt: Number(event.attempt),
      kind: step?.kind ?? (name.startsWith("tool ") ? "tool" : "step"),
      name: name.replace(/^tool /, ""),
      model: step?.model ?? "",
      started_at: event.at,
      seconds: null,
      tokens_in: 0,
      tokens_out: 0,
      cost: 0,
      error: "",
      is_slow: false,
    });
  },
  StepFinished(model, event) {
    const outcome = event.outcome as OutcomeFields;
    const task = text(event.task);
    const error = outcome.is === "failed" ? `${outcome.kind}: ${outcome.message}` : "";
    model.endCall(stepKey(event), event.at, error, outcome.usage ?? {});
    model.spend(ITEM.exec(task)?.[1] ?? task, outcome.usage);
  },
  ProgressNoted(model, event) {
    const fraction = typeof event.fraction === "number" ? event.fraction : null;
    model.progress.set(text(event.task), { text: text(event.text), fraction });
  },
  WorkStopped(model, event) {
    model.run = { ...model.run, status_reason: text(event.reason) };
  },
  CancelRequested(model, event) {
    model.run = { ...model.run, status_reason: text(event.reason) || "cancelled" };
  },
  RunPaused(model) {
    model.pause(true);
  },
  RunUnpaused(model) {
    model.pause(false);
  },
  BudgetChanged(model, event) {
    const limits = { ...model.run.limits };
    for (const name of ["money", "tokens", "calls"] as const)
      if (typeof event[name] === "number") limits[name] = event[name];
    model.run = { ...model.run, limits };
  },
  RunReleased(model, event) {
    model.run = {
      ...model.run,
      leader: null,
      state: event.is_parked ? "parked" : "interrupted",
      reason: text(event.reason),
    };
  },
  RunFinished(model, event) {
    const state = text(event.status) as RunState;
    for (const row of model.attempts)
      if (row.outcome === "running") model.end(row.task, row.attempt, "lost", event.at);
    for (const row of model.tasks.values())
      if (!FINAL.has(row.state)) model.change(row.id, { state: "cancelled", ended_at: event.at });
    const wall = (Date.parse(event.at) - Date.parse(model.run.began_at ?? event.at)) / 1000;
    model.run = { ...model.run, state, reason: text(event.reason), ended_at: event.at, wall };
    model.isStale = true;
  },
};

/** All events of a run, and its state at any of them. Going back folds from the beginning: 10,000 events take about 20 ms. */
export class Replay {
  readonly events: RunEvent[];
  private model: RunModel;

  constructor(
    readonly id: string,
    events: RunEvent[],
  ) {
    this.events = events;
    this.model = new RunModel(id);
  }

  get first(): number {
    return this.events[0]?.seq ?? 0;
  }

  get last(): number {
    return this.events.at(-1)?.seq ?? 0;
  }

  /** The run as it stood just after event `seq`. Going forward takes only the events between. */
  at(seq: number): RunModel {
    if (seq < this.model.seq) this.model = new RunModel(this.id);
    for (let index = this.position(this.model.seq); index < this.events.length; index += 1) {
      const event = this.events[index] as RunEvent;
      if (event.seq > seq) break;
      this.model.apply(event);
    }
    return this.model;
  }

  /** The number of events up to and with `seq`. */
  position(seq: number): number {
    let [low, high] = [0, this.events.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.events[middle] as RunEvent).seq <= seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
