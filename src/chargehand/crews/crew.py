"""The class `Crew`, and the checks of a crew: unique worker names, and no tool shared without `share`."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from chargehand.decisions.dispatch import Balance
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.rate_limiter import Rates
from chargehand.errors import UsageError
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits
from chargehand.facts.retention import Retention
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.models.base import ModelSettings
from chargehand.notify.base import Subscription
from chargehand.roles.llm_worker import Worker
from chargehand.roles.roster import Member
from chargehand.roles.shared_resources import ModelChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Workers with their tools, models and limits. A crew can be a worker of another crew.

    Raises `UsageError` if two workers have the same name, if two workers have the same tool and the tool is not in
    `share`, or if `share` names an unknown tool.
    """

    workers: "Sequence[Hand]"
    #: names of tools that several workers may have
    share: Sequence[str] = ()
    name: str = ""
    #: `name` and `description`: the planner of an outer crew chooses this crew by them
    description: str = ""
    #: for planning, for composing answers, and for workers without a model of their own
    model: "ModelChoice | None" = None
    settings: ModelSettings | None = None
    limits: Limits | None = None
    #: what to do when a task fails, for workers without an `on_failure` of their own
    on_failure: OnFailure | None = None
    parallel: int | Elastic | None = None
    #: which of several suitable workers gets a task; `Worker.weight` counts only with WEIGHTED
    balance: Balance | str = Balance.LEAST_BUSY
    journal: str = ""
    prompts: Path | None = None
    retry: RetryPolicy | None = None
    #: which finished runs are kept while the crew serves
    retention: Retention | None = None
    #: rate limits of model providers, by account
    rates: Mapping[str, Rates] = field(default_factory=dict)
    #: for routing: the worker for a request that fits no other worker
    default: str = ""
    #: how people are notified of questions and, if they subscribe, of other events
    notify: Sequence[Subscription] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: where the crew comes from, for messages
    origin: str = "the crew"

    def __post_init__(self) -> None:
        _refuse_same_names(self.workers, self.origin)
        if isinstance(self.share, str):
            raise UsageError(
                f'{self.origin}: share is a list of names of tools; write share = ["{self.share}"]'
            )
        _refuse_shared_tools(self.workers, frozenset(self.share), self.origin)
        _refuse_unknown_shares(self.workers, self.share, self.origin)


#: a member of a crew: an LLM worker, a function, or another crew
Hand: TypeAlias = "Member | Crew"


def nested_crews(crew: Crew) -> Iterator[Crew]:
    """All crews nested in a crew, at any depth."""
    for worker in crew.workers:
        if isinstance(worker, Crew):
            yield worker
            yield from nested_crews(worker)


def all_rates(crew: Crew) -> dict[str, Rates]:
    """The rate limits of a crew and of all crews nested in it, by account: the strictest of each kind."""
    return joined_rates(
        (account, rates)
        for each in (crew, *nested_crews(crew))
        for account, rates in each.rates.items()
    )


def joined_rates(agreed: Iterable[tuple[str, Rates]]) -> dict[str, Rates]:
    """Rate limits by account; if there are several for an account, the strictest of each kind."""
    found: dict[str, Rates] = {}
    for account, rates in agreed:
        found[account] = found[account].stricter(rates) if account in found else rates
    return found


def unused_when_nested(crew: Crew) -> list[str]:
    """The settings of a crew that have no effect if it is nested in another crew.

    Its runs are stored in the journal of the outermost crew, and its requests are planned, not routed.
    """
    return [key for key in ("journal", "retention", "default") if getattr(crew, key)]


def _refuse_same_names(workers: Sequence[Hand], origin: str) -> None:
    if not workers:
        raise UsageError(f"{origin} has no workers; it needs at least one")
    seen: set[str] = set()
    for worker in workers:
        if worker.name in seen:
            raise UsageError(
                f"{origin}: two workers are named {worker.name!r}; give one of them another name"
            )
        seen.add(worker.name)


def _refuse_shared_tools(workers: Sequence[Hand], share: frozenset[str], origin: str) -> None:
    owners: dict[str, str] = {}
    for worker, tool in _tools_of(workers):
        if tool in owners and tool not in share:
            raise UsageError(
                f"{origin}: workers {owners[tool]!r} and {worker!r} share the tool {tool!r}; "
                f'take it from one of them, or allow it with share = ["{tool}"]'
            )
        owners[tool] = worker


def _refuse_unknown_shares(workers: Sequence[Hand], share: Sequence[str], origin: str) -> None:
    known = list(dict.fromkeys(tool for _, tool in _tools_of(workers)))
    for name in share:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]!r}? " if close else ""
            there = f"there are {', '.join(known)}" if known else "no worker has any tools"
            raise UsageError(f"{origin}: share names {name!r}, which no worker has; {meant}{there}")


def _tools_of(workers: Sequence[Hand]) -> Iterable[tuple[str, str]]:
    for worker in workers:
        if isinstance(worker, Worker):
            yield from ((worker.name, tool) for tool in worker.toolbox.names)
