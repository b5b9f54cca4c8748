"""Questions over tables: computed if every word is accounted for, by whatever holds the tables."""

import importlib.util
from datetime import timedelta
from pathlib import Path

import pytest

from chargehand.models.offline.sheets import Sheet, profile_sql, sheet_of
from chargehand.models.offline.table_query import understood
from chargehand.tools.beneath import Root
from chargehand.tools.data import TableStore

ANIMALS = """tag_no,name,species,born,weight_kg,pen,vaccinated
101,Bella,cow,2019-04-02,612,North,yes
102,Rosa,cow,2020-05-11,580,North,yes
103,Max,pig,2022-01-20,140,South,no
104,Nora,goat,2021-03-15,61.5,South,yes
105,Otto,goat,2021-06-30,n/a,South,no
106,Frida,cow,2018-09-09,640,East,yes
"""
TREATMENTS = """treatment_id,tag_no,date,vet,cost
1,101,2024-02-01,Dr. Stein,85.00
2,103,2024-02-01,Dr. Stein,60.00
3,101,2024-03-12,Dr. Lang,120.00
4,106,2024-04-18,Dr. Lang,95.50
5,104,2024-04-20,Dr. Stein,40.00
"""


class Farm:
    """A folder of tables, asked without any model around it."""

    def __init__(self, folder: Path) -> None:
        (folder / "animals.csv").write_text(ANIMALS)
        (folder / "treatments.csv").write_text(TREATMENTS)
        self._store = TableStore(Root(folder), timedelta(seconds=30))
        told = self._store.describe_tables()["tables"]
        self._sheets: list[Sheet] = []
        for name, table in told.items():
            rows = self._store.query_tables(profile_sql(name, table["columns"]), 1000)["rows"]
            self._sheets.append(sheet_of(name, table, rows))

    def ask(self, question: str) -> list[str]:
        """All lines of all readings."""
        lines: list[str] = []
        for reading in understood(question, self._sheets).readings:
            lines += reading.told(self._store.query_tables(reading.sql)["rows"])
        return lines

    def left(self, question: str) -> tuple[str, ...]:
        understanding = understood(question, self._sheets)
        assert not understanding.readings
        return understanding.left


@pytest.fixture(scope="module", params=["duckdb", "sqlite"])
def farm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Farm:
    find = importlib.util.find_spec
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sqlite":
            patch.setattr(importlib.util, "find_spec", lambda n: None if n == "duckdb" else find(n))
        made = Farm(tmp_path_factory.mktemp(request.param))
    made.engine = request.param  # type: ignore[attr-defined]  # told to the fixture below
    return made


@pytest.fixture
def asked(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> Farm:
    find = importlib.util.find_spec
    if farm.engine == "sqlite":  # type: ignore[attr-defined]  # set by the fixture above
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda n: None if n == "duckdb" else find(n)
        )
    return farm


ANSWERS = {
    "How many cows are there?": "Number of rows where species = cow: 3 [animals.csv]",
    "How many animals are not vaccinated?": "Number of rows where vaccinated = no: 2 [animals.csv]",
    "Which animal is the heaviest?": "Highest weight_kg: Frida (640) [animals.csv:7]",
    "How many animals weigh more than 100 kg?": (
        "Number of rows where weight_kg > 100: 4 [animals.csv]"
    ),
    "What is the average weight of the goats?": (
        "Average weight_kg where species = goat: 61.50 (left out, for want of weight_kg: 1 row) "
        "[animals.csv]"
    ),
    "Which animals were born before 2020?": (
        "Name where born before 2020-01-01: Bella, Frida [animals.csv]"
    ),
    "How many treatments took place in April 2024?": (
        "Number of rows where date from 2024-04-01 to before 2024-05-01: 2 [treatments.csv]"
    ),
    "How much did treatments of cows cost?": (
        "Total cost where species = cow: 300.50 [treatments.csv] [animals.csv]"
    ),
    "Which animal had the most treatments?": (
        "Highest number of rows: Bella (2) [treatments.csv] [animals.csv]"
    ),
    "What is the tag number of Max?": "Tag_no where name = Max: 103 [animals.csv:4]",
}


def test_what_is_accounted_for_is_computed_and_says_how(asked: Farm) -> None:
    assert {question: asked.ask(question) for question in ANSWERS} == {
        question: [line] for question, line in ANSWERS.items()
    }


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("How many sheep are there?", ("sheep",)),
        ("How many cows are there on the moon?", ("moon",)),
        ("What is the sum of the tag numbers?", ("sum",)),
        ("What is the average milk yield?", ("milk", "yield")),
        ("How many treatments were there last month?", ("month",)),
        ("How many animals were sold?", ("sold",)),
        ("How many cows were born in 2030?", ()),
        ("What percentage of animals born in 2021 are vaccinated?", ("percentage",)),
        ("Who weighs the second most?", ("second",)),
        ("Is Bella vaccinated?", ("yes or no",)),
    ],
)
def test_what_is_not_accounted_for_is_not_answered(
    asked: Farm, question: str, left: tuple[str, ...]
) -> None:
    assert asked.left(question) == left
