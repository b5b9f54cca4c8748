"""Model calls: as durable steps, and repeated until the answer is JSON of the schema that is needed."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from chargehand.engines.brief import Brief
from chargehand.errors import ModelError, WorkerError
from chargehand.facts.events import Effect
from chargehand.facts.outcome import ONE_CALL, Done
from chargehand.facts.value import Value
from chargehand.models import base
from chargehand.models.gateway import Call, Hear
from chargehand.roles.json_reply_check import objection_to
from chargehand.roles.shared_resources import Resources

T = TypeVar("T")

#: how often a model is told what is wrong with its answer
REPAIRS = 2

#: the error of a reply without words and calls
EMPTY = "EmptyReply"
#: characters of a reply that was cut off
CUT_SHOWN = 200
SHORTER = "Your answer was cut off at the maximum length. Answer again, in half as many words."

_call_in = msgspec.json.Decoder(Call)


class ModelCaller(Protocol):
    """Whoever can be asked."""

    async def ask(
        self, name: str, request: base.ModelRequest, hear: Hear | None = None
    ) -> base.ModelReply:
        """The whole reply to one request; `name` is what the step is called in the trace."""

    @property
    def resources(self) -> Resources: ...


class PlainModelCaller:
    """Asks without a run: nothing is written down."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._models = resources.models(None, "the supervisor")

    async def ask(
        self,
        name: str,  # noqa: ARG002 - there is no trace that it could stand in
        request: base.ModelRequest,
        hear: Hear | None = None,
    ) -> base.ModelReply:
        call = await self.resources.gateway.ask(self._models, request, hear=hear)
        return call.reply


class DurableModelCaller:
    """Asks on behalf of an attempt: each call is a step, made once, and its reply is remembered."""

    def __init__(
        self, brief: Brief, resources: Resources, models: Sequence[base.Model] | None = None
    ) -> None:
        self.resources = resources
        self._brief = brief
        self._models = resources.models(None, "the supervisor") if models is None else models
        self.names = [model.name for model in self._models]

    async def ask(
        self, name: str, request: base.ModelRequest, hear: Hear | None = None
    ) -> base.ModelReply:
        about = {"models": self.names, "turns": request.turns}
        return await self.ask_as(name, request, [self.names, request], about, hear)

    async def ask_as(
        self,
        name: str,
        request: base.ModelRequest,
        identity: object,
        about: object,
        hear: Hear | None = None,
    ) -> base.ModelReply:
        """As `ask`; `identity` tells this call from others of its name, the trace shows `about`."""
        models = self._models
        while True:
            try:
                return await self._asked(models, name, request, identity, about, hear)
            except ModelError as error:
                if not error.untried:
                    raise
                # What failed may be paid for, and has used up its reserve: the next model is a call of its own.
                models = models[-error.untried :]
                identity = [identity, [model.name for model in models]]
                if hear is not None:
                    hear(None)

    async def _asked(
        self,
        models: Sequence[base.Model],
        name: str,
        request: base.ModelRequest,
        identity: object,
        about: object,
        hear: Hear | None,
    ) -> base.ModelReply:
        async def run(_: str) -> Done:
            return await self.resources.call(self._brief, models, request, hear)

        is_capped = self._brief.is_capped
        reserve = self.resources.worst(models, request) if is_capped else ONE_CALL
        told = Value.of_record(about)
        done = await self._brief.durable(
            name, identity, run, effect=Effect.PURE, about=told, reserve=reserve
        )
        return _call_in.decode(done.value.json).reply


async def ask_for(
    caller: ModelCaller,
    name: str,
    turns: Sequence[base.Turn],
    schema: dict[str, Any],
    examine: Callable[[Any], str | None] = lambda _: None,
    hear: Hear | None = None,
    read: Callable[[str], str] = str,
) -> Any:
    """JSON that fits the schema and that `examine` has nothing to say against, in three tries at most.

    `read` may bring what a model said into the form that was asked for before it is held to the schema.

    Raises `WorkerError` (logic) with the last objection when the model cannot do it.
    """

    def judge(text: str) -> tuple[Any, str | None]:
        value, objection = objection_to(read(text), schema)
        return value, examine(value) if objection is None else objection

    return await ask_until(caller, name, turns, schema, judge, hear=hear)


async def ask_until(
    caller: ModelCaller,
    name: str,
    turns: Sequence[base.Turn],
    schema: dict[str, Any],
    judge: Callable[[str], tuple[T, str | None]],
    *,
    again: str = "",
    hear: Hear | None = None,
    failure: Callable[[T], type[WorkerError]] = lambda _: WorkerError,
    settings: base.ModelSettings | None = None,
) -> T:
    """What `judge` makes of the first reply that it has no objection to, in three tries at most.

    An objection goes back to the model, followed by `again`. The last one is raised as the `failure` of
    what it was made to. `settings` stand in for those of the supervisor.
    """
    said = list(turns)
    chosen = caller.resources.settings if settings is None else settings
    for _ in range(REPAIRS + 1):
        request = base.ModelRequest(turns=tuple(said), schema=schema, settings=chosen)
        reply = await caller.ask(name, request, hear)
        refuse_unusable(reply)
        value, objection = judge(reply.text)
        if objection is None:
            return value
        said += [reply.turn, base.user(f"{objection}{again}")]
    error = failure(value)(f"the model gave no valid reply in {REPAIRS + 1} tries: {objection}")
    error.is_final = True  # a second attempt would ask the same model as often again
    raise error


def in_fewer_words(reply: base.ModelReply) -> tuple[base.Turn, base.Turn]:
    """How a model is asked again for an answer that was cut off: never unchanged."""
    # The beginning is enough; all of the cut text would be paid for again.
    began = base.Turn(base.Role.MODEL, (base.Text(f"{reply.text[:CUT_SHOWN]}…"),))
    return began, base.user(SHORTER)


def refuse_unusable(reply: base.ModelReply, *, may_be_empty: bool = False) -> None:
    """Raise for a reply that is no answer. A cut one is never taken for a whole one."""
    found = unusable(reply)
    if found is not None and not (may_be_empty and found[0] == EMPTY):
        raise WorkerError(found[1])


def unusable(reply: base.ModelReply) -> tuple[str, str] | None:
    """Why a reply is no answer: the name of the error, and its message."""
    if reply.stop is base.StopReason.REFUSAL:
        return "Refused", f"the model refused: {reply.text[:500] or 'without a word'}"
    if reply.stop is base.StopReason.LENGTH:
        return "Truncated", "the answer was cut off at the maximum length; raise max_tokens"
    if not reply.text.strip() and not reply.calls:
        return EMPTY, "the model answered nothing"
    return None
