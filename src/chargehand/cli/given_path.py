"""The type of every argument and option of the command line that is a path."""

import os
from typing import Any

import click
from click.core import ParameterSource

from chargehand.checked_path import checked_path
from chargehand.errors import UsageError


class GivenPath(click.Path):
    """The path of a file or a folder. One that can be none is refused in one line, whatever reads or writes it."""

    def convert(
        self,
        value: "str | os.PathLike[str]",
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path, which is checked."""
        if os.fspath(value):
            checked_path(value, "" if param is None else _name_of(param))
        elif param is not None and _is_typed(param, ctx):
            raise empty(param)
        return super().convert(value, param, ctx)


def empty(param: click.Parameter) -> UsageError:
    """The error of a value that is there and says nothing: it must not pass for one left out."""
    return UsageError(
        f"{_name_of(param)}: the value is empty, perhaps because a shell variable is not set; give a value, or "
        "leave it out"
    )


def _name_of(param: click.Parameter) -> str:
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name


def _is_typed(param: click.Parameter, context: click.Context | None) -> bool:
    """Whether this value stands on the command line, and is not the default."""
    source = None if context is None else context.get_parameter_source(param.name or "")
    return source is ParameterSource.COMMANDLINE
