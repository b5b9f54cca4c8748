"""Kill a run half-way and resume it: eight reviews are read in parallel.

Needs no API key, no server and no network. The first half runs in a child process, which kills itself with
SIGKILL as soon as half of the reviews are read, so it cannot clean up. Then this process resumes the run from the
journal and finishes it.
"""

import asyncio
import csv
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import chargehand as ch

DATA = Path(__file__).parent / "data"
GOOD = {
    "love",
    "great",
    "excellent",
    "good",
    "comfortable",
    "reliable",
    "happy",
    "beautiful",
    "quiet",
}
BAD = {"terrible", "poor", "broke", "useless", "annoying", "disappointing", "loud", "unreliable"}


def call_slow_service(text: str) -> dict[str, int]:
    """Stands for a model or a web service: slow, and too expensive to call twice."""
    time.sleep(0.4)
    words = re.findall(r"[a-z]+", text.lower())
    good, bad = (sum(word in kind for word in words) for kind in (GOOD, BAD))
    with log_of_calls().open("a") as log:
        log.write(".")
    return {"words": len(words), "good": good, "bad": bad}


@ch.worker("reader", "Reads one review and says how content its writer is", capacity=2)
async def read(brief: ch.Brief) -> dict[str, int]:
    text = (DATA / "reviews" / brief.args["file"]).read_text()
    found: dict[str, int] = await brief.step("judge", call_slow_service, text, effect="pure")
    return found


@ch.worker("accountant", "Adds up what each product earned")
def earnings(brief: ch.Brief) -> dict[str, float]:
    with (DATA / "prices.csv").open() as file:
        return {
            row["product"]: float(row["price"]) * int(row["sold"]) for row in csv.DictReader(file)
        }


@ch.worker("writer", "Writes the report from the reviews and the earnings")
async def report(brief: ch.Brief) -> str:
    earned = brief.inputs.pop("earnings")
    lines = ["product      mood   earned"]
    for product, mood in sorted(
        brief.inputs.items(), key=lambda item: item[1]["bad"] - item[1]["good"]
    ):
        marks = "+" * mood["good"] + "-" * mood["bad"]
        lines.append(f"{product:<12} {marks:<6} {earned[product]:>8,.0f}")
    return "\n".join(lines)


def the_plan() -> ch.Plan:
    files = sorted(file.name for file in (DATA / "reviews").glob("*.txt"))
    reads = [
        ch.Task(
            id=name.removesuffix(".txt"),
            description=f"Judge how content the writer of {name} is",
            worker="reader",
            args={"file": name},
        )
        for name in files
    ]
    money = ch.Task(
        id="earnings", description="Add up price times sold of each product", worker="accountant"
    )
    final = ch.Task(
        id="report",
        description="List the products from best to worst liked, each with what it earned",
        worker="writer",
        needs=[*(task.id for task in reads), "earnings"],
    )
    return ch.Plan(
        goal="Which products do people like, and what do they earn?", tasks=[*reads, money, final]
    )


def first_half(journal: str) -> None:
    """Runs in the child: kills its own process when half of the reviews are read."""
    boss = ch.Supervisor([read, earnings, report], journal=journal)
    done: list[str] = []

    @boss.on(ch.events.AttemptFinished)
    def show(run: str, event: ch.Event) -> None:
        assert isinstance(event, ch.events.AttemptFinished)
        print(f"  done  {event.task}", flush=True)
        done.append(event.task)
        if len(done) == 5:
            print("  kill -9: the process is gone, two reviews were being read", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    boss.run_sync(the_plan(), key="demo")


async def second_half(journal: str) -> ch.RunResult:
    async with ch.Supervisor([read, earnings, report], journal=journal) as boss:

        @boss.on(ch.events.AttemptFinished)
        def show(run: str, event: ch.Event) -> None:
            assert isinstance(event, ch.events.AttemptFinished)
            print(f"  done  {event.task}", flush=True)

        return await boss.run(the_plan(), key="demo")  # the same key: the same run goes on


def log_of_calls() -> Path:
    return Path(os.environ["DEMO_FOLDER"]) / "calls.log"


def main() -> None:
    plan = the_plan()
    print(f"{plan.goal}\n{len(plan.tasks)} tasks, at most two reviews at once, journal on disk.\n")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DEMO_FOLDER"] = folder
        journal = str(Path(folder) / "runs.db")
        print("First process:", flush=True)
        child = subprocess.run([sys.executable, __file__, "--first-half", journal], check=False)
        assert child.returncode == -signal.SIGKILL, child.returncode
        print("\nSecond process, same journal:", flush=True)
        result = asyncio.run(second_half(journal))
        calls = len(log_of_calls().read_text())
        trace = result.trace
    lost = sum(span.ending == "lost" for span in trace.attempts)
    print(f"\n{result.answer}\n")
    print(
        f"{result.status.value}: {len(result.tasks)} tasks, {lost} attempts lost with the first process "
        f"and done again, {calls} calls of the slow service for 8 reviews."
    )
    print("Nothing that was finished before the kill was done again.\n")
    print(
        "Next: read examples/kill_and_resume.py; or break it yourself: make chaos CHAOS_SCALE=0.01"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first-half"]:
        first_half(sys.argv[2])
    else:
        main()
