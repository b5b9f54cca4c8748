"""`python -m tests.chaos.table .chaos/result.json`: writes what a campaign came to into docs/reliability.md."""

import json
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"


def table_of(result: dict[str, Any]) -> str:
    """One line for each row of a campaign, under a line that says what was tried, and when."""
    minutes = result["seconds"] / 60
    size = "release size" if result["scale"] == 1 else f"{result['scale']:g} of release size"
    lines = [
        f"{result['date']}, commit `{result['commit']}`, {size}, seed {result['seed']}, "
        f"Python {result['python']}, {minutes:.0f} minutes.",
        "",
        "| row | fault | fired | violations | bar | worst |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        worst = ", ".join(
            f"{name.replace('_', ' ')} {_rounded(figure)}"
            for name, figure in sorted(row["figures"].items())
        )
        fired = f"not run: {row['lacks']}" if row["lacks"] else f"{row['fired']:,}"
        cells = (row["row"], row["fault"], fired, row["violations"], row["bar"], worst or "–")
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join([*lines, *_other_commits(result)])


def _rounded(figure: float) -> str:
    """A figure with three significant digits, and never with an exponent if it is large."""
    rounded = float(f"{figure:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def _other_commits(result: dict[str, Any]) -> list[str]:
    """Which rows were tried before the source was changed, if a campaign went on with `--keep`."""
    rows: dict[str, list[str]] = {}
    for row in result["rows"]:
        for commit in row["commits"]:
            if commit != result["commit"] and row["row"] not in rows.setdefault(commit, []):
                rows[commit].append(row["row"])
    return [
        "",
        *(f"Rows tested at commit `{commit}`: {', '.join(ids)}." for commit, ids in rows.items()),
    ] * bool(rows)


def write(result: dict[str, Any], page: Path = PAGE) -> None:
    """Put the table of this result where the last one was."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table_of(result)}\n{END}{after}", "utf-8")


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    write(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
