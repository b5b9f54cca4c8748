"""The crew that `dashboard.py` serves: quick at first, then at the pace of a live run."""

import asyncio
import itertools
import os
import random

import chargehand as ch

#: tasks that take no time; those after them take `PACE` seconds each, so that the page has something to follow
QUICK = int(os.environ.get("BENCH_QUICK", "0"))
PACE = float(os.environ.get("BENCH_PACE", "1"))
CALLS = int(os.environ.get("BENCH_CALLS", "10"))
_started = itertools.count()


async def look_up(place: int) -> str:
    return f"what was found at {place}"


async def work(brief: ch.Brief) -> str:
    is_live = next(_started) >= QUICK
    if is_live:
        await asyncio.sleep(PACE * random.uniform(0.5, 1.5))
    for place in range(1 if is_live else CALLS):
        await brief.step("look_up", look_up, place, effect="pure")
    return "found"


WORKERS = [
    ch.worker("fetcher", "Fetches a page")(work),
    ch.worker("reader", "Reads a page")(work),
    ch.worker("writer", "Joins what was read")(work),
]
boss = ch.Supervisor(
    WORKERS,
    journal=os.environ["BENCH_JOURNAL"],
    parallel=16,
    limits=ch.Limits(tasks=10_000, parallel=16),
)
