"""What it gains that tasks start while the plan is still being written.

Eight tasks of two seconds in two chains of four; a scripted model writes them at equal steps over
five seconds. On a virtual clock, so the figures are the same on every machine.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, options_for, report

import chargehand as ch
from chargehand.facts.events import AttemptStarted, PlanAdopted, PlanSealed
from chargehand.models.base import ModelReply, ModelRequest
from chargehand.testing import FakeClock, run_virtual

CHAINS, LINKS, SECONDS, WRITING = 2, 4, 2.0, 5.0
#: of the makespan without streaming
GAIN_BAR = 0.75


class Writer(ch.ScriptedModel):
    """Writes the plan piece by piece, a task at a time; everything else it says at once."""

    async def ask(self, request: ModelRequest) -> ModelReply:
        reply = await super().ask(request)
        if len(self.requests) == 1:
            await asyncio.sleep(WRITING)
        return reply

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await ch.ScriptedModel.ask(self, request)
        pieces = reply.text.split("\n") if len(self.requests) == 1 else [reply.text]
        for piece in pieces:
            if len(pieces) > 1:
                await asyncio.sleep(WRITING / (len(pieces) - 1) if piece is not pieces[0] else 0)
            yield piece
        yield reply


def written_plan() -> str:
    """The plan as a model writes it, with a line break before each task."""
    tasks = []
    for link in range(LINKS):
        for chain in range(CHAINS):
            number = link * CHAINS + chain + 1
            task = {
                "id": f"t{number}",
                "description": f"Wait in chain {chain} as link {link}",
                "worker": "sleeper",
                "needs": [f"t{number - CHAINS}"] if link else [],
                "accept": "",
                "optional": False,
            }
            tasks.append(json.dumps(task))
    head = '{"goal": "wait", "instruction": "", "strategy": "merge", "tasks": ['
    return head + "\n" + ",\n".join(tasks) + "]}"


@ch.worker("sleeper", "Waits two seconds")
async def sleeper(brief: ch.Brief) -> str:
    await asyncio.sleep(SECONDS)
    return brief.task.id


async def story(approach: str) -> tuple[float, float, float]:
    """When the first task started, when the plan was whole, when the run had ended."""
    boss = ch.Supervisor([sleeper], model=Writer([written_plan(), "done"]), clock=FakeClock())
    loop, first, whole = asyncio.get_running_loop(), 0.0, 0.0
    async for event in boss.stream("Wait", approach=approach):
        if isinstance(event, AttemptStarted) and event.task == "t1":
            first = loop.time()
        if isinstance(event, (PlanAdopted, PlanSealed)):
            whole = loop.time()
    return first, whole, loop.time()


def measure() -> list[Figure]:
    first, whole, streamed = run_virtual(story("stream"))
    _, _, plain = run_virtual(story("whole"))
    return [
        Figure(name="first task starts after", value=first, unit="s", bar=whole),
        Figure(name="plan is whole after", value=whole, unit="s"),
        Figure(name="makespan, streamed", value=streamed, unit="s"),
        Figure(name="makespan, plan first", value=plain, unit="s"),
        Figure(name="streamed ÷ plan first", value=streamed / plain, unit="", bar=GAIN_BAR),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    options = options_for(__doc__, argv)
    return report(measure(), options)


if __name__ == "__main__":
    sys.exit(main())
