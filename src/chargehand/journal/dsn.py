"""The address of a PostgreSQL database, as people write it, and as it may be shown."""

import re
from urllib.parse import urlsplit, urlunsplit


def is_dsn(where: str) -> bool:
    """Whether this names a PostgreSQL database, and not a file."""
    return where.startswith(("postgresql:", "postgres:"))


def place_of(dsn: str) -> str:
    """Where a DSN points, without its password, for people to read."""
    parts = urlsplit(dsn)
    user, at, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    query = re.sub(r"(?i)(password=)[^&]*", r"\1***", parts.query)
    return urlunsplit(("postgresql", f"{name}{at}{host}", parts.path, query, ""))
