// Answers of this browser on their way: five seconds to take one back, drafts that survive a reload.

import { effect, signal } from "@preact/signals";
import { ApiError, apiUrl, post } from "./api";
import { justAnswered, refreshSoon } from "./live";
import { announcement, keep, recall, refreshAttention, refreshQuestions } from "./session";
import type { Answered, Question } from "./types";

export const UNDO_SECONDS = 5;

/** A request that answers a question. */
interface AnswerRequest {
  path: string;
  body: Record<string, unknown>;
}

export interface PendingAnswer {
  question: Question;
  text: string;
  request: AnswerRequest;
  /** Milliseconds when it is sent. */
  dueAt: number;
  error: string;
}

export const pending = signal<PendingAnswer[]>([]);
/** Questions that were answered elsewhere before this browser, by id. */
export const taken = signal<Record<string, Answered>>({});
/** What was answered here, by id. */
export const sent = signal<Record<string, string>>({});

/** What was just answered elsewhere, shown for a while. */
export const told = signal<{ question: Question; answered: Answered }[]>([]);
const TOLD_SECONDS = 12;

const timers = new Map<string, ReturnType<typeof setTimeout>>();
const plainRequest = (id: string, text: string): AnswerRequest => ({
  path: `questions/${encodeURIComponent(id)}/answer`,
  body: { text },
});

export function draftOf(id: string): string {
  return recall(`draft.${id}`) ?? "";
}

export function keepDraft(id: string, text: string): void {
  keep(`draft.${id}`, text || null);
}

/** Send this answer in five seconds, unless it is taken back. */
export function answerSoon(
  question: Question,
  text: string,
  request: AnswerRequest = plainRequest(question.id, text),
): void {
  const rest = pending.value.filter((each) => each.question.id !== question.id);
  const dueAt = Date.now() + UNDO_SECONDS * 1000;
  const answer = { question, text, request, dueAt, error: "" };
  pending.value = [...rest, answer];
  announcement.value = `Answer ${text} is sent in ${UNDO_SECONDS} seconds. Undo is possible.`;
  clearTimeout(timers.get(question.id));
  timers.set(
    question.id,
    setTimeout(() => void send(answer), UNDO_SECONDS * 1000),
  );
}

export function undo(id: string): void {
  clearTimeout(timers.get(id));
  timers.delete(id);
  pending.value = pending.value.filter((each) => each.question.id !== id);
  announcement.value = "The answer was taken back.";
}

export function sendNow(id: string): void {
  const found = pending.value.find((each) => each.question.id === id);
  if (!found) return;
  clearTimeout(timers.get(id));
  void send(found);
}

async function send({ question, text, request }: PendingAnswer): Promise<void> {
  timers.delete(question.id);
  const settled = () => {
    pending.value = pending.value.filter((each) => each.question.id !== question.id);
    keepDraft(question.id, "");
  };
  try {
    await post(request.path, request.body);
    settled();
    sent.value = { ...sent.value, [question.id]: text };
    announcement.value = "The answer was sent.";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A plan may also be refused with 409 because it was changed meanwhile: then nobody has answered.
    if (error.status === 409 && error.kind === "QuestionTaken") {
      settled();
      const first = error.body as Partial<Answered>;
      tell(question, {
        by: first.by ?? "",
        text: first.text ?? "",
        at: first.at ?? new Date().toISOString(),
      });
      announcement.value = "The question was answered elsewhere first.";
    } else {
      pending.value = pending.value.map((each) =>
        each.question.id === question.id ? { ...each, error: error.message } : each,
      );
    }
  }
  refreshSoon(0);
  await refreshAttention();
  await refreshQuestions();
}

function tell(question: Question, answered: Answered): void {
  taken.value = { ...taken.peek(), [question.id]: answered };
  told.value = [...told.peek().filter((each) => each.question.id !== question.id), { question, answered }];
  setTimeout(() => dismiss(question.id), TOLD_SECONDS * 1000);
}

export function dismiss(id: string): void {
  told.value = told.peek().filter((each) => each.question.id !== id);
}

/** Say so when a question of the run on this page is answered elsewhere; what waits to be sent is taken back. */
export function hearAnswers(): void {
  effect(() => {
    const question = justAnswered.value;
    if (!question?.answered || sent.peek()[question.id] !== undefined) return;
    const isPending = pending.peek().some((each) => each.question.id === question.id);
    // Plans have a page of their own, which shows what was decided.
    if (question.kind === "plan" && !isPending) return;
    if (isPending && !timers.has(question.id)) return; // the answer of this page, on its way
    clearTimeout(timers.get(question.id));
    timers.delete(question.id);
    pending.value = pending.peek().filter((each) => each.question.id !== question.id);
    tell(question, question.answered);
  });
}

/** A page that goes away sends what waits: the person had decided. */
export function sendOnLeave(): void {
  addEventListener("pagehide", () => {
    for (const each of pending.value) {
      if (!timers.has(each.question.id)) continue;
      void fetch(apiUrl(each.request.path), {
        method: "POST",
        keepalive: true,
        credentials: "same-origin",
        headers: { "Content-Type": "application/json", "X-Chargehand": "1" },
        body: JSON.stringify(each.request.body),
      });
    }
  });
}
