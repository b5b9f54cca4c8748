// The right side of a run: what happens right now, or everything about one task.

import type { ComponentChildren } from "preact";
import { get, runPath } from "../api";
import { ago, asText, bytes, clean, clock, cost, count, duration, oneLine, plural } from "../format";
import { StateIcon, TaskStateLabel } from "../icons";
import { isSystem, taskName, workerName } from "../names";
import { QuestionCard } from "../question_card";
import { href, route } from "../router";
import { FINAL, type RunModel } from "../store";
import type { AttemptRow, Call, TaskDetails, TaskRow } from "../types";
import { Button, ErrorBox, Markdown, Raw, useFetched } from "../ui";
import { selectTask } from "./run";
import { nowOf } from "./run_shell";

function TaskLink({ row, children }: { row: TaskRow; children?: ComponentChildren }) {
  const { run, query } = route.value;
  return (
    <a class="task-link" href={href("run", run, { ...query, task: row.id })}>
      <StateIcon state={row.state} />
      <span class={`id ${row.system ? "" : "mono"}`}>{taskName(row.id)}</span>
      <span class="what">{oneLine(row.description, 90)}</span>
      {children}
    </a>
  );
}

/** One task of a list. All it shows is in its properties, so that it is drawn again only when one of them changes. */
function TaskLine({ row, time, about }: { row: TaskRow; time?: string; about?: string }) {
  return (
    <li>
      <TaskLink row={row}>
        {time === undefined ? null : <span class="num">{time}</span>}
        {about === undefined ? null : <span class="meta">{about}</span>}
      </TaskLink>
    </li>
  );
}

/** The tasks that were done last, newest first. */
function justFinished(model: RunModel, most: number): TaskRow[] {
  const found: TaskRow[] = [];
  for (let at = model.finished.length - 1; at >= 0 && found.length < most; at--) {
    const row = model.tasks.get(model.finished[at] ?? "");
    if (row?.state === "done" && !found.includes(row)) found.push(row);
  }
  return found;
}

function secondsSince(at: string | null, model: RunModel): number | null {
  return at ? Math.max(0, (nowOf(model) - Date.parse(at)) / 1000) : null;
}

/** What a running task does at this moment, in a few words. */
function currentStep(row: TaskRow, model: RunModel): string {
  const call = model.openCalls.get(row.id);
  const said = model.progress.get(row.id);
  if (call)
    return `${call.kind === "tool" ? "tool " : ""}${call.name} · ${duration(secondsSince(call.started_at, model))}`;
  if (said)
    return `${oneLine(said.text, 60)}${said.fraction === null ? "" : ` · ${Math.round(said.fraction * 100)} %`}`;
  const items = model.items[row.id];
  if (items?.total) return `${items.done + items.failed} of ${plural(items.total, "item")}`;
  return "";
}

function Group({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="group">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function RightNow({ model }: { model: RunModel }) {
  const questions = model.openQuestions;
  const [failed, working, retrying]: [TaskRow[], TaskRow[], TaskRow[]] = [[], [], []];
  for (const row of model.tasks.values()) {
    if (row.state === "failed") failed.push(row);
    else if (row.state === "running") working.push(row);
    else if (row.state === "retrying") retrying.push(row);
  }
  // The causes of a failure stand above already.
  const isTold = model.run.state === "failed" || model.run.state === "partial";
  const finished = justFinished(model, 8);
  const replaying = route.value.query.at !== undefined;
  const asking = new Set(questions.map((question) => question.task));
  const isBlocked = (task: string): boolean => {
    const state = model.tasks.get(task)?.state;
    return state !== undefined && !FINAL.has(state) && state !== "running" && !asking.has(task);
  };
  const whyWaiting = (task: string) => model.waits.find((wait) => wait.task === task)?.why;
  const blocked = model.waits.filter((wait) => isBlocked(wait.task)).slice(0, 6);
  return (
    <>
      <h2>{model.isOver ? "How it ended" : "Right now"}</h2>
      {questions.length && !replaying
        ? questions.map((question) => <QuestionCard key={question.id} question={question} isCompact />)
        : null}
      {failed.length && !isTold ? (
        <Group title="Failed">
          <ul class="task-list">
            {failed.map((row) => (
              <TaskLine key={row.id} row={row} about={oneLine(row.error?.message ?? "", 100)} />
            ))}
          </ul>
        </Group>
      ) : null}
      {working.length ? (
        <Group title={`Working (${working.length})`}>
          <ul class="task-list">
            {working.slice(0, 40).map((row) => (
              <TaskLine
                key={row.id}
                row={row}
                time={duration(secondsSince(model.attemptBegan(row), model))}
                about={[isSystem(row.id) ? "supervisor" : workerName(row.worker), currentStep(row, model)]
                  .filter(Boolean)
                  .join(" · ")}
              />
            ))}
          </ul>
        </Group>
      ) : null}
      {retrying.length ? (
        <Group title={`To be tried again (${retrying.length})`}>
          <ul class="task-list">
            {retrying.slice(0, 20).map((row) => (
              <TaskLine
                key={row.id}
                row={row}
                about={oneLine(row.error?.message || row.why || (whyWaiting(row.id) ?? ""), 100)}
              />
            ))}
          </ul>
        </Group>
      ) : null}
      {blocked.length ? (
        <Group title="Waiting">
          <ul class="task-list">
            {blocked.map((wait) => {
              const row = model.tasks.get(wait.task);
              return row ? <TaskLine key={wait.task} row={row} about={oneLine(wait.why, 110)} /> : null;
            })}
          </ul>
        </Group>
      ) : null}
      {finished.length ? (
        <Group title={model.isOver ? "Finished last" : "Just finished"}>
          <ul class="task-list is-pale">
            {finished.map((row) => (
              <TaskLine key={row.id} row={row} time={duration(row.seconds)} />
            ))}
          </ul>
        </Group>
      ) : null}
      {model.answer && !model.isOver ? (
        <Group title="The answer, as it is written">
          <Markdown text={model.answer} />
        </Group>
      ) : null}
      {model.isOver && model.run.answer_size > 0 ? (
        <p>
          <a class="button primary" href={href("output", model.run.id)}>
            Read the output
          </a>
        </p>
      ) : null}
      {!questions.length && !working.length && !retrying.length && !finished.length && !failed.length ? (
        <p class="hint">
          {model.run.state === "paused"
            ? "Paused: nothing starts until the run is continued."
            : model.run.state === "submitted"
              ? "No process leads this run yet."
              : model.isOver
                ? "Nothing was done."
                : "Nothing is under way."}
        </p>
      ) : null}
      {model.children.length ? (
        <Group title="Nested runs">
          <ul class="task-list">
            {model.children.map((child) => (
              <li key={child.run}>
                <a class="task-link" href={href("run", child.run)}>
                  <span class="id mono">{child.task}</span>
                  <span class="what">{oneLine(child.title, 90)}</span>
                </a>
              </li>
            ))}
          </ul>
        </Group>
      ) : null}
    </>
  );
}

/** Calls of one task as a small waterfall. */
function Waterfall({ calls, from, to, run }: { calls: Call[]; from: number; to: number; run: string }) {
  const span = Math.max(1, to - from);
  return (
    <ul class="waterfall">
      {calls.slice(-60).map((call) => {
        const start = (Date.parse(call.started_at) - from) / span;
        const length = ((call.seconds ?? (to - Date.parse(call.started_at)) / 1000) * 1000) / span;
        return (
          <li key={call.id}>
            <a href={href("trace", run, { call: call.id })} class={call.error ? "has-error" : ""}>
              <span class="name">{call.name}</span>
              <span class="lane">
                <i
                  class={`call-${call.kind}`}
                  style={{
                    left: `${Math.min(99, Math.max(0, start * 100))}%`,
                    width: `${Math.min(100, Math.max(1.5, length * 100))}%`,
                  }}
                />
              </span>
              <span class="num">{call.seconds === null ? "…" : duration(call.seconds)}</span>
            </a>
          </li>
        );
      })}
    </ul>
  );
}

/** Which try it is, and at which item: "#2", "item 3 (Quito)", "item 3 (Quito) #2". */
export function attemptWords(row: Pick<AttemptRow, "task" | "attempt" | "item">): string {
  const index = /\[(\d+)\]$/.exec(row.task)?.[1];
  if (index === undefined) return `#${row.attempt}`;
  const name = row.item ? ` (${oneLine(row.item.replace(/^"(.*)"$/, "$1"), 40)})` : "";
  return `item ${index}${name}${row.attempt > 1 ? ` #${row.attempt}` : ""}`;
}

function Attempts({ rows }: { rows: AttemptRow[] }) {
  return (
    <ol class="attempts">
      {rows.map((row) => (
        <li key={`${row.task} ${row.attempt}`}>
          <span class="num">{attemptWords(row)}</span> {workerName(row.worker)} · {row.outcome}
          {row.ended_at
            ? ` · ${duration((Date.parse(row.ended_at) - Date.parse(row.started_at)) / 1000)}`
            : ""}
          {row.error || row.why ? <span class="meta">{oneLine(row.error || row.why, 200)}</span> : null}
        </li>
      ))}
    </ol>
  );
}

function Facts({ row, model }: { row: TaskRow; model: RunModel }) {
  const seconds = row.state === "running" ? secondsSince(model.attemptBegan(row), model) : row.seconds;
  const estimate = model.estimates[row.id];
  const items = model.items[row.id];
  const facts: [string, ComponentChildren][] = [
    ["Worker", workerName(row.worker) || "–"],
    ["Attempt", row.attempts > 1 ? `${row.attempt} (${row.attempts} in all)` : row.attempt || "–"],
    [
      "Time",
      <>
        {duration(seconds)}
        {row.wait_seconds && row.wait_seconds > 0.05 ? (
          <span class="hint"> after {duration(row.wait_seconds)} waiting for a worker</span>
        ) : null}
        {estimate && row.state !== "done" ? (
          <span class="hint"> about {duration(estimate)} expected</span>
        ) : null}
      </>,
    ],
    ["Tokens", row.tokens ? count(row.tokens) : "–"],
    ["Cost", cost(row.cost)],
  ];
  if (items?.total)
    facts.push([
      "Items",
      `${items.done} done, ${items.failed} failed, ${items.running} running, of ${items.total}`,
    ]);
  if (row.accept) facts.push(["Accept when", clean(row.accept)]);
  if (!row.required) facts.push(["Required", "no: the run can succeed without it"]);
  if (row.budget && Object.values(row.budget).some(Boolean))
    facts.push([
      "Budget",
      Object.entries(row.budget)
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => `${value} ${name}`)
        .join(", "),
    ]);
  if (row.why) facts.push(["Why", oneLine(row.why, 240)]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Output({ details, run }: { details: TaskDetails; run: string }) {
  const { output } = details;
  if (output === undefined || output === null) return null;
  const text = asText(output);
  return (
    <Group title="Output">
      {typeof output === "string" ? <Markdown text={text} run={run} /> : <Raw text={text} label="Output" />}
      {details.output_truncated ? (
        <p class="hint">
          The first part of {bytes(details.output_size)}. The{" "}
          <a href={href("trace", run, { task: details.id })}>trace</a> has the rest.
        </p>
      ) : null}
      {details.provenance?.length ? (
        <p class="hint">Rests on: {details.provenance.map(clean).join(", ")}</p>
      ) : null}
    </Group>
  );
}

function TaskPanel({ row, model }: { row: TaskRow; model: RunModel }) {
  const replaying = route.value.query.at !== undefined;
  const { run } = model;
  const key = replaying ? null : `${run.id}/${row.id}/${row.state}/${row.attempt}`;
  const details = useFetched<TaskDetails>(key, () =>
    get<TaskDetails>(runPath(run.id, `tasks/${encodeURIComponent(row.id)}`)),
  );
  const calls = useFetched<{ calls: Call[] }>(key, () =>
    get<{ calls: Call[] }>(runPath(run.id, `calls?task=${encodeURIComponent(row.id)}&limit=500`)),
  );
  const heard = model.calls.filter((call) => call.task === row.id);
  const known = new Map(
    [...(calls.value?.calls ?? []).filter((call) => call.task === row.id), ...heard].map((call) => [
      call.id,
      call,
    ]),
  );
  const attempts = model.attempts.filter((attempt) => attempt.task === row.id);
  const from = Date.parse(attempts[0]?.started_at ?? row.started_at ?? model.at);
  const to = row.ended_at ? Date.parse(row.ended_at) : nowOf(model);
  const questions = [...model.questions.values()].filter(
    (question) => question.task === row.id && model.openQuestions.includes(question),
  );
  const related = (ids: string[]) =>
    ids.map((id) => model.tasks.get(id)).filter((each): each is TaskRow => each !== undefined);
  const needs = related(row.needs);
  const unblocks = related(model.unblocks(row.id));
  return (
    <>
      <header class="panel-head">
        <h2 class={row.system ? "" : "mono"}>{taskName(row.id)}</h2>
        <TaskStateLabel state={row.state} />
        <span class="spacer" />
        <Button kind="quiet" onClick={() => selectTask(null)} hotkey="Esc">
          Close
        </Button>
      </header>
      {replaying ? null : questions.map((question) => <QuestionCard key={question.id} question={question} />)}
      <p class="description">{clean(row.description)}</p>
      {row.error && row.state !== "done" ? (
        <div class="task-error">
          <span class="tag">{row.error.kind}</span> {clean(row.error.message)}
        </div>
      ) : null}
      <Facts row={row} model={model} />
      {known.size ? (
        <Group title={plural(known.size, "call")}>
          <Waterfall calls={[...known.values()]} from={from} to={to} run={run.id} />
          <p>
            <a href={href("trace", run.id, { task: row.id })}>All calls of this task</a>
          </p>
        </Group>
      ) : null}
      {needs.length ? (
        <Group title="Needs">
          <ul class="task-list">
            {needs.map((each) => (
              <li key={each.id}>
                <TaskLink row={each} />
              </li>
            ))}
          </ul>
        </Group>
      ) : null}
      {unblocks.length ? (
        <Group title="Unblocks">
          <ul class="task-list">
            {unblocks.slice(0, 30).map((each) => (
              <li key={each.id}>
                <TaskLink row={each} />
              </li>
            ))}
          </ul>
          {unblocks.length > 30 ? <p class="hint">and {unblocks.length - 30} more</p> : null}
        </Group>
      ) : null}
      {attempts.length > 1 || details.value?.history?.some((attempt) => attempt.error) ? (
        <Group title="Attempts">
          <Attempts rows={details.value?.history ?? attempts} />
        </Group>
      ) : null}
      {details.value ? <Output details={details.value} run={run.id} /> : null}
      {details.error && details.error.status !== 404 ? (
        <ErrorBox error={details.error} retry={details.reload} />
      ) : null}
      {row.started_at ? (
        <p class="hint">
          Started {clock(row.started_at, nowOf(model))}
          {row.ended_at ? `, ended ${ago(row.ended_at, Date.now())}` : ""}
        </p>
      ) : null}
    </>
  );
}

export function Panel({ model, task }: { model: RunModel; task: string | null }) {
  const row = task ? model.tasks.get(task) : undefined;
  return (
    <div class="panel-body">
      {row ? <TaskPanel key={row.id} row={row} model={model} /> : <RightNow model={model} />}
    </div>
  );
}
