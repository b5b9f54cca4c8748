"""Other frameworks are extras: what to install when one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from chargehand.errors import UsageError


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Say which extra to install if what is imported inside is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{error}; pip install 'chargehand[{extra}]'") from error
