"""When a figure counts as found: exact values, units beside them, whole words, and rounding of queries only."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.documents import Figure, FigureCheck, cited
from chargehand.documents.numbers_in_text import numbers_in, read_number

NOTES = """# Notes
The lamp cost 94.47 EUR, fees are 3 % in 2024.
p = .04 in the trial, 0 later; 15 mg of it, 2.5 mg before.
A loss of (500) EUR, and thirty (30) days.
About 1e6 units, 12 million EUR, 1.234,56 EUR, 1 200 kg.
From 2024-05-03 at 12:30, 1/3 of 12–18 hours, version 3.1.2, code 007, F3.
Price (EUR): 7.50, then €8.25 and USD 9.75. A 12-month term, 64GB, **5 seats**.
| item | price (EUR) | weight |
|---|---|---|
| lamp | 11.50 | 2 kg |
3 EUR, 5 USD, -7 °C, 4 mW, 6 EUR per unit
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> FigureCheck:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "n.md").write_text(NOTES)
    (folder / "o.csv").write_text(
        "item,price_eur,eur_per_unit,kg,note,gap\nlamp,3.8,2,9007199254740992,1e999999999,\nbulb,4.4,7,2,12,\ncord,4,1,1,text,\n"
    )
    (folder / "semi.csv").write_text("ware;preis (EUR)\nlampe;1.234,50\n")
    (folder / "long.csv").write_text(f"a,b\n{'x' * 200_000},5\n")
    (folder / "feed.txt").write_text("one 1\x0ctwo 2\nthree 3\n")
    (folder / "a.json").write_text('{"sizes":[10,20],"price_eur":3.5}\n')
    return FigureCheck(folder)


FOUND: list[tuple[float | str, str, str]] = [
    (94.47, "EUR", "n.md:2"),
    (94.47, "€", "n.md:2"),
    (94.47, "", "n.md:2"),
    ("94.47", "EUR", "n.md:2"),
    (3, "percent", "n.md:2"),
    (2024, "", "n.md:2"),
    (0.04, "", "n.md:3"),
    ("15 mg", "", "n.md:3"),
    ("15", "mg", "n.md:3"),
    (-500, "EUR", "n.md:4"),
    (30, "days", "n.md:4"),
    (1_000_000, "units", "n.md:5"),
    (12_000_000, "EUR", "n.md:5"),
    (12, "million EUR", "n.md:5"),
    (1234.56, "EUR", "n.md:5"),
    (1200, "kg", "n.md:5"),
    ("2024-05-03", "", "n.md:6"),
    ("1/3", "", "n.md:6"),
    (12, "hours", "n.md:6"),
    (18, "hours", "n.md:6"),
    ("F3", "", "n.md:6"),
    (7.5, "EUR", "n.md:7"),
    (8.25, "EUR", "n.md:7"),
    (9.75, "$", "n.md:7"),
    (12, "months", "n.md:7"),
    (64, "GB", "n.md:7"),
    (5, "seats", "n.md:7"),
    (11.5, "EUR", "n.md:10"),
    (2, "kg", "n.md:10"),
    (-7, "°C", "n.md:11"),
    (6, "EUR per unit", "n.md:11"),
    (3.8, "EUR", "o.csv:2"),
    (2, "EUR", "o.csv:2"),
    (2, "kg", "o.csv:3"),
    (1234.5, "EUR", "semi.csv:2"),
    (3, "", "feed.txt:2"),
    (20, "", "a.json:1"),
    (3.5, "EUR", "a.json:1"),
    (4, "EUR", "sql: SELECT price_eur FROM o WHERE item = 'lamp'"),
    (4.4, "EUR", "sql: SELECT max(price_eur) FROM o"),
    (9007199254740992, "", "sql: SELECT max(kg) FROM o"),
    (9007.2, "billion", "sql: SELECT max(kg) / 1000 FROM o"),
    (12, "EUR", "sql: SELECT sum(a.price_eur) FROM o a JOIN o b USING (item)"),
    ("12", "", "sql: SELECT note FROM o WHERE item = 'bulb'"),
]


NOT_FOUND: list[tuple[float | str, str, str, str]] = [
    (94, "EUR", "n.md:2", "these numbers are: 94.47, 3, 2024"),
    (94.5, "EUR", "n.md:2", "is not in"),
    (94.47, "USD", "n.md:2", "is in n.md:2, but not with the unit USD"),
    (3, "EUR", "n.md:2", "not with the unit EUR"),
    (2024, "%", "n.md:2", "not with the unit %"),
    (94.47, "million EUR", "n.md:2", "94.47 million EUR is not in"),
    ("amp c", "", "n.md:2", "is not in"),
    ("20", "", "n.md:2", "is not in"),
    ("", "", "n.md:2", "empty"),
    (" ", "", "n.md:2", "empty"),
    ("-", "", "n.md:2", "empty"),
    (0.00003, "", "n.md:3", "0.00003 is not in"),
    (1.5e-7, "", "n.md:3", "is not in"),
    ("5 mg", "", "n.md:3", "is not in"),
    ("5", "mg", "n.md:3", "is not in"),
    ("15", "g", "n.md:3", "not with the unit g"),
    (500, "EUR", "n.md:4", "(500)"),
    (-30, "days", "n.md:4", "is not in"),
    (1, "", "n.md:5", "1e6"),
    (12, "EUR", "n.md:5", "12 million"),
    (1.234, "", "n.md:5", "is not in"),
    (200, "kg", "n.md:5", "1 200"),
    (5, "", "n.md:6", "is not in"),
    (3, "", "n.md:6", "is not in"),
    (7, "", "n.md:6", "is not in"),
    (64, "", "n.md:7", "is not in"),
    (11.5, "kg", "n.md:10", "not with the unit kg"),
    (5, "EUR", "n.md:11", "not with the unit EUR"),
    (7, "°C", "n.md:11", "-7"),
    (4, "MW", "n.md:11", "not with the unit MW"),
    (3.8, "USD", "o.csv:2", "not with the unit USD"),
    (2, "units", "o.csv:2", "not with the unit units"),
    (10.2, "", "a.json:1", "is not in"),
    (5, "", "long.csv:2", "cannot be read as a table"),
    (3, "", "feed.txt:3", "has 2 lines"),
    (1, "", f"n.md:{'9' * 5000}", "is not a source"),
    (3, "", "n.md:2, n.md:3", "several sources"),
    (float("nan"), "", "sql: SELECT 'nan'::DOUBLE FROM o", "nan is not a number"),
    (float("inf"), "", "n.md:2", "inf is not a number"),
    (999, "", "sql: SELECT 999", "reads no table"),
    (5, "", "sql: WITH o AS (SELECT 5 AS x) SELECT x FROM o", "reads no table"),
    (5, "", "sql: SELECT count(*) FROM range(5)", "reads no table"),
    (0.00003, "", "sql: SELECT 0.04 FROM o LIMIT 1", "gives 0.04"),
    (3.7, "", "sql: SELECT min(price_eur) FROM o", "gives 3.8"),
    (3.8, "USD", "sql: SELECT min(price_eur) FROM o", "about EUR, not USD"),
    (3.8, "million EUR", "sql: SELECT min(price_eur) FROM o", "gives 3.8"),
    (9007199254740993, "", "sql: SELECT max(kg) FROM o", "not 9,007,199,254,740,993"),
    ("1/3", "", "sql: SELECT 0 FROM o LIMIT 1", "gives 0"),
    ("None", "", "sql: SELECT max(gap) FROM o", "NULL"),
    (1, "", "sql: SELECT note FROM o WHERE item = 'lamp'", "gives 1e999999999"),
    ("1e999999999", "", "sql: SELECT 1 FROM o LIMIT 1", "gives 1"),
    (1, "", "sql: SELECT count(*) > 0 FROM o", "gives True"),
    (1, "", "sql: SELECT item FROM o WHERE false", "no row"),
    (1, "", "sql: SELECT 1, 2 FROM o LIMIT 1", "2 columns"),
]


@pytest.fixture(scope="module")
def faults(check: FigureCheck) -> list[str]:
    """Of all that are found, then of all that are not: one process answers the queries of both."""
    stated = [*FOUND, *(each[:3] for each in NOT_FOUND)]
    figures = [Figure(value=value, unit=unit, source=source) for value, unit, source in stated]
    return [each.fault for each in check.all(figures)]


@pytest.mark.parametrize("place", range(len(FOUND)), ids=[f"{v} {u} {s}" for v, u, s in FOUND])
def test_it_is_found(faults: list[str], place: int) -> None:
    assert faults[place] == ""


@pytest.mark.parametrize(
    "place", range(len(NOT_FOUND)), ids=[f"{v} {u} {s[:40]}" for v, u, s, _ in NOT_FOUND]
)
def test_it_is_not_found(faults: list[str], place: int) -> None:
    assert NOT_FOUND[place][3] in faults[len(FOUND) + place]


def test_one_bad_figure_leaves_the_others_checked(check: FigureCheck) -> None:
    bad = ["long.csv:2", f"n.md:{'9' * 5000}", "c\x00.md:1", "c\ud800.md:1", "sql: SELECT '\ud800'"]
    found, *faults = check.all(
        [
            Figure(value=94.47, unit="EUR", source="n.md:2"),
            *(Figure(value=1, source=source) for source in bad),
        ]
    )
    assert found.fault == ""
    assert all(each.fault for each in faults)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12345678901, "12,345,678,901"),
        (1234567890.55, "1,234,567,890.55"),
        (9007199254740993, "9,007,199,254,740,993"),
        (0.00003, "0.00003"),
        (1e300, "1e+300"),
        (5e-324, "5e-324"),
        (-0.5, "-0.5"),
        (3500.0, "3,500"),
    ],
)
def test_a_number_is_shown_with_all_its_digits(value: float, shown: str) -> None:
    assert str(Figure(value=value, source="a:1")) == shown


whole_or_decimal = st.one_of(
    st.integers(-(10**15), 10**15),
    st.decimals(-(10**9), 10**9, places=2).map(float),
)


@settings(max_examples=60, deadline=None)
@given(whole_or_decimal)
def test_a_number_reads_as_it_is_shown(value: float) -> None:
    shown = str(Figure(value=value, source="a:1"))
    assert read_number(shown) == read_number(repr(value)) == read_number(f"{value}")
    (found,) = numbers_in(f"It was {shown} EUR.")
    assert found.value == read_number(shown)


@settings(max_examples=60, deadline=None)
@given(whole_or_decimal, whole_or_decimal)
def test_only_the_number_itself_stands_in_a_text(stated: float, written: float) -> None:
    shown = str(Figure(value=written, source="a:1"))
    values = [each.value for each in numbers_in(f"a {shown} kg")]
    assert values == [read_number(shown)]
    assert (read_number(str(Figure(value=stated, source="a:1"))) in values) == (stated == written)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="0123456789 .,-–()e€%[]:/'\"a\n*", max_size=60))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    assert all(0 <= each.start < each.end <= len(text) for each in numbers_in(text))
    cited(f"{text} [a.md:1] {text}")


# Prose


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("Up 5% [c.md:3].", 5, "%"),
        ("It is 99€ [c.md:3].", 99, "€"),
        ("It is €99 [c.md:3].", 99, "€"),
        ("It is EUR 99 [c.md:3].", 99, "EUR"),
        ("99 EUR per unit [c.md:3].", 99, "EUR"),
        ("99 EUR. [c.md:3]", 99, "EUR"),
        ("**99** [c.md:3]", 99, ""),
        ("(99) [c.md:3]", -99, ""),
        ("99[c.md:3]", 99, ""),
        ("99 [my file.md:3]", 99, ""),
        ("12 March 2025 [c.md:3]", "12 March 2025", ""),
        ("March 12, 2025 [c.md:3]", "March 12, 2025", ""),
        ("1 200 EUR [c.md:3]", 1200, "EUR"),
        ("−3 EUR [c.md:3]", -3, "EUR"),
        ("3.8 million EUR [c.md:3]", 3.8, "million EUR"),
        ("142/86 mmHg [c.md:3]", "142/86", "mmHg"),
        ("“weak legs” [c.md:3]", "weak legs", ""),
        ("So, the price rose [c.md:3].", "the price rose", ""),
        ("[c.md:3]", "", ""),
        ("twelve [c.md:4]", "twelve", ""),
        ("99 [c.md:3, c.md:4]", 99, ""),
        ("99 [c.md 3]", 99, ""),
        ("99 [c.md]", 99, ""),
        ("99 [c.md:3", 99, ""),
        ("99 EUR [sql: SELECT x[1] FROM o]", 99, "EUR"),
        ("99 [sql: SELECT 1", 99, ""),
    ],
)
def test_every_source_in_brackets_makes_a_figure(text: str, value: float | str, unit: str) -> None:
    (figure,) = [each for each in cited(text) if isinstance(each, Figure)]
    assert (figure.value, figure.unit) == (value, unit)
    assert figure.source in text


@pytest.mark.parametrize("text", ["5 [1]", "see [no]", "at 5 [12:30]", "[report.md](x.html)", "[["])
def test_other_brackets_stay_text(text: str) -> None:
    assert "".join(each for each in cited(text) if isinstance(each, str)) == text


@pytest.mark.parametrize(
    "unit", ["1", "1,", '"a', "1 ", "[sql: ", "[a.md:1", "[", "[1]", "(1", "-", "a.b "]
)
def test_long_texts_take_little_time(unit: str) -> None:
    began = time.process_time()
    cited(unit * 20_000)
    assert time.process_time() - began < 5  # a reader that is quadratic takes minutes
