"""Writes output: results to stdout, everything else to stderr, in a form that the terminal can show."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from chargehand.cli.suggested_commands import with_journal
from chargehand.presentation.display_text import ascii_json, clean, clean_json
from chargehand.presentation.word_wrap import StreamedWrap, wrapped
from chargehand.terminal_detection import is_interactive, is_plain, is_terminal

if TYPE_CHECKING:
    from chargehand.presentation.live_frame import Line

#: width limit for tables and charts: $COLUMNS may be any number
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

#: prints messages while a live view uses the terminal
above: Callable[[str], None] | None = None
#: why writing to stdout failed, except for a closed pipe
lost: list[str] = []
_streamed = StreamedWrap()


def say(text: str, hang: int = 0) -> None:
    """Print a message on stderr; on a terminal, wrapped between words. Later rows are indented by `hang`.

    The commands in it name the journal, if the command line does.
    """
    words = wrapped(clean(with_journal(text)), columns_of(sys.stderr), hang)
    if above is not None:
        above(words)
    else:
        _echo(words, err=True)


def result(text: str) -> None:
    """Print the result, or a line of it, on stdout; on a terminal, wrapped between words."""
    _echo(wrapped(clean(text), columns_of(sys.stdout)))


def styled(line: "Line") -> None:
    """Print a line of the result, with colours if stdout shows them."""
    from chargehand.presentation.live_frame import wrapped_line  # here: it takes a while to import

    cleaned = tuple(part._replace(text=clean(part.text)) for part in line)
    for row in wrapped_line(cleaned, columns_of(sys.stdout)):
        if has_colours():
            from chargehand.cli.colours import Colours

            _echo(Colours(sys.stdout).rendered(row), color=True)
        else:
            _echo("".join(part.text for part in row).rstrip())


def width() -> int:
    """The width for tables and charts: $COLUMNS or the width of the terminal, up to a limit."""
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def columns_of(stream: TextIO) -> int:
    """The width of a terminal; 0 if the stream is not a terminal."""
    if not is_terminal(stream):
        return 0
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 0


def has_colours() -> bool:
    """Whether stdout shows colours: on a terminal or with $FORCE_COLOR, unless $NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (is_terminal(sys.stdout) and not is_plain())


def write_file(file: str, words: str, *, quiet: bool) -> bool:
    """Write the result to a file, and say so. False if writing failed: the caller then prints the result.

    Without a result, the file keeps its contents.
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
    """Say why no result was written to the file."""
    say(f"{why}, so {file} is {'left as it was' if Path(file).exists() else 'not written'}")


def piece(text: str) -> None:
    """Print a piece of a streamed result on stdout; a newline completes the current line."""
    width = columns_of(sys.stdout)
    _echo(_streamed.add(clean(text), width) if width else clean(text), nl=False)


def as_json(value: Any) -> None:
    """Print a value as one line of JSON on stdout, unbuffered: a program may wait for it in a pipe."""
    raw(msgspec.json.encode(value))


def raw(line: bytes) -> None:
    """Print JSON on stdout, without control characters."""
    text = clean_json(line).decode()
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = ascii_json(text)  # backslashreplace would write `\xe9`, which is not JSON
    _echo(text)


def escape_unencodable() -> None:
    """Make stdout escape characters that its encoding lacks, as stderr does: in Latin-1, `…` would raise an error."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and getattr(sys.stdout, "errors", "") == "strict":
        reconfigure(errors="backslashreplace")


def _echo(text: str, *, err: bool = False, nl: bool = True, color: bool | None = None) -> None:
    """Write. After a closed pipe or a full disk, the run continues and further output is dropped."""
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
