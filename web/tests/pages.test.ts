import { describe, expect, it } from "vitest";
import {
  ago,
  asText,
  bytes,
  callTime,
  clean,
  cost,
  count,
  duration,
  money,
  oneLine,
  shellQuoted,
  times,
} from "../src/format";
import { keyName } from "../src/keys";
import { parse, path } from "../src/router";
import { backoff, FrameParser } from "../src/stream";

describe("addresses", () => {
  it.each([
    ["/", "runs", null],
    ["/runs/", "runs", null],
    ["/new", "new", null],
    ["/questions?question=q", "questions", null],
    ["/runs/r1", "run", "r1"],
    ["/runs/r1/plan", "plan", "r1"],
    ["/runs/a%20b/trace?q=x", "trace", "a b"],
    ["/compare?a=1&b=2", "compare", null],
    ["/runs/r1/nowhere", "missing", null],
    ["/nowhere", "missing", null],
    ["/runs/%E0%A4%A", "run", "%E0%A4%A"],
  ])("%s is the page %s", (address, page, run) => {
    expect(parse(address)).toMatchObject({ page, run });
  });

  it("keeps selection and replay position in the query", () => {
    expect(parse("/runs/r1?task=t%5B1%5D&at=12").query).toEqual({ task: "t[1]", at: "12" });
    expect(path("run", "r/1", { task: "a b", at: null })).toBe("runs/r%2F1?task=a%20b");
    expect(path("runs")).toBe("");
    expect(path("plan", "r1")).toBe("runs/r1/plan");
  });
});

describe("frames of a stream", () => {
  it("are cut wherever the network cuts", () => {
    const parser = new FrameParser();
    expect(parser.take("id: 7\nda")).toEqual([]);
    expect(parser.take("ta: [1]\n\n: ping\n\nevent: bye\ndata:\n\n")).toEqual([
      { event: "message", data: "[1]", id: "7" },
      { event: "ping", data: "", id: null },
      { event: "bye", data: "", id: null },
    ]);
  });

  it("may have lines that end in carriage returns", () => {
    expect(new FrameParser().take("data: a\r\ndata: b\r\n\r\n")).toEqual([
      { event: "message", data: "a\nb", id: null },
    ]);
  });

  it("are asked for again after a growing wait", () => {
    expect([0, 1, 2, 9].map(backoff)).toEqual([300, 600, 1200, 10_000]);
  });
});

describe("words and numbers", () => {
  it("of time", () => {
    expect([0, 0.004, 0.42, 3.14, 42, 200, 3600, 7500, 100_000, null].map(duration)).toEqual([
      "0 s",
      "<0.01 s",
      "0.42 s",
      "3.1 s",
      "42 s",
      "3 m 20 s",
      "1 h",
      "2 h 5 m",
      "1 d 3 h",
      "–",
    ]);
    expect(ago("2026-01-01T00:00:00Z", Date.parse("2026-01-01T00:03:10Z"))).toBe("3 m ago");
  });

  it("of amounts", () => {
    expect([0, 999, 1234, 56_789, 1_234_567].map(count)).toEqual(["0", "999", "1,234", "56.8k", "1.2M"]);
    expect([0, 0.00042, 0.123, 12.5].map(money)).toEqual(["$0", "$0.00042", "$0.123", "$12.50"]);
    expect([0.123, 0, undefined, null].map(cost)).toEqual(["$0.123", "–", "–", "unknown"]);
    expect([12, 2048, 3_000_000].map(bytes)).toEqual(["12 B", "2.0 kB", "3.0 MB"]);
  });

  it("lose characters that hide or turn around other text", () => {
    expect(clean("a\u202eb\u0000c\u200bd\u001b[31m\r\ne")).toBe("abcd[31m\ne");
    expect(oneLine("  a\n b  ", 10)).toBe("a b");
    expect(oneLine("abcdefghij", 5)).toBe("abcd…");
    expect(asText({ a: "\u202e" })).toBe('{\n  "a": ""\n}');
  });

  it("are quoted for a shell", () => {
    expect(shellQuoted("plain")).toBe("plain");
    expect(shellQuoted("it's; rm -rf")).toBe("'it'\\''s; rm -rf'");
  });

  it("name keys", () => {
    const key = (name: string, held = {}) =>
      keyName({ key: name, ctrlKey: false, metaKey: false, altKey: false, ...held });
    expect([key("j"), key(" "), key("K", { ctrlKey: true }), key("Enter", { metaKey: true })]).toEqual([
      "j",
      "space",
      "Ctrl+k",
      "Ctrl+Enter",
    ]);
  });
});

describe("times", () => {
  it("tells how long a call waited for its provider and how often it was sent", () => {
    expect(callTime({ seconds: 4, wait_seconds: 3.2, sends: 3 })).toBe(
      `${duration(0.8)}, waited ${duration(3.2)}, sent 3 times`,
    );
    expect(callTime({ seconds: 4, wait_seconds: 0, sends: 1 })).toBe(duration(4));
    expect(callTime({ seconds: null })).toBe("running");
  });

  it("leaves out a speed-up below 1", () => {
    expect([times(0.05), times(0.7), times(null), times(3.2)]).toEqual(["–", "–", "–", "3.2×"]);
  });
});
