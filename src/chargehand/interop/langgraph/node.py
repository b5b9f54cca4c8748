"""A supervisor as a node of a LangGraph graph. Imports LangGraph."""

import asyncio
import contextvars
import uuid
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.config import get_config, get_stream_writer
from langgraph.types import interrupt

from chargehand.decisions.schedule import RunState
from chargehand.errors import UnknownRun, UsageError, WorkerError
from chargehand.facts.events import Event, RunStatus, encode
from chargehand.facts.outcome import Done, Failed, Question
from chargehand.facts.plan import Plan
from chargehand.facts.value import canonical
from chargehand.interop.langgraph.read_state import MESSAGES, found_in, has
from chargehand.presentation.event_relay import RunListener, is_about_people
from chargehand.result import RunResult
from chargehand.roles.data_fences import words_of
from chargehand.supervisor import Run, Supervisor
from chargehand.supervisor.nested_requests import outcome_from
from chargehand.supervisor.requests import RunOptions, run_id
from chargehand.sync_async_bridge import wait_in_background

#: tag of the notes on a run's board that record which questions were put to the users of the graph
TAG = "langgraph"
MOST_QUESTIONS = 100_000

Request: TypeAlias = "str | Callable[[Any], str | Plan]"
Result: TypeAlias = "str | Callable[[RunResult], Any]"
Key: TypeAlias = Callable[[Any], str]
Tell: TypeAlias = Callable[[Event], None]
#: yields coroutines and is sent their results, so that async and sync graphs share the same code
Talk: TypeAlias = "Generator[Coroutine[Any, Any, Any], Any, Any]"


@dataclass(frozen=True)
class _Leading:
    """The parameters of one run of a node."""

    run: str
    asked: str | Plan
    terms: RunOptions
    tell: Tell | None
    #: questions that were answered through the graph
    answered: set[str]


class _Listening:
    """Listens to one run and its nested runs."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        #: whether this run or a nested run has asked a person something
        self.is_asked = False
        #: set by that event and each later event
        self.news = asyncio.Event()

    def hear(self, event: Event) -> None:
        if self._tell is not None:
            self._tell(event)
        self.hear_below(event)

    def hear_below(self, event: Event) -> None:
        self.is_asked = self.is_asked or is_about_people(event)
        if self.is_asked:
            self.news.set()


@dataclass
class SupervisorNode:
    """Runs the supervisor for each execution of the node; continues the same run if the node is executed again."""

    boss: Supervisor
    request: Request
    result: Result
    gaps: str
    key_for: Key | None
    stream: bool
    terms: RunOptions

    def __post_init__(self) -> None:
        self._listener = RunListener(self.boss)

    def runnable(self) -> Runnable[Any, Any]:
        """The runnable for `add_node`."""
        return RunnableLambda(self._invoke, afunc=self._ainvoke, name=self.boss.name)

    def _invoke(self, state: Any) -> Any:
        """Execute the node in a sync graph; the supervisor runs on the background loop."""
        talk, came = self._talk(state), None
        while True:
            try:
                awaited = talk.send(came)
            except StopIteration as end:
                return end.value
            came = wait_in_background(awaited)

    async def _ainvoke(self, state: Any) -> Any:
        talk, came = self._talk(state), None
        while True:
            try:
                awaited = talk.send(came)
            except StopIteration as end:
                return end.value
            came = await awaited

    def _talk(self, state: Any) -> Talk:
        """Run until the end; questions to a person become interrupts of the graph."""
        asked = self._asked(state)
        tell = self._telling() if self.stream else None
        key, earlier = yield self._place(self._key_for(state, get_config()))
        run = run_id(key)
        terms: RunOptions = {**self.terms, "key": key}
        if earlier:
            terms["reuse"] = earlier
        put = yield self._put_before(run)
        answered: set[str] = set()
        while True:
            # LangGraph matches the answers to interrupts by order. So all earlier questions are put again,
            # in the same order, even if they were answered elsewhere by now.
            while put:
                question = put.pop(0)
                is_answered = yield self._answer(question["id"], interrupt(question))
                if is_answered:
                    answered.add(question["id"])
            found = yield self._go_on(_Leading(run, asked, terms, tell, answered))
            if isinstance(found, RunResult):
                return self._update(found)
            put.append((yield self._put(run, found)))

    # request and key

    def _asked(self, state: Any) -> str | Plan:
        if callable(self.request):
            return self.request(state)
        if not has(state, self.request):
            raise UsageError(
                f"the graph's state has no key {self.request!r}; name the key of the request with request=…"
            )
        found = found_in(state, self.request)
        if isinstance(found, Mapping):
            return Plan.from_json(canonical(found))
        if isinstance(found, str | Plan):
            return found
        raise UsageError(
            f"{self.request!r} in the graph's state is of type {type(found).__name__}; give text, messages "
            "or a plan, or pass a function that returns one as request=…"
        )

    def _key_for(self, state: Any, config: RunnableConfig) -> str:
        """The key of the run: the same each time that LangGraph executes this task of this thread."""
        if self.key_for is not None:
            return self.key_for(state)
        fixed = self.terms.get("key")
        if fixed:
            return fixed
        place = config.get("configurable") or {}
        # Outside of a graph, nothing is executed again.
        task = place.get("checkpoint_ns") or uuid.uuid4()
        return f"{TAG}:{place.get('thread_id', '')}:{task}"

    async def _place(self, key: str) -> tuple[str, str]:
        """The key of the run to start or continue, and the id of the failed run before it.

        If the run of the node has failed or was cancelled, executing the node again starts a new run.
        """
        tries, earlier = 1, ""
        while True:
            name = key if tries == 1 else f"{key}:{tries}"
            try:
                status = (await self.boss.look(run_id(name))).status
            except UnknownRun:
                return name, earlier
            if status not in self._refused:
                return name, earlier
            tries, earlier = tries + 1, run_id(name)

    @property
    def _refused(self) -> set[RunStatus]:
        """The statuses that are errors of the node. A `result` function gets any result but a cancelled one."""
        if callable(self.result):
            return {RunStatus.CANCELLED}
        refused = {RunStatus.CANCELLED, RunStatus.FAILED}
        return refused if self._takes_gaps else {*refused, RunStatus.PARTIAL}

    @property
    def _takes_gaps(self) -> bool:
        """Whether the state update shows that a result is partial."""
        return self.result == MESSAGES or bool(self.gaps)

    # running

    async def _go_on(self, leading: "_Leading") -> RunResult | Question:
        """The result, or the question without whose answer the run cannot continue."""
        listening = _Listening(leading.tell)
        with self._listener.listening(leading.run, listening):
            try:
                begun = await self.boss.submit(leading.asked, **leading.terms)
                return await self._until_it_waits(begun, listening, leading.answered)
            except asyncio.CancelledError:
                with suppress(UnknownRun):  # it was cancelled before the run began
                    await asyncio.shield(self.boss.cancel(leading.run, "the graph was cancelled"))
                raise

    async def _until_it_waits(
        self, begun: Run, listening: _Listening, answered: set[str]
    ) -> RunResult | Question:
        ending = asyncio.ensure_future(begun.wait())
        try:
            while not ending.done():
                listening.news.clear()
                seen = await self.boss.look(begun.id)
                questions = seen.questions
                listening.is_asked = listening.is_asked or bool(questions)
                # An answer to a question of a nested run takes a moment to arrive.
                open_ = [each for each in questions if each.id not in answered]
                if seen.status is RunState.WAITING and open_:
                    return open_[0]
                await _first(ending, listening.news)
            return ending.result()
        finally:
            ending.cancel()

    def _telling(self) -> Tell:
        """Writes events to the graph's stream of mode `custom`."""
        write, here = get_stream_writer(), contextvars.copy_context()

        def tell(event: Event) -> None:
            # The writer reads the identity of this node from its context.
            here.copy().run(write, {"chargehand": msgspec.json.decode(encode(event))})

        return tell

    # questions

    async def _put_before(self, run: str) -> list[dict[str, Any]]:
        """The questions of this run that were put to users of the graph, in order."""
        try:
            status = (await self.boss.look(run)).status
        except UnknownRun:
            return []
        if isinstance(status, RunStatus):
            return []  # the run has ended, so no answer is needed
        board = self.boss.board(run=run)
        notes = await board.notes(tags=[TAG], limit=MOST_QUESTIONS)
        return [note.content for note in reversed(notes)]

    async def _put(self, run: str, question: Question) -> dict[str, Any]:
        """Record that this question is put to a user, so that the answer can be matched to it."""
        content = {
            "id": question.id,
            "question": question.text,
            "choices": list(question.choices),
            "about": question.about,
            "evidence": question.evidence.read(),
        }
        await self.boss.board(run=run).post(content, tags=[TAG])
        return content

    async def _answer(self, question: str, said: Any) -> bool:
        """Answer a question with the value that the graph was resumed with; returns whether that was accepted."""
        try:
            await self.boss.answer(question, words_of(said))
        except UsageError:
            return False  # already answered, or the value is not one of its choices
        return True

    # state update

    def _update(self, result: RunResult) -> Any:
        """The state update. Raises `WorkerError` if the run failed."""
        if callable(self.result):
            return self.result(result)
        outcome = outcome_from(result, self.boss.name)
        if not isinstance(outcome, Done):
            kind = outcome.kind if isinstance(outcome, Failed) else "cancelled"
            why = getattr(outcome, "message", "") or getattr(outcome, "reason", "")
            raise WorkerError(f"run {result.id} failed: {why}", kind=kind)
        if self.result == MESSAGES:
            return {MESSAGES: [AIMessage(str(result.answer))]}  # the text lists the gaps
        if outcome.gaps and not self._takes_gaps:
            raise WorkerError(
                f"run {result.id} has gaps: {'; '.join(outcome.gaps)}; to accept a partial "
                "result, name a state key for the gaps with gaps=…, or pass a function as result=…"
            )
        told = {self.gaps: list(outcome.gaps)} if self.gaps else {}
        return {self.result: result.output, **told}


async def _first(ending: "asyncio.Future[Any]", news: asyncio.Event) -> None:
    """Wait until one of the two is set."""
    waking = asyncio.ensure_future(news.wait())
    try:
        await asyncio.wait((ending, waking), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waking.cancel()
