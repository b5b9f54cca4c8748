"""Managers: who decides, after each turn, who speaks next. By rule, or by a model that is held to rules."""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from chargehand.errors import WorkerError
from chargehand.facts import argument_checks as checks
from chargehand.facts.value import canonical
from chargehand.models.base import ModelSettings, Turn, system, user
from chargehand.patterns.groups.messages import EVERYONE, REPEATS, USER, Talk
from chargehand.roles.json_output import record
from chargehand.roles.model_calls import ModelCaller, ask_for
from chargehand.roles.prompts import prompt
from chargehand.roles.resources import ModelChoice

NAME = "manager"
MOST_TURNS = 20
TOKEN = "DONE!"  # noqa: S105 - a word to end by, no secret


class TurnAssignment(Struct, frozen=True):
    """A message to one member."""

    to: str
    message: str


class Act(Struct, frozen=True, kw_only=True):
    """What a manager has decided: who speaks next, on what, and who reads it; or the answer."""

    assignments: tuple[TurnAssignment, ...] = ()
    sender: str = USER
    reply_to: str = EVERYONE
    token: str = ""
    answer: str | None = None
    why: str = ""


class Manager(Protocol):
    """Whoever leads the conversation of a group."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> "ModelChoice | None":
        """Its own, if it has one."""

    @property
    def settings(self) -> ModelSettings | None: ...

    @property
    def thinks(self) -> bool:
        """Whether it needs a model."""

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:
        """What comes next; None: the conversation is over. Asked anew after each round."""

    def ending(self, talk: Talk) -> str:
        """Why the conversation was over, in words."""


class RoundRobinManager:
    """Lets the members speak in turn, in the order of the roster, `max_turns` times; without it, once each."""

    model: "ModelChoice | None" = None
    settings: ModelSettings | None = None
    thinks = False

    def __init__(self, max_turns: int | None = None, *, name: str = NAME) -> None:
        self.name = checks.name(name, "name")
        self.max_turns = (
            None if max_turns is None else checks.count(max_turns, "max_turns", least=1)
        )

    def __repr__(self) -> str:
        return f"RoundRobinManager(max_turns={self.max_turns})"

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:  # noqa: ARG002 - it goes by rule
        names = list(talk.members)
        count = len(talk.spoken)
        if count >= (self.max_turns or len(names)):
            return None
        return turn_of(names[count % len(names)], talk)

    def ending(self, talk: Talk) -> str:
        return f"{len(talk.spoken)} turns were spoken, which is all there were to be"


class DynamicManager:
    """Has a model pick who speaks next, until somebody says the token, or for `max_turns`.

    Members are told to end with the token when nothing is left to be said; the model may choose it,
    too. A conversation that was not ended so is broken off, and its run is `partial`: after the most
    turns, or when a speaker says the same three times in a row.
    """

    thinks = True

    def __init__(
        self,
        model: "ModelChoice | None" = None,
        *,
        termination_token: str = TOKEN,
        max_turns: int = MOST_TURNS,
        settings: ModelSettings | None = None,
        name: str = NAME,
    ) -> None:
        self.name = checks.name(name, "name")
        self.model = model
        self.settings = settings
        self.max_turns = checks.count(max_turns, "max_turns", least=1)
        self.token = checks.name(termination_token, "termination_token")

    def __repr__(self) -> str:
        return f"DynamicManager(termination_token={self.token!r}, max_turns={self.max_turns})"

    async def choose(self, talk: Talk, think: Callable[[], ModelCaller]) -> Act | None:
        if self._end_of(talk):
            return None
        if len(talk.spoken) >= self.max_turns:
            raise WorkerError(
                f"{self.max_turns} turns were spoken, which is the most, and nobody said {self.token}"
            )
        if talk.is_stuck and talk.last is not None:
            raise WorkerError(f"no progress: {talk.last.speaker} said the same {REPEATS} times")
        caller = think()
        choices = [*talk.members, *([self.token] if talk.spoken else [])]
        chosen = await ask_for(caller, "next speaker", self._turns(caller, talk), _schema(choices))
        if chosen["next"] == self.token:
            return None
        return turn_of(chosen["next"], talk, token=self.token, why=chosen["why"])

    def ending(self, talk: Talk) -> str:
        return self._end_of(talk) or f"{self.name} chose {self.token}"

    def _end_of(self, talk: Talk) -> str:
        """That somebody has ended it, in words; empty if nobody has."""
        last = talk.last
        is_said = last is not None and self.token in last.text
        return f"{last.speaker} said {self.token}" if last is not None and is_said else ""

    def _turns(self, caller: ModelCaller, talk: Talk) -> tuple[Turn, Turn]:
        roster = "\n".join(f"- {name}: {words}" for name, words in talk.members.items())
        words = prompt("speaker", caller.resources.prompts, roster=roster, token=self.token)
        left = self.max_turns - len(talk.spoken)
        unheard = canonical(talk.unheard).decode()  # of all that was said, only the newest is shown
        told = f"Choose who speaks next. Turns left: {left}. Not asked yet: {unheard}"
        return system(words), user(f"{told}\n{talk.in_words()}")


def turn_of(name: str, talk: Talk, *, token: str = "", why: str = "") -> Act:
    """That this member speaks next, to everyone."""
    last = talk.last
    return Act(
        assignments=(TurnAssignment(name, talk.request),),
        sender=USER if last is None else last.speaker,
        token=token,
        why=why,
    )


def _schema(choices: list[str]) -> dict[str, Any]:
    return record(
        next={"type": "string", "enum": choices},
        why={"type": "string", "description": "why, in one sentence"},
    )
