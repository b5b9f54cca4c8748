"""Options that several commands share, and the functions that convert their values."""

import shlex
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from chargehand.cli.given_path import GivenPath, empty
from chargehand.cli.output import say
from chargehand.cli.suggested_commands import keep_journal
from chargehand.errors import UsageError
from chargehand.facts.durations import length_of
from chargehand.facts.sizes import size_of
from chargehand.journal.postgres_address import is_dsn
from chargehand.journal.storage_check import real_path
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import Choice, journal_place, supervisor_for, with_journal_of

Command = TypeVar("Command", bound=Callable[..., Any])


def length(_: click.Context, __: click.Parameter, value: str | None) -> timedelta | None:
    """Parse an option that is a duration."""
    try:
        return None if value is None else length_of(value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def stated(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty value from the command line: it must not be treated as if the option was left out."""
    given = context.get_parameter_source(option.name or "")
    if value is not None and not value.strip() and given is ParameterSource.COMMANDLINE:
        raise empty(option)
    return value


def journal_path(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Check an option that names a journal. Refuses an invalid path."""
    stated(context, option, value)
    if value and not is_dsn(value):
        real_path(Path(value.removeprefix("sqlite:")))
    if value:
        keep_journal(context, str(journal_place(value)))
    return value


def size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse an option that is a size."""
    try:
        return None if value is None else size_of(value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


class Number(click.FloatRange):
    """A number with a least value, whose error says in plain words what to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a number{_span(self.min, self.max)}", param, ctx)


class WholeNumber(click.IntRange):
    """A whole number with a least value, whose error says in plain words what to write."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number{_span(self.min, self.max)}", param, ctx)


def _span(least: float | None, most: float | None) -> str:
    return f" of at least {least}" + ("" if most is None else f" and at most {most}")


def recording_option(command: Command) -> Command:
    return click.option(
        "--max-size",
        default="256MiB",
        show_default=True,
        callback=size,
        metavar="SIZE",
        help="Refuse a recording that unpacks to more than this.",
    )(command)


class PathsCommand(click.Command):
    """A command whose --files takes several paths, such as those that the shell makes of `docs/*.md`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _spelt_out(args))


def _spelt_out(args: list[str]) -> list[str]:
    """Insert --files before each further path after --files; the first argument that is not a path ends the list."""
    spelt: list[str] = []
    is_row = False
    for arg in args:
        is_path = not arg.startswith("-") and spelt[-1:] != ["--files"] and _exists(arg)
        if is_row and is_path:
            spelt.append("--files")
        is_row = spelt[-1:] == ["--files"]
        spelt.append(arg)
    return spelt


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # a request may be longer than any path
        return False


def journal_option(command: Command, first: str = "") -> Command:
    """Add `--journal`. `first` completes the help text: it names what takes precedence over the usual defaults."""
    return click.option(
        "--journal",
        default="",
        callback=journal_path,
        metavar="FILE|DSN",
        help="Database that stores the runs (the journal): a SQLite file or the DSN of a PostgreSQL database. Default: "
        f"{first}$CHARGEHAND_JOURNAL, or .chargehand/runs.db.",
    )(command)


def json_option(what: str) -> Callable[[Command], Command]:
    return click.option("--json", "as_json", is_flag=True, help=what)


def crew_options(command: Command) -> Command:
    """Add the options of the crew; `choice_of` turns their values into a `Choice`."""
    options = (
        click.option(
            "--crew",
            default="",
            callback=stated,
            metavar="CREW",
            help="Crew to use: a TOML file, or path.py:name. Default: a built-in crew of four specialists.",
        ),
        click.option(
            "--files",
            multiple=True,
            type=GivenPath(exists=True, path_type=Path),
            metavar="PATH…",
            help="Files and folders that the crew may read. Default: the working folder.",
        ),
        click.option(
            "--model",
            default="",
            callback=stated,
            metavar="MODEL",
            help="Model for planning, for answering, and for workers without a model of their own, such as "
            "openai:gpt-5-mini, ollama:qwen3 or offline. Default: the crew's model, $CHARGEHAND_MODEL, the model of "
            "a provider whose API key is set, or offline.",
        ),
        partial(journal_option, first="the journal of the crew, "),
        click.option(
            "--parallel",
            type=WholeNumber(1),
            metavar="N",
            help="Run at most N tasks at once. Default: the crew's setting, or 100.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def worker_option(command: Command) -> Command:
    return click.option(
        "--worker",
        "workers",
        multiple=True,
        metavar="NAME",
        help="Use only this worker of the crew. Can be repeated. Default: all workers.",
    )(command)


def notify_option(command: Command) -> Command:
    return click.option(
        "--notify",
        multiple=True,
        metavar="TARGET",
        help="Send a notice when a run asks a question or ends. TARGET is log, webhook:https://… or "
        "command:PROGRAM ARGS…. Can be repeated.",
    )(command)


def choice_of(options: dict[str, Any]) -> Choice:
    """Remove the crew options from the options of a command, and return them as a `Choice`."""
    return Choice(
        crew=options.pop("crew"),
        files=options.pop("files"),
        model=options.pop("model"),
        journal=options.pop("journal"),
        parallel=options.pop("parallel"),
        notify=options.pop("notify", ()),
    )


def boss_for(choice: Choice, *, quiet: bool = False) -> tuple[Supervisor, Choice]:
    """The supervisor for the options, and the options with its journal. Prints the chosen defaults on stderr."""
    boss = supervisor_for(choice, (lambda _: None) if quiet else say)
    # Also if nothing will ask it, as with a plan whose workers have models of their own.
    if choice.model:
        boss.check_model()
    return boss, with_journal_of(boss, choice)


def resume_words(result: RunResult, choice: Choice) -> str:
    """The command line that resumes a run; for a run that was started in Python, it asks for the crew."""
    words = again("resume", result.id, choice)
    return words if result.source or choice.crew else f"{words} --crew FILE.py:NAME"


def with_resume_words(text: str, result: RunResult, choice: Choice) -> str:
    """Replace a plain `chargehand resume` in a text by the complete command line, which can be pasted."""
    return text.replace(f"chargehand resume {result.id}", resume_words(result, choice))


def again(command: str, run: str, choice: Choice) -> str:
    """A command line for this run, with the options that must be repeated."""
    words = [command, run]
    if command == "resume":
        words += [word for way in choice.notify for word in ("--notify", way)]
        words += ["--crew", choice.crew] if choice.crew else []
    if choice.journal:
        return journal_place(choice.journal).command(*words)
    return shlex.join(["chargehand", *words])
