// What the pages of one run share: title, figures, actions, tabs, the orange bar, the replay bar.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, post, runPath } from "../api";
import { clean, clock, cost, count, duration, money, oneLine, plural, times } from "../format";
import { NeedsBar } from "../frame";
import { Glyph, RunStateLabel, StateIcon, taskWord } from "../icons";
import { useKeys } from "../keys";
import { connection, loadError, refreshSoon, replay, restart, useModel } from "../live";
import { isSystem, taskName } from "../names";
import { go, href, type Page, route, setQuery } from "../router";
import { canOperate, capacities, now, showTrouble } from "../session";
import { hasFailures, lackingIn, RUN_ENDED, type RunModel, workersIn } from "../store";
import { FEW_TASKS, forecastOf, leftIn } from "../timeline_geometry";
import type { RunState, TaskState } from "../types";
import { Button, CopyButton, Dialog, ErrorBox, Field, Loading, Meter, SegmentBar } from "../ui";

/** Milliseconds that count as now: the moment of the replay, or the last moment of a run that ended. */
export function nowOf(model: RunModel): number {
  if (route.value.query.at !== undefined) return Date.parse(model.at) || now.value;
  if (model.run.ended_at) return Date.parse(model.run.ended_at);
  return Math.max(now.value, Date.parse(model.at) || 0);
}

function elapsedOf(model: RunModel): number | null {
  const { run } = model;
  if (!run.began_at) return null;
  if (RUN_ENDED.has(run.state) && run.wall !== null) return run.wall;
  return Math.max(0, (nowOf(model) - Date.parse(run.began_at)) / 1000);
}

/** How much faster than one task after another, as decisions/speedup.py says; of a run that goes on, so far. */
function speedupOf(model: RunModel): number | null {
  if (model.run.ended_at && route.value.query.at === undefined) return model.run.speedup;
  const now = nowOf(model);
  const took = (elapsedOf(model) ?? 0) - model.idleUntil(now);
  const busy = model.busyUntil(now);
  return took > 0 && busy ? busy / took : null;
}

/** Most tasks of a run at once; null: as many as it has. */
export function capOf(model: RunModel): number | null {
  const parallel = model.run.limits?.parallel;
  // A cap that no plan of this size reaches says nothing.
  return typeof parallel === "number" && parallel < model.run.tasks.total ? parallel : null;
}

const MOVING: ReadonlySet<RunState> = new Set(["planning", "running", "stopping"]);

let left = { of: "", seconds: null as number | "late" | null };

/**
 * Seconds until the end that the timeline shows as expected, or that it takes longer; null: not known. While a person is
 * needed, or the run is paused or led by no process, its end depends on something else than its tasks.
 */
export function leftOf(model: RunModel): number | "late" | null {
  if (!MOVING.has(model.run.state) || model.openQuestions.length || !model.run.tasks.total) return null;
  const now = nowOf(model);
  // Once a second is enough, and of a small run when a task has ended; events come more often.
  const ended = model.tasks.size < FEW_TASKS ? model.finished.length : 0;
  const of = `${model.generation} ${Math.floor(now / 1000)} ${ended}`;
  if (left.of !== of) {
    const forecast = forecastOf({
      tasks: model.tasks,
      attempts: model.attempts,
      estimates: model.estimates,
      now,
      cap: capOf(model),
      capacities: capacities.value,
      isEnded: false,
    });
    left = { of, seconds: leftIn(forecast, now) };
  }
  return left.seconds;
}

function Figure({
  label,
  value,
  title,
  children,
}: {
  label: string;
  value: string;
  title?: string;
  children?: ComponentChildren;
}) {
  return (
    <div class={`figure ${value === "–" && !title ? "is-none" : ""}`} title={title}>
      <dt>{label}</dt>
      <dd>
        {value}
        {children}
      </dd>
    </div>
  );
}

const COUNTED: readonly TaskState[] = [
  "running",
  "retrying",
  "needs",
  "failed",
  "ready",
  "waiting",
  "skipped",
  "cancelled",
];

function Figures({ model }: { model: RunModel }) {
  const { run } = model;
  const { tasks } = run;
  const left = leftOf(model);
  const busy = new Set<string>();
  for (const row of model.attempts)
    if (row.outcome === "running" && !isSystem(row.worker)) busy.add(row.worker);
  const limit = run.limits ?? {};
  return (
    <div class="figures">
      <dl>
        <Figure
          label={run.ended_at ? "took" : "elapsed"}
          value={duration(elapsedOf(model))}
          title={run.began_at ? `Began ${clock(run.began_at, now.value)}` : ""}
        />
        {left === null ? null : (
          <Figure
            label={left === "late" ? "left" : "left, about"}
            value={left === "late" ? "longer than expected" : duration(left)}
            title="By what its workers took before, as the timeline shows"
          />
        )}
        <Figure label="tasks done" value={`${tasks.done} of ${tasks.total}`} />
        {model.isOver ? null : <Figure label="workers busy" value={String(busy.size)} />}
        <Figure
          label="speed-up"
          value={times(speedupOf(model))}
          title="Against the same work one after another"
        />
        <Figure
          label="tokens"
          value={
            typeof limit.tokens === "number"
              ? `${count(run.tokens)} of ${count(limit.tokens)}`
              : run.tokens
                ? count(run.tokens)
                : "–"
          }
        >
          <Meter used={run.tokens} limit={limit.tokens} label="tokens" />
        </Figure>
        <Figure
          label="cost"
          value={
            typeof limit.money === "number"
              ? `${run.cost === null ? cost(null) : money(run.cost)} of ${money(limit.money)}`
              : cost(run.cost)
          }
        >
          <Meter used={run.cost ?? 0} limit={limit.money} label="cost" />
        </Figure>
      </dl>
      <div class="progress">
        <SegmentBar counts={tasks} />
        <ul class="counts">
          {tasks.done ? (
            <li>
              <StateIcon state="done" /> {tasks.done} done
            </li>
          ) : null}
          {COUNTED.filter((state) => tasks[state] > 0).map((state) => (
            <li key={state} class={state === "needs" ? "is-needs" : ""}>
              <StateIcon state={state} /> {tasks[state]} {taskWord(state)}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

/** Have the server do something with a run, and go to the new run if there is one. Shows why it did not work. */
async function actOn(run: string, what: string, body: unknown = {}): Promise<boolean> {
  try {
    const { id } = await post<{ id: string }>(runPath(run, what), body);
    refreshSoon(150);
    if (what === "resume") setTimeout(restart, 300);
    if (id && id !== run) go("run", id);
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.kind === "EffectsWouldRepeat")
      repeating.value = { run, words: error.message.replace(/^a fork of run \S+ /, "It ") };
    else showTrouble(error);
    return false;
  }
}

/** A retry that would repeat what changed something outside: the person decides. */
const repeating = signal<{ run: string; words: string } | null>(null);

function RepeatEffects() {
  const asked = repeating.value;
  if (!asked) return null;
  const close = () => {
    repeating.value = null;
  };
  return (
    <Dialog title="Do them again?" onClose={close}>
      <p>{oneLine(asked.words, 600)}.</p>
      <p>Whatever they did outside of chargehand, such as a payment or a mail, happens once more.</p>
      <footer class="dialog-foot">
        <Button onClick={close}>Back</Button>
        <Button
          kind="danger"
          onClick={() => {
            close();
            void actOn(asked.run, "retry", { repeat_effects: true });
          }}
        >
          Do them again
        </Button>
      </footer>
    </Dialog>
  );
}

type Asking = "steer" | "cancel" | "budget" | null;

const CAPS = ["money", "tokens", "calls"] as const;
const CAP_NAMES = { money: "Money, in dollars", tokens: "Tokens", calls: "Model calls" };

/** Raise or lower the caps that a run has. */
function BudgetDialog({
  limits,
  onClose,
  send,
}: {
  limits: RunModel["run"]["limits"];
  onClose: () => void;
  send: (body: object) => void;
}) {
  const capped = CAPS.filter((name) => typeof limits?.[name] === "number");
  const [values, setValues] = useState<Record<string, string>>({});
  const shown = (name: (typeof CAPS)[number]) => values[name] ?? String(limits?.[name]);
  const isValid = capped.every((name) => shown(name).trim() !== "" && Number(shown(name)) >= 0);
  const changed = capped.filter((name) => Number(shown(name)) !== limits?.[name]);
  return (
    <Dialog title="Change the budget" onClose={onClose}>
      {capped.map((name) => (
        <Field key={name} label={CAP_NAMES[name]}>
          {(id) => (
            <input
              id={id}
              type="number"
              min="0"
              step={name === "money" ? "any" : "1"}
              value={shown(name)}
              onInput={(event) => setValues({ ...values, [name]: event.currentTarget.value })}
            />
          )}
        </Field>
      ))}
      <p class="hint">It applies to all calls from now on. What is under way goes on.</p>
      <footer class="dialog-foot">
        <Button onClick={onClose}>Back</Button>
        <Button
          kind="primary"
          disabled={!isValid || !changed.length}
          onClick={() => send(Object.fromEntries(changed.map((name) => [name, Number(shown(name))])))}
        >
          Change
        </Button>
      </footer>
    </Dialog>
  );
}

function Actions({ model }: { model: RunModel }) {
  const [asking, setAsking] = useState<Asking>(null);
  const [note, setNote] = useState("");
  const { run } = model;
  if (route.value.query.at !== undefined || !canOperate.value) return null;
  const act = (what: string, body: unknown = {}) => actOn(run.id, what, body);
  const canResume = run.state === "interrupted" || run.state === "parked" || run.state === "submitted";
  return (
    <div class="actions">
      {model.isOver ? (
        <>
          {hasFailures(model) ? <Button onClick={() => act("retry")}>Retry failed</Button> : null}
          <a class="button plain" href={href("run", run.id, { at: "1" })}>
            Replay
          </a>
          <a class="button plain" href={href("new", null, { after: run.id })}>
            Follow up…
          </a>
        </>
      ) : (
        <>
          <Button onClick={() => setAsking("steer")}>Steer…</Button>
          {canResume ? <Button onClick={() => act("resume")}>Resume</Button> : null}
          {run.state === "paused" ? (
            <Button onClick={() => act("unpause")}>Continue</Button>
          ) : canResume ? null : (
            <Button onClick={() => act("pause")}>Pause</Button>
          )}
          {CAPS.some((name) => typeof run.limits?.[name] === "number") ? (
            <Button onClick={() => setAsking("budget")}>Budget…</Button>
          ) : null}
          <Button onClick={() => setAsking("cancel")}>Cancel…</Button>
        </>
      )}
      {asking === "steer" ? (
        <Steer
          note={note}
          onNote={setNote}
          onClose={() => setAsking(null)}
          send={async () => {
            setAsking(null);
            if (await act("steer", { note: note.trim() })) setNote("");
          }}
        />
      ) : null}
      {asking === "budget" ? (
        <BudgetDialog
          limits={run.limits}
          onClose={() => setAsking(null)}
          send={(body) => {
            setAsking(null);
            void act("budget", body);
          }}
        />
      ) : null}
      {asking === "cancel" ? (
        <Cancel
          onClose={() => setAsking(null)}
          send={(body) => {
            setAsking(null);
            void act("cancel", body);
          }}
        />
      ) : null}
    </div>
  );
}

/** What is not sent stays written, for the next try. */
function Steer({
  note,
  onNote,
  onClose,
  send,
}: {
  note: string;
  onNote: (note: string) => void;
  onClose: () => void;
  send: () => Promise<void>;
}) {
  const submit = () => {
    if (note.trim()) void send();
  };
  return (
    <Dialog title="Steer the run" onClose={onClose}>
      <Field
        label="What else is wanted?"
        hint="The plan of what has not started is changed accordingly. Finished work stays."
      >
        {(id, hint) => (
          <textarea
            id={id}
            rows={4}
            aria-describedby={hint}
            value={note}
            onInput={(event) => onNote(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
            }}
          />
        )}
      </Field>
      <footer class="dialog-foot">
        <Button onClick={onClose}>Back</Button>
        <Button kind="primary" disabled={!note.trim()} onClick={submit}>
          Send
        </Button>
      </footer>
    </Dialog>
  );
}

function Cancel({ onClose, send }: { onClose: () => void; send: (body: object) => void }) {
  const [reason, setReason] = useState("");
  const act = (answerNow: boolean) => {
    send({ ...(reason ? { reason } : {}), ...(answerNow ? { answer_now: true } : {}) });
  };
  return (
    <Dialog title="Cancel the run" onClose={onClose}>
      <Field label="Reason (may be empty)">
        {(id) => (
          <input
            id={id}
            type="text"
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        )}
      </Field>
      <p>
        <strong>Answer now</strong> stops the work and composes an answer from what is finished.{" "}
        <strong>Cancel</strong> ends the run without an answer.
      </p>
      <footer class="dialog-foot">
        <Button onClick={onClose}>Back</Button>
        <Button onClick={() => act(true)}>Answer now</Button>
        <Button kind="danger" onClick={() => act(false)}>
          Cancel the run
        </Button>
      </footer>
    </Dialog>
  );
}

interface TabCounts {
  planVersion: number;
  calls: number;
  workers: number;
  questions: number;
  open: number;
}

function tabCounts(model: RunModel): TabCounts {
  let calls = 0;
  for (const row of model.attempts) calls += row.calls;
  return {
    planVersion: model.planVersion,
    calls,
    workers: workersIn(model).size,
    questions: model.questions.size,
    open: model.openQuestions.length,
  };
}

function Tabs({ planVersion, calls, workers, questions, open }: TabCounts) {
  const { page, run, query } = route.value;
  const kept = { at: query.at ?? null };
  const tabs: [Page, string, number | string | null][] = [
    ["run", "Run", null],
    ["plan", "Plan", planVersion ? `v${planVersion}` : null],
    ["trace", "Trace", calls || null],
    ["workers", "Workers", workers || null],
    ["board", "Board", null],
    ["notes", "Notes", null],
    ["questions", "Questions", questions || null],
    ["cost", "Cost", null],
    ["output", "Output", null],
  ];
  return (
    <nav class="tabs" aria-label="Pages of this run">
      {tabs.map(([tab, name, extra]) => (
        <a key={tab} href={href(tab, run, kept)} aria-current={page === tab ? "page" : undefined}>
          {name}
          {extra === null ? null : tab === "questions" && open ? (
            <span class="badge needs">{open}</span>
          ) : (
            <span class="extra">{extra}</span>
          )}
        </a>
      ))}
    </nav>
  );
}

const SPEEDS = [1, 5, 20, 100];

/** A scrubber over all events. Every pane shows that moment; nothing can be changed. */
function ReplayBar({ model }: { model: RunModel }) {
  const { page, run, query } = route.value;
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const film = replay.value;
  const seq = Number(query.at);
  const position = film ? film.position(seq) : 0;
  const last = film?.events.length ?? 0;
  const show = (index: number) => {
    const event = film?.events[Math.min(Math.max(index, 1), last) - 1];
    if (event) setQuery({ at: String(event.seq) });
  };
  useEffect(() => {
    if (!isPlaying || !film) return;
    // Time of the run passes `speed` times as fast, but no gap lasts longer than a second.
    const here = film.events[position - 1];
    const next = film.events[position];
    if (!next) {
      setPlaying(false);
      return;
    }
    const gap = here ? (Date.parse(next.at) - Date.parse(here.at)) / speed : 0;
    const timer = setTimeout(() => show(position + 1), Math.min(Math.max(gap, 16), 1000));
    return () => clearTimeout(timer);
  });
  const toggle = () => {
    if (!isPlaying && position >= last) show(1);
    setPlaying(!isPlaying);
  };
  useKeys({
    space: toggle,
    ",": () => show(position - 1),
    ".": () => show(position + 1),
    Escape: () => go(page, run),
  });
  if (!film) return <Loading what="the events of the run" />;
  const event = film.events[position - 1];
  const began = film.events[0]?.at ?? model.at;
  return (
    <section class="replay-bar" aria-label="Replay">
      <Button aria-label={isPlaying ? "Pause the replay" : "Play the replay"} onClick={toggle}>
        <Glyph name={isPlaying ? "pause" : "play"} />
      </Button>
      <Button kind="quiet" aria-label="One event back" onClick={() => show(position - 1)}>
        <Glyph name="back" />
      </Button>
      <Button kind="quiet" aria-label="One event forward" onClick={() => show(position + 1)}>
        <Glyph name="next" />
      </Button>
      <input
        type="range"
        min={1}
        max={Math.max(1, last)}
        value={position}
        aria-label="Moment of the replay"
        aria-valuetext={event ? `event ${position} of ${last}, ${event.kind}` : ""}
        onInput={(change) => show(Number(change.currentTarget.value))}
      />
      <span class="num">
        {duration((Date.parse(model.at) - Date.parse(began)) / 1000)} · {position}/{last}
      </span>
      <span class="mono kind">
        {event ? `${event.kind}${typeof event.task === "string" ? ` ${taskName(event.task)}` : ""}` : ""}
      </span>
      <select
        aria-label="Speed"
        value={String(speed)}
        onChange={(change) => setSpeed(Number(change.currentTarget.value))}
      >
        {SPEEDS.map((each) => (
          <option key={each} value={each}>
            {each}×
          </option>
        ))}
      </select>
      <a class="button plain" href={href(page, run)}>
        Leave the replay
      </a>
      <p>Replay: the run as it was then. Nothing can be changed here.</p>
    </section>
  );
}

export function RunShell({ children }: { children: (model: RunModel) => ComponentChildren }) {
  const model = useModel();
  const { run, query } = route.value;
  if (!model) {
    if (loadError.value?.status === 404)
      return (
        <div class="empty">
          <h2>There is no run {run}</h2>
          <p>It may have been deleted, or be in another namespace.</p>
          <a class="button plain" href={href("runs")}>
            All runs
          </a>
        </div>
      );
    if (loadError.value) return <ErrorBox error={loadError.value} retry={restart} />;
    return <Loading what="the run" />;
  }
  const isLost = connection.value === "lost";
  return (
    <div class={`run-page ${isLost ? "is-stale" : ""}`}>
      <header class="run-head">
        <div class="run-title">
          <h1 title={clean(model.run.request)}>{oneLine(model.run.title, 140) || model.run.id}</h1>
          <RunStateLabel state={model.run.state} />
          <span class="id mono">{model.run.id}</span>
          <CopyButton text={model.run.id} label="Copy the id" />
          <span class="spacer" />
          <Actions model={model} />
        </div>
        <Figures model={model} />
        {model.run.reason && model.run.state !== "failed" ? (
          <p class="run-reason">{oneLine(model.run.reason, 300)}</p>
        ) : null}
        <Tabs {...tabCounts(model)} />
      </header>
      {query.at === undefined ? <NeedsBar run={model.run.id} /> : <ReplayBar model={model} />}
      <RepeatEffects />
      {children(model)}
    </div>
  );
}

const MOST_CAUSES = 5;

/** Why a run failed: the first task that failed, then what was lost with it. */
export function FailureCauses({ model }: { model: RunModel }) {
  const { run } = model;
  if (run.state !== "failed" && run.state !== "partial") return null;
  const lacking = lackingIn(model);
  const skipped = [...model.tasks.values()].filter((row) => row.state === "skipped");
  const setting = /api[_ ]?key|credential|401|unauthor/i.test(
    lacking.map((each) => each.text).join(" ") + run.reason,
  );
  return (
    <section class="causes" aria-labelledby="causes-title">
      <h2 id="causes-title">
        <StateIcon state="failed" /> {run.state === "failed" ? "Why the run failed" : "What is missing"}
      </h2>
      <ol>
        {lacking.slice(0, MOST_CAUSES).map((each) => (
          <li key={each.task + each.text}>
            <a href={href("run", run.id, { task: each.task })}>{taskName(each.task)}</a>
            {each.kind === null ? ": " : " failed: "}
            {each.kind ? <span class="tag">{each.kind}</span> : null} {oneLine(each.text, 240)}
          </li>
        ))}
        {lacking.length > MOST_CAUSES ? <li>and {lacking.length - MOST_CAUSES} more</li> : null}
        {skipped.length ? (
          <li>{plural(skipped.length, "task was", "tasks were")} skipped because of that.</li>
        ) : null}
        {run.reason ? <li>{oneLine(run.reason, 300)}</li> : null}
      </ol>
      {setting ? (
        <p>
          A key seems to be missing or wrong. Set it in the environment of <code>chargehand serve</code>, such
          as <code>OPENAI_API_KEY</code>, or choose another model with <code>--model</code>, then retry.
        </p>
      ) : null}
      {canOperate.value && route.value.query.at === undefined ? (
        <p class="row">
          {hasFailures(model) ? (
            <Button onClick={() => void actOn(run.id, "retry")}>Retry failed</Button>
          ) : null}
          <a class="button plain" href={href("trace", run.id, { show: "error" })}>
            Open trace
          </a>
        </p>
      ) : null}
    </section>
  );
}
