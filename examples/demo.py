"""The demo: a request in plain language over bundled documents and tables, from plan to sources.

Needs no API key, no server and no network: the model is `offline`, which follows rules and is no language model.
Pass another one as the argument, such as `ollama:qwen3` or `openai:gpt-5-mini`; nothing else changes.
"""

import asyncio
import os
import re
import sys
import textwrap
import time
from pathlib import Path

import chargehand as ch
from chargehand.supervisor_factory import Choice, supervisor_for

DATA = Path(__file__).parent / "data"
JOURNAL = Path(".demo") / "runs.db"
WIDTH = 78
REQUEST = (
    "Which product earned the most, and what do its reviews say about the battery? "
    "How many lamps were sold in June, and what did the June meeting decide about the lamp? "
    "How long can a product be returned?"
)


def said(text: str, indent: str = "  ", rest: str | None = None) -> str:
    """Wrap text to 78 columns; citations and paths are not split."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


class Watcher:
    """Prints what happens, when it happens."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.run = ""

    def hear(self, event: ch.Event | ch.AnswerPiece) -> None:
        match event:
            case ch.events.RunRequested():
                self.run = event.run
            case ch.events.TaskAdded(task=task):
                after = "".join(f" (after {need.task})" for need in task.all_needs)
                words = re.sub(r" \(this goes on from: .*", "", task.description)
                self._say(f"planned  {task.id}  {task.worker}{after}: {words}")
            case ch.events.AttemptStarted(task=id_) if not id_.startswith("@"):
                self._say(f"started  {id_}")
            case ch.events.AttemptFinished(task=id_, outcome=outcome) if not id_.startswith("@"):
                self._say(f"{type(outcome).__name__.lower():<9}{id_}")
            case ch.events.RetryPlanned(task=id_) if not id_.startswith("@"):
                self._say(f"retried  {id_}")
            case ch.events.TaskSkipped(task=id_):
                self._say(f"skipped  {id_}")
            case _:
                pass

    def _say(self, words: str) -> None:
        line = f"  {time.monotonic() - self._began:4.2f} s  {words}"
        print(said(line, "", " " * 26), flush=True)


def timeline(trace: ch.Trace) -> str:
    """A timeline: one line per task, as long as the task took."""
    spans = [span for span in trace.attempts if span.ended_at and not span.task.startswith("@")]
    first = min(span.began_at for span in spans)
    whole = max(span.ended_at for span in spans if span.ended_at) - first
    lines = []
    for span in spans:
        start = round(44 * ((span.began_at - first) / whole))
        size = max(1, round(44 * (span.length / whole)))
        bar = f"{' ' * min(start, 43)}{'=' * size}"[:44]
        lines.append(
            f"  {span.task:<3} {span.worker:<11}|{bar:<44}| {span.length.total_seconds():5.2f} s"
        )
    return "\n".join(lines)


def in_full(answer: ch.Answer) -> str:
    """The answer, formatted for a terminal, and its gaps."""
    lines = [said(line, "  " if line.endswith(":") else "    ") for line in answer.text.split("\n")]
    return "\n".join([*lines, *(said(f"missing: {gap}") for gap in answer.gaps)])


def program() -> str:
    """How `chargehand` is called from where this was started."""
    installed = Path(sys.executable).with_name("chargehand")
    return os.path.relpath(installed) if installed.exists() else "chargehand"


async def lead(model: str) -> ch.RunResult:
    """Run the request and print what happens meanwhile."""
    watcher = Watcher()
    choice = Choice(files=[DATA], model=model, journal=str(JOURNAL))  # and the default crew
    async with supervisor_for(choice, say=lambda _: None) as boss:  # the demo says it itself
        async for event in boss.stream(REQUEST):
            watcher.hear(event)
        return await boss.look(watcher.run)


def tell(result: ch.RunResult) -> None:
    """Print the result, and what to try next."""
    print(f"\nSide by side:\n\n{timeline(result.trace)}\n")
    print(f"The answer, with file and line of what it rests on:\n\n{in_full(result.answer)}\n")
    print(
        f"{result.status.value.capitalize()}: {len(result.tasks)} tasks in "
        f"{result.wall.total_seconds():.1f} s, {result.speedup:.1f} times as fast as one after "
        "another."
    )
    print("What is missing stands above.\n" if result.answer.gaps else "Nothing is missing.\n")
    print("Look at the run, then at every call it made:\n")
    for name in ("show", "trace"):
        print(f"  {program()} {name} {result.id} --journal {JOURNAL}")
    print("\nNext: docs/tutorial.md, or ask something else:\n")
    print(f'  {program()} run "What does the cheapest product cost?" \\')
    print(f"    --files {os.path.relpath(DATA)} --model offline")
    print(
        "\nSee this run in the dashboard, as a graph and on a timeline; open the link it prints:\n"
    )
    print(
        f"  {program()} serve --files {os.path.relpath(DATA)} --model offline --journal {JOURNAL}"
    )


def main(model: str = "offline") -> ch.RunResult:
    files = sum(path.is_file() for path in DATA.rglob("*"))
    print(f"The request, over the {files} files in examples/data; model: {model}\n")
    print(said(REQUEST), "\n", sep="")
    print("The work. A task starts as soon as it is planned and has what it needs:\n")
    result = asyncio.run(lead(model))
    tell(result)
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
