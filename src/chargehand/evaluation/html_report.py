"""The report of an evaluation as one HTML page, without scripts and external resources."""

from collections.abc import Iterable, Sequence
from html import escape

from chargehand.decisions.task_and_state_words import counted
from chargehand.evaluation.figures import METRICS, TITLES, Result
from chargehand.evaluation.intervals import Interval
from chargehand.evaluation.suite_file import Metric
from chargehand.presentation.display_text import clean

#: up to this number of cases, the number is shown, because it is too small for a useful interval
FEW = 2
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1b1b1b;background:#fff}
table{border-collapse:collapse;margin:1rem 0;width:100%}
th,td{border-bottom:1px solid #ddd;padding:.35rem .6rem;text-align:left;vertical-align:top}
td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.bad{color:#a40000}.good{color:#006b2d}small{color:#555}
@media (prefers-color-scheme:dark){body{background:#161616;color:#e6e6e6}th,td{border-color:#3a3a3a}
.bad{color:#ff8a80}.good{color:#7fd99a}small{color:#aaa}}
"""


def html_of(result: Result) -> str:
    """A self-contained HTML page. Text from models and files is escaped, including characters that hide or reverse it."""
    gate = "".join(f'<p class="bad">gate: {escape(str(miss))}</p>' for miss in result.misses)
    parts = [
        f"<h1>{escape(result.suite)}</h1>",
        f"<p>{escape(result.note)}</p>" if result.note else "",
        gate or '<p class="good">Every metric is within the gate.</p>',
        "<h2>Figures</h2>",
        _table(
            ["metric", *(each.name for each in result.crews)],
            figure_rows(result),
        ),
    ]
    for each in result.comparisons:
        parts += [
            f"<h2>{escape(each.second)} against {escape(each.first)}</h2>",
            _table(
                ["metric", "difference"],
                [[TITLES[m], shown(d, is_signed=True)] for m, d in each.differences.items()],
            ),
        ]
    rows = [
        [c.crew, c.model, c.case, str(c.repeat + 1), "\n".join(c.misses) or "–", c.answer[:2000]]
        for c in result.cases
    ]
    parts += [
        "<h2>Cases</h2>",
        _table(["crew", "model", "case", "repeat", "misses", "answer"], rows),
        "<p><small>Intervals hold the true value in 95 of 100 evaluations.</small></p>",
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(result.suite)}</title><style>{_STYLE}</style></head><body>"
    )
    return clean(f"{head}{''.join(parts)}</body></html>\n")


def figure_rows(result: Result) -> list[list[str]]:
    """A row per measured metric: its title, and its figure for each crew."""
    return [
        [TITLES[m], *(_cell(m, each.figures.get(m)) for each in result.crews)]
        for m in METRICS
        if m == "cost" or any(m in each.figures for each in result.crews)
    ]


def _cell(metric: Metric, figure: Interval | None) -> str:
    # Each case has a cost, even if it is 0. If there is no figure, a price is not known.
    return "unknown" if metric == "cost" and figure is None else shown(figure)


def shown(figure: Interval | None, *, is_signed: bool = False) -> str:
    """A figure with its bounds, such as `0.83 (0.55 – 0.95)`; with the number of cases if it is very small."""
    if figure is None:
        return "–"
    sign = "+" if is_signed else ""
    value = f"{figure.value:{sign}.3g}"
    if figure.low is None or figure.high is None:
        return value
    few = f", from {counted(figure.n, 'case')}" if figure.n <= FEW else ""
    return f"{value} ({figure.low:{sign}.3g} – {figure.high:{sign}.3g}{few})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(each)}</th>" for each in head)
    lines = ("<tr>" + "".join(f"<td>{_lines(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{''.join(lines)}</table>"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")
