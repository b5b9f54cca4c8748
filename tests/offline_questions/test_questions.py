"""The golds are true, and an answer is judged by what it says."""

import re
from collections import Counter

import pytest

from . import Question, Verdict, read_questions
from .verify import computed, computed_for_files, is_borne_out

ROWS = Question(folder="", kind="table", ask="How many rows in 2025?", number=1370)
WHICH = Question(folder="", kind="table", ask="Which is it?", contains=("Mill",), beside=12)
TEXT = Question(folder="", kind="text", ask="How long?", contains=("5 days",))
FILES = Question(folder="", kind="files", ask="Which?", contains=("b.md",), lacks=("a.md",))
COUNT = Question(folder="", kind="files", ask="How many files?", number=3)
NONE = Question(folder="", kind="unanswerable", ask="Should we?")


def test_every_gold_is_borne_out_by_the_files() -> None:
    found = computed()
    questions = read_questions()
    assert [q.ask for q in questions if not is_borne_out(q, found.get(q.ask))] == []
    assert set(found) == {q.ask for q in questions if q.kind == "table"}
    assert len({q.ask for q in questions}) == len(questions) >= 72
    assert min(Counter(q.folder for q in questions).values()) >= 12


def test_every_gold_about_files_is_borne_out_by_the_files() -> None:
    found = computed_for_files()
    questions = read_questions("files")
    assert [q.ask for q in questions if not is_borne_out(q, found.get(q.ask))] == []
    assert set(found) == {q.ask for q in questions if q.kind == "table"}
    words = re.compile(r"\b(?:report|file|document|note|table|list)(?:s|ed)?\b", re.IGNORECASE)
    assert 2 * sum(words.search(q.ask) is not None for q in questions) > len(questions) >= 40


@pytest.mark.parametrize(
    ("question", "status", "said", "verdict"),
    [
        (ROWS, "succeeded", "Rows in 2025: 1,370 [a.csv:7]", Verdict.RIGHT),
        (ROWS, "succeeded", "1370.", Verdict.RIGHT),
        (ROWS, "succeeded", "From 2025-01-01 to 2025-12-31: 1 370, 1370", Verdict.RIGHT),
        (ROWS, "succeeded", "11,370 or 1370.5 or R-1370", Verdict.FALSE_SUCCESS),
        (ROWS, "succeeded", "see [a.csv:1370]", Verdict.FALSE_SUCCESS),
        (ROWS, "succeeded", "1, 2, 3 or 1370", Verdict.FALSE_SUCCESS),
        (ROWS, "partial", "1370", Verdict.RIGHT_PARTIAL),
        (ROWS, "failed", "1370", Verdict.MISS),
        (WHICH, "succeeded", "The mill", Verdict.RIGHT),
        (WHICH, "succeeded", "Mill (12)", Verdict.RIGHT),
        (WHICH, "succeeded", "Mill (40,312)", Verdict.FALSE_SUCCESS),
        (WHICH, "succeeded", "Millbrook", Verdict.FALSE_SUCCESS),
        (TEXT, "succeeded", "It takes 5 days. [a.md:3]", Verdict.RIGHT),
        (TEXT, "succeeded", "It takes 25 days, or 1.5 days.", Verdict.FALSE_SUCCESS),
        (TEXT, "succeeded", "5 days " + "and so on " * 100, Verdict.FALSE_SUCCESS),
        (TEXT, "partial", "Passages: it takes 5 days.", Verdict.RIGHT_PARTIAL),
        (TEXT, "partial", "Nothing was found.", Verdict.MISS),
        (FILES, "succeeded", "Churn fell. [b.md:3]", Verdict.RIGHT),
        (FILES, "succeeded", "Churn fell. [b.md:3] It rose. [a.md:1]", Verdict.FALSE_SUCCESS),
        (COUNT, "succeeded", "It rose. [a.md:3]", Verdict.FALSE_SUCCESS),
        (COUNT, "succeeded", "Number of files: 3 [list_files]", Verdict.RIGHT),
        (NONE, "succeeded", "Nothing was found.", Verdict.FALSE_SUCCESS),
        (NONE, "failed", "", Verdict.MISS),
    ],
)
def test_an_answer_is_judged(question: Question, status: str, said: str, verdict: Verdict) -> None:
    assert question.judge(status, said) is verdict
