"""The command line. A command's module is imported when the command is called, so that `--help` stays quick."""

import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from chargehand.cli.output import lost, say
from chargehand.errors import (
    ChargehandError,
    JournalError,
    ModelDenied,
    RunInterrupted,
    UsageError,
)

_USAGE, _FAILED, _INTERRUPTED = 2, 1, 130
#: what the person can change, and try again
_TO_BE_SET_RIGHT = (UsageError, JournalError, ModelDenied)
#: by name, in the order of a first day's work: the module and the line in the list of commands
COMMANDS = {
    "run": ("run", "Run a request and print the answer."),
    "plan": ("plan", "Write a plan; look at it, edit it, check it."),
    "simulate": ("simulate", "Say how long a plan will take, and with how many workers."),
    "eval": ("eval", "Evaluate crews, prompts and models on a suite of cases."),
    "serve": ("background_runs", "Stay, and lead runs that are submitted, or whose leader died."),
    "tokens": ("web_options", "Make, list, rotate and revoke tokens of the HTTP API."),
    "submit": ("background_runs", "Post a request to a supervisor that serves."),
    "watch": ("background_runs", "Follow a run that any process leads."),
    "resume": ("run", "Go on with a run that was interrupted."),
    "runs": ("runs", "List the runs, the newest first."),
    "status": ("status", "Say what runs, and what waits for what."),
    "show": ("runs", "Show how a run stands, and its answer."),
    "trace": ("runs", "Print all that happened in a run, as a tree or JSON."),
    "talk": ("talk", "Print the messages of a group that talked."),
    "notes": ("board", "Print the notes on the board of a run."),
    "blocks": ("board", "Print the blocks on the board of a run."),
    "answer": ("run_control", "Answer a question that a run asks."),
    "cancel": ("run_control", "End a run, or have its answer now."),
    "pause": ("run_control", "Have a run start nothing new for now."),
    "unpause": ("run_control", "Have a paused run go on."),
    "steer": ("run_control", "Tell a run what else is wanted."),
    "record": ("recordings", "Write a run to one file, to be kept or sent."),
    "replay": ("recordings", "Compute every decision of a run again, and compare."),
    "fork": ("fork", "Run a recorded run again from any event, with changes."),
    "diff": ("recordings", "Compare two runs: plan, outcomes, answers, time, cost."),
    "copy": ("recordings", "Copy runs to another journal, or import recordings."),
    "verify": ("verify", "Check whether the runs of a journal can be read."),
    "prune": ("prune", "Delete finished runs by age, number or size."),
    "init": ("init", "Write a crew file to start from."),
    "models": ("models", "List models, and fetch some that run on this machine."),
    "mcp": ("mcp_server", "Serve the crew to other agents, over MCP."),
}


def _unless_lost(done: Any) -> Any:
    """How a command ended, which is no success if its output is lost."""
    if lost and not done:
        sys.exit(_FAILED)
    return done


def _has_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


class _Commands(click.Group):
    """Commands whose errors are one line on stderr: the fact and the way out, no stack."""

    def invoke(self, context: click.Context) -> object:
        try:
            return _unless_lost(super().invoke(context))
        except SystemExit as error:
            sys.exit(_unless_lost(error.code))
        except RunInterrupted as error:
            say(f"chargehand: {error}")
            sys.exit(_INTERRUPTED)
        except ChargehandError as error:
            if str(error) != _Warnings.last:
                say(f"chargehand: {error}")
            sys.exit(_USAGE if isinstance(error, _TO_BE_SET_RIGHT) else _FAILED)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(_INTERRUPTED)
        except FileNotFoundError:
            if _has_folder():
                raise
            say("chargehand: the working folder was deleted; change to another one, such as cd ~")
            sys.exit(_USAGE)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"chargehand.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant. Names the nearest one where there is none of this name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # here: for mistakes only

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "chargehand --help lists them all"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


class _Warnings(logging.Handler):
    """What the library warns of, on stderr, without anything that a terminal would obey."""

    #: what was said last: an error that ends the command is not said twice
    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        from chargehand.cli.log_words import log_words  # here: most commands warn of nothing

        _Warnings.last = log_words(record)
        say(f"chargehand: {_Warnings.last}")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chargehand")
def main() -> None:
    """A supervisor for teams of agents."""
    log = logging.getLogger("chargehand")
    if not log.handlers:
        log.addHandler(_Warnings(logging.WARNING))
