// Addresses of the dashboard. Selection, filters, fold state and replay position live in the query.

import { signal } from "@preact/signals";

export type Page =
  | "runs"
  | "new"
  | "run"
  | "plan"
  | "trace"
  | "workers"
  | "board"
  | "notes"
  | "questions"
  | "cost"
  | "output"
  | "compare"
  | "missing";

export interface Route {
  page: Page;
  /** The run, on pages of one run. */
  run: string | null;
  query: Readonly<Record<string, string>>;
}

const RUN_PAGES: readonly Page[] = [
  "plan",
  "trace",
  "workers",
  "board",
  "notes",
  "questions",
  "cost",
  "output",
];
const TOP_PAGES: readonly Page[] = ["new", "workers", "questions", "compare"];

/** The route at a path below the base, such as "/runs/r1/plan?task=t2". */
export function parse(address: string): Route {
  const [path = "", search = ""] = address.split("#")[0]?.split("?") ?? [];
  const query = Object.fromEntries(new URLSearchParams(search));
  const parts = path.split("/").filter(Boolean).map(decoded);
  const [first, id, tab] = parts;
  if (parts.length === 0) return { page: "runs", run: null, query };
  if (first === "runs" && parts.length === 1) return { page: "runs", run: null, query };
  if (first === "runs" && id && parts.length === 2) return { page: "run", run: id, query };
  if (first === "runs" && id && parts.length === 3 && RUN_PAGES.includes(tab as Page))
    return { page: tab as Page, run: id, query };
  if (parts.length === 1 && TOP_PAGES.includes(first as Page))
    return { page: first as Page, run: null, query };
  return { page: "missing", run: null, query };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The path of a route, without a leading slash: it is relative to the base. */
export function path(
  page: Page,
  run: string | null = null,
  query: Record<string, string | null> = {},
): string {
  const where = run
    ? `runs/${encodeURIComponent(run)}${page === "run" ? "" : `/${page}`}`
    : page === "runs"
      ? ""
      : page;
  let search = "";
  for (const name in query) {
    const value = query[name];
    if (value) search += `${search ? "&" : "?"}${encodeURIComponent(name)}=${encodeURIComponent(value)}`;
  }
  return where + search;
}

const BASE = typeof document === "undefined" ? "/" : new URL(document.baseURI).pathname;
const base = (): string => BASE;

function current(): Route {
  if (typeof location === "undefined") return parse("/");
  const below = location.pathname.startsWith(base())
    ? location.pathname.slice(base().length)
    : location.pathname;
  return parse(`/${below}${location.search}`);
}

export const route = signal<Route>(current());

/** The address of a route, for `href`. */
export function href(
  page: Page,
  run: string | null = null,
  query: Record<string, string | null> = {},
): string {
  return base() + path(page, run, query);
}

export function go(page: Page, run: string | null = null, query: Record<string, string | null> = {}): void {
  history.pushState(null, "", href(page, run, query));
  route.value = current();
  scrollTo(0, 0);
}

/** Change the query in place. `null` removes a key. Makes no entry in the browser's history. */
export function setQuery(changes: Record<string, string | null>): void {
  const { page, run, query } = route.peek();
  history.replaceState(history.state, "", href(page, run, { ...query, ...changes }));
  route.value = current();
}

/** Follow the back button, and links inside the page without loading it anew. */
export function listen(): void {
  addEventListener("popstate", () => {
    route.value = current();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey)
      return;
    const link = (event.target as Element | null)?.closest("a");
    if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(base())) return;
    if (link.hasAttribute("download") || link.pathname.startsWith(`${base()}api/`)) return;
    event.preventDefault();
    if (link.getAttribute("href")?.startsWith("#")) return;
    history.pushState(null, "", link.pathname + link.search);
    route.value = current();
    scrollTo(0, 0);
  });
}
