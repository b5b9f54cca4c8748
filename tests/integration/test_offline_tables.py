"""Questions over tables: computed if every word is accounted for, by whatever holds the tables."""

import importlib.util
import json
from datetime import timedelta
from pathlib import Path

import pytest

from chargehand.models.base import (
    ModelRequest,
    Role,
    ToolCall,
    ToolOutput,
    ToolSpec,
    Turn,
    user,
)
from chargehand.models.offline.conversation import Found, read
from chargehand.models.offline.next_calls import table_calls, told_by_tables
from chargehand.models.offline.table_question import TableQuestion
from chargehand.models.offline.tables import Sheet, profile_sql, sheet_of
from chargehand.tools import sql_tables
from chargehand.tools.safe_open import Roots
from chargehand.tools.sql_tables import TableStore

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

    def __init__(self, folder: Path, *, others: bool = True) -> None:
        if others:
            (folder / "animals.csv").write_text(ANIMALS)
            (folder / "treatments.csv").write_text(TREATMENTS)
        self._store = TableStore(Roots(folder), timedelta(seconds=30))
        told = self._store.describe_tables()["tables"]
        self._sheets: list[Sheet] = []
        for name, table in told.items():
            rows = self._store.query_tables(profile_sql(name, table["columns"]), 1000)["rows"]
            self._sheets.append(sheet_of(name, table, rows))

    def ask(self, question: str) -> list[str]:
        """All lines of all readings."""
        queries = [
            query for sheet in self._sheets for query in TableQuestion(question, sheet).queries()
        ]
        answers = [query.told(self._store.query_tables(query.sql)["rows"]) for query in queries]
        return [line for lines in answers for line in lines]

    def left(self, question: str) -> tuple[str, ...]:
        """The words that the table that accounts for most of them leaves over."""
        accounts = [TableQuestion(question, sheet) for sheet in self._sheets]
        assert not any(account.queries() for account in accounts)
        return min((account.left for account in accounts), key=len)


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
    "Which animal is the heaviest?": "Highest weight_kg: Frida (640) [animals.csv:7]",
    "How many animals weigh more than 100 kg?": (
        "Number of rows where weight_kg > 100: 4 [animals.csv]"
    ),
    "What is the average weight of the goats?": (
        "Average weight_kg where species = goat: 61.50 (left out, for want of weight_kg: 1 row) "
        "[animals.csv]"
    ),
    "Which animals were born before 2020?": (
        "Name where born before 2020: Bella, Frida [animals.csv]"
    ),
    "How many treatments were there in April 2024?": (
        "Number of rows where date in 2024-04: 2 [treatments.csv]"
    ),
    "How much did treatments by Dr. Lang cost?": (
        "Total cost where vet = Dr. Lang: 215.50 [treatments.csv]"
    ),
    "Which vet had the most treatments?": "Highest number of rows: Dr. Stein (3) [treatments.csv]",
    "What is the average weight per species?": (
        "Average weight_kg by species: cow 610.67, goat 61.50, pig 140 (left out, for want of "
        "weight_kg: 1 row) [animals.csv]"
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
        ("What percentage of animals are vaccinated?", ("percentage",)),
        ("How many animals are not vaccinated?", ("not",)),
        ("Which animals are in no pen?", ("no",)),
        ("What is the total weight value?", ("value",)),
        ("How many cows are vaccinated?", ()),
        ("How much did treatments of cows cost?", ("cows",)),
        ("Which animal had the most treatments?", ("treatments",)),
        ("Who weighs the second most?", ("second",)),
        ("Is Bella vaccinated?", ("yes or no",)),
        ("How many files name a cow?", ("how many files",)),
        ("Which tables list the pens?", ("which tables",)),
    ],
)
def test_what_is_not_accounted_for_is_not_answered(
    asked: Farm, question: str, left: tuple[str, ...]
) -> None:
    assert asked.left(question) == left


# Two readings, and rows that differ


def told(question: str, table: str, tmp_path: Path) -> Found:
    """The whole conversation about one table, with the tools' own code behind it."""
    (tmp_path / "stock.csv").write_text(table)
    store = TableStore(Roots(tmp_path), timedelta(seconds=30))
    turns = [user(question)]
    for _ in range(4):
        reading = read(ModelRequest(turns=tuple(turns)))
        proposals = table_calls(SPECS, reading) or []
        calls = [
            ToolCall(f"{len(turns)}-{n}", each.tool, json.dumps(each.arguments))
            for n, each in enumerate(proposals)
        ]
        results = [getattr(store, each.tool)(**each.arguments) for each in proposals]
        outputs = [
            ToolOutput(call.id, call.name, json.dumps(result, default=str))
            for call, result in zip(calls, results, strict=True)
        ]
        turns += [Turn(Role.MODEL, tuple(calls)), Turn(Role.TOOL, tuple(outputs))]
    found = told_by_tables(read(ModelRequest(turns=tuple(turns))))
    assert found is not None
    return found


SPECS = (
    ToolSpec("describe_tables", "Lists the tables.", {"properties": {}}),
    ToolSpec(
        "query_tables",
        "Queries.",
        {"properties": {"sql": {"type": "string"}, "most": {}}, "required": ["sql"]},
    ),
)
STOCK = "product,shop,quantity\nlamp,North,30\nlamp,South,4\nchair,North,7\n"


def test_two_readings_with_two_results_are_told_both_and_in_doubt(tmp_path: Path) -> None:
    """Rows about lamps, or lamps?"""
    found = told("How many lamps are there?", STOCK, tmp_path)
    assert found.lines == (
        "Number of rows where product = lamp: 2 [stock.csv]",
        "Total quantity where product = lamp: 34 [stock.csv]",
    )
    assert found.gap == "it can be read in more than one way"


def test_two_readings_with_one_result_are_no_doubt(tmp_path: Path) -> None:
    once = STOCK.replace("30", "1").replace("4", "1")
    found = told("How many lamps are there?", once, tmp_path)
    assert (len(found.lines), found.gap) == (1, "")


def test_rows_that_differ_are_told_all_and_in_doubt(tmp_path: Path) -> None:
    found = told("What is the quantity of the lamp?", STOCK, tmp_path)
    assert found.lines == ("Quantity where product = lamp: 30, 4 [stock.csv]",)
    assert found.gap == "several rows fit, and differ"
    same = told("What is the quantity of the lamp?", STOCK.replace("30", "4"), tmp_path)
    assert same.gap == ""


TICKETS = """id,customer,opened,status
1,Ada,2026-01-03,closed
2,Bob,2026-01-05,open
3,Ada,2026-02-10,open
4,Dee,2026-03-01,open
"""


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many tickets were opened before March 2026?", "opened before 2026-03: 3"),
        ("How many tickets are open?", "status = open: 3"),
    ],
)
def test_a_word_that_is_a_column_and_nearly_a_value_counts_once(
    tmp_path: Path, question: str, answer: str
) -> None:
    (tmp_path / "tickets.csv").write_text(TICKETS)
    (line,) = Farm(tmp_path).ask(question)
    assert answer in line


GOODS = """product,price,sold,added,updated
lamp,24.50,120,2025-01-03,2025-06-01
chair,189.00,40,2025-02-10,2025-06-02
kettle,39.90,412,2025-03-05,2025-06-03
"""


ORDERED = {
    "Which products have a price over 20 and sold over 100?": "price > 20 and sold > 100: ",
    "Which products sold over 100 with a price under 30?": "sold > 100 and price < 30: lamp ",
    "Which product is the most expensive with at least 100 sold?": "sold >= 100: kettle ",
    "Which product is the least expensive?": "Lowest price: lamp (24.50) ",
    "Which is the cheapest product with the most sold?": "",
    "What is the price of the last product updated?": "",
    "How many products are there in March?": "",
}


def test_each_word_of_a_comparison_or_an_order_goes_where_it_belongs(tmp_path: Path) -> None:
    """Two comparisons, two orders or two dates: each to its own column, or no answer at all."""
    (tmp_path / "products.csv").write_text(GOODS)
    shop = Farm(tmp_path)
    told = {question: " ".join(shop.ask(question)) for question in ORDERED}
    assert {question: said for question, said in told.items() if said} == {
        question: told[question] for question, answer in ORDERED.items() if answer
    }
    assert [question for question, answer in ORDERED.items() if answer not in told[question]] == []


COUNTED = {
    "How many rows does orders have?": "Number of rows: 4 ",
    "How many lines does orders have?": "Number of rows: 4 ",
    "What is the number of records in orders?": "Number of rows: 4 ",
    "How many entries does the orders table have?": "Number of rows: 4 ",
    "How many orders are there?": "Number of rows: 4 ",
    "How many rows have an amount over 6?": "where amount > 6: 3 ",
    "What is the total amount?": "Total amount: 42 ",
    "What is the total order?": "",
    "What is the sum of the orders?": "",
    "How many rows have an amount?": "",
}


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (11, 12, 40, 99), (5, 5, 6, 7)])
def test_the_number_of_a_row_is_never_added_up_and_rows_are_counted(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    """A column that is called as one row of the table is, or that numbers the rows."""
    amounts = (10, 20, 5, 7)
    rows = [f"{n},{amount}\n" for n, amount in zip(numbers, amounts, strict=True)]
    (tmp_path / "orders.csv").write_text("order,amount\n" + "".join(rows))
    shop = Farm(tmp_path, others=False)
    expected = COUNTED | ({} if len({*numbers}) == 4 else {"How many orders are there?": ""})
    told = {question: " ".join(shop.ask(question)) for question in expected}
    for question, answer in expected.items():
        assert answer in told[question], question
        assert bool(answer) == bool(told[question]), question


def test_a_column_that_is_called_lines_is_not_taken_for_the_rows(tmp_path: Path) -> None:
    (tmp_path / "functions.csv").write_text("function,lines\nfoo,10\nbar,20\nbaz,5\n")
    shop = Farm(tmp_path, others=False)
    assert shop.ask("How many lines does foo have?") == []
    assert shop.ask("How many rows are there?") == ["Number of rows: 3 [functions.csv]"]


SALES = "customer,amount\nA,5\nB,600\n,7\nC,\n"
SUMS = {
    "What is the total amount?": "Total amount: 612 (left out, for want of amount: 1 row) ",
    "What is the total amount by customer?": (
        "Total amount by customer: A 5, B 600 "
        "(left out, for want of customer: 1 row, for want of amount: 1 row) "
    ),
    "How many rows are there per customer?": (
        "Number of rows by customer: A 1, B 1, C 1 (left out, for want of customer: 1 row) "
    ),
    "Which customer has the highest amount?": (
        "Highest amount: B (600) (left out, for want of customer: 1 row) "
    ),
}


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_rows_without_a_group_or_a_value_are_told_as_left_out(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_tables, "_has_duckdb", lambda: engine == "duckdb")
    (tmp_path / "sales.csv").write_text(SALES)
    shop = Farm(tmp_path, others=False)
    told = {question: " ".join(shop.ask(question)) for question in SUMS}
    assert {question: answer for question, answer in SUMS.items() if answer in told[question]} == (
        SUMS
    ), told


def test_rows_that_repeat_the_names_are_told_as_left_out(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("customer,amount\nA,5\ncustomer,amount\nB,600\n")
    assert Farm(tmp_path, others=False).ask("What is the total amount?") == [
        "Total amount: 605 (left out, 1 row that repeats the names of the columns) [sales.csv]"
    ]
