"""What a whole LLM task costs: plan known, durable journal, a model call over real HTTP.

The server runs in a process of its own, so that the CPU is that of the supervisor alone. Beside each
figure stands the same number of bare aiohttp calls, made in the same run.
"""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, Sample, folder_on_disk, middle, options_for, report, sampled

import chargehand as ch
from chargehand.models.base import Model, ModelReply, ModelRequest

#: tasks, where CPU is measured
AT_ONCE = 50
BODY = {"model": "bench", "messages": [{"role": "user", "content": "Do it. " * 40}]}


@ch.tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@contextmanager
def server(seconds: float) -> Iterator[str]:
    """The URL of a model server in a process of its own."""
    script = str(Path(__file__).with_name("_model_server.py"))
    command = [sys.executable, script, "--seconds", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def plan_of(count: int) -> ch.Plan:
    tasks = [
        ch.Task(id=f"t{n}", description=f"Say that number {n} is done", worker="mind")
        for n in range(count)
    ]
    return ch.Plan(goal="Have them all done", tasks=tasks)


async def through_us(
    url: str, folder: Path, count: int, parallel: int, *, tools: bool = False
) -> tuple[Sample, int]:
    """What so many tasks took, and how many calls were out at once."""
    model = Counted(ch.open_model("openai:bench", base_url=f"{url}/v1", key="none-needed"))
    mind = ch.Worker("mind", "Does things", tools=[add] if tools else [], model=model)
    board = ch.ModelGateway({"openai": ch.Rates(concurrency=parallel)})
    limits = ch.Limits(tasks=count, parallel=parallel)
    journal = folder / f"{count}-{parallel}-{tools}.db"
    async with ch.Supervisor(
        [mind], journal=journal, limits=limits, parallel=parallel, gateway=board
    ) as boss:
        await boss.run(plan_of(parallel))  # connections are made, modules loaded
        sample, result = await sampled(lambda: boss.run(plan_of(count)))
    assert result.status == "succeeded", result
    return sample, model.most


async def bare(url: str, count: int, parallel: int) -> Sample:
    """The same calls with nothing around them."""
    gate = asyncio.Semaphore(parallel)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one() -> None:
            async with gate, session.post(f"{url}/v1/chat/completions", json=BODY) as response:
                await response.json()

        async def all_of_them() -> None:
            await asyncio.gather(*(one() for _ in range(count)))

        await asyncio.gather(*(one() for _ in range(parallel)))
        sample, _ = await sampled(all_of_them)
    return sample


class Counted:
    """A model that counts how many of its calls are out at once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.account, self.abilities = model.name, model.account, model.abilities
        self.out = self.most = 0

    async def ask(self, request: ModelRequest) -> ModelReply:
        self.out += 1
        self.most = max(self.most, self.out)
        try:
            return await self._model.ask(request)
        finally:
            self.out -= 1

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        return self._model.stream(request)


async def cpu_figures(folder: Path, count: int, repeats: int) -> list[Figure]:
    with server(0) as url:
        alone = middle([await bare(url, count, AT_ONCE) for _ in range(repeats)])
        places = [folder / str(n) for n in range(repeats)]
        one = middle([(await through_us(url, at, count, AT_ONCE))[0] for at in places])
        two = middle([(await through_us(url, at, count, AT_ONCE, tools=True))[0] for at in places])
    call = alone.cpu / count
    return [
        Figure(name="bare aiohttp call, CPU", value=call * 1e3, unit="ms"),
        Figure(
            name="LLM task, one call, durable: CPU",
            value=one.cpu / count * 1e3,
            unit="ms",
            bar=0.5,
            ratio=one.cpu / alone.cpu,
        ),
        Figure(
            name="LLM task with a tool call in between: CPU",
            value=two.cpu / count * 1e3,
            unit="ms",
            bar=0.9,
            ratio=two.cpu / alone.cpu,
        ),
    ]


async def wall_figures(folder: Path, call: float, many: int, repeats: int) -> list[Figure]:
    with server(call) as url:
        fews, hundreds = [], []
        for n in range(repeats):  # in turn, so that a noisy moment falls on both alike
            fews.append(await bare(url, 100, 100))
            hundreds.append((await through_us(url, folder / str(n), 100, 100))[0])
        few, hundred = middle(fews), middle(hundreds)
        alone = await bare(url, many, many)
        thousand, flying = await through_us(url, folder, many, many)
    return [
        Figure(
            name=f"100 calls of {call * 1e3:g} ms at once: share of the ideal",
            value=call / hundred.wall,
            bar=0.8,
            is_floor=True,
            note=f"bare aiohttp: {call / few.wall:.2f}",
        ),
        Figure(name=f"{many} calls at once: wall", value=thousand.wall, unit="s", bar=1.0),
        Figure(name=f"{many} bare calls at once: wall", value=alone.wall, unit="s"),
        Figure(name="in flight at most", value=flying, bar=0.9 * many, is_floor=True),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--tasks", type=int, default=500)
        parser.add_argument("--many", type=int, default=1000)
        parser.add_argument("--repeats", type=int, default=5)

    options = options_for(__doc__, argv, add_options)
    with folder_on_disk() as folder:
        for n in range(options.repeats):
            (folder / str(n)).mkdir()
        figures = asyncio.run(cpu_figures(folder, options.tasks, options.repeats))
        figures += asyncio.run(wall_figures(folder, 0.05, options.many, options.repeats))
    return report(figures, options)


if __name__ == "__main__":
    sys.exit(main())
