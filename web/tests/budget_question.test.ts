import { describe, expect, it } from "vitest";
import {
  amountFault,
  type BudgetQuestion,
  budgetOf,
  budgetWords,
  shortageWords,
} from "../src/budget_question";

const of = (evidence: unknown, text = ""): BudgetQuestion => {
  const found = budgetOf({ kind: "budget", evidence, text });
  if (!found) throw new Error("this is no budget");
  return found;
};

describe("a question about the budget", () => {
  it("says in a sentence what was spent of what, and why that is not enough", () => {
    const tokens = of(
      { limit: "tokens", cap: 60, spent: 6 },
      "Limits(tokens=60) leaves 54, and the next call reserves 9563, its …",
    );
    expect(budgetWords(tokens)).toBe("The run has used 6 of its 60 tokens.");
    expect(shortageWords(tokens)).toBe("The next call may take up to 9,563 tokens, more than is left.");
    const money = of(
      { limit: "money", cap: 0.5, spent: 0.48 },
      "The next call may need $0.13, and $0.02 is left for it.",
    );
    expect(budgetWords(money)).toBe("The run has spent $0.480 of its $0.500.");
    expect(shortageWords(money)).toBe("The next call may take up to $0.130, more than is left.");
    const calls = of({ limit: "calls", cap: 9, spent: 9 }, "words that nobody foresaw");
    expect(budgetWords(calls)).toBe("The run has made 9 of its 9 model calls.");
    expect(shortageWords(calls)).toBe("That is not enough for the next call.");
  });

  it("offers an amount with which the next call can be made", () => {
    expect(of({ limit: "tokens", cap: 60, spent: 0 }, "the next call reserves 9563, its").enough).toBe(9700);
    expect(of({ limit: "calls", cap: 9, spent: 9 }, "reserves 1.").enough).toBe(18);
    expect(of({ limit: "money", cap: 0.25, spent: 0.2 }, "reserves 0.1,").enough).toBe(0.5);
  });

  it("takes no amount that would not help", () => {
    const calls = of({ limit: "calls", cap: 9, spent: 9 });
    expect(["-1", "x", "0", "9.5", "9", "10"].map((text) => amountFault(calls, text))).toEqual([
      "a number above 0",
      "a number above 0",
      "a number above 0",
      "a whole number",
      "more than the 9 it has now",
      "",
    ]);
    expect(amountFault(of({ limit: "money", cap: 0.5, spent: 0.5 }), "0.75")).toBe("");
  });

  it("of other shape is shown as it was asked", () => {
    expect(budgetOf({ kind: "budget", evidence: null, text: "" })).toBeNull();
    expect(budgetOf({ kind: "budget", evidence: { limit: "hours", cap: 1, spent: 1 }, text: "" })).toBeNull();
    expect(
      budgetOf({ kind: "question", evidence: { limit: "calls", cap: 1, spent: 1 }, text: "" }),
    ).toBeNull();
  });
});
