"""Renders the Markdown of models safely: keeps headings, lists, bold, italics and code.

Everything else is plain text: links, images, tables and HTML are shown as written and have no effect.
"""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Literal, TypeAlias

from msgspec import Struct

from chargehand.presentation.display_text import clean

Kind: TypeAlias = Literal["text", "heading", "bullets", "numbers", "code"]

_HEADING = re.compile(r" {0,3}#{1,6}\s+(\S.*)")
_BULLET = re.compile(r" {0,3}[-*•]\s+(\S.*)")
_NUMBER = re.compile(r" {0,3}([0-9]{1,3})[.)]\s+(\S.*)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_BACKTICKS = re.compile(r"`+")
#: bold, italics, code; limited in length, so that many unclosed marks still take linear time
_INLINE = re.compile(
    r"\*\*(?=\S)(?P<strong>[^\n]{1,400}?)(?<=\S)\*\*"
    r"|(?<![\w*])\*(?=[^\s*])(?P<em>[^*\n]{1,400}?)(?<=\S)\*(?![\w*])"
    r"|(?<!`)`(?P<code>[^`\n]{1,400})`(?!`)"
)


class ProseBlock(Struct):
    """A paragraph, heading, list or code block, with its lines or points."""

    kind: Kind
    lines: list[str]
    #: first number of a numbered list
    start: int = 1
    #: whether a blank line follows: then only another point of the same list continues the block
    is_closed: bool = False


def prose_html(text: str) -> str:
    """Convert the text to HTML."""
    return "".join(map(_html_of, _blocks_in(text)))


def prose_markdown(text: str) -> str:
    """Convert the text to Markdown in which all other marks are escaped."""
    return "\n\n".join(map(_markdown_of, _blocks_in(text)))


def markdown_line(text: str, *, keep: bool = False) -> str:
    """Escape text from a model or a file for one line of Markdown. `keep` keeps the surrounding space."""
    line = clean(text).replace("\n", " ")
    for mark in "\\`*_<[":
        line = line.replace(mark, f"\\{mark}")
    return line if keep else line.strip()


def _blocks_in(text: str) -> list[ProseBlock]:
    blocks: list[ProseBlock] = []
    lines = iter(text.strip("\r\n").splitlines())
    for line in lines:
        last = blocks[-1] if blocks else None
        if fence := _FENCE.match(line):
            blocks.append(ProseBlock("code", list(_until(fence[1], lines)), is_closed=True))
        elif not line.strip():
            if last is not None:
                last.is_closed = True
        elif heading := _HEADING.fullmatch(line):
            blocks.append(ProseBlock("heading", [heading[1].rstrip("# ")], is_closed=True))
        elif bullet := _BULLET.fullmatch(line):
            _add_point(blocks, "bullets", bullet[1])
        elif number := _NUMBER.fullmatch(line):
            _add_point(blocks, "numbers", number[2], int(number[1]))
        elif last is None or last.is_closed:
            blocks.append(ProseBlock("text", [line.strip()]))
        elif last.kind == "text":
            last.lines.append(line.strip())
        else:
            last.lines[-1] += f" {line.strip()}"
    return blocks


def _until(fence: str, lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.strip().startswith(fence):
            return
        yield line


def _add_point(blocks: list[ProseBlock], kind: Kind, point: str, number: int = 1) -> None:
    last = blocks[-1] if blocks else None
    if last is None or last.kind != kind:
        blocks.append(ProseBlock(kind, [point], number))
    else:
        last.lines.append(point)
        last.is_closed = False


def _html_of(block: ProseBlock) -> str:
    lines = [_inline(each, escape, _html_mark) for each in block.lines]
    points = "".join(f"<li>{each}</li>" for each in lines)
    match block.kind:
        case "text":
            return f"<p>{'<br>'.join(lines)}</p>"
        case "heading":
            return f"<h3>{lines[0]}</h3>"
        case "bullets":
            return f"<ul>{points}</ul>"
        case "numbers":
            start = f' start="{block.start}"' if block.start != 1 else ""
            return f"<ol{start}>{points}</ol>"
        case "code":
            return f"<pre><code>{escape(chr(10).join(block.lines))}</code></pre>"


def _markdown_of(block: ProseBlock) -> str:
    lines = [_inline(each, _kept_line, _markdown_mark).strip() for each in block.lines]
    match block.kind:
        case "text":
            return " ".join(lines)
        case "heading":
            return f"### {lines[0]}"
        case "bullets":
            return "\n".join(f"- {each}" for each in lines)
        case "numbers":
            return "\n".join(f"{n}. {each}" for n, each in enumerate(lines, block.start))
        case "code":
            inside = clean("\n".join(block.lines))
            longest = max(map(len, _BACKTICKS.findall(inside)), default=0)
            fence = "`" * max(3, longest + 1)
            return f"{fence}\n{inside}\n{fence}"


def _inline(
    text: str, plain: Callable[[str], str], marked: Callable[["re.Match[str]"], str]
) -> str:
    parts, end = list[str](), 0
    for found in _INLINE.finditer(text):
        parts += [plain(text[end : found.start()]), marked(found)]
        end = found.end()
    return "".join([*parts, plain(text[end:])])


def _kept_line(text: str) -> str:
    return markdown_line(text, keep=True)


def _html_mark(found: "re.Match[str]") -> str:
    tag = found.lastgroup or "em"
    return f"<{tag}>{escape(found[tag])}</{tag}>"


def _markdown_mark(found: "re.Match[str]") -> str:
    kind = found.lastgroup or "em"
    if kind == "code":
        return f"`{clean(found[kind])}`"
    mark = "**" if kind == "strong" else "*"
    return f"{mark}{_kept_line(found[kind])}{mark}"
