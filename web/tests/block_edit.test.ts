import { describe, expect, it } from "vitest";
import { editedValue, isExact, textToEdit } from "../src/block_edit";

describe("a block as a person edits it", () => {
  it("stays what it was when nothing is changed", () => {
    for (const value of ["12", "two\nlines \u202e", { a: [1, null, "x"] }, [], 4.5, false, null]) {
      expect(editedValue(textToEdit(value), value)).toEqual({ value });
    }
  });

  it("stays text if it was text, even if it looks like JSON", () => {
    expect(editedValue("[1]", "before")).toEqual({ value: "[1]" });
  });

  it("says what is wrong with JSON", () => {
    expect(editedValue("{", {})).toHaveProperty("fault", expect.stringContaining("not JSON"));
    expect(editedValue("9007199254740993", 1)).toHaveProperty("fault", expect.stringContaining("round"));
  });

  it("knows numbers that a browser has rounded", () => {
    expect(isExact({ a: [{ b: 2 ** 53 }] })).toBe(false);
    expect(isExact({ a: [{ b: 2 ** 53 - 1, c: 1e-7 }] })).toBe(true);
  });
});
