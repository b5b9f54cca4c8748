"""Where output goes: results to stdout, everything else to stderr, and what a terminal allows."""

import os
import sys

import click

from chargehand.cli.words import clean, clean_json
from chargehand.terminal import is_interactive, is_plain

__all__ = ["is_interactive", "is_plain", "piece", "raw", "result", "say"]


def say(text: str) -> None:
    """One line for the person, on stderr."""
    _echo(clean(text), err=True)


def result(text: str) -> None:
    """The result, or a piece of it that is a line of its own, on stdout."""
    _echo(clean(text))


def piece(text: str) -> None:
    """A piece of the result while it grows, on stdout."""
    _echo(clean(text), nl=False)


def raw(line: bytes) -> None:
    """One line of JSON on stdout, at once: somebody may be waiting for it at the other end of a pipe."""
    _echo(clean_json(line).decode())


def _echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write. Nobody listening any more is no reason to lose a run: it goes on, unheard."""
    try:
        click.echo(text, err=err, nl=nl)
    except BrokenPipeError:
        stream = sys.stderr if err else sys.stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
