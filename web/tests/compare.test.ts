import { describe, expect, it } from "vitest";
import { changeIn, changeWords, shareWords } from "../src/pages/compare";

describe("how two runs differ", () => {
  it("is a share, unless it rounds to nothing", () => {
    expect([0.124, -0.5, 0.001, -0.001].map(shareWords)).toEqual([
      "+12 %",
      "−50 %",
      "about the same",
      "about the same",
    ]);
  });

  it("does not say of a task that both runs knew that only one had it", () => {
    expect(changeWords("added", { a: null, b: "done" })).toBe("only in the second");
    expect(changeWords("added", { a: "cancelled", b: "done" })).toBe("taken out of the first plan");
    expect(changeWords("removed", { a: "done", b: null })).toBe("only in the first");
    expect(changeWords("removed", { a: "done", b: "cancelled" })).toBe("taken out of the second plan");
    expect(changeWords("changed", { a: "done", b: "done" })).toBe("changed");
  });
});

describe("the change of a figure", () => {
  it("is not told where one of the two is unknown", () => {
    expect([changeIn(2, 3), changeIn(2, 2), changeIn(0, 2)]).toEqual(["+50 %", "the same", "–"]);
    expect([changeIn(null, 2), changeIn(0, null), changeIn(null, null)]).toEqual(["–", "–", "–"]);
  });
});
