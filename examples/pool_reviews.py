"""100 reviews on 5 workers: a pool reads customer reviews, each worker a fifth of them.

The reviews are in `pool_data/reviews.csv`. The workers use a list of words, so no API key and no network is needed;
with `--model openai:gpt-5-mini` they ask that model instead. Each result is compared with the stars that the
customer gave.
"""

import argparse
import csv
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import chargehand as ch
from chargehand.patterns.pool import AgentConfig, supervisor_worker_workflow

DATA = Path(__file__).parent / "pool_data"
WORKERS = 5
#: seconds a review takes where people watch: as if somebody had to think
PACE = 0.05 if sys.stdout.isatty() else 0.0
FEELINGS = ("positive", "mixed", "negative")
#: of what a worker says of a review, whether it goes by words or asks a model
SHAPE = {
    "type": "object",
    "properties": {"feeling": {"enum": FEELINGS}},
    "required": ["feeling"],
    "additionalProperties": False,
}
WORDS = {
    kind: frozenset(words) for kind, words in json.loads((DATA / "words.json").read_text()).items()
}


def feeling(text: str) -> str:
    """The sentiment of a text, by its words; a word after `not` counts as its opposite."""
    score = 0
    for sentence in re.split(r"[.,]", text.lower()):
        sign = 1
        for word in re.findall(r"[a-z]+", sentence):
            score += sign * ((word in WORDS["good"]) - (word in WORDS["bad"]))
            sign = -1 if word in WORDS["turning"] else sign
    return "positive" if score > 0 else "negative" if score < 0 else "mixed"


def read_review(brief: ch.Brief) -> dict[str, str]:
    """What a worker without a model does: return the sentiment of the review in its task."""
    time.sleep(PACE)
    return {"feeling": feeling(brief.args["review"])}


def task_of(number: str, review: dict[str, str]) -> ch.Task:
    return ch.Task(
        id=number,
        description=f"Say what customer {number} feels in the review: {', '.join(FEELINGS)}",
        args={"review": review["text"]},
        output=SHAPE,
    )


def run(reviews: dict[str, dict[str, str]], model: str) -> dict[str, Any]:
    """Have all reviews read and show the progress of each worker."""
    provider, _, name = model.partition(":")
    look = TextColumn("  {task.description:<9}"), BarColumn(50), MofNCompleteColumn()
    with Progress(*look, disable=not sys.stdout.isatty()) as bars:
        names = ["all", *(f"worker_{number}" for number in range(1, WORKERS + 1))]
        totals = [len(reviews), *[-(-len(reviews) // WORKERS)] * WORKERS]
        bar = {n: bars.add_task(n, total=t) for n, t in zip(names, totals, strict=True)}

        marks = [25, 50, 75, 100]

        def hear(progress: dict[str, Any]) -> None:
            done = progress["completed_tasks"]
            bars.update(bar["all"], completed=done)
            for name, load in progress["workers"].items():
                bars.update(bar[name], completed=load["completed"])
            while bars.disable and marks and done >= marks[0]:
                print(f"  {marks.pop(0)} of {progress['total_tasks']} reviews read")

        return supervisor_worker_workflow(
            f"Say of {len(reviews)} customer reviews what they feel",
            num_workers=WORKERS,
            tasks=[task_of(number, each) for number, each in reviews.items()],
            work=None if model else read_review,
            worker_config=AgentConfig(llm_provider=provider, model=name) if model else None,
            on_progress=hear,
        )


def tell(reviews: dict[str, dict[str, str]], felt: dict[str, str]) -> None:
    """Print the totals per product, and the reviews that were misread."""
    products: dict[str, Counter[str]] = defaultdict(Counter)
    for number, each in felt.items():
        products[reviews[number]["product"]][each] += 1
    print("\n  product     positive  mixed  negative")
    for name, count in sorted(products.items(), key=lambda each: -each[1]["positive"]):
        print(f"  {name:<11} {count['positive']:>8} {count['mixed']:>6} {count['negative']:>9}")
    meant = {"1": "negative", "2": "negative", "3": "mixed", "4": "positive", "5": "positive"}
    wrong = [number for number in felt if felt[number] != meant[reviews[number]["stars"]]]
    print(f"\n{len(felt) - len(wrong)} of {len(felt)} agree with the stars that were given.")
    for number in wrong[:2]:
        print(f"  {reviews[number]['stars']} stars, read as {felt[number]}:")
        print(f"    {reviews[number]['text']}")


def main(arguments: Sequence[str] = ()) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="provider:model, to be asked by the workers")
    parser.add_argument("--first", type=int, default=100, help="read only so many reviews")
    given = parser.parse_args(arguments)
    with (DATA / "reviews.csv").open(encoding="utf-8", newline="") as file:
        reviews = {each["id"]: each for each in list(csv.DictReader(file))[: given.first]}
    how = f"who ask {given.model}" if given.model else "who go by a list of words"
    print(f"{len(reviews)} reviews for {WORKERS} workers, {how}:\n")
    result = run(reviews, given.model)
    tell(reviews, {each["task_id"]: each["result"]["feeling"] for each in result["results"]})
    for gap in result["gaps"]:
        print(f"  not read: {gap['task_id']}: {gap['why']}")
    print("\nNext: docs/pool.md; or have a model read them: --model openai:gpt-5-mini")
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
