// Where the money, the tokens and the time went.

import type { ComponentChildren } from "preact";
import { get, runPath } from "../api";
import { clean, cost, count, duration, money, plural } from "../format";
import { isSystem, taskName, workerName } from "../names";
import { href } from "../router";
import type { RunModel } from "../store";
import type { Usage } from "../types";
import { Cell, Empty, ErrorBox, Loading, Meter, useFetched } from "../ui";

interface CostView {
  by_worker: {
    worker: string;
    attempts: number;
    busy: number;
    share: number;
    failures: number;
    usage: Usage;
  }[];
  by_model: { model: string; replies: number; cached: number; failures: number; usage: Usage }[];
  by_task: ({ task: string } & Usage)[];
  waste: { attempts: number; time: number; usage: Usage };
  usage: Usage;
  /** Models that no price list knows. What they cost is in no sum. */
  unpriced?: string[];
  budget: { money: number | null; tokens: number | null; calls: number | null };
  /** Each cap that was exceeded, in words. */
  over_budget?: string[];
}

const tokensOf = (usage: Usage): number => (usage.tokens_in ?? 0) + (usage.tokens_out ?? 0);

/** Null: not known. Fields that are nought may be left out. */
const moneyIn = (usage: Usage): number | null => (usage.money === null ? null : (usage.money ?? 0));

const moneyWords = (usage: Usage): string => {
  const amount = moneyIn(usage);
  return amount === null ? cost(null) : money(amount);
};

/** Which models the sums leave out. */
function Unpriced({ models }: { models: readonly string[] }) {
  if (!models.length) return null;
  return (
    <p class="note">
      No price list knows {models.map(clean).join(", ")}: what {models.length === 1 ? "it" : "they"} cost is
      unknown, and in no sum.
    </p>
  );
}

/** Which caps were exceeded: a worker's own framework may report its usage only after the call. */
function OverBudget({ caps }: { caps: readonly string[] }) {
  if (!caps.length) return null;
  return <p class="note">Over budget: {caps.map(clean).join("; ")}.</p>;
}

function Budget({
  label,
  used,
  limit,
  shown,
}: {
  label: string;
  used: number | null;
  limit: number | null;
  shown: (value: number) => string;
}) {
  return (
    <div class="card">
      <h3>{label}</h3>
      <p class="big">
        {used === null ? cost(null) : shown(used)}
        <span class="hint"> {limit === null ? "no limit" : `of ${shown(limit)}`}</span>
      </p>
      <Meter used={used ?? 0} limit={limit} label={label} />
    </div>
  );
}

interface ShareRow {
  name: ComponentChildren;
  key: string;
  usage: Usage;
  seconds: number;
  extra: string[];
}

function ShareTable({ title, rows, columns }: { title: string; rows: ShareRow[]; columns: string[] }) {
  if (!rows.length) return null;
  // By money where there is a price, else by tokens, else by time.
  const weights = [
    (row: ShareRow) => row.usage.money ?? 0,
    (row: ShareRow) => tokensOf(row.usage),
    (row: ShareRow) => row.seconds,
  ];
  const weight = weights.find((each) => rows.some((row) => each(row) > 0)) ?? (() => 0);
  const most = Math.max(...rows.map(weight), Number.MIN_VALUE);
  return (
    <section class="pane">
      <header class="pane-head">
        <h2>{title}</h2>
      </header>
      <table class="list stacks">
        <caption class="visually-hidden">{title}</caption>
        <thead>
          <tr>
            <th scope="col">{title.replace("By ", "").replace(/^./, (first) => first.toUpperCase())}</th>
            <th scope="col">Share</th>
            {columns.map((column) => (
              <th key={column} scope="col" class="num">
                {column}
              </th>
            ))}
            <th scope="col" class="num">
              Calls
            </th>
            <th scope="col" class="num">
              Tokens in
            </th>
            <th scope="col" class="num">
              Tokens out
            </th>
            <th scope="col" class="num">
              Cost
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.key}>
              <th scope="row">{row.name}</th>
              <td class="lane-cell">
                <span
                  class="lane"
                  role="img"
                  aria-label={`${Math.round((weight(row) / most) * 100)} % of the largest`}
                >
                  <i class="share" style={{ left: 0, width: `${(weight(row) / most) * 100}%` }} />
                </span>
              </td>
              {row.extra.map((value, index) => (
                <Cell key={columns[index]} class="num" label={columns[index]}>
                  {value}
                </Cell>
              ))}
              <Cell class="num" label="Calls">
                {row.usage.calls ?? 0}
              </Cell>
              <Cell class="num" label="Tokens in">
                {count(row.usage.tokens_in ?? 0)}
              </Cell>
              <Cell class="num" label="Tokens out">
                {count(row.usage.tokens_out ?? 0)}
              </Cell>
              <Cell class="num" label="Cost">
                {cost(row.usage.money)}
              </Cell>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function CostPage({ model }: { model: RunModel }) {
  const { run } = model;
  const caps = JSON.stringify(run.limits);
  const found = useFetched<CostView>(
    `${run.id}/${run.state}/${run.tasks.done}/${run.tasks.failed}/${caps}`,
    () => get<CostView>(runPath(run.id, "cost")),
  );
  if (!found.value)
    return found.error ? <ErrorBox error={found.error} retry={found.reload} /> : <Loading what="the cost" />;
  const { usage, budget, waste, by_worker, by_model, by_task } = found.value;
  if (!usage.calls && !by_worker.length)
    return (
      <Empty title="Nothing was spent yet">
        <p>Calls, tokens and cost appear here with the first model call.</p>
      </Empty>
    );
  const cached = by_model.reduce((sum, each) => sum + each.cached, 0);
  const dearest = [...by_task].sort(
    (a, b) => (b.money ?? 0) - (a.money ?? 0) || tokensOf(b) - tokensOf(a) || (b.calls ?? 0) - (a.calls ?? 0),
  );
  return (
    <div class="cost-page">
      <div class="cards">
        <Budget label="Cost" used={moneyIn(usage)} limit={budget.money} shown={money} />
        <Budget label="Tokens" used={tokensOf(usage)} limit={budget.tokens} shown={count} />
        <Budget label="Model calls" used={usage.calls ?? 0} limit={budget.calls} shown={count} />
        <div class="card">
          <h3>Spent in vain</h3>
          <p class="big">
            {moneyWords(waste.usage)}
            <span class="hint">
              {" "}
              {waste.attempts
                ? `${plural(waste.attempts, "attempt")}, ${duration(waste.time)}, ${count(tokensOf(waste.usage))} tokens`
                : "no attempt failed"}
            </span>
          </p>
        </div>
        <div class="card">
          <h3>Saved by caches</h3>
          <p class="big">
            {count(usage.cache_read ?? 0)}
            <span class="hint">
              {" "}
              tokens from prompt caches{cached ? `, ${plural(cached, "reply", "replies")} reused` : ""}
            </span>
          </p>
        </div>
      </div>
      <OverBudget caps={found.value.over_budget ?? []} />
      <Unpriced models={found.value.unpriced ?? []} />
      <ShareTable
        title="By worker"
        columns={["Attempts", "Busy"]}
        rows={by_worker.map((each) => ({
          key: each.worker,
          name: isSystem(each.worker)
            ? `supervisor (${clean(each.worker.slice(1))})`
            : workerName(each.worker),
          usage: each.usage,
          seconds: each.busy,
          extra: [String(each.attempts), duration(each.busy)],
        }))}
      />
      <ShareTable
        title="By model"
        columns={["Replies", "Reused"]}
        rows={by_model.map((each) => ({
          key: each.model,
          name: each.model || "–",
          usage: each.usage,
          seconds: 0,
          extra: [String(each.replies), String(each.cached)],
        }))}
      />
      <ShareTable
        title="By task"
        columns={["Time"]}
        rows={dearest.slice(0, 200).map((each) => ({
          key: each.task,
          name: isSystem(each.task) ? (
            <span>supervisor: {taskName(each.task)}</span>
          ) : (
            <a class="mono" href={href("run", run.id, { task: each.task })}>
              {each.task}
            </a>
          ),
          usage: each,
          seconds: model.tasks.get(each.task)?.seconds ?? 0,
          extra: [duration(model.tasks.get(each.task)?.seconds)],
        }))}
      />
    </div>
  );
}
