// A question about the budget in words and amounts, from its evidence. Pure.

import { count, money } from "./format";
import type { Question } from "./types";

type Limit = "money" | "tokens" | "calls";

export interface BudgetQuestion {
  limit: Limit;
  cap: number;
  spent: number;
  /** What the next call may take at most; null: not known. */
  next: number | null;
  /** An amount that suffices to go on for a while. */
  enough: number;
}

const UNITS: Record<Limit, string> = { money: "dollars", tokens: "tokens", calls: "model calls" };

export const amountWords = (limit: Limit, amount: number): string =>
  limit === "money" ? money(amount) : count(amount);

/** What the field for the new budget is measured in. */
export const unitOf = (limit: Limit): string => UNITS[limit];

/** The amounts of a question about the budget; null if it is none, or has others than expected. */
export function budgetOf(question: Pick<Question, "kind" | "text" | "evidence">): BudgetQuestion | null {
  const { limit, cap, spent } = (question.evidence ?? {}) as Record<string, unknown>;
  if (question.kind !== "budget" || typeof limit !== "string" || !(limit in UNITS)) return null;
  if (typeof cap !== "number" || typeof spent !== "number") return null;
  // Only the text says how much the next call would reserve.
  const said = /(?:reserves|may need) \$?([\d,.]*\d(?:e[+-]?\d+)?)/.exec(question.text)?.[1];
  const next = said === undefined ? null : Number(said.replaceAll(",", ""));
  const known = next !== null && Number.isFinite(next) ? next : null;
  const enough = Math.max(2 * cap, cap + (known ?? 0));
  return {
    limit: limit as Limit,
    cap,
    spent,
    next: known,
    enough: limit === "money" ? Number(enough.toPrecision(2)) : roundUp(enough),
  };
}

/** To two digits, and no less. */
function roundUp(amount: number): number {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(1, amount))) - 1);
  return Math.ceil(amount / unit) * unit;
}

/** What was spent of what, in a sentence. */
export function budgetWords({ limit, cap, spent }: BudgetQuestion): string {
  const [used, of] = [amountWords(limit, spent), amountWords(limit, cap)];
  if (limit === "money") return `The run has spent ${used} of its ${of}.`;
  return limit === "calls"
    ? `The run has made ${used} of its ${of} model calls.`
    : `The run has used ${used} of its ${of} tokens.`;
}

/** Why that is not enough. */
export function shortageWords({ limit, next }: BudgetQuestion): string {
  if (limit === "calls" || next === null) return "That is not enough for the next call.";
  const unit = limit === "tokens" ? " tokens" : "";
  return `The next call may take up to ${amountWords(limit, next)}${unit}, more than is left.`;
}

/** Why this text is no new budget; empty if it is one. */
export function amountFault({ limit, cap }: BudgetQuestion, text: string): string {
  const amount = Number(text.trim() || Number.NaN);
  if (!Number.isFinite(amount) || amount <= 0) return "a number above 0";
  if (limit !== "money" && !Number.isInteger(amount)) return "a whole number";
  return amount <= cap ? `more than the ${amountWords(limit, cap)} it has now` : "";
}
