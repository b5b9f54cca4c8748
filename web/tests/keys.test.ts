import { describe, expect, it } from "vitest";
import { type Focused, isField, isTaken } from "../src/keys";

const focused = (tagName: string, type?: string): Focused => ({
  tagName,
  isContentEditable: false,
  ...(type ? { type } : {}),
});
const input = (type: string) => focused("INPUT", type);

describe("keys of the page", () => {
  it("stay out of the fields that text is typed into, and of lists that typing searches", () => {
    for (const type of ["text", "search", "number", "password"]) expect(isField(input(type))).toBe(true);
    expect(isField(focused("TEXTAREA"))).toBe(true);
    expect(isField(focused("SELECT", "select-one"))).toBe(true);
    expect(isField({ ...focused("DIV"), isContentEditable: true })).toBe(true);
  });

  it("work after a click on a checkbox or a slider, which keep the focus", () => {
    for (const type of ["checkbox", "radio", "range"]) expect(isField(input(type))).toBe(false);
    expect(isTaken("c", input("checkbox"))).toBe(false);
    expect(isTaken("?", input("checkbox"))).toBe(false);
  });

  it("leave Space and Enter to what these press", () => {
    expect(isTaken(" ", input("checkbox"))).toBe(true);
    expect(isTaken("Enter", focused("A"))).toBe(true);
    expect(isTaken(" ", input("range"))).toBe(false);
  });
});
