// Who works: workers with what they do now, and the processes that lead runs.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type ApiError, get, post } from "../api";
import { ago, clean, count, duration, oneLine, plural } from "../format";
import { StateIcon } from "../icons";
import { href, route } from "../router";
import { me, now } from "../session";
import { type RunModel, workersIn } from "../store";
import type { TaskState } from "../types";
import { Button, Cell, Empty, ErrorBox, Loading, usePolling } from "../ui";
import { nowOf } from "./run_shell";

interface Recent {
  began_at: string;
  ended_at: string | null;
  outcome: string;
}

/** A worker in one process. What is null is not known here. */
interface WorkerRow {
  name: string;
  node: string;
  here: boolean;
  state: string | null;
  model: string;
  capacity: number | null;
  active: number | null;
  busy: { run: string; task: string; attempt: number }[];
  done: number;
  failed: number;
  tokens_per_minute: number;
  rate_waits: number;
  rate_wait_seconds: number;
  queue: number;
  heartbeat_age: number | null;
  recent: Recent[];
}

interface ServerRow {
  node: string;
  pid: number | null;
  host: string | null;
  since: string | null;
  state: "alive" | "late" | "lost";
  heartbeat_age: number | null;
  workers: string[];
  leads: string[];
  here: boolean;
}

interface ProviderRow {
  provider: string;
  in_flight: number;
  most: number;
  waiting: number;
  shut: number;
  breaker: "closed" | "open" | "half_open";
  served: number;
  trouble: string;
}

interface Workers {
  workers: WorkerRow[];
  servers: ServerRow[];
  providers: ProviderRow[];
}

/** The strip of all runs goes back ten minutes. */
const WINDOW = 600_000;

const MARKS: Record<string, TaskState> = {
  idle: "ready",
  busy: "running",
  late: "retrying",
  lost: "failed",
  draining: "skipped",
  resting: "retrying",
  alive: "done",
};

/** When the worker was busy, over the whole run or over the last ten minutes. */
function Strip({ attempts, from, to }: { attempts: Recent[]; from: number; to: number }) {
  const span = Math.max(1, to - from);
  return (
    <span class="lane strip" role="img" aria-label={plural(attempts.length, "attempt")}>
      {attempts.map((row) => {
        const start = Math.max(0, (Date.parse(row.began_at) - from) / span);
        const end = row.ended_at ? (Date.parse(row.ended_at) - from) / span : 1;
        return (
          <i
            key={`${row.began_at}${row.ended_at}`}
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

function State({ state, children }: { state: string | null; children?: ComponentChildren }) {
  if (state === null) return <span title="Only its own process knows">–</span>;
  const mark = MARKS[state] ?? "waiting";
  return (
    <span class={`state is-${mark}`}>
      <StateIcon state={mark} />
      {state}
      {children}
    </span>
  );
}

function TaskLinks({ held }: { held: { run: string; task: string }[] }) {
  if (held.length === 0) return <>–</>;
  return (
    <>
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
    </>
  );
}

function Heartbeat({ age }: { age: number | null }) {
  return <>{age === null ? "–" : `${duration(age)} ago`}</>;
}

function Processes({ servers }: { servers: ServerRow[] }) {
  return (
    <>
      <h2>Processes</h2>
      <table class="list stacks">
        <caption class="visually-hidden">Processes</caption>
        <thead>
          <tr>
            <th scope="col">Process</th>
            <th scope="col">State</th>
            <th scope="col" class="num">
              Heartbeat
            </th>
            <th scope="col">Host</th>
            <th scope="col">Leads</th>
            <th scope="col">Crew</th>
            <th scope="col" class="num">
              Serves since
            </th>
          </tr>
        </thead>
        <tbody>
          {servers.map((server) => (
            <tr key={server.node}>
              <th scope="row" class="mono">
                {server.node} {server.here ? <span class="tag">this one</span> : null}
              </th>
              <td class="col-state">
                <State state={server.state} />
              </td>
              <Cell class="num" label="Heartbeat">
                <Heartbeat age={server.heartbeat_age} />
              </Cell>
              <Cell class="mono" label="Host">
                {server.host === null ? "–" : `${server.host} · ${server.pid}`}
              </Cell>
              <Cell label="Leads">
                {server.leads.length === 0 ? "standing by" : null}
                {server.leads.slice(0, 3).map((id) => (
                  <a key={id} class="mono task-chip" href={href("run", id)}>
                    {id}
                  </a>
                ))}
                {server.leads.length > 3 ? (
                  <span class="hint">and {server.leads.length - 3} more</span>
                ) : null}
              </Cell>
              <Cell label="Crew">{server.workers.join(", ") || "–"}</Cell>
              <Cell class="num" label="Serves since">
                {server.since ? ago(server.since, now.value) : "–"}
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Providers({ providers }: { providers: ProviderRow[] }) {
  return (
    <>
      <h2>Model providers</h2>
      <table class="list stacks">
        <caption class="visually-hidden">Model providers that this process calls</caption>
        <thead>
          <tr>
            <th scope="col">Provider</th>
            <th scope="col" class="num">
              Calls under way
            </th>
            <th scope="col" class="num">
              Calls that wait
            </th>
            <th scope="col" class="num">
              Answered
            </th>
            <th scope="col">What they wait for</th>
          </tr>
        </thead>
        <tbody>
          {providers.map((each, index) => (
            <tr key={index}>
              <th scope="row">{clean(each.provider)}</th>
              <Cell class="num" label="Calls under way">
                {each.in_flight} of {each.most}
              </Cell>
              <Cell class="num" label="Calls that wait">
                {each.waiting || "–"}
              </Cell>
              <Cell class="num" label="Answered">
                {count(each.served)}
              </Cell>
              <Cell class="what" label="What they wait for">
                {waitOf(each)}
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** What calls to a provider wait for, in words. */
export function waitOf(each: Pick<ProviderRow, "shut" | "breaker" | "waiting" | "trouble">): string {
  const why = each.trouble ? `: ${oneLine(each.trouble, 160)}` : "";
  if (each.shut > 0) return `it may be called again in ${duration(each.shut)}${why}`;
  if (each.breaker !== "closed") return `it serves no call${why}`;
  return each.waiting ? `its rate limit${why}` : "–";
}

export function WorkersPage({ model }: { model: RunModel | null }) {
  const [found, setFound] = useState<Workers | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const { run } = route.value;
  const load = () => {
    get<Workers>("workers").then(
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
  const to = model ? nowOf(model) : now.value;
  const from = model ? Date.parse(model.run.began_at ?? "") || 0 : to - WINDOW;
  const workers = model ? workersOf(model, found.workers) : found.workers;
  const isSpread = new Set(workers.map((worker) => worker.node)).size > 1;
  const attemptsOf = (name: string) => (model?.attempts ?? []).filter((row) => row.worker === name);
  const countOf = (name: string, outcomes: string[]) =>
    attemptsOf(name).filter((row) => outcomes.includes(row.outcome)).length;
  const stripOf = (worker: WorkerRow): Recent[] =>
    model ? attemptsOf(worker.name).map((row) => ({ ...row, began_at: row.started_at })) : worker.recent;
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
        <table class="list stacks">
          <caption class="visually-hidden">Workers</caption>
          <thead>
            <tr>
              <th scope="col">Worker</th>
              <th scope="col">State</th>
              <th scope="col">Model</th>
              <th scope="col">Now</th>
              <th scope="col">{model ? "Over the run" : "Last ten minutes"}</th>
              <th scope="col" class="num">
                Queue
              </th>
              <th scope="col" class="num">
                Done
              </th>
              <th scope="col" class="num">
                Failed
              </th>
              <th scope="col" class="num" title="Tokens of model calls in the last minute">
                Tokens/min
              </th>
              <th
                scope="col"
                class="num"
                title="Model calls of the last ten minutes that waited for a rate limit"
              >
                Rate-limit waits
              </th>
              <th scope="col">
                <span class="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {workers.map((worker) => (
              <tr key={`${worker.node}/${worker.name}`}>
                <th scope="row">
                  {clean(worker.name)}
                  {isSpread ? <span class="hint mono"> {worker.here ? "here" : worker.node}</span> : null}
                </th>
                <td class="col-state">
                  <State state={worker.state}>
                    {worker.state === "late" || worker.state === "lost" ? (
                      <span class="hint">
                        heartbeat <Heartbeat age={worker.heartbeat_age} />
                      </span>
                    ) : worker.capacity !== null ? (
                      <span
                        class="hint num"
                        title={`${worker.active} of ${worker.capacity} slots taken, over all runs`}
                      >
                        {worker.active}/{worker.capacity}
                      </span>
                    ) : null}
                  </State>
                </td>
                <Cell class="mono" label="Model">
                  {clean(worker.model) || "–"}
                </Cell>
                <Cell label="Now">
                  <TaskLinks
                    held={model ? worker.busy.filter((each) => each.run === model.run.id) : worker.busy}
                  />
                </Cell>
                <Cell class="lane-cell" label={model ? "Over the run" : "Last ten minutes"}>
                  <Strip attempts={stripOf(worker)} from={from} to={to} />
                </Cell>
                <Cell class="num" label="Queue">
                  {worker.queue || "–"}
                </Cell>
                <Cell class="num" label="Done">
                  {model ? countOf(worker.name, ["done"]) : worker.done}
                </Cell>
                <Cell class="num" label="Failed">
                  {model ? countOf(worker.name, ["failed", "lost"]) : worker.failed}
                </Cell>
                <Cell class="num" label="Tokens/min">
                  {worker.tokens_per_minute ? count(Math.round(worker.tokens_per_minute)) : "–"}
                </Cell>
                <Cell class="num" label="Rate-limit waits">
                  {worker.rate_waits ? `${worker.rate_waits} · ${duration(worker.rate_wait_seconds)}` : "–"}
                </Cell>
                <td class="row-actions">
                  {!isAdmin || !worker.here ? null : worker.state === "draining" ? (
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
            ))}
          </tbody>
        </table>
      )}
      <Processes servers={found.servers} />
      {found.providers.length ? <Providers providers={found.providers} /> : null}
    </div>
  );
}

/** The workers of a run: those that it may use or uses, in the process that leads it. */
function workersOf(model: RunModel, all: WorkerRow[]): WorkerRow[] {
  const used = workersIn(model);
  const names = model.run.workers?.length ? new Set([...model.run.workers, ...used]) : used;
  const mine = all.filter((worker) => names.has(worker.name));
  const there = mine.filter((worker) => worker.node === model.run.leader?.node);
  return there.length ? there : mine.filter((worker) => worker.here);
}
