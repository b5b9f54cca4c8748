"""`chargehand simulate`: estimate the time and cost of a plan without running it."""

import asyncio
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from chargehand.cli import output
from chargehand.cli.given_path import GivenPath
from chargehand.cli.options import WholeNumber, journal_option, json_option
from chargehand.cli.request_and_plan_input import given_plan
from chargehand.cli.text_charts import bars, gantt
from chargehand.decisions.plan_forecast import GUESS, Forecast, Outlook, Range, forecast, places_for
from chargehand.decisions.plan_simulation import GUESSED_ITEMS
from chargehand.decisions.task_and_state_words import counted
from chargehand.decisions.trace import trace_of
from chargehand.errors import UnknownRun, UsageError
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Event
from chargehand.facts.outcome import NO_USAGE, Usage
from chargehand.facts.plan import Plan
from chargehand.journal.base import Journal
from chargehand.journal.open_journal import open_to_read
from chargehand.past_runs import LEARNED_RUNS, PastPaces
from chargehand.presentation.display_text import clean, money_words, one_line
from chargehand.regular_file import read_regular_file
from chargehand.supervisor_factory import JournalPlace, journal_place

#: most events of past runs that are read to learn the costs of tasks
MOST_EVENTS = 50_000
MOST_CRITICAL = 5
#: width of the first column
_NAMES = 11


@click.command()
@click.argument("file", type=GivenPath(), metavar="PLAN")
@journal_option
@click.option(
    "--parallel",
    type=WholeNumber(1),
    default=100,
    metavar="N",
    help="Number of slots: how many tasks can run at once. Default: 100, as in a run.",
)
@click.option(
    "--durations",
    type=GivenPath(),
    metavar="FILE",
    help='JSON file with the duration of a task, by worker: {"worker": seconds}, {"worker": [least, most]} or '
    '{"worker": {"seconds": …, "money": …}}.',
)
@click.option(
    "--runs",
    type=WholeNumber(1, 10_000),
    default=200,
    metavar="N",
    help="Number of simulations. Default: 200. Plans with very many items get fewer simulations.",
)
@click.option(
    "--items",
    "counts",
    multiple=True,
    metavar="TASK=N",
    help="Assume N items for a for_each task whose items the plan does not list. Default: 10. Can be repeated.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    metavar="N",
    help="Seed of the random durations. Default: 1.",
)
@json_option("Print one JSON object.")
def simulate(
    file: str,
    journal: str,
    parallel: int,
    durations: str | None,
    runs: int,
    counts: Sequence[str],
    seed: int,
    *,
    as_json: bool,
) -> None:
    """Estimate how long a PLAN will take, without running it.

    The real scheduler runs the plan on a virtual clock, and no model is called. The durations of tasks come from the
    --durations file, from the plan, or from past runs in the journal. PLAN is a file; - reads it from stdin.
    """
    plan = given_plan(file)
    learned = asyncio.run(_learned(journal_place(journal)))
    given, prices = _given(durations) if durations else ({}, {})
    _refuse_unknown(durations or "", [*given, *prices], plan)
    outlook = Outlook(
        given=given,
        paces=learned.paces,
        prices={**learned.prices, **prices},
        items=dict(_item_count(each, plan) for each in counts),
    )
    told = forecast(
        plan, places_for(plan), parallel=parallel, outlook=outlook, runs=runs, seed=seed
    )
    if as_json:
        output.as_json(_in_numbers(told))
        return
    for line in _shown(told, plan):
        output.result(line)


# Input


async def _learned(place: JournalPlace) -> Outlook:
    """Durations and costs from the finished runs of a journal; empty if there is no journal."""
    if not place.exists():
        return Outlook()
    journal = open_to_read(place)
    try:
        return Outlook(paces=await PastPaces().paces(journal), prices=await _prices(journal))
    finally:
        await journal.close()


async def _prices(journal: Journal) -> dict[str, float]:
    """Mean cost of a finished task by worker, including failed attempts; only for workers with known prices."""
    spent: dict[str, Usage] = {}
    done: dict[str, int] = {}
    left = MOST_EVENTS
    for head in (await journal.heads(forgotten=False))[:LEARNED_RUNS]:
        if not head.is_ended or head.seq > left:
            continue
        left -= head.seq
        events: list[Event] = []
        with suppress(UnknownRun):  # retention may delete it meanwhile
            events = [entry.event async for entry in journal.read(head.stream)]
        for each in trace_of(events).attempts:
            spent[each.worker] = spent.get(each.worker, NO_USAGE) + each.usage
            done[each.worker] = done.get(each.worker, 0) + (each.ending == "done")
    return {
        worker: usage.cost / done[worker]
        for worker, usage in spent.items()
        if done[worker] and usage.cost is not None
    }


def _refuse_unknown(file: str, names: Sequence[str], plan: Plan) -> None:
    """Raise `UsageError` for a name in the durations that no task of the plan uses."""
    known = list(dict.fromkeys(task.worker or task.skill for task in plan.tasks))
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            meant = (
                f"did you mean {close[0]!r}?" if close else f"its tasks are for {', '.join(known)}"
            )
            raise UsageError(f"{file}: no task of the plan is for {name!r}; {meant}")


def _given(file: str) -> tuple[dict[str, Range], dict[str, float]]:
    """Durations and costs by worker, from a file."""
    try:
        content = json.loads(read_regular_file(Path(file)).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"the durations {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f'{file} must be an object, such as {{"researcher": [5, 20]}}')
    ranges: dict[str, Range] = {}
    prices: dict[str, float] = {}
    for worker, said in content.items():
        facts: Mapping[str, object] = said if isinstance(said, dict) else {"seconds": said}
        where = f"{file}: {worker!r}"
        unknown = sorted(facts.keys() - {"seconds", "money"})
        if unknown:
            raise UsageError(
                f"{where} has an unknown key {unknown[0]!r}; the keys are seconds and money"
            )
        if "seconds" in facts:
            ranges[worker] = _range(facts["seconds"], where)
        if "money" in facts:
            prices[worker] = _number(facts["money"], f"{where}: money")
    return ranges, prices


def _item_count(said: str, plan: Plan) -> tuple[str, int]:
    task, _, number = said.rpartition("=")
    if not task or not number.isdecimal():
        raise UsageError(f"--items {said} must be TASK=N, such as --items each=400")
    mapped = [each.id for each in plan.tasks if each.for_each is not None]
    if task not in mapped:
        have = ", ".join(mapped) or "none"
        raise UsageError(
            f"--items {said}: there is no task {task!r} with for_each; tasks with for_each: {have}"
        )
    return task, int(number)


def _range(said: object, where: str) -> Range:
    both = said if isinstance(said, list) and len(said) == 2 else [said, said]
    return Range(*(_number(each, where) for each in both))


def _number(said: object, where: str) -> float:
    if isinstance(said, bool) or not isinstance(said, (int, float)) or not said >= 0:
        raise UsageError(f"{where} is {said!r}; give a number of at least 0, or two: [least, most]")
    return float(said)


# Output


def _shown(told: Forecast, plan: Plan) -> Iterator[str]:
    width = output.width()
    yield one_line(plan.goal, width)
    for name, words in _facts(told, plan):
        line = f"{name:<{_NAMES}}{words}"
        yield textwrap.fill(line, max(width, 40), subsequent_indent=" " * _NAMES)
    yield f"\nmedian run, {counted(told.parallel, 'slot')}:"
    yield from gantt(told.typical, plan, width)
    yield "\ntime by number of slots:"
    yield from bars(told.sweep, told.best, width)


def _facts(told: Forecast, plan: Plan) -> Iterator[tuple[str, str]]:
    tasks = counted(len(plan.tasks), "task")
    faster = f"{told.speedup:.1f} times as fast as one after another"
    first = list(told.critical.items())[:MOST_CRITICAL]
    yield "time", f"{shown_length(told.p50)} (p50), {shown_length(told.p95)} (p95)"
    yield "work", f"{shown_length(told.work)} in {tasks}, {faster}"
    yield "cost", _cost(told, money_words(told.cost))
    yield "pool", f"{told.utilisation:.0%} of {counted(told.parallel, 'slot')} busy"
    yield "waits for", ", ".join(f"{clean(task)} {share:.0%}" for task, share in first)
    yield "best", f"{counted(told.best, 'slot')}: more would save less than 5 %"
    if told.guessed_items:
        names = clean(", ".join(told.guessed_items))
        yield "items", f"{GUESSED_ITEMS} assumed for {names}; set the number with --items TASK=N"
    if told.guessed:
        names = clean(", ".join(told.guessed))
        yield (
            "guessed",
            f"{GUESS:g}s per task of {names}: not known from past runs, expect or --durations",
        )


def _cost(told: Forecast, money: str) -> str:
    if not told.unpriced:
        return money
    names = clean(", ".join(told.unpriced))
    if not told.cost:
        return f"not known for {names}"
    return f"{money}, without {names}, whose cost is not known"


def _in_numbers(told: Forecast) -> dict[str, Any]:
    def seconds(each: timedelta) -> float:
        return round(each.total_seconds(), 3)

    return {
        "parallel": told.parallel,
        "runs": told.runs,
        "seconds": {"p50": seconds(told.p50), "p95": seconds(told.p95)},
        "work": seconds(told.work),
        "speedup": round(told.speedup, 3),
        "utilisation": round(told.utilisation, 4),
        "cost": told.cost,
        "unpriced": told.unpriced,
        "guessed": told.guessed,
        "guessed_items": told.guessed_items,
        "critical": {task: round(share, 4) for task, share in told.critical.items()},
        "best": told.best,
        "sweep": [
            {
                "parallel": level.parallel,
                "seconds": {"p50": seconds(level.p50), "p95": seconds(level.p95)},
                "utilisation": round(level.utilisation, 4),
            }
            for level in told.sweep
        ],
        "typical": [
            {
                "task": span.task,
                "worker": span.worker,
                "start": seconds(span.start),
                "end": seconds(span.end),
            }
            for span in told.typical.spans
        ],
    }
