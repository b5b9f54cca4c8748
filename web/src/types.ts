// The shapes that the HTTP API sends. Names, states and fields are those of `docs/api.md`.

export type RunState =
  | "submitted"
  | "planning"
  | "running"
  | "waiting"
  | "paused"
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

/** A run as the list of runs shows it. */
export interface RunRow {
  id: string;
  title: string;
  request: string;
  state: RunState;
  reason: string;
  began_at: string;
  ended_at: string | null;
  wall: number | null;
  tasks: TaskCounts;
  speedup: number | null;
  tokens: number;
  cost: number | null;
  questions: number;
  priority: number;
  leader: string;
  parent: string;
}

export interface Usage {
  tokens: number;
  calls: number;
  cost: number | null;
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
}

export type AttemptOutcome = "done" | "failed" | "lost" | "preempted" | "parked" | "running" | "needs";

export interface AttemptRow {
  task: string;
  attempt: number;
  worker: string;
  started_at: string;
  ended_at: string | null;
  outcome: AttemptOutcome;
  why: string;
  calls: number;
}

export type QuestionKind = "question" | "approval" | "review" | "budget" | "plan";

export interface Question {
  id: string;
  run: string;
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
  arguments?: Record<string, unknown> | null;
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

export type CallKind = "model" | "tool" | "step";

export interface Call {
  id: string;
  task: string;
  attempt: number;
  kind: CallKind;
  name: string;
  started_at: string;
  seconds: number | null;
  tokens_in: number;
  tokens_out: number;
  cost: number | null;
  error: string | null;
  is_slow: boolean;
}

/** One event of a run, as `--json` prints it. Fields differ by kind. */
export interface RunEvent {
  seq: number;
  run: string;
  kind: string;
  at: string;
  [field: string]: unknown;
}
