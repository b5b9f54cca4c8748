"""Documents: figures are looked up where they say, and hostile text stays text."""

import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import chargehand as ch
from chargehand.documents import (
    BarChart,
    Bullets,
    Callout,
    Document,
    Figure,
    FigureCheck,
    LineChart,
    Paragraph,
    Section,
    Table,
    cited,
    figures_in,
)
from chargehand.errors import ToolError
from chargehand.tools.sql_tables import TableStore
from tests.complete_examples.checks import assert_valid_html

HOSTILE = '<script>alert(1)</script> "quoted" | `code` \x1b[31m \u202e [link](http://x)'


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> FigureCheck:
    folder = tmp_path_factory.mktemp("data")
    (folder / "orders.csv").write_text("supplier,units,price\nTiller,3500,3.8\nHale,1200,0.125\n")
    (folder / "labs.csv").write_text('high,day,place\n84,2025-12-05,"Bay, north"\n60,120,2025\n')
    (folder / "notes.md").write_text(
        "one\nTiller sent 3,500 units.\nIt fell by −4.5 %.\n  Ends on\n 2026-01-31\n"
    )
    return FigureCheck(folder)


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (3500, "notes.md:2"),
        (3500, "notes.md:1-3"),
        (-4.5, "notes.md:3"),
        ("Tiller sent", "notes.md:2"),
        ("ends on 2026-01-31", "notes.md:4-5"),
        (84, "labs.csv:2"),
        ("2025-12-05", "labs.csv:2"),
        (120, "labs.csv:3"),
        (4700, "sql: SELECT sum(units) FROM orders"),
        (0.13, "SQL: SELECT price FROM orders WHERE supplier = 'Hale'"),
        ("Hale", "sql: SELECT supplier FROM orders WHERE units < 2000"),
    ],
)
def test_a_figure_that_stands_in_its_source_is_found(
    check: FigureCheck, value: float | str, source: str
) -> None:
    assert check.fault(Figure(value=value, source=source)) == ""


@pytest.mark.parametrize(
    ("value", "source", "words"),
    [
        (350, "notes.md:2", "350 does not stand in notes.md:2"),
        (60120, "labs.csv:3", "60,120 does not stand in labs.csv:3"),
        (3500, "notes.md:9", "has 5 lines"),
        (3500, "notes.md:0", "there is no line"),
        (3500, "notes.md:3-2", "there is no line"),
        (1, "gone.md:1", "gone.md"),
        (1, "../secret.md:1", "../secret.md"),
        (1, "somewhere", "is not a source"),
        (4701, "sql: SELECT sum(units) FROM orders", "gives 4,700, not 4,701"),
        (0.12, "sql: SELECT max(price) FROM orders", "gives 3.8"),
        (1, "sql: SELECT units FROM orders", "several rows instead of one value"),
        (1, "sql: SELECT nonsense FROM orders", "the query failed"),
        (1, "sql: DROP TABLE orders", "sql: DROP TABLE orders"),
    ],
)
def test_a_figure_that_does_not_is_a_fault_that_says_why(
    check: FigureCheck, value: float | str, source: str, words: str
) -> None:
    assert words in check.fault(Figure(value=value, source=source))


def test_many_figures_are_checked_in_one_process(
    check: FigureCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of a hundred figures is checked in about a second."""
    started: list[object] = []
    run = subprocess.run

    def counted(*args: Any, **more: Any) -> Any:
        started.append(args)
        return run(*args, **more)

    monkeypatch.setattr(subprocess, "run", counted)
    sums = [
        Figure(value=4700 + n, source=f"sql: SELECT sum(units) + {n} FROM orders")
        for n in range(99)
    ]
    wrong = Figure(value=1, source="sql: SELECT nonsense FROM orders")
    *found, last = check.all([*sums, wrong])
    assert not [each for each in found if each.fault]
    assert "the query failed" in last.fault
    assert len(started) <= 2  # one may take the files in


def test_a_query_that_ends_the_process_is_the_fault_of_one_figure(
    check: FigureCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: TableStore, order: dict[str, Any]) -> dict[str, Any]:
        asked = order.get("queries", [])
        if len(asked) > 1 or "repeat" in "".join(asked):
            raise ToolError("it needed too much memory or time; ask for less", kind="resource")
        return ordered(self, order)

    ordered = TableStore._ordered
    monkeypatch.setattr(TableStore, "_ordered", refuse)
    sound = Figure(value=4702, source="sql: SELECT sum(units) + 2 FROM orders")
    large = Figure(value=1, source="sql: SELECT repeat('x', 999999999999)")
    first, second = check.all([sound, large])
    assert first.fault == ""
    assert "too much memory" in second.fault


def test_the_names_of_many_lines_stay_inside_the_chart() -> None:
    number = Figure(value=1, source="a.md:1")
    lines = {f"line {n}": [number, number] for n in range(9)}
    page = Document("Lines", [LineChart("Lines", ["a", "b"], lines)]).html()
    places = [
        (float(x), float(y))
        for x, y in re.findall(r'<rect x="([0-9.]+)" y="([0-9.]+)" width="10"', page)
    ]
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', page)[0])
    assert len(set(places)) == len(lines)
    assert all(x + 150 < width and y + 10 < height for x, y in places)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (34.9, "EUR", "34.90 EUR"),
        (-1234.5, "USD", "-1,234.50 USD"),
        (9000, "EUR", "9,000 EUR"),
        (0.125, "EUR", "0.125 EUR"),
        (34.9, "%", "34.9 %"),
        (4.1, "", "4.1"),
        ("34.9", "EUR", "34.9 EUR"),
    ],
)
def test_amounts_of_money_are_shown_with_their_cents(
    value: float | str, unit: str, shown: str
) -> None:
    assert str(Figure(value=value, unit=unit, source="a.md:1")) == shown


def test_points_can_hold_figures() -> None:
    figure = Figure(value=3, unit="deals", source="a.md:1")
    document = Document("Points", [Bullets(["One.", ["Lost: ", figure, "."]], numbered=True)])
    assert document.figures == [figure]
    assert "1. One.\n2. Lost: 3 deals [1]." in document.markdown()
    assert "<ol><li>One.</li>" in document.html()


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((4869, 18942), ["0", "5,000", "10,000", "15,000", "20,000"]),
        ((4.3, 5.4), ["4.0", "4.5", "5.0", "5.5"]),
        ((0.012, 0.019), ["0.010", "0.015", "0.020"]),
        ((-3, 3), ["-4", "-2", "0", "2", "4"]),
        ((24, 49), ["20", "30", "40", "50"]),
        ((30, 30), ["30", "40"]),
        ((0, 0), ["0.0", "0.5"]),
        ((1e300, 2e300), ["1e+300", "2e+300"]),
        ((-math.inf, math.inf), ["-inf", "inf"]),
    ],
)
def test_an_axis_has_round_numbers(values: tuple[float, float], labels: list[str]) -> None:
    numbers = [Figure(value=value, source="a.md:1") for value in values]
    page = Document("Axis", [LineChart("Searches", ["Jan", "Feb"], {"all": numbers})]).html()
    assert re.findall(r'text-anchor="end">([^<]+)</text>', page) == labels


def test_the_columns_of_a_table_are_set_to_one_side() -> None:
    price, day = Figure(value=9, unit="EUR", source="a:1"), Figure(value="2026-01-31", source="a:2")
    table = Table(
        ["price", "term", "computed", "day"],
        [
            [price, price, 4, day],
            [price, price, 1234.25, day],
            ["none", "for as long as it lasts", 0.5, "2026-02-28"],
        ],
    )
    document = Document("Sides", [table])
    page = document.html()
    sides = re.findall(r"<th([^>]*)>(\w+)", page)
    assert [name for side, name in sides if side] == ["price", "computed"]
    assert '<td class="number">none</td>' in page
    assert re.findall(r">([0-9,.]+)</td>", page) == ["4.00", "1,234.25", "0.50"]
    assert "| none | for as long as it lasts | 0.50 |" in document.markdown()
    assert '<span class="figure short" title="a:2">2026-01-31<' in page


def test_figures_are_found_wherever_they_stand_in_a_result() -> None:
    class Part(BaseModel):
        figure: Figure
        more: dict[str, list[Figure]] = {}

    first, second = Figure(value=1, source="a:1"), Figure(value=2, source="b:1")
    assert figures_in([Part(figure=first, more={"x": [second]}), "text"]) == [first, second]


def test_a_figure_needs_a_source() -> None:
    with pytest.raises(ValidationError, match="source"):
        Figure.model_validate({"value": 1})


def test_prose_with_sources_in_brackets_holds_figures() -> None:
    """What has no source, or brackets without one, stays text."""
    text = 'On 2025-12-02 [v/a.md:1] 1,200 mL [b.csv:2-3] of 5, "weak legs" [v/a.md:5], 3 [sql: SELECT 3] [no].'
    parts = cited(text)
    assert parts == [
        "On ",
        Figure(value="2025-12-02", source="v/a.md:1"),
        " ",
        Figure(value=1200, unit="mL", source="b.csv:2-3"),
        " of 5, ",
        Figure(value="weak legs", source="v/a.md:5"),
        ", ",
        Figure(value=3, source="sql: SELECT 3"),
        " [no].",
    ]
    assert cited("") == []


def test_a_missing_value_is_a_gap_of_the_line() -> None:
    def at(value: float) -> Figure:
        return Figure(value=value, source="labs.csv:2")

    chart = LineChart("Potassium", list("abcd"), {"K": [at(4), at(5), None, at(6)]})
    page = Document("Labs", [chart])
    assert page.html().count("<polyline") == 2
    assert "K, c: missing" in page.html()
    assert "| c | missing |" in page.markdown()


def test_hostile_text_stays_text_in_both_forms() -> None:
    figure = Figure(value=HOSTILE, source=HOSTILE)
    number = Figure(value=-3, unit=HOSTILE, source="a:1")
    document = Document(
        HOSTILE,
        [
            HOSTILE,
            Section(HOSTILE),
            Paragraph([HOSTILE, figure, 1234.5]),
            Callout(HOSTILE, [HOSTILE]),
            Bullets([HOSTILE, [HOSTILE, number]], numbered=True),
            Table([HOSTILE], [[HOSTILE], [figure]], HOSTILE),
            BarChart(HOSTILE, [(HOSTILE, number)]),
            LineChart(HOSTILE, [HOSTILE, "b"], {HOSTILE: [number, number]}),
        ],
        label=HOSTILE,
    )
    page, text = document.html(), document.markdown()
    assert_valid_html(page)
    assert "<script" not in page
    for raw in ("\x1b", "\u202e"):
        assert raw not in page
        assert raw not in text
    assert "<script" not in text.replace("\\<script", "")
    assert "[link](" not in text.replace("\\[link](", "")
    assert "1,234.5" in page


def test_text_keeps_the_markdown_of_a_model() -> None:
    said = """# Week 3 #
**Aim:** find `x_1`, *then* 2 * 3 * 4.
Second line.

2. Fold [a](http://x)
   in four.

3) Draw <b>it</b>.
- one
* two

~~~sql
SELECT ```*```
~~~
"""
    document = Document("Sheet", [said])
    assert document.markdown() == (
        "# Sheet\n\n### Week 3\n\n**Aim:** find `x_1`, *then* 2 \\* 3 \\* 4. Second line.\n\n"
        "2. Fold \\[a](http://x) in four.\n3. Draw \\<b>it\\</b>.\n\n- one\n- two\n\n"
        "````\nSELECT ```*```\n````\n"
    )
    page = document.html()
    assert_valid_html(page)
    assert page.partition("<h1>Sheet</h1>")[2].startswith(
        "<h3>Week 3</h3><p><strong>Aim:</strong> find <code>x_1</code>, <em>then</em> 2 * 3 * 4.<br>Second line.</p>"
        '<ol start="2"><li>Fold [a](http://x) in four.</li><li>Draw &lt;b&gt;it&lt;/b&gt;.</li></ol>'
        "<ul><li>one</li><li>two</li></ul><pre><code>SELECT ```*```</code></pre>"
    )


@pytest.mark.parametrize("text", ["**a " * 20_000, "*a " * 20_000, "`a " * 20_000, "```\n" * 9])
def test_marks_without_an_end_are_read_fast(text: str) -> None:
    assert_valid_html(Document("Marks", [text]).html())


def test_a_chart_of_words_is_refused_by_name() -> None:
    document = Document("t", [BarChart("Growth", [("a", Figure(value="much", source="a:1"))])])
    with pytest.raises(ch.UsageError, match="'Growth': 'much' is not a number"):
        document.html()


def test_a_document_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ch.UsageError, match="cannot be written"):
        Document("t", []).write(tmp_path / "file" / "report")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Table(("supplier", "rule"), [], "Breaches"), "Breaches: this run has no entries for it."),
        (Table(("supplier", "rule"), ()), "This run has no entries for it."),
        (BarChart("Paid in 2025", []), "Paid in 2025: this run has no entries for it."),
        (LineChart("Prices", [], {}), "Prices: this run has no entries for it."),
        (Bullets([]), "This run has no entries for it."),
    ],
)
def test_a_table_without_rows_says_so(block: Any, said: str) -> None:
    """The columns alone would read as if there were nothing to report."""
    made = Document("Review", [block])
    assert made.markdown() == f"# Review\n\n{said}\n"
    assert f'<p class="label">{said}</p>' in made.html()
    assert not {"<table", "<svg", "<ul"} & set(re.findall(r"<\w+", made.html()))
