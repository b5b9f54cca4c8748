"""Where a client finds its token."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from chargehand.errors import UsageError

TOKEN_VARIABLE, FILE_VARIABLE = "CHARGEHAND_TOKEN", "CHARGEHAND_TOKEN_FILE"
#: below the working folder, as `chargehand serve` writes it
USUAL_FILE = Path(".chargehand") / "tokens.json"
KEYRING = "chargehand"


class _Kept(Struct):
    name: str
    token: str = ""


class _File(Struct):
    tokens: list[_Kept] = []


def find_token(url: str, token: str = "", token_file: str | os.PathLike[str] = "") -> str:
    """The token for a server: as given, from a file, from the environment, from the keyring.

    Without any of these, the one that `chargehand serve` keeps below the working folder, if the server is
    on this machine.
    """
    if token:
        return token
    if token_file:
        return _in_file(Path(token_file))
    if given := os.environ.get(TOKEN_VARIABLE, "").strip():
        return given
    if named := os.environ.get(FILE_VARIABLE, "").strip():
        return _in_file(Path(named))
    if kept := _in_keyring(url):
        return kept
    is_here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    if is_here and USUAL_FILE.exists():
        return _in_file(USUAL_FILE)
    raise UsageError(
        f"there is no token for {url}: set {TOKEN_VARIABLE}, or name the file that holds it "
        f"({FILE_VARIABLE}); chargehand serve prints it when it starts"
    )


def _in_file(path: Path) -> str:
    """The token in a file: the text itself, or the owner's of a server's token file."""
    try:
        data = path.read_bytes().strip()
    except OSError as error:
        raise UsageError(f"the token cannot be read from {path}: {error.strerror}") from None
    if not data.startswith(b"{"):
        return data.decode("ascii", "replace")
    try:
        kept = msgspec.json.decode(data, type=_File)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} holds no token: {error}") from None
    found = next((each.token for each in kept.tokens if each.token), "")
    if not found:
        raise UsageError(
            f"{path} holds digests only; give the token that was printed when it was made"
        )
    return found


def _in_keyring(url: str) -> str:
    """The token that the keyring has for this address; nothing if there is no keyring."""
    if find_spec("keyring") is None:
        return ""
    keyring = import_module("keyring")
    try:
        return keyring.get_password(KEYRING, url.rstrip("/")) or ""
    except Exception:  # noqa: BLE001 - no backend, locked, or another kind of trouble: it is one of several places
        return ""
