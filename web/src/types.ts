// The shapes that the HTTP API sends. Names, states and fields are those of `docs/api.md`.

export type RunState =
  | "submitted"
  | "planning"
  | "running"
  | "waiting"
  | "paused"
  | "stopping"
  | "interrupted"
  | "parked"
  | "succeeded"
  | "partial"
  | "failed"
  | "cancelled"
  | "unreadable";

export type TaskState =
  | "waiting"
  | "ready"
  | "running"
  | "retrying"
  | "needs"
  | "done"
  | "failed"
  | "skipped"
  | "cancelled";

export type TaskCounts = { total: number } & Record<TaskState, number>;

export interface Leader {
  node: string;
  pid: number;
  host: string;
  here: boolean;
}

/** A run as the list of runs shows it. */
export interface RunRow {
  id: string;
  title: string;
  request: string;
  state: RunState;
  reason: string;
  began_at: string | null;
  ended_at: string | null;
  wall: number | null;
  /** Seconds of it in which nothing ran and only a person could move it. */
  idle: number;
  tasks: TaskCounts;
  speedup: number | null;
  tokens: number;
  /** Dollars; null: unknown. */
  cost: number | null;
  questions: number;
  priority: number;
  leader: Leader | null;
  parent: string;
}

/** Fields that are nought may be left out. */
export interface Usage {
  calls?: number;
  tokens_in?: number;
  tokens_out?: number;
  cache_read?: number;
  /** Null: calls were made, and no price list knows what any of them cost. */
  money?: number | null;
}

export interface Limits {
  money?: number | null;
  tokens?: number | null;
  calls?: number | null;
  time?: number | null;
  [name: string]: unknown;
}

/** A run as its own page shows it. */
export interface RunDetails extends RunRow {
  approach: string;
  limits: Limits;
  usage: Usage;
  deadline_at: string | null;
  after: string;
  /** The workers that its plan may name; none: the whole crew. */
  workers?: string[];
  taint: string[];
  answer_size: number;
  status_reason: string;
}

export interface TaskRow {
  id: string;
  description: string;
  worker: string;
  needs: string[];
  required: boolean;
  accept: string;
  state: TaskState;
  attempt: number;
  attempts: number;
  started_at: string | null;
  ended_at: string | null;
  seconds: number | null;
  wait_seconds: number | null;
  tokens: number;
  cost: number | null;
  why: string;
  error: { kind: string; message: string } | null;
  for_each: boolean;
  phase: number;
  budget: Limits | null;
  /** A task of the supervisor itself: planning, rewriting, answering. */
  system?: boolean;
  membership?: "planned" | "removed" | "replaced";
  /** What its result lacks, such as items that failed. */
  gaps?: string[];
}

export type AttemptOutcome =
  | "done"
  | "failed"
  | "cancelled"
  | "lost"
  | "preempted"
  | "parked"
  | "running"
  | "needs";

export interface AttemptRow {
  task: string;
  attempt: number;
  worker: string;
  started_at: string;
  ended_at: string | null;
  outcome: AttemptOutcome;
  why: string;
  calls: number;
  wait_seconds?: number;
  tokens?: number;
  cost?: number | null;
  error?: string;
  /** Of a task with `for_each`: the item, in a few words. */
  item?: string;
  stack?: string;
}

export type QuestionKind = "question" | "approval" | "review" | "budget" | "plan";

export interface Question {
  id: string;
  run: string;
  /** The first line of the request of its run. */
  title?: string;
  task: string;
  asked_at: string;
  text: string;
  kind: QuestionKind;
  choices: string[];
  default: string | null;
  deadline_at: string | null;
  evidence: unknown;
  waits_behind: number;
  answered: Answered | null;
  /** The choice that may be followed by a colon and JSON. */
  telling?: string;
  tool?: string;
  arguments?: Record<string, unknown> | null;
  /** No answer came in time, or the run has ended. */
  is_closed?: boolean;
}

export interface Answered {
  by: string;
  text: string;
  at: string;
}

export interface PlanNeed {
  task: string;
  optional?: boolean;
  output?: string;
  name?: string;
}

export interface PlanTask {
  id: string;
  description: string;
  worker?: string;
  skill?: string;
  needs?: (PlanNeed | string)[];
  accept?: string;
  optional?: boolean;
  limits?: Limits;
  [field: string]: unknown;
}

export interface Plan {
  goal: string;
  tasks: PlanTask[];
  instruction?: string;
  strategy?: string;
  version?: number;
  [field: string]: unknown;
}

export interface ItemCounts {
  total: number;
  done: number;
  failed: number;
  running: number;
}

/** All of a run at one moment, without prompts and outputs. */
export interface Snapshot {
  seq: number;
  run: RunDetails;
  plan: Plan | null;
  plan_version: number;
  tasks: TaskRow[];
  attempts: AttemptRow[];
  questions: Question[];
  waits: { task: string; why: string; since: string }[];
  critical_path: string[];
  estimates: Record<string, number>;
  children: { task: string; run: string; title: string; state: RunState }[];
  items: Record<string, ItemCounts>;
}

/** One task with everything about it. */
export interface TaskDetails extends TaskRow {
  instruction?: string;
  args?: unknown;
  output?: unknown;
  output_size?: number;
  output_truncated?: boolean;
  history?: AttemptRow[];
  rewrites?: string[];
  provenance?: string[];
  gaps?: string[];
}

export type CallKind = "model" | "tool" | "run" | "step" | "attempt";

export interface Call {
  /** The number of the event that began it. */
  id: string;
  task: string;
  attempt: number;
  kind: CallKind;
  name: string;
  model?: string;
  started_at: string;
  seconds: number | null;
  tokens_in: number;
  tokens_out: number;
  cost: number | null;
  error: string;
  is_slow: boolean;
  /** Of `seconds`: until the model's provider would take it. */
  wait_seconds?: number;
  /** Requests that went out for it, refused ones included. */
  sends?: number;
}

export interface CallDetails extends Call {
  input?: unknown;
  output?: unknown;
  truncated?: boolean;
  size?: number;
}

/** One event of a run, as `--json` prints it. Fields differ by kind. */
export interface RunEvent {
  seq: number;
  run: string;
  kind: string;
  at: string;
  [field: string]: unknown;
}
