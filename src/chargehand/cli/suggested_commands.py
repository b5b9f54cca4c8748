"""Commands in messages that can be pasted: they name the journal that this command line named."""

import re
import shlex

import click

#: commands that take `--journal` and that messages suggest
WITH_JOURNAL = (
    *("run", "plan", "simulate", "serve", "submit", "watch", "resume", "runs", "status", "show"),
    *("trace", "talk", "notes", "blocks", "answer", "cancel", "pause", "unpause", "steer"),
    *("record", "replay", "fork", "diff", "copy", "verify", "prune", "mcp"),
)
#: key of the journal in the `meta` of the command's context
_GIVEN = "chargehand.journal"
#: a command with the run that it is about; in sentences such as "is chargehand serve running there?", it is no command
_COMMAND = re.compile(
    rf"\bchargehand (?:{'|'.join(WITH_JOURNAL)})\b(?! (?:is|has|prints|running)\b)"
    r"(?: [rn][0-9a-f]{6,}[\w:-]*)?(?P<rest>[^;\n]*?(?=chargehand |[;\n]|$))"
)


def keep_journal(context: click.Context, place: str) -> None:
    """Remember the journal that the command line names."""
    context.meta[_GIVEN] = place


def with_journal(text: str) -> str:
    """The text with `--journal` in each `chargehand` command that lacks it, if the command line names a journal."""
    context = click.get_current_context(silent=True)
    place = "" if context is None else context.meta.get(_GIVEN, "")
    if not place or "chargehand " not in text:
        return text

    def completed(found: re.Match[str]) -> str:
        whole, rest = found[0], found["rest"]
        if "--journal" in rest:
            return whole
        return f"{whole.removesuffix(rest)} --journal {shlex.quote(place)}{rest}"

    return _COMMAND.sub(completed, text)
