"""Routing: sends a request to the one worker that fits it best, rewritten for that worker."""

import os
from collections.abc import Sequence

from chargehand.facts.events import Approach
from chargehand.facts.limits import Limits
from chargehand.journal.base import Journal
from chargehand.result import RunResult
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import ModelChoice
from chargehand.supervisor import Supervisor


async def route(
    request: str,
    workers: Sequence[Member],
    *,
    model: ModelChoice,
    default: Member | str = "",
    journal: str | os.PathLike[str] | Journal | None = None,
    limits: Limits | None = None,
) -> RunResult:
    """Route a request to one worker: a model chooses the worker by its description and rewrites the request for it.

    `default` is a worker, or the name of one of `workers`, that gets the request unchanged if the request
    clearly fits no other worker. The run has only one task, whose output is the result.
    """
    expert = default if isinstance(default, str) else default.name
    roster = [*workers]
    if not isinstance(default, str) and all(each is not default for each in workers):
        roster.append(default)
    async with Supervisor(roster, model=model, journal=journal, limits=limits) as boss:
        return await boss.run(request, approach=Approach.ROUTE, default=expert)
