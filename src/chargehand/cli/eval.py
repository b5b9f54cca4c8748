"""`chargehand eval`: evaluate crews, prompts and models on a suite of cases."""

import asyncio
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chargehand.cli import output
from chargehand.cli.given_path import GivenPath
from chargehand.errors import NeedsRefresh, UsageError
from chargehand.regular_file import read_regular_file

if TYPE_CHECKING:
    from chargehand.evaluation import CaseResult, Result

GATE_MISSED, NEEDS_REFRESH = 1, 6


@click.command()
@click.argument("suite", type=GivenPath(path_type=Path))
@click.option(
    "--crew",
    "crews",
    multiple=True,
    metavar="NAME",
    help="Evaluate only this crew of the suite. Can be repeated.",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="ID",
    help="Evaluate only this case. Can be repeated.",
)
@click.option("--refresh", is_flag=True, help="Call the models and record their replies again.")
@click.option(
    "--compare",
    "earlier",
    type=GivenPath(exists=True, dir_okay=False, path_type=Path),
    metavar="REPORT",
    help="Compare with an earlier report that was written with --json.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.option(
    "--html",
    type=GivenPath(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE as one HTML page.",
)
def eval(  # noqa: A001 - the name of the command; the built-in is banned here anyway
    suite: Path,
    crews: Sequence[str],
    cases: Sequence[str],
    refresh: bool,
    earlier: Path | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Evaluate the crews, prompts and models of a SUITE on its cases.

    SUITE is a TOML file. Model replies come from the recording next to the suite, so no model is called unless you pass
    --refresh.

    Exit codes: 1 a metric is outside the bounds of the suite's gate, 2 the suite cannot be used,
    6 a reply is not recorded (use --refresh).
    """
    # Imported here to keep `--help` fast.
    from chargehand.evaluation import compare, evaluate, html_of, load_suite
    from chargehand.evaluation.figures import Result

    chosen = load_suite(suite).only(crews=crews, cases=cases)
    before = None if earlier is None else Result.from_json(_report(earlier), str(earlier))
    try:
        result = asyncio.run(evaluate(chosen, refresh=refresh, progress=_say_misses))
    except NeedsRefresh as error:
        output.say(f"chargehand: {error}")
        sys.exit(NEEDS_REFRESH)
    if before is not None:
        result.comparisons.extend(compare(before, result))
    if html is not None:
        _write(html, html_of(result))
    if as_json:
        output.raw(result.to_json().encode())
    else:
        output.result(_table_of(result))
    for miss in result.misses:
        output.say(f"gate: {miss}")
    if not result.passes:
        sys.exit(GATE_MISSED)


def _say_misses(case: "CaseResult") -> None:
    where = " · ".join(each for each in (case.crew, case.model, case.case) if each)
    for miss in case.misses:
        output.say(f"{where}: {miss}"[:300])


def _report(file: Path) -> bytes:
    try:
        return read_regular_file(file)
    except OSError as error:
        raise UsageError(f"the report {file} cannot be read: {error.strerror}") from None


def _write(file: Path, page: str) -> None:
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the report cannot be written to {file}: {error.strerror}") from None


def _table_of(result: "Result") -> str:
    """The figures of each crew, and the comparisons, as plain tables."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from chargehand.evaluation.figures import TITLES
    from chargehand.evaluation.html_report import figure_rows, shown

    figures = Table(
        "metric", *(Column(Text(each.name)) for each in result.crews), title=Text(result.suite)
    )
    for row in figure_rows(result):
        figures.add_row(*row)
    tables = [figures]
    for each in result.comparisons:
        differences = Table(
            "metric", "difference", title=Text(f"{each.second} against {each.first}")
        )
        for metric, found in each.differences.items():
            mark = " *" if found.excludes_zero else ""
            differences.add_row(TITLES[metric], shown(found, is_signed=True) + mark)
        tables.append(differences)
    page = Console(file=io.StringIO(), record=True, width=max(80, 34 + 30 * len(result.crews)))
    for table in tables:
        page.print(table)
    if any(d.excludes_zero for each in result.comparisons for d in each.differences.values()):
        page.print("* more than chance explains: the 95 % interval leaves out 0")
    if result.note:
        page.print(Text(result.note))
    return page.export_text().rstrip()
