"""100 reviews on 5 workers: a pool reads what customers say, each worker a fifth of it.

The reviews are in `pool_data/reviews.csv`. A worker goes by a list of words, so that no key and no network
is needed; what it makes of each review is held against the stars that the customer gave.
"""

import csv
import json
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import chargehand as ch
from chargehand.patterns.pool import supervisor_worker_workflow

DATA = Path(__file__).parent / "pool_data"
WORKERS = 5
PACE = 0.05 if sys.stdout.isatty() else 0.0
#: seconds a review takes where people watch: as if somebody had to think
WORDS = {
    kind: frozenset(words) for kind, words in json.loads((DATA / "words.json").read_text()).items()
}


def feeling(text: str) -> str:
    """What a text says, by the words in it; after a `not`, a word counts as its opposite."""
    score = 0
    for sentence in re.split(r"[.,]", text.lower()):
        sign = 1
        for word in re.findall(r"[a-z]+", sentence):
            score += sign * ((word in WORDS["good"]) - (word in WORDS["bad"]))
            sign = -1 if word in WORDS["turning"] else sign
    return "positive" if score > 0 else "negative" if score < 0 else "mixed"


def read_review(brief: ch.Brief) -> dict[str, Any]:
    """What a worker does: say what the review in its task feels."""
    time.sleep(PACE)
    number, _, text = brief.task.description.removeprefix("Read review ").partition(": ")
    return {"review": number, "feeling": feeling(text)}


def run(reviews: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Have all reviews read, and show how far each worker is meanwhile."""
    look = TextColumn("  {task.description:<9}"), BarColumn(50), MofNCompleteColumn()
    with Progress(*look, disable=not sys.stdout.isatty()) as bars:
        names = ["all", *(f"worker_{number}" for number in range(1, WORKERS + 1))]
        totals = [len(reviews), *[len(reviews) // WORKERS] * WORKERS]
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
            "Say of 100 customer reviews what they feel",
            num_workers=WORKERS,
            tasks=[f"Read review {number}: {each['text']}" for number, each in reviews.items()],
            work=read_review,
            on_progress=hear,
        )


def tell(reviews: dict[str, dict[str, str]], felt: dict[str, str]) -> None:
    """Add it up product by product, and own up to what was misread."""
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


def main() -> dict[str, Any]:
    print(f"100 reviews for {WORKERS} workers, who go by a list of words:\n")
    with (DATA / "reviews.csv").open(encoding="utf-8", newline="") as file:
        reviews = {each["id"]: each for each in csv.DictReader(file)}
    result = run(reviews)
    found = [each["result"] for each in result["results"]]
    tell(reviews, {each["review"]: each["feeling"] for each in found})
    print("\nNext: docs/pool.md; or have a model read them: leave work= out and give")
    print('  worker_config=AgentConfig(llm_provider="openai", model="gpt-5-mini")')
    return result


if __name__ == "__main__":
    main()
