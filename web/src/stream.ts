// One server-sent stream, read with `fetch` so that it can be closed, resumed and watched for silence.

export interface Frame {
  event: string;
  data: string;
  id: string | null;
}

/** Cuts a stream of text into frames. Comments (pings) give frames of the event "ping". */
export class FrameParser {
  private rest = "";

  take(text: string): Frame[] {
    const blocks = (this.rest + text.replaceAll("\r", "")).split("\n\n");
    this.rest = blocks.pop() ?? "";
    return blocks.filter(Boolean).map(frameOf);
  }
}

function frameOf(block: string): Frame {
  const data: string[] = [];
  let event = "message";
  let id: string | null = null;
  let isComment = true;
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    isComment = false;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") data.push(value);
    else if (field === "event") event = value;
    else if (field === "id") id = value;
  }
  return { event: isComment ? "ping" : event, data: data.join("\n"), id };
}

/** Pings come every 15 s; twice that without a byte means that the connection is dead. */
export const SILENCE = 35_000;

/** How long to wait before try number `n` (from 0): short at first, 10 s at most. */
export function backoff(n: number): number {
  return Math.min(10_000, 300 * 2 ** n);
}

export interface StreamListener {
  frame(frame: Frame): void;
  /** Bytes arrived: the connection is alive. */
  alive(): void;
  /** The connection ended or could not be made. `status` is 0 if there was no response. */
  lost(status: number): void;
}

/** Open a stream. Returns what closes it. */
export function open(url: string, listener: StreamListener): () => void {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), SILENCE);
  let isClosed = false;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE);
    listener.alive();
  };
  const read = async () => {
    let status = 0;
    try {
      const response = await fetch(url, {
        headers: { Accept: "text/event-stream" },
        credentials: "same-origin",
        cache: "no-store",
        signal: abort.signal,
      });
      status = response.status;
      if (response.ok && response.body) {
        alive();
        const parser = new FrameParser();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let part = await reader.read(); !part.done; part = await reader.read()) {
          alive();
          for (const frame of parser.take(part.value)) if (!isClosed) listener.frame(frame);
        }
      }
    } catch {
      // Aborted, refused or cut off: all are told as a lost stream.
    }
    clearTimeout(timer);
    if (!isClosed) listener.lost(status);
  };
  void read();
  return () => {
    isClosed = true;
    clearTimeout(timer);
    abort.abort();
  };
}
