"""The click type for arguments and options that are paths."""

import os
from typing import Any

import click
from click.core import ParameterSource

from chargehand.errors import UsageError
from chargehand.usable_path import checked_path


class GivenPath(click.Path):
    """The path of a file or folder. Refuses an invalid path before anything is read or written."""

    def convert(
        self,
        value: "str | os.PathLike[str]",
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        if os.fspath(value):
            checked_path(value, "" if param is None else _name_of(param))
        elif param is not None and _is_typed(param, ctx):
            raise empty(param)
        return super().convert(value, param, ctx)


def empty(param: click.Parameter) -> UsageError:
    """The error for an empty value, which must not be treated as if the option was left out."""
    return UsageError(
        f"{_name_of(param)}: the value is empty, perhaps because a shell variable is not set; give a value, or "
        "leave it out"
    )


def _name_of(param: click.Parameter) -> str:
    return param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name


def _is_typed(param: click.Parameter, context: click.Context | None) -> bool:
    """Whether the value comes from the command line, not from the default."""
    source = None if context is None else context.get_parameter_source(param.name or "")
    return source is ParameterSource.COMMANDLINE
