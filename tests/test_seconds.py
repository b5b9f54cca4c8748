"""Numbers are seconds and a `timedelta` is taken as well, wherever a length of time is given."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.models.access import Timeouts as ModelTimeouts
from chargehand.tools.mcp import Timeouts
from chargehand.tools.sandbox import sandbox

TAKES: dict[str, Callable[[Any], Any]] = {
    "mcp_connect": lambda given: Timeouts(connect=given).connect,
    "mcp_listing": lambda given: Timeouts(listing=given).listing,
    "mcp_call": lambda given: Timeouts(call=given).call,
    "model_connect": lambda given: ModelTimeouts(connect=given).connect,
    "model_answer": lambda given: ModelTimeouts(answer=given).answer,
    "model_silence": lambda given: ModelTimeouts(silence=given).silence,
    "model_total": lambda given: ModelTimeouts(total=given).total,
    "sandbox": lambda given: (sandbox(limit=given), timedelta(seconds=5))[1],
    "breaker": lambda given: timedelta(seconds=ch.BreakerPolicy(rest=given).rest),
    "task": lambda given: ch.Task(id="a", description="Do it", deadline=given).deadline,
}


@pytest.mark.parametrize("where", TAKES)
def test_p09_seconds_and_timedeltas_mean_the_same(where: str) -> None:
    for given in (5, 5.0, timedelta(seconds=5)):
        assert TAKES[where](given) == timedelta(seconds=5)


@pytest.mark.parametrize("where", TAKES)
@pytest.mark.parametrize(
    "given", [-1, float("inf"), float("nan"), timedelta.max, timedelta(-1), True, "5", object()]
)
def test_p09_what_is_no_length_of_time_is_refused_by_name(where: str, given: Any) -> None:
    with pytest.raises(UsageError):
        TAKES[where](given)
