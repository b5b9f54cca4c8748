import { describe, expect, it } from "vitest";
import { leftOf } from "../src/pages/run_shell";
import { now } from "../src/session";
import { RunModel } from "../src/store";
import type { RunEvent } from "../src/types";

const BEGAN = Date.parse("2026-01-01T12:00:00Z");

/** A run of one task that has worked for three seconds of the ten that it is expected to take. */
function working(): { model: RunModel; apply: (kind: string, more?: object) => void } {
  const model = new RunModel("r1");
  const apply = (kind: string, more: object = {}) => {
    const at = new Date(BEGAN).toISOString();
    model.apply({ seq: model.seq + 1, run: "r1", kind, at, ...more } as RunEvent);
  };
  apply("RunRequested", { request: "Do it" });
  apply("RunLed", { node: "n" });
  apply("PlanAdopted", { plan: { goal: "", tasks: [{ id: "a", description: "", worker: "w" }] } });
  apply("AttemptStarted", { task: "a", attempt: 1, worker: "w" });
  model.estimates = { a: 10 };
  now.value = BEGAN + 3000;
  return { model, apply };
}

describe("the time that is left of a run", () => {
  it("comes from what is known of its workers, and is not told without that", () => {
    expect(leftOf(working().model)).toBe(7);
    const unknown = working().model;
    unknown.estimates = {};
    expect(leftOf(unknown)).toBeNull();
  });

  it("is longer than expected once that has passed", () => {
    const { model } = working();
    now.value = BEGAN + 60_000;
    expect(leftOf(model)).toBe("late");
  });

  it("is not told while the run is paused, and is again when it goes on", () => {
    const { model, apply } = working();
    apply("RunPaused");
    expect(leftOf(model)).toBeNull();
    apply("RunUnpaused");
    expect(leftOf(model)).toBe(7);
  });

  it("is not told while a person is needed", () => {
    const { model, apply } = working();
    apply("PersonAsked", { task: "b", question: { id: "q", text: "Which?" } });
    expect(model.run.state).toBe("running");
    expect(leftOf(model)).toBeNull();
  });
});
