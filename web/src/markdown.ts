// A small Markdown reader for text of models. It knows no HTML and no images: both stay text.

export type Inline =
  | { is: "text"; text: string }
  | { is: "code"; text: string }
  | { is: "strong" | "em" | "strike"; parts: Inline[] }
  | { is: "link"; href: string; host: string; parts: Inline[] }
  | { is: "task"; id: string }
  | { is: "break" };

export type Block =
  | { is: "heading"; level: number; parts: Inline[] }
  | { is: "paragraph"; parts: Inline[] }
  | { is: "code"; language: string; text: string }
  | { is: "quote"; blocks: Block[] }
  | { is: "list"; ordered: boolean; start: number; items: Block[][] }
  | { is: "table"; head: Inline[][]; rows: Inline[][][] }
  | { is: "rule" };

const MOST_DEPTH = 12;

/** The blocks of a text. `tasks` are ids that `[id]` may refer to. */
export function parseMarkdown(text: string, tasks: ReadonlySet<string> = new Set()): Block[] {
  return blocksOf(text.replace(/\t/g, "    ").split("\n"), tasks, 0);
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const BULLET = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const DELIMITER = /^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?\|? *$/;

function blocksOf(lines: string[], tasks: ReadonlySet<string>, depth: number): Block[] {
  const blocks: Block[] = [];
  let index = 0;
  const line = () => lines[index] ?? "";
  while (index < lines.length) {
    const fence = FENCE.exec(line());
    const heading = HEADING.exec(line());
    if (!line().trim()) index += 1;
    else if (fence) {
      const mark = fence[1] as string;
      const body: string[] = [];
      for (index += 1; index < lines.length && !line().trim().startsWith(mark); index += 1) body.push(line());
      index += 1;
      blocks.push({ is: "code", language: fence[2] ?? "", text: body.join("\n") });
    } else if (heading) {
      blocks.push({
        is: "heading",
        level: (heading[1] as string).length,
        parts: inline(heading[2] ?? "", tasks),
      });
      index += 1;
    } else if (RULE.test(line())) {
      blocks.push({ is: "rule" });
      index += 1;
    } else if (/^ {0,3}>/.test(line()) && depth < MOST_DEPTH) {
      const body: string[] = [];
      for (; index < lines.length && /^ {0,3}>/.test(line()); index += 1)
        body.push(line().replace(/^ {0,3}> ?/, ""));
      blocks.push({ is: "quote", blocks: blocksOf(body, tasks, depth + 1) });
    } else if (BULLET.test(line()) && depth < MOST_DEPTH) {
      const [list, next] = listAt(lines, index, tasks, depth);
      blocks.push(list);
      index = next;
    } else if (line().includes("|") && DELIMITER.test(lines[index + 1] ?? "")) {
      const head = cells(line()).map((cell) => inline(cell, tasks));
      const rows: Inline[][][] = [];
      for (index += 2; index < lines.length && line().includes("|"); index += 1)
        rows.push(
          cells(line())
            .slice(0, head.length)
            .map((cell) => inline(cell, tasks)),
        );
      blocks.push({ is: "table", head, rows });
    } else {
      const body = [line()];
      for (index += 1; index < lines.length && continues(line(), depth); index += 1) body.push(line());
      blocks.push({ is: "paragraph", parts: inline(body.join("\n"), tasks) });
    }
  }
  return blocks;
}

function continues(line: string, depth: number): boolean {
  if (!line.trim() || FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return false;
  return depth >= MOST_DEPTH || (!/^ {0,3}>/.test(line) && !BULLET.test(line));
}

function listAt(lines: string[], from: number, tasks: ReadonlySet<string>, depth: number): [Block, number] {
  const first = BULLET.exec(lines[from] ?? "") as RegExpExecArray;
  const indent = (first[1] as string).length;
  const ordered = /\d/.test(first[2] as string);
  const items: string[][] = [];
  let index = from;
  for (; index < lines.length; index += 1) {
    const line = lines[index] as string;
    const bullet = BULLET.exec(line);
    const depthOfLine = line.length - line.trimStart().length;
    if (bullet && (bullet[1] as string).length <= indent + 1) {
      if ((bullet[1] as string).length < indent || /\d/.test(bullet[2] as string) !== ordered) break;
      items.push([bullet[4] as string]);
    } else if (!line.trim()) {
      const next = lines[index + 1] ?? "";
      const isInside =
        next.length - next.trimStart().length > indent || BULLET.exec(next)?.[1]?.length === indent;
      if (!next.trim() || !isInside) break;
      items.at(-1)?.push("");
    } else if (depthOfLine > indent) items.at(-1)?.push(line.slice(Math.min(depthOfLine, indent + 2)));
    else if (continues(line, depth)) items.at(-1)?.push(line);
    else break;
  }
  const start = ordered ? Number.parseInt(first[2] as string, 10) : 1;
  return [
    { is: "list", ordered, start, items: items.map((item) => blocksOf(item, tasks, depth + 1)) },
    index,
  ];
}

function cells(line: string): string[] {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** Where a link leads, if a browser may follow it. */
export function safeLink(address: string): { href: string; host: string } | null {
  if (!/^(https?:\/\/|mailto:)/i.test(address.trim())) return null;
  try {
    const url = new URL(address.trim());
    if (url.username || url.password) return null;
    return { href: url.href, host: url.protocol === "mailto:" ? "mail" : url.host };
  } catch {
    return null;
  }
}

const TOKENS =
  /(`+)([\s\S]*?[^`])\1(?!`)|!\[([^\]\n]*)\]\(([^)\s]*)[^)]*\)|\[([^\]\n]+)\]\(([^)\s]+)(?:\s+"[^"]*")?\)|\*\*(?=\S)([\s\S]*?\S)\*\*|__(?=\S)([\s\S]*?\S)__(?!\w)|~~(?=\S)([\s\S]*?\S)~~|\*(?=[^\s*])([^*]*?[^\s*])\*(?!\*)|(?<!\w)_(?=[^\s_])([^_]*?[^\s_])_(?!\w)|(https?:\/\/[^\s<>()[\]"'`]+[^\s<>()[\]"'`.,;:!?])|\[([\w.:@-]+(?:\[\d+\])?)\]|\\([\\`*_{}[\]()#+\-.!|~>])| {2,}\n/g;

/** The parts of one paragraph. */
export function inline(text: string, tasks: ReadonlySet<string> = new Set(), depth = 0): Inline[] {
  const parts: Inline[] = [];
  const say = (words: string) => {
    const last = parts.at(-1);
    if (last?.is === "text") last.text += words;
    else if (words) parts.push({ is: "text", text: words });
  };
  let from = 0;
  for (const found of depth < MOST_DEPTH ? text.matchAll(TOKENS) : []) {
    say(text.slice(from, found.index));
    from = found.index + found[0].length;
    const [whole, , code, alt, source, label, target, bold, bold2, strike, em, em2, bare, ref, escaped] =
      found;
    const inner = (words: string) => inline(words, tasks, depth + 1);
    if (code !== undefined) parts.push({ is: "code", text: code.trim() });
    else if (source !== undefined) say(`[image: ${alt || "no description"}] (${source})`);
    else if (target !== undefined) {
      const link = safeLink(target);
      if (link) parts.push({ is: "link", ...link, parts: [{ is: "text", text: label as string }] });
      else say(`${label} (${target})`);
    } else if (bold ?? bold2) parts.push({ is: "strong", parts: inner((bold ?? bold2) as string) });
    else if (strike) parts.push({ is: "strike", parts: inner(strike) });
    else if (em ?? em2) parts.push({ is: "em", parts: inner((em ?? em2) as string) });
    else if (bare) {
      const link = safeLink(bare);
      if (link) parts.push({ is: "link", ...link, host: "", parts: [{ is: "text", text: bare }] });
      else say(bare);
    } else if (ref && tasks.has(ref)) parts.push({ is: "task", id: ref });
    else if (escaped) say(escaped);
    else if (!ref && /^ {2,}\n$/.test(whole)) parts.push({ is: "break" });
    else say(whole);
  }
  say(text.slice(from));
  return parts;
}

/** The words of a text on one line, without the marks of Markdown. */
export function plainWords(text: string): string {
  const words = (part: Inline): string => {
    if ("parts" in part) return part.parts.map(words).join("");
    if (part.is === "task") return `[${part.id}]`;
    return part.is === "break" ? " " : part.text;
  };
  return inline(text.replace(/^\s*(#+|[-*+]|>)\s+/gm, ""))
    .map(words)
    .join("")
    .replace(/\s+/g, " ")
    .trim();
}
