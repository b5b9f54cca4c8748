"""The model that is none: for trying out how a pool works before any model is paid for."""

from collections.abc import AsyncIterator

from chargehand.models.base import Abilities, ModelReply, ModelRequest, StopReason, Text

MOCK = "mock"
ABILITIES = Abilities(tools=False, schema=False, images=False, files=False, is_real=False)
#: characters of a task that are said again
LONGEST = 500


class MockModel:
    """Says what it was given, and that nobody has thought about it."""

    name = MOCK
    account = MOCK
    abilities = ABILITIES

    async def ask(self, request: ModelRequest) -> ModelReply:
        """The last words of the request, marked as what they are."""
        words = " ".join(request.turns[-1].text.split())
        given = words.removeprefix("Task: ")[:LONGEST]
        said = Text(f"[mock] no model was asked; the task was: {given}")
        return ModelReply(parts=(said,), stop=StopReason.END)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """The reply in one piece, and as a whole."""
        reply = await self.ask(request)
        yield reply.text
        yield reply
