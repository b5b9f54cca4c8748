"""What happened to runs, read from the journal as notes."""

from contextlib import suppress

from chargehand.decisions.events_as_notes import RunNotes
from chargehand.errors import UnknownRun
from chargehand.facts.board import Match, Note, NoteQuery
from chargehand.journal.base import Journal

#: in place of the id of one run: all that are in the journal
ALL_RUNS = "*"


class RunHistory:
    """The notes of one run, or of all runs. What was read is kept; the next call reads on from there."""

    def __init__(self, journal: Journal, run: str) -> None:
        self._journal = journal
        #: empty: of no run
        self._run = run
        self._runs: dict[str, RunNotes] = {}

    async def catch_up(self) -> list[Note]:
        """The notes of what has happened since the last call."""
        fresh: list[Note] = []
        for run in await self._changed_runs():
            life = self._runs.setdefault(run, RunNotes(run))
            with suppress(UnknownRun):  # it has not begun, or retention has deleted it
                async for entry in self._journal.read(run, life.seq):
                    if entry.seq == life.seq + 1:  # another call may have been faster
                        fresh += life.apply(entry.seq, entry.event)
        return fresh

    async def notes(self, query: NoteQuery) -> list[Note]:
        """All notes that this query may ask for, run by run."""
        await self.catch_up()
        return [note for life in self._asked(query) for note in life.notes]

    def _asked(self, query: NoteQuery) -> list[RunNotes]:
        """The runs that the tags name, if they can name no other; else all of them.

        What happens to a run has the run's id among its tags.
        """
        named = [self._runs[tag] for tag in query.tags if tag in self._runs]
        if named and query.match is Match.ALL:
            return named[:1]
        is_all = bool(named) and len(named) == len(query.tags)
        return named if is_all else list(self._runs.values())

    async def _changed_runs(self) -> list[str]:
        """The runs that may have more to read."""
        if self._run != ALL_RUNS:
            return [self._run] if self._run else []
        heads = await self._journal.heads()
        for head in heads:
            if head.is_forgotten:
                self._runs.pop(head.stream, None)
        known = {run: life.seq for run, life in self._runs.items()}
        return [
            head.stream
            for head in heads
            if not head.is_forgotten and known.get(head.stream, 0) < head.seq
        ]
