import { describe, expect, it } from "vitest";
import { chosenWorkers } from "../src/pages/new_run";
import { waitOf } from "../src/pages/workers";
import { amountFaults, commandFor } from "../src/submit_command";

describe("the workers of a new run", () => {
  const draft = { request: "Do it", money: "", tokens: "", minutes: "", review: false, priority: "" };

  it("are all of the crew unless some are left out", () => {
    expect(chosenWorkers({ without: [] }, ["a", "b"])).toBeNull();
    expect(chosenWorkers({ without: ["gone"] }, ["a", "b"])).toBeNull();
    expect(chosenWorkers({ without: ["b"] }, ["a", "b"])).toEqual(["a"]);
    expect(chosenWorkers({ without: ["a", "b"] }, ["a", "b"])).toEqual([]);
  });

  it("stand in the command that does the same", () => {
    const command = commandFor({ ...draft, without: [] }, ["a", "the b"]);
    expect(command).toBe("chargehand submit 'Do it' --worker a --worker 'the b'");
    expect(commandFor({ ...draft, without: [] }, null)).toBe("chargehand submit 'Do it'");
  });
});

describe("the command that does what the form would do", () => {
  const draft = { request: "Do it", money: "", tokens: "", minutes: "", review: true, priority: "" };

  it("goes to the journal and the crew of this server", () => {
    const server = { crew: "/srv/my crew.py:CREW", journal: "/srv/runs.db" };
    expect(commandFor({ ...draft, without: [] }, null, server, "r1")).toBe(
      "chargehand submit 'Do it' --crew '/srv/my crew.py:CREW' --journal /srv/runs.db --after r1 --review",
    );
  });
});

describe("what calls to a provider wait for", () => {
  const idle = { shut: 0, breaker: "closed", waiting: 0, trouble: "" } as const;

  it("is said in words", () => {
    expect(waitOf(idle)).toBe("–");
    expect(waitOf({ ...idle, waiting: 2 })).toBe("its rate limit");
    expect(waitOf({ ...idle, breaker: "open", trouble: "502" })).toBe("it serves no call: 502");
    expect(waitOf({ ...idle, shut: 30, breaker: "open" })).toBe("it may be called again in 30 s");
  });
});

describe("the amounts of a new run", () => {
  it("are numbers above 0, and tokens come whole", () => {
    const amounts = (text: string) =>
      Object.values(amountFaults({ money: text, tokens: text, minutes: text }));
    const [fault, whole] = ["a number above 0, or nothing", "a whole number above 0, or nothing"];
    expect(amounts("")).toEqual(["", "", ""]);
    expect(amounts("20")).toEqual(["", "", ""]);
    expect(amounts("0.5")).toEqual(["", whole, ""]);
    for (const text of ["-5", "0", "abc", "1e3", "0x10", "1,5", "Infinity"])
      expect(amounts(text), text).toEqual([fault, whole, fault]);
  });
});
