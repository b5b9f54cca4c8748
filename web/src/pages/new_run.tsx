// Submit a request, with its budget; shows the command that would do the same.

import { useMemo, useState } from "preact/hooks";
import { ApiError, get, post } from "../api";
import { clean, plural } from "../format";
import { useKeys } from "../keys";
import { go, href, route } from "../router";
import { canSubmit, keep, recall } from "../session";
import { amountFaults, type Crew, commandFor, type Draft, NOTHING } from "../submit_command";
import { Button, Command, ErrorBox, Field, useFetched } from "../ui";

function stored(): Draft {
  try {
    return { ...NOTHING, ...(JSON.parse(recall("draft.new-run") ?? "{}") as Partial<Draft>) };
  } catch {
    return NOTHING;
  }
}

/** The workers that are chosen; null: all of the crew, whoever that is when the run begins. */
export function chosenWorkers(draft: Pick<Draft, "without">, crew: readonly string[]): string[] | null {
  const chosen = crew.filter((name) => !draft.without.includes(name));
  return chosen.length === crew.length ? null : chosen;
}

export function NewRunPage() {
  const { query } = route.value;
  const [draft, setDraft] = useState<Draft>(() => ({
    ...stored(),
    ...(query.request ? { request: query.request } : {}),
  }));
  const [fault, setFault] = useState<ApiError | null>(null);
  const [isSending, setSending] = useState(false);
  const key = useMemo(() => crypto.randomUUID?.() ?? `web-${Date.now()}`, []);
  const crew = useFetched<Crew>("crew", () => get<Crew>("crew"));
  const change = (changes: Partial<Draft>) => {
    const next = { ...draft, ...changes };
    setDraft(next);
    keep("draft.new-run", JSON.stringify(next));
  };
  const faults = amountFaults(draft);
  const all = crew.value?.workers ?? [];
  const names = all.map((worker) => worker.name);
  const workers = chosenWorkers(draft, names);
  const isNobody = workers?.length === 0;
  const isSound = !Object.values(faults).some(Boolean) && !isNobody;
  const isReady = draft.request.trim() !== "" && isSound && canSubmit.value;
  const submit = async () => {
    if (!isReady || isSending) return;
    setSending(true);
    const limits: Record<string, number> = {};
    if (draft.money) limits.money = Number(draft.money);
    if (draft.tokens) limits.tokens = Number(draft.tokens);
    if (draft.minutes) limits.time = Number(draft.minutes) * 60;
    try {
      const { id } = await post<{ id: string }>(
        "runs",
        {
          request: draft.request.trim(),
          key,
          ...(Object.keys(limits).length ? { limits } : {}),
          ...(draft.review ? { review_plan: true } : {}),
          ...(workers ? { workers } : {}),
          ...(draft.priority ? { priority: Number(draft.priority) } : {}),
          ...(query.after ? { after: query.after } : {}),
        },
        { "Idempotency-Key": key },
      );
      keep("draft.new-run", null);
      go("run", id);
    } catch (error) {
      setSending(false);
      if (error instanceof ApiError) setFault(error);
    }
  };
  useKeys({ "Ctrl+Enter": () => void submit() });
  const files = crew.value?.files;
  return (
    <div class="form-page">
      <h1>{query.after ? "Follow up" : "New run"}</h1>
      {query.after ? (
        <p class="note">
          The new run knows the request, the answer and the results of{" "}
          <a class="mono underlined" href={href("run", query.after)}>
            {clean(query.after)}
          </a>
          .
        </p>
      ) : null}
      {canSubmit.value ? null : <p class="note">This page is read only: the token may not submit runs.</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Field label="Request" hint="In plain language: what you want to know or have done.">
          {(id, hint) => (
            <textarea
              id={id}
              aria-describedby={hint}
              rows={5}
              required
              value={draft.request}
              onInput={(event) => change({ request: event.currentTarget.value })}
            />
          )}
        </Field>
        <label class="check">
          <input
            type="checkbox"
            checked={draft.review}
            onChange={(event) => change({ review: event.currentTarget.checked })}
          />
          Review the plan first
          <span class="hint">The work begins when you have approved the plan.</span>
        </label>
        <fieldset class="columns">
          <legend>Budget</legend>
          <Field label="Dollars, at most" hint="By the price list of the models." error={faults.money}>
            {(id, hint) => (
              <input
                id={id}
                aria-describedby={hint}
                inputMode="decimal"
                value={draft.money}
                onInput={(event) => change({ money: event.currentTarget.value.trim() })}
              />
            )}
          </Field>
          <Field label="Tokens, at most" hint="Sent and received, of all calls." error={faults.tokens}>
            {(id, hint) => (
              <input
                id={id}
                aria-describedby={hint}
                inputMode="numeric"
                value={draft.tokens}
                onInput={(event) => change({ tokens: event.currentTarget.value.trim() })}
              />
            )}
          </Field>
          <Field
            label="Minutes, at most"
            hint="Then the answer is made from what there is."
            error={faults.minutes}
          >
            {(id, hint) => (
              <input
                id={id}
                aria-describedby={hint}
                inputMode="decimal"
                value={draft.minutes}
                onInput={(event) => change({ minutes: event.currentTarget.value.trim() })}
              />
            )}
          </Field>
        </fieldset>
        <fieldset>
          <legend>Workers</legend>
          {crew.error ? <ErrorBox error={crew.error} retry={crew.reload} /> : null}
          <ul class="crew">
            {all.map((worker) => (
              <li key={worker.name}>
                <label class="check">
                  <input
                    type="checkbox"
                    checked={!draft.without.includes(worker.name)}
                    onChange={(event) =>
                      change({
                        without: event.currentTarget.checked
                          ? draft.without.filter((name) => name !== worker.name)
                          : [...draft.without, worker.name],
                      })
                    }
                  />
                  <strong>{worker.name}</strong> <span class="hint">{clean(worker.does)}</span>
                </label>
                <span class="tags">
                  {worker.model ? <span class="tag mono">{worker.model}</span> : null}
                  {worker.tools?.length ? (
                    <span class="tag">{plural(worker.tools.length, "tool")}</span>
                  ) : null}
                </span>
              </li>
            ))}
          </ul>
          <p class={isNobody ? "fault" : "hint"}>
            {isNobody
              ? "Choose at least one worker."
              : workers
                ? `The plan may name ${workers.length} of ${names.length} workers.`
                : "The plan may name all of them."}
          </p>
        </fieldset>
        {files?.length ? (
          <p class="hint">
            Files that the crew may read: <code>{Array.isArray(files) ? files.join(", ") : files}</code>. They
            are chosen with <code>chargehand serve --files</code>.
          </p>
        ) : null}
        {fault ? <ErrorBox error={fault} /> : null}
        <div class="form-foot">
          <Button kind="primary" type="submit" disabled={!isReady || isSending} hotkey="Ctrl Enter">
            {isSending ? "Submitting…" : draft.review ? "Plan it" : "Run it"}
          </Button>
        </div>
      </form>
      <section>
        <h2 class="quiet-title">The same from a terminal</h2>
        {isSound ? (
          <Command text={commandFor(draft, workers, crew.value ?? {}, query.after)} />
        ) : (
          <p class="hint">The command appears here once the marked fields are mended.</p>
        )}
      </section>
    </div>
  );
}
