"""The objects that all routes of the API share: the supervisor, its runs, the tokens and the open streams."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends
from msgspec import Struct
from starlette.requests import Request

from chargehand.errors import UnknownRun
from chargehand.server.http.access_tokens import OWNER, AccessTokens, Grant, Scope
from chargehand.server.http.authentication_guard import GuardRules
from chargehand.server.http.error_bodies import Refusal
from chargehand.server.http.event_stream import EventStreams
from chargehand.server.http.run_directory import RunDirectory
from chargehand.supervisor import Supervisor
from chargehand.supervisor.run_control import me

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

#: seconds that a request waits for its work to finish before it is answered as accepted
PATIENCE = 5.0


def granted(request: Request) -> Grant:
    """The grant of a request, which the guard has checked. Raises 401 if there is none."""
    grant = request.scope.get("grant")
    if not isinstance(grant, Grant):
        raise Refusal(401, "NotLoggedIn", "this needs a token")
    return grant


def granted_admin(request: Request) -> Grant:
    """The grant of a request that needs the scope admin."""
    grant = granted(request)
    if not grant.allows(Scope.ADMIN):
        raise Refusal(403, "ScopeMissing", f"the token {grant.name!r} is not an administrator's")
    return grant


def granted_crew_admin(request: Request) -> Grant:
    """The grant of a request about workers, which all namespaces share: scope admin and no namespace."""
    grant = granted_admin(request)
    if grant.namespace:
        raise Refusal(
            403,
            "NamespaceShared",
            f"all namespaces share the workers, and the token {grant.name!r} is of {grant.namespace!r}",
            "use an administrator's token without a namespace",
        )
    return grant


def refuse_unknown_options(request: Request) -> None:
    """Refuse unknown query parameters: otherwise, a mistyped filter would be ignored."""
    known = _options_of(request.scope["route"].dependant)
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise Refusal(
            *(422, "InvalidRequest", f"{unknown[:100]!r} is not a parameter of this route"),
            f"it takes {', '.join(known) or 'none'}",
        )


def _options_of(dependant: "Dependant") -> list[str]:
    """The names of all query parameters of a route."""
    own = [field.alias for field in dependant.query_params]
    below = [name for each in dependant.dependencies for name in _options_of(each)]
    return [*own, *below]


Caller = Annotated[Grant, Depends(granted)]
Admin = Annotated[Grant, Depends(granted_admin)]
CrewAdmin = Annotated[Grant, Depends(granted_crew_admin)]


class ServerFacts(Struct, frozen=True, kw_only=True):
    """Facts about the server, fixed at its start."""

    version: str
    #: where the crew comes from
    source: dict[str, Any]
    #: the models that plan and answer
    models: tuple[str, ...] = ()


class ApiContext:
    """The objects of one server that its routes need."""

    def __init__(
        self, boss: Supervisor, tokens: AccessTokens, rules: GuardRules, facts: ServerFacts
    ) -> None:
        self.boss = boss
        self.tokens = tokens
        self.rules = rules
        self.facts = facts
        self.runs = RunDirectory(boss)
        self.streams = EventStreams(boss.journal, boss.text_streams)
        self._begun: set[asyncio.Task[Any]] = set()

    def name_of(self, grant: Grant) -> str:
        """The name that the journal records for actions with this token."""
        return me() if grant.name == OWNER else grant.name

    async def begin(
        self, work: Coroutine[Any, Any, Any], until: Coroutine[Any, Any, None] | None = None
    ) -> None:
        """Start `work`, and return when it or `until` is done, or after `PATIENCE` seconds; `work` then continues.

        Raises the error of `work`, if it has failed by then.
        """
        task = asyncio.ensure_future(work)
        self._begun.add(task)
        task.add_done_callback(self._forget)
        begun = {task} if until is None else {task, asyncio.ensure_future(until)}
        _, left = await asyncio.wait(begun, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for each in left - {task}:
            each.cancel()
        if task.done():
            task.result()

    async def led_here(self, run: str) -> None:
        """Wait until this process leads the run or the run has ended."""
        signal, node = self.boss.journal.boards.signal, self.boss.journal.leases.node
        while True:
            known = signal.count
            with suppress(UnknownRun):
                record = await self.runs.records.read(run)
                if record.node == node or record.ended_at is not None:
                    return
            await signal.wait(since=known)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: `begin` raised it, or the run records it

    async def close(self) -> None:
        """Stop the streams and cancel unfinished work; runs are not changed."""
        self.streams.stop()
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)
