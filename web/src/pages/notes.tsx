// Notes: what workers and people have written on the board of a run, newest first.

import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, get, runPath } from "../api";
import { ago, asText, bytes, clean, clock, plural } from "../format";
import { useKeys } from "../keys";
import { href, route, setQuery } from "../router";
import { now } from "../session";
import type { RunModel } from "../store";
import { Button, Empty, ErrorBox, Loading, Markdown, Raw, Untrusted, useFetched, usePolling } from "../ui";

interface Note {
  seq: number;
  at: string;
  author: string;
  segment: string;
  tags: string[];
  importance: number;
  metadata: Record<string, unknown>;
  task: string;
  attempt: number | null;
  taint: string[];
  size: number;
  content: unknown;
  truncated: boolean;
}

interface NoteList {
  notes: Note[];
  has_more: boolean;
}

const PAGE = 100;
const MOST = 500;
/** Notes of other processes are not told by the stream of the run. */
const LOOK_EVERY = 4000;
/** The segment of notes that name none. */
const USUAL = "notes";

/** How many notes the stream has told of: each is a step of its worker. */
export function postsIn(model: Pick<RunModel, "calls">): number {
  let posts = 0;
  for (const call of model.calls) if (call.name.startsWith("board.post") && call.seconds !== null) posts += 1;
  return posts;
}

function useNotes(model: RunModel, author: string, tag: string, limit: number) {
  const { id } = model.run;
  const of = `${id}/${author}/${tag}/${limit}`;
  const [found, setFound] = useState<{ of: string; list: NoteList } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const wanted = useRef(of);
  wanted.current = of;
  const load = () => {
    const query = new URLSearchParams({ limit: String(limit) });
    if (author) query.set("author", author);
    if (tag) query.set("tag", tag);
    get<NoteList>(runPath(id, `notes?${query}`)).then(
      (list) => {
        if (wanted.current !== of) return;
        setFound({ of, list });
        setError(null);
      },
      (fault: ApiError) => setError(fault),
    );
  };
  const posts = postsIn(model);
  useEffect(load, [of, posts, model.isOver]);
  usePolling(load, LOOK_EVERY, !model.isOver);
  return { list: found?.list ?? null, isOld: found?.of !== of, error, load };
}

/** A value that fits a line, as JSON; empty if it does not. */
function shortJson(value: unknown): string {
  const text = clean(JSON.stringify(value));
  return text.length <= 80 ? text : "";
}

function Entry({ note, run, byTag }: { note: Note; run: string; byTag: (tag: string) => void }) {
  const hasMore = Object.keys(note.metadata).length > 0;
  return (
    <li class="note-entry">
      <header>
        <strong>{clean(note.author)}</strong>
        {note.task ? (
          <a class="mono" href={href("run", run, { task: note.task.replace(/\[\d+\]$/, "") })}>
            {clean(note.task)}
          </a>
        ) : (
          <span class="hint">from outside of the run</span>
        )}
        {note.attempt !== null && note.attempt > 1 ? <span class="hint">attempt {note.attempt}</span> : null}
        {note.segment === USUAL ? null : <span class="tag">{clean(note.segment)}</span>}
        {note.importance >= 0.8 ? <span class="tag">important</span> : null}
        <Untrusted sources={note.taint} />
        <span class="spacer" />
        <time class="hint" dateTime={note.at} title={clock(note.at, now.value)}>
          {ago(note.at, now.value)}
        </time>
      </header>
      {typeof note.content === "string" && !note.truncated ? (
        <Markdown text={note.content} run={run} />
      ) : note.content === "" ? null : shortJson(note.content) ? (
        <p class="mono">{shortJson(note.content)}</p>
      ) : (
        <Raw text={asText(note.content)} label={`Note of ${note.author}`} />
      )}
      {note.truncated ? (
        <p class="hint">
          {note.content === "" ? "This note is" : "The beginning of"} {bytes(note.size)}
          {note.content === "" ? ", too large to show here." : "."} <code>chargehand notes {run} --json</code>{" "}
          prints all of it.
        </p>
      ) : null}
      {hasMore ? (
        <details class="evidence">
          <summary>Metadata</summary>
          <Raw text={asText(note.metadata)} label="Metadata" />
        </details>
      ) : null}
      {note.tags.length ? (
        <ul class="tag-list" aria-label="Tags">
          {note.tags.map((tag) => (
            <li key={tag}>
              <Button kind="quiet" onClick={() => byTag(tag)} title={`Only notes with the tag ${tag}`}>
                #{clean(tag)}
              </Button>
            </li>
          ))}
        </ul>
      ) : null}
    </li>
  );
}

/** A list to choose from that holds all that was seen so far, so that a filter does not take away the others. */
function useSeen(of: string, found: string[], chosen: string): string[] {
  const seen = useRef({ of, names: new Set<string>() });
  if (seen.current.of !== of) seen.current = { of, names: new Set() };
  for (const name of found) seen.current.names.add(name);
  if (chosen) seen.current.names.add(chosen);
  return [...seen.current.names].sort((a, b) => a.localeCompare(b));
}

function Choice({
  label,
  all,
  value,
  names,
  onChange,
}: {
  label: string;
  all: string;
  value: string;
  names: string[];
  onChange: (name: string | null) => void;
}) {
  return (
    <select
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value || null)}
    >
      <option value="">{all}</option>
      {names.map((name) => (
        <option key={name} value={name}>
          {clean(name)}
        </option>
      ))}
    </select>
  );
}

export function NotesPage({ model }: { model: RunModel }) {
  const { query } = route.value;
  const [author, tag] = [query.author ?? "", query.tag ?? ""];
  const [limit, setLimit] = useState(PAGE);
  const { list, isOld, error, load } = useNotes(model, author, tag, limit);
  const { id } = model.run;
  const replaying = query.at !== undefined;
  const moment = Date.parse(model.at);
  const notes = (list?.notes ?? []).filter((note) => !replaying || Date.parse(note.at) <= moment);
  // A page that opens with a filter has not seen what else there is to choose from.
  const others = useFetched<NoteList>(author || tag ? id : null, () =>
    get<NoteList>(runPath(id, `notes?limit=${PAGE}`)),
  );
  const known = [...notes, ...(others.value?.notes ?? [])];
  const authors = useSeen(
    id,
    known.map((note) => note.author),
    author,
  );
  const tags = useSeen(
    id,
    known.flatMap((note) => note.tags),
    tag,
  );
  const clear = () => setQuery({ author: null, tag: null });
  useKeys({ Escape: clear });
  if (!list) return error ? <ErrorBox error={error} retry={load} /> : <Loading what="the notes" />;
  if (!notes.length && !author && !tag && !isOld)
    return (
      <Empty title={model.isOver || replaying ? "No notes were written" : "No notes yet"}>
        <p>
          A note is something that a worker tells the others while it works: a finding, a doubt, a number. A
          worker writes one with <code>brief.board.post(…)</code>, and all others can read it. Results of
          tasks are not notes; they are on the page of the run.
        </p>
        <p>
          Values that workers change together are <a href={href("board", id)}>blocks of the board</a>.
        </p>
      </Empty>
    );
  return (
    <section class="pane notes-page" aria-labelledby="notes-title">
      <div class="toolbar">
        <h2 id="notes-title">Notes</h2>
        <Choice
          label="Author"
          all="all authors"
          value={author}
          names={authors}
          onChange={(name) => setQuery({ author: name })}
        />
        <Choice
          label="Tag"
          all="all tags"
          value={tag}
          names={tags}
          onChange={(name) => setQuery({ tag: name })}
        />
        <output class="hint">
          {plural(notes.length, "note")}
          {list.has_more ? ", the newest" : ""}
        </output>
        {author || tag ? (
          <Button kind="quiet" onClick={clear} hotkey="Esc">
            Clear the filter
          </Button>
        ) : null}
      </div>
      {error ? <ErrorBox error={error} retry={load} /> : null}
      {notes.length === 0 && !isOld ? (
        <Empty title={`No note fits ${[author, tag && `#${tag}`].filter(Boolean).map(clean).join(", ")}`} />
      ) : (
        <ol class="note-list" aria-label="Notes, newest first">
          {notes.map((note) => (
            <Entry key={note.seq} note={note} run={id} byTag={(name) => setQuery({ tag: name })} />
          ))}
        </ol>
      )}
      {list.has_more && limit < MOST ? (
        <Button class="more" onClick={() => setLimit(Math.min(MOST, limit + 2 * PAGE))}>
          Show more
        </Button>
      ) : list.has_more ? (
        <p class="hint">
          There are more. Choose an author or a tag, or read all with <code>chargehand notes {id}</code>.
        </p>
      ) : null}
    </section>
  );
}
