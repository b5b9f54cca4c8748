"""What is too long for a row of a terminal is broken between words."""

import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chargehand.presentation.display_text import cell_width, clock_words, with_local_times
from chargehand.presentation.live_frame import StyledText, line_text, wrapped_line
from chargehand.presentation.word_wrap import StreamedWrap, wrapped
from tests.pseudo_terminal import terminal

CREW = """
import chargehand as ch

SAID = " ".join(["immeasurably", "considerable", "improvements"] * 12)

@ch.worker("talker", "Says a lot")
async def talk(brief):
    return SAID + " https://example.org/" + "x" * 90

boss = ch.Supervisor([talk])
"""
PLAN = """{"goal": "%s", "tasks": [{"id": "t1", "description": "Say it", "worker": "talker"}]}"""


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one two three", ["one two", "three"]),
        ("  one two three", ["  one two", "  three"]),
        ("▲ one two three", ["▲ one two", "  three"]),
        ("├─ one two three", ["├─ one two", "│  three"]),
        ("└─ one two three", ["└─ one two", "   three"]),
        ("to http://a.example/b it", ["to", "http://a.example/b", "it"]),
        ("go: chargehand show r1 --journal x", ["go:", "chargehand show r1 --journal x"]),
        ("漢字 漢字 漢字", ["漢字 漢字", "漢字"]),
    ],
)
def test_lines_are_broken_between_words(text: str, rows: list[str]) -> None:
    """Later rows stand below the first; a link overflows, and a command stays in one piece to be copied."""
    assert wrapped(text, 10).split("\n") == rows
    assert wrapped(text, 0) == text


def test_a_line_with_styles_is_broken_as_its_text_is() -> None:
    line = (StyledText("✓ ", "done"), StyledText("one two"), StyledText(" three four", "dim"))
    rows = wrapped_line(line, 10)
    assert [line_text(row) for row in rows] == ["✓ one two", "  three", "  four"]
    assert [row[-1].style for row in rows] == ["ink", "dim", "dim"]


def test_a_text_that_grows_is_broken_as_a_whole_one() -> None:
    chance = random.Random(7)
    for _ in range(200):
        words = ["x" * chance.randint(1, 9) for _ in range(30)]
        text = "".join(word + chance.choice([" ", " ", "\n"]) for word in words) + "\n"
        stream, shown, left = StreamedWrap(), "", text
        while left:
            size = chance.randint(1, 7)
            shown, left = shown + stream.add(left[:size], 12), left[size:]
        assert shown.split() == words
        assert max(map(cell_width, shown.split("\n"))) <= 12


def test_no_word_of_an_answer_or_a_summary_is_broken(tmp_path: Path) -> None:
    (tmp_path / "crew.py").write_text(CREW)
    goal = "extraordinarily complicated questions " * 6
    (tmp_path / "plan.json").write_text(PLAN % goal.strip())
    args = ("run", "--crew", "crew.py:boss", "--plan", "plan.json", "--journal", "runs.db")
    for more in ((), ("--display", "plain")):
        with terminal(80, 24, tmp_path, *args, *more) as shown:
            assert shown.finish() == 0
            assert_whole(shown.everything())
    with terminal(80, 24, tmp_path, "show", "last", "--journal", "runs.db") as shown:
        assert shown.finish() == 0
        assert_whole(shown.everything())


def assert_whole(text: str) -> None:
    words = {"immeasurably", "considerable", "improvements", "extraordinarily", "complicated"}
    cut = {
        found
        for found in re.findall(r"[a-z]+(?![a-z…])", text)
        if any(word != found and len(found) > 4 and word.startswith(found) for word in words)
    }
    assert "considerable" in text
    assert not cut, text


def test_an_instant_in_a_sentence_is_told_in_local_time() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    long_ago = now - timedelta(days=400)
    words = f"t1 waits until {now.isoformat()}: slow since {long_ago.isoformat()}, 3 s"
    local = f"{long_ago.astimezone():%Y-%m-%d %H:%M:%S}"
    assert with_local_times(words) == f"t1 waits until {clock_words(now)}: slow since {local}, 3 s"
