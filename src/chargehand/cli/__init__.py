"""The command line. Every command imports what it needs itself, so that `--help` stays quick."""

import logging
import sys
from typing import Any

import click

from chargehand.cli.init import init
from chargehand.cli.mcp import mcp
from chargehand.cli.models import models
from chargehand.cli.output import lost, say
from chargehand.cli.pause_and_steer import pause, steer, unpause
from chargehand.cli.plan import plan
from chargehand.cli.run import resume, run
from chargehand.cli.runs import answer, cancel, runs, show, trace
from chargehand.cli.simulate import simulate
from chargehand.cli.status import status
from chargehand.cli.verify import verify
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


def _unless_lost(done: Any) -> Any:
    """How a command ended, which is no success if its output is lost."""
    if lost and not done:
        sys.exit(_FAILED)
    return done


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
            say(f"chargehand: {error}")
            sys.exit(_USAGE if isinstance(error, _TO_BE_SET_RIGHT) else _FAILED)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(_INTERRUPTED)

    def list_commands(self, context: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return list(self.commands)  # in the order of a first day's work, not of the alphabet


class _Warnings(logging.Handler):
    """What the library warns of, on stderr, without anything that a terminal would obey."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"chargehand: {record.getMessage()}")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chargehand")
def main() -> None:
    """A supervisor for teams of agents."""
    log = logging.getLogger("chargehand")
    if not log.handlers:
        log.addHandler(_Warnings(logging.WARNING))


for _command in (
    *(run, plan, simulate, resume, runs, status, show, trace),
    *(answer, cancel, pause, unpause, steer, verify, init, models, mcp),
):
    main.add_command(_command)
