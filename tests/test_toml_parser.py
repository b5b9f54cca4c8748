"""TOML that no reader can use: crew files, suites and files of replies refuse it in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chargehand.errors import UsageError
from chargehand.evaluation import load_suite
from chargehand.models.open_model import open_model
from chargehand.supervisor_factory import Choice, crew_for

READERS: dict[str, Callable[[Path], object]] = {
    "crew": lambda path: crew_for(Choice(crew=str(path))),
    "suite": load_suite,
    "replies": lambda path: open_model(f"written:{path}"),
}
DIGITS = "9" * 5_000

BROKEN = {
    "no TOML": (b"[[x", "is not TOML"),
    "no UTF-8": (b"x = '\xff'", "is not UTF-8 text; save it as UTF-8"),
    "too deep": (b"x = " + b"[" * 2_000, "nested too deep"),
    "a long key": (f"[a]\n{'.'.join(['a'] * 20_000)} = 1\n".encode(), "line 2 has more than 100"),
    "a long table": (f"[[{' . '.join(['a'] * 20_000)}]]\n".encode(), "line 1 has more than 100"),
    "more digits than Python reads": (f"a = 1\nb = {DIGITS}\n".encode(), "line 2 is larger than"),
    "more than 64 bits": (b"[a]\nb = [{c = 9223372036854775808}]\n", r"a.b\[0\].c is larger than"),
    "less than 64 bits": (b"a = -9223372036854775809\n", "a is larger than any integer of TOML"),
    "more bits than Python writes": (f"a = 0x{DIGITS}\n".encode(), "a is larger than"),
}


@pytest.mark.parametrize(("document", "words"), BROKEN.values(), ids=list(BROKEN))
@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_a_document_that_cannot_be_read_is_one_line_that_names_the_file(
    reader: Callable[[Path], object], document: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "document.toml"
    path.write_bytes(document)
    with pytest.raises(UsageError, match=words) as refused:
        reader(path)
    assert str(refused.value).startswith(str(path))
    assert len(str(refused.value).splitlines()) == 1


def test_integers_of_64_bits_and_a_mark_of_an_editor_are_read(tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    checks = "checks = { number = { value = 9223372036854775807 } }"
    path.write_text(f"\ufeff[[case]]\nid = 'a'\nrequest = 'r'\n{checks}\n", encoding="utf-8")
    assert len(load_suite(path).cases) == 1
