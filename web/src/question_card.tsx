// One question: what is asked and why, what waits behind it, and the ways to answer.

import { useEffect, useId, useState } from "preact/hooks";
import { answerSoon, draftOf, keepDraft, pending, sent, taken, undo } from "./answers";
import { amountFault, budgetOf, budgetWords, shortageWords, unitOf } from "./budget_question";
import { ago, asText, clean, clock, duration, oneLine, plural } from "./format";
import { StateIcon } from "./icons";
import { useKeys } from "./keys";
import { useModel } from "./live";
import { plainWords } from "./markdown";
import { isSystem } from "./names";
import { href, route } from "./router";
import { canOperate, now } from "./session";
import type { Question, QuestionKind } from "./types";
import { Button, Markdown, Raw } from "./ui";

export const KIND_WORDS: Record<QuestionKind, string> = {
  question: "Question",
  approval: "Tool approval",
  review: "Decision",
  budget: "Budget",
  plan: "Plan review",
};

/** What is asked, on one line. */
export function questionWords(question: Question, most: number): string {
  const budget = budgetOf(question);
  if (budget) return oneLine(`${budgetWords(budget)} May it go on?`, most);
  if (question.kind !== "plan") return oneLine(plainWords(question.text), most);
  const what = isPlanChange(question) ? "A change of the plan" : "The plan";
  return question.answered || question.is_closed
    ? `${what} was submitted for approval`
    : `${what} waits for approval`;
}

/** What a person has answered, in words: plans and arguments that were changed are not repeated. */
export function answerWords(question: Pick<Question, "kind">, text: string): string {
  if (question.kind === "plan" || question.kind === "approval") {
    if (text === "approve") return "approved";
    if (text === "reject") return "rejected";
    if (text.startsWith("approve with")) return "approved with changes";
    if (question.kind === "plan") return `asked for changes: “${oneLine(text, 120)}”`;
  }
  return `“${oneLine(text, 120)}”`;
}

/** Whether a plan was approved before, and only a change of it is asked about. The evidence may be cut short. */
function isPlanChange(question: Question): boolean {
  return question.text.startsWith("May this change of the plan");
}

/** Whether the supervisor recommends an answer. Of a worker's question or a budget, the default only counts if nobody answers. */
export function hasPick(question: Question): boolean {
  const isPlain = question.kind === "question" || question.kind === "approval" || question.kind === "budget";
  return !isPlain && question.default !== null && question.default !== undefined;
}

/** Whether the keys 1–9 stand for choices: not where a choice is a number itself, for `1` would mean two of them. */
export function isNumbered(choices: readonly string[]): boolean {
  return !choices.some((choice) => /^[^\p{L}\p{N}_]*\p{Nd}/u.test(choice));
}

const CHOICE_WORDS: Record<string, string> = { approve: "Approve", reject: "Reject and revise" };
const BUDGET_CHOICES: Record<string, string> = { stop: "Stop, and answer with what there is" };

function choiceWords(question: Question, choice: string): string {
  return (question.kind === "budget" ? BUDGET_CHOICES : CHOICE_WORDS)[choice] ?? clean(choice);
}

function Deadline({ question }: { question: Question }) {
  const hasDefault = question.default !== null && question.default !== undefined;
  const isStop = question.kind === "budget" && question.default === "stop";
  const then = isStop
    ? "the run stops and answers with what there is"
    : hasDefault
      ? `“${oneLine(question.default, 60)}” is the answer`
      : "the task fails";
  if (!question.deadline_at && isStop)
    return (
      <>the run waits, and nothing new starts. Once it cannot wait longer, {then.replace("the run", "it")}</>
    );
  if (!question.deadline_at)
    return hasDefault ? <>{then}, once the run cannot wait longer</> : <>waits as long as the run may</>;
  const left = (Date.parse(question.deadline_at) - now.value) / 1000;
  return left > 0 ? (
    <>
      in {duration(left)}, {then}
    </>
  ) : (
    <>now: {then}</>
  );
}

function Evidence({ question }: { question: Question }) {
  const { evidence } = question;
  const text = asText((evidence as { preview?: string } | null)?.preview ?? evidence);
  if (!text || text === "{}" || text === "null" || question.kind === "approval" || question.kind === "plan")
    return null;
  if (budgetOf(question)) return null;
  return (
    <details class="evidence" open={text.length < 1200}>
      <summary>What it rests on</summary>
      {typeof evidence === "string" ? <Markdown text={text} /> : <Raw text={text} label="Evidence" />}
    </details>
  );
}

/** The new budget: an amount that would do stands in the field already. */
function NewBudget({ question, onSend }: { question: Question; onSend: (text: string) => void }) {
  const budget = budgetOf(question);
  const start = budget ? String(budget.enough) : "";
  const [text, setText] = useState(draftOf(question.id) || start);
  const id = useId();
  const fault = budget && text.trim() ? amountFault(budget, text) : "";
  const change = (value: string) => {
    setText(value);
    keepDraft(question.id, value === start ? "" : value);
  };
  return (
    <form
      class="told"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() && !fault) onSend(`${question.telling}: ${Number(text)}`);
      }}
    >
      <label for={id}>Raise to, in {budget ? unitOf(budget.limit) : "all"}</label>
      <div class="row">
        <input
          id={id}
          inputMode="decimal"
          autocomplete="off"
          aria-describedby={`${id}-fault`}
          value={text}
          onInput={(event) => change(event.currentTarget.value)}
        />
        <Button kind="needs" type="submit" disabled={!text.trim() || Boolean(fault)}>
          Raise and go on
        </Button>
      </div>
      <p id={`${id}-fault`} class="fault" aria-live="polite">
        {fault}
      </p>
    </form>
  );
}

/** A field for the JSON that a choice may carry, such as changed arguments or a new budget. */
function Told({ question, onSend }: { question: Question; onSend: (text: string) => void }) {
  const telling = question.telling ?? "";
  const start = question.kind === "approval" ? JSON.stringify(question.arguments ?? {}, null, 2) : "";
  const [text, setText] = useState(draftOf(question.id) || start);
  const id = useId();
  let fault = "";
  if (text.trim()) {
    try {
      const value: unknown = JSON.parse(text);
      if (
        question.kind === "approval" &&
        (typeof value !== "object" || value === null || Array.isArray(value))
      )
        fault = "arguments go by their names: {…}";
    } catch {
      fault = "this is no JSON";
    }
  }
  const change = (value: string) => {
    setText(value);
    keepDraft(question.id, value === start ? "" : value);
  };
  const send = () => {
    if (text.trim() && !fault) onSend(`${telling}: ${JSON.stringify(JSON.parse(text))}`);
  };
  const label = question.kind === "approval" ? "Arguments" : `${telling}: result as JSON`;
  return (
    <div class="told">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="mono"
        rows={Math.min(12, Math.max(3, text.split("\n").length))}
        value={text}
        onInput={(event) => change(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
        }}
      />
      <p class="fault" aria-live="polite">
        {fault}
      </p>
      <Button disabled={!text.trim() || Boolean(fault)} onClick={send}>
        {question.kind === "approval" ? "Edit and approve" : "Send with result"}
      </Button>
    </div>
  );
}

function FreeText({ question, onSend }: { question: Question; onSend: (text: string) => void }) {
  const [text, setText] = useState(draftOf(question.id));
  const id = useId();
  useEffect(() => keepDraft(question.id, text), [text, question.id]);
  const send = () => {
    if (text.trim()) onSend(text.trim());
  };
  return (
    <div class="told">
      <label for={id}>Your answer</label>
      <textarea
        id={id}
        rows={3}
        value={text}
        placeholder={question.default ? `Without an answer: ${question.default}` : ""}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
        }}
      />
      <Button kind="needs" disabled={!text.trim()} onClick={send} hotkey="Ctrl Enter">
        Answer
      </Button>
    </div>
  );
}

function Ways({ question }: { question: Question }) {
  const send = (text: string) => answerSoon(question, text);
  const numbered = question.choices;
  // Only what the supervisor recommends stands out. What counts if nobody answers is no recommendation.
  const pick = hasPick(question) ? question.default : null;
  // A key answers only the question that the URL names: beside a graph, or among others, it could be meant for another.
  const keyed = isNumbered(numbered) && route.value.query.question === question.id ? 9 : 0;
  const map = Object.fromEntries(
    numbered.slice(0, keyed).map((choice, index) => [String(index + 1), () => send(choice)]),
  );
  useKeys(question.kind === "plan" ? {} : map);
  if (question.kind === "plan")
    return (
      <a class="button needs" href={href("plan", question.run)}>
        Review the plan
      </a>
    );
  return (
    <div class="ways">
      {question.telling && question.kind === "budget" ? (
        <NewBudget key={question.id} question={question} onSend={send} />
      ) : null}
      {numbered.length ? (
        <fieldset class="choices" aria-label="Answers">
          {numbered.map((choice, index) => (
            <Button
              key={choice}
              kind={choice === pick ? "needs" : "plain"}
              onClick={() => send(choice)}
              {...(index < keyed ? { hotkey: String(index + 1) } : {})}
            >
              {choiceWords(question, choice)}
            </Button>
          ))}
        </fieldset>
      ) : null}
      {question.telling && question.kind !== "budget" ? (
        <details class="evidence" open={Boolean(draftOf(question.id))}>
          <summary>{question.kind === "approval" ? "Edit the arguments…" : "Answer with a result…"}</summary>
          <Told key={question.id} question={question} onSend={send} />
        </details>
      ) : null}
      {numbered.length === 0 && !question.telling ? (
        <FreeText key={question.id} question={question} onSend={send} />
      ) : null}
    </div>
  );
}

export function QuestionCard({ question, isCompact }: { question: Question; isCompact?: boolean }) {
  const model = useModel();
  const budget = budgetOf(question);
  const waiting = pending.value.find((each) => each.question.id === question.id);
  const elsewhere = taken.value[question.id] ?? (sent.value[question.id] ? null : question.answered);
  const mine = sent.value[question.id];
  const asker = model?.run.id === question.run ? model.tasks.get(question.task) : undefined;
  const isOpen =
    (!waiting || Boolean(waiting.error)) && !elsewhere && mine === undefined && !question.is_closed;
  return (
    <article class={`question ${isOpen ? "is-open" : ""}`} aria-labelledby={`q-${question.id}`}>
      <header>
        {isOpen ? <StateIcon state="needs" /> : <StateIcon state="done" />}
        <span class="kind">{KIND_WORDS[question.kind]}</span>
        {isSystem(question.task) ? (
          <span class="hint">the supervisor asks</span>
        ) : (
          <a href={href("run", question.run, { task: question.task })}>{question.task}</a>
        )}
        {asker?.worker && !isSystem(question.task) ? <span class="hint">{asker.worker} asks</span> : null}
        {route.value.run === null && question.title ? (
          <a class="of-run" href={href("run", question.run)}>
            {oneLine(question.title, 80)}
          </a>
        ) : null}
        <span class="spacer" />
        <span class="hint" title={clock(question.asked_at, now.value)}>
          {ago(question.asked_at, now.value)}
        </span>
      </header>
      <div id={`q-${question.id}`} class="question-text">
        {question.kind === "plan" ? (
          <p>
            {questionWords(question, 120)}.{" "}
            {!isOpen
              ? null
              : isPlanChange(question)
                ? "What was approved before goes on meanwhile."
                : "Nothing runs before that."}
          </p>
        ) : budget ? (
          <p>
            <strong>{budgetWords(budget)}</strong> {shortageWords(budget)} Nothing new starts until you
            decide.
          </p>
        ) : (
          <Markdown text={question.text} />
        )}
      </div>
      {question.kind === "approval" ? (
        <div class="call">
          <span class="mono">{question.tool || "tool"}</span>
          <Raw text={asText(question.arguments ?? question.evidence)} label="Arguments of the tool" />
        </div>
      ) : null}
      <Evidence question={question} />
      {!isOpen || (isCompact && !budget) ? null : (
        <dl class="facts">
          {budget ? null : (
            <div>
              <dt>Waits behind it</dt>
              <dd>{question.waits_behind ? plural(question.waits_behind, "task") : "nothing else"}</dd>
            </div>
          )}
          {hasPick(question) ? (
            <div>
              <dt>Supervisor’s pick</dt>
              <dd>{clean(question.default)}</dd>
            </div>
          ) : null}
          <div>
            <dt>If nobody answers</dt>
            <dd>
              <Deadline question={question} />
            </dd>
          </div>
        </dl>
      )}
      {waiting?.error ? (
        <p class="note fault" role="alert">
          “{oneLine(waiting.text, 80)}” was not taken: {oneLine(waiting.error, 400)}{" "}
          <Button onClick={() => undo(question.id)}>Change the answer</Button>
        </p>
      ) : waiting ? (
        <p class="note" role="status">
          “{oneLine(waiting.text, 80)}” is on its way. <Button onClick={() => undo(question.id)}>Undo</Button>
        </p>
      ) : elsewhere ? (
        <p class="note" role="status">
          {elsewhere.by ? `Answered by ${clean(elsewhere.by)}` : "Closed"}
          {elsewhere.text ? `: ${answerWords(question, elsewhere.text)}` : ""} ·{" "}
          {ago(elsewhere.at, now.value)}
        </p>
      ) : mine !== undefined ? (
        <p class="note" role="status">
          You answered “{oneLine(mine, 120)}”.
        </p>
      ) : question.is_closed ? (
        <p class="note">Closed without an answer.</p>
      ) : canOperate.value ? (
        <Ways question={question} />
      ) : (
        <p class="note">This page is read only: the token may not answer.</p>
      )}
    </article>
  );
}
