import { describe, expect, it } from "vitest";
import { hasFailures, lackingIn, Replay, RunModel, workersIn } from "../src/store";
import type { RunEvent, Snapshot } from "../src/types";

const at = (seconds: number): string => new Date(Date.UTC(2026, 0, 1, 12, 0, seconds)).toISOString();

/** Numbers and times are given out in turn, one second apart. */
function log(...facts: [string, Record<string, unknown>?][]): RunEvent[] {
  return facts.map(([kind, fields], index) => ({
    seq: index + 1,
    run: "r1",
    kind,
    at: at(index),
    ...fields,
  }));
}

const plan = {
  goal: "g",
  tasks: [
    { id: "a", description: "first", worker: "reader" },
    { id: "b", description: "second", worker: "reader", needs: ["a"] },
    { id: "c", description: "third", worker: "writer", needs: [{ task: "b", optional: true }, "a"] },
  ],
};

const begun: [string, Record<string, unknown>?][] = [
  ["RunRequested", { request: "Do it\nwell", limits: { money: 2 } }],
  ["RunLed", { node: "n1", epoch: 1 }],
  ["PlanAdopted", { plan }],
  ["AttemptStarted", { task: "a", attempt: 1, worker: "reader" }],
];

function folded(...more: [string, Record<string, unknown>?][]): RunModel {
  const model = new RunModel("r1");
  for (const event of log(...begun, ...more)) model.apply(event);
  return model;
}

const states = (model: RunModel) => Object.fromEntries([...model.tasks].map(([id, row]) => [id, row.state]));
const done = (task: string, usage = {}) =>
  ["AttemptFinished", { task, attempt: 1, outcome: { is: "done", usage } }] as [
    string,
    Record<string, unknown>,
  ];

describe("a run folded from its events", () => {
  it("offers a task when all its needs are done", () => {
    expect(states(folded())).toEqual({ a: "running", b: "waiting", c: "waiting" });
    expect(states(folded(done("a")))).toEqual({ a: "done", b: "ready", c: "waiting" });
  });

  it("counts states, and the counts add up", () => {
    const { tasks } = folded(done("a")).run;
    expect(tasks).toMatchObject({ total: 3, done: 1, ready: 1, waiting: 1, running: 0 });
  });

  it("has an unknown cost once calls were made of which no price is known", () => {
    const costs = (model: RunModel) => [model.run.cost, model.tasks.get("a")?.cost];
    const unpriced = (task: string) => done(task, { calls: 1, tokens_in: 10 });
    expect(costs(folded())).toEqual([0, 0]);
    expect(costs(folded(done("a")))).toEqual([0, 0]);
    const unknown = folded(unpriced("a"), ["AttemptStarted", { task: "b", attempt: 1, worker: "reader" }]);
    expect(costs(unknown)).toEqual([null, null]);
    for (const event of log(...Array(5).fill(["Nothing"]), done("b", { calls: 1, money: 0.5 })).slice(-1))
      unknown.apply({ ...event, seq: unknown.seq + 1 });
    expect(costs(unknown)).toEqual([0.5, null]);
  });

  it("starts a task although an optional need of it failed", () => {
    const model = folded(
      done("a"),
      ["AttemptStarted", { task: "b", attempt: 1, worker: "reader" }],
      ["AttemptFinished", { task: "b", attempt: 1, outcome: { is: "failed", kind: "logic", message: "no" } }],
      ["TaskFailed", { task: "b", cause: { kind: "logic", message: "no" } }],
    );
    expect(states(model)).toEqual({ a: "done", b: "failed", c: "ready" });
    expect(model.tasks.get("b")?.error).toEqual({ kind: "logic", message: "no" });
  });

  it("does not count a task as running whose items all wait for their next try", () => {
    const each = { goal: "g", tasks: [{ id: "a", description: "", worker: "reader", for_each: ["x", "y"] }] };
    const failed = { is: "failed", kind: "network", message: "down" };
    const steps: [string, Record<string, unknown>?][] = [
      ["RunRequested", { request: "Do it" }],
      ["RunLed", { node: "n1", epoch: 1 }],
      ["PlanAdopted", { plan: each }],
      ["ItemsListed", { task: "a", items: [{}, {}] }],
      ["AttemptStarted", { task: "a[0]", attempt: 1, worker: "reader" }],
      ["AttemptStarted", { task: "a[1]", attempt: 1, worker: "reader" }],
      ["AttemptFinished", { task: "a[0]", attempt: 1, outcome: failed }],
      ["AttemptFinished", { task: "a[1]", attempt: 1, outcome: failed }],
      ["RetryPlanned", { task: "a[0]" }],
      ["AttemptStarted", { task: "a[0]", attempt: 2, worker: "reader" }],
    ];
    const upTo = (count: number) => {
      const model = new RunModel("r1");
      for (const event of log(...steps.slice(0, count))) model.apply(event);
      return model;
    };
    expect([6, 7, 8, 9, 10].map((count) => states(upTo(count)).a)).toEqual([
      "running",
      "running",
      "retrying",
      "retrying",
      "running",
    ]);
    expect(upTo(8).run.tasks).toMatchObject({ running: 0, retrying: 1 });
    expect(upTo(8).attempts.map((row) => row.error)).toEqual(["network: down", "network: down"]);
    expect(upTo(8).tasks.get("a")?.why).toBe("network: down");
  });

  it("does not count a task as running whose items were all stopped or wait for a person", () => {
    const each = { goal: "g", tasks: [{ id: "a", description: "", worker: "reader", for_each: ["x"] }] };
    const asks = { is: "needs_input", question: { id: "q1", text: "Which?" } };
    for (const [event, state] of [
      [["AttemptPreempted", { task: "a[0]", attempt: 1 }], "ready"],
      [["AttemptLost", { task: "a[0]", attempt: 1, reason: "it died" }], "retrying"],
      [["AttemptParked", { task: "a[0]", attempt: 1, why: "busy" }], "retrying"],
      [["AttemptFinished", { task: "a[0]", attempt: 1, outcome: asks }], "needs"],
    ] as [[string, Record<string, unknown>], string][]) {
      const model = new RunModel("r1");
      const steps: [string, Record<string, unknown>?][] = [
        ["RunRequested", { request: "Do it" }],
        ["PlanAdopted", { plan: each }],
        ["ItemsListed", { task: "a", items: [{}] }],
        ["AttemptStarted", { task: "a[0]", attempt: 1, worker: "reader" }],
        event,
      ];
      for (const each of log(...steps)) model.apply(each);
      expect(states(model)).toEqual({ a: state });
    }
  });

  it("needs nobody any more once it is over", () => {
    const question = { id: "r1:q", text: "Which?" };
    const asked: [string, Record<string, unknown>?] = [
      "AttemptFinished",
      { task: "a", attempt: 1, outcome: { is: "needs_input", question } },
    ];
    expect(folded(asked).openQuestions).toHaveLength(1);
    expect(folded(asked, ["RunFinished", { status: "cancelled" }]).openQuestions).toEqual([]);
  });

  it("shows a question, what waits behind it, and who answered", () => {
    const question = { id: "r1:q", text: "Which?", choices: ["x", "y"] };
    const asked = folded([
      "AttemptFinished",
      { task: "a", attempt: 1, outcome: { is: "needs_input", question } },
    ]);
    expect(asked.run.state).toBe("waiting");
    expect(asked.openQuestions).toMatchObject([{ id: "r1:q", task: "a", kind: "question", waits_behind: 2 }]);
    asked.apply({
      seq: 6,
      run: "r1",
      kind: "QuestionAnswered",
      at: at(9),
      question: "r1:q",
      task: "a",
      text: "x",
      by: "ann",
    });
    expect(asked.openQuestions).toEqual([]);
    expect(asked.questions.get("r1:q")?.answered).toMatchObject({ by: "ann", text: "x" });
    expect(asked.run.state).toBe("running");
  });

  it("adds up what calls and attempts spent", () => {
    const step = { task: "a", attempt: 1, name: "model", ordinal: 1 };
    const model = folded(
      ["StepStarted", { ...step, step: { kind: "model", model: "m" } }],
      [
        "StepFinished",
        { ...step, outcome: { is: "done", usage: { calls: 1, tokens_in: 10, tokens_out: 5, money: 0.5 } } },
      ],
      done("a", { tokens_in: 1 }),
    );
    expect(model.run).toMatchObject({ tokens: 16, cost: 0.5 });
    expect(model.tasks.get("a")).toMatchObject({ tokens: 16, cost: 0.5 });
    expect(model.calls).toMatchObject([{ id: "5", kind: "model", model: "m", seconds: 1, tokens_in: 10 }]);
    expect(model.openCalls.size).toBe(0);
  });

  it("adds up the work that was done", () => {
    expect(folded(done("a")).busy).toBe(1);
    expect(folded(["AttemptLost", { task: "a", attempt: 1, reason: "gone" }]).busy).toBe(0);
  });

  it("leaves out the time in which only a person could move the run", () => {
    const question = { id: "r1:q", text: "Which?", choices: [] };
    const asked = folded([
      "AttemptFinished",
      { task: "a", attempt: 1, outcome: { is: "needs_input", question } },
    ]);
    expect(asked.idleUntil(Date.parse(at(34)))).toBe(30);
    const answered = { seq: 6, run: "r1", kind: "QuestionAnswered", question: "r1:q", task: "a", by: "ann" };
    asked.apply({ ...answered, at: at(44), text: "x" });
    expect(asked.idleUntil(Date.parse(at(60)))).toBe(40);
    expect(folded().idleUntil(Date.parse(at(60)))).toBe(0);
  });

  it("counts the time of a task without what lies between its attempts", () => {
    const asked = { id: "r1:q", text: "Which?", choices: [] };
    const model = folded(
      ["AttemptFinished", { task: "a", attempt: 1, outcome: { is: "needs_input", question: asked } }],
      ["ProgressNoted", { task: "a", text: "waits" }],
      ["QuestionAnswered", { question: "r1:q", task: "a", by: "ann", text: "red" }],
      ["AttemptStarted", { task: "a", attempt: 2, worker: "reader" }],
      ["AttemptFinished", { task: "a", attempt: 2, outcome: { is: "done" } }],
    );
    expect(model.tasks.get("a")?.seconds).toBe(2);
  });

  it("fetches anew what waits for a task that has ended", () => {
    const model = folded();
    model.waits = [{ task: "b", why: "waits for a (running)", since: at(3) }];
    model.isStale = false;
    model.apply({ ...log(...begun, done("a"))[4]! });
    expect(model.isStale).toBe(true);
  });

  it("takes an event once", () => {
    const model = folded();
    const again = log(...begun);
    for (const event of again) model.apply(event);
    expect(model.attempts).toHaveLength(1);
    expect(model.run.tasks.total).toBe(3);
  });

  it("follows a change of the plan", () => {
    const model = folded([
      "PlanAmended",
      { version: 2, added: [{ id: "d", description: "new", worker: "w" }], removed: ["c"] },
    ]);
    expect([...model.tasks.keys()]).toEqual(["a", "b", "d"]);
    expect(model.planVersion).toBe(2);
    expect(model.isStale).toBe(true);
    expect(model.plan?.tasks.map((task) => task.id)).toEqual(["a", "b", "d"]);
  });

  it("names each system task by what it does", () => {
    const named = (task: string) =>
      folded(["AttemptStarted", { task, attempt: 1, worker: "@w" }]).tasks.get(task)?.description;
    expect(named("@plan")).toBe("Write the plan");
    expect(named("@plan:2")).toBe("Plan again");
    expect(named("@items:read:all")).toBe("List the items of read:all");
    expect(named("@refine:read:2")).toBe("Rewrite read, which failed");
    expect(named("@draft:1")).toBe("Draft the answer");
    expect(named("@answer")).toBe("Compose the answer");
    expect(named("@budget:1")).toBe("Ask whether more may be spent");
  });

  it("counts items of a mapped task, and ends it with the last of them", () => {
    const model = new RunModel("r1");
    const mapped = {
      goal: "g",
      tasks: [{ id: "m", description: "each", worker: "w", for_each: ["x", "y"] }],
    };
    const facts: [string, Record<string, unknown>?][] = [
      ["RunRequested", { request: "r" }],
      ["RunLed", { node: "n" }],
      ["PlanAdopted", { plan: mapped }],
      ["ItemsListed", { task: "m", first: 0, items: [{}, {}] }],
      ["AttemptStarted", { task: "m[0]", attempt: 1, worker: "w" }],
      ["AttemptStarted", { task: "m[1]", attempt: 1, worker: "w" }],
      done("m[0]"),
    ];
    for (const event of log(...facts)) model.apply(event);
    expect(model.items.m).toEqual({ total: 2, done: 1, failed: 0, running: 1 });
    expect(states(model)).toEqual({ m: "running" });
    model.apply({
      seq: 8,
      run: "r1",
      kind: "AttemptFinished",
      at: at(8),
      task: "m[1]",
      attempt: 1,
      outcome: { is: "done" },
    });
    expect(states(model)).toEqual({ m: "done" });
    model.apply({
      seq: 9,
      run: "r1",
      kind: "AttemptStarted",
      at: at(9),
      task: "m",
      attempt: 1,
      worker: "@collector",
    });
    expect(model.tasks.get("m")?.worker).toBe("w");
    expect([...workersIn(model)]).toEqual(["w"]);
  });

  it("ends with the run, and loses what was still open", () => {
    const model = folded(["RunFinished", { status: "cancelled", reason: "enough" }]);
    expect(model.run).toMatchObject({ state: "cancelled", reason: "enough", wall: 4 });
    expect(model.attempts[0]?.outcome).toBe("lost");
    expect(states(model)).toEqual({ a: "cancelled", b: "cancelled", c: "cancelled" });
  });

  it("keeps the pause of a run until it goes on", () => {
    const model = folded(["RunPaused"], done("a"));
    expect(model.run.state).toBe("paused");
    model.apply({ seq: 7, run: "r1", kind: "RunUnpaused", at: at(9) });
    expect(model.run.state).toBe("running");
  });
});

describe("a snapshot", () => {
  const model = folded(done("a"));
  const snapshot: Snapshot = {
    seq: model.seq,
    run: model.run,
    plan,
    plan_version: 1,
    tasks: [...model.tasks.values()],
    attempts: model.attempts,
    questions: [],
    waits: [],
    critical_path: ["a", "b"],
    estimates: {},
    children: [],
    items: {},
  };

  it("and the events after it give what all events give", () => {
    const started = {
      seq: 6,
      run: "r1",
      kind: "AttemptStarted",
      at: at(5),
      task: "b",
      attempt: 1,
      worker: "reader",
    };
    const resumed = RunModel.from(snapshot);
    resumed.apply(started);
    const whole = folded(done("a"));
    whole.apply(started);
    expect(states(resumed)).toEqual(states(whole));
    expect(resumed.run.tasks).toEqual(whole.run.tasks);
    expect(resumed.unblocks("a")).toEqual(["b", "c"]);
  });

  it("replaces rows that change and keeps the others", () => {
    const resumed = RunModel.from(snapshot);
    const before = new Map(resumed.tasks);
    resumed.apply({
      seq: 6,
      run: "r1",
      kind: "AttemptStarted",
      at: at(5),
      task: "b",
      attempt: 1,
      worker: "reader",
    });
    expect(resumed.tasks.get("a")).toBe(before.get("a"));
    expect(resumed.tasks.get("b")).not.toBe(before.get("b"));
  });
});

describe("a replay", () => {
  const events = log(...begun, done("a"), ["RunFinished", { status: "succeeded" }]);

  it("shows the run at any event, forwards and backwards", () => {
    const film = new Replay("r1", events);
    expect(states(film.at(4))).toEqual({ a: "running", b: "waiting", c: "waiting" });
    expect(film.at(6).run.state).toBe("succeeded");
    expect(states(film.at(5))).toEqual({ a: "done", b: "ready", c: "waiting" });
    expect(film.position(5)).toBe(5);
    expect([film.first, film.last]).toEqual([1, 6]);
  });
});

describe("what a run lacks", () => {
  it("is nothing while nothing has failed", () => {
    const model = folded(done("a"));
    expect([hasFailures(model), lackingIn(model)]).toEqual([false, []]);
  });

  it("is a task that failed, and the items of one that was done all the same", () => {
    const model = folded(
      ["ItemsListed", { task: "b", items: [1, 2] }],
      ["AttemptStarted", { task: "b[0]", attempt: 1, worker: "reader" }],
      done("b[0]"),
      ["AttemptStarted", { task: "b[1]", attempt: 1, worker: "reader" }],
      ["TaskFailed", { task: "b[1]", cause: { kind: "denied", message: "no" } }],
      ["AttemptStarted", { task: "b", attempt: 1, worker: "@items" }],
      [
        "AttemptFinished",
        { task: "b", attempt: 1, outcome: { is: "done", gaps: ["item 1 (2): denied: no"] } },
      ],
    );
    expect(model.run.tasks.failed).toBe(0);
    expect(hasFailures(model)).toBe(true);
    expect(lackingIn(model)).toEqual([{ task: "b", kind: null, text: "item 1 (2): denied: no" }]);
  });
});

describe("a plan that was not made", () => {
  const asked = {
    id: "q",
    text: "May this plan be carried out?",
    about: "plan",
    choices: ["approve", "reject"],
  };
  const denied = { kind: "denied", message: "no plan: a person rejected the plan" };
  const failed = (cause: object, ...before: [string, Record<string, unknown>?][]): RunModel => {
    const model = new RunModel("r1");
    const attempt = { task: "@plan", attempt: 1, worker: "@planner" };
    for (const event of log(["RunRequested", { request: "Do it" }], ["AttemptStarted", attempt], ...before, [
      "TaskFailed",
      { task: "@plan", cause },
    ]))
      model.apply(event);
    return model;
  };

  it("says by whom it was rejected, and blames no planner", () => {
    const model = failed(
      denied,
      ["PersonAsked", { task: "@plan", question: asked }],
      ["QuestionAnswered", { task: "@plan", question: "q", by: "eva", text: "reject" }],
    );
    expect(lackingIn(model)).toEqual([{ task: "@plan", kind: null, text: "rejected by eva" }]);
  });

  it("says why in other cases, once", () => {
    const cause = { kind: "denied", message: "no plan: the key is wrong" };
    expect(lackingIn(failed(cause))).toEqual([{ task: "@plan", kind: "denied", text: "the key is wrong" }]);
  });
});

describe("the work of a run", () => {
  it("counts attempts under way as far as they are", () => {
    const model = folded(["AttemptStarted", { task: "b", attempt: 1, worker: "reader" }]);
    // One began at second 3, the other at second 4.
    expect(model.busyUntil(Date.parse(at(10)))).toBe(13);
    model.apply({
      seq: 6,
      run: "r1",
      kind: "AttemptFinished",
      at: at(8),
      task: "a",
      attempt: 1,
      outcome: { is: "done" },
    });
    expect(model.busyUntil(Date.parse(at(10)))).toBe(11);
  });
});
