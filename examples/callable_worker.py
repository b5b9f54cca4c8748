"""Plain functions that know nothing about chargehand, as workers.

Each parameter gets the argument or input with its name. If no name matches, the first parameter gets the task
as text. `report` waits for the other two, which run in parallel.
"""

import functools
import textwrap

import chargehand as ch
from chargehand.interop import callable_worker

REVIEWS = ["The strap broke.", "Warm and light.", "The zip broke after a week."]


def mentions(texts: list[str], word: str) -> int:
    return sum(word in text.lower() for text in texts)


class Longest:
    """A callable object."""

    def __call__(self, texts: list[str]) -> str:
        return max(texts, key=len)


def report(broken: int, longest: str, width: int = 40) -> str:
    return textwrap.fill(
        f"{broken} of {len(REVIEWS)} reviews say it broke, such as: {longest}", width
    )


WORKERS = [
    callable_worker(
        functools.partial(mentions, REVIEWS), "counter", "Counts the texts with a word"
    ),
    callable_worker(Longest(), "picker", "Picks the longest text"),
    callable_worker(report, "editor", "Writes the report"),
]
PLAN = ch.Plan(
    goal="Know what breaks",
    tasks=[
        ch.Task(
            id="broken",
            description="Count the reviews that say that something broke",
            worker="counter",
            args={"word": "broke"},
        ),
        ch.Task(
            id="longest",
            description="Pick the longest review",
            worker="picker",
            args={"texts": REVIEWS},
        ),
        ch.Task(
            id="report",
            description="Write the report",
            worker="editor",
            needs=["broken", "longest"],
            args={"width": 60},
        ),
    ],
)


def main() -> str:
    result = ch.Supervisor(WORKERS).run_sync(PLAN)
    text = str(result.tasks["report"].output)
    print(text)
    return text


if __name__ == "__main__":
    main()
