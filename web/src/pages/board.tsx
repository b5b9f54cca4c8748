// The board: memory that the workers of a run share, block by block, with its history.

import { get, runPath } from "../api";
import { ago, asText, bytes, clean, oneLine, plural } from "../format";
import { useKeys } from "../keys";
import { diffLines } from "../plan_check";
import { route, setQuery } from "../router";
import { now } from "../session";
import type { RunModel } from "../store";
import { Button, CopyButton, Empty, ErrorBox, Loading, Raw, useFetched } from "../ui";

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

function Version({ version, before }: { version: BlockVersion; before: BlockVersion | undefined }) {
  const lines = before ? diffLines(asText(before.value), asText(version.value)) : null;
  return (
    <li>
      <details open={before === undefined}>
        <summary>
          v{version.version} by {clean(version.writer)}, {ago(version.at, now.value)}
        </summary>
        {lines ? (
          <pre class="raw diff">
            {lines.map((line, index) => (
              <span key={index} class={`line ${line.how}`}>
                {line.how === "added" ? "+ " : line.how === "removed" ? "− " : "  "}
                {line.text}
                {"\n"}
              </span>
            ))}
          </pre>
        ) : (
          <Raw text={asText(version.value)} label={`Version ${version.version}`} />
        )}
      </details>
    </li>
  );
}

function BlockPanel({ run, row }: { run: string; row: BlockRow }) {
  const details = useFetched<BlockDetails>(`${run}/${row.key}/${row.version}`, () =>
    get<BlockDetails>(runPath(run, `board/${row.key.split("/").map(encodeURIComponent).join("/")}`)),
  );
  const value = details.value;
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
        {details.error ? <ErrorBox error={details.error} retry={details.reload} /> : null}
        {value ? (
          <>
            <section class="group">
              <header class="row">
                <h3>Now</h3>
                <span class="spacer" />
                <CopyButton text={asText(value.value)} />
              </header>
              <Raw text={asText(value.value)} label="Value" />
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
          Workers share what they find here, if their crew has a board. Nothing was written in this run
          {model.isOver ? "." : " yet."}
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
        <table class="list">
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
                </th>
                <td class="what">{oneLine(block.preview, 120)}</td>
                <td>{clean(block.writer)}</td>
                <td class="num">{block.version}</td>
                <td>{block.readers.map(clean).join(", ") || "all"}</td>
                <td class="num">{bytes(block.size)}</td>
                <td class="num">{ago(block.at, now.value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {row ? <BlockPanel key={row.key} run={id} row={row} /> : null}
    </div>
  );
}
