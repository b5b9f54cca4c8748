"""Recordings as an attacker writes them: other events, in a chain that is whole."""

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chargehand.journal.base import GENESIS
from chargehand.journal.hash_chain import entry_hash

Line = dict[str, Any]


def forged(
    source: Path,
    target: Path,
    change: Callable[[list[Line]], Sequence[Line]],
    header: Callable[[dict[str, object]], None] = lambda _: None,
    stream: str = "",
) -> Path:
    """A copy of a recording whose root stream has other lines, with a chain that fits them."""
    with zipfile.ZipFile(source) as old:
        members = {name: old.read(name) for name in old.namelist()}
    head = msgspec.json.decode(members["recording.json"])
    first = head["streams"][0]
    decoded = msgspec.json.Decoder(dict[str, msgspec.Raw])
    lines: list[Line] = []
    for text in members["streams/0.jsonl"].splitlines():
        fields = decoded.decode(text)
        lines.append({k: v if k == "event" else msgspec.json.decode(v) for k, v in fields.items()})
    name, previous, written = stream or first["name"], GENESIS, []
    for seq, line in enumerate(change(lines), 1):
        line["seq"] = seq
        payload = bytes(line["event"])
        fields_of = [line[k] for k in ("seq", "epoch", "kind", "version", "at", "author")]
        previous = entry_hash(previous, name, line["author"], [*fields_of, payload])
        written.append(msgspec.json.encode({**line, "hash": previous.hex()}) + b"\n")
    first |= {"name": name, "events": len(written), "hash": previous.hex() if written else ""}
    head["root"] = name
    header(head)
    members |= {
        "recording.json": msgspec.json.encode(head),
        "streams/0.jsonl": b"".join(written),
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for member, data in members.items():
            new.writestr(member, data)
    return target
