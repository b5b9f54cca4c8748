// A request as the form of a new run holds it, and the command line that does the same.

import { shellQuoted } from "./format";

export interface CrewWorker {
  name: string;
  does: string;
  model?: string | null;
  tools?: string[];
  kind?: string;
  capacity?: number | null;
}

export interface Crew {
  workers: CrewWorker[];
  planner?: unknown;
  files?: string[] | string | null;
  /** Where a command finds the same crew and the same runs. */
  crew?: string;
  journal?: string;
}

export interface Draft {
  request: string;
  money: string;
  tokens: string;
  minutes: string;
  review: boolean;
  priority: string;
  /** Workers of the crew that the run does not get. */
  without: string[];
}

export const NOTHING: Draft = {
  request: "",
  money: "",
  tokens: "",
  minutes: "",
  review: true,
  priority: "",
  without: [],
};

type Amounts = Pick<Draft, "money" | "tokens" | "minutes">;

const positive = (text: string): string =>
  !text || (/^\d*\.?\d+$/.test(text) && Number(text) > 0) ? "" : "a number above 0, or nothing";
const positiveWhole = (text: string): string =>
  !text || (/^\d+$/.test(text) && Number(text) > 0) ? "" : "a whole number above 0, or nothing";

/** What is wrong with the amounts of a draft; empty where nothing is. With a fault, neither form nor command would do. */
export function amountFaults({ money, tokens, minutes }: Amounts): Amounts {
  return { money: positive(money), tokens: positiveWhole(tokens), minutes: positive(minutes) };
}

/** The command line that does what the form would do. */
export function commandFor(
  draft: Draft,
  workers: readonly string[] | null,
  server: Pick<Crew, "crew" | "journal"> = {},
  after = "",
): string {
  const words = ["chargehand", "submit", shellQuoted(draft.request.trim() || "…")];
  if (server.crew) words.push("--crew", shellQuoted(server.crew));
  if (server.journal) words.push("--journal", shellQuoted(server.journal));
  if (after) words.push("--after", shellQuoted(after));
  if (draft.money) words.push("--money", draft.money);
  if (draft.tokens) words.push("--tokens", draft.tokens);
  if (draft.minutes) words.push("--deadline", `${draft.minutes}m`);
  if (draft.priority) words.push("--priority", draft.priority);
  for (const name of workers ?? []) words.push("--worker", shellQuoted(name));
  if (draft.review) words.push("--review");
  return words.join(" ");
}
