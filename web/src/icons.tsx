// State is colour, icon and word together. The icons are drawn at 14 px.

import { STATE_WORDS } from "./drawing";
import type { RunState, TaskState } from "./types";

export const taskWord = (state: TaskState): string => STATE_WORDS[state];

type Mark = TaskState | "paused" | "partial";

const RUN_AS: Record<RunState, [Mark, string]> = {
  submitted: ["waiting", "submitted"],
  planning: ["running", "planning"],
  running: ["running", "running"],
  waiting: ["needs", "needs you"],
  paused: ["paused", "paused"],
  stopping: ["running", "stopping"],
  interrupted: ["skipped", "interrupted"],
  parked: ["paused", "parked"],
  succeeded: ["done", "done"],
  partial: ["partial", "partial"],
  failed: ["failed", "failed"],
  cancelled: ["cancelled", "cancelled"],
  unreadable: ["failed", "unreadable"],
};

export const runWord = (state: RunState): string => RUN_AS[state]?.[1] ?? state;

function Shape({ state }: { state: Mark }) {
  switch (state) {
    case "waiting":
      return <circle cx="7" cy="7" r="5" stroke-dasharray="1.6 2.33" />;
    case "ready":
      return <circle cx="7" cy="7" r="5" />;
    case "running":
      return (
        <>
          <circle cx="7" cy="7" r="5" opacity=".25" />
          <path d="M7 2a5 5 0 0 1 5 5" class="spin" />
        </>
      );
    case "retrying":
      return <path d="M11.8 5.6A5 5 0 1 0 12 7.6M12 2.6v3.2H8.8" />;
    case "needs":
      return <path d="M7 1.8 13 12.2H1zM7 5.8v2.8M7 10.4v.1" />;
    case "done":
      return <path d="m2.6 7.4 3 3 5.8-6.4" />;
    case "failed":
      return <path d="m3.2 3.2 7.6 7.6m0-7.6-7.6 7.6" />;
    case "skipped":
      return <path d="M2.8 7h8.4" />;
    case "cancelled":
      return (
        <>
          <circle cx="7" cy="7" r="5" />
          <path d="m3.6 10.4 6.8-6.8" />
        </>
      );
    case "paused":
      return <path d="M4.8 3v8M9.2 3v8" />;
    case "partial": // half of it is there
      return (
        <>
          <circle cx="7" cy="7" r="5" />
          <path d="M7 2a5 5 0 0 0 0 10z" fill="currentColor" />
        </>
      );
  }
}

export function StateIcon({ state }: { state: Mark }) {
  return (
    <svg class={`icon is-${state}`} viewBox="0 0 14 14" aria-hidden="true">
      <Shape state={state} />
    </svg>
  );
}

export function TaskStateLabel({ state }: { state: TaskState }) {
  return (
    <span class={`state is-${state}`}>
      <StateIcon state={state} />
      {taskWord(state)}
    </span>
  );
}

export function RunStateLabel({ state }: { state: RunState }) {
  const [shape, word] = RUN_AS[state] ?? ["waiting", state];
  return (
    <span class={`state is-${shape}`}>
      <StateIcon state={shape} />
      {word}
    </span>
  );
}

const GLYPHS = {
  search: "M6.2 2.4a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6zM9 9l3 3",
  sun: "M7 4.4a2.6 2.6 0 1 0 0 5.2 2.6 2.6 0 0 0 0-5.2zM7 1v1.2M7 11.8V13M1 7h1.2M11.8 7H13M2.8 2.8l.8.8M10.4 10.4l.8.8M11.2 2.8l-.8.8M3.6 10.4l-.8.8",
  moon: "M11.8 8.4A5.2 5.2 0 0 1 5.6 2.2a5.2 5.2 0 1 0 6.2 6.2z",
  auto: "M7 2a5 5 0 1 0 0 10A5 5 0 0 0 7 2zM7 2v10",
  close: "m3.5 3.5 7 7m0-7-7 7",
  plus: "M7 3v8M3 7h8",
  minus: "M3 7h8",
  fit: "M2.5 5V2.5H5M9 2.5h2.5V5M11.5 9v2.5H9M5 11.5H2.5V9",
  copy: "M5 5V2.5h6.5V9H9M2.5 5H9v6.5H2.5z",
  help: "M5.2 5.2a1.9 1.9 0 1 1 2.7 1.7c-.6.3-.9.7-.9 1.4M7 10.6v.1M7 1.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z",
  play: "M4.5 2.8v8.4L11 7z",
  pause: "M4.8 3v8M9.2 3v8",
  back: "M8.8 3 4.8 7l4 4",
  next: "M5.2 3l4 4-4 4",
  download: "M7 2v7M4 6.5 7 9.5l3-3M2.5 12h9",
  trash: "M3 4h8M5.5 4V2.5h3V4M4 4l.6 7.5h4.8L10 4",
} as const;

export function Glyph({ name }: { name: keyof typeof GLYPHS }) {
  return (
    <svg class="icon" viewBox="0 0 14 14" aria-hidden="true">
      <path d={GLYPHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 20 20" aria-hidden="true">
      <circle cx="4" cy="10" r="2.6" />
      <circle cx="15.5" cy="4" r="2.6" />
      <circle cx="15.5" cy="16" r="2.6" />
      <path d="m6.4 8.8 6.7-3.5M6.4 11.2l6.7 3.5" />
    </svg>
  );
}
