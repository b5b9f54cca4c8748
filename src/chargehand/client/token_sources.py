"""Finds the access token of a client."""

import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from chargehand.errors import UsageError
from chargehand.regular_file import read_regular_file
from chargehand.usable_path import checked_path

TOKEN_VARIABLE, FILE_VARIABLE = "CHARGEHAND_TOKEN", "CHARGEHAND_TOKEN_FILE"
KEYRING = "chargehand"
#: most bytes of a token file
MOST_BYTES = 2**20


class FoundToken(NamedTuple):
    """A token, and where it was found."""

    text: str
    source: str


class _Kept(Struct):
    name: str
    token: str = ""


class _File(Struct):
    tokens: list[_Kept] = []


def find_token(url: str, token: str = "", token_file: str | os.PathLike[str] = "") -> FoundToken:
    """Find the token for a server: as given, from a file, from the environment, or from the keyring.

    Otherwise, for a server on this machine, the token that `chargehand serve` stores next to a journal in one of the
    usual places. Raises `UsageError` if there is none.
    """
    if token:
        return FoundToken(token, "the token that was given")
    if token_file:
        return _in_file(checked_path(token_file, "the token file"))
    if given := os.environ.get(TOKEN_VARIABLE, "").strip():
        return FoundToken(given, f"the environment variable {TOKEN_VARIABLE}")
    if named := os.environ.get(FILE_VARIABLE, "").strip():
        return _in_file(checked_path(named, FILE_VARIABLE))
    if kept := _in_keyring(url):
        return FoundToken(kept, "the keyring")
    is_here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    usual = list(dict.fromkeys(_usual_files())) if is_here else []
    for file in usual:
        if file.exists():
            return _in_file(file)
    looked = f" (looked for {', '.join(map(str, usual))})" if usual else ""
    raise UsageError(
        f"there is no token for {url}{looked}: set {TOKEN_VARIABLE}, or name the file that holds it "
        f"({FILE_VARIABLE}); chargehand serve prints it when it starts"
    )


def _usual_files() -> Iterator[Path]:
    """The token files next to journals in the usual places: $CHARGEHAND_JOURNAL, this folder, the default folder."""
    # Imported here, because few clients need it and the import is slow.
    from chargehand.supervisor_factory import JOURNAL, JOURNAL_VARIABLE, token_file_beside

    if named := os.environ.get(JOURNAL_VARIABLE, ""):
        yield token_file_beside(named)
    yield token_file_beside(JOURNAL.name)
    yield token_file_beside(str(JOURNAL))


def _in_file(path: Path) -> FoundToken:
    """The token in a file: its text, or the first token stored in plain text in a server's token file."""
    try:
        data = read_regular_file(path, MOST_BYTES).strip()
    except OSError as error:
        raise UsageError(f"the token cannot be read from {path}: {error.strerror}") from None
    if not data.startswith(b"{"):
        return FoundToken(data.decode("ascii", "replace"), str(path))
    try:
        kept = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} holds no token: {error}") from None
    found = next((each.token for each in kept.tokens if each.token), "")
    if not found:
        raise UsageError(
            f"{path} holds digests only; give the token that was printed when it was made"
        )
    return FoundToken(found, str(path))


def _in_keyring(url: str) -> str:
    """The token in the keyring for this address; empty if there is none."""
    if find_spec("keyring") is None:
        return ""
    keyring = import_module("keyring")
    try:
        return keyring.get_password(KEYRING, url.rstrip("/")) or ""
    except Exception:  # noqa: BLE001 - no backend, locked, or another error: there are other sources
        return ""
