// The run that this tab looks at: its snapshot, kept up to date by one stream; or a replay of it.

import { effect, signal } from "@preact/signals";
import { ApiError, apiUrl, get, runPath, signedOut } from "./api";
import { route } from "./router";
import { isReachable, openQuestions, refreshAttention, refreshMe, refreshQuestions } from "./session";
import { Replay, RunModel } from "./store";
import { backoff, type Frame, open } from "./stream";
import type { Question, RunEvent, Snapshot } from "./types";

export type Connection = "idle" | "connecting" | "live" | "lost";

export const connection = signal<Connection>("idle");
/** When the last byte of the stream came, in milliseconds. */
export const dataAt = signal(0);
/** Rises at most once per frame, when the model has changed: what is drawn follows it. */
export const pulse = signal(0);
/** Rises with it, but a few times a second at most: text that changes more often cannot be read. */
const tick = signal(0);
export const loadError = signal<ApiError | null>(null);
export const replay = signal<Replay | null>(null);
/** The last question of this run that the stream said was answered, by anybody. */
export const justAnswered = signal<Question | null>(null);

/** A tab that stays hidden longer than this gives its connection back: browsers allow six per host. */
const HIDDEN_CLOSE = 20_000;
/** The server computes the critical path and waits; after a change of the plan they are fetched again. */
const REFRESH_AFTER = 600;
/** Milliseconds between two changes of the text. */
const TEXT_INTERVAL = 350;

let live: RunModel | null = null;
let followed: string | null = null;
let events: RunEvent[] = [];
let closeStream: (() => void) | null = null;
let tries = 0;
let retryTimer: ReturnType<typeof setTimeout> | undefined;
let refreshTimer: ReturnType<typeof setTimeout> | undefined;
let hiddenTimer: ReturnType<typeof setTimeout> | undefined;
let isFlushPlanned = false;
let tickAt = 0;
let tickTimer: ReturnType<typeof setTimeout> | undefined;
/** What people must see at once. */
let urgent = "";
/** The number of the newest snapshot: answers may overtake each other. */
let newestSnapshot = 0;
/** The server has said that no more events will come. */
let hasEnded = false;

let view: RunModel | null = null;
let viewOf: RunModel | null = null;
let viewTick = -1;
let viewSeq = -1;

/** The run as this page shows it, now or at the moment of a replay. Read inside a component. */
export function useModel(): RunModel | null {
  const at = route.value.query.at;
  const model = at !== undefined && replay.value ? replay.value.at(Number(at)) : live;
  if (tick.value === viewTick && model === viewOf && model?.seq === viewSeq) return view;
  // A model changes in place, and signals skip components whose props are the same objects. So a component gets
  // an object of its own for each state, which reads through to the model.
  [viewTick, viewOf, viewSeq] = [tick.value, model, model?.seq ?? -1];
  view = model && (Object.create(model) as RunModel);
  return view;
}

function flush(): void {
  if (isFlushPlanned) return;
  isFlushPlanned = true;
  const done = () => {
    isFlushPlanned = false;
    pulse.value += 1;
    flushText();
  };
  if (document.hidden) setTimeout(done, TEXT_INTERVAL);
  else requestAnimationFrame(done);
}

function flushText(): void {
  const { run, questions, generation } = live ?? {};
  const told = `${generation} ${run?.state} ${run?.questions} of ${questions?.size} ${run?.tasks.failed}`;
  const early = tickAt + TEXT_INTERVAL - performance.now();
  clearTimeout(tickTimer);
  if (told === urgent && early > 0) {
    tickTimer = setTimeout(flushText, early);
    return;
  }
  urgent = told;
  tickAt = performance.now();
  tick.value += 1;
}

async function load(run: string): Promise<void> {
  try {
    const snapshot = await get<Snapshot>(runPath(run, "snapshot"));
    if (followed !== run || snapshot.seq < newestSnapshot) return;
    newestSnapshot = snapshot.seq;
    const model = RunModel.from(snapshot);
    carryOver(live, model);
    for (const event of events) model.apply(event);
    events = events.filter((event) => event.seq > snapshot.seq);
    live = model;
    loadError.value = null;
    flush();
    settleEnd();
    if (model.openQuestions.length !== openQuestions.peek().filter((each) => each.run === run).length)
      void refreshAttention().then(refreshQuestions);
  } catch (error) {
    if (followed === run && error instanceof ApiError) {
      if (error.status !== 0 || !live) loadError.value = error;
      throw error;
    }
  }
}

/** A snapshot has no calls and no progress: keep what was heard of them. */
function carryOver(from: RunModel | null, to: RunModel): void {
  if (!from || from.run.id !== to.run.id) return;
  to.calls = from.calls;
  to.answer = from.answer;
  from.adoptCallsInto(to);
}

function take(frame: Frame): void {
  if (frame.event === "resync") restart();
  else if (frame.event === "bye") lost(0);
  else if (frame.event === "end") ended();
  else if (frame.event === "answer") hearAnswer(JSON.parse(frame.data));
  else if (frame.event === "message") hearEvents(JSON.parse(frame.data));
}

/** The run is over: the server closes the stream, and nothing more will come. */
function ended(): void {
  closeStream?.();
  closeStream = null;
  connection.value = "idle";
  hasEnded = true;
  settleEnd();
}

/** A snapshot may be made while the run ends, and say that it goes on: with no stream left, look again. */
function settleEnd(): void {
  if (hasEnded && live && !live.isOver) refreshSoon();
}

function hearAnswer(piece: { text: string; begins_anew?: boolean }): void {
  if (!live) return;
  live.answer = piece.begins_anew ? piece.text : live.answer + piece.text;
  flush();
}

function hearEvents(heard: RunEvent[]): void {
  if (!live) return;
  for (const event of heard) {
    events.push(event);
    live.apply(event);
    if (event.kind === "QuestionAnswered")
      justAnswered.value = live.questions.get(String(event.question)) ?? null;
  }
  if (live.isStale) {
    live.isStale = false;
    refreshSoon();
  }
  flush();
}

export function refreshSoon(delay = REFRESH_AFTER): void {
  const run = followed;
  clearTimeout(refreshTimer);
  if (run) refreshTimer = setTimeout(() => void load(run).catch(() => undefined), delay);
}

function connect(): void {
  closeStream?.();
  closeStream = null;
  clearTimeout(retryTimer);
  hasEnded = false;
  if (!followed || !live || document.hidden) return;
  connection.value = connection.value === "lost" ? "lost" : "connecting";
  closeStream = open(apiUrl(`${runPath(followed, "events")}?after=${live.seq}`), {
    frame: take,
    alive() {
      tries = 0;
      dataAt.value = Date.now();
      isReachable.value = true;
      if (connection.value === "lost") void refreshMe();
      connection.value = "live";
    },
    lost,
  });
}

function lost(status: number): void {
  closeStream?.();
  closeStream = null;
  if (live?.isOver) {
    connection.value = "idle";
    return;
  }
  if (status === 401) {
    signedOut.value = true;
    connection.value = "idle";
    return;
  }
  connection.value = "lost";
  clearTimeout(retryTimer);
  retryTimer = setTimeout(status === 404 || status === 410 || !live ? restart : connect, backoff(tries));
  tries += 1;
}

/** Fetch the run anew and follow it again. */
export function restart(): void {
  const run = followed;
  if (!run) return;
  closeStream?.();
  closeStream = null;
  load(run).then(connect, (error: ApiError) => {
    if (error.status === 0 || error.status >= 500) lost(0);
  });
}

export function retryNow(): void {
  tries = 0;
  if (live) connect();
  else restart();
}

export function follow(run: string | null): void {
  if (run === followed) return;
  closeStream?.();
  closeStream = null;
  clearTimeout(retryTimer);
  clearTimeout(refreshTimer);
  followed = run;
  live = null;
  events = [];
  newestSnapshot = 0;
  hasEnded = false;
  tries = 0;
  replay.value = null;
  loadError.value = null;
  connection.value = run ? "connecting" : "idle";
  if (run) restart();
}

async function loadReplay(run: string): Promise<void> {
  const all: RunEvent[] = [];
  let after = 0;
  for (let more = true; more; ) {
    const page = await get<{ events: RunEvent[]; next: number | null }>(
      runPath(run, `log?after=${after}&limit=2000`),
    );
    all.push(...page.events);
    more = page.next !== null && page.next !== undefined && page.events.length > 0;
    after = page.next ?? after;
  }
  if (followed === run) replay.value = new Replay(run, all);
}

export function startLive(): void {
  effect(() => follow(route.value.run));
  effect(() => {
    const { run, query } = route.value;
    if (run && query.at !== undefined && replay.value?.id !== run) {
      loadReplay(run).catch((error: ApiError) => {
        loadError.value = error;
      });
    }
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) {
      hiddenTimer = setTimeout(() => {
        closeStream?.();
        closeStream = null;
        connection.value = "idle";
      }, HIDDEN_CLOSE);
    } else if (followed && !closeStream && !live?.isOver) {
      retryNow();
    }
  });
}
