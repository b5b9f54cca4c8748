// Everything that waits for a person: of one run, or of all.

import { useEffect, useRef } from "preact/hooks";
import { sent } from "../answers";
import { get, runPath } from "../api";
import { ago, oneLine, plural } from "../format";
import { StateIcon } from "../icons";
import { useKeys } from "../keys";
import { useModel } from "../live";
import { isSystem } from "../names";
import { KIND_WORDS, QuestionCard, questionWords } from "../question_card";
import { href, route, setQuery } from "../router";
import { now, openQuestions } from "../session";
import type { Question } from "../types";
import { Empty, ONE_COLUMN, useFetched } from "../ui";

const isOpen = (question: Question): boolean => !question.answered && !question.is_closed;

function useQuestions(run: string | null): Question[] {
  const model = useModel();
  const stamp =
    run && model
      ? `${run}:${[...model.questions.values()].map((q) => `${q.id}${q.answered ? 1 : 0}`)}`
      : null;
  const full = useFetched<Question[]>(stamp, async () => {
    return (await get<{ questions: Question[] }>(runPath(run as string, "questions"))).questions;
  });
  if (!run) return openQuestions.value;
  const known = new Map((full.value ?? []).map((question) => [question.id, question]));
  // What the stream said is newer than what was fetched.
  for (const question of model?.questions.values() ?? []) {
    const fetched = known.get(question.id);
    known.set(
      question.id,
      fetched ? { ...fetched, answered: question.answered ?? fetched.answered } : question,
    );
  }
  return [...known.values()];
}

/** The question to show. It stays until the person moves on, also when it is answered elsewhere meanwhile. */
function useChosen(
  run: string | null,
  ordered: Question[],
  wanted: string | undefined,
): Question | undefined {
  const shown = useRef<{ run: string | null; question: Question } | null>(null);
  const before = shown.current?.run === run ? shown.current.question : null;
  const held = before && sent.value[before.id] === undefined ? before : null;
  const listed = ordered.find((question) => question.id === (wanted ?? held?.id));
  const isGone = held !== null && !listed && (wanted ?? held.id) === held.id;
  // Of all runs, only open questions are listed: its own run says what became of it.
  const settled = useFetched<Question | null>(isGone ? `settled/${held.id}` : null, async () => {
    const of = await get<{ questions: Question[] }>(runPath(held?.run as string, "questions"));
    return of.questions.find((question) => question.id === held?.id) ?? null;
  });
  const chosen = listed ?? (isGone ? (settled.value ?? held) : ordered[0]);
  useEffect(() => {
    shown.current = chosen ? { run, question: chosen } : null;
  });
  return chosen;
}

export function QuestionsPage() {
  const { run, query } = route.value;
  const questions = useQuestions(run);
  const open = questions.filter(isOpen);
  const closed = questions.filter((question) => !isOpen(question));
  const ordered = [...open, ...closed.toReversed()];
  const chosen = useChosen(run, ordered, query.question);
  const item = useRef<HTMLElement>(null);
  // In one column, the list stands below the question that is chosen in it.
  useEffect(() => {
    if (query.question && matchMedia(ONE_COLUMN).matches) item.current?.scrollIntoView({ block: "nearest" });
  }, [query.question]);
  const step = (by: number) => {
    const at = ordered.findIndex((question) => question.id === chosen?.id) + by;
    const next = ordered[Math.min(Math.max(at, 0), ordered.length - 1)];
    if (next) setQuery({ question: next.id });
  };
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    n: () => {
      const at = open.findIndex((question) => question.id === chosen?.id);
      const next = open[(at + 1) % Math.max(1, open.length)];
      if (next) setQuery({ question: next.id });
    },
  });
  if (!chosen)
    return (
      <Empty title="Nothing needs you">
        <p>
          {run ? "This run has asked nothing." : "No run waits for a person."} Questions and approvals appear
          here, and as an orange bar on every page.
        </p>
        <a class="button plain" href={href("runs")}>
          All runs
        </a>
      </Empty>
    );
  return (
    <div class="split">
      <nav class="split-list" aria-label="Questions">
        {run ? null : <h1>Questions</h1>}
        <ul>
          {ordered.map((question) => (
            <li key={question.id}>
              <a
                href={href("questions", run, { question: question.id })}
                aria-current={question.id === chosen.id ? "true" : undefined}
              >
                <StateIcon state={isOpen(question) ? "needs" : "done"} />
                <span class="what">{questionWords(question, 110)}</span>
                <span class="meta">
                  {KIND_WORDS[question.kind]} · {isSystem(question.task) ? "supervisor" : question.task}
                  {run || !question.title ? "" : ` in ${oneLine(question.title, 60)}`}
                  {isOpen(question) && question.waits_behind
                    ? ` · ${plural(question.waits_behind, "task waits", "tasks wait")}`
                    : ""}{" "}
                  · {ago(question.asked_at, now.value)}
                </span>
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <section class="split-item" ref={item} aria-label="Question">
        <QuestionCard key={chosen.id} question={chosen} />
      </section>
    </div>
  );
}
