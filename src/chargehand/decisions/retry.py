"""What is done about a failed attempt: try again, how and when, or give the task up."""

import random
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from chargehand.facts.events import RetryHow
from chargehand.facts.outcome import ErrorClass, Failed


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How long to wait between tries. The waits double up to a cap; part of each is drawn by lot."""

    first: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(minutes=1)
    jitter: float = 0.5
    #: the largest part of a wait that may be left out

    def backoff(self, tries: int, draw: float) -> timedelta:
        """The wait after this many failures; `draw` lies between 0 and 1."""
        # 2**30 first waits are longer than any cap; much larger powers overflow a timedelta.
        longest = min(self.cap, self.first * (1 << min(tries - 1, 30)))
        return longest * (1 - self.jitter * draw)


class Again(Struct, frozen=True):
    """Try the task once more."""

    due_at: datetime
    how: RetryHow


class GiveUp(Struct, frozen=True):
    """The task has failed for good."""

    cause: Failed


Verdict: TypeAlias = Again | GiveUp


class History(Struct, frozen=True, kw_only=True):
    """What a verdict rests on besides the failure itself."""

    tries: int
    #: failures that count, this one included
    attempts: int
    #: tries the task may have
    at: datetime
    deadline_at: datetime | None
    has_others: bool
    #: whether the task asked for a skill, so that another worker may have it
    refines: bool = False
    #: whether a model may rewrite what the task says


def judge(policy: RetryPolicy, failure: Failed, history: History, draw: float) -> Verdict:
    """Decide what becomes of a task whose attempt failed this way. Deadline beats retry."""
    if failure.kind.is_final or failure.is_final:
        return GiveUp(failure)
    if history.tries >= history.attempts:
        if history.tries == 1:
            return GiveUp(failure)
        return GiveUp(_with_message(failure, f"{failure.message} (tried {history.tries} times)"))
    wait = timedelta(0)
    if failure.kind.backs_off:
        wait = policy.backoff(history.tries, draw)
    if failure.retry_after is not None:
        wait = max(wait, failure.retry_after)
    due_at = history.at + wait
    if history.deadline_at is not None and due_at >= history.deadline_at:
        return GiveUp(_with_message(failure, f"{failure.message} (no time left for another try)"))
    return Again(due_at, _how(failure, history))


def draw_for(seed: int, task: str, attempt: int) -> float:
    """The lot of one attempt: the same on every replay, whatever the hash seed or machine."""
    return random.Random(f"{seed}:{task}:{attempt}").random()  # noqa: S311 - jitter, not a secret


def _how(failure: Failed, history: History) -> RetryHow:
    if history.has_others:
        return RetryHow.ELSEWHERE
    if failure.kind is not ErrorClass.LOGIC:
        return RetryHow.AGAIN
    return RetryHow.REWRITTEN if history.refines else RetryHow.AFRESH


def _with_message(failure: Failed, message: str) -> Failed:
    return Failed(
        kind=failure.kind,
        message=message,
        error=failure.error,
        stack=failure.stack,
        retry_after=failure.retry_after,
        usage=failure.usage,
    )
