"""What a script can say, and how it is held to what was asked."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from chargehand.errors import ModelBusy, ModelDenied, UsageError
from chargehand.models.base import ModelRequest, user
from chargehand.models.scripted import ScriptedModel, When
from tests.contracts.model_stage import FIRST, SECOND, asking


async def test_a_script_is_played_in_order_and_its_end_is_checked() -> None:
    model = ScriptedModel(["one", FIRST, [FIRST, SECOND], ModelBusy("slow down"), ModelDenied])
    assert (await model.ask(asking())).text == "one"
    assert (await model.ask(asking())).calls == (FIRST,)
    assert (await model.ask(asking())).calls == (FIRST, SECOND)
    with pytest.raises(ModelBusy, match="slow down"):
        await model.ask(asking())
    with pytest.raises(AssertionError, match="was not asked for"):
        model.assert_complete()
    with pytest.raises(ModelDenied):
        await model.ask(asking())
    model.assert_complete()
    assert len(model.requests) == 5


async def test_a_request_that_was_not_scripted_is_denied_and_remembered() -> None:
    model = ScriptedModel()
    with pytest.raises(ModelDenied, match="no line for this request: 'hello'"):
        await model.ask(asking())
    with pytest.raises(AssertionError, match="a request without a line: 'hello'"):
        model.assert_complete()


async def test_lines_can_wait_for_the_request_they_fit() -> None:
    def about(word: str) -> Callable[[ModelRequest], bool]:
        return lambda request: word in request.turns[-1].text

    async def slowly(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return request.turns[-1].text.upper()

    model = ScriptedModel([When(about("tea"), "hot"), When(about("ice"), "cold"), slowly])
    assert (await model.ask(asking(user("ice?")))).text == "cold"
    assert (await model.ask(asking(user("milk?")))).text == "MILK?"
    assert (await model.ask(asking(user("tea?")))).text == "hot"
    model.assert_complete()


async def test_a_script_can_take_its_time() -> None:
    model = ScriptedModel(["late"], latency=timedelta(seconds=30))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(model.ask(asking()), 0.01)


async def test_what_is_no_line_is_refused() -> None:
    with pytest.raises(UsageError, match="not a line of a script"):
        await ScriptedModel([7]).ask(asking())  # type: ignore[list-item]  # a slip of the pen
