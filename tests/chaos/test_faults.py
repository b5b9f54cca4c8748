"""Every row of the table of faults is a test, or the documentation says why not."""

import re

from .faults import IDS
from .kills import ROOT

PAGE = ROOT / "docs" / "reliability.md"


def ids_in_tests() -> set[str]:
    """Ids in the names of tests, as in `test_c4_c7_…`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for names in re.findall(r"def test_((?:[a-j]\d+_)+)", path.read_text("utf-8")):
            found |= {name.upper() for name in names.strip("_").split("_")}
    return found


def ids_with_reasons() -> set[str]:
    """Ids that the page says are not tested, each with a reason."""
    section = PAGE.read_text("utf-8").partition("## Faults without a test")[2].partition("\n## ")[0]
    found = set()
    for ids, reason in re.findall(r"^\| ([A-J\d, –]+) \| (.+) \|$", section, re.M):
        assert len(reason) > 20, f"{ids}: say why"
        found |= set(re.findall(r"[A-J]\d+", ids))
    return found


def test_every_fault_has_a_test_or_a_reason() -> None:
    assert not set(IDS) - ids_in_tests() - ids_with_reasons()


def test_no_fault_has_both_a_test_and_a_reason() -> None:
    assert not ids_in_tests() & ids_with_reasons()


def test_the_names_of_tests_are_rows_of_the_table() -> None:
    assert not ids_in_tests() - set(IDS)
