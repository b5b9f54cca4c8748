"""Failure policies: what happens when a task fails, as a list of steps."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import (
    CheckedKeywords,
    SpanOrNone,
    duration_or_none,
    usually,
)
from chargehand.facts.outcome import ErrorClass, Failed

#: answers to the question about a failed task
TRY_AGAIN, GO_ON_WITHOUT, GIVE_UP = "try again", "go on without it", "give up"

#: `Question.about` of a question about a failed task
ABOUT_FAILURE = "failure"

#: value of `on_budget`: ask a person when the budget is used up
ASK = "ask"
#: answers to the question about the budget; the second is followed by a colon and an amount
STOP, RAISE_TO = "stop", "raise to"

#: `Question.about` of a question about the budget
ABOUT_BUDGET = "budget"


class Recourse(StrEnum):
    """What can be done about a failure."""

    AGAIN = "again"  #: the same worker tries again
    ELSEWHERE = "elsewhere"  #: another worker with the skill; with `elsewhere:bob`, that worker
    REWRITTEN = "rewritten"  #: a model rewrites the description, then the task is tried again
    ASK = "ask"  #: a person decides; until then, the task holds no slot
    WITHOUT = "without"  #: the task fails; tasks that need it run without its result
    FAIL = "fail"  #: the task fails, and tasks that need it are skipped
    FAIL_RUN = "fail_run"  #: the task fails and stops the run; the answer uses the results so far

    @property
    def is_try(self) -> bool:
        """Whether the task is retried without asking a person."""
        return self in (Recourse.AGAIN, Recourse.ELSEWHERE, Recourse.REWRITTEN)


class FailureStep(Struct, frozen=True):
    """One step of a policy, parsed."""

    recourse: Recourse
    #: the worker in `elsewhere:bob`; else empty
    worker: str = ""

    def leads_away(self, by: str, *, to_others: bool) -> bool:
        """Whether it gives a task that worker `by` failed at to another worker.

        `to_others`: the task asks for a skill, and `by` failed at it for the first time.
        """
        if self.recourse is not Recourse.ELSEWHERE:
            return False
        return self.worker != by if self.worker else to_others


class OnFailure(
    Struct,
    metaclass=CheckedKeywords,
    frozen=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What happens when a task fails: the first action handles the first failure, and so on.

    `OnFailure(("again", "elsewhere:bob", "ask"))` retries, then hands the task to bob, then
    asks a person. If the last action is a retry, the task fails after it; otherwise the last
    action applies to every further failure. `steps` lists the actions. `kinds` has separate
    lists for individual error classes, each counted separately:
    `kinds={"logic": ("rewritten", "without")}`. A denied task, or one that a nested run has
    already retried as often as it could, is retried only if the list of its class says so.
    """

    steps: Sequence[str] = ("fail",)
    kinds: Mapping[str, Sequence[str]] = {}
    #: how long to wait for a person's answer before the task fails; None: as long as the run lasts
    patience: SpanOrNone = usually(None)

    def __post_init__(self) -> None:
        force_setattr(self, "steps", _checked("steps", self.steps))
        if not isinstance(self.kinds, Mapping):
            raise UsageError('OnFailure: kinds must be a dict, as {"logic": ("again", "fail")}')
        kinds = {_kind(kind): _checked(str(kind), own) for kind, own in self.kinds.items()}
        force_setattr(self, "kinds", kinds)
        patience = duration_or_none(self.patience, "OnFailure: patience")
        force_setattr(self, "patience", patience)

    def step(
        self,
        failure: Failed,
        before: Sequence[ErrorClass] = (),
        *,
        by: str = "",
        to_others: bool = False,
    ) -> FailureStep:
        """The action for this failure of worker `by`, after earlier failures of these classes."""
        kind = failure.kind
        steps = self._steps_for(kind)
        count = sum(self._list_of(each) == self._list_of(kind) for each in before)
        step = steps[min(count, len(steps) - 1)]
        if failure.is_final:
            # The same worker would fail again; another worker with another model may not.
            step = next(
                (each for each in steps[count:] if each.leads_away(by, to_others=to_others)), step
            )
        if not step.recourse.is_try:
            is_fit = step.recourse is not Recourse.ASK or kind is not ErrorClass.CANCELLED
            return step if is_fit else self.ending(kind)
        if count >= len(steps):
            return _FAIL  # the list is used up, and its last step was a try
        is_over = kind is ErrorClass.CANCELLED or (
            failure.is_final and not step.leads_away(by, to_others=to_others)
        )
        if is_over or (kind.is_final and kind not in self.kinds):
            return self.ending(kind, may_ask=True)
        return step

    def ending(self, kind: ErrorClass, *, may_ask: bool = False) -> FailureStep:
        """The action for a task that cannot be retried; with `may_ask`, this can be a question to a person."""
        may_ask = may_ask and kind is not ErrorClass.CANCELLED
        for step in self._steps_for(kind):
            if not step.recourse.is_try and (may_ask or step.recourse is not Recourse.ASK):
                return step
        return _FAIL

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The workers that the policy names."""
        steps = [
            *self._steps_for(None),
            *(step for kind in self.kinds for step in self._steps_for(kind)),
        ]
        return tuple(dict.fromkeys(step.worker for step in steps if step.worker))

    @property
    def hands_to_anybody(self) -> bool:
        """Whether it gives a task to another worker without naming one."""
        return Recourse.ELSEWHERE in (*self.steps, *(s for own in self.kinds.values() for s in own))

    def words(self) -> str:
        """The policy in a sentence or two."""
        told = [f"If it fails: {_told(self._steps_for(None))}."]
        told += [
            f"If the failure is {kind}: {_told(self._steps_for(kind))}." for kind in self.kinds
        ]
        return " ".join(told)

    def _list_of(self, kind: ErrorClass) -> ErrorClass | None:
        return kind if kind in self.kinds else None

    def _steps_for(self, kind: str | None) -> list[FailureStep]:
        own = None if kind is None else self.kinds.get(kind)
        return [_parsed(text) for text in (self.steps if own is None else own)]


def on_failure_of(given: "OnFailure | Sequence[str] | None") -> OnFailure | None:
    """The given policy; a list of actions becomes a policy."""
    return given if given is None or isinstance(given, OnFailure) else OnFailure(given)


def _kind(name: str) -> ErrorClass:
    if name not in list(ErrorClass):
        known = ", ".join(kind.value for kind in ErrorClass)
        raise UsageError(f"OnFailure: {name!r} is not a class of errors; there are {known}")
    return ErrorClass(name)


def _parsed(text: str) -> FailureStep:
    name, _, worker = text.partition(":")
    return FailureStep(Recourse(name), worker.strip())


def _checked(name: str, steps: Sequence[str]) -> tuple[str, ...]:
    known = ", ".join(recourse.value for recourse in Recourse)
    given = (steps,) if isinstance(steps, str) else steps
    if any(not isinstance(text, str) for text in _listed(given)):
        raise UsageError(f"OnFailure: {name} must be a list of {known}")
    if not given:
        raise UsageError(f"OnFailure: {name} is empty; give at least one of {known}")
    for text in given:
        recourse, colon, worker = text.partition(":")
        if recourse not in list(Recourse):
            raise UsageError(f"OnFailure: {text!r} in {name} is none of {known}")
        if colon and (recourse != Recourse.ELSEWHERE or not worker.strip()):
            raise UsageError(
                f"OnFailure: {text!r} in {name}: only elsewhere takes a name, as elsewhere:NAME"
            )
    idle = [text for text in given[:-1] if _ends(text)]
    if idle:
        raise UsageError(f"OnFailure: nothing can come after {idle[0]!r} in {name}; put it last")
    return tuple(str(text) for text in given)


def _listed(given: object) -> Sequence[object]:
    """The argument if it is a list; else a list without texts, which the caller refuses."""
    return given if isinstance(given, Sequence) else (None,)


def _ends(text: str) -> bool:
    return text in (Recourse.WITHOUT, Recourse.FAIL, Recourse.FAIL_RUN)


def _told(steps: Sequence[FailureStep]) -> str:
    told = [_words(step) for step in steps]
    if steps[-1].recourse.is_try:
        told.append(_WORDS[Recourse.FAIL])
    return ", then ".join(told)


def _words(step: FailureStep) -> str:
    return f"hand it to {step.worker}" if step.worker else _WORDS[step.recourse]


_FAIL = FailureStep(Recourse.FAIL)
_WORDS = {
    Recourse.AGAIN: "try again",
    Recourse.ELSEWHERE: "hand it to another worker who can",
    Recourse.REWRITTEN: "rewrite its description and try again",
    Recourse.ASK: "ask a person",
    Recourse.WITHOUT: "go on without it",
    Recourse.FAIL: "give it up",
    Recourse.FAIL_RUN: "give it up and stop the run",
}
