"""The tools that a server lists, and which of their definitions are approved.

A model reads the definition of a tool, so a server that changes a definition later could inject
any text. A changed definition is never shown, and its tool is disabled, until a person approves it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from chargehand.errors import UsageError
from chargehand.facts.events import Effect
from chargehand.facts.value import canonical

LONGEST_NAME = 64
#: bytes of a definition, which is sent to the model with every request
LARGEST = 64 * 1024


class Definition(Struct, frozen=True, kw_only=True):
    """A tool, as its server describes it."""

    name: str
    description: str
    schema: dict[str, Any]
    #: the effect according to its annotations, which may be false
    hinted: Effect = Effect.ONCE

    @property
    def pin(self) -> str:
        """The hash of everything that a model sees of the tool."""
        return hashlib.sha256(self._canonical).hexdigest()

    @property
    def size(self) -> int:
        return len(self._canonical)

    @property
    def _canonical(self) -> bytes:
        return canonical([self.name, self.description, self.schema])

    def differences(self, other: "Definition") -> str:
        parts = {
            "description": self.description != other.description,
            "input schema": canonical(self.schema) != canonical(other.schema),
        }
        return " and ".join(part for part, differs in parts.items() if differs)


class ApprovedTools:
    """The definitions in the last listing, and the pins (hashes) of the approved definitions.

    If the caller gives pins, only tools with a pin are approved; otherwise the first listed definition of
    each tool is approved.
    """

    def __init__(self, pins: Mapping[str, str] | None = None) -> None:
        self._is_closed = pins is not None
        self._pins = dict(pins or {})
        self._approved: dict[str, Definition] = {}
        self._listed: dict[str, Definition] = {}

    @property
    def pins(self) -> dict[str, str]:
        return dict(self._pins)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all listed tools."""
        return tuple(self._listed)

    @property
    def shown(self) -> list[Definition]:
        """The definitions that a model may read, for all listed tools with a pin.

        For a changed tool, this is the approved definition, or a placeholder if only its pin is known.
        """
        return [
            self._approved.get(name) or _withheld(name)
            for name in self._listed
            if name in self._pins
        ]

    @property
    def refusals(self) -> dict[str, str]:
        """The tools that may not be called, with the reasons."""
        told = {name: self.refusal(name) for name in [*self._listed, *self._pins]}
        return {name: why for name, why in told.items() if why is not None}

    def take(self, listing: Iterable[Definition]) -> None:
        """Store a listing; of two tools with the same name, the first counts."""
        listed: dict[str, Definition] = {}
        for each in listing:
            listed.setdefault(each.name, each)
        self._listed = listed
        for name, each in listed.items():
            pin = self._pins.get(name) if self._is_closed else self._pins.setdefault(name, each.pin)
            if pin == each.pin and each.size <= LARGEST:
                self._approved[name] = each

    def refusal(self, name: str) -> str | None:
        """Why this tool may not be called; None if it may."""
        listed, pin = self._listed.get(name), self._pins.get(name)
        if listed is None:
            return "its server does not list it any more"
        if pin is None:
            return "it has no pin, so nobody has approved its definition"
        if listed.size > LARGEST:
            return f"its definition has {listed.size} bytes, more than {LARGEST}"
        if pin == listed.pin:
            return None
        approved = self._approved.get(name)
        what = listed.differences(approved) if approved is not None else "definition"
        return f"its {what} changed since it was approved (pin {pin[:12]}…, now {listed.pin[:12]}…)"

    def approve(self, name: str) -> str:
        """Approve the current definition of this tool; returns its pin."""
        listed = self._listed.get(name)
        if listed is None:
            there = ", ".join(self._listed) or "none"
            raise UsageError(f"there is no tool {name!r} to approve; listed are: {there}")
        if listed.size > LARGEST:
            raise UsageError(
                f"{name!r} has a definition of {listed.size} bytes, which is too large"
            )
        self._approved[name] = listed
        self._pins[name] = listed.pin
        return listed.pin


def _withheld(name: str) -> Definition:
    return Definition(
        name=name,
        description="Disabled: its definition is not the approved one. It cannot be called.",
        schema={"type": "object"},
    )


def spellings(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Unique tool names that all model providers accept, by the server's own names."""
    wanted = {name: _spelt(f"{prefix}{name}") for name in names}
    found: dict[str, str] = {}
    # Names that need no change come first, so that no changed name takes theirs.
    for name in sorted(wanted, key=lambda name: wanted[name] != f"{prefix}{name}"):
        spelt, mark = wanted[name], name
        while spelt in found.values():
            mark = hashlib.sha256(mark.encode()).hexdigest()[:6]
            spelt = f"{spelt[: LONGEST_NAME - 7]}_{mark}"
        found[name] = spelt
    return found


def _spelt(name: str) -> str:
    spelt = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return (spelt if re.match(r"[A-Za-z]", spelt) else f"t_{spelt}")[:LONGEST_NAME]
