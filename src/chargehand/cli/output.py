"""Where output goes: results to stdout, everything else to stderr, and what a terminal allows."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from chargehand.presentation.plain_text import ascii_json, clean, clean_json
from chargehand.presentation.word_wrap import StreamedWrap, wrapped
from chargehand.terminal_detection import is_interactive, is_plain, is_terminal

if TYPE_CHECKING:
    from chargehand.presentation.live_frame import Line

#: of a table or a chart: a wider one helps nobody, and $COLUMNS may say anything
MOST_COLUMNS = 1_000

__all__ = [
    "above",
    "as_json",
    "escape_unencodable",
    "is_interactive",
    "is_plain",
    "lost",
    "piece",
    "raw",
    "result",
    "say",
    "styled",
    "tell_unwritten",
    "width",
    "write_file",
]

#: takes lines for the person while a live view has the terminal
above: Callable[[str], None] | None = None
#: why stdout could not be written to, other than a closed pipe
lost: list[str] = []
_streamed = StreamedWrap()


def say(text: str, hang: int = 0) -> None:
    """One line for the person, on stderr; on a terminal, broken between words. Later rows begin at `hang`."""
    words = wrapped(clean(text), columns_of(sys.stderr), hang)
    if above is not None:
        above(words)
    else:
        _echo(words, err=True)


def result(text: str) -> None:
    """The result, or a piece of it that is a line of its own, on stdout; on a terminal, broken between words."""
    _echo(wrapped(clean(text), columns_of(sys.stdout)))


def styled(line: "Line") -> None:
    """A line of the result with colours, where stdout shows them."""
    from chargehand.presentation.live_frame import wrapped_line  # here: it takes a while to import

    cleaned = tuple(part._replace(text=clean(part.text)) for part in line)
    for row in wrapped_line(cleaned, columns_of(sys.stdout)):
        if has_colours():
            from chargehand.cli.colours import Colours

            _echo(Colours(sys.stdout).rendered(row), color=True)
        else:
            _echo("".join(part.text for part in row).rstrip())


def width() -> int:
    """The columns for a table or a chart: of the terminal, or as $COLUMNS says, within reason."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def columns_of(stream: TextIO) -> int:
    """The columns of a terminal; 0 for anything else."""
    if not is_terminal(stream):
        return 0
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def has_colours() -> bool:
    """Whether stdout shows colours: a terminal, or one that is made to, unless the user wants none."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (is_terminal(sys.stdout) and not is_plain())


def write_file(file: str, words: str, *, quiet: bool) -> bool:
    """Write the result into its file, and say so; False if that cannot be done: print it rather than lose it.

    A file is never replaced by nothing: without a result it keeps what it holds.
    """
    if not words:
        tell_unwritten(file, "there is no result")
        return True
    try:
        Path(file).write_text(words + "\n", encoding="utf-8")
    except OSError as error:
        say(f"the result cannot be written to {file} ({error.strerror}); here it is:")
        return False
    if not quiet:
        say(f"the result is in {file}")
    return True


def tell_unwritten(file: str, why: str) -> None:
    """Say why no result was written into its file."""
    say(f"{why}, so {file} is {'left as it was' if Path(file).exists() else 'not written'}")


def piece(text: str) -> None:
    """A piece of the result while it grows, on stdout; a new line writes what is left of the one before."""
    width = columns_of(sys.stdout)
    _echo(_streamed.add(clean(text), width) if width else clean(text), nl=False)


def as_json(value: Any) -> None:
    """A value as one line of JSON on stdout, at once: a program may wait for it at the other end of a pipe."""
    raw(msgspec.json.encode(value))


def raw(line: bytes) -> None:
    """JSON on stdout, without anything that a terminal would obey."""
    text = clean_json(line).decode()
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = ascii_json(text)  # an escape of the stream, such as `\xe9`, would not be JSON
    _echo(text)


def escape_unencodable() -> None:
    """Have stdout escape the characters that its encoding lacks: Latin-1 has no `…`, and would refuse the whole text.

    stderr does so by itself.
    """
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and getattr(sys.stdout, "errors", "") == "strict":
        reconfigure(errors="backslashreplace")


def _echo(text: str, *, err: bool = False, nl: bool = True, color: bool | None = None) -> None:
    """Write. Nobody listening any more is no reason to lose a run, nor is a full disk: it goes on, unheard."""
    try:
        click.echo(text, err=err, nl=nl, color=color)
    except OSError as error:
        stream = sys.stderr if err else sys.stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not err and not isinstance(error, BrokenPipeError):
            lost.append(error.strerror or type(error).__name__)
            say(
                f"chargehand: the output cannot be written: {lost[0]}; runs are stored, to see one: chargehand show RUN"
            )
