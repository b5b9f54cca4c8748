// What the run delivers: the answer, what each part of it rests on, and what is missing.

import { get, runPath } from "../api";
import { asText, clean, oneLine, plural } from "../format";
import { Glyph, RunStateLabel, StateIcon } from "../icons";
import { plainWords } from "../markdown";
import { href } from "../router";
import { lackingIn, type RunModel } from "../store";
import type { Usage } from "../types";
import { CopyButton, Empty, ErrorBox, Loading, Markdown, Raw, useFetched } from "../ui";
import { FailureCauses } from "./run_shell";

interface Claim {
  text: string;
  tasks: string[];
}

interface ResultView {
  status: string;
  answer: string;
  answer_json: unknown;
  claims: Claim[];
  contradictions: { first: Claim; second: Claim }[];
  gaps: { task: string; state: string; why: string }[];
  confidence: number;
  composed_by: string;
  sources: Record<string, { worker: string; description: string }>;
  usage: Usage;
  taint: string[];
}

function TaskChips({ tasks, run }: { tasks: string[]; run: string }) {
  return (
    <>
      {tasks.map((task) => (
        <a key={task} class="cite" href={href("run", run, { task })}>
          {task}
        </a>
      ))}
    </>
  );
}

function downloadUrl(text: string): string {
  return `data:text/markdown;charset=utf-8,${encodeURIComponent(text)}`;
}

/** Whether a statement is all that the answer says. */
function isWhole(claim: string, answer: string): boolean {
  const words = (text: string): string => text.replace(/\s+/g, " ").trim();
  return answer.length > 200 && words(claim) === words(answer);
}

function Provenance({ result, run }: { result: ResultView; run: string }) {
  const { claims, sources } = result;
  if (!claims.length) return null;
  return (
    <section class="pane">
      <header class="pane-head">
        <h2>What it rests on</h2>
        <span class="hint">{plural(claims.length, "statement")}, each with the tasks behind it</span>
      </header>
      <ul class="claims">
        {claims.map((claim) => (
          <li key={claim.text + claim.tasks.join()}>
            <p>
              {isWhole(claim.text, result.answer) ? "The whole answer" : oneLine(plainWords(claim.text), 600)}{" "}
              <TaskChips tasks={claim.tasks} run={run} />
            </p>
            {claim.tasks.map((task) =>
              sources[task] ? (
                <p key={task} class="hint">
                  <span class="mono">{task}</span> {sources[task].worker}:{" "}
                  {oneLine(sources[task].description, 160)}
                </p>
              ) : null,
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

export function OutputPage({ model }: { model: RunModel }) {
  const { run } = model;
  const result = useFetched<ResultView>(`${run.id}/${run.state}/${run.ended_at}`, () =>
    get<ResultView>(runPath(run.id, "result")),
  );
  const tasks = new Set(model.tasks.keys());
  if (!model.isOver) {
    return model.answer ? (
      <article class="pane output">
        <header class="pane-head">
          <h2>The answer, as it is written</h2>
        </header>
        <Markdown text={model.answer} run={run.id} tasks={tasks} />
      </article>
    ) : (
      <Empty title="There is no output yet">
        <p>The answer appears here word by word, when the tasks it needs are done.</p>
      </Empty>
    );
  }
  if (!result.value)
    return result.error ? (
      <ErrorBox error={result.error} retry={result.reload} />
    ) : (
      <Loading what="the output" />
    );
  const { answer, answer_json, gaps, contradictions, confidence, composed_by, taint } = result.value;
  const isText = typeof answer_json === "string" || answer_json === null || answer_json === undefined;
  return (
    <div class="output-page">
      {answer ? null : <FailureCauses model={model} />}
      {answer ? (
        <article class="pane output">
          <header class="pane-head">
            <h2>Output</h2>
            <RunStateLabel state={run.state} />
            <span class="hint" title="How complete it is, and how sure where a model says so">
              confidence {Math.round(confidence * 100)} % · composed by {clean(composed_by)}
            </span>
            <span class="spacer" />
            <CopyButton text={answer} />
            <a class="button quiet" download={`${run.id}.md`} href={downloadUrl(answer)}>
              <Glyph name="download" /> Download
            </a>
          </header>
          {isText ? (
            <Markdown text={answer} run={run.id} tasks={tasks} />
          ) : (
            <Raw text={asText(answer_json)} label="Answer" />
          )}
        </article>
      ) : (
        <Empty title="This run has no answer">
          <p>{oneLine(run.reason, 300)}</p>
        </Empty>
      )}
      {answer ? <FailureCauses model={model} /> : null}
      {gaps.length && !lackingIn(model).length ? (
        <section class="pane">
          <header class="pane-head">
            <h2>
              <StateIcon state="skipped" /> Missing
            </h2>
          </header>
          <ul class="claims">
            {gaps.map((gap) => (
              <li key={gap.task}>
                <TaskChips tasks={[gap.task]} run={run.id} /> <span class="tag">{gap.state}</span>{" "}
                {oneLine(gap.why, 300)}
              </li>
            ))}
          </ul>
        </section>
      ) : null}
      {contradictions.length ? (
        <section class="pane">
          <header class="pane-head">
            <h2>Results that contradict each other</h2>
          </header>
          <ul class="claims">
            {contradictions.map((pair) => (
              <li key={pair.first.text + pair.second.text}>
                <p>
                  {clean(pair.first.text)} <TaskChips tasks={pair.first.tasks} run={run.id} />
                </p>
                <p>
                  {clean(pair.second.text)} <TaskChips tasks={pair.second.tasks} run={run.id} />
                </p>
              </li>
            ))}
          </ul>
        </section>
      ) : null}
      <Provenance result={result.value} run={run.id} />
      {taint.length ? (
        <p class="hint">
          Derived from sources that nobody vouches for: {taint.map(clean).join(", ")}. Check what matters
          before you act on it.
        </p>
      ) : null}
    </div>
  );
}
