"""What happens to the questions of a run if the caller does not, or cannot, answer them."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from chargehand.facts.argument_checks import one_of


class OnQuestion(StrEnum):
    """The values of `on_question`."""

    WAIT = "wait"  #: the run waits for an answer, which any process can give
    RETURN = (
        "return"  #: once only questions are left, the caller gets the open run; it can be resumed
    )
    SUPERVISOR = (
        "supervisor"  #: the supervisor's model answers what a worker asks; never an approval
    )
    FAIL = "fail"  #: a question takes its default, or fails its task, at once


class Asking(Struct, frozen=True, kw_only=True):
    """How questions of a run are handled while this process leads it."""

    mode: OnQuestion = OnQuestion.WAIT
    #: whether an answer can come: False if there is no person to ask and the caller chose nothing
    can_ask: bool = True
    #: whether the supervisor's model tries to answer first
    by_model: bool = False
    #: the caller chose no mode, so a question with a time limit may wait for that time
    is_default: bool = False
    #: with `fail`: what the caller can do instead, in words
    why: str = ""
    #: whether the run may continue with workers that have changed
    accepts: bool = False
    #: what happens to a run whose model provider is unavailable for too long
    on_outage: OnQuestion = OnQuestion.WAIT

    @property
    def below(self) -> "Asking":
        """The same for a run nested in this one: it waits instead of returning."""
        returns = OnQuestion.RETURN
        return replace(
            self,
            mode=OnQuestion.WAIT if self.mode is returns else self.mode,
            on_outage=OnQuestion.WAIT if self.on_outage is returns else self.on_outage,
        )


WAITING = Asking()


def on_question_of(given: "OnQuestion | str") -> OnQuestion:
    """The value as an `OnQuestion`. Raises `UsageError` if it is none."""
    return one_of(given, OnQuestion, "on_question")
