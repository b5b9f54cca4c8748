// Numbers, times and names as people read them. Everything here is pure.

/** A length of time: "0.4 s", "12 s", "3 m 20 s", "2 h 5 m", "3 d 4 h". */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 0.0095) return s === 0 ? "0 s" : "<0.01 s";
  if (s < 0.95) return `${s.toFixed(2)} s`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  if (whole < 60) return `${whole} s`;
  const [d, h, m] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (d) return h ? `${d} d ${h} h` : `${d} d`;
  if (Math.floor(whole / 3600)) return m ? `${h} h ${m} m` : `${h} h`;
  return whole % 60 ? `${m} m ${whole % 60} s` : `${m} m`;
}

/** How long ago: "now", "20 s ago", "3 m ago". */
export function ago(at: string | null | undefined, now: number): string {
  if (!at) return "–";
  const seconds = (now - Date.parse(at)) / 1000;
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} m ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

const MINUTES = { hour: "2-digit", minute: "2-digit", hour12: false } as const;
const WITH_MINUTES = new Intl.DateTimeFormat([], MINUTES);
const WITH_SECONDS = new Intl.DateTimeFormat([], { ...MINUTES, second: "2-digit" });

/** A clock time, with its day if that is not today. */
export function clock(at: string | null | undefined, now: number, withSeconds = true): string {
  if (!at) return "–";
  const date = new Date(at);
  const time = (withSeconds ? WITH_SECONDS : WITH_MINUTES).format(date);
  const isToday = date.toDateString() === new Date(now).toDateString();
  return isToday ? time : `${date.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

/** A count: "950", "12.4k", "3.1M". */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return String(value);
  if (value < 10_000) return value.toLocaleString("en");
  if (value < 999_500) return `${(value / 1000).toFixed(value < 99_950 ? 1 : 0)}k`;
  return `${(value / 1_000_000).toFixed(value < 99_950_000 ? 1 : 0)}M`;
}

/** Dollars; small amounts keep two digits that say something. */
export function money(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "$0";
  if (value < 0.01) return `$${Number(value.toPrecision(2))}`;
  return `$${value.toFixed(value < 1 ? 3 : 2)}`;
}

/** What models have cost: "unknown" (null) where no price list knows any of them, "–" where none was asked. */
export function cost(value: number | null | undefined): string {
  if (value === null) return "unknown";
  return value ? money(value) : "–";
}

/** Bytes: "312 B", "4.1 kB", "2.0 MB". */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${value} B`;
  if (value < 999_950) return `${(value / 1000).toFixed(1)} kB`;
  return `${(value / 1_000_000).toFixed(1)} MB`;
}

/** How many times as fast: "3.2×". Below 1 it says nothing of running at once, and is left out. */
export function times(value: number | null | undefined): string {
  return !value || value < 1 ? "–" : `${value.toFixed(1)}×`;
}

/** What a call took: "800 ms, waited 3.2 s, sent 3 times"; the wait is for the provider of a model. */
export function callTime(call: { seconds: number | null; wait_seconds?: number; sends?: number }): string {
  if (call.seconds === null) return "running";
  const waited = call.wait_seconds && call.wait_seconds >= 0.1 ? call.wait_seconds : 0;
  const words = [duration(Math.max(0, call.seconds - waited))];
  if (waited) words.push(`waited ${duration(waited)}`);
  if ((call.sends ?? 0) > 1) words.push(`sent ${call.sends} times`);
  return words.join(", ");
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

// C0 and C1 controls, bidirectional overrides and isolates, and other invisible marks.
const UNSAFE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f" +
    "\\u202a-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb]",
  "g",
);

/** Text of a model, a tool or a person without characters that could hide or reorder other text. */
export function clean(text: unknown): string {
  return String(text ?? "")
    .replace(/\r\n?/g, "\n")
    .replace(UNSAFE, "");
}

/** A value as text: strings as they are, everything else as indented JSON. */
export function asText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return clean(typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

/** The first line, cut to a length. */
export function oneLine(text: unknown, most = 120): string {
  const line = clean(text).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1).trimEnd()}…` : line;
}

/** An argument as a POSIX shell reads it. */
export function shellQuoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
