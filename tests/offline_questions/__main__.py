"""`python -m tests.offline_questions`: the three figures. `--list` shows every question as well."""

import argparse
import asyncio
import os
from collections import Counter

from chargehand.tools.search_engines import BRAVE_KEY

from . import Outcome, Verdict, ask_all, read_questions


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.offline_questions", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show each question with its verdict")
    parser.add_argument("--set", choices=("questions", "files"), default="questions")
    options = parser.parse_args()
    os.environ.pop(BRAVE_KEY, None)  # nothing is searched on the web
    questions = read_questions(options.set)
    outcomes: list[Outcome] = []
    async for outcome in ask_all(questions):
        outcomes.append(outcome)
        if options.list:
            show(outcome)
    print_figures(outcomes)


def show(outcome: Outcome) -> None:
    question = outcome.question
    print(f"{outcome.verdict:17} {question.kind:12} {question.folder}: {question.ask}")
    said = " ".join(outcome.said.split())
    print(f"{'':17} {outcome.status}: {said[:200]}")


def print_figures(outcomes: list[Outcome]) -> None:
    kinds = Counter(outcome.question.kind for outcome in outcomes)
    print(f"{'':30}{'all':>6}" + "".join(f"{kind:>14}" for kind in kinds))
    rows = {
        "false successes": Verdict.FALSE_SUCCESS,
        "right, run succeeded": Verdict.RIGHT,
        "right, run partial": Verdict.RIGHT_PARTIAL,
        "honest misses": Verdict.MISS,
    }
    print(f"{'questions':30}{len(outcomes):6}" + "".join(f"{kinds[kind]:14}" for kind in kinds))
    for name, verdict in rows.items():
        counts = Counter(one.question.kind for one in outcomes if one.verdict is verdict)
        print(f"{name:30}{counts.total():6}" + "".join(f"{counts[kind]:14}" for kind in kinds))


if __name__ == "__main__":
    asyncio.run(main())
