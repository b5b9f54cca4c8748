"""Questions that the `offline` model was not written for, and how its answers are judged.

Each is asked of the default crew over one folder of files. Three figures come of it:

- false success: the run says `succeeded`, but the answer does not meet the gold, or there is none;
- right: the gold is met, by the answer's text or a claim. Counted for `succeeded`, and separately
  for `partial`, where a quoted passage holds it;
- honest miss: the run says anything but `succeeded`, and does not give the gold.

Citations such as `[prices.csv:4]` are taken out before an answer is read. A number counts only
whole (`37` is not in `137` or `37.5`); thousands may be separated. The answer to a table question
holds at most three numbers, not counting dates and what stood in the question; the answer to a
text question of a run that succeeded, at most 1,000 characters. A number that an answer gives
beside a name (`beside` in the gold) is right too. Words are compared whole, without
regard to case. Where documents contradict each other, the gold asks for both sides.

`questions.toml` holds the questions of six folders, `files.toml` those of three more: they use words
such as report, file and list, for the files as such or for what is inside. Of an answer to a question
of the kind `files` the citations are read too, unless it asks for a number.
"""

import asyncio
import re
import tempfile
import tomllib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

from chargehand.supervisor_factory import Choice, supervisor_for

HERE = Path(__file__).parent
MOST_NUMBERS = 3
MOST_CHARACTERS = 1_000
#: seconds for one question; a run that waits longer, for a person or anything, has not answered
PATIENCE = 30.0

_CITATION = re.compile(r"\[[^\]\n]*\]|\([^()\n]*\.(?:csv|md|txt)[^()\n]*\)|\S+\.(?:csv|md|txt)\S*")
_DATE = re.compile(r"\b\d{4}-\d\d(?:-\d\d)?(?:[T ]\d\d:\d\d(?::\d\d)?)?\b")
_NUMBER = re.compile(
    r"(?<![\w.,-])-?(?:\d{1,3}(?:[,'\u00a0\u202f]\d{3})+|\d+)(?:\.\d+)?(?![\d]|[.,]\d)"
)


class Verdict(StrEnum):
    RIGHT = "right"
    RIGHT_PARTIAL = "right, as partial"
    FALSE_SUCCESS = "false success"
    MISS = "honest miss"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and what a right answer holds."""

    folder: str
    kind: str
    ask: str
    number: float | None = None
    tolerance: float = 0.005
    contains: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    beside: float | None = None

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Question":
        words = {name: tuple(raw.get(name, ())) for name in ("contains", "any", "lacks")}
        values: dict[str, Any] = {**raw, **words}
        return cls(**values)

    def judge(self, status: str, said: str) -> Verdict:
        """What has come of it, by how the run ended and all that it answered."""
        is_about_names = self.kind == "files" and self.number is None
        read = said if is_about_names else without_citations(said)
        is_right = self.is_met_by(read, is_sure=status == "succeeded")
        if status == "succeeded":
            return Verdict.RIGHT if is_right else Verdict.FALSE_SUCCESS
        return Verdict.RIGHT_PARTIAL if is_right and status == "partial" else Verdict.MISS

    def is_met_by(self, text: str, *, is_sure: bool) -> bool:
        if self.kind == "unanswerable":
            return False
        if self.kind == "table" and len(self._new_numbers(text)) > MOST_NUMBERS:
            return False
        if self.kind == "text" and is_sure and len(text) > MOST_CHARACTERS:
            return False
        if self.number is not None:
            return self._is_near(self.number, numbers_in(text))
        beside = self._new_numbers(text)
        is_free = self.beside is None or not beside or self._is_near(self.beside, beside)
        return is_free and self.is_met_by_words(text)

    def is_met_by_words(self, text: str) -> bool:
        has_all = all(holds(text, words) for words in self.contains)
        has_any = not self.any or any(holds(text, words) for words in self.any)
        return has_all and has_any and not any(holds(text, words) for words in self.lacks)

    def _new_numbers(self, text: str) -> set[float]:
        return numbers_in(text) - numbers_in(" ".join((self.ask, *self.contains, *self.any)))

    def _is_near(self, gold: float, numbers: set[float]) -> bool:
        return any(abs(number - gold) <= self.tolerance for number in numbers)


@dataclass(frozen=True)
class Outcome:
    """A question, how its run ended, what was answered, and what that is worth."""

    question: Question
    status: str
    said: str

    @property
    def verdict(self) -> Verdict:
        return self.question.judge(self.status, self.said)


def without_citations(text: str) -> str:
    return _CITATION.sub(" ", text).strip()


def numbers_in(text: str) -> set[float]:
    """Every number that stands for itself; dates are none."""
    found = _NUMBER.findall(_DATE.sub(" ", text))
    return {float(re.sub(r"[,'\u00a0\u202f]", "", number)) for number in found}


def holds(text: str, words: str) -> bool:
    """Whether the words occur as they are: `5 days` does not occur in `25 days` or `1.5 days`."""
    parts = r"\s+".join(re.escape(part) for part in words.split())
    return re.search(rf"(?<!\w)(?<!\d[.,:]){parts}(?!\w)", text, re.IGNORECASE) is not None


def read_questions(name: str = "questions") -> list[Question]:
    raw = tomllib.loads((HERE / f"{name}.toml").read_text(encoding="utf-8"))
    return [Question.of(question) for question in raw["question"]]


async def ask_all(questions: list[Question]) -> AsyncIterator[Outcome]:
    """Ask them one after another, with one supervisor for each folder."""
    for folder, asked in groupby(questions, key=lambda question: question.folder):
        with tempfile.TemporaryDirectory() as place:
            journal = str(Path(place) / "runs.db")
            choice = Choice(files=[HERE / folder], model="offline", journal=journal)
            async with supervisor_for(choice) as boss:
                for question in asked:
                    try:
                        async with asyncio.timeout(PATIENCE):
                            result = await boss.run(question.ask)
                    except TimeoutError:
                        yield Outcome(question, "waiting", "")
                        continue
                    text, claims = result.answer.text, result.answer.claims
                    unsaid = [claim.text for claim in claims if claim.text not in text]
                    yield Outcome(question, str(result.status), "\n".join([text, *unsaid]))
