"""A wrapper that injects faults into calls of your model, without a network, so that it works in virtual time."""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from chargehand.errors import ModelBusy, ModelError, ModelGarbled, ModelTooSlow, ModelUnreachable
from chargehand.facts.argument_checks import Duration, duration
from chargehand.models.base import Model, ModelReply, ModelRequest, Part, Text, ToolCall
from chargehand.testing.fault_plan import FaultPlan, FaultSchedule, broken_json


class FaultyModel:
    """Wraps a model and injects faults into some of its calls.

        model = FaultyModel(my_model, faults=first(3, "429"))

    Faults are the errors that the model adapters raise; `FakeProvider` injects the same faults over HTTP. A 429 asks to
    wait for `retry_after`; a number means seconds.
    """

    def __init__(self, model: Model, faults: FaultPlan, *, retry_after: Duration = 1.0) -> None:
        self._model = model
        self._schedule = FaultSchedule(faults)
        self._retry_after = duration(retry_after, "FaultyModel: retry_after", may_be_zero=True)
        self.name = model.name
        self.account = model.account
        self.abilities = model.abilities

    @property
    def calls(self) -> int:
        """The number of calls, including those with faults."""
        return self._schedule.calls

    @property
    def struck(self) -> dict[int, str]:
        """The faults so far, by the number of the call."""
        return dict(self._schedule.struck)

    async def ask(self, request: ModelRequest) -> ModelReply:
        kind = self._schedule.next_fault()
        if kind is not None and kind != "bad json":
            raise self._error_of(kind)
        reply = await self._model.ask(request)
        return reply if kind is None else _broken(reply)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        kind = self._schedule.next_fault()
        if kind is not None and kind not in ("bad json", "cut stream"):
            raise self._error_of(kind)
        if kind == "bad json":
            reply = _broken(await self._model.ask(request))
            yield reply.text
            yield reply
            return
        async for piece in self._model.stream(request):
            if kind is not None and not isinstance(piece, str):
                raise self._error_of(kind)  # the whole text was streamed, but not the final reply
            yield piece

    def _error_of(self, kind: str) -> ModelError:
        match kind:
            case "429":
                return ModelBusy("429: as planned", retry_after=self._retry_after, status=429)
            case "500":
                return ModelUnreachable("500: as planned", status=500)
            case "timeout":
                return ModelTooSlow("no answer came, as planned")
            case "cut stream":
                return ModelGarbled("the answer broke off, as planned")
            case _:
                return ModelGarbled("what answered is not a model, as planned")


def _broken(reply: ModelReply) -> ModelReply:
    return replace(reply, parts=tuple(_broken_part(part) for part in reply.parts))


def _broken_part(part: Part) -> Part:
    match part:
        case Text(text=text):
            return Text(broken_json(text))
        case ToolCall(arguments=arguments):
            return replace(part, arguments=broken_json(arguments))
        case _:
            return part
