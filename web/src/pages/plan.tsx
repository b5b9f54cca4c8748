// The plan as a table: read it, change what has not started, approve it.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { answerSoon, pending, sent, undo } from "../answers";
import { ApiError, type Fault, get, post, put, runPath } from "../api";
import { ago, clean, duration, oneLine, plural } from "../format";
import { Graph } from "../graph";
import { Glyph, StateIcon, taskWord } from "../icons";
import { useKeys } from "../keys";
import { refreshSoon } from "../live";
import {
  checkPlan,
  diffPlans,
  type PlanFault,
  type PlanReview,
  planTotals,
  proposedPlan,
  type TaskChange,
} from "../plan_check";
import { go, href, route, setQuery } from "../router";
import {
  announcement,
  canOperate,
  keep,
  now,
  recall,
  refreshAttention,
  refreshQuestions,
  shownTheme,
} from "../session";
import { FINAL, needId, RunModel, waitingRow } from "../store";
import type { Plan, PlanTask, Question, RunEvent, TaskRow } from "../types";
import { Button, Cell, Dialog, Empty, ErrorBox, Field, Loading, useFetched } from "../ui";

interface PlanVersion {
  version: number;
  at: string | null;
  reason: string;
  /** The event that made it. */
  seq: number;
}

interface PlanState {
  version: number;
  etag: string;
  plan: Plan | null;
  editable: string[];
  versions: PlanVersion[];
  review?: PlanReview | null;
  /** The plan that was proposed last, of a run that ended without one. */
  refused?: PlanReview | null;
}

interface Checked {
  faults: Fault[];
  warnings: (Fault | string)[];
  totals?: { tasks: number; depth: number; width: number; estimate: number | null };
}

const CHUNK = 150;
const draftKey = (run: string): string => `plan.${run}`;

function storedDraft(run: string): { version: number; plan: Plan } | null {
  try {
    return JSON.parse(recall(draftKey(run)) ?? "null") as { version: number; plan: Plan } | null;
  } catch {
    return null;
  }
}

function needsText(task: PlanTask): string {
  return (task.needs ?? []).map((need) => needId(need)).join(", ");
}

/** The needs as typed; one that was there before keeps what else it says. */
function needsFrom(text: string, before: PlanTask["needs"]): PlanTask["needs"] {
  const known = new Map((before ?? []).map((need) => [needId(need), need]));
  return text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map((id) => known.get(id) ?? id);
}

function budgetText(task: PlanTask): string {
  const limits = task.limits ?? {};
  return Object.entries(limits)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => (name === "money" ? `$${value}` : `${value} ${name}`))
    .join(", ");
}

function newTask(plan: Plan): PlanTask {
  const ids = new Set(plan.tasks.map((task) => task.id));
  let n = plan.tasks.length + 1;
  while (ids.has(`t${n}`)) n += 1;
  return { id: `t${n}`, description: "", worker: plan.tasks.at(-1)?.worker ?? "" };
}

interface RowProps {
  task: PlanTask;
  state: TaskRow | undefined;
  change: TaskChange | undefined;
  faults: PlanFault[];
  isEditable: boolean;
  isEditing: boolean;
  isNew: boolean;
  workers: string[];
  onEdit: (on: boolean) => void;
  onChange: (task: PlanTask) => void;
  onRemove: () => void;
}

function FaultLine({ faults, field }: { faults: PlanFault[]; field: PlanFault["field"] }) {
  const mine = faults.filter((fault) => fault.field === field);
  return (
    <>
      {mine.map((fault) => (
        <p key={fault.message} class={fault.isWarning ? "warning" : "fault"}>
          {fault.message}
        </p>
      ))}
    </>
  );
}

function Was({ change, field }: { change: TaskChange | undefined; field: string }) {
  const found = change?.fields.find((each) => each.field === field);
  if (!found) return null;
  return <del class="was">{oneLine(found.before, 200) || "nothing"}</del>;
}

function ReadRow({ task, state, change, faults, isEditable, onEdit, onRemove }: RowProps) {
  const mark = change && change.how !== "same" ? change.how : "";
  return (
    <tr
      id={`task-${task.id}`}
      class={`plan-row ${mark ? `is-${mark}` : ""} ${faults.some((f) => !f.isWarning) ? "has-fault" : ""}`}
    >
      <td class="col-state">
        {state ? (
          <span title={taskWord(state.state)}>
            <StateIcon state={state.state} />
            <span class="visually-hidden">{taskWord(state.state)}</span>
          </span>
        ) : null}
        {mark ? <span class={`diff-mark ${mark}`}>{mark}</span> : null}
      </td>
      <th scope="row" class="mono">
        <a href={href("run", route.value.run, { task: task.id })}>{task.id}</a>
        <FaultLine faults={faults} field="id" />
      </th>
      <td class="what">
        <Was change={change} field="description" />
        {clean(task.description)}
        {task.for_each ? <span class="tag">for each</span> : null}
        {task.optional ? <span class="tag">optional</span> : null}
        <FaultLine faults={faults} field="description" />
      </td>
      <Cell label="Worker">
        <Was change={change} field="worker" />
        {task.worker || task.skill}
        <FaultLine faults={faults} field="worker" />
      </Cell>
      <Cell class="mono needs-cell" label="Needs">
        <Was change={change} field="needs" />
        {needsText(task) || "–"}
        <FaultLine faults={faults} field="needs" />
      </Cell>
      <Cell label="Accept when">
        <Was change={change} field="accept" />
        {clean(task.accept ?? "") || "–"}
      </Cell>
      <Cell class="num" label="Budget">
        <Was change={change} field="limits" />
        {budgetText(task) || "–"}
      </Cell>
      <td class="row-actions">
        {isEditable ? (
          <>
            <Button kind="quiet" onClick={() => onEdit(true)} aria-label={`Edit ${task.id}`}>
              Edit
            </Button>
            <Button kind="quiet" onClick={onRemove} aria-label={`Remove ${task.id}`}>
              <Glyph name="trash" />
            </Button>
          </>
        ) : null}
      </td>
    </tr>
  );
}

function EditRow({ task, faults, isNew, workers, onChange, onEdit, onRemove, state }: RowProps) {
  const set = (changes: Partial<PlanTask>) => onChange({ ...task, ...changes });
  const [needs, setNeeds] = useState(needsText(task));
  const money = task.limits?.money;
  const first = useRef<HTMLTextAreaElement>(null);
  useEffect(() => first.current?.focus(), []);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) {
      event.stopPropagation();
      event.preventDefault();
      onEdit(false);
    }
  };
  return (
    <tr id={`task-${task.id}`} class="plan-row is-editing" onKeyDown={onKeyDown}>
      <td class="col-state">{state ? <StateIcon state={state.state} /> : null}</td>
      <th scope="row" class="mono">
        {isNew ? (
          <input
            aria-label="Id"
            value={task.id}
            onChange={(event) => set({ id: event.currentTarget.value.trim() })}
          />
        ) : (
          task.id
        )}
        <FaultLine faults={faults} field="id" />
      </th>
      <td class="what">
        <textarea
          ref={first}
          aria-label="What is to be done"
          rows={Math.min(8, Math.max(2, Math.ceil(task.description.length / 60)))}
          value={task.description}
          onInput={(event) => set({ description: event.currentTarget.value })}
        />
        <label class="check small">
          <input
            type="checkbox"
            checked={Boolean(task.optional)}
            onChange={(event) => set({ optional: event.currentTarget.checked })}
          />
          optional
        </label>
        <FaultLine faults={faults} field="description" />
      </td>
      <Cell label="Worker">
        <select
          aria-label="Worker"
          value={task.worker ?? ""}
          onChange={(event) => set({ worker: event.currentTarget.value })}
        >
          {[...new Set([task.worker ?? "", ...workers])].map((worker) => (
            <option key={worker} value={worker}>
              {worker || "choose…"}
            </option>
          ))}
        </select>
        <FaultLine faults={faults} field="worker" />
      </Cell>
      <Cell class="mono" label="Needs">
        <input
          aria-label="Needs, ids with commas between"
          value={needs}
          onInput={(event) => {
            setNeeds(event.currentTarget.value);
            set({ needs: needsFrom(event.currentTarget.value, task.needs) ?? [] });
          }}
        />
        <FaultLine faults={faults} field="needs" />
      </Cell>
      <Cell label="Accept when">
        <textarea
          aria-label="Accept when"
          rows={2}
          value={task.accept ?? ""}
          onInput={(event) => set({ accept: event.currentTarget.value })}
        />
      </Cell>
      <Cell class="num" label="Budget">
        <input
          aria-label="Budget in dollars"
          inputMode="decimal"
          placeholder="$"
          value={money === null || money === undefined ? "" : String(money)}
          onInput={(event) => {
            const { money: _, ...rest } = task.limits ?? {};
            const value = Number(event.currentTarget.value);
            set({ limits: value > 0 ? { ...rest, money: value } : rest });
          }}
        />
      </Cell>
      <td class="row-actions">
        <Button onClick={() => onEdit(false)}>Done</Button>
        <Button kind="quiet" onClick={onRemove} aria-label={`Remove ${task.id}`}>
          <Glyph name="trash" />
        </Button>
      </td>
    </tr>
  );
}

/** The plan as the graph shows it, small. */
function Preview({ plan, model }: { plan: Plan; model: RunModel }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const graph = useRef<Graph | null>(null);
  useEffect(() => {
    if (!canvas.current) return;
    const made = new Graph(canvas.current, {
      onSelect: (id) => {
        if (id)
          document.getElementById(`task-${id}`)?.scrollIntoView({ block: "center", behavior: "smooth" });
      },
    });
    graph.current = made;
    return () => made.destroy();
  }, []);
  useEffect(() => {
    const ids = new Set(plan.tasks.map((task) => task.id));
    const tasks = plan.tasks.map((task): TaskRow => {
      const known = model.tasks.get(task.id);
      const needs = (task.needs ?? []).map(needId).filter((id) => ids.has(id) && id !== task.id);
      if (known) return { ...known, description: task.description, needs };
      return { ...waitingRow(task, needs), state: model.isOver ? "cancelled" : "waiting" };
    });
    // A circle has no columns; the table below says which tasks it is made of.
    if (!checkPlan(plan, []).some((fault) => fault.message.startsWith("tasks need each other"))) {
      graph.current?.setData({
        tasks,
        criticalPath: model.criticalPath,
        estimates: model.estimates,
        items: model.items,
      });
      const shown = graph.current;
      void shown?.ready.then(() => shown.fit());
    }
  }, [plan, model.seq]);
  useEffect(() => graph.current?.setTheme(), [shownTheme.value]);
  return (
    <div class="canvas-box preview">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label="The plan as a graph. The table below shows the same."
      />
    </div>
  );
}

function Conflict({
  mine,
  theirs,
  onMine,
  onTheirs,
}: {
  mine: Plan;
  theirs: PlanState;
  onMine: () => void;
  onTheirs: () => void;
}) {
  const changes = diffPlans(theirs.plan, mine).filter((change) => change.how !== "same");
  return (
    <Dialog title="The plan was changed meanwhile" onClose={onTheirs} wide>
      <p>
        Version {theirs.version} was saved while you edited. Your plan differs from it in{" "}
        {plural(changes.length, "task")}:
      </p>
      <ul class="conflict">
        {changes.map((change) => (
          <li key={change.id}>
            <strong class="mono">{change.id}</strong>{" "}
            {change.how === "added"
              ? "is only in yours"
              : change.how === "removed"
                ? "is only in theirs"
                : null}
            {change.fields.map((field) => (
              <p key={field.field}>
                {field.field}: <del>{oneLine(field.before, 140) || "nothing"}</del>{" "}
                <ins>{oneLine(field.after, 140) || "nothing"}</ins>
              </p>
            ))}
          </li>
        ))}
      </ul>
      <footer class="dialog-foot">
        <Button onClick={onTheirs}>Take theirs</Button>
        <Button kind="primary" onClick={onMine}>
          Save mine as the next version
        </Button>
      </footer>
    </Dialog>
  );
}

function AskForChanges({
  isChange,
  onClose,
  send,
}: {
  isChange: boolean;
  onClose: () => void;
  send: (note: string) => void;
}) {
  const [note, setNote] = useState("");
  return (
    <Dialog title="Ask for changes" onClose={onClose}>
      <Field
        label="What should be different?"
        hint={
          isChange
            ? "The planner writes the change again with this note, and you approve it then."
            : "The planner writes the plan again with this note. Nothing runs before you approve it."
        }
      >
        {(id, hint) => (
          <textarea
            id={id}
            rows={4}
            aria-describedby={hint}
            value={note}
            onInput={(event) => setNote(event.currentTarget.value)}
          />
        )}
      </Field>
      <footer class="dialog-foot">
        <Button onClick={onClose}>Back</Button>
        <Button kind="primary" disabled={!note.trim()} onClick={() => send(note.trim())}>
          Ask
        </Button>
      </footer>
    </Dialog>
  );
}

function usePlan(model: RunModel) {
  const { run, planVersion } = model;
  const asked = model.openQuestions.map((question) => question.id).join();
  return useFetched<PlanState>(`${run.id}/${planVersion}/${run.state}/${run.tasks.total}/${asked}`, () =>
    get<PlanState>(runPath(run.id, "plan")),
  );
}

/** The plan as it stood just after an event. */
async function planAt(run: string, seq: number): Promise<Plan | null> {
  const model = new RunModel(run);
  for (let after = 0; after < seq; ) {
    const page = await get<{ events: RunEvent[]; next: number | null }>(
      runPath(run, `log?after=${after}&limit=2000`),
    );
    for (const event of page.events) if (event.seq <= seq) model.apply(event);
    if (page.next === null || !page.events.length) break;
    after = page.next;
  }
  return model.plan;
}

/** The plan that this one is compared with: the version before it. */
function usePrevious(run: string, state: PlanState | null, isOn: boolean): Plan | null {
  const [before] = state?.versions.slice(-2, -1) ?? [];
  const newest = state?.versions.at(-1);
  // Tasks of a plan that is streamed come after the event that opened it: look just before the next version.
  const seq = before && newest ? newest.seq - 1 : 0;
  const fetched = useFetched<Plan | null>(isOn && seq > 0 ? `${run}/${seq}` : null, () => planAt(run, seq));
  return fetched.value;
}

export function PlanPage({ model }: { model: RunModel }) {
  const { query } = route.value;
  const { run } = model;
  const replaying = query.at !== undefined;
  const state = usePlan(model);
  const [draft, setDraft] = useState<Plan | null>(() => storedDraft(run.id)?.plan ?? null);
  const [editing, setEditing] = useState<string | null>(null);
  const [shownRows, setShownRows] = useState(CHUNK);
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const [conflict, setConflict] = useState<PlanState | null>(null);
  const [checked, setChecked] = useState<Checked | null>(null);
  const crew = useFetched<{ workers: { name: string }[] }>("crew", () =>
    get<{ workers: { name: string }[] }>("crew"),
  );
  const workers = useMemo(
    () => (run.workers?.length ? run.workers : (crew.value?.workers.map((worker) => worker.name) ?? [])),
    [crew.value, run.workers],
  );

  const review = state.value?.review ?? null;
  const isChange = review?.is_change ?? false;
  const refused = (model.isOver && !replaying && state.value?.refused) || null;
  const saved = replaying
    ? model.plan
    : (proposedPlan(state.value?.plan ?? null, review) ?? model.plan ?? refused?.plan ?? null);
  const plan = replaying ? saved : (draft ?? saved);
  const isDirty = draft !== null && saved !== null && JSON.stringify(draft) !== JSON.stringify(saved);
  const hasVersions = (state.value?.versions.length ?? 0) > 1;
  const isDiffShown = query.diff !== undefined ? query.diff === "1" : hasVersions || isChange;
  const previous = usePrevious(run.id, state.value, isDiffShown && !isDirty && !isChange);
  const against = isDirty ? saved : isChange ? (state.value?.plan ?? null) : previous;
  const changes = useMemo(
    () =>
      plan && against && isDiffShown
        ? new Map(diffPlans(against, plan).map((each) => [each.id, each]))
        : null,
    [plan, against, isDiffShown],
  );
  const faults = useMemo(
    () => (plan ? allFaults(checkPlan(plan, workers, run.limits), checked) : []),
    [plan, workers, checked],
  );
  const isBad = faults.some((fault) => !fault.isWarning);
  const isRejected = review !== null && sent.value[review.question] !== undefined;
  const question = replaying || !review || isRejected ? undefined : review.question;
  const asked = question === undefined ? undefined : model.questions.get(question);
  const rejection = pending.value.find((each) => each.question.id === question);
  const isRejecting = rejection !== undefined && !rejection.error;
  const totals = useMemo(() => (plan ? planTotals(plan) : null), [plan]);
  const canDecide = canOperate.value && !replaying && !model.isOver;
  // A change that waits for approval is taken as it is, or written again.
  const canEdit = canDecide && !isChange;
  const editable = new Set(state.value?.editable ?? []);
  const isEditable = (id: string): boolean => {
    const row = model.tasks.get(id);
    return canEdit && (editable.has(id) || !row);
  };

  useEffect(() => {
    if (!draft) return;
    keep(draftKey(run.id), JSON.stringify({ version: state.value?.version ?? 0, plan: draft }));
    const timer = setTimeout(() => {
      post<Checked>("plan/check", { plan: draft }).then(setChecked, () => setChecked(null));
    }, 350);
    return () => clearTimeout(timer);
  }, [draft]);

  const edit = (tasks: PlanTask[]) => plan && setDraft({ ...plan, tasks });
  const discard = () => {
    setDraft(null);
    setChecked(null);
    setEditing(null);
    keep(draftKey(run.id), null);
  };
  const settled = async () => {
    discard();
    state.reload();
    refreshSoon(150);
    await refreshAttention();
    await refreshQuestions();
  };
  const showRefusal = (fault: unknown) => {
    if (!(fault instanceof ApiError)) throw fault;
    const current = fault.body.current as PlanState | undefined;
    if (fault.status === 409 && current) setConflict(current);
    else if (fault.faults.length) setChecked({ faults: fault.faults, warnings: [] });
    else setError(fault);
  };
  const saveDraft = async (etag = state.value?.etag ?? "*") => {
    if (!plan) return;
    try {
      await put<PlanState>(runPath(run.id, "plan"), { plan }, { "If-Match": `"${etag}"` });
      announcement.value = "The plan was saved.";
      await settled();
    } catch (fault) {
      showRefusal(fault);
    }
  };
  const decide = async (what: "approve" | "reject", note = "") => {
    const version = state.value?.etag;
    if (question !== undefined && rejection) undo(question);
    try {
      await post(runPath(run.id, `plan/${what}`), {
        ...(version ? { version } : {}),
        ...(what === "approve" && isDirty ? { plan } : {}),
        ...(note ? { note } : {}),
      });
      setAsking(false);
      await settled();
      if (what === "approve") go("run", run.id);
    } catch (fault) {
      showRefusal(fault);
    }
  };
  /** Rejecting cannot be repaired afterwards, so it can be taken back for as long as any answer. */
  const reject = () => {
    const version = state.value?.etag;
    const body = version ? { version } : {};
    if (asked) answerSoon(asked, "reject", { path: runPath(run.id, "plan/reject"), body });
  };
  useEffect(() => {
    if (isRejected) void settled();
  }, [isRejected]);
  useKeys({
    "Ctrl+Enter": () => {
      if (isRejecting) return;
      if (question && !isBad) void decide("approve");
      else if (isDirty && !isBad) void saveDraft();
    },
    Escape: () => setEditing(null),
  });

  if (!plan) {
    if (state.error && state.error.status !== 404)
      return <ErrorBox error={state.error} retry={state.reload} />;
    if (!state.value && !state.error) return <Loading what="the plan" />;
    return (
      <Empty title={model.isOver ? "This run had no plan" : "There is no plan yet"}>
        <p>
          {model.isOver
            ? oneLine(run.reason, 300)
            : "It appears here as it is written, and can be edited then."}
        </p>
      </Empty>
    );
  }
  const rows = plan.tasks.slice(0, shownRows);
  const removed = [...(changes?.values() ?? [])].filter((change) => change.how === "removed");
  const versions = state.value?.versions ?? [];
  const estimate = checked?.totals?.estimate ?? estimateOf(model, plan);
  const general = faults.filter((fault) => !fault.task);
  return (
    <div class="plan-page">
      <section class="pane plan-top">
        <header class="pane-head">
          <h2>Plan{model.planVersion ? ` v${model.planVersion}` : ""}</h2>
          {totals ? (
            <span class="hint">
              {plural(totals.tasks, "task")} · {totals.depth} deep · {totals.width} wide
              {estimate ? ` · about ${duration(estimate)}` : ""}
            </span>
          ) : null}
          <span class="spacer" />
          {versions.length > 1 || isDirty ? (
            <Button
              kind="quiet"
              aria-pressed={isDiffShown}
              onClick={() => setQuery({ diff: isDiffShown ? "0" : "1" })}
            >
              Show changes
            </Button>
          ) : null}
          {versions.length ? (
            <details class="versions">
              <summary>{plural(versions.length, "version")}</summary>
              <ol>
                {versions.toReversed().map((each) => (
                  <li key={each.version}>
                    <strong>v{each.version}</strong> {ago(each.at, now.value)} {oneLine(each.reason, 120)}
                  </li>
                ))}
              </ol>
            </details>
          ) : null}
        </header>
        <p class="goal">{oneLine(plan.goal, 300)}</p>
        <Preview plan={plan} model={model} />
      </section>
      {refused ? <p class="note">{refusedWords(model.questions.get(refused.question))}</p> : null}
      {review?.reason ? <p class="note">{oneLine(review.reason, 400)}</p> : null}
      {general.map((fault) => (
        <p key={fault.message} class={fault.isWarning ? "warning" : "fault"}>
          {fault.message}
        </p>
      ))}
      <table class="list stacks plan-table">
        <caption class="visually-hidden">Tasks of the plan</caption>
        <thead>
          <tr>
            <th scope="col">
              <span class="visually-hidden">State</span>
            </th>
            <th scope="col">Task</th>
            <th scope="col">What</th>
            <th scope="col">Worker</th>
            <th scope="col">Needs</th>
            <th scope="col">Accept when</th>
            <th scope="col" class="num">
              Budget
            </th>
            <th scope="col">
              <span class="visually-hidden">Change</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((task, index) => {
            const Row = editing === task.id ? EditRow : ReadRow;
            return (
              <Row
                key={index}
                task={task}
                state={model.tasks.get(task.id)}
                change={changes?.get(task.id)}
                faults={faults.filter((fault) => fault.task === task.id)}
                isEditable={isEditable(task.id)}
                isEditing={editing === task.id}
                isNew={!saved?.tasks.some((each) => each.id === task.id)}
                workers={workers}
                onEdit={(on) => setEditing(on ? task.id : null)}
                onChange={(next) => {
                  edit(plan.tasks.map((each, at) => (at === index ? next : each)));
                  if (next.id !== task.id) setEditing(next.id);
                }}
                onRemove={() => edit(plan.tasks.filter((_, at) => at !== index))}
              />
            );
          })}
          {removed.map((change) => (
            <tr key={change.id} class="plan-row is-removed">
              <td class="col-state">
                <span class="diff-mark removed">removed</span>
              </td>
              <th scope="row" class="mono">
                {change.id}
              </th>
              <td colSpan={6} class="what">
                {oneLine(against?.tasks.find((task) => task.id === change.id)?.description, 240)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {plan.tasks.length > shownRows ? (
        <Button class="more" onClick={() => setShownRows(shownRows + 5 * CHUNK)}>
          Show more of {plan.tasks.length}
        </Button>
      ) : null}
      {canEdit ? (
        <Button
          class="more"
          onClick={() => {
            const task = newTask(plan);
            edit([...plan.tasks, task]);
            setShownRows(plan.tasks.length + 1);
            setEditing(task.id);
          }}
        >
          <Glyph name="plus" /> Add a task
        </Button>
      ) : null}
      {error ? <ErrorBox error={error} retry={() => setError(null)} /> : null}
      {canDecide && question && isRejecting ? (
        <footer class="plan-foot">
          <strong class="what">{isChange ? "The change" : "The plan"} is rejected in a few seconds</strong>
          <span class="spacer" />
          <Button onClick={() => undo(question)}>Undo</Button>
        </footer>
      ) : canDecide && (question || isDirty) ? (
        <footer class={`plan-foot ${question ? "is-needs" : ""}`}>
          <span class="what">
            {question ? (
              <>
                <StateIcon state="needs" />
                <strong>
                  {isChange
                    ? `The plan was changed: ${plural(changesCount(changes), "task")} to look at`
                    : "The plan waits for your approval"}
                </strong>
              </>
            ) : (
              <strong>You have changed the plan</strong>
            )}
            <span class="hint">
              {isBad
                ? "mend the marked faults first"
                : isDirty
                  ? "not saved yet; the draft stays in this browser"
                  : isChange
                    ? "what was approved before goes on meanwhile"
                    : "nothing runs before that"}
            </span>
          </span>
          <span class="spacer" />
          {isDirty ? <Button onClick={discard}>Discard</Button> : null}
          {question ? (
            <Button disabled={!asked} onClick={reject}>
              Reject
            </Button>
          ) : null}
          {isDirty ? (
            <Button kind={question ? "plain" : "primary"} disabled={isBad} onClick={() => void saveDraft()}>
              {question ? "Save draft" : "Save as a new version"}
            </Button>
          ) : null}
          {question ? <Button onClick={() => setAsking(true)}>Ask for changes…</Button> : null}
          {question ? (
            <Button kind="needs" disabled={isBad} onClick={() => void decide("approve")} hotkey="Ctrl Enter">
              {isChange ? "Approve the change" : "Approve and run"}
            </Button>
          ) : null}
        </footer>
      ) : null}
      {asking ? (
        <AskForChanges
          isChange={isChange}
          onClose={() => setAsking(false)}
          send={(note) => void decide("reject", note)}
        />
      ) : null}
      {conflict && plan ? (
        <Conflict
          mine={plan}
          theirs={conflict}
          onTheirs={() => {
            setConflict(null);
            discard();
            state.reload();
          }}
          onMine={() => {
            setConflict(null);
            void saveDraft(conflict.etag);
          }}
        />
      ) : null}
    </div>
  );
}

/** Why a plan that was proposed was not carried out. */
function refusedWords(question: Question | undefined): string {
  const by = question?.answered?.text === "reject" ? clean(question.answered.by) : "";
  return by
    ? `${by} rejected this plan. Nothing of it was done.`
    : "This plan was not approved before the run ended. Nothing of it was done.";
}

function changesCount(changes: Map<string, TaskChange> | null): number {
  return [...(changes?.values() ?? [])].filter((change) => change.how !== "same").length;
}

/** The faults found here, then what only the server knows. */
function allFaults(found: PlanFault[], checked: Checked | null): PlanFault[] {
  const known = new Set(found.map((fault) => `${fault.task}/${fault.field}`));
  return [...found, ...serverFaults(checked).filter((fault) => !known.has(`${fault.task}/${fault.field}`))];
}

function serverFaults(checked: Checked | null): PlanFault[] {
  if (!checked) return [];
  const fields = ["id", "description", "worker", "needs", "accept", "budget"];
  const made = (fault: Fault | string, isWarning: boolean): PlanFault => {
    const given = typeof fault === "string" ? { task: "", field: "", message: fault } : fault;
    const field = (
      fields.includes(given.field) ? given.field : given.task ? "description" : "plan"
    ) as PlanFault["field"];
    return { task: given.task ?? "", field, message: given.message, isWarning };
  };
  return [
    ...(checked.faults ?? []).map((fault) => made(fault, false)),
    ...(checked.warnings ?? []).map((fault) => made(fault, true)),
  ];
}

/** Seconds of the longest chain by the estimates that the server sent; null: of some task of it, none is known. */
function estimateOf(model: RunModel, plan: Plan): number | null {
  const open = plan.tasks.filter((task) => !FINAL.has(model.tasks.get(task.id)?.state ?? "waiting"));
  const ids = new Set(open.map((task) => task.id));
  const seconds = model.criticalPath.filter((id) => ids.has(id)).map((id) => model.estimates[id]);
  const sum = seconds.reduce<number>((total, each) => total + (each ?? Number.NaN), 0);
  return sum || null;
}
