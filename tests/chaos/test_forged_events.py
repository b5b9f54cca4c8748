"""Events that an attacker wrote into a journal: read as data or refused, and never anything else."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.decisions.trace import trace_of
from chargehand.errors import ChargehandError, JournalError
from chargehand.facts.events import Event, decode, encode
from chargehand.journal.open_journal import open_journal

from . import client
from .disks import here
from .oracle import read_journal
from .share import SCALE

#: what an attacker may put in the place of any value
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**80,
    1e308,
    "",
    "\x00",
    "\ud800",
    "../../etc/passwd",
    "__import__('os').system('true')",
    "!!python/object/apply:os.system ['true']",
    [],
    {},
    [[[[[[]]]]]],
    {"__class__": "os"},
    {"$ref": "file:///etc/passwd"},
)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """All events of a real run."""
    folder = tmp_path_factory.mktemp("forged")
    here("small")

    async def lead() -> None:
        async with ch.Supervisor(client.WORKERS, journal=folder / "runs.db") as boss:
            await boss.run(client.plan_of("small"))

    asyncio.run(lead())
    (entries,) = read_journal(folder / "runs.db").values()
    return [entry.event for entry in entries]


def bytes_forged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, lost or doubled."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) or 1)
        match rng.randrange(4):
            case 0:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del made[at : at + rng.randint(1, 20)]
            case 2:
                made[at:at] = made[at : at + rng.randint(1, 20)]
            case _:
                made[at:at] = rng.choice([b"[" * 200, b'"', b"\xff", b"1e999", b"\\ud800", b"{}"])
    return bytes(made)


def value_forged(value: Any, rng: random.Random) -> Any:
    """The same JSON with one value, at any depth, in the place of which stands a hostile one."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice([*value])
        return {**value, name: value_forged(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], value_forged(value[at], rng), *value[at + 1 :]]
    return rng.choice(HOSTILE)


def test_i16_forged_bytes_are_an_event_or_damage(history: list[Event]) -> None:
    """Nothing else is ever raised by the decoder, whatever the bytes."""
    rng = random.Random(16)
    payloads = [encode(event) for event in history]
    refused = 0
    for _ in range(int(20_000 * SCALE)):
        payload = rng.choice(payloads)
        if rng.random() < 0.5:
            made = bytes_forged(payload, rng)
        else:
            made = json.dumps(value_forged(json.loads(payload), rng)).encode()
        try:
            decode(made)
        except JournalError:
            refused += 1
    assert refused > 1_000


def test_i16_a_run_with_forged_events_is_shown_or_refused(
    history: list[Event], tmp_path: Path
) -> None:
    """Also with a hash chain that is right: only typed errors come of replaying what never happened."""
    rng = random.Random(61)

    async def forge(number: int) -> bool:
        """Whether it was refused."""
        events = list(history)
        at = rng.randrange(len(events))
        try:
            made = value_forged(json.loads(encode(events[at])), rng)
            events[at] = decode(json.dumps(made).encode())
        except JournalError:
            return True
        if rng.random() < 0.5:
            del events[rng.randrange(len(events))]
        try:
            await journal.append(f"r{number}", events)
            await boss.look(f"r{number}")
            trace_of([entry.event async for entry in journal.read(f"r{number}")])
        except ChargehandError:
            return True
        return False

    async def forge_all() -> int:
        return sum([await forge(number) for number in range(int(300 * SCALE))])

    journal = open_journal(tmp_path / "runs.db")
    boss = ch.Supervisor(client.WORKERS, journal=journal)
    refused = asyncio.run(forge_all())
    asyncio.run(journal.close())
    assert 0 < refused < 300 * SCALE
