"""What becomes of a run's questions when the caller does not, or cannot, answer them."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from chargehand.facts.argument_checks import one_of


class OnQuestion(StrEnum):
    """What `on_question` may say."""

    WAIT = "wait"  #: the run waits for an answer, from whatever process
    RETURN = (
        "return"  #: once only questions are left, the caller gets the open run; it can be resumed
    )
    SUPERVISOR = (
        "supervisor"  #: the supervisor's model answers what a worker asks; never an approval
    )
    FAIL = "fail"  #: a question takes its default, or fails its task, at once


class Asking(Struct, frozen=True, kw_only=True):
    """How the questions of one run are treated while it is led here, as its caller chose."""

    mode: OnQuestion = OnQuestion.WAIT
    #: whether an answer may come at all: False where nobody is there and the caller chose nothing
    can_ask: bool = True
    #: whether the supervisor's model answers first
    by_model: bool = False
    #: nobody chose the mode, so a question that waits for a set time is given that time
    is_default: bool = False
    #: with `fail`: what else the caller could do, in words
    why: str = ""
    #: whether the run may go on with workers that have changed
    accepts: bool = False
    #: what becomes of a run whose provider stays away for longer than anybody is patient
    on_outage: OnQuestion = OnQuestion.WAIT

    @property
    def below(self) -> "Asking":
        """The same for a run nested in this one: it never returns by itself."""
        returns = OnQuestion.RETURN
        return replace(
            self,
            mode=OnQuestion.WAIT if self.mode is returns else self.mode,
            on_outage=OnQuestion.WAIT if self.on_outage is returns else self.on_outage,
        )


WAITING = Asking()


def on_question_of(given: "OnQuestion | str") -> OnQuestion:
    """What was chosen. Raises `UsageError` for anything else."""
    return one_of(given, OnQuestion, "on_question")
