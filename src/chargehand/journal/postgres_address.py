"""The address of a PostgreSQL database, as people write it, and as it may be shown."""

import re
from urllib.parse import quote, unquote

from chargehand.errors import UsageError

#: of the options behind the `?`, those that hold no secret
_SHOWN = {
    *("host", "port", "dbname", "user", "sslmode", "application_name", "target_session_attrs"),
    "namespace",
}
#: a host, before its port
_PORT_OF_HOST = re.compile(r"^(?:\[[^\]]*\]|[^:]*):?")
_MOST_PORT = 65_535
_SCHEME = re.compile(r"postgres(?:ql)?:")
_LIKE_DSN = re.compile(
    r"(?i)\s*postgres\w*(\+\w+)?:?//|[\w+]+://|.*\bpassword=|\s+postgres"
    r"|\s*(host|hostaddr|port|dbname|user|service|sslmode)\s*="  # as libpq takes it, too
)
#: a user or a host follows the scheme, and not the name of a database at once
_HAS_HOST = re.compile(r"//[^/]")


def is_dsn(where: str) -> bool:
    """Whether this names a PostgreSQL database, and not a file.

    Raises `UsageError` for what looks like one and is none: it would become the name of a file.
    """
    if _SCHEME.match(where):
        return True
    if _LIKE_DSN.match(where) and not where.startswith("sqlite:"):
        raise UsageError(
            "the journal looks like the address of a database, but is none: write "
            "postgresql://USER@HOST/DATABASE, or the path of a file"
        )
    return False


def refuse_bad_port(dsn: str) -> None:
    """Raise `UsageError` for a port that is none: the system would take its lowest 16 bits for another one."""
    place = dsn.partition(":")[2].lstrip("/").rpartition("@")[2]
    hosts, _, query = place.partition("?")
    ports = [_PORT_OF_HOST.sub("", host) for host in hosts.partition("/")[0].split(",")]
    options = (each.partition("=") for each in query.split("&"))
    ports += [port for name, _, given in options if name == "port" for port in given.split(",")]
    for port in filter(None, ports):
        if not (
            port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= _MOST_PORT
        ):
            raise UsageError(
                f"the port of {place_of(dsn)} must be a number from 1 to {_MOST_PORT:,}; write "
                "postgresql://USER@HOST:PORT/DATABASE"
            )


def with_namespace(dsn: str, namespace: str) -> str:
    """The same address, with this namespace if it names none."""
    named = split_namespace(dsn)[1]
    if not namespace or named == namespace:
        return dsn
    if named:
        raise UsageError(
            f"namespace={namespace!r} contradicts the address {place_of(dsn)}; name the namespace once"
        )
    mark = "&" if "?" in dsn.rpartition("@")[2] else "?"
    return f"{dsn}{mark}namespace={quote(namespace, safe='')}"


def split_namespace(dsn: str) -> tuple[str, str]:
    """The address as the server knows it, and the namespace, which is `?namespace=` in ours."""
    account, at, place = dsn.rpartition("@")
    target, _, query = place.partition("?")
    options, named = [], ""
    for each in query.split("&") if query else ():
        name, _, given = each.partition("=")
        if name == "namespace":
            named = unquote(given)
        else:
            options.append(each)
    bare = f"{account}{at}{target}" + (f"?{'&'.join(options)}" if options else "")
    return bare, named


def place_of(dsn: str) -> str:
    """Where a DSN points, without its password, for people to read.

    All between the scheme and the last `@` but the user's name is left out, since a password may hold
    any character.
    """
    _, _, rest = dsn.partition(":")
    slashes = "//" if _HAS_HOST.match(rest) else "///"
    account, at, place = rest.lstrip("/").rpartition("@")
    user = re.split(r"[:/?#]", account)[0]
    target, _, query = place.partition("?")
    options = [each for each in query.split("&") if each.partition("=")[0].lower() in _SHOWN]
    return f"postgresql:{slashes}{user}{at}{target}" + (f"?{'&'.join(options)}" if options else "")
