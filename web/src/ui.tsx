// Small parts that several pages share.

import type { ButtonHTMLAttributes, ComponentChildren, FunctionComponent } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type ApiError, get } from "./api";
import { clean } from "./format";
import { Glyph } from "./icons";
import { type Block, type Inline, parseMarkdown } from "./markdown";
import { href } from "./router";
import { TASK_STATES } from "./store";
import type { TaskCounts, TaskState } from "./types";

/** Windows this narrow show one column, as styles.css has it. */
export const ONE_COLUMN = "(max-width: 820px)";

/** A bar of all tasks by state: finished work first and pale, future work last. */
const BAR_ORDER: readonly TaskState[] = [
  "done",
  "failed",
  "cancelled",
  "skipped",
  "running",
  "retrying",
  "needs",
  "ready",
  "waiting",
];

export function SegmentBar({ counts }: { counts: TaskCounts }) {
  const label = TASK_STATES.filter((state) => counts[state] > 0)
    .map((state) => `${counts[state]} ${state === "needs" ? "need you" : state}`)
    .join(", ");
  return (
    <div class="bar" role="img" aria-label={label || "no tasks yet"} title={label}>
      {BAR_ORDER.map((state) =>
        counts[state] ? <i key={state} class={`is-${state}`} style={{ flexGrow: counts[state] }} /> : null,
      )}
    </div>
  );
}

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "plain" | "primary" | "needs" | "danger" | "quiet";
  /** A key that does the same. */
  hotkey?: string;
}

export function Button({ kind = "plain", hotkey, children, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} class={`button ${kind} ${(rest.class as string) ?? ""}`}>
      {children}
      {hotkey ? <kbd aria-hidden="true">{hotkey}</kbd> : null}
    </button>
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <Button kind="quiet" class="copy" onClick={copy} aria-label={copied ? "Copied" : label} title={label}>
      <Glyph name="copy" />
      <span>{copied ? "Copied" : label}</span>
    </Button>
  );
}

/** A command to type, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code>{text}</code>
      <CopyButton text={text} />
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function ErrorBox({ error, retry }: { error: ApiError; retry?: () => void }) {
  const unreachable = error.status === 0;
  return (
    <div class="error-box" role="alert">
      <strong>{unreachable ? "The server cannot be reached" : clean(error.message)}</strong>
      <p>
        {unreachable ? (
          <>
            Is <code>chargehand serve</code> still running? The page goes on by itself when it is back.
          </>
        ) : (
          clean(error.hint)
        )}
      </p>
      {retry ? <Button onClick={retry}>Retry</Button> : null}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 250);
    return () => clearTimeout(timer);
  }, []);
  return <p class="loading">{isLate ? `Loading ${what}…` : ""}</p>;
}

/** A dialog over the page. Escape closes it; focus stays inside and goes back afterwards. */
export function Dialog({
  title,
  onClose,
  children,
  wide,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    dialog.current?.showModal();
    // What one came for is the field, not the button that closes.
    dialog.current?.querySelector<HTMLElement>("input:not([type=checkbox]), textarea, select")?.focus();
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? "wide" : ""}
      aria-labelledby={id}
      onClose={onClose}
      onCancel={(event) => {
        event.preventDefault();
        dialog.current?.close();
      }}
      onMouseDown={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      <div class="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" aria-label="Close" onClick={() => dialog.current?.close()}>
            <Glyph name="close" />
          </Button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export function Field({
  label,
  hint,
  error,
  children,
}: {
  label: string;
  hint?: ComponentChildren;
  error?: string;
  children: (id: string, described: string) => ComponentChildren;
}) {
  const id = useId();
  return (
    <div class={`field ${error ? "has-error" : ""}`}>
      <label for={id}>{label}</label>
      {children(id, `${id}-hint`)}
      <p id={`${id}-hint`} class={error ? "fault" : "hint"}>
        {error || hint}
      </p>
    </div>
  );
}

/** Buttons of which one is on. */
export function Chips<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: T;
  options: readonly { value: T; label: string; count?: number | undefined }[];
  onChange: (value: T) => void;
}) {
  return (
    <fieldset class="chips" aria-label={label}>
      {options.map((option) => (
        <button
          key={option.value}
          type="button"
          aria-pressed={option.value === value}
          onClick={() => onChange(option.value)}
        >
          {option.label}
          {option.count === undefined ? null : <span class="num">{option.count}</span>}
        </button>
      ))}
    </fieldset>
  );
}

export function Meter({
  used,
  limit,
  label,
}: {
  used: number;
  limit: number | null | undefined;
  label: string;
}) {
  if (limit === null || limit === undefined) return null;
  const share = limit > 0 ? Math.min(1, used / limit) : 1;
  return (
    <div class="meter" role="img" aria-label={`${label}: ${Math.round(share * 100)} % of the limit`}>
      <i class={share >= 0.9 ? "is-high" : ""} style={{ width: `${share * 100}%` }} />
    </div>
  );
}

// Markdown of models. No HTML, no images; links say where they lead.

function Parts({ parts, run }: { parts: Inline[]; run: string | null }) {
  return (
    <>
      {parts.map((part, index) => (
        <Part key={index} part={part} run={run} />
      ))}
    </>
  );
}

function Part({ part, run }: { part: Inline; run: string | null }) {
  switch (part.is) {
    case "text":
      return <>{part.text}</>;
    case "code":
      return <code>{part.text}</code>;
    case "break":
      return <br />;
    case "strong":
      return (
        <strong>
          <Parts parts={part.parts} run={run} />
        </strong>
      );
    case "em":
      return (
        <em>
          <Parts parts={part.parts} run={run} />
        </em>
      );
    case "strike":
      return (
        <s>
          <Parts parts={part.parts} run={run} />
        </s>
      );
    case "task":
      return run ? (
        <a class="cite" href={href("run", run, { task: part.id })} title={`Task ${part.id}`}>
          {part.id}
        </a>
      ) : (
        <span class="cite">{part.id}</span>
      );
    case "link":
      return (
        <>
          <a href={part.href} target="_blank" rel="noopener noreferrer nofollow">
            <Parts parts={part.parts} run={run} />
          </a>
          {part.host ? <span class="host"> ({part.host})</span> : null}
        </>
      );
  }
}

function BlockView({ block, run }: { block: Block; run: string | null }) {
  switch (block.is) {
    case "heading": {
      // The page has its own h1 and h2.
      const Tag = `h${Math.min(6, block.level + 2)}` as "h3";
      return (
        <Tag>
          <Parts parts={block.parts} run={run} />
        </Tag>
      );
    }
    case "paragraph":
      return (
        <p>
          <Parts parts={block.parts} run={run} />
        </p>
      );
    case "code":
      return (
        <pre>
          <code>{block.text}</code>
        </pre>
      );
    case "quote":
      return (
        <blockquote>
          <Blocks blocks={block.blocks} run={run} />
        </blockquote>
      );
    case "rule":
      return <hr />;
    case "list": {
      const items = block.items.map((item, index) => (
        <li key={index}>
          <Blocks blocks={item} run={run} />
        </li>
      ));
      return block.ordered ? <ol start={block.start}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return (
        <div class="table-scroll">
          <table>
            <thead>
              <tr>
                {block.head.map((cell, index) => (
                  <th key={index} scope="col">
                    <Parts parts={cell} run={run} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {block.rows.map((row, y) => (
                <tr key={y}>
                  {row.map((cell, x) => (
                    <td key={x}>
                      <Parts parts={cell} run={run} />
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
  }
}

function Blocks({ blocks, run }: { blocks: Block[]; run: string | null }) {
  return (
    <>
      {blocks.map((block, index) => (
        <BlockView key={index} block={block} run={run} />
      ))}
    </>
  );
}

export function Markdown({
  text,
  run = null,
  tasks,
}: {
  text: string;
  run?: string | null;
  tasks?: ReadonlySet<string>;
}) {
  return (
    <div class="markdown">
      <Blocks blocks={parseMarkdown(clean(text), tasks)} run={run} />
    </div>
  );
}

/** Text as it is, in a box that scrolls. */
export function Raw({ text, label }: { text: string; label: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard
    <pre class="raw" tabIndex={0} aria-label={label}>
      {clean(text)}
    </pre>
  );
}

/** A page that is loaded when it is first shown. */
export function lazyPage<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let loaded: FunctionComponent<P> | null = null;
  return function LazyPage(props: P) {
    const [Page, setPage] = useState<FunctionComponent<P> | null>(() => loaded);
    const [isGone, setGone] = useState(false);
    useEffect(() => {
      if (loaded) return;
      load().then(
        (page) => {
          loaded = page;
          setPage(() => page);
        },
        () => setGone(true), // the server was upgraded, or cannot be reached
      );
    }, []);
    // Drafts and the address survive a reload; it gets the files that belong to the server that is there now.
    usePolling(
      () =>
        void get("health").then(
          () => location.reload(),
          () => undefined,
        ),
      1000,
      isGone,
    );
    if (Page) return <Page {...props} />;
    if (!isGone) return <Loading what="the page" />;
    return (
      <Empty title="This page could not be loaded">
        <p>The server cannot be reached, or was upgraded meanwhile.</p>
        <Button onClick={() => location.reload()}>Reload</Button>
      </Empty>
    );
  };
}

/** Fetch once, and again when `key` changes. Gives the last value while the next is loading. */
export function useFetched<T>(key: string | null, fetcher: () => Promise<T>) {
  const [state, setState] = useState<{ key: string | null; value: T | null; error: ApiError | null }>({
    key: null,
    value: null,
    error: null,
  });
  const newest = useRef(0);
  const load = () => {
    newest.current += 1;
    const mine = newest.current;
    fetcher().then(
      (value) => mine === newest.current && setState({ key, value, error: null }),
      (error: ApiError) =>
        mine === newest.current &&
        setState((old) => ({ key, value: old.key === key ? old.value : null, error })),
    );
  };
  useEffect(() => {
    if (key !== null) load();
    else setState({ key: null, value: null, error: null });
    return () => {
      newest.current += 1;
    };
  }, [key]);
  return { value: state.value, error: state.error, reload: load };
}

/** Call again and again while the page is seen, the first time at once. */
export function usePolling(call: () => void, milliseconds: number, isOn = true) {
  const newest = useRef(call);
  newest.current = call;
  useEffect(() => {
    if (!isOn) return;
    newest.current();
    const timer = setInterval(() => {
      if (!document.hidden) newest.current();
    }, milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds, isOn]);
}

/** A cell of a table whose rows become cards on a phone: its label stands above it there, and one without a value is left out. */
export function Cell({
  label,
  class: kind = "",
  title,
  children,
}: {
  label: string | undefined;
  class?: string;
  title?: string;
  children: ComponentChildren;
}) {
  return (
    <td class={children === "–" ? `${kind} is-none` : kind || undefined} data-label={label} title={title}>
      {children}
    </td>
  );
}

/** Says, as text, that something derives from sources that nobody has vouched for. */
export function Untrusted({ sources }: { sources: readonly string[] | undefined }) {
  if (!sources?.length) return null;
  return (
    <span class="tag untrusted" title="Text from these sources may try to mislead the workers that read it">
      untrusted: {sources.map(clean).join(", ")}
    </span>
  );
}
