import { describe, expect, it } from "vitest";
import { waitsBehindAll } from "../src/frame";
import { attemptWords } from "../src/pages/panel";
import { answerWords, hasPick, isNumbered, questionWords } from "../src/question_card";
import { RunModel } from "../src/store";
import type { Question } from "../src/types";

const question = (more: Partial<Question>): Question => ({
  id: "q",
  run: "r1",
  task: "a",
  asked_at: "2026-01-01T12:00:00Z",
  text: "Which?",
  kind: "question",
  choices: ["x", "none"],
  default: null,
  deadline_at: null,
  evidence: null,
  waits_behind: 1,
  answered: null,
  ...more,
});

describe("a question", () => {
  it("of a worker has a default, which is no recommendation of the supervisor", () => {
    expect(hasPick(question({ default: "none" }))).toBe(false);
    expect(hasPick(question({ kind: "review", default: "retry" }))).toBe(true);
    expect(hasPick(question({ kind: "review" }))).toBe(false);
    expect(hasPick(question({ kind: "budget", default: "stop" }))).toBe(false);
  });

  it("has keys for its choices unless one of them begins with a number", () => {
    expect(isNumbered(["red", "blue", "v2"])).toBe(true);
    expect(isNumbered([])).toBe(true);
    expect(isNumbered(["10", "5", "1"])).toBe(false);
    expect(isNumbered(["soon", "1 week"])).toBe(false);
    expect(isNumbered(["$20", "-1"])).toBe(false);
  });

  it("about a plan tells in words what was answered, and repeats no plan", () => {
    const words = (text: string) => answerWords({ kind: "plan" }, text);
    expect(words("approve")).toBe("approved");
    expect(words('approve with: {"goal": "g"}')).toBe("approved with changes");
    expect(words("reject")).toBe("rejected");
    expect(words("fewer tasks")).toBe("asked for changes: “fewer tasks”");
    expect(answerWords({ kind: "question" }, "approve with care")).toBe("“approve with care”");
    const open = question({ kind: "plan", text: "May this plan of 2 tasks be carried out?" });
    expect(questionWords(open, 99)).toBe("The plan waits for approval");
    expect(questionWords({ ...open, is_closed: true }, 99)).toBe("The plan was submitted for approval");
  });

  it("counts a task once that waits for several answers", () => {
    const model = new RunModel("r1");
    const tasks = [
      { id: "a", description: "", worker: "w" },
      { id: "b", description: "", worker: "w" },
      { id: "c", description: "", worker: "w", needs: ["a", "b"] },
    ];
    const at = "2026-01-01T12:00:00Z";
    model.apply({ seq: 1, run: "r1", kind: "PlanAdopted", at, plan: { goal: "", tasks } });
    const open = [question({}), question({ id: "q2", task: "b" })];
    expect(waitsBehindAll(open, model)).toBe(1);
    expect(waitsBehindAll(open, null)).toBe(1);
    expect(waitsBehindAll([...open, question({ id: "q3", run: "r2", waits_behind: 4 })], null)).toBe(5);
  });
});

describe("an attempt", () => {
  it("at an item names the item", () => {
    expect(attemptWords({ task: "each", attempt: 2 })).toBe("#2");
    expect(attemptWords({ task: "each[3]", attempt: 1, item: '"Quito"' })).toBe("item 3 (Quito)");
    expect(attemptWords({ task: "each[3]", attempt: 2 })).toBe("item 3 #2");
  });
});
