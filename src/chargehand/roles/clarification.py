"""The clarify gate: a request of which no plan can be made goes back to the person who made it."""

from collections.abc import Awaitable, Callable

from chargehand.engines.brief import Brief
from chargehand.errors import UnclearRequest
from chargehand.facts.events import RunRequested
from chargehand.facts.failure_policy import GIVE_UP
from chargehand.facts.outcome import Outcome
from chargehand.roles.planner_prompt import with_notes

#: times that a person is asked to say it better
MOST = 2


async def clarified(
    brief: Brief, requested: RunRequested, attempt: Callable[[str], Awaitable[Outcome]]
) -> Outcome:
    """What `attempt` makes of the request, and of what a person adds to it while it stays unclear.

    Nothing is carried out meanwhile. Raises `UnclearRequest` if nobody was to be asked, or to no avail.
    """
    added: list[str] = []
    while True:
        try:
            return await attempt(with_notes(requested.request, added))
        except UnclearRequest as error:
            if not requested.clarifies or len(added) == MOST:
                raise
            words = await brief.ask(_question(error))
            if words.strip() == GIVE_UP:
                raise
            added.append(words)


def _question(why: UnclearRequest) -> str:
    return (
        f"No plan can be made of this request: {str(why).removeprefix('no plan: ')}\n"
        f"Say more precisely what you want, or answer {GIVE_UP!r}."
    )
