"""What a process that serves a journal can do, as other processes find it there."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.journal.base import Journal, Process
from chargehand.result import RunResult
from chargehand.roles.roster import differences
from chargehand.runtime.command_inbox import Submission


class CrewOffer(Struct, frozen=True, kw_only=True):
    """The crew of a supervisor that serves. Two with equal crews can lead each other's runs alike."""

    #: digest of the roster, as in `RunRequested.crew`
    crew: str
    #: everything that a task may name: workers and skills
    names: tuple[str, ...]
    #: by worker: short digests of what it is made of, as in `RunRequested.members`
    members: dict[str, dict[str, str]]
    #: that plan and answer, by name
    models: tuple[str, ...]
    #: where the crew comes from, and the files that it may read, as the command line gives them
    source: dict[str, Any]
    #: since when it serves
    since: datetime
    #: seconds between two renewals of its lease; None: not known
    beat: float | None = None

    def differences(self, other: "CrewOffer") -> list[str]:
        """Why a run of the other crew is not led alike here; empty if it is."""
        told = differences(other.members, self.members)
        if not told and self.crew != other.crew:
            told = ["its workers have other names, descriptions or skills"]
        told = [f"another crew ({'; '.join(told)})"] if told else []
        if _files(self.source) != _files(other.source):
            told.append(f"other files ({', '.join(_files(self.source)) or 'none'})")
        if self.models != other.models:
            told.append(f"another model ({', '.join(self.models) or 'none'})")
        return told

    def why_not_taken_over(self, run: RunResult) -> str:
        """Why it does not take over a run whose leader has died; empty if it does."""
        if run.members and self.members:
            return "; ".join(differences(run.members, self.members))
        is_same = run.crew == self.crew
        return "" if is_same else "its workers have other names, descriptions or skills"

    def why_not(self, submission: Submission) -> str:
        """Why it cannot lead a run that was submitted; empty if it can."""
        return submission.lacking(self.crew, self.names)


class Server(Struct, frozen=True):
    """A process that serves the journal."""

    process: Process
    offer: CrewOffer


async def servers_of(journal: Journal) -> list[Server]:
    """The processes that serve a journal now; the one that has served longest comes first."""
    found = [
        Server(process, offer)
        for process in await journal.processes.alive()
        if (offer := offer_of(process)) is not None
    ]
    return sorted(found, key=lambda server: server.offer.since)


def offer_of(process: Process) -> CrewOffer | None:
    """What a process serves; None if it serves nobody, or speaks as a newer version does."""
    try:
        return msgspec.json.decode(process.offer, type=CrewOffer)
    except msgspec.MsgspecError:
        return None


async def peers_of(journal: Journal, crew: str) -> list[str]:
    """The nodes that serve a journal with this crew, in one order for all of them."""
    servers = await servers_of(journal)
    return sorted(each.process.node for each in servers if each.offer.crew == crew)


def _files(source: Mapping[str, Any]) -> list[str]:
    return sorted(str(file) for file in source.get("files", ()))
