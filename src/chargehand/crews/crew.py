"""A crew as a value, and the one rule that every crew keeps: no tool in two hands unless it says so."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.rate_limiter import Rates
from chargehand.decisions.worker_slots import Balance
from chargehand.errors import UsageError
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits
from chargehand.facts.retention import Retention
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.models.base import ModelSettings
from chargehand.notify.base import Subscription
from chargehand.roles.llm_worker import Worker
from chargehand.roles.resources import ModelChoice
from chargehand.roles.roster import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Workers with their tools, models and limits. A crew can be a worker of another crew.

    Raises `UsageError` for two workers of one name, for a tool of two workers that is not in
    `share`, and for a name in `share` that no worker's tool has.
    """

    workers: "Sequence[Hand]"
    #: names of tools that several workers may have
    share: Sequence[str] = ()
    name: str = ""
    #: by these two, the crew above chooses it
    description: str = ""
    #: for planning, answering, and for workers that name none of their own
    model: "ModelChoice | None" = None
    settings: ModelSettings | None = None
    limits: Limits | None = None
    #: what is done when a task of a worker fails that says nothing of it itself
    on_failure: OnFailure | None = None
    parallel: int | Elastic | None = None
    #: which of several suitable workers gets a task; their `weight` counts under WEIGHTED only
    balance: Balance | str = Balance.LEAST_BUSY
    journal: str = ""
    prompts: Path | None = None
    retry: RetryPolicy | None = None
    #: which finished runs are kept while it serves
    retention: Retention | None = None
    #: what was agreed with providers, by account
    rates: Mapping[str, Rates] = field(default_factory=dict)
    #: when routing: the worker for a request that clearly fits no other
    default: str = ""
    #: how people are notified of its questions and, if they subscribe, of other events
    notify: Sequence[Subscription] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: where it came from, for messages
    origin: str = "the crew"

    def __post_init__(self) -> None:
        _refuse_same_names(self.workers, self.origin)
        if isinstance(self.share, str):
            raise UsageError(
                f'{self.origin}: share is a list of names of tools; write share = ["{self.share}"]'
            )
        _refuse_shared_tools(self.workers, frozenset(self.share), self.origin)
        _refuse_unknown_shares(self.workers, self.share, self.origin)


Hand: TypeAlias = "Member | Crew"
"""A member of a crew: an LLM worker, a function, or a crew of its own."""


def nested_crews(crew: Crew) -> Iterator[Crew]:
    """The crews among its workers, and those nested in them."""
    for worker in crew.workers:
        if isinstance(worker, Crew):
            yield worker
            yield from nested_crews(worker)


def all_rates(crew: Crew) -> dict[str, Rates]:
    """The rate limits of a crew and of those nested in it, by account: the lowest of each."""
    return joined_rates(
        (account, rates)
        for each in (crew, *nested_crews(crew))
        for account, rates in each.rates.items()
    )


def joined_rates(agreed: Iterable[tuple[str, Rates]]) -> dict[str, Rates]:
    """Rate limits by account; where there are several for one account, the lowest of each kind."""
    found: dict[str, Rates] = {}
    for account, rates in agreed:
        found[account] = found[account].stricter(rates) if account in found else rates
    return found


def unused_when_nested(crew: Crew) -> list[str]:
    """The settings of a crew that have no effect below another one.

    Its runs are in the journal of the outermost crew, and its requests are planned, not routed.
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
