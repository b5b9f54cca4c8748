"""Access tokens for the HTTP API, each with a scope and a namespace."""

import hashlib
import hmac
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import UsageError
from chargehand.journal.sqlite_errors import file_refusal
from chargehand.regular_file import read_regular_file, refuse_special_file
from chargehand.server.http.logged_out_sessions import EndedSessions

TOKEN_VARIABLE = "CHARGEHAND_TOKEN"  # noqa: S105 - the name of a variable
#: least characters of a token from the environment; generated tokens have 43
SHORTEST = 16
#: duration of a browser session, in seconds
SESSION = 30 * 24 * 3600
#: name of the token that `chargehand serve` creates and prints
OWNER = "owner"


class Scope(StrEnum):
    """What a token allows. Each scope includes the scopes before it."""

    READ = "read"  #: look at runs, events, results and questions
    OPERATE = "operate"  #: submit, cancel, pause, steer and answer
    ADMIN = "admin"  #: drain workers, rotate tokens

    @property
    def included(self) -> tuple["Scope", ...]:
        """This scope and the scopes that it includes."""
        return tuple(Scope)[: tuple(Scope).index(self) + 1]


class Grant(Struct, frozen=True, kw_only=True):
    """One token of the token file. Only the owner's token is stored in plain text, so that clients can read it."""

    name: str
    scope: Scope
    #: the token gives access only to the runs of this namespace
    namespace: str = ""
    #: SHA-256 of the token, in hex
    digest: str
    #: the token in plain text, only for the owner
    token: str = ""

    def allows(self, scope: Scope) -> bool:
        """Whether this token includes the scope."""
        return scope in self.scope.included


class _TokenFile(Struct, frozen=True):
    tokens: tuple[Grant, ...] = ()


def digest_of_token(token: str) -> str:
    """The digest of a token, which is stored instead of the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class AccessTokens:
    """The tokens of a server, stored in a file that only its owner can read.

    A changed file is read again, so a revoked token is refused at once.
    """

    def __init__(self, path: Path | None, given: str = "") -> None:
        if path is not None:
            refuse_special_file(path)  # before `with_suffix`, which fails for `.` and `/`
        self.path = path
        self._given: tuple[Grant, ...] = ()
        self._grants: tuple[Grant, ...] = ()
        self._seen: tuple[int, int] | None = None
        #: number of changes of the file that were noticed
        self._changes = 0
        self._ended = EndedSessions(None if path is None else path.with_suffix(".logouts"))
        #: part of session signatures: if logouts cannot be stored, no session is valid after a restart
        self._salt = secrets.token_hex(16) if path is None else ""
        if given:
            refuse_weak(given)
            owner = Grant(name=OWNER, scope=Scope.ADMIN, digest=digest_of_token(given), token=given)
            self._given = (owner,)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """All valid tokens."""
        self._read()
        return (*self._given, *(each for each in self._grants if not self._is_given(each.name)))

    @property
    def changes(self) -> int:
        """A number that changes when a token is changed or a session is logged out, also by other processes."""
        self._read()
        self._ended.read()
        return self._changes + self._ended.changes

    def owner(self) -> Grant:
        """The owner's token. Creates and stores it if there is none."""
        known = next((each for each in self.grants if each.name == OWNER and each.token), None)
        return known or self.add(OWNER, Scope.ADMIN)[0]

    def add(self, name: str, scope: Scope, namespace: str = "") -> tuple[Grant, str]:
        """Create a token. Returns its grant and the token itself, which is stored only for the owner."""
        if not name or not name.isprintable() or "." in name:
            raise UsageError(f"{name!r} is not a name of a token; use letters, digits and dashes")
        if any(each.name == name for each in self.grants):
            raise UsageError(f"there is a token {name!r}; rotate or revoke it")
        token = secrets.token_urlsafe(32)
        grant = Grant(
            name=name,
            scope=scope,
            namespace=namespace,
            digest=digest_of_token(token),
            token=token if name == OWNER else "",
        )
        self._write((*self._grants, grant))
        return grant, token

    def rotate(self, name: str) -> str:
        """Replace a token. The old token and the browser sessions opened with it are refused at once."""
        old = self._stored(name)
        token = secrets.token_urlsafe(32)
        shown = token if old.name == OWNER else ""
        new = replace(old, digest=digest_of_token(token), token=shown)
        self._write(new if each is old else each for each in self._grants)
        return token

    def revoke(self, name: str) -> None:
        """Delete a token. It is refused at once."""
        old = self._stored(name)
        self._write(each for each in self._grants if each is not old)

    def find(self, token: str) -> Grant | None:
        """The grant of a token, if it is valid. Compares it with all tokens, each in constant time."""
        digest = digest_of_token(token)
        found = None
        for grant in self.grants:
            if hmac.compare_digest(grant.digest, digest):
                found = grant
        return found

    # Browser sessions: signed cookies, so that sessions survive a restart of the server

    def open_session(self, grant: Grant, now: float | None = None) -> str:
        """The value of a session cookie for this token."""
        ends = int((time.time() if now is None else now) + SESSION)
        nonce = secrets.token_hex(8)
        return f"{grant.name}.{ends}.{nonce}.{self._signature(grant, ends, nonce)}"

    def find_session(self, cookie: str, now: float | None = None) -> Grant | None:
        """The grant of a session cookie; None if the session has ended or its token was replaced."""
        now = time.time() if now is None else now
        parts = cookie.split(".")
        if len(parts) != 4 or not (parts[1].isascii() and parts[1].isdigit()) or len(parts[1]) > 12:
            return None
        name, ends, nonce, signature = parts
        found = None
        for grant in self.grants:
            expected = self._signature(grant, int(ends), nonce)
            if (
                hmac.compare_digest(
                    expected, signature.encode("utf-8", "replace").decode("ascii", "replace")
                )
                and grant.name == name
            ):
                found = grant
        is_over = int(ends) < now or found is None or nonce in self._ended
        return None if is_over else found

    def end_session(self, cookie: str, now: float | None = None) -> None:
        """End a session, also after a restart. Raises `JournalError` if the logout cannot be stored."""
        now = time.time() if now is None else now
        if self.find_session(cookie, now) is not None:
            _, ends, nonce, _ = cookie.split(".")
            self._ended.add(nonce, int(ends), now)

    def _signature(self, grant: Grant, ends: int, nonce: str) -> str:
        words = f"{grant.name}.{ends}.{nonce}{self._salt}".encode()
        return hmac.new(grant.digest.encode(), words, hashlib.sha256).hexdigest()

    # the file

    def _is_given(self, name: str) -> bool:
        return any(each.name == name for each in self._given)

    def _stored(self, name: str) -> Grant:
        self._read()
        found = next((each for each in self._grants if each.name == name), None)
        if self._is_given(name):
            raise UsageError(
                f"the token {name!r} comes from {TOKEN_VARIABLE}; change it there and restart the server"
            )
        if found is None:
            names = ", ".join(each.name for each in self._grants) or "none"
            raise UsageError(f"there is no token {name!r}; there are: {names}")
        return found

    def _read(self) -> None:
        if self.path is None:
            return
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._changes += self._seen is not None
            self._grants, self._seen = (), None
            return
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from None
        mark = (status.st_mtime_ns, status.st_ino)
        if mark == self._seen:
            return
        self._changes += 1
        refuse_special_file(self.path)
        if status.st_mode & 0o077:
            raise UsageError(f"{self.path} can be read by others; run: chmod 600 {self.path}")
        try:
            self._grants = msgspec.json.decode(read_regular_file(self.path), type=_TokenFile).tokens
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{self.path} is not a file of tokens ({error}); delete it and make them again"
            ) from None
        self._seen = mark

    def _write(self, grants: Iterable[Grant]) -> None:
        if self.path is None:
            raise UsageError("this server keeps no tokens; start it with --token-file FILE")
        try:
            self._store(self.path, tuple(grants))
        except OSError as error:
            raise file_refusal(error, self.path) from error
        self._seen = None
        self._read()

    def _store(self, path: Path, grants: tuple[Grant, ...]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tokens-")  # with mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_TokenFile(grants)), indent=2))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


class GrantWatch:
    """Checks whether the credential of a long request is still valid. Looks it up again only after a change."""

    def __init__(
        self, tokens: AccessTokens, grant: Grant, find: Callable[[], Grant | None]
    ) -> None:
        self._tokens = tokens
        self._grant = grant
        self._find = find
        self._seen = -1
        self._holds = False

    def __call__(self) -> bool:
        """Whether the token has not changed and its session was not logged out."""
        try:
            changes = self._tokens.changes
            if changes != self._seen:
                self._holds = self._find() == self._grant
                self._seen = changes
        except UsageError:  # the file is no longer a valid token file
            return False
        return self._holds


def refuse_weak(token: str) -> None:
    """Raise `UsageError` for a token that is too short, or that cannot be sent in a header."""
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{TOKEN_VARIABLE} must have at least {SHORTEST} ASCII characters and no spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
