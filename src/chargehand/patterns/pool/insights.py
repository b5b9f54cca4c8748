"""Insights: what stands in a pool, as plain dicts; and what happened to all runs, read as such."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Raw

from chargehand.decisions.lifecycle import Lifecycle
from chargehand.errors import UnknownRun, UsageError
from chargehand.facts.board import Block, Match, Note, Query, Segment
from chargehand.facts.value import Value
from chargehand.journal.base import Journal

E = TypeVar("E", bound=StrEnum)

_ASKED = ("agent_id", "content", "tags", "segment", "importance", "metadata", "timestamp")
#: what an insight may say; the time is given when it is written


def insight_of(note: Note, content: Any) -> dict[str, Any]:
    """A note as a plain dict."""
    metadata = dict(note.metadata)
    for own, known in (("request_id", "run"), ("task_id", "task")):
        if known in metadata:
            metadata.setdefault(own, metadata[known])
    return {
        "id": note.id,
        "agent_id": note.author,
        "content": content,
        "tags": list(note.tags),
        "segment": str(note.segment),
        "importance": note.importance,
        "metadata": metadata,
        "timestamp": note.at.isoformat(),
    }


def block_of(block: Block) -> dict[str, Any]:
    """A version of a block as a plain dict."""
    return {
        "label": block.label,
        "value": block.value,
        "version": block.version,
        "agent_id": block.author,
        "timestamp": block.at.isoformat(),
    }


class Writing:
    """An insight that somebody wants to write, looked at before anything is stored."""

    def __init__(self, insight: object) -> None:
        if not isinstance(insight, Mapping) or "content" not in insight:
            raise UsageError("an insight is a dict with its content: {'content': …, 'tags': […]}")
        unknown = sorted({str(name) for name in insight} - {*_ASKED})
        if unknown:
            raise UsageError(
                f"an insight has no {', '.join(unknown)}; it has {', '.join(_ASKED)}: put the rest "
                "into metadata"
            )
        self.author = str(insight.get("agent_id") or "somebody")
        self.content = insight["content"]
        self.tags = _tags(insight.get("tags") or ())
        self.segment = str(insight.get("segment") or Segment.NOTES)
        self.importance = _number(insight.get("importance", 0.5))
        self.metadata = _metadata(insight.get("metadata") or {})


class Lives:
    """What happens to all runs of a journal, read as notes; kept, and read on from there."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lives: dict[str, Lifecycle] = {}

    async def catch_up(self) -> list[Note]:
        """The notes of what has happened since this was last asked."""
        fresh: list[Note] = []
        for head in await self._journal.heads():
            if head.is_forgotten:
                self._lives.pop(head.stream, None)
                continue
            life = self._lives.setdefault(head.stream, Lifecycle(head.stream))
            if life.seq < head.seq:
                fresh += await self._read_on(life)
        return fresh

    async def notes(self, query: Query) -> list[Note]:
        """All that has happened and may be asked for, run by run."""
        await self.catch_up()
        return [note for life in self._asked(query) for note in life.notes]

    def _asked(self, query: Query) -> list[Lifecycle]:
        """The runs that the tags name, where they can name no other; else all of them.

        What happens to a run has the run's id among its tags.
        """
        named = [self._lives[tag] for tag in query.tags if tag in self._lives]
        if named and query.match is Match.ALL:
            return named[:1]
        is_all = bool(named) and len(named) == len(query.tags)
        return named if is_all else list(self._lives.values())

    async def _read_on(self, life: Lifecycle) -> list[Note]:
        fresh: list[Note] = []
        with suppress(UnknownRun):  # retention was faster
            async for entry in self._journal.read(life.run, life.seq):
                if entry.seq == life.seq + 1:  # another call may have been faster
                    fresh += life.apply(entry.seq, entry.event)
        return fresh


async def content_of(note: Note, journal: Journal) -> Any:
    """What a note says, wherever that lies."""
    value = note.stored
    if value.blob:
        value = Value(json=Raw(await journal.blobs.get(value.blob)))
    return value.read()


def choice_of(kind: type[E], name: str, given: str) -> E:
    """What was chosen by its name. Raises `UsageError` for what is none of the choices."""
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(repr(each.value) for each in kind)
        raise UsageError(f"{name}={given!r} is none of {known}") from None


def words_of(name: str, given: "Sequence[str] | None") -> tuple[str, ...]:
    """What is asked for, word by word. Raises `UsageError` for a lone word, which is many letters."""
    if isinstance(given, str):
        raise UsageError(f"{name}={given!r} must be a list of words: {name}=[{given!r}]")
    return tuple(given or ())


def _metadata(metadata: object) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise UsageError(f"metadata={metadata!r} must be a dict")
    return dict(metadata)


def _tags(tags: object) -> list[str]:
    if isinstance(tags, str) or not isinstance(tags, (list, tuple, set, frozenset)):
        raise UsageError(f"tags={tags!r} must be a list of words")
    return [str(tag) for tag in tags]


def _number(importance: object) -> float:
    if isinstance(importance, bool) or not isinstance(importance, (int, float)):
        raise UsageError(f"importance={importance!r} must be a number between 0 and 1")
    return float(importance)
