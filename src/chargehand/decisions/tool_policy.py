"""The tool policy: whether a worker may call a tool now, given its grants, its taint and the destination.

The rule of two: no worker may combine untrusted input, sensitive data and the power to change the outside
world or send data to it. Any two of the three are allowed; all three need a person.
"""

from enum import StrEnum

from msgspec import Struct

from chargehand.facts.events import Effect


class Traits(Struct, frozen=True, kw_only=True):
    """What the policy must know about a tool."""

    name: str
    effect: Effect
    #: what it returns comes from outside and may be hostile
    is_untrusted: bool = False
    #: what it returns must not leave the run
    is_sensitive: bool = False
    #: where it sends its arguments: a host or a channel; empty: nowhere
    destination: str = ""
    #: the one server, configured by the user, that answers it; empty: no particular server
    server: str = ""
    needs_approval: bool = False

    @property
    def acts(self) -> bool:
        """Whether it changes the outside world or sends data to it."""
        return self.effect is not Effect.PURE or bool(self.destination)


class Grants(Struct, frozen=True, kw_only=True):
    """What a worker may use; grants only shrink on the way down."""

    tools: frozenset[str] = frozenset()
    #: hosts that data may be sent to, with their subdomains; "*" allows any host
    destinations: frozenset[str] = frozenset()
    has_secrets: bool = False
    #: tools whose calls need no approval if only this policy would ask for it
    preapproved: frozenset[str] = frozenset()

    def within(self, other: "Grants") -> "Grants":
        """The grants that both allow."""
        is_open, are_open = "*" in self.destinations, "*" in other.destinations
        both = self.destinations & other.destinations
        return Grants(
            tools=self.tools & other.tools,
            destinations=other.destinations if is_open else self.destinations if are_open else both,
            has_secrets=self.has_secrets and other.has_secrets,
            preapproved=self.preapproved & other.preapproved,
        )


class Ruling(StrEnum):
    """The policy's decision about a call."""

    ALLOWED = "allowed"
    ASK = "ask"  #: a person must approve this call
    DENIED = "denied"


class Verdict(Struct, frozen=True):
    """A ruling with its reason in words."""

    ruling: Ruling
    why: str = ""
    #: the grant with which this call would be allowed without asking; empty: there is none
    grant: str = ""


class Knowledge(Struct, frozen=True, kw_only=True):
    """What the worker has read when it calls a tool."""

    taint: tuple[str, ...] = ()
    #: it has read sensitive data, or is granted secrets
    is_sensitive: bool = False
    #: the one server that everything it has read or was tainted by came from; empty: there are other sources
    only_from: str = ""


ALLOWED = Verdict(Ruling.ALLOWED)


def judge_call(tool: Traits, grants: Grants, knowledge: Knowledge) -> Verdict:
    """Decide about one call. A person's approval does not change a denial."""
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
    # Data from a server may go back to that same server. If the worker has read anything else, that
    # might be sent along, so a person is asked.
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
