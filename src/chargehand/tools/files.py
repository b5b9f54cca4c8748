"""Tools that list, read and search the files below a folder. They write nothing."""

import difflib
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from chargehand.errors import ToolError
from chargehand.tools.base import Tool, tool
from chargehand.tools.data_catalog import FileEntry, FreshMaterial, Material
from chargehand.tools.document_text import read_document
from chargehand.tools.passage_index import PassageIndex
from chargehand.tools.safe_open import MOST_FILES, NoSuchFile, PathLike, Roots, Stamp, matches

MOST_LISTED = 500
MOST_LINES = 2_000
MOST_FOUND = 50
#: documents whose text is cached, because it is usually read page by page
MOST_KEPT = 4


def files(
    roots: PathLike | Sequence[PathLike], *, hidden: bool = False, trusted: bool = False
) -> tuple[Tool, Tool, Tool]:
    """The tools `list_files`, `read_file` and `search_files` over one or more folders.

    With several folders, each path begins with its folder's name. Nothing outside of the folders can be
    read. Unless `hidden` is set, names that begin with a dot are left out. The output, including file
    names, is untrusted; pass `trusted=True` only if nobody else can write to the folders.
    """
    return FileTools(Roots(roots, hidden=hidden)).tools(trusted=trusted)


class FileTools:
    """The implementation of the file tools."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._index: PassageIndex | None = None
        self._kept: dict[tuple[str, Stamp], str] = {}

    def tools(self, *, trusted: bool = False) -> tuple[Tool, Tool, Tool]:
        terms: dict[str, Any] = {
            "effect": "pure",
            "untrusted": not trusted,
            "holds": FreshMaterial(self.material),
        }
        slow = timedelta(minutes=3)  # the first search reads everything
        return (
            tool(name="list_files", **terms)(self.list_files),
            tool(name="read_file", **terms)(self.read_file),
            tool(name="search_files", timeout=slow, **terms)(self.search_files),
        )

    def material(self) -> Material:
        """The files that can be read, up to a maximum number."""
        found = tuple(FileEntry(path, stamp.size) for path, stamp in self._roots.files())
        return Material(found, is_whole=len(found) < MOST_FILES)

    def list_files(self, pattern: str = "*") -> dict[str, Any]:
        """List the files that can be read and searched, with their sizes in bytes.

        Args:
            pattern: only those whose name fits, such as *.md or reports/*
        """
        found = [
            (path, stamp.size) for path, stamp in self._roots.files() if matches(path, pattern)
        ]
        listed: dict[str, Any] = {
            "files": [{"path": p, "bytes": b} for p, b in found[:MOST_LISTED]]
        }
        if len(found) > MOST_LISTED:
            listed["more"] = f"{len(found) - MOST_LISTED} are not shown; give a narrower pattern"
        return listed

    def read_file(self, path: str, first_line: int = 1, lines: int = 400) -> str:
        """Read a file as text: plain text, Markdown, CSV, HTML or PDF.

        Args:
            path: as list_files shows it
            first_line: where to begin; the first line is 1
            lines: how many lines to read, at most 2000
        """
        if first_line < 1 or not 1 <= lines <= MOST_LINES:
            raise ToolError(f"first_line begins at 1, and lines is between 1 and {MOST_LINES}")
        text = self.text(path).removesuffix("\n").split("\n")
        last = min(len(text), first_line - 1 + lines)
        if first_line > len(text):
            raise ToolError(f"{path!r} has only {len(text)} lines")
        page = "\n".join(text[first_line - 1 : last])
        if first_line == 1 and last == len(text):
            return page
        return f"[lines {first_line} to {last} of {len(text)}]\n{page}"

    def search_files(self, query: str, most: int = 8) -> dict[str, Any]:
        """Find the passages of all files that fit a query best; cite them by `where`, as file:line.

        Args:
            query: words to look for, the rarer the better
            most: how many passages to return, at most 50
        """
        if not 1 <= most <= MOST_FOUND:
            raise ToolError(f"most is between 1 and {MOST_FOUND}")
        if self._index is None:
            self._index = PassageIndex(self.read)
        found = self._index.search(query, most, self._roots.files())
        told: dict[str, Any] = {
            "passages": [
                {"where": where, "text": text} | ({"heading": heading} if heading else {})
                for where, heading, text in found
            ]
        }
        if unread := self._index.unread:
            told["not_searched"] = dict(list(unread.items())[:10])
        return told

    def text(self, path: str) -> str:
        """The current text of a file; the last few texts are cached, because files are read page by page."""
        try:
            with self._roots.open(path) as file:
                key = path, Stamp.of(os.fstat(file.fileno()))
                text = self._kept.pop(key, None)
                text = read_document(file, path) if text is None else text
        except NoSuchFile:
            raise self._unknown(path) from None
        self._kept[key] = text
        for old in list(self._kept)[:-MOST_KEPT]:
            self._kept.pop(old, None)  # another thread may have removed it
        return text

    def read(self, path: str) -> str:
        """The current text of a file, without the cache."""
        with self._roots.open(path) as file:
            return read_document(file, path)

    def _unknown(self, path: str) -> NoSuchFile:
        close = difflib.get_close_matches(path, [known for known, _ in self._roots.files()], n=1)
        return NoSuchFile(path, f"did you mean {close[0]!r}?") if close else NoSuchFile(path)
