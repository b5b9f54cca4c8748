// Who is signed in, what waits for a person, and preferences of this browser.

import { computed, effect, signal } from "@preact/signals";
import { ApiError, get, post, signedOut } from "./api";
import { plural } from "./format";
import type { Question } from "./types";

export interface Me {
  namespace: string;
  scopes: string[];
  read_only: boolean;
  version: string;
  node: string;
  can_submit: boolean;
}

export interface Attention {
  questions: number;
  failed: number;
  running: number;
}

export const me = signal<Me | null>(null);
export const attention = signal<Attention>({ questions: 0, failed: 0, running: 0 });
/** All open questions that this browser may see, oldest first. */
export const openQuestions = signal<Question[]>([]);
/** The server was upgraded under this page. */
export const isOutdated = signal(false);
/** Whether the last request reached the server. */
export const isReachable = signal(true);
/** Actions that were refused or did not arrive, until they are closed. */
export const troubles = signal<{ id: number; text: string }[]>([]);
/** How many tasks each worker of the crew does at once; of those that are not here, any number. */
export const capacities = signal<Record<string, number>>({});
/** Said once to screen readers. */
export const announcement = signal("");
/** Milliseconds, once a second; stands still while the data is not live. */
export const now = signal(Date.now());
/** The same, but always. */
export const wallClock = signal(Date.now());

export const canOperate = computed(() =>
  Boolean(me.value && !me.value.read_only && me.value.scopes.includes("operate")),
);
export const canSubmit = computed(() => canOperate.value && Boolean(me.value?.can_submit ?? true));

const TROUBLE_SECONDS = 20;
let lastTrouble = 0;

/** Show why an action did not work. */
export function showTrouble(error: unknown): void {
  const id = ++lastTrouble;
  const words = error instanceof Error ? error.message : String(error);
  const hint = error instanceof ApiError ? error.hint : "";
  troubles.value = [...troubles.peek().slice(-3), { id, text: hint ? `${words}. ${hint}` : words }];
  setTimeout(() => closeTrouble(id), TROUBLE_SECONDS * 1000);
}

export function closeTrouble(id: number): void {
  troubles.value = troubles.peek().filter((each) => each.id !== id);
}

/** An action that nobody waits for says all the same why it did not work. */
export function showLostTroubles(): void {
  addEventListener("unhandledrejection", (event) => {
    if (!(event.reason instanceof ApiError)) return;
    event.preventDefault();
    if (event.reason.status !== 401) showTrouble(event.reason);
  });
}

// Preferences. Storage may be off or full; the page works without it.

export function recall(key: string): string | null {
  try {
    return localStorage.getItem(`chargehand.${key}`);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`chargehand.${key}`);
    else localStorage.setItem(`chargehand.${key}`, value);
  } catch {
    // Nothing depends on it.
  }
}

export type Theme = "system" | "light" | "dark";
const dark = typeof matchMedia === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(dark?.matches ?? false);
dark?.addEventListener("change", (event) => {
  systemDark.value = event.matches;
});

export const theme = signal<Theme>(
  (typeof localStorage === "undefined" ? null : (recall("theme") as Theme)) ?? "system",
);
export const shownTheme = computed(() =>
  theme.value === "system" ? (systemDark.value ? "dark" : "light") : theme.value,
);
export const keysOn = signal(typeof localStorage === "undefined" || recall("keys") !== "off");

export function startPreferences(): void {
  effect(() => {
    document.documentElement.dataset.theme = shownTheme.value;
    keep("theme", theme.value === "system" ? null : theme.value);
  });
  effect(() => keep("keys", keysOn.value ? null : "off"));
}

/** Exchange the token of the address for a cookie, and take it out of the address. */
export async function signInFromAddress(): Promise<void> {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  await signIn(token).catch(() => undefined);
}

export async function signIn(token: string): Promise<void> {
  await post("login", { token });
  signedOut.value = false;
  await refreshMe();
  await refreshAttention();
}

export async function refreshMe(): Promise<void> {
  try {
    const found = await get<Me>("me");
    if (me.value && me.value.version !== found.version) isOutdated.value = true;
    if (!me.value) void loadCapacities();
    me.value = found;
    signedOut.value = false;
    isReachable.value = true;
  } catch (error) {
    isReachable.value = !(error instanceof ApiError && error.status === 0);
  }
}

async function loadCapacities(): Promise<void> {
  const crew = await get<{ workers: { name: string; capacity: number | null }[] }>("crew").catch(() => null);
  const known = (crew?.workers ?? []).flatMap(({ name, capacity }) => (capacity ? [[name, capacity]] : []));
  capacities.value = Object.fromEntries(known) as Record<string, number>;
}

export async function refreshAttention(): Promise<void> {
  if (signedOut.value) return;
  try {
    const found = await get<Attention>("attention");
    const before = attention.value;
    const changed = found.questions !== before.questions || found.questions !== openQuestions.value.length;
    attention.value = found;
    if (!isReachable.value) await refreshMe();
    isReachable.value = true;
    if (changed && !document.hidden) await refreshQuestions();
    if (found.questions > before.questions)
      announcement.value = `${plural(found.questions, "question needs", "questions need")} you`;
  } catch (error) {
    isReachable.value = !(error instanceof ApiError && error.status === 0);
  }
}

export async function refreshQuestions(): Promise<void> {
  const found = await get<{ questions: Question[] }>("questions").catch(() => null);
  if (found) openQuestions.value = found.questions.filter((question) => !question.answered);
}

const VISIBLE_POLL = 4_000;
const HIDDEN_POLL = 15_000;

export function startSession(): void {
  void refreshMe().then(refreshAttention);
  const poll = async () => {
    await refreshAttention();
    setTimeout(poll, document.hidden ? HIDDEN_POLL : VISIBLE_POLL);
  };
  setTimeout(poll, VISIBLE_POLL);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void refreshAttention();
  });
  setInterval(() => {
    if (document.hidden) return;
    wallClock.value = Date.now();
    if (isReachable.value) now.value = Date.now();
  }, 1000);
}
