"""The command line. A command's module is imported when the command is called, so that `--help` stays quick."""

import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from chargehand.cli.output import escape_unencodable, lost, say
from chargehand.errors import (
    ChargehandError,
    JournalError,
    ModelDenied,
    OutOfThreads,
    RunInterrupted,
    UsageError,
    is_thread_shortage,
)

_USAGE, _FAILED, _INTERRUPTED = 2, 1, 130
#: errors that the person can fix and then try again: exit code 2
_TO_BE_SET_RIGHT = (UsageError, JournalError, ModelDenied)
_OUT_OF_MEMORY = (
    "there is not enough memory; end processes or raise the limit (ulimit -v), then try again"
)
#: by name, in the order in which a new user needs them: the module, and the line in the list of commands
COMMANDS = {
    "run": ("run", "Run a request and print the answer."),
    "plan": ("plan", "Write a plan for a request, or edit and check a plan file."),
    "simulate": ("simulate", "Estimate how long a plan will take and how many slots it needs."),
    "eval": ("eval", "Evaluate crews, prompts and models on a suite of cases."),
    "serve": ("serve_submit_watch", "Start a server that executes submitted runs."),
    "tokens": ("tokens", "Create, list, rotate and revoke tokens for the HTTP API."),
    "submit": ("serve_submit_watch", "Submit a request to a server and return at once."),
    "watch": ("serve_submit_watch", "Follow a run, no matter which process executes it."),
    "resume": ("run", "Resume an interrupted run."),
    "runs": ("runs_show_trace", "List runs, most recently changed first."),
    "status": ("status", "List unfinished runs and what they are waiting for."),
    "show": ("runs_show_trace", "Show the state of a run: tasks, answer, open questions."),
    "trace": ("runs_show_trace", "Print everything that happened in a run, as a tree or JSON."),
    "talk": ("group_messages", "Print the messages of a group conversation."),
    "notes": ("notes_and_blocks", "Print the notes on the board of a run."),
    "blocks": ("notes_and_blocks", "Print the blocks on the board of a run."),
    "answer": ("run_control", "Answer a question that a run has asked."),
    "cancel": ("run_control", "Cancel a run, or make it answer now."),
    "pause": ("run_control", "Pause a run."),
    "unpause": ("run_control", "Continue a paused run."),
    "steer": ("run_control", "Change the remaining work of a run with a note."),
    "record": ("recordings", "Export a run to a single file."),
    "replay": ("recordings", "Recompute every decision of a run and report any difference."),
    "fork": ("fork", "Start a new run from any event of another run, with changes."),
    "diff": ("recordings", "Compare two runs: plan, outcomes, answers, time and cost."),
    "copy": ("recordings", "Copy runs to another journal, or import recordings."),
    "verify": ("verify", "Check a journal for damage."),
    "prune": ("prune", "Delete finished runs by age, number or size."),
    "init": ("init", "Create a crew file, or copy a complete example."),
    "models": ("models", "List models, and download models that run on this machine."),
    "mcp": ("mcp_server", "Serve the crew to other agents over MCP."),
}


def _unless_lost(done: Any) -> Any:
    """The outcome of a command. Exits with 1 if the command succeeded but its output was lost."""
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
    """The group of all commands. Prints an error as one line on stderr, without a stack trace."""

    def main(self, *args: Any, **options: Any) -> Any:
        escape_unencodable()  # here: also for help texts
        return super().main(*args, **options)

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
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not is_thread_shortage(error):
                raise
            say(
                f"chargehand: {_OUT_OF_MEMORY if isinstance(error, MemoryError) else OutOfThreads()}"
            )
            sys.exit(_FAILED)
        except FileNotFoundError:
            if _has_folder():
                raise
            say("chargehand: the working folder was deleted; change to another folder first: cd ~")
            sys.exit(_USAGE)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature of click
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
        """Find the command by its name. The error for an unknown name suggests the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib  # here: needed only for a mistyped name

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "to list all commands: chargehand --help"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


class _Warnings(logging.Handler):
    """Prints the library's warnings on stderr, without control characters."""

    #: the last warning, so that an error with the same text is not printed again at the end
    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        # Here: most commands log no warning.
        from chargehand.cli.warning_sentences import log_line, log_words

        _Warnings.last = log_words(record)
        say(log_line(record))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chargehand")
def main() -> None:
    """Run and supervise teams of LLM agents."""
    log = logging.getLogger("chargehand")
    if not log.handlers:
        log.addHandler(_Warnings(logging.WARNING))
