"""J10: questions that the rules were not written for are answered right, or missed honestly."""

from collections import Counter

import pytest

from tests.offline_questions import Question, Verdict, ask_all, read_questions

MOST_FALSE, FEWEST_RIGHT = 2, 20
FEWEST_RIGHT_ABOUT_FILES = 28
HALVES = ("first", "second")


@pytest.fixture(autouse=True)
def no_web(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAVE_SEARCH_API_KEY", raising=False)


def half(which: str) -> list[Question]:
    """Whole folders, so that each is read once."""
    questions = read_questions()
    folders = sorted({question.folder for question in questions})[HALVES.index(which) :: 2]
    return [question for question in questions if question.folder in folders]


@pytest.mark.parametrize("which", HALVES)
async def test_j10_unseen_questions_are_answered_right_or_missed_honestly(which: str) -> None:
    """Of all 80: at most 2 false successes, at least 20 right; a half of them has half of that."""
    asked = half(which)
    assert len(asked) >= 30
    verdicts = Counter([outcome.verdict async for outcome in ask_all(asked)])
    assert verdicts[Verdict.FALSE_SUCCESS] <= MOST_FALSE // 2, verdicts
    assert verdicts[Verdict.RIGHT] >= FEWEST_RIGHT // 2, verdicts


async def test_a_list_of_files_answers_no_question_about_what_is_inside() -> None:
    """Of 62 questions with words such as report, file and list: no false success, at least 28 right."""
    verdicts = Counter([outcome.verdict async for outcome in ask_all(read_questions("files"))])
    assert verdicts[Verdict.FALSE_SUCCESS] == 0, verdicts
    assert verdicts[Verdict.RIGHT] >= FEWEST_RIGHT_ABOUT_FILES, verdicts
