"""Lines out of a stream of bytes, none of them longer than is good for us."""

import re
from collections.abc import Iterator

from msgspec import Struct

_ID = re.compile(rb'^\s*\{(?:(?!"result"|"error"|"params").)*?"id"\s*:\s*(\d{1,18})\b', re.DOTALL)
_HEAD = 512


class Overlong(Struct, frozen=True):
    """What is known of a line that was too long to be kept."""

    head: bytes

    @property
    def request(self) -> int | None:
        """The request that it answers, if it says so before it gets long."""
        found = _ID.search(self.head)
        return int(found[1]) if found else None


class LineReader:
    """Cuts chunks into lines; of a line that is too long it only tells the beginning."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | Overlong]:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            yield from self._add(part)
            if not self._is_skipping:
                yield bytes(self._kept)
            self._kept.clear()
            self._is_skipping = False
        yield from self._add(rest)

    def _add(self, part: bytes) -> Iterator[Overlong]:
        if self._is_skipping:
            return
        self._kept += part
        if len(self._kept) > self._most:
            yield Overlong(bytes(self._kept[:_HEAD]))
            self._kept.clear()
            self._is_skipping = True
