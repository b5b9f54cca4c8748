// What every page has around it: top bar, bars that say what is wrong or waited for, palette, help.

import { effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { dismiss, pending, sendNow, sent, told, UNDO_SECONDS, undo } from "./answers";
import { get, signedOut } from "./api";
import { ago, clean, oneLine, plural } from "./format";
import { Glyph, Logo, StateIcon, TaskStateLabel } from "./icons";
import { useKeys } from "./keys";
import { connection, dataAt, retryNow, useModel } from "./live";
import { taskName } from "./names";
import { answerWords, questionWords } from "./question_card";
import { go, href, type Page, route } from "./router";
import {
  announcement,
  attention,
  canSubmit,
  closeTrouble,
  isOutdated,
  isReachable,
  keysOn,
  me,
  openQuestions,
  refreshMe,
  shownTheme,
  signIn,
  theme,
  troubles,
  wallClock,
} from "./session";
import type { RunModel } from "./store";
import type { Question, RunRow } from "./types";
import { Button, Dialog } from "./ui";

const TAB_NAMES: Partial<Record<Page, string>> = {
  plan: "Plan",
  trace: "Trace",
  workers: "Workers",
  board: "Board",
  notes: "Notes",
  questions: "Questions",
  cost: "Cost",
  output: "Output",
  new: "New run",
  compare: "Compare",
};

const isPaletteOpen = signal(false);
export const isHelpOpen = signal(false);

function Breadcrumb() {
  const { page, run } = route.value;
  const model = useModel();
  const title = model?.run.title || run || "";
  const tab = page === "run" || page === "runs" ? "" : (TAB_NAMES[page] ?? "");
  return (
    <nav class="crumbs" aria-label="Breadcrumb">
      <ol>
        <li>
          <a href={href("runs")} aria-current={page === "runs" ? "page" : undefined}>
            Runs
          </a>
        </li>
        {run ? (
          <li>
            <a
              href={href("run", run)}
              aria-current={page === "run" ? "page" : undefined}
              title={oneLine(title, 400)}
            >
              {oneLine(title, 60)}
            </a>
          </li>
        ) : null}
        {tab ? (
          <li>
            <span aria-current="page">{tab}</span>
          </li>
        ) : null}
      </ol>
    </nav>
  );
}

function ConnectionDot() {
  const state = connection.value;
  const isDown = !isReachable.value || state === "lost";
  const replaying = route.value.query.at !== undefined;
  // It changes with every frame of the stream, and is of interest when none comes.
  const heardAt = isDown ? dataAt.value : 0;
  const age = heardAt ? ago(new Date(heardAt).toISOString(), wallClock.value) : "";
  const word = replaying
    ? "replay"
    : isDown
      ? "offline"
      : state === "connecting"
        ? "connecting"
        : state === "live"
          ? "live"
          : "";
  const title = isDown
    ? `No connection. The data is from ${age || "before"}.`
    : state === "live"
      ? "Connected: changes appear as they happen"
      : "Connected";
  return (
    <output class={`dot ${isDown ? "is-down" : state}`} title={title} aria-label={title}>
      <i />
      <span>{word}</span>
    </output>
  );
}

function ThemeButton() {
  const next =
    theme.value === "system"
      ? shownTheme.value === "dark"
        ? "light"
        : "dark"
      : theme.value === "dark"
        ? "light"
        : "dark";
  const isSystem = theme.value === "system";
  return (
    <Button
      kind="quiet"
      aria-label={`Theme: ${isSystem ? "system" : theme.value}. Switch to ${next}`}
      title={`Theme: ${isSystem ? "as the system" : theme.value}. Double click: as the system`}
      onClick={() => {
        theme.value = next;
      }}
      onDblClick={() => {
        theme.value = "system";
      }}
    >
      <Glyph name={shownTheme.value === "dark" ? "moon" : "sun"} />
    </Button>
  );
}

function TopBar() {
  const { page, run } = route.value;
  const waiting = attention.value.questions;
  return (
    <header class="top">
      <a class="brand" href={href("runs")} aria-label="chargehand: all runs">
        <Logo />
        <span>chargehand</span>
      </a>
      <Breadcrumb />
      <nav class="top-nav" aria-label="Pages">
        <a href={href("questions")} aria-current={page === "questions" && !run ? "page" : undefined}>
          Questions
          {waiting ? <span class="badge needs">{waiting}</span> : null}
        </a>
        <a href={href("workers")} aria-current={page === "workers" && !run ? "page" : undefined}>
          Workers
        </a>
        {canSubmit.value ? (
          <a href={href("new")} aria-current={page === "new" ? "page" : undefined}>
            New run
          </a>
        ) : null}
      </nav>
      <Button
        kind="plain"
        class="palette-button"
        aria-keyshortcuts="Control+K"
        onClick={() => {
          isPaletteOpen.value = true;
        }}
      >
        <Glyph name="search" />
        <span>Search or jump to</span>
        <kbd aria-hidden="true">Ctrl K</kbd>
      </Button>
      {me.value?.read_only ? <span class="tag">read only</span> : null}
      <ConnectionDot />
      <ThemeButton />
      <Button
        kind="quiet"
        aria-label="Keys and help"
        onClick={() => {
          isHelpOpen.value = true;
        }}
      >
        <Glyph name="help" />
      </Button>
    </header>
  );
}

/** The orange bar: shown only while a person is needed. */
/** How many tasks wait for these answers. One that waits for several of them counts once, as far as that is known. */
export function waitsBehindAll(open: readonly Question[], model: RunModel | null): number {
  const plans = open.filter((question) => question.kind === "plan" || question.task.startsWith("@"));
  if (model && !plans.length) return model.waitsBehind(...open.map((question) => question.task));
  const most = new Map<string, number>();
  for (const { run, waits_behind } of open) most.set(run, Math.max(most.get(run) ?? 0, waits_behind));
  return [...most.values()].reduce((sum, each) => sum + each, 0);
}

export function NeedsBar({ run }: { run: string | null }) {
  const { page, query } = route.value;
  const model = useModel();
  // The list of runs has a block of its own for this.
  if (query.at !== undefined || page === "questions" || page === "runs") return null;
  const hidden = new Set(pending.value.filter((each) => !each.error).map((each) => each.question.id));
  // The stream of a run knows of its questions before the next poll does.
  const known = run && model?.run.id === run ? model.openQuestions : openQuestions.value;
  const open = known.filter((question) => !hidden.has(question.id) && !sent.value[question.id]);
  const first = open[0];
  // The page of a plan asks for its approval itself.
  if (!first || (page === "plan" && first.kind === "plan")) return null;
  const behind = waitsBehindAll(open, run && model?.run.id === run ? model : null);
  const target =
    first.kind === "plan" ? href("plan", first.run) : href("questions", run, { question: first.id });
  return (
    <section class="needs-bar" aria-label="Needs you">
      <StateIcon state="needs" />
      <strong>{open.length === 1 ? "1 question needs you" : `${open.length} questions need you`}</strong>
      <span class="what">{questionWords(first, 160)}</span>
      {behind ? (
        <span class="behind">
          {plural(behind, "task waits", "tasks wait")} behind {open.length === 1 ? "it" : "them"}
        </span>
      ) : null}
      <a class="button needs" href={target}>
        {first.kind === "plan" ? "Review the plan" : "Answer"}
        <kbd aria-hidden="true">n</kbd>
      </a>
    </section>
  );
}

/** The next question of this run, else of any; keys and the palette lead there. */
export function goToNextQuestion(): void {
  const { run, query } = route.value;
  const model = useModel();
  const here = run && model?.run.id === run ? model.openQuestions : [];
  const list = here.length ? here : openQuestions.value;
  const next =
    list[(list.findIndex((question) => question.id === query.question) + 1) % Math.max(1, list.length)];
  if (!next) return;
  if (next.kind === "plan") go("plan", next.run);
  else go("questions", here.length ? run : null, { question: next.id });
}

function SystemBars() {
  const lostFor = connection.value === "lost" && dataAt.value ? wallClock.value - dataAt.value : 0;
  if (isOutdated.value)
    return (
      <div class="system-bar" role="alert">
        <span>The server was upgraded. Reload to get the page that belongs to it.</span>
        <Button onClick={() => location.reload()}>Reload</Button>
      </div>
    );
  if (!isReachable.value || (connection.value === "lost" && (lostFor > 3000 || lostFor === 0)))
    return (
      <div class="system-bar" role="alert">
        <span>
          No connection to the server.{" "}
          {dataAt.value
            ? `What you see is from ${ago(new Date(dataAt.value).toISOString(), wallClock.value)}. `
            : ""}
          Trying again by itself.
        </span>
        <Button
          onClick={() => {
            void refreshMe();
            retryNow();
          }}
        >
          Retry
        </Button>
      </div>
    );
  return null;
}

function Toasts() {
  const [, repaint] = useState(0);
  useEffect(() => {
    if (!pending.value.length) return;
    const timer = setInterval(() => repaint((n) => n + 1), 250);
    return () => clearInterval(timer);
  }, [pending.value.length]);
  if (!pending.value.length && !told.value.length && !troubles.value.length) return null;
  return (
    <div class="toasts">
      {troubles.value.map(({ id, text }) => (
        <div class="toast" key={`trouble ${id}`} role="alert">
          <StateIcon state="failed" />
          <span>That did not work: {oneLine(text, 400)}</span>
          <Button onClick={() => closeTrouble(id)}>Close</Button>
        </div>
      ))}
      {told.value.map(({ question, answered }) => (
        <div class="toast" key={`told ${question.id}`} role="status">
          <span>
            {taskName(question.task)} was answered by {clean(answered.by)}:{" "}
            {answerWords(question, answered.text)}
          </span>
          <Button onClick={() => dismiss(question.id)}>Close</Button>
        </div>
      ))}
      {pending.value.map((each) => {
        const left = Math.max(0, Math.ceil((each.dueAt - Date.now()) / 1000));
        return (
          <div class="toast" key={each.question.id} role="status">
            {each.error ? (
              <>
                <span>Not sent: {each.error}</span>
                <Button onClick={() => sendNow(each.question.id)}>Send again</Button>
                <Button onClick={() => undo(each.question.id)}>Discard</Button>
              </>
            ) : (
              <>
                <span>
                  {each.question.kind === "plan"
                    ? "The rejection of the plan"
                    : `Answer “${oneLine(each.text, 60)}”`}{" "}
                  is sent in {Math.min(left, UNDO_SECONDS)} s
                </span>
                <Button onClick={() => undo(each.question.id)}>Undo</Button>
                <Button onClick={() => sendNow(each.question.id)}>Send now</Button>
              </>
            )}
          </div>
        );
      })}
    </div>
  );
}

interface PaletteEntry {
  label: string;
  hint: string;
  icon?: ComponentChildren;
  act: () => void;
}

function usePaletteEntries(runs: RunRow[]): PaletteEntry[] {
  const model = useModel();
  const { run } = route.value;
  return useMemo(() => {
    const pageEntry = (page: Page, label: string, hint: string, of: string | null = null): PaletteEntry => ({
      label,
      hint,
      act: () => go(page, of),
    });
    const entries: PaletteEntry[] = [];
    if (openQuestions.value.length)
      entries.push({
        label: "Answer the next question",
        hint: "n",
        icon: <StateIcon state="needs" />,
        act: goToNextQuestion,
      });
    if (run) {
      entries.push(
        pageEntry("run", "This run: graph and timeline", "g r", run),
        pageEntry("plan", "This run: plan", "g p", run),
        pageEntry("trace", "This run: trace", "g t", run),
        pageEntry("workers", "This run: workers", "g w", run),
        pageEntry("board", "This run: board", "g m", run),
        pageEntry("notes", "This run: notes", "g n", run),
        pageEntry("questions", "This run: questions", "g q", run),
        pageEntry("cost", "This run: cost", "g e", run),
        pageEntry("output", "This run: output", "g o", run),
      );
      if (model) entries.push({ label: "Replay this run", hint: "", act: () => go("run", run, { at: "1" }) });
    }
    entries.push(
      pageEntry("runs", "All runs", "g g"),
      pageEntry("questions", "All questions", "page"),
      pageEntry("workers", "All workers", "page"),
    );
    if (canSubmit.value) entries.push(pageEntry("new", "New run", "page"));
    entries.push({
      label: "Switch between light and dark",
      hint: "",
      act: () => {
        theme.value = shownTheme.value === "dark" ? "light" : "dark";
      },
    });
    for (const row of model?.tasks.values() ?? [])
      entries.push({
        label: `${taskName(row.id)}  ${oneLine(row.description, 80)}`,
        hint: "task",
        icon: <StateIcon state={row.state} />,
        act: () => go("run", run, { task: row.id }),
      });
    for (const row of runs)
      entries.push({ label: oneLine(row.title, 90), hint: row.id, act: () => go("run", row.id) });
    return entries;
  }, [run, model?.seq, runs]);
}

function Palette() {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [runs, setRuns] = useState<RunRow[]>([]);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    get<{ runs: RunRow[] }>("runs?limit=50").then(
      (found) => setRuns(found.runs),
      () => undefined,
    );
  }, []);
  const entries = usePaletteEntries(runs);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries
    .filter((entry) => words.every((word) => `${entry.label} ${entry.hint}`.toLowerCase().includes(word)))
    .slice(0, 60);
  const at = Math.min(chosen, Math.max(0, found.length - 1));
  const close = () => {
    isPaletteOpen.value = false;
  };
  const pick = (entry: PaletteEntry | undefined) => {
    if (!entry) return;
    close();
    entry.act();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") pick(found[at]);
    else if (event.key === "ArrowDown") setChosen(Math.min(at + 1, found.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(at - 1, 0));
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    list.current?.children[at]?.scrollIntoView({ block: "nearest" });
  }, [at]);
  return (
    <Dialog title="Search or jump to" onClose={close}>
      <input
        class="palette-input"
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${at}` : undefined}
        aria-label="Page, task or run"
        placeholder="Page, task or run"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
      />
      <ul id="palette-list" class="palette-list" role="listbox" aria-label="Results" ref={list}>
        {found.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the keys
          // biome-ignore lint/a11y/useFocusableInteractive: the field above keeps the focus
          <li
            key={`${entry.hint}${entry.label}`}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => pick(entry)}
            onMouseMove={() => setChosen(index)}
          >
            {entry.icon ?? <span class="icon" />}
            <span class="label">{entry.label}</span>
            <span class="hint">{entry.hint}</span>
          </li>
        ))}
      </ul>
      {found.length === 0 ? <p class="hint">Nothing fits “{text}”.</p> : null}
    </Dialog>
  );
}

const KEYS: readonly [string, readonly [string, string][]][] = [
  [
    "Everywhere",
    [
      ["?", "this help"],
      ["Ctrl K", "search or jump to"],
      ["n", "next question that needs you"],
      ["/", "filter"],
      ["Esc", "clear, close"],
    ],
  ],
  [
    "Pages",
    [
      ["g g", "all runs"],
      ["g r", "run"],
      ["g p", "plan"],
      ["g t", "trace"],
      ["g w", "workers"],
      ["g m", "board (shared memory)"],
      ["g n", "notes"],
      ["g q", "questions"],
      ["g e", "cost (expenses)"],
      ["g o", "output"],
    ],
  ],
  [
    "Graph",
    [
      ["j  k", "next, previous task"],
      ["h  l", "to what it needs, to what it unblocks"],
      ["Enter", "open"],
      ["e", "next failed task"],
      ["c", "critical path"],
      ["f", "follow the work"],
      ["0", "fit all"],
      ["[  ]", "fold, open a stack"],
    ],
  ],
  [
    "Timeline and replay",
    [
      ["w  s", "zoom in, zoom out"],
      ["a  d", "earlier, later"],
      ["Space", "play, pause a replay"],
      [",  .", "one event back, forward"],
    ],
  ],
  [
    "Questions and lists",
    [
      ["1 – 9", "choose an answer"],
      ["Ctrl Enter", "send the answer"],
      ["j  k", "next, previous row"],
      ["x", "mark a run to compare"],
    ],
  ],
];

function Help() {
  return (
    <Dialog
      title="Keys"
      wide
      onClose={() => {
        isHelpOpen.value = false;
      }}
    >
      <div class="help-columns">
        {KEYS.map(([group, keys]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {keys.map(([key, what]) => (
                <div key={key}>
                  <dt>
                    <kbd>{key}</kbd>
                  </dt>
                  <dd>{what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <section>
          <h3>What the marks mean</h3>
          <ul class="legend">
            {(
              [
                "waiting",
                "ready",
                "running",
                "retrying",
                "needs",
                "done",
                "failed",
                "skipped",
                "cancelled",
              ] as const
            ).map((state) => (
              <li key={state}>
                <TaskStateLabel state={state} />
              </li>
            ))}
          </ul>
          <p class="hint">
            Orange always means that a person is needed. The bold outline is the critical path.
          </p>
        </section>
      </div>
      <footer class="dialog-foot">
        <label class="check">
          <input
            type="checkbox"
            checked={keysOn.value}
            onChange={(event) => {
              keysOn.value = event.currentTarget.checked;
            }}
          />
          Single-letter keys are on
        </label>
        <span class="hint">
          {me.value ? `chargehand ${me.value.version}` : ""}
          {me.value?.namespace ? ` · namespace ${me.value.namespace}` : ""}
        </span>
      </footer>
    </Dialog>
  );
}

function SignIn() {
  const [token, setToken] = useState("");
  const [fault, setFault] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await signIn(token.trim());
    } catch (error) {
      setFault((error as Error).message);
    }
  };
  return (
    <main class="sign-in" id="main">
      <Logo />
      <h1>Sign in</h1>
      <p>
        This browser has no valid token. <code>chargehand serve</code> printed a link that contains it when it
        started: open that link, or paste the token here.
      </p>
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input
          id="token"
          type="password"
          autocomplete="off"
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
          aria-describedby="token-fault"
        />
        <p id="token-fault" class="fault" role="alert">
          {fault}
        </p>
        <Button kind="primary" type="submit" disabled={!token.trim()}>
          Sign in
        </Button>
      </form>
      <p class="hint">Scrolled away? Stop the server and start it again; it prints the link anew.</p>
    </main>
  );
}

export function startTitle(): void {
  effect(() => {
    const { page, run } = route.value;
    const waiting = attention.value.questions;
    const name = page === "runs" ? "Runs" : (TAB_NAMES[page] ?? "Run");
    document.title = `${waiting ? `(${waiting}) ` : ""}${name}${run ? ` · ${run}` : ""} · chargehand`;
  });
}

export function Frame({ children }: { children: ComponentChildren }) {
  const { run } = route.value;
  const toPage = (page: Page) => () => {
    if (run) go(page, run);
    else if (page === "workers" || page === "questions") go(page);
  };
  useKeys({
    "?": () => {
      isHelpOpen.value = true;
    },
    "Ctrl+k": () => {
      isPaletteOpen.value = !isPaletteOpen.value;
    },
    n: goToNextQuestion,
    "g g": () => go("runs"),
    "g r": () => (run ? go("run", run) : go("runs")),
    "g p": toPage("plan"),
    "g t": toPage("trace"),
    "g w": toPage("workers"),
    "g m": toPage("board"),
    "g n": toPage("notes"),
    "g q": toPage("questions"),
    "g e": toPage("cost"),
    "g o": toPage("output"),
  });
  if (signedOut.value) return <SignIn />;
  return (
    <>
      <a class="skip" href="#main" onClick={() => document.getElementById("main")?.focus()}>
        Skip to content
      </a>
      <TopBar />
      <SystemBars />
      {run ? null : <NeedsBar run={null} />}
      <main id="main" tabIndex={-1} class={`page page-${route.value.page}`}>
        {children}
      </main>
      <Toasts />
      <div class="visually-hidden" role="status" aria-live="polite">
        {announcement.value}
      </div>
      {isPaletteOpen.value ? <Palette /> : null}
      {isHelpOpen.value ? <Help /> : null}
    </>
  );
}
