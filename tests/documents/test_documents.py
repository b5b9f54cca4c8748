"""Documents: figures are looked up where they say, and hostile text stays text."""

import math
import re
import subprocess
from collections.abc import Callable
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
        (350, "notes.md:2", "350 is not in notes.md:2"),
        (60120, "labs.csv:3", "60,120 is not in labs.csv:3"),
        (3500, "notes.md:9", "has 5 lines"),
        (3500, "notes.md:0", "there is no line"),
        (3500, "notes.md:3-2", "ends before it begins"),
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
        ((1e-320, 2e-320), ["1e-320", "2e-320"]),
        ((-(10**400), 12345 * 10**400), ["-1e+400", "1.234e+404"]),
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


def test_words_in_place_of_a_number_are_shown_without_a_bar() -> None:
    two = Figure(value="2", source="x.md:1")
    page = Document("D", [BarChart("Growth", [("a", WORD), ("b", two)])]).html()
    drawing = page.partition("<svg")[2].partition("</svg>")[0]
    assert "much" in drawing
    widths = [float(each) for each in re.findall(r'<rect [^>]*width="([\d.]+)"', drawing)]
    assert widths[0] == 0
    assert widths[1] > 100, "a number in quotes is a number"


def test_words_in_place_of_a_number_stand_in_the_line_and_break_it() -> None:
    two = Figure(value="2", source="x.md:1")
    line = Document("D", [LineChart("L", ["1", "2", "3", "4"], {"x": [two, two, WORD, two]})])
    drawing = line.html().partition("<svg")[2].partition("</svg>")[0]
    assert "<title>x, 3: much</title>" in drawing
    assert ">much<title>" in drawing
    assert "missing" not in drawing
    assert drawing.count("<polyline") == 2
    assert drawing.count("<circle") == 3
    assert 'class="bad"' not in drawing
    assert "much" in line.markdown()


def test_a_missing_value_is_a_gap_of_the_line() -> None:
    def at(value: float) -> Figure:
        return Figure(value=value, source="labs.csv:2")

    chart = LineChart("Potassium", list("abcd"), {"K": [at(4), at(5), None, at(6)]})
    page = Document("Labs", [chart])
    assert page.html().count("<polyline") == 2
    assert "K, c: missing" in page.html()
    assert "| c | missing |" in page.markdown()


def test_a_figure_that_is_not_found_is_marked_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "sold.txt").write_text("We sold 12 lamps.\n")
    good, bad = (Figure(value=each, source="sold.txt:1") for each in (12, 99))
    blocks: list[Any] = [
        Paragraph(["We sold ", good, ", not ", bad, "."]),
        BarChart("Lamps", [("right", good), ("wrong", bad)]),
        LineChart("Lamps by day", ["Monday", "Tuesday"], {"lamps": [good, bad]}),
    ]
    document = Document("Sales", blocks, data=tmp_path)
    words = document.markdown()
    assert "We sold 12 [1], not 99 [2: not found]." in words
    assert "| wrong | 99 [2: not found] |" in words
    assert "12 [1: not found]" not in words
    page = document.html()
    bars, lines = page.split("<figure>")[1:]
    assert bars.partition("<details>")[0].count(">99, not found</text>") == 1
    assert ">12</text>" in bars
    drawing = lines.partition("<details>")[0]
    assert drawing.count(">not found</text>") == 1
    assert drawing.count("<title>lamps, Tuesday: 99, not found</title>") == 1
    assert drawing.count('fill="var(--bad)"') == 1


def test_words_that_are_not_found_are_marked_in_the_line(tmp_path: Path) -> None:
    (tmp_path / "sold.txt").write_text("We sold 12 lamps.\n")
    good, bad = (Figure(value=each, source="sold.txt:1") for each in (12, "plenty"))
    chart = LineChart("Lamps", ["Monday", "Tuesday"], {"lamps": [good, bad]})
    page = Document("Sales", [chart], data=tmp_path).html()
    drawing = page.partition("<svg")[2].partition("</svg>")[0]
    assert "<title>lamps, Tuesday: plenty, not found</title>" in drawing
    assert drawing.count('<text class="bad"') == 1


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


ONE = Figure(value=1, source="a.md:1")
NAN, WORD = (Figure(value=value, source="a.md:1") for value in (math.nan, "much"))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: BarChart("Growth", [("a", NAN)]), "'Growth': 'a': nan cannot be drawn; leave"),
        (
            lambda: BarChart("Growth", [("a", Figure(value=-math.inf, source="a:1"))]),
            "-inf cannot be drawn",
        ),
        (lambda: BarChart("Growth", [("a", 3)]), "'Growth': 'a' is 3; give a Figure"),  # type: ignore[list-item]
        (lambda: BarChart("Growth", [("a",)]), "bar 1 of chart 'Growth' is .*; give a label"),  # type: ignore[list-item]
        (lambda: BarChart("Growth", [None]), "bar 1 of chart 'Growth' is None"),  # type: ignore[list-item]
        (lambda: BarChart("Growth", 5), "bars of chart 'Growth' is 5; give a list"),  # type: ignore[arg-type]
        (lambda: BarChart(None, []), "title of a BarChart is None, not a text"),  # type: ignore[arg-type]
        (lambda: LineChart("L", ["a", "b"], {"x": [ONE]}), "'x' has 1 figures for 2 points"),
        (lambda: LineChart("L", ["a"], {"x": [ONE, ONE]}), "'x' has 2 figures for 1 points"),
        (lambda: LineChart("L", ["a"], {"x": [NAN]}), "line 'x' at 'a': nan .*; give None"),
        (lambda: LineChart("L", ["a"], {"x": 5}), "line 'x' is 5; give a list"),  # type: ignore[dict-item]
        (lambda: LineChart("L", ["a"], [[ONE]]), "lines of chart 'L' are .*; give a dict"),  # type: ignore[arg-type]
        (lambda: LineChart("L", [None], {}), "axis of chart 'L' is None"),  # type: ignore[list-item]
        (lambda: Table(["a", "b"], [[1, 2], [1]]), "row 2 of the table has 1 cells for 2 columns"),
        (lambda: Table(["a"], [[1, 2]], "T"), "row 1 of table 'T' has 2 cells for 1 columns; name"),
        (lambda: Table([], [[1]]), "has 1 cells for 0 columns"),
        (lambda: Table(["a"], [[None]]), "row 1 of the table, part 1, is None; give a text"),  # type: ignore[list-item]
        (lambda: Table(["a"], ["x"]), "row 1 of the table is 'x'; give a list"),
        (lambda: Table(["a"], [{"a": 1}]), "row 1 of the table is .*; give a list"),  # type: ignore[list-item]
        (lambda: Table(["a"], [ONE]), "row 1 of the table is .*; give a list"),  # type: ignore[list-item]
        (lambda: Table([None], []), "a column of the table is None, not a text"),  # type: ignore[list-item]
        (lambda: Table("ab", []), "columns of the table is 'ab'; give a list"),
        (lambda: Paragraph(None), "a Paragraph is None; give a list"),  # type: ignore[arg-type]
        (lambda: Paragraph(["x", None]), "a Paragraph, part 2, is None"),  # type: ignore[list-item]
        (lambda: Paragraph({"x": 1}), "a Paragraph is .*; give a list"),  # type: ignore[arg-type]
        (lambda: Bullets(["x", None]), "point 2 of Bullets is None"),  # type: ignore[list-item]
        (lambda: Bullets([["x", None]]), "point 1 of Bullets, part 2, is None"),  # type: ignore[list-item]
        (lambda: Callout("C", [None]), "Callout 'C', part 1, is None"),  # type: ignore[list-item]
        (lambda: Section(None), "the title of a Section is None"),  # type: ignore[arg-type]
        (lambda: Document("t", [None]), "block 1 of document 't' is None; .* or leave it out"),  # type: ignore[list-item]
        (lambda: Document("t", ["x", ONE]), "block 2 of document 't' is Figure"),  # type: ignore[list-item]
        (lambda: Document("t", None), "the blocks of document 't' is None; give a list"),  # type: ignore[arg-type]
        (lambda: Document(None, []), "the title of a document is None"),  # type: ignore[arg-type]
    ],
)
def test_what_no_document_can_hold_is_refused_where_it_is_made(
    make: Callable[[], object], told: str
) -> None:
    with pytest.raises(ch.UsageError, match=told):
        make()


@pytest.mark.parametrize(
    "block",
    [
        Paragraph(part for part in ["alpha", ONE]),  # type: ignore[arg-type]
        Paragraph("alpha"),
        Paragraph(Figure(value="alpha", source="a:1")),  # type: ignore[arg-type]
        Bullets(point for point in ["alpha"]),  # type: ignore[arg-type]
        Bullets("alpha"),
        Bullets([(part for part in ["alpha"])]),  # type: ignore[list-item]
        Callout("c", (part for part in ["alpha"])),  # type: ignore[arg-type]
        Table((name for name in ["alpha"]), ((cell for cell in [1]) for _ in "ab")),  # type: ignore[arg-type]
        Table(["a"], map(iter, [["alpha"]])),  # type: ignore[arg-type]
        BarChart("b", zip(["alpha"], [ONE], strict=True)),  # type: ignore[arg-type]
        LineChart("l", iter(["alpha"]), {"x": iter([ONE])}),  # type: ignore[arg-type,dict-item]
    ],
)
def test_what_can_be_gone_through_once_is_in_both_forms(block: Any) -> None:
    document = Document("t", [block])
    for _ in range(2):
        assert "alpha" in document.markdown()
        assert "alpha" in document.html()


@pytest.mark.parametrize("blocks", ["alpha", Paragraph(["alpha"])])
def test_one_block_needs_no_list(blocks: Any) -> None:
    assert Document("t", blocks).blocks == [blocks]


def test_years_are_names_too() -> None:
    line = LineChart("l", [2023, 2024], {"x": [ONE, ONE]})  # type: ignore[list-item]
    page = Document("t", [line, BarChart("b", [(2025, ONE)]), Table([2026], [[1]])]).html()  # type: ignore[list-item]
    assert all(str(year) in page for year in range(2023, 2027))


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, -1e308, 1e-320, 5e-324, 0, -0.0, 3])
def test_every_finite_number_is_drawn(value: float) -> None:
    """Values beside each other whose quotient or difference no float can hold."""
    figures = [Figure(value=each, source="a.md:1") for each in (value, 1.5, -value)]
    for some in (figures, figures[:1]):
        axis = [str(n) for n in range(len(some))]
        bar = BarChart("b", list(zip(axis, some, strict=True)))
        page = Document(
            "t", [bar, LineChart("l", axis, {"x": some}), Table(["a"], [[value]])]
        ).html()
        assert_valid_html(page)
        places = re.findall(r' (?:x|y|cx|cy|width|x1|x2|y1|y2)="([^"]*)"', page)
        places += re.findall(r"[^ ,]+", " ".join(re.findall(r'points="([^"]*)"', page)))
        assert len(places) > 5
        assert all(-1 <= float(each) <= 800 for each in places), places


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("report", ["report.html", "report.md"]),
        ("report.2023", ["report.2023.html", "report.2023.md"]),
        ("v1.2.", ["v1.2..html", "v1.2..md"]),
        (".hidden", [".hidden.html", ".hidden.md"]),
        ("report.md", ["report.html", "report.md"]),
        ("report.2023.html", ["report.2023.html", "report.2023.md"]),
        ("in/it", ["in"]),
    ],
)
def test_a_document_is_written_under_its_whole_name(
    path: str, names: list[str], tmp_path: Path
) -> None:
    made = Document("t", ["x"]).write(tmp_path / path)
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert [each.suffix for each in made] == [".md", ".html"]


@pytest.mark.parametrize("path", ["", ".", "..", "/", "a/..", ".md", "a\0b", "x" * 300, None, 5])
def test_a_path_that_names_no_file_is_refused(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ch.UsageError, match="cannot be written"):
        Document("t", []).write(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("c.md:1-0", "c.md:1-0: there is no line 0, lines are counted from 1"),
        ("c.md:0", "c.md:0: there is no line 0, lines are counted from 1"),
        ("c.md:2-1", "c.md:2-1 ends before it begins: write c.md:1-2"),
        ("c.md:2", "c.md has 1 line: there is no line 2"),
        ("c.md:1-9", "c.md has 1 line: there is no line 9"),
    ],
)
def test_lines_that_are_not_there_are_told_apart(source: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "c.md").write_text("1\n")
    assert FigureCheck(tmp_path).fault(Figure(value=1, source=source)) == fault


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
