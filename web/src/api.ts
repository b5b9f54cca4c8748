// The HTTP client. Addresses are relative to the base, so a proxy may put the server under any path.

import { signal } from "@preact/signals";

export interface Fault {
  task: string;
  field: string;
  message: string;
}

/** What the server refused, and what it says about it. */
export class ApiError extends Error {
  readonly status: number;
  readonly kind: string;
  readonly hint: string;
  readonly body: Record<string, unknown>;

  constructor(status: number, body: Record<string, unknown>) {
    const error = (body.error ?? {}) as { kind?: string; message?: string; hint?: string };
    super(error.message || (status ? `the server answered ${status}` : "the server cannot be reached"));
    this.status = status;
    this.kind = error.kind ?? "";
    this.hint = error.hint ?? "";
    this.body = body;
  }

  /** Faults of a plan or a request, by task and field. */
  get faults(): Fault[] {
    return Array.isArray(this.body.faults) ? (this.body.faults as Fault[]) : [];
  }
}

/** Set when the server no longer knows this browser: the shell shows how to sign in. */
export const signedOut = signal(false);

export function apiUrl(path: string): string {
  return new URL(`api/v1/${path}`, document.baseURI).href;
}

async function request(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<unknown> {
  let response: Response;
  try {
    response = await fetch(apiUrl(path), {
      method,
      credentials: "same-origin",
      cache: "no-store",
      headers:
        method === "GET" ? headers : { "Content-Type": "application/json", "X-Chargehand": "1", ...headers },
      ...(method === "GET" ? {} : { body: JSON.stringify(body ?? {}) }),
    });
  } catch {
    throw new ApiError(0, {});
  }
  if (response.status === 401 && path !== "login") signedOut.value = true;
  const text = await response.text();
  let parsed: unknown = {};
  try {
    parsed = text ? JSON.parse(text) : {};
  } catch {
    parsed = { error: { message: text.slice(0, 300) } };
  }
  if (!response.ok) throw new ApiError(response.status, parsed as Record<string, unknown>);
  return parsed;
}

export async function get<T>(path: string): Promise<T> {
  return (await request("GET", path)) as T;
}

export async function post<T>(path: string, body?: unknown, headers?: Record<string, string>): Promise<T> {
  return (await request("POST", path, body, headers)) as T;
}

export async function put<T>(path: string, body: unknown, headers?: Record<string, string>): Promise<T> {
  return (await request("PUT", path, body, headers)) as T;
}

export const runPath = (run: string, rest: string): string => `runs/${encodeURIComponent(run)}/${rest}`;
