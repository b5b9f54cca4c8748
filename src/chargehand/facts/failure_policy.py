"""What is to be done when a task fails, as data: one step for each failure, then how it ends."""

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

#: what a person who is asked about a failed task may say
TRY_AGAIN, GO_ON_WITHOUT, GIVE_UP = "try again", "go on without it", "give up"

#: what such a question is about
ABOUT_FAILURE = "failure"

#: of a budget: ask a person when it is used up
ASK = "ask"
#: what a person who is asked about a budget may say; the second with an amount behind a colon
STOP, RAISE_TO = "stop", "raise to"

#: what such a question is about
ABOUT_BUDGET = "budget"


class Recourse(StrEnum):
    """What may be done about a failure."""

    AGAIN = "again"  #: the same worker tries again
    ELSEWHERE = "elsewhere"  #: another with the skill, or, as `elsewhere:bob`, the worker named
    REWRITTEN = "rewritten"  #: a model says better what is to be done, then it is tried again
    ASK = "ask"  #: a person decides; until then it holds no place
    WITHOUT = "without"  #: given up; what needs it runs all the same and is told what is missing
    FAIL = "fail"  #: given up, and with it what needs it
    FAIL_RUN = "fail_run"  #: given up, and the run stops: its answer is made of what there is

    @property
    def is_try(self) -> bool:
        """Whether the task is tried once more, without asking anybody."""
        return self in (Recourse.AGAIN, Recourse.ELSEWHERE, Recourse.REWRITTEN)


class FailureStep(Struct, frozen=True):
    """One entry of a policy, taken apart."""

    recourse: Recourse
    #: of `elsewhere:bob`
    worker: str = ""

    def leads_away(self, by: str, *, to_others: bool) -> bool:
        """Whether it hands a task that this worker failed at to another one.

        `to_others`: somebody else has the skill that the task asks for, and has not tried.
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
    lists for single error classes, each counted by itself:
    `kinds={"logic": ("rewritten", "without")}`. A denied task, or one that a nested run has
    already retried as often as it could, is retried only if the list of its class says so.
    """

    steps: Sequence[str] = ("fail",)
    kinds: Mapping[str, Sequence[str]] = {}
    #: how long a person who is asked has time; then it is given up. None: as long as the run may
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
            # Whoever failed would fail again; another worker, with another model, may not.
            step = next(
                (each for each in steps[count:] if each.leads_away(by, to_others=to_others)), step
            )
        if not step.recourse.is_try:
            is_fit = step.recourse is not Recourse.ASK or kind is not ErrorClass.CANCELLED
            return step if is_fit else self.ending(kind)
        if count >= len(steps):
            return _FAIL  # the list is used up, and it ended with a try
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
        """Whether it hands a task to another worker without naming one."""
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
    """The policy that was given, maybe as the list of its actions alone."""
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
    """What was given as a list; of what is none, a list that holds no text."""
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
