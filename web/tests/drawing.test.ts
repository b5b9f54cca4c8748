import { describe, expect, it } from "vitest";
import { nameOf, shownSeconds } from "../src/drawing";

describe("what a box says", () => {
  it("is the id and what the task is about, unless the id leaves no room", () => {
    expect(nameOf("t5", "Order ferns")).toBe("t5  Order ferns");
    expect(nameOf("t5.2", "Order ferns")).toBe("t5.2  Order ferns");
    expect(nameOf("tall", "Order ferns")).toBe("tall  Order ferns");
    expect(nameOf("all", undefined)).toBe("all");
    expect(nameOf("final-summary-of-everything", "Write it")).toBe("final-summary-of-everything");
  });

  it("is how long it works, and how long it has needed a person", () => {
    const started_at = "2026-01-01T12:00:00Z";
    const now = Date.parse("2026-01-01T12:00:44Z");
    expect(shownSeconds({ state: "running", started_at, seconds: null }, now)).toBe(44);
    expect(shownSeconds({ state: "needs", started_at, seconds: 4 }, now)).toBe(40);
    expect(shownSeconds({ state: "done", started_at, seconds: 4 }, now)).toBe(4);
    expect(shownSeconds({ state: "waiting", started_at: null, seconds: null }, now)).toBeNull();
  });
});
