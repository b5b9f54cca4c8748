// Two runs side by side: what was planned, what came of it, when, and for how much.

import { useEffect, useRef } from "preact/hooks";
import { get, runPath } from "../api";
import { clean, cost, count, duration, oneLine } from "../format";
import { runWord, StateIcon, taskWord } from "../icons";
import { diffPlans } from "../plan_check";
import { href, route } from "../router";
import { shownTheme } from "../session";
import { Timeline } from "../timeline";
import type { RunState, Snapshot, TaskState } from "../types";
import { Cell, Empty, ErrorBox, Loading, Markdown, useFetched } from "../ui";

interface Pair<T> {
  a: T;
  b: T;
}

interface Comparison {
  runs: Pair<string>;
  request: Pair<string>;
  status: Pair<RunState>;
  answer: Pair<string>;
  seconds: Pair<number>;
  busy: Pair<number>;
  calls: Pair<number>;
  tokens: Pair<number>;
  /** Null: no price list knows its models. */
  money: Pair<number | null>;
  tasks: {
    task: string;
    changed: Record<string, Pair<unknown>>;
    state: Pair<string | null>;
    attempts: Pair<number | null>;
    output: Pair<string | null>;
    seconds: Pair<number>;
    money: Pair<number | null>;
  }[];
  is_same: boolean;
}

const asState = (state: string | null): TaskState =>
  state === "asking" ? "needs" : ((state ?? "skipped") as TaskState);

/** A timeline that ends with its run, on a width that stands for `most` seconds in both. */
function Lanes({ snapshot, seconds, most }: { snapshot: Snapshot; seconds: number; most: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const timeline = useRef<Timeline | null>(null);
  useEffect(() => {
    if (!canvas.current) return;
    const made = new Timeline(canvas.current, { mode: "worker" });
    const began = snapshot.run.began_at ?? new Date().toISOString();
    made.setData({
      tasks: snapshot.tasks,
      attempts: snapshot.attempts,
      estimates: snapshot.estimates,
      criticalPath: snapshot.critical_path,
      cap: null,
      beganAt: began,
      endedAt: new Date(Date.parse(began) + seconds * 1000).toISOString(),
      span: Math.max(1, most) * 1000,
    });
    made.fit();
    timeline.current = made;
    return () => made.destroy();
  }, [snapshot, seconds, most]);
  useEffect(() => timeline.current?.setTheme(), [shownTheme.value]);
  return (
    <div class="canvas-box compare-lanes">
      <canvas ref={canvas} tabIndex={0} aria-label={`Timeline of ${snapshot.run.id}`} />
    </div>
  );
}

/** By how much the second is more or less than the first: "+12 %", "about the same". */
export function shareWords(share: number): string {
  const percent = Math.round(Math.abs(share) * 100);
  return percent ? `${share > 0 ? "+" : "−"}${percent} %` : "about the same";
}

/** How a figure differs; null: not known. */
export function changeIn(a: number | null, b: number | null): string {
  if (a === null || b === null) return "–";
  if (a === b) return "the same";
  return a ? shareWords((b - a) / a) : "–";
}

/** How the plans differ in a task; one that a run had for a while was taken out of its plan. */
export function changeWords(
  how: "added" | "removed" | "changed" | "same",
  state: Pair<string | null>,
): string {
  if (how === "added") return state.a ? "taken out of the first plan" : "only in the second";
  if (how === "removed") return state.b ? "taken out of the second plan" : "only in the first";
  return "changed";
}

function Change<T extends number | null>({ a, b, shown }: Pair<T> & { shown: (value: T) => string }) {
  return (
    <>
      <td class="num">{shown(a)}</td>
      <td class="num">{shown(b)}</td>
      <td class="num hint">{changeIn(a, b)}</td>
    </>
  );
}

function Columns({
  title,
  a,
  b,
  isMarkdown = false,
}: {
  title: string;
  a: string;
  b: string;
  isMarkdown?: boolean;
}) {
  if (!a && !b) return null;
  return (
    <section class="pane">
      <header class="pane-head">
        <h2>{title}</h2>
        {a === b ? <span class="hint">the same</span> : null}
      </header>
      <div class="two-columns">
        {[a, b].map((text, index) =>
          isMarkdown && text ? <Markdown key={index} text={text} /> : <p key={index}>{clean(text) || "–"}</p>,
        )}
      </div>
    </section>
  );
}

export function ComparePage() {
  const { a = "", b = "" } = route.value.query;
  const key = a && b ? `${a}/${b}` : null;
  const query = new URLSearchParams({ a, b });
  const found = useFetched<Comparison>(key, () => get<Comparison>(`compare?${query}`));
  const both = useFetched<Pair<Snapshot>>(key, async () => {
    const [first, second] = await Promise.all([
      get<Snapshot>(runPath(a, "snapshot")),
      get<Snapshot>(runPath(b, "snapshot")),
    ]);
    return { a: first, b: second };
  });
  if (!key)
    return (
      <Empty title="Choose two runs to compare">
        <p>
          Mark them in the list of runs with <kbd>x</kbd>.
        </p>
        <a class="button plain" href={href("runs")}>
          All runs
        </a>
      </Empty>
    );
  if (!found.value)
    return found.error ? (
      <ErrorBox error={found.error} retry={found.reload} />
    ) : (
      <Loading what="the comparison" />
    );
  const value = found.value;
  const plans =
    both.value?.a.plan && both.value.b.plan ? diffPlans(both.value.a.plan, both.value.b.plan) : [];
  const how = new Map(plans.map((change) => [change.id, change]));
  const seconds = Math.max(value.seconds.a, value.seconds.b);
  return (
    <div class="compare-page">
      <h1>
        Compare two runs {value.is_same ? <span class="tag">no difference in what they did</span> : null}
      </h1>
      <table class="list compare-figures">
        <caption class="visually-hidden">Figures</caption>
        <thead>
          <tr>
            <th scope="col" />
            <th scope="col" class="num">
              <a class="mono" href={href("run", a)}>
                {a}
              </a>
            </th>
            <th scope="col" class="num">
              <a class="mono" href={href("run", b)}>
                {b}
              </a>
            </th>
            <th scope="col" class="num">
              Change
            </th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">Status</th>
            <td class="num">{runWord(value.status.a)}</td>
            <td class="num">{runWord(value.status.b)}</td>
            <td class="num hint">{value.status.a === value.status.b ? "the same" : "differs"}</td>
          </tr>
          <tr>
            <th scope="row">Time</th>
            <Change {...value.seconds} shown={duration} />
          </tr>
          <tr>
            <th scope="row">Work, one after another</th>
            <Change {...value.busy} shown={duration} />
          </tr>
          <tr>
            <th scope="row">Model calls</th>
            <Change {...value.calls} shown={count} />
          </tr>
          <tr>
            <th scope="row">Tokens</th>
            <Change {...value.tokens} shown={count} />
          </tr>
          <tr>
            <th scope="row">Cost</th>
            <Change {...value.money} shown={cost} />
          </tr>
        </tbody>
      </table>
      <Columns title="Request" a={value.request.a} b={value.request.b} />
      {both.value ? (
        <section class="pane">
          <header class="pane-head">
            <h2>Timelines</h2>
            <span class="hint">each from its start, on the same scale</span>
          </header>
          <Lanes snapshot={both.value.a} seconds={value.seconds.a} most={seconds} />
          <Lanes snapshot={both.value.b} seconds={value.seconds.b} most={seconds} />
        </section>
      ) : null}
      <section class="pane">
        <header class="pane-head">
          <h2>Plan and outcomes</h2>
        </header>
        <table class="list stacks">
          <caption class="visually-hidden">Tasks of both runs</caption>
          <thead>
            <tr>
              <th scope="col">Task</th>
              <th scope="col">Plan</th>
              <th scope="col">Outcome</th>
              <th scope="col">Result</th>
              <th scope="col" class="num">
                Attempts
              </th>
              <th scope="col" class="num">
                Time
              </th>
              <th scope="col" class="num">
                Cost
              </th>
            </tr>
          </thead>
          <tbody>
            {value.tasks.map((task) => {
              const change = how.get(task.task);
              return (
                <tr key={task.task}>
                  <th scope="row" class="mono">
                    {task.task}
                  </th>
                  <Cell class="what" label="Plan">
                    {change && change.how !== "same" ? (
                      <span class={`diff-mark ${change.how}`}>{changeWords(change.how, task.state)}</span>
                    ) : (
                      <span class="hint">the same</span>
                    )}
                    {change?.fields.map((field) => (
                      <p key={field.field}>
                        <span class="hint">{field.field}</span>{" "}
                        <del>{oneLine(field.before, 100) || "nothing"}</del>{" "}
                        <ins>{oneLine(field.after, 100) || "nothing"}</ins>
                      </p>
                    ))}
                  </Cell>
                  <Cell label="Outcome">
                    {task.state.a ? <StateIcon state={asState(task.state.a)} /> : null}{" "}
                    {task.state.a ? taskWord(asState(task.state.a)) : "–"}
                    {task.state.a !== task.state.b ? (
                      <>
                        {" → "}
                        {task.state.b ? <StateIcon state={asState(task.state.b)} /> : null}{" "}
                        {task.state.b ? taskWord(asState(task.state.b)) : "–"}
                      </>
                    ) : null}
                  </Cell>
                  <Cell label="Result">
                    {task.output.a === task.output.b ? (
                      <span class="hint">the same</span>
                    ) : task.output.a && task.output.b ? (
                      "differs"
                    ) : (
                      "–"
                    )}
                  </Cell>
                  <Cell class="num" label="Attempts">
                    {task.attempts.a ?? "–"} / {task.attempts.b ?? "–"}
                  </Cell>
                  <Cell class="num" label="Time">
                    {duration(task.seconds.a)} / {duration(task.seconds.b)}
                  </Cell>
                  <Cell class="num" label="Cost">
                    {cost(task.money.a)} / {cost(task.money.b)}
                  </Cell>
                </tr>
              );
            })}
          </tbody>
        </table>
      </section>
      <Columns title="Answer" a={value.answer.a} b={value.answer.b} isMarkdown />
    </div>
  );
}
