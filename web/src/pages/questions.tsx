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
import { Empty, Loading, ONE_COLUMN, useFetched } from "../ui";

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

/** The question of this id once it is not listed any more: its own run says what became of it. */
function useUnlisted(id: string | undefined): { question: Question | null; isLoading: boolean } {
  const key = id === undefined ? null : `${id} ${openQuestions.value.length}`;
  const found = useFetched(key, async () => {
    const of = id?.split(":")[0] as string;
    const { questions } = await get<{ questions: Question[] }>(runPath(of, "questions"));
    return { id, question: questions.find((question) => question.id === id) ?? null };
  });
  const isLoaded = found.value?.id === id;
  const isLoading = id !== undefined && !isLoaded && !found.error;
  return { question: isLoaded ? (found.value?.question ?? null) : null, isLoading };
}

/**
 * The question that the URL names, also once it is answered. Without one, the page names the first; of those that it
 * named itself, it goes to the next open one when this browser has answered.
 */
function useChosen(ordered: Question[], wanted: string | undefined) {
  const picked = useRef<string | null>(null);
  const shown = useRef<Question | null>(null);
  const listed = ordered.find((question) => question.id === wanted);
  const unlisted = useUnlisted(listed ? undefined : wanted);
  const isDone = wanted !== undefined && picked.current === wanted && sent.value[wanted] !== undefined;
  const open = ordered.find((question) => isOpen(question) && sent.value[question.id] === undefined);
  const next = wanted === undefined ? ordered[0] : isDone ? open : undefined;
  useEffect(() => {
    if (next) picked.current = next.id;
    else if (picked.current !== wanted) picked.current = null;
    if (next) setQuery({ question: next.id });
  }, [next?.id, wanted]);
  // What was shown stays in view while it is fetched.
  const held = shown.current && shown.current.id === wanted ? shown.current : null;
  const chosen = listed ?? unlisted.question ?? held;
  useEffect(() => {
    shown.current = chosen;
  });
  return { chosen, isLoading: next !== undefined || unlisted.isLoading };
}

export function QuestionsPage() {
  const { run, query } = route.value;
  const questions = useQuestions(run);
  const open = questions.filter(isOpen);
  const closed = questions.filter((question) => !isOpen(question));
  const ordered = [...open, ...closed.toReversed()];
  const { chosen, isLoading } = useChosen(ordered, query.question);
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
  if (!chosen && isLoading) return <Loading what="the question" />;
  if (!chosen && !ordered.length && query.question === undefined)
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
                aria-current={question.id === chosen?.id ? "true" : undefined}
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
        {chosen ? (
          <QuestionCard key={chosen.id} question={chosen} />
        ) : (
          <Empty title="There is no such question">
            <p>The link may be cut short, or its run was deleted. Press n for the next question.</p>
          </Empty>
        )}
      </section>
    </div>
  );
}
