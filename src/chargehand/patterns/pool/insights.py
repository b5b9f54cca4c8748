"""Insights: what stands in a pool, as plain dicts; and what happened to all runs, read as such."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from reprlib import repr as repr_of
from typing import Any, TypeVar

from msgspec import Raw

from chargehand.decisions.run_notes import RunNotes
from chargehand.errors import UnknownRun, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.board import Block, Match, Note, NoteQuery, Segment
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.roles.data_fences import words_of as told_in_words

E = TypeVar("E", bound=StrEnum)

#: what the ids of all requests of pools begin with
REQUEST = "request_"

#: what an insight may say
_ASKED = ("agent_id", "content", "tags", "segment", "importance", "metadata", "timestamp")
#: where the metadata of a note keeps the time that its author gave
SAID_AT = "said_at"
#: where the note about a conflict keeps the conflict's id
SETTLES = "settles"
#: where it keeps the task that stays, or whose result stands
KEPT = "kept"


async def insight_of(note: Note, journal: Journal) -> dict[str, Any]:
    """A note as a plain dict."""
    metadata = dict(note.metadata)
    for own, known in (("request_id", "run"), ("task_id", "task")):
        if known in metadata:
            metadata.setdefault(own, metadata[known])
    said_at = metadata.pop(SAID_AT, "")
    return {
        "id": note.id,
        "agent_id": note.author,
        "content": (await brought(note.stored, journal)).read(),
        "tags": list(note.tags),
        "segment": str(note.segment),
        "importance": note.importance,
        "metadata": metadata,
        "timestamp": said_at or note.at.isoformat(),
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


class InsightWriting:
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
        self.author = checks.name(insight.get("agent_id") or "somebody", "agent_id")
        self.content = insight["content"]
        self.tags = words_of("tags", insight.get("tags"))
        self.segment = checks.name(insight.get("segment") or Segment.NOTES, "segment")
        self.importance = float(checks.amount(insight.get("importance", 0.5), "importance", most=1))
        self.metadata = _metadata(insight.get("metadata") or {})
        if insight.get("timestamp"):
            self.metadata[SAID_AT] = _moment(insight["timestamp"])

    @property
    def is_report(self) -> bool:
        """Whether it may be what came of a task."""
        return self.segment in (Segment.RESULTS, Segment.ERRORS)

    @property
    def request(self) -> str:
        """The request that it names; empty if it names none."""
        named = self.metadata.get("request_id")
        known = [tag for tag in self.tags if tag.startswith(REQUEST)]
        return named if isinstance(named, str) else next(iter(known), "")

    @property
    def task(self) -> str:
        """The task that it names, and says the result of."""
        named = self.metadata.get("task_id")
        if not isinstance(named, str) or not named:
            raise UsageError(
                f"it says what came of a task of {self.request}, and not of which one; give "
                "metadata={'task_id': …}, or another segment than 'results' and 'errors'"
            )
        return named

    @property
    def outcome(self) -> Done | Failed:
        """What came of the task."""
        value = Value.of(self.content)
        if self.segment == Segment.RESULTS:
            return Done(value)
        return Failed(kind=ErrorClass.LOGIC, message=told_in_words(self.content))


class RunHistory:
    """What happens to all runs of a journal, read as notes; kept, and read on from there."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lives: dict[str, RunNotes] = {}

    async def catch_up(self) -> list[Note]:
        """The notes of what has happened since this was last asked."""
        fresh: list[Note] = []
        for head in await self._journal.heads():
            if head.is_forgotten:
                self._lives.pop(head.stream, None)
                continue
            life = self._lives.setdefault(head.stream, RunNotes(head.stream))
            if life.seq < head.seq:
                fresh += await self._read_on(life)
        return fresh

    async def notes(self, query: NoteQuery) -> list[Note]:
        """All that has happened and may be asked for, run by run."""
        await self.catch_up()
        return [note for life in self._asked(query) for note in life.notes]

    def _asked(self, query: NoteQuery) -> list[RunNotes]:
        """The runs that the tags name, where they can name no other; else all of them.

        What happens to a run has the run's id among its tags.
        """
        named = [self._lives[tag] for tag in query.tags if tag in self._lives]
        if named and query.match is Match.ALL:
            return named[:1]
        is_all = bool(named) and len(named) == len(query.tags)
        return named if is_all else list(self._lives.values())

    async def _read_on(self, life: RunNotes) -> list[Note]:
        fresh: list[Note] = []
        with suppress(UnknownRun):  # retention was faster
            async for entry in self._journal.read(life.run, life.seq):
                if entry.seq == life.seq + 1:  # another call may have been faster
                    fresh += life.apply(entry.seq, entry.event)
        return fresh


async def brought(value: Value, journal: Journal) -> Value:
    """The value itself, wherever it lies."""
    if not value.blob:
        return value
    return Value(json=Raw(await journal.blobs.get(value.blob)), taint=value.taint)


def choice_of(kind: type[E], name: str, given: object) -> E:
    """What was chosen by its name. Raises `UsageError` for what is none of the choices."""
    for each in kind:
        if isinstance(given, str) and each == given:
            return each
    known = ", ".join(repr(each.value) for each in kind)
    raise UsageError(f"{name}={repr_of(given)} is none of {known}")


def words_of(name: str, given: object) -> tuple[str, ...]:
    """What is asked for, word by word. Raises `UsageError` for a lone word, which is many letters."""
    if given is None:
        return ()
    if isinstance(given, str):
        raise UsageError(f"{name}={repr_of(given)} must be a list of words: [{repr_of(given)}]")
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise UsageError(f"{name}={repr_of(given)} must be a list of words")
    return tuple(checks.name(each, f"{name}: a word") for each in given)


def _metadata(metadata: object) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise UsageError(f"metadata={repr_of(metadata)} must be a dict")
    return {checks.text(name, "metadata: a name"): each for name, each in metadata.items()}


def _moment(given: object) -> str:
    """A moment as ISO 8601 writes it."""
    moment = given if isinstance(given, datetime) else None
    if isinstance(given, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(given)
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            f"timestamp={repr_of(given)} is no moment; give a datetime with its time zone, or one "
            "in ISO 8601: '2026-03-01T12:00:00+00:00'"
        )
    return moment.isoformat()
