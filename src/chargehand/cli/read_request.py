"""What a person hands in: a request in words, or a plan in a file."""

import sys
from pathlib import Path

from chargehand.cli.safe_text import clean
from chargehand.errors import UsageError
from chargehand.facts.plan import Plan
from chargehand.supervisor.requests import LONGEST_REQUEST

STDIN = "-"


def given_request(typed: str | None) -> str:
    """The request, typed or read from stdin, within its cap."""
    text = sys.stdin.read(4 * LONGEST_REQUEST) if typed == STDIN else typed or ""
    if not text.strip():
        raise UsageError('the request is empty; say what is to be done: chargehand run "…"')
    if len(text) > LONGEST_REQUEST:
        raise UsageError(
            f"the request is longer than {LONGEST_REQUEST:,} characters; put the material into a "
            'file, and ask about it: chargehand run --files FILE "…"'
        )
    return clean(text).strip()


def given_plan(file: str) -> Plan:
    """The plan in a file, or from stdin. Raises `UsageError` that names the file and the place."""
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the plan {file} cannot be read: {why}") from None
    try:
        return Plan.from_json(text)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
