// All runs, the newest first.

import { useState } from "preact/hooks";
import { ApiError, get, post } from "../api";
import { ago, clean, clock, cost, count, duration, oneLine, plural, times } from "../format";
import { RunStateLabel, StateIcon } from "../icons";
import { useKeys } from "../keys";
import { questionWords } from "../question_card";
import { go, href, route, setQuery } from "../router";
import { attention, canSubmit, now, openQuestions } from "../session";
import { RUN_ENDED } from "../store";
import { type Crew, commandFor, NOTHING } from "../submit_command";
import type { RunRow } from "../types";
import {
  Button,
  Cell,
  Chips,
  Command,
  Empty,
  ErrorBox,
  Loading,
  SegmentBar,
  useFetched,
  usePolling,
} from "../ui";

interface RunList {
  runs: RunRow[];
  next: string | null;
  counts: { all: number; running: number; needs: number; failed: number; partial: number; done: number };
  /** How many fit the filter. */
  fitting: number;
}

type Filter = "all" | "running" | "needs" | "partial" | "failed";
const PAGE = 50;
/** It can be answered in any folder, and by any model. */
const DEMO = "Which files are there?";

function listPath(filter: string, text: string, before: string | null): string {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (filter !== "all") query.set("state", filter);
  if (text) query.set("q", text);
  if (before) query.set("before", before);
  return `runs?${query}`;
}

function NeedsBlock() {
  const open = openQuestions.value;
  if (!open.length) return null;
  return (
    <section class="needs-block" aria-labelledby="needs-title">
      <h2 id="needs-title">
        <StateIcon state="needs" /> Needs you
      </h2>
      <ul>
        {open.slice(0, 5).map((question) => (
          <li key={question.id}>
            <a
              href={
                question.kind === "plan"
                  ? href("plan", question.run)
                  : href("questions", null, { question: question.id })
              }
            >
              <span class="what">{questionWords(question, 140)}</span>
              <span class="meta">
                {question.title ? `${oneLine(question.title, 60)} · ` : ""}
                {question.waits_behind
                  ? `${plural(question.waits_behind, "task waits", "tasks wait")} · `
                  : ""}
                asked {ago(question.asked_at, now.value)}
              </span>
            </a>
          </li>
        ))}
      </ul>
      {open.length > 5 ? <a href={href("questions")}>All {open.length} questions</a> : null}
    </section>
  );
}

function wallOf(row: RunRow): number | null {
  if (!row.began_at) return null;
  if (RUN_ENDED.has(row.state) && row.wall !== null) return row.wall;
  if (row.state === "running" || row.state === "planning" || row.state === "stopping")
    return Math.max(row.wall ?? 0, (now.value - Date.parse(row.began_at)) / 1000);
  return row.wall;
}

function Row({
  row,
  isCurrent,
  isMarked,
  onMark,
}: {
  row: RunRow;
  isCurrent: boolean;
  isMarked: boolean;
  onMark: () => void;
}) {
  const { tasks } = row;
  return (
    <tr class={`${isCurrent ? "is-current" : ""} ${isMarked ? "is-marked" : ""}`}>
      <td class="mark">
        <label>
          <input type="checkbox" checked={isMarked} onChange={onMark} aria-label={`Compare ${row.id}`} />
        </label>
      </td>
      <td class="col-state">
        <RunStateLabel state={row.state} />
      </td>
      <td class="title">
        <a href={href("run", row.id)}>{oneLine(row.title, 160) || row.id}</a>
        {row.reason ? <span class="reason">{oneLine(row.reason, 160)}</span> : null}
      </td>
      <td class="col-bar">
        <SegmentBar counts={tasks} />
      </td>
      <Cell class="num" label="Tasks done">
        {tasks.total ? `${tasks.done}/${tasks.total}` : "–"}
      </Cell>
      <Cell class="num" label="Time">
        {duration(wallOf(row))}
      </Cell>
      <td class="num wide-only">{times(row.speedup)}</td>
      <td class="num wide-only">{row.tokens ? count(row.tokens) : "–"}</td>
      <Cell class="num" label="Cost">
        {cost(row.cost)}
      </Cell>
      <Cell class="num when" label="Began" title={row.began_at ? clock(row.began_at, now.value) : ""}>
        {ago(row.began_at, now.value)}
      </Cell>
    </tr>
  );
}

function NoRuns() {
  const [fault, setFault] = useState<ApiError | null>(null);
  const demo = async () => {
    try {
      const { id } = await post<{ id: string }>("runs", { request: DEMO, key: `demo-${Date.now()}` });
      go("run", id);
    } catch (error) {
      if (error instanceof ApiError) setFault(error);
    }
  };
  const crew = useFetched<Crew>("crew", () => get<Crew>("crew"));
  const draft = { ...NOTHING, review: false, request: DEMO };
  return (
    <Empty title="No runs yet">
      <p>Start one from a terminal, or from here. It appears in this list at once.</p>
      <Command text={commandFor(draft, null, crew.value ?? {})} />
      {canSubmit.value ? (
        <p class="row">
          <a class="button primary" href={href("new")}>
            New run
          </a>
          {/* A crew of their own would do real work for it. */}
          {crew.value && !crew.value.crew ? <Button onClick={demo}>Try the demo run</Button> : null}
        </p>
      ) : null}
      {fault ? <ErrorBox error={fault} /> : null}
    </Empty>
  );
}

export function RunsPage() {
  const { query } = route.value;
  const filter = (query.state ?? "all") as Filter;
  const text = query.q ?? "";
  const [list, setList] = useState<RunList | null>(null);
  const [more, setMore] = useState<RunRow[]>([]);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [current, setCurrent] = useState(-1);
  const [marked, setMarked] = useState<string[]>([]);

  const load = () => {
    get<RunList>(listPath(filter, text, null)).then(
      (found) => {
        setList(found);
        setError(null);
        if (!more.length) setNext(found.next);
      },
      (fault: ApiError) => setError(fault),
    );
  };
  usePolling(load, 2000);
  const show = (changes: Record<string, string | null>) => {
    setMore([]);
    setQuery(changes);
    setTimeout(load);
  };
  const loadMore = async () => {
    if (!next) return;
    const found = await get<RunList>(listPath(filter, text, next));
    setMore([...more, ...found.runs]);
    setNext(found.next);
  };

  const seen = new Set(list?.runs.map((row) => row.id));
  const rows = [...(list?.runs ?? []), ...more.filter((row) => !seen.has(row.id))];
  const mark = (id: string) =>
    setMarked(marked.includes(id) ? marked.filter((each) => each !== id) : [...marked.slice(-1), id]);
  const compare = () =>
    marked.length === 2 && go("compare", null, { a: marked[0] as string, b: marked[1] as string });
  useKeys({
    j: () => setCurrent(Math.min(current + 1, rows.length - 1)),
    k: () => setCurrent(Math.max(current - 1, 0)),
    Enter: () => {
      const row = rows[current];
      if (row) go("run", row.id);
    },
    x: () => {
      const row = rows[current];
      if (row) mark(row.id);
    },
    c: () => {
      compare();
    },
    e: () => show({ state: "failed" }),
    "/": () => document.getElementById("runs-filter")?.focus(),
    Escape: () => {
      if (text || filter !== "all") show({ q: null, state: null });
      else setMarked([]);
    },
  });

  if (!list) return error ? <ErrorBox error={error} retry={load} /> : <Loading what="runs" />;
  const isFiltered = filter !== "all" || text;
  if (list.counts.all === 0 && !isFiltered) return <NoRuns />;
  return (
    <div class="runs">
      <h1 class="visually-hidden">Runs</h1>
      <NeedsBlock />
      <div class="toolbar">
        <Chips
          label="Show"
          value={filter}
          onChange={(value) => show({ state: value === "all" ? null : value })}
          options={[
            { value: "all", label: "All", count: list.counts.all },
            { value: "running", label: "Running", count: list.counts.running },
            { value: "needs", label: "Needs you", count: list.counts.needs },
            { value: "partial", label: "Partial", count: list.counts.partial },
            { value: "failed", label: "Failed", count: list.counts.failed },
          ]}
        />
        <input
          id="runs-filter"
          type="search"
          placeholder="Filter by request or id  /"
          aria-label="Filter by request or id"
          value={text}
          onInput={(event) => show({ q: event.currentTarget.value || null })}
        />
        <span class="spacer" />
        {marked.length ? (
          <Button onClick={compare} disabled={marked.length !== 2} hotkey="c">
            Compare {marked.length} of 2
          </Button>
        ) : null}
        {canSubmit.value ? (
          <a class="button primary" href={href("new")}>
            New run
          </a>
        ) : null}
      </div>
      {rows.length === 0 ? (
        <Empty
          title={`No run fits ${text ? `“${clean(text)}”` : ""}${text && filter !== "all" ? " and " : ""}${filter !== "all" ? `“${filter === "needs" ? "needs you" : filter}”` : ""}`}
        >
          <Button onClick={() => show({ q: null, state: null })} hotkey="Esc">
            Clear the filter
          </Button>
        </Empty>
      ) : (
        <table class="list stacks runs-table">
          <thead>
            <tr>
              <th scope="col">
                <span class="visually-hidden">Compare</span>
              </th>
              <th scope="col">State</th>
              <th scope="col">Run</th>
              <th scope="col">Progress</th>
              <th scope="col" class="num">
                Tasks done
              </th>
              <th scope="col" class="num">
                Time
              </th>
              <th scope="col" class="num wide-only">
                Speed-up
              </th>
              <th scope="col" class="num wide-only">
                Tokens
              </th>
              <th scope="col" class="num">
                Cost
              </th>
              <th scope="col" class="num">
                Began
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, index) => (
              <Row
                key={row.id}
                row={row}
                isCurrent={index === current}
                isMarked={marked.includes(row.id)}
                onMark={() => mark(row.id)}
              />
            ))}
          </tbody>
        </table>
      )}
      {next ? (
        <Button class="more" onClick={loadMore}>
          Show more
        </Button>
      ) : null}
      <p class="hint">
        {isFiltered
          ? `${list.fitting.toLocaleString("en")} of ${plural(list.counts.all, "run")}`
          : plural(list.counts.all, "run")}
        {attention.value.running ? `, ${attention.value.running} running` : ""}. Mark two runs to compare them{" "}
        <kbd>x</kbd>
      </p>
    </div>
  );
}
