"""The way of an attempt through somebody else's code, and back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from chargehand.decisions.run_results import MODEL_CALL
from chargehand.engines.brief import Brief
from chargehand.errors import ModelError, WorkerError
from chargehand.facts.events import Effect
from chargehand.facts.outcome import MOST_TOLD, NO_USAGE, Done, Usage
from chargehand.interop.call_cost import priced, worst
from chargehand.interop.error_classes import told_by
from chargehand.interop.external_model_call import ExternalModelCall, request_like
from chargehand.models.prices import is_plausible, settled
from chargehand.roles.resources import Resources, terms_of
from chargehand.roles.tool_loop import APPROVE, REJECT

T = TypeVar("T")
#: that may be told where nothing is limited
_ANYTHING = Usage(tokens_in=MOST_TOLD, tokens_out=MOST_TOLD)


class AttemptBridge:
    """Leads one attempt through another framework, whatever that does with exceptions.

    A question to a person, a lost task, a replay that does not match: what ends an attempt must reach
    the engine, and not be told to a model, put into a group or swallowed. It is kept as it passes, and
    raised again when the framework has returned.
    """

    def __init__(self, brief: Brief, resources: Resources) -> None:
        self.brief = brief
        self._resources = resources
        self._ending: BaseException | None = None
        self._turns = 0
        #: whether the call that failed last may have cost something
        self._is_paid = False

    async def through(self, work: Awaitable[T]) -> T:
        """What the framework returns or raises, unless the attempt was to end meanwhile."""
        try:
            result = await work
        except BaseException:
            if self._ending is not None:
                raise self._ending from None
            raise
        if self._ending is not None:
            raise self._ending
        return result

    async def step(
        self,
        name: str,
        identity: object,
        run: Callable[[], Awaitable[Done]],
        *,
        effect: Effect,
        about: object = None,
        reserve: Usage = NO_USAGE,
    ) -> Done:
        """`brief.durable` for a call that a framework makes. What `run` raises, the framework gets to see.

        It is written down with the class of failure it means.
        """
        own: Exception | None = None
        if name == MODEL_CALL:
            self._turns += 1
            if self._turns > self.brief.turns_left:
                self._ending = self._ending or self.brief.too_many_turns()
                raise self._ending

        async def told(_: str) -> Done:
            nonlocal own
            self._is_paid = False
            try:
                return await run()
            except Exception as error:
                own, failure = error, told_by(error)
                failure.may_be_paid = self._is_paid
                raise failure from error

        try:
            return await self.brief.durable(
                name, identity, told, effect=effect, about=about, reserve=reserve
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if own is not None and isinstance(error, WorkerError) and error.__cause__ is own:
                raise own from own.__cause__
            self._ending = self._ending or error
            raise

    async def call(self, outgoing: ExternalModelCall[T], said: str, most: int) -> tuple[T, Usage]:
        """Have a framework's model asked when its provider bears it, as often as that needs.

        Raises what the framework's own call raised. Raises `Parked` while nobody can be asked for long.
        """
        request = request_like(said, most)
        try:
            call = await self._resources.gateway.ask(
                [outgoing], request, priority=self.brief.task.priority, terms=terms_of(self.brief)
            )
        except ModelError as error:
            cause = error.__cause__
            if cause is None:
                raise
            self._is_paid = error.may_be_paid
            raise cause from cause.__cause__
        bound = worst(call.model, len(said.encode()), most)
        usage = call.reply.usage
        if self.brief.is_capped or not is_plausible(usage, _ANYTHING, has_parts=True):
            usage = settled(call.model, usage, bound)
        else:
            usage = priced(call.model, replace(usage, calls=1))
        for _ in range(call.doubtful):
            usage += bound
        return outgoing.came[0], usage

    async def ask(self, text: str, choices: Sequence[str] = ()) -> str:
        """Ask a person, as `brief.ask` does."""
        try:
            return await self.brief.ask(text, choices=choices)
        except BaseException as error:
            self._ending = self._ending or error
            raise

    async def approve(self, tool: str, arguments: str) -> bool:
        """Ask a person whether a tool may be called with exactly these arguments."""
        question = f"May {self.brief.worker} call {tool}({arguments})?"
        return await self.ask(question, (APPROVE, REJECT)) == APPROVE
