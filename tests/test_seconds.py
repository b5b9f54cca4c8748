"""Numbers are seconds and a `timedelta` is taken as well, wherever a length of time is given."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import ModelError, UsageError
from chargehand.facts.outcome import ErrorClass, wait_asked_by
from chargehand.journal.open_journal import open_journal
from chargehand.models.connection_settings import ModelTimeouts
from chargehand.models.provider_errors import seconds_asked_by
from chargehand.notify import Command, Webhook
from chargehand.patterns.recursive import RecursiveSupervisor
from chargehand.tools.mcp import Restarts, ServerTimeouts
from chargehand.tools.public_http import Transport
from chargehand.tools.sandbox.tools import sandbox
from chargehand.tools.sql_tables import data

ROOT = Path(__file__).parent.parent
#: users read these and never make them
READ_ONLY = {"Forecast", "Load", "PastRunSimulation", "Report"}


def noop() -> None:
    """Do nothing."""


def _of(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


TAKES: dict[str, Callable[[Any], Any]] = {
    "mcp_connect": lambda given: ServerTimeouts(connect=given).connect,
    "mcp_listing": lambda given: ServerTimeouts(listing=given).listing,
    "mcp_call": lambda given: ServerTimeouts(call=given).call,
    "model_connect": lambda given: ModelTimeouts(connect=given).connect,
    "model_answer": lambda given: ModelTimeouts(answer=given).answer,
    "model_silence": lambda given: ModelTimeouts(silence=given).silence,
    "model_total": lambda given: ModelTimeouts(total=given).total,
    "sandbox": lambda given: (sandbox(limit=given), timedelta(seconds=5))[1],
    "breaker": lambda given: timedelta(seconds=ch.BreakerPolicy(rest=given).rest or 0),
    "model_latency": lambda given: _of(ch.ScriptedModel(latency=given)._latency),
    "model_patience": lambda given: _of(ch.ModelGateway(patience=given)._patience),
    "data": lambda given: data(".", timeout=given)[0].timeout / 5,
    "tool": lambda given: ch.tool(timeout=given)(noop).timeout,
    "transport": lambda given: Transport(["example.org"], time=given)._time,
    "restarts_window": lambda given: Restarts(window=given).window,
    "restarts_backoff": lambda given: Restarts(backoff=given).backoff,
    "factory": lambda given: ch.Factory("f", "Makes workers", timeout=given).timeout,
    "recursive": lambda given: RecursiveSupervisor(timeout=given).timeout,
    "failed": lambda given: (
        ch.Failed(kind=ErrorClass.RESOURCE, message="x", retry_after=given).retry_after
    ),
    "question": lambda given: ch.Question(id="q", text="Which?", patience=given).patience,
    "retry": lambda given: ch.RetryPolicy(first=given).first,
    "elastic": lambda given: ch.Elastic(period=given).period,
    "webhook": lambda given: Webhook("https://example.org", timeout=given)._timeout,
    "command": lambda given: Command(["true"], timeout=given)._timeout,
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


@pytest.mark.parametrize("option", ["lease", "patience"])
async def test_p09_journals_take_seconds_and_refuse_what_is_none(
    option: str, tmp_path: Path
) -> None:
    taken: list[Any] = [5, 5.0, timedelta(seconds=5), timedelta(days=30_000)]
    for given in taken:
        await open_journal(tmp_path / "runs.db", **{option: given}).close()
    refused: list[Any] = [-1, float("nan"), timedelta.max, "5", True]
    for given in refused:
        with pytest.raises(UsageError, match=option):
            open_journal(tmp_path / "runs.db", **{option: given})


@pytest.mark.parametrize("given", [5, 5.0, timedelta(seconds=5)])
def test_p09_a_worker_says_in_seconds_when_to_try_again(given: Any) -> None:
    assert wait_asked_by(ch.WorkerError("x", retry_after=given)) == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (5, 5.0),
        (timedelta(seconds=5), 5.0),
        (None, None),
        (float("inf"), None),
        ("soon", None),
        (10**7, 3_600.0),
    ],
)
def test_p09_what_a_model_of_ones_own_asks_to_wait(given: Any, seconds: float | None) -> None:
    assert seconds_asked_by(ModelError("busy", retry_after=given)) == seconds


def public_names() -> Iterator[tuple[str, Any]]:
    """What `chargehand` offers, and what its documentation and its examples import."""
    found = {("chargehand", name) for name in ch.__all__}
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py"), ROOT / "README.md"]
    for page in pages:
        imports = re.findall(
            r"^ *from (chargehand[\w.]*) import (\([^)]*\)|[^\n(#]+)",
            page.read_text(),
            re.MULTILINE,
        )
        found |= {
            (module, name)
            for module, names in imports
            for name in re.findall(r"\w+", re.sub(r" as \w+", "", names))
        }
    for module, name in sorted(found):
        known = importlib.import_module(module)
        is_module = not hasattr(known, name)  # as in `from chargehand import recordings`
        yield (
            name,
            importlib.import_module(f"{module}.{name}") if is_module else getattr(known, name),
        )


def bare_timedeltas() -> Iterator[str]:
    """Parameters that take a `timedelta` and no number."""
    for name, thing in public_names():
        if name in READ_ONLY or not callable(thing):
            continue
        functions = [(name, thing)]
        if inspect.isclass(thing):
            members = inspect.getmembers(thing, inspect.isfunction)
            functions += [(f"{name}.{each}", member) for each, member in members if each[0] != "_"]
        for called, function in functions:
            try:
                parameters = inspect.signature(function).parameters.values()
            except ValueError:  # some of C have none
                continue
            for each in parameters:
                if re.search(r"timedelta(?!.*float)", str(each.annotation)):
                    yield f"{called}({each.name}: {each.annotation})"


def test_p09_no_public_parameter_takes_a_timedelta_alone() -> None:
    assert len(list(public_names())) > 100
    assert list(bare_timedeltas()) == []
