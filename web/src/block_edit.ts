// A block of the board as a person edits it: text stays text, everything else is JSON.

export function textToEdit(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

export type Edited = { value: unknown } | { fault: string };

/** The value that was meant; a block that held text holds text again. */
export function editedValue(text: string, before: unknown): Edited {
  if (typeof before === "string") return { value: text };
  try {
    const value: unknown = JSON.parse(text);
    return isExact(value) ? { value } : { fault: "This holds a number that a browser would round." };
  } catch (error) {
    return { fault: `This is not JSON: ${(error as Error).message}` };
  }
}

/** Whether JavaScript has all of its numbers as they were written: beyond 2^53 it rounds. */
export function isExact(value: unknown): boolean {
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  if (typeof value !== "object" || value === null) return true;
  return Object.values(value).every(isExact);
}
