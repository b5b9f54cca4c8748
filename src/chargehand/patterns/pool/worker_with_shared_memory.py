"""The shared memory of a pool for LLM workers: insights in the prompt, and tools to read and write them."""

import dataclasses
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.rule_answer import cut
from chargehand.engines.brief import Brief
from chargehand.engines.pending_call import board_to_await
from chargehand.errors import ToolError, UsageError
from chargehand.facts.board import Note, NoteQuery, Segment
from chargehand.facts.outcome import Done, Outcome
from chargehand.journal.base import Journal
from chargehand.roles.board import Board, BriefBoard
from chargehand.roles.data_fences import fenced, words_of
from chargehand.roles.function_worker import Where
from chargehand.roles.llm_worker import Worker
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import Resources
from chargehand.roles.tool_loop import ToolLoop
from chargehand.tools.base import Tool, ToolContext, tool

#: insights that the prompt of a task contains, and characters of each
SHOWN, LONGEST_SHOWN = 5, 500
#: insights that one call of the tool returns, and characters of each
READ, LONGEST_READ = 20, 2_000
#: characters of a step's key that identify what is done inside the step
SCOPE = 12
UNTHOUGHT = "no model was asked: the provider is mock"


@board_to_await
class PoolBoard(BriefBoard):
    """The shared memory of a pool, for one attempt. The notes on it are the insights of the pool.

    Searches also find what has happened in the run of the attempt.
    """

    def __init__(self, journal: Journal, clock: Clock, brief: Brief, name: str) -> None:
        super().__init__(journal, clock, brief, name, with_run=True)

    def within(self, key: str) -> Board:
        """The board without the events of the run, for use inside the step with this key."""
        return BriefBoard(self.journal, self.clock, self.brief, self.name, scope=key[:SCOPE])


class MemoryWorker:
    """An LLM worker that gets insights about its task from the pool, and can read and write insights."""

    where = Where.LOOP

    def __init__(self, worker: Worker, memory: Board) -> None:
        self.worker = worker
        self._memory = memory
        self.name = worker.name
        self.description = worker.description
        self.skills = worker.skills
        self.timeout = worker.timeout
        self.place = worker.place
        self.model = worker.model

    def version(self, resources: Resources) -> str:  # noqa: ARG002 - as all members of a roster
        """Always empty: its results depend on the contents of the pool, so they are not reused."""
        return ""

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        """The function that runs an attempt."""
        models = resources.models(self.worker.model, f"worker {self.name!r}")
        # A rule-based model would take the output of a memory tool for the answer to its task.
        has_tools = all(each.abilities.tools and each.abilities.is_metered for each in models)

        async def perform(brief: Brief) -> Outcome:
            board = brief.board
            if not isinstance(board, PoolBoard):
                return await ToolLoop(self.worker, brief, resources, models).hold()
            await _show(board, resources)
            own, more = self.worker.toolbox.names, MemoryTools(board, self._memory).tools()
            # A model can be forced to use an output schema only if it has no tools.
            is_formed = brief.task.output is not None and not own
            tools = [each for each in more if each.name not in own]
            tools = tools if has_tools and not is_formed else []
            return await ToolLoop(self.worker, brief, resources, models, tools).hold()

        return perform


class MockedWorker(MemoryWorker):
    """A worker with the mock model: each result has a gap that says that no model was called."""

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        perform = self.worker.work(resources)

        async def repeat(brief: Brief) -> Outcome:
            outcome = await perform(brief)
            return replace(outcome, gaps=(UNTHOUGHT,)) if isinstance(outcome, Done) else outcome

        return repeat


async def _show(board: PoolBoard, resources: Resources) -> None:
    """Add insights of the pool about the same subject to the description of the task."""
    brief = board.brief
    hits = await board.within("shown").search(brief.task.description, limit=SHOWN, by="words")
    told = "".join(
        fenced(f"insight of {hit.note.author}", cut(words_of(hit.note.content), LONGEST_SHOWN))
        for hit in hits
    )
    if told:
        words = f"{brief.task.description}\n\n{prompt('insights', resources.prompts)}\n{told}"
        brief.task = replace(brief.task, description=words)


class MemoryTools(Struct, frozen=True):
    """The tools with which a model uses the shared memory, for one attempt."""

    board: PoolBoard | None
    memory: Board | None

    def tools(self) -> list[Tool]:
        """The tools, bound to the attempt."""
        return [dataclasses.replace(each, function=getattr(self, each.name)) for each in _made()]

    async def read_insights(
        self,
        context: ToolContext,
        words: str = "",
        tags: list[str] | None = None,
        segment: str = "",
    ) -> Any:
        """Read what you and the other workers know: insights, results, errors.

        Args:
            words: find insights about this; without it, the newest come first
            tags: only those with one of these tags
            segment: only these: notes, results, errors, tasks, progress or conflicts
        """
        if self.board is None or self.memory is None:
            raise ToolError("there is no memory here")
        wanted = tuple(tags or ())
        segments = (segment,) if segment else ()
        if words.strip():
            board = self.board.within(context.key)
            hits = await board.search(
                words, tags=wanted, segments=segments, limit=READ + 1, by="words"
            )
            notes = [hit.note for hit in hits]
        else:
            query = NoteQuery(tags=wanted, segments=segments, limit=READ + 1)
            notes = await self.memory.matching(query)
            for source in (source for note in notes for source in note.taint):
                self.board.brief.distrust(source)
        told: list[Any] = [_told(note) for note in notes[:READ]]
        return told + ["there are more; ask for fewer, by words or tags"] * (len(notes) > READ)

    async def write_insight(
        self,
        context: ToolContext,
        content: str,
        tags: list[str] | None = None,
        importance: float = 0.5,
    ) -> str:
        """Let the other workers know something that helps them. Do not post your result here; return it as your answer.

        Args:
            content: what they should know
            tags: words that it can be found by
            importance: from 0 to 1
        """
        if self.board is None:
            raise ToolError("there is no memory here")
        about = {"request_id": self.board.brief.run}
        try:
            note = await self.board.within(context.key).post(
                content,
                tags=list(tags or ()),
                segment=Segment.NOTES,
                importance=importance,
                metadata=about,
            )
        except UsageError as error:
            raise ToolError(str(error)) from error
        return f"kept as {note.id}"


@cache
def _made() -> tuple[Tool, ...]:
    """The tools, not bound to an attempt: their schemas are computed only once."""
    nobody = MemoryTools(None, None)
    # `post` is a keyed step of its own, so repeating a call of `write_insight` is harmless.
    return (
        tool(effect="pure")(nobody.read_insights),
        tool(effect="idempotent")(nobody.write_insight),
    )


def _told(note: Note) -> dict[str, Any]:
    return {
        "by": note.author,
        "segment": str(note.segment),
        "tags": list(note.tags),
        "said": cut(words_of(note.content), LONGEST_READ),
        "at": note.at.isoformat(),
    }
