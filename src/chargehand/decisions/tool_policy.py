"""May this tool be called now, by this worker, with what it knows? Grants, taint, destinations.

The rule of two: nobody holds untrusted input, sensitive data and the power to change or tell the
outside world all at once. Two of the three are fine; the third needs a person.
"""

from enum import StrEnum

from msgspec import Struct

from chargehand.facts.events import Effect


class Traits(Struct, frozen=True, kw_only=True):
    """What a policy must know of a tool."""

    name: str
    effect: Effect
    #: what it returns comes from outside and may be hostile
    is_untrusted: bool = False
    #: what it returns must not get out
    is_sensitive: bool = False
    #: where it sends what it is given: a host, a channel; empty: nowhere
    destination: str = ""
    #: the one server, set up by the user, that answers it; empty: none in particular
    server: str = ""
    needs_approval: bool = False

    @property
    def acts(self) -> bool:
        """Whether it changes or tells the outside world."""
        return self.effect is not Effect.PURE or bool(self.destination)


class Grants(Struct, frozen=True, kw_only=True):
    """What a worker may use; grants only shrink on the way down."""

    tools: frozenset[str] = frozenset()
    #: hosts, and their subdomains, that may be told something; with "*" anyone
    destinations: frozenset[str] = frozenset()
    has_secrets: bool = False
    #: tools whose calls need no person where only this policy would ask one
    preapproved: frozenset[str] = frozenset()

    def within(self, other: "Grants") -> "Grants":
        """What both allow."""
        is_open, are_open = "*" in self.destinations, "*" in other.destinations
        both = self.destinations & other.destinations
        return Grants(
            tools=self.tools & other.tools,
            destinations=other.destinations if is_open else self.destinations if are_open else both,
            has_secrets=self.has_secrets and other.has_secrets,
            preapproved=self.preapproved & other.preapproved,
        )


class Ruling(StrEnum):
    """What a policy says to a call."""

    ALLOWED = "allowed"
    ASK = "ask"  #: a person must approve exactly this call
    DENIED = "denied"


class Verdict(Struct, frozen=True):
    """A ruling and its reason, in words."""

    ruling: Ruling
    why: str = ""
    #: what a worker would have to be granted for this call to be allowed unasked; empty: nothing would do
    grant: str = ""


class Knowledge(Struct, frozen=True, kw_only=True):
    """What the worker holds when it calls."""

    taint: tuple[str, ...] = ()
    #: it has read sensitive data, or is granted secrets
    is_sensitive: bool = False
    #: the one server that all came from which it has read or was tainted by; empty: there is more
    only_from: str = ""


ALLOWED = Verdict(Ruling.ALLOWED)


def judge_call(tool: Traits, grants: Grants, knowledge: Knowledge) -> Verdict:
    """Rule on one call. What is denied stays denied, whoever approves."""
    if tool.name not in grants.tools:
        have = ", ".join(sorted(grants.tools)) or "none"
        return Verdict(Ruling.DENIED, f"tool {tool.name!r} is not granted (granted: {have})")
    if tool.destination and not reaches(tool.destination, grants.destinations):
        return Verdict(Ruling.DENIED, f"{tool.destination!r} is not an allowed destination")
    if tool.needs_approval:
        return Verdict(Ruling.ASK, "this tool asks a person each time")
    if not knowledge.taint or not tool.acts or tool.name in grants.preapproved:
        return ALLOWED
    grant = f"preapproved=[{tool.name!r}]"
    sources = ", ".join(knowledge.taint[:3])
    if knowledge.is_sensitive or grants.has_secrets:
        why = f"it acts, knows something sensitive, and has read what may be hostile ({sources})"
        return Verdict(Ruling.ASK, why, grant)
    # What a server has said may go back to that very server. Once anything else was read, that might
    # go there with it, and a person is asked again.
    is_told_back = bool(tool.server) and tool.server == knowledge.only_from
    if tool.destination and not is_told_back:
        why = f"it would tell others what rests on untrusted {sources}"
        return Verdict(Ruling.ASK, why, grant)
    return ALLOWED


def reaches(destination: str, allowed: frozenset[str]) -> bool:
    """Whether a host is one of these, or a subdomain of one."""
    host = destination.lower().rstrip(".")
    return "*" in allowed or any(
        host == each.lower() or host.endswith(f".{each.lower()}") for each in allowed
    )
