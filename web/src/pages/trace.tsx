// Every model call, tool call and step of a run, as a table with a waterfall. Only rows in view exist.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ApiError, apiUrl, get, runPath } from "../api";
import { asText, bytes, callTime, clean, clock, cost, count, duration, oneLine, plural } from "../format";
import { Glyph } from "../icons";
import { useKeys } from "../keys";
import { isSystem, taskName, workerName } from "../names";
import { diffLines } from "../plan_check";
import { go, href, route, setQuery } from "../router";
import type { RunModel } from "../store";
import type { AttemptRow, Call, CallDetails, CallKind } from "../types";
import { Button, Chips, CopyButton, Empty, ErrorBox, Loading, Markdown, Raw, useFetched } from "../ui";
import { nowOf } from "./run_shell";

/** As styles.css has them: on a phone a row has two lines. */
const rowHeight = (): number => (matchMedia("(max-width: 640px)").matches ? 60 : 30);
/** A cell over more columns than are shown would make new ones, and take their room from the others. */
const FEWEST_COLUMNS = 7;
const OVERSCAN = 12;

interface CallPage {
  calls: Call[];
  next: string | null;
}

/** All calls of the run: what was fetched, then what the stream told since. */
function useCalls(model: RunModel) {
  const [fetched, setFetched] = useState<Call[]>([]);
  const [error, setError] = useState<ApiError | null>(null);
  const [isLoading, setLoading] = useState(true);
  const { id, state } = model.run;
  const isOver = model.isOver;
  useEffect(() => {
    let isWanted = true;
    const load = async () => {
      const all: Call[] = [];
      let after: string | null = "";
      while (after !== null && isWanted) {
        const page: CallPage = await get<CallPage>(
          runPath(id, `calls?limit=5000${after ? `&after=${after}` : ""}`),
        );
        all.push(...page.calls);
        after = page.calls.length ? page.next : null;
        if (isWanted) setFetched([...all]);
      }
      if (isWanted) setLoading(false);
    };
    load().catch((fault: ApiError) => {
      setLoading(false);
      setError(fault);
    });
    return () => {
      isWanted = false;
    };
  }, [id, isOver, state === "interrupted"]);
  const heard = model.calls;
  const calls = useMemo(() => {
    const at = new Map(fetched.map((call, index) => [call.id, index]));
    const all = [...fetched];
    for (const call of heard) {
      const index = at.get(call.id);
      if (index === undefined) all.push(call);
      else if (all[index]?.seconds === null) all[index] = { ...(all[index] as Call), ...call };
    }
    return all;
  }, [fetched, heard, heard.length, model.seq]);
  return { calls, error, isLoading };
}

type Show = "all" | CallKind | "error" | "slow";

interface Filters {
  show: Show;
  task: string;
  worker: string;
  text: string;
}

function fits(call: Call, filters: Filters, workerOf: (call: Call) => string): boolean {
  if (filters.task && call.task !== filters.task && !call.task.startsWith(`${filters.task}[`)) return false;
  if (filters.worker && workerOf(call) !== filters.worker) return false;
  if (filters.show === "error" && !call.error) return false;
  if (filters.show === "slow" && !call.is_slow) return false;
  if (!["all", "error", "slow"].includes(filters.show) && call.kind !== filters.show) return false;
  if (!filters.text) return true;
  const whole =
    `${call.name} ${call.task} ${call.model ?? ""} ${call.error ?? ""} ${call.kind}`.toLowerCase();
  return filters.text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => whole.includes(word));
}

function useWindow(total: number) {
  const box = useRef<HTMLElement>(null);
  const [range, setRange] = useState({ first: 0, last: 40 });
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => {
      const row = rowHeight();
      const first = Math.max(0, Math.floor(element.scrollTop / row) - OVERSCAN);
      const last = Math.ceil((element.scrollTop + element.clientHeight) / row) + OVERSCAN;
      setRange((old) => (old.first === first && old.last === last ? old : { first, last }));
    };
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      observer.disconnect();
    };
  }, [total > 0]);
  const reveal = (index: number) => {
    const element = box.current;
    if (!element) return;
    const row = rowHeight();
    const top = index * row;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * row > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 2 * row - element.clientHeight;
  };
  return { box, first: range.first, last: Math.min(range.last, total), reveal };
}

const KIND_MARKS: Record<CallKind, string> = {
  model: "model",
  tool: "tool",
  run: "run",
  step: "step",
  attempt: "attempt",
};

/** Attempts that failed or were lost without a call that says so: a worker may fail between its calls. */
export function failedAttempts(attempts: readonly AttemptRow[], calls: readonly Call[]): Call[] {
  const told = new Set<string>();
  for (const call of calls) if (call.error) told.add(`${call.task}:${call.attempt}`);
  return attempts
    .filter((row) => row.outcome === "failed" || row.outcome === "lost")
    .filter((row) => !told.has(`${row.task}:${row.attempt}`))
    .map((row) => ({
      id: `attempt ${row.attempt} ${row.task}`,
      task: row.task,
      attempt: row.attempt,
      kind: "attempt",
      name: `attempt ${row.attempt}`,
      started_at: row.started_at,
      seconds: row.ended_at ? (Date.parse(row.ended_at) - Date.parse(row.started_at)) / 1000 : null,
      tokens_in: 0,
      tokens_out: 0,
      cost: null,
      error: row.error || row.why || row.outcome,
      is_slow: false,
    }));
}

/** Calls, and attempts that failed without one, in the order in which they began. */
function withFailures(calls: Call[], attempts: readonly AttemptRow[]): Call[] {
  const failed = failedAttempts(attempts, calls);
  if (!failed.length) return calls;
  const began = (call: Call) => Date.parse(call.started_at);
  return [...calls, ...failed].sort((a, b) => began(a) - began(b));
}

function Row({
  call,
  index,
  from,
  span,
  worker,
  isChosen,
  end,
}: {
  call: Call;
  index: number;
  from: number;
  span: number;
  worker: string;
  isChosen: boolean;
  end: number;
}) {
  const started = Date.parse(call.started_at);
  const seconds = call.seconds ?? Math.max(0, (end - started) / 1000);
  return (
    <tr
      aria-rowindex={index + 2}
      class={`${isChosen ? "is-current" : ""} ${call.error ? "has-error" : ""}`}
      onClick={() => setQuery({ call: call.id })}
    >
      <td>
        <span class={`kind-mark call-${call.kind}`}>{KIND_MARKS[call.kind] ?? call.kind}</span>
      </td>
      <th scope="row">
        <button type="button" class="link" onClick={() => setQuery({ call: call.id })}>
          {oneLine(call.name, 60)}
        </button>
        {call.error ? <span class="error-mark">{oneLine(call.error, 80)}</span> : null}
      </th>
      <td class={isSystem(call.task) ? "" : "mono"}>
        {taskName(call.task)}
        {call.attempt > 1 ? <span class="hint"> #{call.attempt}</span> : null}
      </td>
      <td>{isSystem(call.task) ? "supervisor" : workerName(worker)}</td>
      <td class="num">+{duration((started - from) / 1000)}</td>
      <td class="lane-cell">
        <span class="lane">
          <i
            class={`call-${call.kind} ${call.error ? "has-error" : ""}`}
            style={{
              left: `${Math.min(99.5, ((started - from) / span) * 100)}%`,
              width: `${Math.min(100, Math.max(0.5, ((seconds * 1000) / span) * 100))}%`,
            }}
          />
        </span>
      </td>
      <td
        class={`num ${call.is_slow ? "is-slow" : ""}`}
        title={call.is_slow ? "much slower than calls like it" : ""}
      >
        {call.seconds === null ? "running" : duration(call.seconds)}
      </td>
      <td class="num wide-only">
        {call.tokens_in + call.tokens_out ? count(call.tokens_in + call.tokens_out) : "–"}
      </td>
      <td class="num wide-only">{call.kind === "model" ? cost(call.cost) : cost(call.cost ?? 0)}</td>
    </tr>
  );
}

/** The parts of a prompt or a reply that a person wants to read, if its shape is known. */
function readable(value: unknown): { role: string; text: string }[] | null {
  if (typeof value === "string") return [{ role: "", text: value }];
  if (typeof value !== "object" || value === null) return null;
  const record = value as Record<string, unknown>;
  if (Array.isArray(record.turns))
    return (record.turns as { role?: string; parts?: Part[] }[]).map((turn) => ({
      role: turn.role ?? "",
      text: (turn.parts ?? []).map(partText).join("\n\n"),
    }));
  const parts =
    (record.reply as { parts?: Part[] } | undefined)?.parts ?? (record.parts as Part[] | undefined);
  if (Array.isArray(parts)) return [{ role: "model", text: parts.map(partText).join("\n\n") }];
  if (typeof record.text === "string") return [{ role: "", text: record.text }];
  return null;
}

interface Part {
  is?: string;
  text?: string;
  name?: string;
  arguments?: unknown;
}

function partText(part: Part): string {
  if (part.is === "call") return `\`\`\`\n${part.name}(${asText(part.arguments)})\n\`\`\``;
  if (part.is === "output") return `\`\`\`\n${asText(part.text)}\n\`\`\``;
  return part.text ?? asText(part);
}

function Body({ title, value, isRaw }: { title: string; value: unknown; isRaw: boolean }) {
  const text = asText(value);
  const parts = isRaw ? null : readable(value);
  if (!text) return null;
  return (
    <section class="group">
      <header class="row">
        <h3>{title}</h3>
        <span class="spacer" />
        <CopyButton text={text} />
      </header>
      {parts ? (
        parts.map((part, index) => (
          <div key={index} class="turn">
            {part.role ? <span class="tag">{part.role}</span> : null}
            <Markdown text={part.text} />
          </div>
        ))
      ) : (
        <Raw text={text} label={title} />
      )}
    </section>
  );
}

function Diff({ run, call, earlier }: { run: string; call: CallDetails; earlier: Call }) {
  const before = useFetched<CallDetails>(`${run}/${earlier.id}`, () =>
    get<CallDetails>(runPath(run, `calls/${encodeURIComponent(earlier.id)}`)),
  );
  if (!before.value)
    return before.error ? <ErrorBox error={before.error} /> : <Loading what="the attempt before" />;
  const part = (title: string, old: unknown, fresh: unknown) => {
    const lines = diffLines(asText(old), asText(fresh));
    const isSame = lines.every((line) => line.how === "same");
    return (
      <section class="group">
        <h3>{title}</h3>
        {isSame ? (
          <p class="hint">The same as in attempt {earlier.attempt}.</p>
        ) : (
          <pre class="raw diff">
            {lines.map((line, index) => (
              <span key={index} class={`line ${line.how}`}>
                {line.how === "added" ? "+ " : line.how === "removed" ? "− " : "  "}
                {line.text}
                {"\n"}
              </span>
            ))}
          </pre>
        )}
      </section>
    );
  };
  return (
    <>
      {part("Input, against the attempt before", before.value.input, call.input)}
      {part("Output, against the attempt before", before.value.output, call.output)}
    </>
  );
}

/** The call of the same name and place in an earlier attempt at the same task. */
function earlierTwin(row: Call, calls: Call[]): Call | undefined {
  const alike = calls.filter(
    (call) => call.task === row.task && call.name === row.name && call.kind === row.kind,
  );
  const place = alike.filter((call) => call.attempt === row.attempt).findIndex((call) => call.id === row.id);
  const attempts = [...new Set(alike.map((call) => call.attempt))].filter((attempt) => attempt < row.attempt);
  return alike.filter((call) => call.attempt === Math.max(...attempts))[place];
}

function CallPanel({ run, row, calls }: { run: string; row: Call; calls: Call[] }) {
  const [isRaw, setRaw] = useState(false);
  const [isDiff, setDiff] = useState(false);
  // An attempt has no input and output of its own; the page of its task tells the rest.
  const isCall = row.kind !== "attempt";
  const details = useFetched<CallDetails>(isCall ? `${run}/${row.id}/${row.seconds === null}` : null, () =>
    get<CallDetails>(runPath(run, `calls/${encodeURIComponent(row.id)}`)),
  );
  const earlier = earlierTwin(row, calls);
  const value = details.value;
  return (
    <aside class="pane side" aria-label={`Call ${row.name}`}>
      <div class="panel-body">
        <header class="panel-head">
          <h2 class="mono">{oneLine(row.name, 40)}</h2>
          <span class={`kind-mark call-${row.kind}`}>{row.kind}</span>
          <span class="spacer" />
          <Button kind="quiet" onClick={() => setQuery({ call: null })} hotkey="Esc">
            Close
          </Button>
        </header>
        <dl class="facts">
          <div>
            <dt>Task</dt>
            <dd>
              <a href={href("run", run, { task: row.task.replace(/\[\d+\]$/, "") })}>{taskName(row.task)}</a>,
              attempt {row.attempt}
            </dd>
          </div>
          {row.model ? (
            <div>
              <dt>Model</dt>
              <dd>{clean(row.model)}</dd>
            </div>
          ) : null}
          <div>
            <dt>Began</dt>
            <dd>{clock(row.started_at, Date.now())}</dd>
          </div>
          <div>
            <dt>Time</dt>
            <dd>{callTime(row)}</dd>
          </div>
          {isCall ? (
            <>
              <div>
                <dt>Tokens</dt>
                <dd>
                  {count(row.tokens_in)} in, {count(row.tokens_out)} out
                </dd>
              </div>
              <div>
                <dt>Cost</dt>
                <dd>{row.kind === "model" ? cost(row.cost) : cost(row.cost ?? 0)}</dd>
              </div>
            </>
          ) : null}
        </dl>
        {row.error ? <div class="task-error">{clean(row.error)}</div> : null}
        {isCall ? null : <p class="hint">The worker failed outside of a call.</p>}
        <div class="row" hidden={!isCall}>
          <Chips
            label="Show as"
            value={isRaw ? "raw" : "rendered"}
            options={[
              { value: "rendered", label: "Rendered" },
              { value: "raw", label: "Raw" },
            ]}
            onChange={(mode) => setRaw(mode === "raw")}
          />
          {earlier ? (
            <Button kind="quiet" aria-pressed={isDiff} onClick={() => setDiff(!isDiff)}>
              Diff to attempt {earlier.attempt}
            </Button>
          ) : null}
          <Button kind="quiet" onClick={() => go("run", run, { at: row.id, task: row.task })}>
            Replay from here
          </Button>
        </div>
        {details.error ? <ErrorBox error={details.error} retry={details.reload} /> : null}
        {isCall && !value && !details.error ? <Loading what="the call" /> : null}
        {value && isDiff && earlier ? (
          <Diff run={run} call={value} earlier={earlier} />
        ) : value ? (
          <>
            <Body title="Input" value={value.input} isRaw={isRaw} />
            <Body title="Output" value={value.output} isRaw={isRaw} />
          </>
        ) : null}
        {value?.truncated ? (
          <p class="note">
            This is the first part of {bytes(value.size)}.{" "}
            <a
              class="button plain"
              download
              href={apiUrl(runPath(run, `calls/${encodeURIComponent(row.id)}?full=1`))}
            >
              <Glyph name="download" /> Download
            </a>
          </p>
        ) : null}
      </div>
    </aside>
  );
}

export function TracePage({ model }: { model: RunModel }) {
  const { query, run } = route.value;
  const { calls: made, error, isLoading } = useCalls(model);
  const failures = model.attempts.reduce(
    (sum, row) => sum + Number(row.outcome === "failed" || row.outcome === "lost"),
    0,
  );
  const all = useMemo(() => withFailures(made, model.attempts), [made, failures]);
  const replaying = query.at !== undefined;
  const workerByTask = useMemo(() => {
    const found = new Map(model.attempts.map((row) => [`${row.task}:${row.attempt}`, row.worker]));
    return (call: Call): string => found.get(`${call.task}:${call.attempt}`) ?? "";
  }, [model.attempts.length]);
  const moment = Date.parse(model.at);
  const filters: Filters = {
    show: (query.show ?? "all") as Show,
    task: query.task ?? "",
    worker: query.worker ?? "",
    text: query.q ?? "",
  };
  const calls = useMemo(
    () =>
      all.filter(
        (call) => fits(call, filters, workerByTask) && (!replaying || Date.parse(call.started_at) <= moment),
      ),
    [all, filters.show, filters.task, filters.worker, filters.text, replaying ? moment : 0],
  );
  const { box, first, last, reveal } = useWindow(calls.length);
  const end = nowOf(model);
  const from = Date.parse(all[0]?.started_at ?? model.run.began_at ?? model.at);
  const lastEnd = all.reduce(
    (last, call) => Math.max(last, Date.parse(call.started_at) + (call.seconds ?? 0) * 1000),
    from,
  );
  const hasOpenCall = all.slice(-200).some((call) => call.seconds === null);
  const span = Math.max(1, (hasOpenCall ? Math.max(end, lastEnd) : lastEnd) - from);
  const chosen = calls.findIndex((call) => call.id === query.call);
  const choose = (index: number) => {
    const call = calls[Math.min(Math.max(index, 0), calls.length - 1)];
    if (!call) return;
    setQuery({ call: call.id });
    reveal(Math.min(Math.max(index, 0), calls.length - 1));
  };
  const isFiltered = filters.show !== "all" || filters.task || filters.worker || filters.text;
  const clear = () => setQuery({ show: null, task: null, worker: null, q: null });
  useKeys({
    j: () => choose(chosen + 1),
    k: () => choose(chosen - 1),
    e: () => choose(calls.findIndex((call, index) => index > chosen && call.error)),
    "/": () => document.getElementById("trace-filter")?.focus(),
    Escape: () => (query.call ? setQuery({ call: null }) : clear()),
  });
  const workers = [
    ...new Set(
      model.attempts.map((row) => row.worker).filter((worker) => worker !== "" && !isSystem(worker)),
    ),
  ].sort();
  const tally = (test: (call: Call) => boolean) => all.filter(test).length;
  const options = useMemo(
    () => [
      { value: "all" as Show, label: "All", count: all.length },
      { value: "model" as Show, label: "Model", count: tally((call) => call.kind === "model") },
      { value: "tool" as Show, label: "Tool", count: tally((call) => call.kind === "tool") },
      { value: "error" as Show, label: "Errors", count: tally((call) => Boolean(call.error)) },
      { value: "slow" as Show, label: "Slow", count: tally((call) => call.is_slow) },
    ],
    [all],
  );
  if (error && !all.length) return <ErrorBox error={error} />;
  if (!all.length)
    return isLoading ? (
      <Loading what="the calls" />
    ) : (
      <Empty title="No calls yet">
        <p>Model and tool calls appear here as they are made.</p>
      </Empty>
    );
  const row = chosen >= 0 ? calls[chosen] : undefined;
  return (
    <div class={`trace-page ${row ? "has-side" : ""}`}>
      <section class="pane">
        <div class="toolbar">
          <Chips
            label="Show"
            value={filters.show}
            options={options}
            onChange={(show) => setQuery({ show: show === "all" ? null : show })}
          />
          <select
            aria-label="Worker"
            value={filters.worker}
            onChange={(event) => setQuery({ worker: event.currentTarget.value || null })}
          >
            <option value="">all workers</option>
            {workers.map((worker) => (
              <option key={worker} value={worker}>
                {worker}
              </option>
            ))}
          </select>
          {filters.task ? (
            <Button
              onClick={() => setQuery({ task: null })}
              aria-label={`Show all tasks, not only ${filters.task}`}
            >
              task {filters.task} <Glyph name="close" />
            </Button>
          ) : null}
          <input
            id="trace-filter"
            type="search"
            placeholder="Search names, tasks, errors  /"
            aria-label="Search calls"
            value={filters.text}
            onInput={(event) => setQuery({ q: event.currentTarget.value || null })}
          />
          <output class="hint">{isFiltered ? `${calls.length} of ${plural(all.length, "call")}` : ""}</output>
        </div>
        {calls.length === 0 ? (
          <Empty
            title={`No call fits ${[filters.text && `“${filters.text}”`, filters.task, filters.worker, filters.show !== "all" && filters.show].filter(Boolean).join(", ")}`}
          >
            <Button onClick={clear} hotkey="Esc">
              Clear the filter
            </Button>
          </Empty>
        ) : (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
          <section class="virtual" ref={box} tabIndex={0} aria-label="Calls">
            <table class="list trace-table" aria-rowcount={calls.length + 1}>
              <caption class="visually-hidden">Calls in the order in which they began</caption>
              <thead>
                <tr aria-rowindex={1}>
                  <th scope="col">Kind</th>
                  <th scope="col">Call</th>
                  <th scope="col">Task</th>
                  <th scope="col">Worker</th>
                  <th scope="col" class="num">
                    At
                  </th>
                  <th scope="col">Waterfall</th>
                  <th scope="col" class="num">
                    Time
                  </th>
                  <th scope="col" class="num wide-only">
                    Tokens
                  </th>
                  <th scope="col" class="num wide-only">
                    Cost
                  </th>
                </tr>
              </thead>
              <tbody>
                {first > 0 ? (
                  <tr aria-hidden="true" class="spacer-row">
                    <td colSpan={FEWEST_COLUMNS} style={{ height: `${first * rowHeight()}px` }} />
                  </tr>
                ) : null}
                {calls.slice(first, last).map((call, offset) => (
                  <Row
                    key={call.id}
                    call={call}
                    index={first + offset}
                    from={from}
                    span={span}
                    end={end}
                    worker={workerByTask(call)}
                    isChosen={call.id === query.call}
                  />
                ))}
                {last < calls.length ? (
                  <tr aria-hidden="true" class="spacer-row">
                    <td
                      colSpan={FEWEST_COLUMNS}
                      style={{ height: `${(calls.length - last) * rowHeight()}px` }}
                    />
                  </tr>
                ) : null}
              </tbody>
            </table>
          </section>
        )}
      </section>
      {row && run ? <CallPanel key={row.id} run={run} row={row} calls={all} /> : null}
    </div>
  );
}
