"""Turns log records into sentences for people at a terminal."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from chargehand.decisions.task_and_state_words import task_name
from chargehand.presentation.display_text import clock_words, with_local_times

#: warnings that tell of a wait in a run; the command line prints them with the time, as it does its other lines
IN_RUN = ("model_waits", "run_waits", "mcp_waits")


def log_line(record: logging.LogRecord) -> str:
    """A log record as a line of the command line."""
    is_in_run = str(record.msg).partition(" ")[0] in IN_RUN
    head = (
        f"{clock_words(datetime.fromtimestamp(record.created, UTC))} "
        if is_in_run
        else "chargehand:"
    )
    return f"{head} {log_words(record)}"


def log_words(record: logging.LogRecord) -> str:
    """A log record as text: a sentence for common events, otherwise the message of the record."""
    event = str(record.msg).partition(" ")[0]
    say = _SENTENCES.get(event)
    args = record.args if isinstance(record.args, tuple) else ()
    try:
        return record.getMessage() if say is None else say(*args)
    except (TypeError, ValueError):  # the journals log `journal_waits` differently
        return record.getMessage()


def _run_waits(run: object, task: object, what: object, _: object, way_out: object) -> str:
    return f"{task_name(str(task))} of {run} waits for {with_local_times(str(what))}; {way_out}"


def _journal_waits(path: object, seconds: float) -> str:
    return (
        f"waiting up to {seconds:.0f} s for {path}, which another program has locked; "
        "close that program to continue at once"
    )


def _model_waits(provider: object, seconds: float, waiting: int, why: object, more: object) -> str:
    calls = "1 call waits" if waiting == 1 else f"{waiting} calls wait"
    fact, _, way_out = str(why).rpartition(
        "; "
    )  # chargehand itself does what the provider's error advises
    return (
        f"{calls} up to {seconds:.0f} s for {provider}: {fact or way_out}. It continues by itself; "
        f"to end the wait, cancel the run, or give it another model{more}"
    )


def _server_waits(what: object, why: object, way_out: object) -> str:
    return f"waiting for {what}: {why}; {way_out}"


def _journal_write_failed(_: object, error: object) -> str:
    return str(error)


_SENTENCES: dict[str, Callable[..., str]] = {
    "model_waits": _model_waits,
    "run_waits": _run_waits,
    "journal_waits": _journal_waits,
    "server_waits": _server_waits,
    "journal_write_failed": _journal_write_failed,
}
