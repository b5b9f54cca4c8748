// The board: memory that the workers of a run share, block by block, with its history.

import { useState } from "preact/hooks";
import { ApiError, get, put, runPath } from "../api";
import { editedValue, isExact, textToEdit } from "../block_edit";
import { ago, asText, bytes, clean, oneLine, plural } from "../format";
import { useKeys } from "../keys";
import { diffLines } from "../plan_check";
import { href, route, setQuery } from "../router";
import { announcement, canOperate, now } from "../session";
import type { RunModel } from "../store";
import { Button, Cell, CopyButton, Empty, ErrorBox, Field, Loading, Raw, Untrusted, useFetched } from "../ui";

interface BlockRow {
  key: string;
  preview: string;
  size: number;
  writer: string;
  version: number;
  readers: string[];
  writers?: string[];
  at: string;
  conflict: boolean;
  taint?: string[];
}

interface BlockVersion {
  version: number;
  writer: string;
  at: string;
  value: unknown;
}

interface BlockDetails extends BlockRow {
  value: unknown;
  /** Newest first. */
  history: BlockVersion[];
}

const blockPath = (run: string, key: string): string =>
  runPath(run, `board/${key.split("/").map(encodeURIComponent).join("/")}`);

function Diff({ before, after }: { before: unknown; after: unknown }) {
  return (
    <pre class="raw diff">
      {diffLines(asText(before), asText(after)).map((line, index) => (
        <span key={index} class={`line ${line.how}`}>
          {line.how === "added" ? "+ " : line.how === "removed" ? "− " : "  "}
          {line.text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

function Version({ version, before }: { version: BlockVersion; before: BlockVersion | undefined }) {
  return (
    <li>
      <details open={before === undefined}>
        <summary>
          v{version.version} by {clean(version.writer)}, {ago(version.at, now.value)}
        </summary>
        {before ? (
          <Diff before={before.value} after={version.value} />
        ) : (
          <Raw text={asText(version.value)} label={`Version ${version.version}`} />
        )}
      </details>
    </li>
  );
}

/** The form in which a person writes the next version of a block. Text that was typed survives a conflict. */
function Editor({ run, block, onDone }: { run: string; block: BlockDetails; onDone: () => void }) {
  const [base, setBase] = useState(block);
  const [text, setText] = useState(() => textToEdit(block.value));
  const [theirs, setTheirs] = useState<BlockDetails | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const edited = editedValue(text, base.value);
  const save = async () => {
    if ("fault" in edited || theirs) return;
    try {
      await put(blockPath(run, base.key), edited, { "If-Match": `"${base.version}"` });
      announcement.value = `${base.key} was saved.`;
      onDone();
    } catch (fault) {
      if (!(fault instanceof ApiError)) throw fault;
      const current = fault.body.current as BlockDetails | undefined;
      if (fault.kind === "BlockChanged" && current) setTheirs(current);
      else setError(fault);
    }
  };
  useKeys({ "Ctrl+Enter": () => void save() });
  if (theirs)
    return (
      <div class="editor">
        <p>
          {clean(theirs.writer)} wrote version {theirs.version} meanwhile. Yours differs from it:
        </p>
        <Diff before={theirs.value} after={"value" in edited ? edited.value : text} />
        <footer class="form-foot">
          <Button
            kind="primary"
            onClick={() => {
              setBase({ ...theirs, value: base.value });
              setTheirs(null);
            }}
          >
            Go on with mine
          </Button>
          <Button onClick={onDone}>Take theirs</Button>
        </footer>
      </div>
    );
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Field
        label={`Version ${base.version + 1}`}
        hint={
          typeof base.value === "string"
            ? "Text. Workers read it when the run goes on."
            : "JSON. Workers read it when the run goes on."
        }
        error={"fault" in edited ? edited.fault : ""}
      >
        {(id, hint) => (
          <textarea
            id={id}
            aria-describedby={hint}
            class="mono"
            rows={Math.min(24, Math.max(5, text.split("\n").length + 1))}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        )}
      </Field>
      {error ? <ErrorBox error={error} /> : null}
      <footer class="form-foot">
        <Button kind="primary" type="submit" disabled={"fault" in edited} hotkey="Ctrl Enter">
          Save
        </Button>
        <Button onClick={onDone}>Discard</Button>
      </footer>
    </form>
  );
}

function BlockPanel({ model, row, onSaved }: { model: RunModel; row: BlockRow; onSaved: () => void }) {
  const run = model.run.id;
  const [isEditing, setEditing] = useState(false);
  const details = useFetched<BlockDetails>(`${run}/${row.key}/${row.version}`, () =>
    get<BlockDetails>(blockPath(run, row.key)),
  );
  const value = details.value;
  const mayEdit = canOperate.value && !model.isOver && route.value.query.at === undefined;
  const isPaused = model.run.state === "paused";
  const why = !isPaused
    ? "Pause the run to edit this block."
    : value && !isExact(value.value)
      ? "This holds a number that a browser would round. Edit it over the API."
      : "";
  return (
    <aside class="pane side" aria-label={`Block ${row.key}`}>
      <div class="panel-body">
        <header class="panel-head">
          <h2 class="mono">{clean(row.key)}</h2>
          <span class="spacer" />
          <Button kind="quiet" onClick={() => setQuery({ block: null })} hotkey="Esc">
            Close
          </Button>
        </header>
        {row.taint?.length ? (
          <p>
            <Untrusted sources={row.taint} />
          </p>
        ) : null}
        {details.error ? <ErrorBox error={details.error} retry={details.reload} /> : null}
        {value ? (
          <>
            <section class="group">
              <header class="row">
                <h3>Now</h3>
                <span class="spacer" />
                {mayEdit && !isEditing ? (
                  <Button kind="quiet" disabled={why !== ""} onClick={() => setEditing(true)}>
                    Edit
                  </Button>
                ) : null}
                <CopyButton text={asText(value.value)} />
              </header>
              {mayEdit && why ? <p class="hint">{why}</p> : null}
              {isEditing ? (
                <Editor
                  run={run}
                  block={value}
                  onDone={() => {
                    setEditing(false);
                    details.reload();
                    onSaved();
                  }}
                />
              ) : (
                <Raw text={asText(value.value)} label="Value" />
              )}
            </section>
            <section class="group">
              <h3>History</h3>
              <ol class="history">
                {value.history.map((version, index) => (
                  <Version key={version.version} version={version} before={value.history[index + 1]} />
                ))}
              </ol>
            </section>
          </>
        ) : (
          <Loading what="the block" />
        )}
      </div>
    </aside>
  );
}

export function BoardPage({ model }: { model: RunModel }) {
  const { query } = route.value;
  const { id } = model.run;
  const finished = model.run.tasks.done + model.run.tasks.failed;
  const board = useFetched<{ blocks: BlockRow[] }>(`${id}/${finished}/${model.run.state}`, () =>
    get<{ blocks: BlockRow[] }>(runPath(id, "board")),
  );
  const blocks = board.value?.blocks ?? [];
  const chosen = blocks.findIndex((block) => block.key === query.block);
  const choose = (index: number) => {
    const block = blocks[Math.min(Math.max(index, 0), blocks.length - 1)];
    if (block) setQuery({ block: block.key });
  };
  useKeys({
    j: () => choose(chosen + 1),
    k: () => choose(chosen - 1),
    Escape: () => setQuery({ block: null }),
  });
  if (!board.value)
    return board.error ? <ErrorBox error={board.error} retry={board.reload} /> : <Loading what="the board" />;
  if (blocks.length === 0)
    return (
      <Empty title="The board is empty">
        <p>
          Blocks are values that workers change together, such as a summary: a worker writes one with{" "}
          <code>brief.board.write(…)</code>. None was written in this run{model.isOver ? "." : " yet."}
        </p>
        <p>
          What workers tell each other in passing are <a href={href("notes", id)}>notes</a>.
        </p>
      </Empty>
    );
  const row = chosen >= 0 ? blocks[chosen] : undefined;
  return (
    <div class={`trace-page ${row ? "has-side" : ""}`}>
      <section class="pane">
        <header class="pane-head">
          <h2>Board</h2>
          <span class="hint">{plural(blocks.length, "block")} of shared memory</span>
        </header>
        <table class="list stacks">
          <caption class="visually-hidden">Blocks of the board</caption>
          <thead>
            <tr>
              <th scope="col">Key</th>
              <th scope="col">Value</th>
              <th scope="col">Writer</th>
              <th scope="col" class="num">
                Version
              </th>
              <th scope="col">Readers</th>
              <th scope="col" class="num">
                Size
              </th>
              <th scope="col" class="num">
                Written
              </th>
            </tr>
          </thead>
          <tbody>
            {blocks.map((block) => (
              <tr
                key={block.key}
                class={block.key === query.block ? "is-current" : ""}
                onClick={() => setQuery({ block: block.key })}
              >
                <th scope="row" class="mono">
                  <button type="button" class="link" onClick={() => setQuery({ block: block.key })}>
                    {clean(block.key)}
                  </button>
                  {block.conflict ? <span class="tag is-failed">conflict</span> : null}
                  <Untrusted sources={block.taint} />
                </th>
                <Cell class="what" label="Value">
                  {oneLine(block.preview, 120)}
                </Cell>
                <Cell label="Writer">{clean(block.writer)}</Cell>
                <Cell class="num" label="Version">
                  {block.version}
                </Cell>
                <Cell label="Readers">{block.readers.map(clean).join(", ") || "all"}</Cell>
                <Cell class="num" label="Size">
                  {bytes(block.size)}
                </Cell>
                <Cell class="num" label="Written">
                  {ago(block.at, now.value)}
                </Cell>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {row ? <BlockPanel key={row.key} model={model} row={row} onSaved={board.reload} /> : null}
    </div>
  );
}
