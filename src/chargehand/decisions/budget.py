"""Budget accounts: a call reserves its worst case before it starts and settles its real cost after it ends.

There is one account for each run that has caps or is nested in a run with caps. What is reserved or spent
there also counts against every account above it, so a tree of runs cannot spend more than its top allows.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.system_tasks import ANSWER, hedged, is_hedge
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    BudgetChanged,
    Event,
    PlanAdopted,
    PlanAmended,
    StepFinished,
    StepStarted,
    TaskAdded,
    tasks_added_by,
)
from chargehand.facts.limits import Limits, TaskLimits, has_caps
from chargehand.facts.outcome import NO_USAGE, Done, Usage, why_untrue
from chargehand.facts.plan import item_of

#: the reason when a run is stopped because its budget is used up
OVER_BUDGET = "over budget"

#: the step in which a nested supervisor leads a run of its own
NESTED = "run"

#: share of money and tokens that is kept back for composing the answer; of calls, one is kept back
ANSWER_SHARE = 0.1

_Step: TypeAlias = tuple[str, int, str, int]


def runs_below(history: Iterable[Event]) -> list[str]:
    """The nested runs of this run whose usage its own events do not report."""
    begun: dict[str, str] = {}
    for event in history:
        if isinstance(event, StepStarted) and event.name == NESTED:
            about = event.about.read()
            if _names_run(about):
                begun[event.key] = str(about["run"])
        elif isinstance(event, StepFinished) and isinstance(event.outcome, Done):
            begun.pop(event.key, None)
    return list(begun.values())


def all_runs_below(history: Iterable[Event]) -> list[str]:
    """All nested runs of this run, in order."""
    begun = (
        event.about.read()
        for event in history
        if isinstance(event, StepStarted) and event.name == NESTED and not event.about.blob
    )
    return list(dict.fromkeys(str(each["run"]) for each in begun if _names_run(each)))


def _names_run(about: object) -> bool:
    return isinstance(about, dict) and "run" in about


def spent_in(history: Iterable[Event]) -> Usage:
    """The most that a run without a leader may have spent: steps without a recorded end count in full."""
    account = Account(Limits())
    for event in history:
        account.apply(event)
    account.close()
    return account.spent


class Shortage(Struct, frozen=True):
    """Why a reservation is refused. As text, it names the cap that would be exceeded."""

    #: the account with that cap
    account: "Account"
    #: money, tokens or calls
    limit: str
    #: that cap
    whole: float
    #: what is left of it, without the part kept back for the answer
    left: float
    #: the amount to reserve
    want: float
    #: the task that has the cap; empty: it is the run's
    task: str = ""
    #: the part of that cap that is kept back for the answer
    kept: float = 0.0

    def __str__(self) -> str:
        of = f"{self.limit}={self.whole:.12g}"
        named = f"TaskLimits({of}) of {self.task}" if self.task else f"Limits({of})"
        least = (
            "" if self.limit == "calls" else ", its worst case: a lower max_tokens makes it less"
        )
        return f"{named} leaves {max(self.left, 0):.6g}, and the next call reserves {self.want:.6g}{least}"


class Overrun(Struct, frozen=True):
    """A cap that was passed, which only usage that was reported after the fact can do."""

    #: money, tokens or calls
    limit: str
    cap: float
    spent: float
    #: the task that has the cap; empty: it is the run's
    task: str = ""

    def __str__(self) -> str:
        of = f"{self.limit}={self.cap:.12g}"
        spent = f"${self.spent:.6g}" if self.limit == "money" else f"{self.spent:,.0f} {self.limit}"
        cap = f"TaskLimits({of}) of {self.task}" if self.task else f"Limits({of})"
        return f"{spent}, more than {cap}"


class Account:
    """What one run and all runs nested in it have spent and reserved. A fold over its events."""

    def __init__(
        self,
        limits: Limits,
        *,
        keeps_back: bool = False,
        above: "Account | None" = None,
        run: str = "",
    ) -> None:
        self.spent = NO_USAGE
        self.reserved = NO_USAGE
        self._limits = limits
        #: whether a part is kept back for the answer
        self._keeps_back = keeps_back
        self._above = above
        #: the task of the run above that this run is for: what is spent here counts against the caps of that task
        self._for_task = "" if above is None else above.task_of(run)
        self._open: dict[_Step, Usage] = {}
        #: the caps of the tasks that have their own
        self._tasks: dict[str, TaskLimits] = {}
        #: what each of these tasks has spent and reserved
        self._by_task: dict[str, Usage] = {}
        #: by nested run with an account: its task; its usage counts here at once, and not again at its end
        self._below: dict[str, str] = {}
        #: by nested run that is not led again yet: what it has spent
        self._held: dict[str, Usage] = {}
        #: callbacks for when a reservation is settled here
        self._waiting: list[Callable[[], None]] = []
        #: the caps, by task and name, whose overrun was told
        self._told: set[tuple[str, str]] = set()
        #: by task that waits for such a settlement: what it lacks
        self.short: dict[str, str] = {}
        #: asks a person to raise the budget; None: nobody is asked
        self.plead: Callable[[Shortage], None] | None = None
        #: stops the tasks of this run; None: nobody leads it here
        self.stop_work: Callable[[Shortage], None] | None = None

    def link(self, task: str, run: str) -> None:
        """Register a nested run that has its own account below this one."""
        self._below[run] = task

    def task_of(self, run: str) -> str:
        """The task that a nested run is for; empty if it is not registered."""
        return self._below.get(run, "")

    def refusal(self, task: str, want: Usage) -> str:
        """Why this cannot be reserved, with the cap that would be exceeded; empty if it can be."""
        short = self.shortage(task, want)
        return "" if short is None else str(short)

    def when_settled(self, task: str, want: Usage, then: Callable[[], None]) -> bool:
        """Call `then` once a reservation that holds what is lacking has ended; False: there is none to wait for."""
        short = self.shortage(task, want)
        if short is None or not short.account.reserved.calls:
            return False
        # If the cap is of an account above, every open step here counts for the task with the cap.
        is_own = short.account is self
        if short.task and not any(step[0] == task or not is_own for step in self._open):
            return False

        def tell() -> None:
            self.short.pop(task, None)
            then()

        self.short[task] = str(short)
        short.account.when_changed(tell)
        return True

    def when_changed(self, then: Callable[[], None]) -> None:
        """Call `then` once, when a reservation is settled here or a cap is changed."""
        self._waiting.append(then)

    @property
    def limits(self) -> Limits:
        """The current caps."""
        return self._limits

    def hold(self, run: str, spent: Usage) -> None:
        """Count what a nested run has spent, until that run is led again and counts it itself."""
        self._held[run] = spent
        self._move(NO_USAGE, spent)

    def hand_over(self, run: str) -> None:
        """Stop counting what `hold` counted: the nested run is led again and counts it itself."""
        self._move(NO_USAGE, _minus(NO_USAGE, self._held.pop(run, NO_USAGE)))

    def close(self) -> None:
        """Count all open reservations as spent, because the run is no longer led here."""
        for task, attempt, *_ in list(self._open):
            self._write_off(task, attempt)
        self._tell_waiting()

    def shortage(self, task: str, want: Usage) -> Shortage | None:
        """Which cap, here or above, prevents this reservation; None if none does."""
        if self._tasks and (own := self._tasks.get(_whose_caps(task := _capped(task)))) is not None:
            held = self._by_task.get(task, NO_USAGE) + want
            for name, cap, amount in _caps_of(own, held):
                if amount > cap:
                    more = amount_of(name, want)
                    return Shortage(self, name, cap, cap - amount + more, more, task)
        held = self.spent + self.reserved + want
        is_answer = task == ANSWER or not self._keeps_back
        for name, cap, amount in self._caps(held, is_answer=is_answer):
            if amount > cap:
                whole, more = getattr(self._limits, name), amount_of(name, want)
                return Shortage(
                    self, name, whole, cap - amount + more, more, kept=round(whole - cap, 9)
                )
        return None if self._above is None else self._above.shortage(self._for_task, want)

    def overruns(self) -> tuple[Overrun, ...]:
        """The caps of this run and of its tasks that were passed."""
        found = [
            Overrun(name, cap, amount)
            for name, cap, amount in _caps_of(self._limits, self.spent)
            if amount > cap
        ]
        for task, held in self._by_task.items():
            for name, cap, amount in _caps_of(self._tasks[_whose_caps(task)], held):
                if amount > cap:
                    found.append(Overrun(name, cap, amount, task))
        return tuple(found)

    def new_overruns(self) -> tuple[Overrun, ...]:
        """The same, of each cap once."""
        found = tuple(each for each in self.overruns() if (each.task, each.limit) not in self._told)
        self._told.update((each.task, each.limit) for each in found)
        return found

    def apply(self, event: Event) -> None:
        """Apply an event of the run."""
        match event:
            case StepStarted():
                self._reserve(event)
            case StepFinished():
                self._settle(event)
            case AttemptFinished() | AttemptLost() | AttemptPreempted():
                self._write_off(event.task, event.attempt)
                if isinstance(event, AttemptFinished) and event.outcome.usage != NO_USAGE:
                    self._move(NO_USAGE, _at_least_nothing(event.outcome.usage), event.task)
            case AttemptParked():
                self._release(event.task, event.attempt)
            case BudgetChanged():
                self._change(event)
            case PlanAdopted() | TaskAdded() | PlanAmended():
                self._tasks |= task_caps(event)
            case _:
                pass  # no other event concerns the budget

    def _change(self, event: BudgetChanged) -> None:
        named = {"money": event.money, "tokens": event.tokens, "calls": event.calls}
        changed = {name: cap for name, cap in named.items() if cap is not None}
        self._limits = replace(self._limits, **changed)
        self._tell_waiting()

    def _caps(self, held: Usage, *, is_answer: bool) -> "list[tuple[str, float, float]]":
        share = 1.0 if is_answer else 1 - ANSWER_SHARE
        return [
            (name, cap - (0 if is_answer else 1) if name == "calls" else cap * share, amount)
            for name, cap, amount in _caps_of(self._limits, held)
        ]

    def _reserve(self, event: StepStarted) -> None:
        if event.reserve == NO_USAGE:
            return
        step = (event.task, event.attempt, event.name, event.ordinal)
        before = self._open.get(step, NO_USAGE)
        reserve = self._open[step] = _at_least_nothing(event.reserve)
        self._move(_minus(reserve, before), NO_USAGE, event.task)

    def _settle(self, event: StepFinished) -> None:
        reserve = self._open.pop((event.task, event.attempt, event.name, event.ordinal), NO_USAGE)
        is_counted = event.name == NESTED and event.task in self._below.values()
        spent = NO_USAGE if is_counted else _at_least_nothing(event.outcome.usage)
        self._move(_minus(NO_USAGE, reserve), spent, event.task)

    def _write_off(self, task: str, attempt: int) -> None:
        """Count the reserves of steps without a recorded end as spent."""
        for step in [each for each in self._open if each[:2] == (task, attempt)]:
            reserve = self._open.pop(step)
            self._move(_minus(NO_USAGE, reserve), reserve, task)

    def _release(self, task: str, attempt: int) -> None:
        """Free the reserves of a parked attempt's open steps: the calls were not sent and will be made again."""
        for step in [each for each in self._open if each[:2] == (task, attempt)]:
            self._move(_minus(NO_USAGE, self._open.pop(step)), NO_USAGE, task)

    def _move(self, reserved: Usage, spent: Usage, task: str = "") -> None:
        account: Account | None = self
        while account is not None:
            task, account = account.move(reserved, spent, task)

    def move(self, reserved: Usage, spent: Usage, task: str) -> "tuple[str, Account | None]":
        """Count this here; returns the task and the account above for which it also counts."""
        if self._tasks and _whose_caps(capped := _capped(task)) in self._tasks:
            before = self._by_task.get(capped, NO_USAGE)
            self._by_task[capped] = before + reserved + spent
        self.reserved += reserved
        self.spent += spent
        if reserved.calls < 0:
            self._tell_waiting()
        return self._for_task, self._above

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


def _capped(task: str) -> str:
    """The task whose caps apply: for a hedge, the task that it is for."""
    return hedged(task) if is_hedge(task) else task


def _whose_caps(task: str) -> str:
    """The task that defines the caps: each item has the caps of its task with `for_each`."""
    found = item_of(task)
    return task if found is None else found[0]


def task_caps(event: PlanAdopted | TaskAdded | PlanAmended) -> dict[str, TaskLimits]:
    """By task: the caps of the tasks in this event that have any."""
    return {task.id: task.limits for task in tasks_added_by(event) if has_caps(task.limits)}


def _caps_of(limits: Limits | TaskLimits, held: Usage) -> "Iterator[tuple[str, float, float]]":
    """For each cap that is set: its name, its value, and the amount that counts against it."""
    if limits.money is not None:
        yield "money", limits.money, held.money
    if limits.tokens is not None:
        yield "tokens", limits.tokens, held.tokens_in + held.tokens_out
    if limits.calls is not None:
        yield "calls", limits.calls, held.calls


def amount_of(limit: str, usage: Usage) -> float:
    """The amount of money, tokens or calls in this usage."""
    if limit == "tokens":
        return usage.tokens_in + usage.tokens_out
    return usage.money if limit == "money" else usage.calls


def _at_least_nothing(usage: Usage) -> Usage:
    """The usage without negative amounts: no report of a worker may raise what is left of a budget."""
    if why_untrue(usage) is None:
        return usage
    return Usage(
        calls=max(usage.calls, 0),
        tokens_in=max(usage.tokens_in, 0),
        tokens_out=max(usage.tokens_out, 0),
        cache_read=max(usage.cache_read, 0),
        cache_written=max(usage.cache_written, 0),
        money=max(usage.money, 0.0),
    )


def _minus(one: Usage, other: Usage) -> Usage:
    return Usage(
        calls=one.calls - other.calls,
        tokens_in=one.tokens_in - other.tokens_in,
        tokens_out=one.tokens_out - other.tokens_out,
        cache_read=one.cache_read - other.cache_read,
        cache_written=one.cache_written - other.cache_written,
        money=one.money - other.money,
    )
