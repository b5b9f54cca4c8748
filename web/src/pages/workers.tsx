// Who works: workers with what they do now, and the processes that lead runs.

import { useState } from "preact/hooks";
import { type ApiError, get, post } from "../api";
import { ago, clean, count, duration, plural } from "../format";
import { StateIcon } from "../icons";
import { href, route } from "../router";
import { me, now } from "../session";
import type { RunModel } from "../store";
import type { AttemptRow, TaskState } from "../types";
import { Button, Empty, ErrorBox, Loading, Meter, usePolling } from "../ui";
import { nowOf } from "./run_shell";

interface WorkerRow {
  name: string;
  state: string;
  model: string;
  capacity: number;
  active: number;
  busy: { run: string; task: string; attempt: number }[];
  task: string;
  run: string;
  done: number;
  failed: number;
  tokens: number;
  queue: number;
  heartbeat_age?: number | null;
  tokens_per_minute?: number | null;
  rate_waits?: number | null;
}

interface ServerRow {
  node: string;
  pid: number;
  host: string;
  since: string | null;
  workers: string[];
  leads: string[];
  here: boolean;
  state?: string;
  heartbeat_age?: number | null;
}

interface Workers {
  workers: WorkerRow[];
  servers: ServerRow[];
}

const MARKS: Record<string, TaskState> = {
  idle: "ready",
  busy: "running",
  late: "retrying",
  lost: "failed",
  draining: "skipped",
  resting: "retrying",
  leader: "running",
  standby: "ready",
};

/** When the worker was busy, over the whole run or over the last ten minutes. */
function Strip({ attempts, from, to }: { attempts: AttemptRow[]; from: number; to: number }) {
  const span = Math.max(1, to - from);
  return (
    <span class="lane strip" role="img" aria-label={plural(attempts.length, "attempt")}>
      {attempts.map((row) => {
        const start = Math.max(0, (Date.parse(row.started_at) - from) / span);
        const end = row.ended_at ? (Date.parse(row.ended_at) - from) / span : 1;
        return (
          <i
            key={`${row.task}:${row.attempt}`}
            class={
              row.outcome === "failed" || row.outcome === "lost"
                ? "has-error"
                : row.ended_at
                  ? "is-past"
                  : "is-now"
            }
            style={{ left: `${start * 100}%`, width: `${Math.max(0.6, (end - start) * 100)}%` }}
          />
        );
      })}
    </span>
  );
}

function State({ state, age }: { state: string; age: number | null | undefined }) {
  const mark = MARKS[state] ?? "waiting";
  return (
    <span class={`state is-${mark}`}>
      <StateIcon state={mark} />
      {state}
      {age !== null && age !== undefined && (state === "late" || state === "lost")
        ? ` · heard ${duration(age)} ago`
        : ""}
    </span>
  );
}

export function WorkersPage({ model }: { model: RunModel | null }) {
  const [found, setFound] = useState<Workers | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const { run } = route.value;
  const load = () => {
    get<Workers>(run ? `workers?run=${encodeURIComponent(run)}` : "workers").then(
      (value) => {
        setFound(value);
        setError(null);
      },
      (fault: ApiError) => setError(fault),
    );
  };
  usePolling(load, 2000);
  const change = async (name: string, what: "drain" | "join") => {
    try {
      await post(`workers/${encodeURIComponent(name)}/${what}`);
      load();
    } catch (fault) {
      setError(fault as ApiError);
    }
  };
  if (!found) return error ? <ErrorBox error={error} retry={load} /> : <Loading what="workers" />;
  const mine = model ? new Set([...model.tasks.values()].map((row) => row.worker)) : null;
  const workers = mine ? found.workers.filter((worker) => mine.has(worker.name)) : found.workers;
  const from = Date.parse(model?.run.began_at ?? "") || 0;
  const to = model ? nowOf(model) : 0;
  const attemptsOf = (name: string) => (model?.attempts ?? []).filter((row) => row.worker === name);
  const countOf = (name: string, outcomes: string[]) =>
    attemptsOf(name).filter((row) => outcomes.includes(row.outcome)).length;
  const isAdmin = Boolean(me.value?.scopes.includes("admin") && !me.value.read_only);
  return (
    <div class="workers-page">
      {run ? null : <h1>Workers</h1>}
      {error ? <ErrorBox error={error} retry={load} /> : null}
      {workers.length === 0 ? (
        <Empty title="No workers">
          <p>
            Workers belong to the crew of <code>chargehand serve</code>. No process with a crew is alive now.
          </p>
        </Empty>
      ) : (
        <table class="list">
          <caption class="visually-hidden">Workers</caption>
          <thead>
            <tr>
              <th scope="col">Worker</th>
              <th scope="col">State</th>
              <th scope="col">Model</th>
              <th scope="col">Now</th>
              <th scope="col">{model ? "Over the run" : "Places"}</th>
              <th scope="col" class="num">
                Done
              </th>
              <th scope="col" class="num">
                Failed
              </th>
              <th scope="col" class="num wide-only">
                Tokens
              </th>
              <th scope="col" class="num">
                Queue
              </th>
              <th scope="col">
                <span class="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {workers.map((worker) => {
              const held = model ? worker.busy.filter((each) => each.run === model.run.id) : worker.busy;
              return (
                <tr key={worker.name}>
                  <th scope="row">{worker.name}</th>
                  <td class="col-state">
                    <State state={worker.state} age={worker.heartbeat_age} />
                  </td>
                  <td class="mono">{clean(worker.model) || "–"}</td>
                  <td>
                    {held.length === 0 ? "–" : null}
                    {held.slice(0, 3).map((each) => (
                      <a
                        key={`${each.run}${each.task}`}
                        class="mono task-chip"
                        href={href("run", each.run, { task: each.task })}
                      >
                        {each.task}
                      </a>
                    ))}
                    {held.length > 3 ? <span class="hint">and {held.length - 3} more</span> : null}
                  </td>
                  <td class="lane-cell">
                    {model ? (
                      <Strip attempts={attemptsOf(worker.name)} from={from} to={to} />
                    ) : (
                      <span
                        class="places"
                        role="img"
                        aria-label={`${worker.active} of ${worker.capacity} places taken`}
                      >
                        <Meter used={worker.active} limit={worker.capacity} label="places" />
                        <span class="num">
                          {worker.active}/{worker.capacity}
                        </span>
                      </span>
                    )}
                  </td>
                  <td class="num">{model ? countOf(worker.name, ["done"]) : worker.done}</td>
                  <td class="num">{model ? countOf(worker.name, ["failed", "lost"]) : worker.failed}</td>
                  <td class="num wide-only">
                    {worker.tokens_per_minute
                      ? count(Math.round(worker.tokens_per_minute))
                      : worker.tokens
                        ? count(worker.tokens)
                        : "–"}
                  </td>
                  <td class="num">{worker.queue || "–"}</td>
                  <td class="row-actions">
                    {!isAdmin ? null : worker.state === "draining" ? (
                      <Button kind="quiet" onClick={() => void change(worker.name, "join")}>
                        Put back to work
                      </Button>
                    ) : (
                      <Button
                        kind="quiet"
                        onClick={() => void change(worker.name, "drain")}
                        title="It finishes what it has and gets nothing new"
                      >
                        Drain
                      </Button>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
      <h2>Processes that serve</h2>
      {found.servers.length === 0 ? (
        <p class="hint">None is known.</p>
      ) : (
        <table class="list">
          <caption class="visually-hidden">Processes</caption>
          <thead>
            <tr>
              <th scope="col">Process</th>
              <th scope="col">Host</th>
              <th scope="col">Leads</th>
              <th scope="col">Crew</th>
              <th scope="col" class="num">
                Since
              </th>
            </tr>
          </thead>
          <tbody>
            {found.servers.map((server) => (
              <tr key={server.node}>
                <th scope="row" class="mono">
                  {server.node} {server.here ? <span class="tag">this one</span> : null}
                </th>
                <td class="mono">
                  {server.host} · {server.pid}
                </td>
                <td>
                  {server.leads.length === 0 ? "standing by" : null}
                  {server.leads.slice(0, 3).map((id) => (
                    <a key={id} class="mono task-chip" href={href("run", id)}>
                      {id}
                    </a>
                  ))}
                  {server.leads.length > 3 ? (
                    <span class="hint">and {server.leads.length - 3} more</span>
                  ) : null}
                </td>
                <td>{server.workers.join(", ")}</td>
                <td class="num">{ago(server.since, now.value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}
