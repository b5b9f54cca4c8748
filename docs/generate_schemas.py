"""Writes docs/schemas/ from the source: the JSON Schemas of a plan and of a trace.

`python docs/generate_schemas.py` writes them; with `--check` it only says whether they are up to date.
"""

import json
import sys
from pathlib import Path

from chargehand.decisions.trace import Trace
from chargehand.facts.plan import Plan

FOLDER = Path(__file__).parent / "schemas"


def pages() -> dict[Path, str]:
    """What each file must say."""
    schemas = {"plan": Plan.json_schema(), "trace": Trace.json_schema()}
    return {
        FOLDER / f"{name}.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }


def main() -> int:
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" not in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        for path in stale:
            path.write_text(pages()[path], encoding="utf-8")
        return 0
    for path in stale:
        print(f"docs/schemas/{path.name} is out of date; run: python docs/generate_schemas.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
